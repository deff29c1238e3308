package jsonrpc

import (
	"errors"
	"fmt"
	"time"
)

// noSuchCall reports a response with an id of no call of ours. It shows the id: a peer
// that answers with "4096" or 4096.0 for 4096 is found by that.
func noSuchCall(id []byte) error {
	return fmt.Errorf("jsonrpc: a response with the id %s, which no call had", printable(shorten(string(id), longestName)))
}

// settle gives a response to the call that waits for it (RPC-7).
func (c *Conn) settle(m *message) {
	if s := c.fill(m, true); s != nil {
		s.done <- struct{}{}
	}
}

// fill puts a response into the slot of the call that waits for it, which has to be
// told; nil when there is none. alone says that it is a message by itself, and no
// entry of a batch.
func (c *Conn) fill(m *message, alone bool) *slot {
	s := c.claim(m, alone)
	if s == nil {
		return nil
	}
	switch {
	case m.kind == kindError:
		s.err = decodeError(m.err)
	case s.raw != nil:
		*s.raw = append((*s.raw)[:0], m.result...)
	case s.keep:
		s.answer = c.bufs.get()
		s.answer.b = append(s.answer.b[:0], m.result...)
	}
	return s
}

// claim takes the right to settle the call that a response is for; nil when
// there is none, which is reported.
func (c *Conn) claim(m *message, alone bool) *slot {
	id, ok := c.ids.parse(m.id)
	if !ok {
		if m.kind == kindError && string(m.id) == "null" {
			c.refused(decodeError(m.err), alone)
		} else {
			c.report.notice(NoticeUnknown, noSuchCall(m.id))
		}
		return nil
	}
	s, late := c.pending.settle(id)
	switch {
	case s != nil:
		if m.kind == kindResult && !c.useful.Load() {
			c.useful.Store(true)
		}
	case late:
		c.report.notice(NoticeLate, fmt.Errorf("jsonrpc: the response with the id %s comes late: its call was given up", m.id))
	default:
		c.report.notice(NoticeUnknown, noSuchCall(m.id))
	}
	return s
}

// badResponse ends the call that an invalid message has the id of, if it is meant
// as a response: without a method and params it is no request either. It is not
// answered then: what ends a call of ours is none of the peer's.
func (c *Conn) badResponse(m *message) bool {
	if m.seen&(memberMethod|memberParams) != 0 && !m.response {
		return false
	}
	err := &ResultError{Err: notResponse(m)}
	if m.cut {
		return c.cutOff(m.id, err)
	}
	return c.failCall(m.id, err)
}

// notResponse says what is wrong with a response.
func notResponse(m *message) error { return errors.New("jsonrpc: not a valid response: " + m.fault) }

// cutGrace is how long a call waits for its error behind a response that was cut
// off: a peer whose result fails while it is streamed ends the line where it is.
const cutGrace = time.Second

// cutOff ends the call with the id, if there is one, with err, unless it is answered
// within cutGrace.
func (c *Conn) cutOff(rawID []byte, err error) bool {
	id, ok := c.ids.parse(rawID)
	if !ok {
		return false
	}
	waits, news := c.pending.cut(id)
	if news { // else there would be a timer for each time that the peer repeats it
		time.AfterFunc(cutGrace, func() {
			s, _ := c.pending.settle(id)
			if s == nil {
				return
			}
			s.fail(err)
			if c.token.inHand() {
				c.token.interrupt()
			}
		})
	}
	return waits
}

// failCall ends the call with the id, if there is one, with err.
func (c *Conn) failCall(rawID []byte, err error) bool {
	id, ok := c.ids.parse(rawID)
	if !ok {
		return false
	}
	s, _ := c.pending.settle(id)
	if s == nil {
		return false
	}
	s.fail(err)
	return true
}

// undelivered ends the calls in a message that did not reach the peer, and only
// those.
func (c *Conn) undelivered(lost *UndeliveredError) {
	var m message
	m.scan(lost.Message, maxRecursion)
	entries := []message{m}
	if m.kind == kindBatch {
		entries = m.scanBatch(nil, lost.Message, maxRecursion, len(lost.Message))
	}
	for i := range entries {
		if e := &entries[i]; e.kind != kindRequest || !c.failCall(e.id, lost) {
			c.report.notice(NoticeUndelivered, lost.Err)
		}
	}
}
