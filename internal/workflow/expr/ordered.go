package expr

import (
	"cmp"
	"slices"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// orderedMap is a map whose keys come in the same order each time. CEL's own
// maps come in Go's order, so that one expression over one state could have
// different values.
type orderedMap struct {
	traits.Mapper
	keys []ref.Val
}

// sorted orders the keys of a map by type and value.
func sorted(m traits.Mapper) *orderedMap {
	o := &orderedMap{Mapper: m}
	for it := m.Iterator(); it.HasNext() == types.True; {
		o.keys = append(o.keys, it.Next())
	}
	slices.SortFunc(o.keys, func(a, b ref.Val) int {
		if byType := cmp.Compare(a.Type().TypeName(), b.Type().TypeName()); byType != 0 {
			return byType
		}
		if c, ok := a.(traits.Comparer); ok {
			if sign, ok := c.Compare(b).(types.Int); ok {
				return int(sign)
			}
		}
		return 0
	})
	return o
}

// Iterator implements traits.Iterable.
func (o *orderedMap) Iterator() traits.Iterator {
	return types.NewRefValList(types.DefaultTypeAdapter, o.keys).Iterator()
}

// Fold implements traits.Foldable.
func (o *orderedMap) Fold(f traits.Folder) {
	for _, key := range o.keys {
		if !f.FoldEntry(key, o.Get(key)) {
			return
		}
	}
}

// IsZeroValue implements traits.Zeroer.
func (o *orderedMap) IsZeroValue() bool { return len(o.keys) == 0 }

// orderMaps is a decorator of plans: map literals give ordered maps.
func orderMaps(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	if c, ok := i.(interpreter.InterpretableConstructor); ok && c.Type() == types.MapType {
		return orderedLiteral{c}, nil
	}
	return i, nil
}

type orderedLiteral struct {
	interpreter.InterpretableConstructor
}

// Exec implements interpreter.InterpretableV2.
func (o orderedLiteral) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := o.InterpretableConstructor.Exec(frame)
	if m, ok := v.(traits.Mapper); ok {
		return sorted(m)
	}
	return v
}

// Eval implements interpreter.Interpretable.
func (o orderedLiteral) Eval(a interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(a, o.Exec)
}
