package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestRunsThatCannotBeFollowed: who starts a run and cannot watch it is told which run it
// is and that it goes on, and not that nothing has changed.
func TestRunsThatCannotBeFollowed(t *testing.T) {
	t.Parallel()
	const run = `{"id":"run-7","workflow":"hello","version":"1","status":"RUNNING","seq":1,"created_at":"2026-11-21T12:00:00Z"}`
	breaks := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	refuses := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, `{"status":429,"code":"limit","detail":"too many open event streams","request_id":"r"}`)
	}
	for _, tt := range []struct {
		name   string
		events http.HandlerFunc
		exit   int
	}{{"broken", breaks, exitUnreachable}, {"refused", refuses, exitFailed}} {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /api/v1/runs/run-7/events", tt.events)
		mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, run)
		})
		s := httptest.NewServer(mux)
		t.Cleanup(s.Close)
		for _, command := range [][]string{{"run", "start", "hello", "--wait"}, {"agent", "call", "greeter", "--text", "Ada"}, {"run", "retry", "run-6", "--wait"}} {
			var errs strings.Builder
			a := &app{
				stdin: strings.NewReader(""), stdout: io.Discard, stderr: &errs, dir: t.TempDir(), now: time.Now, zone: time.UTC,
				terminal: func(io.Writer) (int, bool) { return 0, false },
			}
			exit := a.execute(t.Context(), append(command, "--url", s.URL, "--key", "k"))
			if text := errs.String(); exit != tt.exit || !strings.Contains(text, "run run-7 cannot be followed: ") ||
				!strings.Contains(text, "hint: the run goes on") || strings.Contains(text, "nothing was changed") {
				t.Errorf("%s, %s: %d %s", tt.name, strings.Join(command, " "), exit, text)
			}
		}
	}
}
