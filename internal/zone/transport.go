package zone

import (
	"context"
	"fmt"
	"time"

	"github.com/parley-project/parley"
)

// A Transport carries one request to the other zone and brings its response
// (ZN-6). It knows nothing of what the bytes mean.
//
// Call sends body, which it neither keeps nor changes, and returns the whole
// body of the response, which may be no JSON at all: whoever calls checks it. It
// repeats a request only where the other zone has certainly not begun with it. It
// ends with ctx, which must have a deadline. The error is a *[TransportError].
// Any number of goroutines may call at the same time.
//
// A response that the other zone itself has made is no error, whatever HTTP status
// came with it: a body that is a JSON-RPC response is returned.
type Transport interface {
	Call(ctx context.Context, body []byte, meta Meta) (response []byte, info Info, err error)
}

// A Releaser is a Transport that holds something for a caller as long as more
// calls may come, such as a session that costs money. Release gives up what
// Info.Affinity named; it is best effort, and may be called for what is gone.
type Releaser interface {
	Release(ctx context.Context, affinity string) error
}

// Meta goes beside a request, as headers or what the transport has instead.
type Meta struct {
	// CorrelationID is found in the logs of both zones; "" for none.
	CorrelationID string
	// Trace is the trace context of whoever has asked, which the other zone passes on.
	Trace parley.Trace
	// IdempotencyKey is the same for every repetition of one request.
	IdempotencyKey string
	// Affinity is what an earlier Info said, so that the call reaches the one who
	// answered then; "" is anybody.
	Affinity string
	// Task is the id of the task that the request is about, "" for none. It leads to
	// the same place where no Info came back to tell an Affinity.
	Task string
}

// Info tells of a response, for logs and for the calls that follow.
type Info struct {
	// Affinity leads later calls to the same place; "" if there is no such thing.
	Affinity string
	// ProviderRequestID is what the platform in between calls this exchange.
	ProviderRequestID string
	// Status is the HTTP status and ContentType its header, 0 and "" without HTTP.
	Status      int
	ContentType string
	// Attempts counts how often the request was sent, 1 for once.
	Attempts int
}

// A Class says what became of a request for which no response of the other zone
// came, and with it whether it may be sent again (zones.md §3).
type Class string

// The classes. Only with ClassUnknownOutcome and ClassBadResponse, and with
// ClassTooLarge when the response is what is too large, may the other zone have done
// anything.
const (
	// ClassNotSent: no byte of it arrived; sending it again repeats nothing.
	ClassNotSent Class = "not-sent"
	// ClassThrottled: the platform wants fewer calls; again after RetryAfter.
	ClassThrottled Class = "throttled"
	// ClassConflict: the platform is busy with the same session; again soon.
	ClassConflict Class = "conflict-retry"
	// ClassAuth: this zone was not believed, or does not believe the other one.
	ClassAuth Class = "auth"
	// ClassTooLarge: the request or the response is beyond a limit.
	ClassTooLarge Class = "too-large"
	// ClassUnavailable: the platform says that the other zone did not take it.
	ClassUnavailable Class = "unavailable"
	// ClassUnknownOutcome: it was sent, and nobody knows what became of it.
	ClassUnknownOutcome Class = "unknown-outcome"
	// ClassBadResponse: something came that is no response to it.
	ClassBadResponse Class = "bad-response"
)

// Safe says that the other zone has certainly not begun with the request, so that
// it may be sent again.
func (c Class) Safe() bool {
	switch c {
	case ClassNotSent, ClassThrottled, ClassConflict, ClassUnavailable:
		return true
	}
	return false
}

// A TransportError says why there is no response of the other zone. Its text is
// for operators: no person who asked a question sees it, and it never holds a
// secret.
type TransportError struct {
	Class Class
	// RetryAfter is how long the platform wants to be left alone, 0 if it said
	// nothing.
	RetryAfter time.Duration
	// Info is what is known of the exchange.
	Info Info
	// Err is the reason.
	Err error
}

// Error tells class and reason.
func (e *TransportError) Error() string {
	return fmt.Sprintf("zone transport: %s: %v", e.Class, e.Err)
}

// Unwrap returns the reason.
func (e *TransportError) Unwrap() error { return e.Err }
