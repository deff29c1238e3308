package jsonrpc

import (
	"context"
	"encoding/json"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

// TestBuffersComeBack proves that every buffer that a call borrows, on both ends and
// on every way out, is there for the next one (RPC-18): calls with long messages
// allocate less than one of these.
func TestBuffersComeBack(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection empties pools
	const size = 30 << 10                            // bytes; a reader's first piece has 32 KiB
	text := json.RawMessage(`["` + strings.Repeat("x", size) + `"]`)
	value := []json.RawMessage{text}
	h := HandlerFunc(func(_ context.Context, req *Request) (any, error) {
		switch req.Method() {
		case "value":
			return value, nil
		case "no value":
			return []any{text, func() {}}, nil
		case "unread":
			return failing{}, nil
		case "echo":
			return req.Params(), nil
		}
		return nil, nil
	})
	pool, a := Pair(Config{Handler: h}, Config{})
	inline, b := Pair(Config{Handler: inlineAll{h}}, Config{})
	responder := NewResponder(Config{Handler: h})
	for _, c := range []io.Closer{pool, a, inline, b, responder} {
		defer c.Close()
	}
	call := func(method string, params, result any) func(*Conn) {
		return func(c *Conn) { _ = c.Call(t.Context(), method, params, result) }
	}
	batch := func(method string, params, result any) func(*Conn) {
		return func(c *Conn) {
			var b Batch
			b.Call(method, params, result)
			_ = c.Batch(t.Context(), &b)
		}
	}
	// A batch of values passes eight buffers. With the race detector a quarter of them
	// is lost, and grown anew, which leaves this test no teeth; without it none is.
	most := size/2 + 16*size*poolLoss()
	var raw, answer json.RawMessage
	var ignored struct{}
	respond := func(msg string) func(*Conn) {
		return func(*Conn) { answer, _ = responder.Respond(t.Context(), []byte(msg), answer[:0]) }
	}
	for name, f := range map[string]func(*Conn){
		"params":        call("none", value, nil),
		"no params":     call("none", string(text), nil),
		"echo":          call("echo", &text, &raw),
		"to a Writer":   call("echo", &text, io.Discard),
		"decoded":       call("echo", &text, &ignored),
		"result":        call("value", nil, &raw),
		"no result":     call("no value", nil, nil),
		"params unread": call("none", failing{}, nil),
		"result unread": call("unread", nil, nil),
		"notified": func(c *Conn) {
			_ = c.Notify(t.Context(), "none", value)
			_ = c.Call(t.Context(), "none", nil, nil) // when this has come, so has that
		},
		"batch":           batch("echo", value, &raw),
		"batch of values": batch("value", nil, &raw),
		"batch, decoded":  batch("value", nil, &ignored),
		"answered":        respond(`{"jsonrpc":"2.0","id":1,"method":"value"}`),
		"answered, batch": respond(`[{"jsonrpc":"2.0","id":1,"method":"value"}]`),
	} {
		for way, c := range map[string]*Conn{"pool": a, "inline": b} {
			if n := allocated(func() { f(c) }); n > most {
				t.Errorf("%s, %s: %.0f bytes for each call", name, way, n)
			}
		}
	}
}

// allocated returns how many bytes f allocates when it is called again and again.
func allocated(f func()) float64 {
	const times = 30
	f()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range times {
		f()
	}
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc-before.TotalAlloc) / times
}

// poolLoss returns which part of what is put into a sync.Pool is lost: some with the
// race detector, none without.
func poolLoss() float64 {
	const times = 1000
	var p buffers
	lost := -1.0 // of the first there is none
	for range times {
		b := p.get()
		if cap(b.b) == 0 {
			lost++
			b.b = make([]byte, 0, 1)
		}
		p.put(b)
	}
	return max(lost, 0) / times
}
