package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/parley-project/parley"
)

// logBuffer takes the log of several goroutines.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (w *world) bulk(action, body string) (r parley.BulkReport) {
	w.t.Helper()
	code, b := w.call("POST", "/api/v1/runs:"+action, body)
	if code != http.StatusOK {
		w.t.Fatalf("%s %s: %d %s", action, body, code, b)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		w.t.Fatal(err)
	}
	return r
}

// TestBulk: a filter pauses, resumes, ends and retries runs, batch after batch; each
// run has its line in the report, and each batch one in the log.
func TestBulk(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, `{"name":"long","steps":[{"id":"w","wait":"1h"}]}`, `{"name":"bad","steps":[{"id":"f","fail":{"code":"Oops","message":"no"}}]}`)
	log := &logBuffer{}
	w.cfg.Data, w.cfg.Logger = t.TempDir(), slog.New(slog.NewTextHandler(log, nil))
	w.server = startServer(t, w.cfg)
	for i := range 5 {
		_, _, err := w.server.Executor().Start(t.Context(), parley.StartRequest{Workflow: "long", Labels: map[string]string{"n": fmt.Sprint(i % 2)}})
		if err != nil {
			t.Fatal(err)
		}
		w.run("bad", `{}`)
	}
	if r := w.bulk("pause", `{"filter":{},"dry_run":true}`); r.Selected != 5 || len(r.First) != 5 || r.Done != 0 {
		t.Errorf("%+v", r)
	}
	r := w.bulk("pause", `{"filter":{"labels":{"n":"0"},"workflow":"long"},"limit":2,"reason":"lunch"}`)
	if r.Done != 2 || r.Failed != 0 || r.Next == "" || r.Results[0].Status != parley.RunRunning {
		t.Errorf("%+v", r)
	}
	r = w.bulk("pause", `{"filter":{"labels":{"n":"0"},"workflow":"long"},"limit":2,"after":"`+r.Next+`"}`)
	if r.Done != 1 || r.Next != "" {
		t.Errorf("%+v", r)
	}
	if r := w.bulk("resume", `{"filter":{}}`); r.Done != 3 {
		t.Errorf("resumed %+v", r)
	}
	if r := w.bulk("terminate", `{"filter":{"status":["RUNNING","FAILED"]}}`); r.Done != 5 || slices.ContainsFunc(r.Results, func(x parley.BulkResult) bool { return x.Status != parley.RunCancelled }) {
		t.Errorf("terminated %+v", r)
	}
	if r := w.bulk("cancel", `{"filter":{"status":["FAILED"]}}`); len(r.Results) != 0 {
		t.Errorf("a cancel of what has failed: %+v", r)
	}
	if r := w.bulk("retry", `{"filter":{"status":["FAILED"],"text":"OOPS"}}`); r.Done != 5 || r.Results[4].NewRun == "" {
		t.Errorf("retried %+v", r)
	}
	// What was retried is not retried again; what that has led to is.
	if r := w.bulk("retry", `{"filter":{"status":["FAILED"]},"dry_run":true}`); r.Selected != 5 {
		t.Errorf("%d runs are left to be retried", r.Selected)
	}
	if n := strings.Count(log.String(), "runs were changed in bulk"); n != 5 {
		t.Errorf("%d lines in the log:\n%s", n, log.String())
	}
	if !strings.Contains(log.String(), `action=pause by=system reason=lunch done=2 failed=0`) {
		t.Errorf("log: %s", log.String())
	}
	if code, _ := w.call("POST", "/api/v1/runs:pause", `{"filter":{},"limit":501}`); code != http.StatusUnprocessableEntity {
		t.Errorf("a batch of 501: %d", code)
	}
}
