package oldplatform

import (
	"slices"
	"strconv"
	"time"

	"github.com/parley-project/parley"
)

// attempt is one row of a step, placed in the history of its run.
type attempt struct {
	row *stepRow
	// path is that of the execution that the row belongs to, number counts its
	// attempts from 1.
	path       string
	number     int
	start, end time.Time
	// repeated: another attempt of the same execution follows.
	repeated bool
}

// happening is the begin or the end of an attempt.
type happening struct {
	at    time.Time
	of    *attempt
	begin bool
}

// steps adds the events of all rows in the order of their times, and gives the
// path of the execution that had begun last without an end, or "".
func (b *builder) steps() (last string, err error) {
	attempts, err := b.old.attempts()
	if err != nil {
		return "", err
	}
	var all []happening
	for _, a := range attempts {
		all = append(all, happening{a.start, a, true})
		if a.ended() {
			all = append(all, happening{a.end, a, false})
		} else {
			last = a.path
		}
	}
	// Stable: a row begins before it ends, and rows stay in their order.
	slices.SortStableFunc(all, func(x, y happening) int { return x.at.Compare(y.at) })
	for _, h := range all {
		if h.begin {
			b.begin(h.of)
		} else {
			b.finish(h.of)
		}
	}
	for _, a := range attempts {
		if !a.ended() {
			b.abandon(a)
		}
	}
	return last, nil
}

// ended reports whether a row says how its attempt ended.
func (a *attempt) ended() bool {
	switch parley.StepStatus(a.row.Status) {
	case parley.StepCompleted, parley.StepFailed, parley.StepSkipped:
		return true
	}
	return false
}

// attempts places the rows of a run. The existing platform writes one row per
// attempt and does not say what it is an attempt of: a row is the next attempt of
// the execution before it of the same step if that one had failed before the row
// began, and the step is in no loop. Else it is another execution, "step#2".
func (o *oldRun) attempts() ([]*attempt, error) {
	all := make([]*attempt, 0, len(o.steps))
	newest := make(map[string]*attempt)
	executions := make(map[string]int)
	taken := make(map[string]bool, len(o.steps))
	for i := range o.steps {
		taken[o.steps[i].StepID] = true
	}
	for i := range o.steps {
		a, err := placed(&o.steps[i])
		if err != nil {
			return nil, err
		}
		id := a.row.StepID
		before := newest[id]
		if before != nil && !o.loops[id] && before.row.Status == string(parley.StepFailed) && !a.start.Before(before.end) {
			before.repeated = true
			a.path, a.number = before.path, before.number+1
		} else {
			a.path, a.number = nextPath(id, executions, taken), 1
		}
		newest[id] = a
		all = append(all, a)
	}
	return all, nil
}

// nextPath names another execution of a step, by a name that no step has.
func nextPath(id string, executions map[string]int, taken map[string]bool) string {
	for {
		executions[id]++
		n := executions[id]
		if n == 1 {
			return id
		}
		if path := id + "#" + strconv.Itoa(n); !taken[path] {
			return path
		}
	}
}

func placed(row *stepRow) (*attempt, error) {
	a := &attempt{row: row}
	var err error
	if a.start, err = timeOf(row.StartedAt); err != nil {
		return nil, err
	}
	if a.end, err = timeOf(row.CompletedAt); err != nil {
		return nil, err
	}
	if a.end.Before(a.start) {
		a.end = a.start
	}
	if row.StepID == "" {
		return nil, parley.Errorf(parley.CodeInvalid, "the row %s of its steps has no step_id", row.ID)
	}
	return a, nil
}

func (b *builder) begin(a *attempt) {
	r := a.row
	b.add(parley.EventStepScheduled, a.event(a.start), stepScheduled{
		Kind: kindAgent, Agent: r.Agent, Input: raw(&r.Input),
		Row: &stepKept{
			ID: r.ID, StepID: r.StepID, Name: r.StepName, Status: r.Status,
			Parent: textOf(r.Parent), Branch: textOf(r.Branch), Join: textOf(r.Join),
		},
	})
}

func (b *builder) finish(a *attempt) {
	e := a.event(a.end)
	switch parley.StepStatus(a.row.Status) {
	case parley.StepCompleted:
		output := raw(a.row.Output)
		if output == nil {
			output = []byte("null")
		}
		b.add(parley.EventStepCompleted, e, stepCompleted{kindAgent, output, a.start})
	case parley.StepSkipped:
		b.add(parley.EventStepSkipped, e, stepEnded{kindAgent})
	default:
		err := stepError(textOf(a.row.Error))
		err.Step, err.Attempt, err.Agent = a.path, a.number, a.row.Agent
		if a.repeated {
			b.add(parley.EventStepRetrying, e, stepRetrying{Error: err, At: a.end, Kept: raw(a.row.Output)})
			return
		}
		b.add(parley.EventStepFailed, e, stepFailed{kindAgent, err, a.start, raw(a.row.Output)})
	}
}

// abandon ends a row that has no end: its executor died, or its run was
// cancelled. What became of the call is not recorded.
func (b *builder) abandon(a *attempt) {
	e := a.event(b.run.EndedAt)
	if !b.old.unfinished() {
		b.add(parley.EventStepCancelled, e, stepEnded{kindAgent})
		return
	}
	err := parley.Errorf(parley.CodeOutcomeUnknown,
		"agent %q was being called on the existing platform when the run was imported; whether it did the task is not known here", a.row.Agent)
	err.Step, err.Attempt, err.Agent = a.path, a.number, a.row.Agent
	b.add(parley.EventStepFailed, e, stepFailed{kindAgent, err, a.start, raw(a.row.Output)})
}

func (a *attempt) event(at time.Time) parley.Event {
	return parley.Event{At: at, Step: a.path, Attempt: a.number}
}
