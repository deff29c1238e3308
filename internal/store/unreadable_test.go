package store

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// damage changes rows in a way in which the store never does.
func damage(t *testing.T, db *DB, statement string, args ...any) {
	t.Helper()
	check(t, db.submit(t.Context(), synced, func(s *session) error {
		n, err := s.exec(statement, args...)
		if err == nil && n == 0 {
			t.Errorf("%s has changed nothing", statement)
		}
		return err
	}))
}

// TestAgentListWithABadOne: one record that cannot be read keeps nobody from the list of
// the others. It is marked there, with what can be read; the record itself is an error.
func TestAgentListWithABadOne(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		good, bad := newAgent("a"), newAgent("b")
		for _, member := range []string{"retry_config", "auth_config", "breaker", "limits", "health", "protocol_config", "detected"} {
			check(t, db.CreateAgent(ctx, func() parley.Agent { a := newAgent(member); a.ID = member; return a }()))
			value := any([]byte(`{"x":`))
			if member == "retry_config" {
				value = `{"x":`
			}
			damage(t, db, `UPDATE agents SET `+member+` = ? WHERE id = ?`, value, member)
			list, total, err := db.Agents(ctx, parley.AgentQuery{Name: member, Page: parley.Page{Limit: 10}})
			check(t, err)
			if total != 1 || len(list) != 1 || !list[0].Unreadable || list[0].URL != "https://h/"+member {
				t.Errorf("%s: %+v", member, list)
			}
			if member != "protocol_config" && member != "detected" { // those are for whoever calls the agent to judge
				one, err := db.Agent(ctx, member)
				wantCode(t, err, parley.CodeInternal)
				if !one.Unreadable || one.URL != "https://h/"+member || !one.UpdatedAt.Equal(epoch) {
					t.Errorf("beside the error: %+v", one)
				}
			}
		}
		check(t, db.CreateAgent(ctx, good))
		check(t, db.CreateAgent(ctx, bad))
		damage(t, db, `UPDATE agents SET limits = ? WHERE name = 'b'`, []byte(`[]`))
		list, _, err := db.Agents(ctx, parley.AgentQuery{Page: parley.Page{Limit: 2}})
		check(t, err)
		bad.Limits, bad.Unreadable = parley.AgentLimits{}, true
		diff(t, list[0], good)
		if !list[1].Unreadable {
			t.Errorf("%+v", list[1])
		}
	})
}

// TestApprovalListWithABadOne: so is an approval.
func TestApprovalListWithABadOne(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		run := begin(t, db, "r")
		d := next(run, 1)
		for _, step := range []string{"a", "b"} {
			d.Signals.Ask = append(d.Signals.Ask, Approval{Run: "r", Step: step, Workflow: "w", CreatedAt: epoch, Asked: parley.Approval{Title: step, Choices: []string{"yes"}}})
		}
		check(t, db.Decide(ctx, d))
		damage(t, db, `UPDATE approval SET data = ? WHERE step = 'a'`, []byte(`{"title":`))
		list, total, err := db.Approvals(ctx, parley.ApprovalQuery{Page: parley.Page{Limit: 10}})
		check(t, err)
		if total != 2 || len(list) != 2 || !list[0].Unreadable || list[0].Step != "a" || list[1].Unreadable || list[1].Asked.Title != "b" {
			t.Errorf("%+v", list)
		}
	})
}

// TestDeadLetterCopiesWithABadOne: headers that cannot be read hold up no other copy.
func TestDeadLetterCopiesWithABadOne(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		bad, good := deadTask("run-1", epoch), deadTask("run-2", epoch.Add(time.Second))
		must(db.KeepDeadLetter(ctx, bad))(t)
		must(db.KeepDeadLetter(ctx, good))(t)
		damage(t, db, `UPDATE dead_letter SET headers = ? WHERE id = ?`, []byte(`[{`), bad.ID)
		list := must(db.DeadLetterCopies(ctx, epoch.Add(time.Minute), 10))(t)
		bad.Headers = nil
		diff(t, list, []parley.DeadLetter{bad, good})
		_, err := db.DeadLetter(ctx, bad.ID)
		wantCode(t, err, parley.CodeInternal)
	})
}

// TestDamagedAttemptsKeepNoOthers: an attempt whose row cannot be read is told of once,
// and keeps nobody from those of other runs.
func TestDamagedAttemptsKeepNoOthers(t *testing.T) {
	pairs := func(change func(*Attempt)) (both [2]Attempt) {
		for i, run := range []string{"run-1", "run-2"} {
			both[i] = attempt(run, "a", 1)
			change(&both[i])
		}
		return both
	}
	unread := []byte{'{'}
	for name, c := range map[string]struct {
		change func(*Attempt)
		look   func(t *testing.T, db *DB) []Attempt
	}{
		"publish": {func(*Attempt) {}, func(t *testing.T, db *DB) []Attempt { return must(db.Publish(t.Context(), epoch, 10))(t) }},
		"claim": {func(*Attempt) {}, func(t *testing.T, db *DB) []Attempt {
			return must(db.Claim(t.Context(), bridge(t, db, "b2"), []ClaimRequest{{TaskID: "run-1.a.1", Token: "1"}, {TaskID: "run-2.a.1", Token: "2"}}, epoch))(t)
		}},
		"hand over": {func(*Attempt) {}, func(t *testing.T, db *DB) (list []Attempt) {
			for _, h := range must(db.HandOver(t.Context(), "t1", epoch, 10))(t) {
				list = append(list, h.Attempt)
			}
			return list
		}},
		"overdue": {func(a *Attempt) {
			a.HandOff, a.State, a.Claim, a.ClaimedAt = HandOffBus, AttemptClaimed, BusClaim("t"), epoch
		}, func(t *testing.T, db *DB) []Attempt {
			return must(db.Overdue(t.Context(), epoch.Add(time.Hour), 10))(t)
		}},
		"orphans": {func(a *Attempt) {
			a.State, a.Claim, a.ClaimedAt = AttemptClaimed, Claim{Worker: "b1", Inc: 1, Token: "t"}, epoch
		}, func(t *testing.T, db *DB) []Attempt {
			must(db.Register(t.Context(), "b1", epoch))(t)
			return must(db.Orphans(t.Context(), "b2", bridge(t, db, "b2").Inc, 10))(t)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			eachDB(t, func(t *testing.T, db *DB) {
				var log bytes.Buffer
				db.options.Logger = slog.New(slog.NewTextHandler(&log, nil))
				bridge(t, db, "b1")
				for _, a := range pairs(c.change) {
					begin(t, db, a.Run, a)
				}
				damage(t, db, `UPDATE attempt SET question = ? WHERE run = 'run-1'`, unread)
				if got := c.look(t, db); len(got) != 1 || got[0].Run != "run-2" {
					t.Errorf("%d: %+v", len(got), got)
				}
				if name == "publish" {
					must(db.Publish(t.Context(), epoch.Add(time.Hour), 10))(t)
				}
				if n := strings.Count(log.String(), "task=run-1.a.1"); n != 1 {
					t.Errorf("told of %d times: %s", n, &log)
				}
			})
		})
	}
}

// TestDamagedForeignAttempts: so are attempts of other executors, what steps ask for,
// and an answer that a bridge is to send.
func TestDamagedForeignAttempts(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		bad := foreign("bad")
		check(t, db.DeferForeign(ctx, []Attempt{bad, foreign("good")}, epoch))
		damage(t, db, `UPDATE attempt SET question = ? WHERE id = ?`, []byte{'{'}, bad.ID)
		list := must(db.Foreign(ctx, epoch.Add(time.Minute), 10))(t)
		diff(t, attemptIDs(list), []string{foreign("good").ID})

		asks(t, db, begin(t, db, "run-1"), asked("run-1", "a"), asked("run-1", "b"))
		damage(t, db, `UPDATE child SET spec = ? WHERE step = 'a'`, []byte{'{'})
		children := must(db.AskedChildren(ctx, "", 10))(t)
		if len(children) != 1 || children[0].Step != "b" {
			t.Errorf("%+v", children)
		}

		c := bridge(t, db, "b1")
		c.Token = "t"
		begin(t, db, "run-2", claimed(attempt("run-2", "a", 1), c), claimed(attempt("run-2", "b", 1), c))
		damage(t, db, `UPDATE attempt SET reply = ?, reply_sent = 0 WHERE id = 'run-2.a.1'`, []byte{'{'})
		owned := must(db.Owned(ctx, "b1", c.Inc))(t)
		if len(owned) != 2 || owned[0].Reply != nil {
			t.Errorf("%+v", owned)
		}
	})
}

// TestAttemptLogWithBadOnes: attempts of which something cannot be read are listed without
// that, and the others whole.
func TestAttemptLogWithBadOnes(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		in := archivedRun("run-1")
		third := in.Attempts[1]
		third.ID, third.Number, third.Outcome, third.Meta = "run-1.a.3", 3, "failed", []byte(`{`)
		third.ScheduledAt = third.ScheduledAt.Add(time.Second)
		third.Late = []ArchivedAnswer{{At: epoch, From: "b", Outcome: "ok", Output: []byte(`1`), Meta: []byte(`{`)}}
		in.Attempts = append(in.Attempts, third)
		check(t, db.AddArchived(ctx, in, epoch))
		list, total, err := db.AttemptLog(ctx, parley.AttemptQuery{Run: "run-1"})
		check(t, err)
		if total != 3 || len(list) != 3 {
			t.Fatalf("%d of %d", len(list), total)
		}
		diff(t, []bool{list[0].Unreadable, list[1].Unreadable, list[2].Unreadable}, []bool{false, false, true})
		diff(t, []any{len(list[0].Late), string(list[2].Request), list[2].Outcome, len(list[2].Late)}, []any{2, `{}`, parley.Outcome("failed"), 0})
	})
}
