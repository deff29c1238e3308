package blot

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestText: nothing of a secret is left, whichever others there are, and wherever the
// text was cut off.
func TestText(t *testing.T) {
	for _, c := range []struct {
		text    string
		secrets []string
		cut     bool
		want    string
	}{
		{"nothing", []string{""}, true, "nothing"},
		{"the key s1k of 1", []string{"1", "s1k"}, false, "the key […] of […]"}, // whichever comes first
		{"the key s1k of 1", []string{"s1k", "1"}, false, "the key […] of […]"},
		{"not s3cretKEY1other", []string{"s3cretKEY1", "KEY1other"}, false, "not […]"}, // they overlap
		{"not abcabcabc", []string{"abcabc"}, false, "not […]"},                        // so does one with itself
		{"not KEY1KEY2, KEY1", []string{"KEY1", "KEY2"}, false, "not […], […]"},
		{"the key T0ken", []string{"T0ken-of-8"}, false, "the key T0ken"}, // that is all of the text
		{"the key T0ken", []string{"T0ken-of-8"}, true, "the key "},
		{"the key T0ken", []string{"T0", "T0ken-of-8"}, true, "the key "},
		{"as s3cretKEY1", []string{"s3cretKEY1", "KEY1other"}, true, "as […]"}, // cut in the second
	} {
		if got := Text(c.text, c.secrets, c.cut, nil); got != c.want {
			t.Errorf("%q without %q: %q, want %q", c.text, c.secrets, got, c.want)
		}
	}
	got := Text("tok, other, tokother", []string{"tok", "other"}, false, func(hidden string) string { return "<" + strings.ToUpper(hidden) + ">" })
	if want := "<TOK>, <OTHER>, <TOKOTHER>"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// FuzzText: no secret is left in a text, and what is left of it is in its order.
func FuzzText(f *testing.F) {
	f.Add("the key s1k of 1", "1", "s1k", true)
	f.Add("not s3cretKEY1other", "s3cretKEY1", "KEY1other", false)
	f.Add("aaaa", "aa", "", true)
	f.Fuzz(func(t *testing.T, text, a, b string, cut bool) {
		got := Text(text, []string{a, b}, cut, func(string) string { return "\x00" })
		for _, s := range []string{a, b} {
			if s != "" && !strings.Contains(s, "\x00") && strings.Contains(got, s) {
				t.Fatalf("%q is in %q, of %q", s, got, text)
			}
		}
		rest := text
		for part := range strings.SplitSeq(got, "\x00") {
			i := strings.Index(rest, part)
			if i < 0 && !strings.Contains(text, "\x00") {
				t.Fatalf("%q of %q is not in %q", part, got, text)
			}
			rest = rest[max(i, 0):]
		}
		if utf8.ValidString(text) && utf8.ValidString(a+b) && !cut && !utf8.ValidString(got) {
			t.Fatalf("%q of %q is no text", got, text)
		}
	})
}

// TestSecretsOfARequest: what is secret in a query and a header, and how it stands in JSON.
func TestSecretsOfARequest(t *testing.T) {
	for raw, want := range map[string][]string{
		"":                            nil,
		"k":                           {"k"},
		"a=1234567&b=1234%20678":      {"a=1234567&b=1234%20678", "1234%20678", "1234 678"},
		"a=1234567%zz8":               {"a=1234567%zz8"},
		"12345678&password=long-word": {"12345678&password=long-word", "12345678", "12345678", "long-word", "long-word"},
	} {
		if got := Query(raw); !slices.Equal(got, want) {
			t.Errorf("the query %q: %q, want %q", raw, got, want)
		}
	}
	if got, want := Words("Key 12345678 1234567"), []string{"12345678", "12345678"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Words(`a=short; session="cookie/val"`); !slices.Contains(got, "cookie/val") || slices.Contains(got, "short") {
		t.Errorf("a cookie: %q", got)
	}
	if got, want := InJSON([]string{"plain", `a"b/c`}), []string{`a\"b/c`, `a\"b\/c`}; !slices.Equal(got, want) {
		t.Errorf("in JSON: %q, want %q", got, want)
	}
}
