package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
)

func TestClaim(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		c := bridge(t, db, "b1")
		other := bridge(t, db, "b2")
		held, taken := attempt("run-1", "held", 1), attempt("run-1", "taken", 1)
		held.Held = true
		later := attempt("run-1", "later", 1)
		later.VisibleAt = epoch.Add(time.Hour)
		begin(t, db, "run-1", attempt("run-1", "a", 1), held, taken, later)
		claim(t, db, other, taken.ID, "o1")
		reqs := []ClaimRequest{{TaskID: "run-1.a.1", Token: "t1"}, {TaskID: "run-1.held.1", Token: "t2"}, {TaskID: "run-1.taken.1", Token: "t3"}, {TaskID: "run-1.later.1", Token: "t4"}, {TaskID: "run-9.a.1", Token: "t5"}}
		list := must(db.Claim(t.Context(), c, reqs, epoch))(t)
		if len(list) != 2 || list[0].ID != "run-1.a.1" || list[1].ID != "run-1.later.1" {
			t.Fatalf("claimed %v", list)
		}
		want := attempt("run-1", "a", 1)
		want.State, want.Claim, want.ClaimedAt = AttemptClaimed, Claim{"b1", 1, "t1"}, epoch
		diff(t, list[0], want)
		diff(t, must(db.Owned(t.Context(), "b1", 1))(t), []Owned{
			{TaskID: "run-1.a.1", Token: "t1", State: AttemptClaimed}, {TaskID: "run-1.later.1", Token: "t4", State: AttemptClaimed},
		})

		// The reply was lost: the same call gives the same rows and changes nothing.
		before := dump(t, db)
		diff(t, must(db.Claim(t.Context(), c, reqs, epoch.Add(time.Second)))(t), list)
		// Another token is another claim.
		if again := must(db.Claim(t.Context(), c, []ClaimRequest{{TaskID: "run-1.a.1", Token: "t9"}}, epoch))(t); len(again) != 0 {
			t.Fatalf("claimed twice: %v", again)
		}
		diff(t, dump(t, db), before)
	})
}

func TestPublish(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		held, later := attempt("run-1", "held", 1), attempt("run-1", "later", 1)
		held.Held = true
		later.VisibleAt = epoch.Add(time.Minute)
		older := attempt("run-1", "b", 1)
		older.VisibleAt = epoch.Add(-time.Microsecond)
		begin(t, db, "run-1", attempt("run-1", "a", 1), older, held, later)
		count := func(at time.Duration, limit int) int {
			return len(must(db.Publish(t.Context(), epoch.Add(at), limit))(t))
		}
		diff(t, count(-time.Second, 10), 0)
		if first := must(db.Publish(t.Context(), epoch, 1))(t); len(first) != 1 || first[0].ID != older.ID {
			t.Fatalf("%v instead of the oldest", first)
		}
		diff(t, count(0, 10), 1)
		diff(t, count(4*time.Second, 10), 0)
		diff(t, count(6*time.Second, 10), 2)
		check(t, db.Defer(t.Context(), []Deferral{{TaskID: "run-1.a.1", At: epoch.Add(time.Hour)}, {TaskID: "run-1.x.1", At: epoch}}))
		diff(t, count(12*time.Second, 10), 1)
		diff(t, count(2*time.Hour, 10), 3)
	})
}

func TestPauseHoldsOpenAttempts(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		c := bridge(t, db, "b1")
		run := begin(t, db, "run-1", attempt("run-1", "a", 1), attempt("run-1", "b", 1))
		begin(t, db, "run-1.b", attempt("run-1.b", "a", 1)) // its ids begin as those of run-1 do
		mine := claim(t, db, c, "run-1.a.1", "t1")
		d := next(run, 1)
		on := true
		d.Hold, d.Run.Paused = &on, true
		check(t, db.Decide(t.Context(), d))
		diff(t, []bool{row(t, db, "run-1.a.1").Held, row(t, db, "run-1.b.1").Held, row(t, db, "run-1.b.a.1").Held}, []bool{true, true, false})
		// A claim that is given back unsent is held back as well.
		if moved := must(db.Move(t.Context(), Move{Kind: MoveRelease, TaskID: "run-1.a.1", From: mine, At: epoch}))(t); !moved {
			t.Fatal("not released")
		}
		if list := must(db.Claim(t.Context(), c, []ClaimRequest{{TaskID: "run-1.a.1", Token: "t3"}}, epoch))(t); len(list) != 0 {
			t.Fatal("claimed while held")
		}
		if list := must(db.Claim(t.Context(), c, []ClaimRequest{{TaskID: "run-1.b.1", Token: "t2"}}, epoch))(t); len(list) != 0 {
			t.Fatal("claimed while held")
		}
		off := false
		d = next(d.Run, 1)
		d.Hold, d.Run.Paused = &off, false
		check(t, db.Decide(t.Context(), d))
		claim(t, db, c, "run-1.b.1", "t2")
	})
}

func TestMoves(t *testing.T) {
	unknown := failed("run-1.a.1", parley.OutcomeUnknown, parley.CodeOutcomeUnknown)
	failure := failed("run-1.a.1", parley.OutcomeError, parley.CodeAgentUnavailable)
	eachDB(t, func(t *testing.T, db *DB) {
		c1 := bridge(t, db, "b1")
		bridge(t, db, "b2")
		bridge(t, db, "b2") // a later life, of another bridge
		reset := func(policy parley.OutcomePolicy, orphanings int, state AttemptState) Claim {
			check(t, db.submit(t.Context(), synced, func(s *session) error {
				for _, table := range []string{"run", "event", "attempt", "late"} {
					if _, err := s.exec(`DELETE FROM ` + table); err != nil {
						return err
					}
				}
				return nil
			}))
			a := attempt("run-1", "a", 1)
			a.Policy.OutcomeUnknown = policy
			begin(t, db, "run-1", a)
			c := claim(t, db, c1, a.ID, "t0")
			for i := range orphanings {
				to := c
				to.Token = strings.Repeat("x", i+1)
				if policy == parley.OutcomeFail {
					t.Fatal("never sent again")
				}
				if !must(db.Move(t.Context(), Move{Kind: MoveAgain, TaskID: a.ID, From: c, To: to, At: epoch}))(t) {
					t.Fatal("refused")
				}
				c = to
			}
			if state != AttemptClaimed {
				if !must(db.Move(t.Context(), Move{Kind: MoveFollow, TaskID: a.ID, From: c, AgentTaskID: "at-1", AgentContextID: "ac-1"}))(t) {
					t.Fatal("refused")
				}
			}
			if state == AttemptSettled && !must(db.Answer(t.Context(), Answer{Result: *failure, At: epoch}))(t) {
				t.Fatal("refused")
			}
			return c
		}
		const lookup, fail = parley.OutcomeLookup, parley.OutcomeFail
		to := Claim{"b1", c1.Inc, "new"}
		for _, c := range []struct {
			name       string
			policy     parley.OutcomePolicy
			orphanings int
			state      AttemptState
			m          Move
			ok         bool
			want       AttemptState
			outcome    parley.Outcome
		}{
			{"release", fail, 0, AttemptClaimed, Move{Kind: MoveRelease}, true, AttemptOpen, ""},
			{"release what was sent once", lookup, 1, AttemptClaimed, Move{Kind: MoveRelease}, false, AttemptClaimed, ""},
			{"release what is followed", lookup, 0, AttemptFollowing, Move{Kind: MoveRelease}, false, AttemptFollowing, ""},
			{"cancelled", fail, 0, AttemptClaimed, Move{Kind: MoveCancelled, Result: &parley.Result{Outcome: parley.OutcomeCancelled}}, true, AttemptSettled, parley.OutcomeCancelled},
			{"follow", fail, 0, AttemptClaimed, Move{Kind: MoveFollow, AgentTaskID: "at-1"}, true, AttemptFollowing, ""},
			{"follow again", fail, 0, AttemptFollowing, Move{Kind: MoveFollow, AgentTaskID: "at-1"}, true, AttemptFollowing, ""},
			{"follow what has its answer", fail, 0, AttemptSettled, Move{Kind: MoveFollow, AgentTaskID: "at-1"}, false, AttemptSettled, parley.OutcomeError},
			{"follow another", fail, 0, AttemptFollowing, Move{Kind: MoveFollow, AgentTaskID: "at-2"}, false, AttemptFollowing, ""},
			{"fail", lookup, 0, AttemptClaimed, Move{Kind: MoveFail, Result: failure}, true, AttemptSettled, parley.OutcomeError},
			{"fail what was sent once", lookup, 1, AttemptClaimed, Move{Kind: MoveFail, Result: failure}, false, AttemptClaimed, ""},
			{"fail what is followed", lookup, 1, AttemptFollowing, Move{Kind: MoveFail, Result: failure}, true, AttemptSettled, parley.OutcomeError},
			{"unknown", fail, 0, AttemptClaimed, Move{Kind: MoveUnknown, Result: unknown}, true, AttemptSettled, parley.OutcomeUnknown},
			{"unknown task", fail, 0, AttemptFollowing, Move{Kind: MoveUnknown, Result: unknown}, true, AttemptSettled, parley.OutcomeUnknown},
			{"again", lookup, 1, AttemptClaimed, Move{Kind: MoveAgain, To: to}, true, AttemptClaimed, ""},
			{"again from following", parley.OutcomeResend, 0, AttemptFollowing, Move{Kind: MoveAgain, To: to}, true, AttemptClaimed, ""},
			{"again under fail", fail, 0, AttemptClaimed, Move{Kind: MoveAgain, To: to}, false, AttemptClaimed, ""},
			{"again too often, resent", parley.OutcomeResend, 2, AttemptClaimed, Move{Kind: MoveAgain, To: to}, false, AttemptSettled, parley.OutcomeUnknown},
			{"again too often", lookup, 2, AttemptClaimed, Move{Kind: MoveAgain, To: to}, false, AttemptSettled, parley.OutcomeUnknown},
			{"takeover of the living", lookup, 0, AttemptClaimed, Move{Kind: MoveTakeover, To: to}, false, AttemptClaimed, ""},
		} {
			t.Run(c.name, func(t *testing.T) {
				owner := reset(c.policy, c.orphanings, c.state)
				c.m.TaskID, c.m.At = "run-1.a.1", epoch.Add(time.Second)
				for _, wrong := range []Claim{{"b2", owner.Inc, owner.Token}, {"b1", owner.Inc + 1, owner.Token}, {"b1", owner.Inc, "t9"}} {
					before := dump(t, db)
					c.m.From = wrong
					if must(db.Move(t.Context(), c.m))(t) {
						t.Fatalf("moved by %v", wrong)
					}
					diff(t, dump(t, db), before)
				}
				c.m.From = owner
				if ok := must(db.Move(t.Context(), c.m))(t); ok != c.ok {
					t.Fatalf("ok is %v", ok)
				}
				got := row(t, db, "run-1.a.1")
				outcome := parley.Outcome("")
				if got.Result != nil {
					outcome = got.Result.Outcome
					if got.Result.Err == nil {
						t.Error("no error")
					}
				}
				if got.State != c.want || outcome != c.outcome {
					t.Fatalf("%s with %q", got.State, outcome)
				}
				if c.m.Kind == MoveAgain && c.ok {
					diff(t, got.Claim, to)
					diff(t, got.Orphanings, c.orphanings+1)
					diff(t, []string{got.AgentTaskID, got.AgentContextID}, []string{"", ""})
					// The reply was lost: repeated, it is done already.
					if !must(db.Move(t.Context(), c.m))(t) || row(t, db, "run-1.a.1").Orphanings != c.orphanings+1 {
						t.Fatal("repeating failed")
					}
				}
				if got.State == AttemptOpen {
					want := attempt("run-1", "a", 1)
					want.Policy.OutcomeUnknown, want.VisibleAt = c.policy, c.m.At
					diff(t, got, want) // no trace of the claim
				}
			})
		}
	})
}

func TestTakeover(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		c1, c2 := bridge(t, db, "b1"), bridge(t, db, "b2")
		lost, kept, followed := attempt("run-1", "lost", 1), attempt("run-1", "kept", 1), attempt("run-1", "followed", 1)
		lost.Policy.OutcomeUnknown, followed.Policy.OutcomeUnknown = "", parley.OutcomeFail
		begin(t, db, "run-1", lost, kept, followed)
		cl := claim(t, db, c1, lost.ID, "t1")
		ck := claim(t, db, c1, kept.ID, "t2")
		cf := claim(t, db, c1, followed.ID, "t3")
		must(db.Move(t.Context(), Move{Kind: MoveFollow, TaskID: followed.ID, From: cf, AgentTaskID: "at"}))(t)
		orphans := func(c Claim) (ids []string) {
			for _, a := range must(db.Orphans(t.Context(), c.Worker, c.Inc, 10))(t) {
				ids = append(ids, a.ID)
			}
			return ids
		}
		diff(t, orphans(c2), []string(nil))

		// Declared dead only if nothing has changed since it was watched.
		check(t, db.Beat(t.Context(), "b1", c1.Inc))
		workers := must(db.Sweep(t.Context(), []Worker{{Name: "b1", Inc: 1, Beat: 0}}, epoch))(t)
		diff(t, workers, []Worker{{Name: "b1", Inc: 1, Beat: 1}, {Name: "b2", Inc: 1}})
		workers = must(db.Sweep(t.Context(), workers[:1], epoch.Add(time.Minute)))(t)
		diff(t, workers[0], Worker{Name: "b1", Inc: 1, Beat: 1, Dead: true})
		wantStale(t, db.Beat(t.Context(), "b1", c1.Inc))

		check(t, db.Beat(t.Context(), "b2", c2.Inc))

		// P10: nobody may send it again.
		got := row(t, db, lost.ID)
		if got.State != AttemptSettled || !got.SettledAt.Equal(epoch.Add(time.Minute)) ||
			got.Result.Outcome != parley.OutcomeUnknown || got.Result.Err.Code != parley.CodeOutcomeUnknown ||
			got.Result.Err.Agent != "writer" || got.Result.Err.Step != "lost" {
			t.Fatalf("%+v", got)
		}
		diff(t, orphans(c2), []string{followed.ID, kept.ID})
		diff(t, orphans(c1), []string(nil)) // a dead one takes nothing

		seen := ""
		take := func(task string, from, to Claim) bool {
			return must(db.Move(t.Context(), Move{Kind: MoveTakeover, TaskID: task, From: from, To: to, AgentTaskID: seen, At: epoch}))(t)
		}
		to := Claim{"b2", c2.Inc, "n1"}
		if take(lost.ID, cl, to) || take(kept.ID, cl, to) {
			t.Fatal("taken over with a wrong token, or after the end")
		}
		for range 2 { // its reply may be lost
			if !take(kept.ID, ck, to) {
				t.Fatal("refused")
			}
		}
		if take(followed.ID, cf, Claim{"b2", c2.Inc, "n2"}) {
			t.Fatal("taken over by who saw it before it was followed")
		}
		seen = "at"
		if !take(followed.ID, cf, Claim{"b2", c2.Inc, "n2"}) {
			t.Fatal("refused")
		}
		seen = ""
		if a := row(t, db, kept.ID); a.Orphanings != 1 || a.Claim != to || a.State != AttemptClaimed {
			t.Fatalf("%+v", a)
		}
		if a := row(t, db, followed.ID); a.Orphanings != 0 || a.State != AttemptFollowing || a.AgentTaskID != "at" {
			t.Fatalf("%+v", a)
		}
		// The former owner moves nothing any more.
		if must(db.Move(t.Context(), Move{Kind: MoveRelease, TaskID: kept.ID, From: ck, At: epoch}))(t) {
			t.Fatal("released by the dead")
		}

		// The same bridge with a new incarnation takes over what was its own.
		c2 = bridge(t, db, "b2")
		diff(t, orphans(c2), []string{followed.ID, kept.ID})
		third := Claim{"b2", c2.Inc, "n3"}
		if !take(kept.ID, to, third) {
			t.Fatal("refused")
		}
		must(db.Sweep(t.Context(), []Worker{{Name: "b2", Inc: c2.Inc, Beat: 1}}, epoch))(t)
		c2 = bridge(t, db, "b2")
		check(t, db.Beat(t.Context(), "b2", c2.Inc)) // it lives again
		if take(kept.ID, third, Claim{"b2", c2.Inc, "n4"}) {
			t.Fatal("sent a fourth time")
		}
		if a := row(t, db, kept.ID); a.State != AttemptSettled || a.Result.Outcome != parley.OutcomeUnknown {
			t.Fatalf("%+v", a)
		}
	})
}

// TestTakeoverByPolicy: what may be taken over after its bridge is gone, by whom, and
// that it is the very same which is shown to those who look for it (P9).
func TestTakeoverByPolicy(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		was, other := bridge(t, db, "b1"), bridge(t, db, "b2")
		states := []AttemptState{AttemptClaimed, AttemptFollowing, AttemptSettled, AttemptClosed}
		var attempts []Attempt
		for _, policy := range []parley.OutcomePolicy{"", parley.OutcomeFail, parley.OutcomeLookup, parley.OutcomeResend} {
			for _, state := range states {
				a := attempt("run-1", string(state)+"-"+string(policy), 1)
				a.Policy.OutcomeUnknown = policy
				attempts = append(attempts, a)
			}
		}
		last := attempt("run-1", "following-last", 1) // as often as it may be sent
		d := next(begin(t, db, "run-1", append(attempts, last)...), 1)
		c := claim(t, db, was, last.ID, "0")
		for _, token := range []string{"1", "was-" + last.ID} {
			to := Claim{c.Worker, c.Inc, token}
			moved(t, db, Move{Kind: MoveAgain, TaskID: last.ID, From: c, To: to})
			c = to
		}
		follow(t, db, last.ID, c)
		for i, a := range attempts {
			c := claim(t, db, was, a.ID, "was-"+a.ID)
			if state := states[i%len(states)]; state != AttemptClaimed {
				follow(t, db, a.ID, c)
				if state != AttemptFollowing && !must(db.Answer(ctx, answer(a.ID, `1`)))(t) {
					t.Fatal("refused")
				}
				if state == AttemptClosed {
					d.Close = append(d.Close, Close{TaskID: a.ID, Absorb: true})
				}
			}
		}
		check(t, db.Decide(ctx, d))
		attempts = append(attempts, last)
		now := bridge(t, db, "b1")
		diff(t, must(db.Owned(ctx, "b1", now.Inc))(t), []Owned(nil))
		diff(t, len(must(db.Owned(ctx, "b1", was.Inc))(t)), 9) // claimed and followed

		want := []string{
			"run-1.claimed-lookup.1", "run-1.claimed-resend.1",
			"run-1.following-.1", "run-1.following-fail.1", "run-1.following-last.1", "run-1.following-lookup.1", "run-1.following-resend.1",
		}
		var orphans, taken []string
		for _, a := range must(db.Orphans(ctx, other.Worker, other.Inc, 100))(t) {
			orphans = append(orphans, a.ID)
		}
		diff(t, orphans, want)
		before := dump(t, db)
		take := func(a Attempt, by Claim) bool {
			m := Move{Kind: MoveTakeover, TaskID: a.ID, From: Claim{"b1", was.Inc, "was-" + a.ID}, To: by, At: epoch.Add(time.Minute)}
			m.AgentTaskID, m.To.Token = row(t, db, a.ID).AgentTaskID, "now-"+a.ID
			return must(db.Move(ctx, m))(t)
		}
		for _, a := range attempts {
			if take(a, was) {
				t.Errorf("%s was taken over by a bridge that is gone", a.ID)
			}
		}
		diff(t, dump(t, db), before)
		for _, a := range attempts {
			if take(a, other) {
				taken = append(taken, a.ID)
				diff(t, row(t, db, a.ID).ClaimedAt, epoch.Add(time.Minute))
			}
		}
		slices.Sort(taken)
		diff(t, taken, want)

		// What may not is settled by anybody; what was taken over, and is lost again, is
		// nobody's to settle.
		bridge(t, db, "b2")
		must(db.Sweep(ctx, nil, epoch))(t)
		for _, a := range attempts {
			r := row(t, db, a.ID)
			unknown := r.State == AttemptSettled && r.Result.Outcome == parley.OutcomeUnknown
			if lost := a.ID == "run-1.claimed-.1" || a.ID == "run-1.claimed-fail.1"; unknown != lost {
				t.Errorf("%s is %s after the sweep", a.ID, r.State)
			}
		}
	})
}

// TestDeclaredDeadAsSeen: a bridge that was seen to be silent, and has begun anew, is
// not dead, though it has not renewed its lease yet (P17).
func TestDeclaredDeadAsSeen(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		seen := bridge(t, db, "b1")
		c := bridge(t, db, "b1")
		workers := must(db.Sweep(t.Context(), []Worker{{Name: "b1", Inc: seen.Inc}}, epoch))(t)
		diff(t, workers, []Worker{{Name: "b1", Inc: c.Inc}})
		check(t, db.Beat(t.Context(), "b1", c.Inc))
	})
}

func TestAnswers(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		c := bridge(t, db, "b1")
		run := begin(t, db, "run-1", attempt("run-1", "a", 1), attempt("run-1", "b", 1))
		owner := claim(t, db, c, "run-1.a.1", "t1")
		must(db.Move(t.Context(), Move{Kind: MoveUnknown, TaskID: "run-1.a.1", From: owner, Result: failed("", parley.OutcomeUnknown, parley.CodeOutcomeUnknown), At: epoch}))(t)

		// An answer takes the place of unknown, and of nothing else.
		first := answer("run-1.a.1", `{"n":1}`)
		first.Result.AgentTaskID, first.Result.ContextID, first.Result.RetryAfter = "at", "ac", 1500*time.Millisecond
		for range 2 { // its reply may be lost
			if !must(db.Answer(t.Context(), first))(t) {
				t.Fatal("refused")
			}
		}
		diff(t, row(t, db, "run-1.a.1").Result, &first.Result)
		// Another bridge that followed the same task has the same words: they are
		// not its own to hand on, and nothing new.
		also := first
		also.From, also.At = "b2", first.At.Add(time.Millisecond)
		if must(db.Answer(t.Context(), also))(t) || len(must(db.Late(t.Context(), "run-1.a.1"))(t)) != 0 {
			t.Fatal("the same answer twice")
		}
		second := answer("run-1.a.1", `"`+strings.Repeat("x", 100<<10)+`"`)
		second.From = "b2"
		if must(db.Answer(t.Context(), second))(t) {
			t.Fatal("a second answer was accepted")
		}
		diff(t, row(t, db, "run-1.a.1").Result, &first.Result)

		d := next(run, 1)
		d.Close = []Close{{TaskID: "run-1.a.1", Absorb: true}, {TaskID: "run-1.b.1", Outcome: parley.OutcomeCancelled}}
		check(t, db.Decide(t.Context(), d))
		diff(t, row(t, db, "run-1.b.1").Result.Err.Code, parley.CodeCancelled)
		third := Answer{Result: *failed("run-1.a.1", parley.OutcomeError, parley.CodeAgentError), At: epoch, From: "b3"}
		if must(db.Answer(t.Context(), third))(t) {
			t.Fatal("an answer after the end was accepted")
		}
		if !must(db.Answer(t.Context(), first))(t) {
			t.Fatal("the answer that was absorbed is called late")
		}
		late := must(db.Late(t.Context(), "run-1.a.1"))(t)
		second.Result.Output = second.Result.Output[:64<<10]
		diff(t, late, []LateAnswer{
			{TaskID: "run-1.a.1", At: second.At, From: "b2", Result: second.Result},
			{TaskID: "run-1.a.1", At: third.At, From: "b3", Result: third.Result},
		})
		diff(t, row(t, db, "run-1.a.1").State, AttemptClosed)
		if must(db.Answer(t.Context(), answer("run-7.a.1", `1`)))(t) || len(must(db.Late(t.Context(), "run-7.a.1"))(t)) != 0 {
			t.Fatal("an answer to nothing")
		}
		for _, bad := range []parley.Result{
			{TaskID: "run-1.b.1", Outcome: parley.OutcomeUnknown, Err: first.Result.Err},
			{TaskID: "run-1.b.1", Outcome: parley.OutcomeOK},
			{TaskID: "run-1.b.1", Outcome: parley.OutcomeError},
		} {
			_, err := db.Answer(t.Context(), Answer{Result: bad})
			wantCode(t, err, parley.CodeInvalid)
		}
	})
}

func TestRequestCancel(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		c := bridge(t, db, "b1")
		run := begin(t, db, "run-1", attempt("run-1", "a", 1), attempt("run-1", "b", 1), attempt("run-1", "c", 1))
		claim(t, db, c, "run-1.a.1", "t1")
		must(db.Answer(t.Context(), answer("run-1.c.1", `1`)))(t)
		d := next(run, 1)
		d.Run.Cancelling, d.Run.CancelledBy, d.Run.CancelReason = true, "ann", "no need"
		d.Run.Phase, d.Run.Paused = "compensating", true
		d.RequestCancel = []string{"run-1.c.1", "run-1.b.1", "run-1.a.1"}
		check(t, db.Decide(t.Context(), d))
		diff(t, must(db.Owned(t.Context(), "b1", 1))(t), []Owned{{TaskID: "run-1.a.1", Token: "t1", State: AttemptClaimed, CancelRequested: true}})
		if a := row(t, db, "run-1.a.1"); a.State != AttemptClaimed || a.Result != nil || !a.SettledAt.IsZero() {
			t.Fatalf("%+v", a)
		}
		if b := row(t, db, "run-1.b.1"); b.State != AttemptSettled || b.Result.Outcome != parley.OutcomeCancelled || b.SettledAt.IsZero() {
			t.Fatalf("%+v", b)
		}
		diff(t, row(t, db, "run-1.c.1").Result.Outcome, parley.OutcomeOK)
		diff(t, d.RequestCancel[0], "run-1.c.1") // the caller's slice is left alone
		got := must(db.RunRow(t.Context(), "run-1"))(t)
		diff(t, got, d.Run)

		// P14: the rest is closed and the run ends; nothing leaves the end.
		e := next(d.Run, 2)
		e.Close = []Close{
			{TaskID: "run-1.b.1", Absorb: true},
			{TaskID: "run-1.c.1", Outcome: parley.OutcomeCancelled},
			{TaskID: "run-1.a.1", Outcome: parley.OutcomeCancelled, CancelAgent: true},
		}
		e.Run.Status, e.Run.EndedAt, e.Run.Error = parley.RunCancelled, epoch, []byte(`{"code":"cancelled"}`)
		check(t, db.Decide(t.Context(), e))
		diff(t, row(t, db, "run-1.c.1").Result.Outcome, parley.OutcomeOK)
		a := row(t, db, "run-1.a.1")
		diff(t, []any{a.CancelRequested, a.SettledAt}, []any{true, e.Run.UpdatedAt})
		diff(t, len(must(db.History(t.Context(), "run-1"))(t).Attempts), 0)
		f := next(e.Run, 1)
		f.Run.Status, f.Run.EndedAt = parley.RunFailed, epoch
		wantStale(t, db.Decide(t.Context(), f))
	})
}

func TestMergedWrites(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		c := bridge(t, db, "b1")
		c.Token = "t1"
		run := begin(t, db, "run-1", claimed(attempt("run-1", "a", 1), c))
		c.Token = "t2"
		merged := func(ans Answer) Decision {
			d := next(run, 2)
			d.Answer = &ans
			d.Close = []Close{{TaskID: ans.Result.TaskID, Absorb: true}}
			d.Insert = []Attempt{claimed(attempt("run-1", "b", 1), c)}
			return d
		}
		refused := func(d Decision) {
			t.Helper()
			before := dump(t, db)
			wantStale(t, db.Decide(t.Context(), d))
			diff(t, dump(t, db), before)
		}
		// The bridge has been replaced: its claims are nobody's.
		d := merged(answer("run-1.a.1", `1`))
		d.Insert[0].Claim.Inc = 7
		refused(d)
		// Another decision came first.
		d = merged(answer("run-1.a.1", `1`))
		d.Seen--
		d.Run.Seq--
		d.Events[0].Seq--
		d.Events[1].Seq--
		refused(d)
		// Somebody else settled the attempt, be it as unknown.
		must(db.Move(t.Context(), Move{
			Kind: MoveUnknown, TaskID: "run-1.a.1", From: Claim{"b1", 1, "t1"},
			Result: failed("", parley.OutcomeUnknown, parley.CodeOutcomeUnknown), At: epoch,
		}))(t)
		refused(merged(answer("run-1.a.1", `1`)))
		// The answer goes alone, and is absorbed.
		must(db.Answer(t.Context(), answer("run-1.a.1", `1`)))(t)
		refused(merged(answer("run-1.a.1", `2`)))
		d = merged(answer("run-1.a.1", `1`))
		d.Answer = nil
		check(t, db.Decide(t.Context(), d))
		run = d.Run
		// The usual way.
		c.Token = "t3"
		d = next(run, 1)
		ans := answer("run-1.b.1", `{"b":1}`)
		d.Answer, d.Close = &ans, []Close{{TaskID: "run-1.b.1", Absorb: true}}
		d.Run.Status, d.Run.EndedAt, d.Run.Due = parley.RunCompleted, epoch, time.Time{}
		check(t, db.Decide(t.Context(), d))
		b := row(t, db, "run-1.b.1")
		if b.State != AttemptClosed || string(b.Result.Output) != `{"b":1}` || !b.SettledAt.Equal(ans.At) {
			t.Fatalf("%+v", b)
		}
		diff(t, must(db.RunRow(t.Context(), "run-1"))(t), d.Run)
		// An answer that the run does not read yet.
		run = begin(t, db, "run-2", attempt("run-2", "a", 1), attempt("run-2", "b", 1))
		d = next(run, 1)
		ans = answer("run-2.a.1", `1`)
		d.Answer = &ans
		check(t, db.Decide(t.Context(), d))
		diff(t, row(t, db, "run-2.a.1").State, AttemptSettled)
	})
}

// TestBeatTellsOfALaterLife: a beat that is refused says whether the name is a later
// life's, or whether its bridge may have it again.
func TestBeatTellsOfALaterLife(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		c := bridge(t, db, "b1")
		bridge(t, db, "b1")
		if err := db.Beat(t.Context(), "b1", c.Inc); !errors.Is(err, ErrReplaced) {
			t.Errorf("error %v, want ErrReplaced", err)
		}
		must(db.Sweep(t.Context(), []Worker{{Name: "b1", Inc: 2}}, epoch))(t)
		bridge(t, db, "b3")
		bridge(t, db, "b3") // the lives of others are nothing to it
		for _, name := range []string{"b1", "b2"} {
			if err := db.Beat(t.Context(), name, c.Inc); !errors.Is(err, ErrStale) || errors.Is(err, ErrReplaced) {
				t.Errorf("%s: error %v, want ErrStale alone", name, err)
			}
		}
	})
}

// TestAnswerInPlaceOfUnknownIsKept: whoever absorbs that nobody knows what became of
// an attempt is refused if the answer has come since it was read (I2).
func TestAnswerInPlaceOfUnknownIsKept(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		c := bridge(t, db, "b1")
		for i, answered := range []bool{false, true} {
			id := fmt.Sprintf("run-%d", i)
			run := begin(t, db, id, attempt(id, "a", 1))
			cl := claim(t, db, c, id+".a.1", "t"+id)
			must(db.Move(t.Context(), Move{
				Kind: MoveUnknown, TaskID: id + ".a.1", From: cl,
				Result: failed("", parley.OutcomeUnknown, parley.CodeOutcomeUnknown), At: epoch,
			}))(t)
			d := next(run, 1)
			d.Close = []Close{{TaskID: id + ".a.1", Absorb: true, Outcome: parley.OutcomeUnknown}}
			if !answered {
				check(t, db.Decide(t.Context(), d))
				// It is late then: nothing leaves the end.
				closed := row(t, db, id+".a.1")
				if must(db.Answer(t.Context(), answer(id+".a.1", `1`)))(t) {
					t.Fatal("an answer after the end was accepted")
				}
				diff(t, row(t, db, id+".a.1"), closed)
				diff(t, len(must(db.Late(t.Context(), id+".a.1"))(t)), 1)
				continue
			}
			if !must(db.Answer(t.Context(), answer(id+".a.1", `1`)))(t) {
				t.Fatal("the answer is refused")
			}
			before := dump(t, db)
			wantStale(t, db.Decide(t.Context(), d))
			diff(t, dump(t, db), before)
			d.Close[0].Outcome = parley.OutcomeOK
			check(t, db.Decide(t.Context(), d))
		}
	})
}

// TestAnswerWhileUnknownIsAbsorbed: the same where the answer is written between the
// decision's look at the attempt and its end.
func TestAnswerWhileUnknownIsAbsorbed(t *testing.T) {
	target := pgtest.Copy(t, migrated(t))
	db, other := openedAt(t, target, Options{}), openedAt(t, target, Options{})
	run := begin(t, db, "run-1", attempt("run-1", "a", 1))
	cl := claim(t, db, bridge(t, db, "b1"), "run-1.a.1", "t1")
	must(db.Move(t.Context(), Move{
		Kind: MoveUnknown, TaskID: "run-1.a.1", From: cl,
		Result: failed("", parley.OutcomeUnknown, parley.CodeOutcomeUnknown), At: epoch,
	}))(t)
	d := next(run, 1)
	d.Close = []Close{{TaskID: "run-1.a.1", Absorb: true, Outcome: parley.OutcomeUnknown}}
	end := halfway(t, other, func(s *session) error {
		return s.later(1, answerAttempt, "ok", []byte(`1`), nil, unixMicro(epoch), "run-1.a.1")
	})
	decided := make(chan error, 1)
	go func() { decided <- db.Decide(t.Context(), d) }()
	blocked(t, db, decided)
	end()
	wantStale(t, <-decided)
	if a := row(t, db, "run-1.a.1"); a.State != AttemptSettled || a.Result.Outcome != parley.OutcomeOK {
		t.Errorf("the attempt is %s with %s", a.State, a.Result.Outcome)
	}
}

func TestReopenKeepsEverything(t *testing.T) {
	path := t.TempDir() + "/a b?%41#.db"
	db := reopen(t, path, Options{})
	c := bridge(t, db, "b1")
	begin(t, db, "run-1", attempt("run-1", "a", 1))
	claim(t, db, c, "run-1.a.1", "t1")
	must(db.Answer(t.Context(), answer("run-1.a.1", `1`)))(t)
	before := dump(t, db)
	check(t, db.Close())
	check(t, db.Close())
	_, err := db.Register(t.Context(), "b1", epoch)
	wantCode(t, err, parley.CodeUnavailable)
	db = reopen(t, path, Options{})
	diff(t, dump(t, db), before)
	diff(t, must(db.Register(t.Context(), "b1", epoch))(t), int64(2))
}

func TestEventsDecodeWhatWasEncoded(t *testing.T) {
	events := []parley.Event{
		{Seq: 5, At: epoch, Type: "x\"\\\n\x7f", Run: "r", Step: "ä\u2028", Attempt: 3, Data: json.RawMessage(`null`)},
		{Seq: 6, Type: "y", Run: "r"},
	}
	data, err := encodeEvents(&cutter{}, "r", 5, events)
	check(t, err)
	got, cuts, err := decodeEvents("r", 5, 6, data)
	check(t, err)
	diff(t, got, events)
	diff(t, len(cuts), 0)
	for _, bad := range []string{`[{}]`, `[{},{},{}]`, `{}`, ``} {
		if _, _, err := decodeEvents("r", 5, 6, []byte(bad)); err == nil {
			t.Errorf("%s was decoded", bad)
		}
	}
}
