package executor

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// maxExponent bounds the exponents of numbers that are compared by value; beyond it
// the same number has to be spelled the same.
const maxExponent = 1 << 62

// canonical appends a spelling of a JSON value that is the same for equal
// values: members sorted, numbers as digits and a power of ten.
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

// number spells a number so that 1, 1.0 and 1e0 are equal: as its digits without
// zeros at either end, and the power of ten that they are multiplied by. It goes by
// the text, since arithmetic with numbers of any length takes any time.
func number(s string) string {
	digits, exponent, _ := strings.Cut(strings.ToLower(s), "e")
	digits, negative := strings.CutPrefix(digits, "-")
	whole, fraction, _ := strings.Cut(digits, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "0" // -0 is equal to it
	}
	power := -int64(len(fraction))
	if exponent != "" {
		n, err := strconv.ParseInt(exponent, 10, 64)
		if err != nil || n > maxExponent || n < -maxExponent {
			return s
		}
		power += n
	}
	significant := strings.TrimRight(digits, "0")
	power += int64(len(digits) - len(significant))
	if negative {
		significant = "-" + significant
	}
	return significant + "e" + strconv.FormatInt(power, 10)
}
