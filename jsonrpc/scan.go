package jsonrpc

import (
	"bytes"
	"math"
)

// kind says what a message is, as far as its text alone can tell.
type kind uint8

const (
	// kindMalformed is no JSON text: answered with CodeParseError, id null.
	kindMalformed kind = iota
	// kindInvalid is JSON but no JSON-RPC 2.0 message: answered with
	// CodeInvalidRequest and answerID.
	kindInvalid
	kindRequest
	kindNotification
	kindResult
	kindError
	// kindBatch is an array. After scan nothing but its first byte was looked
	// at; scanBatch does the rest.
	kindBatch
)

// A message is what scan found in one JSON text: spans of it, no copies.
type message struct {
	kind kind
	// methodEscaped says that the method name holds escapes and has to be read
	// with methodName.
	methodEscaped bool
	// response says of an invalid message that it looks like a response (a
	// result or an error, no method), and of a malformed one that it begins like
	// one. Then id is the call that it was probably meant for. cut says that
	// nothing is wrong with a malformed one but that it ends too early.
	response, cut bool
	// seen are the members of the envelope that the text has.
	seen member

	id     []byte // raw text; nil when absent, not unique, or of no valid type
	method []byte // without its quotes
	params []byte // raw text of an array or object; nil when absent or null
	result []byte // raw text
	err    []byte // raw text of an object

	// What Meta travels in: raw texts of any type, or nil.
	correlationID, traceParent, traceState []byte

	// fault says of a malformed or invalid message what is wrong with it.
	fault string
	// limit is the limit that an invalid message passed, unit what it counts;
	// zero when it passed none.
	limit int
	unit  string
}

// member is a set of members of the envelope.
type member uint8

const (
	memberVersion member = 1 << iota
	memberID
	memberMethod
	memberParams
	memberResult
	memberError
)

// scan reads text, which is one whole JSON text, in a single pass that finds
// the members and checks everything on the way: grammar, UTF-8, surrogates,
// nesting, duplicate members of the envelope and the types of all members.
// Validating costs nothing extra, since code that follows the grammar predicts
// its branches well; a pass that only counted brackets would be slower.
//
// The grammar decides first: a text with both a syntax error and, say, a wrong
// version is malformed. Of several other faults the first in the order version,
// id, method, params, result, error is told.
func (m *message) scan(text []byte, maxDepth int) {
	*m = message{}
	maxDepth = min(maxDepth, maxRecursion)
	i := skipSpace(text, 0)
	if i < len(text) {
		switch text[i] {
		case '{':
			if end := m.object(text, i, maxDepth); end >= 0 {
				if skipSpace(text, end) == len(text) {
					return
				}
			}
			m.malformed(text)
			return
		case '[':
			m.kind = kindBatch
			return
		}
	}
	// A scalar is not deep, so there are only two ways to be wrong.
	if skipWhole(text, 1) < 0 {
		m.malformed(text)
		return
	}
	m.invalid("a message is an object, or an array of objects")
}

// scanBatch reads an array of messages, for which scan gave kindBatch, in a
// single pass, and appends the entries to dst. It leaves kindBatch in m when
// there is at least one entry and at most maxEntries; the entries themselves
// may be invalid, which is answered for each of them. Otherwise the fault is
// that of the whole text, and there is one answer to all of it. maxDepth
// counts from each entry, not from the array.
func (m *message) scanBatch(dst []message, text []byte, maxDepth, maxEntries int) []message {
	*m = message{kind: kindBatch}
	maxDepth = min(maxDepth, maxRecursion)
	before, n := len(dst), 0
	i := skipSpace(text, skipSpace(text, 0)+1)
	if i < len(text) && text[i] == ']' {
		i, n = i+1, 0
	} else {
		for {
			// Entries beyond the limit are checked into the last place.
			if n < max(maxEntries, 1) {
				dst = append(dst, message{})
			}
			n++
			i = dst[len(dst)-1].entry(text, i, maxDepth)
			if i >= 0 {
				i = skipSpace(text, i)
			}
			if i < 0 || i == len(text) || text[i] != ',' && text[i] != ']' {
				m.malformed(text)
				return dst[:before]
			}
			i++
			if text[i-1] == ']' {
				break
			}
			i = skipSpace(text, i)
		}
	}
	switch {
	case skipSpace(text, i) != len(text):
		m.malformed(text)
	case n == 0:
		m.invalid("a batch has at least one entry")
	case n > maxEntries:
		m.invalid("the batch has too many entries")
		m.limit, m.unit = maxEntries, unitEntries
	default:
		return dst
	}
	return dst[:before]
}

// entry reads the element of a batch that begins at b[i], and returns where it
// ends or a negative number when it is malformed.
func (m *message) entry(b []byte, i, maxDepth int) int {
	if i < len(b) && b[i] == '{' {
		*m = message{}
		return m.object(b, i, maxDepth)
	}
	*m = message{}
	end := skipValue(b, i, maxDepth)
	if end == deep {
		end = skipDeep(b, i)
	}
	m.invalid("an entry of a batch is an object")
	return end
}

// object reads the object that begins at b[i] and returns where it ends, or a
// negative number when it is malformed.
func (m *message) object(b []byte, i, maxDepth int) int {
	var bad envelopeFaults
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		m.classify(&bad)
		return i + 1
	}
	for {
		if i >= len(b) || b[i] != '"' {
			return malformed
		}
		key := i + 1
		i = skipString(b, key)
		if i < 0 {
			return malformed
		}
		name := b[key : i-1]
		if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
			return malformed
		}
		start := skipSpace(b, i+1)
		i = skipValue(b, start, maxDepth-1)
		if i < 0 {
			if i != deep {
				return malformed
			}
			if i = skipDeep(b, start); i < 0 {
				return malformed
			}
			bad.depth = maxDepth
		}
		m.member(name, b[start:i:i], &bad)
		i = skipSpace(b, i)
		if i >= len(b) {
			return malformed
		}
		switch b[i] {
		case ',':
			i = skipSpace(b, i+1)
		case '}':
			m.classify(&bad)
			return i + 1
		default:
			return malformed
		}
	}
}

// envelopeFaults collects what is wrong with the members of one object.
type envelopeFaults struct {
	twice   member // there more than once
	badType member // of the wrong type
	depth   int    // the limit of nesting, when it was passed
}

// member takes one member of the object. Names are compared exactly: JSON-RPC
// 2.0 section 4 has case-sensitive members, and "ID" is just an unknown one.
// Unknown members are ignored.
func (m *message) member(name, value []byte, bad *envelopeFaults) {
	var which member
	ok := true
	switch string(name) {
	case "jsonrpc":
		which, ok = memberVersion, isVersion(value)
	case "id":
		which, m.id, ok = memberID, value, isID(value[0])
	case "method":
		which, ok = memberMethod, value[0] == '"'
		if ok {
			m.method = value[1 : len(value)-1]
		}
	case "params":
		which, ok = memberParams, true
		switch value[0] {
		case '{', '[':
			m.params = value
		case 'n': // RPC-1 takes null for absent
		default:
			ok = false
		}
	case "result":
		which, m.result = memberResult, value
	case "error":
		which, m.err, ok = memberError, value, value[0] == '{'
	case "correlation_id":
		m.correlationID = value
	case "traceparent":
		m.traceParent = value
	case "tracestate":
		m.traceState = value
	default:
		if bytes.IndexByte(name, '\\') >= 0 {
			// "\u0069d" is the name "id". The plain name has no backslash, or
			// an unknown one that is not asked for again.
			var plain [16]byte
			if name := unescape(plain[:0], name); bytes.IndexByte(name, '\\') < 0 {
				m.member(name, value, bad)
			}
		}
		return
	}
	bad.twice |= m.seen & which
	m.seen |= which
	if !ok {
		bad.badType |= which
	}
}

// classify says what the object is, when all its members are known.
func (m *message) classify(bad *envelopeFaults) {
	isRequest := m.seen&memberMethod != 0
	m.response = !isRequest && m.seen&(memberResult|memberError) != 0
	if (bad.twice|bad.badType)&memberID != 0 {
		m.id = nil
	}
	if bad.depth != 0 || bad.twice != 0 || bad.badType != 0 || m.seen&memberVersion == 0 {
		m.invalidMember(bad)
		return
	}
	switch {
	case isRequest:
		if m.seen&(memberResult|memberError) != 0 {
			m.invalid("a message with a method has neither result nor error")
			return
		}
		m.methodEscaped = bytes.IndexByte(m.method, '\\') >= 0
		m.kind = kindRequest
		if m.id == nil {
			m.kind = kindNotification
		}
	case m.seen&(memberResult|memberError) == memberResult|memberError:
		m.invalid("a response has a result or an error, not both")
	case !m.response:
		m.invalid("the method is missing")
	case m.id == nil:
		m.invalid("a response has an id")
	case m.result != nil:
		m.kind = kindResult
	default:
		m.kind = kindError
	}
	if m.kind >= kindRequest {
		m.response = false
	}
}

// invalidMember tells the fault of a member.
func (m *message) invalidMember(bad *envelopeFaults) {
	wrong := bad.twice | bad.badType
	if m.seen&memberVersion == 0 {
		wrong |= memberVersion
	}
	if wrong == 0 {
		m.tooDeep(bad.depth)
		return
	}
	first := wrong & -wrong
	if bad.twice&first != 0 {
		m.invalid(twiceFault(first))
		return
	}
	m.invalid(typeFault(first))
}

func twiceFault(which member) string {
	switch which {
	case memberVersion:
		return `the member "jsonrpc" is there twice`
	case memberID:
		return `the member "id" is there twice`
	case memberMethod:
		return `the member "method" is there twice`
	case memberParams:
		return `the member "params" is there twice`
	case memberResult:
		return `the member "result" is there twice`
	default:
		return `the member "error" is there twice`
	}
}

func typeFault(which member) string {
	switch which {
	case memberVersion:
		return `the member "jsonrpc" must be "2.0"`
	case memberID:
		return `the member "id" must be a string, a number or null`
	case memberMethod:
		return `the member "method" must be a string`
	case memberParams:
		return `the member "params" must be an object or an array`
	default:
		return `the member "error" must be an object`
	}
}

func (m *message) tooDeep(limit int) {
	m.invalid("the message is nested too deeply")
	m.limit, m.unit = limit, unitLevels
}

func (m *message) invalid(fault string) { m.kind, m.fault = kindInvalid, fault }

// malformed makes m a malformed message. The fast pass only knows that
// something is wrong, so the slow one is asked what and where.
func (m *message) malformed(text []byte) {
	*m = message{kind: kindMalformed, fault: "the text is not valid JSON"}
	check := valueChecker{maxDepth: math.MaxInt}
	err := check.Write(text)
	if err == nil {
		err = check.Close()
		m.cut = true
	}
	if h := scanHead(text, maxRecursion); h.response {
		m.response, m.id = true, h.id
	}
	if err != nil {
		m.fault = err.Error()
	}
}

// fail returns the error that a malformed or invalid message is answered with.
func (m *message) fail() *Error {
	e := &Error{Code: CodeInvalidRequest, Message: "invalid request: " + m.fault}
	if m.kind == kindMalformed {
		e = &Error{Code: CodeParseError, Message: "parse error: " + m.fault}
	}
	if m.unit != "" {
		e.Data = appendLimit(make([]byte, 0, 48), m.limit, m.unit)
	}
	return e
}

// answerID is the id for the answer to an invalid message; nil stands for null.
// JSON-RPC 2.0 section 5 wants null when the id of the request could not be
// detected: it is echoed when there was exactly one of a valid type. What looks
// like a response holds an id of ours, not of the peer, and echoing it could
// end a call of the peer that happens to have the same id.
func (m *message) answerID() []byte {
	if m.response {
		return nil
	}
	return m.id
}

// methodName returns the method without escapes, using buf where there are
// any.
func (m *message) methodName(buf []byte) []byte {
	if !m.methodEscaped {
		return m.method
	}
	return unescape(buf[:0], m.method)
}

// isVersion says whether value is the string "2.0".
func isVersion(value []byte) bool {
	if string(value) == `"2.0"` {
		return true
	}
	if value[0] != '"' || bytes.IndexByte(value, '\\') < 0 {
		return false
	}
	var buf [8]byte
	return string(unescape(buf[:0], value[1:len(value)-1])) == "2.0"
}

// isID says whether a value that begins with c is a string, a number or null.
func isID(c byte) bool {
	return c == '"' || c == '-' || c >= '0' && c <= '9' || c == 'n'
}
