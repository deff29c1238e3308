package rpchttp

import (
	"bytes"
	"errors"
	"slices"

	"github.com/parley-project/parley/jsonrpc"
)

// Why a request ended before its answer.
var (
	errGivenUp   = errors.New("rpchttp: the call was cancelled")
	errCancelled = errors.New("rpchttp: the client cancelled the request")
)

// A cancelling is how one end tells the other that a call was given up: the
// method of a notification, and the member of its params that is the id. The
// zero value: not at all.
type cancelling struct{ method, member string }

func cancellingOf(style jsonrpc.CancelStyle) cancelling {
	switch style {
	case jsonrpc.LSPCancel:
		return cancelling{"$/cancelRequest", "id"}
	case jsonrpc.MCPCancel:
		return cancelling{"notifications/cancelled", "requestId"}
	case jsonrpc.CancelSilent:
	}
	return cancelling{}
}

// on says whether there is such a notification.
func (c cancelling) on() bool { return c.method != "" }

// is says whether method, if it is that of a notification, cancels a request.
func (c cancelling) is(method string) bool { return c.on() && method == c.method }

// target returns the raw id of the request that params name; nil when they
// name none. Ids are compared as they are written: 1 is not 1.0, as in a Conn.
func (c cancelling) target(params []byte) []byte {
	var id []byte
	if len(params) > 0 && params[0] == '{' {
		eachMember(params, 0, func(name, value []byte) bool {
			if string(name[1:len(name)-1]) == c.member {
				id = value
			}
			return true
		})
	}
	return id
}

// targetOf is target for a whole message; false when it is no notification that
// cancels a request.
func (c cancelling) targetOf(msg []byte) (id []byte, ok bool) {
	i := skipSpace(msg, 0)
	if !c.on() || i == len(msg) || msg[i] != '{' {
		return nil, false
	}
	m, _ := readMembers(msg, i)
	if m.id != nil || string(m.name()) != c.method {
		return nil, false
	}
	return c.target(m.params), true
}

// heed takes notice of a message of ours that gives up another. False: it does not
// have to be sent.
func (s *Stream) heed(j *job, kind messageKind) bool {
	if kind != isNotification { // which a call with its id behind the method is, too
		return true
	}
	id, ok := s.cancel.targetOf(j.msg)
	if !ok {
		return true
	}
	s.giveUp(id)
	return s.session.Load() != nil
}

// expect notes which calls j carries, if they can be given up. Of two calls with the
// same id, which is the writer's mistake, the first is noted.
func (s *Stream) expect(j *job, kind messageKind) {
	if !s.cancel.on() || kind == isAnswer {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	eachObject(j.msg, func(m *members) {
		if m.method == nil || m.id == nil || s.calls[string(m.id)] != nil {
			return
		}
		id := string(m.id)
		s.calls[id] = j
		j.ids = append(j.ids, id)
	})
	j.wanted = len(j.ids)
}

// giveUp ends the POST of the call with this id, or takes it out of its queue, if nobody
// waits for another answer to it.
func (s *Stream) giveUp(id []byte) {
	if j := s.unwanted(id); j != nil {
		s.drop(j.lane, func(other *job) bool { return other == j })
	}
}

// Drop takes the call with this id, as it was written, out of those that wait for their turn.
// False: it is none of them, or one of a batch, which goes with the last of its calls. It may be
// called by any goroutine.
func (s *Stream) Drop(id []byte) bool {
	l := s.laneOf(isCall)
	if s.drop(l, func(j *job) bool { return bytes.Equal(idOf(j.msg), id) }) {
		return true
	}
	if !s.cancel.on() { // else there is a notification to come, by which giveUp is called
		s.drop(l, func(j *job) bool { return j.lastWanted(id) })
	}
	return false
}

// lastWanted notes that the call with this id was given up, and says whether it was the last
// of a batch that anybody waits for. The lock of the job's lane is held.
func (j *job) lastWanted(id []byte) bool {
	if j.msg[skipSpace(j.msg, 0)] != '[' {
		return false
	}
	if j.ids == nil {
		eachObject(j.msg, func(m *members) {
			if m.method != nil && m.id != nil {
				j.ids = append(j.ids, string(m.id))
			}
		})
	}
	before := len(j.ids)
	j.ids = slices.DeleteFunc(j.ids, func(other string) bool { return other == string(id) })
	return len(j.ids) == 0 && before > 0
}

func (s *Stream) drop(l *lane, meant func(*job) bool) bool {
	j, opened := l.drop(meant)
	if j == nil {
		return false
	}
	s.mu.Lock()
	s.forgetLocked(j)
	s.mu.Unlock()
	if opened {
		s.roomMade()
	}
	return true
}

// unwanted returns the job that nobody wants any more, without the call with this id;
// nil: there is none.
func (s *Stream) unwanted(id []byte) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.calls[string(id)]
	if j == nil {
		return nil
	}
	delete(s.calls, string(id))
	if j.wanted--; j.wanted > 0 {
		return nil
	}
	j.givenUp = true
	j.endLocked()
	return j
}

// endLocked cuts short the POST of a job that was given up; Stream.mu is held. An
// answer of which a part was handed over is taken to its end: cut off, it would
// look like a fault of the server.
func (j *job) endLocked() {
	if j.givenUp && !j.inParts && j.cancel != nil {
		j.cancel(errGivenUp)
	}
}

// inParts notes that the answer to j is being handed over in parts, or no more.
func (s *Stream) inParts(j *job, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j.inParts = on
	j.endLocked()
}

// forgetLocked undoes expect; s.mu is held.
func (s *Stream) forgetLocked(j *job) {
	for _, id := range j.ids {
		if s.calls[id] == j {
			delete(s.calls, id)
		}
	}
}
