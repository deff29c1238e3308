package executor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/store"
)

// TestC7_ArchivedHistoriesAreReplayed: a history is read by the definition that comes
// along, by what was recorded, or by what follows from an agent's name, and has to lead
// to the end that it claims.
func TestC7_ArchivedHistoriesAreReplayed(t *testing.T) {
	x := executor.New(executor.Config{Guest: true, Now: time.Now})
	at := time.Date(2026, 11, 21, 10, 4, 5, 0, time.UTC)
	event := func(seq int64, kind parley.EventType, step, data string) parley.Event {
		return parley.Event{Seq: seq, At: at, Type: kind, Run: "run-1", Step: step, Data: []byte(data)}
	}
	run := func() *store.Archived {
		return &store.Archived{
			Run:        store.Run{ID: "run-1", Workflow: "one", Name: "One", Version: "1", Seq: 3, Status: parley.RunCompleted, CreatedAt: at, EndedAt: at},
			Definition: &store.Definition{Workflow: "one", Name: "One", Version: "1", Source: []byte(`{"name":"one","steps":[{"id":"a","set":1}]}`)},
			Events: []parley.Event{
				event(1, "run.started", "", `{"workflow":"one","version":"1","input":{}}`),
				event(2, "step.completed", "a", `{"kind":"set","output":1}`),
				event(3, "run.completed", "", `{"output":1}`),
			},
		}
	}
	for _, c := range []struct {
		name   string
		change func(*store.Archived)
		say    string
	}{
		{"whole", func(*store.Archived) {}, ""},
		{"imported", func(a *store.Archived) { a.Run.Version, a.Definition = "", nil }, ""},
		{"call", func(a *store.Archived) {
			a.Run.Workflow, a.Run.DefinitionID, a.Definition = "_call", "_call:greeter", nil
			a.Events[1] = event(2, "step.scheduled", "call", `{"kind":"agent","agent":"greeter","input":{},"task_id":"run-1.call.1"}`)
			a.Events = append(a.Events[:2], event(3, "step.completed", "call", `{"kind":"agent","output":1}`), event(4, "run.completed", "", `{"output":1}`))
		}, ""},
		{"no definition", func(a *store.Archived) { a.Definition = nil }, "definition is missing"},
		{"faulty definition", func(a *store.Archived) { a.Definition.Source = []byte(`{"name":"one"}`) }, "definition cannot be read"},
		{"other end", func(a *store.Archived) { a.Run.Status = parley.RunCancelled }, "said to be CANCELLED"},
		{"no end", func(a *store.Archived) { a.Events, a.Run.Status = a.Events[:2], parley.RunRunning }, "lead to RUNNING"},
		{"unknown step", func(a *store.Archived) { a.Events[1].Step = "b" }, "do not follow"},
		{"no JSON", func(a *store.Archived) { a.Events[1].Data = []byte(`{`) }, "event 2 is no JSON"},
		{"gap", func(a *store.Archived) { a.Events[2].Seq = 4 }, "do not follow"},
		{"a handler that there is not", func(a *store.Archived) {
			a.Events[1] = event(2, "step.handling", "a", `{"handler":7,"error":{"code":"X","message":"m"}}`)
		}, "event 2 (step.handling) does not go with what stands before it"},
		{"a child of another kind", func(a *store.Archived) {
			a.Events = []parley.Event{
				a.Events[0], event(2, "step.scheduled", "a", `{"kind":"sub_workflow","child":{"task_id":"run-1.a.1","workflow":"two","version":"1"}}`),
				event(3, "step.completed", "a", `{"kind":"set","output":1}`), event(4, "run.completed", "", `{"output":1}`),
			}
		}, "do not go together"},
		{"an iteration far behind", func(a *store.Archived) {
			a.Definition.Source = []byte(`{"name":"one","steps":[{"id":"a","for_each":"${[1]}","steps":[{"id":"b","set":1}]}]}`)
			a.Events = []parley.Event{
				a.Events[0], event(2, "step.scheduled", "a", `{"kind":"loop","items":[1]}`),
				event(3, "step.completed", "a[900000]/b", `{"kind":"set","output":1}`), event(4, "run.completed", "", `{"output":1}`),
			}
		}, `no step "a[900000]/b"`},
		{"error", func(a *store.Archived) { a.Run.Error = []byte(`[]`) }, "error cannot be read"},
	} {
		a := run()
		c.change(a)
		err := x.CheckArchived(t.Context(), a)
		if c.say == "" && err != nil || c.say != "" && (parley.CodeOf(err) != parley.CodeInvalid || !strings.Contains(err.Error(), c.say)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.say)
		}
	}
}
