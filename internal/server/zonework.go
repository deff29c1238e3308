package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/zone/execution"
)

// zoneWork does the tasks of an Execution Zone as runs: of a workflow, or of one
// step that calls an agent. A task's id is the idempotency key of its run, so that
// nothing else has to be remembered.
type zoneWork struct {
	*Server
	// workflow is a workflow_id, agent a name; one of the two is "". keyed is the
	// workflow whose idempotency keys the ids of tasks are.
	workflow, agent, keyed string
	name, description      string
	limit                  time.Duration
	most                   int
	// live is how many runs there were at the last look, and what was begun since.
	live atomic.Int64
}

// liveEvery is how often the runs that have not ended are counted.
const liveEvery = time.Second

// newZoneWork finds what tasks are for. The error has code invalid if that is not
// there.
func (s *Server) newZoneWork(ctx context.Context, cfg *ExecutionZone) (*zoneWork, error) {
	w := &zoneWork{Server: s, limit: cfg.TaskLimit, most: cfg.MaxTasks}
	switch {
	case (cfg.Workflow == "") == (cfg.Agent == ""):
		return nil, parley.Errorf(parley.CodeInvalid, "zone.execution needs workflow or agent: what execute_task is for, one of the two")
	case cfg.Workflow != "":
		v, err := s.catalog.Get(ctx, cfg.Workflow)
		if err != nil {
			return nil, parley.Errorf(parley.CodeInvalid, "zone.execution.workflow: %w (put its file into a folder that workflows: names)", err)
		}
		w.workflow, w.keyed, w.name, w.description = v.Workflow, v.Workflow, v.Name, cmp.Or(v.Description, "Runs the workflow "+v.Name)
	default:
		a, err := s.registry.Get(ctx, cfg.Agent)
		if err != nil {
			return nil, parley.Errorf(parley.CodeInvalid, "zone.execution.agent: %w (name it under agents:)", err)
		}
		w.agent, w.keyed, w.name, w.description = a.Name, callWorkflow, a.Name, cmp.Or(a.Description, "Asks the agent "+a.Name)
	}
	n, err := s.db.LiveRuns(ctx, w.most)
	w.live.Store(int64(n))
	return w, err
}

// callWorkflow is the workflow_id of agent calls (interface.md, agent call).
const callWorkflow = "_call"

// Start implements execution.Work.
func (w *zoneWork) Start(ctx context.Context, key string, in execution.Input) error {
	if err := w.admit(); err != nil {
		return execution.ErrStopping
	}
	if run, err := w.find(ctx, key); err == nil {
		return same(run, in)
	} else if !errors.Is(err, execution.ErrUnknown) {
		return refused(err)
	}
	if w.live.Load() >= int64(w.most) {
		return &execution.OverloadedError{}
	}
	input, err := json.Marshal(in)
	if err != nil {
		return err
	}
	_, existing, err := w.executor.Start(ctx, parley.StartRequest{
		Workflow: w.workflow, CallAgent: w.agent, Input: input, IdempotencyKey: zoneKey(key), TriggeredBy: "zone", Timeout: w.limit,
		Labels: map[string]string{"zone": "execution"}, Trace: in.Trace,
	})
	switch {
	case parley.CodeOf(err) == parley.CodeIdempotencyConflict: // somebody was faster with it
		run, err := w.find(ctx, key)
		if err != nil {
			return refused(err)
		}
		return same(run, in)
	case err != nil:
		return refused(err)
	case !existing:
		w.live.Add(1)
	}
	return nil
}

// refused says why no run was begun: since there is no room beside others of the
// workflow (concurrency), or the database is away, which may be otherwise soon, or for
// good. A run that was begun all the same is found when it is asked for again.
func refused(err error) error {
	var why parley.ConflictDetails
	e, ok := errors.AsType[*parley.Error](err)
	switch {
	case ok && json.Unmarshal(e.Details, &why) == nil && why.Conflict == parley.ConflictConcurrency:
		return errors.Join(&execution.OverloadedError{}, err)
	case parley.CodeOf(err) == parley.CodeUnavailable:
		return errors.Join(&execution.OverloadedError{}, err)
	case parley.CodeOf(err) == parley.CodeLimit, parley.CodeOf(err) == parley.CodeInvalidInput:
		return errors.Join(execution.ErrInvalid, err)
	}
	return err
}

func zoneKey(key string) string { return "zone-" + key }

// same says whether a run is the task that was asked for again.
func same(run parley.Run, in execution.Input) error {
	var was execution.Input
	if err := json.Unmarshal(run.Input, &was); err != nil {
		return err
	}
	if was.Fingerprint() != in.Fingerprint() {
		return execution.ErrConflict
	}
	return nil
}

// find gives the run of a task.
func (w *zoneWork) find(ctx context.Context, key string) (parley.Run, error) {
	id, err := w.db.RunByKey(ctx, w.keyed, zoneKey(key))
	if parley.CodeOf(err) == parley.CodeNotFound {
		return parley.Run{}, execution.ErrUnknown
	}
	if err != nil {
		return parley.Run{}, err
	}
	return w.executor.Get(ctx, id)
}

// Await implements execution.Work.
func (w *zoneWork) Await(ctx context.Context, key string) (execution.Outcome, error) {
	id, err := w.db.RunByKey(ctx, w.keyed, zoneKey(key))
	if parley.CodeOf(err) == parley.CodeNotFound {
		return execution.Outcome{}, execution.ErrUnknown
	}
	if err == nil {
		_, err = w.executor.Wait(ctx, id)
	}
	if err != nil && ctx.Err() == nil {
		return execution.Outcome{}, err
	}
	return w.Look(context.WithoutCancel(ctx), key)
}

// Look implements execution.Work.
func (w *zoneWork) Look(ctx context.Context, key string) (execution.Outcome, error) {
	run, err := w.find(ctx, key)
	if err != nil {
		return execution.Outcome{}, err
	}
	var out execution.Outcome
	if err := json.Unmarshal(run.Input, &out.Input); err != nil {
		return out, err
	}
	switch run.Status {
	case parley.RunCompleted:
		out.State, out.Output = execution.Completed, run.Output
		if w.agent != "" {
			out.Output = agentAnswer(run.Output)
		}
	case parley.RunCancelled:
		out.State = execution.Cancelled
	case parley.RunFailed:
		out.State = execution.Failed
		if run.Error != nil {
			out.Cause = "run " + run.ID + ": " + run.Error.Error()
			if run.Error.Code == parley.CodeTimeout || run.Error.Code == parley.CodeStalled {
				out.State = execution.TimedOut
			}
		}
	}
	return out, nil
}

// agentAnswer takes the answer out of what an agent gave: its other members are
// those of the protocol it speaks, which the person who asked has no use for.
func agentAnswer(output json.RawMessage) json.RawMessage {
	var all map[string]json.RawMessage
	if json.Unmarshal(output, &all) != nil {
		return output
	}
	for _, name := range []string{"response_text", "text", "response"} {
		var text string
		if json.Unmarshal(all[name], &text) == nil && text != "" {
			kept := map[string]json.RawMessage{"response_text": all[name]}
			if file, ok := all["file_artifact"]; ok {
				kept["file_artifact"] = file
			}
			answer, err := json.Marshal(kept)
			if err != nil { // it was just read
				return output
			}
			return answer
		}
	}
	return output
}

// Running implements execution.Work.
func (w *zoneWork) Running() int { return int(w.live.Load()) }

// count keeps Running up to date until ctx ends.
func (w *zoneWork) count(ctx context.Context) error {
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		n, err := w.db.LiveRuns(ctx, w.most)
		if err != nil {
			continue // the database is away: what was counted last stands
		}
		w.live.Store(int64(n))
	}
}
