package bridge_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// safeLog is a log that timers may write to.
type safeLog struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *safeLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// failed are the lines about failures, and empties the log.
func (l *safeLog) failed(t *testing.T) (lines []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		if m["msg"] == "agent_failure" {
			lines = append(lines, m)
		}
	}
	l.b.Reset()
	return lines
}

// TestBR7_Failures: an agent that is dead has two lines a minute and class at error,
// however often it is called: the first failure, at once and with all its context, and
// how many there were more. At debug there is each of them, and nothing is lost.
func TestBR7_Failures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &safeLog{}
		dead := errors.New("nobody there")
		x := newExchange(t, bridge.ExchangeConfig{DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, dead }})
		w := bridge.NewWire(x, slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})), nil)
		call := func(agent, task string) {
			t.Helper()
			out, err := w.Call(t.Context(), parley.Task{ID: task, CorrelationID: "c-" + task}, parley.Agent{Name: agent, URL: "http://agent.test/"}, bridge.Conversation{
				Protocol: "test", Request: func() ([]byte, error) { return []byte("{}"), nil },
			})
			if err != nil || out.Disposition != bridge.NotSent {
				t.Fatalf("%v, %v", out, err)
			}
		}
		for i := range 600 { // a minute and a half
			call("dead", "t"+string(rune('a'+i%26)))
			if i == 300 {
				call("other", "o")
			}
			time.Sleep(151 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		var first, sums []map[string]any
		quiet, counted, others := 0, 0, 0
		for _, line := range log.failed(t) {
			more, sum := line["more"].(float64)
			switch {
			case line["agent"] == "other":
				if others++; line["level"] != "ERROR" || sum {
					t.Errorf("the failure of another agent: %v", line)
				}
			case line["level"] == "DEBUG":
				quiet++
			case sum:
				sums = append(sums, line)
				counted += int(more)
			default:
				first = append(first, line)
			}
		}
		if len(first) != 2 || len(sums) != 2 || others != 1 {
			t.Fatalf("%d failures with lines of their own, %d sums, want 2 and 2; %d of another agent, want 1", len(first), len(sums), others)
		}
		if quiet != 598 || counted != 598 {
			t.Errorf("%d lines at debug, %d counted, want 598 of each", quiet, counted)
		}
		for _, line := range append(first, sums...) {
			if line["level"] != "ERROR" || line["agent"] != "dead" || !strings.HasPrefix(line["task_id"].(string), "t") || line["correlation_id"] != "c-"+line["task_id"].(string) ||
				line["code"] != "agent_unavailable" || !strings.Contains(line["error"].(string), "nobody there") || line["disposition"] != "not_sent" {
				t.Errorf("a line without its context: %v", line)
			}
		}
		if sums[0]["within"] != float64(time.Minute) || sums[0]["more"] != float64(397) {
			t.Errorf("sum: %v", sums[0])
		}
		call("dead", "later") // after a pause it is news again
		if lines := log.failed(t); len(lines) != 1 || lines[0]["level"] != "ERROR" || lines[0]["task_id"] != "later" {
			t.Errorf("after a pause: %v", lines)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if lines := log.failed(t); len(lines) != 0 {
			t.Errorf("a single failure was counted: %v", lines)
		}
	})
}

// TestBR7_FailureClasses: each class has its own lines.
func TestBR7_FailureClasses(t *testing.T) {
	w := newWireTest(t, slog.LevelError, "{}")
	log := &safeLog{}
	w.wire = bridge.NewWire(newExchange(t, loopback()), slog.New(slog.NewJSONHandler(log, nil)), nil)
	for range 3 {
		for _, code := range []parley.Code{parley.CodeAgentError, parley.CodeAgentRejected} {
			w.conv.Answer = func([]byte) (bridge.Outcome, []bridge.Warning, error) {
				return bridge.Outcome{Disposition: bridge.Answered, Result: parley.Result{Outcome: parley.OutcomeError, Err: parley.Errorf(code, "no")}}, nil, nil
			}
			if _, err := w.call(t); err != nil {
				t.Fatal(err)
			}
		}
	}
	lines := log.failed(t)
	if len(lines) != 2 || lines[0]["code"] == lines[1]["code"] {
		t.Errorf("%v", lines)
	}
}

// TestBR7_FailuresAreBounded: kinds beyond the limit are counted together.
func TestBR7_FailuresAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &safeLog{}
		x := newExchange(t, bridge.ExchangeConfig{DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("dead") }})
		w := bridge.NewWire(x, slog.New(slog.NewJSONHandler(log, nil)), nil)
		for i := range 5000 {
			_, _ = w.Call(t.Context(), parley.Task{ID: "t"}, parley.Agent{Name: "a" + string(rune(0x4e00+i)), URL: "http://agent.test/"}, bridge.Conversation{
				Protocol: "test", Request: func() ([]byte, error) { return []byte("{}"), nil },
			})
		}
		if n := len(log.failed(t)); n != 4097 {
			t.Errorf("%d lines for 5,000 agents, want one for each of 4,096, and one for all others", n)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if lines := log.failed(t); len(lines) != 1 || lines[0]["more"] != float64(5000-4097) {
			t.Errorf("%v", lines)
		}
	})
}
