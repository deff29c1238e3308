package executor_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/executor"
)

func (r *rig) rerun(req parley.RerunRequest) parley.Run {
	r.t.Helper()
	run, err := r.x.Rerun(r.t.Context(), req)
	check(r.t, err)
	return run
}

// inputs gives the input of each attempt that a run has made, by step.
func (r *rig) inputs(run string) map[string]string {
	r.t.Helper()
	list, err := r.db.Attempts(r.t.Context(), run)
	check(r.t, err)
	got := make(map[string]string)
	for i := range list {
		got[list[i].Step] = string(list[i].Input)
	}
	return got
}

const passOn = "name: talk\nsteps:\n  - {id: a, agent: writer, input: {v: '${workflow.input.v}'}}\n  - {id: b, agent: writer, input: {v: '${a.output.n}'}}\n  - {id: c, agent: writer}\n"

// TestC6_Rerun: a new run, linked to the old one, which stays as it is; only the
// step and what follows are called again, with the input that was edited.
func TestC6_Rerun(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply(passOn)
		run, _, err := r.x.Start(t.Context(), parley.StartRequest{Workflow: "talk", Input: json.RawMessage(`{"v":7}`), Labels: map[string]string{"k": "v"}})
		check(t, err)
		old := run.ID
		for _, step := range []string{"a", "b", "c"} {
			r.settle(old + "." + step + ".1")
		}
		again := r.rerun(parley.RerunRequest{Run: old, From: "b", Input: json.RawMessage(`{"v":"edited"}`), By: "ann"})
		if again.ID == old || again.RetriedFrom != old || again.RerunFrom != "b" || again.Labels["k"] != "v" || again.TriggeredBy != "rerun" || string(again.Input) != `{"v":7}` {
			t.Errorf("run %+v", again)
		}
		r.settle(again.ID + ".b.1")
		r.settle(again.ID + ".c.1")
		if diff := cmp.Diff(map[string]string{"b": `{"v":"edited"}`, "c": `{}`}, r.inputs(again.ID)); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		// A retry of a rerun that has failed keeps the edited input.
		failing := r.rerun(parley.RerunRequest{Run: old, From: "b", Input: json.RawMessage(`{"v":"once more"}`)})
		r.fail(failing.ID + ".b.1")
		time.Sleep(time.Minute)
		retried, err := r.x.Retry(t.Context(), failing.ID, "ann")
		check(t, err)
		if diff := cmp.Diff(map[string]string{"b": `{"v":"once more"}`}, r.inputs(retried.ID)); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		before, err := r.x.Get(t.Context(), old)
		check(t, err)
		if before.Status != parley.RunCompleted || before.Seq != run.Seq+6 {
			t.Errorf("the old run is %s at event %d", before.Status, before.Seq)
		}
		// From the start, with another input of the workflow.
		whole := r.rerun(parley.RerunRequest{Run: again.ID, WorkflowInput: json.RawMessage(`{"v":8}`)})
		if diff := cmp.Diff(map[string]string{"a": `{"v":8}`}, r.inputs(whole.ID)); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		_, err = r.x.Rerun(t.Context(), parley.RerunRequest{Run: whole.ID, From: "a"})
		wantCode(t, err, parley.CodeConflict, "it is RUNNING")
		_, err = r.x.Rerun(t.Context(), parley.RerunRequest{Run: old, From: "z"})
		wantCode(t, err, parley.CodeNotFound, `no step "z"`)
		_, err = r.x.Rerun(t.Context(), parley.RerunRequest{Run: "run-99"})
		wantCode(t, err, parley.CodeNotFound, "run-99")
		_, err = r.x.Rerun(t.Context(), parley.RerunRequest{Run: old, Input: json.RawMessage(`1`)})
		wantCode(t, err, parley.CodeInvalid, "workflow_input")
		_, err = r.x.Retry(t.Context(), old, "ann")
		wantCode(t, err, parley.CodeConflict, "it is COMPLETED")
	})
}

// TestC6_RerunOnAnotherVersion: the ids that are copied must be there with the
// same kind, and the workflow's input must fit.
func TestC6_RerunOnAnotherVersion(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		run := r.start()
		r.settle(run + ".a.1")
		r.fail(run + ".b.1")
		time.Sleep(time.Minute)
		r.apply("name: talk\nsteps:\n  - {id: a, agent: writer}\n  - {id: b, agent: other}\n  - {id: c, agent: writer}\n")
		r.apply("name: talk\nsteps:\n  - {id: a, set: 1}\n  - {id: b, agent: other}\n")
		r.apply("name: talk\ninput: {type: object, required: [x]}\nsteps:\n  - {id: a, agent: writer}\n  - {id: b, agent: other}\n")
		if v, err := r.x.Get(t.Context(), run); err != nil || v.Status != parley.RunFailed {
			t.Fatalf("the run is %s, %v", v.Status, err)
		}
		again := r.rerun(parley.RerunRequest{Run: run, From: "b", Version: "2"})
		if s := r.step(again.ID, "b"); again.Version != "2" || s.Agent != "other" {
			t.Errorf("version %s, b is of %s", again.Version, s.Agent)
		}
		_, err := r.x.Rerun(t.Context(), parley.RerunRequest{Run: run, From: "b", Version: "3"})
		wantCode(t, err, parley.CodeConflict, "a is of kind set, not agent")
		_, err = r.x.Rerun(t.Context(), parley.RerunRequest{Run: run, From: "b", Version: "4"})
		wantCode(t, err, parley.CodeInvalidInput, "x")
		_, err = r.x.Rerun(t.Context(), parley.RerunRequest{Run: run, From: "b", Version: "9"})
		wantCode(t, err, parley.CodeNotFound, "9")
		r.rerun(parley.RerunRequest{Run: run, From: "b", Version: "4", WorkflowInput: json.RawMessage(`{"x":1}`)})
	})
}

// TestC6_CompensatedOnlyFromTheStart: what was undone cannot be built upon.
func TestC6_CompensatedOnlyFromTheStart(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.deploy(`{"name":"w","steps":[{"id":"a","agent":"x","compensate":{"id":"u","agent":"x"}},{"id":"b","agent":"x","retry":{"attempts":1}}]}`)
		run := r.begin(parley.StartRequest{Workflow: "w"})
		r.settle(run + ".a.1")
		r.fail(run + ".b.1")
		r.settle(run + ".a/u.1")
		var err error
		_, err = r.x.Retry(t.Context(), run, "ann")
		wantCode(t, err, parley.CodeConflict, "compensated")
		wantConflict(t, err, parley.ConflictCompensated)
		_, err = r.x.Rerun(t.Context(), parley.RerunRequest{Run: run, From: "b"})
		wantCode(t, err, parley.CodeConflict, "only be run again from the start")
		wantConflict(t, err, parley.ConflictCompensated)
		r.rerun(parley.RerunRequest{Run: run, From: "a"})
		r.rerun(parley.RerunRequest{Run: run})
	})
}

// TestC6_RetriesThatNeverBegan: a retry that waited for its turn and was cancelled has
// called nobody, and the run that retries it calls nobody again, also for an executor
// that knows nothing but the store.
func TestC6_RetriesThatNeverBegan(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: talk\nconcurrency: {limit: 1}\nsteps:\n  - {id: a, agent: writer}\n  - {id: b, agent: writer, retry: {attempts: 1}}\n")
		run := r.start()
		r.settle(run + ".a.1")
		r.fail(run + ".b.1")
		next := r.start() // which has the turn from now on
		for range 2 {
			retried, err := r.x.Retry(t.Context(), run, "ann")
			check(t, err)
			if retried.Status != parley.RunPending {
				t.Fatalf("the retry is %s", retried.Status)
			}
			_, err = r.x.Cancel(t.Context(), parley.CancelRequest{Run: retried.ID})
			check(t, err)
			run = retried.ID
		}
		_, err := r.x.Terminate(t.Context(), parley.ControlRequest{Run: next})
		check(t, err)
		last, err := executor.New(r.config).Retry(t.Context(), run, "ann")
		check(t, err)
		if got := r.inputs(last.ID); len(got) != 1 || got["b"] == "" {
			t.Errorf("calls %v", got)
		}
	})
}

// TestC6_TheTimeThatTheStartGave: what a start bounds more tightly than the workflow does
// is bounded so when it is retried or run again, also if it waits for its turn; a run of
// a workflow that was given no less has what the version says.
func TestC6_TheTimeThatTheStartGave(t *testing.T) {
	for name, concurrency := range map[string]string{"at once": "", "in turn": "concurrency: {limit: 1}\n"} {
		t.Run(name, func(t *testing.T) {
			onStore(t, func(r *rig) {
				t := r.t
				r.apply("name: talk\ntimeout: 1h\n" + concurrency + "steps: [{id: a, agent: writer}]")
				left := func(run string) time.Duration {
					t.Helper()
					e, err := r.x.Explain(t.Context(), run)
					check(t, err)
					if e.Deadline == nil {
						t.Fatalf("run %s is %s and has no deadline", run, e.Status)
					}
					return e.Deadline.Sub(e.At)
				}
				again := func(given, want time.Duration) {
					t.Helper()
					run, _, err := r.x.Start(t.Context(), parley.StartRequest{Workflow: "talk", Timeout: given})
					check(t, err)
					if concurrency != "" {
						waits, _, err := r.x.Start(t.Context(), parley.StartRequest{Workflow: "talk", Timeout: given})
						check(t, err)
						_, err = r.x.Cancel(t.Context(), parley.CancelRequest{Run: waits.ID})
						check(t, err)
						r.fail(run.ID + ".a.1")
						run = waits // it has never begun
					} else {
						time.Sleep(time.Minute)
						r.fail(run.ID + ".a.1")
					}
					for range 2 {
						next, err := r.x.Retry(t.Context(), run.ID, "ann")
						check(t, err)
						wantEqual(t, left(next.ID), want)
						r.fail(next.ID + ".a.1")
						run = next
					}
					last := r.rerun(parley.RerunRequest{Run: run.ID})
					wantEqual(t, left(last.ID), want)
					r.fail(last.ID + ".a.1")
				}
				again(10*time.Minute, 10*time.Minute)
				again(0, time.Hour)
				again(2*time.Hour, time.Hour)
			})
		})
	}
}

// TestC7_RetriesAndRerunsHaveKeys: the same request under the same key gives the run
// that the first one has begun, whatever has become of it and of its version, and calls
// nobody; another request is refused. The keys are not those of starts.
func TestC7_RetriesAndRerunsHaveKeys(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: talk\nsteps: [{id: a, agent: writer, retry: {attempts: 1}}]")
		start, _, err := r.x.Start(t.Context(), parley.StartRequest{Workflow: "talk", IdempotencyKey: "k"})
		check(t, err)
		r.fail(start.ID + ".a.1")
		retry := parley.RetryRequest{Run: start.ID, IdempotencyKey: "k", By: "ann"}
		rerun := parley.RerunRequest{Run: start.ID, From: "a", Input: json.RawMessage(`{"n":1.0}`), IdempotencyKey: strings.Repeat("l", 255)}
		once := func(again bool) (ids [2]string) {
			t.Helper()
			one, existing, err := r.x.RetryOnce(t.Context(), retry)
			check(t, err)
			two, also, err := r.x.RerunOnce(t.Context(), rerun)
			check(t, err)
			if existing != again || also != again {
				t.Fatalf("existing: %v and %v, want %v", existing, also, again)
			}
			return [2]string{one.ID, two.ID}
		}
		ids := once(false)
		if ids[0] == ids[1] || ids[0] == start.ID {
			t.Fatalf("runs %v", ids)
		}
		rerun.Input = json.RawMessage(`{"n": 1}`)
		wantEqual(t, once(true), ids)
		for _, id := range ids {
			r.settle(id + ".a.1")
		}
		r.x = executor.New(r.config)
		wantEqual(t, once(true), ids)

		_, _, err = r.x.RetryOnce(t.Context(), parley.RetryRequest{Run: ids[0], IdempotencyKey: "n"})
		wantCode(t, err, parley.CodeConflict, "it is COMPLETED") // nothing was begun that way
		other := rerun
		other.Input = json.RawMessage(`{"n":2}`)
		_, _, err = r.x.RerunOnce(t.Context(), other)
		wantCode(t, err, parley.CodeIdempotencyConflict, `"`+rerun.IdempotencyKey+`" was used with another request, for run "`+ids[1]+`"`)
		other.IdempotencyKey = "k"
		_, _, err = r.x.RerunOnce(t.Context(), other)
		wantCode(t, err, parley.CodeIdempotencyConflict, `"k" was used with another request, for run "`+ids[0]+`"`)
		other.IdempotencyKey += strings.Repeat("k", 255)
		_, _, err = r.x.RerunOnce(t.Context(), other)
		wantCode(t, err, parley.CodeLimit, "idempotency_key: 256 characters")

		// A version that takes no new runs any more.
		r.apply("name: talk\nsteps: [{id: a, agent: other}]")
		other = parley.RerunRequest{Run: start.ID, From: "a", Version: "3", IdempotencyKey: "m"}
		moved, _, err := r.x.RerunOnce(t.Context(), other)
		check(t, err)
		v, err := r.catalog.Get(t.Context(), "talk@3")
		check(t, err)
		check(t, r.catalog.Remove(t.Context(), v.ID, "ann"))
		r.x = executor.New(r.config)
		again, existing, err := r.x.RerunOnce(t.Context(), other)
		check(t, err)
		if again.ID != moved.ID || !existing {
			t.Errorf("run %s", again.ID)
		}
		other.IdempotencyKey = "k"
		_, _, err = r.x.RerunOnce(t.Context(), other)
		wantCode(t, err, parley.CodeIdempotencyConflict, `"k" was used with another request`)
		other.IdempotencyKey = ""
		_, err = r.x.Rerun(t.Context(), other)
		wantCode(t, err, parley.CodeConflict, "takes no new runs")
	})
}
