package sample

import (
	"encoding/json"
	"time"
)

// The states of a task, as A2A 0.3 writes them.
const (
	stateWorking   = "working"
	stateCompleted = "completed"
	stateAsking    = "input-required"
	stateCanceled  = "canceled"
)

// mockTask is one task of a [Mock], whose lock guards it.
type mockTask struct {
	id, contextID string
	// state is what the task is in once it is due; until then it is at work.
	state string
	due   time.Time
	// changed is closed when the task is due before its time.
	changed chan struct{}
	// output is the answer in Simple A2A, parts the artifact's in A2A, in the
	// dialect of the message.
	output json.RawMessage
	parts  []json.RawMessage
	// keys are those by which the memory finds it, counted what it counts there.
	keys    []string
	counted int
}

// at gives the state at a time.
func (t *mockTask) at(now time.Time) string {
	if now.Before(t.due) {
		return stateWorking
	}
	return t.state
}

// size is what t costs the memory, about.
func (t *mockTask) size() int {
	n := len(t.output) + len(t.id)
	for _, p := range t.parts {
		n += len(p)
	}
	return n
}

// mockMemory remembers tasks until there are too many: the oldest are forgotten.
type mockMemory struct {
	most, mostBytes, bytes int
	byKey, byID            map[string]*mockTask // by messages, and by ids of tasks
	order                  []*mockTask
}

func newMockMemory(most, mostBytes int) mockMemory {
	return mockMemory{most: most, mostBytes: mostBytes, byKey: map[string]*mockTask{}, byID: map[string]*mockTask{}}
}

// add remembers t, which the message key made.
func (m *mockMemory) add(t *mockTask, key string) {
	if t.contextID != "" { // Simple A2A cannot ask for tasks
		m.byID[t.id] = t
	}
	m.order = append(m.order, t)
	m.know(t, key)
}

// know makes a message lead to t, whose output may have changed.
func (m *mockMemory) know(t *mockTask, key string) {
	t.keys = append(t.keys, key)
	m.byKey[key] = t
	m.bytes += t.size() - t.counted
	t.counted = t.size()
	for len(m.order) > m.most || m.bytes > m.mostBytes && len(m.order) > 1 {
		m.forget(m.order[0])
		m.order[0] = nil // for the collector: the slice goes on behind it
		m.order = m.order[1:]
	}
}

func (m *mockMemory) forget(t *mockTask) {
	for _, k := range t.keys {
		delete(m.byKey, k)
	}
	if m.byID[t.id] == t {
		delete(m.byID, t.id)
	}
	m.bytes -= t.counted
}
