package jsonrpc

import "context"

// Answer answers one message the shortest way: scan, handle, append, all on
// the calling goroutine. The tests of messages use it in place of a Conn.
func Answer(h Handler, cfg Config, text []byte) []byte {
	if len(text) > cfg.MaxMessage {
		return appendErrorResponse(nil, nil, &Error{Code: CodeInvalidRequest, Data: appendLimit(nil, cfg.MaxMessage, unitBytes)})
	}
	var m message
	m.scan(text, cfg.MaxDepth)
	if m.kind != kindBatch {
		return answerOne(nil, h, &m)
	}
	entries := m.scanBatch(nil, text, cfg.MaxDepth, cfg.MaxBatch)
	if m.kind != kindBatch {
		return answerOne(nil, h, &m)
	}
	dst := []byte{'['}
	for i := range entries {
		if n := len(dst); n > 1 {
			dst = answerOne(append(dst, ','), h, &entries[i])
			if len(dst) == n+1 {
				dst = dst[:n]
			}
			continue
		}
		dst = answerOne(dst, h, &entries[i])
	}
	if len(dst) == 1 {
		return nil
	}
	return append(dst, ']')
}

func answerOne(dst []byte, h Handler, m *message) []byte {
	switch m.kind {
	case kindMalformed, kindInvalid:
		return appendErrorResponse(dst, m.answerID(), m.fail())
	case kindRequest, kindNotification:
	default:
		return dst
	}
	var buf [64]byte
	codec := StrictCodec()
	req := &Request{codec: codec, method: string(m.methodName(buf[:])), id: m.id, params: m.params, meta: m.metadata()}
	result, err := h.Handle(context.Background(), req)
	switch {
	case m.kind == kindNotification:
		return dst
	case err != nil:
		e, _ := wireError(err, "c-1")
		return appendErrorResponse(dst, m.id, e)
	}
	text, err := codec.Append(nil, result)
	if err != nil {
		return appendErrorResponse(dst, m.id, internalError("c-2"))
	}
	return appendResult(dst, m.id, text)
}
