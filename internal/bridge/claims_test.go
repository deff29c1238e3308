package bridge_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/store"
)

// TestGuardStaleLease: while no beat gets through, nothing begins: whatever was
// claimed is released, nothing more is claimed, and all is called once the lease is
// good again (§4.3).
func TestGuardStaleLease(t *testing.T) {
	inBubble(t, func(r *rig) {
		blind := true
		r.ledger.fault = func(op, _ string) fault {
			if op == "beat" && blind {
				return refusedConnection
			}
			if op == "P4" {
				time.Sleep(100 * time.Millisecond) // else one that is in vain again and again takes no time
			}
			return noFault
		}
		p := r.start("b", nil)
		r.wait(9500 * time.Millisecond)
		early, ok := p.Reserve("one")
		if !ok {
			t.Fatal("no slot though the lease is good")
		}
		r.wait(2 * time.Second) // ⅔ of the lease are over
		if slot, ok := p.Reserve("one"); ok {
			t.Error("a slot though the lease may be over")
			slot.Release()
		}
		id := r.task("one", 1, nil)
		reserved := r.task("one", 2, func(a *store.Attempt) { a.State, a.Claim = store.AttemptClaimed, early.Claim })
		early.Start(r.ledger.row(reserved))
		r.wait(20 * time.Second)
		if n := r.ledger.count("P4"); n > 0 {
			t.Errorf("%d claims that the guard would refuse", n)
		}
		if r.agent.calls(id)+r.agent.calls(reserved) > 0 {
			t.Error("called under a lease that may be over")
		}
		if n := r.ledger.count(string(store.MoveRelease)); n != 1 {
			t.Errorf("%d releases", n)
		}
		blind = false
		r.want(id, parley.OutcomeOK, "")
		r.want(reserved, parley.OutcomeOK, "")
		r.wantCalls(r.agent, id, 1)
		r.wantCalls(r.agent, reserved, 1)
		p.stop()
	})
}

// TestGuardSlowBeat: the lease runs from the start of a beat, since nobody
// knows when it was written.
func TestGuardSlowBeat(t *testing.T) {
	inBubble(t, func(r *rig) {
		slow := true
		r.ledger.fault = func(op, _ string) fault {
			if op != "beat" {
				return noFault
			}
			if slow {
				slow = false
				time.Sleep(9 * time.Second) // from 5 s to 14 s
				return noFault
			}
			return refusedConnection
		}
		p := r.start("b", nil)
		r.wait(14500 * time.Millisecond)
		if slot, ok := p.Reserve("one"); !ok {
			t.Error("no slot 9.5 s after the beat began")
		} else {
			slot.Release()
		}
		r.wait(time.Second)
		if _, ok := p.Reserve("one"); ok {
			t.Error("a slot 10.5 s after the beat began")
		}
		p.stop()
	})
}

// TestSlowBeatIsRenewed: after a beat that took longer than the lease, as while a
// table was locked, work goes on at once and not with the next regular beat.
func TestSlowBeatIsRenewed(t *testing.T) {
	inBubble(t, func(r *rig) {
		slow := true
		r.ledger.fault = func(op, _ string) fault {
			if op == "beat" && slow {
				slow = false
				time.Sleep(20 * time.Second) // from 5 s to 25 s
			}
			return noFault
		}
		p := r.start("b", nil)
		r.wait(24 * time.Second)
		id := r.task("one", 1, nil)
		r.wait(1500 * time.Millisecond)
		r.wantCalls(r.agent, id, 1)
		if n := r.ledger.count(string(store.MoveRelease)); n > 0 {
			t.Errorf("%d releases", n)
		}
		p.stop()
	})
}

// TestGuardOldClaim: a claim whose write took two seconds is not used.
func TestGuardOldClaim(t *testing.T) {
	inBubble(t, func(r *rig) {
		first := true
		r.ledger.fault = func(op, _ string) fault {
			if op == "P4" && first {
				first = false
				time.Sleep(2 * time.Second)
			}
			return noFault
		}
		p := r.start("b", nil)
		id := r.task("one", 1, nil)
		r.want(id, parley.OutcomeOK, "")
		r.wantCalls(r.agent, id, 1)
		if n := r.ledger.count(string(store.MoveRelease)); n != 1 {
			t.Errorf("%d releases", n)
		}
		p.stop()
	})
}

// TestGuardAfterSend: what was sent once and then waits for its guard is never
// released; it is tried later.
func TestGuardAfterSend(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent.call = func(_ context.Context, task parley.Task, n int, _ bridge.Progress) (bridge.Outcome, error) {
			if n == 1 {
				return lost(), nil
			}
			return answered(task, "2"), nil
		}
		slow := true
		r.ledger.fault = func(op, _ string) fault {
			if op == string(store.MoveAgain) && slow {
				slow = false
				time.Sleep(3 * time.Second)
			}
			return noFault
		}
		p := r.start("b", nil)
		id := r.task("one", 1, policy(parley.OutcomeResend))
		a := r.want(id, parley.OutcomeOK, "")
		r.wantCalls(r.agent, id, 2)
		if a.Orphanings != 1 || r.ledger.count(string(store.MoveRelease)) != 0 {
			t.Errorf("%d orphanings, %d releases", a.Orphanings, r.ledger.count(string(store.MoveRelease)))
		}
		p.stop()
	})
}

// TestDoubtfulCommits: each write fails in each way, the first time or twice;
// the attempt ends, and the agent is not called more often than its policy and
// the orphanings allow (protocol.md §4.1, I1, L1).
func TestDoubtfulCommits(t *testing.T) {
	ops := []string{"P3", "P4", "P7", "beat"}
	for _, k := range []store.MoveKind{
		store.MoveRelease, store.MoveCancelled, store.MoveFollow, store.MoveFail,
		store.MoveUnknown, store.MoveAgain, store.MoveTakeover,
	} {
		ops = append(ops, string(k))
	}
	for _, op := range ops {
		for kind, name := range map[fault]string{refusedConnection: "refused", replyLost: "reply lost", commitLater: "commit later"} {
			for _, times := range []int{1, 2} {
				t.Run(fmt.Sprintf("%s %s %d", op, name, times), func(t *testing.T) {
					inBubble(t, func(r *rig) { r.doubt(op, kind, times) })
				})
			}
		}
	}
}

// doubt lets one kind of write of each task fail so many times.
func (r *rig) doubt(op string, kind fault, times int) {
	seen := map[string]int{}
	r.ledger.fault = func(o, task string) fault {
		r.mu.Lock()
		defer r.mu.Unlock()
		if o != op || seen[task] >= times {
			return noFault
		}
		seen[task]++
		return kind
	}
	r.agents.put(parley.Agent{Name: "narrow", Protocol: parley.ProtocolSimpleA2A, MaxConcurrent: 1})
	r.agent.call = func(ctx context.Context, task parley.Task, n int, _ bridge.Progress) (bridge.Outcome, error) {
		switch {
		case task.Agent == "narrow":
			return takes(ctx, task, 3*time.Second), nil
		case n == 1:
			return lost(), nil
		}
		return answered(task, "2"), nil
	}
	r.long.call = accepts("working")
	p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.DrainGrace = time.Millisecond })
	var ids []string
	for i, pol := range []parley.OutcomePolicy{parley.OutcomeResend, parley.OutcomeFail, parley.OutcomeLookup} {
		ids = append(ids, r.task("one", i, policy(pol)), r.task("long", i, policy(pol)), r.task("narrow", i, policy(pol)))
	}
	cancelled := r.task("narrow", 9, nil)
	ids = append(ids, cancelled, r.task("nobody", 1, nil))
	r.wait(1200 * time.Millisecond)
	r.ledger.requestCancel(cancelled)
	r.wait(300 * time.Millisecond)
	p.stop() // leaves orphans for takeovers
	q := r.start("b", nil)
	for _, id := range ids {
		r.settled(id, 5*time.Minute)
	}
	q.stop()
	r.judge(ids)
	if seen == nil {
		r.t.Error("unreachable")
	}
}

// judge asserts I1 from the agents' logs.
func (r *rig) judge(ids []string) {
	r.t.Helper()
	for _, id := range ids {
		a := r.ledger.row(id)
		limit := 1
		if a.Policy.OutcomeUnknown == parley.OutcomeResend {
			limit += a.Orphanings
		}
		if n := r.agent.executions(id) + r.long.executions(id); n > limit {
			r.t.Errorf("I1: %s (policy %s, %d orphanings) was executed %d times:\n%s",
				id, a.Policy.OutcomeUnknown, a.Orphanings, n, strings.Join(r.ledger.trace[id], "\n"))
		}
		r.judgeEnd(id)
	}
}

// judgeEnd is I7: no call starts after the end of its attempt but within the send
// window of a claim that is older.
func (r *rig) judgeEnd(id string) {
	r.t.Helper()
	end := r.ledger.endedAt(id)
	for _, agent := range []*scripted{r.agent, r.long} {
		for _, at := range agent.callsAt(id) {
			if !end.IsZero() && at.Sub(end) >= 2*time.Second {
				r.t.Errorf("I7: %s was called %s after its end:\n%s", id, at.Sub(end), strings.Join(r.ledger.trace[id], "\n"))
			}
		}
	}
}

// TestCrashPoints: the process dies at each point between its writes, at the
// first and at a later attempt, and another life goes on (protocol.md §9).
func TestCrashPoints(t *testing.T) {
	for _, point := range []string{
		"claim.before-guard", "guard.before-send", "answer.before-P7", "P7.before-wakeup", "follow.before-P6", "poll.before", "again.before-P8",
	} {
		for _, pol := range []parley.OutcomePolicy{parley.OutcomeFail, parley.OutcomeLookup, parley.OutcomeResend} {
			for _, next := range []string{"b", "other"} {
				t.Run(fmt.Sprintf("%s %s then %s", point, pol, next), func(t *testing.T) {
					inBubble(t, func(r *rig) { r.crash(point, pol, next) })
				})
			}
		}
	}
}

func (r *rig) crash(point string, pol parley.OutcomePolicy, next string) {
	r.agent.call = func(_ context.Context, task parley.Task, n int, _ bridge.Progress) (bridge.Outcome, error) {
		if n == 1 && task.Run == "run-one-2" {
			return lost(), nil
		}
		return answered(task, fmt.Sprint(n)), nil
	}
	r.long.call = accepts("working")
	r.long.poll = func(_ context.Context, task parley.Task, n int) (bridge.Outcome, error) {
		if n < 3 {
			return accepted(task, "working"), nil
		}
		return answered(task, `"followed"`), nil
	}
	died := make(chan struct{})
	p := r.start("b", func(cfg *bridge.Config, p *process) {
		cfg.DrainGrace = time.Millisecond
		cfg.Failpoint = func(name string) error {
			if name == point && p.dead.CompareAndSwap(false, true) {
				close(died)
			}
			if p.dead.Load() {
				return errDoubt
			}
			return nil
		}
	})
	ids := []string{r.task("one", 1, policy(pol)), r.task("one", 2, policy(pol)), r.task("long", 1, policy(pol))}
	if point == "again.before-P8" && pol != parley.OutcomeResend {
		p.stop() // never passed
		return
	}
	<-died
	p.kill()
	if next != "b" {
		r.ledger.declareDead("b")
	}
	q := r.start(next, nil)
	for _, id := range ids {
		a := r.settled(id, 5*time.Minute)
		if pol == parley.OutcomeResend && a.Result.Outcome != parley.OutcomeOK {
			r.t.Errorf("%s: one crash under resend gives %s: %v", id, a.Result.Outcome, a.Result.Err)
		}
		if n := r.agent.calls(id) + r.long.calls(id); n == 0 && a.Result.Outcome == parley.OutcomeOK {
			r.t.Errorf("%s: an answer without a call", id)
		}
	}
	if point == "P7.before-wakeup" && r.ledger.count("P7") < 1 {
		r.t.Error("I2: the answer is not there")
	}
	q.stop()
	r.judge(ids)
}

// TestOrphansOfTheDead: a bridge that was declared dead while its call hangs
// is taken over by policy; its answer is good as long as nobody's is there.
func TestOrphansOfTheDead(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent.call = func(ctx context.Context, task parley.Task, n int, _ bridge.Progress) (bridge.Outcome, error) {
			if n == 1 {
				return takes(ctx, task, time.Minute), nil
			}
			return takes(ctx, task, 10*time.Minute), nil
		}
		var beats fault
		r.ledger.fault = func(op, task string) fault {
			if op == "beat" {
				return beats
			}
			return noFault
		}
		p := r.start("b", nil)
		resend, lookup := r.task("one", 1, policy(parley.OutcomeResend)), r.task("one", 2, policy(parley.OutcomeLookup))
		r.wait(2 * time.Second)
		beats = refusedConnection // b is cut off and does not know
		r.ledger.declareDead("b")
		beats = noFault
		q := r.start("other", nil)
		r.want(lookup, parley.OutcomeUnknown, parley.CodeOutcomeUnknown)
		a := r.want(resend, parley.OutcomeOK, "")
		if a.Orphanings != 1 {
			t.Errorf("%d orphanings", a.Orphanings)
		}
		r.wantCalls(r.agent, resend, 2)
		r.wait(time.Minute)
		if a := r.ledger.row(lookup); a.Result.Outcome != parley.OutcomeOK {
			t.Errorf("I2: the first bridge's answer did not displace %s", a.Result.Outcome)
		}
		p.stop()
		q.stop()
		r.judge([]string{resend, lookup})
	})
}

// TestDeadThenRegister: a bridge that finds itself declared dead registers
// anew (P16), keeps its calls, takes no call of its own over, and works on.
func TestDeadThenRegister(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			return takes(ctx, task, time.Minute), nil
		}
		r.long.call = accepts("working")
		r.long.poll = func(_ context.Context, task parley.Task, n int) (bridge.Outcome, error) {
			if n < 10 {
				return accepted(task, "working"), nil
			}
			return answered(task, "1"), nil
		}
		p := r.start("b", nil)
		id, long := r.task("one", 1, policy(parley.OutcomeResend)), r.task("long", 1, policy(parley.OutcomeResend))
		r.wait(3 * time.Second)
		r.ledger.declareDead("b")
		r.wait(10 * time.Second)
		if n := r.ledger.count("P16"); n != 2 {
			t.Fatalf("%d registrations", n)
		}
		later := r.task("one", 2, nil)
		for _, task := range []string{id, long, later} {
			r.want(task, parley.OutcomeOK, "")
			r.wantCalls(r.agent, id, 1)
		}
		if r.ledger.row(id).Orphanings != 0 || r.ledger.row(later).Claim.Inc != 2 {
			t.Error("an own call was taken over, or a claim was made under the dead incarnation")
		}
		p.stop()
	})
}

// TestReplacedStandsBack: of two processes with one name the later works and the
// former begins nothing, instead of the two taking the name from each other for
// ever, each time with orphans; it comes back when the later one is dead.
func TestReplacedStandsBack(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			return takes(ctx, task, 20*time.Second), nil
		}
		former := r.start("b", nil)
		r.wait(time.Second)
		later := r.start("b", nil)
		r.wait(6 * time.Second)
		if !former.Replaced() || later.Replaced() {
			t.Errorf("replaced: the former %t, the later %t", former.Replaced(), later.Replaced())
		}
		if _, ok := former.Reserve("one"); ok {
			t.Error("a slot though another process has the name")
		}
		id := r.task("one", 1, nil)
		r.wait(time.Minute)
		r.want(id, parley.OutcomeOK, "")
		r.wantCalls(r.agent, id, 1)
		if n := r.ledger.count("P16"); n != 2 {
			t.Errorf("%d registrations, want 2", n)
		}
		later.stop()
		r.ledger.declareDead("b")
		r.wait(6 * time.Second)
		if former.Replaced() {
			t.Error("the former does not come back")
		}
		r.want(r.task("one", 2, nil), parley.OutcomeOK, "")
		former.stop()
	})
}

// TestRegisterInDoubt: a bridge that was taken for dead, and does not learn whether its
// next life has begun, takes itself for nobody else: it begins another one, and works on
// with its next beat.
func TestRegisterInDoubt(t *testing.T) {
	inBubble(t, func(r *rig) {
		registered := 0
		r.ledger.fault = func(op, _ string) fault {
			if op == "P16" {
				if registered++; registered == 2 {
					return replyLost
				}
			}
			return noFault
		}
		p := r.start("b", nil)
		r.ledger.declareDead("b")
		r.wait(7 * time.Second) // a beat, and one a second after the failure
		if p.Replaced() || registered != 3 {
			t.Errorf("replaced: %t, after %d registrations", p.Replaced(), registered)
		}
		id := r.task("one", 1, nil)
		r.announce(id)
		r.wait(time.Second)
		r.wantCalls(r.agent, id, 1)
		p.stop()
	})
}

// TestDeadThenCancel: a cancel reaches calls that were begun under an earlier
// incarnation, too.
func TestDeadThenCancel(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent.call = func(ctx context.Context, _ parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			return hang(ctx), nil
		}
		p := r.start("b", nil)
		id := r.task("one", 1, policy(parley.OutcomeResend))
		r.wait(3 * time.Second)
		r.ledger.declareDead("b")
		r.wait(10 * time.Second)
		r.ledger.requestCancel(id)
		r.want(id, parley.OutcomeCancelled, parley.CodeCancelled)
		p.stop()
	})
}

// TestReconcileLeavesPending: a claim that is committed, and whose slot is just
// about to be started, is not taken for one that nobody knows of.
func TestReconcileLeavesPending(t *testing.T) {
	inBubble(t, func(r *rig) {
		p := r.start("b", nil)
		r.wait(4900 * time.Millisecond)
		slot, ok := p.Reserve("one")
		if !ok {
			t.Fatal("no slot")
		}
		id := r.task("one", 1, func(a *store.Attempt) { a.State, a.Claim = store.AttemptClaimed, slot.Claim })
		r.wait(200 * time.Millisecond) // own rows are reconciled at 5 s
		slot.Start(r.ledger.row(id))
		r.want(id, parley.OutcomeOK, "")
		r.wait(10 * time.Second)
		r.wantCalls(r.agent, id, 1)
		if n := r.ledger.count(string(store.MoveRelease)); n != 0 {
			t.Errorf("%d releases", n)
		}
		p.stop()
	})
}

// TestReconcileGoesOn: an own row of which nothing is known here, and which may have been
// sent under an earlier claim, is not released but goes on as after a takeover. The
// limits of the attempt run from then on, and whoever wants it to end is heard.
func TestReconcileGoesOn(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			if task.Run == "run-one-2" {
				return hang(ctx), nil
			}
			return takes(ctx, task, 3*time.Second), nil
		}
		lost := func(a *store.Attempt) {
			a.State, a.Orphanings = store.AttemptClaimed, 1
			a.Claim = store.Claim{Worker: "b", Inc: 1, Token: "b/of-the-takeover-of-" + a.ID}
			a.Policy.OutcomeUnknown, a.Policy.AttemptTimeout = parley.OutcomeResend, time.Minute
		}
		p := r.start("b", nil)
		id, cancelled := r.task("one", 1, lost), r.task("one", 2, lost)
		r.want(id, parley.OutcomeOK, "")
		r.wantCalls(r.agent, id, 1)
		r.ledger.requestCancel(cancelled)
		r.want(cancelled, parley.OutcomeCancelled, parley.CodeCancelled)
		r.wantCalls(r.agent, cancelled, 1)
		if n := r.ledger.count(string(store.MoveRelease)); n != 0 {
			t.Errorf("%d releases", n)
		}
		p.stop()
	})
}

// TestClaimsInDoubtAreForgotten: nothing is sent on a doubtful claim, not even
// when it commits half a second later; it is found, released and called once
// (bad variants 10 and 12).
func TestClaimsInDoubtAreForgotten(t *testing.T) {
	inBubble(t, func(r *rig) {
		first := true
		r.ledger.fault = func(op, _ string) fault {
			if op == "P4" && first {
				first = false
				return commitLater
			}
			return noFault
		}
		p := r.start("b", nil)
		id := r.task("one", 1, nil)
		r.announce(id)
		r.wait(time.Second)
		if a := r.ledger.row(id); a.State != store.AttemptClaimed || r.agent.calls(id) != 0 {
			t.Errorf("%s after %d calls", a.State, r.agent.calls(id))
		}
		r.want(id, parley.OutcomeOK, "")
		r.wantCalls(r.agent, id, 1)
		p.stop()
	})
}

// TestDrain: calls in flight get their grace, what waits goes back, what is
// followed stays as it is, and Run ends with nothing running.
func TestDrain(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agents.put(parley.Agent{Name: "narrow", Protocol: parley.ProtocolSimpleA2A, MaxConcurrent: 2})
		r.agent.call = func(ctx context.Context, task parley.Task, n int, _ bridge.Progress) (bridge.Outcome, error) {
			switch task.Run {
			case "run-narrow-1":
				return takes(ctx, task, 6*time.Second), nil
			case "run-one-5":
				<-ctx.Done()
				return notSent(), nil
			}
			return hang(ctx), nil
		}
		p := r.start("b", nil)
		within, beyond := r.task("narrow", 1, nil), r.task("narrow", 2, nil)
		r.wait(1500 * time.Millisecond) // these two have the slots
		waits, dialling := r.task("narrow", 3, nil), r.task("one", 5, nil)
		r.wait(1500 * time.Millisecond)
		slot, _ := p.Reserve("one")
		begun := time.Now()
		p.cancel()
		r.wait(time.Second)
		if n := r.ledger.count("P3"); n != 1 {
			t.Errorf("%d tasks were put back", n)
		}
		if _, ok := p.Reserve("one"); ok {
			t.Error("a slot while the bridge stops")
		}
		reserved := r.task("one", 6, func(a *store.Attempt) { a.State, a.Claim = store.AttemptClaimed, slot.Claim })
		slot.Start(r.ledger.row(reserved))
		p.stop()
		if d := time.Since(begun); d != 10*time.Second {
			t.Errorf("Run ended after %v", d)
		}
		r.want(within, parley.OutcomeOK, "")
		if a := r.ledger.row(beyond); a.State != store.AttemptClaimed {
			t.Errorf("a call that was cut is %s: its outcome is the policy's matter", a.State)
		}
		for _, id := range []string{waits, dialling, reserved} {
			if a := r.ledger.row(id); a.State != store.AttemptOpen {
				t.Errorf("%s is %s: nothing was sent", id, a.State)
			}
		}
		r.wantCalls(r.agent, reserved, 0)
	})
}

// TestDrainWaiting: a call that fails while the bridge stops does not wait for
// its next try, and is not sent again by a bridge that is about to end.
func TestDrainWaiting(t *testing.T) {
	for _, when := range []time.Duration{500 * time.Millisecond, 2 * time.Second} {
		inBubble(t, func(r *rig) {
			r.agent.call = func(ctx context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
				takes(ctx, task, when)
				return lost(), nil
			}
			p := r.start("b", nil)
			id := r.task("one", 1, policy(parley.OutcomeResend))
			r.announce(id)
			r.wait(time.Second) // the first is waiting then, the second in flight
			begun := time.Now()
			p.stop()
			if d := time.Since(begun); d > 1100*time.Millisecond {
				t.Errorf("Run ended after %v", d)
			}
			r.wantCalls(r.agent, id, 1)
			if a := r.ledger.row(id); a.State != store.AttemptClaimed {
				t.Errorf("%s", a.State)
			}
		})
	}
}

// TestTakenOverThenRefused: what was sent in a former life, and cannot be sent
// in this one, is tried again soon and never released.
func TestTakenOverThenRefused(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent.call = func(ctx context.Context, task parley.Task, n int, _ bridge.Progress) (bridge.Outcome, error) {
			switch n {
			case 1:
				return hang(ctx), nil
			case 2, 3:
				return notSent(), nil
			}
			return answered(task, "4"), nil
		}
		p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.DrainGrace = time.Millisecond })
		id := r.task("one", 1, policy(parley.OutcomeResend))
		r.wait(3 * time.Second)
		p.stop()
		q := r.start("b", nil)
		begun := time.Now()
		a := r.want(id, parley.OutcomeOK, "")
		if d := time.Since(begun); d > 4*time.Second || a.Orphanings != 1 || r.ledger.count(string(store.MoveRelease)) != 0 {
			t.Errorf("after %v with %d orphanings and %d releases", d, a.Orphanings, r.ledger.count(string(store.MoveRelease)))
		}
		q.stop()
	})
}

// TestOutOfTimeBetweenTries: the attempt's time is up while what was sent once waits
// to be sent again: nobody knows what became of it, and the error says why it ended.
func TestOutOfTimeBetweenTries(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent.call = func(_ context.Context, _ parley.Task, n int, _ bridge.Progress) (bridge.Outcome, error) {
			if n == 1 {
				return lost(), nil
			}
			return notSent(), nil
		}
		p := r.start("b", nil)
		begun := time.Now()
		id := r.task("one", 1, func(a *store.Attempt) {
			a.Policy = store.Policy{OutcomeUnknown: parley.OutcomeResend, AttemptTimeout: 20 * time.Second}
		})
		a := r.want(id, parley.OutcomeUnknown, parley.CodeOutcomeUnknown)
		if cause := a.Result.Err.Cause; cause == nil || cause.Code != parley.CodeTimeout || time.Since(begun) > 25*time.Second {
			t.Errorf("after %v: cause %v", time.Since(begun), cause)
		}
		p.stop()
	})
}

// TestAgainBeforeDeadline: a lost call is made again only if the task's time is not over by
// then.
func TestAgainBeforeDeadline(t *testing.T) {
	for left, calls := range map[time.Duration]int{900 * time.Millisecond: 1, 1100 * time.Millisecond: 2, time.Hour: 3} {
		inBubble(t, func(r *rig) {
			r.agent.call = func(context.Context, parley.Task, int, bridge.Progress) (bridge.Outcome, error) { return lost(), nil }
			p := r.start("b", nil)
			id := r.task("one", 1, func(a *store.Attempt) {
				a.Policy.OutcomeUnknown, a.Deadline = parley.OutcomeResend, time.Now().Add(left)
			})
			r.announce(id)
			r.want(id, parley.OutcomeUnknown, parley.CodeOutcomeUnknown)
			if n := r.agent.calls(id); n != calls {
				t.Errorf("%v before the deadline: %d calls, want %d", left, n, calls)
			}
			p.stop()
		})
	}
}

// TestRemovedAfterLost: the agent was removed after its task had been sent: that
// cannot be called an error before the agent was reached.
func TestRemovedAfterLost(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent.call = func(context.Context, parley.Task, int, bridge.Progress) (bridge.Outcome, error) {
			r.agents.mu.Lock()
			delete(r.agents.m, "one")
			r.agents.mu.Unlock()
			return lost(), nil
		}
		p := r.start("b", nil)
		id := r.task("one", 1, policy(parley.OutcomeResend))
		a := r.want(id, parley.OutcomeUnknown, parley.CodeOutcomeUnknown)
		if a.Result.Err.Cause == nil || a.Result.Err.Cause.Code != parley.CodeUnknownAgent {
			t.Errorf("cause %v", a.Result.Err.Cause)
		}
		p.stop()
	})
}

// TestDrainWithoutLedger: Run ends also if nothing can be written any more.
func TestDrainWithoutLedger(t *testing.T) {
	inBubble(t, func(r *rig) {
		p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.DrainGrace = time.Second })
		slow := make(chan struct{})
		r.agent.call = func(_ context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			<-slow
			return answered(task, "1"), nil
		}
		id := r.task("one", 1, nil)
		r.wait(2 * time.Second)
		r.ledger.fault = func(string, string) fault { return refusedConnection }
		close(slow)
		r.wait(time.Second)
		begun := time.Now()
		p.stop()
		if d := time.Since(begun); d > 2100*time.Millisecond {
			t.Errorf("Run ended after %v", d)
		}
		r.ledger.fault = nil
		if r.ledger.row(id).State != store.AttemptClaimed {
			t.Error("the row changed")
		}
		synctest.Wait()
	})
}
