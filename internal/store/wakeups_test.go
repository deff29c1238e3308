package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// wanting starts a run that wants attention for every reason that there is, and
// asks for the place of an older one.
func wanting(t *testing.T, db *DB, run string, due time.Time) {
	t.Helper()
	st := start(run, attempt(run, "a", 1), attempt(run, "b", 1))
	st.Run.Due = due
	must(db.StartRun(t.Context(), st))(t)
	must(db.Answer(t.Context(), answer(run+".a.1", `1`)))(t)
	check(t, db.submit(t.Context(), synced, func(s *session) error {
		if _, err := s.exec(insertChild, run+".c.1", run, "c", []byte("{}"), []byte("null"), int64(0)); err != nil {
			return err
		}
		for _, text := range []string{
			`UPDATE attempt SET state = 'following', news = 1 WHERE id = 'RUN.b.1'`,
			`INSERT INTO waiter (run, step, name, signal_key, since, news, seen) VALUES ('RUN', 'w', 'paid', '', 0, 1, 0)`,
			`UPDATE child SET state = 'void', news = 1 WHERE parent = 'RUN'`,
			`INSERT INTO lane (workflow, lane_key, running, waiting, last, began) VALUES ('greet', 'RUN', 0, 1, 1, 0)`,
			`INSERT INTO turn (run, workflow, lane_key, place, waits, most, when_full) VALUES ('RUN', 'greet', 'RUN', 1, 1, 1, 'cancel_oldest')`,
		} {
			if _, err := s.exec(strings.ReplaceAll(text, "RUN", run)); err != nil {
				return err
			}
		}
		return nil
	}))
}

// TestWakeupsTakeTurns: runs that nobody can attend to keep no others back, however
// many they are and whatever they wait for.
func TestWakeupsTakeTurns(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		var all []string
		for i := range 5 {
			all = append(all, fmt.Sprintf("run-%d", i))
			wanting(t, db, all[i], epoch.Add(-time.Duration(i/2)*time.Second)) // some at the same time
		}
		const page = 2
		for range 2 {
			seen := map[string][]string{}
			for range 3 {
				w := must(db.Wakeups(t.Context(), epoch, page))(t)
				for kind, list := range map[string][]string{
					"settled": w.Settled, "due": w.Due, "news": w.News, "signals": w.Signals, "turns": w.Turns, "children": w.Children,
				} {
					seen[kind] = append(seen[kind], list...)
				}
				for _, l := range must(db.CrowdedLanes(t.Context(), page))(t) {
					seen["lanes"] = append(seen["lanes"], l.Key)
				}
			}
			for _, kind := range []string{"settled", "due", "news", "signals", "turns", "children", "lanes"} {
				slices.Sort(seen[kind])
				if !slices.Equal(seen[kind], all) {
					t.Errorf("%s: three looks give %v, want %v", kind, seen[kind], all)
				}
			}
		}
	})
}

// TestWakeupsBeginAnewAtOnce: a page that ends with the list is no reason for a
// look that finds nothing.
func TestWakeupsBeginAnewAtOnce(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		wanting(t, db, "run-1", epoch)
		for range 3 {
			w := must(db.Wakeups(t.Context(), epoch, 1))(t)
			one := []string{"run-1"}
			diff(t, w, Wakeups{Settled: one, Due: one, News: one, Signals: one, Turns: one, Children: one})
			diff(t, must(db.CrowdedLanes(t.Context(), 1))(t), []Lane{{"greet", "run-1"}})
		}
	})
}
