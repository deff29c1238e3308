package jsonrpc

import "strconv"

// What a peer says about a message of ours whose id it could not read, or did not,
// as it skips messages beyond a limit unread. JSON-RPC 2.0 section 5 has it answer
// with an error whose id is null: which calls that is about, we have to find out.

// A refusal is an error without an id.
type refusal struct {
	at  int64 // when it came, on the Conn's clock
	err *Error
}

// refused takes an error without an id. When it came alone and names a limit, those
// calls have failed whose message is beyond that: a peer that takes no such message
// cannot be at work on one. Of every other call it is only said that it came, should
// no answer come.
func (c *Conn) refused(e *Error, alone bool) {
	c.refusal.Store(&refusal{at: c.clock.now(), err: e})
	c.report.notice(NoticePeerError, e)
	limit, unit := limitOf(e)
	if !alone || limit <= 0 {
		return
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.pending.failBeyond(limit, unit, e)
}

// limitOf returns the limit that the data of an error names, as appendLimit writes
// it; zero when it names none.
func limitOf(e *Error) (limit int64, unit string) {
	if len(e.Data) == 0 || e.Data[0] != '{' {
		return 0, ""
	}
	eachMember(e.Data, func(name, value []byte) {
		switch string(name) {
		case "limit":
			limit, _ = strconv.ParseInt(string(value), 10, 64)
		case "unit":
			unit = stringValue(value)
		}
	})
	return limit, unit
}

// explain adds to the timeout of a call that it was not sent, or what the peer said
// without an id while it waited.
func (c *Conn) explain(call *outCall, err error) error {
	late, ok := err.(*TimeoutError) //nolint:errorlint // our own, from sweep or contextError
	if !ok {
		return err
	}
	if !call.sent {
		return &TimeoutError{After: late.After, unsent: true}
	}
	if r := c.refusal.Load(); r != nil && r.at >= call.start {
		return &TimeoutError{After: late.After, Peer: r.err}
	}
	return err
}
