package expr

import "encoding/json"

// eval gives the value of a part of an old condition.
func (n *oldNode) eval(e *oldEval) (oldValue, *fault) {
	switch n.op {
	case "":
		return n.value(e.scope), nil
	case "list":
		return n.list(e)
	}
	left, f := n.operands[0].eval(e)
	if f != nil {
		return left, f
	}
	switch n.op {
	case "not":
		return oldBool(!left.truth()), nil
	case "len":
		return e.length(left)
	case "or", "and":
		// As in the old platform, the value is that of the operand that decided.
		if left.truth() == (n.op == "or") {
			return left, nil
		}
		return n.operands[1].eval(e)
	}
	right, f := n.operands[1].eval(e)
	if f != nil {
		return right, f
	}
	return e.compare(n.op, left, right)
}

// value gives a constant, or what a path refers to. What is missing is null.
func (n *oldNode) value(s *Scope) oldValue {
	if n.ref == nil {
		return oldValue{raw: n.raw}
	}
	raw, f := n.ref.resolve(s)
	if f != nil {
		raw = json.RawMessage("null")
	}
	return oldValue{raw: raw}
}

func (n *oldNode) list(e *oldEval) (oldValue, *fault) {
	out := []byte{'['}
	for i, x := range n.operands {
		v, f := x.eval(e)
		if f != nil {
			return v, f
		}
		if i > 0 {
			out = append(out, ',')
		}
		if out = append(out, v.raw...); len(out) > maxResult {
			return oldValue{}, tooMuch("expression_result", maxResult, "bytes")
		}
	}
	return oldValue{raw: append(out, ']')}, nil
}
