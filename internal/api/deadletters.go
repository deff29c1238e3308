package api

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/parley-project/parley"
)

// DeadLetters is what the API needs of whoever keeps what was given up.
type DeadLetters interface {
	// List gives one page, newest first, without keys, headers and values, and
	// the number of all that match.
	List(ctx context.Context, q parley.DeadLetterQuery) ([]parley.DeadLetter, int, error)
	// Get gives one whole. not_found.
	Get(ctx context.Context, id string) (parley.DeadLetter, error)
	// Replay replays one and gives it as it is then. not_found, conflict, invalid,
	// unavailable.
	Replay(ctx context.Context, req parley.ReplayRequest) (parley.DeadLetter, error)
	// ReplayMany replays what waits and is selected by a filter, so many a second.
	// invalid, unavailable.
	ReplayMany(ctx context.Context, b parley.ReplayBatch) (parley.ReplayReport, error)
	// Discard discards one; again is no error. not_found, conflict, limit.
	Discard(ctx context.Context, req parley.DiscardRequest) (parley.DeadLetter, error)
	// DiscardMany discards what waits and is selected by a filter. invalid, limit.
	DiscardMany(ctx context.Context, req parley.DiscardRequest) (parley.DiscardReport, error)
}

func (s *server) deadLetterRoutes() []route {
	const tag = "dead letters"
	id := pathParam("id", "The dead letter's id.")
	return []route{
		{
			method: http.MethodGet, path: "/api/v1/dead-letters", id: "list-dead-letters", tag: tag,
			summary: "List what was given up, newest first, without keys, headers and values",
			params:  append(pageParams(), deadLetterFilters()...),
			answers: ok(pageOf[parley.DeadLetter]{}), errors: []int{422}, handle: s.listDeadLetters,
		},
		{
			method: http.MethodGet, path: "/api/v1/dead-letters/{id}", id: "get-dead-letter", tag: tag,
			summary: "Get one dead letter whole", params: []*huma.Param{id},
			answers: ok(parley.DeadLetter{}), errors: []int{404}, handle: s.getDeadLetter,
		},
		{
			method: http.MethodPost, path: "/api/v1/dead-letters/{id}/replay", id: "replay-dead-letter", tag: tag,
			summary: "Go on with the run of a task in a new run, or publish a record again",
			params:  append(traceParams(), id), body: replayBody{}, optional: true,
			answers: []answer{{status: http.StatusAccepted, body: parley.DeadLetter{}}},
			errors:  []int{404, 409, 413, 415, 422, 503}, handle: s.replayDeadLetter,
		},
		{
			method: http.MethodPost, path: "/api/v1/dead-letters:replay", id: "replay-dead-letters", tag: tag,
			summary: "Replay a batch of those that wait, oldest first; next says where the following batch begins",
			body:    replayManyBody{}, answers: ok(parley.ReplayReport{}), errors: []int{413, 415, 422, 503}, handle: s.replayDeadLetters,
		},
		{
			method: http.MethodPost, path: "/api/v1/dead-letters/{id}/discard", id: "discard-dead-letter", tag: tag,
			summary: "Decide that nothing is to be done; again is no error",
			params:  []*huma.Param{id}, body: discardBody{}, optional: true,
			answers: ok(parley.DeadLetter{}), errors: []int{404, 409, 413, 415, 422}, handle: s.discardDeadLetter,
		},
		{
			method: http.MethodPost, path: "/api/v1/dead-letters:discard", id: "discard-dead-letters", tag: tag,
			summary: "Discard all that wait and are selected by a filter",
			body:    discardManyBody{}, answers: ok(parley.DiscardReport{}), errors: []int{413, 415, 422}, handle: s.discardDeadLetters,
		},
	}
}

func deadLetterFilters() []*huma.Param {
	return []*huma.Param{
		wordParam("state", "Default: any.", parley.DeadLetterWaiting, parley.DeadLetterReplayed, parley.DeadLetterDiscarded),
		wordParam("kind", "Default: any.", parley.DeadLetterTask, parley.DeadLetterRecord, parley.DeadLetterForeign),
		queryParam("code", huma.TypeString, "The code of the error."),
		textParam("reason", "Words of the reason, in upper or lower case."),
		queryParam("agent", huma.TypeString, "The agent's name."),
		queryParam("workflow", huma.TypeString, "The workflow_id."),
		queryParam("run_id", huma.TypeString, "The run's id."),
		queryParam("topic", huma.TypeString, "The topic that the record came from."),
		queryParam("created_after", huma.TypeString, "RFC 3339; without a zone it is UTC."),
		queryParam("created_before", huma.TypeString, "RFC 3339; without a zone it is UTC."),
		orderParam(),
	}
}

// replayBody documents the body of a replay.
type replayBody struct {
	Force bool `json:"force,omitempty" doc:"Replay also one that was replayed or discarded."`
}

// deadLetterFilter documents a filter in a body; filterOf reads it.
type deadLetterFilter struct {
	State         string    `json:"state,omitempty" enum:"waiting" doc:"Nothing else can be meant."`
	Kind          string    `json:"kind,omitempty" enum:"task,record,foreign_task"`
	Code          string    `json:"code,omitempty" minLength:"1" maxLength:"255"`
	Reason        string    `json:"reason,omitempty" minLength:"1" maxLength:"255" doc:"Words of the reason, in upper or lower case."`
	Agent         string    `json:"agent,omitempty" minLength:"1" maxLength:"255"`
	Workflow      string    `json:"workflow,omitempty" minLength:"1" maxLength:"255"`
	RunID         string    `json:"run_id,omitempty" minLength:"1" maxLength:"255"`
	Topic         string    `json:"topic,omitempty" minLength:"1" maxLength:"255"`
	CreatedAfter  time.Time `json:"created_after,omitzero"`
	CreatedBefore time.Time `json:"created_before,omitzero"`
}

type replayManyBody struct {
	Filter deadLetterFilter `json:"filter" doc:"{} is all that wait."`
	Rate   int              `json:"rate,omitempty" minimum:"1" maximum:"1000" doc:"Replays a second, default 10."`
	Limit  int              `json:"limit,omitempty" minimum:"1" maximum:"1000" doc:"The most of this batch, default 100. It may end earlier, after 20 s."`
	After  string           `json:"after,omitempty" minLength:"1" maxLength:"255" doc:"The next of the batch before."`
	DryRun bool             `json:"dry_run,omitempty" doc:"Only count."`
}

type discardBody struct {
	Reason string `json:"reason,omitempty" maxLength:"500"`
}

type discardManyBody struct {
	Filter deadLetterFilter `json:"filter" doc:"{} is all that wait."`
	Reason string           `json:"reason,omitempty" maxLength:"500"`
	DryRun bool             `json:"dry_run,omitempty" doc:"Only count."`
}

// bytesSchema describes [parley.Bytes], wherever they stand.
func bytesSchema(registry huma.Registry) {
	for schema, members := range map[string][]string{"DeadLetter": {"key", "value"}, "DeadLetterHeader": {"value"}} {
		for _, name := range members {
			registry.Map()[schema].Properties[name] = &huma.Schema{
				Description: "Text, or base64 if it is not UTF-8.",
				AnyOf: []*huma.Schema{
					{Type: huma.TypeString},
					{Type: huma.TypeObject, Properties: map[string]*huma.Schema{"base64": {Type: huma.TypeString, ContentEncoding: "base64"}}, Required: []string{"base64"}},
				},
			}
		}
	}
}

func (s *server) listDeadLetters(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	page := q.page()
	req := parley.DeadLetterQuery{
		Filter: parley.DeadLetterFilter{
			State: parley.DeadLetterState(q.word("state", string(parley.DeadLetterWaiting), string(parley.DeadLetterReplayed), string(parley.DeadLetterDiscarded))),
			Kind:  parley.DeadLetterKind(q.word("kind", string(parley.DeadLetterTask), string(parley.DeadLetterRecord), string(parley.DeadLetterForeign))),
			Code:  parley.Code(q.get("code")), Reason: q.words("reason"), Agent: q.get("agent"), Workflow: q.get("workflow"),
			Run: q.get("run_id"), Topic: q.get("topic"),
			CreatedAfter: q.when("created_after"), CreatedBefore: q.when("created_before"),
		},
		Ascending: q.ascending(), Page: page.page(),
	}
	if err := q.done(); err != nil {
		return err
	}
	items, total, err := s.cfg.DeadLetters.List(r.Context(), req)
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, makePage(items, total, page))
	return nil
}

func (s *server) getDeadLetter(w http.ResponseWriter, r *http.Request) error {
	l, err := s.cfg.DeadLetters.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, l)
	return nil
}

func (s *server) replayDeadLetter(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readObject(w, r, bodyLimit{s.cfg.Limits.Body, "body"}, true)
	if err != nil {
		return err
	}
	req := parley.ReplayRequest{ID: r.PathValue("id"), By: callerOf(r), Trace: traceOf(r)}
	if v := o.boolean("force"); v != nil {
		req.Force = *v
	}
	if err := o.done(true); err != nil {
		return err
	}
	l, err := s.cfg.DeadLetters.Replay(r.Context(), req)
	if err != nil {
		return err
	}
	if l.ReplayRun != "" {
		w.Header().Set("Location", "/api/v1/runs/"+url.PathEscape(l.ReplayRun))
	}
	s.reply(w, r, http.StatusAccepted, l)
	return nil
}

// filterOf reads the filter of a body. It has to be there, so that nobody means
// everything by mistake.
func filterOf(o *object) (f parley.DeadLetterFilter) {
	in := o.filter()
	if in == nil {
		return f
	}
	member := func(name string) string {
		if v := in.text(name, 1, maxText); v != nil {
			return *v
		}
		return ""
	}
	if v := in.word("state", string(parley.DeadLetterWaiting)); v != nil {
		f.State = parley.DeadLetterState(*v)
	}
	if v := in.word("kind", string(parley.DeadLetterTask), string(parley.DeadLetterRecord), string(parley.DeadLetterForeign)); v != nil {
		f.Kind = parley.DeadLetterKind(*v)
	}
	f.Code, f.Reason = parley.Code(member("code")), member("reason")
	f.Agent, f.Workflow, f.Run, f.Topic = member("agent"), member("workflow"), member("run_id"), member("topic")
	in.times(map[string]*time.Time{"created_after": &f.CreatedAfter, "created_before": &f.CreatedBefore})
	in.unknown()
	return f
}

func (s *server) replayDeadLetters(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readObject(w, r, bodyLimit{s.cfg.Limits.Body, "body"}, false)
	if err != nil {
		return err
	}
	b := parley.ReplayBatch{Filter: filterOf(o), By: callerOf(r)}
	if v := o.integer("rate", 1, parley.ReplayMaxRate); v != nil {
		b.Rate = int(*v)
	}
	if v := o.integer("limit", 1, parley.ReplayMaxLimit); v != nil {
		b.Limit = int(*v)
	}
	if v := o.text("after", 1, maxText); v != nil {
		b.After = *v
	}
	if v := o.boolean("dry_run"); v != nil {
		b.DryRun = *v
	}
	if err := o.done(true); err != nil {
		return err
	}
	release, err := s.takeBatch()
	if err != nil {
		return err
	}
	defer release()
	report, err := s.cfg.DeadLetters.ReplayMany(r.Context(), b)
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, report)
	return nil
}

func (s *server) discardDeadLetter(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readObject(w, r, bodyLimit{s.cfg.Limits.Body, "body"}, true)
	if err != nil {
		return err
	}
	req := parley.DiscardRequest{ID: r.PathValue("id"), By: callerOf(r)}
	if v := o.text("reason", 0, 500); v != nil {
		req.Note = *v
	}
	if err := o.done(true); err != nil {
		return err
	}
	l, err := s.cfg.DeadLetters.Discard(r.Context(), req)
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, l)
	return nil
}

func (s *server) discardDeadLetters(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readObject(w, r, bodyLimit{s.cfg.Limits.Body, "body"}, false)
	if err != nil {
		return err
	}
	req := parley.DiscardRequest{Filter: filterOf(o), By: callerOf(r)}
	if v := o.text("reason", 0, 500); v != nil {
		req.Note = *v
	}
	if v := o.boolean("dry_run"); v != nil {
		req.DryRun = *v
	}
	if err := o.done(true); err != nil {
		return err
	}
	report, err := s.cfg.DeadLetters.DiscardMany(r.Context(), req)
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, report)
	return nil
}
