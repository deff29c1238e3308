package bridge_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/store"
)

// TestNew: a protocol is registered by naming its adapter, once (AD-4).
func TestNew(t *testing.T) {
	r := &agentBook{}
	cfg := bridge.Config{
		Worker: "b", Ledger: newModel(), Agents: r, Bus: noBus{},
		Adapters: []bridge.Adapter{newScripted("z"), newScripted("a")},
	}
	b, err := bridge.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "z"}, b.Protocols()); diff != "" {
		t.Error(diff)
	}
	if _, ok := b.Reserve("one"); ok {
		t.Error("a slot before Run: nothing is registered that could claim")
	}
	cfg.Adapters = append(cfg.Adapters, newScripted("z"))
	if _, err := bridge.New(cfg); parley.CodeOf(err) != parley.CodeInvalid {
		t.Errorf("two adapters for one protocol: %v", err)
	}
	if _, err := bridge.New(bridge.Config{}); parley.CodeOf(err) != parley.CodeInvalid {
		t.Errorf("an empty configuration: %v", err)
	}
}

type noBus struct{}

func (noBus) Publish(context.Context, bus.Message) error { return nil }
func (noBus) Subscribe(context.Context, string, string, bus.Handler) (func(), error) {
	return func() {}, nil
}

// TestRunFails: Run says so if it cannot begin, and nothing is left running.
func TestRunFails(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.ledger.fault = func(op, _ string) fault {
			if op == "P16" {
				return refusedConnection
			}
			return noFault
		}
		p := r.start("b", nil)
		if err := <-p.ended; !errors.Is(err, errDoubt) {
			t.Errorf("Run: %v", err)
		}
		p.cancel()
	})
}

// TestTask: a record on the bus becomes a claim, a call, an answer and a
// wake-up (P4, P7), but no result record where nobody wants any.
func TestTask(t *testing.T) {
	inBubble(t, func(r *rig) {
		_, err := r.bus.Subscribe(t.Context(), bus.SubjectResults, "", func(_ context.Context, m bus.Message) error {
			t.Errorf("a result record: %s", m.Value)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		p := r.start("b", nil)
		id := r.task("one", 1, nil)
		a := r.want(id, parley.OutcomeOK, "")
		r.wantCalls(r.agent, id, 1)
		if got := string(a.Result.Output); got != `{"n":1}` || a.Result.TaskID != id {
			t.Errorf("result %s of %s", got, a.Result.TaskID)
		}
		synctest.Wait()
		if r.wakeups(a.Run) != 1 {
			t.Errorf("%d wake-ups", r.wakeups(a.Run))
		}
		if a.Claim.Worker != "b" || a.Claim.Inc != 1 || a.Claim.Token == "" {
			t.Errorf("claim %+v", a.Claim)
		}
		p.stop()
	})
}

// TestReserve: a slot taken beforehand saves the claim; its token is written by
// somebody else.
func TestReserve(t *testing.T) {
	inBubble(t, func(r *rig) {
		p := r.start("b", nil)
		slot, ok := p.Reserve("one")
		if !ok {
			t.Fatal("no slot")
		}
		id := r.task("one", 1, func(a *store.Attempt) { a.State, a.Claim = store.AttemptClaimed, slot.Claim })
		slot.Start(r.ledger.row(id))
		slot.Start(r.ledger.row(id)) // does nothing
		slot.Release()               // does nothing
		r.want(id, parley.OutcomeOK, "")
		r.wantCalls(r.agent, id, 1)
		if n := r.ledger.count("P4"); n != 0 {
			t.Errorf("%d claims besides", n)
		}
		p.stop()
		if _, ok := p.Reserve("one"); ok {
			t.Error("a slot after Run")
		}
	})
}

// TestReserveInDoubt: the write was in doubt, the slot was released, and the
// claim arrives after all: it is found and released, and nothing was sent
// under its token (protocol.md §4.1, §4.2, bad variant 10).
func TestReserveInDoubt(t *testing.T) {
	inBubble(t, func(r *rig) {
		p := r.start("b", nil)
		slot, _ := p.Reserve("one")
		slot.Release()
		slot.Release()
		id := r.task("one", 1, func(a *store.Attempt) { a.State, a.Claim = store.AttemptClaimed, slot.Claim })
		r.want(id, parley.OutcomeOK, "")
		r.wantCalls(r.agent, id, 1)
		if n := r.ledger.count(string(store.MoveRelease)); n != 1 {
			t.Errorf("%d releases", n)
		}
		p.stop()
	})
}

// TestReserveLimit: a record's limit holds, and a released slot is free again.
func TestReserveLimit(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agents.put(parley.Agent{Name: "two", Protocol: parley.ProtocolSimpleA2A, MaxConcurrent: 2})
		p := r.start("b", nil)
		first, ok1 := p.Reserve("two")
		second, ok2 := p.Reserve("two")
		_, ok3 := p.Reserve("two")
		if !ok1 || !ok2 || ok3 {
			t.Fatalf("slots %v %v %v, want two", ok1, ok2, ok3)
		}
		if first.Claim.Token == second.Claim.Token {
			t.Error("one token for two slots")
		}
		first.Release()
		again, ok := p.Reserve("two")
		if !ok || again.Claim.Token == first.Claim.Token {
			t.Errorf("slot %v after a release, token %q was %q", ok, again.Claim.Token, first.Claim.Token)
		}
		again.Release()
		second.Release()
		p.stop()
	})
}

// TestCannotBeSent: nothing reaches the agent, and everybody can read why.
func TestCannotBeSent(t *testing.T) {
	for _, c := range []struct {
		name string
		prep func(r *rig)
		code parley.Code
		text string
	}{
		{"unknown agent", func(r *rig) { delete(r.agents.m, "one") }, parley.CodeUnknownAgent, `there is no agent "one"`},
		{
			"unsupported protocol", func(r *rig) { r.agents.put(parley.Agent{Name: "one", Protocol: "soap"}) }, parley.CodeUnsupportedProtocol,
			"Unsupported protocol: soap. Supported protocols: jsonrpc-2.0, simple-a2a",
		},
		{"secret away", func(r *rig) {
			e := parley.Errorf(parley.CodeAgentUnavailable, "no secret")
			e.Retryable = true
			r.agents.fail = e
		}, parley.CodeAgentUnavailable, "no secret"},
		{"translation", func(r *rig) {
			r.agent.call = func(context.Context, parley.Task, int, bridge.Progress) (bridge.Outcome, error) {
				return bridge.Outcome{}, &bridge.TranslationError{Protocol: "p", Direction: "request", Err: errors.New("no text")}
			}
		}, parley.CodeInvalidInput, "no text"},
		{"rule of the language", func(r *rig) {
			r.agent.call = func(context.Context, parley.Task, int, bridge.Progress) (bridge.Outcome, error) {
				return bridge.Outcome{}, parley.Errorf(parley.CodeLimit, "too large")
			}
		}, parley.CodeLimit, "too large"},
		{"nothing sent", func(r *rig) {
			r.agent.call = func(context.Context, parley.Task, int, bridge.Progress) (bridge.Outcome, error) {
				return notSent(), nil
			}
		}, parley.CodeAgentUnavailable, "refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				c.prep(r)
				p := r.start("b", nil)
				id := r.task("one", 1, policy(parley.OutcomeResend))
				a := r.want(id, parley.OutcomeError, c.code)
				if e := a.Result.Err; !strings.Contains(e.Message, c.text) || e.Agent != "one" || e.Step != "a" || e.Attempt != 1 {
					t.Errorf("error %+v", e)
				}
				if r.ledger.count(string(store.MoveFail)) != 1 {
					t.Error("not settled by P8")
				}
				synctest.Wait()
				if r.wakeups(a.Run) != 1 {
					t.Errorf("%d wake-ups", r.wakeups(a.Run))
				}
				p.stop()
			})
		})
	}
}

// TestLookupFails: while what knows the agents does not answer, for whatever reason, no
// task fails and no try is spent: the attempt waits, and the agent is called once.
func TestLookupFails(t *testing.T) {
	for name, err := range map[string]error{
		"away":    parley.Errorf(parley.CodeUnavailable, "the database cannot be reached"),
		"failing": parley.Errorf(parley.CodeInternal, "database: no such column"),
		"unnamed": errors.New("no disk"),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.agents.answer(err)
				p := r.start("b", nil)
				id := r.task("one", 1, policy(parley.OutcomeFail))
				for range 60 {
					r.wait(time.Second)
				}
				if a := r.ledger.row(id); a.State == store.AttemptSettled || a.Attempt != 1 {
					t.Errorf("after a minute it is %s: %+v", a.State, a.Result)
				}
				if n := r.ledger.count(string(store.MoveRelease)); n < 5 || n > 40 {
					t.Errorf("it was given back %d times in a minute", n)
				}
				r.agents.answer(nil)
				r.want(id, parley.OutcomeOK, "")
				r.wantCalls(r.agent, id, 1)
				p.stop()
			})
		})
	}
}

// TestLimitUnknown: calls that were claimed while nobody could say how many their agent
// takes are no more than that once it is known. Those that are too many are claimed again.
func TestLimitUnknown(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agents.put(parley.Agent{Name: "one", Protocol: parley.ProtocolSimpleA2A, MaxConcurrent: 2})
		r.agents.answer(parley.Errorf(parley.CodeUnavailable, "the database cannot be reached"))
		r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			return takes(ctx, task, time.Second), nil
		}
		p := r.start("b", nil)
		var ids []string
		var slots []bridge.Reservation
		for i := range 6 {
			slot, ok := p.Reserve("one")
			if !ok {
				t.Fatalf("no slot for call %d", i)
			}
			slots = append(slots, slot)
			ids = append(ids, r.task("one", i, func(a *store.Attempt) { a.State, a.Claim = store.AttemptClaimed, slot.Claim }))
		}
		r.agents.answer(nil)
		for i, id := range ids {
			slots[i].Start(r.ledger.row(id))
		}
		for _, id := range ids {
			r.want(id, parley.OutcomeOK, "")
			r.wantCalls(r.agent, id, 1)
		}
		if n := r.ledger.count(string(store.MoveRelease)); r.agent.most != 2 || n != 4 {
			t.Errorf("%d calls at once, and %d were given back", r.agent.most, n)
		}
		p.stop()
	})
}

// TestOrphansOfUnread: what a dead bridge has left is not taken over before it is known
// how many calls its agent takes: it may have been sent, so it could not be given back.
func TestOrphansOfUnread(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agents.put(parley.Agent{Name: "one", Protocol: parley.ProtocolSimpleA2A, MaxConcurrent: 3})
		r.agent.call = func(ctx context.Context, task parley.Task, n int, _ bridge.Progress) (bridge.Outcome, error) {
			if n == 1 {
				return hang(ctx), nil
			}
			return takes(ctx, task, 10*time.Second), nil
		}
		former := r.start("a", nil)
		var ids []string
		for i := range 3 {
			ids = append(ids, r.task("one", i, policy(parley.OutcomeResend)))
			r.announce(ids[i])
		}
		r.wait(time.Second)
		former.kill()
		r.ledger.declareDead("a")
		r.agents.put(parley.Agent{Name: "one", Protocol: parley.ProtocolSimpleA2A, MaxConcurrent: 1})
		r.agents.answer(parley.Errorf(parley.CodeUnavailable, "the database cannot be reached"))
		r.agent.most = 0
		p := r.start("b", nil)
		r.wait(5 * time.Second)
		for _, id := range ids {
			if a := r.ledger.row(id); a.Claim.Worker != "a" {
				t.Errorf("%s was taken over by %s", id, a.Claim.Worker)
			}
		}
		r.agents.answer(nil)
		for _, id := range ids {
			if a := r.want(id, parley.OutcomeOK, ""); a.Orphanings != 1 {
				t.Errorf("%s has %d orphanings", id, a.Orphanings)
			}
		}
		if r.agent.most != 1 {
			t.Errorf("%d calls at once", r.agent.most)
		}
		p.stop()
	})
}

// TestTriesAreTheRuns: how often the agent of an own task is called is for the run to say,
// whatever its record says about tries: each of them is an attempt of its own (protocol.md
// §4.6).
func TestTriesAreTheRuns(t *testing.T) {
	busy := failed(bridge.Answered, parley.CodeAgentError, "busy")
	busy.Result.Err = busy.Result.Err.WithDetails(map[string]int{"status": 503})
	for name, out := range map[string]bridge.Outcome{"not sent": notSent(), "answered": busy} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.agents.put(parley.Agent{Name: "one", Protocol: parley.ProtocolSimpleA2A, Retry: parley.DefaultRetryConfig()})
				r.agent.call = func(context.Context, parley.Task, int, bridge.Progress) (bridge.Outcome, error) { return out, nil }
				p := r.start("b", nil)
				id := r.task("one", 1, func(a *store.Attempt) { a.Deadline = time.Now().Add(time.Hour) })
				r.announce(id)
				r.wait(time.Second)
				if a := r.ledger.row(id); a.State != store.AttemptSettled || a.Result.Outcome != parley.OutcomeError {
					t.Errorf("it is %s after its call", a.State)
				}
				r.wait(time.Minute)
				r.wantCalls(r.agent, id, 1)
				p.stop()
			})
		})
	}
}

// TestAnswers: whatever an adapter hands over, the ledger gets an answer that
// it can hold.
func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		name    string
		result  parley.Result
		outcome parley.Outcome
		code    parley.Code
	}{
		{"no output", parley.Result{Outcome: parley.OutcomeOK}, parley.OutcomeOK, ""},
		{"failure", parley.Result{Outcome: parley.OutcomeError, Output: []byte("1"), Err: parley.Errorf(parley.CodeAgentRejected, "no")}, parley.OutcomeError, parley.CodeAgentRejected},
		{"no word", parley.Result{}, parley.OutcomeError, parley.CodeAgentError},
		{"cancelled", parley.Result{Outcome: parley.OutcomeCancelled}, parley.OutcomeCancelled, parley.CodeCancelled},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.agent.call = func(context.Context, parley.Task, int, bridge.Progress) (bridge.Outcome, error) {
					return bridge.Outcome{Disposition: bridge.Answered, Result: c.result}, nil
				}
				p := r.start("b", nil)
				a := r.want(r.task("one", 1, nil), c.outcome, c.code)
				if (a.Result.Outcome == parley.OutcomeOK) != (len(a.Result.Output) > 0) {
					t.Errorf("output %q with %s", a.Result.Output, a.Result.Outcome)
				}
				p.stop()
			})
		})
	}
}

// TestPolicies is language rule R1: what is known decides, and else the policy.
func TestPolicies(t *testing.T) {
	always := func(o func() bridge.Outcome) func(context.Context, parley.Task, int, bridge.Progress) (bridge.Outcome, error) {
		return func(context.Context, parley.Task, int, bridge.Progress) (bridge.Outcome, error) { return o(), nil }
	}
	secondTime := func(_ context.Context, task parley.Task, n int, _ bridge.Progress) (bridge.Outcome, error) {
		if n == 1 {
			return lost(), nil
		}
		return answered(task, `"second"`), nil
	}
	thenRefused := func(_ context.Context, task parley.Task, n int, _ bridge.Progress) (bridge.Outcome, error) {
		return []bridge.Outcome{lost(), notSent(), notSent(), answered(task, `"at last"`)}[n-1], nil
	}
	for _, c := range []struct {
		name    string
		policy  parley.OutcomePolicy
		script  func(context.Context, parley.Task, int, bridge.Progress) (bridge.Outcome, error)
		outcome parley.Outcome
		code    parley.Code
		calls   int
	}{
		{"lost, fail", parley.OutcomeFail, always(lost), parley.OutcomeUnknown, parley.CodeOutcomeUnknown, 1},
		{"lost, lookup cannot decide", parley.OutcomeLookup, always(lost), parley.OutcomeUnknown, parley.CodeOutcomeUnknown, 1},
		{"lost, resend answers", parley.OutcomeResend, secondTime, parley.OutcomeOK, "", 2},
		{"lost, resend gives up", parley.OutcomeResend, always(lost), parley.OutcomeUnknown, parley.CodeOutcomeUnknown, 3},
		{"lost, then not sent: tried later", parley.OutcomeResend, thenRefused, parley.OutcomeOK, "", 4},
		{"a row without a policy is never sent again", "", secondTime, parley.OutcomeUnknown, parley.CodeOutcomeUnknown, 1},
		{"an adapter that says nothing", parley.OutcomeFail, always(func() bridge.Outcome { return bridge.Outcome{} }), parley.OutcomeUnknown, parley.CodeOutcomeUnknown, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.agent.call = c.script
				p := r.start("b", nil)
				id := r.task("one", 1, policy(c.policy))
				a := r.want(id, c.outcome, c.code)
				r.wantCalls(r.agent, id, c.calls)
				if c.code == parley.CodeOutcomeUnknown && (a.Result.Err.Cause == nil || a.Result.Err.Retryable) {
					t.Errorf("error %+v has no cause, or would be retried", a.Result.Err)
				}
				p.stop()
			})
		})
	}
}

// TestAgentPolicy: the attempt's frozen policy wins over the agent's, which
// wins over the protocol's.
func TestAgentPolicy(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agents.put(parley.Agent{Name: "one", Protocol: parley.ProtocolSimpleA2A, OutcomeUnknown: parley.OutcomeFail})
		r.agent.call = func(context.Context, parley.Task, int, bridge.Progress) (bridge.Outcome, error) { return lost(), nil }
		p := r.start("b", nil)
		agents, frozen := r.task("one", 1, policy("")), r.task("one", 2, policy(parley.OutcomeResend))
		r.want(agents, parley.OutcomeUnknown, parley.CodeOutcomeUnknown)
		r.want(frozen, parley.OutcomeUnknown, parley.CodeOutcomeUnknown)
		r.wantCalls(r.agent, agents, 1)
		r.wantCalls(r.agent, frozen, 3)
		p.stop()
	})
	if bridge.DefaultPolicy(parley.ProtocolJSONRPC) != parley.OutcomeLookup || bridge.DefaultPolicy(parley.ProtocolSimpleA2A) != parley.OutcomeResend {
		t.Error("default policies of language rule R1")
	}
}

// TestResendDelays: the same attempt is sent again after 1 s and 2 s.
func TestResendDelays(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent.call = func(context.Context, parley.Task, int, bridge.Progress) (bridge.Outcome, error) { return lost(), nil }
		p := r.start("b", nil)
		id := r.task("one", 1, policy(parley.OutcomeResend))
		r.want(id, parley.OutcomeUnknown, parley.CodeOutcomeUnknown)
		log := r.agent.log[id]
		if d1, d2 := log[1].Sub(log[0]), log[2].Sub(log[1]); d1 != time.Second || d2 != 2*time.Second {
			t.Errorf("delays %v and %v", d1, d2)
		}
		p.stop()
	})
}
