package adaptertest

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// Suite is the dialogues of one adapter.
type Suite struct {
	// Dir holds the *.txtar files.
	Dir string
	// New makes the adapter for one dialogue.
	New func(*bridge.Exchange, *slog.Logger, bridge.TranslationObserver) bridge.Adapter
	// Update writes what was seen into the sections request (if there is one) and
	// outcome.json, instead of comparing them.
	Update bool
}

const (
	// maxResponse is the suite's limit of a response, so that a bomb is told from
	// an answer by the memory that it takes.
	maxResponse = 1 << 20
	// maxMemory is what one call may allocate in all, and the agent beside it.
	maxMemory = 12 << 20
)

// Run plays every dialogue of the suite, one after another since each is
// measured.
func Run(t *testing.T, s Suite) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.Dir, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no dialogues in %s: %v", s.Dir, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { s.play(t, file) })
		})
	}
}

func (s Suite) play(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d, err := parse(archive)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	a := &agent{scripts: d.scripts}
	t.Cleanup(a.close)
	now := func() time.Time { return time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC) }
	x := bridge.NewExchange(bridge.ExchangeConfig{
		DialContext: a.Dial, Now: now, Limits: bridge.ExchangeLimits{MaxResponse: maxResponse}, UserAgent: "parley/test",
	})
	t.Cleanup(x.Close)

	rec := &recorder{}
	adapter := s.New(x, slog.New(rec), rec)
	if c, ok := adapter.(interface{ Close() }); ok {
		t.Cleanup(c.Close)
	}
	seen := rec.outcome(t, d, adapter)
	requests := a.got()
	if n := max(len(d.scripts), 1); len(requests) > n || n > 1 && len(requests) < n {
		t.Errorf("the agent got %d requests, not %d:\n%s", len(requests), n, strings.Join(requests, "\n"))
	}
	rec.checkLines(t, d)
	if d.secret != "" && strings.Contains(seen, d.secret) {
		t.Errorf("the credential is in the outcome:\n%s", seen)
	}
	if s.Update {
		if err := d.update(file, requests, seen); err != nil {
			t.Fatal(err)
		}
		return
	}
	for i := range requests {
		name := numbered("request", i+1)
		if want := d.section(name); want != "" {
			if diff := cmp.Diff(want, requests[i]); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	}
	if diff := cmp.Diff(d.section("outcome.json"), seen); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
}

// update writes what was seen into the file of d.
func (d *dialogue) update(file string, requests []string, seen string) error {
	for i, request := range requests {
		if name := numbered("request", i+1); d.section(name) != "" {
			d.replace(name, request)
		}
	}
	d.replace("outcome.json", seen)
	return os.WriteFile(file, txtar.Format(d.archive), 0o600)
}

// recorder takes what an adapter says besides its outcome.
type recorder struct {
	mu       sync.Mutex
	progress []progress
	events   []string
	observed []string
	lines    []string
}

type progress struct {
	State string        `json:"state"`
	Text  string        `json:"text,omitempty"`
	Chunk *bridge.Chunk `json:"chunk,omitempty"`
	Past  bool          `json:"past,omitempty"`
}

// seen is the section outcome.json.
type seen struct {
	came
	// Stream is the outcome of listening to the stream that the operation gave.
	Stream *came `json:"stream,omitempty"`
	// Refused is the error of a call that was not made.
	Refused  string     `json:"refused,omitempty"`
	Progress []progress `json:"progress,omitempty"`
	Observed []string   `json:"observed,omitempty"`
	Log      []string   `json:"log"`
}

// came is one outcome.
type came struct {
	Disposition string          `json:"disposition,omitempty"`
	Outcome     parley.Outcome  `json:"outcome,omitempty"`
	Output      json.RawMessage `json:"output,omitempty"`
	Error       *parley.Error   `json:"error,omitempty"`
	RetryAfter  string          `json:"retry_after,omitempty"`
	AgentTaskID string          `json:"agent_task_id,omitempty"`
	ContextID   string          `json:"context_id,omitempty"`
	Endpoint    string          `json:"endpoint,omitempty"`
	Version     string          `json:"version,omitempty"`
	State       string          `json:"state,omitempty"`
	Partial     bool            `json:"partial,omitempty"`

	Question *parley.Question `json:"question,omitempty"`
}

// look renders an outcome, and holds it to what [bridge.Outcome] promises.
func look(t *testing.T, d *dialogue, out bridge.Outcome) came {
	t.Helper()
	checkOutcome(t, d, out)
	c := came{
		Disposition: dispositions()[out.Disposition], Outcome: out.Result.Outcome, Output: out.Result.Output, Error: out.Result.Err,
		AgentTaskID: out.AgentTaskID, ContextID: out.ContextID, Endpoint: out.Endpoint, Version: out.Version,
		State: out.State, Partial: out.Partial, Question: out.Question,
	}
	if out.Result.RetryAfter > 0 {
		c.RetryAfter = out.Result.RetryAfter.String()
	}
	return c
}

// outcome makes the call and renders everything that it came to.
func (r *recorder) outcome(t *testing.T, d *dialogue, adapter bridge.Adapter) string {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	out, err := operate(t, d, adapter, r.report)
	s := seen{}
	if err != nil {
		s.Refused = err.Error()
	} else {
		s.came = look(t, d, out)
	}
	if out.Stream != nil {
		end := look(t, d, out.Stream.Listen(t.Context(), r.report))
		out.Stream.Close()
		s.Stream = &end
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > maxMemory {
		t.Errorf("the call allocated %d bytes, the limit is %d", used, maxMemory)
	}
	s.Progress, s.Observed, s.Log = r.progress, r.observed, r.events
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(s); err != nil {
		t.Errorf("the outcome is not JSON: %v", err)
	}
	return b.String()
}

func operate(t *testing.T, d *dialogue, adapter bridge.Adapter, report bridge.Progress) (bridge.Outcome, error) {
	t.Helper()
	switch d.operation {
	case "call":
		return adapter.Call(t.Context(), d.task, d.agent, report)
	case "poll":
		if f, ok := adapter.(bridge.Follower); ok {
			return f.Poll(t.Context(), d.task, d.agent, d.at)
		}
	case "cancel":
		if c, ok := adapter.(bridge.Canceler); ok {
			return c.Cancel(t.Context(), d.task, d.agent, d.at)
		}
	case "subscribe":
		if s, ok := adapter.(bridge.Subscriber); ok {
			return s.Subscribe(t.Context(), d.task, d.agent, d.at)
		}
	case "answer":
		if a, ok := adapter.(bridge.Answerer); ok {
			return a.Answer(t.Context(), d.task, d.agent, d.reply)
		}
	case "find":
		if f, ok := adapter.(bridge.Finder); ok {
			return f.Find(t.Context(), d.task, d.agent)
		}
	}
	t.Fatalf("the adapter has no operation %q", d.operation)
	return bridge.Outcome{}, nil
}

// checkOutcome holds every outcome to what [bridge.Outcome] and BR-3 promise.
func checkOutcome(t *testing.T, d *dialogue, out bridge.Outcome) {
	t.Helper()
	res := out.Result
	if res.TaskID != d.task.ID {
		t.Errorf("the result is about task %q, not %q (BR-3.6)", res.TaskID, d.task.ID)
	}
	switch {
	case out.Disposition == bridge.Accepted:
		if out.AgentTaskID == "" {
			t.Error("accepted without the agent's task id")
		}
	case res.Outcome == parley.OutcomeOK:
		if res.Output == nil || res.Err != nil {
			t.Errorf("ok with output %s and error %v (BR-3.4)", res.Output, res.Err)
		}
	default:
		if res.Output != nil || res.Err == nil {
			t.Errorf("%s with output %s and error %v (BR-3.5)", res.Outcome, res.Output, res.Err)
		}
	}
	if out.Disposition != bridge.Answered && out.Disposition != bridge.Accepted && res.Outcome != parley.OutcomeError {
		t.Errorf("disposition %d with outcome %s", out.Disposition, res.Outcome)
	}
}

func dispositions() map[bridge.Disposition]string {
	return map[bridge.Disposition]string{
		bridge.Answered: "answered", bridge.Accepted: "accepted", bridge.NotSent: "not sent", bridge.Lost: "lost",
	}
}

func (r *recorder) report(p bridge.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress = append(r.progress, progress{State: p.State, Text: p.Text, Chunk: p.Chunk, Past: p.Past})
}

// Translated implements [bridge.TranslationObserver].
func (r *recorder) Translated(protocol, direction string, _ time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.observed = append(r.observed, protocol+" "+direction+" translated")
}

// TranslationError implements [bridge.TranslationObserver].
func (r *recorder) TranslationError(protocol, direction, errorType string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.observed = append(r.observed, protocol+" "+direction+" error "+errorType)
}

// Enabled implements [slog.Handler]: everything is taken.
func (r *recorder) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements [slog.Handler].
func (r *recorder) Handle(_ context.Context, rec slog.Record) error {
	var b bytes.Buffer
	h := slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug})
	err := h.Handle(context.Background(), rec)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, strings.ToLower(rec.Level.String())+" "+rec.Message)
	r.lines = append(r.lines, b.String())
	return err
}

// WithAttrs implements [slog.Handler]; adapters make no such loggers.
func (r *recorder) WithAttrs([]slog.Attr) slog.Handler { return r }

// WithGroup implements [slog.Handler]; adapters make no such loggers.
func (r *recorder) WithGroup(string) slog.Handler { return r }

// checkLines holds the log to BR-7.5 and to keeping secrets.
func (r *recorder) checkLines(t *testing.T, d *dialogue) {
	t.Helper()
	wanted := []string{"task_id=" + d.task.ID, "agent=" + d.agent.Name, "correlation_id=" + d.task.CorrelationID, "protocol="}
	if id := d.task.Trace.ID(); id != "" {
		wanted = append(wanted, "trace_id="+id)
	}
	for _, line := range r.lines {
		if missing := slices.IndexFunc(wanted, func(w string) bool { return !strings.Contains(line, w) }); missing >= 0 {
			t.Errorf("a log line has no %q (BR-7.5): %s", wanted[missing], line)
		}
		if d.secret != "" && strings.Contains(line, d.secret) {
			t.Errorf("the credential is in the log: %s", line)
		}
		if len(line) > 160<<10 {
			t.Errorf("a log line has %d bytes", len(line))
		}
	}
}
