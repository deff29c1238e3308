package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
)

// A oddCodec is a Codec by somebody else, whose errors are of all kinds.
type oddCodec struct{ Codec }

func (c oddCodec) Append(dst []byte, v any) ([]byte, error) {
	switch v {
	case "fails":
		return append(dst, "[1]"...), errOdd
	case "no JSON":
		return append(dst, "[1"...), nil
	}
	return c.Codec.Append(dst, v)
}

func (oddCodec) Decode(data []byte, _ any) error {
	switch string(data) {
	case `["plain"]`:
		return errOdd
	case `["own"]`:
		return Errorf(7, "not today")
	}
	return nil
}

var errOdd = errors.New("odd")

// TestCodecErrors proves that what a Codec by somebody else fails with is what the
// caller learns, whatever it returns beside, and that its text is checked.
func TestCodecErrors(t *testing.T) {
	var mux Mux
	mux.Register("typed", Typed(func(context.Context, []string) (string, error) { return "fine", nil }))
	mux.Register("result", HandlerFunc(func(context.Context, *Request) (any, error) { return "fails", nil }))
	mux.Register("decode", HandlerFunc(func(_ context.Context, req *Request) (any, error) {
		var v any
		return 1, req.Decode(&v)
	}))
	withPeer(t, Config{Handler: &mux, Codec: oddCodec{StrictCodec()}}, func(t *testing.T, c *Conn, peer *rawPeer) {
		var syntax *SyntaxError
		if err := c.Call(t.Context(), "m", "fails", nil); !errors.Is(err, errOdd) {
			t.Error(err)
		}
		if err := c.Call(t.Context(), "m", "no JSON", nil); !errors.As(err, &syntax) {
			t.Error(err)
		}
		for _, method := range []string{"typed", "decode"} {
			for params, want := range map[string]string{
				`["plain"]`: `"error":{"code":-32602,"message":"invalid params: odd"}}`,
				`["own"]`:   `"error":{"code":7,"message":"not today"}}`,
			} {
				peer.send(`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`)
				peer.want(`{"jsonrpc":"2.0","id":1,` + want)
			}
		}
		peer.send(`{"jsonrpc":"2.0","id":1,"method":"result"}`)
		if got := peer.next(); !strings.Contains(got, "-32603") {
			t.Error(got)
		}
	})
}

// A refusing value says itself why it does not fit, and cannot be encoded.
type refusing struct{}

func (*refusing) UnmarshalJSON([]byte) error {
	return &DecodeError{Member: "inner", Expected: "something else"}
}
func (refusing) MarshalJSON() ([]byte, error) { return nil, errOdd }

// TestCodecKeepsErrors proves that the errors of a value's own methods come through,
// and that what cannot be decoded into is an error, not a panic.
func TestCodecKeepsErrors(t *testing.T) {
	for name, codec := range map[string]Codec{"strict": StrictCodec(), "lenient": LenientCodec()} {
		var v refusing
		if e, ok := errors.AsType[*DecodeError](codec.Decode([]byte(`1`), &v)); !ok || e.Member != "inner" {
			t.Errorf("%s: %+v", name, e)
		}
		if _, err := codec.Append(nil, v); !errors.Is(err, errOdd) {
			t.Errorf("%s: %v", name, err)
		}
		data := []byte(`{"a":1}`)
		kept, own := json.RawMessage(nil), json.RawMessage("........")
		for _, into := range []*json.RawMessage{&kept, &own} {
			if err := codec.Decode(data, into); err != nil || string(*into) != `{"a":1}` {
				t.Errorf("%s: %s, %v", name, *into, err)
			}
		}
		clear(data) // which is somebody else's
		if string(kept) != `{"a":1}` || string(own) != `{"a":1}` {
			t.Errorf("%s: the text was kept: %s, %s", name, kept, own)
		}
		for _, target := range []any{(*json.RawMessage)(nil), (*int)(nil), nil, 5} {
			if err := codec.Decode([]byte(`1`), target); err == nil {
				t.Errorf("%s: decoded into %T", name, target)
			}
		}
	}
}

// TestNoticesOfNotifications proves that the end of a notification's handler is told
// once: nothing of one that has done its work, a panic as a panic alone.
func TestNoticesOfNotifications(t *testing.T) {
	var seen notices
	h := HandlerFunc(func(_ context.Context, req *Request) (any, error) {
		switch req.Method() {
		case "panic":
			panic("x")
		case "error":
			return nil, errOdd
		}
		return 1, nil
	})
	for _, handler := range []Handler{h, inlineAll{h}} {
		withPeer(t, Config{Handler: handler, Hooks: Hooks{Notice: seen.add}}, func(t *testing.T, c *Conn, peer *rawPeer) {
			for _, method := range []string{"fine", "panic", "error"} {
				peer.send(`{"jsonrpc":"2.0","method":"`+method+`"}`, `[{"jsonrpc":"2.0","method":"`+method+`"}]`)
				synctest.Wait()
			}
		})
	}
	if got := seen.text(); got != "panic, panic, handler error, handler error, panic, panic, handler error, handler error" {
		t.Error(got)
	}
}

// TestHandlerContextTwice proves that all who wait for the end of a request's
// context hear of it, and that it is the same one for all.
func TestHandlerContextTwice(t *testing.T) {
	ctx := &requestContext{base: t.Context()}
	first, second := ctx.Done(), ctx.Done()
	derived, cancel := context.WithCancel(ctx)
	defer cancel()
	ctx.end(errPeerGone)
	ctx.end(ErrClosed)
	for _, done := range []<-chan struct{}{first, second, derived.Done(), ctx.Done()} {
		select {
		case <-done:
		default:
			t.Error("somebody still waits")
		}
	}
	if !errors.Is(ctx.Err(), context.Canceled) || !errors.Is(context.Cause(derived), errPeerGone) || !ctx.endedBy(errPeerGone) || ctx.endedBy(ErrClosed) {
		t.Errorf("%v, %v", ctx.Err(), context.Cause(derived))
	}
}

// TestNames holds what people read of kinds and panics.
func TestNames(t *testing.T) {
	for kind, want := range map[NoticeKind]string{0: "unknown", NoticeMalformed: "malformed", NoticeUnencodable: "unencodable result", NoticeUnencodable + 1: "unknown", 255: "unknown"} {
		if got := kind.String(); got != want {
			t.Errorf("%d: %s", kind, got)
		}
	}
	for want, e := range map[string]*PanicError{
		"jsonrpc: handler of m panicked: odd":           {Method: "m", Value: errOdd},
		"jsonrpc: the Writer of the result panicked: 1": {Value: 1, writer: true},
	} {
		if e.Error() != want || (e.writer == errors.Is(e, errOdd)) {
			t.Errorf("%v", e)
		}
	}
	var mux Mux
	if mux.StreamsParams([]byte("m")) || mux.Inline([]byte("m")) {
		t.Error("an empty Mux promises something")
	}
	mux.RegisterStreaming("m", named("m"))
	mux.Register("n", named("n"))
	if !mux.StreamsParams([]byte("m")) || mux.StreamsParams([]byte("n")) || mux.StreamsParams([]byte("x")) || mux.Inline([]byte("m")) {
		t.Error("StreamsParams is not as registered")
	}
}
