package workflow

import (
	"math/big"
	"strings"
)

// nodeCore gives kind and text of a plain YAML scalar by the core schema of
// YAML 1.2 (rule D1): `on`, `yes`, dates, `0b1` and `1_000` are strings. ok is
// false for the numbers that JSON does not have, infinities and NaN.
func nodeCore(s string) (kind nodeKind, text string, ok bool) {
	switch s {
	case "", "~", "null", "Null", "NULL":
		return nodeNull, "", true
	case "true", "True", "TRUE":
		return nodeBool, "true", true
	case "false", "False", "FALSE":
		return nodeBool, "false", true
	case ".nan", ".NaN", ".NAN":
		return nodeNumber, s, false
	}
	switch unsigned := strings.TrimLeft(s[:1], "+-") + s[1:]; {
	case unsigned == ".inf", unsigned == ".Inf", unsigned == ".INF":
		return nodeNumber, s, false
	case nodeDigits(s, "0x", "0123456789abcdefABCDEF"):
		return nodeNumber, nodeRadix(s[2:], 16), true
	case nodeDigits(s, "0o", "01234567"):
		return nodeNumber, nodeRadix(s[2:], 8), true
	}
	if number, ok := nodeDecimal(s); ok {
		return nodeNumber, number, true
	}
	return nodeString, s, true
}

func nodeDigits(s, prefix, digits string) bool {
	rest, ok := strings.CutPrefix(s, prefix)
	return ok && rest != "" && strings.Trim(rest, digits) == ""
}

func nodeRadix(digits string, base int) string {
	n, _ := new(big.Int).SetString(digits, base)
	return n.String()
}

// nodeDecimal spells `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?` as
// JSON does: no plus, no leading zeros, a digit on both sides of the point.
func nodeDecimal(s string) (string, bool) {
	sign := ""
	if s[0] == '+' || s[0] == '-' {
		sign, s = strings.TrimPrefix(s[:1], "+"), s[1:]
	}
	whole, rest := nodeSpan(s)
	fraction, point := "", false
	if strings.HasPrefix(rest, ".") {
		point = true
		fraction, rest = nodeSpan(rest[1:])
	}
	if whole == "" && fraction == "" {
		return "", false
	}
	exponent := ""
	if rest != "" {
		if rest[0] != 'e' && rest[0] != 'E' {
			return "", false
		}
		digits, tail := nodeSpan(strings.TrimLeft(rest[1:min(2, len(rest))], "+-") + rest[min(2, len(rest)):])
		if digits == "" || tail != "" {
			return "", false
		}
		exponent = rest
	}
	if whole = strings.TrimLeft(whole, "0"); whole == "" {
		whole = "0"
	}
	out := sign + whole
	if point {
		if fraction == "" {
			fraction = "0"
		}
		out += "." + fraction
	}
	return out + exponent, true
}

// nodeSpan cuts the leading digits off s.
func nodeSpan(s string) (digits, rest string) {
	rest = strings.TrimLeft(s, "0123456789")
	return s[:len(s)-len(rest)], rest
}
