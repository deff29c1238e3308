package oldplatform

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{"a":  1.50}`, `{"a":  1.50}`},
		{`{"auth_config":null,"b":"x"}`, `{"auth_config":null,"b":"x"}`},
		{`{"auth_config":{"type":"apikey","header_name":"H","header":"I","key":"k"}}`, `{"auth_config":{"header":"I","header_name":"H","key":"[redacted]","type":"apikey"}}`},
		{`[{"x":{"AUTH_config":[["k"],7,true]}}]`, `[{"x":{"AUTH_config":[["[redacted]"],"[redacted]",true]}}]`},
		{`{"auth_config":"whole"}`, `{"auth_config":"[redacted]"}`},
		{
			`{"url":"https://ann:p%40ss@h/a?b=c","x":["see http://u@h/ and ftp://u:p@h:1/ and a@b:c"]}`,
			`{"url":"https://[redacted]@h/a?b=c","x":["see http://[redacted]@h/ and ftp://[redacted]@h:1/ and a@b:c"]}`,
		},
		{`{"url":"https://h/a@b"}`, `{"url":"https://h/a@b"}`},
		{`no JSON`, `null`},
	} {
		if got := string(redact([]byte(c.in), false)); got != c.want {
			t.Errorf("%s\n gives %s\n want  %s", c.in, got, c.want)
		}
	}
}

// FuzzRedact: whatever an audit entry looks like, no text of an auth_config stays.
func FuzzRedact(f *testing.F) {
	f.Add(`{"changes":[{"auth_config":{"token":"SECRET"}}]}`)
	f.Add(`{"auth_config":{"type":{"key":"SECRET"}}}`)
	f.Add(`{"auth_config":{"Type":"SECRET","\u0074oken":"SECRET"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		out := redact([]byte(text), false)
		if !json.Valid(out) {
			t.Fatalf("%q gives no JSON: %q", text, out)
		}
		var v any
		if json.Unmarshal(out, &v) != nil {
			return
		}
		look(t, v, false)
	})
}

// look fails if there is a text inside an auth_config that is not public.
func look(t *testing.T, v any, inside bool) {
	switch v := v.(type) {
	case map[string]any:
		for name, m := range v {
			_, isText := m.(string)
			if inside && isText && isPublic(name) {
				continue
			}
			look(t, m, inside || strings.EqualFold(name, credentials))
		}
	case []any:
		for _, m := range v {
			look(t, m, inside)
		}
	case string:
		if inside && v != redacted {
			t.Fatalf("%q is left", v)
		}
	case float64:
		if inside {
			t.Fatalf("%v is left", v)
		}
	}
}
