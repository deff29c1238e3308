package bridge

import (
	"encoding/json"
	"errors"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/store"
)

const (
	// maxTaskID and maxAgentName bound what a record may name, in bytes. A
	// path of 32 scopes with ids of 255 characters fits in.
	maxTaskID    = 16 << 10
	maxAgentName = 1 << 10
)

// taskRecord is what a bridge with a store reads of an AgentTask (formats.md):
// the row that it names is the truth about everything else.
type taskRecord struct {
	TaskID string `json:"task_id"`
	Agent  string `json:"agent_name"`
}

func decodeTask(value []byte) (taskRecord, error) {
	var r taskRecord
	if err := json.Unmarshal(value, &r); err != nil {
		return r, err
	}
	switch {
	case r.TaskID == "" || r.Agent == "":
		return r, errors.New("it names no task or no agent")
	case len(r.TaskID) > maxTaskID || len(r.Agent) > maxAgentName:
		return r, errors.New("its task_id or agent_name is too long")
	}
	return r, nil
}

// sourceOf is the record that a task comes from, without headers; nil on a bus
// that keeps no positions.
func (b *Bridge) sourceOf(m bus.Message) *store.Source {
	if m.At.Topic == "" {
		return nil
	}
	return &store.Source{DeadLetterSource: parley.DeadLetterSource{
		Subject: m.Subject, Topic: m.At.Topic, Partition: m.At.Partition, Offset: m.At.Offset, Group: b.cfg.Group,
	}}
}

// wake tells the executors that an attempt of run was settled. A lost hint
// costs a second: every executor sweeps.
func (b *Bridge) wake(run, task string) {
	err := b.cfg.Bus.Publish(b.hard, bus.Message{Subject: bus.SubjectRuns, Key: run, Value: []byte(task)})
	if err != nil {
		b.log.Debug("wake-up not published", "run", run, "task_id", task, "error", err)
	}
}
