package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/parley-project/parley"
)

// ChildState is the state of a run that a step asks for.
type ChildState string

// The states of a row of table child.
const (
	ChildAsked   ChildState = "asked"
	ChildStarted ChildState = "started"
	ChildEnded   ChildState = "ended"
	// ChildVoid: none has begun, and none will.
	ChildVoid ChildState = "void"
)

// ChildSpec is a run that is to be started.
type ChildSpec struct {
	// Workflow is a workflow_id if Version is given, else a name of which the
	// version has to be found.
	Workflow string `json:"workflow"`
	Version  string `json:"version,omitempty"`
	// Until bounds its body, zero does not.
	Until time.Time `json:"until,omitzero"`
	// Depth counts the runs around it, and the run itself.
	Depth int `json:"depth"`
	// Chain counts the runs that have led to it by events.
	Chain    int  `json:"chain,omitempty"`
	Priority *int `json:"priority,omitempty"`
	// Trace is that of the run that asks for it.
	Trace parley.Trace `json:"trace,omitzero"`
}

// Child is one row of table child: from the decision that asks for a run until the
// one that takes notice of its end. What is not waited for is forgotten before.
type Child struct {
	// Task is the attempt of the step, Parent its run.
	Task, Parent, Step string
	State              ChildState
	// Run is "" as long as none has begun.
	Run   string
	Spec  ChildSpec
	Input []byte
	// Error is why none could begin.
	Error *parley.Error
	// Detached: its end is not waited for.
	Detached bool
	// Terminate says how a run that is to end is ended, Abandoned that nobody waits
	// for that.
	Terminate, Abandoned bool
}

// Children is what a decision changes about the runs that steps have started: in
// its transaction.
type Children struct {
	// Ask holds runs to be started.
	Ask []Child
	// Stop holds those that are to end, or are not waited for any more.
	Stop []ChildStop
	// Begun are the tasks whose runs the decision has seen to begin, Done those of
	// which there is nothing more to see.
	Begun, Done []string
	// Ended is the task of which this run is the one that was asked for, if the
	// decision ends it.
	Ended string
}

// ChildStop says that a run is to end.
type ChildStop struct {
	Task string
	// Detached: it goes on if it has begun.
	Detached bool
	// Terminate ends it at once, else it is cancelled; Left: nobody waits for that.
	Terminate, Left bool
}

func (c *Children) changes() int {
	n := len(c.Ask) + len(c.Stop) + len(c.Begun) + len(c.Done)
	if c.Ended != "" {
		n++
	}
	return n
}

const (
	stopCancel    = "cancel"
	stopTerminate = "terminate"
)

const (
	insertChild = `INSERT INTO child (task, parent, step, state, spec, input, held, detached, news, abandoned)
 VALUES (?, ?, ?, 'asked', ?, ?, 0, ?, 0, 0)`
	holdChildren = `UPDATE child SET held = ? WHERE parent = ? AND state = 'asked'`
	// What is left may have begun meanwhile, or not: the row stays until somebody
	// has ended the run.
	leaveChild = `UPDATE child SET stop = ?, abandoned = 1, news = 0 WHERE task = ?`
	stopChild  = `UPDATE child SET stop = ?, news = CASE WHEN state = 'asked' THEN 1 ELSE news END,
 state = CASE WHEN state = 'asked' THEN 'void' ELSE state END WHERE task = ?`
	voidChild   = `UPDATE child SET state = 'void', news = 1 WHERE task = ? AND state = 'asked'`
	sawChild    = `UPDATE child SET news = 0 WHERE task = ? AND state = 'started'`
	deleteChild = `DELETE FROM child WHERE task = ?`
	endChild    = `UPDATE child SET state = 'ended', news = 1 - abandoned WHERE task = ?`

	mayStart    = ` state = 'asked' AND held = 0 AND stop IS NULL`
	childAsks   = `SELECT 1 FROM child WHERE task = ? AND` + mayStart
	startChild  = `UPDATE child SET state = ?, run = ?, news = 1 WHERE task = ? AND` + mayStart
	refuseChild = `UPDATE child SET state = 'void', error = ?, news = 1 WHERE task = ? AND` + mayStart

	stoppedChild    = `UPDATE child SET stop = NULL WHERE task = ? AND stop = ? AND abandoned = 0`
	forgetChild     = `DELETE FROM child WHERE task = ? AND stop = ? AND abandoned = 1`
	childColumns    = `task, parent, step, state, run, spec, input, error, detached, stop, abandoned`
	selectAsked     = `SELECT ` + childColumns + ` FROM child WHERE` + mayStart + ` AND task > ? ORDER BY task LIMIT ?`
	selectStops     = `SELECT ` + childColumns + ` FROM child WHERE stop IS NOT NULL AND (state = 'started' OR abandoned = 1) AND task > ? ORDER BY task LIMIT ?`
	selectNewsOf    = `SELECT ` + childColumns + ` FROM child WHERE parent = ? AND news = 1 ORDER BY task LIMIT ?`
	selectChildNews = `SELECT DISTINCT parent FROM child WHERE news = 1 AND parent > ? ORDER BY parent LIMIT ?`
)

// children is a Children that was checked outside the writer.
type children struct {
	*Children
	run   string
	specs [][]byte
}

func checkChildren(run *Run, c *Children) (*children, error) {
	out := &children{Children: c, run: run.ID}
	for i := range c.Ask {
		a := &c.Ask[i]
		spec, err := json.Marshal(a.Spec)
		if err != nil || a.Task == "" || a.Parent != run.ID || a.Spec.Workflow == "" {
			return nil, parley.Errorf(parley.CodeInvalid, "run %q cannot ask for %q of %q", run.ID, a.Task, a.Parent)
		}
		out.specs = append(out.specs, spec)
	}
	return out, nil
}

// write writes it all. Nothing of it can be refused: a task is asked for once.
func (c *children) write(s *session) error {
	for i := range c.Ask {
		a := &c.Ask[i]
		input := a.Input
		if input == nil {
			input = []byte("null")
		}
		s.at(a.Task)
		if err := s.later(1, insertChild, a.Task, a.Parent, a.Step, c.specs[i], input, flag(a.Detached)); err != nil {
			return err
		}
	}
	for i := range c.Stop {
		if err := c.Stop[i].write(s); err != nil {
			return err
		}
	}
	for _, task := range c.Begun {
		s.at(task)
		if err := s.later(-1, sawChild, task); err != nil {
			return err
		}
	}
	for _, task := range c.Done {
		s.at(task)
		if err := s.later(-1, deleteChild, task); err != nil {
			return err
		}
	}
	if c.Ended == "" {
		return nil
	}
	s.at(c.Ended)
	return s.later(-1, endChild, c.Ended)
}

func (c *ChildStop) write(s *session) error {
	how := stopCancel
	if c.Terminate {
		how = stopTerminate
	}
	s.at(c.Task)
	switch {
	case c.Left && c.Detached:
		return s.later(-1, deleteChild, c.Task)
	case c.Left:
		return s.later(-1, leaveChild, how, c.Task)
	case c.Detached:
		return s.later(-1, voidChild, c.Task)
	}
	return s.later(-1, stopChild, how, c.Task)
}

// mayBegin refuses the start of a run that is not asked for any more, or that
// somebody else has started.
func mayBegin(s *session, task string) error {
	if task == "" {
		return nil
	}
	if ok, err := s.exists(childAsks, task); err != nil || ok {
		return err
	}
	return ErrStale
}

// beginsChild notes which run a step has got, for the task that has asked for it.
func beginsChild(s *session, task string, run *Run) error {
	if task == "" {
		return nil
	}
	state := ChildStarted
	if run.Status.Terminal() {
		state = ChildEnded
	}
	s.at(task)
	return s.later(1, startChild, string(state), run.ID, task)
}

func childList(list *[]Child) func(*record) error {
	return func(r *record) error {
		c := Child{Task: r.str(), Parent: r.str(), Step: r.str(), State: ChildState(r.str()), Run: r.str()}
		spec := r.bytes()
		c.Input = r.bytes()
		fault := r.bytes()
		c.Detached = r.flag()
		c.Terminate = r.str() == stopTerminate
		c.Abandoned = r.flag()
		if r.err != nil {
			return r.err
		}
		var err error
		if fault != nil {
			c.Error = &parley.Error{}
			err = json.Unmarshal(fault, c.Error)
		}
		*list = append(*list, c)
		return errors.Join(err, json.Unmarshal(spec, &(*list)[len(*list)-1].Spec))
	}
}

// AskedChildren gives at most limit runs that are to be started, in the order of
// their tasks, those after one task. What is held back by a pause is not among
// them.
func (db *DB) AskedChildren(ctx context.Context, after string, limit int) (list []Child, err error) {
	err = db.read(ctx, selectAsked, db.readableChildren(&list), after, int64(limit))
	return list, err
}

// StoppedChildren gives at most limit runs that are to end, as AskedChildren does.
// Those that nobody waits for need not have begun, or may have ended.
func (db *DB) StoppedChildren(ctx context.Context, after string, limit int) (list []Child, err error) {
	err = db.read(ctx, selectStops, db.readableChildren(&list), after, int64(limit))
	return list, err
}

// ChildNews gives some of the runs that steps of a run have asked for of which it
// has not taken notice.
func (db *DB) ChildNews(ctx context.Context, parent string, limit int) (list []Child, err error) {
	err = db.read(ctx, selectNewsOf, childList(&list), parent, int64(limit))
	return list, err
}

// RefuseChild says why a run that is asked for cannot be started. ErrStale: it is
// not asked for any more. Synced.
func (db *DB) RefuseChild(ctx context.Context, task string, why *parley.Error) error {
	b, err := json.Marshal(why)
	if err != nil {
		return err
	}
	return db.transition(ctx, synced, point("child.refuse"), func(s *session) error {
		s.at(task)
		n, err := s.exec(refuseChild, b, task)
		if err == nil && n == 0 {
			err = ErrStale
		}
		return err
	})
}

// ChildStopped says that the run of a child was ended as it was to be, or that
// there was none: nobody need do it again. Lost, that is found out again.
func (db *DB) ChildStopped(ctx context.Context, c Child) error {
	how := stopCancel
	if c.Terminate {
		how = stopTerminate
	}
	return db.transition(ctx, prompt, point("child.stopped"), func(s *session) error {
		s.at(c.Task)
		if err := s.later(-1, stoppedChild, c.Task, how); err != nil {
			return err
		}
		return s.later(-1, forgetChild, c.Task, how)
	})
}
