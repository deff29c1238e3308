package rpchttp

import "bytes"

// An envelope is what this package has to know of a message before anybody has
// checked it: which kinds it holds, so that answers find their way, and
// nothing else. It is a guess on texts that are not JSON-RPC; the Conn or the
// Responder that gets the text afterwards judges it.
type envelope struct {
	calls         int    // requests with an id
	notifications int    // requests without one
	responses     int    // results and errors
	entries       int    // of the batch, whatever they are; 1 without one
	method        []byte // of the first request, without quotes, not unescaped
	fault         []byte // the error member of a response whose id is null, or missing
}

// peek reads the members of the object, or of the objects in the array, that
// text holds. Member names written with escapes are not recognised.
func peek(text []byte) envelope {
	var e envelope
	e.entries = eachObject(text, func(m *members) { e.add(m) })
	return e
}

func (e *envelope) add(m *members) {
	switch {
	case m.method != nil && m.id != nil:
		e.calls++
	case m.method != nil:
		e.notifications++
	case (m.result || m.fault != nil) && (m.version || m.id != nil): // others have errors too
		e.responses++
		if m.fault != nil && (m.id == nil || string(m.id) == "null") {
			e.fault = m.fault
		}
	}
	if e.method == nil {
		e.method = m.name()
	}
}

// members are those of one object, as raw texts; nil when they are not there.
type members struct {
	text                      []byte // the object
	method, id, params, fault []byte
	result, version           bool
}

// name returns the method without quotes, not unescaped; nil when there is none.
func (m *members) name() []byte {
	if len(m.method) < 2 || m.method[0] != '"' {
		return nil
	}
	return m.method[1 : len(m.method)-1]
}

// eachObject calls f for the object, or the objects in the array, that text
// holds, and returns how many values there are at this level, objects or not.
func eachObject(text []byte, f func(*members)) (values int) {
	i := skipSpace(text, 0)
	if i == len(text) {
		return 0
	}
	if text[i] == '{' {
		m, _ := readMembers(text, i)
		f(&m)
		return 1
	}
	if text[i] != '[' {
		return 1
	}
	for i = skipSpace(text, i+1); i < len(text); i = skipSpace(text, i+1) {
		values++
		if text[i] == '{' {
			var m members
			m, i = readMembers(text, i)
			f(&m)
		} else {
			i = skipValue(text, i)
		}
		i = skipSpace(text, i)
		if i == len(text) || text[i] != ',' {
			break
		}
	}
	return values
}

// readMembers reads the object at i and returns the index behind it.
func readMembers(text []byte, i int) (members, int) {
	var m members
	end := eachMember(text, i, func(name, value []byte) bool {
		switch string(name) {
		case `"method"`:
			m.method = value
		case `"id"`:
			m.id = value
		case `"params"`:
			m.params = value
		case `"result"`:
			m.result = true
		case `"error"`:
			m.fault = value
		case `"jsonrpc"`:
			m.version = true
		}
		return true
	})
	m.text = text[i:end]
	return m, end
}

// eachMember calls f for the members of the object at i, the name in quotes, as
// long as that wants more, and returns the index behind what it has read: the
// object, if f wanted all of it.
func eachMember(text []byte, i int, f func(name, value []byte) (more bool)) int {
	for i = skipSpace(text, i+1); i < len(text) && text[i] == '"'; i = skipSpace(text, i+1) {
		end := skipString(text, i)
		name := text[i:end]
		i = skipSpace(text, end)
		if i == len(text) || text[i] != ':' {
			break
		}
		i = skipSpace(text, i+1)
		end = skipValue(text, i)
		more := f(name, text[i:end])
		i = skipSpace(text, end)
		if !more || i == len(text) || text[i] != ',' {
			break
		}
	}
	return min(i+1, len(text))
}

// unanswered returns the calls of message that reply does not answer, as far as
// their ids tell, which may be spelt in another way: message itself, or a batch
// of those of its entries; nil when there are none.
func unanswered(message, reply []byte) []byte {
	if kindOf(message) != isCall {
		return nil
	}
	if id := idOf(message); id != nil && bytes.Equal(idOf(reply), id) {
		return nil // what nearly all are
	}
	answered := make(map[string]bool)
	eachObject(reply, func(m *members) {
		if m.result || m.fault != nil {
			answered[string(m.id)] = true
		}
	})
	var left []byte
	eachObject(message, func(m *members) {
		if m.method != nil && m.id != nil && !answered[string(m.id)] {
			left = append(append(left, ','), m.text...)
		}
	})
	if left == nil || message[skipSpace(message, 0)] != '[' {
		return left[min(1, len(left)):]
	}
	left[0] = '['
	return append(left, ']')
}

// idOf returns the raw id of an object; nil when it has none. It reads no further:
// Conns write the id before what may be long.
func idOf(text []byte) (id []byte) {
	if i := skipSpace(text, 0); i < len(text) && text[i] == '{' {
		eachMember(text, i, func(name, value []byte) bool {
			if string(name) == `"id"` {
				id = value
			}
			return id == nil
		})
	}
	return id
}

// The kinds of our own messages, as kindOf tells them apart.
type messageKind uint8

const (
	isCall messageKind = iota // or anything else: nothing depends on it
	isNotification
	isAnswer
)

// kindOf looks at the first members only: Conns write the id before the
// method, and both before what may be long. A batch is of the kind of its first
// entry, or a call, since a batch with calls has to be treated as one.
func kindOf(text []byte) messageKind {
	i := skipSpace(text, 0)
	batch := i < len(text) && text[i] == '['
	if batch {
		i = skipSpace(text, i+1)
	}
	if i == len(text) || text[i] != '{' {
		return isCall
	}
	id := false
	for i = skipSpace(text, i+1); i < len(text) && text[i] == '"'; i = skipSpace(text, i+1) {
		end := skipString(text, i)
		name := text[i:end]
		if i = skipSpace(text, end); i == len(text) || text[i] != ':' {
			break
		}
		switch string(name) {
		case `"id"`:
			id = true
		case `"result"`, `"error"`:
			return isAnswer
		case `"method"`:
			if id || batch {
				return isCall
			}
			return isNotification
		}
		i = skipSpace(text, skipValue(text, skipSpace(text, i+1)))
		if i == len(text) || text[i] != ',' {
			break
		}
	}
	return isCall
}

func skipSpace(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index behind the string that begins at i.
func skipString(text []byte, i int) int {
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// skipValue returns the index behind the value that begins at i; nesting is
// counted, not followed, so that deep texts cost no stack.
func skipValue(text []byte, i int) int {
	depth := 0
	for i < len(text) {
		switch text[i] {
		case '"':
			i = skipString(text, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				return i + 1
			}
			if depth < 0 {
				return i
			}
		case ',', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return len(text)
}
