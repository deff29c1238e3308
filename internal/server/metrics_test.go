package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// metrics gives the series of the server by name and labels.
func (w *world) metrics() map[string]string {
	w.t.Helper()
	status, text := w.call(http.MethodGet, "/metrics", "")
	if status != http.StatusOK {
		w.t.Fatalf("%d %s", status, text)
	}
	series := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name != "#" {
			series[name] = value
		}
	}
	return series
}

// TestRunMetrics: the metrics count every event of every history, runs by how and
// after what time they ended, and what still waits.
func TestRunMetrics(t *testing.T) {
	t.Parallel()
	log := newCallLog()
	w := newWorld(t, map[string]http.Handler{
		"one simple-a2a": log.simpleAgent("one", 0),
		"bad simple-a2a": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadRequest) }),
	}, "name: good\nsteps: [{id: a, agent: one}, {id: b, agent: one}]", "name: poor\nsteps: [{id: a, agent: bad}]",
		"name: patient\nsteps: [{id: a, wait: 1h}]")
	var runs []string
	for range 3 {
		runs = append(runs, w.run("good", `{}`).ID)
	}
	runs = append(runs, w.run("poor", `{}`).ID)
	waits := w.start("patient", `{}`).ID
	_, b := w.call(http.MethodPost, "/api/v1/agents/one/call", `{"input":{"q":1}}`)
	var call parley.Run
	if err := json.Unmarshal(b, &call); err != nil || w.end(call.ID).Status != parley.RunCompleted {
		t.Fatalf("%v %s", err, b)
	}
	counts := map[parley.EventType]int{}
	for _, id := range append(runs, waits, call.ID) {
		var page struct{ Items []parley.Event }
		w.get("runs/"+id+"/events?limit=500", &page)
		for _, e := range page.Items {
			counts[e.Type]++
		}
	}
	want := map[string]string{
		`parley_run_duration_seconds_count{status="COMPLETED",workflow="good"}`:  "3",
		`parley_run_duration_seconds_count{status="FAILED",workflow="poor"}`:     "1",
		`parley_run_duration_seconds_count{status="COMPLETED",workflow="_call"}`: "1",
		`parley_runs_open{status="RUNNING"}`:                                     "1",
		`parley_runs_open{status="PENDING"}`:                                     "0",
		`parley_attempts_open{state="open"}`:                                     "0",
		`parley_attempts_open{state="claimed"}`:                                  "0",
		`parley_attempts_late_seconds`:                                           "0",
		`parley_runs_late_seconds`:                                               "0",
		`parley_bridges_up`:                                                      "1",
	}
	for typ, n := range counts {
		want[fmt.Sprintf("parley_run_events_total{type=%q}", typ)] = fmt.Sprint(n)
	}
	if len(counts) < 6 {
		t.Errorf("the runs have the events %v only", counts)
	}
	var wrong []string
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		wrong = nil
		got := w.metrics()
		for name, value := range want {
			if got[name] != value {
				wrong = append(wrong, fmt.Sprintf("%s is %q, want %s", name, got[name], value))
			}
		}
		if wrong == nil {
			return
		}
	}
	t.Error(strings.Join(wrong, "\n"))
}
