package store

import (
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
				_, err = db.Agent(ctx, member)
				wantCode(t, err, parley.CodeInternal)
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
