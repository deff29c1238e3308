package jsonrpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
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
				`{"jsonrpc":"1.0","id":%d,"params":[1],"result":1}`,
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

// TestCutResponse proves that a response that was cut off at its end ends its
// call soon, and not with the call's timeout, unless the error comes behind it for
// which it was cut off; and that it is no other call's affair (RPC-7, RPC-25).
func TestCutResponse(t *testing.T) {
	const failure = `{"jsonrpc":"2.0","id":%d,"error":{"code":-32603,"message":"internal error"}}`
	half := strings.Repeat("x", 300<<10) // beyond the buffer of a Stream
	for _, handler := range []Handler{nil, HandlerFunc(echo)} {
		withPeer(t, Config{Handler: handler, MaxMessage: 1 << 20}, func(t *testing.T, c *Conn, peer *rawPeer) {
			call := func(result any, lines ...string) (took time.Duration, err error) {
				failed := make(chan error, 1)
				go func() { failed <- c.Call(t.Context(), "m", nil, result) }()
				var id struct{ ID uint64 }
				json.Unmarshal([]byte(peer.next()), &id)
				start := time.Now()
				for _, line := range lines {
					go peer.send(strings.ReplaceAll(line, "%d", strconv.FormatUint(id.ID, 10)))
					synctest.Wait()
				}
				err = <-failed
				return time.Since(start), err
			}
			for _, bad := range []string{
				`{"jsonrpc":"2.0","id":%d,"result":"xx}`,
				`{"jsonrpc":"2.0","id":%d,"result":`,
				`{"jsonrpc":"2.0","id":%d,"result":tr`,
				`{"jsonrpc":"2.0","id":%d,"result":[1,{"a":2}`,
				`{"jsonrpc":"2.0","id":%d,"result":1`,
				`{"jsonrpc":"2.0","id":%d,"error":{"code":1`,
				`{"jsonrpc":"2.0","id":%d,"result":"` + half,
			} {
				for _, result := range []any{nil, new(any), new(strings.Builder)} {
					took, err := call(result, bad, bad)
					if _, ok := errors.AsType[*ResultError](err); !ok || took != cutGrace {
						t.Errorf("%.60q: after %v: %v", bad, took, err)
					}
					took, err = call(result, bad, failure)
					if !errors.Is(err, &Error{Code: CodeInternalError}) || took > 0 {
						t.Errorf("%.60q and an error: after %v: %v", bad, took, err)
					}
				}
			}
			var got strings.Builder // a result must not come behind the half of one
			if _, err := call(&got, `{"jsonrpc":"2.0","id":%d,"result":"`+half, `{"jsonrpc":"2.0","id":%d,"result":7}`); err == nil || strings.Contains(got.String(), "7") {
				t.Errorf("%v, %.20s", err, got.String())
			}
			time.Sleep(2 * cutGrace)
			go peer.answer() // the next message is a call: nothing was answered
			if err := c.Call(t.Context(), "m", []int{1}, nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCutResponseLate proves that the time of a call goes on while the rest of
// its response may come, and that a call that was answered is not ended, nor the
// next one in its slot.
func TestCutResponseLate(t *testing.T) {
	withPeer(t, Config{Timeout: 10 * time.Second}, func(t *testing.T, c *Conn, peer *rawPeer) {
		const cut = `{"jsonrpc":"2.0","id":%d,"result":["x`
		failed := make(chan error, 1)
		go func() { failed <- c.Call(t.Context(), "m", nil, nil, WithTimeout(cutGrace/2)) }()
		peer.next()
		peer.send(fmt.Sprintf(cut, 4096))
		if err := <-failed; !errors.Is(err, ErrTimeout) {
			t.Error(err)
		}
		go func() { failed <- c.Call(t.Context(), "m", nil, nil) }() // in the same slot
		peer.next()
		peer.send(fmt.Sprintf(cut, 4096))
		synctest.Wait()
		time.Sleep(2 * cutGrace)
		peer.send(`{"jsonrpc":"2.0","id":8192,"result":1}`)
		if err := <-failed; err != nil {
			t.Error(err)
		}
	})
}

// TestCutResponseCallerReads proves that a caller that reads for itself learns of
// the end of its call, too.
func TestCutResponseCallerReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe()
		c := NewConn(near, Config{CallerReads: true, Timeout: -1})
		peer := &rawPeer{t, far}
		go func() {
			peer.next()
			peer.send(`{"jsonrpc":"2.0","id":4096,"result":"xx}`)
		}()
		start := time.Now()
		err := c.Call(t.Context(), "m", nil, nil)
		if _, ok := errors.AsType[*ResultError](err); !ok || time.Since(start) != cutGrace {
			t.Error(time.Since(start), err)
		}
		c.Close()
		far.Close()
	})
}

// TestResponseOfNoCall proves that a response whose id no call has is told to the
// hooks, with the right word for it, and ends no call (RPC-11, RPC-25).
func TestResponseOfNoCall(t *testing.T) {
	for id, want := range map[string]string{
		`4097`:             "unknown", // of a slot that was never used
		`12288`:            "unknown", // of a call that is still to come
		`0`:                "unknown",
		`9007199254740993`: "unknown", // no id of ours has so many bits
		`"4096"`:           "unknown",
		`4096.0`:           "unknown",
		`null`:             "unknown",
		`4096`:             "late", // of the call before
	} {
		var seen notices
		withPeer(t, Config{Hooks: Hooks{Notice: seen.add}}, func(t *testing.T, c *Conn, peer *rawPeer) {
			go peer.answer()
			if err := c.Call(t.Context(), "m", []int{1}, nil); err != nil {
				t.Error(err)
			}
			waiting := make(chan error, 1)
			go func() { waiting <- c.Call(t.Context(), "m", []int{2}, nil) }()
			request := peer.next()
			peer.send(`{"jsonrpc":"2.0","id":`+id+`,"result":1}`, `{"jsonrpc":"2.0","id":8192,"result":2}`)
			if err := <-waiting; err != nil {
				t.Errorf("id %s ended the call %s: %v", id, request, err)
			}
		})
		if got := seen.text(); got != want+" response" || !strings.Contains(seen.list[0].Err.Error(), "the id "+id) {
			t.Errorf("id %s: %q, want %s: %v", id, got, want, seen.list)
		}
	}
}
