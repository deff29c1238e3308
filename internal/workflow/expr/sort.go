package expr

import (
	"slices"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// sorting gives what does a function that sorts, nil for others. CEL's own takes int and
// double for what cannot be compared (rule E6): a list of scores could be sorted until one
// of them was a whole number.
func (e *environment) sorting(function string) func(args []ref.Val) ref.Val {
	switch function {
	case "sort":
		return func(args []ref.Val) ref.Val { return e.sortBy(args[0], args[0]) }
	case "@sortByAssociatedKeys":
		return func(args []ref.Val) ref.Val { return e.sortBy(args[0], args[1]) }
	}
	return nil
}

// sortBy gives a list in the order of its keys; items with equal keys stay as they are.
func (e *environment) sortBy(of, by ref.Val) ref.Val {
	list, ok := of.(traits.Lister)
	keys, okKeys := by.(traits.Lister)
	if !ok || !okKeys || list.Size() != keys.Size() {
		return types.MaybeNoSuchOverloadErr(by)
	}
	type pair struct{ item, key ref.Val }
	var pairs []pair
	for item, key := list.Iterator(), keys.Iterator(); item.HasNext() == types.True && key.HasNext() == types.True; {
		pairs = append(pairs, pair{item.Next(), key.Next()})
	}
	var failed ref.Val
	slices.SortStableFunc(pairs, func(a, b pair) int {
		order, fault := inOrder(a.key, b.key)
		if fault != nil {
			failed = fault
		}
		return order
	})
	if failed == nil && len(pairs) == 1 {
		_, failed = inOrder(pairs[0].key, pairs[0].key)
	}
	if failed != nil {
		return failed
	}
	sorted := make([]ref.Val, len(pairs))
	for i, p := range pairs {
		sorted[i] = p.item
	}
	return types.NewRefValList(e.adapter, sorted)
}

// inOrder orders two values of one type, or two numbers.
func inOrder(a, b ref.Val) (order int, failed ref.Val) {
	left, ok := a.(traits.Comparer)
	switch {
	case types.IsError(a):
		return 0, a
	case types.IsError(b):
		return 0, b
	case !ok:
		return 0, types.NewErr("list elements must be comparable")
	case a.Type() != b.Type() && (!isNumber(a) || !isNumber(b)):
		return 0, types.NewErr("list elements must have the same type")
	}
	n := left.Compare(b)
	if n, ok := n.(types.Int); ok {
		return int(n), nil
	}
	return 0, n
}

func isNumber(v ref.Val) bool {
	switch v.(type) {
	case types.Int, types.Uint, types.Double:
		return true
	}
	return false
}
