package executor

import (
	"context"
	"encoding/json"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// once makes a retry or a rerun repeatable (rule C7); zero does not.
type once struct {
	// key is as the run has it, given as the caller has; digest tells one request from
	// another under the same key.
	key, given, digest string
}

// againKeys is what the keys of retries and reruns are those of, so that no start has
// the same one.
const againKeys = "retry"

// onceOf gives what makes that request repeatable under a key; "" is none.
func onceOf(key string, request map[string]any) (once, error) {
	if key == "" {
		return once{}, nil
	}
	if err := checkKey(key); err != nil {
		return once{}, err
	}
	b, err := json.Marshal(request)
	if err != nil {
		return once{}, parley.Errorf(parley.CodeInvalid, "The input is no JSON value: %w", err)
	}
	return once{key: firingKey(againKeys, key), given: key, digest: digest(b)}, nil
}

// of gives the beginning of a run that goes on from another one.
func (o once) of(f workflow.Start, r *store.Replay) beginning {
	return beginning{fact: f, replay: r, key: o.key, givenKey: o.given, digest: o.digest}
}

// RetryOnce is [Executor.Retry] for a request that can be repeated: if one with the
// same key was carried out before, existing is set and the run is what it has begun;
// if that was another request, the error has code idempotency_conflict.
func (x *Executor) RetryOnce(ctx context.Context, req parley.RetryRequest) (run parley.Run, existing bool, err error) {
	o, err := onceOf(req.IdempotencyKey, map[string]any{"retry": req.Run})
	if err != nil {
		return parley.Run{}, false, err
	}
	return x.retry(ctx, req, store.Replay{By: req.By}, o)
}

// RerunOnce is [Executor.Rerun] as RetryOnce is Retry.
func (x *Executor) RerunOnce(ctx context.Context, req parley.RerunRequest) (run parley.Run, existing bool, err error) {
	o, err := onceOf(req.IdempotencyKey, map[string]any{
		"rerun": req.Run, "from": req.From, "input": req.Input, "workflow_input": req.WorkflowInput, "version": req.Version,
	})
	if err != nil {
		return parley.Run{}, false, err
	}
	return x.rerun(ctx, req, o)
}

// beginAgain begins the run that goes on from another one, unless refused says why that
// cannot be: then it gives what was begun under the same key before, if anything was.
func (x *Executor) beginAgain(ctx context.Context, old store.Run, v *compiledVersion, b beginning, refused error) (parley.Run, bool, error) {
	if refused == nil {
		b.hidden = old.Hidden
		return x.begin(ctx, v, b)
	}
	return x.begunBefore(ctx, old.Workflow, b, refused)
}

// begunBefore gives the run of a workflow that was begun under the key of b by the same
// request, if there is one: refused says why there is no new one.
func (x *Executor) begunBefore(ctx context.Context, of string, b beginning, refused error) (parley.Run, bool, error) {
	if b.key == "" {
		return parley.Run{}, false, refused
	}
	id, err := x.cfg.Store.StartRun(ctx, store.Start{
		Run: store.Run{Workflow: of}, IdempotencyKey: b.key, GivenKey: b.givenKey, InputDigest: b.digest, Refuse: refused,
	})
	if err != nil {
		return parley.Run{}, false, err
	}
	run, err := x.Get(ctx, id)
	return run, true, err
}

// startedUnder gives the run that the same start has begun on another version than v, under
// the key: that may have filled in other defaults, or taken what v refuses. What is compared
// is the input as that version has taken it. Without such a run the error is refused.
func (x *Executor) startedUnder(ctx context.Context, v *compiledVersion, req parley.StartRequest, key string, refused error) (parley.Run, bool, error) {
	if key == "" || req.CallAgent != "" { // calls of agents have one version
		return parley.Run{}, false, refused
	}
	id, err := x.cfg.Store.RunByKey(ctx, v.row.Workflow, key)
	if parley.CodeOf(err) == parley.CodeNotFound {
		return parley.Run{}, false, refused
	}
	if err != nil {
		return parley.Run{}, false, err
	}
	was, err := x.versionOf(ctx, id)
	if err != nil && !final(err) {
		return parley.Run{}, false, err
	}
	if err != nil || was.def == v.def {
		return parley.Run{}, false, refused
	}
	input, err := x.input(was.def, req.Input)
	if err != nil {
		return parley.Run{}, false, refused
	}
	return x.begunBefore(ctx, v.row.Workflow, beginning{key: key, digest: digest(input)}, refused)
}

// versionOf gives the version that a run stays on.
func (x *Executor) versionOf(ctx context.Context, run string) (*compiledVersion, error) {
	row, err := x.cfg.Store.RunRow(ctx, run)
	if err != nil {
		return nil, err
	}
	return x.defs.of(ctx, row)
}
