package executor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// Turns is what an executor asks of the database about runs that share a bound of
// how many of them run at the same time (language.md §1, concurrency). *store.DB
// implements it; the methods are described there. It is apart from [Store] so that
// neither has more methods than a fake can have.
//
// Whether a run begins or waits is decided in the transaction that writes it, and
// so is who leaves. Who comes next is a decision about that run like any other; it
// is refused if there is no room. All that is here only says when to look.
type Turns interface {
	NextTurn(ctx context.Context, l store.Lane) (run string, err error)
	CrowdedLanes(ctx context.Context, limit int) ([]store.Lane, error)
	Crowding(ctx context.Context, l store.Lane) ([]string, error)
	Turn(ctx context.Context, run string) (*parley.Turn, error)
}

// laneHints bounds the lanes that wait to be looked at; what is dropped is found by
// a sweep.
const laneHints = 4_096

// laneHint says that a run of a lane has begun, ended or begun to wait. crowded: it
// asks for the place of another.
type laneHint struct {
	lane    store.Lane
	crowded bool
}

// turnOf gives what a run with that input is started under.
func (x *Executor) turnOf(def *workflow.Definition, b *beginning) (err error) {
	if b.fact.Turn, err = def.TurnOf(b.fact.Input); err != nil || b.fact.Turn == nil {
		return err
	}
	if x.cfg.Turns == nil {
		return parley.Errorf(parley.CodeUnavailable, "Workflow %s has concurrency, and nobody counts its runs here", def.ID)
	}
	return nil
}

// waiting is a run as it is if it has to wait for its turn.
type waiting struct {
	state    *workflow.State
	decision workflow.Decision
	row      store.Run
}

// wait gives that for a run that is started, and tells the store of it.
func (x *Executor) waiting(v *compiledVersion, b beginning, s *store.Start) *waiting {
	t := b.fact.Turn
	if t == nil {
		return nil
	}
	queued := *t
	queued.Wait = true
	b.fact.Turn = &queued
	w := &waiting{state: workflow.NewState(b.id, v.def, x.cfg.Limits)}
	w.decision = w.state.Apply(b.fact)
	w.row = x.row(&liveRun{state: w.state}, b.fact.At)
	w.row.Workflow, w.row.Name, w.row.Version, w.row.DefinitionID = s.Run.Workflow, s.Run.Name, s.Run.Version, s.Run.DefinitionID
	w.row.Labels, w.row.TriggeredBy, w.row.Hidden, w.row.RetriedFrom = s.Run.Labels, s.Run.TriggeredBy, s.Run.Hidden, s.Run.RetriedFrom
	w.row.ParentRun, w.row.ParentStep = s.Run.ParentRun, s.Run.ParentStep
	s.Turn = &store.Turn{
		Key: t.Key, Limit: t.Limit, WhenFull: t.WhenFull, MostWaiting: x.cfg.Limits.QueuedRuns, Run: w.row, Events: w.decision.Events,
	}
	return w
}

// turnMove says what a decision changes about the turn of its run.
func turnMove(s *workflow.State, d workflow.Decision) *store.TurnMove {
	t := s.Turn()
	if t == nil || len(d.Events) == 0 {
		return nil
	}
	m := &store.TurnMove{Workflow: s.Definition().ID, Key: t.Key, Limit: t.Limit, Admit: admits(d)}
	m.End = s.Status().Terminal()
	m.Waiting = m.End && t.Wait
	if !m.Admit && !m.End {
		return nil
	}
	return m
}

// admits reports whether a decision begins a run that waited for its turn.
func admits(d workflow.Decision) bool {
	return len(d.Events) > 0 && d.Events[0].Seq > 1 && d.Events[0].Type == parley.EventRunStarted
}

// admit begins a run that waits for its turn, if that has come.
func (x *Executor) admit(ctx context.Context, l *liveRun) (acted bool, err error) {
	if x.cfg.Turns == nil {
		return false, nil
	}
	next, err := x.cfg.Turns.NextTurn(ctx, laneOf(l.state))
	if err != nil || next != l.state.RunID() {
		return false, err
	}
	d := l.state.Apply(workflow.Admit{At: x.now(), Jitter: x.cfg.Jitter()})
	return true, x.commit(ctx, l, d, nil)
}

func laneOf(s *workflow.State) store.Lane {
	return store.Lane{Workflow: s.Definition().ID, Key: s.Turn().Key}
}

// followTurn has others looked at when a run has begun to wait, was admitted, or has
// ended.
func (x *Executor) followTurn(l *liveRun, d workflow.Decision) {
	t := l.state.Turn()
	if t == nil || len(d.Events) == 0 {
		return
	}
	begun := d.Events[0].Seq == 1
	switch {
	case begun && l.state.Queued():
		x.cfg.Metrics.turn(fateQueued)
	case begun:
		x.cfg.Metrics.turn(fateBegan)
	case admits(d):
		x.cfg.Metrics.turn(fateAdmitted)
	}
	if l.state.Queued() || l.state.Status().Terminal() || admits(d) {
		x.lookAt(laneHint{laneOf(l.state), l.state.Queued() && t.WhenFull == parley.WhenFullCancelOldest})
	}
}

func (x *Executor) lookAt(h laneHint) {
	select {
	case x.lanes <- h:
	default:
	}
}

// serveTurns looks after lanes of which something has changed, until ctx ends.
func (x *Executor) serveTurns(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case h := <-x.lanes:
			if err := x.attendLane(ctx, h); err != nil && ctx.Err() == nil {
				x.cfg.Logger.Error("runs that wait for their turn were not looked at; the next sweep does", "workflow", h.lane.Workflow, "error", err)
			}
		}
	}
}

// attendLane wakes the run whose turn it is, and cancels those that have to go.
func (x *Executor) attendLane(ctx context.Context, h laneHint) error {
	next, err := x.cfg.Turns.NextTurn(ctx, h.lane)
	if err != nil {
		return err
	}
	switch {
	case next == "":
	case x.cfg.Guest || x.cfg.Shared && !x.holds(next):
		x.post(bus.Message{Subject: bus.SubjectRuns, Key: next})
	default:
		x.wake(wakeup{run: next})
	}
	if !h.crowded {
		return nil
	}
	return x.uncrowd(ctx, h.lane)
}

// uncrowd cancels the runs of a lane that newer ones ask for their places.
func (x *Executor) uncrowd(ctx context.Context, l store.Lane) error {
	list, err := x.cfg.Turns.Crowding(ctx, l)
	if err != nil {
		return err
	}
	var failed error
	for _, run := range list {
		_, err := x.Cancel(ctx, parley.CancelRequest{Run: run, By: parley.ByConcurrency, Reason: "a newer run takes its place"})
		if code := parley.CodeOf(err); err != nil && code != parley.CodeConflict && code != parley.CodeNotFound {
			failed = errors.Join(failed, fmt.Errorf("run %s: %w", run, err))
		}
	}
	return failed
}

// uncrowdAll does so wherever nobody has.
func (x *Executor) uncrowdAll(ctx context.Context) error {
	if x.cfg.Turns == nil {
		return nil
	}
	lanes, err := x.cfg.Turns.CrowdedLanes(ctx, sweepBatch)
	for _, l := range lanes {
		err = errors.Join(err, x.uncrowd(ctx, l))
	}
	return err
}

// withTurn completes the view of a run that waits for its turn.
func (x *Executor) withTurn(ctx context.Context, run parley.Run) (parley.Run, error) {
	if run.Status != parley.RunPending || x.cfg.Turns == nil {
		return run, nil
	}
	var err error
	run.Turn, err = x.cfg.Turns.Turn(ctx, run.ID)
	return run, err
}

// explainTurn says what a run waits for that waits for its turn.
func (x *Executor) explainTurn(ctx context.Context, e *parley.Explanation) (err error) {
	e.Deadline = nil // its timeout begins when it does
	if x.cfg.Turns == nil {
		return nil
	}
	if e.Turn, err = x.cfg.Turns.Turn(ctx, e.Run); err != nil {
		return err
	}
	e.Text = "The run is about to begin"
	if t := e.Turn; t != nil {
		e.Text = fmt.Sprintf("The run waits for its turn: place %d of %d, %d of at most %d run", t.Place, t.Waiting, t.RunningCount, t.Limit)
		if t.Key != "" {
			e.Text += fmt.Sprintf(" with the key %q", t.Key)
		}
		if len(t.Running) > 0 {
			e.Text += ": " + strings.Join(t.Running, ", ")
		}
		if n := t.RunningCount - len(t.Running); n > 0 {
			e.Text += fmt.Sprintf(" and %d more", n)
		}
	}
	return nil
}
