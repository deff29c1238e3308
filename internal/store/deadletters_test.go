package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
)

// deadTask is the dead letter of a run's step.
func deadTask(run string, at time.Time) parley.DeadLetter {
	return parley.DeadLetter{
		Kind: parley.DeadLetterTask, Code: parley.CodeAgentError, Reason: "HTTP 500: 100% broken_here, Ärger", Attempts: 4, Agent: "writer", Workflow: "greet",
		Run: run, Step: "a", Task: run + ".a.4", HTTPStatus: 500, FirstFailedAt: at.Add(-time.Minute), CreatedAt: at,
		Key: []byte(run), Value: []byte(`{"run_id": "x"}`),
		Headers: []parley.DeadLetterHeader{{Name: "parley-task", Value: []byte("1")}},
	}.Seal()
}

// deadRecord is the dead letter of a record that is no text.
func deadRecord(offset int64, at time.Time) parley.DeadLetter {
	return parley.DeadLetter{
		Kind: parley.DeadLetterRecord, Code: parley.CodeInvalid, Reason: "no JSON\x00", Attempts: 1,
		Source:    &parley.DeadLetterSource{Subject: "parley.tasks", Topic: "orchestrator.tasks.http", Partition: 3, Offset: offset, Group: "g"},
		CreatedAt: at, Key: []byte{0xff, 0}, Value: []byte("\x00\xff garbage"),
		Headers: []parley.DeadLetterHeader{{Name: "x", Value: []byte{0xfe}}, {Name: "x", Value: []byte{}}},
	}.Seal()
}

// TestDeadLetterOfLongTexts: however long the texts are that a record of a stranger holds,
// it is kept: its reader would try for ever, and acknowledge nothing behind it.
func TestDeadLetterOfLongTexts(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		random := rand.New(rand.NewPCG(1, 2)) // no compression helps
		long := func() string {
			b := make([]byte, 64<<10)
			for i := range b {
				b[i] = '0' + byte(random.IntN(64))
			}
			return string(b)
		}
		l := deadRecord(0, epoch)
		l.Reason, l.Agent, l.Workflow, l.Run, l.Step, l.Task, l.Key = long(), long(), long(), long(), long(), long(), []byte(long())
		l = l.Seal()
		must(db.KeepDeadLetter(t.Context(), l))(t)
		list, _, err := db.DeadLetters(t.Context(), parley.DeadLetterQuery{Filter: parley.DeadLetterFilter{Run: l.Run}})
		check(t, err)
		diff(t, deadIDs(list), l.ID)
	})
}

// giveUp is a decision that lets a run fail, and its task with it.
func giveUp(seen Run, task string, letters ...parley.DeadLetter) Decision {
	d := next(seen, 1)
	d.Run.Status, d.Run.EndedAt = parley.RunFailed, epoch.Add(time.Second)
	d.Answer = &Answer{Result: *failed(task, parley.OutcomeError, parley.CodeAgentError), At: epoch}
	d.Close = []Close{{TaskID: task, Absorb: true}}
	d.DeadLetters = letters
	return d
}

func deadIDs(list []parley.DeadLetter) string {
	var ids []string
	for i := range list {
		ids = append(ids, list[i].ID)
	}
	return strings.Join(ids, " ")
}

// TestDeadLetterIsKeptWhole: what is stored is read back byte for byte, once,
// however often the same record comes.
func TestDeadLetterIsKeptWhole(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		for _, l := range []parley.DeadLetter{deadTask("run-1", epoch), deadRecord(0, epoch), deadRecord(1, epoch)} {
			if !must(db.KeepDeadLetter(ctx, l))(t) || must(db.KeepDeadLetter(ctx, l))(t) {
				t.Errorf("%s is not kept once", l.ID)
			}
			diff(t, must(db.DeadLetter(ctx, l.ID))(t), l)
		}
		empty := deadRecord(2, epoch)
		empty.Key, empty.Headers, empty.Value, empty.Tombstone = nil, nil, nil, true
		must(db.KeepDeadLetter(ctx, empty.Seal()))(t)
		diff(t, must(db.DeadLetter(ctx, empty.Seal().ID))(t), empty.Seal())
		_, total, err := db.DeadLetters(ctx, parley.DeadLetterQuery{})
		check(t, err)
		diff(t, total, 4)
		_, err = db.DeadLetter(ctx, "dl-none")
		wantCode(t, err, parley.CodeNotFound)
		_, err = db.KeepDeadLetter(ctx, parley.DeadLetter{})
		wantCode(t, err, parley.CodeInvalid)
	})
}

// TestDeadLetterWithDecision: the dead letter stands and falls with the decision,
// and costs no commit of its own.
func TestDeadLetterWithDecision(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		run := begin(t, db, "run-1", attempt("run-1", "a", 1))
		l := deadTask("run-1", epoch)
		wantStale(t, db.Decide(ctx, giveUp(run, "run-1.b.1", l)))
		_, err := db.DeadLetter(ctx, l.ID)
		wantCode(t, err, parley.CodeNotFound)
		before := db.SyncedCommits()
		check(t, db.Decide(ctx, giveUp(run, "run-1.a.1", l)))
		diff(t, db.SyncedCommits()-before, int64(1))
		diff(t, must(db.DeadLetter(ctx, l.ID))(t), l)
	})
}

// TestDeadLetterCrash: a crash before the commit leaves neither the end of the
// run nor its dead letter, one behind it leaves both; the decision that is
// repeated then makes no second one.
func TestDeadLetterCrash(t *testing.T) {
	eachTarget(t, func(t *testing.T, target string) {
		dead := errors.New("dead")
		for _, at := range []string{"P11.before", "P11.after"} {
			run := "run-" + strings.ReplaceAll(at, ".", "-")
			var armed atomic.Bool
			db := reopen(t, target, Options{Failpoint: func(name string) error {
				if armed.Load() && name == at {
					return dead
				}
				return nil
			}})
			row := begin(t, db, run, attempt(run, "a", 1))
			l := deadTask(run, epoch)
			armed.Store(true)
			if err := db.Decide(t.Context(), giveUp(row, run+".a.1", l)); !errors.Is(err, dead) {
				t.Fatalf("%s: %v", at, err)
			}
			armed.Store(false)
			ended := must(db.RunRow(t.Context(), run))(t).Status == parley.RunFailed
			_, err := db.DeadLetter(t.Context(), l.ID)
			if kept := err == nil; kept != ended || ended != (at == "P11.after") {
				t.Errorf("%s: run ended %t, dead letter kept %t", at, ended, kept)
			}
			err = db.Decide(t.Context(), giveUp(row, run+".a.1", l))
			if at == "P11.after" {
				wantStale(t, err)
			} else {
				check(t, err)
			}
			_, total, err := db.DeadLetters(t.Context(), parley.DeadLetterQuery{Filter: parley.DeadLetterFilter{Run: run}})
			check(t, err)
			diff(t, total, 1)
		}
	})
}

// TestDeadLetterFilters: each member of a filter restricts, and reasons are
// searched as plain text.
func TestDeadLetterFilters(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		a, b := deadTask("run-1", epoch), deadRecord(7, epoch.Add(time.Second))
		c := deadTask("run-2", epoch.Add(2*time.Second))
		for _, l := range []parley.DeadLetter{a, b, c} {
			must(db.KeepDeadLetter(ctx, l))(t)
		}
		check(t, db.DiscardDeadLetter(ctx, parley.DiscardRequest{ID: c.ID, By: "me"}, epoch))
		for name, test := range map[string]struct {
			filter parley.DeadLetterFilter
			want   []parley.DeadLetter
		}{
			"all":       {parley.DeadLetterFilter{}, []parley.DeadLetter{c, b, a}},
			"state":     {parley.DeadLetterFilter{State: parley.DeadLetterDiscarded}, []parley.DeadLetter{c}},
			"kind":      {parley.DeadLetterFilter{Kind: parley.DeadLetterRecord}, []parley.DeadLetter{b}},
			"code":      {parley.DeadLetterFilter{Code: parley.CodeInvalid}, []parley.DeadLetter{b}},
			"reason":    {parley.DeadLetterFilter{Reason: "http 500"}, []parley.DeadLetter{c, a}},
			"letters":   {parley.DeadLetterFilter{Reason: "Ärger"}, []parley.DeadLetter{c, a}},
			"small":     {parley.DeadLetterFilter{Reason: "HERE, ärg"}, []parley.DeadLetter{c, a}},
			"percent":   {parley.DeadLetterFilter{Reason: "100% b"}, []parley.DeadLetter{c, a}},
			"wildcards": {parley.DeadLetterFilter{Reason: "no%J"}, nil},
			"agent":     {parley.DeadLetterFilter{Agent: "writer"}, []parley.DeadLetter{c, a}},
			"workflow":  {parley.DeadLetterFilter{Workflow: "other"}, nil},
			"run":       {parley.DeadLetterFilter{Run: "run-2"}, []parley.DeadLetter{c}},
			"topic":     {parley.DeadLetterFilter{Topic: "orchestrator.tasks.http"}, []parley.DeadLetter{b}},
			"after":     {parley.DeadLetterFilter{CreatedAfter: epoch}, []parley.DeadLetter{c, b}},
			"before":    {parley.DeadLetterFilter{CreatedBefore: epoch.Add(2 * time.Second)}, []parley.DeadLetter{b, a}},
			"together":  {parley.DeadLetterFilter{Agent: "writer", State: parley.DeadLetterWaiting}, []parley.DeadLetter{a}},
		} {
			list, total, err := db.DeadLetters(ctx, parley.DeadLetterQuery{Filter: test.filter})
			check(t, err)
			if deadIDs(list) != deadIDs(test.want) || total != len(test.want) {
				t.Errorf("%s: %s (%d)", name, deadIDs(list), total)
			}
			if len(list) > 0 && (list[0].Value != nil || list[0].Key != nil) {
				t.Errorf("%s: a list holds values", name)
			}
		}
		list, behind, err := db.DeadLettersAfter(ctx, parley.DeadLetterFilter{}, DeadLetterMark{ID: a.ID, At: a.CreatedAt}, 1)
		check(t, err)
		diff(t, deadIDs(list), b.ID)
		diff(t, behind, 2)

		// Those of one moment come one after another, none twice.
		for offset := range int64(3) {
			must(db.KeepDeadLetter(ctx, deadRecord(10+offset, epoch)))(t)
		}
		seen := map[string]int{}
		for mark := (DeadLetterMark{}); ; {
			list, _, err := db.DeadLettersAfter(ctx, parley.DeadLetterFilter{}, mark, 1)
			check(t, err)
			if len(list) == 0 {
				break
			}
			mark = DeadLetterMark{ID: list[0].ID, At: list[0].CreatedAt}
			if seen[mark.ID]++; seen[mark.ID] > 1 {
				t.Fatalf("%s comes again", mark.ID)
			}
		}
		diff(t, len(seen), 6)
	})
}

// retrying is the start of a run that retries another.
func retrying(run, from string, r Replay) Start {
	st := start(run)
	st.Run.RetriedFrom, st.Replay = from, &r
	return st
}

// TestDeadLetterIsReplayedByTheRetry: the start of the new run resolves the dead
// letter, in one transaction; again is refused and starts nothing, unless it is
// forced.
func TestDeadLetterIsReplayedByTheRetry(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		l := deadTask("run-1", epoch)
		near, done := deadTask("run-7", epoch), deadTask("run-8", epoch)
		for _, l := range []parley.DeadLetter{l, near, done} {
			must(db.KeepDeadLetter(ctx, l))(t)
		}
		check(t, db.DiscardDeadLetter(ctx, parley.DiscardRequest{ID: done.ID, By: "her"}, epoch))
		done = must(db.DeadLetter(ctx, done.ID))(t)
		_, err := db.StartRun(ctx, retrying("run-2", "run-1", Replay{ID: "dl-none", By: "me"}))
		wantCode(t, err, parley.CodeNotFound)
		must(db.StartRun(ctx, retrying("run-3", "run-1", Replay{ID: l.ID, By: "me"})))(t)
		got := must(db.DeadLetter(ctx, l.ID))(t)
		if got.State != parley.DeadLetterReplayed || got.ReplayRun != "run-3" || got.ResolvedBy != "me" || got.Replays != 1 || !got.ResolvedAt.Equal(epoch) {
			t.Errorf("%+v", got)
		}
		_, err = db.StartRun(ctx, retrying("run-4", "run-1", Replay{ID: l.ID, By: "me"}))
		wantCode(t, err, parley.CodeConflict)
		must(db.StartRun(ctx, retrying("run-5", "run-1", Replay{ID: l.ID, By: "you", Force: true})))(t)
		got = must(db.DeadLetter(ctx, l.ID))(t)
		if got.ReplayRun != "run-5" || got.ResolvedBy != "you" || got.Replays != 2 {
			t.Errorf("%+v", got)
		}
		// Nor is one left out that is forced while another of its run waits.
		beside := deadTask("run-1", epoch)
		beside.Step, beside.Task = "b", "run-1.b.1"
		beside = beside.Seal()
		must(db.KeepDeadLetter(ctx, beside))(t)
		must(db.StartRun(ctx, retrying("run-6", "run-1", Replay{ID: l.ID, By: "we", Force: true})))(t)
		for id, times := range map[string]int{l.ID: 3, beside.ID: 1} {
			got = must(db.DeadLetter(ctx, id))(t)
			diff(t, []any{got.State, got.ReplayRun, got.ResolvedBy, got.Replays}, []any{parley.DeadLetterReplayed, "run-6", "we", times})
		}
		must(db.StartRun(ctx, retrying("run-6b", "run-8", Replay{ID: done.ID, Force: true})))(t)
		diff(t, must(db.DeadLetter(ctx, done.ID))(t).Replays, 1)
		check(t, db.submit(ctx, synced, func(s *session) error {
			_, err := s.exec(`UPDATE dead_letter SET state = 'waiting' WHERE id = ?`, done.ID)
			return err
		}))
		must(db.StartRun(ctx, retrying("run-6c", "run-8", Replay{ID: done.ID, Force: true})))(t)
		diff(t, must(db.DeadLetter(ctx, done.ID))(t).Replays, 2) // once for one that waits
		done = must(db.DeadLetter(ctx, done.ID))(t)
		for _, run := range []string{"run-2", "run-4"} {
			if _, err := db.RunRow(ctx, run); parley.CodeOf(err) != parley.CodeNotFound {
				t.Errorf("%s was started: %v", run, err)
			}
		}
		// A retry of the run itself resolves what waits, too, but no record that names it.
		other, record := deadTask("run-9", epoch), deadRecord(9, epoch)
		record.Run, record.Task = "run-9", "run-9.a.1"
		gone := deadTask("run-9", epoch)
		gone.Step, gone.Task = "b", "run-9.b.1"
		gone = gone.Seal()
		for _, l := range []parley.DeadLetter{other, record, gone} {
			must(db.KeepDeadLetter(ctx, l))(t)
		}
		check(t, db.DiscardDeadLetter(ctx, parley.DiscardRequest{ID: gone.ID, By: "her"}, epoch))
		gone = must(db.DeadLetter(ctx, gone.ID))(t)
		must(db.StartRun(ctx, retrying("run-10", "run-9", Replay{By: "me"})))(t)
		diff(t, must(db.DeadLetter(ctx, other.ID))(t).ReplayRun, "run-10")
		for _, untouched := range []parley.DeadLetter{record, gone, near, done} {
			diff(t, must(db.DeadLetter(ctx, untouched.ID))(t), untouched)
		}
	})
}

// TestDeadLetterReplayRace: of several who replay at once one starts a run.
func TestDeadLetterReplayRace(t *testing.T) {
	eachTarget(t, func(t *testing.T, target string) {
		db := reopen(t, target, Options{})
		const rounds = 20
		for round := range rounds {
			l := deadTask(fmt.Sprintf("run-%d", round), epoch)
			must(db.KeepDeadLetter(t.Context(), l))(t)
			oneWins(t, func(i int) error {
				_, err := db.StartRun(t.Context(), retrying(fmt.Sprintf("run-%d-%d", round, i), l.Run, Replay{ID: l.ID}))
				return err
			})
			_, runs, err := db.Runs(t.Context(), parley.RunQuery{})
			check(t, err)
			diff(t, runs, round+1)
			diff(t, must(db.DeadLetter(t.Context(), l.ID))(t).Replays, 1)
		}
	})
}

// oneWins has several try at once to replay a letter: one succeeds.
func oneWins(t *testing.T, try func(i int) error) {
	t.Helper()
	var all sync.WaitGroup
	var won atomic.Int64
	for i := range 4 {
		all.Go(func() {
			switch err := try(i); {
			case err == nil:
				won.Add(1)
			case errors.Is(err, ErrStale), parley.CodeOf(err) == parley.CodeConflict:
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	diff(t, won.Load(), int64(1))
}

// TestDeadLetterHoldRace: of several who replay a record at once one gets it.
func TestDeadLetterHoldRace(t *testing.T) {
	eachTarget(t, func(t *testing.T, target string) {
		db := reopen(t, target, Options{})
		const rounds = 20
		for round := range rounds {
			l := deadRecord(int64(round), epoch)
			must(db.KeepDeadLetter(t.Context(), l))(t)
			oneWins(t, func(i int) error {
				_, err := db.HoldDeadLetter(t.Context(), Replay{ID: l.ID}, epoch.Add(time.Duration(i)*time.Second))
				return err
			})
		}
	})
}

// TestDeadLetterHoldOfWhatIsDiscarded: whoever looked at a letter that somebody else is
// just discarding does not get it.
func TestDeadLetterHoldOfWhatIsDiscarded(t *testing.T) {
	target := pgtest.Copy(t, migrated(t))
	db, other := openedAt(t, target, Options{}), openedAt(t, target, Options{})
	l := deadRecord(1, epoch)
	must(db.KeepDeadLetter(t.Context(), l))(t)
	end := halfway(t, other, func(s *session) error { return s.later(1, discardDead, unixMicro(epoch), "me", nil, l.ID) })
	held := make(chan error, 1)
	go func() { _, err := db.HoldDeadLetter(t.Context(), Replay{ID: l.ID}, epoch); held <- err }()
	blocked(t, db, held)
	end()
	wantStale(t, <-held)
	_, err := db.HoldDeadLetter(t.Context(), Replay{ID: l.ID}, epoch)
	wantCode(t, err, parley.CodeConflict)
}

// TestDeadLetterHold: a record is one's who replays it for 30 s, and nobody's
// replay is noted under the hold of another.
func TestDeadLetterHold(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		l, near := deadRecord(1, epoch), deadRecord(2, epoch)
		must(db.KeepDeadLetter(ctx, l))(t)
		must(db.KeepDeadLetter(ctx, near))(t)
		r := Replay{ID: l.ID, By: "me"}
		beside := Replay{ID: near.ID, By: "her"}
		first := must(db.HoldDeadLetter(ctx, r, epoch))(t)
		_, err := db.HoldDeadLetter(ctx, r, epoch.Add(29*time.Second))
		wantCode(t, err, parley.CodeConflict)
		second := must(db.HoldDeadLetter(ctx, r, epoch.Add(30*time.Second)))(t)
		diff(t, must(db.HoldDeadLetter(ctx, beside, epoch.Add(30*time.Second)))(t), second) // the same name for another one
		wantStale(t, db.ResolveReplay(ctx, r, first, epoch))
		check(t, db.FreeDeadLetter(ctx, l.ID, first)) // not the holder's any more: nothing
		_, err = db.HoldDeadLetter(ctx, r, epoch.Add(31*time.Second))
		wantCode(t, err, parley.CodeConflict)
		check(t, db.ResolveReplay(ctx, r, second, epoch.Add(31*time.Second)))
		got := must(db.DeadLetter(ctx, l.ID))(t)
		if got.State != parley.DeadLetterReplayed || got.Replays != 1 || got.ReplayRun != "" {
			t.Errorf("%+v", got)
		}
		_, err = db.HoldDeadLetter(ctx, r, epoch.Add(time.Hour))
		wantCode(t, err, parley.CodeConflict)
		diff(t, must(db.DeadLetter(ctx, near.ID))(t), near)
		_, err = db.HoldDeadLetter(ctx, beside, epoch.Add(31*time.Second))
		wantCode(t, err, parley.CodeConflict)
		r.Force = true
		third := must(db.HoldDeadLetter(ctx, r, epoch.Add(32*time.Second)))(t) // what was replayed is nobody's any more
		check(t, db.FreeDeadLetter(ctx, l.ID, third))
		third = must(db.HoldDeadLetter(ctx, r, epoch.Add(time.Hour)))(t)
		must(db.HoldDeadLetter(ctx, beside, epoch.Add(time.Hour)))(t)
		check(t, db.FreeDeadLetter(ctx, l.ID, third))
		_, err = db.HoldDeadLetter(ctx, beside, epoch.Add(time.Hour))
		wantCode(t, err, parley.CodeConflict)
	})
}

// TestDeadLetterDiscard: what waits is discarded, what was replayed is not.
func TestDeadLetterDiscard(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		a, b, c := deadTask("run-1", epoch), deadRecord(1, epoch), deadRecord(2, epoch)
		for _, l := range []parley.DeadLetter{a, b, c} {
			must(db.KeepDeadLetter(ctx, l))(t)
		}
		must(db.StartRun(ctx, retrying("run-2", "run-1", Replay{ID: a.ID})))(t)
		wantCode(t, db.DiscardDeadLetter(ctx, parley.DiscardRequest{ID: a.ID}, epoch), parley.CodeConflict)
		wantCode(t, db.DiscardDeadLetter(ctx, parley.DiscardRequest{ID: "dl-none"}, epoch), parley.CodeNotFound)
		req := parley.DiscardRequest{ID: b.ID, Note: "no use", By: "me"}
		check(t, db.DiscardDeadLetter(ctx, req, epoch))
		req.By = "you"
		check(t, db.DiscardDeadLetter(ctx, req, epoch.Add(time.Hour)))
		got := must(db.DeadLetter(ctx, b.ID))(t)
		if got.State != parley.DeadLetterDiscarded || got.ResolvedBy != "me" || got.Note != "no use" || !got.ResolvedAt.Equal(epoch) {
			t.Errorf("%+v", got)
		}
		n := must(db.DiscardDeadLetters(ctx, parley.DiscardRequest{Filter: parley.DeadLetterFilter{Kind: parley.DeadLetterRecord}}, epoch))(t)
		diff(t, n, 1)
		diff(t, must(db.DeadLetter(ctx, a.ID))(t).State, parley.DeadLetterReplayed)
		// Replayed all the same, it is no discarded one any more.
		forced := Replay{ID: b.ID, By: "her", Force: true}
		check(t, db.ResolveReplay(ctx, forced, must(db.HoldDeadLetter(ctx, forced, epoch))(t), epoch))
		got = must(db.DeadLetter(ctx, b.ID))(t)
		diff(t, []any{got.State, got.ResolvedBy, got.Note}, []any{parley.DeadLetterReplayed, "her", ""})
	})
}

// TestDeadLetterCopies: each new dead letter is given to be published until that
// is noted, to one at a time; one that is discarded before is not.
func TestDeadLetterCopies(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		a, b := deadRecord(1, epoch), deadRecord(2, epoch.Add(time.Second))
		for _, l := range []parley.DeadLetter{a, b} {
			must(db.KeepDeadLetter(ctx, l))(t)
		}
		diff(t, must(db.DeadLetterCopies(ctx, epoch.Add(-time.Second), 10))(t), []parley.DeadLetter(nil))
		diff(t, must(db.DeadLetterCopies(ctx, epoch.Add(time.Second), 10))(t), []parley.DeadLetter{a, b})
		diff(t, len(must(db.DeadLetterCopies(ctx, epoch.Add(2*time.Second), 10))(t)), 0)
		check(t, db.DeadLettersCopied(ctx, []string{a.ID}))
		again := epoch.Add(time.Minute)
		diff(t, deadIDs(must(db.DeadLetterCopies(ctx, again, 10))(t)), b.ID)
		check(t, db.DiscardDeadLetter(ctx, parley.DiscardRequest{ID: b.ID}, epoch))
		diff(t, len(must(db.DeadLetterCopies(ctx, again.Add(time.Hour), 10))(t)), 0)
	})
}

// TestDeadLetterLimits: the oldest go first, by number, by size and by age.
func TestDeadLetterLimits(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		fill := func() {
			for i := range 10 {
				l := deadRecord(int64(i), epoch.Add(time.Duration(i)*time.Second))
				l.Value = make([]byte, 10_000)
				must(db.KeepDeadLetter(ctx, l.Seal()))(t)
			}
		}
		left := func() string {
			list, _, err := db.DeadLetters(ctx, parley.DeadLetterQuery{})
			check(t, err)
			var offsets []string
			for i := range list {
				offsets = append(offsets, fmt.Sprint(list[i].Source.Offset))
			}
			return strings.Join(offsets, "")
		}
		all := DeadLetterLimits{Rows: 100, Bytes: 1 << 30, Before: epoch}
		fill()
		diff(t, must(db.PurgeDeadLetters(ctx, all))(t), 0)
		few := all
		few.Rows = 7
		diff(t, must(db.PurgeDeadLetters(ctx, few))(t), 3)
		diff(t, left(), "9876543")
		small := all
		small.Bytes = 53_000
		diff(t, must(db.PurgeDeadLetters(ctx, small))(t), 2)
		diff(t, left(), "98765")
		young := all
		young.Before = epoch.Add(8 * time.Second)
		diff(t, must(db.PurgeDeadLetters(ctx, young))(t), 3)
		diff(t, left(), "98")
	})
}

// interrupted calls once, before a text is sent to a database, what somebody else does.
type interrupted struct {
	net.Conn
	text string
	once *sync.Once
	do   func()
}

func (c interrupted) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(c.text)) {
		c.once.Do(c.do)
	}
	return c.Conn.Write(b)
}

// TestDeadLetterLimitsOfSeveral: processes that keep the limits at the same time remove no
// more than one of them alone would.
func TestDeadLetterLimitsOfSeveral(t *testing.T) {
	ctx := t.Context()
	target := pgtest.Copy(t, migrated(t))
	other := openedAt(t, target, Options{})
	limits := DeadLetterLimits{Rows: 7, Bytes: 1 << 30, Before: epoch}
	purge := func() { diff(t, must(other.PurgeDeadLetters(ctx, limits))(t), 3) }
	var once sync.Once
	db := openedAt(t, target, Options{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return interrupted{c, "SELECT id, kept FROM dead_letter", &once, purge}, err
	}})
	for i := range 10 {
		must(other.KeepDeadLetter(ctx, deadRecord(int64(i), epoch.Add(time.Duration(i)*time.Second))))(t)
	}
	must(db.PurgeDeadLetters(ctx, limits))(t)
	_, left, err := db.DeadLetters(ctx, parley.DeadLetterQuery{})
	check(t, err)
	diff(t, left, 7)
}
