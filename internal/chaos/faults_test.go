package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"
)

// overLease is longer than every lease: 15 s of a bridge's claims, 10 s of a
// member of a group.
const overLease = 17 * time.Second

// faultKind is one way to hurt the cluster. of is what of it excludes others at
// the same time.
type faultKind struct {
	name string
	of   func(c *cluster, rnd *rand.Rand) (lock string, hurt, heal func(), last time.Duration)
	// delays: what was sent to an agent before, or is about to be, may come later.
	delays bool
}

// fault is one drawn fault.
type fault struct {
	kind faultKind
	at   time.Duration
	rnd  *rand.Rand
}

// schedule draws count faults, one each spacing, every kind at least once if
// count suffices.
func schedule(seed uint64, count int, spacing time.Duration) []fault {
	rnd := rand.New(rand.NewPCG(seed, 1))
	kinds := faultKinds()
	var all []fault
	for len(all) < count {
		rnd.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		for _, k := range kinds[:min(len(kinds), count-len(all))] {
			at := time.Duration(len(all))*spacing + time.Duration(rnd.Int64N(int64(spacing)))
			all = append(all, fault{kind: k, at: at, rnd: rand.New(rand.NewPCG(rnd.Uint64(), 2))})
		}
	}
	return all
}

// faulter performs a schedule and heals what it hurt.
type faulter struct {
	c      *cluster
	mu     sync.Mutex
	locks  map[string]*sync.Mutex
	delays []delay
	began  time.Time
}

func (f *faulter) run(ctx context.Context, faults []fault) {
	f.began, f.locks = time.Now(), map[string]*sync.Mutex{}
	var hurting sync.WaitGroup
	watching, seen := context.WithCancel(ctx)
	defer seen()
	go f.watch(watching)
	for _, x := range faults {
		hurting.Go(func() {
			select {
			case <-ctx.Done():
			case <-time.After(time.Until(f.began.Add(x.at))):
				f.perform(ctx, x)
			}
		})
	}
	hurting.Wait()
}

// watch tells when the test itself stood still: what it measures then says
// nothing.
func (f *faulter) watch(ctx context.Context) {
	for last := time.Now(); ctx.Err() == nil; last = time.Now() {
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
		if still := time.Since(last); still > 2*time.Second {
			f.c.t.Logf("%6.1f s: the test stood still for %.1f s", time.Since(f.began).Seconds(), still.Seconds())
		}
	}
}

func (f *faulter) perform(ctx context.Context, x fault) {
	lock, hurt, heal, last := x.kind.of(f.c, x.rnd)
	f.mu.Lock()
	l := f.locks[lock]
	if l == nil {
		l = new(sync.Mutex)
		f.locks[lock] = l
	}
	f.mu.Unlock()
	l.Lock()
	defer l.Unlock()
	if ctx.Err() != nil {
		return
	}
	from, calls := time.Since(f.began), f.c.agents.log.total()
	hurt()
	select {
	case <-ctx.Done():
	case <-time.After(last):
	}
	heal()
	if x.kind.delays {
		f.mu.Lock()
		f.delays = append(f.delays, delay{f.began.Add(from), time.Now()})
		f.mu.Unlock()
	}
	f.c.t.Logf("%6.1f s to %6.1f s: %s of %s, %d calls", from.Seconds(), time.Since(f.began).Seconds(), x.kind.name, lock, f.c.agents.log.total()-calls)
}

func pick[T any](rnd *rand.Rand, of []T) T { return of[rnd.IntN(len(of))] }

// between draws a duration.
func between(rnd *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(rnd.Int64N(int64(to-from)))
}

// faultKinds are all of them.
func faultKinds() []faultKind {
	executor := func(c *cluster) []*process { return c.executors }
	bridge := func(c *cluster) []*process { return c.bridges }
	all := []faultKind{
		killProcess("death of an executor", executor), killProcess("death of a bridge", bridge),
		stopProcess("stop of an executor", executor), delaying(stopProcess("stop of a bridge", bridge)),
		killBroker(), stopBroker(), restartDatabase("crash", true), restartDatabase("restart", false), promoteStandby(),
	}
	targets := map[string]func(c *cluster, rnd *rand.Rand) (*process, string){
		"PostgreSQL": func(c *cluster, rnd *rand.Rand) (*process, string) {
			return pick(rnd, c.processes()), "PostgreSQL"
		},
		"a broker": func(c *cluster, rnd *rand.Rand) (*process, string) {
			return pick(rnd, c.processes()), pick(rnd, c.brokers())
		},
		"an agent": func(c *cluster, rnd *rand.Rand) (*process, string) {
			return pick(rnd, c.bridges), c.agents.address(pick(rnd, []string{agentResend, agentLookup, agentFail}))
		},
	}
	for _, name := range []string{"PostgreSQL", "a broker", "an agent"} {
		for _, way := range []string{"silent", "half silent", "torn"} {
			kind := cut(way+" network to "+name, way, targets[name])
			if name == "an agent" {
				kind = delaying(kind)
			}
			all = append(all, kind)
		}
	}
	if hasMesh {
		for _, way := range []string{"silent", "half silent", "torn"} {
			all = append(all, cutBrokers(way))
		}
	}
	return all
}

// delaying is a kind after which calls may come later than they were sent.
func delaying(k faultKind) faultKind {
	k.delays = true
	return k
}

// cutBrokers takes the network between two brokers away, or one way of it.
func cutBrokers(way string) faultKind {
	return faultKind{name: way + " network between brokers", of: func(c *cluster, rnd *rand.Rand) (string, func(), func(), time.Duration) {
		pair := rnd.Perm(len(c.brokers()))[:2]
		ways := [][2]int{{pair[0], pair[1]}, {pair[1], pair[0]}}
		if way == "half silent" {
			ways = ways[:1]
		}
		hurt := func() {
			for _, w := range ways {
				for _, x := range c.between[w] {
					if way == "torn" {
						x.tear()
					} else {
						x.silence(upstream, downstream)
					}
				}
			}
		}
		heal := func() {
			for _, w := range ways {
				for _, x := range c.between[w] {
					x.heal()
				}
			}
		}
		return "the brokers", hurt, heal, between(rnd, time.Second, 8*time.Second)
	}}
}

func killProcess(name string, which func(*cluster) []*process) faultKind {
	return faultKind{name: name, of: func(c *cluster, rnd *rand.Rand) (string, func(), func(), time.Duration) {
		p := pick(rnd, which(c))
		last := between(rnd, 50*time.Millisecond, 2*time.Second)
		if rnd.IntN(3) == 0 {
			last = between(rnd, overLease, overLease+3*time.Second)
		}
		return p.spec.Name, p.kill, func() { p.hold(false) }, last
	}}
}

func stopProcess(name string, which func(*cluster) []*process) faultKind {
	return faultKind{name: name, of: func(c *cluster, rnd *rand.Rand) (string, func(), func(), time.Duration) {
		p := pick(rnd, which(c))
		return p.spec.Name, func() { p.signal(syscall.SIGSTOP) }, func() { p.signal(syscall.SIGCONT) }, between(rnd, overLease, overLease+4*time.Second)
	}}
}

func killBroker() faultKind {
	return faultKind{name: "death of a broker", of: func(c *cluster, rnd *rand.Rand) (string, func(), func(), time.Duration) {
		i := rnd.IntN(len(c.brokers()))
		return "the brokers", func() { c.kafka.Kill(i) }, func() { c.kafka.Start(c.t, i) }, between(rnd, 500*time.Millisecond, 4*time.Second)
	}}
}

func stopBroker() faultKind {
	return faultKind{name: "stop of a broker", of: func(c *cluster, rnd *rand.Rand) (string, func(), func(), time.Duration) {
		i := rnd.IntN(len(c.brokers()))
		return "the brokers", func() { c.kafka.Pause(c.t, i) }, func() { c.kafka.Continue(c.t, i) }, between(rnd, 4*time.Second, 8*time.Second)
	}}
}

func restartDatabase(name string, crash bool) faultKind {
	return faultKind{name: name + " of PostgreSQL", of: func(c *cluster, rnd *rand.Rand) (string, func(), func(), time.Duration) {
		hurt := func() {
			if crash {
				c.primary.Kill()
			} else {
				c.primary.Stop()
			}
		}
		return "the database", hurt, func() { c.primary.Restart() }, between(rnd, 10*time.Millisecond, 2*time.Second)
	}}
}

// promoteStandby lets the primary die for good. Without a standby it dies, and
// comes back.
func promoteStandby() faultKind {
	return faultKind{name: "failover of PostgreSQL", of: func(c *cluster, rnd *rand.Rand) (string, func(), func(), time.Duration) {
		heal := func() {
			if c.standby == nil {
				c.primary.Restart()
				return
			}
			c.standby.Promote()
			c.primary, c.standby = c.standby, nil
		}
		return "the database", func() { c.primary.Kill() }, heal, between(rnd, 10*time.Millisecond, time.Second)
	}}
}

// cut takes the network between one process and something else away. What was
// silent arrives later, or its connections are reset.
func cut(name, way string, ends func(*cluster, *rand.Rand) (*process, string)) faultKind {
	return faultKind{name: name, of: func(c *cluster, rnd *rand.Rand) (string, func(), func(), time.Duration) {
		p, target := ends(c, rnd)
		proxies := []*proxy{p.proxies[target]}
		if target == "PostgreSQL" {
			proxies = p.databases(c)
		}
		directions := []direction{upstream, downstream}
		if way == "half silent" {
			directions = []direction{pick(rnd, directions)}
		}
		forgotten := rnd.IntN(2) == 0
		hurt := func() {
			for _, x := range proxies {
				if way == "torn" {
					x.tear()
				} else {
					x.silence(directions...)
				}
			}
		}
		heal := func() {
			for _, x := range proxies {
				if forgotten {
					x.reset()
				}
				x.heal()
			}
		}
		return fmt.Sprintf("%s to %s", p.spec.Name, target), hurt, heal, between(rnd, time.Second, 8*time.Second)
	}}
}

// databases are the process's ways to both servers.
func (p *process) databases(c *cluster) []*proxy {
	var all []*proxy
	for _, address := range c.addresses {
		all = append(all, p.proxies[address])
	}
	return all
}
