package config

import (
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
	// strings with their unit, secrets references or masked.
	Value any `json:"value"`
	// Origin is the file with its line, the variable or the flag, or "default".
	Origin string `json:"origin"`
}

// View gives every setting with its value and where that comes from, in the
// order of [Settings].
func (l *Loaded) View() []Value {
	var all []Value
	for _, s := range Settings() {
		all = append(all, Value{Path: s.Path, Value: s.show(l.values[s.Path]), Origin: l.origin[s.Path].Name})
	}
	return all
}

// Origin says where the value of a setting comes from: the file with its line,
// the variable, the flag, or "default".
func (l *Loaded) Origin(path string) string { return l.origin[path].Name }

func (s Setting) show(v any) any {
	switch v := v.(type) {
	case int64:
		if s.Kind == KindSize {
			return printSize(v)
		}
		return v
	case time.Duration:
		return v.String()
	case string:
		if s.Kind == KindURL && !isReference(v) {
			return maskURL(v)
		}
	}
	return v
}

// maskURL hides the password of a URL, and all of what is none.
func maskURL(text string) string {
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return masked
	}
	query := u.Query()
	for name := range query {
		if strings.Contains(strings.ToLower(name), "password") {
			query.Set(name, masked)
		}
	}
	if len(query) > 0 {
		u.RawQuery = query.Encode()
	}
	if _, has := u.User.Password(); has {
		name := url.User(u.User.Username()).String()
		u.User = nil
		return strings.Replace(u.String(), "://", "://"+name+":"+masked+"@", 1)
	}
	return u.String()
}
