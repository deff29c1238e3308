package executor_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// explained gives, in words, what a run waits for.
func (r *rig) explained(run string) (lines []string) {
	r.t.Helper()
	e, err := r.x.Explain(r.t.Context(), run)
	check(r.t, err)
	lines = append(lines, e.Text)
	in := func(t *time.Time) string {
		if t == nil {
			return "-"
		}
		return t.Sub(e.At).String()
	}
	for _, w := range e.Steps {
		lines = append(lines, fmt.Sprintf("%s %s until %s, silent until %s", w.Step, w.Reason, in(w.Until), in(w.SilentUntil)))
	}
	return lines
}

// TestExplain_Run: why each open step waits, from the history and the rows of its
// attempts.
func TestExplain_Run(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply(`
name: talk
timeout: 1d
steps:
  - {id: p, parallel: [{id: a, agent: writer, silence: 2m, attempt_timeout: 1h}, {id: b, agent: writer, retry: {attempts: 2, delay: 30s}}, {id: q, agent: writer}, {id: w, wait: 10m, timeout: 20m}]}
  - {id: z, agent: writer}
`)
		want := func(run string, lines ...string) {
			t.Helper()
			if diff := cmp.Diff(lines, r.explained(run)); diff != "" {
				t.Errorf("explained (-want +got):\n%s", diff)
			}
		}
		run := r.start()
		c := r.follow(run + ".p/a.1")
		r.fail(run + ".p/b.1")
		want(run, "The run has 6 open steps", "p steps until -, silent until -", "p/a agent until -, silent until 2m0s", "p/b backoff until 15s, silent until -",
			"p/q queue until -, silent until -", "p/w timer until 10m0s, silent until -", "z needs until -, silent until -")
		e, err := r.x.Explain(t.Context(), run)
		check(t, err)
		if w := e.Steps[1]; w.AgentTaskID != "at-1" || w.TaskID != run+".p/a.1" || w.AttemptUntil.Sub(e.At) != time.Hour || e.Deadline.Sub(e.At) != 24*time.Hour {
			t.Errorf("%+v", w)
		}
		if w := e.Steps[2]; w.LastError == nil || w.Attempt != 2 || e.Steps[4].Deadline.Sub(e.At) != 20*time.Minute {
			t.Errorf("%+v", w)
		}

		time.Sleep(time.Minute)
		want(run, "The run has 6 open steps", "p steps until -, silent until -", "p/a agent until -, silent until 1m0s", "p/b queue until -, silent until -",
			"p/q queue until -, silent until -", "p/w timer until 9m0s, silent until -", "z needs until -, silent until -")
		r.ask(run+".p/a.1", c, "Which?")
		time.Sleep(2 * time.Second)
		r.steer(pause, run)
		time.Sleep(9 * time.Minute)
		want(run, "The run is paused by ann: lunch", "p steps until -, silent until -", "p/a person until -, silent until -", "p/b paused until -, silent until -",
			"p/q paused until -, silent until -", "p/w paused until -, silent until -", "z needs until -, silent until -")
		e, err = r.x.Explain(t.Context(), run)
		check(t, err)
		if w := e.Steps[1]; w.Text != "for an answer to writer: parley run answer "+run+" p/a --text ANSWER" {
			t.Errorf("%+v", w)
		}
		_, err = r.x.Cancel(t.Context(), parley.CancelRequest{Run: run, By: "bob"})
		check(t, err)
		want(run, "The run is being cancelled by bob", "p cancel until -, silent until -", "p/a cancel until -, silent until -", "p/w cancel until -, silent until -")
		r.steer(terminate, run)
		want(run, "The run has ended: it is CANCELLED")
		_, err = r.x.Explain(t.Context(), "run-9")
		wantCode(t, err, parley.CodeNotFound, "run-9")
	})
}

// TestExplain_Silence: every sign of life of a call renews what is left of its
// silence (rule T2).
func TestExplain_Silence(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		run := r.start()
		r.follow(run + ".a.1")
		time.Sleep(4 * time.Minute)
		h, err := r.db.History(t.Context(), run)
		check(t, err)
		h.Run.Seq++
		check(t, r.db.Decide(t.Context(), store.Decision{Run: h.Run, Seen: h.Run.Seq - 1, Events: []parley.Event{{
			Seq: h.Run.Seq, At: time.Now().UTC(), Type: parley.EventStepProgress, Run: run, Step: "a", Attempt: 1, Data: []byte(`{}`),
		}}}))
		time.Sleep(time.Minute)
		if got := r.explained(run)[1]; got != "a agent until -, silent until 4m0s" {
			t.Error(got)
		}
	})
}
