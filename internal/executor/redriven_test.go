package executor_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/store"
)

// choosyStore starts no runs of one workflow as long as it is told so.
type choosyStore struct {
	executor.Store
	refuses *atomic.Pointer[string]
}

func (s choosyStore) StartRun(ctx context.Context, st store.Start) (string, error) {
	if w := s.refuses.Load(); w != nil && *w == st.Run.Workflow {
		return "", parley.Errorf(parley.CodeUnavailable, "its values cannot be kept now")
	}
	return s.Store.StartRun(ctx, st)
}

// TestTrigger_AReplayStartsWhatIsMissing: of the workflows and the triggers of a record
// of which some could not start, whatever they are called and for whatever reason, a
// replay starts those that are missing, once.
func TestTrigger_AReplayStartsWhatIsMissing(t *testing.T) {
	const (
		easy   = "name: easy\ntriggers: [{kafka: {topic: orders}}]\nsteps: [{id: a, set: 1}]\n"
		later  = "name: later\ntriggers: [{kafka: {topic: orders}}]\nsteps: [{id: a, set: 1}]\n"
		spaced = `{"name": "any thing", "workflow_id": "any thing", "start_step": "a", "steps": {"a": {"id": "a", "type": "set", "set": 1}},
 "input": {"type": "object", "required": ["n"]}, "triggers": [{"kafka": {"topic": "orders", "input": "${event.data}"}}]}`
		twice = "name: twice\ntriggers:\n  - kafka: {topic: orders, input: {n: 1}}\n  - kafka: {topic: orders, input: '${event.data}'}\n" +
			"input: {type: object, required: [n]}\nsteps: [{id: a, set: 1}]\n"
	)
	for name, c := range map[string]struct {
		workflows     []string
		refuses       string
		mended        string
		before, after []string
	}{
		"the store refuses one": {[]string{easy, later}, "later", "", []string{"easy"}, []string{"easy", "later"}},
		"one whose name has a blank": {
			[]string{easy, spaced}, "", `{"name": "any thing", "workflow_id": "any thing", "start_step": "a", "steps": {"a": {"id": "a", "type": "set", "set": 1}},
 "triggers": [{"kafka": {"topic": "orders"}}]}`, []string{"easy"}, []string{"any thing", "easy"},
		},
		"the second of two triggers": {
			[]string{twice},
			"", "name: twice\ntriggers:\n  - kafka: {topic: orders, input: {n: 1}}\n  - kafka: {topic: orders}\nsteps: [{id: a, set: 1}]\n",
			[]string{"twice"},
			[]string{"twice", "twice"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var refuses atomic.Pointer[string]
			triggering(t, func(cfg *executor.Config) {
				withTopics(cfg)
				cfg.Store = choosyStore{cfg.Store, &refuses}
			}, func(r *triggerRig) {
				t := r.t
				for _, w := range c.workflows {
					r.apply(w)
				}
				refuses.Store(&c.refuses)
				time.Sleep(3 * time.Second)
				check(t, r.bus.Publish(t.Context(), bus.Message{Subject: bus.TopicSubject("orders"), Key: "k", Value: []byte(`"text"`)}))
				time.Sleep(5 * time.Minute)
				r.mu.Lock()
				letters := slices.Clone(r.letters)
				r.mu.Unlock()
				wantEqual(t, r.started(), c.before)
				if len(letters) != 1 {
					t.Fatalf("%d dead letters: %+v", len(letters), letters)
				}
				refuses.Store(nil)
				if c.mended != "" {
					r.apply(c.mended)
				}
				for range 2 {
					time.Sleep(3 * time.Second)
					m := letters[0].Message
					m.At = bus.Position{}
					check(t, r.bus.Publish(t.Context(), m))
					time.Sleep(3 * time.Second)
					wantEqual(t, r.started(), c.after)
				}
			})
		})
	}
}

// started gives the workflows of the runs, sorted.
func (r *triggerRig) started() (list []string) {
	r.t.Helper()
	rows, _, err := r.db.Runs(r.t.Context(), parley.RunQuery{Page: parley.Page{Limit: 100}})
	check(r.t, err)
	for _, row := range rows {
		list = append(list, row.Workflow)
	}
	slices.Sort(list)
	return list
}
