package api

import (
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	jsonv2 "github.com/go-json-experiment/json"

	"github.com/parley-project/parley"
)

// bulkBody documents the body of what is done to many runs; bulk reads it.
type bulkBody struct {
	Filter runFilterBody `json:"filter" doc:"{} is every run that the action is for."`
	Reason string        `json:"reason,omitempty" maxLength:"500"`
	Limit  int           `json:"limit,omitempty" minimum:"1" maximum:"500" doc:"The most runs of this batch, default 100. It may end earlier, after 20 s."`
	After  string        `json:"after,omitempty" minLength:"1" maxLength:"1000" doc:"The next of the batch before."`
	DryRun bool          `json:"dry_run,omitempty" doc:"Only count."`
}

// runFilterBody documents a filter of runs in a body; runFilterOf reads it.
type runFilterBody struct {
	Status        []string          `json:"status,omitempty" minItems:"1" maxItems:"16" enum:"PENDING,RUNNING,COMPLETED,FAILED,CANCELLED" nullable:"false"`
	Workflow      string            `json:"workflow,omitempty" minLength:"1" maxLength:"255" doc:"A workflow_id or name."`
	Version       string            `json:"version,omitempty" minLength:"1" maxLength:"64"`
	Labels        map[string]string `json:"labels,omitempty" minProperties:"1" doc:"The run has all of them."`
	Text          string            `json:"text,omitempty" minLength:"1" maxLength:"255" doc:"Words of the id, the workflow_id or name, or the error."`
	Parent        string            `json:"parent,omitempty" minLength:"1" maxLength:"255" doc:"Only runs that steps of this run have started."`
	Paused        bool              `json:"paused,omitempty" doc:"Only runs that are paused; false is no filter."`
	Hidden        bool              `json:"hidden,omitempty" doc:"Also the runs of agent calls."`
	CreatedAfter  time.Time         `json:"created_after,omitzero"`
	CreatedBefore time.Time         `json:"created_before,omitzero"`
	EndedAfter    time.Time         `json:"ended_after,omitzero"`
	EndedBefore   time.Time         `json:"ended_before,omitzero"`
}

func (s *server) bulkRoutes() []route {
	bulk := func(action parley.BulkAction, summary string) route {
		return route{
			method: http.MethodPost, path: "/api/v1/runs:" + string(action), id: string(action) + "-runs", tag: "runs",
			summary: summary + ", newest first; next says where the following batch begins", params: []*huma.Param{}, body: bulkBody{},
			answers: ok(parley.BulkReport{}), errors: []int{413, 415, 422, 503}, handle: s.bulk(action),
		}
	}
	return []route{
		bulk(parley.BulkCancel, "Ask for the end of a batch of runs"),
		bulk(parley.BulkTerminate, "End a batch of runs at once"),
		bulk(parley.BulkPause, "Pause a batch of runs"),
		bulk(parley.BulkResume, "End the pause of a batch of runs"),
		bulk(parley.BulkRetry, "Make new runs of a batch of failed or cancelled ones that were not retried yet"),
	}
}

func (s *server) bulk(action parley.BulkAction) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		o, err := s.readObject(w, r, bodyLimit{s.cfg.Limits.Body, "body"}, false)
		if err != nil {
			return err
		}
		req := parley.BulkRequest{Action: action, Filter: runFilterOf(o), By: callerOf(r)}
		if v := o.text("reason", 0, 500); v != nil {
			req.Reason = *v
		}
		if v := o.integer("limit", 1, parley.BulkMaxLimit); v != nil {
			req.Limit = int(*v)
		}
		if v := o.text("after", 1, 1000); v != nil {
			var ok bool
			if req.Filter.After, ok = readCursor(*v); !ok {
				o.wrong("after", "value", "value_error", "must be the next of a batch before")
			}
		}
		if v := o.boolean("dry_run"); v != nil {
			req.DryRun = *v
		}
		if err := o.done(true); err != nil {
			return err
		}
		release, err := s.takeBatch()
		if err != nil {
			return err
		}
		defer release()
		report, err := s.cfg.Controls.Bulk(r.Context(), req)
		if err != nil {
			return err
		}
		report.Next = cursorOf(report.NextMark)
		s.reply(w, r, http.StatusOK, report)
		return nil
	}
}

// runFilterOf reads the filter of a body. It has to be there, so that nobody means
// everything by mistake.
func runFilterOf(o *object) (q parley.RunQuery) {
	in := o.filter()
	if in == nil {
		return q
	}
	for _, word := range in.words("status", maxStatuses) {
		if !knownRunStatus(parley.RunStatus(word)) {
			in.wrong("status", "value", "enum", "must be of: PENDING, RUNNING, COMPLETED, FAILED, CANCELLED")
		}
		q.Status = append(q.Status, parley.RunStatus(word))
	}
	texts := map[string]*string{"workflow": &q.Workflow, "text": &q.Text, "parent": &q.Parent}
	for _, name := range sortedKeys(texts) { // faults are always in one order
		if v := in.text(name, 1, maxText); v != nil {
			*texts[name] = *v
		}
	}
	if v := in.text("version", 1, 64); v != nil {
		q.Version = *v
	}
	before := len(*in.found)
	if q.Labels = in.labels("labels"); q.Labels != nil && len(q.Labels) == 0 && len(*in.found) == before {
		in.wrong("labels", "value", "too_short", "must have at least one label, or be left out")
	}
	flags := map[string]*bool{"paused": &q.Paused, "hidden": &q.Hidden}
	for _, name := range sortedKeys(flags) {
		if v := in.boolean(name); v != nil {
			*flags[name] = *v
		}
	}
	in.times(map[string]*time.Time{
		"created_after": &q.CreatedAfter, "created_before": &q.CreatedBefore, "ended_after": &q.EndedAfter, "ended_before": &q.EndedBefore,
	})
	in.unknown()
	return q
}

// times takes members that are times, in the order of their names.
func (o *object) times(members map[string]*time.Time) {
	for _, name := range sortedKeys(members) {
		v := o.text(name, 0, maxText)
		if v == nil {
			continue
		}
		at, ok := parseTime(*v)
		if !ok {
			o.wrong(name, "value", "datetime_from_date_parsing", "must be a time such as 2026-11-21T10:04:05Z")
		}
		*members[name] = at
	}
}

// filter takes the filter of a body. One that is missing, or null, is refused, and so is
// a null in it: what was computed and came out empty would select more than was meant.
func (o *object) filter() *object {
	o.require("filter")
	in := o.object("filter")
	if in != nil {
		in.refuseNulls()
	}
	return in
}

// refuseNulls takes down the members that are null, at any depth of objects.
func (o *object) refuseNulls() {
	for _, name := range sortedKeys(o.members) {
		switch v := o.members[name]; v.Kind() {
		case 'n':
			o.wrong(name, "value", "value_error", "must not be null: leave it out")
		case '{':
			in := &object{path: o.at(name), found: o.found}
			if jsonv2.Unmarshal(v, &in.members) == nil {
				in.refuseNulls()
			}
		}
	}
}

// words takes a list of strings, so many at the most. An empty one, such as one that was
// computed, would select everything.
func (o *object) words(name string, most int) []string {
	v, ok := o.take(name)
	if !ok {
		return nil
	}
	var list []string
	switch err := jsonv2.Unmarshal(v, &list); {
	case err != nil:
		o.wrong(name, "type", "list_type", "must be a list of strings")
	case len(list) == 0:
		o.wrong(name, "value", "too_short", "must have at least one item, or be left out")
	case len(list) > most:
		o.wrong(name, "limit", "too_long", fmt.Sprintf("must have at most %d items", most))
	default:
		return list
	}
	return nil
}
