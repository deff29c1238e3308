package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/push"
)

// readyWithin bounds one look at the database and the bus.
const readyWithin = 3 * time.Second

// readyBody answers GET /readyz: "ready", or what is missing, and each part.
type readyBody struct {
	Status string            `json:"status"`
	Roles  []Role            `json:"roles"`
	Checks map[string]string `json:"checks"`
}

// handler puts what every process serves, with any roles, before the API, if
// there is one.
func (s *Server) handler(api http.Handler, metrics *prometheus.Registry) http.Handler {
	if api == nil {
		api = s.withoutAPI(metrics)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/readyz" && (r.Method == http.MethodGet || r.Method == http.MethodHead):
			s.serveReady(w, r)
		case s.push != nil && s.cfg.has(RoleAPI) && strings.HasPrefix(r.URL.Path, push.Path):
			// Notifications have secrets of their own in place of the key.
			s.push.ServeHTTP(w, r)
		default:
			api.ServeHTTP(w, r)
		}
	})
}

// withoutAPI is what a process without the role api answers besides.
func (s *Server) withoutAPI(metrics *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.Handle("GET /metrics", metricsHandler(metrics))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		// By the id clients know that a Parley has answered.
		id := newUUID()
		w.Header().Set("X-Correlation-Id", id)
		reply(w, http.StatusNotFound, map[string]string{
			"code": string(parley.CodeNotFound), "request_id": id,
			"detail": "this process has the roles " + join(s.cfg.Roles) + "; the API is served by those with the role api",
		})
	})
	return mux
}

const (
	// scrapesAtOnce bounds the pages of metrics that are made at the same time: each
	// asks the database, and everybody may ask for one. scrapeWithin bounds the making
	// of one; with it no client that reads slowly keeps others from theirs.
	scrapesAtOnce = 4
	scrapeWithin  = 10 * time.Second
)

// metricsHandler serves the metrics; 503 while too many are asked for.
func metricsHandler(metrics *prometheus.Registry) http.Handler {
	return promhttp.HandlerFor(metrics, promhttp.HandlerOpts{MaxRequestsInFlight: scrapesAtOnce, Timeout: scrapeWithin})
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // who asked may have gone
}

func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyWithin)
	defer cancel()
	body := readyBody{Status: "ready", Roles: s.cfg.Roles, Checks: map[string]string{"bus": "ok"}}
	status := http.StatusOK
	checks := map[string]func(context.Context) error{"bus": s.busReady}
	if s.db != nil {
		checks["database"] = s.databaseReady
		checks["schema"] = func(context.Context) error { return s.db.SchemaReady() }
	}
	for name, err := range ask(ctx, &s.asking, checks) {
		body.Checks[name] = "ok"
		if err == nil {
			continue
		}
		s.log.Warn("not ready", "part", name, "error", err)
		body.Checks[name] = words(err)
	}
	if s.peers.apart.Load() {
		body.Checks[peersCheck] = "other processes of the database use another bus: neither hears the other"
	}
	for _, role := range s.cfg.Roles {
		body.Checks[string(role)] = "ok"
		if !s.running.Load() {
			body.Checks[string(role)] = "not started"
			if s.stopping.Load() {
				body.Checks[string(role)] = "stopping"
			}
		} else if role == RoleBridge && s.bridge.Replaced() {
			body.Checks[string(role)] = "another process has taken its bus.kafka.instance_id over"
		}
	}
	// Without its hints the process goes on working, only slower: what counts is
	// the database and that the roles have begun. Which of two buses is the right one
	// nobody here knows.
	for name, text := range body.Checks {
		if text == "ok" || name == peersCheck || name == "bus" && s.kafka == nil {
			continue
		}
		status, body.Status = http.StatusServiceUnavailable, "not ready"
	}
	reply(w, status, body)
}

// ask makes all checks at the same time, so that one part that does not answer
// leaves the others their time, and waits for none much longer than ctx: one that
// goes on is left to asking.
func ask(ctx context.Context, asking *sync.WaitGroup, checks map[string]func(context.Context) error) map[string]error {
	type answer struct {
		name string
		err  error
	}
	answers := make(chan answer, len(checks))
	said := make(map[string]error, len(checks))
	for name, check := range checks {
		said[name] = context.DeadlineExceeded
		asking.Go(func() { answers <- answer{name, check(ctx)} })
	}
	late := time.NewTimer(readyWithin + readyWithin/6)
	defer late.Stop()
	for range checks {
		select {
		case a := <-answers:
			said[a.name] = a.err
		case <-late.C:
			return said
		}
	}
	return said
}

// words is what may be shown of an error to everybody: not what lies below our words,
// which names addresses, databases and users. The log has that.
func words(err error) string {
	if e, ok := errors.AsType[*parley.Error](err); ok && e.Code == parley.CodeUnavailable && errors.Unwrap(e) == nil {
		return e.Message
	}
	return "does not answer"
}

// databaseReady asks what reads and what writes: a database may do the first only.
func (s *Server) databaseReady(ctx context.Context) error {
	if err := s.db.Ping(ctx); err != nil {
		return err
	}
	return s.db.TakesWrites(ctx)
}
