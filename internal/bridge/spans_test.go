package bridge_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/tracing"
	"github.com/parley-project/parley/internal/tracing/tracingtest"
)

// spanRig records what a bridge tells of its calls.
type spanRig struct {
	kept   tracingtest.Memory
	tracer *tracing.Tracer

	mu   sync.Mutex // protects what follows
	next uint64
	// told are the spans that agents were called below, in the order of the calls.
	told []string
}

func newSpanRig() *spanRig {
	s := &spanRig{}
	s.tracer = tracing.New(tracing.Config{Exporter: &s.kept, Random: func() uint64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.next++
		return s.next
	}})
	return s
}

func (s *spanRig) use(cfg *bridge.Config, _ *process) { cfg.Tracer = s.tracer }

// note keeps what an agent is called below.
func (s *spanRig) note(task parley.Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, task.Trace.SpanID())
}

// end gives what was recorded, a line for each call.
func (s *spanRig) end(t *testing.T) (lines []string) {
	t.Helper()
	if err := s.tracer.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for _, x := range s.kept.Spans() {
		a := x.Attributes
		line := fmt.Sprintf("%s below %s: %s, try %s, %s", x.ID[14:], x.Parent, a["parley.call.outcome"], a["parley.attempt"], x.End.Sub(x.Start))
		if x.Status != "" {
			line += ", " + x.Status
		}
		if status := a["http.response.status_code"]; status != "" {
			line += ", " + status
		}
		lines = append(lines, line)
	}
	return lines
}

// TestSpans_OfCalls: what the span of a call says, however it has gone, and what its
// agent is told; who takes a call over tells of it in a span of its own, and what is not
// recorded has none.
func TestSpans_OfCalls(t *testing.T) {
	const parent = "00f067aa0ba902b7"
	works := func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
		time.Sleep(2 * time.Second)
		return answered(task, "1"), nil
	}
	for _, tt := range []struct {
		name   string
		agent  string
		trace  parley.Trace
		policy parley.OutcomePolicy
		call   func(ctx context.Context, task parley.Task, n int, p bridge.Progress) (bridge.Outcome, error)
		during func(r *rig, s *spanRig, p *process, id string) *process
		want   []string
	}{
		{name: "answered", call: works, want: []string{"01 below " + parent + ": answered, try 1, 2s"}},
		{name: "failed", call: func(context.Context, parley.Task, int, bridge.Progress) (bridge.Outcome, error) {
			return failed(bridge.Answered, parley.CodeAgentRejected, "no"), nil
		}, want: []string{"01 below " + parent + ": answered, try 1, 0s, agent_rejected"}},
		{
			name: "not sent", call: func(context.Context, parley.Task, int, bridge.Progress) (bridge.Outcome, error) {
				return notSent(), nil
			},
			want: []string{"01 below " + parent + ": not_sent, try 1, 0s, agent_unavailable"},
		},
		{
			name: "lost", policy: parley.OutcomeFail, call: func(context.Context, parley.Task, int, bridge.Progress) (bridge.Outcome, error) { return lost(), nil },
			want: []string{"01 below " + parent + ": lost, try 1, 0s, agent_unavailable"},
		},
		{name: "sent again", policy: parley.OutcomeResend, call: func(ctx context.Context, task parley.Task, n int, p bridge.Progress) (bridge.Outcome, error) {
			if n == 1 {
				return lost(), nil
			}
			return works(ctx, task, n, p)
		}, want: []string{"01 below " + parent + ": answered, try 1, 3s"}},
		{
			name: "cancelled", policy: parley.OutcomeResend, call: func(ctx context.Context, _ parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
				return hang(ctx), nil
			},
			during: func(r *rig, _ *spanRig, p *process, id string) *process {
				r.wait(3 * time.Second)
				cancelWays["hint"](r, id)
				return p
			}, want: []string{"01 below " + parent + ": given_up, try 1, 2s"},
		},
		{
			name: "followed, and taken over", agent: "long", policy: parley.OutcomeResend, call: accepts("working"),
			during: func(r *rig, s *spanRig, p *process, id string) *process {
				r.wait(5 * time.Second)
				p.stop()
				q := r.start("second", s.use)
				r.ledger.declareDead("b")
				return q
			}, want: []string{"01 below " + parent + ": left, try 1, 4s", "02 below " + parent + ": answered, try 1, "},
		},
		{name: "not recorded", trace: parley.Trace{Parent: strings.Replace(traceOne.Parent, "-01", "-00", 1)}, call: works},
		{name: "no trace", trace: parley.Trace{Parent: "-"}, call: works},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				s := newSpanRig()
				call := func(ctx context.Context, task parley.Task, n int, p bridge.Progress) (bridge.Outcome, error) {
					s.note(task)
					return tt.call(ctx, task, n, p)
				}
				r.agent.call, r.long.call = call, call
				r.long.poll = func(_ context.Context, task parley.Task, n int) (bridge.Outcome, error) {
					s.note(task)
					if n < 10 {
						return accepted(task, "working"), nil
					}
					return answered(task, "1"), nil
				}
				p := r.start("b", s.use)
				trace := tt.trace
				switch trace.Parent {
				case "":
					trace = traceOne
				case "-":
					trace = parley.Trace{}
				}
				agent := "one"
				if tt.agent != "" {
					agent = tt.agent
				}
				id := r.task(agent, 1, func(a *store.Attempt) { policy(tt.policy)(a); a.Trace = trace })
				if tt.during != nil {
					p = tt.during(r, s, p, id)
				}
				r.wait(20 * time.Minute)
				p.stop()
				got := s.end(r.t)
				ok := len(got) == len(tt.want)
				for i := range got {
					open := strings.HasSuffix(tt.want[i], ", ") // how long it took is not what matters
					ok = ok && (got[i] == tt.want[i] || open && strings.HasPrefix(got[i], tt.want[i]))
				}
				if !ok {
					r.t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
				}
				for _, span := range s.told {
					if recorded := len(tt.want) > 0; recorded == (span == trace.SpanID()) || recorded && !strings.HasPrefix(span, "00000000000000") {
						r.t.Errorf("the agent was called below %q", span)
					}
				}
			})
		})
	}
}

// TestSpans_OfAForeignTask: each try of a task that an old executor has written is below
// the span in its record.
func TestSpans_OfAForeignTask(t *testing.T) {
	onLedgers(t, func(r *foreignRig) {
		s := newSpanRig()
		r.agent.call = func(_ context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			s.note(task)
			if len(s.told) == 1 {
				return withStatus(bridge.Answered, 503), nil
			}
			return answered(task, `{"text":"hello"}`), nil
		}
		r.begin("b", s.use)
		m := message(r.t, record("traced", "one"))
		m.Header = map[string]string{"traceparent": traceOne.Parent}
		r.publish(m)
		r.result("traced", 280*time.Second)
		r.wantQuiet()
		got := strings.Join(s.end(r.t), "\n")
		if want := "01 below 00f067aa0ba902b7: answered, try 1, 0s, agent_unavailable\n02 below 00f067aa0ba902b7: answered, try 2, 0s"; got != want || len(s.told) != 2 || s.told[0] != "0000000000000001" || s.told[1] != "0000000000000002" {
			r.t.Errorf("got\n%s\nthe agent was told %v", got, s.told)
		}
	})
}
