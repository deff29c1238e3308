package dryrun

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow"
)

var update = flag.Bool("update", false, "rewrite what is expected in testdata")

// TestGoldenDryRuns plays the scripts of testdata/runs: each file has a workflow,
// a script, and what is told of it.
func TestGoldenDryRuns(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "runs", "*.txtar"))
	if err != nil || len(files) < 8 {
		t.Fatalf("testdata/runs: %d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { golden(t, file) })
	}
}

func golden(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(archive.Files) < 2 || archive.Files[0].Name != "workflow.yaml" || archive.Files[1].Name != "script.yaml" {
		t.Fatalf("%s holds workflow.yaml, script.yaml and want.txt", file)
	}
	def, problems := workflow.Parse(workflow.ParseOptions{File: "workflow.yaml"}, archive.Files[0].Data)
	if def == nil {
		t.Fatal(problems)
	}
	got := told(t, def, archive.Files[1].Data)
	if again := told(t, def, archive.Files[1].Data); got != again {
		t.Errorf("a second time it gives something else:\n%s", cmp.Diff(got, again))
	}
	want := ""
	if len(archive.Files) > 2 {
		want = string(archive.Files[2].Data)
	}
	if diff := cmp.Diff(want, got); diff != "" && !*update {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
	if *update {
		archive.Files = append(archive.Files[:2], txtar.File{Name: "want.txt", Data: []byte(got)})
		if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// told plays every test of a script and tells what happened.
func told(t *testing.T, def *workflow.Definition, source []byte) string {
	t.Helper()
	script, problems := Parse("script.yaml", source)
	if script == nil {
		var b strings.Builder
		for _, p := range problems {
			fmt.Fprintf(&b, "%s [%s]\n", p, p.Path)
		}
		return b.String()
	}
	var b strings.Builder
	for _, test := range script.Tests {
		if !script.Single {
			fmt.Fprintf(&b, "test %s\n", test.Name)
		}
		r, err := Run(t.Context(), Config{Definition: def, Test: test, Run: "dry", Limits: DefaultLimits(), Event: func(e parley.Event) { tell(&b, test, e) }})
		if err != nil {
			fmt.Fprintf(&b, "error %v\n", err)
			continue
		}
		if r.Refused != nil {
			fmt.Fprintf(&b, "refused %v\n", r.Refused)
			for _, f := range r.Failures {
				fmt.Fprintf(&b, "fails %s\n", f)
			}
			continue
		}
		for _, c := range r.Calls {
			fmt.Fprintf(&b, "call %s %s by %s with %s\n", Elapsed(c.At), c.Agent, c.Step, c.Input)
		}
		for _, e := range r.Emitted {
			fmt.Fprintf(&b, "emit %s %s/%s %s\n", Elapsed(e.Time.Sub(test.At)), e.Name, e.Key, e.Data)
		}
		fmt.Fprintf(&b, "%s %s", r.Run.Status, Elapsed(r.Run.EndedAt.Sub(r.Run.CreatedAt)))
		if r.Run.Error != nil {
			fmt.Fprintf(&b, " %s", errorText(r.Run.Error))
		} else {
			fmt.Fprintf(&b, " %s", r.Run.Output)
		}
		b.WriteByte('\n')
		for _, f := range r.Failures {
			fmt.Fprintf(&b, "fails %s\n", f)
		}
		replays(t, def, r)
	}
	return b.String()
}

func tell(b *strings.Builder, test Test, e parley.Event) {
	fmt.Fprintf(b, "  %s %s", Elapsed(e.At.Sub(test.At)), e.Type)
	if e.Step != "" {
		fmt.Fprintf(b, " %s.%d", e.Step, e.Attempt)
	}
	var data struct {
		Agent    string           `json:"agent"`
		Error    *parley.Error    `json:"error"`
		Output   json.RawMessage  `json:"output"`
		Question *parley.Question `json:"question"`
		At       string           `json:"at"`
	}
	if json.Unmarshal(e.Data, &data) == nil {
		for _, text := range []string{data.Agent, string(data.Output)} {
			if text != "" {
				b.WriteString(" " + text)
			}
		}
		if data.Error != nil {
			b.WriteString(" " + data.Error.Error())
		}
		if data.Question != nil {
			b.WriteString(" " + data.Question.Text)
		}
	}
	b.WriteByte('\n')
}

// replays holds the history of a dry run to what is true of any: replayed, it
// gives the same run.
func replays(t *testing.T, def *workflow.Definition, r *Result) {
	t.Helper()
	s := workflow.NewState(r.Run.ID, def, workflow.DefaultRunLimits())
	for _, e := range r.Events {
		if err := s.Replay(e); err != nil {
			t.Fatal(err)
		}
	}
	again, run := s.View(), r.Run
	run.UpdatedAt = again.UpdatedAt
	a, errA := json.Marshal(run)
	b, errB := json.Marshal(again)
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Errorf("replayed, it is another run:\n%s\n%s", a, b)
	}
}
