package executor

import (
	"encoding/json"
	"math/big"
	"slices"
)

// canonical appends a spelling of a JSON value that is the same for equal
// values: members sorted, numbers as exact fractions.
func canonical(b []byte, v any) []byte {
	switch v := v.(type) {
	case map[string]any:
		b = append(b, '{')
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			b = canonical(append(canonical(b, k), ':'), v[k])
			b = append(b, ',')
		}
		return append(b, '}')
	case []any:
		b = append(b, '[')
		for _, x := range v {
			b = append(canonical(b, x), ',')
		}
		return append(b, ']')
	case json.Number:
		return append(b, number(string(v))...)
	}
	q, err := json.Marshal(v)
	if err != nil {
		return b
	}
	return append(b, q...)
}

// maxExponent keeps a number such as 1e999999999 from being written out.
const maxExponent = 400

// number spells a number so that 1, 1.0 and 1e0 are equal.
func number(s string) string {
	f, _, err := big.ParseFloat(s, 10, 2048, big.ToNearestEven)
	if err != nil || f.MantExp(nil) > maxExponent*4 || f.MantExp(nil) < -maxExponent*4 {
		return s
	}
	if f.Sign() == 0 {
		return "0" // -0 is equal to it
	}
	return f.Text('p', 0)
}
