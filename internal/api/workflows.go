package api

import (
	"bytes"
	"encoding/json"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-project/parley"
)

// planBody documents the body of the existing platform; anything else that is
// sent to POST /workflows is a workflow document.
type planBody struct {
	_           struct{}       `additionalProperties:"true"`
	Name        string         `json:"name" minLength:"1" maxLength:"255"`
	Description string         `json:"description,omitempty"`
	StartStep   string         `json:"start_step,omitempty"`
	Steps       map[string]any `json:"steps"`
}

// planChange documents the body of PUT /workflows/{ref}: the members that are
// to change.
type planChange struct {
	_           struct{}       `additionalProperties:"true"`
	Description string         `json:"description,omitempty"`
	StartStep   string         `json:"start_step,omitempty"`
	Steps       map[string]any `json:"steps,omitempty"`
	Status      string         `json:"status,omitempty" doc:"active or inactive."`
}

// document is a workflow as it was sent.
type document struct {
	source []byte
	// json is set when the source is a JSON object.
	json *object
}

// readDocument reads YAML or JSON. JSON is checked strictly here, because the
// same duplicate or broken text must not mean two things.
func (s *server) readDocument(w http.ResponseWriter, r *http.Request) (document, error) {
	source, err := s.readBody(w, r, bodyLimit{s.cfg.Limits.Source, "source"})
	if err != nil {
		return document{}, err
	}
	if len(bytes.TrimSpace(source)) == 0 {
		return document{}, invalid([]finding{bodyFinding("", "required", "missing", "the body must be a workflow document, YAML or JSON")})
	}
	isJSONText, err := documentIsJSON(r.Header.Get("Content-Type"), source)
	if err != nil || !isJSONText {
		return document{source: source}, err
	}
	o, err := parseObject(source)
	return document{source: source, json: o}, err
}

// documentIsJSON decides by the type that was sent, and without one by the
// first character.
func documentIsJSON(contentType string, source []byte) (bool, error) {
	if contentType == "" {
		return bytes.HasPrefix(bytes.TrimSpace(source), []byte("{")), nil
	}
	if isJSON(contentType) {
		return true, nil
	}
	t, _, err := mime.ParseMediaType(contentType)
	if err == nil {
		switch t {
		case "application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml", "text/plain", "application/octet-stream":
			return false, nil
		}
		if strings.HasSuffix(t, "+yaml") {
			return false, nil
		}
	}
	return false, refuse(http.StatusUnsupportedMediaType, codeMedia,
		"send the document with Content-Type application/yaml or application/json")
}

// isOldBody reports whether the document is the body of the existing
// platform's API: steps by id, and neither workflow_id nor version, which that
// API adds.
func (d document) isOldBody() bool {
	return d.json != nil && kindOf(d.json, "steps") == '{' && d.json.has("start_step") &&
		!d.json.has("workflow_id") && !d.json.has("version")
}

func kindOf(o *object, name string) jsontext.Kind {
	v, ok := o.members[name]
	if !ok {
		return 0
	}
	return v.Kind()
}

// fileName is how problems name the document; the caller may choose it.
func fileName(r *http.Request) string {
	name := r.URL.Query().Get("file")
	if len(name) > 1024 || strings.ContainsFunc(name, func(c rune) bool { return c < ' ' }) {
		return ""
	}
	return name
}

func (s *server) applyWorkflow(w http.ResponseWriter, r *http.Request) error {
	doc, err := s.readDocument(w, r)
	if err != nil {
		return err
	}
	old := doc.isOldBody()
	v, created, err := s.cfg.Workflows.Apply(r.Context(), parley.ApplyRequest{
		File: fileName(r), Source: doc.source, Always: old, By: callerOf(r),
	})
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created || old {
		status = http.StatusCreated
	}
	w.Header().Set("Location", "/api/v1/workflows/"+url.PathEscape(v.ID))
	s.reply(w, r, status, makeWorkflow(v))
	return nil
}

// validation is the answer to POST /workflows:validate.
type validation struct {
	Valid    bool            `json:"valid"`
	Problems parley.Problems `json:"problems" nullable:"false"`
}

func (s *server) validateWorkflow(w http.ResponseWriter, r *http.Request) error {
	doc, err := s.readDocument(w, r)
	if err != nil {
		return err
	}
	out := validation{Valid: true, Problems: s.cfg.Workflows.Validate(r.Context(), parley.ApplyRequest{
		File: fileName(r), Source: doc.source, Always: doc.isOldBody(), By: callerOf(r),
	})}
	if out.Problems == nil {
		out.Problems = parley.Problems{}
	}
	for _, p := range out.Problems {
		if p.Severity == parley.SeverityError {
			out.Valid = false
		}
	}
	s.reply(w, r, http.StatusOK, out)
	return nil
}

// changeWorkflow takes a whole document, or the members that are to change, as
// the existing platform does. Either gives a new version under the same id.
func (s *server) changeWorkflow(w http.ResponseWriter, r *http.Request) error {
	doc, err := s.readDocument(w, r)
	if err != nil {
		return err
	}
	req := parley.ApplyRequest{File: fileName(r), Source: doc.source, By: callerOf(r)}
	var v parley.WorkflowVersion
	if doc.isChange() {
		v, err = s.mergeWorkflow(r, req, doc.json)
	} else if v, err = s.cfg.Workflows.Get(r.Context(), r.PathValue("ref")); err == nil {
		req.Replace = v.ID
		v, _, err = s.cfg.Workflows.Apply(r.Context(), req)
	}
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, makeWorkflow(v))
	return nil
}

// maxMerges bounds how often members are put into a plan that somebody else has
// changed meanwhile.
const maxMerges = 20

// mergeWorkflow puts the given members into the newest version of a workflow: what
// somebody else changes meanwhile is kept.
func (s *server) mergeWorkflow(r *http.Request, req parley.ApplyRequest, change *object) (v parley.WorkflowVersion, err error) {
	if st := change.word("status", "active", "inactive"); st != nil {
		req.Status = parley.AgentStatus(*st)
	}
	if err := change.done(false); err != nil {
		return v, err
	}
	given := map[string]jsontext.Value{}
	for _, name := range []string{"description", "start_step", "steps"} {
		if m, ok := change.take(name); ok {
			given[name] = m
		}
	}
	var refused error
	for range maxMerges {
		if v, err = s.cfg.Workflows.Get(r.Context(), r.PathValue("ref")); err != nil {
			return v, err
		}
		if refused != nil && v.Number == req.Base {
			break // it was about something else
		}
		if req, err = mergeChange(req, v, given); err != nil {
			return v, err
		}
		if len(req.Source) == 0 && req.Status == "" {
			return v, nil
		}
		v, _, refused = s.cfg.Workflows.Apply(r.Context(), req)
		if parley.CodeOf(refused) != parley.CodeConflict {
			return v, refused
		}
	}
	return v, refused
}

// isChange reports whether the body is not a document of its own.
func (d document) isChange() bool {
	if d.json == nil || d.json.has("workflow_id") || d.json.has("version") {
		return false
	}
	k := kindOf(d.json, "steps")
	return k == 0 || k == 'n' || k == '{'
}

// mergeChange puts the given members into the stored plan. Its version goes: the new
// one gets the next number.
func mergeChange(req parley.ApplyRequest, v parley.WorkflowVersion, given map[string]jsontext.Value) (parley.ApplyRequest, error) {
	req.Replace, req.Source = v.ID, nil
	if len(given) == 0 {
		return req, nil
	}
	stored, err := parseObject([]byte(v.Source))
	if err != nil || v.Format != formatJSON || kindOf(stored, "steps") != '{' {
		return req, invalid([]finding{bodyFinding("", "value", "value_error",
			"the stored document is not a plan with steps by id: send the whole document")})
	}
	maps.Copy(stored.members, given)
	delete(stored.members, "version")
	merged, err := encode(rawMembers(stored.members))
	if err != nil {
		return req, err
	}
	req.Source, req.Base = bytes.TrimSpace(merged), v.Number
	return req, nil
}

func rawMembers(in map[string]jsontext.Value) map[string]json.RawMessage {
	out := make(map[string]json.RawMessage, len(in))
	for name, v := range in {
		out[name] = json.RawMessage(v)
	}
	return out
}

func (s *server) listWorkflows(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	page := q.page()
	req := parley.WorkflowQuery{
		Name: q.get("name"), Status: parley.AgentStatus(q.get("status")),
		SortBy:    q.sortBy(map[string]string{"created_at": "created_at", "updated_at": "updated_at", "name": "name"}),
		Ascending: q.ascending(), Page: page.page(),
	}
	if err := q.done(); err != nil {
		return err
	}
	var items []parley.WorkflowVersion
	var total int
	if knownStatus(req.Status) {
		var err error
		if items, total, err = s.cfg.Workflows.List(r.Context(), req); err != nil {
			return err
		}
	}
	s.reply(w, r, http.StatusOK, makePage(mapped(items, makeListed), total, page))
	return nil
}

func (s *server) getWorkflow(w http.ResponseWriter, r *http.Request) error {
	v, err := s.cfg.Workflows.Get(r.Context(), r.PathValue("ref"))
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, makeWorkflow(v))
	return nil
}

func (s *server) workflowVersions(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	page := q.page()
	if err := q.done(); err != nil {
		return err
	}
	items, total, err := s.cfg.Workflows.Versions(r.Context(), r.PathValue("ref"), page.page())
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, makePage(mapped(items, makeListed), total, page))
	return nil
}

func (s *server) removeWorkflow(w http.ResponseWriter, r *http.Request) error {
	ref := r.PathValue("ref")
	if err := s.cfg.Workflows.Remove(r.Context(), ref, callerOf(r)); err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, s.message("Workflow '"+ref+"' deleted successfully"))
	return nil
}
