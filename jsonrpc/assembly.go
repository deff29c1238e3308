package jsonrpc

import "errors"

// An assembly is a message that comes in parts, since it is longer than the
// Stream's buffer.
type assembly struct {
	mode assemblyMode
	size int     // bytes of the message so far
	buf  []byte  // what is kept of it
	skim skimmer // of a message that is dropped

	// While the value of a result, or of params, is streamed, buf is the message
	// without it: what came before, something short in its place (a zero, or an
	// empty array or object), and what comes after.
	sink  *sink
	check valueChecker
	// params take the value in place of sink: the message is a request, whose
	// handler reads it. deep: it is nested more deeply than allowed.
	params *paramsStream
	deep   bool
}

type assemblyMode uint8

const (
	assemblyEmpty   assemblyMode = iota
	assemblyCollect              // parts are kept
	assemblyDrop                 // too long: parts are skimmed
	assemblyStream               // in the value of a result that goes to a Writer
	assemblyTail                 // behind it
)

// keepAssembly is the size, in bytes, above which the memory of a message is
// given back after it.
const keepAssembly = 64 << 10

func (a *assembly) empty() bool { return a.mode == assemblyEmpty }

func (a *assembly) reset() {
	buf := a.buf[:0]
	if cap(buf) > keepAssembly {
		buf = nil
	}
	*a = assembly{buf: buf}
}

// part takes a part of a message.
func (in *receiver) part(p Part) {
	a := &in.assembly
	a.size += len(p.Data)
	if a.mode != assemblyDrop && a.size > in.c.cfg.MaxMessage {
		in.drop()
	}
	switch a.mode {
	case assemblyEmpty:
		a.buf = append(a.buf, p.Data...)
		a.mode = assemblyCollect
		in.beginStream()
	case assemblyCollect, assemblyTail:
		a.buf = append(a.buf, p.Data...)
	case assemblyStream:
		in.streamValue(p.Data)
	case assemblyDrop:
		a.skim.take(p.Data)
	}
	if !p.End {
		return
	}
	switch a.mode {
	case assemblyCollect:
		in.whole(a.buf)
	case assemblyDrop:
		in.oversize(&a.skim)
	case assemblyStream, assemblyTail:
		in.endStream()
	case assemblyEmpty:
	}
	a.reset()
}

// errTakenBack is the end of what was read of a message that its Stream has lost.
var errTakenBack = errors.New("jsonrpc: the message was cut off on its way, and may come again")

// takeBack forgets the message at hand. What of it has gone to a Writer or a handler
// cannot be taken back: they are told.
func (in *receiver) takeBack() {
	a := &in.assembly
	a.breakOff(errTakenBack)
	if a.sink != nil {
		a.sink.fail(errTakenBack)
	}
	a.reset()
}

// drop gives up a message that is too long: from now on it is counted and skimmed.
func (in *receiver) drop() {
	a := &in.assembly
	a.breakOff(tooLong(in.c.cfg.MaxMessage))
	a.skim = in.skimmer()
	a.skim.take(a.buf)
	if a.mode == assemblyStream || a.mode == assemblyTail {
		a.skim.place = skimDone // it is known whose it is, and the value is not in buf
	}
	a.buf, a.mode = nil, assemblyDrop
}

// skimmer returns what skims a message that is too long. While no call waits for an
// answer it has nothing to look for, and takes no time.
func (in *receiver) skimmer() skimmer {
	s := newSkimmer(in.c.cfg.MaxDepth)
	s.most = in.c.cfg.MaxBatch
	if in.c.pending.count.Load() == 0 {
		s.place = skimDone
	}
	return s
}

// oversize answers a message that was longer than allowed (RPC-24), or ends the
// calls that it was the answer to.
func (in *receiver) oversize(s *skimmer) {
	limit := in.c.cfg.MaxMessage
	err := tooLong(limit)
	in.c.report.notice(NoticeOversize, err)
	ended := s.response && in.c.failCall(s.id, err)
	for _, id := range s.batch {
		ended = in.c.failCall(id, err) || ended
	}
	if ended {
		return
	}
	if !in.c.ignoresInvalid() {
		in.answer(nil, &response{err: oversizeError(limit)})
	}
}

// tooLong says on this side that a message is longer than limit bytes.
func tooLong(limit int) *ResourceError {
	return &ResourceError{What: "an incoming message", Limit: limit, Unit: unitBytes}
}

// oversizeError is the answer to a message longer than limit bytes: nobody knows
// its id, since nobody read it.
//
//	{"code":-32600,"message":"…","data":{"limit":1048576,"unit":"bytes"}}
func oversizeError(limit int) *Error {
	e := &Error{Code: CodeInvalidRequest, Message: "invalid request: the message is too long"}
	e.Data = appendLimit(nil, limit, unitBytes)
	return e
}

// beginStream begins to stream the result at hand, if it is for a call that wants
// it in a Writer, or the params at hand: what has come of the value is written.
func (in *receiver) beginStream() {
	a := &in.assembly
	h := scanHead(a.buf, in.c.cfg.MaxDepth)
	if h.params > 0 && h.id != nil {
		in.beginParams(h.params)
		return
	}
	if h.value == 0 || h.id == nil {
		return
	}
	id, ok := in.c.ids.parse(h.id)
	if !ok {
		return
	}
	if a.sink = in.c.pending.sink(id); a.sink == nil {
		return
	}
	a.mode = assemblyStream
	a.check = valueChecker{maxDepth: in.c.cfg.MaxDepth - 1}
	value := append([]byte(nil), a.buf[h.value:]...)
	a.buf = append(a.buf[:h.value], '0')
	in.streamValue(value)
}

// streamValue writes the next bytes of the value, as far as it goes;
// the rest is the message's tail.
func (in *receiver) streamValue(data []byte) {
	a := &in.assembly
	n, err := a.check.step(data, true)
	if _, deep := errors.AsType[*ResourceError](err); deep && a.params != nil {
		a.params.end(err)
		a.deep = true
		var more int
		more, err = a.check.deeper(data[n:]) // the grammar decides first
		n += more
	}
	if err != nil {
		// The tail makes the message malformed for scan too, as it is.
		a.buf, a.mode = append(a.buf, '!'), assemblyTail
		if a.params != nil {
			a.params.end(err)
		}
		return
	}
	if a.params != nil {
		a.params.write(data[:n])
	} else {
		a.sink.write(data[:n])
	}
	if a.check.complete() {
		if a.params != nil {
			a.params.end(nil)
		}
		a.buf, a.mode = append(a.buf, data[n:]...), assemblyTail
	}
}

// endStream handles the message around the value that was streamed.
func (in *receiver) endStream() {
	if in.assembly.params != nil {
		in.endParams()
		return
	}
	a, m := &in.assembly, &in.msg
	m.scan(a.buf, in.c.cfg.MaxDepth)
	if m.kind == kindResult {
		if s := in.c.claim(m, true); s != nil {
			s.done <- struct{}{}
		}
		return
	}
	h := scanHead(a.buf, in.c.cfg.MaxDepth)
	fault := notResponse(m)
	if m.cut { // what may come behind it is not written behind the half of a result
		a.sink.fail(fault)
	}
	in.refuse(m)
	if !m.cut {
		in.c.failCall(h.id, &ResultError{Err: fault})
	}
}

// A head is what the beginning of a message tells.
type head struct {
	id       []byte // nil when it has not come yet
	response bool   // it has a result or an error
	value    int    // where the value of the result begins; 0: not yet
	params   int    // where the params begin; 0: not yet
}

// scanHead looks at the beginning of a message, up to the first member that is
// not there as a whole. value is set only when that member is the result, and
// an array, an object or a string.
func scanHead(b []byte, maxDepth int) (h head) {
	i := skipSpace(b, 0)
	for i < len(b) && (b[i] == '{' || b[i] == ',') {
		if i = skipSpace(b, i+1); i >= len(b) || b[i] != '"' {
			return h
		}
		key := i + 1
		if i = skipString(b, key); i < 0 {
			return h
		}
		name := string(b[key : i-1])
		if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
			return h
		}
		h.response = h.response || name == "result" || name == "error"
		start := skipSpace(b, i+1)
		if start >= len(b) {
			return h
		}
		i = skipValue(b, start, maxDepth)
		if i < 0 {
			if name == "result" && (b[start] == '{' || b[start] == '[' || b[start] == '"') {
				h.value = start
			}
			if name == "params" && (b[start] == '{' || b[start] == '[') {
				h.params = start
			}
			return h
		}
		end := i
		i = skipSpace(b, i)
		if name == "id" && i < len(b) { // else more digits may follow
			h.id = b[start:end]
		}
	}
	return h
}
