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

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/memory"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/store"
)

// rig is an executor over a real store and bus, in virtual time. The test is
// the bridge.
type rig struct {
	t     *testing.T
	db    *store.DB
	bus   *memory.Bus
	x     *executor.Executor
	claim store.Claim
	// undeclared: no agent is declared idempotent any more.
	undeclared atomic.Bool
	// budget is that of every agent.
	budget parley.RetryBudget
	// config is what x was made of, catalog what it runs.
	config  executor.Config
	catalog *executor.Catalog

	// stopFirst ends x, which may be done before the end of the test.
	stopFirst func()

	mu    sync.Mutex // protects what follows
	hints []string
	// fault, if set, is asked about each decision before it is written, and doubt
	// after that.
	fault, doubt func(store.Decision) error
}

// faultyStore lets decisions go wrong before they are written.
type faultyStore struct {
	*store.DB
	r *rig
}

func (s faultyStore) Decide(ctx context.Context, d store.Decision) error {
	s.r.mu.Lock()
	fault, doubt := s.r.fault, s.r.doubt
	s.r.mu.Unlock()
	if fault != nil {
		if err := fault(d); err != nil {
			return err
		}
	}
	err := s.DB.Decide(ctx, d)
	if err == nil && doubt != nil {
		err = doubt(d)
	}
	return err
}

// breaks lets f decide about each decision from now on; nil is none.
func (r *rig) breaks(f func(store.Decision) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = f
}

const twoSteps = "name: talk\nsteps:\n  - {id: a, agent: writer}\n  - {id: b, agent: writer}\n"

func onStore(t *testing.T, f func(r *rig)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "parley.db")
	synctest.Test(t, func(t *testing.T) {
		db, err := store.Open(t.Context(), file, store.Options{})
		check(t, err)
		check(t, db.Migrate(t.Context()))
		r := &rig{t: t, db: db, bus: memory.New(memory.Options{})}
		var n atomic.Int64
		r.config = executor.Config{
			Store: faultyStore{db, r}, Signals: db, Turns: db, Children: db, LateAnswers: db, Take: db.Publish, Bus: r.bus, Now: time.Now, Jitter: func() float64 { return 0.5 },
			NewID: func() string { return fmt.Sprintf("run-%d", n.Add(1)) },
			Agent: func(_ context.Context, name string) (executor.AgentInfo, bool) {
				return executor.AgentInfo{Protocol: "jsonrpc-2.0", Policy: parley.OutcomeLookup, Idempotent: name != "once" && !r.undeclared.Load(), Retry: parley.RetryConfig{Budget: r.budget}}, name != "nobody"
			},
		}
		r.x = executor.New(r.config)
		stop, err := r.bus.Subscribe(t.Context(), bus.SubjectHint, "", func(_ context.Context, m bus.Message) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.hints = append(r.hints, m.Key)
			return nil
		})
		check(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := r.x.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		r.stopFirst = func() { cancel(); running.Wait() }
		defer func() {
			r.stopFirst()
			stop()
			if err := errors.Join(r.bus.Close(), db.Close()); err != nil {
				t.Error(err)
			}
		}()
		inc, err := db.Register(t.Context(), "b1", time.Now())
		check(t, err)
		r.claim = store.Claim{Worker: "b1", Inc: inc}
		definitions := 0
		r.catalog = executor.NewCatalog(executor.CatalogConfig{
			DB: db, Executor: r.x, Now: time.Now,
			NewID:      func() string { definitions++; return fmt.Sprintf("definition-%d", definitions) },
			KnownAgent: func(context.Context, string) bool { return true },
		})
		r.apply(twoSteps)
		f(r)
	})
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// apply deploys a workflow.
func (r *rig) apply(source string) {
	r.t.Helper()
	_, _, err := r.catalog.Apply(r.t.Context(), parley.ApplyRequest{Source: []byte(source)})
	check(r.t, err)
}

func (r *rig) start() string {
	r.t.Helper()
	run, _, err := r.x.Start(r.t.Context(), parley.StartRequest{Workflow: "talk"})
	check(r.t, err)
	return run.ID
}

// follow claims a task and follows it at the agent.
func (r *rig) follow(task string) store.Claim {
	r.t.Helper()
	c := r.claim
	c.Token = "token-" + task
	list, err := r.db.Claim(r.t.Context(), c, []store.ClaimRequest{{TaskID: task, Token: c.Token}}, time.Now())
	check(r.t, err)
	if len(list) != 1 {
		r.t.Fatalf("%s was not claimed", task)
	}
	r.move(store.Move{Kind: store.MoveFollow, TaskID: task, From: c, AgentTaskID: "at-1"})
	return c
}

func (r *rig) move(m store.Move) {
	r.t.Helper()
	m.At = time.Now()
	ok, err := r.db.Move(r.t.Context(), m)
	check(r.t, err)
	if !ok {
		r.t.Fatalf("%s of %s was refused", m.Kind, m.TaskID)
	}
}

// ask makes the agent wait, or go on, without telling anybody.
func (r *rig) ask(task string, c store.Claim, text string) {
	r.t.Helper()
	m := store.Move{Kind: store.MoveQuestion, TaskID: task, From: c}
	if text != "" {
		m.Question = &parley.Question{Kind: parley.QuestionInput, Text: text}
	}
	r.move(m)
}

func (r *rig) settle(task string) {
	r.t.Helper()
	ok, err := r.x.Answer(r.t.Context(), store.Answer{
		Result: parley.Result{TaskID: task, Outcome: parley.OutcomeOK, Output: json.RawMessage(`{"n":1}`)}, At: time.Now(), From: "b1",
	})
	check(r.t, err)
	if !ok {
		r.t.Fatalf("the answer of %s is late", task)
	}
}

func (r *rig) step(run, id string) parley.Step {
	r.t.Helper()
	v, err := r.x.Get(r.t.Context(), run)
	check(r.t, err)
	i := slices.IndexFunc(v.Steps, func(s parley.Step) bool { return s.ID == id })
	return v.Steps[i]
}

// history gives the types of a run's events.
func (r *rig) history(run string) (list []string) {
	r.t.Helper()
	for _, e := range r.events(run) {
		list = append(list, string(e.Type))
	}
	return list
}

func (r *rig) events(run string) []parley.Event {
	r.t.Helper()
	events, err := r.db.Events(r.t.Context(), run, 0, 1000)
	check(r.t, err)
	return events
}

func (r *rig) answer(run, step, text string) error {
	_, err := r.x.AnswerStep(r.t.Context(), parley.AnswerRequest{Run: run, Step: step, Reply: parley.Reply{Text: text, By: "ann"}})
	return err
}

func wantCode(t *testing.T, err error, code parley.Code, words string) {
	t.Helper()
	if parley.CodeOf(err) != code || !strings.Contains(err.Error(), words) {
		t.Fatalf("error %v, want %s with %q", err, code, words)
	}
}

// wantConflict wants a conflict of that kind, which is 409 on all paths.
func wantConflict(t *testing.T, err error, kind string) {
	t.Helper()
	var d parley.ConflictDetails
	e, ok := errors.AsType[*parley.Error](err)
	if !ok || json.Unmarshal(e.Details, &d) != nil || d.Conflict != kind {
		t.Fatalf("error %v, want a conflict %s", err, kind)
	}
}

// TestWaits_AnswerReachesTheRow: a question shows as a wait of the run, though
// no hint came; the answer stands in the row of the attempt with the event that
// says so, and the bridge is told.
func TestWaits_AnswerReachesTheRow(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		run := r.start()
		task := run + ".a.1"
		c := r.follow(task)
		wantCode(t, r.answer(run, "", "x"), parley.CodeConflict, "No step of run "+run)
		wantCode(t, r.answer(run, "a", "x"), parley.CodeConflict, "RUNNING")
		wantCode(t, r.answer(run, "b", "x"), parley.CodeConflict, "PENDING")
		wantCode(t, r.answer(run, "c", "x"), parley.CodeNotFound, `"c"`)
		wantCode(t, r.answer("run-9", "", "x"), parley.CodeNotFound, "run-9")
		wantCode(t, r.answer(run, "a", ""), parley.CodeInvalid, "text or data")
		wantCode(t, r.answer(run, "a", strings.Repeat("x", 1<<20)), parley.CodeLimit, "1048576")

		r.ask(task, c, "Which city?")
		time.Sleep(1500 * time.Millisecond) // a sweep
		s := r.step(run, "a")
		if s.Phase != parley.PhaseInputRequired || s.Question == nil || s.Question.Text != "Which city?" || s.AgentTaskID != "at-1" || s.StartedAt == nil {
			t.Fatalf("step %+v", s)
		}
		check(t, r.answer(run, "", "Ulm"))
		synctest.Wait()
		if d := cmp.Diff([]string{task}, r.hints); d != "" {
			t.Error(d)
		}
		owned, err := r.db.Owned(t.Context(), "b1", r.claim.Inc)
		check(t, err)
		if len(owned) != 1 || owned[0].Reply == nil || owned[0].Reply.Text != "Ulm" || owned[0].Reply.By != "ann" || owned[0].Questions != 1 {
			t.Fatalf("owned %+v", owned)
		}
		wantCode(t, r.answer(run, "a", "x"), parley.CodeConflict, "waits for no answer")
		r.move(store.Move{Kind: store.MoveReply, TaskID: task, From: c, Questions: 1})
		r.ask(task, c, "")
		r.settle(task)
		wantCode(t, r.answer(run, "a", "x"), parley.CodeConflict, "COMPLETED")
		r.follow(run + ".b.1")
		r.settle(run + ".b.1")
		wantCode(t, r.answer(run, "", "x"), parley.CodeConflict, "it is COMPLETED")
		if d := cmp.Diff([]string{
			"run.started", "step.scheduled", "step.waiting", "step.answered", "step.completed", "step.scheduled", "step.completed", "run.completed",
		}, r.history(run)); d != "" {
			t.Error(d)
		}
	})
}

// TestWaits_AnswerBeforeTheSweep: an answer that names a step is for
// the question that stands in the row, though the run has not taken notice.
func TestWaits_AnswerBeforeTheSweep(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		run := r.start()
		task := run + ".a.1"
		c := r.follow(task)
		r.ask(task, c, "Which city?")
		check(t, r.answer(run, "a", "Ulm"))
		if got := r.history(run); !slices.Equal(got[2:], []string{"step.waiting", "step.answered"}) {
			t.Fatalf("history %q", got)
		}
		// Nothing is left to notice.
		w, err := r.db.Wakeups(t.Context(), time.Now(), 10)
		check(t, err)
		if len(w.News) > 0 {
			t.Errorf("news of %q", w.News)
		}
	})
}

// TestWaits_RaceWithTheAgent: the agent asks something else, or goes on, while
// the answer is on its way. The answer goes to nobody then, or to the question
// that stands, and the history says which.
func TestWaits_RaceWithTheAgent(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		run := r.start()
		task := run + ".a.1"
		c := r.follow(task)
		meanwhile := func(text string) {
			once := sync.OnceFunc(func() { r.ask(task, c, text) })
			r.breaks(func(d store.Decision) error {
				if len(d.Replies) > 0 {
					once()
				}
				return nil
			})
		}
		r.ask(task, c, "one?")
		meanwhile("")
		wantCode(t, r.answer(run, "a", "1"), parley.CodeConflict, "waits for no answer")
		r.breaks(nil)
		r.ask(task, c, "two?")
		meanwhile("three?")
		check(t, r.answer(run, "a", "3"))
		events := r.events(run)
		if got := string(events[len(events)-2].Data); !strings.Contains(got, "three?") {
			t.Errorf("answered after %s", got)
		}
		got, err := r.db.Attempts(t.Context(), run)
		check(t, err)
		if got[0].Question.Text != "three?" || got[0].Reply == nil || got[0].Questions != 3 {
			t.Errorf("%+v", got[0])
		}
		if d := cmp.Diff([]string{
			"run.started", "step.scheduled", "step.waiting", "step.answered", "step.waiting", "step.waiting", "step.answered",
		}, r.history(run)); d != "" {
			t.Error(d)
		}
	})
}

// TestWaits_CancelledRun: nobody answers a run that is being cancelled, and what
// its agents still ask is passed over once and for all.
func TestWaits_CancelledRun(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		run := r.start()
		task := run + ".a.1"
		c := r.follow(task)
		_, err := r.x.Cancel(t.Context(), parley.CancelRequest{Run: run, By: "me"})
		check(t, err)
		r.ask(task, c, "one?")
		before := r.db.SyncedCommits()
		wantCode(t, r.answer(run, "a", "1"), parley.CodeConflict, "being cancelled")
		synctest.Wait()
		if n := r.db.SyncedCommits() - before; n > 0 {
			t.Errorf("%d synced commits for what changes nothing", n)
		}
		w, err := r.db.Wakeups(t.Context(), time.Now(), 10)
		check(t, err)
		if len(w.News) > 0 || slices.Contains(r.history(run), "step.waiting") {
			t.Errorf("news of %q, history %q", w.News, r.history(run))
		}
	})
}

func (r *rig) tell(run, record string) {
	r.t.Helper()
	check(r.t, r.bus.Publish(r.t.Context(), bus.Message{Subject: bus.SubjectProgress, Key: run, Value: []byte(record)}))
	synctest.Wait()
}

// TestProgress_BecomesEvents: what a working agent tells stands in the history
// of its run, and costs no synced write; what names nothing in flight is gone.
func TestProgress_BecomesEvents(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		run := r.start()
		task := run + ".a.1"
		r.follow(task)
		before := r.db.SyncedCommits()
		base := `{"run":"` + run + `","task_id":"` + task + `","step":"a","attempt":1,"at":"2026-01-02T03:04:05Z",`
		r.tell(run, base+`"type":"accepted","agent_task_id":"at-1","context_id":"ac-1"}`)
		r.tell(run, base+`"type":"progress","state":"working","text":"half <way>"}`)
		r.tell(run, base+`"type":"chunk","chunks":[{"text":"Once","artifact":"x"},{"text":" upon","append":true}],"dropped_bytes":7}`)
		for _, bad := range []string{
			base + `"type":"completed"}`, base + `"type":""}`, `{`, strings.ReplaceAll(base, task, run+".a.2") + `"type":"chunk"}`,
			strings.ReplaceAll(base, task, "run-9.a.1") + `"type":"chunk"}`,
			strings.ReplaceAll(base, run, "run-9") + `"type":"chunk"}`,
		} {
			r.tell(run, bad)
		}
		if n := r.db.SyncedCommits() - before; n != 0 {
			t.Errorf("%d synced commits", n)
		}
		var got []string
		for _, e := range r.events(run)[2:] {
			if e.Step != "a" || e.Attempt != 1 {
				t.Errorf("event %+v", e)
			}
			got = append(got, string(e.Type)+" "+string(e.Data))
		}
		if d := cmp.Diff([]string{
			`step.accepted {"task_id":"` + task + `","agent_task_id":"at-1","context_id":"ac-1"}`,
			`step.progress {"task_id":"` + task + `","state":"working","text":"half \u003cway\u003e"}`,
			`step.chunk {"task_id":"` + task + `","chunks":[{"text":"Once","artifact":"x"},{"text":" upon","append":true}],"dropped_bytes":7}`,
		}, got); d != "" {
			t.Error(d)
		}
		r.settle(task)
		r.tell(run, base+`"type":"progress","text":"late"}`)
		r.follow(run + ".b.1")
		r.settle(run + ".b.1")
		run2, err := r.x.Get(t.Context(), run)
		check(t, err)
		if run2.Status != parley.RunCompleted || run2.Seq != 9 || slices.Contains(r.history(run)[5:], "step.progress") {
			t.Errorf("run %+v, history %q", run2, r.history(run))
		}
	})
}

// TestProgress_IsBounded: one event has at most 64 KiB, and says how much of
// what came is missing; a stale number is tried again, and then let go.
func TestProgress_IsBounded(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		run := r.start()
		task := run + ".a.1"
		r.follow(task)
		chunk := `{"text":"` + strings.Repeat("é", 10<<10) + `"}`
		text := strings.Repeat(`<\n`, 30<<10)
		r.tell(run, `{"run":"`+run+`","task_id":"`+task+`","type":"chunk","text":"`+text+`","state":"`+strings.Repeat("s", 5000)+`"}`)
		r.tell(run, `{"run":"`+run+`","task_id":"`+task+`","type":"chunk","chunks":[`+strings.Repeat(chunk+",", 9)+chunk+`]}`)
		events := r.events(run)
		if len(events) != 4 {
			t.Fatalf("%d events", len(events))
		}
		for i, want := range []int{0, 7 * len(chunk)} {
			e := events[2+i]
			var d struct {
				Dropped int               `json:"dropped_bytes"`
				Chunks  []json.RawMessage `json:"chunks"`
			}
			check(t, json.Unmarshal(e.Data, &d))
			if len(e.Data) > 64<<10 || len(e.Data) < 8<<10 || d.Dropped == 0 || (want > 0 && d.Dropped != want) {
				t.Errorf("%d bytes, %d dropped, %d chunks", len(e.Data), d.Dropped, len(d.Chunks))
			}
		}
		var stale atomic.Int64
		r.breaks(func(d store.Decision) error {
			if d.Prompt && stale.Add(-1) >= 0 {
				return store.ErrStale
			}
			return nil
		})
		small := `{"run":"` + run + `","task_id":"` + task + `","type":"progress","text":"x"}`
		stale.Store(2)
		r.tell(run, small)
		stale.Store(3)
		r.tell(run, small)
		if n := len(r.events(run)); n != 5 {
			t.Errorf("%d events", n)
		}
	})
}
