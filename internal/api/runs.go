package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/parley-project/parley"
)

// maxText bounds ids, names and keys (language.md C7, formats.md).
const maxText = 255

// executeBody documents the body of a start; startRequest reads it.
type executeBody struct {
	InputData      map[string]any    `json:"input_data" doc:"The workflow's input; at most 8 MiB."`
	IdempotencyKey string            `json:"idempotency_key,omitempty" minLength:"1" maxLength:"255" doc:"The same key with equal input gives the same run."`
	Labels         map[string]string `json:"labels,omitempty"`
	Version        string            `json:"version,omitempty" minLength:"1" maxLength:"64" doc:"Default: the newest."`
	Priority       *int              `json:"priority,omitempty" minimum:"0" maximum:"9" doc:"Among runs that wait for the same agents; higher goes first. Default 4."`
}

func (s *server) execute(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readObject(w, r, bodyLimit{s.cfg.Limits.ExecuteBody, "execute_body"}, false)
	if err != nil {
		return err
	}
	req := parley.StartRequest{Workflow: r.PathValue("ref"), TriggeredBy: callerOf(r), Trace: traceOf(r)}
	if !o.has("input_data") {
		o.need("input_data")
	} else if v := o.members["input_data"]; v.Kind() != '{' {
		o.take("input_data")
		o.wrong("input_data", "type", "dict_type", "must be an object")
	}
	req.Input = o.value("input_data", s.inputLimit())
	if v := o.text("version", 1, 64); v != nil {
		req.Version = *v
	}
	startMembers(o, r, &req)
	if err := o.done(true); err != nil {
		return err
	}
	return s.start(w, r, req, preferredWait(r))
}

func (s *server) inputLimit() bodyLimit { return bodyLimit{s.cfg.Limits.Input, "input"} }

// startMembers reads what all starts may carry.
func startMembers(o *object, r *http.Request, req *parley.StartRequest) {
	req.IdempotencyKey = o.idempotencyKey(r.Header)
	req.Labels = o.labels("labels")
	if v := o.integer("priority", 0, parley.MaxRunPriority); v != nil {
		req.Priority = new(int(*v))
	}
}

// start begins a run and, if the caller wants to wait, answers 200 when it has
// ended in time and else 202, also if it cannot be waited for.
func (s *server) start(w http.ResponseWriter, r *http.Request, req parley.StartRequest, wait time.Duration) error {
	run, existing, err := s.cfg.Runs.Start(r.Context(), req)
	if err != nil {
		return err
	}
	h := w.Header()
	located(w, run, existing)
	if wait > 0 {
		if release, ok := s.take(); ok {
			defer release()
			wait = min(wait, s.cfg.Limits.Wait)
			h.Set("Preference-Applied", "wait="+strconv.Itoa(int(wait/time.Second)))
			ended, err := s.untilEnd(r.Context(), run, wait)
			switch {
			case r.Context().Err() != nil: // nobody reads an answer
				return r.Context().Err()
			case err != nil: // the run goes on: who got the error would begin another
				s.cfg.Logger.Warn("a run was begun and could not be waited for", "run", run.ID, "request_id", requestID(r), "error", err)
			case ended.Status.Terminal():
				s.reply(w, r, http.StatusOK, makeRun(ended))
				return nil
			default:
				run = ended
			}
		}
	}
	s.reply(w, r, http.StatusAccepted, makeRun(run))
	return nil
}

// located says where a run is that a request has begun, or one like it did before.
func located(w http.ResponseWriter, run parley.Run, existing bool) {
	w.Header().Set("Location", "/api/v1/runs/"+url.PathEscape(run.ID))
	if existing {
		w.Header().Set("Idempotency-Replayed", "true")
	}
}

// untilEnd gives the run as it is when it has ended, the wait is over or the server is
// being stopped: who had no answer then would take the run for one that was not begun.
func (s *server) untilEnd(ctx context.Context, run parley.Run, wait time.Duration) (parley.Run, error) {
	var watch sync.WaitGroup
	defer watch.Wait()
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	watch.Go(func() {
		select {
		case <-s.cfg.Stopping:
			cancel()
		case <-waiting.Done():
		}
	})
	for after := run.Seq; waiting.Err() == nil; {
		events, err := s.cfg.Runs.Events(waiting, run.ID, after, eventBatch, true)
		if err != nil && waiting.Err() == nil {
			return run, err
		}
		if len(events) == 0 {
			break
		}
		after = events[len(events)-1].Seq
	}
	return s.cfg.Runs.Run(ctx, run.ID)
}

// preferredWait reads "Prefer: wait=30" (RFC 7240); what cannot be read is not
// preferred.
func preferredWait(r *http.Request) time.Duration {
	for _, line := range r.Header.Values("Prefer") {
		for part := range strings.SplitSeq(line, ",") {
			part, _, _ = strings.Cut(part, ";")
			name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			n, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 31)
			if err == nil {
				return time.Duration(n) * time.Second
			}
		}
	}
	return 0
}

func (s *server) getRun(w http.ResponseWriter, r *http.Request) error {
	run, err := s.cfg.Runs.Run(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, makeRun(run))
	return nil
}

func (s *server) getSteps(w http.ResponseWriter, r *http.Request) error {
	run, err := s.cfg.Runs.Run(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, makeSteps(run))
	return nil
}

func (s *server) listAttempts(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	page := q.page()
	req := parley.AttemptQuery{Run: r.PathValue("id"), Step: q.get("step"), Page: page.page()}
	if err := q.done(); err != nil {
		return err
	}
	items, total, err := s.cfg.Runs.Attempts(r.Context(), req)
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, makePage(mapped(items, makeAttempt), total, page))
	return nil
}

// makeAttempt leaves out what is no JSON, as an archive may bring it: it would keep
// everybody from the others.
func makeAttempt(a parley.Attempt) parley.Attempt {
	for _, v := range []*json.RawMessage{&a.Request, &a.Response} {
		if *v != nil && !json.Valid(*v) {
			*v, a.Unreadable = nil, true
		}
	}
	return a
}

// cancelBody documents the body of a cancel.
type cancelBody struct {
	Reason string `json:"reason,omitempty" maxLength:"500"`
}

func (s *server) cancelRun(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readObject(w, r, bodyLimit{s.cfg.Limits.Body, "body"}, true)
	if err != nil {
		return err
	}
	req := parley.CancelRequest{Run: r.PathValue("id"), By: callerOf(r)}
	if v := o.text("reason", 0, 500); v != nil {
		req.Reason = *v
	}
	if err := o.done(false); err != nil {
		return err
	}
	run, err := s.cfg.Runs.Cancel(r.Context(), req)
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, makeRun(run))
	return nil
}

// retryBody documents the body of a retry.
type retryBody struct {
	IdempotencyKey string `json:"idempotency_key,omitempty" minLength:"1" maxLength:"255" doc:"The same key with an equal request gives the same run. Retries and reruns share their keys, apart from those of starts."`
	ResumeFromStep string `json:"resume_from_step,omitempty" doc:"Read and ignored, as on the existing platform."`
}

func (s *server) retryRun(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readObject(w, r, bodyLimit{s.cfg.Limits.Body, "body"}, true)
	if err != nil {
		return err
	}
	req := parley.RetryRequest{Run: r.PathValue("id"), By: callerOf(r), Trace: traceOf(r)}
	o.text("resume_from_step", 0, maxText)
	req.IdempotencyKey = o.idempotencyKey(r.Header)
	if err := o.done(false); err != nil {
		return err
	}
	run, existing, err := s.cfg.Runs.Retry(r.Context(), req)
	if err != nil {
		return err
	}
	located(w, run, existing)
	s.reply(w, r, http.StatusAccepted, makeRun(run))
	return nil
}

// runLogs says that there are none; the detail is an object, as clients of the
// existing platform expect.
func (s *server) runLogs(_ http.ResponseWriter, r *http.Request) error {
	run, err := s.cfg.Runs.Run(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	e := refuse(http.StatusNotImplemented, codeNotBuilt, "log retrieval is not implemented")
	e.detail = logsDetail{
		Message: "Log retrieval is not implemented", RunID: run.ID,
		Note: "What happened in a run is told by GET /api/v1/runs/{id}/events",
	}
	return e
}

type logsDetail struct {
	Message string `json:"message"`
	RunID   string `json:"run_id"`
	Note    string `json:"note"`
}

// callBody documents the body of an agent call; callAgent reads it.
type callBody struct {
	Input          json.RawMessage   `json:"input,omitempty" doc:"Any JSON value, default {}; at most 8 MiB."`
	Wait           float64           `json:"wait,omitempty" minimum:"0" maximum:"86400" doc:"Seconds to wait for the end, as Prefer: wait."`
	IdempotencyKey string            `json:"idempotency_key,omitempty" minLength:"1" maxLength:"255"`
	Labels         map[string]string `json:"labels,omitempty"`
	Priority       *int              `json:"priority,omitempty" minimum:"0" maximum:"9" doc:"As of a run."`
}

// callAgent starts a hidden run of one step.
func (s *server) callAgent(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readObject(w, r, bodyLimit{s.cfg.Limits.ExecuteBody, "execute_body"}, false)
	if err != nil {
		return err
	}
	req := parley.StartRequest{Input: o.value("input", s.inputLimit()), TriggeredBy: callerOf(r), Trace: traceOf(r)}
	wait := preferredWait(r)
	if v := o.number("wait", 0, 86400); v != nil {
		wait = time.Duration(*v * float64(time.Second))
	}
	startMembers(o, r, &req)
	if err := o.done(true); err != nil {
		return err
	}
	agent, err := s.cfg.Agents.Get(r.Context(), r.PathValue("ref"))
	if err != nil {
		return err
	}
	if agent.Status == parley.AgentDeleted {
		return refuse(http.StatusNotFound, codeNotFound, "Agent '%s' was deleted", agent.Name)
	}
	req.CallAgent = agent.Name
	return s.start(w, r, req, wait)
}
