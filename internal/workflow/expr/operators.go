package expr

import (
	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// arithmetic declares + - * / anew, so that int and double mix (rule E6), and
// so that what + builds is bounded first (rule E11).
func arithmetic() []cel.EnvOption {
	i, u, d := cel.IntType, cel.UintType, cel.DoubleType
	s, b, t, dur := cel.StringType, cel.BytesType, cel.TimestampType, cel.DurationType
	list := cel.ListType(cel.TypeParamType("A"))
	op := func(id string, left, right, result *cel.Type) cel.FunctionOpt {
		return cel.Overload(id, []*cel.Type{left, right}, result)
	}
	return []cel.EnvOption{
		cel.Function(operators.Add,
			op(overloads.AddInt64, i, i, i), op(overloads.AddUint64, u, u, u), op(overloads.AddDouble, d, d, d),
			op("add_int64_double", i, d, d), op("add_double_int64", d, i, d),
			op(overloads.AddString, s, s, s), op(overloads.AddBytes, b, b, b), op(overloads.AddList, list, list, list),
			op(overloads.AddDurationDuration, dur, dur, dur), op(overloads.AddDurationTimestamp, dur, t, t),
			op(overloads.AddTimestampDuration, t, dur, t),
			cel.SingletonBinaryBinding(add, traits.AdderType)),
		cel.Function(operators.Subtract,
			op(overloads.SubtractInt64, i, i, i), op(overloads.SubtractUint64, u, u, u),
			op(overloads.SubtractDouble, d, d, d),
			op("subtract_int64_double", i, d, d), op("subtract_double_int64", d, i, d),
			op(overloads.SubtractDurationDuration, dur, dur, dur),
			op(overloads.SubtractTimestampDuration, t, dur, t), op(overloads.SubtractTimestampTimestamp, t, t, dur),
			cel.SingletonBinaryBinding(promoting(func(l, r ref.Val) ref.Val {
				return l.(traits.Subtractor).Subtract(r)
			}), traits.SubtractorType)),
		cel.Function(operators.Multiply,
			op(overloads.MultiplyInt64, i, i, i), op(overloads.MultiplyUint64, u, u, u),
			op(overloads.MultiplyDouble, d, d, d),
			op("multiply_int64_double", i, d, d), op("multiply_double_int64", d, i, d),
			cel.SingletonBinaryBinding(promoting(func(l, r ref.Val) ref.Val {
				return l.(traits.Multiplier).Multiply(r)
			}), traits.MultiplierType)),
		cel.Function(operators.Divide,
			op(overloads.DivideInt64, i, i, i), op(overloads.DivideUint64, u, u, u), op(overloads.DivideDouble, d, d, d),
			op("divide_int64_double", i, d, d), op("divide_double_int64", d, i, d),
			cel.SingletonBinaryBinding(promoting(func(l, r ref.Val) ref.Val {
				return l.(traits.Divider).Divide(r)
			}), traits.DividerType)),
	}
}

// promoting makes double of int if the other operand is double.
func promoting(op func(l, r ref.Val) ref.Val) func(l, r ref.Val) ref.Val {
	return func(l, r ref.Val) ref.Val {
		switch left := l.(type) {
		case types.Int:
			if _, ok := r.(types.Double); ok {
				l = types.Double(left)
			}
		case types.Double:
			if right, ok := r.(types.Int); ok {
				r = types.Double(right)
			}
		}
		return op(l, r)
	}
}

// add is + with its result bounded before it is built.
func add(l, r ref.Val) ref.Val {
	switch left := l.(type) {
	case types.String:
		if right, ok := r.(types.String); ok && len(left)+len(right) > maxResult {
			return limitErr(maxResult, "bytes")
		}
	case types.Bytes:
		if right, ok := r.(types.Bytes); ok && len(left)+len(right) > maxResult {
			return limitErr(maxResult, "bytes")
		}
	case traits.Lister:
		if right, ok := r.(traits.Lister); ok {
			n, okL := left.Size().(types.Int)
			m, okR := right.Size().(types.Int)
			if okL && okR && n+m > maxElements {
				return limitErr(maxElements, "elements")
			}
		}
	}
	return promoting(func(l, r ref.Val) ref.Val { return l.(traits.Adder).Add(r) })(l, r)
}

// limitErr is a CEL error that comes out as a fault of code limit: the result
// would be too large.
func limitErr(limit int, unit string) ref.Val {
	return types.WrapErr(tooMuch("expression_result", limit, unit))
}
