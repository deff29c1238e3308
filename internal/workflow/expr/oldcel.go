package expr

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// OldConditionCEL writes a condition of the old platform's grammar as one CEL
// expression that gives the same for every value that is compared: what is
// missing is null, and a comparison that the old grammar faults makes the whole
// false. Two
// things differ: inside lists and objects that are compared whole, true and 1 are
// not equal, and a path that leads through a text, a number or a truth value is an
// error. The error says what CEL cannot say.
func (c *Compiler) OldConditionCEL(text string) (string, error) {
	p := &oldParser{c: c, text: text}
	root := p.condition()
	if p.skip(); p.err == nil && p.pos < len(text) {
		p.fail("unexpected %q", p.here())
	}
	if p.err != nil {
		return "", errors.New(p.err.Text)
	}
	x, err := root.cel()
	if err != nil {
		return "", err
	}
	if len(x.strict()) > maxText {
		return "", errTooLong
	}
	return x.strict(), nil
}

// errTooLong bounds what is written: a part may be repeated several times.
var errTooLong = errors.New("it is too long to be written in CEL")

// oldCEL is a part of an old condition in CEL.
type oldCEL struct {
	// value is CEL for the value; it may fail unless ok holds. static is the kind
	// of the value as of oldValue, 'b' for what is true or false, '?' if it is
	// known at run time only.
	value  string
	static byte
	// ok is CEL for "there is no fault"; "" if there never is one.
	ok string
	// holds is CEL for the truth of the value, false for a fault, sure CEL for "no
	// fault and true" where a fault inside counts; "" is the same as holds.
	holds, sure string
	// raw is set for a constant, plain for a list of constants none of which a truth
	// value is equal to.
	raw   json.RawMessage
	plain bool
}

// strict is CEL for the whole: true, and no fault on the way.
func (x oldCEL) strict() string {
	if x.sure != "" {
		return x.sure
	}
	return x.holds
}

// all joins conditions that all must hold; "" always does.
func all(conditions ...string) string {
	if slices.Contains(conditions, "false") {
		return "false"
	}
	conditions = slices.DeleteFunc(conditions, func(c string) bool { return c == "" || c == "true" })
	for i := range conditions {
		if len(conditions) > 1 {
			conditions[i] = grouped(conditions[i], " || ", " ? ")
		}
	}
	return strings.Join(conditions, " && ")
}

// grouped puts CEL into parentheses where it has one of the operators, unless it
// is one call.
func grouped(cel string, operators ...string) string {
	if !slices.ContainsFunc(operators, func(op string) bool { return strings.Contains(cel, op) }) || oneCall(cel) {
		return cel
	}
	return "(" + cel + ")"
}

// oneCall says whether CEL is a call from its first to its last character, or
// stands in parentheses.
func oneCall(cel string) bool {
	depth, quoted := 0, false
	for i := range len(cel) {
		switch c := cel[i]; {
		case quoted && c == '\\':
			return false // rare: it is grouped
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '(':
			depth++
		case c == ')':
			if depth--; depth == 0 {
				return i == len(cel)-1
			}
		case depth == 0 && !identByte(c) && c != '.':
			return false
		}
	}
	return false
}

func orTrue(cel string) string {
	if cel == "" {
		return "true"
	}
	return cel
}

func (n *oldNode) cel() (oldCEL, error) {
	var args []oldCEL
	for _, x := range n.operands {
		a, err := x.cel()
		if err != nil {
			return a, err
		}
		if len(a.value)+len(a.ok)+len(a.holds)+len(a.sure) > 4*maxText {
			return a, errTooLong
		}
		args = append(args, a)
	}
	switch n.op {
	case "":
		if n.ref != nil {
			return celPath(n.ref)
		}
		return celConstant(n.raw), nil
	case "not":
		x := args[0]
		no := "!" + grouped(x.holds, " ")
		return oldCEL{static: 'b', value: no, ok: x.ok, holds: all(x.ok, no)}, nil
	case "and", "or":
		return celEither(n.op, args[0], args[1]), nil
	}
	for _, a := range args {
		if a.static == '|' {
			return a, errors.New("the value of `and` or `or` is compared: write the comparison for each of its parts")
		}
	}
	switch n.op {
	case "len":
		return celLength(args[0]), nil
	case "list":
		return celList(args), nil
	case "==", "!=":
		return celBound(n.op, args[0], args[1], celEqual), nil
	case "contains":
		return celBound("in", args[1], args[0], celIn), nil
	case "in", "not in":
		return celBound(n.op, args[0], args[1], celIn), nil
	}
	return celBound(n.op, args[0], args[1], celOrder), nil
}

// celBound compares two values. One that is known at run time only and is written
// several times gets a name.
func celBound(op string, l, r oldCEL, compare func(op string, l, r oldCEL) oldCEL) oldCEL {
	const left, right = "\x00x", "\x00y" // no text of a condition can be these
	a, b := l, r
	if l.static == '?' {
		a.value = left
	}
	if r.static == '?' {
		b.value = right
	}
	x := compare(op, a, b)
	for _, text := range []*string{&x.value, &x.ok, &x.holds} {
		for _, bound := range []struct{ mark, value string }{{right, r.value}, {left, l.value}} {
			switch strings.Count(*text, bound.mark) {
			case 0:
			case 1:
				*text = strings.Replace(*text, bound.mark, bound.value, 1)
			default:
				*text = "cel.bind(" + bound.mark[1:] + ", " + bound.value + ", " + strings.ReplaceAll(*text, bound.mark, bound.mark[1:]) + ")"
			}
		}
	}
	return x
}

// celEither is `and` or `or`, whose value is an operand: '|' keeps it from being
// compared.
func celEither(op string, a, b oldCEL) oldCEL {
	if op == "and" {
		x := oldCEL{static: '|', holds: orTrue(all(a.holds, b.holds))}
		if a.sure != "" || b.sure != "" {
			x.sure = orTrue(all(a.strict(), b.strict()))
		}
		if a.ok != "" || b.ok != "" {
			x.ok = all(a.ok, eitherOf("!"+grouped(a.holds, " "), b.ok))
		}
		x.value = x.holds
		return x
	}
	x := oldCEL{static: '|', holds: orTrue(eitherOf(a.holds, b.holds))}
	if a.ok != "" || b.sure != "" {
		x.sure = orTrue(all(a.ok, eitherOf(a.holds, b.strict())))
	}
	if a.ok != "" || b.ok != "" {
		x.ok = all(a.ok, eitherOf(a.holds, b.ok))
	}
	x.value = x.holds
	return x
}

// eitherOf joins two conditions; "" always holds.
func eitherOf(a, b string) string {
	switch {
	case a == "" || b == "" || a == "true" || b == "true" || a == "!false":
		return ""
	case a == "false" || a == "!true":
		return b
	case b == "false":
		return a
	}
	return grouped(a, " ? ") + " || " + grouped(b, " ? ")
}

func celConstant(raw json.RawMessage) oldCEL {
	v := oldValue{raw: raw}
	x := oldCEL{raw: raw, static: v.kind(), value: string(raw), holds: strconv.FormatBool(v.truth())}
	switch v.kind() {
	case 't', 'f':
		x.static = 'b'
	case 'n', '"':
		if v.kind() == '"' {
			x.value = celString(unquote(raw))
		}
	default:
		x.static = '0'
		if _, err := strconv.ParseInt(x.value, 10, 64); err != nil && !strings.ContainsAny(x.value, ".eE") {
			x.value += ".0"
		}
	}
	return x
}

// celString writes a text of CEL.
func celString(text string) string { return string(appendQuote(nil, text)) }

// celPath reads a path without faults: what is missing is null.
func celPath(p *path) (oldCEL, error) {
	x := oldCEL{static: '?', value: celReference(p, "?")}
	if len(p.segments) > 0 {
		x.value += ".orValue(dyn(null))"
	}
	x.holds = "!(" + x.value + ` in [null, false, 0, "", [], {}])`
	return x, nil
}

// celReference writes a path; optional is "?" where what is missing is no fault.
func celReference(p *path, optional string) string {
	var b strings.Builder
	switch p.root {
	case rootInput:
		b.WriteString("workflow.input")
	case rootPlan:
		b.WriteString("plan.input")
	case rootLoop:
		b.WriteString("each." + p.name)
	default:
		b.WriteString(celStep(p.name) + ".output")
	}
	for _, seg := range p.segments {
		switch {
		case seg.isIndex:
			b.WriteString("[" + optional + strconv.Itoa(seg.index) + "]")
		case isIdentifier(seg.name):
			b.WriteString("." + optional + seg.name)
		default:
			b.WriteString("[" + optional + celString(seg.name) + "]")
		}
	}
	return b.String()
}

// celStep names a step.
func celStep(id string) string {
	if isIdentifier(id) {
		return "steps." + id
	}
	return "steps[" + celString(id) + "]"
}

func celLength(x oldCEL) oldCEL {
	n := oldCEL{static: '0', value: "size(" + x.value + ")", ok: x.ok}
	switch x.static {
	case '?':
		n.ok = all(x.ok, "type("+x.value+") in [string, list, map]")
	case '0', 'b', 'n':
		n.ok = "false"
	}
	n.holds = all(n.ok, n.value+" > 0")
	return n
}

func celList(items []oldCEL) oldCEL {
	x := oldCEL{static: '[', plain: true}
	var values, oks []string
	for _, item := range items {
		values, oks = append(values, item.value), append(oks, item.ok)
		n, isNumber := oldValue{raw: item.raw}.numberOf()
		x.plain = x.plain && item.raw != nil && (!isNumber || n != 0 && n != 1)
	}
	x.value, x.ok = "["+strings.Join(values, ", ")+"]", all(oks...)
	x.holds = all(x.ok, strconv.FormatBool(len(items) > 0))
	x.holds = orTrue(x.holds)
	return x
}

// celCompared is what comparing came to: sure says when there is no fault, test
// is CEL that does not fail then.
func celCompared(sure, test string) oldCEL {
	if sure == "false" {
		test = "false" // CEL would not even compile some of what always fails
	}
	return oldCEL{static: 'b', ok: sure, value: test, holds: orTrue(all(sure, test))}
}

// celNumber writes a value for comparing it with others: true counts as 1.
func celNumber(x oldCEL) string {
	switch {
	case x.static == 'b' && string(x.raw) == "true":
		return "1"
	case x.static == 'b' && x.raw != nil:
		return "0"
	case x.static == 'b':
		return "(" + x.value + " ? 1 : 0)"
	case x.static == '?':
		return "(type(" + x.value + ") == bool ? (" + x.value + " ? 1 : 0) : " + x.value + ")"
	}
	return x.value
}

func celEqual(op string, l, r oldCEL) oldCEL {
	if r.static == '?' && l.static != '?' {
		l, r = r, l
	}
	sure := all(l.ok, r.ok)
	var test string
	truth := "" // how a truth value equals the number r, or a number the truth value
	switch string(r.raw) {
	case "1":
		truth = "true"
	case "0":
		truth = "false"
	case "true":
		truth = "1"
	case "false":
		truth = "0"
	}
	switch {
	case l.static == '?' && truth != "":
		test = l.value + " in [" + r.value + ", " + truth + "]"
	case l.static == '?' && r.static != '?' && r.static != 'b' && (r.static != '0' || r.raw != nil):
		test = l.value + " == " + r.value
	case l.static != '?' && !celSameKind(l.static, r.static):
		test = "false"
	default:
		test = celNumber(l) + " == " + celNumber(r)
	}
	if op == "!=" {
		test = "!(" + test + ")"
	}
	return celCompared(sure, test)
}

// celSameKind says whether values of two kinds may be equal or have an order.
func celSameKind(a, b byte) bool {
	number := func(k byte) bool { return k == '0' || k == 'b' }
	return a == b || number(a) && number(b)
}
