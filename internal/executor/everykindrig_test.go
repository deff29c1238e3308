package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bus/memory"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/tracing"
)

var errDead = errors.New("the process is dead")

// cut is an event of the run, or of the one that a step of it has started.
type cut struct {
	child string
	event int64
}

// dying is the moment at which a process dies: at the commit that has an event,
// before it or after it. Zero never comes.
type dying struct {
	cut
	after bool

	dead chan struct{}
	gone atomic.Bool
}

func (d *dying) die() {
	if !d.gone.Swap(true) {
		close(d.dead)
	}
}

// hit is the store's failpoint: nobody who is dead writes anything.
func (d *dying) hit(string) error {
	if d.gone.Load() {
		return errDead
	}
	return nil
}

// writes lets a write of events be the one at which the process dies.
func (d *dying) writes(child string, events []parley.Event, write func() error) error {
	has := false
	for _, e := range events {
		has = has || e.Seq == d.event && child == d.child
	}
	if has && !d.after {
		d.die()
	}
	if d.gone.Load() {
		return errDead
	}
	err := write()
	if err == nil && has {
		d.die()
		return errDead
	}
	return err
}

// mortalStore notes what the executor thinks of a run after each decision.
type mortalStore struct {
	*store.DB
	life *life
}

func (s mortalStore) StartRun(ctx context.Context, b store.Start) (existing string, err error) {
	err = s.life.dying.writes(b.Run.ParentStep, b.Events, func() error {
		existing, err = s.DB.StartRun(ctx, b)
		if err == nil && existing == "" {
			s.life.begun(b)
		}
		return err
	})
	return existing, err
}

func (s mortalStore) Decide(ctx context.Context, d store.Decision) error {
	child := s.life.parentStep(d.Run.ID)
	return s.life.dying.writes(child, d.Events, func() error {
		err := s.DB.Decide(ctx, d)
		if err == nil && len(d.Events) > 0 {
			s.life.note(d, child)
		}
		return err
	})
}

// wholeLedger brings answers to the executor of the same process.
type wholeLedger struct {
	*store.DB
	executor *Executor
}

func (l wholeLedger) Answer(ctx context.Context, a store.Answer) (bool, error) {
	return l.executor.Answer(ctx, a)
}

// pace is how fast a world goes.
type pace struct {
	// tick is how often the people outside look, sweep how often the executor does.
	tick, sweep time.Duration
	// patience is how long a process may take over the run. What else gives up after a
	// while hangs together with it, so that a slow machine changes nothing of a run.
	patience time.Duration
}

// world is what outlives a process: a database and the agents.
type world struct {
	database string
	input    string
	pace
	// tracer may be nil.
	tracer *tracing.Tracer

	mu    sync.Mutex // protects what follows
	lives int
	ids   int
	calls map[string][]agentCall
	first map[string]time.Time
	// views are the run as an executor had it after a decision, by its last event.
	// commits are the last events of the decisions.
	views   map[int64][]byte
	commits []cut
	// steps are the steps that have started runs, by run: "" of the run itself.
	steps map[string]string
	// settled are the tasks whose answers were stored when the first process died.
	settled map[string]bool
}

// agentCall is one call as the agent saw it.
type agentCall struct {
	life         int
	agent, input string
	trace        parley.Trace
}

func newWorld(database, input string, p pace) *world {
	return &world{
		database: database, input: input, pace: p,
		calls: make(map[string][]agentCall), first: make(map[string]time.Time), views: make(map[int64][]byte), settled: make(map[string]bool),
		steps: make(map[string]string),
	}
}

// newID gives the run its id, as long as it has not begun; its children get others.
func (w *world) newID() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, begun := w.steps["run-1"]; !begun {
		return "run-1"
	}
	w.ids++
	return fmt.Sprintf("run-c-%d", w.ids)
}

// learn finds out which runs there are: one may have begun in the moment in which
// its process died.
func (w *world) learn(ctx context.Context, db *store.DB) error {
	runs, _, err := db.Runs(ctx, parley.RunQuery{Parent: "run-1", Page: parley.Page{Limit: 100}})
	if err != nil {
		return err
	}
	row, err := db.RunRow(ctx, "run-1")
	if err != nil && parley.CodeOf(err) != parley.CodeNotFound {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if row.ID != "" {
		w.steps[row.ID] = ""
	}
	for i := range runs {
		w.steps[runs[i].ID] = runs[i].ParentStep
	}
	return nil
}

// begun notes that a run is in the database.
func (w *world) begun(b store.Start) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.steps[b.Run.ID] = b.Run.ParentStep
	if b.Run.ParentStep != "" {
		w.commits = append(w.commits, cut{b.Run.ParentStep, b.Run.Seq})
	}
}

func (w *world) parentStep(run string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.steps[run]
}

// life is one process: executor and bridge on the world's database.
type life struct {
	*world
	number   int
	dying    *dying
	executor *Executor
}

// live runs a process until the run has ended or the process dies.
func (w *world) live(ctx context.Context, d *dying) (err error) {
	d.dead = make(chan struct{})
	w.lives++
	l := &life{world: w, number: w.lives, dying: d}
	db, err := store.Open(ctx, w.database, store.Options{Failpoint: d.hit, Readers: 2, Writers: 2})
	if err != nil {
		return err
	}
	if w.lives > 1 {
		if err := w.learn(ctx, db); err != nil {
			return errors.Join(err, db.Close())
		}
	}
	hub := memory.New(memory.Options{})
	defer func() { err = errors.Join(err, hub.Close(), db.Close()) }()
	var b *bridge.Bridge
	l.executor = New(Config{
		Store: mortalStore{db, l}, Signals: db, Turns: db, Children: db, LateAnswers: db, Tracer: w.tracer, Take: db.Publish, Bus: hub, Now: time.Now, Clock: db.Now, Jitter: func() float64 { return 0.5 },
		NewID: w.newID, SweepEvery: w.sweep, Lease: w.patience / 4,
		Reserve: func(agent string) (Reservation, bool) {
			r, ok := b.Reserve(agent)
			return Reservation{Claim: r.Claim, Start: r.Start, Release: r.Release}, ok
		},
		Agent: func(context.Context, string) (AgentInfo, bool) {
			return AgentInfo{Protocol: parley.ProtocolSimpleA2A, Policy: parley.OutcomeResend, Idempotent: true, Retry: parley.RetryConfig{Budget: parley.RetryBudget{Off: true}}}, true
		},
	})
	b, err = bridge.New(bridge.Config{
		Worker: "bridge", Ledger: wholeLedger{db, l.executor}, Agents: l, Bus: hub, Adapters: []bridge.Adapter{l}, Clock: db.Now, Lease: w.patience / 4, Tracer: w.tracer,
		DrainGrace: time.Millisecond, AnswerWakes: true, Progress: l.executor.TakeProgress, Failpoint: d.hit,
	})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var failed [2]error
	wg.Go(func() { failed[0] = l.executor.Run(running) })
	wg.Go(func() { failed[1] = b.Run(running) })
	err = l.drive(ctx)
	stop()
	wg.Wait()
	if !d.gone.Load() {
		err = errors.Join(err, failed[0], failed[1])
	}
	return errors.Join(err, w.noteSettled(ctx, db))
}

// noteSettled remembers which tasks nobody may be called for again.
func (w *world) noteSettled(ctx context.Context, db *store.DB) error {
	rows, err := w.attempts(ctx, db)
	for i := range rows {
		if s := rows[i].State; w.lives == 1 && (s == store.AttemptSettled || s == store.AttemptClosed) {
			w.settled[rows[i].ID] = true
		}
	}
	return err
}

// attempts gives those of the run and of the runs that it waits for.
func (w *world) attempts(ctx context.Context, db *store.DB) (all []store.Attempt, err error) {
	if err := w.learn(ctx, db); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for run, step := range w.steps {
		rows, err := db.Attempts(ctx, run)
		if err != nil {
			return nil, err
		}
		if step != "away" {
			all = append(all, rows...)
		}
	}
	return all, nil
}

// drive is everybody outside: who starts the run, tells it what has happened and
// answers what it asks, again and again until that was taken.
func (l *life) drive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	started := false
	for last := error(nil); ; {
		var err error
		if !started {
			_, _, err = l.executor.Start(ctx, parley.StartRequest{Workflow: "every-kind", Input: []byte(l.input), IdempotencyKey: "once"})
			started = err == nil
		}
		if started {
			var run parley.Run
			if run, err = l.executor.Get(ctx, "run-1"); err == nil {
				if run.Status.Terminal() {
					return nil
				}
				err = l.answer(ctx, run)
			}
		}
		if err != nil && !l.dying.gone.Load() {
			last = err
		}
		select {
		case <-l.dying.dead:
			return nil
		case <-ctx.Done():
			run, _ := l.executor.Get(context.WithoutCancel(ctx), "run-1")
			b, _ := json.MarshalIndent(run.Steps, "", " ")
			return fmt.Errorf("the run does not end: %w\n%s", errors.Join(ctx.Err(), last), b)
		case <-time.After(l.tick):
		}
	}
}

func (l *life) answer(ctx context.Context, run parley.Run) error {
	for i := range run.Steps {
		s := &run.Steps[i]
		if s.Event != nil {
			for id, data := range signals(run, s.Event.Name) {
				if _, err := l.executor.Signal(ctx, parley.SignalRequest{Signal: parley.Signal{ID: id, Name: s.Event.Name, Key: "k", Data: []byte(data)}}); err != nil {
					return err
				}
			}
		}
		if s.Approval != nil {
			_, err := l.executor.AnswerStep(ctx, parley.AnswerRequest{
				Run: run.ID, Step: s.ID, Choice: "approve", Roles: []string{"boss"}, Reply: parley.Reply{By: "ann", Text: "yes"},
			})
			if err != nil && parley.CodeOf(err) != parley.CodeConflict {
				return err
			}
		}
	}
	return nil
}

// signals are the events of that name that the run is told of now, data by id. The
// race that a child loses is over once that has begun: were it a matter of time, a
// slow machine would leave its begin out of the history, and the last cut with it.
func signals(run parley.Run, name string) map[string]string {
	begun := func(s parley.Step) bool { return s.ID == "lost/slower_one" && s.Child != nil && s.Child.Run != "" }
	switch {
	case name == "go":
		return map[string]string{"go-1": `{"ok":false}`, "go-2": `{"ok":true}`}
	case name == "begun" && slices.ContainsFunc(run.Steps, begun):
		return map[string]string{"begun-1": "null"}
	}
	return nil
}

// note keeps what the executor has in memory, whose lock its decision holds.
func (l *life) note(d store.Decision, child string) {
	if child != "" {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.commits = append(l.commits, cut{child, d.Run.Seq})
		return
	}
	l.executor.mu.Lock()
	entry := l.executor.live[d.Run.ID]
	l.executor.mu.Unlock()
	b, err := json.Marshal(entry.state.View())
	if err != nil {
		b = []byte(err.Error())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.views[d.Run.Seq] = b
	l.commits = append(l.commits, cut{event: d.Run.Seq})
}

// Lookup gives every agent.
func (l *life) Lookup(_ context.Context, name string) (parley.Agent, error) {
	return parley.Agent{Name: name, Protocol: parley.ProtocolSimpleA2A, OutcomeUnknown: parley.OutcomeResend, Idempotent: true, Timeout: l.patience / 2}, nil
}

// Protocol is that of all agents.
func (l *life) Protocol() string { return parley.ProtocolSimpleA2A }

// Call is how an agent takes a task: it knows those that it has had before, and
// answers them when it would have done so then.
func (l *life) Call(ctx context.Context, task parley.Task, _ parley.Agent, _ bridge.Progress) (bridge.Outcome, error) {
	lost := bridge.Outcome{Disposition: bridge.Lost, Result: parley.Result{TaskID: task.ID, Outcome: parley.OutcomeError, Err: parley.Errorf(parley.CodeAgentUnavailable, "cut off")}}
	if l.dying.gone.Load() {
		<-ctx.Done()
		return lost, nil
	}
	answer := time.After(time.Until(l.took(task)))
	if task.Agent == "slow" {
		answer = nil
	}
	select {
	case <-ctx.Done():
		return lost, nil
	case <-answer:
		return bridge.Outcome{Disposition: bridge.Answered, Result: says(task)}, nil
	}
}

// took notes a call and gives the time of its answer.
func (l *life) took(task parley.Task) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[task.ID] = append(l.calls[task.ID], agentCall{l.number, task.Agent, string(task.Input), task.Trace})
	if l.first[task.ID].IsZero() {
		h := fnv.New32a()
		_, _ = h.Write([]byte(task.ID))
		l.first[task.ID] = time.Now().Add(time.Duration(5000+h.Sum32()%20_000) * time.Microsecond)
	}
	return l.first[task.ID]
}

// says is what an agent answers: it depends on nothing but the task.
func says(task parley.Task) parley.Result {
	refuse := func(code parley.Code, again bool) parley.Result {
		e := parley.Errorf(code, "%s says no", task.Agent)
		e.Retryable = again
		return parley.Result{TaskID: task.ID, Outcome: parley.OutcomeError, Err: e}
	}
	switch {
	case task.Agent == "flaky" && strings.HasSuffix(task.ID, ".1"):
		return refuse(parley.CodeAgentError, true)
	case task.Agent == "down":
		return refuse(parley.CodeAgentUnavailable, true)
	case task.Agent == "broken",
		task.Agent == "second_time" && !strings.Contains(task.ID, "#2"),
		task.Agent == "picky" && strings.Contains(string(task.Input), "3"):
		return refuse(parley.CodeAgentRejected, false)
	}
	return parley.Result{TaskID: task.ID, Outcome: parley.OutcomeOK, Output: task.Input}
}
