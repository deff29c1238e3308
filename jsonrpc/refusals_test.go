package jsonrpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// noID is an error that a peer sends of a message whose id it does not know.
func noID(code Code, data string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":"no","data":%s}}`, code, data)
}

// limitData is the data of an error that names a limit.
func limitData(limit int, unit string) string {
	return string(appendLimit(nil, limit, unit))
}

// TestRefusedUnread proves that a peer that refuses a message unread, without an
// id, ends the calls in it at once when the limit that it names says which ones
// they are, and never another one (RPC-7, RPC-24).
func TestRefusedUnread(t *testing.T) {
	const timeout = 20 * time.Second
	for name, tt := range map[string]struct {
		answer func(long int) string // long is the length of the long call
		ended  string                // of the calls below
	}{
		"too long":     {func(long int) string { return noID(CodeInvalidRequest, limitData(long-1, unitBytes)) }, "long, streamed"},
		"just allowed": {func(long int) string { return noID(CodeInvalidRequest, limitData(long, unitBytes)) }, "streamed"},
		"all":          {func(int) string { return noID(CodeInvalidRequest, limitData(20, unitBytes)) }, "short, long, streamed, batch of 3"},
		"another code": {func(long int) string { return noID(CodeParseError, limitData(long-1, unitBytes)) }, "long, streamed"},
		"entries":      {func(int) string { return noID(CodeInvalidRequest, limitData(2, unitEntries)) }, "batch of 3"},
		"one entry":    {func(int) string { return noID(CodeInvalidRequest, limitData(1, unitEntries)) }, "batch of 3"},
		"not too many": {func(int) string { return noID(CodeInvalidRequest, limitData(3, unitEntries)) }, ""},
		"levels":       {func(int) string { return noID(CodeInvalidRequest, limitData(2, unitLevels)) }, ""},
		"no limit":     {func(int) string { return noID(CodeInvalidRequest, `[1]`) }, ""},
		"negative":     {func(int) string { return noID(CodeInvalidRequest, limitData(-1, unitBytes)) }, ""},
		"zero":         {func(int) string { return noID(CodeInvalidRequest, limitData(0, unitBytes)) }, ""},
		"no number":    {func(int) string { return noID(CodeInvalidRequest, `{"limit":"1","unit":"bytes"}`) }, ""},
		"in a batch":   {func(long int) string { return "[" + noID(CodeInvalidRequest, limitData(20, unitBytes)) + "]" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			withPeer(t, Config{Timeout: timeout}, func(t *testing.T, c *Conn, peer *rawPeer) {
				calls := []string{"short", "long", "streamed", "batch of 3"}
				params := strings.Repeat("x", 3000)
				ended := make(map[string]error)
				type end struct {
					name string
					err  error
				}
				ends := make(chan end, len(calls))
				long := 0
				for _, name := range calls {
					go func() {
						var err error
						switch name {
						case "short":
							err = c.Call(t.Context(), name, nil, nil)
						case "long":
							err = c.Call(t.Context(), name, []string{params}, nil)
						case "streamed":
							err = c.Call(t.Context(), name, strings.NewReader(`["`+strings.Repeat(params, 100)+`"]`), nil)
						default:
							var b Batch
							fillBatch(&b, 3)
							_ = c.Batch(t.Context(), &b)
							for _, e := range b.calls { // all of it, or nothing
								if (AdviceFor(e.Err()) == AdviceGiveUp) != (AdviceFor(b.calls[0].Err()) == AdviceGiveUp) {
									t.Errorf("%v beside %v", e.Err(), b.calls[0].Err())
								}
							}
							err = b.calls[0].Err()
						}
						ends <- end{name, err}
					}()
					if text := peer.next(); name == "long" {
						long = len(text)
					}
				}
				synctest.Wait()
				start := time.Now()
				peer.send(tt.answer(long))
				var told []string
				for range calls {
					e := <-ends
					if time.Since(start) == 0 {
						ended[e.name] = e.err
					} else if after, ok := errors.AsType[*TimeoutError](e.err); !ok || after.Peer == nil || !strings.Contains(e.err.Error(), "no (-") {
						t.Errorf("%s: %v, want what the peer said", e.name, e.err)
					}
				}
				for _, name := range calls {
					if err := ended[name]; err != nil {
						told = append(told, name)
						if _, ok := errors.AsType[*Error](err); !ok || AdviceFor(err) != AdviceGiveUp {
							t.Errorf("%s: %v", name, err)
						}
					}
				}
				if got := strings.Join(told, ", "); got != tt.ended {
					t.Errorf("ended: %s; want: %s", got, tt.ended)
				}
				if s := c.Stats(); s.Pending != 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// TestRefusedWhileSending proves that a limit does not end a call that waits for
// room to write, whatever was sent in its place before, and that one whose
// params are still being read ends when it has passed the limit already.
func TestRefusedWhileSending(t *testing.T) {
	withPeer(t, Config{Timeout: 20 * time.Second}, func(t *testing.T, c *Conn, peer *rawPeer) {
		failed := make(chan error, 2)
		params := []string{strings.Repeat("x", 3*streamPiece)}
		for range 2 { // in slots that are used again
			go func() { failed <- c.Call(t.Context(), "before", params, nil) }()
			peer.next()
		}
		peer.send(`{"jsonrpc":"2.0","id":4096,"result":1}`, `{"jsonrpc":"2.0","id":4097,"result":1}`)
		for range 2 {
			if err := <-failed; err != nil {
				t.Error(err)
			}
		}

		r, w := io.Pipe()
		go func() { failed <- c.Call(t.Context(), "streamed", r, nil) }()
		piece := `["` + strings.Repeat("x", 3*streamPiece)
		go func() {
			for { // the peer reads, and understands nothing yet
				if part, err := peer.s.Read(); err != nil || part.End {
					return
				}
			}
		}()
		if _, err := io.WriteString(w, piece); err != nil {
			t.Error(err)
		}
		waiting := make(chan error, 1)
		go func() { waiting <- c.Call(t.Context(), "waiting", nil, nil) }()
		synctest.Wait() // so that it has the slot of a longer one
		unsent := make(chan error, 1)
		go func() { unsent <- c.Call(t.Context(), "unsent", nil, nil, WithTimeout(time.Second)) }()
		synctest.Wait()
		peer.send(noID(CodeInvalidRequest, limitData(2*streamPiece, unitBytes)))
		synctest.Wait()
		if n := c.pending.count.Load(); n != 3 {
			t.Error(n, "pending, want all, since the first is still being read")
		}
		err := <-unsent
		if late, ok := errors.AsType[*TimeoutError](err); !ok || late.Peer != nil {
			t.Error(err)
		}
		if _, err := io.WriteString(w, `"]`); err != nil {
			t.Error(err)
		}
		w.Close()
		if err := <-failed; !errors.Is(err, &Error{Code: CodeInvalidRequest}) {
			t.Error(err)
		}
		if err := <-waiting; !errors.Is(err, ErrTimeout) {
			t.Error(err)
		}
	})
}

// TestRefusedBefore proves that an error without an id is not told of calls that
// came later, or that were not sent.
func TestRefusedBefore(t *testing.T) {
	withPeer(t, Config{Timeout: 2 * time.Second}, func(t *testing.T, c *Conn, peer *rawPeer) {
		call := func() error {
			failed := make(chan error, 1)
			go func() { failed <- c.Call(t.Context(), "m", nil, nil) }()
			peer.next()
			return <-failed
		}
		peer.send(noID(CodeParseError, `1`))
		time.Sleep(time.Millisecond)
		err := call()
		if late, ok := errors.AsType[*TimeoutError](err); !ok || late.Peer != nil {
			t.Error(err)
		}
		time.AfterFunc(time.Second, func() { peer.send(noID(CodeParseError, `1`), noID(7, `2`)) })
		err = call()
		late, ok := errors.AsType[*TimeoutError](err)
		if !ok || late.Peer == nil || late.Peer.Code != 7 || string(late.Peer.Data) != "2" || AdviceFor(err) != AdviceRetry {
			t.Error(err)
		}
		if errors.Is(err, &Error{Code: 7}) {
			t.Error("nobody knows whether the peer meant this call")
		}
	})
}

// TestRefusedByOurs proves the same between two of our own connections, with
// both forms of ids, whatever the way the message goes.
func TestRefusedByOurs(t *testing.T) {
	for _, ids := range []IDFormat{IntegerIDs, UUIDs} {
		synctest.Test(t, func(t *testing.T) {
			a, b := Pair(Config{IDs: ids}, Config{MaxMessage: 300_000, MaxBatch: 2, Handler: HandlerFunc(echo)})
			defer b.Close()
			defer a.Close()
			start := time.Now()
			long := json.RawMessage(`["` + strings.Repeat("x", 300_000) + `"]`)
			for _, params := range []any{long, strings.NewReader(string(long))} {
				err := a.Call(t.Context(), "m", params, nil)
				if e, ok := errors.AsType[*Error](err); !ok || string(e.Data) != limitData(300_000, unitBytes) {
					t.Error(err)
				}
			}
			var batch Batch
			fillBatch(&batch, 3)
			if err := a.Batch(t.Context(), &batch); err != nil {
				t.Error(err)
			}
			for _, e := range batch.calls {
				if !errors.Is(e.Err(), &Error{Code: CodeInvalidRequest}) {
					t.Error(e.Err())
				}
			}
			if took := time.Since(start); took > time.Second {
				t.Error(took)
			}
		})
	}
}
