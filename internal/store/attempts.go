package store

import (
	"cmp"
	"context"
	"database/sql/driver"
	"slices"
	"strings"

	"github.com/parley-project/parley"
)

// attemptColumns are the columns of an attempt in the order of readAttempt,
// endColumns those for who asks how it has ended: without the input, which may be
// large.
const (
	attemptColumns = attemptHead + `input` + attemptRest
	endColumns     = attemptHead + `NULL` + attemptRest

	attemptHead = `id, run, step, number, agent, `
	attemptRest = `, correlation_id, context_id, deadline,
 policy, attempt_timeout, silence, state, held, visible_at, owner, owner_inc, token,
 orphanings, cancel_requested, agent_task_id, agent_context_id, outcome, output, meta,
 claimed_at, settled_at, agent_endpoint, agent_version, question, questions, reply, reply_sent, news, news_seen, hand_off, on_open, urgency, trace`
)

func readAttempt(r *record) (Attempt, error) {
	var a Attempt
	a.ID, a.Run, a.Step, a.Attempt, a.Agent = r.str(), r.str(), r.str(), int(r.int()), r.str()
	a.Input, a.CorrelationID, a.ContextID, a.Deadline = r.bytes(), r.str(), r.str(), r.time()
	a.Policy = Policy{OutcomeUnknown: parley.OutcomePolicy(r.str()), AttemptTimeout: r.duration(), Silence: r.duration()}
	a.State, a.Held, a.VisibleAt = AttemptState(r.str()), r.flag(), r.time()
	a.Claim = Claim{r.str(), r.int(), r.str()}
	a.Orphanings, a.CancelRequested = int(r.int()), r.flag()
	a.AgentTaskID, a.AgentContextID = r.str(), r.str()
	outcome, output, meta := parley.Outcome(r.str()), r.bytes(), r.bytes()
	a.ClaimedAt, a.SettledAt = r.time(), r.time()
	a.AgentEndpoint, a.AgentVersion = r.str(), r.str()
	question, questions, reply := r.bytes(), int(r.int()), r.bytes()
	a.Questions, a.ReplySent, a.News, a.NewsSeen = questions, r.flag(), int(r.int()), int(r.int())
	a.HandOff, a.Policy.OnOpen, a.Urgency = HandOff(r.str()), parley.OnOpen(r.str()), int(r.int())
	a.Trace = parley.ParseTrace(r.str())
	if r.err != nil {
		return unreadAttempt(a.ID), r.err
	}
	if a.CorrelationID == "" {
		a.CorrelationID = parley.CorrelationID(a.ID)
	}
	var err error
	if a.Input, a.InputApart, err = unframe(a.Input); err != nil {
		return unreadAttempt(a.ID), err
	}
	if output, a.OutputApart, err = unframe(output); err != nil {
		return unreadAttempt(a.ID), err
	}
	if a.Question, err = decodeStored[parley.Question](a.ID, question); err != nil {
		return unreadAttempt(a.ID), err
	}
	if a.Reply, err = decodeStored[parley.Reply](a.ID, reply); err != nil {
		return unreadAttempt(a.ID), err
	}
	if outcome != "" {
		if a.Result, err = decodeResult(a.ID, outcome, output, meta); err != nil {
			return unreadAttempt(a.ID), err
		}
	}
	return a, nil
}

// attemptList gives a function that collects rows into list.
func attemptList(list *[]Attempt) func(*record) error {
	return func(r *record) error {
		a, err := readAttempt(r)
		*list = append(*list, a)
		return err
	}
}

// idRange gives the bounds of the ids of one run's attempts: they begin with
// the run's id and a dot, and '/' follows '.'.
func idRange(run string) (from, to string) { return run + ".", run + "/" }

// checkAttempts refuses attempts that a decision about run may not insert. It
// gives the worker in whose name some of them are claimed, if any.
func checkAttempts(run string, list []Attempt) (owner Claim, err error) {
	for i := range list {
		a := &list[i]
		switch {
		case a.Run != run || !strings.HasPrefix(a.ID, run+"."):
			return owner, parley.Errorf(parley.CodeInvalid, "attempt %q does not belong to run %q", a.ID, run)
		case len(a.Input) == 0:
			return owner, parley.Errorf(parley.CodeInvalid, "attempt %q has no input", a.ID)
		case a.Announced && (a.State != AttemptOpen || a.Held):
			return owner, parley.Errorf(parley.CodeInvalid, "attempt %q cannot be announced: it is %s, held: %t", a.ID, a.State, a.Held)
		case a.State == AttemptOpen && a.HandOff == HandOffStore:
		case a.State != AttemptClaimed || a.Claim.Worker == "" || a.Claim.Token == "":
			return owner, parley.Errorf(parley.CodeInvalid, "attempt %q begins neither open nor claimed", a.ID)
		case a.HandOff == HandOffBus && a.Claim.Worker == busOwner: // no process of ours, so nobody who has to be alive
		case a.HandOff != HandOffStore || a.Claim.Worker == busOwner:
			return owner, parley.Errorf(parley.CodeInvalid, "attempt %q is handed to %q and claimed by %q", a.ID, a.HandOff, a.Claim.Worker)
		case owner.Worker != "" && (owner.Worker != a.Claim.Worker || owner.Inc != a.Claim.Inc):
			return owner, parley.Errorf(parley.CodeInvalid, "attempts of one decision are claimed by two bridges")
		default:
			owner = a.Claim
		}
	}
	return owner, nil
}

const insertAttempt = `INSERT INTO attempt (id, run, step, number, agent, input, correlation_id, context_id, deadline,
 policy, attempt_timeout, silence, state, held, visible_at, owner, owner_inc, token, scheduled_at, claimed_at, hand_off, on_open, urgency, published,
 trace)
 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

// bindAttempts gives the arguments of insertAttempt for each of list, with room
// for one more.
func bindAttempts(c *cutter, list []Attempt, at int64) ([][]driver.NamedValue, error) {
	bound := make([][]driver.NamedValue, len(list))
	for i := range list {
		a := &list[i]
		var owner, inc, token, claimed, correlation any
		if a.CorrelationID != parley.CorrelationID(a.ID) {
			correlation = text(a.CorrelationID) // the usual one need not be stored
		}
		if a.State == AttemptClaimed {
			owner, inc, token, claimed = a.Claim.Worker, a.Claim.Inc, a.Claim.Token, micros(a.ClaimedAt)
		}
		input, err := c.value(a.Input)
		if err != nil {
			return nil, err
		}
		visible := unixMicro(a.VisibleAt)
		if a.Announced {
			visible = at + publishAgain.Microseconds()
		}
		bound[i] = bind(make([]driver.NamedValue, 0, 26), a.ID, a.Run, a.Step, int64(a.Attempt), a.Agent, input,
			correlation, text(a.ContextID), micros(a.Deadline),
			string(a.Policy.OutcomeUnknown), a.Policy.AttemptTimeout.Microseconds(), a.Policy.Silence.Microseconds(),
			string(a.State), flag(a.Held), visible, owner, inc, token, at, claimed, text(string(a.HandOff)),
			text(string(a.Policy.OnOpen)), int64(a.Urgency), flag(a.Announced), text(a.Trace.String()))
	}
	return bound, nil
}

func insertAttempts(s *session, bound [][]driver.NamedValue) error {
	for _, args := range bound {
		s.at(args[0].Value.(string))
		if err := s.laterBound(1, insertAttempt, args); err != nil {
			return err
		}
	}
	return nil
}

// itsState is the state of an attempt that a statement finds by its id. The text is
// that of no partial index: while such an index is small by its statistics,
// PostgreSQL would rather go through all of it, and through thousands of dead
// entries, than look for the one row.
const itsState = `(state || '')`

const selectAttempts = `SELECT ` + attemptColumns + `, scheduled_at FROM attempt WHERE id >= ? AND id < ? AND run = ?`

// Attempts gives every attempt of a run, closed ones too, in the order in
// which they were scheduled. It is empty for a run that is not there.
func (db *DB) Attempts(ctx context.Context, run string) ([]Attempt, error) {
	type scheduled struct {
		at int64
		Attempt
	}
	var rows []scheduled
	from, to := idRange(run)
	err := db.read(ctx, selectAttempts,
		func(r *record) error {
			a, err := readAttempt(r)
			rows = append(rows, scheduled{r.int(), a})
			return err
		}, from, to, run)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(rows, func(a, b scheduled) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.Step, b.Step), cmp.Compare(a.Attempt.Attempt, b.Attempt.Attempt))
	})
	list := make([]Attempt, len(rows))
	for i := range rows {
		list[i] = rows[i].Attempt
	}
	if err := db.wholeAttempts(ctx, list); err != nil {
		return nil, err
	}
	return list, nil
}
