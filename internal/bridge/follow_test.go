package bridge_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/store"
)

type callScript = func(context.Context, parley.Task, int, bridge.Progress) (bridge.Outcome, error)

type pollScript = func(context.Context, parley.Task, int) (bridge.Outcome, error)

func accepts(state string) callScript {
	return func(_ context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
		return accepted(task, state), nil
	}
}

// TestFollow: the agent's task id is durable before the first poll, polls come
// less and less often, and the answer is written (P6, P7).
func TestFollow(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.long.call = accepts("working")
		r.long.poll = func(_ context.Context, task parley.Task, n int) (bridge.Outcome, error) {
			if a := r.ledger.row(task.ID); a.State != store.AttemptFollowing || a.AgentTaskID != "agent-"+task.ID {
				t.Errorf("polled while the row says %s %q", a.State, a.AgentTaskID)
			}
			switch n {
			case 1, 2, 3, 4, 5, 6:
				return accepted(task, "working"), nil
			case 7:
				return notSent(), nil
			case 8:
				return lost(), nil
			case 9:
				return bridge.Outcome{}, parley.Errorf(parley.CodeInternal, "a fault of the adapter")
			}
			return answered(task, `"followed"`), nil
		}
		p := r.start("b", nil)
		id := r.task("long", 1, nil)
		a := r.want(id, parley.OutcomeOK, "")
		r.wantCalls(r.long, id, 1)
		if a.Result.AgentTaskID != "agent-"+id {
			t.Errorf("agent's task id %q", a.Result.AgentTaskID)
		}
		polls := r.long.polls[id]
		for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second, 10 * time.Second} {
			if got := polls[i+1].Sub(polls[i]); got != want {
				t.Errorf("poll %d came after %v, want %v", i+2, got, want)
			}
		}
		synctest.Wait()
		if r.wakeups(a.Run) != 1 {
			t.Errorf("%d wake-ups", r.wakeups(a.Run))
		}
		p.stop()
	})
}

// TestFollowChange: a state that changes is polled sooner again, and is a sign
// of life; one that stays the same is not (language rule T2).
func TestFollowChange(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.long.call = accepts("0")
		r.long.poll = func(_ context.Context, task parley.Task, n int) (bridge.Outcome, error) {
			return accepted(task, strings.Repeat("x", min(n/8, 10))), nil
		}
		p := r.start("b", nil)
		id := r.task("long", 1, func(a *store.Attempt) { a.Policy.Silence = time.Minute })
		begun := time.Now()
		a := r.want(id, parley.OutcomeError, parley.CodeStalled)
		polls := r.long.polls[id]
		if changed := polls[79].Sub(begun); time.Since(begun).Round(time.Second) < changed+time.Minute || changed < 2*time.Minute {
			t.Errorf("stalled after %v, the last change was at %v", time.Since(begun), changed)
		}
		if !a.Result.Err.Retryable || r.long.cancels["agent-"+id] != 1 {
			t.Errorf("error %+v, %d cancels", a.Result.Err, r.long.cancels["agent-"+id])
		}
		p.stop()
	})
}

// TestFollowInputRequired: silence and attempt timeout stand still while the
// agent waits for a person (language rule T2).
func TestFollowInputRequired(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.long.call = accepts("working")
		begun := time.Now()
		r.long.poll = func(_ context.Context, task parley.Task, _ int) (bridge.Outcome, error) {
			switch since := time.Since(begun); {
			case since > 30*time.Second && since < 2*time.Hour:
				return asks(task, "which year?"), nil
			case since >= 2*time.Hour:
				return accepted(task, "working again"), nil
			}
			return accepted(task, "working"), nil
		}
		p := r.start("b", nil)
		id := r.task("long", 1, func(a *store.Attempt) { a.Policy.AttemptTimeout = 5 * time.Minute })
		r.wait(time.Hour)
		if s := r.ledger.row(id).State; s != store.AttemptFollowing {
			t.Fatalf("%s after an hour", s)
		}
		if q := r.ledger.row(id).Question; q == nil || q.Text != "which year?" {
			t.Errorf("question %+v", q)
		}
		r.wait(time.Hour)
		a := r.want(id, parley.OutcomeError, parley.CodeTimeout)
		if d := time.Since(begun) - 2*time.Hour; d < 4*time.Minute || d > 5*time.Minute+30*time.Second {
			t.Errorf("timeout %v after the agent went on: %v", d, a.Result.Err)
		}
		p.stop()
	})
}

// TestUnfollowable: an agent that works on and cannot be asked gives an error
// with its state.
func TestUnfollowable(t *testing.T) {
	for _, c := range []struct {
		name, text string
		out        func(parley.Task, bridge.Progress) bridge.Outcome
	}{
		{"adapter cannot ask", "Task state: working", func(task parley.Task, _ bridge.Progress) bridge.Outcome { return accepted(task, "working") }},
		{"state from progress", "Task state: queued", func(task parley.Task, p bridge.Progress) bridge.Outcome {
			p(bridge.Report{State: "queued"})
			return accepted(task, "")
		}},
		{"no state", "Task state: unknown", func(task parley.Task, _ bridge.Progress) bridge.Outcome { return accepted(task, "") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.agent.call = func(_ context.Context, task parley.Task, _ int, p bridge.Progress) (bridge.Outcome, error) {
					return c.out(task, p), nil
				}
				p := r.start("b", nil)
				a := r.want(r.task("one", 1, nil), parley.OutcomeError, parley.CodeAgentError)
				if a.Result.Err.Message != c.text {
					t.Errorf("error %q, want %q", a.Result.Err.Message, c.text)
				}
				p.stop()
			})
		})
	}
}

// TestForgotten: an agent that no longer knows its task leaves the outcome
// unknown, or gets the task again under resend (protocol.md §4.7).
func TestForgotten(t *testing.T) {
	for _, c := range []struct {
		policy  parley.OutcomePolicy
		outcome parley.Outcome
		code    parley.Code
		calls   int
	}{
		{parley.OutcomeLookup, parley.OutcomeUnknown, parley.CodeOutcomeUnknown, 1},
		{parley.OutcomeFail, parley.OutcomeUnknown, parley.CodeOutcomeUnknown, 1},
		{parley.OutcomeResend, parley.OutcomeOK, "", 2},
	} {
		t.Run(string(c.policy), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.long.call = func(_ context.Context, task parley.Task, n int, _ bridge.Progress) (bridge.Outcome, error) {
					if n == 2 {
						return answered(task, "2"), nil
					}
					return accepted(task, "working"), nil
				}
				r.long.poll = func(context.Context, parley.Task, int) (bridge.Outcome, error) {
					return failed(bridge.Lost, parley.CodeNotFound, "no such task"), nil
				}
				p := r.start("b", nil)
				id := r.task("long", 1, policy(c.policy))
				r.want(id, c.outcome, c.code)
				r.wantCalls(r.long, id, c.calls)
				p.stop()
			})
		})
	}
}

// TestAnswerIsNotForgotten: what an agent answers is its answer whatever the code is, and
// is never sent again: a code that would name a task that is gone says so only where there
// is no answer.
func TestAnswerIsNotForgotten(t *testing.T) {
	for _, code := range []parley.Code{parley.CodeNotFound, parley.CodeOutcomeUnknown} {
		inBubble(t, func(r *rig) {
			r.long.call = accepts("working")
			r.long.poll = func(context.Context, parley.Task, int) (bridge.Outcome, error) {
				return failed(bridge.Answered, code, "no such account"), nil
			}
			p := r.start("b", nil)
			id := r.task("long", 1, policy(parley.OutcomeResend))
			r.want(id, parley.OutcomeError, code)
			r.wantCalls(r.long, id, 1)
			p.stop()
		})
	}
}

// TestProtocolChanged: an agent that speaks another protocol by now, in which it
// cannot be asked, has its task forgotten: sent again where the policy says so.
func TestProtocolChanged(t *testing.T) {
	for policyOf, want := range map[parley.OutcomePolicy]parley.Outcome{
		parley.OutcomeFail: parley.OutcomeUnknown, parley.OutcomeResend: parley.OutcomeOK,
	} {
		inBubble(t, func(r *rig) {
			r.long.call = accepts("working")
			r.long.poll = func(_ context.Context, task parley.Task, _ int) (bridge.Outcome, error) {
				return accepted(task, "working"), nil
			}
			p := r.start("b", nil)
			id := r.task("long", 1, policy(policyOf))
			r.wait(10 * time.Second)
			r.agents.put(parley.Agent{Name: "long", Protocol: parley.ProtocolSimpleA2A})
			a := r.settled(id, 5*time.Minute)
			if a.Result.Outcome != want {
				t.Errorf("%s: %s, %v", policyOf, a.Result.Outcome, a.Result.Err)
			}
			if e := a.Result.Err; want == parley.OutcomeUnknown && (e == nil || !strings.Contains(e.Error(), "cannot be asked about a task")) {
				t.Errorf("%s: %v", policyOf, e)
			}
			sent := 0
			if policyOf == parley.OutcomeResend {
				sent = 1
			}
			r.wantCalls(r.long, id, 1)
			r.wantCalls(r.agent, id, sent)
			p.stop()
		})
	}
}

// TestTooLargeToRead: a task that is larger than answers may be will not get
// smaller: its outcome is unknown at once, and it is never sent again (decision
// 005).
func TestTooLargeToRead(t *testing.T) {
	for _, p := range []parley.OutcomePolicy{parley.OutcomeLookup, parley.OutcomeFail, parley.OutcomeResend} {
		t.Run(string(p), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.long.call = accepts("working")
				polls := 0
				r.long.poll = func(context.Context, parley.Task, int) (bridge.Outcome, error) {
					polls++
					return failed(bridge.Lost, parley.CodeLimit, "the body of the response is larger than 5 bytes"), nil
				}
				b := r.start("b", nil)
				id := r.task("long", 1, policy(p))
				a := r.want(id, parley.OutcomeUnknown, parley.CodeOutcomeUnknown)
				if e := a.Result.Err; e == nil || e.Cause == nil || e.Cause.Code != parley.CodeLimit || !strings.Contains(e.Message, "larger than 5 bytes") {
					t.Errorf("error %v", e)
				}
				r.wantCalls(r.long, id, 1)
				if polls != 1 {
					t.Errorf("polled %d times", polls)
				}
				b.stop()
			})
		})
	}
}

// TestLostWithTaskID: the connection broke after the agent had named its task:
// it is asked, whatever the policy (language rule R1).
func TestLostWithTaskID(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.long.call = func(_ context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			out := lost()
			out.AgentTaskID = "agent-" + task.ID
			return out, nil
		}
		p := r.start("b", nil)
		id := r.task("long", 1, policy(parley.OutcomeFail))
		r.want(id, parley.OutcomeOK, "")
		r.wantCalls(r.long, id, 1)
		p.stop()
	})
}

// TestFollowAcrossRestart: a followed task goes on in the next life of the
// bridge, or in another bridge, and is never sent again (P9).
func TestFollowAcrossRestart(t *testing.T) {
	for _, next := range []string{"b", "other"} {
		for _, how := range []string{"stop", "kill"} {
			t.Run(how+" then "+next, func(t *testing.T) {
				inBubble(t, func(r *rig) {
					r.long.call = accepts("working")
					done := false
					r.long.poll = func(_ context.Context, task parley.Task, _ int) (bridge.Outcome, error) {
						if done {
							return answered(task, `"late but good"`), nil
						}
						return accepted(task, "working"), nil
					}
					p := r.start("b", nil)
					id := r.task("long", 1, policy(parley.OutcomeFail))
					r.wait(time.Minute)
					if how == "stop" {
						begun := time.Now()
						p.stop()
						if d := time.Since(begun); d > time.Second {
							t.Errorf("a task that is only followed held the stop up for %v", d)
						}
					} else {
						p.kill()
					}
					done = true
					q := r.start(next, nil)
					if next != "b" {
						r.ledger.declareDead("b")
					}
					a := r.want(id, parley.OutcomeOK, "")
					r.wantCalls(r.long, id, 1)
					if a.Orphanings != 0 {
						t.Errorf("%d orphanings: following needs no lease", a.Orphanings)
					}
					q.stop()
				})
			})
		}
	}
}

// TestAcceptedTooLate: the agent names its task when the attempt is not this
// bridge's any more. If it has ended, the agent is told to stop, and its stream closed; if
// somebody has taken it over, this bridge alone knows the task, and asks on.
func TestAcceptedTooLate(t *testing.T) {
	for _, ended := range []bool{true, false} {
		inBubble(t, func(r *rig) {
			stream := &silentStream{closed: make(chan struct{})}
			r.long.call = func(ctx context.Context, task parley.Task, n int, _ bridge.Progress) (bridge.Outcome, error) {
				if n > 1 {
					return hang(ctx), nil
				}
				takes(ctx, task, 1800*time.Millisecond)
				out := accepted(task, "working")
				if ended {
					out.Stream = stream
				}
				return out, nil
			}
			r.long.poll = func(_ context.Context, task parley.Task, n int) (bridge.Outcome, error) {
				if n < 3 {
					return accepted(task, "working"), nil
				}
				return answered(task, `"mine"`), nil
			}
			p := r.start("b", nil)
			id := r.task("long", 1, policy(parley.OutcomeResend))
			r.announce(id)
			synctest.Wait()
			if ended {
				r.ledger.endNow(id, parley.OutcomeTimeout)
				r.wait(4 * time.Second)
				if n := r.long.count(r.long.cancels, "agent-"+id); n != 1 {
					t.Errorf("the agent was told %d times", n)
				}
				if late := r.ledger.lateAnswers(); len(late) != 1 || late[0].Result.Outcome != parley.OutcomeCancelled {
					t.Errorf("late answers %+v, want what the agent said when it was told", late)
				}
				select {
				case <-stream.closed:
				default:
					t.Error("its stream is open still")
				}
				p.stop()
				return
			}
			r.ledger.declareDead("b")
			q := r.start("other", func(cfg *bridge.Config, _ *process) { cfg.DrainGrace = time.Millisecond })
			r.wait(1100 * time.Millisecond)
			if c := r.ledger.row(id).Claim; c.Worker != "other" {
				t.Fatalf("claim %+v", c)
			}
			r.wait(4 * time.Second) // b has registered anew
			a := r.want(id, parley.OutcomeOK, "")
			if string(a.Result.Output) != `"mine"` {
				t.Errorf("output %s", a.Result.Output)
			}
			p.stop()
			q.stop()
		})
	}
}

// TestTimeLimits: attempt timeout, silence and deadline, in flight and while
// followed (language rules R1 and T2, protocol.md §4.8).
func TestTimeLimits(t *testing.T) {
	hangs := func(ctx context.Context, _ parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
		return hang(ctx), nil
	}
	dials := func(ctx context.Context, _ parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
		<-ctx.Done()
		return notSent(), nil
	}
	working := func(_ context.Context, task parley.Task, _ int) (bridge.Outcome, error) {
		return accepted(task, "working"), nil
	}
	attempt := func(p *store.Policy) { p.AttemptTimeout = 20 * time.Second }
	silence := func(p *store.Policy) { p.Silence = 30 * time.Second }
	for _, c := range []struct {
		name    string
		call    callScript
		poll    pollScript
		limit   func(*store.Policy)
		policy  parley.OutcomePolicy
		outcome parley.Outcome
		code    parley.Code
		cause   parley.Code
		details string
		calls   int
		after   time.Duration
	}{
		{"attempt timeout, outcome unknown", hangs, nil, attempt, parley.OutcomeFail, parley.OutcomeUnknown, parley.CodeOutcomeUnknown, parley.CodeTimeout, `{"limit":"attempt_timeout"}`, 1, 20 * time.Second},
		{"silence, outcome unknown", hangs, nil, silence, parley.OutcomeLookup, parley.OutcomeUnknown, parley.CodeOutcomeUnknown, parley.CodeStalled, `{"limit":"silence"}`, 1, 30 * time.Second},
		{"attempt timeout, resend", hangs, nil, attempt, parley.OutcomeResend, parley.OutcomeUnknown, parley.CodeOutcomeUnknown, parley.CodeTimeout, `{"limit":"attempt_timeout"}`, 3, 63 * time.Second},
		{"nothing was sent", dials, nil, attempt, parley.OutcomeFail, parley.OutcomeError, parley.CodeTimeout, "", `{"limit":"attempt_timeout"}`, 1, 20 * time.Second},
		{"followed, attempt timeout", accepts("working"), working, attempt, parley.OutcomeFail, parley.OutcomeError, parley.CodeTimeout, "", `{"limit":"attempt_timeout"}`, 1, 20 * time.Second},
		{"followed, silence", accepts("working"), working, silence, parley.OutcomeResend, parley.OutcomeError, parley.CodeStalled, "", `{"limit":"silence"}`, 1, 30 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.long.call, r.long.poll = c.call, c.poll
				r.long.cancel = func(context.Context, parley.Task, string) (bridge.Outcome, error) { return lost(), nil }
				p := r.start("b", nil)
				id := r.task("long", 1, func(a *store.Attempt) { a.Policy.OutcomeUnknown = c.policy; c.limit(&a.Policy) })
				r.announce(id)
				begun := time.Now()
				a := r.want(id, c.outcome, c.code)
				if d := time.Since(begun); d < c.after || d > c.after+2*time.Second {
					t.Errorf("settled after %v, want %v", d, c.after)
				}
				r.wantCalls(r.long, id, c.calls)
				e := a.Result.Err
				if c.cause != "" {
					if e.Cause == nil || e.Cause.Code != c.cause {
						t.Fatalf("cause %+v, want %s", e.Cause, c.cause)
					}
					e = e.Cause
				}
				if string(e.Details) != c.details {
					t.Errorf("details %s, want %s", e.Details, c.details)
				}
				p.stop()
			})
		})
	}
}

// TestOverdue: what is written when the time for a followed task is up depends
// on what the agent says to the cancel.
func TestOverdue(t *testing.T) {
	completed := func(_ context.Context, task parley.Task, _ string) (bridge.Outcome, error) {
		return answered(task, `"just in time"`), nil
	}
	refused := func(context.Context, parley.Task, string) (bridge.Outcome, error) { return notSent(), nil }
	for _, c := range []struct {
		name    string
		adapter func(*scripted) bridge.Adapter
		cancel  func(context.Context, parley.Task, string) (bridge.Outcome, error)
		outcome parley.Outcome
		code    parley.Code
	}{
		{"cancelled", func(s *scripted) bridge.Adapter { return following{s} }, nil, parley.OutcomeError, parley.CodeTimeout},
		{"completed meanwhile", func(s *scripted) bridge.Adapter { return following{s} }, completed, parley.OutcomeOK, ""},
		{"cannot be reached", func(s *scripted) bridge.Adapter { return following{s} }, refused, parley.OutcomeUnknown, parley.CodeOutcomeUnknown},
		{"cannot be told", func(s *scripted) bridge.Adapter { return asking{s} }, nil, parley.OutcomeUnknown, parley.CodeOutcomeUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.long.call, r.long.cancel = accepts("working"), c.cancel
				r.long.poll = func(_ context.Context, task parley.Task, _ int) (bridge.Outcome, error) {
					return accepted(task, "working"), nil
				}
				p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Adapters = []bridge.Adapter{c.adapter(r.long)} })
				id := r.task("long", 1, func(a *store.Attempt) {
					a.Policy = store.Policy{OutcomeUnknown: parley.OutcomeLookup, AttemptTimeout: time.Minute}
				})
				r.want(id, c.outcome, c.code)
				p.stop()
			})
		})
	}
}

// TestDeadline: at a task's deadline the executor's timer has the word; only
// if it does not come the bridge ends the attempt, and sends nothing more.
func TestDeadline(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent.call = func(ctx context.Context, _ parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			return hang(ctx), nil
		}
		p := r.start("b", nil)
		begun := time.Now()
		id := r.task("one", 1, func(a *store.Attempt) {
			a.Policy.OutcomeUnknown, a.Deadline = parley.OutcomeResend, begun.Add(10*time.Second)
		})
		a := r.want(id, parley.OutcomeUnknown, parley.CodeOutcomeUnknown)
		if d := time.Since(begun); d < 10*time.Second || d > 14*time.Second {
			t.Errorf("settled after %v", d)
		}
		if a.Result.Err.Cause.Code != parley.CodeTimeout {
			t.Errorf("cause %v", a.Result.Err.Cause)
		}
		r.wantCalls(r.agent, id, 1)
		p.stop()
	})
}

// TestSilence: each sign of life renews it.
func TestSilence(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent.call = func(ctx context.Context, task parley.Task, _ int, p bridge.Progress) (bridge.Outcome, error) {
			for range 10 {
				if out := takes(ctx, task, 50*time.Second); out.Disposition == bridge.Lost {
					return out, nil
				}
				p(bridge.Report{State: "working", Text: "still here"})
			}
			return hang(ctx), nil
		}
		p := r.start("b", nil)
		id := r.task("one", 1, func(a *store.Attempt) { a.Policy.Silence = time.Minute })
		r.announce(id)
		begun := time.Now()
		a := r.want(id, parley.OutcomeUnknown, parley.CodeOutcomeUnknown)
		if d := time.Since(begun).Round(time.Second); d != 560*time.Second || a.Result.Err.Cause.Code != parley.CodeStalled {
			t.Errorf("after %v: %v", d, a.Result.Err.Cause)
		}
		p.stop()
	})
}

// TestSilenceOfTheNextTry: the signs of life of a call that was lost do not count for the
// one after it.
func TestSilenceOfTheNextTry(t *testing.T) {
	inBubble(t, func(r *rig) {
		var begun time.Time
		r.agent.call = func(ctx context.Context, _ parley.Task, n int, p bridge.Progress) (bridge.Outcome, error) {
			if n > 1 {
				begun = time.Now()
				return hang(ctx), nil
			}
			for range 10 {
				time.Sleep(30 * time.Second)
				p(bridge.Report{Text: "at it"})
			}
			return lost(), nil
		}
		p := r.start("b", nil)
		id := r.task("one", 1, func(a *store.Attempt) {
			a.Policy.OutcomeUnknown, a.Policy.Silence = parley.OutcomeResend, time.Minute
		})
		r.settled(id, time.Hour)
		r.wantCalls(r.agent, id, 3)
		if d := time.Since(begun); d > 62*time.Second {
			t.Errorf("silent for %v, the limit is a minute", d)
		}
		p.stop()
	})
}

// TestSentAgainTakesASlot: a task that its agent has forgotten, and that is sent once
// more, is a call like any other. It left its slot to others while it was followed.
func TestSentAgainTakesASlot(t *testing.T) {
	inBubble(t, func(r *rig) {
		var forgets atomic.Bool
		r.long.call = func(ctx context.Context, task parley.Task, n int, _ bridge.Progress) (bridge.Outcome, error) {
			if task.Run == "run-long-1" && n == 1 {
				return accepted(task, "working"), nil
			}
			return takes(ctx, task, 30*time.Second), nil
		}
		r.long.poll = func(_ context.Context, task parley.Task, _ int) (bridge.Outcome, error) {
			if forgets.Load() {
				return failed(bridge.Lost, parley.CodeOutcomeUnknown, "no such task"), nil
			}
			return accepted(task, "working"), nil
		}
		p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Limits.PerAgent = 1 })
		id := r.task("long", 1, policy(parley.OutcomeResend))
		r.announce(id)
		r.wait(2 * time.Second)
		if slot, ok := p.Reserve("long"); !ok {
			t.Error("no slot though the task is only followed")
		} else {
			slot.Release()
		}
		forgets.Store(true)
		for r.long.calls(id) < 2 {
			r.wait(100 * time.Millisecond)
		}
		if slot, ok := p.Reserve("long"); ok {
			t.Error("a slot though the agent has a call, and may have one")
			slot.Release()
		}
		r.want(id, parley.OutcomeOK, "")
		p.stop()
	})
}

// TestLimitOfAFormerTry: that a limit has ended one call says nothing about the next one,
// which was not even sent.
func TestLimitOfAFormerTry(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent.call = func(ctx context.Context, task parley.Task, n int, _ bridge.Progress) (bridge.Outcome, error) {
			switch n {
			case 1:
				return hang(ctx), nil
			case 2:
				return notSent(), nil
			}
			return answered(task, "3"), nil
		}
		p := r.start("b", nil)
		id := r.task("one", 1, func(a *store.Attempt) {
			a.Policy.OutcomeUnknown, a.Policy.AttemptTimeout = parley.OutcomeResend, 30*time.Second
		})
		if a := r.want(id, parley.OutcomeOK, ""); a.Orphanings != 1 {
			t.Errorf("%d orphanings", a.Orphanings)
		}
		r.wantCalls(r.agent, id, 3)
		p.stop()
	})
}
