package server_test

import (
	"context"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
	"github.com/parley-project/parley/internal/server"
)

// longFailpoints are the steps of a long task at which TestLongFailpoints lets
// the process die: before the send, after it, once the agent's task id is
// stored, during a poll, within a stream, around a question and its answer.
var longFailpoints = []string{
	"guard.before-send", "sent", "follow.before-P6", "P6.before", "P6.after", "follow.after-P6", "subscribe.before", "stream.event", "poll.before",
	"question.before", "reply.before-mark", "reply.before-send", "reply.after-send", "answer.before-P7", "P7.before-wakeup",
}

// TestLongFailpoints lets a server with a real store and an A2A 1.0 agent over
// HTTP die at each step of a long task, under each policy, starts it again on
// the same data, and judges by the agent's log: under lookup and fail it saw the
// task once, under resend at most once more.
func TestLongFailpoints(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"lookup", "fail", "resend"} {
		for _, point := range longFailpoints {
			t.Run(policy+"/"+point, func(t *testing.T) {
				t.Parallel()
				dieWithin(t, policy, point)
			})
		}
	}
}

func dieWithin(t *testing.T, policy, point string) {
	agent := newLongAgent()
	d := &death{point: point, passage: 1, dead: make(chan struct{})}
	if point == "sent" {
		agent.swallow = func() { _ = d.hit("sent") }
	}
	web := httptest.NewServer(agent)
	defer web.Close()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "agents.yaml"), "agents:\n  - {name: one, url: \""+web.URL+"\", protocol: jsonrpc-2.0, outcome_unknown: "+policy+
		", protocol_config: {a2a: \"1.0\", stream: \"on\"}}\n")
	write(t, filepath.Join(dir, "flows", "two.yaml"), "name: two\nsteps:\n  - {id: a, agent: one, input: {text: hello}}\n")
	cfg := server.Config{
		Data: filepath.Join(dir, "data"), Listen: "127.0.0.1:0", EgressAllow: []string{"127.0.0.0/8"},
		AgentFiles: []string{filepath.Join(dir, "agents.yaml")}, WorkflowDirs: []string{filepath.Join(dir, "flows")},
		DrainGrace: time.Millisecond,
	}
	first := cfg
	first.Failpoint = d.hit
	id := untilLongDeath(t, first, d)
	again := startServer(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	answerWhileRunning(ctx, t, again, id)
	run, err := again.Executor().Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	judgeLong(t, policy, point, agent, run)
}

func judgeLong(t *testing.T, policy, point string, agent *longAgent, run parley.Run) {
	sends, answers := agent.most()
	limit := 1
	if policy == "resend" {
		limit = 2
	}
	if sends > limit {
		t.Errorf("the agent got the task %d times", sends)
	}
	if answers > 1 && point != "reply.before-send" && point != "reply.after-send" {
		t.Errorf("the agent got an answer %d times", answers)
	}
	// Under fail an attempt of which the agent's task id was not stored yet ends
	// as unknown; in every other case the work goes on.
	stored := !slices.Contains([]string{"guard.before-send", "sent", "follow.before-P6", "P6.before"}, point)
	switch {
	case run.Status == parley.RunCompleted:
	case policy == "fail" && !stored && run.Error != nil && run.Error.Code == parley.CodeOutcomeUnknown:
	case policy == "lookup" && point == "guard.before-send" && run.Error != nil && run.Error.Code == parley.CodeOutcomeUnknown:
		// Nothing was sent, and the agent says so; that is no proof.
	default:
		t.Errorf("the run is %s: %v", run.Status, run.Error)
	}
}

// untilLongDeath starts a run and answers for it until the process dies.
func untilLongDeath(t *testing.T, cfg server.Config, d *death) string {
	t.Helper()
	s, err := server.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Run(ctx)
	}()
	run, _, err := s.Executor().Start(ctx, parley.StartRequest{Workflow: "two", Input: []byte(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	for !d.isGone() && ctx.Err() == nil {
		_, _ = s.Executor().AnswerStep(ctx, parley.AnswerRequest{Run: run.ID, Reply: parley.Reply{Text: "2026"}})
		time.Sleep(60 * time.Millisecond)
	}
	if !d.isGone() {
		t.Fatalf("failpoint %s was not passed", d.point)
	}
	stop()
	<-ended
	return run.ID
}

// answerWhileRunning answers whatever the run's agent asks, until the run ends.
func answerWhileRunning(ctx context.Context, t *testing.T, s *server.Server, id string) {
	t.Helper()
	for {
		wait, cancel := context.WithTimeout(ctx, 150*time.Millisecond)
		_, err := s.Executor().Wait(wait, id)
		cancel()
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			run, _ := s.Executor().Get(t.Context(), id)
			t.Fatalf("the run does not end: %+v", run)
		}
		_, _ = s.Executor().AnswerStep(ctx, parley.AnswerRequest{Run: id, Reply: parley.Reply{Text: "2026"}})
	}
}

// TestLongEvents: what a long task's agent tells and asks is in the run's
// history, in order, and the answer goes back to it.
func TestLongEvents(t *testing.T) {
	t.Parallel()
	agent := newLongAgent()
	agent.pieces = 20 // however long a stream takes on a busy machine
	web := httptest.NewServer(agent)
	defer web.Close()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "agents.yaml"), "agents:\n  - {name: one, url: \""+web.URL+
		"\", protocol: jsonrpc-2.0, protocol_config: {a2a: \"1.0\", stream: \"on\"}}\n")
	write(t, filepath.Join(dir, "flows", "two.yaml"), "name: two\nsteps:\n  - {id: a, agent: one, input: {text: hello}}\n")
	s := startServer(t, server.Config{
		Data: filepath.Join(dir, "data"), Listen: "127.0.0.1:0", EgressAllow: []string{"127.0.0.0/8"},
		AgentFiles: []string{filepath.Join(dir, "agents.yaml")}, WorkflowDirs: []string{filepath.Join(dir, "flows")},
	})
	run, _, err := s.Executor().Start(t.Context(), parley.StartRequest{Workflow: "two", Input: []byte(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answerWhileRunning(ctx, t, s, run.ID)
	c, err := client.New(client.Options{URL: s.URL(), Key: s.Key()})
	if err != nil {
		t.Fatal(err)
	}
	events, err := c.Events(t.Context(), run.ID, client.EventQuery{Limit: 500})
	if err != nil {
		t.Fatal(err)
	}
	var types []parley.EventType
	for _, e := range events.Items {
		if len(types) == 0 || types[len(types)-1] != e.Type {
			types = append(types, e.Type)
		}
	}
	for _, want := range []parley.EventType{
		parley.EventStepAccepted, parley.EventStepChunk, parley.EventStepWaiting, parley.EventStepAnswered, parley.EventStepCompleted,
	} {
		if !slices.Contains(types, want) {
			t.Errorf("no %s in %v", want, types)
		}
	}
	if sends, answers := agent.most(); sends != 1 || answers != 1 {
		t.Errorf("%d sends and %d answers", sends, answers)
	}
	if ended, err := c.Run(t.Context(), run.ID); err != nil || ended.Steps[0].AgentTaskID != "task-1" {
		t.Errorf("the step does not name the agent's task: %+v, %v", ended.Steps, err)
	}
}
