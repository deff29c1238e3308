package store

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

func TestStartIsReadBackWhole(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		a := attempt("run-1", "a", 1)
		a.ContextID, a.Held, a.Policy.AttemptTimeout = "ctx-1", true, time.Minute
		st := start("run-1", a)
		st.Run.Labels = map[string]string{"team": "ä", "x": "\x00"}
		st.Run.RetriedFrom, st.Run.TriggeredBy, st.Run.Phase, st.Run.Hidden = "run-0", "cli", "running", true
		must(db.StartRun(t.Context(), st))(t)
		h := must(db.History(t.Context(), "run-1"))(t)
		for i := range st.Events {
			st.Events[i].At = st.Events[i].At.Truncate(time.Microsecond)
		}
		diff(t, h, History{Run: st.Run, Events: st.Events, Attempts: []Attempt{a}})
		diff(t, must(db.RunRow(t.Context(), "run-1"))(t), st.Run)
		diff(t, must(db.Attempts(t.Context(), "run-1"))(t), []Attempt{a})
	})
}

// Whatever changes in a run's row is read back, alone or with the rest.
func TestRunRowIsWrittenWhole(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		run := begin(t, db, "run-1")
		for i, change := range []func(*Run){
			func(*Run) {},
			func(r *Run) { r.Status = parley.RunPending },
			func(r *Run) { r.Status = parley.RunRunning },
			func(r *Run) { r.Due = epoch.Add(time.Minute) },
			func(r *Run) { r.Due = time.Time{} },
			func(r *Run) { r.Due = epoch.Add(time.Hour) },
			func(r *Run) { r.StartedAt = time.Time{} },
			func(r *Run) { r.StartedAt = epoch.Add(time.Second) },
			func(r *Run) { r.Phase = "waiting" },
			func(r *Run) { r.Phase = "" },
			func(r *Run) { r.Paused = true },
			func(r *Run) { r.Paused, r.Cancelling = false, true },
			func(r *Run) { r.CancelledBy = "ann" },
			func(r *Run) { r.CancelReason = "no need" },
			func(r *Run) { r.CancelledBy, r.CancelReason = "", "" },
			func(r *Run) { r.Error = []byte(`{"code":"x"}`) },
			func(r *Run) { r.Error = nil },
			func(r *Run) { r.Status, r.EndedAt = parley.RunCancelled, epoch.Add(time.Hour) },
		} {
			d := next(run, i%2)
			d.Run.UpdatedAt = epoch.Add(time.Duration(i) * time.Second)
			change(&d.Run)
			check(t, db.Decide(t.Context(), d))
			diff(t, must(db.RunRow(t.Context(), "run-1"))(t), d.Run)
			run = d.Run
		}
	})
}

func TestUnknownRun(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		begin(t, db, "run-1", attempt("run-1", "a", 1))
		_, err := db.History(t.Context(), "run-2")
		wantCode(t, err, parley.CodeNotFound)
		_, err = db.RunRow(t.Context(), "run-2")
		wantCode(t, err, parley.CodeNotFound)
		if n := len(must(db.Events(t.Context(), "run-2", 0, 10))(t)); n != 0 {
			t.Fatalf("%d events", n)
		}
		d := next(Run{ID: "run-2", Status: parley.RunRunning}, 1)
		wantStale(t, db.Decide(t.Context(), d))
	})
}

// Values pass byte for byte: U+0000, numbers beyond 2^63, member order, HTML.
func TestValuesAreOpaque(t *testing.T) {
	const value = "{\"z\":\"\\u0000<&>\u2028\",\"a\": 9223372036854775808.10, \"b\":[1e400 ,{}],\"a\":\"\xc3\x28\"}"
	eachDB(t, func(t *testing.T, db *DB) {
		a := attempt("run-1", "a", 1)
		a.Input = json.RawMessage(value)
		st := start("run-1", a)
		st.Events[1].Data = json.RawMessage(value)
		must(db.StartRun(t.Context(), st))(t)
		ans := answer(a.ID, value)
		if !must(db.Answer(t.Context(), ans))(t) {
			t.Fatal("refused")
		}
		h := must(db.History(t.Context(), "run-1"))(t)
		diff(t, string(h.Attempts[0].Input), value)
		diff(t, string(h.Attempts[0].Result.Output), value)
		diff(t, string(h.Events[1].Data), value)
		events := must(db.Events(t.Context(), "run-1", 1, 1))(t)
		diff(t, string(events[0].Data), value)
	})
}

func TestEventsArePaged(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		run := begin(t, db, "run-1", attempt("run-1", "a", 1))
		for _, n := range []int{3, 1, 5} {
			d := next(run, n)
			check(t, db.Decide(t.Context(), d))
			run = d.Run
		}
		for after := range int64(12) {
			for limit := 1; limit < 13; limit++ {
				events := must(db.Events(t.Context(), "run-1", after, limit))(t)
				if want := min(limit, max(0, 11-int(after))); len(events) != want {
					t.Fatalf("%d events after %d, limit %d", len(events), after, limit)
				}
				for i, e := range events {
					if e.Seq != after+1+int64(i) || e.Run != "run-1" {
						t.Fatalf("event %d of %s after %d", e.Seq, e.Run, after)
					}
				}
			}
		}
	})
}

func TestIdempotentStarts(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		var wg sync.WaitGroup
		ids := make([]string, 100)
		for i := range ids {
			wg.Go(func() {
				st := start(fmt.Sprintf("run-%d", i), attempt(fmt.Sprintf("run-%d", i), "a", 1))
				st.IdempotencyKey, st.InputDigest = "key", "digest"
				existing, err := db.StartRun(t.Context(), st)
				if err != nil {
					t.Error(err)
				}
				if ids[i] = existing; existing == "" {
					ids[i] = st.Run.ID
				}
			})
		}
		wg.Wait()
		for _, id := range ids {
			if id != ids[0] {
				t.Fatalf("runs %s and %s", id, ids[0])
			}
		}
		_, total, err := db.Runs(t.Context(), parley.RunQuery{})
		check(t, err)
		diff(t, total, 1)
		if n := len(must(db.Publish(t.Context(), epoch, 10))(t)); n != 1 {
			t.Fatalf("%d attempts", n)
		}

		st := start("run-x")
		st.IdempotencyKey, st.InputDigest = "key", "other"
		before := dump(t, db)
		_, err = db.StartRun(t.Context(), st)
		wantCode(t, err, parley.CodeIdempotencyConflict)
		st.IdempotencyKey, st.Run.ID = "", ids[0]
		st.Events[0].Run = ids[0]
		_, err = db.StartRun(t.Context(), st)
		wantCode(t, err, parley.CodeConflict)
		diff(t, dump(t, db), before)

		st = start("run-y")
		st.IdempotencyKey, st.InputDigest, st.Run.Workflow = "key", "other", "another"
		if existing := must(db.StartRun(t.Context(), st))(t); existing != "" {
			t.Fatalf("the key of another workflow gave %s", existing)
		}
		diff(t, must(db.RunByKey(t.Context(), start("").Run.Workflow, "key"))(t), ids[0])
		diff(t, must(db.RunByKey(t.Context(), "another", "key"))(t), "run-y")
		diff(t, must(db.LiveRuns(t.Context(), 10))(t), 2)
		diff(t, must(db.LiveRuns(t.Context(), 1))(t), 1)
		_, err = db.RunByKey(t.Context(), "another", "no key")
		wantCode(t, err, parley.CodeNotFound)
	})
}

func TestStartClaimedNeedsALivingBridge(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		c := bridge(t, db, "b1")
		c.Token = "t1"
		begin(t, db, "run-1", claimed(attempt("run-1", "a", 1), c))
		diff(t, must(db.Owned(t.Context(), "b1", c.Inc))(t), []Owned{{TaskID: "run-1.a.1", Token: "t1", State: AttemptClaimed}})
		bridge(t, db, "b1")
		before := dump(t, db)
		_, err := db.StartRun(t.Context(), start("run-2", claimed(attempt("run-2", "a", 1), c)))
		wantStale(t, err)
		diff(t, dump(t, db), before)
	})
}

func TestInvalidStartsAndDecisions(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		run := begin(t, db, "run-1", attempt("run-1", "a", 1))
		before := dump(t, db)
		for name, change := range map[string]func(*Decision){
			"gap":             func(d *Decision) { d.Events[0].Seq++ },
			"seq":             func(d *Decision) { d.Run.Seq++ },
			"another run":     func(d *Decision) { d.Events[0].Run = "run-2" },
			"no JSON":         func(d *Decision) { d.Events[0].Data = json.RawMessage(`{`) },
			"end without end": func(d *Decision) { d.Run.Status = parley.RunFailed },
			"foreign attempt": func(d *Decision) { d.Insert = []Attempt{attempt("run-2", "a", 1)} },
			"no input":        func(d *Decision) { a := attempt("run-1", "b", 1); a.Input = nil; d.Insert = []Attempt{a} },
			"born settled":    func(d *Decision) { a := attempt("run-1", "b", 1); a.State = AttemptSettled; d.Insert = []Attempt{a} },
			"claim of nobody": func(d *Decision) { d.Insert = []Attempt{claimed(attempt("run-1", "b", 1), Claim{})} },
			"two bridges": func(d *Decision) {
				d.Insert = []Attempt{claimed(attempt("run-1", "b", 1), Claim{"b1", 1, "x"}), claimed(attempt("run-1", "c", 1), Claim{"b2", 1, "y"})}
			},
			"closed as ok": func(d *Decision) { d.Close = []Close{{TaskID: "run-1.a.1", Outcome: parley.OutcomeOK}} },
			"no answer": func(d *Decision) {
				d.Answer = &Answer{Result: parley.Result{TaskID: "run-1.a.1", Outcome: parley.OutcomeUnknown}}
			},
		} {
			d := next(run, 1)
			change(&d)
			if err := db.Decide(t.Context(), d); parley.CodeOf(err) != parley.CodeInvalid {
				t.Errorf("%s: error %v", name, err)
			}
		}
		diff(t, dump(t, db), before)
	})
}

func TestRunLists(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		must(db.PutDefinition(t.Context(), Definition{
			ID: "def-1", Workflow: "greet", Name: "Greet", Source: []byte("x"), Digest: "x", CreatedAt: epoch,
		}, PutVersion))(t)
		for i := range 30 {
			st := start(fmt.Sprintf("run-%02d", i))
			st.Run.CreatedAt = epoch.Add(time.Duration(i) * time.Minute)
			st.Run.Hidden = i == 29
			if i%2 == 1 {
				st.Run.Workflow, st.Run.DefinitionID = "other", "def-2"
			}
			if i == 7 {
				st.Run.Status, st.Run.EndedAt = parley.RunFailed, epoch
			}
			must(db.StartRun(t.Context(), st))(t)
		}
		for _, c := range []struct {
			name        string
			q           parley.RunQuery
			total, rows int
			first       string
		}{
			{"all", parley.RunQuery{}, 29, 20, "run-28"},
			{"hidden", parley.RunQuery{Hidden: true}, 30, 20, "run-29"},
			{"page", parley.RunQuery{Page: parley.Page{Offset: 20, Limit: 5}}, 29, 5, "run-08"},
			{"beyond", parley.RunQuery{Page: parley.Page{Offset: 99, Limit: 5}}, 29, 0, ""},
			{"oldest", parley.RunQuery{Ascending: true}, 29, 20, "run-00"},
			{"status", parley.RunQuery{Status: []parley.RunStatus{parley.RunFailed}}, 1, 1, "run-07"},
			{"unknown status", parley.RunQuery{Status: []parley.RunStatus{"x"}}, 0, 0, ""},
			{"workflow", parley.RunQuery{Workflow: "greet"}, 15, 15, "run-28"},
			{"name", parley.RunQuery{Workflow: "Greet"}, 15, 15, "run-28"},
			{"definition", parley.RunQuery{DefinitionID: "def-1"}, 15, 15, "run-28"},
			{"after", parley.RunQuery{CreatedAfter: epoch.Add(20 * time.Minute)}, 8, 8, "run-28"},
			{"before", parley.RunQuery{CreatedBefore: epoch.Add(2 * time.Minute)}, 2, 2, "run-01"},
			{"unknown sort", parley.RunQuery{SortBy: "1; DROP TABLE run"}, 29, 20, "run-28"},
			{"by status", parley.RunQuery{SortBy: "status", Ascending: true}, 29, 20, "run-07"},
		} {
			t.Run(c.name, func(t *testing.T) {
				runs, total, err := db.Runs(t.Context(), c.q)
				check(t, err)
				first := ""
				if len(runs) > 0 {
					first = runs[0].ID
				}
				if total != c.total || len(runs) != c.rows || first != c.first {
					t.Fatalf("%d of %d runs from %s, want %d of %d from %s", len(runs), total, first, c.rows, c.total, c.first)
				}
			})
		}
	})
}

func TestWakeups(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		for i := range 3 {
			st := start(fmt.Sprintf("run-%d", i), attempt(fmt.Sprintf("run-%d", i), "a", 1), attempt(fmt.Sprintf("run-%d", i), "b", 1))
			st.Run.Due = epoch.Add(time.Duration(i) * time.Minute)
			must(db.StartRun(t.Context(), st))(t)
		}
		for _, task := range []string{"run-2.a.1", "run-2.b.1"} {
			must(db.Answer(t.Context(), answer(task, `1`)))(t)
		}
		diff(t, must(db.Wakeups(t.Context(), epoch.Add(time.Minute), 10))(t),
			Wakeups{Settled: []string{"run-2"}, Due: []string{"run-0", "run-1"}})
		diff(t, must(db.Wakeups(t.Context(), epoch.Add(time.Minute), 1))(t),
			Wakeups{Settled: []string{"run-2"}, Due: []string{"run-0"}})

		h := must(db.History(t.Context(), "run-0"))(t)
		d := next(h.Run, 1)
		d.Close = []Close{{TaskID: "run-0.a.1", Outcome: parley.OutcomeTimeout}, {TaskID: "run-0.b.1", Outcome: parley.OutcomeTimeout}}
		d.Run.Status, d.Run.EndedAt = parley.RunFailed, epoch
		check(t, db.Decide(t.Context(), d))
		diff(t, must(db.Wakeups(t.Context(), epoch, 10))(t).Due, []string(nil))
	})
}
