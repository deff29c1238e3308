package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A door is a listener that gives out what a test puts in: connections and errors.
type door struct {
	come chan any
	once sync.Once
	shut chan struct{}
}

func newDoor() *door { return &door{come: make(chan any), shut: make(chan struct{})} }

func (d *door) Accept() (net.Conn, error) {
	select {
	case v := <-d.come:
		if err, ok := v.(error); ok {
			return nil, err
		}
		return v.(net.Conn), nil
	case <-d.shut:
		return nil, net.ErrClosed
	}
}

func (d *door) Close() error { d.once.Do(func() { close(d.shut) }); return nil }

func (*door) Addr() net.Addr { return &net.UnixAddr{Name: "door", Net: "unix"} }

// A guarded connection has a handshake, which takes a time or fails.
type guarded struct {
	net.Conn
	takes time.Duration
	err   error
}

func (g *guarded) HandshakeContext(ctx context.Context) error {
	select {
	case <-time.After(g.takes):
		return g.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// atDoor serves what comes to a door with room for one, in a bubble.
func atDoor(t *testing.T, handle func(Stream), f func(t *testing.T, d *door)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d, served := newDoor(), make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { served <- Serve(ctx, d, ServeConfig{MaxConns: 1}, handle) }()
		f(t, d)
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// TestServeFailedAccept proves that errors of Accept cost a pause and no place.
func TestServeFailedAccept(t *testing.T) {
	handled := 0
	atDoor(t, func(Stream) { handled++ }, func(t *testing.T, d *door) {
		for i := range 3 {
			start := time.Now()
			d.come <- errors.New("no descriptor left")
			near, far := net.Pipe()
			d.come <- near
			if took := time.Since(start); took != 2*acceptPause {
				t.Errorf("the next one was accepted after %v", took)
			}
			if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("connection %d is open behind its handler: %v", i, err)
			}
		}
		synctest.Wait()
		if handled != 3 {
			t.Errorf("%d connections were handled", handled)
		}
	})
}

// TestServeDrain: with Drain the Streams stay open when ctx ends, until their
// handle returns, and are closed when the listener ends by itself.
func TestServeDrain(t *testing.T) {
	for _, tt := range []struct {
		drain, closed bool
		want          string // what the peer reads
	}{{true, false, "last\n"}, {false, false, ""}, {true, true, ""}} {
		synctest.Test(t, func(t *testing.T) {
			d, served := newDoor(), make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				served <- Serve(ctx, d, ServeConfig{Drain: tt.drain}, func(s Stream) {
					if tt.closed {
						_, _ = s.Read() // nothing but the end of s tells that it is over
						return
					}
					<-ctx.Done()
					time.Sleep(time.Second)
					_, _ = s.Write([]byte("last\n"))
				})
			}()
			near, far := net.Pipe()
			d.come <- near
			synctest.Wait()
			if tt.closed {
				_ = d.Close()
			} else {
				cancel()
			}
			if got, err := io.ReadAll(far); string(got) != tt.want {
				t.Errorf("%+v: the peer got %q, %v", tt, got, err)
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
}

// A halfConn is a connection whose directions end one by one, and which tells when.
type halfConn struct {
	net.Conn
	began time.Time
	ends  chan string
	err   error
}

func (c *halfConn) CloseWrite() error { c.end("write"); return c.err }
func (c *halfConn) Close() error      { c.end("all"); return c.Conn.Close() }

func (c *halfConn) end(what string) { c.ends <- fmt.Sprint(what, " after ", time.Since(c.began)) }

// TestServeGentle proves that with Drain a Stream that is closed ends its own direction
// first, and takes what the peer sends until that closes, for a second at most, since a
// socket that is closed meanwhile loses the last answers (RPC-14).
func TestServeGentle(t *testing.T) {
	for _, tt := range []struct {
		drain bool
		err   error         // of CloseWrite
		peer  time.Duration // goes on sending for so long
		want  string
	}{
		{true, nil, 300 * time.Millisecond, "write after 0s, all after 300ms"},
		{true, nil, time.Hour, "write after 0s, all after 1s"},
		{true, errors.New("not connected"), time.Hour, "write after 0s, all after 0s"},
		{false, nil, time.Hour, "all after 0s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newDoor()
			ctx, cancel := context.WithCancel(t.Context())
			near, far := net.Pipe()
			c := &halfConn{Conn: near, began: time.Now(), ends: make(chan string, 9), err: tt.err}
			var peer sync.WaitGroup
			peer.Go(func() {
				defer far.Close()
				for time.Since(c.began) < tt.peer {
					if _, err := io.WriteString(far, "{}\n"); err != nil {
						return
					}
					time.Sleep(time.Millisecond)
				}
			})
			go func() { d.come <- c }()
			if err := Serve(ctx, d, ServeConfig{Drain: tt.drain}, func(Stream) { cancel() }); err != nil {
				t.Error(err)
			}
			peer.Wait()
			close(c.ends)
			var got []string
			for end := range c.ends {
				got = append(got, end)
			}
			got = slices.Compact(got) // without Drain both ctx and the end of handle close it
			if strings.Join(got, ", ") != tt.want {
				t.Errorf("%+v: %s", tt, got)
			}
		})
	}
}

// TestServeHandshake proves that a connection is handled when its handshake is done,
// and is closed when that fails or takes more than 10 seconds; others wait so long.
func TestServeHandshake(t *testing.T) {
	var handled []time.Duration
	var start time.Time
	atDoor(t, func(Stream) { handled = append(handled, time.Since(start)) }, func(t *testing.T, d *door) {
		start = time.Now()
		for _, tt := range []struct {
			guarded
			took time.Duration
		}{
			{guarded{takes: time.Second}, time.Second},
			{guarded{takes: time.Second, err: errors.New("no TLS")}, time.Second},
			{guarded{takes: time.Hour}, handshakeTimeout},
			{guarded{takes: 9 * time.Second}, 9 * time.Second},
		} {
			begin := time.Now()
			near, far := net.Pipe()
			tt.Conn = near
			d.come <- &tt.guarded
			if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || time.Since(begin) != tt.took {
				t.Errorf("%+v: %v after %v", tt, err, time.Since(begin))
			}
		}
		synctest.Wait()
		if len(handled) != 2 || handled[0] != time.Second || handled[1] != 21*time.Second {
			t.Errorf("handled after %v", handled)
		}
	})
}

// TestConfigDefaults proves that limits which make no sense, or would make ids of two
// calls the same, are replaced by such as do; and that nothing that was said is.
func TestConfigDefaults(t *testing.T) {
	cfg := Config{}.withDefaults()
	if cfg.Name == "" || cfg.Name == (Config{}).withDefaults().Name {
		t.Errorf("the name is %q", cfg.Name) // one time in 2^32
	}
	if cfg.Timeout != 30*time.Second || cfg.MaxPending != 4096 || cfg.MaxHandlers != 1024 || cfg.MaxMessage != 1<<20 || cfg.MaxDepth != 128 ||
		cfg.MaxBatch != 1000 || cfg.WriteBuffer != 128<<10 || cfg.StallTimeout != 30*time.Second || cfg.Grace != 5*time.Second || cfg.Codec == nil {
		t.Errorf("%+v", cfg)
	}
	for in, want := range map[int]int{-1: 1, 1: 1, 65536: 65536, 65537: 65536} {
		if cfg := (Config{MaxPending: in}).withDefaults(); cfg.MaxPending != want {
			t.Errorf("MaxPending %d becomes %d, want %d", in, cfg.MaxPending, want)
		}
	}
	if cfg := (Config{MaxHandlers: -1}).withDefaults(); cfg.MaxHandlers != 1 {
		t.Errorf("MaxHandlers -1 becomes %d", cfg.MaxHandlers)
	}
	codec := LenientCodec()
	said := Config{Name: "n", Timeout: -1, MaxMessage: 5, MaxDepth: 6, MaxBatch: 7, WriteBuffer: 8, StallTimeout: -1, Grace: -1, Codec: codec}.withDefaults()
	if said.Name != "n" || said.Timeout != -1 || said.MaxMessage != 5 || said.MaxDepth != 6 || said.MaxBatch != 7 || said.WriteBuffer != 8 ||
		said.StallTimeout != -1 || said.Grace != -1 || said.Codec != codec {
		t.Errorf("%+v", said)
	}
}

// TestStatesOneAtATime proves that the hook is told of changes one at a time and in
// order, also of one that happens while it is being told of another (RPC-26).
func TestStatesOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []State
		telling := false
		var box stateBox
		box.tell = func(change StateChange) {
			if telling {
				t.Error("told while it is being told")
			}
			telling = true
			time.Sleep(time.Second)
			seen = append(seen, change.To)
			telling = false
		}
		always := func(State) bool { return true }
		go box.set(StateConnected, nil, always)
		synctest.Wait()
		box.set(StateClosing, nil, always)
		box.set(StateDisconnected, nil, always)
		if got := box.get(); got != StateDisconnected {
			t.Error(got)
		}
		time.Sleep(time.Minute)
		box.set(StateConnecting, nil, always)
		if len(seen) != 4 || seen[0] != StateConnected || seen[1] != StateClosing || seen[2] != StateDisconnected || seen[3] != StateConnecting {
			t.Error(seen)
		}
	})
}

// TestCloseGently proves that the answers of an end that closes arrive though its peer
// still sends, and that they are waited for a second, and not when there are none
// (RPC-14).
func TestCloseGently(t *testing.T) {
	mux := new(Mux)
	mux.Register("n", HandlerFunc(echo))
	mux.RegisterStreaming("m", HandlerFunc(func(_ context.Context, req *Request) (any, error) {
		return io.Copy(io.Discard, req.ParamsReader())
	}))
	for name, framing := range map[string]Framing{"lines": NewLineStream, "headers": NewHeaderStream} {
		for _, params := range []string{"", "1", strings.Repeat("1,", maxReadBufferSize) + "1"} { // no call; its params are there; they are streamed
			asks := params != ""
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				half := &halfConn{Conn: near, began: time.Now(), ends: make(chan string, 9)}
				c := NewConn(framing(half), Config{Handler: mux})
				peer := NewConn(framing(far), Config{})
				if asks {
					if err := peer.Call(t.Context(), "m", json.RawMessage("["+params+"]"), nil); err != nil {
						t.Error(err)
					}
				}
				go func() {
					for peer.Notify(t.Context(), "n", nil) == nil {
						time.Sleep(time.Millisecond)
					}
				}()
				synctest.Wait()
				c.Close()
				peer.Close()
				time.Sleep(time.Millisecond)
				close(half.ends)
				var got []string
				for end := range half.ends {
					got = append(got, end)
				}
				want := []string{"write after 0s", "all after 1s", "all after 1s"} // it is closed after the wait, too
				if !asks {
					want = []string{"all after 0s"}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s, %d bytes of params: %s", name, len(params), got)
				}
			})
		}
	}
}
