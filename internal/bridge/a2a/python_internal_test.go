package a2a

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

var updatePython = flag.Bool("update-python", false, "write testdata/python_text.txt with what python3 says")

// foreignText is the text that a foreign task's input becomes.
func foreignText(t *testing.T, input string) string {
	t.Helper()
	b, err := appendParts(nil, content{version: V03, mode: PartsText, input: json.RawMessage(input), python: true})
	var parts []struct{ Kind, Text string }
	if err == nil {
		err = json.Unmarshal(b, &parts)
	}
	if err != nil || len(parts) != 1 || parts[0].Kind != "text" {
		t.Fatalf("%s: %s, %v", input, b, err)
	}
	return parts[0].Text
}

// askPython gives what a Python program makes of inputs.
func askPython(t *testing.T, inputs []string) []string {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal("python3 is what this is held against: install it")
	}
	cmd := exec.CommandContext(t.Context(), python, "testdata/python_text.py")
	cmd.Stdin = strings.NewReader(strings.Join(inputs, "\n") + "\n")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != len(inputs) {
		t.Fatalf("%d texts for %d inputs", len(lines), len(inputs))
	}
	for i := range lines {
		if err := json.Unmarshal([]byte(lines[i]), &lines[i]); err != nil {
			t.Fatal(err)
		}
	}
	return lines
}

// TestForeignTexts: where a foreign task's input becomes a text that was none, it is
// spelled as the existing platform spells it (formats.md). Each pair of lines of the
// file is an input, and the text as JSON.
func TestForeignTexts(t *testing.T) {
	const name = "testdata/python_text.txt"
	file, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(file), "\n"), "\n")
	var inputs []string
	for i := 0; i < len(lines); i += 2 {
		inputs = append(inputs, lines[i])
	}
	if *updatePython {
		var b bytes.Buffer
		for i, text := range askPython(t, inputs) {
			quoted, _ := json.Marshal(text)
			fmt.Fprintf(&b, "%s\n%s\n", inputs[i], quoted)
		}
		if err := os.WriteFile(name, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	for i, input := range inputs {
		var want string
		if err := json.Unmarshal([]byte(lines[2*i+1]), &want); err != nil {
			t.Fatal(err)
		}
		if got := foreignText(t, input); got != want {
			t.Errorf("%s: %s, want %s", input, got, want)
		}
	}
	if len(inputs) < 30 {
		t.Errorf("only %d inputs", len(inputs))
	}
	own, err := appendParts(nil, content{version: V03, mode: PartsText, input: json.RawMessage(`{"text":{"a":true}}`)})
	if want := `[{"kind":"text","text":"{\"a\":true}"}]`; err != nil || string(own) != want {
		t.Errorf("of a task of our own: %s, %v; want %s", own, err, want)
	}
}

// TestForeignTextsAsPythonHasThem compares any inputs with what python3 makes of them.
func TestForeignTextsAsPythonHasThem(t *testing.T) {
	seed := rand.Uint64()
	g := &inputs{rand.New(rand.NewPCG(seed, 0))}
	list := make([]string, 4000)
	for i := range list {
		member := []string{"text", "query", "other"}[g.IntN(3)]
		list[i] = fmt.Sprintf(`{"%s":%s%s,"z":1}`, member, g.space(), g.value(4))
		if g.IntN(4) == 0 {
			list[i] = fmt.Sprintf(`{"text":%s,"query":%s}`, []string{"0", `""`, "-0.0", "1e-400", "null", "[]", "{}", "false"}[g.IntN(8)], g.value(3))
		}
	}
	for i, want := range askPython(t, list) {
		// A text that is a string goes as it is; Go's strings have no halves of pairs.
		if got := foreignText(t, list[i]); got != want {
			t.Fatalf("seed %d: %s\nis   %q\nwant %q", seed, list[i], got, want)
		}
	}
}

// inputs draws JSON.
type inputs struct{ *rand.Rand }

func (g *inputs) space() string { return []string{"", "", " ", "\t "}[g.IntN(4)] }

func (g *inputs) value(depth int) string {
	kind := g.IntN(9)
	if depth == 0 {
		kind = g.IntN(7)
	}
	switch kind {
	case 0:
		return []string{"true", "false", "null"}[g.IntN(3)]
	case 1:
		return []string{"0", "-0", "7", "-12", "123456789012345678901234567890"}[g.IntN(5)]
	case 2:
		f := math.Float64frombits(g.Uint64())
		if math.IsNaN(f) || math.IsInf(f, 0) {
			f = 1
		}
		return strconv.FormatFloat(f, "gfeE"[g.IntN(4)], -1, 64)
	case 3:
		return fmt.Sprintf("%d.%de%d", g.IntN(100), g.IntN(1000), g.IntN(44)-22)
	case 4:
		return []string{"1e400", "-1E+400", "1e16", "9999999999999998.0", "0.0001", "0.00001", "1e22", "5e-324", "100.0", "-0.0"}[g.IntN(10)]
	case 5, 6:
		return g.text()
	case 7:
		items := make([]string, g.IntN(4))
		for i := range items {
			items[i] = g.space() + g.value(depth-1) + g.space()
		}
		return "[" + g.space() + strings.Join(items, ",") + "]"
	}
	members := make([]string, g.IntN(4))
	for i := range members {
		name := g.text()
		if g.IntN(3) == 0 {
			name = `"a"` // so that there are some twice
		}
		members[i] = g.space() + name + g.space() + ":" + g.space() + g.value(depth-1) + g.space()
	}
	return "{" + g.space() + strings.Join(members, ",") + "}"
}

// text draws a string of what Python spells in its ways. It begins with a letter, so
// that it is no half of a pair by itself.
func (g *inputs) text() string {
	signs := []string{
		`a`, ` `, `'`, `\"`, `\\`, `\/`, `\n`, `\r`, `\t`, `\b`, `\f`, `\u0000`, `\u001b`, `\u007f`, "\x7f", `\u0085`, `\u00a0`, `\u00ad`, `\u00e9`, "é", `\u0378`,
		`\u200b`, `\u2028`, `\u202e`, `\u3000`, "日本", `\ue000`, `\ufeff`, `\ufffe`, "😀", `\ud83d\ude00`, "\U000e0001", "\U0010ffff", "\u0301",
	}
	var b strings.Builder
	b.WriteString(`"x`)
	for range g.IntN(5) {
		b.WriteString(signs[g.IntN(len(signs))])
	}
	return b.String() + `"`
}
