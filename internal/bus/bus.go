// Package bus is the seam between executors and bridges. A bus carries hints,
// never truth: what it says is "look at the row" (design.md, promise 1). So a
// bus may lose, repeat, reorder and delay messages, and everything above it
// must still end; the contract that package bustest checks is what a bus does
// while it is healthy.
package bus

import "context"

// The subjects that Parley uses. A bus over Kafka maps the first two to the
// topics of the existing platform.
const (
	// SubjectTasks carries one record per published attempt, key = run id.
	SubjectTasks = "parley.tasks"
	// SubjectResults carries one record per settled attempt.
	SubjectResults = "parley.results"
	// SubjectRuns says that a run has new events, key = run id, no value.
	SubjectRuns = "parley.runs"
	// SubjectHint says to the bridge that follows a task that there is something
	// new about it (a notification of its agent, an answer of a person), key =
	// task id. A lost hint costs time only.
	SubjectHint = "parley.hint"
	// SubjectProgress carries what a working agent reports, key = run id.
	SubjectProgress = "parley.progress"
	// SubjectCancel says that an attempt's cancel was requested, key = task id.
	SubjectCancel = "parley.cancel"
)

// Message is one record on a bus. The receiver must not change Value or Header.
type Message struct {
	Subject string
	// Key orders: messages with equal key arrive in the order of publishing.
	Key    string
	Value  []byte
	Header map[string]string
}

// Handler takes one message. A message is acknowledged when its handler
// returns, whatever it returns: an error is logged and counted, never
// redelivered, since the store publishes again what was not taken. Calls with
// equal key never overlap.
type Handler func(ctx context.Context, m Message) error

// Bus carries messages between processes, or within one. All methods may be
// called concurrently.
type Bus interface {
	// Publish returns when the bus has accepted m, or with the error that kept
	// it from doing so; after an error m may have been accepted all the same.
	// It blocks no longer than ctx.
	Publish(ctx context.Context, m Message) error

	// Subscribe delivers the messages of subject that are published from now
	// on, each to one member of group; every subscription with an empty group
	// gets them all. It returns once the subscription is in place. Delivery
	// ends, and the last handler has returned, before the returned stop does;
	// stop may be called again.
	Subscribe(ctx context.Context, subject, group string, h Handler) (stop func(), err error)
}
