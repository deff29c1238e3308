package workflow

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// interpreter says what a workflow comes to, as language.md does and not as the
// core does: it has no events and no facts. It carries out each step by itself,
// from when it begins to when it would end, as if nothing else happened, and
// then takes back what would have happened after the moment at which something
// else ended it (cut).
type interpreter struct {
	def    *Definition
	input  json.RawMessage
	labels map[string]string
	start  time.Time
	// answer is what an agent gives to an attempt, and when.
	answer func(path string, attempt int, agent string) (time.Duration, parley.Result)
	// agents is the policy of the agents' own records (rule R4).
	agents RetryPolicy
	jitter float64
	// ends numbers the ends of steps: those of one instant have an order too.
	ends int
	// outcome and failure are what finally sees of the run.
	outcome parley.RunStatus
	failure *parley.Error
}

// lived is one step as it went.
type lived struct {
	step       *Step
	path       string
	frame      *frame
	start, end time.Time
	seq        int
	status     parley.StepStatus
	handled    bool
	output     json.RawMessage
	err        *parley.Error
	finish     bool
	calls      []*made
	attempts   int
	// rounds are the lists inside of it, by round, and since when each began; begun is
	// when the first round, or the first call, began.
	rounds [][]*frame
	since  []time.Time
	begun  time.Time
	// handler and undo are the lists of its handler and of its compensation.
	handler, undo *frame
	// evaluated is set once the condition or the list of a composite is known.
	evaluated bool
	chosen    int
	items     []json.RawMessage
	truncated int
	// ran is the workflow that was run, told what it was given.
	ran  string
	told json.RawMessage
	// planned is the plan that is run, with its input; emits what was published.
	planned *Definition
	given   json.RawMessage
	emits   []string
}

// made is one call of an agent.
type made struct {
	path, agent string
	attempt     int
	input       json.RawMessage
	at, end     time.Time
}

// frame is one list of steps as it went.
type frame struct {
	block  *Block
	around *frame
	owner  *lived
	prefix string
	start  time.Time
	steps  []*lived
	each   *expr.EachInfo
	err    *parley.Error
}

// moment is when something begins, and until when a retry may (rule T1).
type moment struct{ now, until time.Time }

// verdict is what something has come to.
type verdict struct {
	at     time.Time
	output json.RawMessage
	err    *parley.Error
	finish bool
	// last: it is not tried again.
	last bool
}

func (in *interpreter) ended(x *lived, status parley.StepStatus, at time.Time) {
	in.ends++
	x.status, x.end, x.seq = status, at, in.ends
}

func newFrame(b *Block, owner *lived, prefix string, at time.Time) *frame {
	f := &frame{block: b, owner: owner, prefix: prefix, start: at, steps: make([]*lived, len(b.Steps))}
	if owner != nil {
		f.around = owner.frame
	}
	return f
}

// prefix of the lists in the newest round (rule S9).
func (x *lived) prefix() string {
	if n := len(x.rounds); n > 1 {
		return x.path + "#" + strconv.Itoa(n)
	}
	return x.path
}

func (x *lived) passed(now time.Time) bool {
	return !x.end.After(now) && (x.status == parley.StepCompleted || x.status == parley.StepSkipped || x.handled)
}

// block carries out a list of steps (rules S1, S3, S5, S6).
func (in *interpreter) block(f *frame, until time.Time) verdict {
	now := f.start
	for {
		for again := true; again; {
			again = false
			for i, step := range f.block.Steps {
				if v, done := in.verdict(f, now); done && (v.finish || !f.block.Wait) {
					return v
				}
				if f.steps[i] == nil && f.mayStart(step, now) {
					in.step(f, step, moment{now, until})
					again = true
				}
			}
		}
		if v, done := in.verdict(f, now); done {
			return v
		}
		now = f.next(now)
	}
}

// mayStart is rules S1 and S5.
func (f *frame) mayStart(step *Step, now time.Time) bool {
	for _, i := range step.Needs {
		if f.steps[i] == nil || !f.steps[i].passed(now) {
			return false
		}
	}
	running := 0
	for _, x := range f.steps {
		if x != nil && x.end.After(now) {
			running++
		}
	}
	return f.block.MaxParallel == 0 || running < f.block.MaxParallel
}

// next is when the next of the running steps ends.
func (f *frame) next(now time.Time) (next time.Time) {
	for _, x := range f.steps {
		if x != nil && x.end.After(now) && (next.IsZero() || x.end.Before(next)) {
			next = x.end
		}
	}
	return next
}

// verdict is what a list has come to by now, if it has ended.
func (in *interpreter) verdict(f *frame, now time.Time) (v verdict, done bool) {
	passed, running := 0, false
	var lost *lived
	v.at = now
	for _, x := range f.steps {
		switch {
		case x == nil:
		case x.end.After(now):
			running = true
		case x.finish:
			in.cut(f, now)
			return verdict{at: now, output: x.output, finish: true}, true
		case x.passed(now):
			passed++
			if x.status != parley.StepSkipped {
				v.output = orNull(x.output)
			}
		case lost == nil || x.end.Before(lost.end) || x.end.Equal(lost.end) && x.seq < lost.seq:
			lost = x
		}
	}
	if lost != nil {
		if f.block.Wait && running {
			return verdict{}, false
		}
		in.cut(f, now)
		return verdict{at: now, err: lost.err}, true
	}
	return v, passed == len(f.steps)
}

// cut takes back what would have happened in a list after at: what ran then is
// cancelled, what began later never was.
func (in *interpreter) cut(f *frame, at time.Time) {
	for i, x := range f.steps {
		switch {
		case x == nil:
		case x.start.After(at):
			f.steps[i] = nil
		default:
			in.cutInside(x, at)
			if x.end.After(at) {
				x.handled, x.output, x.finish, x.err = false, nil, false, nil
				in.ended(x, parley.StepCancelled, at)
			}
		}
	}
}

// cutInside takes back what would have happened in a step after at.
func (in *interpreter) cutInside(x *lived, at time.Time) {
	// A call that is begun and ended in the same instant is never sent.
	x.calls = slices.DeleteFunc(x.calls, func(c *made) bool { return c.end.After(at) && !c.at.Before(at) })
	for i, round := range x.rounds {
		x.rounds[i] = slices.DeleteFunc(round, func(f *frame) bool { return f.start.After(at) })
		for _, f := range x.rounds[i] {
			in.cut(f, at)
		}
	}
	for n := len(x.rounds); n > 1 && x.since[n-1].After(at); n-- {
		x.rounds, x.since = x.rounds[:n-1], x.since[:n-1]
	}
	for _, f := range []**frame{&x.handler, &x.undo} {
		switch {
		case *f == nil:
		case (*f).start.After(at):
			*f = nil
		default:
			in.cut(*f, at)
		}
	}
}

// step carries out one step with all that its members say.
func (in *interpreter) step(f *frame, step *Step, m moment) {
	x := &lived{step: step, path: f.prefix + step.ID, frame: f, start: m.now, end: m.now.Add(1 << 60), status: parley.StepRunning, chosen: none}
	f.steps[step.Index] = x
	if step.If != nil {
		holds, err := step.If.Eval(in.scope(f, m.now))
		if err != nil {
			in.fails(x, verdict{at: m.now, err: x.because(err)}, m)
			return
		}
		if !holds {
			in.ended(x, parley.StepSkipped, m.now)
			return
		}
	}
	deadline, within := m.now.Add(step.Timeout), m
	if step.Timeout > 0 {
		within.until = sooner(m.until, deadline)
	}
	v := in.tries(x, within)
	if step.Timeout > 0 && v.at.After(deadline) { // rule T1
		in.cutInside(x, deadline)
		v = verdict{at: deadline, err: parley.Errorf(parley.CodeTimeout, "too long")}
		v.err.Step = x.path
	}
	switch {
	case v.finish:
		x.finish, x.output = true, v.output
		in.ended(x, parley.StepCancelled, v.at)
		if step.Kind == KindFinish {
			x.status = parley.StepCompleted
		}
	case v.err != nil:
		in.fails(x, v, m)
	default:
		x.output = orNull(v.output)
		in.ended(x, parley.StepCompleted, v.at)
	}
}

func (v verdict) moved(t time.Time) verdict {
	v.at = t
	return v
}

func sooner(t, u time.Time) time.Time {
	if t.IsZero() || u.Before(t) {
		return u
	}
	return t
}

// because is an error of the step, as those that it fails with name it.
func (x *lived) because(err error) *parley.Error {
	e := *asError(err)
	if e.Step == "" {
		e.Step = x.path
	}
	return &e
}

// tries carries a step out as often as its policies say (rules R1 to R4).
func (in *interpreter) tries(x *lived, m moment) verdict {
	granted := map[int]int{}
	for {
		v := in.once(x, m)
		if v.err == nil || v.last {
			return v
		}
		again, _, ok := in.again(x.step.Retry, granted, v, m.until)
		if !ok {
			return v
		}
		m.now = again
	}
}

// again says when a step is tried again after a failure; beaten: a policy would
// have granted it before (rule R5).
func (in *interpreter) again(policies []RetryPolicy, granted map[int]int, v verdict, until time.Time) (when time.Time, beaten, ok bool) {
	i := slices.IndexFunc(policies, func(p RetryPolicy) bool { return p.matches(v.err) })
	if i < 0 {
		return when, false, false
	}
	p := policies[i]
	if granted[i]++; granted[i] >= p.Attempts {
		return when, true, false
	}
	delay := float64(p.Delay)
	for range granted[i] - 1 {
		delay *= p.Multiplier
	}
	delay = min(delay, float64(p.MaxDelay))
	if p.FullJitter {
		delay *= in.jitter
	}
	when = v.at.Add(time.Duration(delay).Truncate(time.Millisecond))
	return when, true, until.IsZero() || when.Before(until)
}

// fails ends a step as its handlers say (§6).
func (in *interpreter) fails(x *lived, v verdict, m moment) {
	x.err = v.err
	failed := func(err *parley.Error, at time.Time) {
		x.err = err
		in.ended(x, parley.StepFailed, at)
	}
	for i := range x.step.Handlers {
		h := &x.step.Handlers[i]
		if h.Match == nil && v.err.Code == parley.CodeCancelled || h.Match != nil && !slices.Contains(h.Match, v.err.Code) {
			continue
		}
		if h.If != nil {
			scope := in.scope(x.frame, v.at)
			scope.Error = v.err
			holds, err := h.If.Eval(scope)
			if err != nil {
				failed(x.because(err), v.at)
				return
			}
			if !holds {
				continue
			}
		}
		in.handles(x, h, moment{v.at, m.until})
		return
	}
	failed(v.err, v.at)
}

// handles is rules H1 and H3.
func (in *interpreter) handles(x *lived, h *Handler, m moment) {
	var output json.RawMessage
	if h.Compensate {
		var inside []*frame
		for _, round := range x.rounds {
			inside = append(inside, round...)
		}
		m.now = in.undoes(inside, x.err, m)
	}
	if h.Body != nil {
		x.handler = newFrame(h.Body, x, x.prefix()+"/", m.now)
		x.handler.err = x.err
		v := in.block(x.handler, m.until)
		m.now, output = v.at, v.output
		switch {
		case v.finish:
			x.finish, x.output = true, v.output
			in.ended(x, parley.StepCancelled, v.at)
			return
		case v.err != nil:
			x.err = v.err
			in.ended(x, parley.StepFailed, v.at)
			return
		}
	}
	x.handled = h.Then != ThenFail
	if x.handled {
		x.output = output
	}
	in.ended(x, parley.StepFailed, m.now)
}

// undoes compensates what has been done in some lists, last things first (rule
// C1), and says when that is over.
func (in *interpreter) undoes(inside []*frame, err *parley.Error, m moment) time.Time {
	for {
		var last *lived
		for _, f := range inside {
			f.walk(func(x *lived) {
				if x.undoable() && (last == nil || x.end.After(last.end) || x.end.Equal(last.end) && x.seq > last.seq) {
					last = x
				}
			})
		}
		if last == nil {
			return m.now
		}
		last.undo = newFrame(last.step.Compensate, last, last.prefix()+"/", m.now)
		last.undo.err = err
		m.now = in.block(last.undo, m.until).at
	}
}

func (x *lived) undoable() bool {
	if x.step.Compensate == nil || x.undo != nil {
		return false
	}
	started := !x.begun.IsZero() && !x.begun.After(x.end)
	return x.status == parley.StepCompleted || x.step.CompensateStarted && started
}

// walk visits every step that was begun in a list, at every depth.
func (f *frame) walk(visit func(*lived)) {
	for _, x := range f.steps {
		if x == nil {
			continue
		}
		visit(x)
		for _, round := range x.rounds {
			for _, inner := range round {
				inner.walk(visit)
			}
		}
		for _, inner := range []*frame{x.handler, x.undo} {
			if inner != nil {
				inner.walk(visit)
			}
		}
	}
}

// find gives a step by its id: of a list, or inside of what stands in it, but not
// of its loops (rule E5).
func (f *frame) find(id string) *lived {
	for _, x := range f.steps {
		if x == nil {
			continue
		}
		if x.step.ID == id {
			return x
		}
		if n := len(x.rounds); n > 0 && x.step.Loop == nil && x.step.Plan == nil {
			for _, inner := range x.rounds[n-1] {
				if y := inner.find(id); y != nil {
					return y
				}
			}
		}
		if x.handler != nil {
			if y := x.handler.find(id); y != nil {
				return y
			}
		}
	}
	return nil
}

// scope is what an expression sees from a list.
func (in *interpreter) scope(f *frame, now time.Time) *expr.Scope {
	sc := &expr.Scope{
		Workflow: expr.WorkflowInfo{ID: in.def.ID, Name: in.def.Name, Version: in.def.Version, Input: in.input},
		Run:      expr.RunInfo{ID: "run-1", Labels: in.labels, StartedAt: in.start, Outcome: string(in.outcome), Error: in.failure},
		Now:      now,
	}
	for g := f; g != nil; g = g.around {
		if sc.Each == nil {
			sc.Each = g.each
		}
		if sc.Error == nil {
			sc.Error = g.err
		}
	}
	plan := f.plan()
	if plan != nil {
		sc.PlanInput = plan.given
	}
	sc.Step = func(id string) (expr.StepInfo, bool) {
		for g := f; g != nil; g = g.around {
			if x := g.find(id); x != nil {
				return expr.StepInfo{Status: x.status, Output: x.output, Error: x.err, Handled: x.handled}, true
			}
			if plan != nil && g.owner == plan {
				return expr.StepInfo{Status: parley.StepPending}, plan.planned.Steps[id] != nil
			}
		}
		return expr.StepInfo{Status: parley.StepPending}, in.def.Steps[id] != nil
	}
	return sc
}

// plan is the plan step that a list stands in, if any.
func (f *frame) plan() *lived {
	for ; f != nil && f.owner != nil; f = f.around {
		if f.owner.step.Plan != nil && f.owner.handler != f && f.owner.undo != f {
			return f.owner
		}
	}
	return nil
}
