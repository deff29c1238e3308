package config

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

// masked stands for what must not be shown.
const masked = "[redacted]"

// Value is one effective setting as it may be shown.
type Value struct {
	Path string `json:"path"`
	// Value is a string, []string, int64, float64 or bool; sizes and durations are
	// strings with their unit, secrets references or masked. The agents, which
	// whoever shows them beside settings adds, are JSON.
	Value any `json:"value"`
	// Origin is the file with its line, the variable or the flag, or "default".
	Origin string `json:"origin"`
	// Masked: a part of the value is hidden, so that it is not what the setting is.
	Masked bool `json:"masked,omitempty"`
}

// View gives every setting with its value and where that comes from, in the
// order of [Settings]. The section agents is the registry's to show.
func (l *Loaded) View() []Value {
	var all []Value
	for _, s := range Settings() {
		shown, hidden := s.show(l.values[s.Path])
		all = append(all, Value{Path: s.Path, Value: shown, Origin: l.origin[s.Path].Name, Masked: hidden})
	}
	return all
}

// Origin says where the value of a setting comes from: the file with its line,
// the variable, the flag, or "default".
func (l *Loaded) Origin(path string) string { return l.origin[path].Name }

// show gives a value as it may be shown, and whether a part of it is hidden.
func (s Setting) show(v any) (shown any, hidden bool) {
	switch v := v.(type) {
	case int64:
		if s.Kind == KindSize {
			return printSize(v), false
		}
		return v, false
	case time.Duration:
		return v.String(), false
	case string:
		if s.Kind == KindURL && !isReference(v) {
			return maskURL(v)
		}
	}
	return v, false
}

// DefaultText gives the value without a source as it may be written, lists with
// commas; "" if it is empty.
func (s Setting) DefaultText() string {
	switch d := s.Default.(type) {
	case []string:
		return strings.Join(d, ", ")
	case bool:
		return map[bool]string{true: "on", false: "off"}[d]
	}
	shown, _ := s.show(s.Default)
	return fmt.Sprint(shown)
}

// maskURL hides the password of a URL, and all of what is none.
func maskURL(text string) (shown string, hidden bool) {
	if text == "" {
		return "", false
	}
	u, err := url.Parse(text)
	if err != nil || !namesHost(u) {
		return masked, true
	}
	query := u.Query()
	for name := range query {
		if strings.Contains(strings.ToLower(name), "password") {
			query.Set(name, masked)
			hidden = true
		}
	}
	if hidden {
		u.RawQuery = query.Encode()
	}
	if _, has := u.User.Password(); has {
		name := url.User(u.User.Username()).String()
		u.User = nil
		return strings.Replace(u.String(), "://", "://"+name+":"+masked+"@", 1), true
	}
	return u.String(), hidden
}
