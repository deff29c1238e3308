package parley

import (
	"fmt"
	"strconv"
	"strings"
)

// The names of a [Trace]'s two parts as headers: of HTTP requests, of Kafka
// records, and of gRPC calls.
const (
	HeaderTraceparent = "traceparent"
	HeaderTracestate  = "tracestate"
)

// The bounds of a [Trace], in bytes and members.
const (
	// MaxTraceparent bounds a traceparent of a version that is not known yet; one of
	// version 00 has 55 bytes.
	MaxTraceparent = 256
	// MaxTracestate bounds a tracestate, MaxTraceMembers its list.
	MaxTracestate   = 512
	MaxTraceMembers = 32

	plainTraceparent = 55
	// flagSampled says that the trace is recorded, flagRandom that its id is random
	// (level 2 of the recommendation).
	flagSampled, flagRandom = 1, 2
)

// Trace is a trace context of the W3C (https://www.w3.org/TR/trace-context/): what
// came with what has started a run, or names a span of Parley's own ([Trace.Under]).
// It is passed on byte for byte. The zero value is none, and [TraceOf] makes no other
// that is not valid.
type Trace struct {
	Parent string `json:"traceparent,omitempty"`
	// State is "" without a Parent.
	State string `json:"tracestate,omitempty"`
}

// TraceOf reads a trace context from the values of the two headers. What the
// recommendation says to ignore is ignored, and is never an error: a traceparent
// that is not valid or that there are several of is no trace at all, and a
// tracestate that is not valid is left out. Several headers tracestate are one list.
func TraceOf(parents, states []string) Trace {
	if len(parents) != 1 {
		return Trace{}
	}
	t := Trace{Parent: trimBlanks(parents[0])}
	if !validTraceparent(t.Parent) {
		return Trace{}
	}
	if state := trimBlanks(strings.Join(states, ",")); validTracestate(state) {
		t.State = state
	}
	return t
}

// ParseTrace reads what [Trace.String] gives; anything else is no trace.
func ParseTrace(text string) Trace {
	if text == "" {
		return Trace{}
	}
	parent, state, _ := strings.Cut(text, " ")
	return TraceOf([]string{parent}, []string{state})
}

// String gives both parts with a blank between them, and "" for no trace.
func (t Trace) String() string {
	if t.State == "" {
		return t.Parent
	}
	return t.Parent + " " + t.State
}

// IsZero reports whether there is no trace.
func (t Trace) IsZero() bool { return t.Parent == "" }

// ID gives the trace-id, 32 hexadecimal digits, or "" without a trace: what logs
// and tracing systems find a trace by.
func (t Trace) ID() string {
	if len(t.Parent) < plainTraceparent {
		return ""
	}
	return t.Parent[3:35]
}

// SpanID gives the parent-id, 16 hexadecimal digits, or "" without a trace: the span
// that what is sent with it belongs below.
func (t Trace) SpanID() string {
	if len(t.Parent) < plainTraceparent {
		return ""
	}
	return t.Parent[36:52]
}

// Sampled reports whether whoever has sent the trace says that it is recorded.
func (t Trace) Sampled() bool {
	if len(t.Parent) < plainTraceparent {
		return false
	}
	return t.flags()&flagSampled != 0
}

// flags gives those of a trace; what is not valid has none.
func (t Trace) flags() uint64 {
	flags, err := strconv.ParseUint(t.Parent[53:plainTraceparent], 16, 8)
	if err != nil {
		return 0
	}
	return flags
}

// Under gives the same trace with another span, of 16 lower-case hexadecimal digits,
// that what is sent with it belongs below. Flags that version 00 does not know, and
// what a later version has behind them, are left out, as the recommendation asks of
// who writes that version. Without a trace there is none.
func (t Trace) Under(span string) Trace {
	if t.IsZero() {
		return t
	}
	return Trace{Parent: fmt.Sprintf("00-%s-%s-%02x", t.ID(), span, t.flags()&(flagSampled|flagRandom)), State: t.State}
}

// Into adds both parts to the headers of a record, or nothing.
func (t Trace) Into(header map[string]string) {
	if t.IsZero() {
		return
	}
	header[HeaderTraceparent] = t.Parent
	if t.State != "" {
		header[HeaderTracestate] = t.State
	}
}

// Or gives t, or other if t is none.
func (t Trace) Or(other Trace) Trace {
	if t.IsZero() {
		return other
	}
	return t
}

// trimBlanks takes off the blanks that may stand around the value of a header.
func trimBlanks(s string) string { return strings.Trim(s, " \t") }

// validTraceparent checks version, trace-id, parent-id and flags. Of a later version
// nothing is known but that these come first, and that a hyphen follows if more does.
func validTraceparent(s string) bool {
	if len(s) < plainTraceparent || len(s) > MaxTraceparent || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return false
	}
	version, id, parent, flags := s[:2], s[3:35], s[36:52], s[53:55]
	if !lowerHex(version) || !lowerHex(id) || !lowerHex(parent) || !lowerHex(flags) || version == "ff" ||
		strings.Trim(id, "0") == "" || strings.Trim(parent, "0") == "" {
		return false
	}
	if rest := s[plainTraceparent:]; rest != "" {
		return version != "00" && rest[0] == '-' && printable(rest, '!') && !strings.Contains(rest, ",")
	}
	return true
}

// validTracestate checks what has to hold for the text to be passed on as it is; who
// reads the list checks its members.
func validTracestate(s string) bool {
	return s != "" && len(s) <= MaxTracestate && printable(s, ' ') && strings.Count(s, ",") < MaxTraceMembers
}

// printable reports whether s is of ASCII from least on that is shown.
func printable(s string, least byte) bool {
	for i := range len(s) {
		if s[i] < least || s[i] > '~' {
			return false
		}
	}
	return true
}

func lowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
