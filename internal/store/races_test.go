package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
)

// race is two writers that want the same row. Each reports whether it has won.
type race struct {
	name string
	// setup makes everything of the run k, and gives the two writers.
	setup func(t *testing.T, db *DB, k string) (a, b func() bool)
}

// races are the pairs of protocol.md §9.
func races() []race {
	ctx := context.Background()
	stale := func(t *testing.T, err error) bool {
		if err != nil && !errors.Is(err, ErrStale) {
			t.Error(err)
		}
		return err == nil
	}
	claimer := func(t *testing.T, db *DB, c Claim, task, token string) func() bool {
		return func() bool {
			return len(must(db.Claim(ctx, c, []ClaimRequest{{TaskID: task, Token: token}}, epoch))(t)) == 1
		}
	}
	mover := func(t *testing.T, db *DB, m Move) func() bool {
		m.At = epoch
		return func() bool { return must(db.Move(ctx, m))(t) }
	}
	answerer := func(t *testing.T, db *DB, a Answer) func() bool {
		return func() bool { return must(db.Answer(ctx, a))(t) }
	}
	decider := func(t *testing.T, db *DB, d Decision) func() bool {
		return func() bool { return stale(t, db.Decide(ctx, d)) }
	}
	// taken gives a run whose only attempt is claimed by a bridge that is dead,
	// and one that may take it over.
	taken := func(t *testing.T, db *DB, k string) (Run, string, Claim, Claim) {
		run := begin(t, db, k, attempt(k, "a", 1))
		owner := claim(t, db, bridge(t, db, k+"-b1"), k+".a.1", "t1")
		must(db.Sweep(ctx, []Worker{{Name: k + "-b1", Inc: 1}}, epoch))(t)
		to := bridge(t, db, k+"-b2")
		to.Token = "t2"
		return run, k + ".a.1", owner, to
	}
	return []race{
		{"claim/claim", func(t *testing.T, db *DB, k string) (a, b func() bool) {
			begin(t, db, k, attempt(k, "a", 1))
			return claimer(t, db, bridge(t, db, k+"-b1"), k+".a.1", "t1"), claimer(t, db, bridge(t, db, k+"-b2"), k+".a.1", "t2")
		}},
		{"claim/cancel", func(t *testing.T, db *DB, k string) (a, b func() bool) {
			run := begin(t, db, k, attempt(k, "a", 1))
			d := next(run, 1)
			d.Close = []Close{{TaskID: k + ".a.1", Outcome: parley.OutcomeCancelled}}
			cancel := decider(t, db, d)
			first := claimer(t, db, bridge(t, db, k+"-b1"), k+".a.1", "t1")
			// A cancel may close what was claimed: it loses nothing, but a
			// claim after it has to.
			return first, func() bool { return cancel() && row(t, db, k+".a.1").ClaimedAt.IsZero() }
		}},
		{"answer/timer", func(t *testing.T, db *DB, k string) (a, b func() bool) {
			d := next(begin(t, db, k, attempt(k, "a", 1)), 1)
			d.Close = []Close{{TaskID: k + ".a.1", Outcome: parley.OutcomeTimeout, CancelAgent: true}}
			return answerer(t, db, answer(k+".a.1", `1`)), decider(t, db, d)
		}},
		{"answer/end of the grace", func(t *testing.T, db *DB, k string) (a, b func() bool) {
			d := next(begin(t, db, k, attempt(k, "a", 1)), 1)
			d.Close = []Close{{TaskID: k + ".a.1", Outcome: parley.OutcomeCancelled, Unanswered: true, CancelAgent: true}}
			return answerer(t, db, answer(k+".a.1", `1`)), decider(t, db, d)
		}},
		{"merged answer/timer", func(t *testing.T, db *DB, k string) (a, b func() bool) {
			run := begin(t, db, k, attempt(k, "a", 1))
			d, e := next(run, 1), next(run, 1)
			ans := answer(k+".a.1", `1`)
			d.Answer, d.Close = &ans, []Close{{TaskID: k + ".a.1", Absorb: true}}
			e.Close = []Close{{TaskID: k + ".a.1", Outcome: parley.OutcomeTimeout}}
			return decider(t, db, d), decider(t, db, e)
		}},
		{"answer/takeover", func(t *testing.T, db *DB, k string) (a, b func() bool) {
			_, task, owner, to := taken(t, db, k)
			take := mover(t, db, Move{Kind: MoveTakeover, TaskID: task, From: owner, To: to})
			ans := answerer(t, db, answer(task, `1`))
			// The answer is accepted either way (I10).
			return func() bool { return !ans() || row(t, db, task).Orphanings == 0 }, take
		}},
		{"answer/answer", func(t *testing.T, db *DB, k string) (a, b func() bool) {
			begin(t, db, k, attempt(k, "a", 1))
			return answerer(t, db, answer(k+".a.1", `1`)), answerer(t, db, answer(k+".a.1", `2`))
		}},
		{"answer/merged answer", func(t *testing.T, db *DB, k string) (a, b func() bool) {
			d := next(begin(t, db, k, attempt(k, "a", 1)), 1)
			ans := answer(k+".a.1", `1`)
			d.Answer, d.Close = &ans, []Close{{TaskID: k + ".a.1", Absorb: true}}
			return answerer(t, db, answer(k+".a.1", `2`)), decider(t, db, d)
		}},
		{"absorb/absorb", func(t *testing.T, db *DB, k string) (a, b func() bool) {
			run := begin(t, db, k, attempt(k, "a", 1))
			must(db.Answer(ctx, answer(k+".a.1", `1`)))(t)
			d, e := next(run, 1), next(run, 2)
			d.Close, e.Close = []Close{{TaskID: k + ".a.1", Absorb: true}}, []Close{{TaskID: k + ".a.1", Absorb: true}}
			d.Insert, e.Insert = []Attempt{attempt(k, "b", 1)}, []Attempt{attempt(k, "c", 1)}
			return decider(t, db, d), decider(t, db, e)
		}},
		{"release/takeover", func(t *testing.T, db *DB, k string) (a, b func() bool) {
			_, task, owner, to := taken(t, db, k)
			return mover(t, db, Move{Kind: MoveRelease, TaskID: task, From: owner}), mover(t, db, Move{Kind: MoveTakeover, TaskID: task, From: owner, To: to})
		}},
		{"takeover/takeover", func(t *testing.T, db *DB, k string) (a, b func() bool) {
			_, task, owner, to := taken(t, db, k)
			third := bridge(t, db, k+"-b3")
			third.Token = "t3"
			return mover(t, db, Move{Kind: MoveTakeover, TaskID: task, From: owner, To: third}), mover(t, db, Move{Kind: MoveTakeover, TaskID: task, From: owner, To: to})
		}},
		{"follow/takeover", func(t *testing.T, db *DB, k string) (a, b func() bool) {
			_, task, owner, to := taken(t, db, k)
			follow := mover(t, db, Move{Kind: MoveFollow, TaskID: task, From: owner, AgentTaskID: "x"})
			take := mover(t, db, Move{Kind: MoveTakeover, TaskID: task, From: owner, To: to})
			// What is followed by now is refused to who saw it claimed.
			return follow, take
		}},
		{"register/claim", func(t *testing.T, db *DB, k string) (a, b func() bool) {
			begin(t, db, k, attempt(k, "a", 1))
			c := bridge(t, db, k+"-b1")
			claims := claimer(t, db, c, k+".a.1", "t1")
			return func() bool {
				must(db.Register(ctx, c.Worker, epoch))(t)
				return row(t, db, k+".a.1").State == AttemptOpen
			}, claims
		}},
		{"beat/declare dead", func(t *testing.T, db *DB, k string) (a, b func() bool) {
			c := bridge(t, db, k+"-b1")
			return func() bool { return stale(t, db.Beat(ctx, c.Worker, c.Inc)) }, func() bool {
				for _, w := range must(db.Sweep(ctx, []Worker{{Name: c.Worker, Inc: c.Inc}}, epoch))(t) {
					if w.Name == c.Worker {
						return w.Dead
					}
				}
				return false
			}
		}},
	}
}

// rowsOf gives what is stored under a key, with the key taken out. Late
// answers are left out: they are what a loser may write.
func rowsOf(t testing.TB, db *DB, key string) string {
	t.Helper()
	var list []string
	for l := range strings.SplitSeq(dump(t, db), "\n") {
		if strings.Contains(l, key) && !strings.HasPrefix(l, "late ") {
			list = append(list, strings.ReplaceAll(l, key, "K"))
		}
	}
	return strings.Join(list, "\n")
}

// Of two writers exactly one wins, and what is stored is what the winner alone
// would have stored: the loser has written nothing.
func TestRaces(t *testing.T) {
	for _, r := range append(races(), questionRaces()...) {
		t.Run(strings.ReplaceAll(r.name, "/", " against "), func(t *testing.T) {
			eachDB(t, func(t *testing.T, db *DB) {
				wins := [2]int{}
				for i := range 4 {
					k := fmt.Sprintf("k%02dx", i)
					writers := [2]func() bool{}
					writers[0], writers[1] = r.setup(t, db, k)
					won := runBoth(t, db, writers, i)
					if won[0] == won[1] {
						t.Fatalf("the first won: %v, the second won: %v", won[0], won[1])
					}
					w := 0
					if won[1] {
						w = 1
					}
					wins[w]++
					alone := fmt.Sprintf("k%02dy", i)
					writers[0], writers[1] = r.setup(t, db, alone)
					if !writers[w]() {
						t.Fatal("the winner alone does not win")
					}
					if !mayLeaveMore(r.name) {
						diff(t, rowsOf(t, db, k), rowsOf(t, db, alone))
					}
				}
				if wins[0] == 0 || wins[1] == 0 {
					t.Errorf("the first won %d times, the second %d times", wins[0], wins[1])
				}
			})
		})
	}
}

// Writers on connections of their own, as different processes are, meet at the
// rows: exactly one of them wins, and none waits for the other for ever.
func TestRacesOfConnections(t *testing.T) {
	db := reopen(t, pgtest.Database(t), Options{Writers: 4})
	for n, r := range append(races(), questionRaces()...) {
		for i := range 8 {
			k := fmt.Sprintf("k%02d-%dx", n, i)
			writers := [2]func() bool{}
			writers[0], writers[1] = r.setup(t, db, k)
			var won [2]bool
			var wg sync.WaitGroup
			begun := make(chan struct{})
			for w := range writers {
				wg.Go(func() { <-begun; won[w] = writers[(w+i)%2]() })
			}
			close(begun)
			wg.Wait()
			if won[0] == won[1] {
				t.Errorf("%s: the first won: %v, the second won: %v", r.name, won[i%2], won[1-i%2])
			}
		}
	}
}

// Groups of two processes that want the same rows in opposite orders do not wait
// for each other in a circle.
func TestNoDeadlocks(t *testing.T) {
	target := pgtest.Database(t)
	var log lockedBuffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	dbs := []*DB{reopen(t, target, Options{Logger: logger, Writers: 2}), reopen(t, target, Options{Logger: logger, Writers: 2})}
	const runs = 24
	for i := range runs {
		id := fmt.Sprintf("run-%02d", i)
		begin(t, dbs[0], id, attempt(id, "a", 1), attempt(id, "b", 1))
	}
	bridges := []Claim{bridge(t, dbs[0], "b0"), bridge(t, dbs[1], "b1")}
	ctx := context.Background()
	var wg sync.WaitGroup
	for p, db := range dbs {
		for w := range 12 {
			wg.Go(func() {
				for i := range 2 * runs {
					n := (i*(2*p+1)*(w+1) + w) % runs
					if p == 1 {
						n = runs - 1 - n
					}
					id := fmt.Sprintf("run-%02d", n)
					switch w % 6 {
					case 0:
						reqs := []ClaimRequest{}
						for k := range 5 {
							task := fmt.Sprintf("run-%02d.%c.1", (n+k*(2*p+5))%runs, 'a'+rune(k%2))
							reqs = append(reqs, ClaimRequest{TaskID: task, Token: fmt.Sprint(p, w, i, k)})
						}
						must(db.Claim(ctx, bridges[p], reqs, epoch))(t)
					case 1:
						must(db.Answer(ctx, answer(id+".b.1", fmt.Sprint(i))))(t)
					case 2:
						check(t, db.Beat(ctx, bridges[p].Worker, bridges[p].Inc))
					case 3:
						must(db.Publish(ctx, epoch.Add(time.Hour), 7))(t)
					case 4:
						row := must(db.RunRow(ctx, id))(t)
						d := next(row, 1)
						on := i%2 == 0
						d.Hold, d.Run.Paused = &on, on
						if err := db.Decide(ctx, d); err != nil && !errors.Is(err, ErrStale) {
							t.Error(err)
						}
					case 5:
						row := must(db.RunRow(ctx, id))(t)
						d := next(row, 1)
						d.RequestCancel = []string{id + ".b.1", id + ".a.1"}
						if err := db.Decide(ctx, d); err != nil && !errors.Is(err, ErrStale) {
							t.Error(err)
						}
					}
				}
			})
		}
	}
	wg.Wait()
	if strings.Contains(log.String(), "deadlock") {
		t.Errorf("deadlocks: %s", log.String())
	}
	deadlocks := int64(0)
	check(t, dbs[0].read(t.Context(), `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`,
		func(r *record) error { deadlocks = r.int(); return nil }))
	diff(t, deadlocks, int64(0))
}

// lockedBuffer takes a log of several goroutines.
type lockedBuffer struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// mayLeaveMore holds for races whose loser may have written, before the winner,
// what the winner does not undo.
func mayLeaveMore(name string) bool {
	for _, s := range []string{"cancel", "answer/takeover", "follow", "register", "person", "hand-off", "reply/settle"} {
		if strings.Contains(name, s) {
			return true
		}
	}
	return false
}

// runBoth runs two writers at once. Every other pair is in one group, in a
// known order, so that both outcomes are seen.
func runBoth(t *testing.T, db *DB, writers [2]func() bool, round int) (won [2]bool) {
	t.Helper()
	var wg sync.WaitGroup
	release := func() {}
	if round%2 == 0 {
		release = stall(t, db)
	}
	first := round / 2 % 2
	wg.Go(func() { won[first] = writers[first]() })
	if round%2 == 0 {
		for range 20 {
			time.Sleep(time.Millisecond)
			if len(db.queue) == 1 {
				break
			}
		}
	}
	wg.Go(func() { won[1-first] = writers[1-first]() })
	if round%2 == 0 {
		for range 20 {
			time.Sleep(time.Millisecond)
			if len(db.queue) == 2 {
				break
			}
		}
	}
	release()
	wg.Wait()
	return won
}

// halfway executes a unit in a transaction of PostgreSQL that ends when the test says so.
func halfway(t *testing.T, db *DB, exec func(*session) error) (end func()) {
	t.Helper()
	executed, ended := make(chan error, 1), make(chan struct{})
	var committed sync.WaitGroup
	committed.Go(func() {
		err := db.submit(context.Background(), synced, func(s *session) error {
			err := exec(s)
			if err == nil {
				err = s.wait()
			}
			executed <- err
			<-ended
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	end = sync.OnceFunc(func() { close(ended); committed.Wait() })
	t.Cleanup(end)
	check(t, <-executed)
	return end
}

// blocked waits until somebody waits for a row that another transaction has locked, or
// until he is done all the same.
func blocked[T any](t *testing.T, db *DB, done <-chan T) {
	t.Helper()
	const waits = `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
	for range 60_000 {
		found := false
		check(t, db.read(t.Context(), waits, func(*record) error { found = true; return nil }))
		if found || len(done) > 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("nobody waits")
}
