package expr

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/parley-project/parley"
)

// rootKind is what a path starts from.
type rootKind int

const (
	rootInput rootKind = iota // workflow.input
	rootPlan                  // plan.input
	rootLoop                  // loop.item and its siblings, each.item and its
	rootStep                  // [steps.]id.output
)

// path is a path reference (rule E2): a root and the way from it to a value.
type path struct {
	text string
	root rootKind
	// name is the step id of rootStep, the member of rootLoop.
	name     string
	segments []segment
}

// segment is a member name or an index.
type segment struct {
	name    string
	index   int
	isIndex bool
}

// parsePath reads text as the grammar's path. Step ids are those that known
// accepts. With old, segments may hold anything but . [ ] { } (rule E2).
func parsePath(text string, known func(id string) bool, old bool) (*path, bool) {
	for _, r := range [...]struct {
		prefix string
		kind   rootKind
		names  string
	}{
		{prefix: "workflow.input", kind: rootInput},
		{prefix: "plan.input", kind: rootPlan},
		{prefix: "loop.item", kind: rootLoop},
		{prefix: "loop.index", kind: rootLoop},
		{prefix: "loop.total", kind: rootLoop},
		{prefix: "loop.is_first", kind: rootLoop},
		{prefix: "loop.is_last", kind: rootLoop},
	} {
		rest, ok := strings.CutPrefix(text, r.prefix)
		if !ok {
			continue
		}
		if segments, ok := parseSegments(rest, old); ok {
			return &path{text: text, root: r.kind, name: strings.TrimPrefix(r.prefix, "loop."), segments: segments}, true
		}
	}
	if p, ok := parseStepPath(text, text, known, old); ok {
		return p, true
	}
	if rest, ok := strings.CutPrefix(text, "steps."); ok {
		return parseStepPath(text, rest, known, old)
	}
	if rest, ok := strings.CutPrefix(text, "each."); ok {
		if p, ok := parsePath("loop."+rest, noStep, old); ok {
			p.text = text
			return p, true
		}
	}
	return nil, false
}

func noStep(string) bool { return false }

// parseStepPath looks for ".output" behind a known id. Ids of graph form may
// hold dots, so every place is tried.
func parseStepPath(text, rest string, known func(string) bool, old bool) (*path, bool) {
	const output = ".output"
	for from := 0; ; {
		n := strings.Index(rest[from:], output)
		if n < 0 {
			return nil, false
		}
		id := rest[:from+n]
		from += n + len(output)
		if id == "" || !known(id) {
			continue
		}
		if segments, ok := parseSegments(rest[from:], old); ok {
			return &path{text: text, root: rootStep, name: id, segments: segments}, true
		}
	}
}

func parseSegments(text string, old bool) ([]segment, bool) {
	var segments []segment
	for text != "" {
		var seg segment
		var ok bool
		switch text[0] {
		case '.':
			seg.name, text, ok = cutName(text[1:], old)
		case '[':
			seg.isIndex = true
			seg.index, text, ok = cutIndex(text[1:])
		}
		if !ok {
			return nil, false
		}
		segments = append(segments, seg)
	}
	return segments, true
}

func cutName(text string, old bool) (name, rest string, ok bool) {
	n := 0
	for n < len(text) {
		r, size := utf8.DecodeRuneInString(text[n:])
		if !nameRune(r, old) {
			break
		}
		n += size
	}
	return text[:n], text[n:], n > 0
}

func nameRune(r rune, old bool) bool {
	if old {
		return !strings.ContainsRune(".[]{}", r)
	}
	switch r {
	case '_', '-', '$', '@':
		return true
	}
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r))
}

func cutIndex(text string) (index int, rest string, ok bool) {
	digits, rest, ok := strings.Cut(text, "]")
	if !ok || digits == "" || len(digits) > 9 {
		return 0, "", false
	}
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return 0, "", false
		}
	}
	index, err := strconv.Atoi(digits)
	return index, rest, err == nil
}

// resolve gives the referenced bytes, unchanged. They are shared with the
// scope.
func (p *path) resolve(s *Scope) (json.RawMessage, *fault) {
	var value json.RawMessage
	switch p.root {
	case rootInput:
		value = trim(s.Workflow.Input)
	case rootStep:
		info, f := lookStep(s, p.name)
		if f != nil {
			return nil, f
		}
		if !hasOutput(info) && len(p.segments) > 0 {
			return nil, faultf("%s not found: step %q has no output (it is %s)", p.segments[0].missing(), p.name, info.Status)
		}
		if hasOutput(info) {
			value = trim(info.Output)
		}
	case rootPlan:
		value = trim(s.PlanInput)
	case rootLoop:
		if s.Each == nil {
			return nil, faultf("loop.%s is in scope inside a loop only", p.name)
		}
		value = s.Each.value(p.name)
	}
	if len(value) == 0 {
		value = json.RawMessage("null")
	}
	return walk(value, p.segments)
}

// lookStep gives the state of a step, or the fault of a step out of sight.
func lookStep(s *Scope, id string) (StepInfo, *fault) {
	return lookIn(s.Step, id)
}

func lookIn(step func(string) (StepInfo, bool), id string) (StepInfo, *fault) {
	if step != nil {
		if info, ok := step(id); ok {
			return info, nil
		}
	}
	return StepInfo{}, faultf("step %q is not visible from here", id)
}

// hasOutput is rule E3: only completed and handled steps have one.
func hasOutput(info StepInfo) bool {
	return info.Status == parley.StepCompleted || info.Handled
}

func walk(value json.RawMessage, segments []segment) (json.RawMessage, *fault) {
	for i := range segments {
		seg := &segments[i]
		if seg.isIndex {
			if value[0] != '[' {
				return nil, faultf("%s not found (%s has no items)", seg.missing(), kindOf(value))
			}
			item, n := element(value, seg.index)
			if len(item) == 0 {
				return nil, faultf("%s not found (the list has %s)", seg.missing(), itemsText(n))
			}
			value = item
			continue
		}
		if value[0] != '{' {
			return nil, faultf("%s not found (%s has no members)", seg.missing(), kindOf(value))
		}
		v, ok := member(value, seg.name)
		if !ok {
			return nil, faultf("%s not found", seg.missing())
		}
		value = v
	}
	return value, nil
}

// missing starts the text of the error that nothing is there.
func (g *segment) missing() string {
	if g.isIndex {
		return "Index " + strconv.Itoa(g.index)
	}
	return "Field '" + g.name + "'"
}
