package jsonrpc

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A turnStream is a Stream that says what room it has, and takes everything.
type turnStream struct {
	Stream
	told func()

	mu      sync.Mutex
	room    streamRoom
	drops   bool     // all that it is asked to
	dropped []string // ids that it was asked to drop
}

func (s *turnStream) OnRoom(told func()) { s.told = told }

func (s *turnStream) Room() (calls, notifications bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.room.calls, s.room.notifications
}

func (s *turnStream) Drop(id []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped = append(s.dropped, string(id))
	return s.drops
}

func (s *turnStream) set(calls, notifications bool) {
	s.mu.Lock()
	s.room = streamRoom{calls, notifications}
	s.mu.Unlock()
	s.told()
	synctest.Wait()
}

// withTurns runs f in a bubble, with a Conn over a turnStream and its peer.
func withTurns(t *testing.T, cfg Config, f func(t *testing.T, c *Conn, s *turnStream, peer *rawPeer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe()
		s := &turnStream{Stream: near, room: streamRoom{true, true}}
		c := NewConn(s, cfg)
		f(t, c, s, &rawPeer{t, far})
		c.Close()
		far.Close()
	})
}

// TestStreamHasNoRoom: calls wait as long as the Stream has no room for them, with their
// timeouts and contexts, and are not sent afterwards; notifications do when it has none
// for those.
func TestStreamHasNoRoom(t *testing.T) {
	for what, send := range map[string]func(ctx context.Context, c *Conn) error{
		"Call":         func(ctx context.Context, c *Conn) error { return c.Call(ctx, "m", nil, nil) },
		"with a value": func(ctx context.Context, c *Conn) error { return c.Call(ctx, "m", strings.NewReader("[1]"), nil) },
		"WithTimeout": func(ctx context.Context, c *Conn) error {
			return c.Call(context.WithoutCancel(ctx), "m", nil, nil, WithTimeout(2*time.Second))
		},
		"Batch": func(ctx context.Context, c *Conn) error {
			b := new(Batch)
			b.Notify("m", nil)
			b.Call("m", nil, nil)
			return c.Batch(ctx, b)
		},
		"Notify": func(ctx context.Context, c *Conn) error { return c.Notify(ctx, "m", nil) },
	} {
		withTurns(t, Config{}, func(t *testing.T, c *Conn, s *turnStream, peer *rawPeer) {
			s.set(false, what != "Notify")
			if what != "Notify" {
				if err := c.Notify(t.Context(), "passes", nil); err != nil {
					t.Fatal(err)
				}
				peer.want(`{"jsonrpc":"2.0","method":"passes"}`)
			}
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			err := send(ctx, c)
			call, ok := errors.AsType[*CallError](err)
			if !errors.Is(err, ErrTimeout) || !ok || call.Sent || time.Since(start) != 2*time.Second {
				t.Errorf("%s: %v after %v", what, err, time.Since(start))
			}
			s.set(true, true)
			peer.quiet()
		})
	}
}

// TestRoomOfStream: those that wait for room in the Stream go on when it is made, each kind
// by itself.
func TestRoomOfStream(t *testing.T) {
	withTurns(t, Config{}, func(t *testing.T, c *Conn, s *turnStream, peer *rawPeer) {
		s.set(false, false)
		var sent sync.WaitGroup
		for range 3 {
			sent.Go(func() {
				if err := c.Call(t.Context(), "call", []int{7}, nil); err != nil {
					t.Error(err)
				}
			})
			sent.Go(func() {
				if err := c.Notify(t.Context(), "note", nil); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		s.set(false, true)
		for range 3 {
			peer.want(`{"jsonrpc":"2.0","method":"note"}`)
		}
		peer.quiet()
		s.set(true, false)
		for range 3 {
			peer.answer()
		}
		sent.Wait()
	})
}

// TestAnswersPassThoseThatWait: answers go out while calls wait for the Stream, whoever
// writes them, and what a call that is given up has to be told as well.
func TestAnswersPassThoseThatWait(t *testing.T) {
	for _, handler := range []Handler{HandlerFunc(echo), inlineAll{echo}} {
		withTurns(t, Config{Handler: handler, Cancel: LSPCancel}, func(t *testing.T, c *Conn, s *turnStream, peer *rawPeer) {
			ctx, giveUp := context.WithCancel(t.Context())
			var calls sync.WaitGroup
			for i := range 3 {
				calls.Go(func() {
					if err := c.Call(ctx, "m", nil, nil); !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				})
				synctest.Wait()
				if i == 0 {
					peer.want(`{"jsonrpc":"2.0","id":4096,"method":"m"}`)
					s.set(false, false)
				}
			}
			peer.send(`{"jsonrpc":"2.0","id":1,"method":"echo","params":[7]}`)
			peer.want(`{"jsonrpc":"2.0","id":1,"result":[7]}`)
			peer.send(`[{"jsonrpc":"2.0","id":2,"method":"echo","params":[8]}]`)
			peer.want(`[{"jsonrpc":"2.0","id":2,"result":[8]}]`)
			giveUp()
			calls.Wait()
			peer.want(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":4096}}`)
			peer.quiet()
		})
	}
}

// TestAnswersPassInQueue: who wants to answer and has to wait for the write buffer is told of
// room before those for whom the Stream has none, who are not.
func TestAnswersPassInQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fullWriter()
		s := &turnStream{}
		w.turns = s
		s.OnRoom(w.roomMade)
		call := waitForRoom(t.Context(), w, 0, 40)
		answer := make(chan error, 1)
		go func() {
			err := w.lock(t.Context(), 0, sendsAnswer, 40)
			w.mu.Unlock()
			answer <- err
		}()
		synctest.Wait()
		w.written(0)
		if err := <-answer; err != nil || w.queued() != 1 {
			t.Errorf("%v, %d wait", err, w.queued())
		}
		s.set(true, true)
		if err := <-call; err != nil || w.queued() != 0 {
			t.Errorf("%v, %d wait", err, w.queued())
		}
	})
}

// TestCloseWithoutRoom: Close lets those go that wait for room in the Stream.
func TestCloseWithoutRoom(t *testing.T) {
	withTurns(t, Config{}, func(t *testing.T, c *Conn, s *turnStream, _ *rawPeer) {
		s.set(false, false)
		failed := make(chan error)
		go func() { failed <- c.Call(t.Context(), "m", nil, nil, WithTimeout(time.Hour)) }()
		synctest.Wait()
		start := time.Now()
		c.Close()
		if err := <-failed; !errors.Is(err, ErrClosed) || time.Since(start) > time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		s.told() // late
	})
}

// TestDropped: the Stream is asked to drop a call that is given up, whatever ends the wait for
// it; one that was dropped has not been sent, and the peer hears nothing of it.
func TestDropped(t *testing.T) {
	for _, cancel := range []CancelStyle{CancelSilent, LSPCancel} {
		for _, drops := range []bool{true, false} {
			withTurns(t, Config{Cancel: cancel}, func(t *testing.T, c *Conn, s *turnStream, peer *rawPeer) {
				s.drops = drops
				ctx, giveUp := context.WithTimeout(t.Context(), time.Second)
				defer giveUp()
				for i, call := range []func() error{
					func() error { return c.Call(ctx, "m", nil, nil) },
					func() error { return c.Call(t.Context(), "m", nil, nil) }, // for the timeout of the Conn
				} {
					err := call()
					lost, ok := errors.AsType[*CallError](err)
					if !errors.Is(err, ErrTimeout) || !ok || lost.Sent == drops || len(s.dropped) != i+1 || s.dropped[i] != lost.ID.String() {
						t.Errorf("drops %t: %v, sent %t, asked for %q", drops, err, ok && lost.Sent, s.dropped)
					}
					peer.next() // this Stream has sent it all the same
					if cancel == LSPCancel && !drops {
						peer.want(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":` + lost.ID.String() + `}}`)
					}
					peer.quiet()
				}
			})
		}
	}
}
