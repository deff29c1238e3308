package executor_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// answersBeforeTimer has agents answer directly before each decision that ends calls of
// theirs, so that the executor has not read it: one of those calls each time. It gives the
// decisions that were made so.
func (r *rig) answersBeforeTimer() (decisions *[]store.Decision) {
	decisions = new([]store.Decision)
	answered := map[string]bool{}
	r.breaks(func(d store.Decision) error {
		i := slices.IndexFunc(d.Close, func(c store.Close) bool { return !c.Absorb && !answered[c.TaskID] })
		if i < 0 {
			return nil
		}
		*decisions = append(*decisions, d)
		id := d.Close[i].TaskID
		answered[id] = true
		ok, err := r.db.Answer(r.t.Context(), store.Answer{
			Result: parley.Result{TaskID: id, Outcome: parley.OutcomeOK, Output: []byte(`{"n":2}`)}, At: time.Now(), From: "b1",
		})
		if err != nil || !ok {
			r.t.Errorf("the answer of %s: %v, %v", id, ok, err)
		}
		return nil
	})
	return decisions
}

// TestP14_AnswerAtTheEndOfTheGrace: an answer that is stored when the time of a cancelled
// run is over counts, although the executor has not read it (protocol.md P14, I8).
func TestP14_AnswerAtTheEndOfTheGrace(t *testing.T) {
	onStore(t, func(r *rig) {
		r.apply("name: talk\nsteps:\n  - {id: a, agent: writer}\n  - {id: b, agent: writer, needs: []}\n")
		run := r.start()
		r.follow(run + ".a.1")
		r.follow(run + ".b.1")
		_, err := r.x.Cancel(r.t.Context(), parley.CancelRequest{Run: run, By: "ann"})
		check(r.t, err)
		decisions := r.answersBeforeTimer()
		time.Sleep(31 * time.Second)
		if got := r.get(run); got.Status != parley.RunCompleted && got.Status != parley.RunCancelled {
			t.Fatalf("the run is %s", got.Status)
		}
		for _, id := range []string{"a", "b"} {
			if s := r.step(run, id); s.Status != parley.StepCompleted || string(s.Output) != `{"n":2}` {
				t.Errorf("step %s is %s with %s", id, s.Status, s.Output)
			}
		}
		if len(*decisions) != 2 {
			t.Errorf("%d decisions found an answer, want 2", len(*decisions))
		}
	})
}

// TestT3_AnswerAtTheEndOfTheRunsTime: the same at a run's timeout.
func TestT3_AnswerAtTheEndOfTheRunsTime(t *testing.T) {
	onStore(t, func(r *rig) {
		r.apply("name: talk\ntimeout: 10s\nsteps:\n  - {id: a, agent: writer}\n")
		run := r.start()
		r.follow(run + ".a.1")
		r.answersBeforeTimer()
		time.Sleep(11 * time.Second)
		if got := r.get(run); got.Status != parley.RunCompleted || r.step(run, "a").Status != parley.StepCompleted {
			t.Errorf("the run is %s: %v", got.Status, got.Error)
		}
	})
}

// TestT3_AnswersDoNotPutOffTheEnd: a run whose agents answer all the time ends for all
// that when its time is over.
func TestT3_AnswersDoNotPutOffTheEnd(t *testing.T) {
	onStore(t, func(r *rig) {
		var items []string
		for i := range 40 {
			items = append(items, fmt.Sprint(i))
		}
		r.apply("name: talk\ntimeout: 10s\nsteps:\n  - id: all\n    for_each: [" + strings.Join(items, ", ") +
			"]\n    max_parallel: 10\n    steps:\n      - {id: a, agent: writer}\n")
		run := r.start()
		decisions := r.answersBeforeTimer()
		time.Sleep(11 * time.Second)
		if got := r.get(run); got.Status != parley.RunFailed || got.Error.Code != parley.CodeTimeout {
			t.Errorf("the run is %s: %v", got.Status, got.Error)
		}
		if n := len(*decisions); n != 6 {
			t.Errorf("the end was decided %d times, want 5 times in vain and once more", n)
		}
	})
}

// TestT3_AnswerAtTheEndOfAChildsTime: the same where a child says that the time is over,
// which is that of the run and of what stands beside it.
func TestT3_AnswerAtTheEndOfAChildsTime(t *testing.T) {
	onStore(t, func(r *rig) {
		r.apply("name: part\nsteps:\n  - {id: p, wait: 1h}\n")
		r.apply("name: talk\ntimeout: 10s\nsteps:\n  - {id: one, workflow: part}\n  - {id: a, agent: writer, needs: []}\n")
		run := r.start()
		r.child(run, "one")
		r.follow(run + ".a.1")
		r.answersBeforeTimer()
		answers, own := r.fault, 0
		r.breaks(func(d store.Decision) error { // the run's own timer comes too late
			if d.Run.ID != run {
				return nil
			}
			if own++; own == 1 {
				return errors.New("the disk is full")
			}
			return answers(d)
		})
		time.Sleep(15 * time.Second)
		if got := r.get(run); got.Status != parley.RunFailed || got.Error.Code != parley.CodeTimeout {
			t.Errorf("the run is %s: %v", got.Status, got.Error)
		}
		if s := r.step(run, "a"); s.Status != parley.StepCompleted || string(s.Output) != `{"n":2}` {
			t.Errorf("the step beside it is %s with %s", s.Status, s.Output)
		}
	})
}
