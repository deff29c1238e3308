package parley_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/parley-project/parley"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	plain   = "00-" + traceID + "-00f067aa0ba902b7-01"
)

// TestTraceOf: what is valid by the recommendation of the W3C is kept byte for byte,
// everything else is no trace and no error.
func TestTraceOf(t *testing.T) {
	later := "cc" + plain[2:]
	for _, tt := range []struct {
		name            string
		parents, states []string
		want            parley.Trace
	}{
		{"none", nil, nil, parley.Trace{}},
		{"parent", []string{plain}, nil, parley.Trace{Parent: plain}},
		{"blanks around", []string{" \t" + plain + " "}, []string{" a=1\t"}, parley.Trace{Parent: plain, State: "a=1"}},
		{"both", []string{plain}, []string{"congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"}, parley.Trace{Parent: plain, State: "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"}},
		{"several states", []string{plain}, []string{"a=1", "b=2, c=3"}, parley.Trace{Parent: plain, State: "a=1,b=2, c=3"}},
		{"not sampled", []string{plain[:53] + "00"}, nil, parley.Trace{Parent: plain[:53] + "00"}},
		{"flags of a later level", []string{plain[:53] + "ff"}, nil, parley.Trace{Parent: plain[:53] + "ff"}},
		{"later version", []string{later}, nil, parley.Trace{Parent: later}},
		{"later version with more", []string{later + "-what-the_future.brings"}, nil, parley.Trace{Parent: later + "-what-the_future.brings"}},
		{"later version, 256 bytes", []string{later + "-" + strings.Repeat("x", 200)}, nil, parley.Trace{Parent: later + "-" + strings.Repeat("x", 200)}},
		{"state of 512 bytes", []string{plain}, []string{"a=" + strings.Repeat("x", 510)}, parley.Trace{Parent: plain, State: "a=" + strings.Repeat("x", 510)}},
		{"state of 32 members", []string{plain}, []string{strings.Repeat("a=1,", 31) + "b=1"}, parley.Trace{Parent: plain, State: strings.Repeat("a=1,", 31) + "b=1"}},

		{"two parents", []string{plain, plain}, nil, parley.Trace{}},
		{"two parents in one", []string{plain + "," + plain}, nil, parley.Trace{}},
		{"state alone", nil, []string{"a=1"}, parley.Trace{}},
		{"empty", []string{""}, []string{"a=1"}, parley.Trace{}},
		{"version ff", []string{"ff" + plain[2:]}, nil, parley.Trace{}},
		{"version in capitals", []string{"CC" + plain[2:]}, nil, parley.Trace{}},
		{"version 00 with more", []string{plain + "-00"}, nil, parley.Trace{}},
		{"version 00 and a byte", []string{plain + "."}, nil, parley.Trace{}},
		{"short", []string{plain[:54]}, nil, parley.Trace{}},
		{"no trace id", []string{"00-00000000000000000000000000000000-00f067aa0ba902b7-01"}, nil, parley.Trace{}},
		{"no parent id", []string{"00-" + traceID + "-0000000000000000-01"}, nil, parley.Trace{}},
		{"trace id in capitals", []string{strings.ToUpper(plain)}, nil, parley.Trace{}},
		{"trace id not hex", []string{"00-" + traceID[:31] + "g-00f067aa0ba902b7-01"}, nil, parley.Trace{}},
		{"flags not hex", []string{plain[:54] + "g"}, nil, parley.Trace{}},
		{"other hyphens", []string{strings.ReplaceAll(plain, "-", "_")}, nil, parley.Trace{}},
		{"later version without a hyphen", []string{later + "x"}, nil, parley.Trace{}},
		{"later version, 257 bytes", []string{later + "-" + strings.Repeat("x", 201)}, nil, parley.Trace{}},
		{"later version with a line break", []string{later + "-a\r\nx: y"}, nil, parley.Trace{}},
		{"later version twice", []string{later + "-," + later}, nil, parley.Trace{}},

		{"state of 513 bytes", []string{plain}, []string{"a=" + strings.Repeat("x", 511)}, parley.Trace{Parent: plain}},
		{"state of 33 members", []string{plain}, []string{strings.Repeat("a=1,", 32) + "b=1"}, parley.Trace{Parent: plain}},
		{"state beyond ASCII", []string{plain}, []string{"a=ü"}, parley.Trace{Parent: plain}},
		{"state with a line break", []string{plain}, []string{"a=1\r\nx: y"}, parley.Trace{Parent: plain}},
	} {
		if got := parley.TraceOf(tt.parents, tt.states); got != tt.want {
			t.Errorf("%s: TraceOf(%q, %q) is %q, want %q", tt.name, tt.parents, tt.states, got, tt.want)
		}
	}
}

// TestTraceText: a trace is kept as one text, and its id is what logs name.
func TestTraceText(t *testing.T) {
	for _, tt := range []struct {
		trace    parley.Trace
		text, id string
	}{
		{parley.Trace{}, "", ""},
		{parley.Trace{Parent: plain}, plain, traceID},
		{parley.Trace{Parent: plain, State: "a=1, b=2"}, plain + " a=1, b=2", traceID},
	} {
		if got := tt.trace.String(); got != tt.text || parley.ParseTrace(got) != tt.trace || tt.trace.ID() != tt.id {
			t.Errorf("%+v: text %q, read as %+v, id %q", tt.trace, got, parley.ParseTrace(got), tt.trace.ID())
		}
	}
	if got := parley.ParseTrace("nonsense"); !got.IsZero() {
		t.Errorf("nonsense is read as %+v", got)
	}
	one, other := parley.Trace{Parent: plain}, parley.Trace{Parent: "cc" + plain[2:]}
	if one.Or(other) != one || (parley.Trace{}).Or(other) != other {
		t.Error("Or does not prefer what is there")
	}
}

// FuzzTraceOf: whatever comes, what is kept is either nothing or the same bytes in the
// form of the recommendation, and survives being stored.
func FuzzTraceOf(f *testing.F) {
	form := regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-+\--~]*)?$`)
	f.Add(plain, "a=1", "b=2")
	f.Add("cc"+plain[2:]+"-more", " ", ",,")
	f.Add(plain+"\x00", "\n", "é")
	f.Fuzz(func(t *testing.T, parent, state, more string) {
		got := parley.TraceOf([]string{parent}, []string{state, more})
		if got.IsZero() {
			if got != (parley.Trace{}) {
				t.Fatalf("%q has a state and no parent", got)
			}
			return
		}
		switch {
		case !form.MatchString(got.Parent) || strings.HasPrefix(got.Parent, "ff") || len(got.Parent) > parley.MaxTraceparent,
			strings.HasPrefix(got.Parent, "00") && len(got.Parent) != 55,
			got.Parent != strings.Trim(parent, " \t"):
			t.Fatalf("%q was kept of %q", got.Parent, parent)
		case got.State != "" && got.State != strings.Trim(state+","+more, " \t"), len(got.State) > parley.MaxTracestate,
			strings.ContainsFunc(got.State, func(r rune) bool { return r < ' ' || r > '~' }):
			t.Fatalf("%q was kept of %q and %q", got.State, state, more)
		case parley.ParseTrace(got.String()) != got:
			t.Fatalf("%q is read as %q", got.String(), parley.ParseTrace(got.String()))
		case len(got.ID()) != 32:
			t.Fatalf("the id of %q is %q", got.Parent, got.ID())
		}
	})
}

// TestTraceUnder: a span of ours takes the place of the parent-id, and of the rest only
// what version 00 knows is sent on.
func TestTraceUnder(t *testing.T) {
	const span = "b7ad6b7169203331"
	under := "00-" + traceID + "-" + span
	for _, tt := range []struct {
		name    string
		trace   parley.Trace
		want    parley.Trace
		sampled bool
	}{
		{"none", parley.Trace{}, parley.Trace{}, false},
		{"recorded", parley.Trace{Parent: plain, State: "a=1"}, parley.Trace{Parent: under + "-01", State: "a=1"}, true},
		{"not recorded", parley.Trace{Parent: plain[:53] + "00"}, parley.Trace{Parent: under + "-00"}, false},
		{"random id", parley.Trace{Parent: plain[:53] + "02"}, parley.Trace{Parent: under + "-02"}, false},
		{"flags of a later level", parley.Trace{Parent: plain[:53] + "ff"}, parley.Trace{Parent: under + "-03"}, true},
		{"later version", parley.Trace{Parent: "cc" + plain[2:] + "-more"}, parley.Trace{Parent: under + "-01"}, true},
	} {
		got := tt.trace.Under(span)
		if got != tt.want || tt.trace.Sampled() != tt.sampled {
			t.Errorf("%s: %+v under a span is %+v, want %+v; sampled %v", tt.name, tt.trace, got, tt.want, tt.trace.Sampled())
		}
		if again := parley.TraceOf([]string{got.Parent}, []string{got.State}); !got.IsZero() && (again != got || got.SpanID() != span) {
			t.Errorf("%s: %+v is read as %+v, its span is %q", tt.name, got, again, got.SpanID())
		}
	}
}
