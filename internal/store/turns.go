package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/parley-project/parley"
)

// Turn says under which bound a run is started (language.md §1, concurrency): of
// the runs of its workflow with that key, Limit run at the same time. How many do
// is counted where the run is written, in one row of table lane, which all of them
// change one after another.
type Turn struct {
	Key      string
	Limit    int
	WhenFull parley.WhenFull
	// MostWaiting is how many runs of one workflow and key may wait.
	MostWaiting int
	// Run and Events are written instead of those of the start if the run has to
	// wait.
	Run    Run
	Events []parley.Event
	// Waits is set by [DB.StartRun].
	Waits bool
}

// TurnMove is what a decision changes about the turn of its run.
type TurnMove struct {
	// Workflow and Key say which runs it shares its bound with, Limit is the bound.
	Workflow, Key string
	Limit         int
	// Admit: the run has waited and begins now. The decision is refused if as many
	// run as may.
	Admit bool
	// End: the run has ended; Waiting: without having begun.
	End, Waiting bool
}

// Lane names the runs of a workflow that share a bound.
type Lane struct{ Workflow, Key string }

// id orders those who lock the rows of lanes.
func (l Lane) id() string { return l.Workflow + "\x00" + l.Key }

const (
	// enterLane begins the run if there is room and nobody waits, else has it wait,
	// else does nothing. It is one statement, since several runs may be started in
	// one transaction; and the row stays locked until that ends.
	roomInLane = `lane.waiting = 0 AND lane.running < ?`
	enterLane  = `INSERT INTO lane (workflow, lane_key, running, waiting, last, began) VALUES (?, ?, 1, 0, 1, 1)
 ON CONFLICT (workflow, lane_key) DO UPDATE SET running = lane.running + CASE WHEN ` + roomInLane + ` THEN 1 ELSE 0 END,
 waiting = lane.waiting + CASE WHEN ` + roomInLane + ` THEN 0 ELSE 1 END, last = lane.last + 1,
 began = CASE WHEN ` + roomInLane + ` THEN 1 ELSE 0 END
 WHERE ` + roomInLane + ` OR lane.waiting < ? RETURNING last, began`
	admitToLane = `UPDATE lane SET running = running + 1, waiting = waiting - 1 WHERE workflow = ? AND lane_key = ? AND running < ?`
	leaveLane   = `UPDATE lane SET running = running - ?, waiting = waiting - ? WHERE workflow = ? AND lane_key = ?`
	clearLane   = `DELETE FROM lane WHERE workflow = ? AND lane_key = ? AND running = 0 AND waiting = 0`
	selectLane  = `SELECT running, waiting FROM lane WHERE workflow = ? AND lane_key = ?`

	insertTurn = `INSERT INTO turn (run, workflow, lane_key, place, waits, most, when_full) VALUES (?, ?, ?, ?, ?, ?, ?)`
	admitTurn  = `UPDATE turn SET waits = 0 WHERE run = ?`
	deleteTurn = `DELETE FROM turn WHERE run = ?`

	selectRunningTurns = `SELECT run FROM turn WHERE workflow = ? AND lane_key = ? AND waits = 0 ORDER BY place LIMIT ?`
	selectTurn         = `SELECT workflow, lane_key, place, waits, most, when_full FROM turn WHERE run = ?`
	selectTurnsBefore  = `SELECT count(*) FROM turn WHERE workflow = ? AND lane_key = ? AND waits = 1 AND place < ?`

	firstTurn      = `SELECT min(f.place) FROM turn f WHERE f.workflow = l.workflow AND f.lane_key = l.lane_key AND f.waits = 1`
	selectTurnsDue = `SELECT t.run FROM lane l JOIN turn t ON t.workflow = l.workflow AND t.lane_key = l.lane_key
 WHERE l.waiting > 0 AND t.waits = 1 AND t.place = (` + firstTurn + `) AND l.running < t.most`
	selectNextTurn  = selectTurnsDue + ` AND l.workflow = ? AND l.lane_key = ?`
	selectNextTurns = selectTurnsDue + ` AND t.run > ? ORDER BY t.run LIMIT ?`
	selectLaneTurns = `SELECT t.run, t.waits, t.most, t.when_full, r.cancelling FROM turn t JOIN run r ON r.id = t.run
 WHERE t.workflow = ? AND t.lane_key = ? ORDER BY t.place`
	selectCrowdedLanes = `SELECT DISTINCT workflow, lane_key FROM turn WHERE waits = 1 AND when_full = 'cancel_oldest'
 AND workflow >= ? AND (workflow > ? OR lane_key > ?) ORDER BY workflow, lane_key LIMIT ?`
)

// maxRunningTurns bounds the runs that a refusal, or a place, names.
const maxRunningTurns = 10

// takeTurn finds out whether a run begins or waits, and counts it. It is refused
// with nothing written if it may do neither. The place is 0 if it is not to be
// started for another reason.
func takeTurn(s *session, st *Start, owner Claim) (place int64, err error) {
	// The bridge first: rows are locked in this order.
	if alive, err := ownerAlive(s, owner); !alive || err != nil {
		return 0, err
	}
	if st.IdempotencyKey != "" {
		// A run that was started before goes before all of this.
		there, err := s.exists(selectByKey, st.Run.Workflow, st.IdempotencyKey)
		if there || err != nil {
			return 0, err
		}
	}
	t := st.Turn
	lane, limit, waiting := Lane{st.Run.Workflow, t.Key}, int64(t.Limit), int64(t.MostWaiting)
	if t.WhenFull == parley.WhenFullReject {
		waiting = 0
	}
	s.at(lane.id())
	began := false
	err = s.query(enterLane, func(r *record) error { place, began = r.int(), r.flag(); return nil },
		lane.Workflow, lane.Key, limit, limit, limit, limit, waiting)
	if err == nil && place == 0 {
		err = refuseTurn(s, st)
	}
	t.Waits = !began
	return place, err
}

// refuseTurn says why a run was not accepted.
func refuseTurn(s *session, st *Start) error {
	d := parley.FullDetails{ConflictDetails: parley.ConflictDetails{Conflict: parley.ConflictConcurrency}}
	d.Key, d.Limit, d.WhenFull, d.Running = st.Turn.Key, st.Turn.Limit, st.Turn.WhenFull, []string{}
	err := s.query(selectLane, func(r *record) error { d.RunningCount, d.Waiting = int(r.int()), int(r.int()); return nil },
		st.Run.Workflow, d.Key)
	if err != nil {
		return err
	}
	err = s.query(selectRunningTurns, func(r *record) error { d.Running = append(d.Running, r.str()); return nil },
		st.Run.Workflow, d.Key, int64(maxRunningTurns))
	if err != nil {
		return err
	}
	key := ""
	if d.Key != "" {
		key = fmt.Sprintf(" with the key %.100q", d.Key)
	}
	if d.WhenFull == parley.WhenFullReject {
		return parley.Errorf(parley.CodeConflict, "%d of at most %d runs of workflow %q%s run: %s",
			d.RunningCount, d.Limit, st.Run.Name, key, strings.Join(d.Running, ", ")).WithDetails(d)
	}
	return parley.Errorf(parley.CodeLimit, "queued runs: %d of workflow %q%s wait for their turn, and more may not", d.Waiting, st.Run.Name, key).
		WithDetails(d)
}

// returnTurn takes back what takeTurn has counted.
func returnTurn(s *session, st *Start) error {
	s.at(Lane{st.Run.Workflow, st.Turn.Key}.id())
	return leave(s, Lane{st.Run.Workflow, st.Turn.Key}, st.Turn.Waits)
}

// leave counts one run less.
func leave(s *session, l Lane, waiting bool) error {
	s.at(l.id())
	if err := s.later(1, leaveLane, flag(!waiting), flag(waiting), l.Workflow, l.Key); err != nil {
		return err
	}
	return s.later(-1, clearLane, l.Workflow, l.Key)
}

// writeTurn notes the turn of a run that was written.
func writeTurn(s *session, st *Start, place int64) error {
	t, run := st.Turn, &st.Run
	if !t.Waits && run.Status.Terminal() {
		return leave(s, Lane{run.Workflow, t.Key}, false)
	}
	s.at(run.ID)
	return s.later(1, insertTurn, run.ID, run.Workflow, t.Key, place, flag(t.Waits), int64(t.Limit), string(t.WhenFull))
}

// foreseeTurn refuses a decision for which there is no room, as far as that is
// known by then.
func foreseeTurn(s *session, m *TurnMove) error {
	if m == nil || !m.Admit {
		return nil
	}
	full := false
	err := s.query(selectLane, func(r *record) error { full = r.int() >= int64(m.Limit); return nil }, m.Workflow, m.Key)
	if err == nil && full {
		return ErrStale
	}
	return err
}

// moveTurn writes what a decision changes about the turn of its run, whose row is
// locked.
func moveTurn(s *session, run string, m *TurnMove) error {
	if m == nil {
		return nil
	}
	lane, write := Lane{m.Workflow, m.Key}, admitTurn
	if m.Admit {
		s.at(lane.id())
		if err := s.later(1, admitToLane, m.Workflow, m.Key, int64(m.Limit)); err != nil {
			return err
		}
	}
	if m.End {
		write = deleteTurn
		if err := leave(s, lane, m.Waiting && !m.Admit); err != nil {
			return err
		}
	}
	s.at(run)
	return s.later(1, write, run)
}

// NextTurn gives the run that is to be admitted next of those that share a bound;
// "" if none waits or there is no room.
func (db *DB) NextTurn(ctx context.Context, l Lane) (run string, err error) {
	err = db.read(ctx, selectNextTurn, func(r *record) error { run = r.str(); return nil }, l.Workflow, l.Key)
	return run, err
}

// CrowdedLanes gives at most limit lanes in which a run waits for the end of older
// ones that it has cancelled, or is going to ([DB.Crowding]). Where there are more,
// the next call goes on behind them.
func (db *DB) CrowdedLanes(ctx context.Context, limit int) ([]Lane, error) {
	return inTurn(db, selectCrowdedLanes, limit, func(after Lane) (list []Lane, last Lane, err error) {
		err = db.read(ctx, selectCrowdedLanes, func(r *record) error {
			last = Lane{r.str(), r.str()}
			list = append(list, last)
			return nil
		}, after.Workflow, after.Workflow, after.Key, limit)
		return list, last, err
	})
}

// Crowding gives the runs that have to be cancelled since newer ones ask for their
// places: of those that were accepted until one that waits and cancels the oldest,
// as many as are more than may run, the oldest first. Those that are being
// cancelled do not count.
func (db *DB) Crowding(ctx context.Context, l Lane) (list []string, err error) {
	var live []string
	err = db.read(ctx, selectLaneTurns, func(r *record) error {
		run, waits, most, when, cancelling := r.str(), r.flag(), int(r.int()), parley.WhenFull(r.str()), r.flag()
		if cancelling {
			return nil
		}
		live = append(live, run)
		if n := len(live) - most; waits && when == parley.WhenFullCancelOldest && n > 0 {
			list, live = append(list, live[:n]...), live[n:]
		}
		return nil
	}, l.Workflow, l.Key)
	return list, err
}

// Turn says how a run stands that waits for its turn; nil if it does not.
func (db *DB) Turn(ctx context.Context, run string) (*parley.Turn, error) {
	var found *parley.Turn
	err := db.snapshot(ctx, func(tx reader) error {
		var lane Lane
		var place int64
		err := db.readOn(ctx, tx, selectTurn, func(r *record) error {
			lane, place = Lane{r.str(), r.str()}, r.int()
			if r.flag() {
				found = &parley.Turn{Key: lane.Key, Limit: int(r.int()), WhenFull: parley.WhenFull(r.str()), Running: []string{}}
			}
			return nil
		}, run)
		if err != nil || found == nil {
			return err
		}
		err = db.readOn(ctx, tx, selectTurnsBefore, func(r *record) error { found.Place = int(r.int()) + 1; return nil }, lane.Workflow, lane.Key, place)
		if err != nil {
			return err
		}
		err = db.readOn(ctx, tx, selectLane, func(r *record) error {
			found.RunningCount, found.Waiting = int(r.int()), int(r.int())
			return nil
		}, lane.Workflow, lane.Key)
		if err != nil {
			return err
		}
		return db.readOn(ctx, tx, selectRunningTurns, func(r *record) error { found.Running = append(found.Running, r.str()); return nil },
			lane.Workflow, lane.Key, maxRunningTurns)
	})
	return found, err
}
