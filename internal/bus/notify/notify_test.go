package notify_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/bustest"
	"github.com/parley-project/parley/internal/bus/memory"
	"github.com/parley-project/parley/internal/bus/notify"
)

// database gives every payload to everybody who listens, in one order.
type database struct {
	mu        sync.Mutex // protects what follows
	listeners map[chan string]bool
	payloads  int
	longest   int
	broken    bool
}

func newDatabase() *database { return &database{listeners: map[chan string]bool{}} }

func (d *database) Notify(_ context.Context, payload string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken {
		return errors.New("no connection")
	}
	d.payloads++
	d.longest = max(d.longest, len(payload))
	for c := range d.listeners {
		c <- payload
	}
	return nil
}

func (d *database) Listen(ctx context.Context, each func(string)) error {
	c := make(chan string, 100_000)
	d.mu.Lock()
	d.listeners[c] = true
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.listeners, c)
		d.mu.Unlock()
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case p := <-c:
			each(p)
		}
	}
}

// sent gives the number of payloads and the length of the longest.
func (d *database) sent() (payloads, longest int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.payloads, d.longest
}

// breaks cuts the connections of those who send.
func (d *database) breaks(broken bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = broken
}

// start runs one process on the database.
func start(t *testing.T, d *database, name string) (b *notify.Bus, stop func()) {
	t.Helper()
	local := memory.New(memory.Options{})
	b = notify.New(notify.Config{DB: d, Local: local, Process: name, Now: time.Now})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := b.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return b, sync.OnceFunc(func() {
		cancel()
		running.Wait()
		if err := local.Close(); err != nil {
			t.Error(err)
		}
	})
}

// spread is a bus of several processes: each call goes to another one. After a
// subscription has come or gone it waits until all have heard of that.
type spread struct {
	mu       sync.Mutex // protects what follows
	buses    []*notify.Bus
	next     int
	subjects map[string]string
}

func (s *spread) turn(subject string) (*notify.Bus, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	relayed := []string{bus.SubjectRuns, bus.SubjectHint, bus.SubjectCancel, bus.SubjectProgress}
	if s.subjects[subject] == "" {
		s.subjects[subject] = relayed[len(s.subjects)]
	}
	return s.buses[s.next%len(s.buses)], s.subjects[subject]
}

func (s *spread) Publish(ctx context.Context, m bus.Message) error {
	to, subject := s.turn(m.Subject)
	if len(s.buses) > 1 {
		to = s.buses[0] // order is that of one publisher
	}
	m.Subject = subject
	if err := to.Publish(ctx, m); err != nil {
		return err
	}
	if len(s.buses) > 1 {
		time.Sleep(time.Microsecond) // what comes next is after it for everybody
	}
	return nil
}

func (s *spread) Subscribe(ctx context.Context, subject, group string, h bus.Handler) (func(), error) {
	to, mapped := s.turn(subject)
	stop, err := to.Subscribe(ctx, mapped, group, func(ctx context.Context, m bus.Message) error {
		m.Subject = subject
		return h(ctx, m)
	})
	if err != nil {
		return nil, err
	}
	time.Sleep(time.Millisecond)
	return func() { stop(); time.Sleep(time.Millisecond) }, nil
}

// TestContract: within one process, and with subscribers in three.
func TestContract(t *testing.T) {
	for _, n := range []int{1, 3} {
		for _, c := range bustest.Cases() {
			t.Run(fmt.Sprintf("%d processes/%s", n, c.Name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := newDatabase()
					s := &spread{subjects: map[string]string{}}
					for i := range n {
						b, stop := start(t, d, fmt.Sprint("process-", i))
						defer stop()
						s.buses = append(s.buses, b)
					}
					if err := c.Check(t.Context(), s); err != nil {
						t.Errorf("%v\nviolated: %s", err, c.Rule)
					}
				})
			})
		}
	}
}

// TestTasksStay: what is no business of other processes does not leave this one.
func TestTasksStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		a, stopA := start(t, d, "a")
		defer stopA()
		b, stopB := start(t, d, "b")
		defer stopB()
		got := make(chan string, 10)
		for name, p := range map[string]*notify.Bus{"a": a, "b": b} {
			stop, err := p.Subscribe(t.Context(), bus.SubjectTasks, "bridges", func(context.Context, bus.Message) error {
				got <- name
				return nil
			})
			check(t, err)
			defer stop()
		}
		check(t, a.Publish(t.Context(), bus.Message{Subject: bus.SubjectTasks, Key: "k"}))
		synctest.Wait()
		if len(got) != 1 || <-got != "a" {
			t.Error("the task has left its process")
		}
	})
}

// receive collects what subscriptions get, by process.
type receive struct {
	mu  sync.Mutex
	got map[string][]string
}

func (r *receive) handler(process string) bus.Handler {
	return func(_ context.Context, m bus.Message) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got[process] = append(r.got[process], m.Key)
		return nil
	}
}

func (r *receive) count(process string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got[process])
}

// TestKeysStay: of a group each key always has the same member; the keys of a
// member that goes away, with a word or without, go to the others, and only
// those move.
func TestKeysStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		r := &receive{got: map[string][]string{}}
		stops := map[string]func(){}
		var publisher *notify.Bus
		for _, name := range []string{"a", "b", "c"} {
			p, stop := start(t, d, name)
			_, err := p.Subscribe(t.Context(), bus.SubjectRuns, "executors", r.handler(name))
			check(t, err)
			stops[name], publisher = stop, p
		}
		time.Sleep(time.Millisecond)
		const keys = 300
		round := func() map[string]string {
			t.Helper()
			r.mu.Lock()
			r.got = map[string][]string{}
			r.mu.Unlock()
			for k := range keys {
				check(t, publisher.Publish(t.Context(), bus.Message{Subject: bus.SubjectRuns, Key: fmt.Sprint(k)}))
			}
			time.Sleep(time.Millisecond)
			at := map[string]string{}
			r.mu.Lock()
			defer r.mu.Unlock()
			for name, got := range r.got {
				for _, k := range got {
					if at[k] != "" {
						t.Errorf("key %s reached %s and %s", k, at[k], name)
					}
					at[k] = name
				}
				if len(got) < keys/6 {
					t.Errorf("%s has only %d of %d keys", name, len(got), keys)
				}
			}
			if len(at) != keys {
				t.Errorf("%d of %d keys arrived", len(at), keys)
			}
			return at
		}
		first, second := round(), round()
		stops["a"]()
		time.Sleep(time.Millisecond)
		third := round()
		for k := range first {
			if first[k] != second[k] || first[k] != "a" && third[k] != first[k] {
				t.Errorf("key %s moved: %s %s %s", k, first[k], second[k], third[k])
			}
		}
		stops["b"]()
		stops["c"]()
	})
}

// TestSilentMemberIsForgotten: a process that is killed says nothing; its keys
// are others' after three seconds.
func TestSilentMemberIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		r := &receive{got: map[string][]string{}}
		a, stopA := start(t, d, "a")
		defer stopA()
		_, err := a.Subscribe(t.Context(), bus.SubjectRuns, "g", r.handler("a"))
		check(t, err)
		// A process that spoke once and was killed.
		check(t, d.Notify(t.Context(), "p1 dead 1 1/1\n"+`{"g":{"parley.runs":["g"]}}`))
		time.Sleep(time.Millisecond)
		publish := func() {
			for k := range 100 {
				check(t, a.Publish(t.Context(), bus.Message{Subject: bus.SubjectRuns, Key: fmt.Sprint(k)}))
			}
			time.Sleep(time.Millisecond)
		}
		publish()
		if n := r.count("a"); n < 20 || n > 80 {
			t.Errorf("%d of 100 keys while two are members", n)
		}
		time.Sleep(3 * time.Second)
		before := r.count("a")
		publish()
		if n := r.count("a") - before; n != 100 {
			t.Errorf("%d of 100 keys alone", n)
		}
	})
}

// TestLargeRecords: progress that is larger than a payload arrives whole; what
// is too large for that is dropped for others and counted.
func TestLargeRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		a, stopA := start(t, d, "a")
		defer stopA()
		b, stopB := start(t, d, "b")
		defer stopB()
		var mu sync.Mutex // protects got
		var got []bus.Message
		_, err := b.Subscribe(t.Context(), bus.SubjectProgress, "", func(_ context.Context, m bus.Message) error {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, m)
			return nil
		})
		check(t, err)
		large := `{"text":"` + strings.Repeat("é\\n", 15_000) + `"}`
		for _, v := range []string{large, "small", "\xff\x00", strings.Repeat("x", 300<<10), "last"} {
			check(t, a.Publish(t.Context(), bus.Message{Subject: bus.SubjectProgress, Key: "k", Value: []byte(v), Header: map[string]string{"h": "v"}}))
		}
		time.Sleep(time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		want := []string{large, "small", "\xff\x00", "last"}
		if len(got) != len(want) {
			t.Fatalf("%d messages, want %d", len(got), len(want))
		}
		for i, m := range got {
			if string(m.Value) != want[i] || m.Key != "k" || m.Header["h"] != "v" {
				t.Errorf("message %d: %d bytes, key %q, header %v", i, len(m.Value), m.Key, m.Header)
			}
		}
		if sent, _, dropped := a.Counts(); sent != 4 || dropped != 1 {
			t.Errorf("%d sent, %d dropped", sent, dropped)
		}
		if _, longest := d.sent(); longest > 7_900 {
			t.Errorf("a payload of %d bytes", longest)
		}
	})
}

// TestSendersThatDied: letters whose senders have died before the last piece are
// forgotten, however many: they keep no place from those who live.
func TestSendersThatDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		b, stop := start(t, d, "b")
		defer stop()
		var got atomic.Int64
		_, err := b.Subscribe(t.Context(), bus.SubjectProgress, "", func(_ context.Context, m bus.Message) error {
			got.Add(int64(len(m.Value)))
			return nil
		})
		check(t, err)
		for n := range 2000 {
			check(t, d.Notify(t.Context(), fmt.Sprintf("p1 dead-%d 1 1/2\n{", n)))
		}
		time.Sleep(time.Minute)
		a, stopA := start(t, d, "a")
		defer stopA()
		<-a.Ready()
		const size = 30_000
		check(t, a.Publish(t.Context(), bus.Message{Subject: bus.SubjectProgress, Key: "run", Value: []byte(strings.Repeat("x", size))}))
		time.Sleep(time.Second)
		if n := got.Load(); n != size {
			t.Errorf("of a message of %d bytes %d came", size, n)
		}
	})
}

// TestGathers: what waits while a payload is under way goes into few others.
func TestGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		a, stopA := start(t, d, "a")
		defer stopA()
		time.Sleep(time.Millisecond)
		before, _ := d.sent()
		d.mu.Lock() // the first one is under way
		for i := range 1000 {
			check(t, a.Publish(t.Context(), bus.Message{Subject: bus.SubjectChanged, Key: fmt.Sprint("run-", i), Value: []byte("3 RUNNING")}))
		}
		d.mu.Unlock()
		time.Sleep(time.Millisecond)
		if after, _ := d.sent(); after-before > 20 {
			t.Errorf("%d payloads for 1,000 messages", after-before)
		}
	})
}

// TestAlone: a process that hears nobody else sends nothing but its presence,
// and sends again as soon as another one is there.
func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		a, stopA := start(t, d, "a")
		defer stopA()
		hint := func() (sent int64) {
			check(t, a.Publish(t.Context(), bus.Message{Subject: bus.SubjectHint, Key: "k"}))
			synctest.Wait()
			sent, _, _ = a.Counts()
			return sent
		}
		synctest.Wait()
		if n := hint(); n != 1 {
			t.Errorf("%d sent before it is known that nobody is there", n)
		}
		time.Sleep(3 * time.Second)
		if n := hint(); n != 1 {
			t.Errorf("%d sent to nobody", n)
		}
		_, stopB := start(t, d, "b")
		synctest.Wait()
		if n := hint(); n != 2 {
			t.Errorf("%d sent, though there is another process", n)
		}
		stopB()
		time.Sleep(3 * time.Second)
		if n := hint(); n != 2 {
			t.Errorf("%d sent after the other had gone", n)
		}
	})
}

// TestSlowSubscriber: a process with a subscription that takes nothing more goes
// on hearing the others; what there is no place for is dropped and counted.
func TestSlowSubscriber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		a, stopA := start(t, d, "a")
		defer stopA()
		b, stopB := start(t, d, "b")
		defer stopB()
		free := make(chan struct{})
		stop, err := b.Subscribe(t.Context(), bus.SubjectRuns, "", func(context.Context, bus.Message) error { <-free; return nil })
		check(t, err)
		defer stop()
		defer close(free)
		r := &receive{got: make(map[string][]string)}
		stopHints, err := b.Subscribe(t.Context(), bus.SubjectHint, "", r.handler("b"))
		check(t, err)
		defer stopHints()
		const places, more = 16_384, 100
		for range places + 1 + more { // one is in hand
			check(t, a.Publish(t.Context(), bus.Message{Subject: bus.SubjectRuns, Key: "k"}))
			synctest.Wait()
		}
		check(t, a.Publish(t.Context(), bus.Message{Subject: bus.SubjectHint, Key: "k"}))
		synctest.Wait()
		if _, received, dropped := b.Counts(); r.count("b") != 1 || received != places+more+2 || dropped != more {
			t.Errorf("%d hints, %d received, %d dropped", r.count("b"), received, dropped)
		}
	})
}

// TestBrokenDatabase: what cannot be sent is dropped and counted, works within
// the process all the same, and the bus says that it is not healthy.
func TestBrokenDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		a, stopA := start(t, d, "a")
		defer stopA()
		r := &receive{got: map[string][]string{}}
		_, err := a.Subscribe(t.Context(), bus.SubjectRuns, "g", r.handler("a"))
		check(t, err)
		if !a.Healthy() {
			t.Error("not healthy")
		}
		d.breaks(true)
		check(t, a.Publish(t.Context(), bus.Message{Subject: bus.SubjectRuns, Key: "k"}))
		time.Sleep(6 * time.Second)
		if _, _, dropped := a.Counts(); dropped != 1 || a.Healthy() || r.count("a") != 1 {
			t.Errorf("%d dropped, healthy: %v, %d delivered here", dropped, a.Healthy(), r.count("a"))
		}
		d.breaks(false)
		time.Sleep(2 * time.Second)
		if !a.Healthy() {
			t.Error("not healthy again")
		}
	})
}

// TestBrokenDatabaseHoldsNobodyUp: who rests after a failure does not keep others
// from sending meanwhile. (Time does not pass here for who waits for a lock.)
func TestBrokenDatabaseHoldsNobodyUp(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			d := newDatabase()
			a, stopA := start(t, d, "a")
			defer stopA()
			r := &receive{got: map[string][]string{}}
			_, err := a.Subscribe(t.Context(), bus.SubjectRuns, "g", r.handler("a"))
			check(t, err)
			synctest.Wait()
			d.breaks(true)
			check(t, a.Publish(t.Context(), bus.Message{Subject: bus.SubjectRuns, Key: "k"}))
			_, err = a.Subscribe(t.Context(), bus.SubjectRuns, "other", r.handler("a")) // is told to the others at once
			check(t, err)
			time.Sleep(time.Second)
			if _, _, dropped := a.Counts(); dropped != 1 {
				t.Errorf("%d dropped", dropped)
			}
		})
	}
}

// TestSubscribeWaits: nobody hears others yet: Subscribe returns with its
// context and leaves nothing behind.
func TestSubscribeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := memory.New(memory.Options{})
		defer func() { check(t, local.Close()) }()
		b := notify.New(notify.Config{DB: newDatabase(), Local: local, Process: "a", Now: time.Now})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Subscribe(ctx, bus.SubjectRuns, "g", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		check(t, b.Publish(t.Context(), bus.Message{Subject: bus.SubjectRuns, Key: "k"}))
	})
}

// FuzzTake: no payload of anybody brings a process down.
func FuzzTake(f *testing.F) {
	f.Add("p1 x 1 1/1\n{}")
	f.Add("p1 x 1 1/2\n{\"m\":[")
	f.Add("p1 x 1 2/2\n]}")
	f.Add("p1 x 9999999999999999999 1/1\n")
	f.Fuzz(func(t *testing.T, payload string) {
		synctest.Test(t, func(t *testing.T) {
			d := newDatabase()
			b, stop := start(t, d, "a")
			defer stop()
			got := make(chan struct{})
			_, err := b.Subscribe(t.Context(), bus.SubjectCancel, "", func(context.Context, bus.Message) error {
				close(got)
				return nil
			})
			check(t, err)
			check(t, d.Notify(t.Context(), strings.ReplaceAll(payload, bus.SubjectCancel, "")))
			check(t, d.Notify(t.Context(), `p1 y 7 1/1`+"\n"+`{"m":[{"s":"parley.cancel","k":"k"}]}`))
			<-got
		})
	})
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
