package jsonrpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// posts is a Stream over which each message is answered, or fails, by itself, as
// over HTTP.
type posts struct {
	fail   func(n int) error // why the n-th message is lost; nil: it is answered
	n      int
	ready  chan any // an answer or an error
	closed chan struct{}
	once   sync.Once
}

func newPosts(fail func(n int) error) *posts {
	return &posts{fail: fail, ready: make(chan any, 16), closed: make(chan struct{})}
}

func (s *posts) Write(p []byte) (int, error) {
	for msg := range bytes.Lines(p) {
		s.n++
		if err := s.fail(s.n); err != nil {
			lost := &UndeliveredError{Err: err}
			errors.As(err, &lost)
			s.ready <- &UndeliveredError{Message: bytes.Clone(msg), Err: lost.Err, NotSent: lost.NotSent, RetryAfter: lost.RetryAfter}
			continue
		}
		s.ready <- answerTo(msg)
	}
	return len(p), nil
}

// answerTo answers a request, or each one in a batch, with 1.
func answerTo(msg []byte) []byte {
	var all []struct{ ID json.RawMessage }
	single := msg[0] != '['
	if single {
		msg = append(append([]byte("["), msg...), ']')
	}
	if json.Unmarshal(msg, &all) != nil {
		return []byte("no JSON")
	}
	var out []byte
	for _, req := range all {
		out = append(out, `,{"jsonrpc":"2.0","result":1,"id":`...)
		out = append(append(out, req.ID...), '}')
	}
	if single {
		return out[1:]
	}
	out[0] = '['
	return append(out, ']')
}

func (s *posts) Read() (Part, error) {
	select {
	case v := <-s.ready:
		if err, ok := v.(error); ok {
			return Part{}, err
		}
		return Part{Data: v.([]byte), End: true}, nil
	case <-s.closed:
		return Part{}, io.EOF
	}
}

func (s *posts) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// TestClientRepeatsUndelivered proves that a Client repeats, after a pause, what
// its connection could not deliver while it lives on: what was certainly not
// sent or is Idempotent, if that may help and there is time for it (RPC-22).
func TestClientRepeatsUndelivered(t *testing.T) {
	const hour = 3600 * time.Second
	refused := &UndeliveredError{Err: syscall.ECONNREFUSED, NotSent: true}
	busy := &UndeliveredError{Err: verdictError(true), NotSent: true, RetryAfter: 3 * time.Second}
	far := &UndeliveredError{Err: verdictError(true), NotSent: true, RetryAfter: hour}
	cut := &UndeliveredError{Err: io.ErrUnexpectedEOF}
	denied := &UndeliveredError{Err: verdictError(false), NotSent: true}
	for name, tt := range map[string]struct {
		fails []error // of the first messages
		opts  []CallOption
		posts int
		took  time.Duration
		err   error // nil: it comes through in the end
		sent  bool
	}{
		"refused":                      {[]error{refused}, nil, 2, 100 * time.Millisecond, nil, false},
		"asks for a pause":             {[]error{busy}, nil, 2, 3 * time.Second, nil, false},
		"asks for a pause, twice":      {[]error{busy, busy}, nil, 3, 6 * time.Second, nil, false},
		"refused for ever":             {[]error{refused, refused, refused, refused}, nil, 3, 300 * time.Millisecond, syscall.ECONNREFUSED, false},
		"asks for more than a backoff": {[]error{far}, []CallOption{WithTimeout(2 * hour)}, 1, 0, verdictError(true), false},
		"asks for more than there is":  {[]error{busy}, []CallOption{WithTimeout(3 * time.Second)}, 1, 0, verdictError(true), false},
		"denied":                       {[]error{denied}, []CallOption{Idempotent()}, 1, 0, verdictError(false), false},
		"cut":                          {[]error{cut}, nil, 1, 0, io.ErrUnexpectedEOF, true},
		"cut, idempotent":              {[]error{cut}, []CallOption{Idempotent()}, 2, 100 * time.Millisecond, nil, false},
		"cut, then refused":            {[]error{cut, refused, refused}, []CallOption{Idempotent()}, 3, 300 * time.Millisecond, syscall.ECONNREFUSED, true},
	} {
		for kind, do := range map[string]func(context.Context, *Client) error{
			"call": func(ctx context.Context, cl *Client) error { return cl.Call(ctx, "m", nil, nil, tt.opts...) },
			"batch": func(ctx context.Context, cl *Client) error {
				var b Batch
				one := b.Call("m", nil, nil)
				b.Call("m", nil, nil)
				return errors.Join(cl.Batch(ctx, &b, tt.opts...), one.Err())
			},
		} {
			synctest.Test(t, func(t *testing.T) {
				s := newPosts(func(n int) error {
					if n <= len(tt.fails) {
						return tt.fails[n-1]
					}
					return nil
				})
				cl := NewClient(func(context.Context) (Stream, error) { return s, nil }, ClientConfig{Random: noJitter})
				defer cl.Close()
				synctest.Wait()
				start := time.Now()
				err := do(t.Context(), cl)
				if took := time.Since(start); !errors.Is(err, tt.err) || s.n != tt.posts || took != tt.took {
					t.Errorf("%s, %s: %v after %d posts and %v, want %v after %d and %v", name, kind, err, s.n, took, tt.err, tt.posts, tt.took)
				}
				if call, ok := errors.AsType[*CallError](err); ok != (tt.err != nil) || ok && call.Sent != tt.sent {
					t.Errorf("%s, %s: %v: Sent should be %v", name, kind, err, tt.sent)
				}
				if cl.State() != StateConnected {
					t.Errorf("%s, %s: the connection is %v", name, kind, cl.State())
				}
			})
		}
	}
}

// TestClientPauseEnds proves that the pause before a call is repeated ends with
// the call's context and with the Client, and that the caller learns why there
// was one.
func TestClientPauseEnds(t *testing.T) {
	cancelled := func(cancel context.CancelFunc, _ *Client) { cancel() }
	for name, tt := range map[string]struct {
		end  func(cancel context.CancelFunc, cl *Client)
		sent bool // the first attempt
		want error
		text string
	}{
		"context":       {cancelled, false, context.Canceled, "context canceled"},
		"context, sent": {cancelled, true, context.Canceled, "context canceled"},
		"Client":        {func(_ context.CancelFunc, cl *Client) { cl.Close() }, false, ErrClosed, "connection cl closing: connection closed"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newPosts(func(int) error {
				return &UndeliveredError{Err: verdictError(true), NotSent: !tt.sent, RetryAfter: 20 * time.Second}
			})
			var told []error
			cl := NewClient(func(context.Context) (Stream, error) { return s, nil }, ClientConfig{
				Config: Config{Name: "cl", Hooks: Hooks{CallDone: func(i CallInfo) { told = append(told, i.Err) }}},
			})
			defer cl.Close()
			ctx, cancel := context.WithCancel(WithMeta(t.Context(), Meta{CorrelationID: "c-1"}))
			defer cancel()
			time.AfterFunc(time.Second, func() { tt.end(cancel, cl) })
			start := time.Now()
			err := cl.Call(ctx, "m", nil, nil, Idempotent())
			if took := time.Since(start); !errors.Is(err, tt.want) || took != time.Second || s.n != 1 {
				t.Errorf("%s: %v after %v and %d posts", name, err, took, s.n)
			}
			call, ok := errors.AsType[*CallError](err)
			if !ok || call.CorrelationID != "c-1" || call.Elapsed != time.Second || call.Sent != tt.sent {
				t.Errorf("%s: %+v", name, call)
			}
			if len(told) != 2 || !errors.Is(told[0], verdictError(true)) || told[1] != err {
				t.Errorf("%s: the hook was told %v", name, told)
			}
			if !errors.Is(err, verdictError(true)) {
				t.Errorf("%s: %v does not say why there was a pause", name, err)
			}
			want := "jsonrpc: m on cl, correlation id c-1, after 1s: " + tt.text + "; message not delivered: " + verdictError(true).Error()
			if err.Error() != want {
				t.Errorf("%s: %v\nwant %s", name, err, want)
			}
		})
	}
}

// TestClientTellsWaiting proves that a call that fails for want of a connection
// is told to the hook, as any other, and keeps its correlation id (RPC-21).
func TestClientTellsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []CallInfo
		s := &site{down: syscall.ECONNREFUSED}
		cl := NewClient(s.dial, ClientConfig{Config: Config{
			Name: "cl", Timeout: time.Second, Hooks: Hooks{CallDone: func(i CallInfo) { told = append(told, i) }},
		}})
		ctx := WithMeta(t.Context(), Meta{CorrelationID: "c-9"})
		check := func(name, method string, elapsed time.Duration, err error) {
			t.Helper()
			call, ok := errors.AsType[*CallError](err)
			if !ok || call.CorrelationID != "c-9" || call.Method != method || call.Conn != "cl" || call.Sent || call.Elapsed != elapsed {
				t.Errorf("%s: %v, want a CallError with the correlation id", name, err)
			}
			if len(told) != 1 || told[0].Conn != "cl" || told[0].Method != method || told[0].Elapsed != elapsed || told[0].Err != err {
				t.Errorf("%s: the hook was told %+v", name, told)
			}
			told = nil
		}
		err := cl.Call(ctx, "m", nil, nil)
		check("waiting", "m", time.Second, err)
		if want := "jsonrpc: m on cl, correlation id c-9, after 1s: not sent within 1s; connection cl connecting: connection refused"; err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
		var b Batch
		one := b.Call("one", nil, nil)
		note := b.Notify("n", nil)
		err = cl.Batch(ctx, &b)
		check("batch", "one", time.Second, one.Err())
		if call, ok := errors.AsType[*CallError](err); !ok || call.Method != "batch" || call.CorrelationID != "c-9" {
			t.Errorf("batch: %v", err)
		}
		if call, ok := errors.AsType[*CallError](note.Err()); !ok || call.Method != "n" || call.CorrelationID != "c-9" {
			t.Errorf("notification of a batch: %v", note.Err())
		}
		err = cl.Notify(ctx, "n", nil)
		if call, ok := errors.AsType[*CallError](err); !ok || call.CorrelationID != "c-9" || len(told) != 0 {
			t.Errorf("notification: %v, and the hook was told %v", err, told)
		}
		cl.Close()
		check("closed", "m", 0, cl.Call(ctx, "m", nil, nil))
	})
}
