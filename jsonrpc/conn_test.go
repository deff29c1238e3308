package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// echo answers with the params.
func echo(_ context.Context, req *Request) (any, error) { return req.Params(), nil }

// inlineAll handles everything inline.
type inlineAll struct{ HandlerFunc }

func (inlineAll) Inline([]byte) bool { return true }

// A rawPeer is the other end of a Conn under test, message by message.
type rawPeer struct {
	t *testing.T
	s Stream
}

// withPeer runs f in a bubble with a Conn and its raw peer, and then checks by
// the end of the bubble that no goroutine is left.
func withPeer(t *testing.T, cfg Config, f func(t *testing.T, c *Conn, peer *rawPeer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe()
		c := NewConn(near, cfg)
		peer := &rawPeer{t, far}
		f(t, c, peer)
		c.Close()
		far.Close()
	})
}

// send writes lines.
func (p *rawPeer) send(lines ...string) {
	p.t.Helper()
	for _, line := range lines {
		if _, err := p.s.Write([]byte(line + "\n")); err != nil {
			p.t.Errorf("peer: writing: %v", err)
		}
	}
}

// next reads a message.
func (p *rawPeer) next() string {
	p.t.Helper()
	var text strings.Builder
	for {
		part, err := p.s.Read()
		if err != nil {
			p.t.Errorf("peer: reading: %v", err)
			return ""
		}
		text.Write(part.Data)
		if part.End {
			return text.String()
		}
	}
}

// want reads messages and compares them.
func (p *rawPeer) want(lines ...string) {
	p.t.Helper()
	for _, want := range lines {
		if got := p.next(); got != want {
			p.t.Errorf("peer got  %.300s\nwant %.300s", got, want)
		}
	}
}

// quiet checks that the peer is sent nothing, now that all is quiet.
func (p *rawPeer) quiet() {
	p.t.Helper()
	p.send(`{"jsonrpc":"2.0","id":"quiet?","method":"rpc.none"}`)
	if got := p.next(); !strings.Contains(got, `"quiet?"`) {
		p.t.Errorf("peer got %.300s", got)
	}
}

// answer reads a request and answers it with its params.
func (p *rawPeer) answer() {
	p.t.Helper()
	var req struct {
		ID     json.RawMessage
		Params json.RawMessage
	}
	if err := json.Unmarshal([]byte(p.next()), &req); err != nil {
		p.t.Error(err)
	}
	p.send(`{"jsonrpc":"2.0","id":` + string(req.ID) + `,"result":` + string(req.Params) + `}`)
}

// notices collects what Hooks.Notice is told.
type notices struct {
	mu   sync.Mutex
	list []Notice
}

func (n *notices) add(notice Notice) {
	n.mu.Lock()
	n.list = append(n.list, notice)
	n.mu.Unlock()
}

func (n *notices) kinds() (kinds []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, notice := range n.list {
		kinds = append(kinds, notice.Kind.String())
	}
	return kinds
}

func (n *notices) text() string { return strings.Join(n.kinds(), ", ") }

// TestCallConcurrently proves that every caller gets its own answer, whatever
// the form of ids and the way of handling (RPC-7, RPC-8, RPC-11, RPC-17).
func TestCallConcurrently(t *testing.T) {
	for name, cfg := range map[string][2]Config{
		"pool":         {{}, {Handler: HandlerFunc(echo)}},
		"inline":       {{}, {Handler: inlineAll{echo}}},
		"uuids":        {{IDs: UUIDs}, {Handler: HandlerFunc(echo)}},
		"caller reads": {{CallerReads: true}, {Handler: HandlerFunc(echo)}},
		"both ways":    {{Handler: HandlerFunc(echo)}, {Handler: inlineAll{echo}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := Pair(cfg[0], cfg[1])
				var wg sync.WaitGroup
				for i := range 64 {
					wg.Go(func() { callMany(t, a, i) })
					if cfg[0].Handler != nil {
						wg.Go(func() { callMany(t, b, 100+i) })
					}
				}
				wg.Wait()
				if s := a.Stats(); s.Pending != 0 || s.Late+s.Unknown+s.Invalid+s.Malformed != 0 || s.Calls != 64*50 {
					t.Errorf("stats %+v", s)
				}
				if err := errors.Join(a.Close(), b.Close()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func callMany(t *testing.T, c *Conn, caller int) {
	var raw json.RawMessage
	var list []int
	for i := range 50 {
		params := []int{caller, i}
		text, _ := json.Marshal(params)
		var err error
		switch i % 3 {
		case 0:
			err = c.Call(t.Context(), "echo", json.RawMessage(text), &raw)
		case 1:
			err = c.Call(t.Context(), "echo", params, &list)
			raw, _ = json.Marshal(list)
		case 2:
			var b strings.Builder
			err = c.Call(t.Context(), "echo", strings.NewReader(string(text)), &b)
			raw = json.RawMessage(b.String())
		}
		if err != nil || string(raw) != string(text) {
			t.Errorf("got %s, %v; want %s", raw, err, text)
			return
		}
	}
}

// TestIDForms shows the ids on the wire (RPC-11), and that those of the peer
// come back byte for byte.
func TestIDForms(t *testing.T) {
	withPeer(t, Config{Handler: HandlerFunc(echo)}, func(t *testing.T, c *Conn, peer *rawPeer) {
		for _, id := range []string{"1", "9007199254740993", "1.50", "-0", `"\u0061"`, "null", "1e400"} {
			peer.send(`{"jsonrpc":"2.0","method":"x","params":[1],"id":` + id + `}`)
			peer.want(`{"jsonrpc":"2.0","id":` + id + `,"result":[1]}`)
		}
		for _, id := range []string{"4096", "8192"} { // the first slot, the first and second time
			go c.Call(t.Context(), "m", nil, nil)
			peer.want(`{"jsonrpc":"2.0","id":` + id + `,"method":"m"}`)
			peer.send(`{"jsonrpc":"2.0","id":` + id + `,"result":1}`)
			synctest.Wait()
		}
	})
	p := newPending(5)
	s, _, _ := p.take(awaiting{})
	s.state.Store((p.genMax - 1) << 1) // as if it had had so many calls
	for _, want := range []uint64{p.genMax, 1, 2} {
		p.release(s)
		var id uint64
		if s, id, _ = p.take(awaiting{}); id>>p.shift != want || id>>idBits != 0 {
			t.Errorf("the call after so many others has the id %d, generation %d", id, id>>p.shift)
		}
		if settled, _ := p.settle(id); settled != s {
			t.Errorf("the call with the id %d is not found", id)
		}
	}
	f := newIDForm(UUIDs)
	for _, id := range []uint64{0, 1, 4096, 1<<53 - 1} {
		text := f.append(nil, id)
		if text[15] != '8' || !strings.ContainsRune("89ab", rune(text[20])) || len(text) != 38 {
			t.Errorf("%s is no UUID of version 8", text)
		}
		if got, ok := f.parse(text); !ok || got != id {
			t.Errorf("parse(%s) = %d, %v; want %d", text, got, ok, id)
		}
		for i := range text {
			wrong := append([]byte(nil), text...)
			wrong[i] = 'x'
			if _, ok := f.parse(wrong); ok {
				t.Errorf("parse(%s) did not fail", wrong)
			}
		}
	}
	for _, text := range []string{"", "0", "01", "-1", "1.0", "9007199254740992", "1e3", `"1"`, "99999999999999999999"} {
		if _, ok := parseInteger([]byte(text)); ok {
			t.Errorf("parseInteger(%s) did not fail", text)
		}
	}
}

// TestSettledWhileGivenUp proves that an answer that comes at the moment at which
// its caller gives up is the caller's after all, and that the slot is free again.
func TestSettledWhileGivenUp(t *testing.T) {
	withPeer(t, Config{Cancel: LSPCancel}, func(t *testing.T, c *Conn, peer *rawPeer) {
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for _, answer := range []string{`"result":[1]`, `"error":{"code":5,"message":"no"}`} {
			var got []int
			var want awaiting
			if err := want.wants(&got); err != nil {
				t.Fatal(err)
			}
			s, id, err := c.pending.take(want)
			if err != nil {
				t.Fatal(err)
			}
			peer.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,%s}`, id, answer))
			synctest.Wait()
			err = c.abandon(over, s, &outCall{id: id, sent: true})
			if err == nil {
				err = c.take(s, &got)
			}
			if failed := errors.Is(err, &Error{Code: 5}); failed == (err == nil) || failed == (len(got) == 1) {
				t.Errorf("%s: %v, %v", answer, got, err)
			}
			if n := c.Stats().Pending; n != 0 {
				t.Errorf("%s: %d calls pending", answer, n)
			}
		}
		peer.quiet() // and nothing was cancelled
	})
}

// TestTimeouts proves that a call ends in time by each of the ways to say how
// long it may take, and that the answer that comes late is counted and is
// nobody else's (RPC-10, RPC-19).
func TestTimeouts(t *testing.T) {
	var seen notices
	for _, reads := range []bool{false, true} {
		withPeer(t, Config{Timeout: 2 * time.Second, CallerReads: reads, Hooks: Hooks{Notice: seen.add}}, func(t *testing.T, c *Conn, peer *rawPeer) {
			start := time.Now()
			err := c.Call(t.Context(), "slow", nil, nil)
			if took := time.Since(start); !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) || took < 2*time.Second || took > 2300*time.Millisecond {
				t.Errorf("default: %v after %v", err, took)
			}
			if call, ok := errors.AsType[*CallError](err); !ok || call.Method != "slow" || call.ID != IntegerID(4096) || call.Elapsed < 2*time.Second {
				t.Errorf("%#v", err)
			}
			start = time.Now()
			err = c.Call(t.Context(), "slow", nil, nil, WithTimeout(10*time.Millisecond))
			if took := time.Since(start); !errors.Is(err, ErrTimeout) || took != 10*time.Millisecond {
				t.Errorf("WithTimeout: %v after %v", err, took)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			start = time.Now()
			err = c.Call(ctx, "slow", nil, nil)
			if took := time.Since(start); !errors.Is(err, ErrTimeout) || took != 5*time.Second {
				t.Errorf("deadline: %v after %v", err, took)
			}
			ctx, cancel = context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			start = time.Now()
			err = c.Call(ctx, "slow", nil, nil)
			if took := time.Since(start); !errors.Is(err, context.Canceled) || errors.Is(err, ErrTimeout) || took != time.Second {
				t.Errorf("cancel: %v after %v", err, took)
			}
			for range 4 {
				peer.next()
			}
			go func() {
				peer.next()
				peer.send(`{"jsonrpc":"2.0","id":4096,"result":"late"}`, `{"jsonrpc":"2.0","id":12288,"result":"late"}`,
					`{"jsonrpc":"2.0","id":999999,"result":"never"}`, `{"jsonrpc":"2.0","id":20480,"result":"mine"}`)
			}()
			var got string
			if err := c.Call(t.Context(), "fast", nil, &got); err != nil || got != "mine" {
				t.Errorf("got %q, %v", got, err)
			}
			if s := c.Stats(); s.Late != 2 || s.Unknown != 1 || s.Pending != 0 {
				t.Errorf("stats %+v", s)
			}
		})
	}
	if got := seen.text(); got != "late response, late response, unknown response, late response, late response, unknown response" {
		t.Error(got)
	}
}

// TestTimeoutAfter proves that a timeout tells the time that the call was given, and not
// what it took with all that came beside, and tells it as a person would (RPC-10).
func TestTimeoutAfter(t *testing.T) {
	withPeer(t, Config{Timeout: 2 * time.Second}, func(t *testing.T, c *Conn, peer *rawPeer) {
		go readAll(peer.s)
		time.Sleep(100 * time.Millisecond) // the clock does not begin with the call
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		time.Sleep(time.Second)
		for i, call := range []func() error{
			func() error { return c.Call(ctx, "m", nil, nil) },
			func() error { return c.Call(t.Context(), "m", nil, nil) },
			func() error { return c.Call(t.Context(), "m", nil, nil, WithTimeout(3*time.Second)) },
		} {
			want := []time.Duration{4, 2, 3}[i] * time.Second
			if late, ok := errors.AsType[*TimeoutError](call()); !ok || late.After != want {
				t.Errorf("%v instead of %v", late, want)
			}
		}
	})
	for after, want := range map[time.Duration]string{
		time.Second: "1s", 999_996 * time.Microsecond: "1s", 1_500_004 * time.Microsecond: "1.5s", 9_994_321: "9.994ms", 3_999: "4µs", 0: "0s",
	} {
		if got := (&TimeoutError{After: after}).Error(); got != "jsonrpc: no answer within "+want {
			t.Errorf("%d: %s", after, got)
		}
	}
}

// TestClosedByPeer proves that pending calls fail at once when the peer hangs
// up (RPC-14), and calls begun afterwards too (RPC-26).
func TestClosedByPeer(t *testing.T) {
	for _, reads := range []bool{false, true} {
		withPeer(t, Config{CallerReads: reads}, func(t *testing.T, c *Conn, peer *rawPeer) {
			start := time.Now()
			time.AfterFunc(time.Second, func() { peer.s.Close() })
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					err := c.Call(t.Context(), "m", nil, nil)
					conn, ok := errors.AsType[*ConnError](err)
					if !ok || !errors.Is(err, io.EOF) || !errors.Is(err, ErrClosed) || !conn.Recoverable || !Recoverable(err) {
						t.Errorf("%v", err)
					}
				})
			}
			wg.Wait()
			if took := time.Since(start); took != time.Second {
				t.Errorf("took %v", took)
			}
			<-c.Done()
			if c.State() != StateDisconnected || !errors.Is(c.Err(), io.EOF) {
				t.Error(c.State(), c.Err())
			}
			if err := c.Call(t.Context(), "m", nil, nil); !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
			if err := c.Notify(t.Context(), "m", nil); !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
			var b Batch
			e := b.Call("m", nil, nil)
			if err := c.Batch(t.Context(), &b); !errors.Is(err, ErrClosed) || !errors.Is(e.Err(), ErrClosed) {
				t.Error(err, e.Err())
			}
		})
	}
}

// TestMaxPending proves that a call beyond the bound fails at once (RPC-19), and
// that its place is free again when a call ends.
func TestMaxPending(t *testing.T) {
	withPeer(t, Config{MaxPending: 3}, func(t *testing.T, c *Conn, peer *rawPeer) {
		ctx, cancel := context.WithCancel(t.Context())
		for range 3 {
			go c.Call(ctx, "m", nil, nil)
		}
		synctest.Wait()
		start := time.Now()
		err := c.Call(t.Context(), "m", nil, nil)
		resource, ok := errors.AsType[*ResourceError](err)
		if !ok || !errors.Is(err, ErrExhausted) || resource.Limit != 3 || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		var b Batch
		e := b.Call("m", nil, nil)
		if err := c.Batch(t.Context(), &b); !errors.Is(err, ErrExhausted) || !errors.Is(e.Err(), ErrExhausted) {
			t.Error(err, e.Err())
		}
		cancel()
		synctest.Wait()
		for range 3 {
			peer.next()
		}
		go peer.answer()
		if err := c.Call(t.Context(), "m", []int{1}, nil); err != nil {
			t.Error(err)
		}
	})
}

// TestResultIntoNoPointer proves that a call whose result could not be given to the
// caller is not made.
func TestResultIntoNoPointer(t *testing.T) {
	withPeer(t, Config{}, func(t *testing.T, c *Conn, peer *rawPeer) {
		for want, into := range map[string]any{"into the int that": 1, "into the []int that": []int{1}, "into the *int that": (*int)(nil), "into the *json.RawMessage that": (*json.RawMessage)(nil)} {
			batch := &Batch{}
			asked := batch.Call("m", nil, into)
			for _, err := range []error{c.Call(t.Context(), "m", nil, into), c.Batch(t.Context(), batch), asked.Err()} {
				if e, ok := errors.AsType[*CallError](err); !ok || e.Sent || !strings.Contains(err.Error(), want) {
					t.Errorf("%T: %v", into, err)
				}
			}
		}
		peer.quiet()
		if n := c.pending.count.Load(); n != 0 {
			t.Errorf("%d calls are pending", n)
		}
	})
}
