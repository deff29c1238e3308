package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/parley-project/parley"
)

// Schedules is what the API needs of whoever keeps schedules.
type Schedules interface {
	// List gives one page by workflow, and the true number of all that match.
	List(ctx context.Context, q parley.ScheduleQuery) ([]parley.Schedule, int, error)
	// Get gives the schedule of that id or name. not_found.
	Get(ctx context.Context, ref string) (parley.Schedule, error)
	// Firings gives one page, the latest first, and how many there are. not_found.
	Firings(ctx context.Context, ref string, page parley.Page) ([]parley.ScheduleFiring, int, error)
	// Add adds one to a workflow. invalid, not_found, conflict.
	Add(ctx context.Context, req parley.ScheduleRequest) (parley.Schedule, error)
	// Remove removes one that was added. not_found, conflict.
	Remove(ctx context.Context, req parley.ScheduleChange) error
	// Pause and Resume; again is no error. not_found.
	Pause(ctx context.Context, req parley.ScheduleChange) (parley.Schedule, error)
	Resume(ctx context.Context, req parley.ScheduleChange) (parley.Schedule, error)
	// Backfill asks for firings of a time that has passed. not_found, invalid, limit.
	Backfill(ctx context.Context, req parley.BackfillRequest) (parley.BackfillReport, error)
}

// maxSpecText bounds one member of a schedule, in characters.
const maxSpecText = 256

// newSchedule documents a schedule that is added; addSchedule reads it.
type newSchedule struct {
	Workflow string          `json:"workflow" minLength:"1" maxLength:"255" doc:"A workflow_id or a name."`
	Name     string          `json:"name,omitempty" maxLength:"64" doc:"For people; no two schedules have the same."`
	Cron     string          `json:"cron,omitempty" minLength:"1" maxLength:"256" doc:"Five fields: minute, hour, day of the month, month and weekday. Or give every."`
	Every    string          `json:"every,omitempty" minLength:"1" maxLength:"256" doc:"A period of at least 1s, such as 15m."`
	Zone     string          `json:"zone,omitempty" minLength:"1" maxLength:"256" doc:"An IANA time zone, default UTC."`
	Overlap  string          `json:"overlap,omitempty" enum:"skip,queue,cancel_previous,allow" doc:"While the run before it has not ended; default skip."`
	CatchUp  string          `json:"catch_up,omitempty" minLength:"1" maxLength:"256" doc:"How late a firing may begin that was missed; default 10m."`
	Jitter   string          `json:"jitter,omitempty" minLength:"1" maxLength:"256" doc:"Bounds the delay that is drawn for each firing; default 0s."`
	Input    json.RawMessage `json:"input,omitempty" doc:"The input of the runs; ${event.scheduled_at} in it is the time of the firing. Default: the event."`
}

// backfillBody documents the time of a backfill.
type backfillBody struct {
	From time.Time `json:"from" doc:"The first time, included."`
	To   time.Time `json:"to" doc:"The last time, included; it has passed."`
}

func (s *server) scheduleRoutes() []route {
	const tag = "schedules"
	id := pathParam("id", "The schedule's id or name.")
	one := []answer{{status: http.StatusOK, body: parley.Schedule{}}}
	return []route{
		{
			method: http.MethodGet, path: "/api/v1/schedules", id: "list-schedules", tag: tag,
			summary: "List schedules by workflow, with their next and last firing",
			params: append(pageParams(), queryParam("workflow", huma.TypeString, "Only those of one workflow_id."),
				wordParam("status", "Default: any.", parley.ScheduleActive, parley.SchedulePaused)),
			answers: ok(pageOf[parley.Schedule]{}), errors: []int{422}, handle: s.listSchedules,
		},
		{
			method: http.MethodPost, path: "/api/v1/schedules", id: "add-schedule", tag: tag,
			summary: "Add a schedule to a workflow", body: newSchedule{},
			answers: []answer{{status: http.StatusCreated, body: parley.Schedule{}}}, errors: []int{404, 409, 413, 415, 422}, handle: s.addSchedule,
		},
		{
			method: http.MethodGet, path: "/api/v1/schedules/{id}", id: "get-schedule", tag: tag,
			summary: "Get one schedule", params: []*huma.Param{id}, answers: one, errors: []int{404}, handle: s.getSchedule,
		},
		{
			method: http.MethodGet, path: "/api/v1/schedules/{id}/firings", id: "list-firings", tag: tag,
			summary: "List what became of a schedule's newest firings, the latest first", params: append(pageParams(), id),
			answers: ok(pageOf[parley.ScheduleFiring]{}), errors: []int{404, 422}, handle: s.listFirings,
		},
		{
			method: http.MethodDelete, path: "/api/v1/schedules/{id}", id: "remove-schedule", tag: tag,
			summary: "Remove a schedule that was added; its runs stay", params: []*huma.Param{id},
			answers: ok(messageBody{}), errors: []int{404, 409}, handle: s.removeSchedule,
		},
		{
			method: http.MethodPost, path: "/api/v1/schedules/{id}/pause", id: "pause-schedule", tag: tag,
			summary: "Let a schedule fire no more; again changes nothing", params: []*huma.Param{id},
			answers: one, errors: []int{404}, handle: s.pauseSchedule,
		},
		{
			method: http.MethodPost, path: "/api/v1/schedules/{id}/resume", id: "resume-schedule", tag: tag,
			summary: "Let a schedule fire again, from its next firing on; again changes nothing", params: []*huma.Param{id},
			answers: one, errors: []int{404}, handle: s.resumeSchedule,
		},
		{
			method: http.MethodPost, path: "/api/v1/schedules/{id}/backfill", id: "backfill-schedule", tag: tag,
			summary: "Fire for a time that has passed, both ends included; what has fired is left alone", params: []*huma.Param{id}, body: backfillBody{},
			answers: []answer{{status: http.StatusAccepted, body: parley.BackfillReport{}}}, errors: []int{404, 413, 415, 422}, handle: s.backfillSchedule,
		},
	}
}

func (s *server) listSchedules(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	page := q.page()
	req := parley.ScheduleQuery{Workflow: q.get("workflow"), Status: parley.ScheduleStatus(q.word("status", string(parley.ScheduleActive), string(parley.SchedulePaused))), Page: page.page()}
	if err := q.done(); err != nil {
		return err
	}
	items, total, err := s.cfg.Schedules.List(r.Context(), req)
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, makePage(items, total, page))
	return nil
}

func (s *server) addSchedule(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readObject(w, r, bodyLimit{s.cfg.Limits.Body, "body"}, false)
	if err != nil {
		return err
	}
	req := parley.ScheduleRequest{By: callerOf(r)}
	o.require("workflow")
	for _, m := range []struct {
		name        string
		least, most int
		to          *string
	}{
		{"workflow", 1, 255, &req.Workflow},
		{"name", 0, 64, &req.Name},
		{"cron", 1, maxSpecText, &req.Cron},
		{"every", 1, maxSpecText, &req.Every},
		{"zone", 1, maxSpecText, &req.Zone},
		{"overlap", 1, maxSpecText, &req.Overlap},
		{"catch_up", 1, maxSpecText, &req.CatchUp},
		{"jitter", 1, maxSpecText, &req.Jitter},
	} {
		if v := o.text(m.name, m.least, m.most); v != nil {
			*m.to = *v
		}
	}
	req.Input = o.value("input", bodyLimit{s.cfg.Limits.Body, "body"})
	if err := o.done(true); err != nil {
		return err
	}
	added, err := s.cfg.Schedules.Add(r.Context(), req)
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusCreated, added)
	return nil
}

func (s *server) getSchedule(w http.ResponseWriter, r *http.Request) error {
	return s.replySchedule(w, r, func() (parley.Schedule, error) { return s.cfg.Schedules.Get(r.Context(), r.PathValue("id")) })
}

func (s *server) pauseSchedule(w http.ResponseWriter, r *http.Request) error {
	return s.replySchedule(w, r, func() (parley.Schedule, error) { return s.cfg.Schedules.Pause(r.Context(), changeOf(r)) })
}

func (s *server) resumeSchedule(w http.ResponseWriter, r *http.Request) error {
	return s.replySchedule(w, r, func() (parley.Schedule, error) { return s.cfg.Schedules.Resume(r.Context(), changeOf(r)) })
}

func changeOf(r *http.Request) parley.ScheduleChange {
	return parley.ScheduleChange{Ref: r.PathValue("id"), By: callerOf(r)}
}

func (s *server) replySchedule(w http.ResponseWriter, r *http.Request, get func() (parley.Schedule, error)) error {
	one, err := get()
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, one)
	return nil
}

func (s *server) listFirings(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	page := q.page()
	if err := q.done(); err != nil {
		return err
	}
	items, total, err := s.cfg.Schedules.Firings(r.Context(), r.PathValue("id"), page.page())
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, makePage(items, total, page))
	return nil
}

func (s *server) removeSchedule(w http.ResponseWriter, r *http.Request) error {
	req := changeOf(r)
	if err := s.cfg.Schedules.Remove(r.Context(), req); err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, s.message("Schedule '"+req.Ref+"' removed successfully"))
	return nil
}

func (s *server) backfillSchedule(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readObject(w, r, bodyLimit{s.cfg.Limits.Body, "body"}, false)
	if err != nil {
		return err
	}
	req := parley.BackfillRequest{Ref: r.PathValue("id"), By: callerOf(r)}
	ends := map[string]*time.Time{"from": &req.From, "to": &req.To}
	for _, name := range sortedKeys(ends) {
		o.require(name)
	}
	o.times(ends)
	if err := o.done(true); err != nil {
		return err
	}
	report, err := s.cfg.Schedules.Backfill(r.Context(), req)
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusAccepted, report)
	return nil
}
