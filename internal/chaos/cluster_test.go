package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/kafkatest"
	"github.com/parley-project/parley/internal/pgtest"
	"github.com/parley-project/parley/internal/server"
	"github.com/parley-project/parley/internal/store"
)

const apiKey = "parley_chaos_0123456789abcdef"

// cluster is everything: the processes, what they stand on, and the agents.
type cluster struct {
	t       *testing.T
	dir     string
	agents  *agents
	kafka   *kafkatest.Cluster // nil without
	primary *pgtest.Server
	standby *pgtest.Server // nil without, or once it is the primary

	// between are the ways from one broker to another, by their numbers; none
	// without a mesh.
	between map[[2]int][]*proxy

	addresses          []string // of PostgreSQL, both servers
	executors, bridges []*process
	skews              []time.Duration
	running            sync.WaitGroup
	// steers, if set, does more to runs than to start them.
	steers *steerer
	// resting: nothing more is waited for but rest.
	resting atomic.Bool
	// poisoned: somebody has written records that cannot be handled.
	poisoned bool
}

// shape is what a cluster consists of.
type shape struct {
	executors, bridges, brokers int
	standby                     bool
	// mesh puts a network that can be hurt between the brokers.
	mesh  bool
	works time.Duration // of each agent, for one task
	// skews are what the clocks of executors and bridges are ahead.
	skews []time.Duration
}

// wholeCluster is the one of the chaos proof. Between the brokers it can be hurt
// where the loopback has as many addresses as that needs.
func wholeCluster() shape {
	return shape{executors: 2, bridges: 3, brokers: 3, standby: true, mesh: hasMesh, works: 400 * time.Millisecond}
}

func newCluster(t *testing.T, s shape) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), agents: newAgents(t, s.works), skews: s.skews}
	var starting sync.WaitGroup
	if s.brokers > 0 {
		starting.Go(func() {
			c.kafka = kafkatest.Start(t, c.brokerOptions(s))
			c.createTopics()
		})
	}
	starting.Go(func() {
		c.primary = pgtest.Start(t, pgtest.Options{})
		if s.standby {
			c.standby = c.primary.Standby(t)
		}
		c.migrate()
	})
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	c.addresses = c.databases()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); c.running.Wait(); c.tell() })
	for i := range s.executors {
		c.executors = append(c.executors, c.process(ctx, fmt.Sprintf("executor-%d", i), server.RoleAPI, server.RoleExecutor))
	}
	for i := range s.bridges {
		c.bridges = append(c.bridges, c.process(ctx, fmt.Sprintf("bridge-%d", i), server.RoleBridge))
	}
	c.awaitReady()
	return c
}

func (c *cluster) brokerOptions(s shape) kafkatest.Options {
	o := kafkatest.Options{Nodes: s.brokers}
	if s.mesh {
		c.between = map[[2]int][]*proxy{}
		o.Mesh = func(l kafkatest.Link) {
			way := [2]int{l.From, l.To}
			c.between[way] = append(c.between[way], newProxyAt(c.t, l.Listen, l.Target))
		}
	}
	return o
}

func (c *cluster) createTopics() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	report, err := server.CreateTopics(ctx, server.KafkaConfig{Brokers: c.kafka.Brokers(), Topics: server.KafkaTopics(server.TopicNames{})})
	if err != nil || report.Err() != nil {
		c.t.Errorf("topics: %v %v", err, report.Err())
	}
}

func (c *cluster) migrate() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	db, err := store.Open(ctx, c.primary.URL("postgres"), store.Options{})
	if err == nil {
		err = db.Migrate(ctx)
	}
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		c.t.Errorf("schema: %v", err)
	}
}

// process makes a process with a network of its own and starts it.
func (c *cluster) process(ctx context.Context, name string, roles ...server.Role) *process {
	p := &process{
		tb: c.t, log: filepath.Join(c.dir, name+".log"), proxies: map[string]*proxy{}, counted: counts{},
		spec: childSpec{
			Name: name, Roles: roles, Data: filepath.Join(c.dir, name), Key: apiKey, Seal: filepath.Join(c.dir, "seal"),
			Listen: freeAddress(c.t, func() int { return rand.IntN(12_000) }), Database: c.databaseURL(), Routes: map[string]string{},
			Agents:   writeFile(c.t, filepath.Join(c.dir, "agents.yaml"), c.agents.file()),
			Workflow: filepath.Join(c.dir, "flows"),
		},
	}
	for flow, source := range flows() {
		writeFile(c.t, filepath.Join(p.spec.Workflow, flow+".yaml"), source)
	}
	if c.kafka != nil {
		p.spec.Brokers = c.kafka.Brokers()
	}
	if len(c.skews) > 0 {
		p.spec.Skew, c.skews = c.skews[0], c.skews[1:]
	}
	for _, target := range c.targets() {
		p.proxies[target] = newProxy(c.t, target)
		p.spec.Routes[target] = p.proxies[target].address()
	}
	c.running.Go(func() { p.supervise(ctx) })
	return p
}

// databaseURL names the primary and the standby: whoever takes writes is used.
func (c *cluster) databaseURL() string {
	url := c.primary.URL("postgres")
	if c.standby != nil {
		url = strings.Replace(url, c.primary.Addr(), c.primary.Addr()+","+c.standby.Addr(), 1)
	}
	return url
}

// targets are the addresses that processes connect to.
func (c *cluster) targets() []string {
	all := append(c.databases(), c.brokers()...)
	for name := range c.agents.servers {
		all = append(all, c.agents.address(name))
	}
	return all
}

func (c *cluster) databases() []string {
	all := []string{c.primary.Addr()}
	if c.standby != nil {
		all = append(all, c.standby.Addr())
	}
	return all
}

func (c *cluster) brokers() []string {
	if c.kafka == nil {
		return nil
	}
	return c.kafka.Brokers()
}

func (c *cluster) processes() []*process {
	return append(append([]*process(nil), c.executors...), c.bridges...)
}

// awaitReady waits until every process is ready.
func (c *cluster) awaitReady() {
	c.t.Helper()
	for _, p := range c.processes() {
		eventually(c.t, time.Minute, p.spec.Name+" is ready", p.ready)
	}
}

// tell shows what the processes said, if the test has failed.
func (c *cluster) tell() {
	for _, p := range c.processes() {
		if race := p.raced(); race != "" {
			c.t.Errorf("%s has a data race: %s", p.spec.Name, race)
		}
	}
	if !c.t.Failed() {
		return
	}
	for _, p := range c.processes() {
		c.t.Logf("end of the log of %s:\n%s", p.spec.Name, p.tail(15))
	}
}

// eventually waits until check gives no error.
func eventually(t *testing.T, within time.Duration, what string, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(within); ; pause(t, 20*time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, within, err)
		}
	}
}

// pause lets real time pass: the processes live outside of the test.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-t.Context().Done():
	case <-time.After(d):
	}
}

// start starts a run of the workflow at one executor, under the idempotency key
// of n.
func (c *cluster) start(p *process, n int) (string, error) {
	body := fmt.Appendf(nil, `{"input_data":{"n":"%d"},"idempotency_key":"k%d"}`, n, n)
	status, b, err := c.post(p, "/api/v1/workflows/"+c.steers.flow(n)+"/execute", body)
	if err != nil {
		return "", err
	}
	if status/100 != 2 {
		return "", fmt.Errorf("%d: %s", status, b)
	}
	var run parley.Run
	err = json.Unmarshal(b, &run)
	return run.ID, err
}

// load starts runs numbered from first until before, one each interval, each
// until it is accepted by some executor; one in eight is started twice. What else
// is done to them begins then. It gives the ids that were answered, by number.
func (c *cluster) load(first, before int, every time.Duration) map[int][]string {
	ids := make(map[int][]string, before-first)
	var mu sync.Mutex
	var starting sync.WaitGroup
	slots := make(chan struct{}, 64)
	tick := time.NewTicker(max(every, time.Microsecond))
	defer tick.Stop()
	for n := first; n < before && c.t.Context().Err() == nil; n++ {
		<-tick.C
		slots <- struct{}{}
		starting.Go(func() {
			defer func() { <-slots }()
			for left, try := 1+boolInt(n%8 == 0), n; left > 0 && c.t.Context().Err() == nil; try++ {
				id, err := c.start(c.executors[try%len(c.executors)], n)
				if err != nil {
					pause(c.t, 50*time.Millisecond)
					continue
				}
				mu.Lock()
				if ids[n] = append(ids[n], id); len(ids[n]) == 1 {
					c.steers.began(n, id)
				}
				mu.Unlock()
				left--
			}
		})
	}
	starting.Wait()
	return ids
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// stopAll ends every process as an operator does.
func (c *cluster) stopAll() {
	c.t.Helper()
	var stopping sync.WaitGroup
	for _, p := range c.processes() {
		stopping.Go(func() {
			p.signal(syscall.SIGCONT)
			if !p.stop(30 * time.Second) {
				c.t.Errorf("%s does not stop", p.spec.Name)
			}
		})
	}
	stopping.Wait()
}

// busyFactor stretches times on machines with few processors.
func busyFactor() time.Duration {
	if runtime.NumCPU() < 4 {
		return 2
	}
	return 1
}
