package chaos_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow"
)

// letter is what the store holds of a dead letter.
type letter struct {
	kind parley.DeadLetterKind
	run  string
}

// lossesOf are how many claims of an attempt have to be lost before nobody knows what
// has become of it: under lookup an agent that is asked may know nothing, under resend
// it is sent twice again (protocol.md §4.5).
func lossesOf(agent string) int {
	return map[string]int{agentFail: 0, agentLookup: 1, agentResend: 2}[agent]
}

// judgeAttempts: an attempt is one of a run or of a foreign record, and its outcome is unknown only when its
// policy has nothing more to try, or its step no time.
func judgeAttempts(e evidence, report func(string, ...any)) {
	for _, id := range slices.Sorted(maps.Keys(e.attempts)) {
		a := e.attempts[id]
		if a.state != "closed" {
			report("attempt %s is left %s", id, a.state)
		}
		if _, ok := e.runs[runOf(id)]; !ok && !strings.HasPrefix(id, "foreign:") {
			report("attempt %s is of no run", id)
		}
		hurried := e.runs[runOf(id)].flow == flowHurry // its step may end before an agent is asked again
		if want := lossesOf(a.agent); a.outcome == string(parley.OutcomeUnknown) && a.orphanings < want && !hurried {
			report("attempt %s is unknown after %d losses, agent %s allows that after %d", id, a.orphanings, a.agent, want)
		}
	}
}

// judgeAnswers: the answer in a row is what a step has completed with, once (I2, I3,
// I8), unless its run was terminated: that looks at no answers. No step has completed,
// was scheduled, or has failed for an outcome that nobody knows, but its row says so
// too. None ran out of time before its deadline.
func judgeAnswers(e evidence, report func(string, ...any)) {
	taken, unknown, terminated := map[string]int{}, map[string]bool{}, map[string]bool{}
	for _, id := range slices.Sorted(maps.Keys(e.runs)) {
		due := map[string]time.Time{}
		for _, event := range e.runs[id].events {
			attempt := fmt.Sprintf("%s.%s.%d", id, event.Step, event.Attempt)
			a, known := e.attempts[attempt]
			data := readEvent(event)
			terminated[id] = data.Terminated
			switch {
			case data.Copied != "":
			case event.Type == parley.EventStepScheduled:
				if due[event.Step] = data.Deadline; !known && data.Agent != "" {
					report("attempt %s was scheduled and is not there", attempt)
				}
			case event.Type == parley.EventStepCompleted:
				if taken[attempt]++; data.Kind == workflow.KindAgent && a.outcome != string(parley.OutcomeOK) {
					report("attempt %s is %q, its step has completed", attempt, a.outcome)
				}
			case event.Type == parley.EventStepFailed && data.Error.Code == parley.CodeTimeout && event.At.Before(due[event.Step]):
				report("attempt %s ran out of time %v before its deadline", attempt, due[event.Step].Sub(event.At))
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(e.attempts)) {
		a := e.attempts[id]
		if n := taken[id]; a.outcome == string(parley.OutcomeOK) && n != 1 && (n > 1 || !terminated[runOf(id)]) {
			report("the answer of attempt %s was taken %d times", id, n)
		}
		unknown[runOf(id)] = unknown[runOf(id)] || a.outcome == string(parley.OutcomeUnknown)
	}
	for _, id := range slices.Sorted(maps.Keys(e.runs)) {
		if r := e.runs[id]; r.code == parley.CodeOutcomeUnknown && !unknown[id] {
			report("run %s is %s: %s, its attempts are not", id, r.status, r.code)
		}
	}
}

// eventData is what is judged of the data of events.
type eventData struct {
	Kind       workflow.Kind `json:"kind"`
	Agent      string        `json:"agent"`
	Error      parley.Error  `json:"error"`
	Deadline   time.Time     `json:"deadline"`
	Copied     string        `json:"copied_from"`
	Terminated bool          `json:"terminated"`
}

func readEvent(e parley.Event) (data eventData) {
	_ = json.Unmarshal(e.Data, &data) // other data says nothing here
	return data
}

// judgeValues: what a run was given went through every agent, and came out.
func judgeValues(e evidence, report func(string, ...any)) {
	given := map[string]string{}
	for n, ids := range e.accepted {
		for _, id := range ids {
			given[id] = strconv.Itoa(n)
		}
	}
	for id, r := range e.runs {
		if from := cmp.Or(r.retriedFrom, r.parent); from != "" {
			given[id] = given[from]
		}
	}
	wrong := func(id, output string) bool {
		var v struct{ Text string }
		_ = json.Unmarshal([]byte(output), &v) // what is none has no text
		want, ok := given[id]
		return ok && v.Text != want
	}
	for _, id := range slices.Sorted(maps.Keys(e.runs)) {
		if r := e.runs[id]; r.status == parley.RunCompleted && wrong(id, r.output) {
			report("run %s was given %s and has the output %.200s", id, given[id], r.output)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(e.attempts)) {
		if a := e.attempts[id]; a.outcome == string(parley.OutcomeOK) && wrong(runOf(id), a.output) {
			report("attempt %s was given %s and has the output %.200s", id, given[runOf(id)], a.output)
		}
	}
}

// judgeLetters: what a run that was asked for was given up for is one dead letter, and
// nothing else is one.
func judgeLetters(e evidence, report func(string, ...any)) {
	of := map[string]int{}
	for _, l := range e.letters {
		if l.kind == parley.DeadLetterTask {
			of[l.run]++
		} else {
			report("a dead letter is of kind %s", l.kind)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(e.runs)) {
		if r := e.runs[id]; of[id] != boolInt(r.status == parley.RunFailed && r.parent == "") {
			report("run %s is %s with %d dead letters", id, r.status, of[id])
		}
		delete(of, id)
	}
	for _, id := range slices.Sorted(maps.Keys(of)) {
		report("%d dead letters are of run %q, which is not there", of[id], cmp.Or(id, "none"))
	}
}

// judgeFamilies: each step that asks for a run has started one (language.md S11), which
// has ended as the step says.
func judgeFamilies(e evidence, report func(string, ...any)) {
	children := map[string][]string{}
	for _, id := range slices.Sorted(maps.Keys(e.runs)) {
		if r := e.runs[id]; r.parent != "" {
			children[r.parent+"."+r.of] = append(children[r.parent+"."+r.of], id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(e.runs)) {
		for _, event := range e.runs[id].events {
			step := id + "." + event.Step
			if readEvent(event).Kind != workflow.KindSubWorkflow {
				continue
			}
			switch ids := children[step]; {
			case event.Type == parley.EventStepCompleted && (len(ids) != 1 || e.runs[ids[0]].status != parley.RunCompleted):
				report("step %s has completed by the runs %v", step, ids)
			case event.Type == parley.EventStepFailed && (len(ids) != 1 || e.runs[ids[0]].status != parley.RunFailed):
				report("step %s has failed by the runs %v", step, ids)
			case len(ids) > 1:
				report("step %s has started the runs %v", step, ids)
			}
		}
		if r := e.runs[id]; r.parent != "" && e.runs[r.parent].flow != flowFamily {
			report("run %s was started by run %s, which asks for none", id, r.parent)
		}
	}
}

// TestJudgeRecords plants one violation of each kind in what the rows say.
func TestJudgeRecords(t *testing.T) {
	t.Parallel()
	attempt := func(id string, change func(*attemptEnd)) func(*evidence) {
		return func(e *evidence) { a := e.attempts[id]; change(&a); e.attempts[id] = a }
	}
	event := func(typ parley.EventType, data string) func(*evidence) {
		return func(e *evidence) {
			events := e.runs["run-1"].events
			events[1].Type, events[1].Data = typ, json.RawMessage(data)
		}
	}
	run := func(change func(*runEnd)) func(*evidence) {
		return func(e *evidence) { r := e.runs["run-1"]; change(&r); e.runs["run-1"] = r }
	}
	const a = "run-1.a.1"
	for want, plant := range map[string]func(*evidence){
		"attempt run-9.a.1 is of no run":                                                func(e *evidence) { e.attempts["run-9.a.1"] = attemptEnd{state: "closed"} },
		"attempt run-1.a.1 is unknown after 1 losses, agent resend allows that after 2": attempt(a, func(a *attemptEnd) { a.outcome = "unknown" }),
		"attempt run-1.a.1 was scheduled and is not there": func(e *evidence) {
			event(parley.EventStepScheduled, `{"agent":"resend"}`)(e)
			delete(e.attempts, a)
		},
		`attempt run-1.a.1 is "timeout", its step has completed`: attempt(a, func(a *attemptEnd) { a.outcome = "timeout" }),
		"attempt run-1.a.1 ran out of time 1m0s before its deadline": func(e *evidence) {
			event(parley.EventStepScheduled, `{"deadline":"2026-01-02T03:05:05Z"}`)(e)
			late := e.runs["run-1"].events[1]
			late.Type, late.At, late.Data = parley.EventStepFailed, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), json.RawMessage(`{"error":{"code":"timeout"}}`)
			run(func(r *runEnd) { r.events = slices.Insert(r.events, 2, late) })(e)
		},
		"the answer of attempt run-1.a.1 was taken 0 times": event(parley.EventStepCancelled, "{}"),
		"the answer of attempt run-1.a.1 was taken 2 times": func(e *evidence) {
			e.runs["run-1"].events[2].Step = "a"
		},
		"run run-1 is FAILED: outcome_unknown, its attempts are not": run(func(r *runEnd) {
			r.status, r.code = parley.RunFailed, parley.CodeOutcomeUnknown
		}),
		`run run-1 was given 1 and has the output {"text":"2"}`:         run(func(r *runEnd) { r.output = `{"text":"2"}` }),
		`attempt run-1.a.1 was given 1 and has the output {"text":"2"}`: attempt(a, func(a *attemptEnd) { a.output = `{"text":"2"}` }),
		"step run-1.a has completed by the runs []":                     event(parley.EventStepCompleted, `{"kind":"sub_workflow"}`),
		"step run-1.a has failed by the runs [run-2]": func(e *evidence) {
			event(parley.EventStepFailed, `{"kind":"sub_workflow"}`)(e)
			e.runs["run-2"] = runEnd{parent: "run-1", of: "a", status: parley.RunCompleted}
		},
		"step run-1.a has started the runs [run-2 run-3]": func(e *evidence) {
			event(parley.EventStepScheduled, `{"kind":"sub_workflow"}`)(e)
			e.runs["run-2"], e.runs["run-3"] = runEnd{parent: "run-1", of: "a"}, runEnd{parent: "run-1", of: "a"}
		},
		"run run-2 was started by run run-1, which asks for none": func(e *evidence) { e.runs["run-2"] = runEnd{parent: "run-1", of: "a"} },
		"left is a turn of run-1":                                 func(e *evidence) { e.left = []string{"turn of run-1"} },
		"a dead letter is of kind record":                         func(e *evidence) { e.letters = []letter{{kind: parley.DeadLetterRecord}} },
		"run run-1 is COMPLETED with 1 dead letters": func(e *evidence) {
			e.letters = []letter{{kind: parley.DeadLetterTask, run: "run-1"}}
		},
		"run run-1 is FAILED with 0 dead letters": run(func(r *runEnd) { r.status = parley.RunFailed }),
		`1 dead letters are of run "run-9", which is not there`: func(e *evidence) {
			e.letters = []letter{{kind: parley.DeadLetterTask, run: "run-9"}}
		},
	} {
		e := sound()
		plant(&e)
		if wrong := judge(e); !slices.Contains(wrong, want) {
			t.Errorf("%s\n%s", want, gocmp.Diff([]string{want}, wrong))
		}
	}
}
