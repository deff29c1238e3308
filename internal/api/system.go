package api

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/parley-project/parley"
)

// messageBody is the answer of the existing platform to a deletion.
type messageBody struct {
	Message   string    `json:"message"`
	Timestamp time.Time `json:"timestamp"`
	Data      *struct{} `json:"data" doc:"Always null."`
}

func (s *server) message(text string) messageBody {
	return messageBody{Message: text, Timestamp: s.now()}
}

// indexBody names what is served.
type indexBody struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	API     string `json:"api"`
	OpenAPI string `json:"openapi"`
	Health  string `json:"health"`
}

func (s *server) index(w http.ResponseWriter, r *http.Request) error {
	s.reply(w, r, http.StatusOK, indexBody{
		Name: "Parley", Version: s.cfg.Version, API: "/api/v1", OpenAPI: "/openapi.json", Health: "/health",
	})
	return nil
}

// aliveBody is GET /health of the existing platform.
type aliveBody struct {
	Status        string    `json:"status" enum:"healthy"`
	Timestamp     time.Time `json:"timestamp"`
	Version       string    `json:"version"`
	UptimeSeconds float64   `json:"uptime_seconds"`
	Services      *struct{} `json:"services" doc:"Always null."`
}

func (s *server) health(w http.ResponseWriter, r *http.Request) error {
	s.reply(w, r, http.StatusOK, aliveBody{
		Status: "healthy", Timestamp: s.now(), Version: s.cfg.Version, UptimeSeconds: s.uptime(),
	})
	return nil
}

func (s *server) uptime() float64 { return s.cfg.Now().Sub(s.started).Seconds() }

// readyBody is GET /health/ready of the existing platform.
type readyBody struct {
	Ready     bool                  `json:"ready"`
	Timestamp time.Time             `json:"timestamp"`
	Checks    map[string]checkState `json:"checks"`
}

type checkState struct {
	Status         string   `json:"status" enum:"healthy,unhealthy"`
	Message        string   `json:"message"`
	ResponseTimeMS *float64 `json:"response_time_ms"`
}

func (s *server) healthReady(w http.ResponseWriter, r *http.Request) error {
	begin := s.cfg.Now()
	text, ready := s.checkReady(r)
	state := checkState{Status: "healthy", Message: text}
	status := http.StatusOK
	if ready {
		ms := float64(s.cfg.Now().Sub(begin).Microseconds()) / 1000
		state.ResponseTimeMS = &ms
	} else {
		status, state.Status = http.StatusServiceUnavailable, "unhealthy"
	}
	s.reply(w, r, status, readyBody{
		Ready: ready, Timestamp: s.now(), Checks: map[string]checkState{"service": state},
	})
	return nil
}

// checkReady says in words that may be shown whether requests can be served.
func (s *server) checkReady(r *http.Request) (string, bool) {
	if s.cfg.Ready == nil {
		return "ready", true
	}
	err := s.cfg.Ready(r.Context())
	if err == nil {
		return "ready", true
	}
	s.cfg.Logger.Warn("not ready", "request_id", requestID(r), "error", err)
	if e, ok := errors.AsType[*parley.Error](err); ok && e.Code == parley.CodeUnavailable && ownWords(e) {
		return e.Message, false
	}
	return "not ready", false
}

// ownWords reports whether a text is all ours, and may be shown to strangers: that of
// what lies below names addresses, databases and users.
func ownWords(e *parley.Error) bool { return errors.Unwrap(e) == nil }

// statusBody is the answer to /healthz.
type statusBody struct {
	Status string `json:"status"`
}

// readyzBody is the answer to /readyz. A server answers in its place, which knows what it
// is made of.
type readyzBody struct {
	Status string            `json:"status" doc:"ready, or what is missing."`
	Roles  []string          `json:"roles,omitempty" nullable:"false" doc:"What the process does."`
	Checks map[string]string `json:"checks,omitempty" doc:"Each part of it: ok, or what is wrong."`
}

func (s *server) healthz(w http.ResponseWriter, r *http.Request) error {
	s.reply(w, r, http.StatusOK, statusBody{Status: "ok"})
	return nil
}

func (s *server) readyz(w http.ResponseWriter, r *http.Request) error {
	text, ready := s.checkReady(r)
	status := http.StatusOK
	if !ready {
		status = http.StatusServiceUnavailable
	}
	s.reply(w, r, status, readyzBody{Status: text})
	return nil
}

// metrics puts the two values of the existing platform before what the server
// measures.
func (s *server) metrics(w http.ResponseWriter, r *http.Request) error {
	version := strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`).Replace(s.cfg.Version)
	own := fmt.Appendf(nil, "# HELP api_info API information\n# TYPE api_info gauge\napi_info{version=\"%s\"} 1\n"+
		"# HELP api_uptime_seconds Seconds since the API started\n# TYPE api_uptime_seconds gauge\napi_uptime_seconds %.2f\n",
		version, s.uptime())
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	if s.cfg.Metrics == nil {
		_, _ = w.Write(own)
		return nil
	}
	// Only plain text can be put together from two writers.
	plain := r.Clone(r.Context())
	plain.Header.Del("Accept-Encoding")
	plain.Header.Set("Accept", "text/plain")
	s.cfg.Metrics.ServeHTTP(&prefixed{ResponseWriter: w, before: own}, plain)
	return nil
}

// prefixed writes something before the body.
type prefixed struct {
	http.ResponseWriter
	before []byte
}

func (p *prefixed) WriteHeader(status int) {
	if status != http.StatusOK {
		p.before = nil
	}
	p.Header().Del("Content-Length")
	p.ResponseWriter.WriteHeader(status)
}

func (p *prefixed) Write(b []byte) (int, error) {
	if before := p.before; before != nil {
		p.before = nil
		p.Header().Del("Content-Length")
		if _, err := p.ResponseWriter.Write(before); err != nil {
			return 0, err
		}
	}
	return p.ResponseWriter.Write(b)
}

func (s *server) openAPI(w http.ResponseWriter, _ *http.Request) error {
	document, err := s.document()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(document)
	return nil
}
