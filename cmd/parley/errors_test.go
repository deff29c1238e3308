package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/server"
)

// sourceCodes finds the codes that the sources give people: constants that are
// called so, and literals in the places where a code stands.
func sourceCodes(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			// The codes of a zone's deliveries are in its log, and numbers; the rest
			// is not the program.
			if slices.Contains([]string{".git", "examples", "interop", "bench", "scripts", "zone", "adaptertest", "chaos"}, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(d.Name(), "errorsof") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			for _, code := range codesAt(n) {
				found[code] = path
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var (
	codeName = regexp.MustCompile(`^(Code|code|problem|fault)([A-Z]|$)`)
	codeText = regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
)

// codesAt gives the codes that one node of a source says.
func codesAt(n ast.Node) (codes []string) {
	add := func(named bool, values ...ast.Expr) {
		for _, v := range values {
			if text, ok := constantText(v); named && ok {
				codes = append(codes, text)
			}
		}
	}
	switch n := n.(type) {
	case *ast.ValueSpec:
		add(codeName.MatchString(n.Names[0].Name), n.Values...)
	case *ast.KeyValueExpr:
		key, ok := n.Key.(*ast.Ident)
		add(ok && codeName.MatchString(key.Name), n.Value)
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			target, ok := left.(*ast.Ident)
			if field, isField := left.(*ast.SelectorExpr); isField {
				target, ok = field.Sel, true
			}
			if ok && len(n.Rhs) == len(n.Lhs) {
				add(target.Name == "code" || target.Name == "Code", n.Rhs[i])
			}
		}
	case *ast.CallExpr:
		f, ok := n.Fun.(*ast.SelectorExpr)
		add(ok && f.Sel.Name == "Errorf" && len(n.Args) > 1, n.Args[:min(1, len(n.Args))]...)
	}
	return codes
}

// constantText is the text of a code that is written out, also as parley.Code("…").
func constantText(v ast.Expr) (string, bool) {
	if call, ok := v.(*ast.CallExpr); ok && len(call.Args) == 1 {
		v = call.Args[0]
	}
	lit, ok := v.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil && codeText.MatchString(text)
}

// TestEveryCodeIsExplained: there is an entry for each code of the sources, and none
// for what is no code.
func TestEveryCodeIsExplained(t *testing.T) {
	t.Parallel()
	found := sourceCodes(t)
	if len(found) < 50 {
		t.Fatalf("only %d codes found: %v", len(found), found)
	}
	known := errorCodes(errorBook())
	for code, path := range found {
		if !slices.Contains(known, code) {
			t.Errorf("%s has the code %q, which parley errors does not explain", path, code)
		}
	}
	for i, code := range known {
		if found[code] == "" && !strings.HasPrefix(code, "-") {
			t.Errorf("parley errors explains %q, which no source has", code)
		}
		if slices.Index(known, code) != i {
			t.Errorf("%s is there twice", code)
		}
	}
}

// TestEveryNumberIsExplained: the codes of the JSON-RPC library have their entries.
func TestEveryNumberIsExplained(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile(filepath.Join("..", "..", "jsonrpc", "errors.go"))
	if err != nil {
		t.Fatal(err)
	}
	var numbers []string
	for _, m := range regexp.MustCompile(`(?m)^\tCode\w+ +Code = (-\d+)$`).FindAllStringSubmatch(string(source), -1) {
		numbers = append(numbers, m[1])
	}
	var known []string
	for _, e := range peerErrors() {
		known = append(known, e.Code)
		if strings.Contains(e.Next[0], "the peer's own") {
			t.Errorf("%s: what to do is %q", e.Code, e.Next[0])
		}
	}
	if len(numbers) < 9 || !slices.Equal(numbers, known) {
		t.Errorf("the library has %v, parley errors %v", numbers, known)
	}
}

// TestErrorBook: every entry is whole, and says of statuses and exit codes what the
// rest of the program does.
func TestErrorBook(t *testing.T) {
	t.Parallel()
	for _, e := range errorBook() {
		if e.Meaning == "" || len(e.In) == 0 || len(e.Causes) == 0 || len(e.Next) == 0 || e.ExitCode == exitDone ||
			!slices.Contains([]string{retryYes, retryNo, retryPerhaps}, e.Retry) || !strings.HasSuffix(e.Meaning, ".") {
			t.Errorf("%s is not whole: %+v", e.Code, e)
		}
		status, ok := server.ErrorStatus(parley.Code(e.Code))
		if ok != (e.HTTPStatus != 0) || ok && (status != e.HTTPStatus || e.ExitCode != exitOfCode(parley.Code(e.Code), status)) {
			t.Errorf("%s: status %d and exit code %d; the server says %d", e.Code, e.HTTPStatus, e.ExitCode, status)
		}
		if slices.Contains(e.In, metRun) != (e.RunExitCode == exitRunFailed || e.RunExitCode == exitRunCancelled) {
			t.Errorf("%s is in %v, and of a run the exit code is %d", e.Code, e.In, e.RunExitCode)
		}
	}
}

// TestFailuresEndAsExplained compares the failures that commands make with their
// entries.
func TestFailuresEndAsExplained(t *testing.T) {
	t.Parallel()
	var source strings.Builder
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		source.WriteString(string(b))
	}
	exits := map[string]int{
		"exitFailed": exitFailed, "exitUsage": exitUsage, "exitUnreachable": exitUnreachable, "exitRunFailed": exitRunFailed, "exitTimedOut": exitTimedOut,
	}
	made := regexp.MustCompile(`failure\{exit: (\w+), code: (?:"(\w+)"|codeExpectation)`).FindAllStringSubmatch(source.String(), -1)
	if len(made) < 10 {
		t.Fatalf("only %d failures found", len(made))
	}
	// The wait chooses its code where it makes the failure of exitTimedOut.
	made = append(made, []string{"", "exitTimedOut", "interrupted"})
	book := errorBook()
	for _, m := range made {
		if m[2] == "" {
			m[2] = string(codeExpectation)
		}
		i := slices.IndexFunc(book, func(e errorEntry) bool { return e.Code == m[2] })
		if i < 0 || exits[m[1]] != book[i].ExitCode {
			t.Errorf("%s ends with %s, and parley errors says otherwise", m[2], m[1])
		}
	}
}

// TestErrorAdvice: the commands that the entries name are there, with their flags.
func TestErrorAdvice(t *testing.T) {
	t.Parallel()
	a := &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard, now: time.Now, zone: time.UTC, terminal: terminal}
	root := newRootCommand(a)
	command := regexp.MustCompile(`parley((?: [a-z]+)+)`)
	flag := regexp.MustCompile(`--([a-z-]+)`)
	seen := 0
	for _, e := range errorBook() {
		for _, text := range e.Next {
			at := root
			for _, m := range command.FindAllStringSubmatch(text, -1) {
				for word := range strings.FieldsSeq(m[1]) {
					next := child(at, word)
					if next == nil && at.HasSubCommands() {
						t.Errorf("%s: %q names no command", e.Code, text)
					} else if next != nil {
						at = next
					}
				}
				seen++
				if m := flag.FindAllStringSubmatch(text, -1); len(m) > 0 {
					at.InitDefaultHelpFlag()
					for _, f := range m {
						if at.Flags().Lookup(f[1]) == nil && at.InheritedFlags().Lookup(f[1]) == nil {
							t.Errorf("%s: %q: %s has no --%s", e.Code, text, at.CommandPath(), f[1])
						}
					}
				}
				at = root
			}
		}
	}
	if seen < 30 {
		t.Errorf("only %d commands", seen)
	}
}

// TestErrorsPage: the page of errors has a heading for every code that an answer's
// type leads to, and names all the others.
func TestErrorsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "errors.md"))
	if err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	a := &app{stdout: &shown, terminal: terminal, flags: flags{output: "table"}}
	if err := a.explainError("unknown_agent"); err != nil || !strings.Contains(string(page), "$ parley errors unknown_agent\n"+shown.String()+"```\n") {
		t.Errorf("docs/errors.md does not show what is printed: %v\n%s", err, shown.String())
	}
	for _, e := range errorBook() {
		want := "`" + e.Code + "`"
		if e.HTTPStatus != 0 {
			want = "\n## " + e.Code + "\n"
		}
		if !strings.Contains(string(page), want) {
			t.Errorf("docs/errors.md lacks %q", want)
		}
	}
}

// TestNegativeNumbers: only the command about codes reads -3 as a beginning.
func TestNegativeNumbers(t *testing.T) {
	t.Parallel()
	newErrorsCommand(&app{}).Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && strings.HasPrefix(f.Name, "code-") {
			t.Errorf("--%s is shown", f.Name)
		}
	})
	var got string
	if err := (negative{"3", &got}).Set("2603"); err != nil || got != "-32603" {
		t.Errorf("%q %v", got, err)
	}
	if err := (negative{"3", &got}).Set("1"); err == nil {
		t.Errorf("two numbers give %q", got)
	}
}
