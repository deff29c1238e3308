package rpchttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
)

var (
	worldSeed  = flag.Uint64("rpchttp.seed", 1, "the first seed of TestWorlds")
	worldCount = flag.Uint64("rpchttp.worlds", 30, "how many seeds TestWorlds tries")
)

// A pipeNet is a network in memory whose connections break at random.
type pipeNet struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once

	mu    sync.Mutex
	rnd   *rand.Rand
	cuts  int // that are still to come
	sound bool
}

func (n *pipeNet) Accept() (net.Conn, error) {
	select {
	case c := <-n.accept:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *pipeNet) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

func (n *pipeNet) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

func (n *pipeNet) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case n.accept <- far:
		return &brittle{Conn: near, net: n, left: n.life()}, nil
	case <-n.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// life is how many bytes a new connection carries; 0: any number.
func (n *pipeNet) life() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sound || n.cuts == 0 || n.rnd.IntN(3) == 0 {
		return 0
	}
	n.cuts--
	return 1 + n.rnd.IntN(1<<(6+n.rnd.IntN(12)))
}

// A brittle connection breaks after so many bytes.
type brittle struct {
	net.Conn
	net  *pipeNet
	mu   sync.Mutex
	left int
}

func (n *pipeNet) isSound() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sound
}

// take says how many of n bytes go through, and whether the connection breaks then.
func (b *brittle) take(n int) (int, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left == 0 || b.net.isSound() {
		return n, false
	}
	if n < b.left {
		b.left -= n
		return n, false
	}
	return b.left, true
}

func (b *brittle) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	if k, broken := b.take(n); broken {
		b.Close()
		return k, errors.New("reset")
	}
	return n, err
}

func (b *brittle) Write(p []byte) (int, error) {
	k, broken := b.take(len(p))
	n, err := b.Conn.Write(p[:k])
	if broken {
		b.Close()
		return n, errors.New("reset")
	}
	return n, err
}

// A restarting server is one Server after the other: what the one before knew is lost.
type restarting struct {
	config rpchttp.ServerConfig
	now    atomic.Pointer[rpchttp.Server]
}

func (r *restarting) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.now.Load().ServeHTTP(w, req)
}

func (r *restarting) restart() {
	if old := r.now.Swap(rpchttp.Handler(r.config)); old != nil {
		old.Close()
	}
}

func (r *restarting) close() { r.now.Load().Close() }

// A caller is a Conn or a Client.
type caller interface {
	Call(ctx context.Context, method string, params, result any, opts ...jsonrpc.CallOption) error
	Notify(ctx context.Context, method string, params any) error
	Batch(ctx context.Context, b *jsonrpc.Batch, opts ...jsonrpc.CallOption) error
	State() jsonrpc.State
}

// A world is a client and a server that call each other.
type world struct {
	t     *testing.T
	plain atomic.Bool // what is asked is small, and answered at once

	mu      sync.Mutex
	rnd     *rand.Rand
	next    int
	handled map[string]int // by the token of the call
}

func (w *world) intn(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rnd.IntN(n)
}

func (w *world) token() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	return fmt.Sprintf("token %d", w.next)
}

// An ask are the params of all methods: what is answered, and what is done before.
type ask struct {
	Token string        `json:"token"`
	Fill  string        `json:"fill,omitempty"`
	Depth int           `json:"depth,omitempty"` // so many calls there and back are made for the answer
	Wait  time.Duration `json:"wait,omitempty"`
}

// handler handles what the peer asks; back gives the connection on which it can be asked.
func (w *world) handler(back func(context.Context) caller) jsonrpc.Handler {
	return jsonrpc.HandlerFunc(func(ctx context.Context, req *jsonrpc.Request) (any, error) {
		var a ask
		if err := json.Unmarshal(req.Params(), &a); err != nil {
			return nil, err
		}
		w.mu.Lock()
		w.handled[a.Token]++
		w.mu.Unlock()
		if req.Method() == "stream" {
			text, err := json.Marshal(a)
			return bytes.NewReader(text), err
		}
		if a.Wait > 0 {
			select {
			case <-time.After(a.Wait):
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		if a.Depth > 0 {
			conn := back(ctx)
			if conn == nil {
				return nil, errors.New("no connection back")
			}
			if err := w.call(ctx, conn, a.Depth-1); err != nil {
				return nil, err
			}
		}
		return a, nil
	})
}

// quick declares one method inline.
type quick struct{ jsonrpc.Handler }

func (quick) Inline(method []byte) bool { return string(method) == "quick" }

// call makes one call, and says what became of it. A foreign answer fails the test.
func (w *world) call(ctx context.Context, conn caller, depth int) error {
	a := w.ask(depth)
	var got ask
	var opts []jsonrpc.CallOption
	many := w.intn(4) == 0
	if many {
		opts = append(opts, jsonrpc.Idempotent())
	}
	method, text, result := "ask", new(bytes.Buffer), any(&got)
	if depth == 0 && w.intn(3) == 0 {
		method, a.Wait = "quick", 0
	} else if w.intn(4) == 0 {
		method, a.Wait, a.Depth = "stream", 0, 0
	}
	if w.intn(5) == 0 {
		result = text
	}
	err := conn.Call(ctx, method, a, result, opts...)
	if err == nil && result == any(text) {
		if err := json.Unmarshal(text.Bytes(), &got); err != nil {
			w.t.Errorf("the text of an answer: %v", err)
		}
	}
	if err == nil && got != a {
		w.t.Errorf("the answer to %s is %s", a.Token, got.Token)
	}
	w.once(a.Token, many, err)
	return err
}

func (w *world) ask(depth int) ask {
	a := ask{Token: w.token(), Depth: depth}
	if w.plain.Load() {
		return a
	}
	if w.intn(4) == 0 {
		a.Fill = strings.Repeat("x", w.intn(1<<w.intn(19)))
	}
	if w.intn(3) == 0 {
		a.Wait = time.Duration(w.intn(3000)) * time.Millisecond
	}
	return a
}

// once checks that the call was handled once, or, if it failed, at most once, unless it may be
// repeated; not at all if it was not sent.
func (w *world) once(token string, many bool, err error) {
	w.mu.Lock()
	n := w.handled[token]
	w.mu.Unlock()
	call, ok := errors.AsType[*jsonrpc.CallError](err)
	switch {
	case err != nil && !ok:
		w.t.Errorf("%s: %v is no CallError", token, err)
	case !many && n > 1, err == nil && n < 1, ok && !call.Sent && n > 0:
		w.t.Errorf("%s was handled %d times: %v", token, n, err)
	}
}

// act does one thing.
func (w *world) act(ctx context.Context, conn caller) {
	if w.intn(4) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(w.intn(2000))*time.Millisecond)
		defer cancel()
	}
	switch w.intn(6) {
	case 0:
		a := w.ask(0)
		err := conn.Notify(ctx, "note", a)
		if w.mu.Lock(); w.handled[a.Token] > 1 {
			w.t.Errorf("%s was handled %d times", a.Token, w.handled[a.Token])
		}
		w.mu.Unlock()
		_ = err
	case 1:
		b := new(jsonrpc.Batch)
		asks, got := make([]ask, 1+w.intn(5)), make([]ask, 5)
		entries := make([]*jsonrpc.BatchCall, len(asks))
		for i := range asks {
			asks[i] = w.ask(w.intn(2))
			entries[i] = b.Call("ask", asks[i], &got[i])
		}
		_ = conn.Batch(ctx, b)
		for i, a := range asks {
			if err := entries[i].Err(); err == nil && got[i] != a {
				w.t.Errorf("the answer to %s is %s", a.Token, got[i].Token)
			}
			w.once(a.Token, false, entries[i].Err())
		}
	default:
		_ = w.call(ctx, conn, w.intn(4))
	}
}

// TestWorlds: over connections that break at random, with queues that are full and callers that
// give up, each call ends once, with its own answer or an error that says why; it is handled
// once at most; and once the network is sound everything works again, unless the Conn has
// ended. Nothing hangs, and nothing is left.
func TestWorlds(t *testing.T) {
	for seed := *worldSeed; seed < *worldSeed+*worldCount; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { oneWorld(t, seed) })
		})
	}
}

func oneWorld(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	w := &world{t: t, rnd: rnd, handled: make(map[string]int)}
	pick := func(of ...int) int { return of[rnd.IntN(len(of))] }
	network := &pipeNet{accept: make(chan net.Conn), closed: make(chan struct{}), rnd: rand.New(rand.NewPCG(seed, 1)), cuts: pick(0, 0, 3, 30)}
	cancel := []jsonrpc.CancelStyle{jsonrpc.CancelSilent, jsonrpc.LSPCancel, jsonrpc.MCPCancel}[rnd.IntN(3)]
	most := pick(0, 0, 0, 5000)
	serverConfig := rpchttp.ServerConfig{
		Config: jsonrpc.Config{MaxMessage: most, Cancel: cancel, MaxHandlers: pick(0, 3, 50), WriteBuffer: pick(0, 1, 1000), Handler: quick{w.handler(func(ctx context.Context) caller {
			if s, ok := rpchttp.SessionFrom(ctx); ok {
				return s.Conn()
			}
			return nil
		})}},
		Sessions: &rpchttp.SessionConfig{
			Backlog: pick(0, 1000, 100_000), Max: pick(0, 0, 1), Idle: time.Duration(pick(0, 0, 100)) * time.Millisecond,
		},
	}
	h := &restarting{config: serverConfig}
	h.restart()
	protocols := new(http.Protocols)
	if rnd.IntN(3) == 0 {
		protocols.SetUnencryptedHTTP2(true)
	} else {
		protocols.SetHTTP1(true)
	}
	srv := &http.Server{Handler: h, Protocols: protocols}
	served := make(chan error)
	go func() { served <- srv.Serve(network) }()
	transport := &http.Transport{DialContext: network.dial, MaxIdleConnsPerHost: 10, Protocols: protocols}
	clientConfig := rpchttp.ClientConfig{
		Client:      &http.Client{Transport: transport},
		MaxInFlight: pick(0, 1, 2, 5), MaxQueue: pick(0, 1, 1000, 100_000), MaxReconnects: -1,
		MaxMessage: most, Timeout: time.Duration(pick(0, 0, -1, 1)) * time.Second,
		Cancel: cancel, WayBack: rpchttp.WayBackAtOnce, WayBackIdle: time.Duration(pick(0, 0, 20)) * time.Second,
	}
	dial := func(context.Context) (jsonrpc.Stream, error) {
		return rpchttp.NewStream("http://127.0.0.1/", clientConfig)
	}
	var conn caller
	ready := make(chan struct{})
	connConfig := jsonrpc.Config{
		MaxMessage: most, Cancel: cancel, WriteBuffer: pick(0, 1, 1000), MaxHandlers: pick(0, 3, 50),
		Handler: quick{w.handler(func(context.Context) caller { <-ready; return conn })},
	}
	left := func() bool { return false }
	var end func() error
	again := rnd.IntN(2) == 0
	if again {
		client := jsonrpc.NewClient(dial, jsonrpc.ClientConfig{Config: connConfig, MaxDials: -1})
		conn, end = client, client.Close
	} else {
		st, err := dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c := jsonrpc.NewConn(st, connConfig)
		conn, end = c, c.Close
		left = func() bool { return c.Stats().Pending+c.Stats().Handling > 0 }
	}
	close(ready)
	restarts := pick(0, 0, 1, 3) // before others use the same source
	var callers sync.WaitGroup
	for range 1 + rnd.IntN(12) {
		callers.Go(func() {
			for range 1 + w.intn(12) {
				w.act(t.Context(), conn)
			}
		})
	}
	for range restarts {
		callers.Go(func() {
			time.Sleep(time.Duration(w.intn(5000)) * time.Millisecond)
			h.restart()
		})
	}
	callers.Wait()
	network.mu.Lock()
	network.sound = true
	network.mu.Unlock()
	time.Sleep(2 * time.Hour) // all that was under way has ended, one after the other perhaps
	w.plain.Store(true)
	if conn.State() == jsonrpc.StateConnected {
		// One call there and one back; more would want more calls in flight.
		if err := w.call(t.Context(), conn, 1); err != nil {
			t.Errorf("when all is sound again: %v", err)
		}
	} else if again {
		t.Error("the Client has not come back")
	}
	if left() {
		t.Error("something is under way")
	}
	end()
	h.close()
	srv.Close()
	<-served
	transport.CloseIdleConnections()
	time.Sleep(time.Minute)
}
