package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// circuit asks for the circuit of agent "frail", or switches it.
func (w *world) circuit(order string) (c struct {
	State    string `json:"state"`
	Manual   bool   `json:"manual"`
	Openings int    `json:"openings"`
},
) {
	w.t.Helper()
	method := "GET"
	if order != "" {
		method = "POST"
	}
	status, b := w.call(method, "/api/v1/agents/frail/breaker", order)
	if err := json.Unmarshal(b, &c); status != 200 || err != nil {
		w.t.Errorf("%d %s", status, b)
	}
	return c
}

// reaches waits for a state of the circuit: it is written beside the answer.
func (w *world) reaches(state string) {
	w.t.Helper()
	for range 100 {
		if w.circuit("").State == state {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.t.Errorf("the circuit is %+v, want %s", w.circuit(""), state)
}

// TestBreakerAcrossTheServer: an agent that fails is called no more, tasks wait
// for it and are done when it is well; somebody opens and closes its circuit by
// hand, and all that stands in its log.
func TestBreakerAcrossTheServer(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	var well atomic.Bool
	log := newCallLog()
	good := log.simpleAgent("frail", 0)
	w := newWorld(t, map[string]http.Handler{
		"frail simple-a2a , retry: {max_retries: 0}, breaker: {failure_threshold: 2, timeout: 1s, half_open_max_calls: 1}": http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				calls.Add(1)
			}
			if !well.Load() {
				http.Error(rw, "ill", http.StatusInternalServerError)
				return
			}
			good.ServeHTTP(rw, r)
		}),
	}, "name: one\nsteps: [{id: a, agent: frail, input: {q: 1}}]\n")
	for range 2 {
		if run := w.run("one", `{}`); run.Status != parley.RunFailed {
			t.Errorf("%+v", run)
		}
	}
	w.reaches("open")
	waits := w.start("one", `{}`)
	well.Store(true)
	if run := w.end(waits.ID); run.Status != parley.RunCompleted {
		t.Errorf("%+v", run.Error)
	}
	w.reaches("closed")
	if c := w.circuit(`{"action":"open","reason":"repair"}`); c.State != "open" || !c.Manual {
		t.Errorf("%+v", c)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Second) { // bridges read each second
		before := calls.Load()
		w.start("one", `{}`)
		time.Sleep(500 * time.Millisecond)
		n := calls.Load() - before
		if n == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d calls of an agent that was taken out", n)
		}
	}
	var several sync.WaitGroup
	for range 4 {
		several.Go(func() { w.circuit(`{"action":"close"}`) })
	}
	several.Wait()
	if c := w.circuit(""); c.State != "closed" {
		t.Errorf("%+v", c)
	}
	status, b := w.call("GET", "/api/v1/agents/frail/events", "")
	var page struct {
		Items []parley.AgentEvent `json:"items"`
	}
	if err := json.Unmarshal(b, &page); status != 200 || err != nil {
		t.Fatalf("%d %s", status, b)
	}
	var types []string
	for _, e := range page.Items {
		types = append(types, strings.TrimPrefix(string(e.Type), "agent.breaker_"))
	}
	if got := strings.Join(types, " "); got != "opened half_open closed opened closed" {
		t.Errorf("log: %s", got)
	}
	if status, b := w.call("GET", "/metrics", ""); status != 200 || !strings.Contains(string(b), `parley_agent_circuit_openings_total{agent_name="frail"} 1`) {
		t.Errorf("%d metrics without openings", status)
	}
}
