package workflow

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"
)

// durationMax is the longest duration that a document can name (rule D4).
const durationMax = 365 * 24 * time.Hour

// durationUnits are the units of the short form.
func durationUnits(unit string) (time.Duration, bool) {
	switch unit {
	case "ms":
		return time.Millisecond, true
	case "s":
		return time.Second, true
	case "m":
		return time.Minute, true
	case "h":
		return time.Hour, true
	case "d":
		return 24 * time.Hour, true
	}
	return 0, false
}

// ParseDuration reads a duration of rule D4: 500ms, 30s, 5m, 1h30m, 2d, or ISO
// 8601 without months and years (PT5M, P1DT12H). It is whole milliseconds from
// 0 to 365 days; a bare number is an error.
func ParseDuration(s string) (time.Duration, error) {
	if len(s) > 64 {
		return 0, errors.New("a duration has at most 64 characters")
	}
	if strings.HasPrefix(s, "P") {
		return durationISO(s)
	}
	if strings.HasPrefix(s, "-") {
		return 0, errors.New("a duration cannot be negative")
	}
	sum := new(big.Rat)
	for rest := s; rest != ""; {
		number, tail, err := durationNumber(rest)
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration", s)
		}
		name := tail[:len(tail)-len(strings.TrimLeft(tail, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZµ"))]
		unit, ok := durationUnits(name)
		switch {
		case name == "":
			return 0, fmt.Errorf("%q has no unit", s)
		case !ok:
			return 0, fmt.Errorf("%q is not a unit of time", name)
		}
		sum.Add(sum, number.Mul(number, new(big.Rat).SetInt64(int64(unit))))
		rest = tail[len(name):]
	}
	if s == "" {
		return 0, errors.New("a duration is missing")
	}
	return durationWhole(s, sum)
}

// durationISO reads PnW or PnDTnHnMnS, parts in this order, each at most once.
func durationISO(s string) (time.Duration, error) {
	sum, rest, order := new(big.Rat), s[1:], "WDTHMS"
	parts := 0
	for rest != "" {
		if rest[0] == 'T' && strings.Contains(order, "T") && len(rest) > 1 {
			rest, order = rest[1:], "HMS"
			continue
		}
		number, tail, err := durationNumber(rest)
		if err != nil || tail == "" {
			return 0, fmt.Errorf("%q is not an ISO 8601 duration", s)
		}
		timed := !strings.Contains(order, "T")
		if tail[0] == 'Y' || tail[0] == 'M' && !timed {
			return 0, errors.New("months and years have no fixed length: use days")
		}
		i := strings.IndexByte(order, tail[0])
		if i < 0 || !timed && strings.IndexByte("WD", tail[0]) < 0 {
			return 0, fmt.Errorf("%q is not an ISO 8601 duration", s)
		}
		unit := map[byte]time.Duration{'W': 7 * 24 * time.Hour, 'D': 24 * time.Hour, 'H': time.Hour, 'M': time.Minute, 'S': time.Second}[tail[0]]
		sum.Add(sum, number.Mul(number, new(big.Rat).SetInt64(int64(unit))))
		order, rest = order[i+1:], tail[1:]
		parts++
	}
	if parts == 0 {
		return 0, fmt.Errorf("%q is not an ISO 8601 duration", s)
	}
	return durationWhole(s, sum)
}

// durationNumber cuts a decimal number off s.
func durationNumber(s string) (*big.Rat, string, error) {
	tail := strings.TrimLeft(s, "0123456789.")
	text := s[:len(s)-len(tail)]
	n, ok := new(big.Rat).SetString(text)
	if !ok || strings.HasPrefix(text, ".") || strings.HasSuffix(text, ".") {
		return nil, "", errors.New("not a number")
	}
	return n, tail, nil
}

// durationWhole checks range and grain of a sum of nanoseconds.
func durationWhole(s string, sum *big.Rat) (time.Duration, error) {
	if sum.Cmp(new(big.Rat).SetInt64(int64(durationMax))) > 0 {
		return 0, fmt.Errorf("%q is longer than 365 days", s)
	}
	if !new(big.Rat).Quo(sum, new(big.Rat).SetInt64(int64(time.Millisecond))).IsInt() {
		return 0, fmt.Errorf("%q is not in whole milliseconds", s)
	}
	return time.Duration(sum.Num().Int64()), nil
}
