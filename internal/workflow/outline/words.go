package outline

import (
	"strings"
	"unicode/utf8"

	"github.com/parley-project/parley/internal/workflow"
)

// most bounds what is quoted of a document, in characters.
const most = 60

// newStep reads what a step says of itself.
func newStep(v *workflow.Value, graph bool) *Step {
	s := &Step{Kind: workflow.KindOf(v, graph), Name: v.Given("name").String(), Source: v}
	s.Does = does(s.Kind, v)
	if cond := v.Given("if"); cond != nil && s.Kind != workflow.KindConditional {
		s.note("if", cond)
	}
	s.note("timeout", v.Given("timeout"))
	for _, p := range items(listOf(v.Given("retry"))) {
		s.note("attempts", p.Get("attempts"))
	}
	s.note("session", v.Given("session"))
	return s
}

func (s *Step) note(word string, v *workflow.Value) {
	if v != nil {
		s.Notes = append(s.Notes, word+" "+short(v))
	}
}

// does says what a step of its kind does.
func does(kind workflow.Kind, v *workflow.Value) string {
	switch kind {
	case workflow.KindAgent:
		return agents(v)
	case workflow.KindGroup, workflow.KindParallel:
		return atOnce(v, "")
	case workflow.KindConditional:
		cond := v.Given("condition")
		if e := cond.Given("expression"); e != nil {
			cond = e
		}
		if cond == nil {
			cond = v.Given("if")
		}
		return phrase("if", cond)
	case "fork_join":
		return atOnce(v, joins(v))
	case "loop":
		return loop(v)
	case "sub_workflow":
		text := short(v.Given("workflow"))
		if short(v.Given("detach")) == "true" {
			text += ", detached"
		}
		return text
	case workflow.KindWait:
		if until := v.Given("wait").Given("until"); until != nil {
			return phrase("until", until)
		}
	case "wait_for_event":
		return join(", ", short(v.Given("event")), phrase("key", v.Given("key")), phrase("match", v.Given("match")))
	case "emit":
		return short(v.Given("emit").Given("event"))
	case "approval":
		a := v.Given("approval")
		return join(", ", short(a.Given("title")), phrase("to", a.Given("to")))
	case workflow.KindFail:
		return short(v.Given("fail").Given("code"))
	case workflow.KindSwitch, workflow.KindSet, workflow.KindFinish, "validate":
		return ""
	}
	return short(v.Given(string(kind)))
}

func agents(v *workflow.Value) string {
	text := short(v.Given("agent"))
	if text == "" {
		text = short(v.Given("agent_name"))
	}
	if list := v.Given("agents"); list != nil {
		text = texts(list)
		if after := v.Given("hedge_after"); after != nil {
			return text + ", hedged after " + short(after)
		}
		return strings.ReplaceAll(text, ", ", ", else ")
	}
	return join(" ", text, phrase("among", v.Given("among")))
}

func joins(v *workflow.Value) string {
	if c := v.Given("fork_join_config"); c != nil {
		n := len(members(c.Given("branches")))
		if c.Given("join_policy").String() == "n_of_m" {
			return join(", ", short(c.Given("n_required"))+" of "+branches(n), timed(c.Given("branch_timeout_seconds")))
		}
		return join(", ", or(c.Given("join_policy").String(), "all")+" of "+branches(n), timed(c.Given("branch_timeout_seconds")))
	}
	return join(", ", or(short(v.Given("join")), "all")+" of "+branches(len(members(v.Given("fork")))), phrase("branch timeout", v.Given("branch_timeout")))
}

func timed(v *workflow.Value) string {
	if v == nil {
		return ""
	}
	return "branch timeout " + seconds(v)
}

func loop(v *workflow.Value) string {
	if r := v.Given("repeat"); r != nil {
		return join(", ", "repeat at most "+short(r.Given("max")), phrase("until", r.Given("until")))
	}
	if c := v.Given("loop_config"); c != nil {
		text := phrase("for each of", c.Given("collection"))
		if c.Given("execution_mode").String() == "parallel" {
			text += ", " + or(short(c.Given("max_parallelism")), "all") + " at once"
		}
		return join(", ", text, phrase("at most", c.Given("max_iterations")), phrase("on error", c.Given("on_error")))
	}
	return join(", ", atOnce(v, phrase("for each of", v.Given("for_each"))), phrase("at most", v.Given("max_iterations")),
		phrase("tolerate", v.Given("tolerate")), phrase("enough", v.Given("enough")), phrase("errors", v.Given("item_errors")))
}

// atOnce says how many of its steps run at the same time.
func atOnce(v *workflow.Value, text string) string {
	n := v.Given("max_parallel")
	if n == nil {
		n = v.Given("max_parallelism")
	}
	if n == nil {
		return text
	}
	return join(", ", text, short(n)+" at once")
}

func trigger(t *workflow.Value) string {
	if len(members(t)) == 0 {
		return ""
	}
	m, what := t.Members[0], ""
	for _, name := range []string{"cron", "every", "name", "topic"} {
		what = or(what, short(m.Value.Given(name)))
	}
	return join(" ", m.Name, what)
}

// phrase puts a word before a value, if there is one.
func phrase(word string, v *workflow.Value) string {
	if v == nil {
		return ""
	}
	return word + " " + short(v)
}

func join(sep string, parts ...string) string {
	var all []string
	for _, p := range parts {
		if p != "" {
			all = append(all, p)
		}
	}
	return strings.Join(all, sep)
}

// texts writes a list of texts with commas.
func texts(v *workflow.Value) string {
	var all []string
	for _, item := range items(v) {
		all = append(all, short(item))
	}
	return strings.Join(all, ", ")
}

// short writes a value on one line, cut if it is long.
func short(v *workflow.Value) string {
	if v == nil {
		return ""
	}
	text := v.Text
	switch v.Kind {
	case workflow.ListValue:
		text = texts(v)
	case workflow.ObjectValue:
		text = string(v.JSON())
	case workflow.NullValue:
		text = "null"
	}
	text = strings.Join(strings.Fields(text), " ")
	if utf8.RuneCountInString(text) > most {
		text = string([]rune(text)[:most-1]) + "…"
	}
	return text
}
