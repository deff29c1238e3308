package bridge_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// counts is a [bridge.TranslationObserver].
type counts struct {
	translated []string
	errors     []string
	took       time.Duration
}

func (c *counts) Translated(protocol, direction string, took time.Duration) {
	c.translated = append(c.translated, protocol+" "+direction)
	c.took += took
}

func (c *counts) TranslationError(protocol, direction, errorType string) {
	c.errors = append(c.errors, protocol+" "+direction+" "+errorType)
}

// wireTest is a Wire to an agent that answers body, with its log.
type wireTest struct {
	wire  *bridge.Wire
	log   *bytes.Buffer
	seen  *counts
	agent parley.Agent
	conv  bridge.Conversation
}

func newWireTest(t *testing.T, level slog.Level, body string) *wireTest {
	t.Helper()
	// Each part of a call takes a millisecond.
	var passed atomic.Int64
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		passed.Add(int64(time.Millisecond))
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, body)
	})
	w := &wireTest{log: &bytes.Buffer{}, seen: &counts{}}
	cfg := loopback()
	cfg.Now = func() time.Time { return time.Unix(0, passed.Load()) }
	logger := slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: level}))
	w.wire = bridge.NewWire(newExchange(t, cfg), logger, w.seen)
	w.agent = parley.Agent{Name: "a", URL: s.URL, Auth: parley.Auth{Type: parley.AuthBearer}, Credential: parley.NewSecret([]byte("s3cr3t"))}
	w.conv = bridge.Conversation{
		Protocol: "test",
		Request:  func() ([]byte, error) { passed.Add(int64(time.Millisecond)); return []byte(`{"ask":1}`), nil },
		Answer: func(b []byte) (bridge.Outcome, []bridge.Warning, error) {
			passed.Add(int64(time.Millisecond))
			return bridge.Outcome{Disposition: bridge.Answered, Result: parley.Result{Outcome: parley.OutcomeOK, Output: b}}, nil, nil
		},
	}
	return w
}

func (w *wireTest) call(t *testing.T) (bridge.Outcome, error) {
	t.Helper()
	return w.wire.Call(t.Context(), testTask(), w.agent, w.conv)
}

// lines gives the log by event.
func (w *wireTest) lines(t *testing.T) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for line := range strings.Lines(w.log.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		all[m["msg"].(string)] = m
	}
	return all
}

// TestBR7_Lines: the structure at debug, the output at info, and on every line
// whose it is.
func TestBR7_Lines(t *testing.T) {
	w := newWireTest(t, slog.LevelDebug, `{"out":"s3cr3t"}`)
	if _, err := w.call(t); err != nil {
		t.Fatal(err)
	}
	lines := w.lines(t)
	want := map[string]struct{ level, key, value string }{
		"protocol_request_translation":  {"DEBUG", "body", `{"ask":1}`},
		"protocol_response_translation": {"DEBUG", "body", `{"out":"[redacted]"}`},
		"http_call":                     {"INFO", "protocol", "test"},
		"agent_output":                  {"INFO", "output", `{"out":"[redacted]"}`},
	}
	if len(lines) != len(want) {
		t.Errorf("lines %v", lines)
	}
	for event, x := range want {
		line := lines[event]
		if line["level"] != x.level || line[x.key] != x.value {
			t.Errorf("%s: %v", event, line)
		}
		if line["task_id"] != "run-1.ask.1" || line["agent"] != "a" || line["correlation_id"] != "corr-1" {
			t.Errorf("%s does not say whose it is: %v", event, line)
		}
	}
	if lines["http_call"]["status"] != 200.0 || lines["http_call"]["took"] != float64(time.Millisecond) {
		t.Errorf("http_call %v", lines["http_call"])
	}
}

// TestBR7_Quiet: at the level of warnings a success says nothing.
func TestBR7_Quiet(t *testing.T) {
	w := newWireTest(t, slog.LevelWarn, `{}`)
	if _, err := w.call(t); err != nil || w.log.Len() > 0 {
		t.Errorf("%v, %s", err, w.log)
	}
}

// TestBR4_1_MalformedIsLogged: an answer that cannot be used is logged whole, up
// to 64 KiB, without the credential, and is the answer: a failure (AD-9).
func TestBR4_1_MalformedIsLogged(t *testing.T) {
	for _, n := range []int{10, 64 << 10, 200 << 10} {
		w := newWireTest(t, slog.LevelError, "s3cr3t"+strings.Repeat("y", n))
		w.conv.Answer = func([]byte) (bridge.Outcome, []bridge.Warning, error) {
			return bridge.Outcome{}, nil, bridge.Defectf("bad", "Response is bad")
		}
		out, err := w.call(t)
		if err != nil {
			t.Fatal(err)
		}
		line := w.lines(t)["protocol_translation_error"]
		data, _ := line["data"].(string)
		if got := strings.Count(data, "y"); got != min(n, 64<<10-len("s3cr3t")) || !strings.HasPrefix(data, "[redacted]") {
			t.Errorf("%d: logged %d bytes: %.40s", n, got, data)
		}
		if line["direction"] != "response" || line["error_type"] != "bad" || line["error"] != "Response is bad" || line["level"] != "ERROR" {
			t.Errorf("%v", line)
		}
		te, ok := errors.AsType[*bridge.TranslationError](out.Result.Err)
		if !ok || te.Protocol != "test" || te.Direction != "response" || string(te.Data) != data {
			t.Errorf("error %#v", out.Result.Err)
		}
		e := out.Result.Err
		if out.Disposition != bridge.Answered || e.Code != parley.CodeAgentError || !e.Retryable || e.Message != "Response is bad" {
			t.Errorf("%d, %v", out.Disposition, e)
		}
		if e.Agent != "a" || e.Step != "ask" || e.Attempt != 1 || len(e.Details) > 6<<10 {
			t.Errorf("%+v", e)
		}
		if strings.Join(w.seen.errors, ",") != "test response bad" || strings.Join(w.seen.translated, ",") != "test request" {
			t.Errorf("observed %v, %v", w.seen.translated, w.seen.errors)
		}
	}
}

// TestAD9_Request: a task that cannot be translated is an error and not sent.
func TestAD9_Request(t *testing.T) {
	w := newWireTest(t, slog.LevelError, "{}")
	w.conv.Request = func() ([]byte, error) { return nil, bridge.Defectf("bad_input", "no") }
	_, err := w.call(t)
	te, ok := errors.AsType[*bridge.TranslationError](err)
	if !ok || te.Direction != "request" || te.Error() != "test request: no" {
		t.Errorf("%v", err)
	}
	if strings.Join(w.seen.errors, ",") != "test request bad_input" || len(w.lines(t)) != 1 {
		t.Errorf("observed %v, lines %v", w.seen.errors, w.log)
	}
}

// TestAD11_Durations: each translation is measured by the injected clock.
func TestAD11_Durations(t *testing.T) {
	w := newWireTest(t, slog.LevelError, "{}")
	if _, err := w.call(t); err != nil {
		t.Fatal(err)
	}
	if strings.Join(w.seen.translated, ",") != "test request,test response" || w.seen.took != 2*time.Millisecond {
		t.Errorf("%v, %v", w.seen.translated, w.seen.took)
	}
}

// TestBR4_5_MessageBounded: an agent's words in an error have a limit.
func TestBR4_5_MessageBounded(t *testing.T) {
	w := newWireTest(t, slog.LevelError, "{}")
	w.conv.Answer = func([]byte) (bridge.Outcome, []bridge.Warning, error) {
		e := parley.Errorf(parley.CodeAgentError, "%s", strings.Repeat("ü", 100_000))
		return bridge.Outcome{Disposition: bridge.Answered, Result: parley.Result{Outcome: parley.OutcomeError, Err: e}}, nil, nil
	}
	out, err := w.call(t)
	if err != nil || len(out.Result.Err.Message) > 5<<10 {
		t.Errorf("%d bytes, %v", len(out.Result.Err.Message), err)
	}
}
