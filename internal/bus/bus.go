// Package bus is the seam between executors and bridges. A bus carries hints,
// never truth: what it says is "look at the row" (design.md, promise 1). So a
// bus may lose, repeat, reorder and delay messages, and everything above it
// must still end; the contract that package bustest checks is what a bus does
// while it is healthy.
package bus

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"
)

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
	// SubjectChanged tells who waits for runs, in whatever process, that they have
	// new events, key = id of the first; the value has a line for each: the
	// number of its last event, its status, and its id, with blanks between.
	SubjectChanged = "parley.changed"
	// SubjectOpen says that there are open attempts to be announced on
	// SubjectTasks, where executors do not do that themselves; no key, no value.
	SubjectOpen = "parley.open"
	// SubjectMonitoring tells who watches the existing platform what became of
	// each step, key = run id.
	SubjectMonitoring = "parley.monitoring"
	// SubjectStartRequests and SubjectCancelRequests carry what callers of the
	// existing platform ask for, key = run id.
	SubjectStartRequests  = "parley.requests.start"
	SubjectCancelRequests = "parley.requests.cancel"
	// SubjectDeadLetters carries copies of what could not be handled.
	SubjectDeadLetters = "parley.deadletters"
)

// HeaderTask is on every record of [SubjectTasks] that an executor of ours has
// published, with the value "1": the row that its task_id names holds the truth.
// A record without it comes from an executor of the existing platform
// (protocol.md §4.12).
const HeaderTask = "parley-task"

// HeaderCorrelation and HeaderIdempotency are on the records of [SubjectTasks] of
// executors of ours, and on those of [SubjectResults] that answer them: the task's
// correlation id, and its id, which is the same each time that the record comes. They
// are for who looks at the topics without reading values; we do not read them. Records
// of tasks of the existing platform, and those for its bridge, have no headers.
const (
	HeaderCorrelation = "correlation-id"
	HeaderIdempotency = "idempotency-key"
)

// HeaderOnOpen is on a record of [SubjectTasks] whose task is not to wait while
// its agent's circuit is open, with the value "fail": the step has another agent.
const HeaderOnOpen = "parley-on-open"

// HeaderTurn is on a record of [SubjectTasks] of an executor of ours, and says
// since when its task counts as waiting for its agent, in microseconds of Unix
// time: longer than it has for a run of high priority. Who waits longest goes first.
const HeaderTurn = "parley-turn"

// HeaderBytes is on a record of [SubjectTasks] that has not the task's input, and
// says how large that is, in bytes.
const HeaderBytes = "parley-bytes"

// HeaderReplay is on a record that was published again from a dead letter. Its
// value is new for each time, and the same when one time is repeated: for an
// executor of the existing platform, who cannot tell it from the first, the task
// is another one then.
const HeaderReplay = "parley-replay"

// Message is one record on a bus. The receiver must not change Value or Header.
type Message struct {
	Subject string
	// Key orders: messages with equal key arrive in the order of publishing.
	Key string
	// Value is nil for a tombstone.
	Value []byte
	// Header has the last value of each name.
	Header map[string]string
	// Headers, if not nil, are all headers in their order: a record may have several
	// of one name. Then they are what is published, and Header is not.
	Headers []Header
	// At is where a received message stands, for those who have to name it; the
	// zero value on a bus that keeps none.
	At Position
}

// Header is one header of a [Message].
type Header struct {
	Name  string
	Value []byte
}

// All gives the headers of m in their order, or by name if they have none.
func (m *Message) All() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for _, h := range m.Headers {
			if !yield(h.Name, h.Value) {
				return
			}
		}
		if m.Headers != nil {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(m.Header)) {
			if !yield(name, []byte(m.Header[name])) {
				return
			}
		}
	}
}

// Values gives the values of all headers of a name, whatever its case, in their order.
func (m *Message) Values(name string) (list []string) {
	if m.Headers == nil {
		for of, value := range m.Header {
			if strings.EqualFold(of, name) {
				list = append(list, value)
			}
		}
		return list
	}
	for _, h := range m.Headers {
		if strings.EqualFold(h.Name, name) {
			list = append(list, string(h.Value))
		}
	}
	return list
}

// Put sets one header, in place of those of that name. What m shares with others
// stays as it is.
func (m *Message) Put(name, value string) {
	m.Header = maps.Clone(m.Header)
	if m.Header == nil {
		m.Header = make(map[string]string, 1)
	}
	m.Header[name] = value
	if m.Headers != nil {
		m.Headers = append(slices.DeleteFunc(slices.Clone(m.Headers), func(h Header) bool { return h.Name == name }), Header{name, []byte(value)})
	}
}

// Position is where a bus keeps a message.
type Position struct {
	Topic     string
	Partition int32
	Offset    int64
	// Time is when it was published.
	Time time.Time
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
	// it from doing so; after an error m may have been accepted all the same,
	// unless its code is limit, invalid or unauthorized.
	// It blocks no longer than ctx.
	Publish(ctx context.Context, m Message) error

	// Subscribe delivers the messages of subject that are published from now
	// on, each to one member of group; every subscription with an empty group
	// gets them all. It returns once the subscription is in place. Delivery
	// ends, and the last handler has returned, before the returned stop does;
	// stop may be called again.
	Subscribe(ctx context.Context, subject, group string, h Handler) (stop func(), err error)
}

// Deferred is a [Bus] that can wait with its acknowledgements, for a bridge
// without a store: what it has not answered yet comes again after a crash.
type Deferred interface {
	Bus

	// SubscribeDeferred is Subscribe for a group, but a message is acknowledged
	// when done is called, from any goroutine, in any order, once or more often;
	// a message whose done is never called keeps those behind it unacknowledged,
	// and all of them are delivered again after a restart or when the partition has
	// moved. The handler should return at once; messages with equal key may be in
	// hand together. Delivery pauses while as many messages are open as the bus
	// allows. The handler's ctx ends with the subscription, and when the message is
	// no longer this process's, since its partition has moved: what has not begun by
	// then somebody else does.
	SubscribeDeferred(ctx context.Context, subject, group string, h func(ctx context.Context, m Message, done func())) (stop func(), err error)
}
