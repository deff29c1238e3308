package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// everyInput are the two ways that the run of every kind goes.
var everyInput = map[string]string{"completes": `{"key":"k"}`, "compensates": `{"key":"k","fail":true}`}

// everyChild is the workflow that steps of the run start.
const everyChild = `
name: kid
input: {type: object, required: [text]}
steps:
  - {id: hear, agent: echo, input: {text: "${workflow.input.text}"}}
  - {id: again, agent: flaky, input: {text: "${hear.output.text}"}, retry: {attempts: 2, delay: 20ms, jitter: none}}
  - {id: fails, if: workflow.input.text == "bad", fail: {code: Kid, message: "as asked"}}
output: "${again.output.text}"
`

// evidence is what must not depend on a crash.
type evidence struct {
	Status string
	Output string
	Error  string
	// Steps and History are by path; Calls by task.
	Steps   map[string]string
	History map[string][]string
	Calls   map[string]string
	// Children are how the runs have ended that were waited for, by step.
	Children map[string][]string
	// Undone is sorted: each history is held to the order that it has itself, for
	// steps side by side may end in another one.
	Undone []string
}

// deployed makes a database that knows the workflow.
func deployed(t *testing.T, database string) {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("testdata", "every_kind.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), database, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	x := New(Config{Store: db, Now: time.Now})
	definitions := 0
	newID := func() string { definitions++; return fmt.Sprintf("d-%d", definitions) }
	c := NewCatalog(CatalogConfig{DB: db, Executor: x, Now: time.Now, NewID: newID, KnownAgent: func(context.Context, string) bool { return true }})
	for _, doc := range [][]byte{[]byte(everyChild), []byte("name: idle\nsteps: [{id: w, event: never}]\n"), source} {
		if _, _, err := c.Apply(t.Context(), parley.ApplyRequest{File: "every_kind.yaml", Source: doc}); err != nil {
			t.Fatal(err)
		}
	}
}

// read gathers the evidence of the world's run, and holds its history to what the
// executors had in memory.
func (w *world) read(ctx context.Context) (e evidence, err error) {
	db, err := store.Open(ctx, w.database, store.Options{})
	if err != nil {
		return e, err
	}
	defer db.Close()
	h, err := db.History(ctx, "run-1")
	if err != nil {
		return e, err
	}
	run, err := w.replay(ctx, db, h)
	if err != nil {
		return e, err
	}
	e = evidence{Status: string(run.Status), Output: timeless(run.Output), Error: timeless(run.Error), Steps: map[string]string{}, History: map[string][]string{}, Calls: map[string]string{}}
	for i := range run.Steps {
		e.Steps[run.Steps[i].ID] = timeless(&run.Steps[i])
	}
	ended := map[string]int64{}
	last := int64(0)
	for _, ev := range h.Events {
		e.History[ev.Step] = append(e.History[ev.Step], fmt.Sprintf("%s %d %s", ev.Type, ev.Attempt, timeless(ev.Data)))
		switch ev.Type {
		case parley.EventStepCompleted:
			ended[ev.Step] = ev.Seq
		case parley.EventRunPhase:
			last = ev.Seq
		case parley.EventStepCompensating:
			if last > 0 && ended[ev.Step] > last {
				return e, fmt.Errorf("%s is undone too late", ev.Step)
			}
			if last > 0 {
				last = ended[ev.Step]
			}
			e.Undone = append(e.Undone, ev.Step)
		default:
		}
	}
	slices.Sort(e.Undone)
	if err := w.readChildren(ctx, db, &e); err != nil {
		return e, err
	}
	rows, err := w.attempts(ctx, db)
	if err != nil {
		return e, err
	}
	return e, w.judge(&e, rows)
}

// readChildren gathers the evidence of the runs that steps have started: of each
// attempt one, and nothing is left of what was asked.
func (w *world) readChildren(ctx context.Context, db *store.DB, e *evidence) error {
	runs, total, err := db.Runs(ctx, parley.RunQuery{Parent: "run-1", Page: parley.Page{Limit: 100}})
	if err != nil || total != len(runs) {
		return fmt.Errorf("%d of %d children: %w", len(runs), total, err)
	}
	e.Children = map[string][]string{}
	for i := range runs {
		how := timeless(json.RawMessage(fmt.Sprintf("%q", string(runs[i].Status)+" "+string(runs[i].Error))))
		step := runs[i].ParentStep
		if step == "away" || strings.HasPrefix(step, "lost/") {
			how = "goes on" // or has ended by now
		}
		e.Children[step] = append(e.Children[step], how)
	}
	left, err := db.AskedChildren(ctx, "", 100)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("still asked for: %+v", left)
	}
	return err
}

// judge puts the calls into the evidence: each is of an attempt that the run has,
// and once, or twice if its process died over it.
func (w *world) judge(e *evidence, rows []store.Attempt) error {
	for i := range rows {
		a := &rows[i]
		calls, of := w.calls[a.ID], w.steps[a.Run]
		if a.State != store.AttemptClosed {
			return fmt.Errorf("%s is %s after the end", a.ID, a.State)
		}
		if a.Agent == "slow" && len(calls) == 0 {
			calls = []agentCall{{agent: a.Agent, input: string(a.Input)}} // it has lost before it was called
		}
		if len(calls) == 0 {
			return fmt.Errorf("%s was never called", a.ID)
		}
		for n, c := range calls {
			if c.agent != calls[0].agent || c.input != calls[0].input {
				return fmt.Errorf("%s was called with %v, then %v", a.ID, calls[0], c)
			}
			if n > 0 && (c.life == calls[n-1].life || w.settled[a.ID]) {
				return fmt.Errorf("%s was called again: %v", a.ID, calls)
			}
		}
		e.Calls[of+strings.TrimPrefix(a.ID, a.Run)] += calls[0].agent + " " + calls[0].input
	}
	for id := range w.calls {
		run, _, _ := strings.Cut(id, ".")
		if of := w.steps[run]; of != "away" && e.Calls[of+strings.TrimPrefix(id, run)] == "" {
			return fmt.Errorf("%s was called, and is no attempt", id)
		}
	}
	return nil
}

// replay goes through a stored history event by event. Wherever an executor has
// decided, the state is what that executor had.
func (w *world) replay(ctx context.Context, db *store.DB, h store.History) (parley.Run, error) {
	def, err := newDefinitions(db, time.Now).behind(ctx, h)
	if err != nil {
		return parley.Run{}, err
	}
	state := workflow.NewState(h.Run.ID, def, workflow.DefaultRunLimits())
	compared := 0
	for _, e := range h.Events {
		if err := state.Replay(e); err != nil {
			return parley.Run{}, err
		}
		had, ok := w.views[e.Seq]
		if !ok {
			continue
		}
		compared++
		if got, err := json.Marshal(state.View()); err != nil || !bytes.Equal(got, had) {
			return parley.Run{}, fmt.Errorf("replayed to event %d (%s), the run is not what the executor had: %s", e.Seq, e.Type, cmp.Diff(string(had), string(got)))
		}
	}
	if compared < 30 {
		return parley.Run{}, fmt.Errorf("only %d states compared", compared)
	}
	return state.View(), nil
}

// timeless gives a value as JSON without its times.
func timeless(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	b = childID.ReplaceAll(b, []byte("child"))
	var value any
	if err := json.Unmarshal(b, &value); err != nil {
		return err.Error()
	}
	b, err = json.Marshal(withoutTimes(value))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// childID is the id of a run that a step has started: they are given in any order.
var childID = regexp.MustCompile(`run-c-\d+`)

func withoutTimes(v any) any {
	switch v := v.(type) {
	case string:
		if _, err := time.Parse(time.RFC3339Nano, v); err == nil {
			return "then"
		}
	case []any:
		for i := range v {
			v[i] = withoutTimes(v[i])
		}
	case map[string]any:
		for k := range v {
			if v[k] = withoutTimes(v[k]); strings.HasSuffix(k, "waited_ms") {
				v[k] = "a while"
			}
		}
	}
	return v
}

// lastCuts is how many moments of the run that completes are tried: until then
// it does what the other one does.
const lastCuts = 6

// reference is a run without a crash, and the moments at which it may be cut:
// the event that each of its commits ends with.
func reference(ctx context.Context, w *world) (evidence, []cut, error) {
	if err := w.live(ctx, &dying{}); err != nil {
		return evidence{}, nil, err
	}
	e, err := w.read(ctx)
	cuts := append([]cut{{event: 1}}, w.commits...)
	// How far those come that are not waited for is not the same each time.
	cuts = slices.DeleteFunc(cuts, func(c cut) bool { return c.child == "away" || strings.HasPrefix(c.child, "lost/") })
	if e.Status == string(parley.RunCompleted) {
		cuts = slices.DeleteFunc(cuts, func(c cut) bool { return c.child != "" })
		cuts = cuts[len(cuts)-lastCuts:]
	}
	thin := cuts[:0]
	for n := 0; n < len(cuts); n += cutsEvery {
		thin = append(thin, cuts[n])
	}
	cuts = thin
	return e, cuts, err
}

// crashed is the same run with a process that dies.
func crashed(ctx context.Context, w *world, d *dying) (evidence, error) {
	if err := w.live(ctx, d); err != nil {
		return evidence{}, fmt.Errorf("first process: %w", err)
	}
	if !d.gone.Load() {
		return evidence{}, fmt.Errorf("there was no event %v", d.cut)
	}
	if err := w.live(ctx, &dying{}); err != nil {
		return evidence{}, fmt.Errorf("second process: %w", err)
	}
	return w.read(ctx)
}

// sqliteWorld copies a database to a new folder.
func sqliteWorld(t *testing.T, template []byte, input string) *world {
	t.Helper()
	file := filepath.Join(t.TempDir(), "parley.db")
	if err := os.WriteFile(file, template, 0o600); err != nil {
		t.Fatal(err)
	}
	return newWorld(file, input, pace{200 * time.Millisecond, time.Second, time.Minute})
}

// TestC10_CrashAtEveryEventOfEveryKind: a run that uses every kind of step is cut
// off before and after each commit of its history, and goes on in another process.
// Calls, steps, history and result are those of a run that nothing happened to,
// but for times. Time is virtual here.
func TestC10_CrashAtEveryEventOfEveryKind(t *testing.T) {
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
			var want evidence
			var cuts []cut
			w := sqliteWorld(t, template, input)
			synctest.Test(t, func(t *testing.T) {
				var err error
				if want, cuts, err = reference(t.Context(), w); err != nil {
					t.Fatal(err)
				}
			})
			checkKinds(t, want, name == "compensates")
			for _, event := range cuts {
				for _, after := range []bool{false, true} {
					t.Run(fmt.Sprintf("event %s %d after %t", event.child, event.event, after), func(t *testing.T) {
						t.Parallel()
						w := sqliteWorld(t, template, input)
						synctest.Test(t, func(t *testing.T) {
							got, err := crashed(t.Context(), w, &dying{cut: event, after: after})
							if err != nil {
								t.Fatal(err)
							}
							if d := cmp.Diff(want, got); d != "" {
								t.Errorf("(-without a crash +with):\n%s", d)
							}
						})
					})
				}
			}
		})
	}
}

// everyEvent are the types that the history of either run has to have.
var everyEvent = []parley.EventType{
	parley.EventRunStarted, parley.EventStepScheduled, parley.EventStepCompleted, parley.EventStepFailed, parley.EventStepSkipped,
	parley.EventStepCancelled, parley.EventStepRetrying, parley.EventStepAttemptFailed, parley.EventStepHandling, parley.EventStepCompensating,
	parley.EventStepCompensated, parley.EventTimerSet, parley.EventTimerFired, parley.EventSignalReceived, parley.EventRunPhase,
	parley.EventChildStarted, parley.EventChildEnded,
}

// checkKinds makes sure that the reference is what the tests are about.
func checkKinds(t *testing.T, e evidence, fails bool) {
	t.Helper()
	status := string(parley.RunCompleted)
	if fails {
		status = string(parley.RunFailed)
	}
	if e.Status != status || len(e.Steps) < 40 {
		t.Fatalf("the run is %s %s with %d steps", e.Status, e.Error, len(e.Steps))
	}
	all := fmt.Sprint(e.History)
	for _, kind := range everyEvent {
		if !strings.Contains(all, string(kind)+" ") {
			t.Errorf("no event %s", kind)
		}
	}
	want := []string{"region/inner"}
	if fails {
		want = []string{"ask", "each_one[0]/work", "each_one[1]/work", "each_one[3]/work", "kid", "region/inner", "team#2/first", "team/first"}
	}
	if d := cmp.Diff(want, e.Undone); d != "" {
		t.Errorf("undone (-want +got):\n%s", d)
	}
}

// TestC10_EveryKindIsCrashed: the workflow of these tests has every kind of step
// that there is, and each of them in the result of its parser.
func TestC10_EveryKindIsCrashed(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile(filepath.Join("testdata", "every_kind.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	def, problems := workflow.Parse(workflow.ParseOptions{Version: "1"}, source)
	if def == nil {
		t.Fatal(problems)
	}
	missing := map[workflow.Kind]bool{
		workflow.KindAgent: true, workflow.KindGroup: true, workflow.KindParallel: true, workflow.KindConditional: true, workflow.KindSwitch: true,
		workflow.KindForkJoin: true, workflow.KindLoop: true, workflow.KindWait: true, workflow.KindSet: true, workflow.KindFail: true,
		workflow.KindFinish: true, workflow.KindValidate: true, workflow.KindAwait: true, workflow.KindEmit: true, workflow.KindApproval: true,
		workflow.KindPlan: true, workflow.KindSubWorkflow: true,
	}
	for _, s := range def.Steps {
		delete(missing, s.Kind)
	}
	if len(missing) > 0 || len(def.Steps) < 40 {
		t.Errorf("%d steps; missing are %v", len(def.Steps), missing)
	}
}

// postgresEvery is how many of the moments are left to SQLite for each one that
// PostgreSQL is tried at, where time is real; postgresBeside how many are tried
// at a time. postgresPatience is the patience of each: a busy machine may take
// minutes over what takes seconds.
const (
	postgresEvery    = 3
	postgresBeside   = 8
	postgresPatience = 10 * time.Minute
)

// TestC10_CrashOnPostgreSQL is the same with a database that others could share, in
// real time: at every third moment.
func TestC10_CrashOnPostgreSQL(t *testing.T) {
	template := pgtest.Database(t)
	deployed(t, template)
	for name, input := range everyInput {
		t.Run(name, func(t *testing.T) {
			first := newWorld(pgtest.Copy(t, template), input, pace{40 * time.Millisecond, 200 * time.Millisecond, postgresPatience})
			want, cuts, err := reference(t.Context(), first)
			if err != nil {
				t.Fatal(err)
			}
			checkKinds(t, want, name == "compensates")
			var wg sync.WaitGroup
			places := make(chan struct{}, postgresBeside)
			for n := 0; n < 2*len(cuts); n += postgresEvery {
				d := &dying{cut: cuts[n/2], after: n%2 == 1}
				w := newWorld(pgtest.Copy(t, template), input, first.pace)
				places <- struct{}{}
				wg.Go(func() {
					defer func() { <-places }()
					got, err := crashed(t.Context(), w, d)
					if err != nil {
						t.Errorf("event %v after %t: %v", d.cut, d.after, err)
					} else if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("event %v after %t (-without a crash +with):\n%s", d.cut, d.after, diff)
					}
				})
			}
			wg.Wait()
		})
	}
}
