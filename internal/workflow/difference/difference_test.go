package difference_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/parley-project/parley/internal/workflow"
	"github.com/parley-project/parley/internal/workflow/difference"
)

var update = flag.Bool("update", false, "rewrite the expected differences in testdata")

func tree(t *testing.T, source []byte) *workflow.Value {
	t.Helper()
	v, problems := workflow.ReadTree(workflow.ParseOptions{}, source)
	if v == nil {
		t.Fatal(problems)
	}
	return v
}

func lines(d difference.Difference) string {
	var b strings.Builder
	for _, c := range d.Changes {
		fmt.Fprintf(&b, "%s step=%s member=%s %s -> %s\n", c.Change, c.Step, c.Member, c.Old, c.New)
	}
	for _, l := range d.Lost {
		fmt.Fprintf(&b, "lost %s: %s\n", l.Step, l.Reason)
	}
	fmt.Fprintf(&b, "same %v, rerun %v\n", d.Same, d.Rerun)
	return b.String()
}

// TestC6_Differences compares each pair of documents in testdata, NAME.old and
// NAME.new, with NAME.want. A rerun needs every step with its kind (rule C6).
func TestC6_Differences(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("testdata: %d files, %v", len(files), err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		data := map[string][]byte{}
		for _, f := range archive.Files {
			data[f.Name] = f.Data
		}
		out := &txtar.Archive{Comment: archive.Comment}
		for _, f := range archive.Files {
			name, ok := strings.CutSuffix(f.Name, ".old")
			if !ok {
				continue
			}
			before, after := tree(t, f.Data), tree(t, data[name+".new"])
			got := lines(difference.Of(before, after))
			if diff := cmp.Diff(string(data[name+".want"]), got); diff != "" && !*update {
				t.Errorf("%s: %s (-want +got):\n%s", file, name, diff)
			}
			if d := difference.Of(before, before); !d.Same || !d.Rerun || len(d.Changes) > 0 {
				t.Errorf("%s: %s differs from itself: %s", file, name, lines(d))
			}
			out.Files = append(out.Files, f, txtar.File{Name: name + ".new", Data: data[name+".new"]}, txtar.File{Name: name + ".want", Data: []byte(got)})
		}
		if *update {
			if err := os.WriteFile(file, txtar.Format(out), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestManyMembersTakeTheirTimeOnce: what a comparison costs grows with the length of the
// documents.
func TestManyMembersTakeTheirTimeOnce(t *testing.T) {
	var members strings.Builder
	for i := range 150_000 {
		fmt.Fprintf(&members, `"k%d":1,`, i)
	}
	read := func(x string) *workflow.Value {
		object := "{" + members.String() + `"x":` + x + "}"
		o := workflow.ParseOptions{Limits: workflow.ParseLimits{SourceBytes: 16 << 20, Nodes: 1_000_000}}
		v, problems := workflow.ReadTree(o, []byte(`{"name":"t","steps":[{"id":"a","set":`+object+`},{"id":"b","set":[`+object+`]}]}`))
		if v == nil {
			t.Fatal(problems)
		}
		return v
	}
	before, after := read("1"), read("2")
	start := time.Now()
	d := difference.Of(before, after)
	if took := time.Since(start); len(d.Changes) != 2 || took > time.Minute {
		t.Errorf("%d changes after %s", len(d.Changes), took)
	}
}
