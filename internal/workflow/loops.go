package workflow

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// tally counts how the lists of a step stand. Those that are left were taken over as
// they were cut off, and come to no end.
type tally struct {
	passed, failed, left, open int
	// first is the list that failed first.
	first *region
}

// ended counts the lists of which nothing more is to come.
func (t tally) ended() int { return t.passed + t.failed + t.left }

// advanceParts goes on with the lists of a step that have begun.
func (a *decider) advanceParts(x *execution) (t tally) {
	for r := range x.begun {
		if r.dirty {
			a.advanceRegion(r)
		}
		if a.over() {
			return t
		}
		switch r.state() {
		case regionPassed:
			t.passed++
		case regionFailed:
			t.failed++
			if t.first == nil || r.failedBefore(t.first) {
				t.first = r
			}
		case regionOpen:
			if r.idle() {
				t.left++
				continue
			}
			t.open++
		}
	}
	return t
}

// failedBefore orders lists by when they failed.
func (r *region) failedBefore(other *region) bool {
	return r.lost != nil && other.lost != nil && r.lost.endedAt.Before(other.lost.endedAt)
}

// beginPart starts the next list of a step.
func (a *decider) beginPart(x *execution) {
	a.advanceRegion(x.part(len(x.parts)))
}

// lostBefore reports whether the next of the n lists of a step was taken over as one that
// failed or was cut off, while other lists were enough: it is entered, though they are
// enough again, since what was done in it may have to be undone.
func (a *decider) lostBefore(x *execution, n int) bool {
	i := len(x.parts)
	if len(a.copied) == 0 || i == n {
		return false
	}
	prefix := x.prefixOf(i)
	return slices.ContainsFunc(x.step.blockAt(i).Steps, func(step *Step) bool {
		c := a.copied[prefix+step.ID]
		return c.Unhandled || c.Status == parley.StepCancelled
	})
}

// mayBegin reports whether one more list of a step may start, of as many as run and
// may run at the same time; 0 is no bound.
func (a *decider) mayBegin(open, most int) bool {
	return !a.cancelling && !a.paused && (most == 0 || open < most)
}

// itemsOf evaluates the list that a loop goes over, once (rule S2), and gives as
// much of it as the loop takes, and how much it leaves.
func (a *decider) itemsOf(x *execution) (items json.RawMessage, truncated int, err error) {
	if c, ok := a.entered(x); ok {
		return c.Output, c.Truncated, nil
	}
	loop := x.step.Loop
	value, err := loop.Over.Eval(a.scope(x))
	if err != nil {
		return nil, 0, err
	}
	var list []json.RawMessage
	if len(value) == 0 || value[0] != '[' || json.Unmarshal(value, &list) != nil {
		return nil, 0, parley.Errorf(parley.CodeInvalidInput, "for_each: %s is no list", capText(value))
	}
	if loop.MaxIterations > 0 && len(list) > loop.MaxIterations {
		truncated = len(list) - loop.MaxIterations
		if value, err = json.Marshal(list[:loop.MaxIterations]); err != nil {
			return nil, 0, err
		}
	}
	if n := len(list) - truncated; n > a.limits.Items {
		return nil, 0, limitError("items", int64(a.limits.Items), int64(n))
	}
	return value, truncated, a.fits("for_each", value)
}

// advanceForEach is rule S7.
func (a *decider) advanceForEach(x *execution) {
	loop, n := x.step.Loop, len(x.items)
	t := a.advanceParts(x)
	enough := loop.Enough > 0 && t.passed >= loop.Enough
	if a.over() || a.cancelling && t.passed < n && (!enough || a.anyInFlight(x)) {
		return
	}
	bound := loop.Tolerate.of(n)
	if loop.Enough > 0 && loop.Tolerate == nil {
		bound = float64(n - loop.Enough)
	}
	beyond := loop.Errors != ItemErrorsContinue && n > 0 && float64(t.failed) > bound
	switch {
	case a.mayBegin(t.open, loop.MaxParallel) && a.lostBefore(x, n):
		a.beginPart(x)
		x.dirty = true
	case t.failed > 0 && a.exhausted():
		a.endParts(x)
		a.fail(x, a.exhaustion(), attemptEnd{started: x.scheduledAt})
	case beyond && (loop.Errors != ItemErrorsCollect || t.ended() == n):
		a.endParts(x)
		a.fail(x, toleranceExceeded(t, bound, n), attemptEnd{started: x.scheduledAt})
	case t.ended() == n, enough:
		a.endParts(x)
		a.complete(x, forEachOutput(x, t.failed), completion{attemptEnd: attemptEnd{started: x.scheduledAt}})
	case len(x.parts) < n && a.mayBegin(t.open, loop.MaxParallel):
		a.beginPart(x)
		x.dirty = true
	}
}

// endParts cancels what is open in the lists of a step: also in one that has failed,
// where nothing is cancelled by that while the run is.
func (a *decider) endParts(x *execution) {
	for r := range x.begun {
		if r.state() != regionPassed {
			a.cancelOpen(r)
		}
	}
}

// toleranceExceeded is the error of a loop of which more iterations failed than may;
// that of the iteration itself if none may.
func toleranceExceeded(t tally, bound float64, n int) *parley.Error {
	if t.first != nil && bound == 0 {
		return t.first.failure()
	}
	err := parley.Errorf(parley.CodeToleranceExceeded, "%d of %d iterations failed, %s are tolerated", t.failed, n, strconv.FormatFloat(max(bound, 0), 'f', -1, 64))
	details := map[string]any{"failed": t.failed, "tolerated": max(bound, 0), "total": n}
	if t.first == nil {
		err.Message = "There are fewer items than the completed iterations that are enough"
	} else {
		err.Cause = t.first.failure()
	}
	return err.WithDetails(details)
}

// forEachOutput has the output of each iteration in the order of the items, null for
// those that did not complete.
func forEachOutput(x *execution, failed int) json.RawMessage {
	o := object{buf: []byte{'{'}}
	o.key("iterations")
	o.buf = append(o.buf, '[')
	for i := range x.items {
		if i > 0 {
			o.buf = append(o.buf, ',')
		}
		var value json.RawMessage
		if i < len(x.parts) && x.parts[i].state() == regionPassed {
			value = x.parts[i].output()
		}
		o.buf = append(o.buf, orNull(value)...)
	}
	o.buf = append(o.buf, ']')
	o.number("total_count", len(x.items))
	if failed > 0 {
		o.number("failed_count", failed)
	}
	if x.truncated > 0 && x.step.Loop.Truncated {
		o.number("truncated_count", x.truncated)
	}
	return o.end()
}

// advanceRepeat is rule S8.
func (a *decider) advanceRepeat(x *execution) {
	if n := len(x.parts); n > 0 {
		last := x.parts[n-1]
		state := a.advanceRegion(last)
		switch {
		case a.over() || a.paused || state == regionOpen:
			return
		case state == regionFailed:
			a.fail(x, last.failure(), attemptEnd{started: x.scheduledAt})
			return
		}
		if a.satisfied(x, last) || x.status != parley.StepRunning || !x.retryAt.IsZero() {
			return
		}
	}
	if a.mayBegin(0, 1) {
		a.beginPart(x)
		x.dirty = true
	}
}

// satisfied ends a repeat whose last body has ended, if it has done what it is for,
// or may not run again.
func (a *decider) satisfied(x *execution, last *region) bool {
	loop, end := x.step.Loop, attemptEnd{started: x.scheduledAt}
	atMax := len(x.parts) == loop.Max
	holds := loop.Until == nil && atMax
	if loop.Until != nil {
		var err error
		if holds, err = loop.Until.Eval(a.newScope(a.at, last)); err != nil {
			a.fail(x, asError(err), end)
			return true
		}
	}
	switch {
	case !holds && atMax && loop.FailAtMax:
		a.fail(x, parley.Errorf(parley.CodeMaxIterations, "What the loop repeats for did not hold after %d iterations", loop.Max).
			WithDetails(map[string]int{"max": loop.Max}), end)
	case holds || atMax:
		a.complete(x, repeatOutput(x, holds), completion{attemptEnd: end})
	default:
		return false
	}
	return true
}

func repeatOutput(x *execution, satisfied bool) json.RawMessage {
	o := object{buf: []byte{'{'}}
	o.key("iterations")
	o.buf = append(o.buf, '[')
	last := json.RawMessage("null")
	for i, r := range x.parts {
		if i > 0 {
			o.buf = append(o.buf, ',')
		}
		last = r.output()
		o.buf = append(o.buf, last...)
	}
	o.buf = append(o.buf, ']')
	o.number("total_count", len(x.parts))
	o.key("satisfied")
	o.buf = strconv.AppendBool(o.buf, satisfied)
	o.raw("last", last)
	return o.end()
}

// forkErrors are the errors of the branches that have failed, by name.
func forkErrors(x *execution) map[string]*parley.Error {
	failed := map[string]*parley.Error{}
	for r := range x.begun {
		if r.state() == regionFailed {
			failed[r.block.Name] = r.failure()
		}
	}
	return failed
}

// advanceFork is rule S4 for a fork_join.
func (a *decider) advanceFork(x *execution) {
	fork, n := x.step.Fork, len(x.step.Fork.Branches)
	t := a.advanceParts(x)
	if a.over() || a.cancelling && (t.passed < fork.Need || a.anyInFlight(x)) {
		return
	}
	ended := t.ended() == n
	certain := t.passed >= fork.Need || n-t.failed < fork.Need
	switch {
	case a.mayBegin(t.open, fork.MaxParallel) && a.lostBefore(x, n):
		a.beginPart(x)
		x.dirty = true
	case ended || certain && !fork.Wait:
		a.endParts(x)
		end := attemptEnd{started: x.scheduledAt}
		if t.passed >= fork.Need {
			a.complete(x, forkOutput(x), completion{attemptEnd: end})
			return
		}
		a.fail(x, parley.Errorf(parley.CodeJoinFailed, "%d of %d branches failed, %d must complete", t.failed, n, fork.Need).
			WithDetails(map[string]any{"branches": forkErrors(x)}), end)
	case len(x.parts) < n && a.mayBegin(t.open, fork.MaxParallel):
		a.beginPart(x)
		x.dirty = true
	}
}

// forkOutput has the output of each branch by its name, null for those that did not
// complete.
func forkOutput(x *execution) json.RawMessage {
	o := object{buf: []byte{'{'}}
	for i, b := range x.step.Fork.Branches {
		var value json.RawMessage
		if i < len(x.parts) && x.parts[i].state() == regionPassed {
			value = x.parts[i].output()
		}
		o.value(b.Name, value)
	}
	return o.end()
}

// branchDeadline is when the time of the first open branch of a fork is up; zero is
// never.
func (e *execution) branchDeadline() (first time.Time) {
	if e.step.Fork == nil {
		return first
	}
	for r := range e.begun {
		if r.bounded() && !r.deadline.IsZero() && (first.IsZero() || r.deadline.Before(first)) {
			first = r.deadline
		}
	}
	return first
}

// branchTimers ends the branches of a fork whose time is up.
func (a *decider) branchTimers(x *execution, due func(time.Time) bool) {
	if x.step.Fork == nil {
		return
	}
	for r := range x.begun {
		if !r.bounded() || !due(r.deadline) {
			continue
		}
		err := parley.Errorf(parley.CodeTimeout, "The timeout of %s of branch %s is over", r.block.Timeout, r.block.Name).
			WithDetails(map[string]string{"limit": "timeout", "branch": r.block.Name})
		err.Step = x.path
		a.record(parley.EventTimerFired, x, timerFired{Branch: r.block.Name, Error: err})
		a.cancelOpen(r)
	}
}

// timedOut notes that the time of a branch is up.
func (e *execution) timedOut(p timerFired) {
	for r := range e.begun {
		if r.block.Name == p.Branch {
			r.err = p.Error
		}
	}
}

// takeItems notes the list that a loop goes over.
func (e *execution) takeItems(p stepScheduled) {
	// It was a list when it was recorded.
	_ = json.Unmarshal(p.Input, &e.items)
	e.truncated = p.Truncated
}

// each is the innermost iteration that a list stands in; nil outside of loops.
func (r *region) each() *expr.EachInfo {
	for ; r != nil; r = r.around() {
		if r.owner != nil && r.owner.step.Loop != nil && r.block == r.owner.step.Body {
			return r.iteration()
		}
	}
	return nil
}

// iteration is `each` of rule E4.
func (r *region) iteration() *expr.EachInfo {
	x, loop := r.owner, r.owner.step.Loop
	info := &expr.EachInfo{Index: r.part, First: r.part == 0, Total: loop.Max, Parent: x.region.each()}
	if loop.Over != nil {
		info.Item, info.Total = x.items[r.part], len(x.items)
	}
	info.Last = r.part == info.Total-1
	if one := loop.Over == nil || loop.MaxParallel == 1; one && r.before != nil {
		info.Previous = r.before.previous()
	}
	return info
}

// previous is `each.previous`: the steps of an iteration that has ended.
func (r *region) previous() *expr.PreviousInfo {
	info := &expr.PreviousInfo{Step: func(id string) (expr.StepInfo, bool) {
		for i, step := range r.block.Steps {
			if step.ID == id && r.steps[i] != nil {
				return r.steps[i].info(r.steps[i].endedAt), true
			}
		}
		return expr.StepInfo{Status: parley.StepCancelled}, true // the iteration is over
	}}
	for _, step := range r.block.Steps {
		info.IDs = append(info.IDs, step.ID)
	}
	return info
}
