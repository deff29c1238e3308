package api

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/parley-project/parley"
)

// maxSearch bounds the items of one page with a cursor.
const maxSearch = 500

// runList documents both forms of a list of runs.
type runList struct {
	Items      []runBody `json:"items" nullable:"false"`
	Total      int       `json:"total,omitempty" doc:"Of all that match; pages only."`
	Page       int       `json:"page,omitempty" doc:"Pages only."`
	PageSize   int       `json:"page_size,omitempty" doc:"Pages only."`
	TotalPages int       `json:"total_pages,omitempty" doc:"Pages only."`
	Next       string    `json:"next,omitempty" doc:"The cursor of what follows, absent at the end; with limit or cursor only. A page may be short and not the last."`
}

// runSearch is one page with a cursor.
type runSearch struct {
	Items []runBody `json:"items"`
	Next  string    `json:"next,omitempty"`
}

func runFilters() []*huma.Param {
	return []*huma.Param{
		queryParam("status", huma.TypeString, "PENDING, RUNNING, COMPLETED, FAILED or CANCELLED, or several of them with commas between; anything else matches nothing."),
		queryParam("workflow_id", huma.TypeString, "A workflow_id, a name, or a version's UUID."),
		queryParam("workflow_definition_id", huma.TypeString, "A version's UUID."),
		queryParam("version", huma.TypeString, "A version of the workflow."),
		queryParam("label", huma.TypeString, "name=value; given several times, the run has all of them."),
		textParam("text", "Words of the id, the workflow_id or name, or the error, in upper or lower case."),
		queryParam("parent", huma.TypeString, "Only runs that steps of this run have started."),
		queryParam("paused", huma.TypeBoolean, "Only runs that are paused."),
		queryParam("created_after", huma.TypeString, "RFC 3339; without a zone it is UTC."),
		queryParam("created_before", huma.TypeString, "RFC 3339; without a zone it is UTC."),
		queryParam("ended_after", huma.TypeString, "RFC 3339; without a zone it is UTC."),
		queryParam("ended_before", huma.TypeString, "RFC 3339; without a zone it is UTC."),
		queryParam("sort_by", huma.TypeString, "created_at, updated_at, completed_at or status; with a cursor created_at only."), orderParam(),
		queryParam("hidden", huma.TypeBoolean, "Also the runs of agent calls."),
	}
}

func cursorParams() []*huma.Param {
	return []*huma.Param{integerParam("limit", 1, maxSearch, "The most items of a page with a cursor, default 20."), queryParam("cursor", huma.TypeString, "The next of the page before. New runs don't change the pages behind the first.")}
}

func (s *server) listRuns(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	page := q.page()
	req := runQuery(q)
	req.SortBy = q.sortBy(map[string]string{
		"created_at": "created_at", "updated_at": "updated_at", "status": "status",
		// The last change of a run that has ended is its end.
		"completed_at": "updated_at",
	})
	req.Ascending, req.Page = q.ascending(), page.page()
	search := q.get("limit") != "" || q.get("cursor") != ""
	limit := int(q.integer("limit", 20, 1, maxSearch))
	if search {
		req.After = q.cursor("cursor")
		for _, name := range []string{"page", "page_size"} {
			if q.get(name) != "" {
				q.wrong(name, "value_error", "cannot be used together with limit or cursor")
			}
		}
		if req.SortBy != "" && req.SortBy != "created_at" {
			q.wrong("sort_by", "value_error", "must be created_at, with limit or cursor")
		}
	}
	if err := q.done(); err != nil {
		return err
	}
	none, err := s.meant(r.Context(), &req)
	if err != nil {
		return err
	}
	none = none || len(req.Status) > 0 && !slices.ContainsFunc(req.Status, knownRunStatus)
	if search {
		return s.searchRuns(w, r, req, map[bool]int{false: limit}[none])
	}
	var items []parley.Run
	var total int
	if !none {
		var err error
		if items, total, err = s.cfg.Runs.List(r.Context(), req); err != nil {
			return err
		}
	}
	s.reply(w, r, http.StatusOK, makePage(mapped(items, makeRun), total, page))
	return nil
}

// meant finds out whether the workflow of a filter is a version's UUID, which stands in
// a run's workflow_id, or a workflow_id that looks like one. none is set if the filter
// can match nothing.
func (s *server) meant(ctx context.Context, q *parley.RunQuery) (none bool, err error) {
	if isUUID := uuid.Validate(q.Workflow) == nil; !isUUID {
		return false, nil
	}
	v, err := s.cfg.Workflows.Get(ctx, q.Workflow)
	switch {
	case parley.CodeOf(err) == parley.CodeNotFound, err == nil && v.ID != q.Workflow:
		return false, nil
	case err != nil:
		return false, err
	}
	none = q.DefinitionID != "" && q.DefinitionID != v.ID
	q.DefinitionID, q.Workflow = v.ID, ""
	return none, nil
}

// searchRuns answers with a page of at most limit runs; 0 is none.
func (s *server) searchRuns(w http.ResponseWriter, r *http.Request, q parley.RunQuery, limit int) error {
	var found parley.RunPage
	if limit > 0 {
		var err error
		if found, err = s.cfg.Controls.Search(r.Context(), q, limit); err != nil {
			return err
		}
	}
	s.reply(w, r, http.StatusOK, runSearch{mapped(found.Items, makeRun), cursorOf(found.Next)})
	return nil
}

// runQuery reads the filters that lists of runs have.
func runQuery(q *query) parley.RunQuery {
	req := parley.RunQuery{
		Workflow: q.get("workflow_id"), Version: q.get("version"), DefinitionID: q.get("workflow_definition_id"),
		Labels: q.labels("label"), Text: q.words("text"), Parent: q.get("parent"), Paused: q.boolean("paused"),
		CreatedAfter: q.when("created_after"), CreatedBefore: q.when("created_before"),
		EndedAfter: q.when("ended_after"), EndedBefore: q.when("ended_before"), Hidden: q.boolean("hidden"),
	}
	for _, v := range q.values["status"] {
		for word := range strings.SplitSeq(v, ",") {
			if word = strings.TrimSpace(word); word != "" {
				req.Status = append(req.Status, parley.RunStatus(word))
			}
		}
	}
	if len(req.Status) > maxStatuses {
		q.wrong("status", "too_long", fmt.Sprintf("must have at most %d statuses", maxStatuses))
	}
	return req
}

// maxStatuses bounds what a filter may ask for.
const maxStatuses = 16

func knownRunStatus(v parley.RunStatus) bool {
	switch v {
	case parley.RunPending, parley.RunRunning, parley.RunCompleted, parley.RunFailed, parley.RunCancelled:
		return true
	}
	return false
}

// labels reads name=value, any number of times.
func (q *query) labels(name string) map[string]string {
	var labels map[string]string
	for _, v := range q.values[name] {
		if v == "" {
			continue
		}
		key, value, ok := strings.Cut(v, "=")
		switch {
		case !ok || key == "":
			q.wrong(name, "value_error", "must be written as name=value")
		case len(labels) >= 32:
			q.wrong(name, "too_long", "must be given at most 32 times")
			return labels
		}
		if was, twice := labels[key]; twice && was != value {
			q.wrong(name, "value_error", "must not give "+clip(key)+" two values: a run has one, so that none has both")
		}
		if labels == nil {
			labels = make(map[string]string)
		}
		labels[key] = value
	}
	return labels
}

// cursorOf writes where a page begins; nobody is to read it but cursor.
func cursorOf(m *parley.RunMark) string {
	if m == nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d.%s", m.At.UnixMicro(), m.ID))
}

func (q *query) cursor(name string) *parley.RunMark {
	v := q.get(name)
	if v == "" {
		return nil
	}
	m, ok := readCursor(v)
	if !ok {
		q.wrong(name, "value_error", "must be the next of a page before")
	}
	return m
}

func readCursor(v string) (*parley.RunMark, bool) {
	b, err := base64.RawURLEncoding.DecodeString(v)
	at, id, ok := strings.Cut(string(b), ".")
	n, e := strconv.ParseInt(at, 10, 64)
	if err != nil || e != nil || !ok || len(v) > 1000 || !utf8.ValidString(id) {
		return nil, false
	}
	return &parley.RunMark{ID: id, At: time.UnixMicro(n)}, true
}
