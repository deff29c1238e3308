package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/store"
)

const (
	// hintWithin bounds the time for the result record of an attempt of ours,
	// and maxHints how many of them are under way; more are left out. Nothing
	// waits for them.
	hintWithin = 5 * time.Second
	maxHints   = 1024
	// settlingMost bounds the answers that are being written, or published for
	// foreign tasks: while the ledger or the bus takes none, nothing new is called.
	settlingMost = 1024
)

// resultRecord is the record for executors of the existing platform. Whatever
// cannot be written is a failure that says so. Of a row that says when it was settled
// it is always the same: a bus that has it in hand from an earlier try adds no other.
func (b *Bridge) resultRecord(row *store.Attempt, r *parley.Result) ([]byte, error) {
	rec := records.AgentResult{
		RunID: row.Run, TaskID: row.ID, Status: records.StatusFailure, CorrelationID: row.CorrelationID, At: row.SettledAt,
	}
	if rec.At.IsZero() {
		rec.At = b.now()
	}
	if row.HandOff == store.HandOffForeign {
		rec.TaskID = row.Step
	}
	if r.Outcome == parley.OutcomeOK {
		rec.Status, rec.Output = records.StatusSuccess, r.Output
	} else if r.Err != nil {
		rec.Error = r.Err.Message
	}
	value, err := rec.Encode()
	if err != nil {
		rec.Status, rec.Output = records.StatusFailure, nil
		rec.Error = fmt.Sprintf("the answer of agent '%s' cannot be passed on: %s", row.Agent, messageOf(err))
		value, err = rec.Encode()
	}
	return value, err
}

// publishResult puts the result of an attempt on the bus; that of a foreign task has
// no headers, as in the existing platform. One that is too large for a record becomes
// a failure.
func (b *Bridge) publishResult(ctx context.Context, row *store.Attempt, r *parley.Result) error {
	value, err := b.resultRecord(row, r)
	if err != nil {
		return err
	}
	m := bus.Message{Subject: bus.SubjectResults, Key: row.CorrelationID, Value: value}
	if row.HandOff != store.HandOffForeign {
		m.Header = map[string]string{bus.HeaderCorrelation: row.CorrelationID, bus.HeaderIdempotency: row.ID}
		row.Trace.Into(m.Header)
	}
	err = b.cfg.Bus.Publish(ctx, m)
	if parley.CodeOf(err) != parley.CodeLimit {
		return err
	}
	e := parley.Errorf(parley.CodeLimit, "the answer of agent '%s' is too large for the executor: %s", row.Agent, cut(messageOf(err), maxNote))
	if m.Value, err = b.resultRecord(row, &parley.Result{TaskID: row.ID, Outcome: parley.OutcomeError, Err: e}); err != nil {
		return err
	}
	return b.cfg.Bus.Publish(ctx, m)
}

// publishRefusal answers a record that no attempt was made of.
func (b *Bridge) publishRefusal(t records.AgentTask, at time.Time, why error) error {
	row := store.Attempt{
		Task: parley.Task{Run: t.RunID, Step: t.TaskID, CorrelationID: t.CorrelationID}, HandOff: store.HandOffForeign, SettledAt: at,
	}
	e := parley.Errorf(parley.CodeOf(why), "the task cannot be taken: %s", messageOf(why))
	return b.publishResult(b.hard, &row, &parley.Result{Outcome: parley.OutcomeError, Err: e})
}

// conclude ends a foreign task: its result is published, and one that failed is a
// dead letter; false if that is not done. With a row in the store that is no loss:
// whoever sweeps does it again, with the letter first, since a result is best
// published once. Without one this bridge goes on until it is done, with the result
// first, since its executor waits for it.
func (b *Bridge) conclude(row *store.Attempt, r parley.Result) bool {
	told := *row
	publish := func() error { return b.publishResult(b.hard, &told, &r) }
	bury := func() error { return b.buryTask(b.hard, row, &r) }
	if b.volatile {
		if told.SettledAt.IsZero() {
			told.SettledAt = b.now()
		}
		if !b.insist(publish) || !b.insist(bury) {
			return false
		}
		b.delivered(row.ID)
		return true
	}
	err := bury()
	if err == nil {
		err = publish()
	}
	if err != nil {
		b.log.Warn("result not published; it is tried again", "event", "bridge_result", "task_id", row.Step, "run", row.Run, "error", err)
		return false
	}
	b.delivered(row.ID)
	return true
}

// delivered notes that a task's result was published: nothing more is to be
// done for it but to acknowledge its records.
func (b *Bridge) delivered(id string) {
	if b.volatile {
		_ = b.foreign.CloseForeign(b.hard, []string{id}) // a map in memory
		return
	}
	b.mu.Lock()
	b.done[id] = struct{}{}
	b.mu.Unlock()
}

// hint publishes the result of an attempt of ours, for whoever reads that topic
// besides: it may be lost.
func (b *Bridge) hint(row *store.Attempt, r *parley.Result) {
	if b.hints.Add(1) <= maxHints {
		ctx, done := context.WithTimeout(b.hard, hintWithin)
		if err := b.publishResult(ctx, row, r); err != nil {
			b.log.Debug("result record not published", "run", row.Run, "task_id", row.ID, "error", err)
		}
		done()
	}
	b.hints.Add(-1)
}

// handOn has everybody told, when the call has ended, that the attempt was
// settled, and measures it.
func (c *call) handOn(r *parley.Result) {
	c.b.cfg.Metrics.ended(c.row.Agent, r, age(c.since, c.b.cfg.Now()))
	if c.foreign() || c.b.cfg.Results {
		c.tell = r
	}
}

// tellForeign concludes a foreign task. Its agent may have the next one
// meanwhile.
func (c *call) tellForeign() {
	b := c.b
	told := b.conclude(&c.row, *c.tell)
	b.mu.Lock()
	delete(b.calls, c.row.ID)
	c.settlesLocked(false)
	b.mu.Unlock()
	if told {
		b.acknowledge(c.row.ID) // also a record that came again meanwhile
	}
}

// wake tells the executors that there is something new about the attempt.
func (c *call) wake() {
	if !c.foreign() {
		c.b.wake(c.row.Run, c.row.ID)
	}
}

// foreign reports whether the task is one of an executor of the existing platform.
func (c *call) foreign() bool { return c.row.HandOff == store.HandOffForeign }

// task is the task as agents see it. A foreign one has the executor's id, as
// with the bridge of the existing platform, and for a replay and for another try
// a new one.
func (c *call) task() parley.Task {
	t := c.row.Task
	t.Trace = c.span.own
	if c.foreign() {
		t.ID, t.Foreign = t.Step, true
		if replay := store.ForeignReplay(c.row.ID); replay != "" {
			t.ID += ".r" + replay
		}
		if t.Attempt > 1 {
			t.ID += "." + strconv.Itoa(t.Attempt)
		}
	}
	return t
}

// oldWords puts an error of a foreign task into the words of the existing
// platform's bridge, where it has any: people and plans know them.
func (c *call) oldWords(e *parley.Error) {
	details := detailsOf(e)
	status := details.Status
	switch {
	case details.Circuit != "":
		e.Message = fmt.Sprintf("Circuit breaker is OPEN for agent '%s'", c.row.Agent)
	case e.Code == parley.CodeUnknownAgent:
		e.Message = fmt.Sprintf("Agent '%s' not found in API database or registry", c.row.Agent)
	case status >= 300:
		kind := "Client error"
		if status >= 500 {
			kind = "Server error"
		} else if status < 400 {
			kind = "Redirect response"
		}
		e.Message = fmt.Sprintf("HTTP %d: %s '%d %s' for url '%s'\nFor more information check: https://developer.mozilla.org/en-US/docs/Web/HTTP/Status/%d",
			status, kind, status, http.StatusText(status), shownURL(c.agent.URL), status)
	case c.out.Disposition == NotSent && e.Code == parley.CodeAgentUnavailable && c.agent.Name != "" && e.Retryable:
		e.Message = "All connection attempts failed"
	}
}

// shownURL is an agent's URL without what may be secret in it.
func shownURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

func detailsOf(e *parley.Error) errorDetails {
	var d errorDetails
	if e != nil && len(e.Details) > 0 {
		_ = json.Unmarshal(e.Details, &d) // others have other details
	}
	return d
}
