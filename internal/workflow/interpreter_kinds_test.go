package workflow

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// once carries a step out one time. What it gives is shaped and checked; that of agents
// for each call.
func (in *interpreter) once(x *lived, m moment) verdict {
	v := in.ofKind(x, m)
	if x.step.Kind == KindAgent || x.step.Kind == KindFinish {
		return v
	}
	if v = in.shaped(x, v); x.step.Kind == KindEmit && v.err != nil {
		x.emits = nil
	}
	return v
}

// shaped is rule P1 behind parse.
func (in *interpreter) shaped(x *lived, v verdict) verdict {
	if v.err != nil || v.finish {
		return v
	}
	if x.step.Output != nil {
		scope := in.scope(x.frame, v.at)
		scope.Result = orNull(v.output)
		shaped, err := x.step.Output.Eval(scope)
		if err != nil {
			v.err = x.because(err)
			return v
		}
		v.output = shaped
	}
	if x.step.Schema != nil && x.step.Kind != KindValidate && x.step.Schema.Check(orNull(v.output)) != nil {
		v.err = x.because(parley.Errorf(parley.CodeInvalidOutput, "it does not fit"))
	}
	return v
}

// ofKind is once by the kind of the step.
func (in *interpreter) ofKind(x *lived, m moment) verdict {
	switch x.step.Kind {
	case KindAgent:
		return in.calls(x, m)
	case KindGroup, KindParallel, KindConditional, KindSwitch, KindForkJoin, KindLoop, KindPlan:
		return in.composite(x, m)
	case KindWait:
		return in.waits(x, m)
	case KindSubWorkflow:
		return in.starts(x, m)
	case KindAwait:
		return in.awaits(x, m)
	case KindApproval:
		return in.asks(x, m)
	case KindEmit:
		return in.emits(x, m)
	case KindFail:
		return in.authors(x, m)
	}
	value := x.step.Set
	switch x.step.Kind {
	case KindFinish:
		value = x.step.Finish
	case KindValidate:
		value = x.step.Validate
	}
	v, err := value.Eval(in.scope(x.frame, m.now))
	if err == nil && x.step.Kind == KindValidate {
		err = validationFailure(x.step.Schema.Check(v))
	}
	if err != nil {
		return verdict{at: m.now, err: x.because(err)}
	}
	return verdict{at: m.now, output: v, finish: x.step.Kind == KindFinish}
}

func (in *interpreter) authors(x *lived, m moment) verdict {
	err := parley.Errorf(x.step.Fail.Code, "it was said so")
	if message := x.step.Fail.Message; message != nil {
		if _, wrong := message.Eval(in.scope(x.frame, m.now)); wrong != nil {
			err = asError(wrong)
		}
	}
	return verdict{at: m.now, err: x.because(err)}
}

func (in *interpreter) waits(x *lived, m moment) verdict {
	until := m.now.Add(x.step.Wait)
	if x.step.WaitUntil != nil {
		v, err := x.step.WaitUntil.Eval(in.scope(x.frame, m.now))
		if err == nil && json.Unmarshal(v, &until) != nil {
			err = parley.Errorf(parley.CodeInvalidInput, "no time")
		}
		if err != nil {
			return verdict{at: m.now, err: x.because(err)}
		}
	}
	if until.Before(m.now) {
		until = m.now
	}
	return verdict{at: until, output: fmt.Appendf(nil, `{"waited_ms":%d}`, until.Sub(x.start).Milliseconds())}
}

// calls is an agent step: its agents one after another, or side by side (rule R5).
func (in *interpreter) calls(x *lived, m moment) verdict {
	input, err := x.step.Input.Eval(in.scope(x.frame, m.now))
	if err != nil {
		return verdict{at: m.now, err: x.because(err)}
	}
	if x.begun.IsZero() {
		x.begun = m.now
	}
	policies := x.step.Retry
	if policies == nil {
		policies = []RetryPolicy{in.agents}
	}
	agents := x.step.Agents
	if agents == nil {
		agents = []string{x.step.Agent}
	}
	granted := map[int]int{}
	for {
		var v verdict
		if x.step.Hedged {
			v = in.hedge(x, input, m)
		} else {
			v = in.call(x, input, agents[0], m.now)
		}
		v.last = true
		if v.err == nil {
			return v
		}
		when, beaten, ok := in.again(policies, granted, v, m.until)
		switch {
		case ok:
			m.now = when
		case beaten && !x.step.Hedged && len(agents) > 1:
			agents, granted, m.now = agents[1:], map[int]int{}, v.at
		default:
			return v
		}
	}
}

// call is one attempt, with what is made of its answer (rule P1).
func (in *interpreter) call(x *lived, input json.RawMessage, agent string, now time.Time) verdict {
	x.attempts++
	took, r := in.answer(x.path, x.attempts, agent)
	v := verdict{at: now.Add(took), output: r.Output}
	x.calls = append(x.calls, &made{path: x.path, agent: agent, attempt: x.attempts, input: input, at: now, end: v.at})
	switch r.Outcome {
	case parley.OutcomeOK:
		if !x.step.ParseJSON {
			return in.shaped(x, v)
		}
		var o struct{ Text string }
		if json.Unmarshal(v.output, &o.Text) != nil && json.Unmarshal(v.output, &o) != nil {
			v.err = x.because(parley.Errorf(parley.CodeInvalidOutput, "nothing to read"))
			return v
		}
		parsed, err := expr.ParseJSON(o.Text)
		if v.output = parsed; err != nil {
			v.err = x.because(parley.Errorf(parley.CodeInvalidOutput, "no JSON"))
		}
		v = in.shaped(x, v)
	case parley.OutcomeUnknown:
		v.err = x.because(parley.Errorf(parley.CodeOutcomeUnknown, "unknown"))
	case parley.OutcomeCancelled:
		v.err = x.because(parley.Errorf(parley.CodeCancelled, "cancelled"))
	default:
		v.err = x.because(r.Err)
	}
	return v
}

// hedge calls agents side by side: the next one a while after the last, or as soon
// as all that were called have failed. The first success wins.
func (in *interpreter) hedge(x *lived, input json.RawMessage, m moment) verdict {
	var answers []verdict
	next, now, first := m.now, m.now, len(x.calls)
	for {
		for len(answers) < len(x.step.Agents) && !next.After(now) {
			answers = append(answers, in.call(x, input, x.step.Agents[len(answers)], now))
			next = now.Add(x.step.HedgeAfter)
		}
		failed, last := 0, verdict{}
		for _, v := range answers {
			switch {
			case v.at.After(now):
			case v.err == nil:
				for _, c := range x.calls[first:] {
					c.end = sooner(c.end, now)
				}
				return v
			default:
				if failed++; v.at.After(last.at) {
					last = v
				}
			}
		}
		switch {
		case failed == len(x.step.Agents):
			return last
		case failed == len(answers):
			next = now
			continue
		}
		soon := time.Time{}
		for _, v := range answers {
			if v.at.After(now) {
				soon = sooner(soon, v.at)
			}
		}
		if len(answers) < len(x.step.Agents) {
			soon = sooner(soon, next)
		}
		now = soon
	}
}

// composite carries out the lists of a step one time.
func (in *interpreter) composite(x *lived, m moment) verdict {
	if !x.evaluated {
		if err := in.evaluate(x, m.now); err != nil {
			return verdict{at: m.now, err: x.because(err)}
		}
		x.evaluated = true
	}
	if x.begun.IsZero() {
		x.begun = m.now
	}
	x.rounds, x.since = append(x.rounds, nil), append(x.since, m.now)
	switch {
	case x.step.Fork != nil:
		return in.forks(x, m)
	case x.step.Loop != nil && x.step.Loop.Over != nil:
		return in.forEach(x, m)
	case x.step.Loop != nil:
		return in.repeats(x, m)
	}
	b := x.step.Body
	if x.planned != nil {
		b = x.planned.Body
	}
	if x.step.Cases != nil {
		if x.chosen == none || x.step.Cases[x.chosen].Body == nil {
			return verdict{at: m.now, output: json.RawMessage("null")}
		}
		b = x.step.Cases[x.chosen].Body
	}
	f := x.list(b, "", m.now)
	v := in.block(f, m.until)
	if v.err == nil && !v.finish && (x.step.Kind == KindParallel || x.step.Kind == KindPlan) {
		all := map[string]any{}
		for _, child := range f.steps {
			all[child.step.ID] = orNull(child.output)
		}
		v.output = written(all)
	}
	return v
}

// list begins one of the lists of the newest round.
func (x *lived) list(b *Block, index string, now time.Time) *frame {
	f := newFrame(b, x, x.prefix()+index+"/", now)
	x.rounds[len(x.rounds)-1] = append(x.rounds[len(x.rounds)-1], f)
	return f
}

func written(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// evaluate chooses a case, or the items of a loop.
func (in *interpreter) evaluate(x *lived, now time.Time) error {
	scope := in.scope(x.frame, now)
	if plan := x.step.Plan; plan != nil {
		value, err := plan.Steps.Eval(scope)
		if err != nil {
			return err
		}
		def, err := compilePlan(x.step, value)
		if err != nil {
			return err
		}
		for _, b := range x.step.AllBlocks() {
			for _, other := range b.Steps {
				if slices.ContainsFunc(def.Body.Steps, func(s *Step) bool { return s.ID == other.ID }) {
					return parley.Errorf(parley.CodePlanInvalid, "one path would be that of two steps")
				}
			}
		}
		if x.given, err = x.step.Input.Eval(scope); err != nil {
			return err
		}
		x.planned = def
	}
	for i, c := range x.step.Cases {
		holds := c.When == nil
		if !holds {
			var err error
			if holds, err = c.When.Eval(scope); err != nil {
				return err
			}
		}
		if holds {
			x.chosen = i
			break
		}
	}
	if loop := x.step.Loop; loop != nil && loop.Over != nil {
		v, err := loop.Over.Eval(scope)
		if err != nil {
			return err
		}
		if v[0] != '[' || json.Unmarshal(v, &x.items) != nil {
			return parley.Errorf(parley.CodeInvalidInput, "no list")
		}
		if most := loop.MaxIterations; most > 0 && len(x.items) > most {
			x.items, x.truncated = x.items[:most], len(x.items)-most
		}
	}
	return nil
}

// side says how lists side by side are begun and when they have come to something.
type side struct {
	total, most int
	begin       func(i int, now time.Time) verdict
	decide      func(passed, failed int, first *parley.Error) (v verdict, done bool)
}

// beside carries out lists side by side. ends are those of the lists.
func (in *interpreter) beside(x *lived, m moment, s side) (v verdict, ends []verdict) {
	now := m.now
	for {
		passed, failed, open, next := 0, 0, 0, time.Time{}
		var first verdict
		for _, e := range ends {
			switch {
			case e.at.After(now):
				open++
				next = sooner(next, e.at)
			case e.finish:
				in.cutInside(x, now)
				return e.moved(now), ends
			case e.err == nil:
				passed++
			default:
				if failed++; first.err == nil || e.at.Before(first.at) {
					first = e
				}
			}
		}
		if v, done := s.decide(passed, failed, first.err); done {
			in.cutInside(x, now)
			if v.err != nil {
				v.err = x.because(v.err)
			}
			return v.moved(now), ends
		}
		if len(ends) < s.total && (s.most == 0 || open < s.most) {
			ends = append(ends, s.begin(len(ends), now))
			continue
		}
		now = next
	}
}

// gave is what one of several lists gave until then; null if it has not completed.
func gave(ends []verdict, i int, now time.Time) json.RawMessage {
	if i >= len(ends) || ends[i].at.After(now) || ends[i].err != nil {
		return json.RawMessage("null")
	}
	return orNull(ends[i].output)
}

// forks is rule S4.
func (in *interpreter) forks(x *lived, m moment) verdict {
	fork := x.step.Fork
	n := len(fork.Branches)
	v, ends := in.beside(x, m, side{
		total: n, most: fork.MaxParallel,
		begin: func(i int, now time.Time) verdict {
			b := fork.Branches[i]
			f, until, deadline := x.list(b, "", now), m.until, now.Add(b.Timeout)
			if b.Timeout > 0 {
				until = sooner(until, deadline)
			}
			v := in.block(f, until)
			if b.Timeout > 0 && v.at.After(deadline) {
				in.cut(f, deadline)
				v = verdict{at: deadline, err: parley.Errorf(parley.CodeTimeout, "too long")}
			}
			return v
		},
		decide: func(passed, failed int, _ *parley.Error) (v verdict, done bool) {
			certain := passed >= fork.Need || n-failed < fork.Need
			if passed+failed < n && (fork.Wait || !certain) {
				return v, false
			}
			if passed < fork.Need {
				v.err = parley.Errorf(parley.CodeJoinFailed, "too few")
			}
			return v, true
		},
	})
	if v.err == nil && !v.finish {
		all := map[string]any{}
		for i, b := range fork.Branches {
			all[b.Name] = gave(ends, i, v.at)
		}
		v.output = written(all)
	}
	return v
}

// forEach is rule S7.
func (in *interpreter) forEach(x *lived, m moment) verdict {
	loop, n, lost := x.step.Loop, len(x.items), 0
	tolerated := loop.Tolerate.of(n)
	if loop.Enough > 0 && loop.Tolerate == nil {
		tolerated = float64(n - loop.Enough)
	}
	v, ends := in.beside(x, m, side{
		total: n, most: loop.MaxParallel,
		begin: func(i int, now time.Time) verdict {
			f := x.list(x.step.Body, fmt.Sprintf("[%d]", i), now)
			f.each = &expr.EachInfo{Item: x.items[i], Index: i, Total: n, First: i == 0, Last: i == n-1, Parent: in.scope(x.frame, now).Each}
			return in.block(f, m.until)
		},
		decide: func(passed, failed int, first *parley.Error) (v verdict, done bool) {
			ended, tooMany := passed+failed == n, n > 0 && float64(failed) > tolerated
			lost = failed
			switch {
			case tooMany && (loop.Errors == ItemErrorsStop || loop.Errors == ItemErrorsCollect && ended):
				if v.err = first; tolerated != 0 {
					v.err = parley.Errorf(parley.CodeToleranceExceeded, "too many")
				}
				return v, true
			case ended, loop.Enough > 0 && passed >= loop.Enough:
				return v, true
			}
			return v, false
		},
	})
	if v.err != nil || v.finish {
		return v
	}
	all := []json.RawMessage{}
	for i := range x.items {
		all = append(all, gave(ends, i, v.at))
	}
	o := map[string]any{"iterations": all, "total_count": n}
	if lost > 0 {
		o["failed_count"] = lost
	}
	if x.truncated > 0 {
		o["truncated_count"] = x.truncated
	}
	v.output = written(o)
	return v
}

// repeats is rule S8.
func (in *interpreter) repeats(x *lived, m moment) verdict {
	loop, now := x.step.Loop, m.now
	all := []json.RawMessage{}
	for i := 0; ; i++ {
		f := x.list(x.step.Body, fmt.Sprintf("[%d]", i), now)
		f.each = &expr.EachInfo{Index: i, Total: loop.Max, First: i == 0, Last: i == loop.Max-1, Parent: in.scope(x.frame, now).Each}
		v := in.block(f, m.until)
		if v.err != nil || v.finish {
			return v
		}
		now, all = v.at, append(all, orNull(v.output))
		satisfied, atMax := loop.Until == nil && i == loop.Max-1, i == loop.Max-1
		if loop.Until != nil {
			var err error
			if satisfied, err = loop.Until.Eval(in.scope(f, now)); err != nil {
				return verdict{at: now, err: x.because(err)}
			}
		}
		switch {
		case !satisfied && atMax && loop.FailAtMax:
			return verdict{at: now, err: x.because(parley.Errorf(parley.CodeMaxIterations, "too often"))}
		case satisfied || atMax:
			return verdict{at: now, output: written(map[string]any{
				"iterations": all, "total_count": i + 1, "satisfied": satisfied, "last": all[i],
			})}
		}
	}
}

// told is what an interpreter says of a run.
type told struct {
	status parley.RunStatus
	output json.RawMessage
	err    *parley.Error
	steps  []*lived
	calls  []*made
	emits  []string
}

// run carries out a whole workflow: its body, its compensation, and finally.
func (in *interpreter) run() told {
	body := newFrame(in.def.Body, nil, "", in.start)
	v := in.block(body, in.start.Add(in.def.Timeout))
	if v.err == nil && !v.finish && in.def.Output != nil {
		out, err := in.def.Output.Eval(in.scope(body, v.at))
		if v.output = out; err != nil {
			v.err = asError(err)
		}
	}
	r, now := told{status: parley.RunCompleted, output: v.output}, v.at
	if v.err != nil {
		r = told{status: parley.RunFailed, err: v.err}
		until := now.Add(in.def.CleanupTimeout)
		if now = in.undoes([]*frame{body}, v.err, moment{now, until}); now.After(until) {
			now = until
			in.cut(body, until)
		}
	}
	lists := []*frame{body}
	if in.def.Finally != nil {
		in.outcome, in.failure = r.status, r.err
		f, until := newFrame(in.def.Finally, nil, "", now), now.Add(in.def.CleanupTimeout)
		f.around = body
		lists = append(lists, f)
		v := in.block(f, until)
		if v.at.After(until) {
			in.cut(f, until)
			v.err = parley.Errorf(parley.CodeTimeout, "too long")
		}
		if v.err != nil && r.err == nil {
			r = told{status: parley.RunFailed, err: parley.Errorf(parley.CodeFinallyFailed, "finally")}
			r.err.Step = v.err.Step
		}
	}
	for _, f := range lists {
		f.walk(func(x *lived) {
			r.steps = append(r.steps, x)
			r.calls = append(r.calls, x.calls...)
			r.emits = append(r.emits, x.emits...)
		})
	}
	slices.SortFunc(r.calls, func(a, b *made) int { return a.at.Compare(b.at) })
	return r
}
