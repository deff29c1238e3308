package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/values"
	"github.com/parley-project/parley/internal/values/files"
)

// oldRig is executors beside an old bridge, over a real store and a bus with
// logs, in virtual time.
type oldRig struct {
	*rig
	bus     *logBus
	old     *oldBridge
	cfg     executor.Config
	policy  parley.OutcomePolicy
	metrics *prometheus.Registry
	ids     atomic.Int64
	// failpoint, if set, is the store's.
	failpoint atomic.Pointer[func(name string) error]
	letters   []bus.DeadLetter // protected by rig.mu
	stop      func()           // the first executor
}

func ok(output string) says {
	return says{AgentResult: records.AgentResult{Status: records.StatusSuccess, Output: json.RawMessage(output)}}
}

func failure(text string) says {
	return says{AgentResult: records.AgentResult{Status: records.StatusFailure, Error: text}}
}

// besideOld runs f with an executor at work and the old bridge not yet.
func besideOld(t *testing.T, f func(r *oldRig)) {
	t.Helper()
	besideOldOn(t, store.Options{}, f)
}

// besideOldOn is besideOld with a store of those options.
func besideOldOn(t *testing.T, o store.Options, f func(r *oldRig)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "parley.db")
	synctest.Test(t, func(t *testing.T) {
		r := &oldRig{bus: newLogBus(t), metrics: prometheus.NewRegistry(), policy: parley.OutcomeLookup}
		o.Failpoint = func(name string) error {
			if f := r.failpoint.Load(); f != nil {
				return (*f)(name)
			}
			return nil
		}
		db, err := store.Open(t.Context(), file, o)
		check(t, err)
		check(t, db.Migrate(t.Context()))
		r.rig = &rig{t: t, db: db}
		r.old = &oldBridge{bus: r.bus, agent: func(records.AgentTask) says { return ok(`{"n": 1}`) }}
		token := func() string { return fmt.Sprintf("%d", r.ids.Add(1)) }
		r.cfg = executor.Config{
			Store: faultyStore{db, r.rig}, Take: faultyStore{db, r.rig}.Publish, Bus: r.bus, Now: time.Now, Jitter: func() float64 { return 0.5 },
			NewID: func() string { return "run-" + token() },
			Agent: func(context.Context, string) (executor.AgentInfo, bool) {
				return executor.AgentInfo{Protocol: "jsonrpc-2.0", Policy: r.policy, Retry: parley.DefaultRetryConfig()}, true
			},
			HandOffs: db, OldBridge: &executor.OldBridge{NewToken: token},
			Requests:   &executor.Requests{Plans: db, NewID: func() string { return "plan-" + token() }},
			Monitoring: true, Metrics: executor.NewMetrics(r.metrics),
			DeadLetters: func(_ context.Context, d bus.DeadLetter) error {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.letters = append(r.letters, d)
				return nil
			},
		}
		defer func() {
			if err := errors.Join(r.bus.Close(), db.Close()); err != nil {
				t.Error(err)
			}
		}()
		r.stop = r.execute()
		defer r.stop()
		r.deploy(strings.ReplaceAll(twoSteps, "writer}", "writer, silence: 30s}"))
		f(r)
	})
}

// execute makes a new executor the rig's and has it work until stop, which may
// be called again.
func (r *oldRig) execute() (stop func()) {
	x := executor.New(r.cfg)
	r.x = x
	ctx, cancel := context.WithCancel(r.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := x.Run(ctx); err != nil {
			r.t.Error(err)
		}
	})
	synctest.Wait()
	return func() { cancel(); running.Wait() }
}

func (r *oldRig) deploy(source string) {
	r.t.Helper()
	catalog := executor.NewCatalog(executor.CatalogConfig{
		DB: r.db, Executor: r.x, Now: time.Now, NewID: func() string { return fmt.Sprintf("def-%d", r.ids.Add(1)) },
		KnownAgent: func(context.Context, string) bool { return true },
	})
	_, _, err := catalog.Apply(r.t.Context(), parley.ApplyRequest{Source: []byte(source)})
	check(r.t, err)
}

// bridge has the old bridge work until the test ends.
func (r *oldRig) bridge() {
	ctx, cancel := context.WithCancel(r.t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.old.serve(ctx, r.t) })
	r.t.Cleanup(func() { cancel(); running.Wait() })
}

// tasks gives the ids of the tasks that were published.
func (r *oldRig) tasks() (list []string) {
	for _, m := range r.bus.log(bus.SubjectTasks) {
		t, err := records.DecodeTask(m.Value)
		check(r.t, err)
		list = append(list, t.TaskID)
	}
	return list
}

func (r *oldRig) get(run string) parley.Run {
	r.t.Helper()
	v, err := r.x.Get(r.t.Context(), run)
	check(r.t, err)
	return v
}

func (r *oldRig) wantRun(run string, status parley.RunStatus) parley.Run {
	r.t.Helper()
	v := r.get(run)
	if v.Status != status {
		r.t.Fatalf("run %s is %s, want %s: %+v %s", run, v.Status, status, v.Error, r.history(run))
	}
	return v
}

func (r *oldRig) wantTasks(want ...string) {
	r.t.Helper()
	if d := cmp.Diff(want, r.tasks()); d != "" {
		r.t.Fatalf("tasks (-want +got)\n%s", d)
	}
}

// counted gives a counter by its fate.
func (r *oldRig) counted(name, fate string) (n float64) {
	r.t.Helper()
	families, err := r.metrics.Gather()
	check(r.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == name && l.GetName() == "fate" && l.GetValue() == fate {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

// TestOld_EachTaskOnce: a run goes through an old bridge. Each attempt is
// published once, byte for byte as an old bridge reads it, after its claim is
// durable.
func TestOld_EachTaskOnce(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		t := r.t
		var unclaimed []string
		r.bus.breaks(func(m bus.Message) (bool, error) {
			if m.Subject == bus.SubjectTasks {
				task, err := records.DecodeTask(m.Value)
				check(t, err)
				a, _, _, err := r.db.ForResult(context.Background(), task.TaskID)
				check(t, err)
				if a.State != store.AttemptClaimed || a.HandOff != store.HandOffBus {
					unclaimed = append(unclaimed, task.TaskID)
				}
			}
			return true, nil
		})
		r.bridge()
		run := r.start()
		time.Sleep(time.Second)
		v := r.wantRun(run, parley.RunCompleted)
		if d := cmp.Diff(`{"n": 1}`, string(v.Output)); d != "" {
			t.Error(d)
		}
		r.wantTasks(run+".a.1", run+".b.1")
		time.Sleep(time.Minute)
		r.wantTasks(run+".a.1", run+".b.1")
		if len(unclaimed) > 0 {
			t.Errorf("published before the claim: %s", unclaimed)
		}
		m := r.bus.log(bus.SubjectTasks)[0]
		want := `{"run_id": "` + run + `", "task_id": "` + run + `.a.1", "agent_name": "writer", "input_data": {}, "correlation_id": "corr-` + run + `.a.1", "timestamp": "2000-01-01T00:00:00`
		if !strings.HasPrefix(string(m.Value), want) || m.Key != run || len(m.Header) > 0 {
			t.Errorf("record %s, key %s, headers %v", m.Value, m.Key, m.Header)
		}
	})
}

// TestOld_MissingResult: a result that never comes ends the step clearly after
// its time, and the task is not published again.
func TestOld_MissingResult(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		run := r.start()
		time.Sleep(29 * time.Second)
		r.wantRun(run, parley.RunRunning)
		time.Sleep(3 * time.Second)
		v := r.wantRun(run, parley.RunFailed)
		wantCode(r.t, v.Error, parley.CodeOutcomeUnknown, "No result came from the bridge of the existing platform within 30s")
		r.wantTasks(run + ".a.1")
		// A result that comes even later is kept for people, once.
		r.bridge()
		time.Sleep(time.Second)
		r.old.rewind(1)
		time.Sleep(time.Second)
		late, err := r.db.Late(r.t.Context(), run+".a.1")
		check(r.t, err)
		if len(late) != 1 || string(late[0].Result.Output) != `{"n": 1}` {
			r.t.Errorf("late answers %+v", late)
		}
	})
}

// TestOld_Resend: under resend the same task is published again when its time
// is over, at most twice.
func TestOld_Resend(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		r.policy = parley.OutcomeResend
		first := r.start()
		time.Sleep(2 * time.Minute)
		r.wantRun(first, parley.RunFailed)
		r.wantTasks(first+".a.1", first+".a.1", first+".a.1")

		second := r.start()
		time.Sleep(32 * time.Second)
		r.old.rewind(-4) // the first record is lost there, the second arrives
		r.bridge()
		time.Sleep(time.Minute)
		r.wantRun(second, parley.RunCompleted)
		r.wantTasks(first+".a.1", first+".a.1", first+".a.1", second+".a.1", second+".a.1", second+".b.1")
	})
}

// TestOld_TimerWaitsForResults: a result that lies on the bus when a timer is
// due wins, however late it is read (protocol.md §4.12).
func TestOld_TimerWaitsForResults(t *testing.T) {
	for name, step := range map[string]string{
		"step timeout":    "timeout: 20s",
		"attempt timeout": "attempt_timeout: 20s",
		"silence":         "silence: 20s",
	} {
		t.Run(name, func(t *testing.T) {
			besideOld(t, func(r *oldRig) {
				r.deploy("name: talk\nsteps:\n  - {id: a, agent: writer, " + step + "}\n")
				r.old.answers(func(records.AgentTask) says { s := ok(`{"n": 1}`); s.after = 19 * time.Second; return s })
				r.bridge()
				r.bus.hold(true)
				run := r.start()
				time.Sleep(time.Minute)
				r.wantRun(run, parley.RunRunning)
				r.bus.hold(false)
				time.Sleep(2 * time.Second)
				r.wantRun(run, parley.RunCompleted)
			})
		})
	}
}

// TestOld_Cancel: an old bridge cannot be told; what comes within the grace
// counts, also when it is read later, and the grace ends the rest.
func TestOld_Cancel(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		t := r.t
		r.old.answers(func(records.AgentTask) says { s := ok(`{"n": 1}`); s.after = 20 * time.Second; return s })
		r.bridge()
		run := r.start()
		_, err := r.x.Cancel(t.Context(), parley.CancelRequest{Run: run})
		check(t, err)
		r.bus.hold(true)
		time.Sleep(time.Minute)
		r.wantRun(run, parley.RunRunning)
		r.bus.hold(false)
		time.Sleep(time.Second)
		r.wantRun(run, parley.RunCancelled)
		if s := r.step(run, "a"); s.Status != parley.StepCompleted {
			t.Errorf("step a is %s: its result came within the grace", s.Status)
		}
		r.wantTasks(run + ".a.1")

		r.old.answers(func(records.AgentTask) says { return says{after: time.Hour} })
		run = r.start()
		time.Sleep(time.Second)
		_, err = r.x.Cancel(t.Context(), parley.CancelRequest{Run: run})
		check(t, err)
		time.Sleep(29 * time.Second)
		r.wantRun(run, parley.RunRunning)
		time.Sleep(2 * time.Second)
		r.wantRun(run, parley.RunCancelled)
	})
}

// TestOld_RetryIsPublishedWhenDue: the next attempt of a failed step is handed
// over when its delay is over, and has ids of its own.
func TestOld_RetryIsPublishedWhenDue(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		r.deploy("name: talk\nsteps:\n  - {id: a, agent: writer, retry: {attempts: 3, delay: 20s, jitter: none}}\n")
		r.old.answers(func(task records.AgentTask) says {
			if strings.HasSuffix(task.TaskID, ".1") {
				return failure("All connection attempts failed")
			}
			return ok(`{}`)
		})
		r.bridge()
		run := r.start()
		time.Sleep(19 * time.Second)
		r.wantTasks(run + ".a.1")
		time.Sleep(3 * time.Second)
		r.wantRun(run, parley.RunCompleted)
		r.wantTasks(run+".a.1", run+".a.2")
	})
}

// awayValues is a store of values that gives none while it is away.
type awayValues struct {
	values.Store
	away atomic.Bool
}

func (s *awayValues) Get(ctx context.Context, name string, most int64) ([]byte, error) {
	if s.away.Load() {
		return nil, errors.New("away")
	}
	return s.Store.Get(ctx, name, most)
}

// TestOld_InputIsAway: a task whose input is kept apart and cannot be fetched waits, longer
// than a result may take, and is published once when it can be: nothing was sent.
func TestOld_InputIsAway(t *testing.T) {
	s := &awayValues{Store: files.Open(filepath.Join(t.TempDir(), "values"))}
	besideOldOn(t, store.Options{Values: s, ApartAbove: 1000}, func(r *oldRig) {
		r.deploy("name: talk\nsteps:\n  - {id: a, agent: writer, silence: 30s, input: {text: \"" + strings.Repeat("x", 5000) +
			"\"}, retry: {attempts: 3, delay: 20s, jitter: none}}\n")
		r.old.answers(func(task records.AgentTask) says {
			if strings.HasSuffix(task.TaskID, ".1") {
				return failure("All connection attempts failed")
			}
			return ok(`{}`)
		})
		r.bridge()
		run := r.start()
		time.Sleep(10 * time.Second)
		s.away.Store(true)
		time.Sleep(50 * time.Second)
		r.wantTasks(run + ".a.1")
		if n := r.counted("parley_executor_hand_offs_total", "doubtful"); n != 0 {
			r.t.Errorf("%v were said to be in doubt", n)
		}
		s.away.Store(false)
		time.Sleep(40 * time.Second)
		r.wantRun(run, parley.RunCompleted)
		r.wantTasks(run+".a.1", run+".a.2")
	})
}

// TestOld_PublishInDoubt: what may have been published is not published again;
// while the bus is down further attempts stay open, and go out once it is back.
func TestOld_PublishInDoubt(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		r.bus.breaks(func(m bus.Message) (bool, error) {
			return m.Subject != bus.SubjectTasks, errors.New("no answer from the broker")
		})
		first := r.start()
		synctest.Wait()
		var later []string
		for range 5 {
			later = append(later, r.start())
		}
		time.Sleep(500 * time.Millisecond)
		states := make(map[store.AttemptState]int)
		for _, run := range later {
			a, _, _, err := r.db.ForResult(r.t.Context(), run+".a.1")
			check(r.t, err)
			states[a.State]++
		}
		if states[store.AttemptOpen] < 4 {
			r.t.Errorf("handed over while the bus is down: %v", states)
		}
		r.bus.breaks(nil)
		r.bridge()
		time.Sleep(time.Minute)
		r.wantRun(first, parley.RunFailed)
		completed := 0
		for _, run := range later {
			if r.get(run).Status == parley.RunCompleted {
				completed++
			}
		}
		if completed < 4 {
			r.t.Errorf("%d of 5 later runs went through", completed)
		}
		if slices.Contains(r.tasks(), first+".a.1") {
			r.t.Errorf("%s was published in doubt", first)
		}
	})
}

// TestOld_Forbidden: what the bus does not let us publish waits as an open attempt, and is
// published once when that is allowed, longer than a result may take later.
func TestOld_Forbidden(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		r.bus.breaks(func(m bus.Message) (bool, error) {
			return m.Subject != bus.SubjectTasks, parley.Errorf(parley.CodeUnauthorized, "WRITE on the topic")
		})
		run := r.start()
		time.Sleep(45 * time.Second)
		r.wantRun(run, parley.RunRunning)
		if n := r.counted("parley_executor_hand_offs_total", "doubtful"); n != 0 {
			r.t.Errorf("%v were said to be in doubt", n)
		}
		r.bus.breaks(nil)
		r.bridge()
		time.Sleep(20 * time.Second)
		r.wantRun(run, parley.RunCompleted)
		r.wantTasks(run+".a.1", run+".b.1")
	})
}

// TestOld_RefusedRecord: a record that the bus does not take fails the step at
// once: nothing was sent.
func TestOld_RefusedRecord(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		r.bus.breaks(func(m bus.Message) (bool, error) {
			if m.Subject != bus.SubjectTasks {
				return true, nil
			}
			return false, parley.Errorf(parley.CodeLimit, "1,000,000 bytes, the limit is 921600")
		})
		run := r.start()
		time.Sleep(time.Second)
		v := r.wantRun(run, parley.RunFailed)
		wantCode(r.t, v.Error, parley.CodeLimit, "the limit is 921600")
	})
}
