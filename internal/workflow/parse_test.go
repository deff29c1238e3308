package workflow

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

// testParse compiles a document that must have no error.
func testParse(t *testing.T, source string) *Definition {
	t.Helper()
	def, problems := Parse(ParseOptions{File: "test"}, []byte(source))
	if def == nil {
		t.Fatalf("%v", goldenLines(ParseOptions{}, []byte(source)))
	}
	if diff := cmp.Diff(problems, parley.Problems(def.Warnings)); diff != "" {
		t.Errorf("problems and warnings differ:\n%s", diff)
	}
	return def
}

// testErrors parses a document that must be refused and gives "code path" of
// every error.
func testErrors(t *testing.T, source string) []string {
	t.Helper()
	def, problems := Parse(ParseOptions{}, []byte(source))
	var out []string
	for _, p := range problems {
		if p.Severity == parley.SeverityError {
			out = append(out, p.Code+" "+p.Path)
		}
	}
	if def != nil || len(out) == 0 {
		t.Errorf("accepted: %s", source)
	}
	return out
}

// testSame are the options under which two definitions are the same: compiled
// expressions are compared by what they show.
func testSame() cmp.Options {
	return cmp.Options{
		cmp.Comparer(func(a, b *Schema) bool {
			return a == b || a != nil && b != nil && string(a.Raw()) == string(b.Raw())
		}),
		cmp.Comparer(func(a, b *expr.Template) bool {
			return a == b || a != nil && b != nil && a.Literal() == b.Literal() && slices.Equal(a.Refs(), b.Refs())
		}),
		cmp.Comparer(func(a, b *expr.Condition) bool {
			return a == b || a != nil && b != nil && slices.Equal(a.Refs(), b.Refs())
		}),
		cmpopts.IgnoreFields(parley.Problem{}, "Line", "Col"),
		cmpopts.EquateEmpty(),
	}
}

func testFile(t *testing.T, name string) []byte {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("testdata", "plans", name))
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// TestD5_EveryMember compiles a document with every member of this version.
func TestD5_EveryMember(t *testing.T) {
	def := testParse(t, string(testFile(t, "all_members.yaml")))
	type meta struct {
		ID, Name, Version, Description string
		Language                       int
		Labels                         map[string]string
		Form                           Form
		Timeout, Cleanup               time.Duration
	}
	got := meta{def.ID, def.Name, def.Version, def.Description, def.Language, def.Labels, def.Form, def.Timeout, def.CleanupTimeout}
	want := meta{"all-members", "All Members", "3", "one of each", 1, map[string]string{"team": "ops", "on": "yes"}, FormList, 2 * time.Hour, time.Minute}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("definition (-want +got):\n%s", diff)
	}
	if def.Input == nil || def.Output == nil || def.IdempotencyKey == nil {
		t.Error("input, output or idempotency_key is missing")
	}
	s := def.Steps["research"]
	if s.If == nil || s.Input == nil || s.Output == nil || s.Schema == nil || !s.ParseJSON || len(s.Handlers) != 1 {
		t.Errorf("a member of research is missing: %+v", s)
	}
	wantRetry := []RetryPolicy{
		{Attempts: 2, Multiplier: 1, MaxDelay: time.Second, On: []parley.Code{"invalid_output"}},
		{Attempts: 5, Delay: time.Second, Multiplier: 2, MaxDelay: 30 * time.Second, FullJitter: true, On: []parley.Code{"*"}, NotOn: []parley.Code{"MyCode"}},
	}
	if diff := cmp.Diff(wantRetry, s.Retry); diff != "" {
		t.Errorf("retry (-want +got):\n%s", diff)
	}
	if s.Agent != "researcher" || s.Session != "talk" || s.Timeout != 10*time.Minute || s.AttemptTimeout != time.Minute || s.Silence != 30*time.Second || s.Name != "Research" || s.Description != "finds things" {
		t.Errorf("research is %+v", s)
	}
	dynamic := def.Steps["work_agent_2"]
	if dynamic.Agent != "" || dynamic.AgentExpr == nil || !slices.Equal(dynamic.Among, []string{"short", "long"}) || dynamic.Input == nil {
		t.Errorf("work_agent_2 is %+v", dynamic)
	}
	if f := def.Steps["guard"].Fail; f.Code != "NoFacts" || f.Message == nil || f.Details == nil {
		t.Errorf("fail is %+v", f)
	}
	if def.Steps["end"].Finish == nil || def.Steps["work_group_3_set_1"].Set == nil || def.Steps["end"].Handlers != nil {
		t.Error("finish or set is missing")
	}
	checkTree(t, def)
}

// checkTree checks what holds for every definition: blocks, indexes, needs,
// ids.
func checkTree(t *testing.T, def *Definition) {
	t.Helper()
	seen := 0
	var walk func(b *Block)
	walk = func(b *Block) {
		for i, s := range b.Steps {
			seen++
			needs := []int{i - 1}
			if i == 0 {
				needs = nil
			}
			if s.Block != b || s.Index != i || def.Steps[s.ID] != s || s.ID == "" || !slices.Equal(s.Needs, needs) {
				t.Errorf("step %q at %d: index %d, needs %v", s.ID, i, s.Index, s.Needs)
			}
			if s.Kind == KindAgent && (s.Input == nil || s.Silence == 0 || s.Agent == "" && len(s.Agents) < 2 && (s.AgentExpr == nil || len(s.Among) == 0)) {
				t.Errorf("agent step %q is not complete", s.ID)
			}
			if (s.Kind == KindGroup) != (s.Body != nil) {
				t.Errorf("step %q of kind %s has a body: %v", s.ID, s.Kind, s.Body != nil)
			}
			if s.Body != nil {
				if s.Body.Parent != s {
					t.Errorf("the body of %q has another parent", s.ID)
				}
				walk(s.Body)
			}
			if s.Kind == KindConditional {
				for _, b := range s.Blocks() {
					walk(b)
				}
			}
		}
	}
	if def.Body.Parent != nil || len(def.Body.Steps) == 0 || def.Timeout == 0 || def.ID == "" || def.Language != 1 {
		t.Errorf("definition is not complete: %+v", def)
	}
	walk(def.Body)
	if def.Finally != nil {
		walk(def.Finally)
	}
	if seen != len(def.Steps) {
		t.Errorf("%d steps in blocks, %d by id", seen, len(def.Steps))
	}
}

// TestD3_Ids checks automatic ids and the default workflow_id.
func TestD3_Ids(t *testing.T) {
	def := testParse(t, "name: x\nsteps:\n- agent: a\n- id: work\n  steps:\n  - set: 1\n  - steps:\n    - agent: b\n    - finish: 1\n- fail: {code: A}\n")
	want := []string{"agent_1", "fail_3", "work", "work_group_2", "work_group_2_agent_1", "work_group_2_finish_2", "work_set_1"}
	var got []string
	for id := range def.Steps {
		got = append(got, id)
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ids (-want +got):\n%s", diff)
	}
	for name, want := range map[string]string{
		"critic loop": "critic-loop", "Order (v2), Überseehafen": "order-v2-berseehafen", "a.b_c-d": "a.b_c-d", "  x  ": "x",
		"--a--b": "a-b", "_x": "x", "ÄÖ": "workflow-0a1ae0f86bd5", strings.Repeat("ab ", 80): strings.TrimRight(strings.Repeat("ab-", 80)[:128], "-"),
	} {
		def := testParse(t, fmt.Sprintf("name: %q\nsteps: [{agent: a}]", name))
		if name == "ÄÖ" {
			if !strings.HasPrefix(def.ID, "workflow-") || len(def.ID) != len(want) {
				t.Errorf("%q gives %q", name, def.ID)
			}
			continue
		}
		if def.ID != want {
			t.Errorf("%q gives the workflow_id %q, want %q", name, def.ID, want)
		}
	}
}

// TestD1_Spellings compiles the same workflow in YAML and in JSON.
func TestD1_Spellings(t *testing.T) {
	for _, name := range []string{"all_members.yaml", "research.json", "literals.json", "four_in_a_row.json"} {
		source := testFile(t, name)
		tree := testRead(t, string(source))
		a := testParse(t, string(source))
		b := testParse(t, string(tree.json()))
		c := testParse(t, "--- # JSON is YAML\n"+string(tree.json()))
		if diff := cmp.Diff(a, b, testSame()); diff != "" {
			t.Errorf("%s (-first +JSON):\n%s", name, diff)
		}
		if diff := cmp.Diff(a, c, testSame()); diff != "" {
			t.Errorf("%s (-first +YAML):\n%s", name, diff)
		}
	}
}

// TestForms_Equal compiles one workflow in both forms.
func TestForms_Equal(t *testing.T) {
	list := testParse(t, "name: x\nsteps:\n- {id: a, agent: one, input: {t: \"${workflow.input.t}\"}}\n- {id: b, agent: two, retry: {attempts: 2}, on_error: continue}\n")
	graph := testParse(t, `{"name": "x", "start_step": "a", "steps": {
		"b": {"id": "b", "agent_name": "two", "retry": {"attempts": 2}, "on_error": "continue", "next_step": null},
		"a": {"id": "a", "type": "agent", "agent_name": "one", "input_mapping": {"t": "${workflow.input.t}"}, "next_step": "b"}}}`)
	if diff := cmp.Diff(list, graph, testSame(), cmpopts.IgnoreFields(Definition{}, "Form")); diff != "" {
		t.Errorf("(-list +graph):\n%s", diff)
	}
}

// TestR1_Defaults checks the defaults of a policy and what agent steps inherit.
func TestR1_Defaults(t *testing.T) {
	def := testParse(t, "name: x\nretry: {}\nsilence: 1m\nattempt_timeout: 2m\nsteps:\n- {id: a, agent: a}\n- {id: b, agent: a, retry: {attempts: 7}, silence: 3m, attempt_timeout: 4m}\n- {id: c, set: 1}\n- {id: d, set: 1, retry: {attempts: 2}}\n")
	standard := RetryPolicy{Attempts: 3, Delay: time.Second, Multiplier: 2, MaxDelay: 30 * time.Second, FullJitter: true}
	if diff := cmp.Diff([]RetryPolicy{standard}, def.Steps["a"].Retry); diff != "" {
		t.Errorf("inherited (-want +got):\n%s", diff)
	}
	if s := def.Steps["a"]; s.Silence != time.Minute || s.AttemptTimeout != 2*time.Minute {
		t.Errorf("a: silence %v, attempt_timeout %v", s.Silence, s.AttemptTimeout)
	}
	if s := def.Steps["b"]; s.Silence != 3*time.Minute || s.AttemptTimeout != 4*time.Minute || s.Retry[0].Attempts != 7 {
		t.Errorf("b: %+v", s)
	}
	if s := def.Steps["c"]; s.Retry != nil || s.Silence != 0 {
		t.Errorf("c, no agent, inherits: %+v", s)
	}
	if s := def.Steps["d"]; s.Retry[0].Attempts != 2 {
		t.Errorf("d: %+v", s)
	}
	bare := testParse(t, "name: x\nsteps:\n- {id: a, agent: a}\n")
	if s := bare.Steps["a"]; s.Retry != nil || s.Silence != 5*time.Minute || s.AttemptTimeout != 0 || s.Timeout != 0 {
		t.Errorf("without defaults: %+v", s)
	}
	if bare.Timeout != 30*24*time.Hour || bare.CleanupTimeout != 10*time.Minute || bare.Version != "" {
		t.Errorf("without defaults: %+v", bare)
	}
	if def, _ := Parse(ParseOptions{Version: "12"}, []byte("name: x\nsteps: [{agent: a}]")); def.Version != "12" {
		t.Errorf("the given version is not used: %q", def.Version)
	}
}

// TestLimits_Workflow passes the limits of steps and scopes, exactly and by one.
func TestLimits_Workflow(t *testing.T) {
	steps := func(n int) string { return "name: x\nsteps:\n" + strings.Repeat("- agent: a\n", n) }
	testParse(t, steps(2000))
	if diff := cmp.Diff([]string{"limit steps[2000]"}, testErrors(t, steps(2001))); diff != "" {
		t.Error(diff)
	}
	scopes := func(n int) string {
		return `{"name": "x", "steps": ` + strings.Repeat(`[{"steps": `, n-1) + `[{"agent": "a"}]` + strings.Repeat("}]", n-1) + "}"
	}
	testParse(t, scopes(32))
	if got := testErrors(t, scopes(33)); len(got) != 1 || !strings.HasPrefix(got[0], "limit steps[0]") {
		t.Error(got)
	}
	deep := func(n int) string {
		return `{"name": "x", "steps": [{"agent": "a", "input": ` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}]}"
	}
	testParse(t, deep(64))
	if diff := cmp.Diff([]string{"limit steps[0].input"}, testErrors(t, deep(65))); diff != "" {
		t.Error(diff)
	}
	wide := func(n int) []byte {
		return []byte(`{"name": "x", "steps": [{"parallel": [` + strings.Repeat(`{"agent": "a"},`, n-1) + `{"agent": "a"}]}]}`)
	}
	few := ParseOptions{Limits: ParseLimits{Branches: 3}}
	if def, problems := Parse(few, wide(3)); def == nil {
		t.Error(problems)
	}
	if def, problems := Parse(few, wide(4)); def != nil || len(problems) != 1 || problems[0].Code != "limit" {
		t.Error(problems)
	}
	// What is known of values beforehand may be more than it was then.
	known := []byte(`{"name":"x","input":{"type":"object","properties":{"l":{"type":"array"}}},"steps":[{"set":"of ${workflow.input.l}"}]}`)
	if def, problems := ParseStored("x", "1", known); def == nil || len(def.Warnings) != 1 {
		t.Errorf("stored: %v", problems)
	}
	plan := []byte(`{"name":"x","steps":[{"plan":[{"agent":"b"}],"allow":{"agents":["a"]},"on_error":"continue"}]}`)
	if def, problems := ParseStored("x", "1", plan); def == nil {
		t.Errorf("stored: %v", problems)
	}
	nobody := []byte(`{"name":"x","steps":[{"approval":{"title":"t","to":[]}}]}`)
	if def, problems := ParseStored("x", "1", nobody); def == nil {
		t.Errorf("stored: %v", problems)
	}
	if def, _ := Parse(ParseOptions{}, nobody); def != nil {
		t.Error("an approval that nobody may give is deployed")
	}
	if def, _ := Parse(ParseOptions{}, plan); def != nil {
		t.Error("a plan that is refused in each run is deployed")
	}
	if def, _ := Parse(ParseOptions{}, known); def != nil {
		t.Error("a list inside text is deployed")
	}
	if def, problems := ParseStored("x", "1", wide(3000)); def == nil {
		t.Errorf("what was deployed is not read: %v", problems)
	}
	labels := func(n int) string {
		out := map[string]string{}
		for i := range n {
			out[fmt.Sprint("l", i)] = strings.Repeat("ä", 256)
		}
		b, _ := json.Marshal(map[string]any{"name": "x", "labels": out, "steps": []any{map[string]any{"agent": "a"}}})
		return string(b)
	}
	testParse(t, labels(32))
	if diff := cmp.Diff([]string{"limit labels"}, testErrors(t, labels(33))); diff != "" {
		t.Error(diff)
	}
	many := strings.Repeat("- {agent: a, zzz: 1}\n", 300)
	def, problems := Parse(ParseOptions{}, []byte("name: x\nsteps:\n"+many))
	if def != nil || len(problems) != problemsMax+1 || problems[problemsMax].Text != "there are 200 more findings" {
		t.Errorf("%d problems, the last: %v", len(problems), problems[len(problems)-1])
	}
}

// TestProblems_ErrorsStay checks that an error behind a thousand warnings is
// reported and refuses the document.
func TestProblems_ErrorsStay(t *testing.T) {
	for _, n := range []int{500, 5000} {
		var source strings.Builder
		source.WriteString(`{"name": "x"`)
		for i := range n {
			fmt.Fprintf(&source, `, "x%d": 1`, i)
		}
		source.WriteString(`, "start_step": "a", "steps": {"a": {"agent_name": ""}}}`)
		def, problems := Parse(ParseOptions{}, []byte(source.String()))
		found := slices.ContainsFunc(problems, func(p parley.Problem) bool {
			return p.Severity == parley.SeverityError && p.Path == "steps.a.agent_name"
		})
		if def != nil || !found || len(problems) != problemsMax+1 {
			t.Errorf("%d warnings: definition %v, error found %v, %d problems", n, def != nil, found, len(problems))
		}
		if want := fmt.Sprintf("there are %d more findings", n+1-problemsMax); problems[problemsMax].Text != want {
			t.Errorf("the last is %q, want %q", problems[problemsMax].Text, want)
		}
	}
}

// TestE5_Visible checks what a step may refer to.
func TestE5_Visible(t *testing.T) {
	p := newParser(ParseOptions{Limits: testLimits()}, &nodeReader{})
	p.document(testRead(t, "name: x\nsteps:\n- {id: a, agent: a}\n- id: g\n  steps:\n  - {id: g1, agent: a}\n  - {id: h, steps: [{id: h1, agent: a}, {id: h2, agent: a}]}\n  - {id: g3, agent: a}\n- {id: z, agent: a}\n"))
	for of, want := range map[string]string{
		"a": "", "g": "a", "g1": "a", "h": "a g1", "h1": "a g1", "h2": "a g1 h1", "g3": "a g1 h h1 h2", "z": "a g g1 g3 h h1 h2",
	} {
		var got, after []string
		for _, id := range []string{"a", "g", "g1", "g3", "h", "h1", "h2", "none", "z"} {
			ok, reason := p.visible(parseExpr{of: p.steps[of], after: false})(id)
			if ok {
				got = append(got, id)
			} else if reason == "" {
				t.Errorf("%s → %s is refused without a reason", of, id)
			}
			if ok, _ := p.visible(parseExpr{of: p.steps[of], after: true})(id); ok {
				after = append(after, id)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s sees %q, want %q", of, got, want)
		}
		inside := map[string]string{"g": "a g1 g3 h h1 h2", "h": "a g1 h1 h2"}[of]
		if inside == "" {
			inside = want
		}
		if strings.Join(after, " ") != inside {
			t.Errorf("the output of %s sees %q, want %q", of, after, inside)
		}
	}
	if ok, _ := p.visible(parseExpr{})("h2"); !ok {
		t.Error("the output of the workflow does not see h2")
	}
}

// TestGraph_Plans compiles plans of the old platform's form.
func TestGraph_Plans(t *testing.T) {
	for name, want := range map[string]string{
		"research.json":      "wf-harbour-report-007 2.1.0 [step-1 step-2]",
		"literals.json":      "scan-and-file 1.0.0 [scan_page file_page]",
		"four_in_a_row.json": "four-in-a-row  [fetch-it check-it work-it keep-it]",
	} {
		def := testParse(t, string(testFile(t, name)))
		checkTree(t, def)
		var ids []string
		for _, s := range def.Body.Steps {
			ids = append(ids, s.ID)
		}
		if got := fmt.Sprint(def.ID, " ", def.Version, " ", ids); got != want || def.Form != FormGraph || len(def.Warnings) > 0 {
			t.Errorf("%s: %s, want %s; %v", name, got, want, def.Warnings)
		}
	}
}

// TestGraph_OldExamples compiles the old platform's own examples besides, where they
// are at hand; TestOldComposites has the same constructs.
func TestGraph_OldExamples(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join("..", "..", "..", "*", "examples-old-platform", "*.json"))
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		if !strings.Contains(string(source), "start_step") {
			continue // an agent record, an input
		}
		def, problems := Parse(ParseOptions{File: name}, source)
		if def == nil || len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

// TestD3_WorkflowIDs holds ids to their pattern, no more and no less of them.
func TestD3_WorkflowIDs(t *testing.T) {
	for id, want := range map[string]bool{
		"a": true, "7": true, "a--b": true, "a-": true, "a.": true, "a_._-b": true, strings.Repeat("a", 128): true,
		"": false, "A": false, "aB": false, "-a": false, ".a": false, "_a": false, "a b": false, "ä": false, strings.Repeat("a", 129): false,
	} {
		def, problems := Parse(ParseOptions{}, []byte(`{"name": "t", "workflow_id": "`+id+`", "steps": [{"set": 1}]}`))
		if (def != nil) != want || want && def.ID != id {
			t.Errorf("%q: %v", id, problems)
		}
	}
}

// TestS9_NoIDIsThePathOfAnotherStep: ids of the graph form may hold slashes, but one that
// is, or may come to be, the path of a step elsewhere would make two steps one execution.
func TestS9_NoIDIsThePathOfAnotherStep(t *testing.T) {
	for id, refused := range map[string]bool{
		"g/x": true, "g#2/x": true, "g[3]/x": true, "g#2[0]/x": true, "g/y": false, "h/x": false, "x/g": false, "g#2": false, "a#1/x": false,
	} {
		def, problems := Parse(ParseOptions{File: "x.json"}, fmt.Appendf(nil, `{"name":"t","start_step":"g","steps":{
			"g":{"type":"group","steps":[{"id":"x","set":1}],"next_step":%q},
			%[1]q:{"type":"agent","agent_name":"a","next_step":"a#2/x"},
			"a#2/x":{"type":"agent","agent_name":"a","next_step":null}}}`, id))
		if refused != (def == nil) {
			t.Errorf("%s is refused: %v, %v", id, def == nil, problems)
		}
		if refused && (len(problems) != 1 || problems[0].Code != problemID || !strings.Contains(problems[0].Text, `the step "x"`) && !strings.Contains(problems[0].Text, id)) {
			t.Errorf("%s: %v", id, problems)
		}
	}
}
