package expr

import (
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"github.com/parley-project/parley"
)

// activation gives CEL the names of rule E4 while one expression is evaluated.
// Values are made when they are asked for.
type activation struct {
	env   *environment
	scope *Scope
	refs  []string
	made  map[string]any
}

// ResolveName implements cel.Activation.
func (a *activation) ResolveName(name string) (any, bool) {
	if v, ok := a.made[name]; ok {
		return v, true
	}
	v := a.value(name)
	if v == nil {
		return nil, false
	}
	if a.made == nil {
		a.made = map[string]any{}
	}
	a.made[name] = v
	return v, true
}

// Parent implements cel.Activation.
func (a *activation) Parent() cel.Activation { return nil }

func (a *activation) value(name string) any {
	switch name {
	case "workflow":
		return a.workflow()
	case "run":
		return a.run()
	case "now":
		return timestamp(a.scope.Now)
	case "result":
		return a.env.adapter.fromJSON(rawJSON(a.scope.Result))
	case "error":
		return a.fail(a.scope.Error)
	case "each":
		return a.each(a.scope.Each)
	case "event":
		return a.env.adapter.fromJSON(rawJSON(a.scope.Event))
	case "plan":
		return &record{typ: a.env.records.plan, make: func(string) ref.Val {
			return a.env.adapter.fromJSON(rawJSON(a.scope.PlanInput))
		}}
	case "steps":
		// Checked expressions name every step they read.
		steps := make(map[string]any, len(a.refs))
		for _, id := range a.refs {
			steps[id] = a.step(id)
		}
		return types.NewStringInterfaceMap(a.env.adapter, steps)
	}
	if a.env.steps[name] {
		return a.step(name)
	}
	if v, ok := a.scope.Values[name]; ok {
		return a.env.adapter.fromJSON(rawJSON(v))
	}
	return nil
}

func (a *activation) workflow() *record {
	w := &a.scope.Workflow
	return &record{typ: a.env.records.workflow, make: func(field string) ref.Val {
		switch field {
		case "id":
			return types.String(w.ID)
		case "name":
			return types.String(w.Name)
		case "version":
			return types.String(w.Version)
		}
		return a.env.adapter.fromJSON(rawJSON(w.Input))
	}}
}

func (a *activation) run() *record {
	r := &a.scope.Run
	return &record{typ: a.env.records.run, make: func(field string) ref.Val {
		switch field {
		case "id":
			return types.String(r.ID)
		case "labels":
			return sorted(types.NewStringStringMap(a.env.adapter, r.Labels))
		case "trigger":
			return types.String(r.Trigger)
		case "scheduled_at":
			return timestamp(r.ScheduledAt)
		case "parent":
			if r.Parent != "" {
				return types.String(r.Parent)
			}
		case "started_at":
			return timestamp(r.StartedAt)
		case "deadline":
			return timestamp(r.Deadline)
		case "outcome":
			if r.Outcome == "" {
				return nil
			}
			return types.String(r.Outcome)
		case "error":
			if r.Outcome == "" {
				return nil
			}
			return a.fail(r.Error)
		}
		return types.NullValue
	}}
}

func (a *activation) step(id string) *record { return a.stepRecord(lookStep(a.scope, id)) }

func (a *activation) stepRecord(info StepInfo, f *fault) *record {
	return &record{typ: a.env.records.step, make: func(field string) ref.Val {
		if f != nil {
			return types.NewErr("%s", f.text)
		}
		switch field {
		case "status":
			return types.String(info.Status)
		case "output":
			if !hasOutput(info) {
				return types.NullValue
			}
			return a.env.adapter.fromJSON(rawJSON(info.Output))
		case "error":
			return a.fail(info.Error)
		case "handled":
			return types.Bool(info.Handled)
		case "attempts":
			return types.Int(info.Attempts)
		case "case":
			if info.Case != nil {
				return types.Int(*info.Case)
			}
		case "started_at":
			return timestamp(info.StartedAt)
		case "ended_at":
			return timestamp(info.EndedAt)
		}
		return types.NullValue
	}}
}

func (a *activation) fail(e *parley.Error) ref.Val {
	if e == nil {
		return types.NullValue
	}
	return &record{typ: a.env.records.fail, make: func(field string) ref.Val {
		switch field {
		case "code":
			return types.String(e.Code)
		case "message":
			return types.String(e.Message)
		case "step":
			return types.String(e.Step)
		case "attempt":
			return types.Int(e.Attempt)
		case "retryable":
			return types.Bool(e.Retryable)
		case "agent":
			if e.Agent != "" {
				return types.String(e.Agent)
			}
		case "details":
			if len(e.Details) > 0 {
				return a.env.adapter.fromJSON(rawJSON(e.Details))
			}
		case "cause":
			if e.Cause != nil {
				return a.fail(e.Cause)
			}
		}
		return nil
	}}
}

// timestamp gives null for a time that has not come.
func timestamp(t time.Time) ref.Val {
	if t.IsZero() {
		return types.NullValue
	}
	return types.Timestamp{Time: t.UTC()}
}
