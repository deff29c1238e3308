package executor_test

import (
	"testing"
	"testing/synctest"

	"github.com/parley-project/parley"
)

// TestC7_AKeyIsThatOfOneAgent: calls of agents are runs of one workflow, and a key that
// was used for one agent gives no answer of it for another.
func TestC7_AKeyIsThatOfOneAgent(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		call := func(agent, key string) (parley.Run, bool, error) {
			return r.x.Start(t.Context(), parley.StartRequest{CallAgent: agent, Input: []byte(`{"q":1}`), IdempotencyKey: key})
		}
		first, existing, err := call("writer", "k")
		check(t, err)
		if again, same, err := call("writer", "k"); existing || !same || err != nil || again.ID != first.ID {
			t.Errorf("the same call again: %s, %v, %v", again.ID, same, err)
		}
		other, same, err := call("reader", "k")
		wantCode(t, err, parley.CodeIdempotencyConflict, `"k" was used for another agent, in run "`+first.ID)
		if same || other.ID != "" {
			t.Errorf("another agent has run %s, %v", other.ID, same)
		}
		if run, same, err := call("reader", "l"); err != nil || same || run.Steps[0].Agent != "reader" {
			t.Errorf("under another key: %+v, %v, %v", run, same, err)
		}
	})
}

// TestC7_AKeyGivesItsRunWhateverHasChanged: who repeats a start gets the run that there
// is, also if no new one would be started any more.
func TestC7_AKeyGivesItsRunWhateverHasChanged(t *testing.T) {
	const (
		hedged  = "name: talk\nsteps: [{id: a, agents: [one, other], hedge_after: 1s}]"
		counted = "name: talk\nconcurrency: {key: '${workflow.input.who}'}\nsteps: [{id: a, agent: one}]"
	)
	for name, later := range map[string]struct {
		source     string
		undeclared bool
		code       parley.Code
	}{
		"agents that are not idempotent any more": {hedged, true, parley.CodeConflict},
		"a bound whose key cannot be made":        {counted, false, parley.CodeExpression},
	} {
		t.Run(name, func(t *testing.T) {
			onStore(t, func(r *rig) {
				t := r.t
				r.apply(hedged)
				start := parley.StartRequest{Workflow: "talk", IdempotencyKey: "k"}
				run := r.begin(start)
				r.undeclared.Store(later.undeclared)
				if later.source != hedged {
					r.apply(later.source)
				}
				again, existing, err := r.x.Start(t.Context(), start)
				if err != nil || !existing || again.ID != run {
					t.Errorf("again: %s, %v, %v, want %s", again.ID, existing, err, run)
				}
				for _, key := range []string{"", "other"} {
					start.IdempotencyKey = key
					if _, _, err := r.x.Start(t.Context(), start); parley.CodeOf(err) != later.code {
						t.Errorf("under the key %q: %v", key, err)
					}
				}
				synctest.Wait()
			})
		})
	}
}

// TestC7_AKeyOutlivesItsVersion: who repeats a start gets the run that there is, also if
// the version that is newest by now has other defaults, or would not take the input.
func TestC7_AKeyOutlivesItsVersion(t *testing.T) {
	document := func(schema string) string {
		return "name: talk\ninput: {type: object, properties: {n: " + schema + "}}\nsteps: [{id: a, agent: one}]"
	}
	for name, later := range map[string]string{
		"another default": document("{default: 8}"),
		"a stricter type": document("{type: string, default: x}"),
		"one more member": "name: talk\ninput: {required: [m], properties: {n: {default: 7}}}\nsteps: [{id: a, agent: one}]",
	} {
		t.Run(name, func(t *testing.T) {
			onStore(t, func(r *rig) {
				t := r.t
				r.apply(document("{default: 7}"))
				start := parley.StartRequest{Workflow: "talk", Input: []byte(`{"q":1}`), IdempotencyKey: "k"}
				run := r.begin(start)
				numbered := start
				numbered.Input, numbered.IdempotencyKey = []byte(`{"n":9}`), "l"
				other := r.begin(numbered)
				r.apply(later)
				for want, req := range map[string]parley.StartRequest{run: start, other: numbered} {
					again, existing, err := r.x.Start(t.Context(), req)
					if err != nil || !existing || again.ID != want {
						t.Errorf("again: %s, %v, %v, want %s", again.ID, existing, err, want)
					}
				}
				numbered.IdempotencyKey = "k"
				if run, _, err := r.x.Start(t.Context(), numbered); err == nil {
					t.Errorf("another input under the same key gives run %s", run.ID)
				}
				numbered.Input, numbered.IdempotencyKey = []byte(`{"q":"other","n":"x","m":1}`), "l"
				_, _, err := r.x.Start(t.Context(), numbered)
				wantCode(t, err, parley.CodeIdempotencyConflict, other)
				synctest.Wait()
			})
		})
	}
}

// TestC7_ADerivedKeyOutlivesItsVersion is the same for the key that the workflow makes.
func TestC7_ADerivedKeyOutlivesItsVersion(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		document := func(n string) string {
			return "name: talk\nidempotency_key: '${workflow.input.q}'\ninput: {properties: {n: {default: " + n + "}}}\nsteps: [{id: a, agent: one}]"
		}
		r.apply(document("7"))
		start := parley.StartRequest{Workflow: "talk", Input: []byte(`{"q":"x"}`)}
		run := r.begin(start)
		r.apply(document("8"))
		again, existing, err := r.x.Start(t.Context(), start)
		if err != nil || !existing || again.ID != run {
			t.Errorf("again: %s, %v, %v, want %s", again.ID, existing, err, run)
		}
		start.Input = []byte(`{"q":"x","n":8}`)
		_, _, err = r.x.Start(t.Context(), start)
		wantCode(t, err, parley.CodeIdempotencyConflict, run)
	})
}

// TestStart_ACallIsNoWorkflow: the name under which a call of an agent is kept means no
// workflow, whoever says it.
func TestStart_ACallIsNoWorkflow(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		call, _, err := r.x.Start(t.Context(), parley.StartRequest{CallAgent: "writer", Input: []byte(`{"q":1}`)})
		check(t, err)
		for _, version := range []string{"", "1"} {
			_, _, err := r.x.Start(t.Context(), parley.StartRequest{Workflow: "_call:writer", Version: version})
			wantCode(t, err, parley.CodeNotFound, "_call:writer")
		}
		// The call itself goes on, and can be retried.
		r.steer(terminate, call.ID)
		synctest.Wait()
		again, err := r.x.Retry(t.Context(), call.ID, "ann")
		check(t, err)
		if again.Steps[0].Agent != "writer" {
			t.Errorf("the retry: %+v", again)
		}
	})
}
