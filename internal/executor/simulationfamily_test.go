package executor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// simulatedKid is the run that a step of the simulated runs starts.
const simulatedKid = `
name: kid
concurrency: {limit: 2}
input: {type: object, required: [key], properties: {key: {type: string}}}
steps:
  - {id: work, agent: long, input: {text: work}, on_error: continue}
  - {id: may, approval: {title: Go on, on_timeout: approve}, timeout: 10s}
  - {id: told, event: told, key: "${workflow.input.key}", timeout: 10s, on_error: continue}
output: "${may.output}"
`

// said is how people sign.
var said = regexp.MustCompile(`p\d+\.`)

// people say something to a run: they answer what it asks, or tell of what it may
// wait for.
func (w *simWorld) people(ctx context.Context) {
	x, run := w.someExecutor(), w.someRun(ctx)
	if x == nil || run == "" {
		return
	}
	by := fmt.Sprintf("p%d.", w.saying.Add(1))
	if w.c.of(40) {
		name := []string{"go", "told"}[w.c.n(2)]
		_, err := x.Signal(ctx, parley.SignalRequest{Signal: parley.Signal{ID: by, Name: name, Key: fmt.Sprintf("k%d", w.c.n(simulatedRuns))}})
		w.published(by, name, err)
		return
	}
	choice := "approve"
	if w.c.of(30) {
		choice = "reject"
	}
	if _, err := x.AnswerStep(ctx, parley.AnswerRequest{Run: run, Choice: choice, Reply: parley.Reply{By: by}}); err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.seen.said[by] = run
	}
}

// someRun gives one that has not ended, or "".
func (w *simWorld) someRun(ctx context.Context) string {
	runs := w.going(ctx)
	if len(runs) == 0 {
		return ""
	}
	return runs[w.c.n(len(runs))].ID
}

// going are the runs that have not ended.
func (w *simWorld) going(ctx context.Context) []store.Run {
	runs, _, err := w.db.Runs(ctx, parley.RunQuery{
		Status: []parley.RunStatus{parley.RunPending, parley.RunRunning}, SortBy: "created_at", Ascending: true, Page: parley.Page{Limit: 200},
	})
	if err != nil {
		w.t.Error(err)
	}
	return runs
}

// The runs that steps ask for, and the events, as one process sees them.

func (s unsureStore) AskedChildren(ctx context.Context, after string, limit int) ([]store.Child, error) {
	if s.cutOff() {
		return nil, errDoubt
	}
	return s.DB.AskedChildren(ctx, after, limit)
}

func (s unsureStore) StoppedChildren(ctx context.Context, after string, limit int) ([]store.Child, error) {
	if s.cutOff() {
		return nil, errDoubt
	}
	return s.DB.StoppedChildren(ctx, after, limit)
}

func (s unsureStore) ChildNews(ctx context.Context, parent string, limit int) ([]store.Child, error) {
	if s.cutOff() {
		return nil, errDoubt
	}
	return s.DB.ChildNews(ctx, parent, limit)
}

func (s unsureStore) RefuseChild(ctx context.Context, task string, why *parley.Error) error {
	return s.write(ctx, func(ctx context.Context) error { return s.DB.RefuseChild(ctx, task, why) })
}

func (s unsureStore) ChildStopped(ctx context.Context, c store.Child) error {
	return s.write(ctx, func(ctx context.Context) error { return s.DB.ChildStopped(ctx, c) })
}

func (s unsureStore) PutSignal(ctx context.Context, run string, e parley.Signal, limit int) (time.Time, bool, error) {
	var at time.Time
	var repeated bool
	err := s.write(ctx, func(ctx context.Context) (err error) {
		at, repeated, err = s.DB.PutSignal(ctx, run, e, limit)
		return err
	})
	if err != nil {
		return time.Time{}, false, err
	}
	return at, repeated, nil
}

func (s unsureStore) SpreadSignals(ctx context.Context, limit int) ([]string, bool, error) {
	var runs []string
	var more bool
	err := s.write(ctx, func(ctx context.Context) (err error) { runs, more, err = s.DB.SpreadSignals(ctx, limit); return err })
	if err != nil {
		return nil, false, err
	}
	return runs, more, nil
}

// family judges what runs have to do with those that their steps have started
// (rule S11): of each attempt there is one at most, none begins once its parent has
// ended or beside another of its step, and what the parent says of it is true.
func (j *judgment) family() {
	begun := map[string]string{} // the task of each, by run
	for _, run := range slices.Sorted(maps.Keys(j.histories)) {
		tasks := map[string]string{}
		for _, e := range j.histories[run].Events {
			var kid struct {
				TaskID string `json:"task_id"`
				Run    string
				Status parley.RunStatus
			}
			if e.Type != parley.EventChildStarted && e.Type != parley.EventChildEnded {
				continue
			}
			if err := json.Unmarshal(e.Data, &kid); err != nil {
				j.report("S11: run %s: %s: %v", run, e.Data, err)
			}
			switch {
			case kid.Run == "":
			case e.Type == parley.EventChildEnded:
				if got := j.histories[kid.Run].Run.Status; got != kid.Status {
					j.report("S11: run %s says that %s is %s, it is %s", run, kid.Run, kid.Status, got)
				}
			case begun[kid.Run] != "":
				j.report("S11: run %s has begun %s for %s, and before for %s", run, kid.Run, kid.TaskID, begun[kid.Run])
			case tasks[kid.TaskID] != "":
				j.report("S11: run %s has begun %s for %s, and before %s", run, kid.Run, kid.TaskID, tasks[kid.TaskID])
			default:
				tasks[kid.TaskID], begun[kid.Run] = kid.Run, kid.TaskID
			}
		}
	}
	j.kidsBegin()
}

// kidsBegin walks through the beginnings and the ends of runs, in their order.
func (j *judgment) kidsBegin() {
	ended, last := map[string]bool{}, map[string]string{}
	for i := range j.changes {
		c := &j.changes[i]
		if c.what != "run" {
			continue
		}
		ended[c.id] = c.now.Ended == 1
		if c.was != nil || c.now.Parent == "" {
			continue
		}
		if ended[c.now.Parent] {
			j.report("S11: entry %d: %s begins, and %s has ended", c.n, c.id, c.now.Parent)
		}
		step := c.now.Parent + " " + c.now.Step
		if before := last[step]; before != "" && !ended[before] {
			j.report("S11: entry %d: %s begins beside %s", c.n, c.id, before)
		}
		last[step] = c.id
	}
	if j.kids > 0 {
		j.report("L1: %d runs are still asked for", j.kids)
	}
}

// heard judges what people have said: what was taken is in the history, and
// nothing counts twice in one (rules C8 and C9).
func (j *judgment) heard() {
	for _, run := range slices.Sorted(maps.Keys(j.histories)) {
		times := map[string]int{}
		for _, e := range j.histories[run].Events {
			if e.Type != parley.EventStepAnswered && (e.Type != parley.EventStepCompleted || !strings.HasPrefix(e.Step, "heard")) {
				continue
			}
			for _, by := range said.FindAllString(string(e.Data), 1) {
				if times[by]++; times[by] > 1 {
					j.report("C9: run %s: what %s said counts twice", run, by)
				}
			}
		}
		for by, to := range j.said {
			if to == run && times[by] == 0 {
				j.report("C9: run %s: what %s said was taken, and is not there", run, by)
			}
		}
	}
}
