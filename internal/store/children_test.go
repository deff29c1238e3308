package store

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/parley-project/parley"
)

func asked(run, step string) Child {
	return Child{Task: run + "." + step + ".1", Parent: run, Step: step, State: ChildAsked, Spec: ChildSpec{Workflow: "part", Depth: 2, Until: epoch}, Input: []byte(`{ "n": 1.10 }`)}
}

// asks has a run ask for others.
func asks(t testing.TB, db *DB, run Run, list ...Child) Run {
	t.Helper()
	d := next(run, 1)
	d.Children.Ask = list
	check(t, db.Decide(t.Context(), d))
	return d.Run
}

func decides(t testing.TB, db *DB, run Run, c Children) Run {
	t.Helper()
	d := next(run, 1)
	d.Children = c
	check(t, db.Decide(t.Context(), d))
	return d.Run
}

// born starts the run that a step asks for.
func born(t testing.TB, db *DB, id string, c Child) (Run, error) {
	t.Helper()
	st := start(id)
	st.Child, st.Run.ParentRun, st.Run.ParentStep = c.Task, c.Parent, c.Step
	_, err := db.StartRun(t.Context(), st)
	return st.Run, err
}

func ends(t testing.TB, db *DB, run Run, task string) {
	t.Helper()
	d := next(run, 1)
	d.Run.Status, d.Run.EndedAt = parley.RunCompleted, epoch
	d.Children.Ended = task
	check(t, db.Decide(t.Context(), d))
}

// childNews gives what a run has not taken notice of as "task state run".
func childNews(t testing.TB, db *DB, run string) (list []string) {
	t.Helper()
	for _, c := range must(db.ChildNews(t.Context(), run, 10))(t) {
		line := fmt.Sprintf("%s %s %s", c.Step, c.State, c.Run)
		if c.Error != nil {
			line += string(c.Error.Code)
		}
		list = append(list, line)
	}
	return list
}

func tasks(list []Child) (out []string) {
	for _, c := range list {
		out = append(out, c.Step)
	}
	return out
}

func toStart(t testing.TB, db *DB) []string {
	t.Helper()
	return tasks(must(db.AskedChildren(t.Context(), "", 10))(t))
}

func toStop(t testing.TB, db *DB) []Child {
	t.Helper()
	return must(db.StoppedChildren(t.Context(), "", 10))(t)
}

// TestS11_ARowLeadsFromTheStartToTheEnd: asked for with its input byte for byte,
// started once, ended in the decision that ends the run, and gone when the parent
// has seen that.
func TestS11_ARowLeadsFromTheStartToTheEnd(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		parent := asks(t, db, begin(t, db, "run-1"), asked("run-1", "a"), asked("run-1", "b"))
		diff(t, must(db.AskedChildren(t.Context(), "", 1))(t), []Child{asked("run-1", "a")})
		diff(t, tasks(must(db.AskedChildren(t.Context(), "run-1.a.1", 10))(t)), []string{"b"})
		child, err := born(t, db, "run-2", asked("run-1", "a"))
		check(t, err)
		diff(t, must(db.RunRow(t.Context(), "run-2"))(t).ParentRun, "run-1")
		_, err = born(t, db, "run-3", asked("run-1", "a"))
		if !errors.Is(err, ErrStale) {
			t.Fatalf("started again: %v", err)
		}
		_, err = db.RunRow(t.Context(), "run-3")
		wantCode(t, err, parley.CodeNotFound)
		diff(t, childNews(t, db, "run-1"), []string{"a started run-2"})
		diff(t, must(db.Wakeups(t.Context(), epoch, 10))(t).Children, []string{"run-1"})
		asks(t, db, begin(t, db, "run-9"), asked("run-9", "x"))
		_, err = born(t, db, "run-of-x", asked("run-9", "x"))
		check(t, err)
		parent = decides(t, db, parent, Children{Begun: []string{"run-1.a.1"}})
		diff(t, childNews(t, db, "run-1"), []string(nil))
		diff(t, childNews(t, db, "run-9"), []string{"x started run-of-x"})
		diff(t, must(db.Wakeups(t.Context(), epoch, 10))(t).Children, []string{"run-9"})
		ends(t, db, child, "run-1.a.1")
		parent = decides(t, db, parent, Children{Begun: []string{"run-1.a.1"}}) // it had begun, and more is to be seen
		diff(t, childNews(t, db, "run-1"), []string{"a ended run-2"})
		check(t, db.RefuseChild(t.Context(), "run-1.b.1", parley.Errorf(parley.CodeNotFound, "none")))
		if err := db.RefuseChild(t.Context(), "run-1.b.1", parley.Errorf(parley.CodeNotFound, "none")); !errors.Is(err, ErrStale) {
			t.Errorf("refused again: %v", err)
		}
		diff(t, childNews(t, db, "run-1"), []string{"a ended run-2", "b void not_found"})
		decides(t, db, parent, Children{Done: []string{"run-1.a.1", "run-1.b.1"}})
		diff(t, append(childNews(t, db, "run-1"), toStart(t, db)...), []string(nil))

		runs, total, err := db.Runs(t.Context(), parley.RunQuery{Parent: "run-1"})
		check(t, err)
		if total != 1 || runs[0].ID != "run-2" || runs[0].ParentStep != "a" {
			t.Errorf("children: %+v", runs)
		}
		page, _, err := db.SearchRuns(t.Context(), parley.RunQuery{Parent: "run-1", Workflow: runs[0].Workflow}, 10)
		check(t, err)
		if len(page) != 1 {
			t.Errorf("found %+v", page)
		}
	})
}

// TestS11_ARunThatEndsAtOnceIsEnded: the start itself may be the end.
func TestS11_ARunThatEndsAtOnceIsEnded(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		asks(t, db, begin(t, db, "run-1"), asked("run-1", "a"))
		st := start("run-2")
		st.Child, st.Run.Status, st.Run.EndedAt = "run-1.a.1", parley.RunCompleted, epoch
		_, err := db.StartRun(t.Context(), st)
		check(t, err)
		diff(t, childNews(t, db, "run-1"), []string{"a ended run-2"})
	})
}

// TestC3_HowChildrenAreStopped: what has not begun never does; what has begun is to
// be ended by somebody, whether it is waited for or not.
func TestC3_HowChildrenAreStopped(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		all := []Child{asked("run-1", "a"), asked("run-1", "b"), asked("run-1", "c"), asked("run-1", "d"), asked("run-1", "e"), asked("run-1", "f")}
		all[4].Detached, all[5].Detached = true, true
		parent := asks(t, db, begin(t, db, "run-1"), all...)
		runs := map[string]Run{}
		for _, i := range []int{1, 3, 5} {
			run, err := born(t, db, "run-of-"+all[i].Step, all[i])
			check(t, err)
			runs[all[i].Step] = run
		}
		parent = decides(t, db, parent, Children{Stop: []ChildStop{
			{Task: all[0].Task},
			{Task: all[1].Task},
			{Task: all[2].Task, Left: true},
			{Task: all[3].Task, Left: true, Terminate: true},
			{Task: all[4].Task, Detached: true},
			{Task: all[5].Task, Detached: true},
		}})
		diff(t, toStart(t, db), []string(nil))
		diff(t, childNews(t, db, "run-1"), []string{"a void ", "b started run-of-b", "e void ", "f started run-of-f"})
		beside := asked("run-9", "x")
		other := asks(t, db, begin(t, db, "run-9"), beside)
		_, err := born(t, db, "run-of-x", beside)
		check(t, err)
		decides(t, db, other, Children{Stop: []ChildStop{{Task: beside.Task}}})
		stops := toStop(t, db)
		diff(t, tasks(stops), []string{"b", "c", "d", "x"})
		if stops[0].Abandoned || stops[0].Terminate || !stops[1].Abandoned || !stops[2].Terminate {
			t.Errorf("to stop: %+v", stops)
		}
		_, err = born(t, db, "run-of-c", all[2])
		if !errors.Is(err, ErrStale) {
			t.Errorf("started after it was left: %v", err)
		}
		for n, c := range stops {
			check(t, db.ChildStopped(t.Context(), c))
			diff(t, len(toStop(t, db)), len(stops)-1-n)
		}
		ends(t, db, runs["b"], all[1].Task)
		ends(t, db, runs["d"], all[3].Task)
		diff(t, childNews(t, db, "run-1"), []string{"a void ", "b ended run-of-b", "e void ", "f started run-of-f"})
		// Who is to be ended at once after all is, also if its cancel was done.
		parent = decides(t, db, parent, Children{Stop: []ChildStop{{Task: all[1].Task, Terminate: true, Left: true}, {Task: all[5].Task, Detached: true, Left: true}}})
		check(t, db.ChildStopped(t.Context(), stops[0])) // of the cancel, too late
		stops = toStop(t, db)
		diff(t, tasks(stops), []string{"b"})
		check(t, db.ChildStopped(t.Context(), stops[0]))
		decides(t, db, parent, Children{Done: []string{all[0].Task, all[4].Task}})
		diff(t, append(tasks(toStop(t, db)), childNews(t, db, "run-1")...), []string(nil))
	})
}

// TestC5_NoChildBeginsWhileItsParentIsPaused: what was asked for before is held
// back.
func TestC5_NoChildBeginsWhileItsParentIsPaused(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		parent := asks(t, db, begin(t, db, "run-1"), asked("run-1", "a"))
		d := next(parent, 1)
		d.Hold, d.Run.Paused = new(true), true
		check(t, db.Decide(t.Context(), d))
		diff(t, toStart(t, db), []string(nil))
		_, err := born(t, db, "run-2", asked("run-1", "a"))
		if !errors.Is(err, ErrStale) {
			t.Errorf("started: %v", err)
		}
		d = next(d.Run, 1)
		d.Hold, d.Run.Paused = new(false), false
		check(t, db.Decide(t.Context(), d))
		diff(t, toStart(t, db), []string{"a"})
	})
}

// TestS11_OneRunOfAnAttempt: whoever tries at the same time.
func TestS11_OneRunOfAnAttempt(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		var list []Child
		for n := range 20 {
			list = append(list, asked("run-1", fmt.Sprintf("s%02d", n)))
		}
		asks(t, db, begin(t, db, "run-1"), list...)
		var wg sync.WaitGroup
		for n := range 4 {
			for i, c := range list {
				wg.Go(func() {
					if _, err := born(t, db, fmt.Sprintf("run-%d-%d", n, i), c); err != nil && !errors.Is(err, ErrStale) {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
		_, total, err := db.Runs(t.Context(), parley.RunQuery{Parent: "run-1"})
		check(t, err)
		diff(t, total, len(list))
	})
}
