package jsonrpc

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// A deaf Stream takes nothing and says nothing.
type deaf struct{ closed chan struct{} }

func (s deaf) Read() (Part, error)         { <-s.closed; return Part{}, io.EOF }
func (s deaf) Write(p []byte) (int, error) { <-s.closed; return 0, io.ErrClosedPipe }
func (s deaf) Close() error                { close(s.closed); return nil }

// TestCallErrorSent proves that an error of a call tells whether the peer may
// have got it (RPC-14): a call under way may have been, one that still waited
// for room to write, or came too late, was not.
func TestCallErrorSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewConn(deaf{make(chan struct{})}, Config{WriteBuffer: 10})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		sent := func(method string) <-chan bool {
			out := make(chan bool, 1)
			go func() {
				err := c.Call(ctx, method, nil, nil)
				call, ok := errors.AsType[*CallError](err)
				if !ok || !errors.Is(err, ErrTimeout) && !errors.Is(err, ErrClosed) {
					t.Errorf("%s: %v, want a timeout or an end", method, err)
				}
				out <- ok && call.Sent
			}()
			synctest.Wait()
			return out
		}
		first, second := sent("first"), sent("second")
		if !<-first || <-second {
			t.Error("the first call was written, the second waited for room: want Sent true and false")
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if <-sent("late") {
			t.Error("a call on a closed connection says that it was sent")
		}
	})
}

// TestSentBesideAnother proves that a call that was sent says so, even if it failed
// since another one, to which its result is passed on, was not.
func TestSentBesideAnother(t *testing.T) {
	a, b := Pair(Config{}, Config{Handler: HandlerFunc(echo)})
	defer a.Close()
	defer b.Close()
	other := &CallError{Err: &UndeliveredError{Err: io.EOF, NotSent: true}}
	err := a.Call(t.Context(), "m", []int{1}, brokenWriter{other})
	if call, ok := errors.AsType[*CallError](err); !ok || !call.Sent || !errors.Is(err, other) {
		t.Errorf("%v, sent: %t", err, ok && call.Sent)
	}
}

// A brokenWriter takes nothing.
type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }
