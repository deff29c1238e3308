package jsonrpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// shortWriter is a Stream that takes less than it is given, and says nothing.
type shortWriter struct{ Stream }

func (s shortWriter) Write(p []byte) (int, error) { return len(p) - 1, nil }

// TestShortWrite proves that a Stream that breaks its promise to take everything or
// to say why ends the connection: what it left out would be missing for ever.
func TestShortWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe()
		c := NewConn(shortWriter{noTry{near}}, Config{})
		err := c.Call(t.Context(), "m", nil, nil)
		if !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), "less than it was given") {
			t.Error(err)
		}
		c.Close()
		far.Close()
	})
}

// A refilling Stream is given more to write each time it has taken something.
type refilling struct {
	Stream
	refill func()
	tries  atomic.Int32
}

func (s *refilling) TryWrite(p []byte) (int, error) {
	s.tries.Add(1)
	s.refill()
	return len(p), nil
}

func (s *refilling) Write(p []byte) (int, error) { return len(p), nil }

// TestSenderLeavesTheRest proves that who writes for all does so for a while only:
// what keeps coming is left to the goroutine that writes, and gets out.
func TestSenderLeavesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe()
		s := &refilling{Stream: near}
		c := newConn(s, Config{}.withDefaults())
		s.refill = func() {
			c.w.mu.Lock()
			c.w.buf = append(c.w.buf, "{}\n"...)
			c.w.mu.Unlock()
		}
		c.tasks.Go(c.read)
		c.tasks.Go(func() { c.w.run(c.stop) })
		c.w.mu.Lock()
		c.w.buf = append(c.w.buf, "{}\n"...)
		c.w.flush(false)
		synctest.Wait()
		c.w.mu.Lock()
		if n := s.tries.Load(); n != inlineRounds || !c.w.idle() {
			t.Errorf("%d attempts, and %d bytes wait", n, c.w.waiting())
		}
		c.w.mu.Unlock()
		c.Close()
		far.Close()
	})
}

// TestAnswersHaveABound proves that a peer that calls and calls and takes no answer
// costs so much memory and no more: then it is not read either, and when it takes
// its answers, all of them come (RPC-19, RPC-23).
func TestAnswersHaveABound(t *testing.T) {
	const size, calls = 1000, 200
	cfg := Config{Handler: inlineAll{echo}, MaxMessage: 2 * size, WriteBuffer: 2 * size, StallTimeout: -1}
	withPeer(t, cfg, func(t *testing.T, c *Conn, peer *rawPeer) {
		line := `{"jsonrpc":"2.0","id":1,"method":"m","params":["` + strings.Repeat("x", size) + `"]}`
		go peer.send(strings.Repeat(line+"\n", calls-1) + line)
		synctest.Wait()
		c.w.mu.Lock()
		if n, most := c.w.waiting(), cfg.WriteBuffer+5*cfg.MaxMessage; n > most {
			t.Errorf("%d bytes of answers wait, more than %d", n, most)
		}
		c.w.mu.Unlock()
		for range calls {
			if got := peer.next(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":1,"result":["x`) {
				t.Fatalf("%.100s", got)
			}
		}
	})
}

// TestStreamWaitsForRoom proves that a call whose params are streamed ends with its
// context while it waits for a peer that does not read, and that the message it had
// begun is ended for those behind it (RPC-10, RPC-24).
func TestStreamWaitsForRoom(t *testing.T) {
	withPeer(t, Config{WriteBuffer: 2 * streamPiece, StallTimeout: -1}, func(t *testing.T, c *Conn, peer *rawPeer) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		params := `["` + strings.Repeat("x", 1<<20) + `"]`
		start := time.Now()
		err := c.Call(ctx, "m", strings.NewReader(params), nil)
		if !errors.Is(err, ErrTimeout) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if got := peer.next(); json.Valid([]byte(got)) || len(got) >= len(params) {
			t.Errorf("%d bytes came of a message that was broken off", len(got))
		}
		go peer.answer()
		if err := c.Call(t.Context(), "m", []int{1}, nil); err != nil {
			t.Error(err)
		}
	})
}

// TestParamsLeftOut proves what is sent of params that are absent, null, empty or
// no array and no object (JSON-RPC 2.0 section 4.2).
func TestParamsLeftOut(t *testing.T) {
	var nilRaw *json.RawMessage
	var nilMap map[string]int
	empty := json.RawMessage("")
	for _, tt := range []struct {
		params any
		want   string // of the message; empty: refused
	}{
		{nil, ``},
		{nilRaw, ``},
		{nilMap, ``},
		{json.RawMessage(nil), ``},
		{empty, ``},
		{&empty, ``},
		{json.RawMessage(" null"), ``},
		{strings.NewReader(" null "), ``},
		{(*int)(nil), ``},
		{json.RawMessage(" []"), `,"params": []`},
		{[]int{}, `,"params":[]`},
		{struct{}{}, `,"params":{}`},
		{strings.NewReader("{}"), `,"params":{}`},
		{5, "refused"},
		{"x", "refused"},
		{json.RawMessage("true"), "refused"},
		{strings.NewReader("-1"), "refused"},
		{json.RawMessage("[1"), "refused"},
		{strings.NewReader(""), "refused"},
	} {
		withPeer(t, Config{}, func(t *testing.T, c *Conn, peer *rawPeer) {
			err := c.Notify(t.Context(), "m", tt.params)
			if tt.want == "refused" {
				if err == nil || c.Stats().Pending != 0 {
					t.Errorf("%T %v: %v", tt.params, tt.params, err)
				}
				return
			}
			if err != nil {
				t.Errorf("%T %v: %v", tt.params, tt.params, err)
				return
			}
			peer.want(`{"jsonrpc":"2.0","method":"m"` + tt.want + `}`)
		})
	}
}

// TestBatchReader proves that a batch whose params are read to their end checks all
// of them, and is not sent when they are no JSON.
func TestBatchReader(t *testing.T) {
	long := `["` + strings.Repeat("x", 2*streamPiece) + `"]`
	withPeer(t, Config{}, func(t *testing.T, c *Conn, peer *rawPeer) {
		for _, bad := range []string{long[:len(long)-1], long + "]", long[:len(long)-10] + "\x01\"]"} {
			var b Batch
			e := b.Call("m", strings.NewReader(bad), nil)
			if err := c.Batch(t.Context(), &b); err == nil || e.Err() == nil || c.Stats().Pending != 0 {
				t.Errorf("%.20s…%s was sent", bad, bad[len(bad)-3:])
			}
		}
		var b Batch
		b.Notify("m", strings.NewReader(long))
		if err := c.Batch(t.Context(), &b); err != nil {
			t.Error(err)
		}
		if got := peer.next(); !bytes.Contains([]byte(got), []byte(long)) {
			t.Errorf("%.60s", got)
		}
	})
}
