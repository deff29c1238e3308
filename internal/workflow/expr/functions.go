package expr

import (
	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// ownFunctions are the functions of rule E9 that CEL does not have.
func (e *environment) ownFunctions() []cel.EnvOption {
	anyMap := cel.MapType(cel.DynType, cel.DynType)
	unary := func(name string, arg, result *cel.Type, f func(ref.Val) ref.Val) cel.EnvOption {
		return cel.Function(name, cel.Overload(name, []*cel.Type{arg}, result, cel.UnaryBinding(f)))
	}
	return []cel.EnvOption{
		unary("parse_json", cel.StringType, cel.DynType, e.parse),
		unary("to_json", cel.DynType, cel.StringType, func(v ref.Val) ref.Val {
			raw, f := toJSON(v)
			if f != nil {
				return types.WrapErr(f)
			}
			return types.String(raw)
		}),
		unary("sum", cel.ListType(cel.DynType), cel.DynType, sum),
		unary("avg", cel.ListType(cel.DynType), cel.DoubleType, avg),
		cel.Function("merge", cel.Overload("merge", []*cel.Type{anyMap, anyMap}, anyMap,
			cel.BinaryBinding(e.merge))),
	}
}

func (e *environment) parse(v ref.Val) ref.Val {
	text, ok := v.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	raw, f := parseJSON(string(text))
	if f != nil {
		f.text = "parse_json: " + f.text
		return types.WrapErr(f)
	}
	return e.adapter.fromJSON(rawJSON(raw))
}

// sum adds numbers; the sum of none is 0.
func sum(v ref.Val) ref.Val {
	total, _ := addUp("sum", v)
	return total
}

// avg is the mean as a double; there is none of an empty list.
func avg(v ref.Val) ref.Val {
	total, n := addUp("avg", v)
	if types.IsError(total) {
		return total
	}
	if n == 0 {
		return types.NewErr("avg: the list is empty")
	}
	d, ok := total.ConvertToType(types.DoubleType).(types.Double)
	if !ok {
		return types.NewErr("avg: the sum is no number")
	}
	return d / types.Double(n)
}

func addUp(name string, v ref.Val) (total ref.Val, n int) {
	list, ok := v.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v), 0
	}
	for it := list.Iterator(); it.HasNext() == types.True; n++ {
		item := it.Next()
		switch item.(type) {
		case types.Int, types.Uint, types.Double:
		case *types.Err:
			return item, n
		default:
			return types.NewErr("%s: item %d is %s, not a number", name, n, item.Type().TypeName()), n
		}
		if total == nil {
			total = item
		} else if total = add(total, item); types.IsError(total) {
			return total, n
		}
	}
	if total == nil {
		total = types.IntZero
	}
	return total, n
}

// merge gives the members of both maps; the right one wins.
func (e *environment) merge(left, right ref.Val) ref.Val {
	merged := map[ref.Val]ref.Val{}
	for _, v := range []ref.Val{left, right} {
		m, ok := v.(traits.Mapper)
		if !ok {
			return types.MaybeNoSuchOverloadErr(v)
		}
		for it := m.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			merged[key] = m.Get(key)
		}
	}
	return sorted(types.NewRefValMap(e.adapter, merged))
}
