package deadletter_test

import (
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/deadletter"
)

// TestTombstones: a record without a value stays one, and one whose value is empty does not
// become one, in the copy and when it is published again: readers take them for different
// things.
func TestTombstones(t *testing.T) {
	for name, value := range map[string][]byte{"none": nil, "empty": {}} {
		t.Run(name, func(t *testing.T) {
			onKeeper(t, deadletter.Limits{}, func(r *rig) {
				t := r.t
				d := record(7)
				d.Message.Value = value
				l := r.keep(d)
				r.running(func() { time.Sleep(5 * time.Second) })
				_, err := r.keeper.Replay(t.Context(), parley.ReplayRequest{ID: l.ID})
				check(t, err)
				list := r.messages()
				if len(list) != 2 {
					t.Fatalf("%d messages", len(list))
				}
				for _, m := range list {
					if len(m.Value) > 0 || (m.Value == nil) != (value == nil) {
						t.Errorf("on %s the value is %#v, want %#v", m.Subject, m.Value, value)
					}
				}
			})
		})
	}
}

// TestReplayAdmitted: while nothing new is begun, nothing is replayed, and it waits on.
func TestReplayAdmitted(t *testing.T) {
	onKeeper(t, deadletter.Limits{}, func(r *rig) {
		t := r.t
		l, task := r.keep(record(7)), r.giveUp("run-2")
		k := deadletter.New(deadletter.Config{DB: r.db, Bus: r, Retry: r.retryRun, Admit: func() error {
			return parley.Errorf(parley.CodeUnavailable, "the process stops")
		}})
		for _, id := range []string{l.ID, task.ID} {
			_, err := k.Replay(t.Context(), parley.ReplayRequest{ID: id})
			wantCode(t, err, parley.CodeUnavailable, "the process stops")
		}
		if n := len(r.ids(parley.DeadLetterFilter{State: parley.DeadLetterWaiting})); n != 2 || len(r.messages()) > 0 || len(r.retried) > 0 {
			t.Errorf("%d wait, and %v was retried", n, r.retried)
		}
	})
}
