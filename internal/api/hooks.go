package api

import (
	"errors"
	"net/http"
	"strings"

	"github.com/parley-project/parley"
)

// hookPath is where webhooks are delivered to; it is below /api/v1, too.
const hookPath = "/hooks/{ref}"

// hookReaders bounds how many deliveries are looked at together: nobody knows yet
// who sends them.
const hookReaders = 256

func (s *server) hookRoutes() []route {
	r := route{
		method: http.MethodPost, path: hookPath, id: "deliver-hook", tag: "events", public: true, anyBody: true,
		summary: "Start a run by a delivery to a webhook of a workflow, which is signed with its secret instead of a key; again is the same run (200), and one that no trigger wants is ignored",
		params:  append(traceParams(), pathParam("ref", "A workflow_id or a name.")),
		answers: []answer{{status: http.StatusAccepted, body: parley.HookReceipt{}}, {status: http.StatusOK, body: parley.HookReceipt{}}},
		errors:  []int{400, 401, 404, 409, 413, 415, 422}, handle: s.deliverHook,
	}
	below := r
	below.path, below.id = "/api/v1"+hookPath, "deliver-hook-v1"
	return []route{r, below}
}

// isHook says whether a request is for a webhook, which checks signatures itself.
func (s *server) isHook(r *http.Request) bool {
	if !strings.HasPrefix(r.URL.Path, "/hooks/") && !strings.HasPrefix(r.URL.Path, "/api/v1/hooks/") {
		return false
	}
	if _, ok := s.withoutSlash(r); ok { // it is told where to go
		return true
	}
	_, pattern := s.mux.Handler(r)
	_, path, _ := strings.Cut(pattern, " ")
	return s.public[path]
}

// deliverHook takes one delivery. Its body is read once it may be signed.
func (s *server) deliverHook(w http.ResponseWriter, r *http.Request) error {
	select {
	case s.hooks <- struct{}{}:
		defer func() { <-s.hooks }()
	default:
		return parley.Errorf(parley.CodeUnavailable, "too many deliveries are looked at already; send it again")
	}
	receipt, err := s.cfg.Inbox.Hook(r.Context(), parley.HookRequest{
		Workflow: r.PathValue("ref"), Header: r.Header,
		Body: func() ([]byte, error) { return s.readBody(w, r, bodyLimit{s.cfg.Limits.Hook, "hook"}) },
	})
	if e, ok := errors.AsType[*parley.Error](err); ok && e.Code == parley.CodeUnavailable && !ownWords(e) {
		s.cfg.Logger.Warn("a delivery to a webhook was not taken", "request_id", requestID(r), "error", err)
		err = parley.Errorf(parley.CodeUnavailable, "deliveries cannot be taken now; send it again")
	}
	if err != nil {
		return err
	}
	status := http.StatusAccepted
	if receipt.Status == parley.HookRepeated {
		status = http.StatusOK
	}
	s.reply(w, r, status, receipt)
	return nil
}
