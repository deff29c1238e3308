package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/testcache"
)

var (
	crashSeed    = flag.Uint64("crash.seed", 0, "seed of the crash test; 0 picks one")
	crashMinutes = flag.Int("crash.minutes", 0, "how long the crash test goes on with new seeds; 0 is one seed")
)

const (
	crashRuns  = 200
	crashKills = 5
)

// TestCrash kills the real binary with SIGKILL at random moments while 200
// runs are under way against slow agents, starts it again each time, and then
// asks the histories and the agents' own log what happened: every accepted run
// is terminal exactly once, no history has a gap, every call carried its
// attempt's ids, and no agent was called more often than its policy allows
// (promises 4 and 6).
func TestCrash(t *testing.T) {
	t.Parallel()
	binary := buildBinary(t)
	seed := *crashSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	until := time.Now().Add(time.Duration(*crashMinutes) * time.Minute)
	for {
		t.Logf("seed %d", seed)
		crash(t, binary, seed)
		if seed++; !time.Now().Before(until) || t.Failed() {
			return
		}
	}
}

func buildBinary(t *testing.T) string {
	t.Helper()
	binary, err := testcache.Program(t.Context(), "github.com/parley-project/parley/cmd/parley")
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

func crash(t *testing.T, binary string, seed uint64) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 0))
	log := newCallLog()
	resend := httptest.NewServer(log.simpleAgent("resend", 40*time.Millisecond))
	defer resend.Close()
	once := httptest.NewServer(log.a2aAgent("once", 40*time.Millisecond))
	defer once.Close()
	c := newCrashRig(t, binary, map[string]string{
		"agents.yaml": "agents:\n" +
			"  - {name: resend, url: \"" + resend.URL + "\", protocol: simple-a2a, outcome_unknown: resend}\n" +
			"  - {name: once, url: \"" + once.URL + "\", protocol: jsonrpc-2.0, outcome_unknown: fail}\n",
		"flows/crash.yaml": "name: crash\nsteps:\n" +
			"  - {id: a, agent: resend, input: {text: \"${workflow.input.n}\"}}\n" +
			"  - {id: b, agent: once, input: {text: \"${a.output.text}\"}}\n" +
			"  - {id: c, agent: resend, input: {text: \"${b.output.text}\"}}\n",
	})
	c.start()
	ids := make([]string, crashRuns)
	var starting sync.WaitGroup
	starting.Go(func() { c.startRuns(ids) })
	for range crashKills {
		wait(t, time.Duration(100+rnd.IntN(900))*time.Millisecond)
		c.kill()
		c.start()
	}
	starting.Wait()
	for i, id := range ids {
		c.checkRun(i, id)
	}
	c.kill()
	log.check(t)
}

// crashRig is one data folder and the process that serves it.
type crashRig struct {
	t      *testing.T
	binary string
	dir    string
	args   []string   // nil: parley dev with agents.yaml and flows
	mu     sync.Mutex // protects cmd, url and key
	cmd    *exec.Cmd
	url    string
	key    string
	output *bytes.Buffer
}

func newCrashRig(t *testing.T, binary string, files map[string]string) *crashRig {
	t.Helper()
	c := &crashRig{t: t, binary: binary, dir: t.TempDir()}
	for name, text := range files {
		file := filepath.Join(c.dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(c.kill)
	return c
}

// start starts the binary and waits until it serves.
func (c *crashRig) start() {
	c.t.Helper()
	endpoint := filepath.Join(c.dir, "data", "endpoint")
	_ = os.Remove(endpoint)
	args := c.args
	if args == nil {
		args = []string{"dev", "--no-samples", "--agents", filepath.Join(c.dir, "agents.yaml"), "--workflows", filepath.Join(c.dir, "flows")}
	}
	cmd := exec.Command(c.binary, append(args, "--data", filepath.Join(c.dir, "data"), "--listen", "127.0.0.1:0")...)
	output := new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Minute); ; {
		url, err := os.ReadFile(endpoint)
		if err == nil && bytes.HasSuffix(url, []byte("\n")) {
			key, err := os.ReadFile(filepath.Join(c.dir, "data", "key"))
			if err != nil {
				c.t.Fatal(err)
			}
			c.mu.Lock()
			c.cmd, c.output, c.url, c.key = cmd, output, strings.TrimSpace(string(url)), strings.TrimSpace(string(key))
			c.mu.Unlock()
			return
		}
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			c.t.Fatalf("the server does not start:\n%s", output)
		}
		wait(c.t, 5*time.Millisecond)
	}
}

func (c *crashRig) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd == nil {
		return
	}
	_ = c.cmd.Process.Signal(syscall.SIGKILL)
	_ = c.cmd.Wait()
	c.cmd = nil
}

// startRuns starts the runs, each until it was accepted: a start that was cut
// off is repeated under its key.
func (c *crashRig) startRuns(ids []string) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 10)
	for i := range ids {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			body := fmt.Sprintf(`{"input_data":{"n":"%d"},"idempotency_key":"k%d"}`, i, i)
			for ids[i] == "" && c.t.Context().Err() == nil {
				var run parley.Run
				if err := c.call(http.MethodPost, "/api/v1/workflows/crash/execute", body, &run); err == nil {
					ids[i] = run.ID
				} else {
					wait(c.t, 20*time.Millisecond)
				}
			}
		})
		wait(c.t, 10*time.Millisecond)
	}
	wg.Wait()
}

func (c *crashRig) call(method, path, body string, into any) error {
	c.mu.Lock()
	url, key := c.url, c.key
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s\n%s", method, path, resp.Status, b)
	}
	return json.Unmarshal(b, into)
}

// checkRun waits for the end of a run and reads its history.
func (c *crashRig) checkRun(i int, id string) {
	c.t.Helper()
	var run parley.Run
	for deadline := time.Now().Add(5 * time.Minute); ; wait(c.t, 20*time.Millisecond) {
		if err := c.call(http.MethodGet, "/api/v1/runs/"+id, "", &run); err != nil {
			c.t.Fatal(err)
		}
		if run.Status.Terminal() {
			break
		}
		if time.Now().After(deadline) {
			b, _ := json.MarshalIndent(run, "", " ")
			c.t.Fatalf("run %d does not end:\n%s\n%s", i, b, c.output)
		}
	}
	if run.Status != parley.RunCompleted && (run.Error == nil || run.Error.Code != parley.CodeOutcomeUnknown) {
		c.t.Errorf("run %s is %s: %v", id, run.Status, run.Error)
	}
	terminal := 0
	for i, e := range c.events(id) {
		if e.Seq != int64(i)+1 {
			c.t.Errorf("run %s: event %d stands at place %d", id, e.Seq, i+1)
		}
		switch e.Type {
		case parley.EventRunCompleted, parley.EventRunFailed, parley.EventRunCancelled:
			terminal++
		}
	}
	if terminal != 1 {
		c.t.Errorf("run %s has %d terminal events", id, terminal)
	}
}

func (c *crashRig) events(id string) []parley.Event {
	c.t.Helper()
	var page struct {
		Items []parley.Event `json:"items"`
	}
	if err := c.call(http.MethodGet, "/api/v1/runs/"+id+"/events?limit=500", "", &page); err != nil {
		c.t.Fatal(err)
	}
	return page.Items
}

// wait lets real time pass: the processes under test live outside of the test.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-t.Context().Done():
	case <-time.After(d):
	}
}

// callLog is what the agents saw: the judge of how often they were called.
type callLog struct {
	mu    sync.Mutex // protects calls
	calls map[string][]call
}

type call struct {
	agent, message string
}

func newCallLog() *callLog { return &callLog{calls: make(map[string][]call)} }

func (l *callLog) saw(task string, c call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[task] = append(l.calls[task], c)
}

// counts gives how often each task was seen.
func (l *callLog) counts() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := make(map[string]int, len(l.calls))
	for task, calls := range l.calls {
		n[task] = len(calls)
	}
	return n
}

// check holds the log to invariant I1 of protocol.md: one call of an attempt,
// or one more for each orphaning under policy resend, of which there are at
// most two.
func (l *callLog) check(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	repeated := 0
	for task, calls := range l.calls {
		limit := 1
		if calls[0].agent == "resend" {
			limit = 3
		}
		if len(calls) > limit {
			t.Errorf("task %s: agent %s was called %d times, the policy allows %d", task, calls[0].agent, len(calls), limit)
		}
		repeated += len(calls) - 1
		for _, c := range calls {
			if c.message != "" && c.message != "msg-"+task {
				t.Errorf("task %s was sent with messageId %s", task, c.message)
			}
			if strings.Count(task, ".") != 2 {
				t.Errorf("task id %q is not run, path and attempt", task)
			}
		}
	}
	t.Logf("%d attempts, %d repeated calls", len(l.calls), repeated)
}

func (l *callLog) simpleAgent(name string, delay time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			TaskID string          `json:"task_id"`
			Input  json.RawMessage `json:"input"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		l.saw(body.TaskID, call{agent: name})
		pause(r.Context(), delay)
		_ = json.NewEncoder(w).Encode(map[string]any{"task_id": body.TaskID, "status": "success", "output": body.Input, "error": nil})
	})
}

func (l *callLog) a2aAgent(name string, delay time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			ID     string `json:"id"`
			Params struct {
				Message struct {
					MessageID string `json:"messageId"`
					Parts     []struct {
						Text string `json:"text"`
					} `json:"parts"`
				} `json:"message"`
			} `json:"params"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || len(body.Params.Message.Parts) == 0 {
			http.Error(w, "not a message", http.StatusBadRequest)
			return
		}
		l.saw(body.ID, call{agent: name, message: body.Params.Message.MessageID})
		pause(r.Context(), delay)
		_ = json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": body.ID, "result": map[string]any{
			"kind": "task", "id": "t-" + body.ID, "contextId": "c", "status": map[string]any{"state": "completed"},
			"artifacts": []any{map[string]any{"artifactId": "a", "parts": []any{map[string]any{"kind": "text", "text": body.Params.Message.Parts[0].Text}}}},
		}})
	})
}

// pause makes an agent slow. It goes on when the caller has hung up: agents
// finish what they have begun.
func pause(_ context.Context, d time.Duration) { <-time.After(d) }

var errCrashed = errors.New("crashed")
