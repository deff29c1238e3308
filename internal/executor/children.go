package executor

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// Children is what an executor asks of the database about runs that steps of other
// runs have started (language rule S11). *store.DB implements it; the methods are
// described there. It is apart from [Store] as [Signals] is.
//
// A row is written with the decision that asks for a run. The start of that run
// takes it over in its own transaction, so there is one run of it whoever tries;
// the decision that ends the run says so in the row. Whoever finds it goes on.
type Children interface {
	AskedChildren(ctx context.Context, after string, limit int) ([]store.Child, error)
	StoppedChildren(ctx context.Context, after string, limit int) ([]store.Child, error)
	ChildNews(ctx context.Context, parent string, limit int) ([]store.Child, error)
	RefuseChild(ctx context.Context, task string, why *parley.Error) error
	ChildStopped(ctx context.Context, c store.Child) error
	RunRow(ctx context.Context, id string) (store.Run, error)
	Events(ctx context.Context, run string, after int64, limit int) ([]parley.Event, error)
}

const (
	// childBatch bounds the children of one look, childrenAtOnce those that are
	// started or stopped at the same time.
	childBatch     = 100
	childrenAtOnce = 16
	// childTrigger is what started a child.
	childTrigger = "workflow"
)

// family is what a decision changes about the runs that steps have started.
func (x *Executor) family(s *workflow.State, d workflow.Decision, e extra) store.Children {
	c := store.Children{Begun: e.begun, Done: e.done}
	for _, a := range d.Children {
		c.Ask = append(c.Ask, store.Child{
			Task: a.Parent.TaskID, Parent: a.Parent.Run, Step: a.Parent.Step, Input: a.Input, Detached: a.Detached,
			Spec: store.ChildSpec{Workflow: a.Workflow, Version: a.Version, Until: a.Until, Depth: a.Parent.Depth, Chain: s.Chain(), Priority: a.Priority, Trace: x.cfg.Tracer.Step(s.RunID(), s.Trace(), a.Parent.Step)},
		})
	}
	for _, a := range d.StopChildren {
		c.Stop = append(c.Stop, store.ChildStop{Task: a.TaskID, Detached: a.Detached, Terminate: a.Terminate, Left: a.Left})
	}
	if p := s.Parent(); p != nil && s.Status().Terminal() {
		c.Ended = p.TaskID
	}
	return c
}

// followChildren does what a durable decision asks for about other runs: those that
// it asks for are started, and the one that waits for this one is told.
func (x *Executor) followChildren(l *liveRun, d workflow.Decision) {
	if len(d.Children)+len(d.StopChildren) > 0 || d.Hold != nil && !*d.Hold {
		x.childrenSoon()
	}
	p := l.state.Parent()
	if p == nil || len(d.Events) == 0 || d.Events[0].Seq != 1 && !l.state.Status().Terminal() {
		return
	}
	x.tell(p.Run)
}

// childrenSoon asks for children to be started and stopped now.
func (x *Executor) childrenSoon() {
	select {
	case x.parenting <- struct{}{}:
	default:
	}
}

// serveChildren starts and stops what runs ask for until ctx ends: when it is asked
// to, and regularly.
func (x *Executor) serveChildren(ctx context.Context) {
	tick := time.NewTicker(x.cfg.SweepEvery)
	defer tick.Stop()
	for {
		err := errors.Join(
			x.eachChild(ctx, x.cfg.Children.AskedChildren, x.startChild),
			x.eachChild(ctx, x.cfg.Children.StoppedChildren, x.stopChild),
		)
		if err != nil && ctx.Err() == nil {
			x.cfg.Logger.Error("not all children could be started or stopped; that is tried again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-x.parenting:
		case <-tick.C:
		}
	}
}

type childPages func(ctx context.Context, after string, limit int) ([]store.Child, error)

// eachChild does something with all children that a look gives, some at a time. It
// gives the first error; what has failed is found again.
func (x *Executor) eachChild(ctx context.Context, look childPages, do func(context.Context, *store.Child) error) error {
	var first error
	for after := ""; ; {
		list, err := look(ctx, after, childBatch)
		if err != nil || len(list) == 0 {
			return errors.Join(first, err)
		}
		after = list[len(list)-1].Task
		var g errgroup.Group
		g.SetLimit(childrenAtOnce)
		for i := range list {
			g.Go(func() error { return do(ctx, &list[i]) })
		}
		if err := g.Wait(); err != nil && first == nil {
			first = err
		}
		if len(list) < childBatch {
			return first
		}
	}
}

// startChild starts the run that a step asks for, or says why that cannot be.
func (x *Executor) startChild(ctx context.Context, c *store.Child) error {
	ref := c.Spec.Workflow
	if c.Spec.Version != "" {
		ref += "@" + c.Spec.Version
	}
	v, input, err := x.childOf(ctx, ref, c)
	if err == nil {
		_, _, err = x.begin(ctx, v, beginning{
			child: c,
			fact: workflow.Start{
				Input: input, Labels: v.def.Labels, Trigger: childTrigger, Priority: c.Spec.Priority, Chain: c.Spec.Chain, Until: c.Spec.Until, Trace: c.Spec.Trace,
				Parent: &workflow.Parent{Run: c.Parent, Step: c.Step, TaskID: c.Task, Depth: c.Spec.Depth, Detached: c.Detached},
			},
		})
	}
	switch {
	case err == nil || errors.Is(err, store.ErrStale): // or somebody else was faster
		return nil
	case !final(err) || errors.Is(err, errBusy):
		return err
	}
	err = x.cfg.Children.RefuseChild(ctx, c.Task, asParley(err))
	if errors.Is(err, store.ErrStale) {
		return nil
	}
	if err == nil {
		x.tell(c.Parent)
	}
	return err
}

// childOf gives the version that a step runs, and the input as that takes it. A
// version that is deprecated takes children of runs that are under way (rule C10).
func (x *Executor) childOf(ctx context.Context, ref string, c *store.Child) (*compiledVersion, json.RawMessage, error) {
	v, err := x.defs.resolve(ctx, ref)
	if err != nil {
		return nil, nil, err
	}
	if err := takesRuns(v.row); err != nil && v.row.Status != parley.AgentActive {
		return nil, nil, err
	}
	input, err := x.input(v.def, c.Input)
	return v, input, err
}

// asParley gives an error as a step has it.
func asParley(err error) *parley.Error {
	if e, ok := errors.AsType[*parley.Error](err); ok {
		return e
	}
	return parley.Errorf(parley.CodeInternal, "%v", err)
}

// stopChild ends the run of a step that does not wait for it any more, or waits for
// this. Nothing is done for one that has ended.
func (x *Executor) stopChild(ctx context.Context, c *store.Child) error {
	if c.State == store.ChildStarted {
		by, why := "run "+c.Parent, "that run was cancelled"
		if c.Abandoned {
			why = "step " + c.Step + " of that run does not wait for it any more"
		}
		var err error
		if c.Terminate {
			_, err = x.Terminate(ctx, parley.ControlRequest{Run: c.Run, By: by, Reason: why})
		} else {
			_, err = x.Cancel(ctx, parley.CancelRequest{Run: c.Run, By: by, Reason: why})
		}
		switch parley.CodeOf(err) {
		case parley.CodeConflict: // it has ended, or is about to
			if errors.Is(err, errPastCancel) {
				break
			}
			row, e := x.cfg.Children.RunRow(ctx, c.Run)
			if e != nil || !row.Status.Terminal() {
				return errors.Join(err, e)
			}
		case parley.CodeNotFound: // it was removed
		default:
			if err != nil {
				return err
			}
		}
	}
	return x.cfg.Children.ChildStopped(ctx, *c)
}

// adopt decides about everything that has become of the runs that steps of a run
// have asked for.
func (x *Executor) adopt(ctx context.Context, l *liveRun, v view) error {
	for x.cfg.Children != nil && l.state.HasChildren() {
		list, err := x.cfg.Children.ChildNews(ctx, l.state.RunID(), childBatch)
		if err != nil {
			return err
		}
		taken := 0
		for i := range list {
			c := &list[i]
			if !l.state.WaitsForChild(c.Task) {
				continue
			}
			f, err := x.childFact(ctx, c)
			if err != nil {
				return err
			}
			if end, ok := f.(workflow.ChildEnded); ok {
				if x.unread(l.state, v.read, end.At) {
					continue // its end may be that of its parent's time, too
				}
				end.Hurry, end.Calls = v.hurry, calls(v.attempts)
				f = end
			}
			d, e := l.state.Apply(f), extra{}
			if e.begun = []string{c.Task}; !l.state.WaitsForChild(c.Task) {
				e.begun, e.done = nil, e.begun
			}
			if err := x.commitWith(ctx, l, d, e); err != nil {
				return err
			}
			taken++
		}
		if taken == 0 || len(list) < childBatch {
			return nil
		}
	}
	return nil
}

// childFact makes the fact of what has become of a run.
func (x *Executor) childFact(ctx context.Context, c *store.Child) (workflow.Fact, error) {
	f := workflow.ChildEnded{
		At: x.now(), TaskID: c.Task, Run: c.Run, Workflow: c.Spec.Workflow, Version: c.Spec.Version, Err: c.Error, Jitter: x.cfg.Jitter(),
	}
	if c.State == store.ChildVoid {
		if c.Error == nil {
			f.Status = parley.RunCancelled
		}
		return f, nil
	}
	row, err := x.cfg.Children.RunRow(ctx, c.Run)
	if parley.CodeOf(err) == parley.CodeNotFound {
		f.Status, f.Err = parley.RunFailed, parley.Errorf(parley.CodeNotFound, "Run %s was removed before its end was seen", c.Run)
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	if c.State == store.ChildStarted {
		return workflow.ChildStarted{At: f.At, TaskID: c.Task, Run: c.Run, Workflow: row.Workflow, Version: row.Version, Jitter: f.Jitter}, nil
	}
	f.Workflow, f.Version, f.Status = row.Workflow, row.Version, row.Status
	if row.Status != parley.RunCompleted {
		f.Err = &parley.Error{}
		return f, json.Unmarshal(row.Error, f.Err)
	}
	f.Output, err = x.outputOf(ctx, row)
	return f, err
}

// outputOf gives what a run has come to, which stands in its last event.
func (x *Executor) outputOf(ctx context.Context, row store.Run) (json.RawMessage, error) {
	list, err := x.cfg.Children.Events(ctx, row.ID, row.Seq-1, 1)
	if err != nil {
		return nil, err
	}
	if len(list) != 1 || list[0].Type != parley.EventRunCompleted {
		return nil, parley.Errorf(parley.CodeInternal, "the history of run %s does not end with its completion", row.ID)
	}
	var p struct {
		Output json.RawMessage `json:"output"`
	}
	err = json.Unmarshal(list[0].Data, &p)
	return p.Output, err
}

// attendChildren is attend for a run that is held here, if it is known that nothing
// but its children is to be looked at.
func (x *Executor) attendChildren(ctx context.Context, l *liveRun, w wakeup) (done bool, err error) {
	if !w.child || w.stranger || l.state == nil {
		return false, nil
	}
	return true, x.adopt(ctx, l, view{})
}

// tell has a run looked at by whoever holds it.
func (x *Executor) tell(run string) {
	if x.cfg.Guest || x.cfg.Shared && !x.holds(run) {
		x.post(bus.Message{Subject: bus.SubjectRuns, Key: run})
		return
	}
	x.wake(wakeup{run: run, child: true})
}

// childVersions finds what the names of workflows in a definition mean now. A name
// that means nothing keeps the run from being started; a version that is deprecated
// only if it is new, and no part of another one.
func (x *Executor) childVersions(ctx context.Context, def *workflow.Definition, fresh bool) ([]workflow.ResolvedChild, error) {
	var list []workflow.ResolvedChild
	known := map[string]bool{}
	for _, c := range def.Children {
		if known[c.Workflow] {
			continue
		}
		known[c.Workflow] = true
		v, err := x.defs.resolve(ctx, c.Workflow)
		if err == nil {
			if err = takesRuns(v.row); err != nil && v.row.Status == parley.AgentActive && !fresh {
				err = nil
			}
		}
		if e, ok := errors.AsType[*parley.Error](err); ok {
			named := *e
			named.Message = "Step " + c.Step + " of workflow " + def.ID + " runs another one: " + e.Message
			return nil, &named
		}
		if err != nil {
			return nil, err
		}
		list = append(list, workflow.ResolvedChild{Ref: c.Workflow, Workflow: v.row.Workflow, Version: v.row.Version})
	}
	return list, nil
}
