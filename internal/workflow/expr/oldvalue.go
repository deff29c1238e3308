package expr

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// oldValue is a JSON value that is compared as the old platform did: numbers
// and booleans are numbers, unlike types are never equal and have no order.
type oldValue struct{ raw json.RawMessage }

// oldEval is one evaluation. It counts the bytes that are read to compare values:
// a value is read again for every item that it is compared with.
type oldEval struct {
	scope *Scope
	read  int
}

func (e *oldEval) spend(bytes int) *fault {
	if e.read += bytes; e.read > maxOldRead {
		return tooMuch("expression_cost", maxOldRead, "bytes read")
	}
	return nil
}

func oldBool(b bool) oldValue {
	return oldValue{raw: strconv.AppendBool(nil, b)}
}

func (v oldValue) kind() byte { return v.raw[0] }

// isPlain reports whether v is a string without escapes.
func (v oldValue) isPlain() bool { return v.kind() == '"' && bytes.IndexByte(v.raw, '\\') < 0 }

// truth is false for null, false, zero and what is empty.
func (v oldValue) truth() bool {
	switch v.kind() {
	case 'n', 'f':
		return false
	case 't':
		return true
	case '"':
		return len(v.raw) > 2
	case '{', '[':
		i := skipSpace(v.raw, 1)
		return i < len(v.raw) && v.raw[i] != '}' && v.raw[i] != ']'
	}
	n, _ := v.number()
	return n.whole != 0 || n.fraction != 0
}

// length is len(…): characters, items or members.
func (e *oldEval) length(v oldValue) (oldValue, *fault) {
	if f := e.spend(len(v.raw)); f != nil {
		return v, f
	}
	n := 0
	switch v.kind() {
	case '"':
		n = utf8.RuneCountInString(unquote(v.raw))
	case '[':
		eachElement(v.raw, func([]byte) bool { n++; return true })
	case '{':
		names := map[string]bool{}
		eachMember(v.raw, func(name, _ []byte) bool { names[unquote(name)] = true; return true })
		n = len(names)
	default:
		return v, faultf("%s has no len", kindOf(v.raw))
	}
	return oldValue{raw: strconv.AppendInt(nil, int64(n), 10)}, nil
}

// oldNumber is exact for whole numbers of 64 bits.
type oldNumber struct {
	isWhole  bool
	whole    int64
	fraction float64
}

func (v oldValue) number() (oldNumber, bool) {
	switch v.kind() {
	case 't':
		return oldNumber{isWhole: true, whole: 1, fraction: 1}, true
	case 'f':
		return oldNumber{isWhole: true}, true
	case 'n', '"', '{', '[':
		return oldNumber{}, false
	}
	if n, err := strconv.ParseInt(string(v.raw), 10, 64); err == nil {
		return oldNumber{isWhole: true, whole: n, fraction: float64(n)}, true
	}
	d, err := strconv.ParseFloat(string(v.raw), 64)
	return oldNumber{fraction: d}, err == nil
}

// numberOf gives the number that a constant counts as; a nil one is none.
func (v oldValue) numberOf() (float64, bool) {
	if len(v.raw) == 0 {
		return 0, false
	}
	n, ok := v.number()
	return n.fraction, ok
}

// order compares numbers or strings; ok is false for anything else.
func (v oldValue) order(other oldValue) (sign int, ok bool) {
	if v.isPlain() && other.isPlain() {
		return bytes.Compare(v.raw[1:len(v.raw)-1], other.raw[1:len(other.raw)-1]), true
	}
	if v.kind() == '"' && other.kind() == '"' {
		return strings.Compare(unquote(v.raw), unquote(other.raw)), true
	}
	a, okA := v.number()
	b, okB := other.number()
	if !okA || !okB {
		return 0, false
	}
	if a.isWhole && b.isWhole {
		return compare(a.whole, b.whole), true
	}
	return compare(a.fraction, b.fraction), true
}

func compare[T int64 | float64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// equal compares by value: numbers as numbers, objects without regard to order.
func (e *oldEval) equal(v, other oldValue) (bool, *fault) {
	size := len(v.raw) + len(other.raw)
	switch plain := v.isPlain() && other.isPlain(); {
	case plain:
		size = 1 + size/16 // whole words are compared
	case v.kind() != other.kind():
		size = 1
	}
	if f := e.spend(size); f != nil {
		return false, f
	}
	if sign, ok := v.order(other); ok {
		return sign == 0, nil
	}
	if v.kind() != other.kind() {
		return false, nil
	}
	switch v.kind() {
	case 'n':
		return true, nil
	case '[':
		return e.equalItems(v.items(), other.items())
	case '{':
		return e.equalMembers(v.members(), other.members())
	}
	return false, nil
}

func (e *oldEval) equalItems(a, b []oldValue) (bool, *fault) {
	if len(a) != len(b) {
		return false, nil
	}
	for i := range a {
		if same, f := e.equal(a[i], b[i]); f != nil || !same {
			return false, f
		}
	}
	return true, nil
}

func (e *oldEval) equalMembers(a, b map[string]oldValue) (bool, *fault) {
	if len(a) != len(b) {
		return false, nil
	}
	// In one order: where the limit is passed is the same each time.
	for _, name := range slices.Sorted(maps.Keys(a)) {
		y, ok := b[name]
		if !ok {
			return false, nil
		}
		if same, f := e.equal(a[name], y); f != nil || !same {
			return false, f
		}
	}
	return true, nil
}

func (v oldValue) items() (items []oldValue) {
	eachElement(v.raw, func(raw []byte) bool {
		items = append(items, oldValue{raw: raw})
		return true
	})
	return items
}

func (v oldValue) members() map[string]oldValue {
	members := map[string]oldValue{}
	eachMember(v.raw, func(name, raw []byte) bool {
		members[unquote(name)] = oldValue{raw: raw}
		return true
	})
	return members
}

// contains is `item in v`: element, substring or object key.
func (e *oldEval) contains(v, item oldValue) (bool, *fault) {
	if f := e.spend(len(v.raw)); f != nil {
		return false, f
	}
	switch v.kind() {
	case '[':
		for _, x := range v.items() {
			if same, f := e.equal(x, item); f != nil || same {
				return same, f
			}
		}
		return false, nil
	case '{':
		if item.kind() != '"' {
			return false, nil
		}
		_, ok := member(v.raw, unquote(item.raw))
		return ok, nil
	case '"':
		if item.kind() == '"' {
			return strings.Contains(unquote(v.raw), unquote(item.raw)), nil
		}
	}
	return false, faultf("%s cannot contain %s", kindOf(v.raw), kindOf(item.raw))
}

// compare evaluates one operator.
func (e *oldEval) compare(op string, l, r oldValue) (oldValue, *fault) {
	switch op {
	case "==", "!=":
		same, f := e.equal(l, r)
		return oldBool(same == (op == "==")), f
	case "contains":
		l, r = r, l
		fallthrough
	case "in", "not in":
		found, f := e.contains(r, l)
		return oldBool(found == (op != "not in")), f
	}
	sign, ok := l.order(r)
	if !ok {
		return l, faultf("%s and %s have no order", kindOf(l.raw), kindOf(r.raw))
	}
	switch op {
	case "<":
		ok = sign < 0
	case "<=":
		ok = sign <= 0
	case ">":
		ok = sign > 0
	default:
		ok = sign >= 0
	}
	return oldBool(ok), nil
}
