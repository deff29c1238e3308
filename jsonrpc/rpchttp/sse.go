package rpchttp

import (
	"bytes"
	"strconv"
	"time"
)

// Limits of the fields of an event that are kept; longer ones are ignored, as
// if the line were not there.
const (
	maxFieldName = 16   // bytes
	maxEventID   = 1024 // bytes
	maxEventType = 64   // bytes
	maxRetry     = 10   // digits
)

// An eventSink takes what an eventParser finds. Data comes in pieces as it
// arrives, so that an event may be larger than any buffer.
type eventSink interface {
	// data takes the next piece of the data of the event at hand; the bytes
	// are borrowed.
	data(p []byte) error
	// event ends the event at hand. It is called for events with data only.
	event(kind string) error
}

// An eventParser reads a text/event-stream (the HTML standard, section 9.2.6)
// in pieces of any size.
type eventParser struct {
	sink   eventSink
	lastID string        // the id of the last complete event; "" before the first
	retry  time.Duration // what the server asks us to wait before coming back; 0 before it asks

	begun   bool   // the byte order mark, if any, is behind us
	afterCR bool   // a line feed here belongs to the carriage return before
	inValue bool   // behind the colon
	trim    bool   // one space directly behind the colon is dropped
	name    []byte // field name as far as read; longer ones are cut one above the limit
	value   []byte // value of a field other than data
	hasData bool   // the event at hand has a data line
	id      []byte // id of the event at hand
	hasID   bool
	kind    []byte // event type of the event at hand
}

// feed parses the next bytes. An error is the sink's, and ends the parsing.
func (p *eventParser) feed(b []byte) error {
	for len(b) > 0 {
		if p.afterCR {
			p.afterCR = false
			if b[0] == '\n' {
				b = b[1:]
				continue
			}
		}
		end := bytes.IndexAny(b, "\r\n")
		text := b
		if end >= 0 {
			text = b[:end]
		}
		if err := p.text(text); err != nil {
			return err
		}
		if end < 0 {
			return nil
		}
		p.afterCR = b[end] == '\r'
		b = b[end+1:]
		if err := p.endLine(); err != nil {
			return err
		}
	}
	return nil
}

// text takes a piece of a line.
func (p *eventParser) text(b []byte) error {
	if !p.inValue && len(b) > 0 {
		name, rest, found := bytes.Cut(b, []byte{':'})
		room := maxFieldName + len(byteOrderMark) - len(p.name)
		p.name = append(p.name, name[:min(len(name), room)]...)
		if !found {
			return nil
		}
		if err := p.startValue(); err != nil {
			return err
		}
		b = rest
	}
	if p.trim && len(b) > 0 {
		p.trim = false
		b = bytes.TrimPrefix(b, []byte{' '})
	}
	if len(b) == 0 {
		return nil
	}
	switch string(p.name) {
	case "data":
		return p.sink.data(b)
	case "id", "event", "retry":
		// One byte above the limit is kept to tell that there was more.
		p.value = append(p.value, b[:min(len(b), maxEventID+1-len(p.value))]...)
	}
	return nil
}

const byteOrderMark = "\xef\xbb\xbf"

// startValue is called at the colon, or at the end of a line without one.
func (p *eventParser) startValue() error {
	if !p.begun {
		p.begun = true
		p.name = bytes.TrimPrefix(p.name, []byte(byteOrderMark))
	}
	p.inValue, p.trim = true, true
	if string(p.name) == "data" {
		if p.hasData {
			return p.sink.data([]byte{'\n'})
		}
		p.hasData = true
	}
	return nil
}

// endLine is called at the end of each line.
func (p *eventParser) endLine() error {
	inValue := p.inValue
	if !inValue {
		if err := p.startValue(); err != nil {
			return err
		}
	}
	name, value := string(p.name), p.value
	p.inValue, p.trim, p.name, p.value = false, false, p.name[:0], p.value[:0]
	switch {
	case name == "" && !inValue:
		return p.dispatch()
	case name == "id" && len(value) <= maxEventID && bytes.IndexByte(value, 0) < 0:
		p.id, p.hasID = append(p.id[:0], value...), true
	case name == "event" && len(value) <= maxEventType:
		p.kind = append(p.kind[:0], value...)
	case name == "retry" && len(value) <= maxRetry:
		if ms, err := strconv.ParseUint(string(value), 10, 63); err == nil {
			p.retry = time.Duration(ms) * time.Millisecond
		}
	}
	return nil
}

// dispatch is called at each blank line. The id counts from here on, so that
// an event that was cut off is sent again.
func (p *eventParser) dispatch() error {
	if p.hasID {
		p.lastID = string(p.id)
	}
	hasData, kind := p.hasData, string(p.kind)
	p.hasID, p.hasData, p.kind = false, false, p.kind[:0]
	if !hasData {
		return nil
	}
	return p.sink.event(kind)
}

// forget drops the event at hand, since its stream was cut; what is to be kept
// for the next stream, the last id and the delay, stays.
func (p *eventParser) forget() {
	*p = eventParser{sink: p.sink, lastID: p.lastID, retry: p.retry}
}

// appendEvent appends one event with the message data, which holds no line
// break, and an id by which a client that comes back says what it has:
//
//	id: 7
//	data: {"jsonrpc":"2.0",…}
//	(blank line)
func appendEvent(dst []byte, id uint64, data []byte) []byte {
	dst = append(dst, "id: "...)
	dst = strconv.AppendUint(dst, id, 10)
	dst = append(dst, "\ndata: "...)
	dst = append(dst, data...)
	return append(dst, "\n\n"...)
}

// appendPrimer appends an event without data: it is not delivered, but gives
// the client an id to come back with when it never received another one.
func appendPrimer(dst []byte, id uint64) []byte {
	dst = append(dst, "id: "...)
	dst = strconv.AppendUint(dst, id, 10)
	return append(dst, "\n\n"...)
}

// keepAlive is a comment: it tells both ends, and the proxies between them,
// that the stream still lives.
const keepAlive = ":\n\n"
