package expr

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// document is a scope for tests: an input, outputs by step id.
type document struct {
	input string
	steps map[string]StepInfo
}

func done(output string) StepInfo {
	return StepInfo{Status: parley.StepCompleted, Output: json.RawMessage(output), Attempts: 1}
}

var testTime = time.Date(2026, 11, 21, 10, 4, 5, 600_000_000, time.UTC)

func (d document) scope() *Scope {
	return &Scope{
		Workflow: WorkflowInfo{ID: "wf-1", Name: "Test", Version: "3", Input: json.RawMessage(d.input)},
		Run: RunInfo{
			ID: "run-1", Labels: map[string]string{"team": "blue"}, Trigger: "api",
			StartedAt: testTime.Add(-time.Minute), Deadline: testTime.Add(time.Hour),
		},
		Now: testTime,
		Step: func(id string) (StepInfo, bool) {
			info, ok := d.steps[id]
			return info, ok
		},
	}
}

func (d document) ids() []string {
	ids := []string{}
	for id := range d.steps {
		ids = append(ids, id)
	}
	return ids
}

func (d document) compiler(t testing.TB, change ...func(*Options)) *Compiler {
	t.Helper()
	o := Options{StepIDs: d.ids()}
	for _, f := range change {
		f(&o)
	}
	c, err := NewCompiler(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func graph(o *Options) { o.Graph = true }

// evalTemplate compiles and evaluates a template.
func evalTemplate(t testing.TB, c *Compiler, template string, at At, s *Scope) (string, error) {
	t.Helper()
	x, findings := c.Template(json.RawMessage(template), at)
	if x == nil {
		t.Fatalf("template %s: %+v", template, findings)
	}
	v, err := x.Eval(s)
	return string(v), err
}

// quote makes the template that is one string.
func quote(text string) string { return string(appendQuote(nil, text)) }

// one is the template that is one expression.
func one(expression string) string { return quote("${" + expression + "}") }

// wantError checks code and part of the text of an error.
func wantError(t *testing.T, err error, code parley.Code, text string) {
	t.Helper()
	e, ok := errors.AsType[*parley.Error](err)
	if !ok {
		t.Fatalf("error %v (%T) is no *parley.Error", err, err)
	}
	if e.Code != code || !strings.Contains(e.Message, text) {
		t.Errorf("error %q, want code %s and text %q", err, code, text)
	}
}

// wantFinding checks that there is exactly one finding, with these members.
func wantFinding(t *testing.T, findings []Finding, want Finding) {
	t.Helper()
	if len(findings) != 1 {
		t.Fatalf("findings %+v, want one with text %q", findings, want.Text)
	}
	got := findings[0]
	if got.Code != want.Code || got.Warning != want.Warning || !strings.Contains(got.Text, want.Text) ||
		!strings.Contains(got.Suggestion, want.Suggestion) {
		t.Errorf("finding %+v, want %+v", got, want)
	}
}

// TestValuesOutsideOfWorkflows: names that are given besides those of rule E4.
func TestValuesOutsideOfWorkflows(t *testing.T) {
	c, err := NewCompiler(Options{Values: []string{"input", "call"}})
	if err != nil {
		t.Fatal(err)
	}
	scope := &Scope{Values: map[string]json.RawMessage{"input": json.RawMessage(`{"n":2}`), "call": json.RawMessage(`{"agent":"a"}`)}}
	x, findings := c.Condition(`input.n > 1 && call.agent == "a"`, At{})
	if x == nil {
		t.Fatal(findings)
	}
	if ok, err := x.Eval(scope); !ok || err != nil {
		t.Errorf("the condition gives %v, %v", ok, err)
	}
	if x, findings = c.Condition(`inputs.n > 1`, At{}); x != nil || findings[0].Suggestion == "" {
		t.Errorf("a misspelt name gives %v", findings)
	}
	v, findings := c.Template(json.RawMessage(`{"is":"${input.n + 1}"}`), At{})
	if v == nil {
		t.Fatal(findings)
	}
	if got, err := v.Eval(scope); string(got) != `{"is":3}` || err != nil {
		t.Errorf("the template gives %s, %v", got, err)
	}
}
