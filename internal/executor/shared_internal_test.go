package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// noteBus notes what is published, after a while.
type noteBus struct {
	bus.Bus
	takes time.Duration
	err   error

	mu  sync.Mutex
	got []string
}

func (b *noteBus) Publish(ctx context.Context, m bus.Message) error {
	b.mu.Lock()
	takes := b.takes
	b.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got = append(b.got, strings.TrimSpace(fmt.Sprintf("%s %s %s", m.Subject, m.Key, m.Value)))
	return b.err
}

func (b *noteBus) seen() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.got)
}

// posting lets an executor that shares its store publish hints for as long as f
// runs.
func posting(t *testing.T, x *Executor, f func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { x.servePosts(ctx) })
	serving.Go(func() { x.serveChanges(ctx) })
	f()
	cancel()
	serving.Wait()
}

// held is a run that an executor holds, before its first event.
func held(t *testing.T, x *Executor, run string) *liveRun {
	t.Helper()
	def, problems := workflow.Parse(workflow.ParseOptions{}, []byte("name: talk\nsteps: [{id: a, agent: writer}]"))
	if def == nil {
		t.Fatal(problems)
	}
	l := x.entry(run)
	l.state = workflow.NewState(run, def, workflow.DefaultRunLimits())
	return l
}

// TestPosts: of the hints of one subject and key that wait only the last goes
// out, in the place of the first; whoever waits for one ends with its context.
func TestPosts(t *testing.T) {
	p := newPosts()
	for i, key := range []string{"a", "b", "a", "c", "b"} {
		p.add(bus.Message{Subject: "s", Key: key, Value: fmt.Append(nil, i)})
	}
	p.add(bus.Message{Subject: "other", Key: "a", Value: []byte("9")})
	var got []string
	for range 4 {
		m, ok := p.take(t.Context())
		got = append(got, fmt.Sprint(m.Subject, m.Key, string(m.Value), ok))
	}
	if want := []string{"sa2true", "sb4true", "sc3true", "othera9true"}; !slices.Equal(got, want) {
		t.Errorf("took %q, want %q", got, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := p.take(ctx); ok {
		t.Error("there was nothing left")
	}
	if len(p.waiting)+len(p.order)+len(p.ready) > 0 {
		t.Errorf("left behind: %v %v", p.waiting, p.order)
	}
}

// TestPostsAreBounded: what does not fit in is dropped, and nothing waits for it;
// what waits is brought up to date all the same.
func TestPostsAreBounded(t *testing.T) {
	p := newPosts()
	for i := range maxPosts + 10 {
		p.add(bus.Message{Subject: "s", Key: fmt.Sprint(i)})
	}
	p.add(bus.Message{Subject: "s", Key: "0", Value: []byte("new")})
	if len(p.waiting) != maxPosts || len(p.order) != maxPosts {
		t.Errorf("%d wait, %d in order, want %d", len(p.waiting), len(p.order), maxPosts)
	}
	if m, _ := p.take(t.Context()); string(m.Value) != "new" {
		t.Errorf("the first is %q", m.Value)
	}
	p.add(bus.Message{Subject: "s", Key: "later"}) // there is room again
	if _, ok := p.waiting[postKey{"s", "later"}]; !ok {
		t.Error("what fits in is dropped")
	}
}

// TestPostBesideDecisions: where the store is shared a hint does not hold up
// whoever decides, and one that the bus does not take in 5 s keeps no other back.
func TestPostBesideDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &noteBus{takes: time.Second}
		x := New(Config{Bus: b, Now: time.Now, Shared: true})
		began := time.Now()
		posting(t, x, func() {
			x.post(bus.Message{Subject: "s", Key: "a"})
			x.post(bus.Message{Subject: "s", Key: "b"})
			if d := time.Since(began); d > 0 {
				t.Errorf("whoever decides waits %v", d)
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
		})
		if got := b.seen(); !slices.Equal(got, []string{"s a", "s b"}) {
			t.Errorf("published %q", got)
		}
		b.takes, b.got = time.Hour, nil
		posting(t, x, func() {
			x.post(bus.Message{Subject: "s", Key: "stuck"})
			time.Sleep(postDeadline - time.Millisecond)
			b.mu.Lock()
			b.takes = 0
			b.mu.Unlock()
			x.post(bus.Message{Subject: "s", Key: "next"})
			synctest.Wait()
			if got := b.seen(); len(got) != 0 {
				t.Errorf("published %q before the first was given up", got)
			}
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
		})
		if got := b.seen(); !slices.Equal(got, []string{"s next"}) {
			t.Errorf("published %q", got)
		}
		alone := New(Config{Bus: &noteBus{err: errors.New("the bus is away")}, Now: time.Now})
		alone.post(bus.Message{Subject: "s", Key: "a"}) // at once, and lost
		if got := alone.cfg.Bus.(*noteBus).seen(); len(got) != 1 {
			t.Errorf("published %q", got)
		}
	})
}

// TestHeardChanged: a run that somebody else has decided about is forgotten; one
// that is known as far, or that is being decided about, stays. Watchers hear of
// the end either way.
func TestHeardChanged(t *testing.T) {
	x := New(Config{Bus: &noteBus{}, Now: time.Now, Shared: true})
	hear := func(run, value string) error {
		return x.heardChanged(t.Context(), bus.Message{Subject: bus.SubjectChanged, Key: run, Value: []byte(value + " " + run + "\n")})
	}
	held(t, x, "same")
	held(t, x, "behind")
	busy := held(t, x, "busy")
	busy.mu.Lock()
	watching := x.hub.join("busy")
	if err := x.heardChanged(t.Context(), bus.Message{
		Subject: bus.SubjectChanged, Key: "same", Value: []byte("0 RUNNING same\nsoon RUNNING same\n1 RUNNING behind\n9 COMPLETED busy\n3 FAILED unknown\n"),
	}); parley.CodeOf(err) != parley.CodeInvalid {
		t.Errorf("a line that cannot be read: %v", err)
	}
	if !x.holds("same") || x.holds("behind") || !x.holds("busy") || x.holds("unknown") || busy.state == nil {
		t.Errorf("held: %v", x.live)
	}
	busy.mu.Unlock()
	select {
	case <-watching.ended:
	default:
		t.Error("who waits for the run does not hear of its end")
	}
	if err := hear("same", "soon"); parley.CodeOf(err) != parley.CodeInvalid {
		t.Errorf("a message that cannot be read: %v", err)
	}
}

// TestFollowShared: a guest tells whoever holds the run, unless that has ended;
// who has a bridge without a slot leaves it, and who has one keeps it.
func TestFollowShared(t *testing.T) {
	slot := Reservation{Start: func(store.Attempt) {}}
	noSlot := func(string) (Reservation, bool) { return Reservation{}, false }
	for _, c := range []struct {
		name    string
		cfg     Config
		slots   []Reservation
		ended   bool
		post    bool
		leaving bool
	}{
		{name: "guest", cfg: Config{Guest: true}, post: true},
		{name: "guest of an ended run", cfg: Config{Guest: true}, ended: true},
		{name: "executor alone", cfg: Config{Shared: true}, slots: []Reservation{{}}},
		{name: "no slot", cfg: Config{Shared: true, Reserve: noSlot}, slots: []Reservation{{}, {}}, leaving: true},
		{name: "one slot", cfg: Config{Shared: true, Reserve: noSlot}, slots: []Reservation{{}, slot}},
		{name: "nothing scheduled", cfg: Config{Shared: true, Reserve: noSlot}},
	} {
		b := &noteBus{}
		c.cfg.Bus, c.cfg.Now = b, time.Now
		x := New(c.cfg)
		l := held(t, x, "run-1")
		if c.ended {
			d := l.state.Apply(workflow.Start{At: time.Now(), Input: []byte(`{}`)})
			for _, f := range []workflow.Fact{workflow.Cancel{At: time.Now()}, workflow.Tick{At: time.Now().Add(time.Minute)}} {
				l.state.Apply(f)
			}
			if len(d.Events) == 0 || !l.state.Status().Terminal() {
				t.Fatalf("the run is %s", l.state.Status())
			}
		}
		x.followShared(l, c.slots)
		_, posted := x.posts.waiting[postKey{bus.SubjectRuns, "run-1"}]
		if posted != c.post || l.leave != c.leaving || len(x.posts.waiting) > 1 {
			t.Errorf("%s: posted %t, leaves %t", c.name, posted, l.leave)
		}
	}
}

// TestChangesTogether: what has changed while a message is on its way is told by
// the next one, the last of each run, as many at a time as fit.
func TestChangesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &noteBus{takes: time.Second}
		x := New(Config{Bus: b, Now: time.Now, Shared: true})
		posting(t, x, func() {
			change := func(run string, seq int) {
				x.changes.add(bus.Message{Key: run, Value: fmt.Appendf(nil, "%d RUNNING %s\n", seq, run)})
			}
			change("a", 1)
			synctest.Wait()
			for i := range 300 {
				change("a", 2+i)
				change(fmt.Sprint("run-", i), 1)
			}
			time.Sleep(10 * time.Second)
		})
		var lines []string
		got := b.seen()
		for _, m := range got {
			value, ok := strings.CutPrefix(m, bus.SubjectChanged+" ")
			if _, value, _ = strings.Cut(value, " "); !ok || len(value) > changesEnough+100 {
				t.Errorf("%d bytes: %.100q", len(value), m)
			}
			lines = append(lines, strings.Split(value, "\n")...)
		}
		if len(got) > 4 || len(lines) != 302 || lines[0] != "1 RUNNING a" || lines[1] != "301 RUNNING a" {
			t.Errorf("%d messages with %d lines: %.100q", len(got), len(lines), lines)
		}
	})
}
