package verification_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/internal/pgtest"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/verification"
	"github.com/parley-project/parley/internal/zone/verification/slacktest"
)

// durable is another zone that outlives everything: it does a task once, whatever
// happens to those who ask, and remembers it by its id.
type durable struct {
	mu    sync.Mutex
	done  map[string]int
	async bool
	// lose is how many of the next responses get lost.
	lose int
}

func (d *durable) ask(_ context.Context, _ int, c zone.Call) (zone.Result, zone.Info, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done[c.ID] == 0 {
		d.done[c.ID]++
	}
	if d.lose > 0 {
		d.lose--
		return zone.Result{}, zone.Info{}, &zone.TransportError{Class: zone.ClassUnknownOutcome, Err: errors.New("cut with " + botToken)}
	}
	if d.async {
		return zone.Result{Status: zone.StatusAccepted, TaskID: c.ID}, zone.Info{Affinity: "vm-1"}, nil
	}
	return answered("the answer"), zone.Info{}, nil
}

func (d *durable) fetch(_ context.Context, _ int, q zone.Query, _ zone.Meta) (zone.AsyncResult, zone.Info, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done[q.TaskID] == 0 {
		return zone.AsyncResult{}, zone.Info{}, &zone.Error{Reason: zone.ReasonUnknownTask, Code: zone.CodeServer}
	}
	a := answered("the answer")
	return zone.AsyncResult{Status: zone.StatusCompleted, Result: &a}, zone.Info{}, nil
}

// crash has the process die at one write: nothing that comes after it happens.
type crash struct {
	mu     sync.Mutex
	at     int // the write, from 1; 0 never
	n      int
	dead   bool
	points []string
}

var errCrash = errors.New("crashed")

func (c *crash) failpoint(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return errCrash
	}
	c.n++
	c.points = append(c.points, name)
	if c.n == c.at {
		c.dead = true
		return errCrash
	}
	return nil
}

// mortal carries calls as long as the process lives.
type mortal struct {
	c    *crash
	next http.RoundTripper
}

func (m mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	m.c.mu.Lock()
	dead := m.c.dead
	m.c.mu.Unlock()
	if dead {
		return nil, errCrash
	}
	return m.next.RoundTrip(r)
}

// mortalExec is another zone as seen by a process that may be dead.
type mortalExec struct {
	c *crash
	*execution
}

func (m mortalExec) alive() bool {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	return !m.c.dead
}

func (m mortalExec) Ask(ctx context.Context, call zone.Call) (zone.Result, zone.Info, error) {
	if !m.alive() {
		return zone.Result{}, zone.Info{}, errCrash
	}
	return m.execution.Ask(ctx, call)
}

func (m mortalExec) Fetch(ctx context.Context, q zone.Query, meta zone.Meta) (zone.AsyncResult, zone.Info, error) {
	if !m.alive() {
		return zone.AsyncResult{}, zone.Info{}, errCrash
	}
	return m.execution.Fetch(ctx, q, meta)
}

// crashAt runs a question with a process that dies at the n-th write, and another
// one that is started after it. It reports whether there was such a write.
func crashAt(t *testing.T, n int, d *durable, faults func(*slacktest.Server)) (name string, ok bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &crash{at: n}
		path := filepath.Join(t.TempDir(), "zone.db")
		r := newRigAt(t, path, store.Options{Failpoint: c.failpoint}, func(cfg *verification.Config) {
			cfg.Slack.Transport = mortal{c, cfg.Slack.Transport}
			cfg.Execution = mortalExec{c, cfg.Execution.(*execution)}
		})
		r.exec.ask, r.exec.fetch = d.ask, d.fetch
		if faults != nil {
			faults(r.slack)
		}
		r.start()
		m := message("why?")
		// Slack repeats what was not answered with 200.
		status := r.send(m.Body(), 0)
		pass(40 * time.Second)
		r.stop()
		check(t, r.db.Close())
		ok = c.dead
		if ok {
			name = c.points[len(c.points)-1]
		}

		r.db = r.open(store.Options{})
		r.cfg.DB, r.cfg.Execution, r.cfg.Slack.Transport = r.db, r.exec, r.slack.Transport()
		r.make()
		r.start()
		if status != http.StatusOK {
			r.send(m.Body(), 1)
		}
		pass(2 * time.Minute)
		r.send(m.Body(), 3)
		pass(time.Minute)
		r.stop()
		check(t, r.db.Close())
		got := r.texts(m)
		if len(got) != 1 {
			t.Fatalf("death at %s: %d messages: %q", name, len(got), got)
		}
		if got[0] != "the answer" {
			t.Errorf("death at %s: %q", name, got[0])
		}
		for id, times := range d.done {
			if times != 1 {
				t.Errorf("task %s was done %d times", id, times)
			}
		}
		r.checkLeaks()
	})
	return name, ok
}

// TestZN7_CrashEverywhere: the process dies before or after any write, and nothing
// that it would have done later happens. Exactly one answer comes all the same.
func TestZN7_CrashEverywhere(t *testing.T) {
	for name, kind := range map[string]struct {
		async  bool
		lose   int
		faults func(*slacktest.Server)
	}{
		"at once":     {},
		"accepted":    {async: true},
		"lost answer": {lose: 1},
		"post landed, connection reset": {faults: func(s *slacktest.Server) {
			s.Fail("chat.postMessage", slacktest.Fault{Landed: true, Reset: true})
		}},
		"post lost": {faults: func(s *slacktest.Server) { s.Fail("chat.postMessage", slacktest.Fault{Reset: true}) }},
		"429": {faults: func(s *slacktest.Server) {
			s.Fail("chat.postMessage", slacktest.Fault{Status: 429, RetryAfter: 3})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			seen := map[string]bool{}
			for n := 1; ; n++ {
				point, ok := crashAt(t, n, &durable{done: map[string]int{}, async: kind.async, lose: kind.lose}, kind.faults)
				if !ok {
					break
				}
				seen[point] = true
			}
			want := []string{"zone.add", "zone.claim", "zone.sent", "zone.answered", "zone.posting", "zone.done"}
			if kind.async {
				want = append(want, "zone.accepted")
			}
			for _, point := range want {
				if !seen[point+".before"] || !seen[point+".after"] {
					t.Errorf("no death at %s; there were %v", point, seen)
				}
			}
		})
	}
}

// TestZN7_DieWhileAsked: the process is stopped while the other zone works. The
// next start asks what became of it, and nothing is done twice.
func TestZN7_DieWhileAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		d := &durable{done: map[string]int{}}
		r.exec.ask = func(ctx context.Context, n int, c zone.Call) (zone.Result, zone.Info, error) {
			_, _, _ = d.ask(ctx, n, c)
			<-ctx.Done()
			return zone.Result{}, zone.Info{Affinity: "vm-7"}, &zone.TransportError{Class: zone.ClassUnknownOutcome, Err: ctx.Err()}
		}
		r.exec.fetch = d.fetch
		r.start()
		m := r.ask(message("why?"))
		pass(time.Second)
		r.stop()
		r.want(m)
		r.make()
		r.start()
		pass(3 * time.Second)
		r.want(m, "the answer")
		r.stop()
		asked, fetched := r.exec.counts()
		if asked != 1 || fetched != 1 || r.exec.fetched[0].TaskID != r.exec.asked[0].ID || r.exec.metas[0].Affinity != "vm-7" {
			t.Errorf("asked %d times, fetched %d times: %v %v", asked, fetched, r.exec.fetched, r.exec.metas)
		}
		check(t, r.db.Close())
	})
}

// TestZN7_TakenUpAgain: a question that is taken up again before the look that has left it
// is quite over keeps its lease, however long the other zone takes.
func TestZN7_TakenUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(name string) error {
			if name == "zone.received.after" {
				time.Sleep(5 * time.Second) // the look that has left the question
			}
			return nil
		}
		r := newRigAt(t, filepath.Join(t.TempDir(), "zone.db"), store.Options{Failpoint: slow}, func(cfg *verification.Config) {
			cfg.Timing.Poll = time.Second
		})
		r.exec.ask = func(_ context.Context, n int, _ zone.Call) (zone.Result, zone.Info, error) {
			if n == 1 {
				return zone.Result{}, zone.Info{}, transport(zone.ClassNotSent, 0)
			}
			time.Sleep(time.Minute) // longer than a lease
			return answered("the answer"), zone.Info{}, nil
		}
		r.exec.fetch = func(context.Context, int, zone.Query, zone.Meta) (zone.AsyncResult, zone.Info, error) {
			return zone.AsyncResult{}, zone.Info{}, &zone.Error{Reason: zone.ReasonUnknownMethod}
		}
		r.start()
		m := r.ask(message("why?"))
		pass(90 * time.Second)
		r.want(m, "the answer")
		if asked, fetched := r.exec.counts(); asked != 2 || fetched != 0 {
			t.Errorf("asked %d times, fetched %d times", asked, fetched)
		}
		r.stop()
		check(t, r.db.Close())
	})
}

// TestZN7_LateAnswer: a zone that was away for longer than an answer may take
// brings the answer late if there is one, and says so if there is none.
func TestZN7_LateAnswer(t *testing.T) {
	for name, known := range map[string]bool{"there is one": true, "there is none": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				d := &durable{done: map[string]int{}, async: true}
				r.exec.ask, r.exec.fetch = d.ask, d.fetch
				r.start()
				m := r.ask(message("why?"))
				pass(time.Second)
				r.stop()
				time.Sleep(time.Hour)
				if !known {
					d.done = map[string]int{}
				}
				r.make()
				r.start()
				pass(2 * time.Second)
				if known {
					r.want(m, "the answer")
				} else {
					r.want(m, "I lost track of your question…*")
				}
				r.stop()
				check(t, r.db.Close())
			})
		})
	}
}

// TestZN7_TwoProcesses: any number of processes share the questions, on each
// database; every question has one answer.
func TestZN7_TwoProcesses(t *testing.T) {
	for name, target := range map[string]func() string{
		"sqlite":   func() string { return filepath.Join(t.TempDir(), "zone.db") },
		"postgres": func() string { return pgtest.Database(t) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRigAt(t, target(), store.Options{}, func(cfg *verification.Config) {
				cfg.Limits.PerMinute, cfg.Timing.Poll = 1000, 100*time.Millisecond
				cfg.Logger = nil
			})
			first := r.zone
			r.start()
			stop := r.stop
			other := *r
			if name == "postgres" {
				other.db = r.open(store.Options{})
				other.cfg.DB = other.db
			}
			other.make()
			other.start()
			const questions = 40
			var all sync.WaitGroup
			var list []slacktest.Message
			for i := range questions {
				m := message(fmt.Sprint("question ", i))
				m.Channel = fmt.Sprint("C", i)
				list = append(list, m)
			}
			for i := range 4 {
				all.Go(func() {
					z := []*verification.Zone{first, other.zone}[i%2]
					for _, m := range list {
						if s := r.slack.Deliver(context.Background(), z.Handler(), m.Body(), 0).Code; s != http.StatusOK {
							t.Errorf("status %d", s)
						}
					}
				})
			}
			all.Wait()
			deadline := time.Now().Add(2 * time.Minute)
			for len(r.slack.Posts()) < questions && time.Now().Before(deadline) {
				time.Sleep(20 * time.Millisecond)
			}
			time.Sleep(200 * time.Millisecond)
			stop()
			other.stop()
			for i, m := range list {
				r.want(m, fmt.Sprint("You asked: question ", i))
			}
			asked, _ := r.exec.counts()
			if asked != questions {
				t.Errorf("%d questions were asked %d times", questions, asked)
			}
		})
	}
}

// TestZN7_NoTokenAtRest: with either profile no secret and nothing that people write
// is in a log line, and the end of every test of this package looks for secrets in
// the pages of the database, the metrics and the threads, too.
func TestZN7_NoTokenAtRest(t *testing.T) {
	for _, profile := range []zone.Profile{zone.ProfileStrict, zone.ProfileRelaxed} {
		t.Run(string(profile), func(t *testing.T) {
			bubble(t, func(cfg *verification.Config) { cfg.Profile = profile }, func(t *testing.T, r *rig) {
				r.exec.ask = func(_ context.Context, n int, c zone.Call) (zone.Result, zone.Info, error) {
					if got := string(c.Task.BotToken.Reveal()); (got == botToken) != (profile == zone.ProfileStrict) {
						t.Errorf("the token is %q", got)
					}
					switch n {
					case 1:
						return answered("fine"), zone.Info{}, nil
					case 2:
						return zone.Result{}, zone.Info{}, &zone.Error{Reason: zone.ReasonInternal, Message: "failed with " + botToken}
					}
					return zone.Result{}, zone.Info{}, &zone.TransportError{Class: zone.ClassAuth, Err: errors.New(botToken)}
				}
				r.slack.Fail("chat.postMessage", slacktest.Fault{Landed: true, Reset: true})
				var asked []slacktest.Message
				for i := range 3 {
					m := message(fmt.Sprint("question-text-", i))
					asked = append(asked, r.ask(m))
					pass(20 * time.Second)
				}
				for _, m := range asked {
					for _, text := range r.texts(m) {
						if strings.Contains(text, "xoxb") {
							t.Error(text)
						}
					}
					if len(r.texts(m)) != 1 {
						t.Errorf("%d messages", len(r.texts(m)))
					}
				}
				if strings.Contains(r.log.String(), "question-text") {
					t.Errorf("the text of a question is in the log:\n%s", r.log.String())
				}
			})
		})
	}
}

// TestZN7_TokenInAnAnswer: a zone that was given the token and puts it into an answer
// shows it to nobody, also if the answer comes later.
func TestZN7_TokenInAnAnswer(t *testing.T) {
	leak := answered("I am " + botToken + ".")
	leak.FileArtifact = artifact("of "+botToken+".txt", "mine: "+botToken)
	for name, later := range map[string]bool{"at once": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(cfg *verification.Config) { cfg.Profile = zone.ProfileStrict }, func(t *testing.T, r *rig) {
				r.exec.ask = func(context.Context, int, zone.Call) (zone.Result, zone.Info, error) {
					if later {
						return zone.Result{Status: zone.StatusAccepted, TaskID: "task"}, zone.Info{}, nil
					}
					return leak, zone.Info{}, nil
				}
				r.exec.fetch = func(context.Context, int, zone.Query, zone.Meta) (zone.AsyncResult, zone.Info, error) {
					return zone.AsyncResult{Status: zone.StatusCompleted, Result: &leak}, zone.Info{}, nil
				}
				m := r.ask(message("who are you?"))
				pass(time.Minute)
				r.want(m, "I am [redacted].", "file of [redacted].txt: mine: [redacted]")
			})
		})
	}
}
