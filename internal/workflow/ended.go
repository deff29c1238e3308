package workflow

import (
	"time"

	"github.com/parley-project/parley"
)

// EndedStep is what is to be told of an execution of a step that is over.
type EndedStep struct {
	// Name is the step's id in the workflow, Around the path of the execution that it
	// stands in, "" for the run itself: of what compensates a step, that step's.
	Name, Around string
	Kind         Kind
	Status       parley.StepStatus
	// Agent is who was called last, Attempts counts the calls.
	Agent    string
	Attempts int
	// Child is the run that the step has started, or "".
	Child string
	Err   *parley.Error
	// ScheduledAt is when the step's turn had come.
	ScheduledAt, EndedAt time.Time
}

// Ended gives the execution with that path if it is over and was this run's work: ok is
// false for one that was skipped, taken over from another run, or cancelled before it
// began.
func (s *State) Ended(path string) (e EndedStep, ok bool) {
	x := s.execs[path]
	if x == nil || x.copied || !x.status.Terminal() || x.status == parley.StepSkipped ||
		x.status == parley.StepCancelled && x.scheduledAt.Equal(x.endedAt) {
		return e, false
	}
	e = EndedStep{
		Name: x.step.ID, Kind: x.step.Kind, Status: x.status, Agent: x.agent, Attempts: x.begunBy(x.endedAt), Err: x.err,
		ScheduledAt: x.scheduledAt, EndedAt: x.endedAt,
	}
	if x.region.owner != nil {
		e.Around = x.region.owner.path
	}
	if x.child != nil {
		e.Child = x.child.run
	}
	return e, true
}
