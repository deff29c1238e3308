package store

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/parley-project/parley"
)

// Archived is a run that is over with everything that is shown of it, and that it
// can be run again by.
type Archived struct {
	Run Run
	// IdempotencyKey is "" if it was started without; InputDigest goes with it.
	IdempotencyKey, InputDigest string
	// Definition is the version that the run is on; nil if that is not stored: the run
	// was taken over from the existing platform, or is the call of an agent.
	Definition *Definition
	Events     []parley.Event
	Attempts   []ArchivedAttempt
}

// ArchivedAttempt is what is kept of an attempt that is closed. Times are zero, and
// texts empty, where there is nothing.
type ArchivedAttempt struct {
	ID, Step                                                 string
	Number                                                   int
	Agent, CorrelationID, ContextID                          string
	Input                                                    []byte
	Policy                                                   Policy
	Urgency, Orphanings, Questions                           int
	CancelRequested, ReplySent                               bool
	AgentTaskID, AgentContextID, AgentEndpoint, AgentVersion string
	Outcome                                                  string
	// Output is as it came; Meta, Question and Reply are JSON.
	Output, Meta, Question, Reply               []byte
	Deadline, ScheduledAt, ClaimedAt, SettledAt time.Time
	// Late are the answers that came after its end, oldest first.
	Late []ArchivedAnswer
}

// ArchivedAnswer is an answer that came after the end of its attempt.
type ArchivedAnswer struct {
	At           time.Time
	From         string
	Outcome      string
	Output, Meta []byte
}

// importArchived marks runs that came with an archive.
const importArchived ImportKind = "archive"

const (
	selectRunKey    = `SELECT idempotency_key, input_digest FROM run WHERE id = ?`
	archivedColumns = `id, step, number, agent, correlation_id, context_id, input, policy, on_open, attempt_timeout, silence,
 urgency, orphanings, questions, cancel_requested, reply_sent, agent_task_id, agent_context_id, agent_endpoint, agent_version,
 outcome, output, meta, question, reply, deadline, scheduled_at, claimed_at, settled_at`
	selectArchived = `SELECT ` + archivedColumns + ` FROM attempt WHERE id >= ? AND id < ? AND run = ? ORDER BY scheduled_at, id`
	insertArchived = `INSERT INTO attempt (` + archivedColumns + `, run, state, held, visible_at)
 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'closed', 0, 0)`
	selectLateOf = `SELECT attempt, at, source, outcome, output, meta FROM late WHERE attempt >= ? AND attempt < ? ORDER BY id`
	insertLate   = `INSERT INTO late (attempt, at, source, outcome, output, meta) VALUES (?, ?, ?, ?, ?, ?)`

	insertMissingLate = `INSERT INTO late (attempt, at, source, outcome, output, meta) SELECT ?, ?, ?, ?, ?, ? WHERE NOT EXISTS (` + isRecorded + `)`
)

// Archived gives a run that is over, as it was at one instant. The error has code
// not_found for one that is not there, and conflict for one that has not ended.
func (db *DB) Archived(ctx context.Context, id string) (a Archived, err error) {
	var apart fetcher
	err = db.snapshot(ctx, func(tx reader) error {
		a, apart = Archived{}, fetcher{db: db}
		found := false
		err := db.readOn(ctx, tx, selectRun, func(r *record) (err error) {
			found = true
			a.Run, err = readRun(r)
			return err
		}, id)
		switch {
		case err != nil:
			return err
		case !found:
			return noRun(id)
		case a.Run.EndedAt.IsZero():
			return parley.Errorf(parley.CodeConflict, "run %s is %s; only runs that are over are archived", id, a.Run.Status)
		}
		err = db.readOn(ctx, tx, selectRunKey, func(r *record) error {
			a.IdempotencyKey, a.InputDigest = r.str(), r.str()
			return r.err
		}, id)
		if err != nil {
			return err
		}
		if err := db.archivedDefinition(ctx, tx, &a); err != nil {
			return err
		}
		if err := db.archivedEvents(ctx, tx, &a, &apart); err != nil {
			return err
		}
		return db.archivedAttempts(ctx, tx, &a, &apart)
	})
	if err != nil {
		return a, err
	}
	return a, apart.fetch(ctx)
}

// archivedEvents reads the events of a run, and asks for what is kept apart of them.
func (db *DB) archivedEvents(ctx context.Context, tx reader, a *Archived, apart *fetcher) error {
	var cuts [][]cut
	err := db.readOn(ctx, tx, selectEvents, func(r *record) error {
		events, out, err := decodeEvents(a.Run.ID, r.int(), r.int(), r.bytes())
		a.Events = append(a.Events, events...)
		cuts = append(cuts, out...)
		cuts = append(cuts, make([][]cut, len(a.Events)-len(cuts))...)
		return err
	}, a.Run.ID)
	apart.events(a.Run.ID, a.Events, cuts)
	return err
}

func (db *DB) archivedDefinition(ctx context.Context, tx reader, a *Archived) error {
	if a.Run.Imported() {
		return nil
	}
	var d Definition
	found := false
	err := db.readOn(ctx, tx, exactVersion, one(&d, &found), a.Run.Workflow, "", a.Run.Version)
	if found {
		a.Definition = &d
	}
	return err
}

func (db *DB) archivedAttempts(ctx context.Context, tx reader, a *Archived, apart *fetcher) error {
	from, to := idRange(a.Run.ID)
	place := map[string]int{}
	err := db.readOn(ctx, tx, selectArchived, func(r *record) error {
		t := readArchived(r)
		place[t.ID] = len(a.Attempts)
		a.Attempts = append(a.Attempts, t)
		return r.err
	}, from, to, a.Run.ID)
	if err != nil || len(a.Attempts) == 0 {
		return err
	}
	for i := range a.Attempts {
		if err := apart.archived(a.Run.ID, &a.Attempts[i]); err != nil {
			return err
		}
	}
	return db.readOn(ctx, tx, selectLateOf, func(r *record) error {
		id := r.str()
		l := ArchivedAnswer{At: r.time(), From: r.str(), Outcome: r.str(), Output: r.bytes(), Meta: r.bytes()}
		if i, ok := place[id]; ok {
			a.Attempts[i].Late = append(a.Attempts[i].Late, l)
		}
		return r.err
	}, from, to)
}

func readArchived(r *record) ArchivedAttempt {
	a := ArchivedAttempt{
		ID: r.str(), Step: r.str(), Number: int(r.int()), Agent: r.str(), CorrelationID: r.str(), ContextID: r.str(), Input: r.bytes(),
	}
	a.Policy = Policy{OutcomeUnknown: parley.OutcomePolicy(r.str()), OnOpen: parley.OnOpen(r.str()), AttemptTimeout: r.duration(), Silence: r.duration()}
	a.Urgency, a.Orphanings, a.Questions = int(r.int()), int(r.int()), int(r.int())
	a.CancelRequested, a.ReplySent = r.flag(), r.flag()
	a.AgentTaskID, a.AgentContextID, a.AgentEndpoint, a.AgentVersion = r.str(), r.str(), r.str(), r.str()
	a.Outcome, a.Output, a.Meta, a.Question, a.Reply = r.str(), r.bytes(), r.bytes(), r.bytes(), r.bytes()
	a.Deadline, a.ScheduledAt, a.ClaimedAt, a.SettledAt = r.time(), r.time(), r.time(), r.time()
	return a
}

// archived takes the values of an attempt out of their frames, and asks for those
// that are kept apart.
func (f *fetcher) archived(run string, a *ArchivedAttempt) error {
	for _, v := range []struct {
		what   string
		column *[]byte
	}{{"the input of ", &a.Input}, {"the output of ", &a.Output}} {
		value, apart, err := unframe(*v.column)
		if err != nil {
			return err
		}
		*v.column = value
		f.add(wanted{apart, run, v.what + a.ID, func(got []byte) { *v.column = got }})
	}
	return nil
}

// args are the arguments of insertArchived, with large values kept apart.
func (a *ArchivedAttempt) args(c *cutter, run string) ([]any, error) {
	input, err := c.value(a.Input)
	if err != nil {
		return nil, err
	}
	output, err := c.value(a.Output)
	if err != nil {
		return nil, err
	}

	return []any{
		a.ID, a.Step, int64(a.Number), a.Agent, text(a.CorrelationID), text(a.ContextID), input,
		string(a.Policy.OutcomeUnknown), text(string(a.Policy.OnOpen)), a.Policy.AttemptTimeout.Microseconds(), a.Policy.Silence.Microseconds(),
		int64(a.Urgency), int64(a.Orphanings), int64(a.Questions), flag(a.CancelRequested), flag(a.ReplySent),
		text(a.AgentTaskID), text(a.AgentContextID), text(a.AgentEndpoint), text(a.AgentVersion),
		text(a.Outcome), blob(output), blob(a.Meta), blob(a.Question), blob(a.Reply),
		micros(a.Deadline), unixMicro(a.ScheduledAt), micros(a.ClaimedAt), micros(a.SettledAt), run,
	}, nil
}

// AddArchived writes a run of an archive, at that time, and the version that it is
// on if that is missing. The error has code conflict, and nothing was written, if
// the run's id or its idempotency key is taken, or its version is another document
// here, and invalid for a run that is not whole. Synced.
//
// A version that comes so is deleted: nothing starts it, runs that are on it are
// shown and run again, and who deploys the same document has it back.
func (db *DB) AddArchived(ctx context.Context, a Archived, at time.Time) error {
	if err := checkArchived(&a); err != nil {
		return err
	}
	rows, err := db.archivedRows(ctx, &a)
	if err != nil {
		return err
	}
	labels, err := encodeLabels(a.Run.Labels)
	if err != nil {
		return err
	}
	row := bindStart(&a.Run, &Start{IdempotencyKey: a.IdempotencyKey, InputDigest: a.InputDigest}, labels)
	return db.submit(ctx, synced, func(s *session) error {
		s.at(a.Run.ID)
		definition, err := archivedVersion(s, a.Definition)
		if err == nil {
			err = noRunInTheWay(s, &a)
		}
		if err != nil {
			return err
		}
		if n, err := s.execBound(insertRun, row); n == 0 || err != nil {
			return cmpError(err, errLate) // somebody was faster: the next try says who
		}
		if definition != nil {
			if err := insertDefinition(s, definition); err != nil {
				return err
			}
		}
		if err := searchable(s, &a.Run); err != nil {
			return err
		}
		return rows.write(s, &a, at)
	})
}

func cmpError(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// archivedRows are the rows of a run that holds values.
type archivedRows struct {
	events   []eventRow
	attempts [][]any
	apart    references
}

func (db *DB) archivedRows(ctx context.Context, a *Archived) (rows archivedRows, err error) {
	rows.apart, err = db.apart(ctx, a.Run.ID, false, func(c *cutter) (err error) {
		if rows.events, err = eventRows(c, a.Run.ID, a.Events); err != nil {
			return err
		}
		rows.attempts = make([][]any, len(a.Attempts))
		for i := range a.Attempts {
			if rows.attempts[i], err = a.Attempts[i].args(c, a.Run.ID); err != nil {
				return err
			}
		}
		return nil
	})
	return rows, err
}

func (rows *archivedRows) write(s *session, a *Archived, at time.Time) error {
	for _, e := range rows.events {
		if err := s.later(1, insertEvents, a.Run.ID, e.first, e.last, e.data); err != nil {
			return err
		}
	}
	for i := range a.Attempts {
		t := &a.Attempts[i]
		s.at(t.ID)
		if err := s.later(1, insertArchived, rows.attempts[i]...); err != nil {
			return err
		}
		for _, l := range t.Late {
			if err := s.later(1, insertLate, t.ID, unixMicro(l.At), l.From, l.Outcome, blob(l.Output), blob(l.Meta)); err != nil {
				return err
			}
		}
	}
	if err := rows.apart.write(s, unixMicro(at)); err != nil {
		return err
	}
	s.at(a.Run.ID)
	return s.later(-1, `INSERT INTO imported (kind, id, digest, stamp, imported_at) VALUES (?, ?, '', 0, ?)
 ON CONFLICT (kind, id) DO UPDATE SET imported_at = excluded.imported_at`, string(importArchived), a.Run.ID, unixMicro(at))
}

// AddArchivedLate writes the late answers that an archive has of a run that is here,
// and that are not. Attempts that are not here are left out. Synced.
func (db *DB) AddArchivedLate(ctx context.Context, attempts []ArchivedAttempt) error {
	return db.submit(ctx, synced, func(s *session) error {
		for i := range attempts {
			t := &attempts[i]
			s.at(t.ID)
			there, err := s.exec(keepAttempt, t.ID)
			for _, l := range t.Late {
				if there == 0 || err != nil {
					break
				}
				err = s.later(-1, insertMissingLate, t.ID, unixMicro(l.At), l.From, l.Outcome, blob(l.Output), blob(l.Meta),
					t.ID, unixMicro(l.At), l.From, l.Outcome)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// checkArchived refuses what the database must not hold.
func checkArchived(a *Archived) error {
	run := &a.Run
	switch {
	case run.ID == "" || !run.Status.Terminal() || run.EndedAt.IsZero() || run.CreatedAt.IsZero() || !run.Due.IsZero():
		return parley.Errorf(parley.CodeInvalid, "run %q is not over", run.ID)
	case run.Seq == 0 || run.Seq != int64(len(a.Events)):
		return parley.Errorf(parley.CodeInvalid, "run %q ends at event %d and has %d events", run.ID, run.Seq, len(a.Events))
	}
	there := make(map[string]bool, len(a.Attempts))
	for i := range a.Attempts {
		t := &a.Attempts[i]
		if !strings.HasPrefix(t.ID, run.ID+".") || len(t.Input) == 0 || t.ScheduledAt.IsZero() {
			return parley.Errorf(parley.CodeInvalid, "attempt %q does not belong to run %q, or lacks its input or its time", t.ID, run.ID)
		}
		if there[t.ID] {
			return parley.Errorf(parley.CodeInvalid, "run %q has the attempt %q twice", run.ID, t.ID)
		}
		there[t.ID] = true
	}
	d := a.Definition
	if d != nil && (d.ID == "" || strings.Contains(d.ID, "@") || d.Workflow != run.Workflow || d.Version != run.Version || d.Version == "" || d.Digest == "" || len(d.Source) == 0) {
		return parley.Errorf(parley.CodeInvalid, "the definition of run %q is not that of workflow %q version %q", run.ID, run.Workflow, run.Version)
	}
	return nil
}

// noRunInTheWay refuses a run whose id or key is taken.
func noRunInTheWay(s *session, a *Archived) error {
	for _, q := range []string{`SELECT 1 FROM run WHERE id = ?`, isRemoved} {
		taken, err := s.exists(q, a.Run.ID)
		if err != nil {
			return err
		}
		if taken && q == isRemoved {
			return parley.Errorf(parley.CodeConflict, "run %q is being removed here: import it again in a minute", a.Run.ID)
		}
		if taken {
			return parley.Errorf(parley.CodeConflict, "there is a run %q already", a.Run.ID)
		}
	}
	if a.IdempotencyKey == "" {
		return nil
	}
	other := ""
	err := s.query(selectByKey, func(r *record) error { other = r.str(); return r.err }, a.Run.Workflow, a.IdempotencyKey)
	if err == nil && other != "" {
		err = parley.Errorf(parley.CodeConflict, "the idempotency key %q of workflow %q is that of run %q here", a.IdempotencyKey, a.Run.Workflow, other)
	}
	return err
}

// archivedVersion gives the version to be written, nil if it is there or there is
// none.
func archivedVersion(s *session, d *Definition) (*Definition, error) {
	if d == nil {
		return nil, nil //nolint:nilnil // there is none to write
	}
	var here Definition
	found := false
	if err := s.query(exactVersion, one(&here, &found), d.Workflow, "", d.Version); err != nil {
		return nil, err
	}
	if found {
		if !bytes.Equal(here.Source, d.Source) {
			return nil, parley.Errorf(parley.CodeConflict, "version %s of workflow %q is another document here, and a version does not change", d.Version, d.Workflow)
		}
		return nil, nil //nolint:nilnil // it is there
	}
	other := ""
	err := s.query(`SELECT workflow FROM definition WHERE id = ? AND workflow <> ? LIMIT 1`, func(r *record) error { other = r.str(); return r.err }, d.ID, d.Workflow)
	if err != nil {
		return nil, err
	}
	if other != "" {
		return nil, parley.Errorf(parley.CodeConflict, "the id %s of workflow %q is that of workflow %q here", d.ID, d.Workflow, other)
	}
	if err := noAlias(s, d.Workflow, d.Version); err != nil {
		return nil, err
	}
	row := *d
	row.Status = parley.AgentDeleted
	row.Number, err = archivedNumber(s, d)
	return &row, err
}

// archivedNumber gives a number to a version of an archive: its own, unless that is
// taken, or it would come to be the newest of a workflow that is deployed here.
func archivedNumber(s *session, d *Definition) (int, error) {
	least, deployed, taken := 1, 0, false
	err := s.query(`SELECT number, status FROM definition WHERE workflow = ?`, func(r *record) error {
		n, status := int(r.int()), r.str()
		least, taken = min(least, n), taken || n == d.Number
		if status != string(parley.AgentDeleted) {
			deployed = max(deployed, n)
		}
		return r.err
	}, d.Workflow)
	if taken || deployed > 0 && d.Number > deployed {
		return least - 1, err
	}
	return d.Number, err
}
