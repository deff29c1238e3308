package bridge_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/store"
)

// ways to learn of a cancel: a hint on the bus, or, if that is lost, the own
// rows a second later (P13).
var cancelWays = map[string]func(r *rig, id string){
	"hint": func(r *rig, id string) { r.ledger.requestCancel(id); r.hintCancel(id) },
	"row":  func(r *rig, id string) { r.ledger.requestCancel(id) },
}

// TestCancelInFlight: a call to an agent that has named no task is cut, and the
// attempt is settled as cancelled.
func TestCancelInFlight(t *testing.T) {
	for way, ask := range cancelWays {
		t.Run(way, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.agent.call = func(ctx context.Context, _ parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
					return hang(ctx), nil
				}
				p := r.start("b", nil)
				id := r.task("one", 1, policy(parley.OutcomeResend))
				r.wait(3500 * time.Millisecond)
				begun := time.Now()
				ask(r, id)
				wantSaid(t, r.want(id, parley.OutcomeCancelled, parley.CodeCancelled), true)
				if d := time.Since(begun); d > 1500*time.Millisecond {
					t.Errorf("cancelled after %v", d)
				}
				r.wantCalls(r.agent, id, 1)
				p.stop()
			})
		})
	}
}

// wantSaid: an attempt that was cancelled tells whether it had been sent (decision
// 049).
func wantSaid(t *testing.T, a store.Attempt, sent bool) {
	t.Helper()
	if said := a.Result.Err != nil && strings.Contains(a.Result.Err.Message, "may have executed it"); said != sent {
		t.Errorf("sent: %v, but it says: %v", sent, a.Result.Err)
	}
}

// TestCancelUnreached: an agent that was never reached has executed nothing; one
// that was reached the first time may have.
func TestCancelUnreached(t *testing.T) {
	for _, reached := range []int{0, 1} {
		inBubble(t, func(r *rig) {
			r.agent.call = func(ctx context.Context, _ parley.Task, n int, _ bridge.Progress) (bridge.Outcome, error) {
				if n <= reached {
					return lost(), nil
				}
				<-ctx.Done() // still connecting
				return failed(bridge.NotSent, parley.CodeAgentUnavailable, "no connection"), nil
			}
			p := r.start("b", nil)
			id := r.task("one", 1, policy(parley.OutcomeResend))
			r.wait(2500 * time.Millisecond)
			r.wantCalls(r.agent, id, reached+1)
			cancelWays["hint"](r, id)
			wantSaid(t, r.want(id, parley.OutcomeCancelled, parley.CodeCancelled), reached > 0)
			p.stop()
		})
	}
}

// TestCancelTakenOver: a task that a dead bridge has sent, and this one follows, was
// sent.
func TestCancelTakenOver(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.long.call = accepts("working")
		r.long.poll = func(_ context.Context, task parley.Task, _ int) (bridge.Outcome, error) {
			return accepted(task, "working"), nil
		}
		untold := func(cfg *bridge.Config, _ *process) { cfg.Adapters = []bridge.Adapter{asking{r.long}} }
		first := r.start("a", untold)
		id := r.task("long", 1, nil)
		r.announce(id)
		r.wait(2 * time.Second)
		first.kill()
		second := r.start("a", untold)
		r.wait(30 * time.Second)
		cancelWays["hint"](r, id)
		a := r.want(id, parley.OutcomeCancelled, parley.CodeCancelled)
		wantSaid(t, a, true)
		if a.Orphanings != 0 {
			t.Errorf("%d orphanings: it was not only followed", a.Orphanings)
		}
		r.wantCalls(r.long, id, 1)
		second.stop()
	})
}

// TestCancelAnswer: an answer that is on its way wins over the cancel.
func TestCancelAnswer(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			<-ctx.Done()
			return answered(task, `"done all the same"`), nil
		}
		p := r.start("b", nil)
		id := r.task("one", 1, nil)
		r.wait(2 * time.Second)
		cancelWays["hint"](r, id)
		r.want(id, parley.OutcomeOK, "")
		p.stop()
	})
}

// TestCancelNamesTask: an agent that can be told to stop gets a moment to name
// the task that it has just begun.
func TestCancelNamesTask(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.long.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			if out := takes(ctx, task, 3*time.Second); out.Disposition == bridge.Lost {
				return out, nil
			}
			return accepted(task, "working"), nil
		}
		p := r.start("b", nil)
		id, late := r.task("long", 1, nil), r.task("long", 2, nil)
		r.announce(id)
		r.wait(2500 * time.Millisecond) // named 500 ms from now
		cancelWays["hint"](r, id)
		r.want(id, parley.OutcomeCancelled, parley.CodeCancelled)
		if n := r.long.count(r.long.cancels, "agent-"+id); n != 1 {
			t.Errorf("the agent was told %d times", n)
		}
		r.want(late, parley.OutcomeOK, "")
		p.stop()
	})
}

// TestCancelUnnamed: an agent that can be told to stop, and does not name the task within
// that moment, is cut off. It would keep the attempt, and its slot, as long as it likes.
func TestCancelUnnamed(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.long.call = func(ctx context.Context, _ parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			return hang(ctx), nil
		}
		p := r.start("b", nil)
		id := r.task("long", 1, nil)
		r.announce(id)
		r.wait(2500 * time.Millisecond)
		begun := time.Now()
		cancelWays["hint"](r, id)
		wantSaid(t, r.want(id, parley.OutcomeCancelled, parley.CodeCancelled), true)
		if d := time.Since(begun); d < 900*time.Millisecond || d > 1100*time.Millisecond {
			t.Errorf("cut off after %v", d)
		}
		r.wantCalls(r.long, id, 1)
		p.stop()
	})
}

// TestCancelOfOrphan: a task whose cancel was requested while nobody had it in hand is
// not sent again by whoever takes it over.
func TestCancelOfOrphan(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent.call = hangsAtFirst
		former := r.start("a", nil)
		id := r.task("one", 1, policy(parley.OutcomeResend))
		r.announce(id)
		r.wait(2 * time.Second)
		former.kill()
		r.ledger.requestCancel(id)
		r.ledger.declareDead("a")
		p := r.start("b", nil)
		wantSaid(t, r.want(id, parley.OutcomeCancelled, parley.CodeCancelled), true)
		r.wantCalls(r.agent, id, 1)
		p.stop()
	})
}

// TestCancelFollowed: the agent is told, and its own word ends the attempt: a
// success within the grace is a success (language rule C3).
func TestCancelFollowed(t *testing.T) {
	working := func(_ context.Context, task parley.Task, _ int) (bridge.Outcome, error) {
		return accepted(task, "working"), nil
	}
	for _, c := range []struct {
		name    string
		adapter func(*scripted) bridge.Adapter
		cancel  func(context.Context, parley.Task, string) (bridge.Outcome, error)
		poll    pollScript
		outcome parley.Outcome
		code    parley.Code
		told    int
	}{
		{"ends", func(s *scripted) bridge.Adapter { return following{s} }, nil, working, parley.OutcomeCancelled, parley.CodeCancelled, 1},
		{
			"had completed", func(s *scripted) bridge.Adapter { return following{s} },
			func(_ context.Context, task parley.Task, _ string) (bridge.Outcome, error) {
				return answered(task, "1"), nil
			},
			working, parley.OutcomeOK, "", 1,
		},
		{
			"completes later", func(s *scripted) bridge.Adapter { return following{s} },
			func(_ context.Context, task parley.Task, _ string) (bridge.Outcome, error) {
				return accepted(task, "stopping"), nil
			},
			func(_ context.Context, task parley.Task, n int) (bridge.Outcome, error) {
				if n > 6 {
					return answered(task, "1"), nil
				}
				return accepted(task, "working"), nil
			}, parley.OutcomeOK, "", 1,
		},
		{"cannot be told", func(s *scripted) bridge.Adapter { return asking{s} }, nil, working, parley.OutcomeCancelled, parley.CodeCancelled, 0},
		{
			"has forgotten it", func(s *scripted) bridge.Adapter { return following{s} },
			func(context.Context, parley.Task, string) (bridge.Outcome, error) { return lost(), nil },
			func(_ context.Context, task parley.Task, n int) (bridge.Outcome, error) {
				if n > 3 {
					return failed(bridge.Lost, parley.CodeOutcomeUnknown, "no such task"), nil
				}
				return accepted(task, "working"), nil
			}, parley.OutcomeCancelled, parley.CodeCancelled, 4,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.long.call, r.long.poll, r.long.cancel = accepts("working"), c.poll, c.cancel
				p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Adapters = []bridge.Adapter{c.adapter(r.long)} })
				id := r.task("long", 1, nil)
				r.wait(2 * time.Second)
				cancelWays["hint"](r, id)
				cancelWays["hint"](r, id)
				r.want(id, c.outcome, c.code)
				if n := r.long.count(r.long.cancels, "agent-"+id); n != c.told {
					t.Errorf("the agent was told %d times, want %d", n, c.told)
				}
				p.stop()
			})
		})
	}
}

// TestCancelInsists: an agent that is away for a moment when it is to be told to stop is
// told again, and so is one whose attempt has ended without it. Else it would work on for
// nobody.
func TestCancelInsists(t *testing.T) {
	for name, end := range map[string]func(r *rig, id string){
		"cancelled": func(r *rig, id string) { cancelWays["hint"](r, id) },
		"ended":     func(r *rig, id string) { r.ledger.endNow(id, parley.OutcomeTimeout); r.hintCancel(id) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				stopped := 0
				r.long.call = accepts("working")
				r.long.poll = func(_ context.Context, task parley.Task, _ int) (bridge.Outcome, error) {
					return accepted(task, "working"), nil
				}
				r.long.cancel = func(_ context.Context, task parley.Task, id string) (bridge.Outcome, error) {
					switch r.long.count(r.long.cancels, id) {
					case 1:
						out := notSent()
						out.Result.RetryAfter = 3 * time.Second
						return out, nil
					case 2:
						return lost(), nil
					}
					stopped++
					return bridge.Outcome{Disposition: bridge.Answered, Result: parley.Result{TaskID: task.ID, Outcome: parley.OutcomeCancelled}}, nil
				}
				p := r.start("b", nil)
				id := r.task("long", 1, nil)
				r.wait(2 * time.Second)
				end(r, id)
				r.wait(10 * time.Second)
				if stopped != 1 || r.long.count(r.long.cancels, "agent-"+id) != 3 {
					t.Errorf("the agent has stopped %d times, and was told %d times", stopped, r.long.count(r.long.cancels, "agent-"+id))
				}
				if a := r.ledger.row(id); a.State == store.AttemptFollowing {
					t.Errorf("it is %s still", a.State)
				}
				p.stop()
			})
		})
	}
}

// TestCancelOfUnread: a task that was taken over is not called cancelled because what
// knows its agent does not answer just then. The agent is told when it does.
func TestCancelOfUnread(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.long.call = accepts("working")
		r.long.poll = func(_ context.Context, task parley.Task, _ int) (bridge.Outcome, error) {
			return accepted(task, "working"), nil
		}
		former := r.start("a", nil)
		id := r.task("long", 1, nil)
		r.wait(2 * time.Second)
		former.kill()
		r.ledger.declareDead("a")
		cancelWays["row"](r, id)
		var asked atomic.Int64
		var back atomic.Bool
		r.agents.unread = func() error {
			if asked.Add(1) == 1 || back.Load() { // it is known how many calls the agent takes
				return nil
			}
			return parley.Errorf(parley.CodeUnavailable, "the database cannot be reached")
		}
		p := r.start("b", nil)
		r.wait(2 * time.Second)
		back.Store(true)
		r.want(id, parley.OutcomeCancelled, parley.CodeCancelled)
		if n := r.long.count(r.long.cancels, "agent-"+id); n != 1 {
			t.Errorf("the agent was told %d times", n)
		}
		p.stop()
	})
}

// TestCancelWhileWaiting: between two tries nothing more is sent.
func TestCancelWhileWaiting(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent.call = func(context.Context, parley.Task, int, bridge.Progress) (bridge.Outcome, error) { return lost(), nil }
		p := r.start("b", nil)
		id := r.task("one", 1, policy(parley.OutcomeResend))
		r.wait(1500 * time.Millisecond)
		cancelWays["hint"](r, id)
		wantSaid(t, r.want(id, parley.OutcomeCancelled, parley.CodeCancelled), true)
		if n := r.agent.calls(id); n > 2 {
			t.Errorf("%d calls", n)
		}
		p.stop()
	})
}

// TestCancelReadWithClaim: a cancel that stands in the row is seen when the claim is
// written anew for the next try, though the bridge has not heard of it: nothing more
// is sent (§4.3).
func TestCancelReadWithClaim(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent.call = func(ctx context.Context, _ parley.Task, n int, _ bridge.Progress) (bridge.Outcome, error) {
			if n == 1 {
				return hang(ctx), nil
			}
			return notSent(), nil
		}
		p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.DrainGrace = time.Millisecond })
		id := r.task("one", 1, policy(parley.OutcomeResend))
		r.wait(3 * time.Second)
		p.stop()
		var deaf atomic.Bool
		q := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Ledger = unreadable{cfg.Ledger, &deaf} })
		for r.agent.calls(id) < 2 {
			r.wait(10 * time.Millisecond)
		}
		deaf.Store(true)
		cancelWays["row"](r, id)
		wantSaid(t, r.want(id, parley.OutcomeCancelled, parley.CodeCancelled), true)
		r.wantCalls(r.agent, id, 2)
		q.stop()
	})
}

// TestCancelBeforeSend: a cancel that comes between claim and guard is seen by
// the guard: nothing is sent (§4.3).
func TestCancelBeforeSend(t *testing.T) {
	inBubble(t, func(r *rig) {
		var id string
		p := r.start("b", func(cfg *bridge.Config, _ *process) {
			cfg.Failpoint = func(name string) error {
				if name == "claim.before-guard" {
					r.ledger.requestCancel(id)
					r.hintCancel(id)
					time.Sleep(100 * time.Millisecond)
				}
				return nil
			}
		})
		id = r.task("one", 1, nil)
		wantSaid(t, r.want(id, parley.OutcomeCancelled, parley.CodeCancelled), false)
		r.wantCalls(r.agent, id, 0)
		p.stop()
	})
}

// TestEndedElsewhere: a timer or a loser's end closes the attempt (P12). The
// call is cut, an agent that can be told is told, and nothing is written to
// the closed row; an answer that comes all the same is kept as late.
func TestEndedElsewhere(t *testing.T) {
	for _, hint := range []bool{true, false} {
		inBubble(t, func(r *rig) {
			r.agent.call = func(ctx context.Context, _ parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
				return hang(ctx), nil
			}
			r.long.call = accepts("working")
			r.long.poll = func(_ context.Context, task parley.Task, _ int) (bridge.Outcome, error) {
				return accepted(task, "working"), nil
			}
			reg := prometheus.NewRegistry()
			p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Metrics = bridge.NewMetrics(reg) })
			short, long := r.task("one", 1, policy(parley.OutcomeResend)), r.task("long", 1, policy(parley.OutcomeResend))
			r.wait(3 * time.Second)
			for _, id := range []string{short, long} {
				r.ledger.endNow(id, parley.OutcomeTimeout)
				if hint {
					r.hintCancel(id)
				}
			}
			r.wait(5 * time.Second)
			if n := r.long.count(r.long.cancels, "agent-"+long); n != 1 {
				t.Errorf("hint %v: the agent was told %d times", hint, n)
			}
			if r.agent.busy != 0 {
				t.Errorf("hint %v: the call goes on", hint)
			}
			for _, id := range []string{short, long} {
				if a := r.ledger.row(id); a.State != store.AttemptClosed || a.Result.Outcome != parley.OutcomeTimeout {
					t.Errorf("hint %v: %s is %s %s", hint, id, a.State, a.Result.Outcome)
				}
			}
			if late := r.ledger.lateAnswers(); len(late) != 1 || late[0].Result.Outcome != parley.OutcomeCancelled {
				t.Errorf("hint %v: late answers %+v, want the agent's own end", hint, late)
			}
			if got := gathered(t, reg); got["parley_agent_late_answers_total agent_name=long"] != 1 || got["parley_agent_late_answers_total agent_name=one"] != 0 {
				t.Errorf("hint %v: counted as late: %v", hint, got)
			}
			r.wantCalls(r.agent, short, 1)
			p.stop()
		})
	}
}
