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
	}{r.From, r.Input, r.WorkflowInput, r.Version}
	err := c.post(ctx, call{path: path("runs", r.Run, "rerun")}, in, &run)
	return run, err
}
