// Package cron reads the five fields of cron and says when they come round. It
// reckons in local time without a zone and maps what it finds to the zone
// afterwards, so that a change of the clocks neither loses nor repeats a firing.
package cron

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// maxText bounds the text of a specification.
const maxText = 256

// Spec is a specification that has been read: five sets of numbers.
type Spec struct {
	minute, hour, day, month, weekday uint64
	// anyDay and anyWeekday are set for fields that begin with *: then both fields
	// have to match, otherwise either will do.
	anyDay, anyWeekday bool
}

// field is one of the five.
type field struct {
	name        string
	least, most int
	// names are those of the numbers from least on.
	names []string
}

func fields() []field {
	return []field{
		{"minute", 0, 59, nil},
		{"hour", 0, 23, nil},
		{"day of the month", 1, 31, nil},
		{"month", 1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
		{"day of the week", 0, 7, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
	}
}

// macros are the words of other crons for common times.
func macros() map[string]string {
	return map[string]string{
		"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
		"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
	}
}

// Parse reads the five fields: minute, hour, day of the month, month and day of
// the week. A field is * or a list of numbers, names and ranges, each with a step
// if it wants one. What can never come round is an error.
func Parse(text string) (*Spec, error) {
	parts := strings.Fields(text)
	if len(text) > maxText {
		return nil, fmt.Errorf("cron has at most %d characters", maxText)
	}
	if len(parts) > 0 && strings.HasPrefix(parts[0], "@") {
		if same := macros()[strings.ToLower(parts[0])]; same != "" {
			return nil, fmt.Errorf("cron has 5 fields: write %q for %s", same, parts[0])
		}
		return nil, fmt.Errorf("cron has 5 fields, not %s; for a period there is every", parts[0])
	}
	if len(parts) != 5 {
		hint := ""
		if len(parts) == 6 {
			hint = "; there is none for seconds or years"
		}
		return nil, fmt.Errorf("cron has 5 fields, minute, hour, day of the month, month and day of the week; this has %d%s", len(parts), hint)
	}
	var sets [5]uint64
	for i, f := range fields() {
		set, err := f.parse(parts[i])
		if err != nil {
			return nil, err
		}
		sets[i] = set
	}
	s := &Spec{
		minute: sets[0], hour: sets[1], day: sets[2], month: sets[3], weekday: sets[4],
		anyDay: strings.HasPrefix(parts[2], "*"), anyWeekday: strings.HasPrefix(parts[4], "*"),
	}
	if s.weekday&(1<<7) != 0 {
		s.weekday = s.weekday&^(1<<7) | 1
	}
	if s.never() {
		return nil, fmt.Errorf("%q never comes: no such month has that day", text)
	}
	return s, nil
}

// never says whether no date fits: of the fields only the day of the month can
// ask for what there is not.
func (s *Spec) never() bool {
	if !s.anyWeekday && !s.anyDay {
		return false
	}
	for m, days := range [...]int{31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31} {
		if s.month&(1<<(m+1)) != 0 && bits.TrailingZeros64(s.day) <= days {
			return false
		}
	}
	return true
}

// parse reads the list of one field.
func (f field) parse(text string) (set uint64, err error) {
	for item := range strings.SplitSeq(text, ",") {
		bits, err := f.item(item)
		if err != nil {
			return 0, err
		}
		set |= bits
	}
	return set, nil
}

// item reads *, a number, a name or a range, and its step.
func (f field) item(text string) (set uint64, err error) {
	span, stepText, stepped := strings.Cut(text, "/")
	least, most := f.least, f.most
	if f.most == 7 {
		most = 6
	}
	from, to, isRange := strings.Cut(span, "-")
	switch span {
	case "*":
	case "?":
		return 0, fmt.Errorf("%s: write * instead of ?", f.name)
	default:
		if least, err = f.number(from); err != nil {
			return 0, err
		}
		if isRange {
			most, err = f.number(to)
		} else if !stepped {
			most = least
		}
		if err != nil {
			return 0, err
		}
		if f.most == 7 && isRange && most == 0 && least > 0 {
			most = 7 // a week that ends on Sunday, such as fri-sun
		}
	}
	if least > most {
		return 0, fmt.Errorf("%s: %q runs backwards; write two ranges with a comma", f.name, text)
	}
	step := 1
	if stepped {
		step, err = strconv.Atoi(stepText)
		switch {
		case err != nil || step < 1 || stepText[0] == '+':
			return 0, fmt.Errorf("%s: %q has no step: after / comes a whole number of at least 1", f.name, text)
		case step > f.most:
			return 0, fmt.Errorf("%s: a step of %d is longer than the field; for a period there is every", f.name, step)
		}
	}
	for n := least; n <= most; n += step {
		set |= 1 << n
	}
	return set, nil
}

// number reads a number or a name.
func (f field) number(text string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(text, name) {
			return f.least + i, nil
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || text[0] == '+' || text[0] == '-' {
		if len(f.names) > 0 {
			return 0, fmt.Errorf("%s: %q is no number from %d to %d and no name from %s to %s",
				f.name, text, f.least, f.most, f.names[0], f.names[len(f.names)-1])
		}
		return 0, fmt.Errorf("%s: %q is no number from %d to %d", f.name, text, f.least, f.most)
	}
	if n < f.least || n > f.most {
		return 0, fmt.Errorf("%s: %d is not from %d to %d", f.name, n, f.least, f.most)
	}
	return n, nil
}

// onDay says whether a date fits.
func (s *Spec) onDay(d time.Time) bool {
	if s.month&(1<<d.Month()) == 0 {
		return false
	}
	day, weekday := s.day&(1<<d.Day()) != 0, s.weekday&(1<<d.Weekday()) != 0
	if s.anyDay || s.anyWeekday {
		return day && weekday
	}
	return day || weekday
}

// Zone gives the time zone of an IANA name, such as Europe/Berlin.
func Zone(name string) (*time.Location, error) {
	if name == "" || name == "Local" || len(name) > 64 {
		return nil, fmt.Errorf("%.64q is no time zone", name)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("%q is no time zone that is known here", name)
	}
	return zone, nil
}
