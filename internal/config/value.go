package config

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// maxText bounds one text, in bytes, and maxItems the items of a list.
	maxText  = 4 << 10
	maxItems = 256
)

// parse reads a value from text: the form that it has in variables and flags.
func (s Setting) parse(text string) (any, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("is longer than %d bytes", maxText)
	}
	switch s.Kind {
	case KindList:
		items := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
		return s.items(items)
	case KindFolders: // whose names may have blanks
		var items []string
		for item := range strings.SplitSeq(text, ",") {
			if item = strings.TrimSpace(item); item != "" {
				items = append(items, item)
			}
		}
		return s.items(items)
	case KindRules:
		return checkRules(strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }))
	case KindNumber:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("must be %s", s.expected())
		}
		return n, s.within(n)
	case KindShare, KindPart:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || !(f >= 0 && f <= 1) || f == 0 && s.Kind == KindShare {
			return nil, fmt.Errorf("must be %s", s.expected())
		}
		return f, nil
	case KindSize:
		n, ok := parseSize(text)
		if !ok {
			return nil, fmt.Errorf("must be %s", s.expected())
		}
		return n, s.within(n)
	case KindDuration:
		d, err := parseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("must be %s", s.expected())
		}
		return d, s.within(int64(d))
	case KindSwitch:
		switch strings.ToLower(text) {
		case "on", "true", "yes":
			return true, nil
		case "off", "false", "no":
			return false, nil
		}
		return nil, fmt.Errorf("must be %s", s.expected())
	case KindSecret:
		if text != "" && !isReference(text) {
			// Whatever it is, it may be the secret itself.
			return nil, fmt.Errorf("must be %s; the value has neither form", s.expected())
		}
		return text, nil
	default:
		return s.choice(text)
	}
}

// choice reads a text of which there may be few.
func (s Setting) choice(text string) (any, error) {
	if len(s.Choices) == 0 || text == s.Default || slices.Contains(s.Choices, text) {
		return text, nil
	}
	return nil, fmt.Errorf("must be %s, not %s", s.expected(), shown(text))
}

// items reads a list.
func (s Setting) items(items []string) (any, error) {
	if len(items) > maxItems {
		return nil, fmt.Errorf("has %d items, the limit is %d", len(items), maxItems)
	}
	out := make([]string, 0, len(items))
	for _, item := range items {
		switch {
		case item == "" || len(item) > maxText:
			return nil, fmt.Errorf("holds an item that is empty or longer than %d bytes", maxText)
		case len(s.Choices) > 0 && !slices.Contains(s.Choices, item):
			return nil, fmt.Errorf("holds %s: the values are %s", shown(item), strings.Join(s.Choices, ", "))
		case slices.Contains(out, item):
			return nil, fmt.Errorf("names %s twice", shown(item))
		}
		out = append(out, item)
	}
	if len(out) == 0 && len(s.Choices) > 0 {
		return nil, fmt.Errorf("must name at least one of %s", strings.Join(s.Choices, ", "))
	}
	return out, nil
}

func (s Setting) within(n int64) error {
	if n >= s.least && n <= s.most {
		return nil
	}
	return fmt.Errorf("must be from %s to %s", s.print(s.least), s.print(s.most))
}

// print gives a number of the setting as it is written.
func (s Setting) print(n int64) string {
	switch s.Kind {
	case KindDuration:
		return time.Duration(n).String()
	case KindSize:
		return printSize(n)
	default:
		return strconv.FormatInt(n, 10)
	}
}

// expected says what a value has to be.
func (s Setting) expected() string {
	switch s.Kind {
	case KindList:
		if len(s.Choices) > 0 {
			return "a list of " + strings.Join(s.Choices, ", ")
		}
		return "a list of texts"
	case KindFolders:
		return "a list of folders"
	case KindRules:
		return "a list such as ID:age=7d:runs=100"
	case KindNumber:
		return "a whole number"
	case KindShare:
		return "a number of more than 0 and at most 1, such as 0.5"
	case KindPart:
		return "a number from 0 to 1, such as 0.1"
	case KindSize:
		return "a size such as 512KiB or 1MiB"
	case KindDuration:
		return "a duration such as 500ms, 30s or 1m30s"
	case KindSwitch:
		return "on or off"
	case KindSecret:
		return "a reference, env:NAME or file:PATH"
	}
	if len(s.Choices) > 0 {
		last := len(s.Choices) - 1
		return strings.Join(s.Choices[:last], ", ") + " or " + s.Choices[last]
	}
	return "a text"
}

var sizeForm = regexp.MustCompile(`^(\d{1,12})(B|KiB|MiB|GiB)$`)

func parseSize(text string) (int64, bool) {
	m := sizeForm.FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return 0, false
	}
	shift := map[string]uint{"B": 0, "KiB": 10, "MiB": 20, "GiB": 30}[m[2]]
	if n > 1<<40>>shift {
		n = 1 << 40 >> shift // above every bound
	}
	return n << shift, true
}

func printSize(n int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n != 0 && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

// absolute makes a path absolute; "" stays "".
func absolute(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// shown is a text as it may stand in a sentence.
func shown(text string) string {
	if len(text) > 80 {
		text = text[:80] + "…"
	}
	return strconv.Quote(text)
}
