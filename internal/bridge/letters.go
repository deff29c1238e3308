package bridge

import (
	"context"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/store"
)

// buryRecord keeps a record that cannot be handled.
func (b *Bridge) buryRecord(m bus.Message, t records.AgentTask, why error) error {
	if b.cfg.DeadLetters == nil {
		return nil
	}
	if t.RunID == "" && t.TaskID == "" {
		t, _ = records.DecodeTask(m.Value) // as far as it can be read
	}
	return b.cfg.DeadLetters(b.hard, bus.DeadLetter{
		Message: m, Code: string(parley.CodeOf(why)), Reason: messageOf(why), Attempts: 1, Group: b.cfg.Group, Agent: t.AgentName,
		Run: t.RunID, Task: t.TaskID,
	})
}

// buryTask keeps a foreign task that has failed for good; nothing, if r is no
// failure. The same task again is the same dead letter.
func (b *Bridge) buryTask(ctx context.Context, row *store.Attempt, r *parley.Result) error {
	if r.Outcome == parley.OutcomeOK || b.cfg.DeadLetters == nil {
		return nil
	}
	from := row.Source
	if from == nil {
		var err error
		if from, err = b.foreign.Source(ctx, row.ID); err != nil {
			return err
		}
	}
	d := bus.DeadLetter{
		Message: foreignRecord(row, from), Attempts: row.Attempt, Group: b.cfg.Group, Agent: row.Agent,
		Foreign: true, Run: row.Run, Task: row.Step, Code: string(parley.CodeAgentError),
	}
	switch {
	case from != nil && !from.FailedAt.IsZero():
		d.FirstFailedAt = from.FailedAt
	case row.Attempt == 1 && row.Orphanings == 0: // else it has failed before
		d.FirstFailedAt = row.SettledAt
	}
	if r.Err != nil {
		details := detailsOf(r.Err)
		d.Code, d.Reason, d.HTTPStatus = string(r.Err.Code), r.Err.Message, details.Status
		if details.Uncalled && row.Orphanings == 0 { // else a bridge that is gone may have called
			d.Attempts-- // those before it were calls
		}
	}
	return b.cfg.DeadLetters(ctx, d)
}

// uncalled notes in a copy of a foreign task's error that its last try was no call:
// who buries the task may be another bridge, which knows only the row.
func uncalled(e *parley.Error) *parley.Error {
	details := detailsOf(e)
	details.Uncalled = true
	return e.WithDetails(details)
}

// firstFailure gives what is kept of a foreign task's record together with the
// time of its first failure, or nil if that is not now.
func (b *Bridge) firstFailure(row *store.Attempt) *store.Source {
	if row.Attempt > 1 {
		return nil
	}
	from := row.Source
	if from == nil {
		var err error
		if from, err = b.foreign.Source(b.hard, row.ID); err != nil {
			b.log.Debug("the first failure of a task is not noted", "run", row.Run, "task_id", row.Step, "error", err)
			return nil
		}
	}
	failed := store.Source{}
	if from != nil {
		failed = *from
	}
	failed.FailedAt = b.now()
	return &failed
}

// foreignRecord is the record of a foreign task, made of its row: what its
// executor wrote beside the members of the platform is not there.
func foreignRecord(row *store.Attempt, from *store.Source) bus.Message {
	m := bus.Message{Subject: bus.SubjectTasks, Key: row.Run}
	t := records.AgentTask{
		RunID: row.Run, TaskID: row.Step, AgentName: row.Agent, Input: row.Input, CorrelationID: row.CorrelationID,
		At: row.Deadline.Add(-foreignTime),
	}
	var err error
	if m.Value, err = t.Encode(); err != nil {
		m.Value = row.Input // what was read can be written: no task gets here
	}
	if from == nil {
		return m
	}
	m.At = bus.Position{Topic: from.Topic, Partition: from.Partition, Offset: from.Offset}
	if len(from.Headers) > 0 {
		m.Header, m.Headers = make(map[string]string, len(from.Headers)), make([]bus.Header, 0, len(from.Headers))
		for _, h := range from.Headers {
			m.Header[h.Name] = string(h.Value)
			m.Headers = append(m.Headers, bus.Header{Name: h.Name, Value: h.Value})
		}
	}
	return m
}
