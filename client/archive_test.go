package client

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/parley-project/parley"
)

// archiveServer answers with body, and keeps what it was asked for.
func archiveServer(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) *Client {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(answer))
	t.Cleanup(s.Close)
	c, err := New(Options{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestC7_ExportRuns: lines are given whole, long ones too, and the cursor of the next
// page with them.
func TestC7_ExportRuns(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	c := archiveServer(t, func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); r.URL.Path != "/api/v1/archive/runs" || q.Get("limit") != "7" || q.Get("cursor") != "here" || q.Get("workflow_id") != "hello" || q.Has("sort_by") {
			t.Errorf("asked for %s", r.URL)
		}
		w.Header().Set(cursorHeader, "there")
		_, _ = io.WriteString(w, "{1}\n"+long+"\n{3}\n")
	})
	var lines []string
	next, err := c.ExportRuns(t.Context(), RunQuery{Workflow: "hello", SortBy: "status"}, "here", 7, func(line []byte) error {
		lines = append(lines, string(line))
		return nil
	})
	if err != nil || next != "there" || len(lines) != 3 || lines[1] != long+"\n" || lines[2] != "{3}\n" {
		t.Errorf("%v, next %q, %d lines", err, next, len(lines))
	}
	for line, want := range map[string]string{`{"unreadable":"run-1"}`: "run-1", `{"format":"x","unreadable":"r"}`: "", `{"unreadable":`: ""} {
		if run, ok := UnreadableRun([]byte(line + "\n")); run != want || ok != (want != "") {
			t.Errorf("%s: %q, %v", line, run, ok)
		}
	}
	stop := errors.New("enough")
	if _, err := c.ExportRuns(t.Context(), RunQuery{Workflow: "hello"}, "here", 7, func([]byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the caller stops: %v", err)
	}
}

// TestC7_ExportBreaksOff: half a line is never given, and half a page is an error.
func TestC7_ExportBreaksOff(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request){
		"connection": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "{1}\n{2")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"line": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{1}\n{2") },
	} {
		c := archiveServer(t, answer)
		lines := 0
		next, err := c.ExportRuns(t.Context(), RunQuery{}, "", 0, func([]byte) error { lines++; return nil })
		if !errors.Is(err, ErrUnreachable) || next != "" || lines != 1 {
			t.Errorf("%s: %v, next %q, %d lines", name, err, next, lines)
		}
	}
}

// TestC7_ImportRuns: the lines go as they are, and what became of them comes back.
func TestC7_ImportRuns(t *testing.T) {
	c := archiveServer(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || string(body) != "{1}\n{2}\n" || r.Header.Get("Content-Type") != "application/x-ndjson" {
			t.Errorf("%s %q %v", r.Header.Get("Content-Type"), body, err)
		}
		_, _ = io.WriteString(w, `{"added":1,"same":0,"conflict":0,"invalid":1,"refused":[{"line":2,"outcome":"invalid","code":"invalid","detail":"no"}]}`)
	})
	r, err := c.ImportRuns(t.Context(), []byte("{1}\n{2}\n"))
	if err != nil || r.Added != 1 || r.Invalid != 1 || r.Refused[0] != (parley.ArchivedRun{Line: 2, Outcome: parley.ArchiveInvalid, Code: parley.CodeInvalid, Detail: "no"}) {
		t.Errorf("%+v, %v", r, err)
	}
}
