package workflow

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
)

func testLimits() ParseLimits { return ParseLimits{}.filled() }

// testRead reads a document that must have no problem.
func testRead(t *testing.T, source string) *node {
	t.Helper()
	n, r := nodeRead([]byte(source), testLimits())
	if n == nil || len(r.problems) > 0 {
		t.Fatalf("%.200q: %v", source, parley.Problems(r.problems))
	}
	return n
}

func TestD1_CoreSchema(t *testing.T) {
	for source, want := range map[string]string{
		"on": `"on"`, "off": `"off"`, "yes": `"yes"`, "no": `"no"`, "y": `"y"`, "n": `"n"`, "Yes": `"Yes"`,
		"true": "true", "True": "true", "TRUE": "true", "tRUE": `"tRUE"`, "false": "false", "FALSE": "false",
		"null": "null", "Null": "null", "NULL": "null", "~": "null", "": "null", "nULL": `"nULL"`, "nil": `"nil"`,
		"2001-12-14": `"2001-12-14"`, "2001-12-14T21:59:43Z": `"2001-12-14T21:59:43Z"`, "12:30:45": `"12:30:45"`, "190:20:30": `"190:20:30"`,
		"0": "0", "-0": "-0", "7": "7", "+7": "7", "-7": "-7", "007": "7", "0777": "777", "-012": "-12", "08": "8",
		"0o14": "12", "0o8": `"0o8"`, "-0o14": `"-0o14"`, "0O14": `"0O14"`, "0x1F": "31", "0xg": `"0xg"`, "-0x1F": `"-0x1F"`, "0x": `"0x"`,
		"0b11": `"0b11"`, "1_000": `"1_000"`, "1,000": `"1,000"`, "0xffffffffffffffffffff": "1208925819614629174706175",
		"123456789012345678901234567890": "123456789012345678901234567890",
		"1.5":                            "1.5", "1.": "1.0", ".5": "0.5", "-.5": "-0.5", "+1.50": "1.50", "1e3": "1e3", "1E+3": "1E+3", "1.e-3": "1.0e-3", "00.10": "0.10",
		".": `"."`, "-": `"-"`, "+": `"+"`, "1e": `"1e"`, "e3": `"e3"`, "1e3x": `"1e3x"`, "1.2.3": `"1.2.3"`, "--1": `"--1"`, "+-1": `"+-1"`, "1e+": `"1e+"`, "1e++3": `"1e++3"`,
		"<<": `"<<"`, "=": `"="`, "a b": `"a b"`, `"1"`: `"1"`, "'true'": `"true"`, `"~"`: `"~"`, `"\0"`: "\"\\u0000\"", `"é"`: `"é"`,
	} {
		indent := "a: " + source
		if source == "-" {
			indent = "a: [-1, 2]" // a lone dash is a list in YAML
			want = "[-1,2]"
		}
		if got := string(testRead(t, indent).get("a").json()); got != want {
			t.Errorf("a: %s gives %s, want %s", source, got, want)
		}
	}
	for _, block := range []string{"|\n  12\n", ">-\n  12"} {
		if got := testRead(t, "a: "+block).get("a"); got.kind != nodeString {
			t.Errorf("a block scalar gives %s", got.kind)
		}
	}
}

func TestD1_JSONAsWritten(t *testing.T) {
	source := "\ufeff \t\n{\"a\": [1.0, 1e400, -0, 123456789012345678901234567890, \"\\ud83d\\ude00\\u0000\"], \"é\": {}, \"b\":[[],{}], \"c\": null, \"d\": [true, false]}\n"
	want := `{"a":[1.0,1e400,-0,123456789012345678901234567890,"😀\u0000"],"é":{},"b":[[],{}],"c":null,"d":[true,false]}`
	if got := string(testRead(t, source).json()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestD1_Places checks line and column of every node in all line ends, with
// characters of several bytes before them.
func TestD1_Places(t *testing.T) {
	for _, ends := range []string{"\n", "\r\n"} {
		yaml := strings.ReplaceAll("é: [ä, 'ö'] # ü\nb:\n  - \"😀\": {x: 1}\n  - &k [z]\n  - *k\n", "\n", ends)
		json := strings.ReplaceAll("{ \"é\": [\"ä\", \"ö\"],\n\t\"b\": [{\"😀\": {\"x\": 1}},\n[\"z\"], [\n\"z\"]]}", "\n", ends)
		var places func(n *node) string
		places = func(n *node) string {
			var out strings.Builder
			fmt.Fprintf(&out, "%s@%d:%d ", n.path(), n.line, n.col)
			for _, m := range n.members {
				out.WriteString(fmt.Sprintf("%s@%d:%d=", m.name, m.line, m.col) + places(m.value))
			}
			for _, item := range n.items {
				out.WriteString(places(item))
			}
			return out.String()
		}
		want := `@1:1 é@1:1=é@1:4 é[0]@1:5 é[1]@1:8 b@2:1=b@3:3 b[0]@3:5 😀@3:5=b[0].😀@3:10 x@3:11=b[0].😀.x@3:14 b[1]@4:5 b[1][0]@4:9 b[2]@5:5 b[2][0]@4:9 `
		if diff := cmp.Diff(want, places(testRead(t, yaml))); diff != "" {
			t.Errorf("YAML with %q (-want +got):\n%s", ends, diff)
		}
		want = `@1:1 é@1:3=é@1:8 é[0]@1:9 é[1]@1:14 b@2:2=b@2:7 b[0]@2:8 😀@2:9=b[0].😀@2:14 x@2:15=b[0].😀.x@2:20 b[1]@3:1 b[1][0]@3:2 b[2]@3:8 b[2][0]@4:1 `
		if diff := cmp.Diff(want, places(testRead(t, json))); diff != "" {
			t.Errorf("JSON with %q (-want +got):\n%s", ends, diff)
		}
	}
}

func TestD1_NotUTF8(t *testing.T) {
	for _, source := range []string{"name: x\nb: \xff", "{\"name\": \"x\",\n\"\xc3\x28\": 1}", "\xff\xfen\x00"} {
		n, r := nodeRead([]byte(source), testLimits())
		if n != nil || len(r.problems) != 1 || r.problems[0].Code != problemSyntax {
			t.Errorf("%q: %v", source, r.problems)
		}
	}
	_, r := nodeRead([]byte("name: x\nbä: \xff"), testLimits())
	if p := r.problems[0]; p.Line != 2 || p.Col != 5 {
		t.Errorf("the place is %d:%d, want 2:5", p.Line, p.Col)
	}
}

// TestLimits_Document passes every limit of a document, exactly and by one.
func TestLimits_Document(t *testing.T) {
	list := func(n int) string { return "a: [" + strings.Repeat("1,", n) + "]\n" }
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	texts := func(of string) string { return "a: &a \"" + strings.Repeat("x", 4096) + "\"\nb: " + of }
	named := func(of string) string {
		return "a: &b {\"" + strings.Repeat("x", 1000) + "\": " + strings.Repeat("y", 3096) + "}\nb: " + of
	}
	most := 2*32 + 64 + 4
	for _, c := range []struct {
		name, within, beyond, limit string
	}{
		{"source", "a: " + strings.Repeat("x", 1<<20-3), "a: " + strings.Repeat("x", 1<<20-2), "`source`"},
		{"nodes", list(99_998), list(99_999), "`nodes`"},
		{"nodes by aliases", "a: &a [" + strings.Repeat("1,", 998) + "]\nb: [" + strings.Repeat("*a,", 99) + "]\n", "a: &a [" + strings.Repeat("1,", 998) + "]\nb: [" + strings.Repeat("*a,", 100) + "]\n", "`nodes`"},
		{"text by aliases", texts("[*a" + strings.Repeat(", *a", 255) + "]"), texts("[*a" + strings.Repeat(", *a", 256) + "]"), "`source`"},
		{"names by aliases", texts("[{*a : 1}" + strings.Repeat(", {*a : 1}", 255) + "]"), texts("[{*a : 1}" + strings.Repeat(", {*a : 1}", 256) + "]"), "`source`"},
		{"names in aliases", named("[*b" + strings.Repeat(", *b", 255) + "]"), named("[*b" + strings.Repeat(", *b", 256) + "]"), "`source`"},
		{"depth of JSON", `{"a": ` + deep(most-1) + "}", `{"a": ` + deep(most) + "}", "`depth`"},
		{"depth of YAML", "a: " + deep(most-1), "a: " + deep(most), "`depth`"},
	} {
		if n, r := nodeRead([]byte(c.within), testLimits()); n == nil {
			t.Errorf("%s within: %v", c.name, r.problems)
		}
		n, r := nodeRead([]byte(c.beyond), testLimits())
		if n != nil || len(r.problems) != 1 || r.problems[0].Code != problemLimit || !strings.Contains(r.problems[0].Text, c.limit) {
			t.Errorf("%s beyond: %v", c.name, r.problems)
		}
	}
}

// TestLimits_Bombs reads documents that would grow without end, or cost the
// square of their size, and bounds time and memory.
func TestLimits_Bombs(t *testing.T) {
	var laughs strings.Builder
	laughs.WriteString("a0: &a0 [" + strings.Repeat("x, ", 10) + "]\n")
	for i := 1; i < 30; i++ {
		fmt.Fprintf(&laughs, "a%d: &a%d [%s]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10))
	}
	var nested strings.Builder
	for i := range 1300 {
		nested.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	for name, source := range map[string]string{
		"laughs": laughs.String(), "nested": nested.String(),
		"flow": strings.Repeat("- [", 1<<18), "json": strings.Repeat("[", 1<<20), "objects": strings.Repeat(`{"a":`, 1<<17),
		"dashes": strings.Repeat("- ", 1<<19), "questions": strings.Repeat("? ", 1<<19),
		"commas": "a: [" + strings.Repeat("a,", 1<<18) + "]", "lines": strings.Repeat("-\n", 1<<19),
		"keys": strings.Repeat("a: 1\n", 1<<17), "tags": "a: [" + strings.Repeat("! a,", 1<<17) + "]",
		"unknown":  "name: x\nsteps:\n  - {agent: a" + manyMembers(90_000) + "}\n",
		"dangling": `{"name":"x","start_step":"s0","steps":{` + strings.TrimSuffix(manySteps(1900), ",") + "}}",
		"broken":   "name: x\nsteps:\n" + strings.Repeat("  - {agent: a}\n", 10_000) + " - ]",
		"quotes":   "a: " + strings.Repeat(`"a" `, 1<<17),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			def, problems := Parse(ParseOptions{}, []byte(source))
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			if def != nil || len(problems) == 0 || len(problems) > problemsMax+1 {
				t.Errorf("%d problems, definition %v", len(problems), def != nil)
			}
			// The race detector makes it some ten times slower, a busy machine again so.
			if took > time.Minute {
				t.Errorf("it took %v", took)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 1<<30 {
				t.Errorf("it allocated %d MiB", used>>20)
			}
			t.Logf("%v, %d MiB: %v", took, (after.TotalAlloc-before.TotalAlloc)>>20, problems[0])
		})
	}
}

func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ", x%d: 1", i)
	}
	return b.String()
}

func manySteps(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"s%d":{"agent_name":"a","next_step":"missing%d"},`, i, i)
	}
	return b.String()
}

func TestNode_Paths(t *testing.T) {
	n := testRead(t, `{"a": [{"b c": {"": {"d.e": 1}}}]}`)
	at := n.at("/a/0/b c//d.e")
	if got, want := at.path(), `a[0]["b c"][""]["d.e"]`; got != want {
		t.Errorf("path %s, want %s", got, want)
	}
	if got := n.at("/a/1/b"); got.path() != "a" {
		t.Errorf("a pointer that leads nowhere ends at %q", got.path())
	}
	if got, want := nodePointerPath("/steps/0/a~1b/x"), "steps[0].a/b.x"; got != want {
		t.Errorf("pointer: %s, want %s", got, want)
	}
}

// TestD1_VersionOfYAML: a document may say that it is YAML 1.2, which it is.
func TestD1_VersionOfYAML(t *testing.T) {
	for _, head := range []string{"%YAML 1.2\n---\n", "%YAML 1.2\r\n--- # x\r\n", "# a\n\n%YAML 1.2 # b\n---\n", "\ufeff%YAML 1.2\n---\n", "%YAML 1.1\n---\n"} {
		n := testRead(t, head+"a: on\nb: '%YAML 1.2'\n")
		if got := string(n.json()); got != `{"a":"on","b":"%YAML 1.2"}` {
			t.Errorf("%q: %s", head, got)
		}
		if lines := strings.Count(head, "\n"); n.get("a").line != lines+1 {
			t.Errorf("%q: a stands on line %d", head, n.get("a").line)
		}
	}
	for _, source := range []string{"%YAML 1.3\n---\na: 1\n", "%YAML 1.22\n---\na: 1\n", "%YAML 1.2\n%YAML 1.2\n---\na: 1\n", "a: 1\n%YAML 1.2\n"} {
		if n, r := nodeRead([]byte(source), testLimits()); n != nil || len(r.problems) != 1 || r.problems[0].Code != problemSyntax {
			t.Errorf("%q: %v", source, r.problems)
		}
	}
}
