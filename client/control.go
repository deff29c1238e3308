package client

import (
	"context"
	"encoding/json"

	"github.com/parley-project/parley"
)

// Terminate ends a run at once: agents that work are told, and nobody waits for
// them. Reason, at most 500 characters, is recorded. A run that has ended is
// refused with [parley.CodeConflict].
func (c *Client) Terminate(ctx context.Context, id, reason string) (parley.Run, error) {
	return c.steer(ctx, id, "terminate", reason)
}

// Pause lets no step and no attempt of a run start until it is resumed; what
// runs, ends. A run that has ended or is being cancelled is refused with
// [parley.CodeConflict].
func (c *Client) Pause(ctx context.Context, id, reason string) (parley.Run, error) {
	return c.steer(ctx, id, "pause", reason)
}

// Resume ends the pause of a run. One that is not paused is given as it is; one
// that has ended is refused with [parley.CodeConflict].
func (c *Client) Resume(ctx context.Context, id string) (parley.Run, error) {
	return c.steer(ctx, id, "resume", "")
}

func (c *Client) steer(ctx context.Context, id, verb, reason string) (parley.Run, error) {
	if err := needName("run", id); err != nil {
		return parley.Run{}, err
	}
	var run parley.Run
	in := struct {
		Reason string `json:"reason,omitempty"`
	}{reason}
	err := c.post(ctx, call{path: path("runs", id, verb)}, in, &run)
	return run, err
}

// Rerun starts a new run that does the step r.From of an ended run again, and all
// that depends on it, and gives the new one; everything else is copied. By is not
// sent: the server knows who calls.
//
// With an idempotency key that was used before, it gives the run that was begun then;
// a key of another request is refused with [parley.CodeIdempotencyConflict].
//
// A run that has not ended, a compensated one unless nothing would be copied, and
// a version that lacks what would be are refused with [parley.CodeConflict]; a
// run, version or step that is not there with [parley.CodeNotFound].
func (c *Client) Rerun(ctx context.Context, r parley.RerunRequest) (parley.Run, error) {
	if err := needName("run", r.Run); err != nil {
		return parley.Run{}, err
	}
	var run parley.Run
	in := struct {
		From          string          `json:"from,omitempty"`
		Input         json.RawMessage `json:"input,omitempty"`
		WorkflowInput json.RawMessage `json:"workflow_input,omitempty"`
		Version       string          `json:"version,omitempty"`
		Key           string          `json:"idempotency_key,omitempty"`
	}{r.From, r.Input, r.WorkflowInput, r.Version, r.IdempotencyKey}
	err := c.post(ctx, call{path: path("runs", r.Run, "rerun"), trace: r.Trace}, in, &run)
	return run, err
}

// ChangeRuns does something to a batch of the runs that a filter selects, newest
// first. It takes as long as the batch, at most half a minute; as long as the
// report has a Next, another batch goes on from there, given as after ("" for the
// first). By, the filter's After and its DefinitionID are not sent.
func (c *Client) ChangeRuns(ctx context.Context, r parley.BulkRequest, after string) (parley.BulkReport, error) {
	f := r.Filter
	in := struct {
		Filter map[string]any `json:"filter"`
		Reason string         `json:"reason,omitempty"`
		Limit  int            `json:"limit,omitempty"`
		After  string         `json:"after,omitempty"`
		DryRun bool           `json:"dry_run,omitempty"`
	}{map[string]any{}, r.Reason, r.Limit, after, r.DryRun}
	member := func(name string, given bool, value any) {
		if given {
			in.Filter[name] = value
		}
	}
	member("status", len(f.Status) > 0, f.Status)
	member("workflow", f.Workflow != "", f.Workflow)
	member("version", f.Version != "", f.Version)
	member("labels", len(f.Labels) > 0, f.Labels)
	member("text", f.Text != "", f.Text)
	member("parent", f.Parent != "", f.Parent)
	member("paused", f.Paused, true)
	member("hidden", f.Hidden, true)
	member("created_after", !f.CreatedAfter.IsZero(), f.CreatedAfter.UTC())
	member("created_before", !f.CreatedBefore.IsZero(), f.CreatedBefore.UTC())
	member("ended_after", !f.EndedAfter.IsZero(), f.EndedAfter.UTC())
	member("ended_before", !f.EndedBefore.IsZero(), f.EndedBefore.UTC())
	var report parley.BulkReport
	err := c.post(ctx, call{path: "/api/v1/runs:" + string(r.Action)}, in, &report)
	return report, err
}

// Explain says what each open step of a run waits for.
func (c *Client) Explain(ctx context.Context, id string) (parley.Explanation, error) {
	var e parley.Explanation
	if err := needName("run", id); err != nil {
		return e, err
	}
	err := c.get(ctx, path("runs", id, "explain"), nil, &e)
	return e, err
}
