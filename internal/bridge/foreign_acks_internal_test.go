package bridge

import "testing"

// TestAckOfNewestRecord: a task whose partition has gone, and has come back with its
// record before anybody looked, is this bridge's: dropped, it would never be called nor
// acknowledged. All of its records are acknowledged at its end.
func TestAckOfNewestRecord(t *testing.T) {
	b := &Bridge{volatile: true, acks: map[string]*ack{}}
	acknowledged := 0
	arrives := func(moved <-chan struct{}) {
		b.noteAckLocked("task-1", ack{done: func() { acknowledged++ }, moved: moved})
	}
	gone := make(chan struct{})
	arrives(gone)
	waiting := b.acks["task-1"]
	if b.movedLocked(waiting) {
		t.Error("a task whose partition is here is taken for another bridge's")
	}
	close(gone)
	if !b.movedLocked(waiting) {
		t.Error("a task whose partition has gone is kept")
	}
	arrives(make(chan struct{}))
	if b.movedLocked(waiting) {
		t.Error("a task whose partition has come back is taken for another bridge's")
	}
	b.acknowledge("task-1")
	if acknowledged != 2 {
		t.Errorf("%d of 2 records are acknowledged", acknowledged)
	}
}
