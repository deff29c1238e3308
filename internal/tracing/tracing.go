package tracing

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/parley-project/parley"
)

// Tracer says which spans there are, and records them. Its methods may be called
// concurrently, and on nil, which records nothing and passes every trace on as it is.
type Tracer struct {
	// sample is the share of the runs that bring no trace and are recorded.
	sample float64
	random func() uint64
	spans  *recorder
}

// Run gives the trace that has the span of a run as its parent: that of whoever has
// started it, if it is sampled, or one of its own for the share of the runs that have
// none. recorded is false for all others; what they have brought is passed on as it is.
func (t *Tracer) Run(run string, from parley.Trace) (own parley.Trace, recorded bool) {
	switch {
	case t == nil || !from.IsZero() && !from.Sampled():
		return from, false
	case from.IsZero():
		sum := sum("trace", run)
		if !within(sum, t.sample) {
			return from, false
		}
		from = parley.Trace{Parent: fmt.Sprintf("00-%x-%s-01", sum[:16], spanID("run", run))}
		return from, true
	}
	return from.Under(spanID("run", run)), true
}

// Step gives the trace that has the span of a step as its parent: with it the step's
// agents are called and its run is started. from is the run's, path the step's; "" is
// the run itself. What is not recorded is passed on as it is.
func (t *Tracer) Step(run string, from parley.Trace, path string) parley.Trace {
	own, recorded := t.Run(run, from)
	if !recorded || path == "" {
		return own
	}
	return own.Under(spanID("step", run, path))
}

// Call gives a new span for one call of an agent, below the trace that its task came
// with: with it the agent is called. What is not recorded is passed on as it is.
func (t *Tracer) Call(from parley.Trace) (own parley.Trace, recorded bool) {
	if t == nil || !from.Sampled() {
		return from, false
	}
	var id [8]byte
	binary.BigEndian.PutUint64(id[:], max(t.random(), 1)) // 0 is no span
	return from.Under(hex.EncodeToString(id[:])), true
}

// Kind says what a span is to its parent.
type Kind uint8

// The kinds of spans.
const (
	// Internal is work of Parley itself.
	Internal Kind = iota
	// Client is a call of somebody else.
	Client
)

// Span is something that is over. What it holds is shown to whoever may see traces:
// names, numbers and codes, never values or texts of runs and agents.
type Span struct {
	// Own has the span itself as its parent-id, Above the one that it is below; zero
	// for a run that has begun a trace.
	Own, Above parley.Trace
	Name       string
	Kind       Kind
	Start, End time.Time
	// Failed is the code of the error that it has ended with, or "".
	Failed     parley.Code
	Attributes []attribute.KeyValue
}

// Record tells of a span. It does not wait: what does not fit into the queue is
// dropped and counted.
func (t *Tracer) Record(s Span) {
	if t != nil {
		t.spans.record(s)
	}
}

// sum is a hash of parts that no other parts have.
func sum(parts ...string) [sha256.Size]byte {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// spanID gives a span's id, the same wherever it is asked for.
func spanID(parts ...string) string {
	s := sum(parts...)
	return hex.EncodeToString(s[:8])
}

// within reports whether a hash is one of that share of all hashes. It looks at bytes
// that are in no id, so that samplers behind, which look at ids, choose by themselves.
func within(sum [sha256.Size]byte, share float64) bool {
	return share >= 1 || float64(binary.BigEndian.Uint64(sum[24:]))/math.MaxUint64 < share
}
