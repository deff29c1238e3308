package executor

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/store"
)

const (
	// maxProgress bounds the data of one event of progress, in bytes.
	maxProgress = 64 << 10
	// progressTries bounds how often one is put behind what others have
	// written in the meantime.
	progressTries = 3
	// maxProgressID bounds the names in a record, in bytes.
	maxProgressID = 16 << 10
)

// progressRecord is what a bridge puts on [bus.SubjectProgress].
type progressRecord struct {
	Run    string `json:"run"`
	TaskID string `json:"task_id"`
	Type   string `json:"type"`
	progressData
}

// progressData is what a run keeps of it.
type progressData struct {
	State       string            `json:"state,omitempty"`
	Text        string            `json:"text,omitempty"`
	AgentTaskID string            `json:"agent_task_id,omitempty"`
	ContextID   string            `json:"context_id,omitempty"`
	Chunks      []json.RawMessage `json:"chunks,omitempty"`
	// DroppedBytes is how much was left out.
	DroppedBytes int `json:"dropped_bytes,omitempty"`
}

// TakeProgress records what a bridge tells on [bus.SubjectProgress], whose
// handler it is; a bridge of the same process may call it in place of the bus.
// What cannot be recorded is dropped: nothing depends on it. The error says why
// a record cannot be read, or was not written.
func (x *Executor) TakeProgress(ctx context.Context, m bus.Message) error {
	var r progressRecord
	if err := json.Unmarshal(m.Value, &r); err != nil {
		return parley.Errorf(parley.CodeInvalid, "a record of progress cannot be read: %w", err)
	}
	t := parley.EventType("step." + r.Type)
	if len(r.TaskID) > maxProgressID || runOf(r.TaskID) != r.Run || r.Run == "" {
		return parley.Errorf(parley.CodeInvalid, "a record of progress names no task of its run")
	}
	data, err := r.data()
	if err != nil {
		return err
	}
	l := x.lock(r.Run)
	defer x.unlock(r.Run, l)
	for range progressTries {
		err := x.appendProgress(ctx, l, t, r, data)
		if !errors.Is(err, store.ErrStale) {
			return err
		}
	}
	return nil
}

// appendProgress puts one event behind the newest of the run, if the task is
// still in flight.
func (x *Executor) appendProgress(ctx context.Context, l *liveRun, t parley.EventType, r progressRecord, data json.RawMessage) error {
	if l.state == nil {
		if _, err := x.load(ctx, r.Run, l); err != nil {
			if parley.CodeOf(err) == parley.CodeNotFound {
				return nil
			}
			return err
		}
	}
	now := x.now()
	e, ok := l.state.Progress(now, t, r.TaskID, data)
	if !ok {
		return nil
	}
	err := x.cfg.Store.Decide(ctx, store.Decision{
		Run: x.row(l, now), Seen: e.Seq - 1, Events: []parley.Event{e}, Prompt: true,
	})
	if err != nil {
		l.state = nil
		return err
	}
	x.cfg.Metrics.decided(l.state, []parley.Event{e})
	x.changed(l)
	return nil
}

// data gives what is kept of a record, cut down to the limit: first the text
// is cut, then chunks are left out from the end.
func (r *progressRecord) data() (json.RawMessage, error) {
	d := r.progressData
	d.State, d.AgentTaskID, d.ContextID = clip(d.State, 1<<10), clip(d.AgentTaskID, 2<<10), clip(d.ContextID, 2<<10)
	// What JSON makes of a text can be six times as long.
	room := maxProgress - 2<<10 - 6*(len(d.State)+len(d.AgentTaskID)+len(d.ContextID)) - len(r.TaskID)
	text := clip(d.Text, max(0, min(len(d.Text), room)))
	for quoted(text) > room {
		text = clip(text, len(text)/2)
	}
	d.DroppedBytes = max(0, d.DroppedBytes) + len(d.Text) - len(text)
	d.Text = text
	room -= quoted(text)
	kept := 0
	for _, k := range d.Chunks {
		if room -= len(k) + 1; room < 0 {
			break
		}
		kept++
	}
	for _, k := range d.Chunks[kept:] {
		d.DroppedBytes += len(k)
	}
	d.Chunks = d.Chunks[:kept]
	b, err := json.Marshal(struct {
		TaskID string `json:"task_id"`
		progressData
	}{r.TaskID, d})
	if err != nil {
		return nil, parley.Errorf(parley.CodeInvalid, "a record of progress of %s: %w", r.TaskID, err)
	}
	if len(b) > maxProgress {
		return nil, parley.Errorf(parley.CodeLimit, "a record of progress of %s has %d bytes, the limit is %d", r.TaskID, len(b), maxProgress)
	}
	return b, nil
}

// quoted is the length of s as a JSON string.
func quoted(s string) int {
	b, _ := json.Marshal(s) // a string always has a JSON form
	return len(b)
}

// clip cuts s to at most n bytes, between characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.Clone(s[:n])
}
