package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/parley-project/parley"
)

// The codes of answers that no other package gives.
const (
	codeMethod       parley.Code = "method_not_allowed"
	codeMedia        parley.Code = "unsupported_media_type"
	codeNotBuilt     parley.Code = "not_implemented"
	codeNotFound                 = parley.CodeNotFound
	codeUnauthorized             = parley.CodeUnauthorized
	codeForbidden                = parley.CodeForbidden
	codeLimit                    = parley.CodeLimit
	codeInvalid                  = parley.CodeInvalid
)

// errorCatalogue is where the codes are explained; a code follows.
const errorCatalogue = "https://github.com/parley-project/parley/blob/main/docs/errors.md#"

// problemType is the media type of every error (RFC 9457). Clients of the
// existing platform read the body as JSON whatever its type.
const problemType = "application/problem+json"

// problem is every error answer: the members of RFC 9457 with ours, then those
// of formats.md. The two share detail and errors.
type problem struct {
	Type   string `json:"type" format:"uri" doc:"Where the code is explained."`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail is a string but on GET /runs/{id}/logs, where the existing
	// platform sends an object.
	Detail    any             `json:"detail" doc:"What happened: a sentence (an object on /runs/{id}/logs)."`
	Code      parley.Code     `json:"code" doc:"Stable name of the kind of error."`
	Errors    []finding       `json:"errors,omitempty" doc:"Every member or line that is wrong. Rejected values are never repeated."`
	Details   json.RawMessage `json:"details,omitempty"`
	RequestID string          `json:"request_id"`

	Error      string    `json:"error"`
	StatusCode int       `json:"status_code"`
	Timestamp  time.Time `json:"timestamp"`
	Path       string    `json:"path"`
}

// finding is one entry of errors, for readers of both interfaces.
type finding struct {
	Path   string `json:"path" doc:"The member, such as retry_config.max_retries."`
	Code   string `json:"code"`
	Detail string `json:"detail"`

	Field   string `json:"field" doc:"Where and which member, such as body.url."`
	Message string `json:"message"`
	Type    string `json:"type"`

	File       string          `json:"file,omitempty"`
	Line       int             `json:"line,omitempty"`
	Col        int             `json:"col,omitempty"`
	Severity   parley.Severity `json:"severity,omitempty"`
	Suggestion string          `json:"suggestion,omitempty"`
}

// refusal is an error whose status is decided where it arises.
type refusal struct {
	status   int
	code     parley.Code
	detail   any
	text     string
	header   http.Header
	findings []finding
}

// Error gives the text for people.
func (e *refusal) Error() string { return e.text }

func refuse(status int, code parley.Code, format string, args ...any) *refusal {
	text := fmt.Sprintf(format, args...)
	return &refusal{status: status, code: code, text: text, detail: text}
}

// invalid refuses a request with all that is wrong in it. The code is limit if
// nothing but limits was passed.
func invalid(found []finding) *refusal {
	first := found[0].Detail
	if found[0].Path != "" {
		first = found[0].Path + " " + first
	}
	if n := len(found) - 1; n > 0 {
		first += fmt.Sprintf(" (and %d more)", n)
	}
	e := refuse(http.StatusUnprocessableEntity, codeInvalid, "Request validation failed: %s", first)
	e.findings = found
	if !slices.ContainsFunc(found, func(f finding) bool { return f.Code != string(codeLimit) }) {
		e.code = codeLimit
	}
	return e
}

// StatusOf gives the HTTP status of an answer that refuses with this code, on the
// paths that are Parley's own; ok is false for a code that no answer has.
func StatusOf(code parley.Code) (status int, ok bool) { return statusOf(code, false) }

// statusOf maps a code to the status of the answer; old is a path of
// formats.md. A code that is not listed is none of ours: 500.
func statusOf(code parley.Code, old bool) (status int, known bool) {
	switch code {
	case parley.CodeNotFound:
		return http.StatusNotFound, true
	case parley.CodeForbidden:
		return http.StatusForbidden, true
	case parley.CodeConflict:
		if old {
			return http.StatusBadRequest, true
		}
		return http.StatusConflict, true
	case parley.CodeIdempotencyConflict, parley.CodeCancelled:
		return http.StatusConflict, true
	case parley.CodeUnknownAgent:
		if old {
			return http.StatusBadRequest, true
		}
		return http.StatusUnprocessableEntity, true
	case parley.CodeInvalid, parley.CodeInvalidInput, parley.CodeUnsupportedProtocol,
		parley.CodeExpression, parley.CodeLimit, parley.CodePlanInvalid, parley.CodeValidationFailed, parley.CodeApprovalRejected,
		parley.CodeSubWorkflowFailed, parley.CodeSubWorkflowCancelled:
		return http.StatusUnprocessableEntity, true
	case parley.CodeUnauthorized:
		return http.StatusUnauthorized, true
	case parley.CodeUnavailable:
		return http.StatusServiceUnavailable, true
	case parley.CodeAgentUnavailable, parley.CodeAgentError, parley.CodeAgentRejected,
		parley.CodeInvalidOutput, parley.CodeOutcomeUnknown, parley.CodeJoinFailed, parley.CodeToleranceExceeded,
		parley.CodeMaxIterations, parley.CodeFinallyFailed:
		return http.StatusBadGateway, true
	case parley.CodeTimeout, parley.CodeStalled:
		return http.StatusGatewayTimeout, true
	case parley.CodeInternal:
		return http.StatusInternalServerError, true
	case codeMethod:
		return http.StatusMethodNotAllowed, true
	case codeMedia:
		return http.StatusUnsupportedMediaType, true
	case codeNotBuilt:
		return http.StatusNotImplemented, true
	default:
		return http.StatusInternalServerError, false
	}
}

// translate is the one place where errors become answers. Only refusals,
// problems in documents and *parley.Error speak for themselves; everything
// else is internal, and its text stays in the log.
func translate(err error, old bool) *refusal {
	if e, ok := errors.AsType[*refusal](err); ok {
		return e
	}
	if ps, ok := errors.AsType[parley.Problems](err); ok {
		return translateProblems(ps, old)
	}
	if e, ok := errors.AsType[*parley.Error](err); ok {
		if status, _ := statusOf(e.Code, old && !beyondOld(e)); status != http.StatusInternalServerError {
			return translateError(e, status)
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return translateError(parley.Errorf(parley.CodeUnavailable, "the request took too long; try again"), http.StatusServiceUnavailable)
	}
	return refuse(http.StatusInternalServerError, parley.CodeInternal,
		"An unexpected error occurred. Please try again later.")
}

// beyondOld reports whether an error is a conflict that the existing platform
// cannot have.
func beyondOld(e *parley.Error) bool {
	var d parley.ConflictDetails
	return e.Code == parley.CodeConflict && json.Unmarshal(e.Details, &d) == nil && d.Conflict != ""
}

func translateError(e *parley.Error, status int) *refusal {
	out := refuse(status, e.Code, "%s", e.Message)
	switch e.Code {
	case parley.CodeUnavailable:
		out.header = http.Header{"Retry-After": {"1"}}
	case parley.CodeInvalid:
		out.findings = findingsOf(e)
	case parley.CodeUnsupportedProtocol:
		out.findings = []finding{bodyFinding("protocol", string(e.Code), "enum", e.Message)}
	}
	return out
}

// findingsOf reads details of the form [{path, code, detail}], as the registry
// gives them; nil for any other.
func findingsOf(e *parley.Error) []finding {
	var found []finding
	if json.Unmarshal(e.Details, &found) != nil {
		return nil
	}
	for i, f := range found {
		if f.Detail == "" {
			return nil
		}
		found[i] = bodyFinding(f.Path, f.Code, f.Code, f.Detail)
	}
	return found
}

// translateProblems refuses a document. The existing platform answers 400,
// not 422, when all that is wrong is an agent that is not there.
func translateProblems(ps parley.Problems, old bool) *refusal {
	out := refuse(http.StatusUnprocessableEntity, codeInvalid, "%s", ps.Error())
	onlyAgents := old
	for _, p := range ps {
		f := bodyFinding(p.Path, p.Code, p.Code, p.Text)
		f.File, f.Line, f.Col, f.Severity, f.Suggestion = p.File, p.Line, p.Col, p.Severity, p.Suggestion
		out.findings = append(out.findings, f)
		if p.Severity == parley.SeverityError && p.Code != string(parley.CodeUnknownAgent) {
			onlyAgents = false
		}
	}
	if onlyAgents {
		out.status, out.code = http.StatusBadRequest, parley.CodeUnknownAgent
	}
	return out
}

// fail answers with an error, unless an answer has begun or nobody is there to
// read it: then the connection is broken off. Who has closed but the side that it
// sends on would take no answer for an empty one of status 200.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error, old bool) {
	if r.Context().Err() != nil && errors.Is(err, r.Context().Err()) {
		panic(http.ErrAbortHandler)
	}
	e := translate(err, old)
	if e.status == http.StatusInternalServerError {
		s.cfg.Logger.Error("request failed", "method", r.Method, "path", r.URL.Path,
			"request_id", requestID(r), "error", err)
	}
	if t, ok := w.(*tracked); ok && t.status != 0 {
		return
	}
	maps.Copy(w.Header(), e.header)
	p := s.problem(r, e)
	if pe, ok := errors.AsType[*parley.Error](err); ok && pe.Code == e.code &&
		e.status != http.StatusInternalServerError && len(e.findings) == 0 {
		p.Details = pe.Details
	}
	w.Header().Set("Content-Type", problemType)
	s.write(w, r, e.status, p)
}

func (s *server) problem(r *http.Request, e *refusal) problem {
	title := http.StatusText(e.status)
	if e.status == http.StatusUnprocessableEntity {
		// The existing platform's word for it, which its clients show.
		title = "Validation Error"
	}
	return problem{
		Type: errorCatalogue + string(e.code), Title: title, Status: e.status, Detail: e.detail,
		Code: e.code, Errors: e.findings, RequestID: requestID(r),
		Error: title, StatusCode: e.status, Timestamp: s.now(), Path: r.URL.Path,
	}
}

func bodyFinding(path, code, kind, text string) finding {
	field := "body"
	if path != "" {
		field += "." + path
	}
	return finding{Path: path, Code: code, Detail: text, Field: field, Message: text, Type: kind}
}
