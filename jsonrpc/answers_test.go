package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// TestCorrelationIDOfAnswer proves that a call that failed inside of the peer
// tells by which word its logs have it, unless the caller has one of its own
// (RPC-21).
func TestCorrelationIDOfAnswer(t *testing.T) {
	own := Meta{CorrelationID: "own"}
	long := strings.Repeat("x", 1000)
	for name, tt := range map[string]struct {
		meta Meta // of the call
		err  string
		want string
	}{
		"of the peer":       {Meta{}, `{"code":-32603,"message":"no","data":{"a":1,"correlation_id":"EB\"DX"}}`, `EB"DX`},
		"of both":           {own, `{"code":-32603,"message":"no","data":{"correlation_id":"EBDX"}}`, "own"},
		"empty of ours":     {Meta{TraceParent: "x"}, `{"code":-32603,"message":"no","data":{"correlation_id":"EBDX"}}`, "EBDX"},
		"another code":      {Meta{}, `{"code":5,"message":"no","data":{"correlation_id":"EBDX"}}`, ""},
		"no data":           {Meta{}, `{"code":-32603,"message":"no"}`, ""},
		"another kind":      {Meta{}, `{"code":-32603,"message":"no","data":["correlation_id"]}`, ""},
		"no text":           {Meta{}, `{"code":-32603,"message":"no","data":{"correlation_id":7}}`, ""},
		"long as a message": {Meta{}, `{"code":-32603,"message":"no","data":{"correlation_id":"` + long + `"}}`, shorten(long, longestName)},
	} {
		t.Run(name, func(t *testing.T) {
			withPeer(t, Config{}, func(t *testing.T, c *Conn, peer *rawPeer) {
				go func() {
					peer.next()
					peer.send(`{"jsonrpc":"2.0","id":4096,"error":` + tt.err + `}`)
				}()
				e, ok := errors.AsType[*CallError](c.Call(WithMeta(t.Context(), tt.meta), "m", nil, nil))
				if !ok || e.CorrelationID != tt.want {
					t.Errorf("%q, want %q", e.CorrelationID, tt.want)
				}
			})
		})
	}
}

// TestLongTexts proves that no error and no notice is as long as what a peer makes its
// method, its id or the message of its error: a line of a log should not be a megabyte
// (RPC-23). The error has the whole message all the same.
func TestLongTexts(t *testing.T) {
	long := strings.Repeat("x", 900_000)
	handlers := map[string]Handler{
		"none":   nil,
		"fails":  HandlerFunc(func(context.Context, *Request) (any, error) { return nil, errors.New("no") }),
		"panics": HandlerFunc(func(context.Context, *Request) (any, error) { panic("no") }),
	}
	for name, h := range handlers {
		var seen notices
		withPeer(t, Config{Handler: h, Hooks: Hooks{Notice: seen.add}}, func(t *testing.T, c *Conn, peer *rawPeer) {
			failed := make(chan error, 1)
			go func() { failed <- c.Call(t.Context(), "m", nil, nil) }()
			peer.next()
			peer.send(`{"jsonrpc":"2.0","id":"`+long+`","result":1}`, `{"jsonrpc":"2.0","method":"`+long+`"}`,
				`{"jsonrpc":"2.0","id":4096,"error":{"code":5,"message":"`+long+`"}}`, `{"jsonrpc":"2.0","id":1,"method":"`+long+`"}`)
			err := <-failed
			if e, ok := errors.AsType[*Error](err); !ok || e.Message != long || len(err.Error()) > 1000 {
				t.Errorf("%s: %.60v", name, err)
			}
			if answer := peer.next(); len(answer) > 1000 {
				t.Errorf("%s: answered %.60s", name, answer)
			}
		})
		for _, notice := range seen.list {
			if text := notice.Err.Error(); len(text) > 1000 {
				t.Errorf("%s: %v: %.60s", name, notice.Kind, text)
			}
		}
		if len(seen.list) < 2 {
			t.Errorf("%s: %v", name, seen.kinds())
		}
	}
}

// TestCorrelationIDOfPanic proves the same between two of our own ends: caller and
// hooks have the same word.
func TestCorrelationIDOfPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen notices
		a, b := Pair(Config{}, Config{Hooks: Hooks{Notice: seen.add}, Handler: HandlerFunc(func(context.Context, *Request) (any, error) { panic("x") })})
		defer b.Close()
		defer a.Close()
		e, _ := errors.AsType[*CallError](a.Call(t.Context(), "m", nil, nil))
		p, ok := errors.AsType[*PanicError](seen.list[0].Err)
		if !ok || e.CorrelationID == "" || e.CorrelationID != p.CorrelationID {
			t.Errorf("%v and %v", e, p)
		}
	})
}

// TestNilError proves that a handler that returns an *Error that is nil, as an
// error, fails like one that returns CodeInternalError: the hooks get what the peer
// is answered with, and can print it (RPC-21).
func TestNilError(t *testing.T) {
	var none *Error
	if none.Error() != (&Error{Code: CodeInternalError}).Error() || !errors.Is(none, &Error{Code: CodeInternalError}) || errors.Is(none, &Error{Code: 5}) {
		t.Error(none)
	}
	if !errors.Is(&Error{Code: CodeInternalError}, none) || errors.Is(&Error{Code: 5}, none) {
		t.Error("a nil *Error does not stand for CodeInternalError as a target")
	}
	h := HandlerFunc(func(context.Context, *Request) (any, error) {
		var e *Error
		return 1, e
	})
	for name, handler := range map[string]Handler{"pool": h, "inline": inlineAll{h}} {
		var seen notices
		var mu sync.Mutex
		var done []error
		cfg := Config{Handler: handler, Hooks: Hooks{Notice: seen.add, RequestDone: func(i RequestInfo) {
			mu.Lock()
			done = append(done, i.Err)
			mu.Unlock()
		}}}
		withPeer(t, cfg, func(t *testing.T, _ *Conn, peer *rawPeer) {
			peer.send(`{"jsonrpc":"2.0","id":1,"method":"m","correlation_id":"abc"}`)
			peer.want(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"internal error","data":{"correlation_id":"abc"}}}`)
			peer.send(`[{"jsonrpc":"2.0","id":2,"method":"m"}]`)
			if got := peer.next(); !strings.Contains(got, `"id":2,"error":{"code":-32603,"message":"internal error","data":{"correlation_id":"`) {
				t.Error(got)
			}
			peer.send(`{"jsonrpc":"2.0","method":"m"}`)
			synctest.Wait()
		})
		if seen.text() != "handler error, handler error, handler error" || !strings.Contains(seen.list[0].Err.Error(), "nil") {
			t.Error(name, seen.list)
		}
		if len(done) != 3 {
			t.Fatal(name, done)
		}
		for _, err := range done {
			e, ok := errors.AsType[*Error](err)
			if !ok || e == nil || e.Code != CodeInternalError {
				t.Errorf("%s: %v", name, err)
			}
		}
		if e, _ := errors.AsType[*Error](done[0]); string(e.Data) != `{"correlation_id":"abc"}` {
			t.Errorf("%s: %s", name, e.Data)
		}
	}
}

// TestErrorDataLost proves that the hooks hear of an error's data that cannot be
// sent, and that the rest of the error is.
func TestErrorDataLost(t *testing.T) {
	for data, lost := range map[string]bool{`{oops`: true, "\"\xff\"": true, `1 2`: true, "[1,\n2]": false, ``: false} {
		fail := func(context.Context, *Request) (any, error) {
			return nil, &Error{Code: 5, Message: "no", Data: json.RawMessage(data)}
		}
		var seen notices
		hooks := Hooks{Notice: seen.add}
		withPeer(t, Config{Handler: HandlerFunc(fail), Hooks: hooks}, func(t *testing.T, _ *Conn, peer *rawPeer) {
			peer.send(`{"jsonrpc":"2.0","id":1,"method":"m","correlation_id":"abc"}`)
			if got := peer.next(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":1,"error":{"code":5,"message":"no"`) || strings.Contains(got, "data") != (!lost && data != "") {
				t.Error(got)
			}
		})
		r := NewResponder(Config{Handler: HandlerFunc(fail), Hooks: hooks})
		if _, err := r.Respond(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"method":"m","correlation_id":"abc"}`), nil); err != nil {
			t.Error(err)
		}
		r.Close()
		if !lost {
			if seen.text() != "" {
				t.Errorf("%q: %v", data, seen.list)
			}
			continue
		}
		if seen.text() != "unencodable result, unencodable result" {
			t.Fatalf("%q: %v", data, seen.list)
		}
		e, ok := errors.AsType[*HandlerError](seen.list[0].Err)
		if !ok || e.Method != "m" || e.CorrelationID != "abc" || !strings.Contains(e.Error(), "data of the error 5") {
			t.Errorf("%q: %v", data, seen.list[0].Err)
		}
	}
}
