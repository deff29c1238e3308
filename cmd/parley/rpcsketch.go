package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// The kinds of messages in a trace.
const (
	kindRequest      = "request"
	kindNotification = "notification"
	kindResponse     = "response"
	kindError        = "error"
	kindBatch        = "batch"
	// kindInvalid is JSON that is no JSON-RPC 2.0 message, kindMalformed no
	// JSON.
	kindInvalid   = "invalid"
	kindMalformed = "malformed"
	// kindLarge is a message whose kind is not among what was kept of it.
	kindLarge = "large"
	// kindLost is a message that the proxy could not deliver.
	kindLost = "lost"
)

// maxSketched bounds the ids that are remembered of one batch.
const maxSketched = 1000

// sketch is what a trace has to know about a message. Unlike the library's own
// scan it is lenient, and takes time: it explains what is wrong, and can do
// with the beginning of a message.
type sketch struct {
	kind   string
	method string
	// id and code are raw JSON, id is nil where there is none.
	id, code json.RawMessage
	fault    string
	entries  int
	// asks holds the requests in this message, answers the ids that it
	// answers.
	asks    []asked
	answers []string
	// unsure: a batch of which only the beginning of the first entry was kept, which may be
	// a request.
	unsure bool
	// refused: the side that it goes to does not take it.
	refused bool
}

// unseenID stands for the id of an answer that is not among what was kept of it. It is
// no JSON, and so nobody's id.
const unseenID = "?"

// asked is one request on its way.
type asked struct{ id, method string }

// newSketch looks at a message; whole is false if text is its beginning only.
func newSketch(text []byte, whole bool) sketch {
	s := look(text, whole)
	s.asksAnyway()
	return s
}

// asksAnyway notes that what is no message is answered, too.
func (s *sketch) asksAnyway() {
	if s.kind != kindMalformed && s.kind != kindInvalid {
		return
	}
	// The answer has the id null, or theirs.
	s.asks = []asked{{id: "null"}}
	if s.id != nil {
		s.asks[0].id = string(s.id)
	}
}

func look(text []byte, whole bool) sketch {
	if whole {
		if !utf8.Valid(text) {
			return sketch{kind: kindMalformed, fault: "invalid UTF-8"}
		}
		var v json.RawMessage
		if err := json.Unmarshal(text, &v); err != nil {
			return sketch{kind: kindMalformed, fault: jsonFault(text, err)}
		}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	t, err := d.Token()
	switch {
	case err != nil && whole:
		return sketch{kind: kindMalformed, fault: err.Error()}
	case err != nil:
		return sketch{kind: kindLarge}
	case t == json.Delim('{'):
		return sketchObject(d)
	case t == json.Delim('['):
		return sketchBatch(d, text)
	}
	return sketch{kind: kindInvalid, fault: "neither an object nor a batch"}
}

// sketchBatch reads the entries of a batch, text, whose bracket d has read.
func sketchBatch(d *json.Decoder, text []byte) sketch {
	s := sketch{kind: kindBatch}
	for d.More() {
		var raw json.RawMessage
		from := d.InputOffset()
		if err := d.Decode(&raw); err != nil {
			s.fault = cutFault(err)
			s.cutEntry(text[from:])
			break
		}
		s.entries++
		if s.entries > maxSketched {
			continue
		}
		e := sketch{kind: kindInvalid}
		inner := json.NewDecoder(bytes.NewReader(raw))
		if t, err := inner.Token(); err == nil && t == json.Delim('{') {
			e = sketchObject(inner)
		}
		if e.kind == kindInvalid && s.fault == "" {
			s.fault = fmt.Sprintf("entry %d is no JSON-RPC 2.0 message", s.entries)
		}
		e.asksAnyway()
		s.asks, s.answers = append(s.asks, e.asks...), append(s.answers, e.answers...)
	}
	if s.entries == 0 && s.fault == "" {
		return sketch{kind: kindInvalid, fault: "an empty batch"}
	}
	return s
}

// cutEntry takes what there is of a batch's last entry that was kept, behind the comma
// before it: it asks or answers like any other.
func (s *sketch) cutEntry(text []byte) {
	d := json.NewDecoder(bytes.NewReader(bytes.TrimLeft(text, ", \t\r\n")))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return
	}
	e := sketchObject(d)
	s.asks, s.answers = append(s.asks, e.asks...), append(s.answers, e.answers...)
	s.unsure = e.kind == kindLarge && s.entries == 0
}

// sketchObject reads the members of an object whose brace was read.
func sketchObject(d *json.Decoder) sketch {
	has, fault := map[string]json.RawMessage{}, ""
	for d.More() {
		name, err := d.Token()
		if err != nil {
			fault = cutFault(err)
			break
		}
		key, _ := name.(string)
		// A value that is cut off is there all the same.
		has[key] = nil
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			fault = cutFault(err)
			break
		}
		has[key] = raw
	}
	s := classifyMembers(has, fault != "")
	if fault != "" && s.kind != kindInvalid {
		s.fault = fault
	}
	return s
}

// classifyMembers tells what an object with these members is; cut: there may
// be more of them.
func classifyMembers(has map[string]json.RawMessage, cut bool) sketch {
	_, isResult := has["result"]
	fault, isError := has["error"]
	method, isCall := has["method"]
	id := has["id"]
	s := sketch{id: id}
	if isCall && method != nil && json.Unmarshal(method, &s.method) != nil {
		return sketch{kind: kindInvalid, id: id, fault: "the method is no string"}
	}
	if v, ok := has["jsonrpc"]; !cut && (!ok || string(v) != `"2.0"`) {
		return sketch{kind: kindInvalid, id: id, method: s.method, fault: `"jsonrpc" is not "2.0"`}
	}
	switch {
	case isCall && id != nil:
		s.kind, s.asks = kindRequest, []asked{{string(id), s.method}}
	case isCall && !cut:
		s.kind = kindNotification
	case isResult && isError:
		s.kind, s.fault = kindInvalid, "both result and error"
	case isResult:
		s.kind, s.answers = kindResponse, []string{answeredID(id, cut)}
	case isError:
		s.kind, s.answers = kindError, []string{answeredID(id, cut)}
		var e struct {
			Code json.RawMessage `json:"code"`
		}
		if json.Unmarshal(fault, &e) == nil {
			s.code = e.Code
		}
	case cut:
		s.kind = kindLarge
	default:
		s.kind, s.fault = kindInvalid, "neither method nor result nor error"
	}
	return s
}

// answeredID is the id of an answer; cut: it may come behind what was kept.
func answeredID(id json.RawMessage, cut bool) string {
	if cut && id == nil {
		return unseenID
	}
	return string(id)
}

// cutFault says why reading stopped early.
func cutFault(err error) string {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return "large: not looked at to its end"
	}
	return err.Error()
}
