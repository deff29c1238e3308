package bus

import (
	"context"
	"time"
)

// DeadLetter is a message that cannot be handled, however often it comes, or the
// task of an executor of the existing platform that has failed for good.
type DeadLetter struct {
	Message Message
	// Code is a code of package parley, Reason says for people what is wrong
	// with the message. Neither holds a secret.
	Code, Reason string
	// Attempts counts how often it was tried to handle it.
	Attempts int
	// Group is the consumer group that read it, Agent the agent that it was meant
	// for, both "" if that is not known.
	Group, Agent string
	// Foreign says that it is such a task; else it is a message that cannot be handled.
	Foreign bool
	// Run and Task are the ids of the task, of a message those that could be read in
	// it; HTTPStatus is what the agent answered last, 0 for none.
	Run, Task  string
	HTTPStatus int
	// FirstFailedAt is when it failed first, as far as that is known.
	FirstFailedAt time.Time
}

// DeadLetters keeps what it is given; nil stands for a log entry alone. It
// returns when the message is safe, or with the error that kept it from being
// so: then the message may come again.
type DeadLetters func(ctx context.Context, d DeadLetter) error
