package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/parley-project/parley"
)

// Controls is what the API needs of whoever steers runs.
type Controls interface {
	// Terminate ends a run at once. not_found, conflict (the run has ended).
	Terminate(ctx context.Context, req parley.ControlRequest) (parley.Run, error)
	// Pause keeps steps and attempts from starting; again is the same answer.
	// not_found, conflict (the run has ended or is being cancelled).
	Pause(ctx context.Context, req parley.ControlRequest) (parley.Run, error)
	// Resume ends a pause; again is the same answer. not_found, conflict (the run
	// has ended).
	Resume(ctx context.Context, req parley.ControlRequest) (parley.Run, error)
	// Rerun makes a new run that does a part of an ended one again, or gives the one
	// that the same idempotency key made before (existing). not_found, conflict,
	// idempotency_conflict, invalid, invalid_input, limit.
	Rerun(ctx context.Context, req parley.RerunRequest) (run parley.Run, existing bool, err error)
	// Search gives at most limit of the runs that q selects, from q.After on.
	Search(ctx context.Context, q parley.RunQuery, limit int) (parley.RunPage, error)
	// Bulk does something to a batch of the runs that a filter selects. invalid,
	// limit, unavailable.
	Bulk(ctx context.Context, req parley.BulkRequest) (parley.BulkReport, error)
	// Explain says what each open step of a run waits for. not_found.
	Explain(ctx context.Context, id string) (parley.Explanation, error)
}

func (s *server) controlRoutes() []route {
	const tag = "runs"
	id := pathParam("id", "The run's id.")
	steer := func(verb, summary string, do func(context.Context, parley.ControlRequest) (parley.Run, error)) route {
		return route{
			method: http.MethodPost, path: "/api/v1/runs/{id}/" + verb, id: verb + "-run", tag: tag,
			summary: summary, params: []*huma.Param{id}, body: controlBody{}, optional: true,
			answers: ok(runBody{}), errors: []int{404, 409, 413, 415, 422}, handle: s.steer(do),
		}
	}
	c := s.cfg.Controls
	return []route{
		steer("terminate", "End a run at once: nothing is waited for, nothing is compensated", c.Terminate),
		steer("pause", "Let no step and no attempt of a run start; what runs, ends, and timeouts go on", c.Pause),
		steer("resume", "End the pause of a run", c.Resume),
		{
			method: http.MethodPost, path: "/api/v1/runs/{id}/rerun", id: "rerun-run", tag: tag,
			summary: "Make a new run of an ended one, which does a step and all that depends on it again; everything else is copied",
			params:  append(beginParams(), id), body: rerunBody{}, optional: true,
			answers: []answer{{status: http.StatusAccepted, body: runBody{}}},
			errors:  []int{404, 409, 413, 415, 422}, handle: s.rerunRun,
		},
		{
			method: http.MethodGet, path: "/api/v1/runs/{id}/explain", id: "explain-run", tag: tag,
			summary: "Say what each open step of a run waits for", params: []*huma.Param{id},
			answers: ok(parley.Explanation{}), errors: []int{404}, handle: s.explainRun,
		},
	}
}

// controlBody documents the body of what steers a run.
type controlBody struct {
	Reason string `json:"reason,omitempty" maxLength:"500"`
}

// steer serves what is done to one run.
func (s *server) steer(do func(context.Context, parley.ControlRequest) (parley.Run, error)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		o, err := s.readObject(w, r, bodyLimit{s.cfg.Limits.Body, "body"}, true)
		if err != nil {
			return err
		}
		req := parley.ControlRequest{Run: r.PathValue("id"), By: callerOf(r)}
		if v := o.text("reason", 0, 500); v != nil {
			req.Reason = *v
		}
		if err := o.done(true); err != nil {
			return err
		}
		run, err := do(r.Context(), req)
		if err != nil {
			return err
		}
		s.reply(w, r, http.StatusOK, makeRun(run))
		return nil
	}
}

// rerunBody documents the body of a rerun; rerunRun reads it.
type rerunBody struct {
	From           string          `json:"from,omitempty" minLength:"1" maxLength:"16384" doc:"The step that is run again, by id or path. Without it everything is."`
	Input          json.RawMessage `json:"input,omitempty" doc:"The input of that step, in place of what the workflow says: any JSON value but null, at most 8 MiB."`
	WorkflowInput  json.RawMessage `json:"workflow_input,omitempty" doc:"Another input of the workflow: not null; at most 8 MiB."`
	Version        string          `json:"version,omitempty" minLength:"1" maxLength:"64" doc:"Another version of the workflow, which must have the copied ids with the same kind."`
	IdempotencyKey string          `json:"idempotency_key,omitempty" minLength:"1" maxLength:"255" doc:"The same key with an equal request gives the same run. Retries and reruns share their keys, apart from those of starts."`
}

func (s *server) rerunRun(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readObject(w, r, bodyLimit{s.cfg.Limits.ExecuteBody, "execute_body"}, true)
	if err != nil {
		return err
	}
	req := parley.RerunRequest{Run: r.PathValue("id"), By: callerOf(r), Trace: traceOf(r)}
	if v := o.text("from", 1, 16<<10); v != nil {
		req.From = *v
	}
	if v := o.text("version", 1, 64); v != nil {
		req.Version = *v
	}
	req.IdempotencyKey = o.idempotencyKey(r.Header)
	req.Input, req.WorkflowInput = o.value("input", s.inputLimit()), o.value("workflow_input", s.inputLimit())
	if err := o.done(true); err != nil {
		return err
	}
	run, existing, err := s.cfg.Controls.Rerun(r.Context(), req)
	if err != nil {
		return err
	}
	located(w, run, existing)
	s.reply(w, r, http.StatusAccepted, makeRun(run))
	return nil
}

func (s *server) explainRun(w http.ResponseWriter, r *http.Request) error {
	e, err := s.cfg.Controls.Explain(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, e)
	return nil
}
