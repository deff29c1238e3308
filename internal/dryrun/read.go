package dryrun

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// The members of a script as they are written.
type (
	rawScript struct {
		rawTest
		Tests []json.RawMessage `json:"tests"`
	}
	rawTest struct {
		Name          string                     `json:"name"`
		At            string                     `json:"at"`
		Seed          *uint64                    `json:"seed"`
		UnknownAgents string                     `json:"unknown_agents"`
		Agents        map[string]json.RawMessage `json:"agents"`
		Workflows     map[string]json.RawMessage `json:"workflows"`
		Input         json.RawMessage            `json:"input"`
		Labels        map[string]string          `json:"labels"`
		Cancel        *rawCancel                 `json:"cancel"`
		Events        []rawSignal                `json:"events"`
		Approvals     map[string]json.RawMessage `json:"approvals"`
		Expect        json.RawMessage            `json:"expect"`
	}
	rawCancel struct{ At, Grace, By, Reason string }
	rawAgent  struct {
		rawCase
		Cases     []rawCase `json:"cases"`
		Unmatched string    `json:"unmatched"`
		OnCancel  string    `json:"on_cancel"`
		Retry     *rawRetry `json:"retry"`
	}
	rawRetry struct {
		MaxRetries   *int     `json:"max_retries"`
		InitialDelay string   `json:"initial_delay"`
		MaxDelay     string   `json:"max_delay"`
		Multiplier   *float64 `json:"multiplier"`
	}
)

// Parse reads a script. It gives every finding at once, by position; the script is
// nil if there is one.
func Parse(file string, source []byte) (*Script, parley.Problems) {
	schema, err := workflow.ParseSchema(schemaJSON)
	if err != nil {
		return nil, parley.Problems{{File: file, Severity: parley.SeverityError, Code: string(parley.CodeInternal), Text: err.Error()}}
	}
	doc, problems := workflow.ReadDocument(file, source, schema)
	if doc == nil {
		return nil, problems
	}
	compiler, err := expr.NewCompiler(expr.Options{Values: []string{"input", "call", "reply"}})
	if err != nil {
		return nil, parley.Problems{{File: file, Severity: parley.SeverityError, Code: string(parley.CodeInternal), Text: err.Error()}}
	}
	r := &reader{doc: doc, compiler: compiler}
	script := r.script()
	if len(r.problems) > 0 {
		slices.SortStableFunc(r.problems, func(a, b parley.Problem) int {
			if a.Line != b.Line {
				return a.Line - b.Line
			}
			return a.Col - b.Col
		})
		return nil, r.problems
	}
	return script, nil
}

// Empty is the script of a run of which nothing is said.
func Empty() *Script {
	return &Script{Single: true, Tests: []Test{{At: Start(), Seed: 1}}}
}

// reader turns a document that fits the schema into a script.
type reader struct {
	doc      *workflow.Document
	compiler *expr.Compiler
	problems parley.Problems
	// ofRuns: what is read are cases of workflows, not of agents.
	ofRuns bool
}

// The codes of findings beyond those of the schema.
const (
	problemValue    = "value"
	problemRequired = "required"
)

func (r *reader) report(pointer string, p parley.Problem) {
	r.problems = append(r.problems, r.doc.Problem(pointer, 0, p))
}

func (r *reader) script() *Script {
	var raw rawScript
	r.decode("", r.doc.JSON(), &raw)
	shared := Test{At: Start(), Seed: 1}
	r.test("", raw.rawTest, &shared)
	if raw.Tests == nil {
		return &Script{Tests: []Test{shared}, Single: true}
	}
	s := &Script{}
	names := map[string]bool{}
	for i, text := range raw.Tests {
		at := "/tests/" + strconv.Itoa(i)
		var rt rawTest
		r.decode(at, text, &rt)
		t := shared
		t.Name, t.agents, t.votes, t.workflows = rt.Name, maps.Clone(shared.agents), maps.Clone(shared.votes), maps.Clone(shared.workflows)
		r.test(at, rt, &t)
		if names[t.Name] {
			r.report(at+"/name", parley.Problem{Code: problemValue, Text: "there is another test of this name"})
		}
		names[t.Name] = true
		s.Tests = append(s.Tests, t)
	}
	return s
}

// test reads what one test says beyond what it takes over.
func (r *reader) test(at string, raw rawTest, t *Test) {
	if raw.At != "" {
		when, err := time.Parse(time.RFC3339Nano, raw.At)
		if err != nil {
			r.report(at+"/at", parley.Problem{Code: problemValue, Text: "this is no time such as 2026-01-02T15:04:05Z"})
		}
		t.At = when.UTC().Truncate(time.Microsecond)
	}
	if raw.Seed != nil {
		t.Seed = *raw.Seed
	}
	if raw.UnknownAgents != "" {
		t.echo = raw.UnknownAgents == "echo"
	}
	if raw.Input != nil {
		t.Input = raw.Input
	}
	if raw.Labels != nil {
		t.Labels = raw.Labels
	}
	if c := raw.Cancel; c != nil {
		t.cancel = &cancel{by: c.By, reason: c.Reason, at: r.duration(at+"/cancel/at", c.At), grace: 30 * time.Second}
		if c.Grace != "" {
			t.cancel.grace = r.duration(at+"/cancel/grace", c.Grace)
		}
	}
	r.outside(at, raw, t)
	r.workflows(at+"/workflows", raw.Workflows, t)
	if raw.Expect != nil {
		t.Expect = r.expect(at+"/expect", raw.Expect)
	}
	if raw.Agents != nil && t.agents == nil {
		t.agents = make(map[string]*agent, len(raw.Agents))
	}
	for _, name := range slices.Sorted(maps.Keys(raw.Agents)) {
		t.agents[name] = r.agent(at+"/agents/"+escape(name), raw.Agents[name])
	}
}

// agent reads the ways to say what an agent answers.
func (r *reader) agent(at string, text json.RawMessage) *agent {
	a := &agent{retry: workflow.AgentRetry(parley.DefaultRetryConfig())}
	switch text[0] {
	case '"':
		if a.echo = string(text) == `"echo"`; !a.echo {
			r.report(at, parley.Problem{Code: problemValue, Text: "an agent is the word echo, a case, a list of cases, or an object with cases"})
		}
		return a
	case '[':
		var cases []rawCase
		r.decode(at, text, &cases)
		a.cases = r.cases(at, cases)
		return a
	}
	var raw rawAgent
	r.decode(at, text, &raw)
	a.echo, a.ignoresCancel = raw.Unmatched == "echo", raw.OnCancel == "ignore"
	if raw.Retry != nil {
		a.retry = r.retry(at+"/retry", raw.Retry)
	}
	switch {
	case raw.Cases != nil && raw.any():
		r.report(at, parley.Problem{Code: problemValue, Text: "an agent has cases, or is one case: not both"})
	case raw.Cases != nil:
		a.cases = r.cases(at+"/cases", raw.Cases)
	case raw.any() || !a.echo:
		a.cases = []*answer{r.answer(at, raw.rawCase)}
	}
	return a
}

func (r *reader) retry(at string, raw *rawRetry) workflow.RetryPolicy {
	c := parley.DefaultRetryConfig()
	if raw.MaxRetries != nil {
		c.MaxRetries = *raw.MaxRetries
	}
	if raw.Multiplier != nil {
		c.Multiplier = *raw.Multiplier
	}
	if raw.InitialDelay != "" {
		c.InitialDelay = r.duration(at+"/initial_delay", raw.InitialDelay)
	}
	if raw.MaxDelay != "" {
		c.MaxDelay = r.duration(at+"/max_delay", raw.MaxDelay)
	}
	return workflow.AgentRetry(c)
}

// decode turns JSON that fits the schema into Go. What the schema lets through
// and Go does not is named at its place.
func (r *reader) decode(at string, text json.RawMessage, v any) {
	if err := json.Unmarshal(text, v); err != nil {
		r.report(at, parley.Problem{Code: problemValue, Text: err.Error()})
	}
}

// duration reads a duration by rule D4.
func (r *reader) duration(at, text string) time.Duration {
	d, err := workflow.ParseDuration(text)
	if err != nil {
		r.report(at, parley.Problem{Code: problemValue, Text: err.Error(), Suggestion: "write it as 500ms, 30s, 5m, 1h30m, 2d or PT5M"})
	}
	return d
}

// escape writes a name as one token of a JSON pointer.
func escape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}
