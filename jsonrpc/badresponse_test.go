package jsonrpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestBadResponseEndsCall proves that an object without a method ends the call
// whose id it has, alone and in a batch, whatever else is wrong with it, with a
// Handler and without, and is not answered then (RPC-7, RPC-25).
func TestBadResponseEndsCall(t *testing.T) {
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	for _, handler := range []Handler{nil, HandlerFunc(echo)} {
		withPeer(t, Config{Handler: handler}, func(t *testing.T, c *Conn, peer *rawPeer) {
			for _, bad := range []string{
				`{"jsonrpc":"2.0","id":%d}`,
				`{"id":%d}`,
				`{"jsonrpc":"2.0","id":%d,"Result":1}`,
				`{"jsonrpc":"2.0","id":%d,"Method":"m"}`,
				`{"jsonrpc":"2.0","id":%d,"other":` + deep + `}`,
				`{"jsonrpc":"2.0","id":%d,"result":1,"error":null}`,
			} {
				for _, form := range []string{"%s", "[%s]"} {
					failed := make(chan error, 1)
					go func() { failed <- c.Call(t.Context(), "m", nil, nil) }()
					var id struct{ ID uint64 }
					json.Unmarshal([]byte(peer.next()), &id)
					start := time.Now()
					peer.send(fmt.Sprintf(form, fmt.Sprintf(bad, id.ID)))
					err := <-failed
					if _, ok := errors.AsType[*ResultError](err); !ok || time.Since(start) > 0 || AdviceFor(err) != AdviceGiveUp {
						t.Errorf("%.60s: %v", bad, err)
					}
				}
			}
			go peer.answer() // the next message is a call: nothing was answered
			if err := c.Call(t.Context(), "m", []int{1}, nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestBadResponseOfNoCall proves that an object without a method whose id no call
// of ours has is answered as before, with that id, and that one with a method
// or params, which is a request gone wrong, ends nothing (RPC-5, RPC-9).
func TestBadResponseOfNoCall(t *testing.T) {
	withPeer(t, Config{Handler: HandlerFunc(echo), Timeout: time.Second}, func(t *testing.T, c *Conn, peer *rawPeer) {
		failed := make(chan error, 1)
		go func() { failed <- c.Call(t.Context(), "m", nil, nil) }()
		peer.next()
		const refused = `"error":{"code":-32600,"message":"invalid request: `
		peer.send(`{"jsonrpc":"2.0","id":8192}`, `{"jsonrpc":"2.0","id":4096,"params":[1]}`, `{"jsonrpc":"2.0","id":4096,"method":1}`, `{"jsonrpc":"2.0","id":4096,"method":"m","result":1}`)
		peer.want(`{"jsonrpc":"2.0","id":8192,`+refused+`the method is missing"}}`,
			`{"jsonrpc":"2.0","id":4096,`+refused+`the method is missing"}}`,
			`{"jsonrpc":"2.0","id":4096,`+refused+`the member \"method\" must be a string"}}`,
			`{"jsonrpc":"2.0","id":4096,`+refused+`a message with a method has neither result nor error"}}`)
		if err := <-failed; !errors.Is(err, ErrTimeout) {
			t.Error(err)
		}
	})
}

// TestBadResponseNoLoop proves that two ends do not answer each other's answers
// to an object that is neither a request nor a response.
func TestBadResponseNoLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, text := range []string{`{"jsonrpc":"2.0","id":4096}`, `{"id":4096}`, `{"jsonrpc":"2.0"}`, `{"jsonrpc":"2.0","id":1,"result":1,"error":null}`} {
			a, b := Pair(Config{Handler: HandlerFunc(echo)}, Config{Handler: HandlerFunc(echo)})
			a.w.mu.Lock()
			a.w.buf = append(a.w.buf, text+"\n"...)
			a.w.flush(false)
			synctest.Wait()
			if n, m := a.Stats(), b.Stats(); n.Invalid+n.Malformed != 0 || m.Invalid != 1 {
				t.Errorf("%s: %+v and %+v", text, n, m)
			}
			a.Close()
			b.Close()
		}
	})
}
