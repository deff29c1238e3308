package executor

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/tracing"
	"github.com/parley-project/parley/internal/tracing/tracingtest"
)

var updateSpans = flag.Bool("update-spans", false, "write the trees of spans into testdata")

// spans is what a run of every kind has recorded.
type spans struct {
	all []tracingtest.Span
	run parley.Run
	w   *world
}

// recordedSpans carries the world's run out in one process, or in two if the first dies.
func recordedSpans(t *testing.T, w *world, d *dying) (s spans) {
	t.Helper()
	for _, d := range []*dying{d, {}} {
		var kept tracingtest.Memory
		w.tracer = tracing.New(tracing.Config{Exporter: &kept, Sample: 1, Random: rand.Uint64})
		if err := w.live(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if err := w.tracer.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.all = append(s.all, kept.Spans()...)
		if !d.gone.Load() {
			break
		}
	}
	db, err := store.Open(t.Context(), w.database, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	h, err := db.History(t.Context(), "run-1")
	if err != nil {
		t.Fatal(err)
	}
	if s.run, err = w.replay(t.Context(), db, h); err != nil {
		t.Fatal(err)
	}
	s.w = w
	return s
}

// waitedFor leaves out what belongs to the runs that nobody waits for: how far they come
// is not the same each time.
func (s spans) waitedFor() []tracingtest.Span {
	return slices.DeleteFunc(slices.Clone(s.all), func(x tracingtest.Span) bool {
		step := s.w.steps[x.Attributes["parley.run.id"]]
		return step == "away" || strings.HasPrefix(step, "lost/")
	})
}

// check holds spans to be one tree, with the run's own at its root, and each to lie in
// the time of the run. known are spans of which the tree may speak besides.
func (s spans) check(t *testing.T, known ...tracingtest.Span) {
	t.Helper()
	ids := map[string]tracingtest.Span{}
	for _, x := range append(known, s.waitedFor()...) {
		ids[x.ID] = x
	}
	seen := map[string]bool{}
	for _, x := range s.waitedFor() {
		if seen[x.ID] {
			t.Errorf("%s (%s) is there twice", x.Name, x.ID)
		}
		seen[x.ID] = true
		root := x.Name == "run every-kind"
		if _, ok := ids[x.Parent]; ok == root || root && x.Parent != "" || x.Trace != s.all[0].Trace {
			t.Errorf("%s: parent %q, trace %s; the others have %s", x.Name, x.Parent, x.Trace, s.all[0].Trace)
		}
		if x.End.Before(x.Start) || x.Start.Before(s.run.CreatedAt) || x.End.After(*s.run.EndedAt) {
			t.Errorf("%s is from %s to %s, the run from %s to %s", x.Name, x.Start, x.End, s.run.CreatedAt, s.run.EndedAt)
		}
	}
}

// steps gives the spans of the run's own steps, by path.
func (s spans) steps() map[string]tracingtest.Span {
	m := map[string]tracingtest.Span{}
	for _, x := range s.all {
		if x.Attributes["parley.run.id"] == "run-1" && strings.HasPrefix(x.Name, "step ") {
			m[x.Attributes["parley.step.path"]] = x
		}
	}
	return m
}

// TestSpans_OfEveryKind: a run of every kind of step gives one tree: each step that was
// carried out is in it once, below what it stands in, with its times and its error; each
// call is below its step, and is what its agent was told; sub-workflows are below the
// steps that have started them.
func TestSpans_OfEveryKind(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "parley.db")
	deployed(t, file)
	template, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, input := range everyInput {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := sqliteWorld(t, template, input)
			synctest.Test(t, func(t *testing.T) {
				s := recordedSpans(t, w, &dying{})
				s.check(t)
				s.checkSteps(t)
				s.checkCalls(t)
				s.checkTree(t, filepath.Join("testdata", "every_kind_"+name+".spans"))
			})
		})
	}
}

func (s spans) checkSteps(t *testing.T) {
	t.Helper()
	got := s.steps()
	for i := range s.run.Steps {
		step := &s.run.Steps[i]
		x, ok := got[step.ID]
		delete(got, step.ID)
		began := step.Status.Terminal() && step.Status != parley.StepSkipped && step.ScheduledAt != nil &&
			(step.Status != parley.StepCancelled || !step.ScheduledAt.Equal(*step.EndedAt))
		if ok != began {
			t.Errorf("%s is %s and has a span: %v", step.ID, step.Status, ok)
			continue
		}
		if !ok {
			continue
		}
		if !x.Start.Equal(*step.ScheduledAt) || !x.End.Equal(*step.EndedAt) || x.Attributes["parley.step.status"] != string(step.Status) {
			t.Errorf("%s: %+v, the step is %+v", step.ID, x, step)
		}
		if code := codeOf(step.Error); x.Status != code || x.Failed != (code != "") || x.Attributes["error.type"] != code {
			t.Errorf("%s has failed with %q, the span says %q %v", step.ID, code, x.Status, x.Failed)
		}
	}
	if len(got) > 0 {
		t.Errorf("spans of no step: %v", got)
	}
}

func codeOf(err *parley.Error) string {
	if err == nil {
		return ""
	}
	return string(err.Code)
}

// checkCalls: what each agent was told is the span of its call.
func (s spans) checkCalls(t *testing.T) {
	t.Helper()
	calls := map[string]tracingtest.Span{}
	for _, x := range s.all {
		if x.Kind == "client" {
			calls[x.ID] = x
		}
	}
	for task, list := range s.w.calls {
		for _, c := range list {
			x, ok := calls[c.trace.SpanID()]
			delete(calls, c.trace.SpanID())
			if !ok || x.Attributes["parley.task.id"] != task || x.Name != "invoke_agent "+c.agent || x.Trace != c.trace.ID() {
				t.Errorf("%s was called below %+v: %+v", task, c.trace, x)
			}
		}
	}
	if len(calls) > 0 {
		t.Errorf("spans of no call: %v", calls)
	}
}

func (s spans) checkTree(t *testing.T, file string) {
	t.Helper()
	got := tracingtest.Tree(s.waitedFor())
	if *updateSpans {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestSpans_OfTwoProcesses: a run that a process has begun and another one ends gives one
// tree all the same; what is missing are spans that ended in the moment of the crash.
func TestSpans_OfTwoProcesses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "parley.db")
	deployed(t, file)
	template, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var want spans
	whole := sqliteWorld(t, template, everyInput["completes"])
	synctest.Test(t, func(t *testing.T) { want = recordedSpans(t, whole, &dying{}) })
	for event := int64(5); event < 100; event += 12 * cutsEvery {
		t.Run(fmt.Sprintf("event %d", event), func(t *testing.T) {
			t.Parallel()
			w := sqliteWorld(t, template, everyInput["completes"])
			synctest.Test(t, func(t *testing.T) {
				s := recordedSpans(t, w, &dying{cut: cut{event: event}, after: true})
				s.check(t, want.all...)
				missing := len(want.steps()) - len(s.steps())
				if missing < 0 || missing > 4 {
					t.Errorf("%d steps are missing", missing)
				}
			})
		})
	}
}
