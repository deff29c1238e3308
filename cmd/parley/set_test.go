package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestBuildInput(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, base string
		sets       []string
		want       string
	}{
		{"nothing", "", nil, ""},
		{"only the input, byte for byte", `{"z":1, "a":1e999}`, nil, `{"z":1, "a":1e999}`},
		{"text", "", []string{"a=hello world"}, `{"a":"hello world"}`},
		{"JSON", "", []string{"a=1", "b=true", "c=null", `d="1"`, "e=[1,2]", `f={"x":1}`, "g=1e999"}, `{"a":1,"b":true,"c":null,"d":"1","e":[1,2],"f":{"x":1},"g":1e999}`},
		{"what only looks like JSON", "", []string{"a=007", "b=+1", "c=True", "d={x", "e=-"}, `{"a":"007","b":"+1","c":"True","d":"{x","e":"-"}`},
		{"empty text", "", []string{"a="}, `{"a":""}`},
		{"an equals sign in the value", "", []string{"a=b=c"}, `{"a":"b=c"}`},
		{"dots make objects", "", []string{"a.b.c=1", "a.b.d=2", "a.e=3"}, `{"a":{"b":{"c":1,"d":2},"e":3}}`},
		{"a dot in a name", "", []string{`a\.b.c=1`, `d\\=2`, `e\f=3`}, `{"a.b":{"c":1},"d\\":2,"e\\f":3}`},
		{"into the input", `{"a":{"b":1,"n":12345678901234567890},"c":2}`, []string{"a.b=x", "a.d=y"}, `{"a":{"b":"x","d":"y","n":12345678901234567890},"c":2}`},
		{"what is no object gives way", `{"a":[1]}`, []string{"a.b=1"}, `{"a":{"b":1}}`},
		{"the last one wins", "", []string{"a=1", "a=2"}, `{"a":2}`},
		{"names that only begin alike", "", []string{"a.b=1", "ab=2", `a\.b=3`}, `{"a":{"b":1},"a.b":3,"ab":2}`},
		{"a whole value in place of the input's", `{"a":{"b":1}}`, []string{"a=2"}, `{"a":2}`},
		{"HTML stays HTML", "", []string{"a=<b>&"}, `{"a":"<b>&"}`},
		{"unicode", "", []string{"ключ.値=👋"}, `{"ключ":{"値":"👋"}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var base json.RawMessage
			if tt.base != "" {
				base = json.RawMessage(tt.base)
			}
			got, err := buildInput(base, tt.sets)
			if err != nil || string(got) != tt.want {
				t.Errorf("%s, %v, want %s", got, err, tt.want)
			}
		})
	}
}

func TestBuildInputRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		base string
		sets []string
	}{
		{"", []string{"a"}},
		{"", []string{"a=M\xfcller"}},
		{"", []string{"M\xfcller=1"}},
		{"", []string{"=1"}},
		{"", []string{".a=1"}},
		{"", []string{"a.=1"}},
		{"", []string{"a..b=1"}},
		{"", []string{"a=1", "a.b=2"}},
		{"", []string{"a.b=1", "a=2"}},
		{"", []string{"a.b=1", "c=3", "a={}"}},
		{"", []string{"a.b.c=1", "a.b=2"}},
		{"", []string{strings.Repeat("a.", 40) + "a=1"}},
		{"[1]", []string{"a=1"}},
		{"null", []string{"a=1"}},
		{`"x"`, []string{"a=1"}},
	} {
		var base json.RawMessage
		if tt.base != "" {
			base = json.RawMessage(tt.base)
		}
		got, err := buildInput(base, tt.sets)
		if f, ok := errors.AsType[*failure](err); !ok || f.exit != exitUsage {
			t.Errorf("%s %v: %s, %v", tt.base, tt.sets, got, err)
		}
	}
}

// Whatever is set, the input is an object that holds it, or the refusal is one
// about usage.
func FuzzBuildInput(f *testing.F) {
	f.Add(`{"a":{"b":1}}`, "a.b=2", "a.c=x")
	f.Add(``, `a\.b=1`, `c\\.d={"x":1}`)
	f.Add(`[]`, "=", ".")
	f.Fuzz(func(t *testing.T, base, first, second string) {
		var b json.RawMessage
		if json.Valid([]byte(base)) {
			b = json.RawMessage(base)
		}
		got, err := buildInput(b, []string{first, second})
		if err != nil {
			if fail, ok := errors.AsType[*failure](err); !ok || fail.exit != exitUsage {
				t.Error(err)
			}
			return
		}
		var o map[string]json.RawMessage
		if json.Unmarshal(got, &o) != nil || len(o) == 0 {
			t.Errorf("%q %q %q: %s", base, first, second, got)
		}
	})
}
