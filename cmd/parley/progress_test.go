package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
)

// stage plays events into a progress model and keeps what a terminal would
// keep of it.
type stage struct {
	t     *testing.T
	m     *progressModel
	seq   int64
	above []string
	quit  bool
}

func newStage(t *testing.T, width int, paint func(ink, string) string) *stage {
	run := parley.Run{ID: "run-1", Status: parley.RunRunning, CreatedAt: epoch(), Steps: []parley.Step{{ID: "greet", Agent: "greeter"}, {ID: "polish"}}}
	s := &stage{t: t, m: newProgressModel(newBoard(run), epoch(), paint)}
	s.send(tea.WindowSizeMsg{Width: width, Height: 10})
	return s
}

func uncoloured(_ ink, text string) string { return text }

// send gives the model a message and does what it asks for.
func (s *stage) send(msg tea.Msg) {
	s.t.Helper()
	queue := []tea.Msg{msg}
	for len(queue) > 0 {
		_, cmd := s.m.Update(queue[0])
		queue = queue[1:]
		if cmd == nil {
			continue
		}
		if _, ticking := msg.(tickMsg); ticking {
			return
		}
		out := cmd()
		if _, quit := out.(tea.QuitMsg); quit {
			s.quit = true
			continue
		}
		// A sequence of printing and then flushedMsg: its fields are not
		// exported, so the text is read from how it prints.
		text := fmt.Sprintf("%v", out)
		if !strings.Contains(fmt.Sprintf("%T", out), "sequence") {
			s.t.Fatalf("unexpected command: %T %s", out, text)
		}
		queue = append(queue, flushedMsg{})
	}
}

// event is what the server tells, at a number of milliseconds.
func (s *stage) event(ms int, kind parley.EventType, step string, attempt int, data string) {
	s.seq++
	e := parley.Event{
		Seq: s.seq, At: epoch().Add(time.Duration(ms) * time.Millisecond), Type: kind, Run: "run-1",
		Step: step, Attempt: attempt, Data: json.RawMessage(data),
	}
	// What goes above is asked for before Update sends it off.
	probe := *s.m.board
	probe.steps = map[string]*boardStep{}
	for id, x := range s.m.board.steps {
		c := *x
		probe.steps[id] = &c
	}
	if n, ok := probe.apply(e); ok {
		kept := s.m.board
		s.m.board = &probe
		s.above = append(s.above, s.m.lasting(n)...)
		s.m.board = kept
	}
	s.send(eventMsg(e))
}

// at gives the picture at a number of milliseconds.
func (s *stage) at(ms int) string {
	s.send(tickMsg(epoch().Add(time.Duration(ms) * time.Millisecond)))
	return s.m.View().Content
}

const fault = `{"kind":"agent","error":{"code":"agent_error","message":"Task state: failed","retryable":true}`

// An agent that waits is said above with the command to type, whole however
// narrow the terminal is, and goes on running in the picture; what agents tell
// shows beside them.
func TestProgressWaits(t *testing.T) {
	t.Parallel()
	s := newStage(t, 60, uncoloured)
	s.event(0, parley.EventRunStarted, "", 0, `{}`)
	s.event(0, parley.EventStepScheduled, "greet", 1, `{"agent":"greeter"}`)
	s.event(1, parley.EventStepAccepted, "greet", 1, `{"agent_task_id":"t"}`)
	s.event(2, parley.EventStepProgress, "greet", 1, `{"state":"working","text":"half\n way"}`)
	got := []string{s.at(1000)}
	s.event(3, parley.EventStepChunk, "greet", 1, `{"chunks":[{"text":"Once "},{"text":"upon"},{"text":"\n"}]}`)
	got = append(got, s.at(2000))
	s.event(4, parley.EventStepWaiting, "greet", 1, `{"question":{"kind":"auth","text":"Log in at https://login.example/with/a/very/long/path"},"news":1}`)
	s.event(5, parley.EventStepChunk, "greet", 1, `{"chunks":[{"text":"late"}]}`)
	s.event(6, "step.unknown", "greet", 1, `{}`)
	got = append(got, s.at(3000))
	s.event(7, parley.EventStepAnswered, "greet", 1, `{"resolved":"agent","news":2}`)
	got = append(got, s.at(4000))
	want := []string{
		"⠙ greet  RUNNING   greeter 1.0s   half way\nrun-1  RUNNING  0 of 2 steps  1.0s",
		"⠹ greet  RUNNING   greeter 2.0s   upon\nrun-1  RUNNING  0 of 2 steps  2.0s",
		"⠸ greet  WAITING   greeter 3.0s   for an authorization: Log…\nrun-1  RUNNING  0 of 2 steps  3.0s",
		"⠼ greet  RUNNING   greeter 4.0s   goes on without an answer\nrun-1  RUNNING  0 of 2 steps  4.0s",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{
		"? greet  WAITING   greeter        for an authorization: Log…",
		"  to answer: parley run answer run-1 greet --text ANSWER",
	}, s.above); diff != "" {
		t.Error(diff)
	}
}

func TestProgressPicture(t *testing.T) {
	t.Parallel()
	s := newStage(t, 80, uncoloured)
	var got []string
	s.event(0, parley.EventRunStarted, "", 0, `{}`)
	s.event(0, parley.EventStepScheduled, "greet", 1, `{"agent":"greeter"}`)
	got = append(got, s.at(12))
	s.event(1500, parley.EventStepCompleted, "greet", 1, `{}`)
	s.event(1500, parley.EventStepScheduled, "polish", 1, `{"agent":"polisher"}`)
	s.event(2000, parley.EventStepRetrying, "polish", 1, fault+`,"delay_ms":1000}`)
	got = append(got, s.at(2500))
	s.event(3100, parley.EventStepLate, "polish", 1, `{"outcome":"ok"}`)
	s.event(3200, parley.EventStepLate, "polish", 1, `{"outcome":"cancelled"}`)
	s.event(3300, parley.EventRunWarning, "", 0, `{"message":"beware"}`)
	got = append(got, s.at(3500))
	s.event(65000, parley.EventStepFailed, "polish", 2, fault+`}`)
	s.event(65000, parley.EventStepSkipped, "later", 0, `{"kind":"agent"}`)
	s.event(65000, parley.EventStepCancelled, "other", 0, `{"kind":"agent"}`)
	got = append(got, s.at(65000))
	s.event(65000, parley.EventRunFailed, "", 0, fault+`}`)
	if s.quit {
		t.Error("the picture ended before it was told to")
	}
	s.send(overMsg{})
	got = append(got, s.m.View().Content)

	want := []string{
		"⠙ greet  RUNNING   greeter 12ms\nrun-1  RUNNING  0 of 2 steps  12ms",
		"⠹ polish RETRYING  polisher 1.0s   attempt 2 in 1.0s: agent_error: Task state: …\nrun-1  RUNNING  1 of 2 steps  2.5s",
		"⠸ polish RUNNING   polisher 2.0s   attempt 2\nrun-1  RUNNING  1 of 2 steps  3.5s",
		"run-1  RUNNING  4 of 4 steps  1m05s",
		"",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	above := []string{
		"✓ greet  COMPLETED greeter 1.5s",
		"! polish LATE      polisher        attempt 1 was answered after its end",
		"! run    WARNING                   beware",
		"✗ polish FAILED    polisher 1m03s  2 attempts agent_error: Task state: failed",
		"– later  SKIPPED   ",
		"– other  CANCELLED ",
		"✗ run    FAILED             1m05s  agent_error: Task state: failed",
	}
	for i := range above {
		above[i] = strings.TrimRight(above[i], " ")
	}
	if diff := cmp.Diff(above, s.above); diff != "" {
		t.Error(diff)
	}
	if !s.quit {
		t.Error("the picture did not end")
	}
}

// What goes above the picture keeps its order: the next lines wait until those
// before are written, and the end waits for all.
func TestProgressKeepsTheOrder(t *testing.T) {
	t.Parallel()
	m := newProgressModel(newBoard(parley.Run{ID: "run-1"}), epoch(), uncoloured)
	for i, step := range []struct {
		msg  tea.Msg
		asks bool
	}{{sayMsg("a"), true}, {sayMsg("b"), false}, {overMsg{}, false}, {flushedMsg{}, true}, {flushedMsg{}, true}} {
		if _, cmd := m.Update(step.msg); (cmd != nil) != step.asks {
			t.Errorf("message %d: asks for something: %v", i, cmd != nil)
		}
	}
}

func TestProgressFitsTheTerminal(t *testing.T) {
	t.Parallel()
	for _, columns := range []int{1, 7, 20, 40, 80} {
		s := newStage(t, columns, ink.Render)
		for i := range 30 {
			id := fmt.Sprintf("検索%02d-\x1b[2J-👩‍👩‍👧", i)
			s.event(i, parley.EventStepScheduled, id, 1, `{"agent":"エージェント\u202e"}`)
		}
		s.event(40, parley.EventStepFailed, "検索00-\x1b[2J-👩‍👩‍👧", 1, `{"error":{"code":"x","message":"two\nlines"}}`)
		lines := append(strings.Split(s.at(100), "\n"), s.above...)
		if len(lines) > 11 {
			t.Errorf("width %d: %d lines", columns, len(lines))
		}
		for _, l := range lines {
			if width(l) > columns || strings.Contains(l, "\x1b[2J") || strings.Contains(l, "\u202e") {
				t.Errorf("width %d: %d columns: %q", columns, width(l), l)
			}
		}
	}
}

// The real program, drawing into a buffer: what has ended is there to stay.
func TestProgressIsDrawn(t *testing.T) {
	t.Parallel()
	_, url := newWorld(t)
	var out, errs bytes.Buffer
	a := newTestApp(&out, &errs)
	a.terminal = func(w io.Writer) (int, bool) { return 80, w == &errs }
	a.env = []string{"PARLEY_URL=" + url, "PARLEY_KEY=" + worldKey, "TERM=xterm-kitty"}
	if code := a.execute(t.Context(), []string{"run", "start", "hello", "--wait"}); code != exitDone {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	for _, want := range []string{"✓", "greet", "polish", "COMPLETED", "next: parley run show run-1\n"} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("no %q in %q", want, errs.String())
		}
	}
	// A question to the terminal would be answered into the next command line.
	for _, asked := range []string{"$p", "\x1b[c", "\x1b[>", "\x1b[?u", "\x1b]11;?"} {
		if strings.Contains(errs.String(), asked) {
			t.Errorf("the terminal is asked %q", asked)
		}
	}
	if !strings.Contains(out.String(), "Hello, dear Ada!") {
		t.Errorf("output %q", out.String())
	}
}

// newTestApp is an app in a world of its own: no terminal, a clock that stands.
func newTestApp(out, errs io.Writer) *app {
	return &app{
		stdin: strings.NewReader(""), stdout: out, stderr: errs, dir: "/", zone: time.UTC,
		now:      func() time.Time { return epoch() },
		terminal: func(io.Writer) (int, bool) { return 0, false },
	}
}

// An interrupt ends the waiting, not the run, and says so.
func TestInterruptedWait(t *testing.T) {
	t.Parallel()
	for _, drawn := range []bool{false, true} {
		t.Run(fmt.Sprint("drawn=", drawn), func(t *testing.T) {
			t.Parallel()
			w, url := newWorld(t)
			var out, errs bytes.Buffer
			a := newTestApp(&out, &errs)
			a.terminal = func(w io.Writer) (int, bool) { return 80, drawn && w == &errs }
			a.env = []string{"PARLEY_URL=" + url, "PARLEY_KEY=" + worldKey}
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			done := make(chan int)
			go func() { done <- a.execute(ctx, []string{"run", "start", "slow", "--wait", "-o", "jsonl"}) }()
			<-w.watched
			interrupt()
			code := <-done
			if code != exitTimedOut || !strings.Contains(errs.String(), "run run-1 goes on (RUNNING)\nhint: parley run watch run-1") {
				t.Errorf("exit code %d: %q", code, errs.String())
			}
			// The run as it is now, not as it was at its start.
			if !strings.HasPrefix(out.String(), `{"id":"run-1"`) || !strings.Contains(out.String(), `"seq":2}`) {
				t.Errorf("output %q", out.String())
			}
			if r, err := w.Run(t.Context(), "run-1"); err != nil || r.Status != parley.RunRunning {
				t.Errorf("%v, %v", r.Status, err)
			}
		})
	}
}

// A full disk is not success.
func TestOutputThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	var errs bytes.Buffer
	for _, args := range [][]string{{"version"}, {"version", "-o", "json"}, {"--help"}} {
		a := newTestApp(brokenWriter{}, &errs)
		if code := a.execute(t.Context(), args); code != exitFailed || !strings.Contains(errs.String(), "disk full") {
			t.Errorf("%v: exit code %d: %s", args, code, errs.String())
		}
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }
