package bridge_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// fragile is a desk whose adapter panics in one of its methods, over what the agent
// has sent, the first so many times.
type fragile struct {
	*desk
	in    string
	times int
}

func (f *fragile) trip(in string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.in == in && f.times > 0 {
		f.times--
		panic("index out of range in " + in)
	}
}

func (f *fragile) Call(ctx context.Context, task parley.Task, a parley.Agent, p bridge.Progress) (bridge.Outcome, error) {
	out, err := f.desk.Call(ctx, task, a, p)
	f.trip("call")
	return out, err
}

func (f *fragile) Poll(ctx context.Context, task parley.Task, a parley.Agent, at bridge.AgentTask) (bridge.Outcome, error) {
	f.trip("poll")
	return f.desk.Poll(ctx, task, a, at)
}

func (f *fragile) Find(ctx context.Context, task parley.Task, a parley.Agent) (bridge.Outcome, error) {
	f.trip("find")
	return f.desk.Find(ctx, task, a)
}

func (f *fragile) Cancel(ctx context.Context, task parley.Task, a parley.Agent, at bridge.AgentTask) (bridge.Outcome, error) {
	f.trip("cancel")
	return f.desk.Cancel(ctx, task, a, at)
}

func (f *fragile) Answer(ctx context.Context, task parley.Task, a parley.Agent, r bridge.TaskReply) (bridge.Outcome, error) {
	out, err := f.desk.Answer(ctx, task, a, r)
	f.trip("answer")
	return out, err
}

func (f *fragile) Subscribe(ctx context.Context, task parley.Task, a parley.Agent, at bridge.AgentTask) (bridge.Outcome, error) {
	f.trip("subscribe")
	out, err := f.desk.Subscribe(ctx, task, a, at)
	if out.Stream != nil {
		out.Stream = &fragileStream{out.Stream, f}
	}
	return out, err
}

type fragileStream struct {
	bridge.Stream
	f *fragile
}

func (s *fragileStream) Listen(ctx context.Context, p bridge.Progress) bridge.Outcome {
	s.f.trip("listen")
	return s.Stream.Listen(ctx, p)
}

// TestAdapterPanics: what an agent sends may be anything, and an adapter may stumble
// over it. That is an outcome which nobody knows, of this exchange alone: the process,
// and with it the calls of all others, goes on (promise 7), the agent is not called
// again silently (promise 4), and the log says where.
func TestAdapterPanics(t *testing.T) {
	for _, c := range []struct {
		in      string
		times   int
		policy  parley.OutcomePolicy
		outcome parley.Outcome
		code    parley.Code
	}{
		{"call", 1, parley.OutcomeFail, parley.OutcomeUnknown, parley.CodeOutcomeUnknown},
		{"call", 1, parley.OutcomeLookup, parley.OutcomeOK, ""},
		{"poll", 2, parley.OutcomeFail, parley.OutcomeOK, ""},
		{"subscribe", 1, parley.OutcomeFail, parley.OutcomeOK, ""},
		{"listen", 1, parley.OutcomeFail, parley.OutcomeOK, ""},
		{"find", 2, parley.OutcomeLookup, parley.OutcomeOK, ""},
		{"cancel", 1, parley.OutcomeFail, parley.OutcomeCancelled, parley.CodeCancelled}, // it is told again
		{"cancel", 4, parley.OutcomeFail, parley.OutcomeOK, ""},                          // the agent was not told
		{"answer", 1, parley.OutcomeLookup, parley.OutcomeOK, ""},
	} {
		t.Run(c.in+" "+string(c.policy), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				f := &fragile{desk: newDesk(), in: c.in, times: c.times}
				f.loses, f.asks, f.mute = c.in == "find", c.in == "answer", c.in == "poll" || c.in == "cancel"
				var log bytes.Buffer
				p := r.start("b", func(cfg *bridge.Config, _ *process) {
					cfg.Adapters = []bridge.Adapter{r.agent, f}
					cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
				})
				id := r.task("long", 1, policy(c.policy))
				switch c.in {
				case "cancel":
					r.wait(time.Second)
					cancelWays["hint"](r, id)
				case "answer":
					r.waiting(id, 1)
					r.ledger.reply(id, parley.Reply{Text: "2026"})
				}
				r.want(id, c.outcome, c.code)
				r.want(r.task("one", 2, nil), parley.OutcomeOK, "")
				if n := f.executed(id); n != 1 {
					t.Errorf("the agent began %d times", n)
				}
				p.stop()
				if f.times != 0 {
					t.Errorf("it should have panicked %d times more", f.times)
				}
				if text := log.String(); !strings.Contains(text, "index out of range in "+c.in) || !strings.Contains(text, "panics_test.go") || !strings.Contains(text, id) {
					t.Errorf("the log says\n%s", text)
				}
			})
		})
	}
}
