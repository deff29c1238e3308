package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/parley-project/parley"
)

type row struct{ a, b, c string }

func rowColumns() []column[row] {
	return []column[row]{
		{head: "NAME", cell: plain(func(r row) string { return r.a })},
		{head: "STATUS", fixed: true, cell: func(r row) cell { return cell{r.b, styleGood} }},
		{head: "TEXT", cell: plain(func(r row) string { return r.c })},
	}
}

func table(columns int, colour bool, rows ...row) string {
	var b bytes.Buffer
	drawTable(&sheet{w: &b, columns: columns, colour: colour}, rowColumns(), rows)
	return b.String()
}

func TestTableAlignsWideCharacters(t *testing.T) {
	t.Parallel()
	got := table(0, false, row{"検索", "COMPLETED", "x"}, row{"👩‍👩‍👧", "FAILED", ""}, row{"e\u0301", "RUNNING", "two\nlines"}, row{"ab\x1b[31m", "SKIPPED", "\u202eabc"})
	want := strings.Join([]string{
		"NAME        STATUS     TEXT",
		"検索        COMPLETED  x",
		"👩‍👩‍👧          FAILED     -",
		"e\u0301           RUNNING    two\\nlines",
		"ab\\x1b[31m  SKIPPED    \\u202eabc",
		"",
	}, "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTableFitsTheTerminal(t *testing.T) {
	t.Parallel()
	rows := []row{{"a name of some length", "COMPLETED", strings.Repeat("長い文", 20)}, {"b", "FAILED", strings.Repeat("👩‍👩‍👧", 30)}, {"c", "RUNNING", "x"}}
	for columns := 1; columns <= 130; columns++ {
		for _, colour := range []bool{false, true} {
			text := table(columns, colour, rows...)
			for line := range strings.Lines(text) {
				if w := width(strings.TrimSuffix(line, "\n")); w > columns {
					t.Fatalf("%d columns on a terminal of %d: %q", w, columns, line)
				}
			}
			if columns >= 30 && !strings.Contains(text, "COMPLETED") {
				t.Fatalf("the status was cut on a terminal of %d: %q", columns, text)
			}
		}
	}
}

// Whatever a name holds, the terminal gets it as text.
func FuzzClean(f *testing.F) {
	for _, s := range []string{"a\x1b[2Jb", "\u202e\u2066", "a\nb\tc\r", "\x9b31m", "\xff\xfe", "ok é 漢字 👋", "\u0085\u2028"} {
		f.Add(s, 10)
	}
	f.Fuzz(func(t *testing.T, s string, n int) {
		got := clean(s)
		if strings.ContainsFunc(got, func(r rune) bool {
			return r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
		}) {
			t.Errorf("%q", got)
		}
		if clean(got) != got {
			t.Errorf("not stable: %q", got)
		}
		if n = n % 200; n < 0 {
			n = -n
		}
		if w := width(clip(got, n)); w > n {
			t.Errorf("clip(%q, %d) has %d columns", got, n, w)
		}
	})
}

func TestYAMLKeepsOrderAndNumbers(t *testing.T) {
	t.Parallel()
	in := `{"z":12345678901234567890123,"a":[],"m":{},"e":1E400,"f":1.50,"s":["yes","1","null","~","a: b","- x","\u0000","line\nline\n","\ud83d\udc4b"],"n":null,"t":true,"":{"k":[{"x":[1]}]}}`
	got, err := toYAML([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	want := `z: 12345678901234567890123
a: []
m: {}
e: 1E400
f: 1.50
s:
  - "yes"
  - "1"
  - "null"
  - "~"
  - 'a: b'
  - '- x'
  - "\0"
  - |
    line
    line
  - "\U0001F44B"
n: null
t: true
"":
  k:
    - x:
        - 1
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

// YAML that is written reads back as the strings and structure that went in.
func FuzzYAML(f *testing.F) {
	f.Add(`{"a":["b",{"c":"d"}],"e":"\u0007 x"}`)
	f.Add(`["on","0x1","1_0","2026-11-21","<<","=", "!t", "&a", "*a","%","@"]`)
	f.Fuzz(func(t *testing.T, in string) {
		var v any
		if json.Unmarshal([]byte(in), &v) != nil || strings.ContainsRune(in, '\ufffd') {
			return
		}
		strip(&v)
		b, err := toJSON(v)
		if err != nil {
			return
		}
		out, err := toYAML(b)
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		var back any
		if err := yaml.Unmarshal(out, &back); err != nil {
			t.Fatalf("%s\n%s: %v", b, out, err)
		}
		if diff := cmp.Diff(v, back); diff != "" {
			t.Errorf("%s\n%s\n%s", b, out, diff)
		}
	})
}

// strip makes every number a text, since the two languages disagree on types.
func strip(v *any) {
	switch x := (*v).(type) {
	case float64:
		*v = fmt.Sprint(x)
	case []any:
		for i := range x {
			strip(&x[i])
		}
	case map[string]any:
		for k, e := range x {
			strip(&e)
			x[k] = e
		}
	}
}

func TestDurations(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0ms", 0: "0ms", 999 * time.Millisecond: "999ms", time.Second: "1.0s", 59*time.Second + 990*time.Millisecond: "59.9s",
		time.Minute: "1m00s", 61 * time.Second: "1m01s", time.Hour - time.Second: "59m59s", 26*time.Hour + 5*time.Minute: "26h05m",
	} {
		if got := duration(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	names := []string{"start", "list", "show", "watch", "events", "cancel", "retry"}
	for name, want := range map[string][]string{
		"strat": {"start"}, "lst": {"list"}, "sho": {"show"}, "SHOW": {"show"}, "can": {"cancel"}, "evnets": {"events"}, "x": nil, "frobnicate": nil, "": nil,
	} {
		if diff := cmp.Diff(want, nearest(name, names)); diff != "" {
			t.Error(name, diff)
		}
	}
}

func TestSlug(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"Fine Translator!": "fine-translator", "agents.example.com": "agents.example.com", "  ": "", "../..": "", "A_B--C": "a-b-c", "検索 Agent": "検索-agent",
		"127.0.0.1": "127.0.0.1",
	} {
		if got := slug(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := slug(strings.Repeat("名", 200)); len(got) > maxSlug+3 {
		t.Errorf("%d bytes", len(got))
	}
}

// TestOutputHarmless: what an agent has written cannot steer the terminal that
// it is printed on as JSON or YAML, and stays what it is for programs.
func TestOutputHarmless(t *testing.T) {
	const text = "a\x1b[2J\u009b2J\u0085\x7f\u202e\u2066 é😀"
	const raw = "\u009b2J\u0085\x7f\u202e\u2066 é😀" // what JSON lets stand
	values := map[any]string{}
	for _, s := range []string{text, raw, "turned \u202e\u2066 é😀", "lines\n\u202eturned\n"} {
		values[&map[string]string{s: s}] = s
	}
	values[&map[string]json.RawMessage{"raw": json.RawMessage(`"` + raw + `"`)}] = raw
	for v, want := range values {
		b, err := toJSON(v)
		if err != nil {
			t.Fatal(err)
		}
		y, err := toYAML(b)
		if err != nil {
			t.Fatal(err)
		}
		const controls = "\x1b\u009b\u0085\x7f\u202e\u2066"
		if strings.ContainsAny(string(b), controls) || strings.ContainsAny(string(y), controls) {
			t.Errorf("%q\n%q", b, y)
		}
		var fromJSON, fromYAML any
		if err := json.Unmarshal(b, &fromJSON); err != nil || !strings.Contains(fmt.Sprint(fromJSON), want) {
			t.Errorf("%q, %v", fromJSON, err)
		}
		if err := yaml.Unmarshal(y, &fromYAML); err != nil || fmt.Sprint(fromYAML) != fmt.Sprint(fromJSON) {
			t.Errorf("%q, %v", fromYAML, err)
		}
	}
}

// largestWrite is a writer that remembers the most that came at once.
type largestWrite struct {
	bytes.Buffer
	most int
}

func (l *largestWrite) Write(p []byte) (int, error) {
	l.most = max(l.most, len(p))
	return l.Buffer.Write(p)
}

// TestJSONOnItsWay: a long answer is written as it is made, and is the same text as
// when it is made at once.
func TestJSONOnItsWay(t *testing.T) {
	t.Parallel()
	run := parley.Run{ID: "r", Input: json.RawMessage(`{ "a" : 1E400, "b":[ ],"c":{},"d":"<&>\u2028 \u00e9"}`), CreatedAt: time.Unix(0, 0).UTC()}
	for range 100 {
		text := strings.Repeat("é\u009b\u202e<&>\u2028😀", 2000)
		run.Steps = append(run.Steps, parley.Step{ID: text[:8], Output: json.RawMessage(`"` + text + `"`), AgentTaskID: text[:10]})
	}
	whole, err := toJSON(run)
	if err != nil {
		t.Fatal(err)
	}
	for spread, want := range map[bool][]byte{false: whole, true: indent(whole)} {
		var got largestWrite
		if err := writeJSON(&got, run, spread); err != nil {
			t.Fatal(err)
		}
		if got.String() != string(want)+"\n" {
			t.Errorf("spread %v: another text of %d bytes, want %d", spread, got.Len(), len(want))
		}
		if got.most > len(want)/10 {
			t.Errorf("spread %v: %d of %d bytes were written at once", spread, got.most, got.Len())
		}
	}
	var byByte bytes.Buffer
	w := &harmlessWriter{w: &byByte}
	for _, b := range []byte("\"é😀\u009b\u202e\"") {
		if n, err := w.Write([]byte{b}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if got := byByte.String(); got != `"é😀\u009b\u202e"` {
		t.Errorf("byte by byte: %q", got)
	}
}
