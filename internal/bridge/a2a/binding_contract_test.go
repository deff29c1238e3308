package a2a_test

import (
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a"
	"github.com/parley-project/parley/internal/bridge/adaptertest"
)

// suite is the dialogues of testdata.
func suite() adaptertest.Suite {
	return adaptertest.Suite{
		Dir: "testdata",
		New: func(x *bridge.Exchange, log *slog.Logger, obs bridge.TranslationObserver) bridge.Adapter {
			return a2a.New(a2a.Options{
				Exchange: x, Logger: log, Observer: obs,
				Push: func(taskID string) (url, token string, ok bool) {
					return "https://parley.test/a2a/push/" + taskID, "token-of-the-task", true
				},
			})
		},
	}
}

// TestBindingContract plays the dialogues over every other transport (AD-14: the
// same adapter, the same contract): those of A2A 1.0 over HTTP+JSON and gRPC, and
// those of both dialects with agents on stdio and WebSocket, as far as these can
// say what is said. The same must come of them as over JSON-RPC and HTTP. A2A 0.3
// is not played over HTTP+JSON and gRPC: Parley has it over JSON-RPC only. Then
// it holds the dialogues to testdata/rows.txt.
func TestBindingContract(t *testing.T) {
	over := map[string]adaptertest.Played{}
	for _, b := range []adaptertest.Binding{adaptertest.REST(adaptertest.Release101), grpcAgents(adaptertest.Release101)} {
		t.Run(b.Name, func(t *testing.T) { over[b.Name] = adaptertest.RunBinding(t, suite(), b) })
	}
	for name, url := range map[string]string{"stdio": "stdio:agent", "WebSocket": "ws://agent.test/run"} {
		t.Run(name, func(t *testing.T) { over[name] = adaptertest.RunLines(t, suite(), a2a.LinkAgents(url)) })
	}
	for _, b := range over {
		if len(b.Played)+len(b.Own)+len(b.Unsaid) != b.Dialogues {
			return // some were not asked for, or failed
		}
	}
	if len(over) == 4 {
		checkRows(t, columns(over))
	}
}

// TestRelease100: the dialogues of errors once more, with the statuses that A2A
// 1.0.0 has for them. The reason beside the status says which error it is.
func TestRelease100(t *testing.T) {
	for _, b := range []adaptertest.Binding{adaptertest.REST(adaptertest.Release100), grpcAgents(adaptertest.Release100)} {
		begin := b.Agent
		b.Agent = func(turns []adaptertest.Turn) (adaptertest.BindingAgent, error) {
			agent, err := begin(turns)
			if err == nil && len(agent.Said()) == 0 {
				return nil, &adaptertest.UnsayableError{Rule: "it has no errors"}
			}
			return agent, err
		}
		t.Run(b.Name, func(t *testing.T) { adaptertest.RunBinding(t, suite(), b) })
	}
}

// TestRaisedContract plays the dialogues of the seeds, which name no dialect, in
// A2A 1.0: what goes wrong on the way is the same over every binding, and so is
// what agents get for their answers to it.
func TestRaisedContract(t *testing.T) {
	for _, b := range []adaptertest.Binding{adaptertest.REST(adaptertest.Release101), grpcAgents(adaptertest.Release101)} {
		b.Raise = true
		t.Run(b.Name, func(t *testing.T) { adaptertest.RunBinding(t, suite(), b) })
	}
}

// columns are the dialogues by what they are spoken in.
func columns(over map[string]adaptertest.Played) map[string][]string {
	rest, grpc := over["HTTP+JSON"], over["GRPC"]
	all := map[string][]string{
		"HTTP+JSON": slices.Concat(rest.Played, rest.Own), "GRPC": slices.Concat(grpc.Played, grpc.Own),
		"1.0": slices.Clone(rest.Played), "stdio": over["stdio"].Played, "WebSocket": over["WebSocket"].Played,
	}
	for name, why := range rest.Unsaid {
		column := "1.0"
		if why.Rule == adaptertest.Only10 {
			column = "0.3"
		}
		all[column] = append(all[column], name)
	}
	return all
}

// row is what is known about agents in one respect.
type row struct {
	name      string
	dialogues []string
	// not gives the reason for a column without any.
	not map[string]string
}

// checkRows holds every row to having a dialogue in every column, or a reason;
// every reason to being needed, and the tests that it names to exist; and every
// dialogue about agents to having a row.
func checkRows(t *testing.T, columns map[string][]string) {
	t.Helper()
	text, err := os.ReadFile("testdata/rows.txt")
	if err != nil {
		t.Fatal(err)
	}
	tests := testsOf(t)
	var patterns []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		r, err := readRow(line)
		if err != nil {
			t.Fatal(err)
		}
		patterns = append(patterns, r.dialogues...)
		for column, dialogues := range columns {
			has := slices.ContainsFunc(dialogues, func(d string) bool { return matches(r.dialogues, d) })
			switch reason := r.not[column]; {
			case !has && reason == "":
				t.Errorf("row %q has no dialogue over %s, and no reason", r.name, column)
			case has && reason != "":
				t.Errorf("row %q has a dialogue over %s, and the reason %q for none", r.name, column, reason)
			}
		}
		for _, name := range regexp.MustCompile(`\bTest[A-Z]\w*`).FindAllString(line, -1) {
			if !tests[name] {
				t.Errorf("row %q names %s, which does not exist", r.name, name)
			}
		}
	}
	for _, dialogues := range columns {
		for _, d := range dialogues {
			if strings.HasPrefix(d, "A2A-") && !matches(patterns, d) {
				t.Errorf("dialogue %s belongs to no row", d)
			}
		}
	}
}

// readRow reads "row | dialogues | column: reason; column: reason".
func readRow(line string) (row, error) {
	parts := strings.Split(line, "|")
	if len(parts) != 3 {
		return row{}, fmt.Errorf("testdata/rows.txt: %q has not three columns", line)
	}
	r := row{name: strings.TrimSpace(parts[0]), dialogues: strings.Fields(parts[1]), not: map[string]string{}}
	every := []string{"0.3", "1.0", "HTTP+JSON", "GRPC", "stdio", "WebSocket"}
	column := regexp.MustCompile(`(?:^|; )(all|lines|0\.3|1\.0|HTTP\+JSON|GRPC): `)
	reasons := strings.TrimSpace(parts[2])
	at := column.FindAllStringSubmatchIndex(reasons, -1)
	for i, m := range at {
		end := len(reasons)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		names := []string{reasons[m[2]:m[3]]}
		switch names[0] {
		case "all":
			names = every
		case "lines":
			names = every[4:]
		}
		for _, name := range names {
			r.not[name] = reasons[m[1]:end]
		}
	}
	if reasons != "" && len(at) == 0 {
		return row{}, fmt.Errorf("testdata/rows.txt: %q gives no column for its reason", line)
	}
	return r, nil
}

// matches says whether one of the patterns fits a dialogue.
func matches(patterns []string, dialogue string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, _ := path.Match(p, dialogue)
		return ok
	})
}

// testsOf are the tests of all the packages below internal.
func testsOf(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir("../..", func(file string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		src, err := os.ReadFile(file)
		for _, m := range declared.FindAllSubmatch(src, -1) {
			all[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
