package workflow

import (
	"slices"
	"time"

	"github.com/parley-project/parley"
)

// OpenStep is a step that has not ended, or an attempt of it.
type OpenStep struct {
	Path   string
	Kind   Kind
	Status parley.StepStatus
	// Needs are the paths of the steps that have to end before it begins; Full is
	// the bound of steps that run beside each other, if that is reached.
	Needs []string
	Full  int
	// Inside counts the open steps inside of it.
	Inside int
	// RetryAt and WakeAt are when it goes on by itself, Deadline when its timeout
	// is over.
	RetryAt, WakeAt, Deadline time.Time
	// Task, Agent, Attempt and Question are those of an attempt in flight; Err is
	// what went wrong before it.
	Task, Agent string
	Attempt     int
	Question    *parley.Question
	// Event is what a step waits for, Approval what people are asked.
	Event    *parley.AwaitedSignal
	Approval *parley.Approval
	// Child is the run that a step waits for.
	Child *parley.ChildRun
	Err   *parley.Error
}

// Open gives the steps that have not ended and may still go on, and for each agent
// step its attempts in flight, in list order. It is empty for a run that has
// ended.
func (s *State) Open() []OpenStep {
	if s.status.Terminal() || s.seq == 0 || s.Queued() {
		return nil
	}
	list := s.openIn(s.body, nil)
	if s.finally != nil {
		list = s.openIn(s.finally, list)
	}
	for _, x := range s.undoing {
		list = s.openIn(x.undo.region, list)
	}
	return list
}

// Steps counts the steps of a list: attempts of one stand behind each other.
func Steps(list []OpenStep) (n int) {
	for i := range list {
		if i == 0 || list[i].Path != list[i-1].Path {
			n++
		}
	}
	return n
}

// Deadline ends the phase of the run, or the grace of a cancel.
func (s *State) Deadline() time.Time {
	switch {
	case s.cancelling:
		return s.graceUntil
	case s.phase != phaseBody:
		return s.cleanupUntil
	}
	return s.deadline
}

func (s *State) openIn(r *region, out []OpenStep) []OpenStep {
	if r.state() == regionFailed {
		return out
	}
	for i, x := range r.steps {
		switch {
		case x == nil:
			if s.unbegun(r) == parley.StepPending {
				out = append(out, r.notBegun(i))
			}
		case x.status != parley.StepRunning:
		case x.holds() && x.retryAt.IsZero():
			at := len(out)
			out = append(out, openStep(x))
			for inside := range x.regions {
				if x.handling == nil || inside == x.handling.region {
					out = s.openIn(inside, out)
				}
			}
			out[at].Inside = Steps(out[at+1:])
		case len(x.flights) == 0:
			out = append(out, openStep(x))
		default:
			for _, call := range x.flights {
				o := openStep(x)
				o.Task, o.Agent, o.Attempt, o.Question = call.task, call.agent, call.attempt, call.question
				out = append(out, o)
			}
		}
	}
	return out
}

// notBegun says why a step of a list has not begun.
func (r *region) notBegun(i int) OpenStep {
	step := r.block.Steps[i]
	o := OpenStep{Path: r.prefix + step.ID, Kind: step.Kind, Status: parley.StepPending, Agent: step.firstAgent()}
	for _, n := range step.Needs {
		if x := r.steps[n]; x == nil || !x.passed() {
			o.Needs = append(o.Needs, r.prefix+r.block.Steps[n].ID)
		}
	}
	slices.Sort(o.Needs)
	if !r.room() {
		o.Full = r.block.MaxParallel
	}
	return o
}

func openStep(x *execution) OpenStep {
	o := OpenStep{
		Path: x.path, Kind: x.step.Kind, Status: x.status, Agent: x.agent, Attempt: x.attempts,
		RetryAt: x.retryAt, WakeAt: x.wakeAt, Deadline: x.deadline, Err: x.err, Event: x.awaits,
	}
	if x.ask != nil {
		o.Approval = x.ask.view(x)
	}
	if x.waitsForChild() {
		o.Child = x.child.view(x.step)
	}
	return o
}
