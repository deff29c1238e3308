package expr

import (
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// costs prices calls where CEL's cost model knows no price: of the functions
// that are declared here, and of every call whose overload is found at run
// time only, because JSON values have no static type.
type costs struct{}

// CallCost implements cel's ActualCostEstimator. It gives nil for calls that
// CEL prices itself.
func (costs) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	var price uint64
	switch function {
	case operators.Equals, operators.NotEquals:
		price = min(weight(args[0], 0), weight(args[1], 0))
	case operators.In:
		if _, ok := args[1].(traits.Lister); ok {
			price = count(args[1]) + weight(args[1], 0)
		}
	case operators.Index, operators.OptIndex, operators.OptSelect:
		return nil
	case "size":
		price = textLength(args[0]) / 10
	case operators.Add:
		// Lists are joined without copying.
		price = (textLength(result) + count(result)) / 10
	case "format":
		price = textLength(result)/10 + weight(args[1], 0)
	case "sum", "avg", "merge", "parse_json", "to_json", "base64.encode", "base64.decode", "strings.quote",
		"string", "bytes":
		price = transfer(args, result)
	default:
		if overload != "" {
			return nil
		}
		price = transfer(args, result)
	}
	price++
	return &price
}

// transfer prices the reading of arguments and the writing of a result.
func transfer(args []ref.Val, result ref.Val) uint64 {
	price := textLength(result)/10 + count(result)
	for _, arg := range args {
		price += textLength(arg)/10 + count(arg)
	}
	return price
}

// textLength counts the bytes of text.
func textLength(v ref.Val) uint64 {
	switch v := v.(type) {
	case types.String:
		return uint64(len(v))
	case types.Bytes:
		return uint64(len(v))
	}
	return 0
}

// count counts the items of a list or map. For JSON that is not decoded it is
// at most the number of commas and braces, guessed by the length of the text.
func count(v ref.Val) uint64 {
	switch v := v.(type) {
	case *jsonObject:
		if v.whole == nil {
			return uint64(len(v.raw)) / 10
		}
	case *jsonList:
		if v.whole == nil {
			return uint64(len(v.raw)) / 10
		}
	case types.String, types.Bytes:
		return 0
	}
	if sizer, ok := v.(traits.Sizer); ok {
		if n, ok := sizer.Size().(types.Int); ok && n > 0 {
			return uint64(n)
		}
	}
	return 0
}

// weight prices a comparison with v, at all depths. It stops counting behind
// maxCost.
func weight(v ref.Val, above uint64) uint64 {
	if raw, ok := rawOf(v); ok {
		return above + uint64(len(raw))/10
	}
	total := above + textLength(v)/10
	switch v := v.(type) {
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True && total <= maxCost; {
			total = weight(it.Next(), total+1)
		}
	case traits.Mapper:
		for it := v.Iterator(); it.HasNext() == types.True && total <= maxCost; {
			total = weight(v.Get(it.Next()), total+1)
		}
	}
	return total
}
