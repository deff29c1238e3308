package jsonrpc

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A site is where a Client under test dials.
type site struct {
	mu    sync.Mutex
	peers []*Conn
	dials []time.Time
	down  error // what dialing fails with, while it is set
	cfg   Config
}

func (s *site) dial(context.Context) (Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dials = append(s.dials, time.Now())
	if s.down != nil {
		return nil, s.down
	}
	near, far := Pipe()
	s.peers = append(s.peers, NewConn(far, s.cfg))
	return near, nil
}

func (s *site) set(down error) {
	s.mu.Lock()
	s.down = down
	s.mu.Unlock()
}

func (s *site) hangUp() { s.peers[len(s.peers)-1].Close() }

func noJitter() float64 { return 0 }

// TestClientCallerReads proves that a Client whose callers should read makes do with a
// Stream that cannot be interrupted, as that of a WebSocket, and that they do read
// another one.
func TestClientCallerReads(t *testing.T) {
	for _, lacks := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := &site{cfg: Config{Handler: HandlerFunc(echo)}}
			dial := func(ctx context.Context) (Stream, error) {
				stream, err := s.dial(ctx)
				if lacks {
					stream = struct{ Stream }{stream}
				}
				return stream, err
			}
			cl := NewClient(dial, ClientConfig{Config: Config{CallerReads: true}})
			defer cl.Close()
			var got []int
			if err := cl.Call(t.Context(), "m", []int{1}, &got); err != nil || got[0] != 1 {
				t.Error(got, err)
			}
			if reads := cl.present().token.inHand(); reads == lacks {
				t.Errorf("lacks SetReadDeadline: %t, callers read: %t", lacks, reads)
			}
			s.hangUp()
		})
	}
}

// TestClientReconnects proves that a Client comes back after its connection
// ended, with a growing pause, that its states are told, and that calls wait
// for it (RPC-22, RPC-26).
func TestClientReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen states
		s := &site{cfg: Config{Handler: HandlerFunc(echo)}}
		cl := NewClient(s.dial, ClientConfig{
			Config: Config{Name: "cl", Hooks: Hooks{StateChange: seen.add}}, Random: noJitter, MinBackoff: time.Second, MaxBackoff: 3 * time.Second,
		})
		var got []int
		if err := cl.Call(t.Context(), "m", []int{1}, &got); err != nil || got[0] != 1 || cl.State() != StateConnected {
			t.Error(got, err)
		}
		start := time.Now()
		s.set(syscall.ECONNREFUSED)
		s.hangUp()
		synctest.Wait()
		time.AfterFunc(5*time.Second, func() { s.set(nil) })
		if err := cl.Call(t.Context(), "m", []int{2}, &got); err != nil || got[0] != 2 {
			t.Error(got, err)
		}
		// Pauses of 1, 2 and 3 seconds.
		if took := time.Since(start); took != 6*time.Second || len(s.dials) != 4 {
			t.Errorf("back after %v and %d dials", took, len(s.dials))
		}
		if err := cl.Notify(t.Context(), "n", nil); err != nil {
			t.Error(err)
		}
		var b Batch
		e := b.Call("m", []int{3}, &got)
		if err := cl.Batch(t.Context(), &b); err != nil || e.Err() != nil || got[0] != 3 {
			t.Error(got, err, e.Err())
		}
		cl.Close()
		if err := cl.Call(t.Context(), "m", nil, nil); !errors.Is(err, ErrClosed) || cl.State() != StateDisconnected {
			t.Error(err, cl.State())
		}
		for _, peer := range s.peers {
			peer.Close()
		}
		refused := "connecting disconnected connection refused,disconnected connecting connection refused"
		seen.check(t, strings.Split("connecting connected <nil>,"+
			"connected disconnected jsonrpc: connection cl disconnected: EOF,disconnected connecting jsonrpc: connection cl disconnected: EOF,"+
			refused+","+refused+",connecting connected <nil>,"+
			"connected closing jsonrpc: connection closed,closing disconnected jsonrpc: connection closed", ",")...)
	})
}

// TestClientWaits proves that a call made while there is no connection waits
// for its context, or for the default timeout, and then says why there was
// none.
func TestClientWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{down: syscall.ECONNREFUSED}
		cl := NewClient(s.dial, ClientConfig{Config: Config{Timeout: 5 * time.Second}})
		for _, opts := range [][]CallOption{nil, {WithTimeout(time.Second)}} {
			start := time.Now()
			err := cl.Call(t.Context(), "m", nil, nil, opts...)
			want := 5 * time.Second
			if opts != nil {
				want = time.Second
			}
			if took := time.Since(start); !errors.Is(err, ErrTimeout) || !errors.Is(err, syscall.ECONNREFUSED) || took != want {
				t.Errorf("%v after %v", err, took)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := cl.Call(ctx, "m", nil, nil); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		failed := make(chan error)
		go func() { failed <- cl.Call(t.Context(), "m", nil, nil) }()
		synctest.Wait()
		cl.Close()
		if err := <-failed; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

// TestClientGivesUp proves that it does not try for ever, and not at all where
// trying cannot help.
func TestClientGivesUp(t *testing.T) {
	for name, tt := range map[string]struct {
		down  error
		dials int
	}{
		"hopeless": {&ConnError{Err: errors.New("no such host")}, 1},
		"program":  {&exec.Error{Name: "p", Err: exec.ErrNotFound}, 1},
		"framing":  {&FramingError{Problem: "x"}, 1},
		"bounded":  {syscall.ECONNREFUSED, 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &site{down: tt.down}
			cl := NewClient(s.dial, ClientConfig{MaxDials: 3, Config: Config{Timeout: -1}})
			if err := cl.Call(t.Context(), "m", nil, nil); !errors.Is(err, tt.down) || len(s.dials) != tt.dials {
				t.Errorf("%s: %v after %d dials", name, err, len(s.dials))
			}
			if cl.State() != StateDisconnected {
				t.Error(cl.State())
			}
			cl.Close()
		})
	}
}

// TestClientStands proves that a connection that has stood for MaxBackoff counts as
// a success: the pauses begin anew, and so does the number of dials. One that breaks
// before is one more failure. One that the peer closes in order makes the pauses grow,
// and is no reason to give up as long as nobody uses it; but one that it closes at once is.
func TestClientStands(t *testing.T) {
	for _, tt := range []struct {
		stands time.Duration
		end    error
		pauses []time.Duration
		over   bool
	}{
		{8 * time.Second, syscall.ECONNRESET, []time.Duration{1, 1, 1, 1, 1, 1}, false},
		{7 * time.Second, syscall.ECONNRESET, []time.Duration{1, 2, 4}, true},
		{7 * time.Second, io.EOF, []time.Duration{1, 2, 4, 8, 8, 8, 8}, false},
		{time.Millisecond, io.EOF, []time.Duration{1, 2, 4}, true},
	} {
		stands, want := tt.stands, tt.pauses
		synctest.Test(t, func(t *testing.T) {
			s := &site{}
			cl := NewClient(func(ctx context.Context) (Stream, error) {
				stream, err := s.dial(ctx)
				return &endsWith{stream, tt.end}, err
			}, ClientConfig{Random: noJitter, MinBackoff: time.Second, MaxBackoff: 8 * time.Second, MaxDials: 3})
			for range want {
				time.Sleep(stands)
				synctest.Wait()
				s.hangUp()
				synctest.Wait()
				for cl.State() == StateConnecting {
					time.Sleep(time.Second)
					synctest.Wait()
				}
			}
			if tt.over {
				time.Sleep(stands)
				synctest.Wait()
				s.hangUp()
				synctest.Wait()
			}
			for i, pause := range want {
				if got := s.dials[i+1].Sub(s.dials[i]) - stands; got != pause*time.Second {
					t.Errorf("stood %v: pause %d took %v", stands, i, got)
				}
			}
			if gaveUp := cl.State() == StateDisconnected; gaveUp != tt.over || len(s.dials) != len(want)+1 {
				t.Errorf("stood %v: %v after %d dials", stands, cl.State(), len(s.dials))
			}
			cl.Close()
			for _, peer := range s.peers {
				peer.Close()
			}
		})
	}
}

// An endsWith is a Stream that ends with an error where the peer closes it.
type endsWith struct {
	Stream
	err error
}

func (s *endsWith) Read() (Part, error) {
	part, err := s.Stream.Read()
	if err != nil {
		err = s.err
	}
	return part, err
}

// TestClientOneCallEach proves that a server that closes each connection after a result
// is no failing one: the next connection is there soon, however many there were. One
// that breaks, or answers with an error, is (RPC-22).
func TestClientOneCallEach(t *testing.T) {
	for name, tt := range map[string]struct {
		method string
		end    error
		grows  bool
	}{
		"result":        {"echo", io.EOF, false},
		"long result":   {"long", io.EOF, false},
		"error":         {"other", io.EOF, true},
		"reset":         {"echo", syscall.ECONNRESET, true},
		"program fails": {"echo", &ExitError{Err: errors.New("exit status 1"), stream: io.EOF}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			var mux Mux
			mux.Register("echo", HandlerFunc(echo))
			mux.Register("long", HandlerFunc(func(context.Context, *Request) (any, error) { return strings.Repeat("x", 300<<10), nil }))
			s := &site{cfg: Config{Handler: &mux}}
			cl := NewClient(func(ctx context.Context) (Stream, error) {
				stream, err := s.dial(ctx)
				return &endsWith{stream, tt.end}, err
			}, ClientConfig{Random: noJitter, MinBackoff: time.Second, MaxBackoff: 4 * time.Second, MaxDials: 5})
			var took []time.Duration
			for range 9 {
				start := time.Now()
				err := cl.Call(t.Context(), tt.method, []int{1}, new(any))
				took = append(took, time.Since(start))
				if err != nil && !errors.Is(err, &Error{Code: CodeMethodNotFound}) && !tt.grows {
					t.Errorf("%s: %v", name, err)
				}
				s.hangUp()
				synctest.Wait()
			}
			grew := took[3] > took[1]
			if gaveUp := cl.State() == StateDisconnected; gaveUp != tt.grows || grew != tt.grows || took[1] != time.Second {
				t.Errorf("%s: gave up: %t, calls took %v", name, gaveUp, took)
			}
			cl.Close()
		})
	}
}

// TestClientRepeats proves which calls are made again: those that were
// certainly not sent, and those that may be made twice.
func TestClientRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		calls := make(map[string]int)
		s := &site{}
		s.cfg = Config{Grace: -1, Handler: HandlerFunc(func(_ context.Context, req *Request) (any, error) {
			mu.Lock()
			calls[req.Method()]++
			n := calls[req.Method()]
			mu.Unlock()
			if n <= 2 && req.Method() != "fine" {
				go s.hangUp() // after the request was read
				time.Sleep(time.Minute)
			}
			return n, nil
		})}
		cl := NewClient(s.dial, ClientConfig{MaxAttempts: 3})
		var n int
		if err := cl.Call(t.Context(), "idempotent", nil, &n, Idempotent()); err != nil || n != 3 {
			t.Errorf("idempotent: %d, %v", n, err)
		}
		if err := cl.Call(t.Context(), "other", nil, &n); !errors.Is(err, ErrClosed) || !errors.Is(err, io.EOF) || calls["other"] != 1 {
			t.Errorf("other: %d, %v", calls["other"], err)
		}
		// The Client does not know yet that its connection has ended.
		if err := cl.Call(t.Context(), "fine", nil, &n); err != nil || n != 1 {
			t.Errorf("fine: %d, %v", n, err)
		}
		cl.Close()
		for _, peer := range s.peers {
			peer.Close()
		}
	})
}

// TestClientRepeatsBatch proves that a batch whose connection ended is made
// again as a whole if it is Idempotent, and only then.
func TestClientRepeatsBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		s := &site{}
		s.cfg = Config{Grace: -1, Handler: HandlerFunc(func(_ context.Context, req *Request) (any, error) {
			if n := calls.Add(1); n > 2 || req.Method() == "quick" {
				return n, nil
			}
			go s.hangUp()
			time.Sleep(time.Minute)
			return nil, nil
		})}
		cl := NewClient(s.dial, ClientConfig{})
		var b, other Batch
		var n int
		one := b.Call("m", nil, &n)
		if err := cl.Batch(t.Context(), &b, Idempotent()); err != nil || one.Err() != nil || n != 3 {
			t.Errorf("idempotent: %v, %v, %d", err, one.Err(), n)
		}
		calls.Store(0)
		one = other.Call("m", nil, &n)
		if err := cl.Batch(t.Context(), &other); err != nil || !errors.Is(one.Err(), ErrClosed) || calls.Load() != 1 {
			t.Errorf("other: %v, %v, %d", err, one.Err(), calls.Load())
		}
		cl.Close()
		if err := cl.Batch(t.Context(), &other, Idempotent()); !errors.Is(err, ErrClosed) || one.Err() == nil {
			t.Errorf("closed: %v, %v", err, one.Err())
		}
		var last Batch
		if one = last.Call("m", nil, nil); cl.Batch(t.Context(), &last) == nil || !errors.Is(one.Err(), ErrClosed) {
			t.Errorf("closed: %v", one.Err())
		}
		for _, peer := range s.peers {
			peer.Close()
		}
	})
}

// TestClientWriter proves that an io.Writer does not get a second result behind
// the beginning of the first.
func TestClientWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		s := &site{}
		s.cfg = Config{Grace: -1, Handler: HandlerFunc(func(_ context.Context, req *Request) (any, error) {
			if n := calls.Add(1); n > 1 {
				return n, nil
			}
			hangUp := func() { go s.hangUp(); time.Sleep(time.Minute) }
			if req.Method() == "at once" {
				hangUp()
			}
			return io.MultiReader(strings.NewReader(`"`+strings.Repeat("x", 2*maxReadBufferSize)), readerFunc(hangUp)), nil
		})}
		cl := NewClient(s.dial, ClientConfig{})
		var got strings.Builder
		if err := cl.Call(t.Context(), "later", nil, &got, Idempotent()); !errors.Is(err, ErrClosed) || calls.Load() != 1 || got.Len() < maxReadBufferSize {
			t.Errorf("%v, %d calls, %d bytes", err, calls.Load(), got.Len())
		}
		calls.Store(0)
		got.Reset()
		if err := cl.Call(t.Context(), "at once", nil, &got, Idempotent()); err != nil || got.String() != "2" {
			t.Errorf("%v, %.20q", err, got.String())
		}
		cl.Close()
		for _, peer := range s.peers {
			peer.Close()
		}
	})
}

// TestClientTimeouts proves that the time of a call includes that of waiting
// for a connection, and of being made again.
func TestClientTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{cfg: Config{Grace: -1, Handler: HandlerFunc(func(ctx context.Context, _ *Request) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})}}
		slow := func(ctx context.Context) (Stream, error) {
			time.Sleep(900 * time.Millisecond)
			return s.dial(ctx)
		}
		never := func(ctx context.Context) (Stream, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		for name, tt := range map[string]struct {
			dial     func(context.Context) (Stream, error)
			deadline time.Duration
			cfg      Config
			opts     []CallOption
			want     time.Duration
		}{
			"waiting, WithTimeout":         {never, 0, Config{}, []CallOption{WithTimeout(time.Second)}, time.Second},
			"waiting, deadline beside it":  {never, time.Hour, Config{}, []CallOption{WithTimeout(time.Second)}, time.Second},
			"waiting, Config":              {never, 0, Config{Timeout: 3 * time.Second}, nil, 3 * time.Second},
			"waiting, deadline instead":    {never, time.Hour, Config{Timeout: 3 * time.Second}, nil, time.Hour},
			"after waiting, WithTimeout":   {slow, 0, Config{}, []CallOption{WithTimeout(time.Second)}, time.Second},
			"after waiting, Config":        {slow, 0, Config{Timeout: 2 * time.Second}, nil, 2 * time.Second},
			"after waiting, only contexts": {slow, time.Hour, Config{Timeout: 2 * time.Second}, []CallOption{WithTimeout(-1)}, time.Hour},
		} {
			cl := NewClient(tt.dial, ClientConfig{Config: tt.cfg, MaxDials: -1})
			ctx := t.Context()
			if tt.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tt.deadline)
				defer cancel()
			}
			start := time.Now()
			err := cl.Call(ctx, "m", nil, nil, tt.opts...)
			if !errors.Is(err, ErrTimeout) || time.Since(start) != tt.want {
				t.Errorf("%s: %v after %v, want %v", name, err, time.Since(start), tt.want)
			}
			call, _ := errors.AsType[*CallError](err)
			if late, ok := errors.AsType[*TimeoutError](err); !ok || call.Elapsed != tt.want || late.After != tt.want {
				t.Errorf("%s: %v, want the time of all of the call: %v", name, err, tt.want)
			}
			cl.Close()
		}
		dials := 0
		cl := NewClient(func(ctx context.Context) (Stream, error) {
			if dials++; dials > 1 {
				return never(ctx)
			}
			near, far := Pipe()
			time.AfterFunc(400*time.Millisecond, func() { far.Close() })
			return near, nil
		}, ClientConfig{})
		err := cl.Call(t.Context(), "m", nil, nil, Idempotent(), WithTimeout(time.Second))
		if late, ok := errors.AsType[*TimeoutError](err); !ok || late.After != time.Second || !strings.Contains(err.Error(), "no answer within 1s; ") {
			t.Errorf("waiting for the second time: %v", err) // the first peer may have got it
		}
		cl.Close()
		for _, peer := range s.peers {
			peer.Close()
		}
	})
}

// TestClientDialTimeout proves that dialing ends with ClientConfig.DialTimeout and
// is tried again, whatever it returns then, and that a Stream that comes too late
// is closed.
func TestClientDialTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen states
		start := time.Now()
		var dials []time.Duration
		var late Stream
		dial := func(ctx context.Context) (Stream, error) {
			dials = append(dials, time.Since(start))
			<-ctx.Done()
			if len(dials) == 1 {
				return nil, ctx.Err()
			}
			near, far := Pipe()
			late = far
			return near, nil
		}
		cl := NewClient(dial, ClientConfig{Config: Config{Hooks: Hooks{StateChange: seen.add}}, DialTimeout: time.Second, MinBackoff: time.Second, Random: noJitter})
		time.Sleep(3500 * time.Millisecond)
		synctest.Wait()
		if len(dials) != 2 || dials[1] != 2*time.Second {
			t.Error(dials)
		}
		if _, err := late.Read(); !errors.Is(err, io.EOF) {
			t.Errorf("the Stream that came late: %v", err)
		}
		cl.Close()
		timeout := "jsonrpc: no answer within 1s: context canceled"
		seen.check(t, "connecting disconnected "+timeout, "disconnected connecting "+timeout,
			"connecting disconnected "+timeout, "disconnected connecting "+timeout,
			"connecting closing jsonrpc: connection closed", "closing disconnected jsonrpc: connection closed")
	})
}

// TestClientWaitAdvice proves that a call that ran out of time while there was no
// connection does not advise what the Client knows to be of no use (RPC-22).
func TestClientWaitAdvice(t *testing.T) {
	for name, tt := range map[string]struct {
		down error
		want Advice
		took time.Duration
	}{
		"refused": {syscall.ECONNREFUSED, AdviceReconnect, time.Second},
		"unknown": {errors.New("something"), AdviceReconnect, time.Second}, // it goes on trying
		"denied":  {verdictError(false), AdviceGiveUp, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &site{down: tt.down}
			cl := NewClient(s.dial, ClientConfig{Config: Config{Timeout: time.Second}})
			defer cl.Close()
			start := time.Now()
			err := cl.Call(t.Context(), "m", nil, nil)
			if took := time.Since(start); AdviceFor(err) != tt.want || !errors.Is(err, tt.down) || took != tt.took {
				t.Errorf("%s: %v after %v, advice %v", name, err, took, AdviceFor(err))
			}
			if tt.want == AdviceGiveUp && (len(s.dials) != 1 || cl.State() != StateDisconnected) {
				t.Errorf("%s: %d dials, %v", name, len(s.dials), cl.State())
			}
		})
	}
	// The Client has not given up yet, but is about to.
	cl := &Client{cfg: ClientConfig{Config: Config{Name: "cl"}}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for cause, want := range map[error]bool{syscall.ECONNREFUSED: true, verdictError(false): false} {
		ended, ok := errors.AsType[*ConnError](cl.tooLate(ctx, cause, time.Now(), false))
		if !ok || ended.Recoverable != want {
			t.Errorf("%v: %v, want Recoverable %v", cause, ended, want)
		}
	}
}
