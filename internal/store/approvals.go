package store

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/parley-project/parley"
)

// Approval is a step that waits for an approval: one row of table approval.
type Approval struct {
	Run, Step, Workflow string
	CreatedAt           time.Time
	// Asked is what people are shown. Who may answer is its To.
	Asked parley.Approval
	// Unreadable is set instead of Asked where that cannot be read.
	Unreadable bool
}

const (
	approvalColumns = `run, step, workflow, data, created_at`
	insertApproval  = `INSERT INTO approval (run, step, workflow, who, data, created_at) VALUES (?, ?, ?, ?, ?, ?)
 ON CONFLICT (run, step) DO UPDATE SET who = excluded.who, data = excluded.data`
	deleteApproval = `DELETE FROM approval WHERE run = ? AND step = ?`
)

func encodeApproval(a *Approval) ([]byte, error) {
	b, err := json.Marshal(&a.Asked)
	if err != nil {
		return nil, parley.Errorf(parley.CodeInvalid, "the approval of step %q cannot be stored: %w", a.Step, err)
	}
	return b, nil
}

// whoMay gives roles and users as they are stored: each stands between two line
// feeds, so that one is found by its name, and none is part of another.
func whoMay(to []string) string {
	if len(to) == 0 {
		return ""
	}
	return "\n" + strings.Join(to, "\n") + "\n"
}

func (g *signals) writeApprovals(s *session) error {
	for _, step := range g.Answered {
		s.at(g.run)
		if err := s.later(-1, deleteApproval, g.run, step); err != nil {
			return err
		}
	}
	for i := range g.Ask {
		a := &g.Ask[i]
		s.at(g.run)
		err := s.later(-1, insertApproval, g.run, a.Step, a.Workflow, whoMay(a.Asked.To), g.asked[i], a.CreatedAt.UnixMicro())
		if err != nil {
			return err
		}
	}
	return nil
}

// Approvals gives one page of the approvals that wait, oldest first, and the
// number of all of them.
func (db *DB) Approvals(ctx context.Context, q parley.ApprovalQuery) ([]Approval, int, error) {
	var c condition
	if q.Run != "" {
		c.add(`run = ?`, q.Run)
	}
	if q.Workflow != "" {
		c.add(`workflow = ?`, q.Workflow)
	}
	if len(q.For) > 0 {
		parts, args := []string{`who = ''`}, []any(nil)
		for _, name := range q.For {
			parts = append(parts, `replace(who, ?, '') <> who`)
			args = append(args, "\n"+name+"\n")
		}
		c.add(`(`+strings.Join(parts, ` OR `)+`)`, args...)
	}
	var list []Approval
	by := " ORDER BY created_at, run, step"
	total, err := db.list(ctx, &listing{approvalColumns, `approval`, c, by, q.Page}, func(r *record) error {
		a := Approval{Run: r.str(), Step: r.str(), Workflow: r.str()}
		data := r.bytes()
		a.CreatedAt = r.time()
		if err := json.Unmarshal(data, &a.Asked); err != nil && r.err == nil {
			a.Asked, a.Unreadable = parley.Approval{}, true
			db.options.Logger.Error("an approval in a list cannot be read", "run", a.Run, "step", a.Step, "error", err)
		}
		list = append(list, a)
		return r.err
	})
	return list, total, err
}
