package workflow

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/parley-project/parley"
)

// What is said here of several agents is rule R5: called one after another
// (fallback), or side by side (hedged).

// firstAgent is the agent that a step calls first; "" if an expression says.
func (s *Step) firstAgent() string {
	if len(s.Agents) > 0 {
		return s.Agents[0]
	}
	return s.Agent
}

// hasNext reports whether there is an agent that x has not called yet: in the
// round under way, if they are hedged.
func (a *decider) hasNext(x *execution) bool {
	return x.tried < len(x.step.Agents) && x.attempts < a.limits.Attempts && !a.cancelling
}

// goesOn reports whether a hedged step goes on without the attempt that ends:
// another one is in flight, or another agent is called at once.
func (a *decider) goesOn(x *execution) bool {
	return x.step.Hedged && (len(x.flights) > 1 || a.hasNext(x))
}

// nextHedge is when another agent is called if none has answered by then, once
// as many as tried were, the last of them at the given time. Nil is never.
func (a *decider) nextHedge(x *execution, tried int, last time.Time) *time.Time {
	// The attempt that goes with the answer is begun and not counted yet.
	if !x.step.Hedged || tried >= len(x.step.Agents) || x.attempts+1 >= a.limits.Attempts {
		return nil
	}
	t := last.Add(x.step.HedgeAfter)
	return &t
}

// hedgeDue calls every agent whose time has come.
func (a *decider) hedgeDue(x *execution) {
	for !x.hedgeAt.IsZero() && !x.hedgeAt.After(a.at) {
		a.callNext(x)
	}
}

// callNext calls the next of hedged agents.
func (a *decider) callNext(x *execution) {
	attempt := x.attempts + 1
	a.recordAt(parley.EventStepScheduled, x.path, attempt, stepScheduled{
		Kind: KindAgent, Agent: x.step.Agents[x.tried], TaskID: a.taskID(x.path, attempt), HedgeAt: a.nextHedge(x, x.tried+1, a.at),
	})
	a.schedule(x, a.at)
}

// loseOne takes note that one of hedged agents has failed. The next one is
// called as soon as all that were called have failed.
func (a *decider) loseOne(x *execution, err *parley.Error, call *flight) {
	p := attemptFailed{TaskID: call.task, Error: err}
	if len(x.flights) > 1 {
		p.HedgeAt = ptr(x.hedgeAt)
	}
	a.recordOf(call, parley.EventStepAttemptFailed, x, p)
	if len(x.flights) == 0 {
		a.callNext(x)
		a.hedgeDue(x)
	}
}

// closeOthers ends the attempts that have lost; nobody waits for them (rule C3).
func (a *decider) closeOthers(x *execution, winner *flight) {
	for _, call := range x.flights {
		if call != winner {
			a.d.Close = append(a.d.Close, Close{TaskID: call.task, Outcome: parley.OutcomeCancelled})
		}
	}
}

// fallsBack hands the step to its next agent, if there is one.
func (a *decider) fallsBack(x *execution, err *parley.Error) bool {
	if x.step.Hedged || !a.hasNext(x) {
		return false
	}
	if until := a.until(x); !until.IsZero() && !a.at.Before(until) {
		return false
	}
	a.record(parley.EventStepRetrying, x, stepRetrying{
		Error: err, At: a.at, TaskID: a.taskID(x.path, x.attempts+1), Agent: x.step.Agents[x.tried], Fallback: true,
	})
	a.schedule(x, a.at)
	return true
}

// circuitOpen reports whether nothing was sent because the agent's circuit is
// open.
func circuitOpen(err *parley.Error) bool {
	var d struct {
		Circuit string `json:"circuit"`
	}
	return err.Code == parley.CodeAgentUnavailable && json.Unmarshal(err.Details, &d) == nil && d.Circuit != "" && d.Circuit != "closed"
}

// maxOtherText bounds what the error of a step keeps of another agent's error,
// in bytes: its text, and its details.
const maxOtherText = 4 << 10

// withAgents puts the errors of the other agents into the details.
func withAgents(err *parley.Error, others []*parley.Error) *parley.Error {
	if len(others) == 0 {
		return err
	}
	list := make([]parley.Error, len(others))
	for i, o := range others {
		list[i] = parley.Error{
			Code: o.Code, Message: o.Message, Step: o.Step, Attempt: o.Attempt, Agent: o.Agent, Retryable: o.Retryable, Details: o.Details,
		}
		if len(o.Message) > maxOtherText {
			list[i].Message = strings.ToValidUTF8(o.Message[:maxOtherText], "") + "…"
		}
		if len(o.Details) > maxOtherText {
			list[i].Details = nil
		}
	}
	return withDetail(err, "agents", list)
}
