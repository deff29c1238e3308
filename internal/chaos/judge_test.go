package chaos_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
)

// evidence is what remains when a cluster has come to rest.
type evidence struct {
	// accepted are the ids that callers were answered, by the number of the run.
	accepted map[int][]string
	runs     map[string]runEnd
	attempts map[string]attemptEnd
	// calls are the agents that were called, by task.
	calls map[string][]string
	// results counts the records on the topic of results, by task.
	results map[string]int
	late    []lateAnswer
	letters []letter
	// left are rows about what runs do, now that all have ended.
	left []string
	// deeds are what was done to runs after their starts.
	deeds map[string]deed
	// called is when the calls of each task came, delays are when they could come
	// late.
	called map[string][]time.Time
	delays []delay
	// counted are the sums of the processes' own counters; nil if they are of no use.
	counted counts
}

// runEnd is what the store holds of a run.
type runEnd struct {
	key    string // of idempotency
	flow   string
	status parley.RunStatus
	ended  time.Time
	// retriedFrom is the run that this one is a retry of.
	retriedFrom string
	// parent is the run of which a step has started this one, of that step.
	parent, of string
	code       parley.Code // why it failed
	cause      parley.Code // and what that comes from
	why        string      // in words
	limit      string      // that kept a retry from being made
	seq        int64
	events     []parley.Event
	replayed   parley.RunStatus // by the events alone
	output     string
}

// attemptEnd is what the store holds of an attempt.
type attemptEnd struct {
	agent, state, outcome, output string
	orphanings                    int
}

type lateAnswer struct{ attempt, outcome, output string }

// judge holds the evidence to the promises (protocol.md §5) and gives what
// breaks them, sorted.
func judge(e evidence) []string {
	var wrong []string
	report := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	judgeStarts(e, report)
	for _, id := range slices.Sorted(maps.Keys(e.runs)) {
		judgeRun(id, e.runs[id], report)
		judgeSteered(id, e, report)
	}
	judgeRetries(e, report)
	judgeTimes(e, report)
	judgeAttempts(e, report)
	judgeAnswers(e, report)
	judgeValues(e, report)
	judgeLetters(e, report)
	judgeFamilies(e, report)
	for _, row := range e.left {
		report("left is a %s", row)
	}
	judgeCalls(e, report)
	judgeCounts(e, report)
	for _, task := range slices.Sorted(maps.Keys(e.results)) {
		if n := e.results[task]; n > 1 {
			report("attempt %s has %d result records", task, n)
		}
	}
	for _, l := range e.late {
		// With one call there is one answer: it is recorded or late, not both.
		if a := e.attempts[l.attempt]; len(e.calls[l.attempt]) == 1 && a.outcome == l.outcome && a.output == l.output {
			report("attempt %s has its answer in its row and among the late ones", l.attempt)
		}
	}
	return wrong
}

// judgeStarts: every accepted run is there, once for each key.
func judgeStarts(e evidence, report func(string, ...any)) {
	byKey := map[string][]string{}
	started := 0
	for _, id := range slices.Sorted(maps.Keys(e.runs)) {
		if r := e.runs[id]; r.parent == "" {
			byKey[r.key] = append(byKey[r.key], id)
			started += boolInt(r.retriedFrom == "")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		if ids := byKey[key]; len(ids) > 1 {
			report("key %s made the runs %v", key, ids)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(e.accepted)) {
		ids := slices.Compact(slices.Sorted(slices.Values(e.accepted[n])))
		if len(ids) != 1 {
			report("start %d was answered with the runs %v", n, ids)
		}
		for _, id := range ids {
			if r, ok := e.runs[id]; !ok || r.key != fmt.Sprintf("k%d", n) {
				report("start %d was accepted as run %s, which is not there", n, id)
			}
		}
	}
	if started != len(e.accepted) {
		report("%d runs for %d starts", started, len(e.accepted))
	}
}

// judgeRun: one terminal event, the last; no gap; the events alone give what is
// stored. Only an unknown outcome may make a run fail here, also that of a run that one
// of its steps has started, and too little time one that is in a hurry: for an answer,
// or for another try (language.md T1).
func judgeRun(id string, r runEnd, report func(string, ...any)) {
	if !r.status.Terminal() {
		report("run %s is left %s", id, r.status)
	}
	unknown := r.code == parley.CodeOutcomeUnknown || r.code == parley.CodeSubWorkflowFailed && r.cause == parley.CodeOutcomeUnknown
	if late := r.flow == flowHurry && (r.code == parley.CodeTimeout || r.limit == "timeout"); r.status == parley.RunFailed && !unknown && !late {
		report("run %s is %s: %s", id, r.status, strings.TrimSuffix(string(r.code)+": "+r.why, ": "))
	}
	terminal := 0
	for i, e := range r.events {
		if e.Seq != int64(i)+1 {
			report("run %s: event %d stands at place %d", id, e.Seq, i+1)
		}
		switch e.Type {
		case parley.EventRunCompleted, parley.EventRunFailed, parley.EventRunCancelled:
			if terminal++; i != len(r.events)-1 {
				report("run %s: %s is not the last event", id, e.Type)
			}
		}
	}
	if terminal != 1 {
		report("run %s has %d terminal events", id, terminal)
	}
	if r.seq != int64(len(r.events)) {
		report("run %s: seq %d with %d events", id, r.seq, len(r.events))
	}
	if r.replayed != r.status {
		report("run %s is %s, but %s when replayed", id, r.status, r.replayed)
	}
}

// judgeCalls: no attempt is carried out more often than its policy allows
// (invariant I1), none by another agent, and none that nobody knows.
func judgeCalls(e evidence, report func(string, ...any)) {
	for _, task := range slices.Sorted(maps.Keys(e.calls)) {
		calls := e.calls[task]
		a, ok := e.attempts[task]
		if !ok {
			report("agent %s was called for %s, which nobody knows", calls[0], task)
			continue
		}
		limit := 1
		if a.agent == agentResend {
			limit += a.orphanings
		}
		if len(calls) > limit {
			report("attempt %s: agent %s was called %d times, its policy allows %d", task, a.agent, len(calls), limit)
		}
		if slices.ContainsFunc(calls, func(agent string) bool { return agent != a.agent }) {
			report("attempt %s is for agent %s, called were %v", task, a.agent, calls)
		}
	}
	for _, task := range slices.Sorted(maps.Keys(e.attempts)) {
		if a := e.attempts[task]; a.outcome == string(parley.OutcomeOK) && len(e.calls[task]) == 0 {
			report("attempt %s has an answer, but agent %s was never called", task, a.agent)
		}
	}
}

// answer is what every agent answers to the run with the number 1.
const answer = `{"text":"1"}`

// sound is evidence of one run without a fault.
func sound() evidence {
	event := func(seq int64, t parley.EventType) parley.Event { return parley.Event{Seq: seq, Type: t} }
	step := func(seq int64, name string) parley.Event {
		return parley.Event{Seq: seq, Type: parley.EventStepCompleted, Step: name, Attempt: 1, Data: json.RawMessage(`{"kind":"agent"}`)}
	}
	return evidence{
		accepted: map[int][]string{1: {"run-1", "run-1"}},
		runs: map[string]runEnd{"run-1": {
			key: "k1", status: parley.RunCompleted, replayed: parley.RunCompleted, seq: 4, output: answer,
			events: []parley.Event{event(1, parley.EventRunStarted), step(2, "a"), step(3, "b"), event(4, parley.EventRunCompleted)},
		}},
		attempts: map[string]attemptEnd{
			"run-1.a.1": {agent: agentResend, state: "closed", outcome: "ok", output: answer, orphanings: 1},
			"run-1.b.1": {agent: agentLookup, state: "closed", outcome: "ok", output: answer, orphanings: 1},
		},
		calls:   map[string][]string{"run-1.a.1": {agentResend, agentResend}, "run-1.b.1": {agentLookup}},
		results: map[string]int{"run-1.a.1": 1},
		late:    []lateAnswer{{attempt: "run-1.a.1", outcome: "ok", output: answer}},
	}
}

// TestJudge plants one violation of each kind and wants it found, and nothing
// where there is none.
func TestJudge(t *testing.T) {
	t.Parallel()
	if wrong := judge(sound()); len(wrong) > 0 {
		t.Fatalf("sound evidence: %q", wrong)
	}
	run := func(change func(*runEnd)) func(*evidence) {
		return func(e *evidence) { r := e.runs["run-1"]; change(&r); e.runs["run-1"] = r }
	}
	attempt := func(id string, change func(*attemptEnd)) func(*evidence) {
		return func(e *evidence) { a := e.attempts[id]; change(&a); e.attempts[id] = a }
	}
	for want, plant := range map[string]func(*evidence){
		"run run-1 is left RUNNING": run(func(r *runEnd) {
			r.status, r.replayed = parley.RunRunning, parley.RunRunning
		}),
		"run run-1 is FAILED: internal": run(func(r *runEnd) {
			r.status, r.replayed, r.code = parley.RunFailed, parley.RunFailed, "internal"
		}),
		"run run-1 is FAILED: agent_unavailable: gone": run(func(r *runEnd) {
			r.status, r.replayed, r.code, r.why, r.limit = parley.RunFailed, parley.RunFailed, "agent_unavailable", "gone", "timeout"
		}),
		"run run-1: event 5 stands at place 4":                               run(func(r *runEnd) { r.events[3].Seq = 5 }),
		"run run-1: seq 5 with 4 events":                                     run(func(r *runEnd) { r.seq = 5 }),
		"run run-1 has 0 terminal events":                                    run(func(r *runEnd) { r.events[3].Type = parley.EventStepCompleted }),
		"run run-1 is COMPLETED, but RUNNING when replayed":                  run(func(r *runEnd) { r.replayed = parley.RunRunning }),
		"start 1 was answered with the runs [run-1 run-2]":                   func(e *evidence) { e.accepted[1][1] = "run-2" },
		"start 2 was accepted as run run-2, which is not there":              func(e *evidence) { e.accepted[2] = []string{"run-2"} },
		"key k1 made the runs [run-1 run-2]":                                 func(e *evidence) { e.runs["run-2"] = e.runs["run-1"] },
		"attempt run-1.a.1 is left claimed":                                  attempt("run-1.a.1", func(a *attemptEnd) { a.state = "claimed" }),
		"attempt run-1.b.1 has 2 result records":                             func(e *evidence) { e.results["run-1.b.1"] = 2 },
		"agent fail was called for run-9.c.1, which nobody knows":            func(e *evidence) { e.calls["run-9.c.1"] = []string{agentFail} },
		"attempt run-1.b.1 is for agent lookup, called were [fail]":          func(e *evidence) { e.calls["run-1.b.1"] = []string{agentFail} },
		"attempt run-1.b.1 has an answer, but agent lookup was never called": func(e *evidence) { delete(e.calls, "run-1.b.1") },
		"attempt run-1.b.1: agent lookup was called 2 times, its policy allows 1": func(e *evidence) {
			e.calls["run-1.b.1"] = []string{agentLookup, agentLookup}
		},
		"attempt run-1.a.1: agent resend was called 2 times, its policy allows 1": attempt("run-1.a.1", func(a *attemptEnd) { a.orphanings = 0 }),
		"attempt run-1.b.1 has its answer in its row and among the late ones": func(e *evidence) {
			e.late = append(e.late, lateAnswer{attempt: "run-1.b.1", outcome: "ok", output: answer})
		},
		"run run-1: run.completed is not the last event": run(func(r *runEnd) {
			r.events[1].Type = parley.EventRunCompleted
		}),
	} {
		e := sound()
		plant(&e)
		if wrong := judge(e); !slices.Contains(wrong, want) {
			t.Errorf("%s\n%s", want, cmp.Diff([]string{want}, wrong))
		}
	}
}

// TestJudgeHurry: a run in a hurry may fail with what its last try failed with, when there
// is no time for another one; no other run may.
func TestJudgeHurry(t *testing.T) {
	t.Parallel()
	for flow, want := range map[string]int{flowHurry: 0, flowChain: 1} {
		found := 0
		r := runEnd{flow: flow, status: parley.RunFailed, replayed: parley.RunFailed, code: parley.CodeAgentUnavailable, limit: "timeout"}
		judgeRun("run-1", r, func(format string, _ ...any) { found += boolInt(format == "run %s is %s: %s") })
		if found != want {
			t.Errorf("%s: %d faults", flow, found)
		}
	}
}
