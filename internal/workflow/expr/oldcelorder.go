package expr

import "strings"

// celOrder is < <= > >=: of numbers, where true is 1, or of texts.
func celOrder(op string, l, r oldCEL) oldCEL {
	sure := all(l.ok, r.ok)
	if l.static == '?' && r.static == '?' {
		a, b := "type("+l.value+")", "type("+r.value+")"
		sure = all(sure, a+" == string && "+b+" == string || "+a+" in [int, double, bool] && "+b+" in [int, double, bool]")
		return celCompared(sure, celNumber(l)+" "+op+" "+celNumber(r))
	}
	if l.static != '?' && r.static != '?' {
		if !celSameKind(l.static, r.static) || strings.IndexByte("0b\"", l.static) < 0 {
			return celCompared("false", "false")
		}
		return celCompared(sure, celNumber(l)+" "+op+" "+celNumber(r))
	}
	open, fixed := l, r
	if r.static == '?' {
		open, fixed = r, l
	}
	switch fixed.static {
	case '"':
		return celCompared(all(sure, "type("+open.value+") == string"), l.value+" "+op+" "+r.value)
	case '0', 'b':
		// What a truth value comes to is decided here: it can be one of two.
		number := "type(" + open.value + ") in [int, double]"
		test := number + " && " + l.value + " " + op + " " + r.value
		if fixed.raw != nil && fixed.static == '0' {
			n, _ := oldValue{raw: fixed.raw}.numberOf()
			way := celFlip(op, l.static == '?')
			if celHolds(way, 1, n) {
				test += " || " + open.value + " == true"
			}
			if celHolds(way, 0, n) {
				test += " || " + open.value + " == false"
			}
			x := celCompared(all(sure, "type("+open.value+") in [int, double, bool]"), test)
			x.holds = all(sure, test) // which does not fail by itself
			return x
		}
		return celCompared(all(sure, "type("+open.value+") in [int, double, bool]"), celNumber(l)+" "+op+" "+celNumber(r))
	}
	return celCompared("false", "false")
}

// celIn is l in r: an element, a part of a text, or the name of a member.
func celIn(op string, l, r oldCEL) oldCEL {
	sure := all(l.ok, r.ok)
	element, test := celElement(l, r), "false"
	kind := "type(" + r.value + ")"
	switch r.static {
	case '[':
		test = element
	case '"':
		sure, test = all(sure, celIsText(l)), r.value+".contains("+l.value+")"
	case '?':
		switch l.static {
		case '"':
			sure = all(sure, kind+" in [list, map, string]")
			test = kind + " == string ? string(" + r.value + ").contains(" + l.value + ") : " + l.value + " in " + r.value
		case '?':
			text := "type(" + l.value + ") == string"
			sure = all(sure, kind+" in [list, map] || "+kind+" == string && "+text)
			test = kind + " == list ? (" + element + ") : " + kind + " == map ? " + text + " && " + l.value + " in " + r.value +
				" : string(" + r.value + ").contains(string(" + l.value + "))"
		default:
			sure = all(sure, kind+" in [list, map]")
			test = kind + " == list && (" + element + ")"
		}
	default:
		sure = "false"
	}
	if op == "not in" {
		test = "!(" + test + ")"
	}
	return celCompared(sure, test)
}

// celElement is CEL for l being an item of the list r: true counts as 1.
func celElement(l, r oldCEL) string {
	in := func(value string) string {
		if r.static == '?' {
			return value + " in " + r.value
		}
		return value + " in dyn(" + r.value + ")"
	}
	number := " || " + l.value + " == 1 && " + in("true") + " || " + l.value + " == 0 && " + in("false")
	switch {
	case l.static == '?' && r.plain:
		return l.value + " in " + r.value
	case l.static == '?':
		return in(l.value) + " || type(" + l.value + ") == bool && " + in("("+l.value+" ? 1 : 0)") + number
	case l.static == '0' && l.raw == nil && !r.plain:
		return in(l.value) + number
	case l.static == 'b' && l.raw == nil:
		return in(l.value) + " || " + in("("+l.value+" ? 1 : 0)")
	}
	switch n, isNumber := (oldValue{raw: l.raw}).numberOf(); {
	case isNumber && n == 1:
		return in("1") + " || " + in("true")
	case isNumber && n == 0:
		return in("0") + " || " + in("false")
	}
	return in(l.value)
}

// celIsText is CEL for a value being a text; "" is one surely.
func celIsText(x oldCEL) string {
	switch x.static {
	case '"':
		return ""
	case '?':
		return "type(" + x.value + ") == string"
	}
	return "false"
}

// celFlip turns an operator whose open value stands on the right.
func celFlip(op string, left bool) string {
	if left {
		return op
	}
	return map[string]string{"<": ">", "<=": ">=", ">": "<", ">=": "<="}[op]
}

// celHolds compares numbers.
func celHolds(op string, a, b float64) bool {
	switch op {
	case "<":
		return a < b
	case "<=":
		return a <= b
	case ">":
		return a > b
	}
	return a >= b
}
