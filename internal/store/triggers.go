package store

import (
	"context"
	"time"

	"github.com/parley-project/parley"
)

// The kinds of a [Trigger].
const (
	TriggerEvent = "event"
	TriggerKafka = "kafka"
)

// startAgain is how long an event that somebody has taken to start its runs is
// hidden from others; then it is given again.
const startAgain = 10 * time.Second

// Trigger is what starts runs of a version of a workflow: events of a name, or the
// records of a topic.
type Trigger struct{ Kind, Name string }

// Triggered is a version of a workflow that a trigger starts runs of.
type Triggered struct {
	Trigger
	Workflow, Version string
}

// EventStart is an event that has not started its runs yet.
type EventStart struct {
	parley.Signal
	// Chain counts the runs that have led to it, each by an event that it has
	// published.
	Chain int
}

const (
	// startsAt is when a new event is looked at to start runs: never, if no version
	// of any workflow is started by its name.
	startsAt = `CASE WHEN EXISTS (SELECT 1 FROM workflow_trigger WHERE kind = '` + TriggerEvent + `' AND name = ?) THEN CAST(? AS BIGINT) ELSE 0 END`

	insertTrigger = `INSERT INTO workflow_trigger (workflow, version, kind, name) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`

	// firing is a trigger of the version that a start without a version takes, if
	// that takes runs: the same as current says.
	firing = ` FROM workflow_trigger JOIN definition ON definition.workflow = workflow_trigger.workflow AND definition.version = workflow_trigger.version
 WHERE workflow_trigger.kind = ? AND definition.status = 'active' AND definition.deprecated_at IS NULL AND definition.version = COALESCE(
 (SELECT a.version FROM workflow_alias a WHERE a.workflow = definition.workflow AND a.alias = '` + parley.StableAlias + `'),
 (SELECT d.version FROM definition d WHERE d.workflow = definition.workflow AND d.status = 'active' AND d.deprecated_at IS NULL
 ORDER BY d.created_at DESC, d.number DESC LIMIT 1))`
	selectFiring = `SELECT workflow_trigger.name, definition.workflow, definition.version` + firing + ` ORDER BY 1, 2`
	selectFired  = `SELECT workflow_trigger.name, definition.workflow, definition.version` + firing + ` AND workflow_trigger.name = ? ORDER BY 1, 2`

	dueStart  = `run = '' AND starts_at > 0 AND starts_at <= ?`
	anyStart  = `SELECT 1 FROM signal WHERE ` + dueStart + ` LIMIT 1`
	endStart  = `UPDATE signal SET starts_at = 0, taken = 1 WHERE id = ? AND run = '' AND at = ? AND starts_at > 0`
	skipStart = `UPDATE signal SET starts_at = 0 WHERE id = ? AND run = '' AND at = ? AND starts_at > 0`
)

func takeStarts(d *dialect) string {
	return `UPDATE signal SET starts_at = ? WHERE run = '' AND id ` + d.picked(`SELECT id FROM signal WHERE `+dueStart+` ORDER BY starts_at LIMIT ?`) +
		` AND starts_at > 0 AND starts_at <= ? RETURNING id, name, signal_key, data, at, chain, trace`
}

func insertTriggers(s *session, d *Definition) error {
	for _, t := range d.Triggers {
		if err := s.later(-1, insertTrigger, d.Workflow, d.Version, t.Kind, t.Name); err != nil {
			return err
		}
	}
	return nil
}

// Triggered gives what is started by triggers of a kind and, unless it is "", a
// name, sorted by name: of each workflow the version that a plain start takes, if
// it has such a trigger.
func (db *DB) Triggered(ctx context.Context, t Trigger) (list []Triggered, err error) {
	each := func(r *record) error {
		list = append(list, Triggered{Trigger: Trigger{Kind: t.Kind, Name: r.str()}, Workflow: r.str(), Version: r.str()})
		return r.err
	}
	if t.Name == "" {
		err = db.read(ctx, selectFiring, each, t.Kind)
	} else {
		err = db.read(ctx, selectFired, each, t.Kind, t.Name)
	}
	return list, err
}

// TakeEventStarts gives at most limit events that have not started their runs yet,
// and hides them for 10 s, so that others take other ones. An event is among them
// if, when it was published, some version of a workflow was started by its name:
// that is written with the event, so that whoever dies has accepted nothing that
// is forgotten. Lazy: what was taken may be given again.
func (db *DB) TakeEventStarts(ctx context.Context, now time.Time, limit int) ([]EventStart, error) {
	at, some := now.UnixMicro(), false
	err := db.read(ctx, anyStart, func(*record) error { some = true; return nil }, at)
	if err != nil || !some {
		return nil, err
	}
	query := takeStarts(&db.dialect)
	var list []EventStart
	err = db.transition(ctx, prompt, point("take-starts"), func(s *session) error {
		list = nil
		s.at(lastKey)
		return s.query(query, func(r *record) error {
			e := EventStart{Signal: parley.Signal{ID: r.str(), Name: r.str(), Key: r.str(), Data: r.bytes(), Time: r.time()}, Chain: int(r.int())}
			e.Trace = parley.ParseTrace(r.str())
			list = append(list, e)
			return r.err
		}, now.Add(startAgain).UnixMicro(), at, int64(limit), at)
	})
	return list, err
}

// EndEventStart notes that an event has started its runs. It does not wait any more,
// if somebody is started by it: taken. Lazy: it may have to be done again.
func (db *DB) EndEventStart(ctx context.Context, e parley.Signal, taken bool) error {
	statement := skipStart
	if taken {
		statement = endStart
	}
	return db.transition(ctx, prompt, point("end-start"), func(s *session) error {
		s.at(e.ID)
		return s.later(-1, statement, e.ID, e.Time.UnixMicro())
	})
}
