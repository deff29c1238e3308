package agents_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/parley-project/parley/internal/bridge/a2a"
	"github.com/parley-project/parley/internal/registry"
	"github.com/parley-project/parley/internal/sample"
)

const root = "../.."

// block is a piece of code on a page.
type block struct {
	line           int
	language, text string
}

// blocks gives the pieces of code of a page, without the indentation that they
// have in lists.
func blocks(t *testing.T, page string) (all []block) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	var b *block
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		language, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && b == nil:
			b = &block{line: n, language: language}
		case fence:
			all, b = append(all, *b), nil
		case b != nil:
			b.text += line
		}
	}
	return all
}

// TestDocsCurl runs every curl of the pages against each agent, and compares
// what comes back with what the page says (BR-9.3).
func TestDocsCurl(t *testing.T) {
	t.Parallel()
	greeter := httptest.NewServer(sample.Greeter())
	t.Cleanup(greeter.Close)
	for language, command := range languages(t) {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			a2a := newDialogue(start(t, command))
			simple := newDialogue(greeter.URL)
			ran := 0
			for _, page := range []string{"docs/protocols.md", "examples/agents/README.md"} {
				all := blocks(t, page)
				for i, b := range all {
					if b.language != "sh" || !strings.Contains(b.text, "curl") {
						continue
					}
					want := ""
					if i+1 < len(all) && (all[i+1].language == "json" || all[i+1].language == "text") {
						want = all[i+1].text
					}
					for n, x := range curls(t, b, want) {
						d := a2a
						if x.simple {
							d = simple
						}
						ran++
						if err := d.hold(t, x.exchange); err != nil {
							t.Fatalf("%s:%d: curl %d: %v", page, b.line, n+1, err)
						}
					}
				}
			}
			if ran < 30 {
				t.Errorf("only %d curls on the pages", ran)
			}
		})
	}
}

// curl is one command line.
type curl struct {
	exchange
	simple bool
}

// curls reads the commands of a block. want is what the page shows as their
// answers: JSON texts, one for each command, or a stream. What the page does not
// show may be anything.
func curls(t *testing.T, b block, want string) (all []curl) {
	t.Helper()
	script := strings.ReplaceAll(b.text, "\\\n", " ")
	for _, words := range commands(script) {
		c := curl{exchange: exchange{method: http.MethodGet, header: make(http.Header), status: 200, want: `{"…":""}`}}
		for i := 1; i < len(words); i++ {
			switch word := words[i]; {
			case word == "-H":
				i++
				name, value, _ := strings.Cut(words[i], ": ")
				c.header.Set(name, value)
			case word == "-d":
				i++
				c.method, c.body = http.MethodPost, words[i]
			case word == "-sS", word == "-sSN":
				c.stream = strings.Contains(word, "N")
			case strings.HasPrefix(word, "http://127.0.0.1:900"):
				c.simple = strings.HasPrefix(word, "http://127.0.0.1:9000")
				c.path = word[len("http://127.0.0.1:9001"):]
			default:
				t.Fatalf("line %d: what is %q?", b.line, word)
			}
		}
		// What a task has come to is asked for until it has.
		c.until = strings.Contains(c.body, `"tasks/get"`) || strings.Contains(c.body, `"GetTask"`)
		all = append(all, c)
	}
	if want == "" {
		return all
	}
	if len(all) == 1 && all[0].stream {
		all[0].want = string(events([]byte(want)))
		return all
	}
	dec := json.NewDecoder(strings.NewReader(want))
	for i := range all {
		var one json.RawMessage
		if err := dec.Decode(&one); err != nil {
			t.Fatalf("line %d: the answer to curl %d: %v", b.line, i+1, err)
		}
		all[i].want = string(one)
	}
	return all
}

// commands splits a script into commands and these into words, as far as the
// pages use a shell.
func commands(script string) (all [][]string) {
	var words []string
	word, quoted, begun := "", false, false
	end := func() {
		if begun {
			words = append(words, word)
		}
		word, begun = "", false
	}
	for _, r := range script {
		switch {
		case r == '\'':
			quoted, begun = !quoted, true
		case quoted:
			word += string(r)
		case r == ' ' || r == '\t':
			end()
		case r == '\n':
			if end(); len(words) > 0 {
				all, words = append(all, words), nil
			}
		default:
			word, begun = word+string(r), true
		}
	}
	return all
}

// TestDocsStdio runs what the page pipes into an agent.
func TestDocsStdio(t *testing.T) {
	t.Parallel()
	all := blocks(t, "docs/protocols.md")
	ran := false
	for i, b := range all {
		if b.language != "sh" || !strings.Contains(b.text, "--stdio") {
			continue
		}
		ran = true
		cmd := exec.CommandContext(t.Context(), "sh", "-c", b.text)
		cmd.Dir = root
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		if err := newDialogue("").compare(all[i+1].text, out); err != nil {
			t.Error(err)
		}
	}
	if !ran {
		t.Error("the page has nothing on stdio")
	}
}

// TestDocsCode holds the other pieces of code to what exists: Go stands in the
// examples, agents files can be read, commands name files that are there.
func TestDocsCode(t *testing.T) {
	t.Parallel()
	seen := make(map[string]int)
	for _, page := range []string{"docs/protocols.md", "examples/agents/README.md"} {
		for _, b := range blocks(t, page) {
			seen[b.language]++
			var err error
			switch b.language {
			case "go":
				err = stands(b.text)
			case "yaml":
				err = agentsFile(b.text)
			case "console": // package main of cmd/parley looks at its own
				for _, m := range regexp.MustCompile(`(?m)^\$ (?:go run|python3) \S*?(examples/\S+)`).FindAllStringSubmatch(b.text, -1) {
					if _, e := os.Stat(filepath.Join(root, m[1])); e != nil {
						err = e
					}
				}
			case "json":
				_, err = texts(strings.NewReader(b.text))
			}
			if err != nil {
				t.Errorf("%s:%d: %v", page, b.line, err)
			}
		}
	}
	for _, language := range []string{"go", "yaml", "console", "json", "python"} {
		if seen[language] == 0 {
			t.Errorf("no %s on the pages", language)
		}
	}
}

// stands says whether a piece of Go stands in the examples as it is.
func stands(text string) error {
	for _, pattern := range []string{"examples/adapters/*/*.go", "examples/agents/go/*.go"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return err
		}
		for _, file := range files {
			if code, err := os.ReadFile(file); err == nil && strings.Contains(string(code), text) {
				return nil
			}
		}
	}
	return fmt.Errorf("the examples do not have:\n%s", text)
}

// agentsFile reads an agents file and the settings of its protocols.
func agentsFile(text string) error {
	specs, problems := registry.LoadFile("page", []byte(text))
	if len(problems) > 0 {
		return problems
	}
	for _, spec := range specs {
		if _, faults := a2a.ReadConfig(spec.ProtocolConfig); len(faults) > 0 {
			return fmt.Errorf("%s: %w", *spec.Name, faults[0])
		}
	}
	return nil
}

// TestDocsMigration runs the agent of the migration guide before and after.
func TestDocsMigration(t *testing.T) {
	t.Parallel()
	var python []string
	for _, b := range blocks(t, "docs/protocols.md") {
		if b.language == "python" {
			python = append(python, b.text)
		}
	}
	if len(python) != 2 {
		t.Fatalf("%d pieces of Python on the page, want before and after", len(python))
	}
	run := func(code, body string) string {
		script := "import json\nwork = str.upper\n" + code + "\nprint(json.dumps(handle(json.loads('''" + body + "'''))))\n"
		out, err := exec.CommandContext(t.Context(), "python3", "-c", script).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	d := newDialogue("")
	before := run(python[0], `{"task_id": "t1", "input": {"text": "hello"}}`)
	if err := d.compare(`{"task_id": "t1", "status": "success", "output": {"text": "HELLO"}, "error": null}`, []byte(before)); err != nil {
		t.Errorf("before: %v", err)
	}
	after := run(python[1], `{"jsonrpc": "2.0", "id": "t1", "method": "message/send", "params": {"message": {"role": "user", "messageId": "msg-t1", "parts": [{"kind": "text", "text": "hello"}]}}}`)
	want := `{"jsonrpc": "2.0", "id": "t1", "result": {"kind": "task", "status": {"state": "completed"}, "artifacts": [{"artifactId": "1", "parts": [{"kind": "text", "text": "HELLO"}]}], "…": ""}}`
	if err := d.compare(want, []byte(after)); err != nil {
		t.Errorf("after: %v", err)
	}
}

// TestDocsTexts holds the page to the code: the settings that it lists are those
// that there are, and the texts that it explains are ours.
func TestDocsTexts(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(root, "docs/protocols.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	_, faults := a2a.ReadConfig(json.RawMessage(`{"nonsense": 1}`))
	if len(faults) != 1 {
		t.Fatal(faults)
	}
	_, list, _ := strings.Cut(faults[0].Error(), "known are ")
	members := strings.Split(list, ", ")
	if len(members) < 10 {
		t.Errorf("only %d settings: %v", len(members), members)
	}
	for _, m := range members {
		if !strings.Contains(page, "| `"+m+"` | ") {
			t.Errorf("the page does not list protocol_config.%s", m)
		}
	}

	code := source(t)
	_, trouble, _ := strings.Cut(page, "## Troubleshooting")
	trouble, _, _ = strings.Cut(trouble, "\n## ")
	explained := 0
	for line := range strings.Lines(trouble) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			explained++
			for _, piece := range regexp.MustCompile(`…|-?\d+s?`).Split(m[1], -1) {
				if piece = strings.Trim(piece, " :;)"); piece != "" && !strings.Contains(code, piece) {
					t.Errorf("nothing says %q (of %q)", piece, m[1])
				}
			}
		}
	}
	if explained < 20 {
		t.Errorf("only %d texts are explained", explained)
	}
}

// source is the code of the product.
func source(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range []string{"internal", "cmd", "."} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && dir == "." && path != filepath.Join(root, dir) {
				return filepath.SkipDir
			}
			if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				text, err := os.ReadFile(path)
				all.Write(text)
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}
