package parley_test

import (
	"errors"
	"testing"

	"github.com/parley-project/parley"
)

func TestProblemString(t *testing.T) {
	for _, tt := range []struct {
		p    parley.Problem
		want string
	}{
		{parley.Problem{File: "a.yaml", Line: 3, Col: 7, Code: "type", Text: "must be a string"}, "a.yaml:3:7: type: must be a string"},
		{
			parley.Problem{File: "a.yaml", Line: 3, Col: 7, Code: "unknown_member", Text: "unknown member nane", Suggestion: "did you mean name?"},
			"a.yaml:3:7: unknown_member: unknown member nane (did you mean name?)",
		},
		{parley.Problem{File: "a.yaml", Code: "limit", Text: "too large"}, "a.yaml: limit: too large"},
		{parley.Problem{Line: 3, Col: 7, Code: "type", Text: "no"}, "3:7: type: no"},
		{parley.Problem{Code: "type", Text: "no"}, "type: no"},
	} {
		if got := tt.p.String(); got != tt.want {
			t.Errorf("%+v\n got %s\nwant %s", tt.p, got, tt.want)
		}
	}
}

func TestProblemsError(t *testing.T) {
	warning := parley.Problem{Severity: parley.SeverityWarning, Code: "reference", Text: "w"}
	first := parley.Problem{Severity: parley.SeverityError, Code: "type", Text: "one"}
	second := parley.Problem{Severity: parley.SeverityError, Code: "value", Text: "two"}
	for _, tt := range []struct {
		ps   parley.Problems
		want string
	}{
		{nil, ""},
		{parley.Problems{warning}, ""},
		{parley.Problems{warning, first}, "type: one"},
		{parley.Problems{first, warning, second}, "type: one (and 1 more)"},
		{parley.Problems{second, first, first}, "value: two (and 2 more)"},
	} {
		if got := tt.ps.Error(); got != tt.want {
			t.Errorf("%v.Error() = %q, want %q", tt.ps, got, tt.want)
		}
	}
	if _, ok := errors.AsType[parley.Problems](error(parley.Problems{first})); !ok {
		t.Error("Problems are not found as an error")
	}
}
