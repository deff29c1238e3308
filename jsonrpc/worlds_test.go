package jsonrpc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcws"
)

var (
	worldsSeed = flag.Uint64("worlds.seed", 0, "seed of the first world; 0 draws one")
	worldsMany = flag.Int("worlds.many", 0, "worlds of each kind of Stream; 0 is a small number, for every day")
)

const (
	everyDay   = 2
	worldLimit = 3 * time.Minute // of one call: what takes longer hangs
	maxMessage = 1 << 20
)

// TestWorlds has the two ends of a connection, over each kind of Stream, call each other,
// call back from handlers, notify, send batches, stream, cancel and close at random. Every
// call ends once, with its own answer or an error of a known type; a handler runs at
// most once for it, not at all where the caller is told so, and nothing is left (RPC-7,
// RPC-8, RPC-10, RPC-14, RPC-15, RPC-19, RPC-24).
func TestWorlds(t *testing.T) {
	seed, many := *worldsSeed, *worldsMany
	if seed == 0 {
		seed = rand.Uint64()
	}
	if many == 0 {
		many = everyDay
	}
	for name, connect := range worldKinds() {
		t.Run(name, func(t *testing.T) {
			for i := range uint64(many) {
				before := runtime.NumGoroutine()
				w := newWorld(t, seed+i)
				w.run(connect)
				noneLeft(t, before)
				if t.Failed() {
					t.Fatalf("-worlds.seed=%d: %+v", seed+i, w.config)
				}
			}
		})
	}
}

// noneLeft waits until there are no more goroutines than before.
func noneLeft(t *testing.T, before int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(end) {
			var stacks strings.Builder
			_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
			t.Errorf("%d goroutines left, %d before:\n%s", runtime.NumGoroutine(), before, &stacks)
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// A worldKind makes the Streams of the two ends, and what ends the network between.
type worldKind func(t *testing.T, rng *rand.Rand) (ends [2]jsonrpc.Stream, stop func())

func worldKinds() map[string]worldKind {
	return map[string]worldKind{
		"Pipe": func(*testing.T, *rand.Rand) ([2]jsonrpc.Stream, func()) {
			a, b := jsonrpc.Pipe()
			return [2]jsonrpc.Stream{a, b}, func() {}
		},
		"net.Pipe": func(_ *testing.T, rng *rand.Rand) ([2]jsonrpc.Stream, func()) {
			a, b := net.Pipe()
			return framed(rng, chopped{a, 4000 + rng.IntN(100_000)}, chopped{b, 4000 + rng.IntN(100_000)}), func() {}
		},
		"tcp": func(t *testing.T, rng *rand.Rand) ([2]jsonrpc.Stream, func()) {
			a, b := socketPair(t, "tcp", "127.0.0.1:0")
			return framed(rng, a, b), func() {}
		},
		"unix": func(t *testing.T, rng *rand.Rand) ([2]jsonrpc.Stream, func()) {
			a, b := socketPair(t, "unix", filepath.Join(t.TempDir(), "s"))
			return framed(rng, a, b), func() {}
		},
		"ws":  func(t *testing.T, rng *rand.Rand) ([2]jsonrpc.Stream, func()) { return webPair(t, rng, false) },
		"wss": func(t *testing.T, rng *rand.Rand) ([2]jsonrpc.Stream, func()) { return webPair(t, rng, true) },
	}
}

// framed makes Streams with one of the two framings.
func framed(rng *rand.Rand, a, b io.ReadWriteCloser) [2]jsonrpc.Stream {
	framing := jsonrpc.NewLineStream
	if rng.IntN(3) == 0 {
		framing = jsonrpc.NewHeaderStream
	}
	return [2]jsonrpc.Stream{framing(a), framing(b)}
}

// chopped reads at most so many bytes at once.
type chopped struct {
	net.Conn
	most int
}

func (c chopped) Read(p []byte) (int, error) { return c.Conn.Read(p[:min(len(p), c.most)]) }

func socketPair(t *testing.T, network, address string) (a, b net.Conn) {
	t.Helper()
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if a, err = net.Dial(network, ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func webPair(t *testing.T, rng *rand.Rand, secure bool) ([2]jsonrpc.Stream, func()) {
	t.Helper()
	accepted, packed := make(chan jsonrpc.Stream, 1), rng.IntN(3) == 0
	handler := rpcws.Handler(rpcws.AcceptConfig{Compression: packed}, func(ctx context.Context, s jsonrpc.Stream) {
		accepted <- s
		<-ctx.Done()
	})
	server := httptest.NewUnstartedServer(handler)
	cfg := rpcws.DialConfig{Compression: packed}
	if secure {
		server.StartTLS()
		cfg.TLS = server.Client().Transport.(*http.Transport).TLSClientConfig
	} else {
		server.Start()
	}
	client, err := rpcws.Dial(t.Context(), "ws"+strings.TrimPrefix(server.URL, "http"), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return [2]jsonrpc.Stream{client, <-accepted}, func() {
		handler.Close()
		server.Close()
	}
}

// A worldConfig is what was drawn for a world.
type worldConfig struct {
	seed     uint64
	conn     jsonrpc.Config
	workers  [2]int
	steps    int // of each worker
	closes   bool
	closer   int
	after    time.Duration // to the close
	shutdown bool
	kills    bool // the Stream is closed, and not the Conn
	lone     bool // the left end only calls
	reads    bool // and its callers read, where they can
	calm     bool // nothing is cancelled and no limit reached: every call succeeds
}

// A world is two connected ends.
type world struct {
	t      *testing.T
	config worldConfig
	ends   [2]*jsonrpc.Conn
	keys   atomic.Int64
	ending atomic.Bool

	mu       sync.Mutex
	runs     map[string]int // of handlers, by the key of the call
	unsent   []string       // keys of calls that were certainly not begun
	notified map[string]bool
}

func newWorld(t *testing.T, seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 1))
	c := worldConfig{
		seed:    seed,
		workers: [2]int{pick(rng, 0, 1, 1, 4, 12), pick(rng, 0, 1, 4, 12)},
		steps:   pick(rng, 3, 10, 20),
		closes:  rng.IntN(2) == 0, closer: rng.IntN(2), shutdown: rng.IntN(3) == 0, kills: rng.IntN(4) == 0, lone: rng.IntN(3) == 0, reads: rng.IntN(2) == 0,
		after: time.Duration(rng.IntN(pick(rng, 1000, 20_000, 100_000))) * time.Microsecond,
		calm:  rng.IntN(2) == 0,
		conn: jsonrpc.Config{
			Timeout:     -1,
			MaxPending:  pick(rng, 1, 4, 4096, 4096),
			MaxHandlers: pick(rng, 1, 4, 1024, 1024),
			WriteBuffer: pick(rng, 1, 1000, 64<<10, 128<<10),
			Cancel:      pick(rng, jsonrpc.CancelSilent, jsonrpc.LSPCancel, jsonrpc.MCPCancel),
			IDs:         pick(rng, jsonrpc.IntegerIDs, jsonrpc.UUIDs),
			Grace:       pick(rng, -1, time.Millisecond, 50*time.Millisecond, time.Second),
			TrustRaw:    rng.IntN(4) == 0,
		},
	}
	if c.lone {
		c.workers[1] = 0
	}
	if c.workers[0]+c.workers[1] == 0 {
		c.workers[0] = 1
	}
	if c.workers[0]+c.workers[1] == 1 {
		c.steps *= 10 // until callers read for themselves
	}
	if c.calm {
		c.closes = false
		c.conn.MaxPending, c.conn.MaxHandlers = 4096, 1024
	}
	return &world{t: t, config: c, runs: make(map[string]int), notified: make(map[string]bool)}
}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

func (w *world) run(connect worldKind) {
	streams, stop := connect(w.t, rand.New(rand.NewPCG(w.config.seed, 2)))
	defer stop()
	for i, s := range streams {
		cfg := w.config.conn
		cfg.Name = []string{"left", "right"}[i]
		cfg.Handler = w.handler()
		if _, able := s.(interface{ SetReadDeadline(time.Time) error }); i == 0 && w.config.lone && w.config.reads {
			cfg.Handler, cfg.CallerReads = nil, able
		}
		w.ends[i] = jsonrpc.NewConn(s, cfg)
	}
	var working sync.WaitGroup
	for end, n := range w.config.workers {
		for k := range n {
			working.Go(func() {
				rng := rand.New(rand.NewPCG(w.config.seed, uint64(3+1000*end+k)))
				for range w.config.steps {
					w.step(w.ends[end], rng)
				}
			})
		}
	}
	if w.config.closes {
		time.Sleep(w.config.after)
		if w.config.kills {
			w.ending.Store(true)
			_ = streams[w.config.closer].Close()
		} else {
			w.close(w.ends[w.config.closer])
		}
	}
	working.Wait()
	if !w.config.closes {
		w.barrier(w.ends[0])
		if !w.config.lone {
			w.barrier(w.ends[1])
		}
	}
	var closing sync.WaitGroup
	for _, c := range w.ends {
		closing.Go(func() { w.close(c) })
	}
	closing.Wait()
	w.check()
}

// close ends a connection, by way of Shutdown in some worlds.
func (w *world) close(c *jsonrpc.Conn) {
	w.ending.Store(true)
	ended := time.AfterFunc(worldLimit, func() { panic("Close hangs") })
	defer ended.Stop()
	if w.config.shutdown {
		ctx, cancel := context.WithTimeout(context.Background(), w.config.after)
		defer cancel()
		_ = c.Shutdown(ctx)
		return
	}
	_ = c.Close()
}

// barrier waits until the peer has begun with everything that was sent before.
func (w *world) barrier(c *jsonrpc.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), worldLimit)
	defer cancel()
	for {
		err := c.Call(ctx, "barrier", nil, nil)
		if err == nil {
			return
		}
		if !errors.Is(err, &jsonrpc.Error{Code: jsonrpc.CodeServerBusy}) {
			w.t.Errorf("barrier: %v", err)
			return
		}
		time.Sleep(time.Millisecond) // handlers of calls that were cancelled
	}
}

// check says what holds when all is over.
func (w *world) check() {
	for key, n := range w.runs {
		if n > 1 {
			w.t.Errorf("the handler of call %s ran %d times", key, n)
		}
	}
	for _, key := range w.unsent {
		if w.runs[key] > 0 {
			w.t.Errorf("call %s was said not to be begun, but was", key)
		}
	}
	for key := range w.notified {
		if w.config.calm && w.runs[key] != 1 {
			w.t.Errorf("notification %s was handled %d times", key, w.runs[key])
		}
	}
	for _, c := range w.ends {
		s := c.Stats()
		if s.Pending != 0 || s.Handling != 0 || s.Unknown != 0 || s.Panics != 0 || w.config.calm && s.Malformed+s.Invalid+s.Late+s.Busy != 0 {
			w.t.Errorf("%s: %+v", c.Name(), s)
		}
	}
}

// ran counts that the handler of the call with the key runs.
func (w *world) ran(key string) {
	w.mu.Lock()
	w.runs[key]++
	w.mu.Unlock()
}

// An order is what the params of a call say: how it is to be handled.
type order struct {
	Key   string
	Takes time.Duration
	Deep  int    // calls back that many times, each from the handler of the other
	Size  int    // of the padding of the answer
	Flow  bool   // the answer is streamed
	Pad   string // of Key
}

// padding is text by which one knows whose it is.
func padding(key string, size int) string {
	return strings.Repeat(key+" ", size/(len(key)+1)+1)[:size]
}

func (o *order) result() order { return order{Key: o.Key, Pad: padding(o.Key, o.Size)} }

// right says whether the answer is that to the order.
func (o *order) right(got order) bool { return got.Key == o.Key && got.Pad == padding(o.Key, o.Size) }

func (w *world) handler() jsonrpc.Handler {
	mux := new(jsonrpc.Mux)
	mux.Register("barrier", jsonrpc.HandlerFunc(func(context.Context, *jsonrpc.Request) (any, error) { return nil, nil }))
	mux.Register("do", jsonrpc.HandlerFunc(w.handle))
	mux.RegisterInline("quick", jsonrpc.HandlerFunc(w.handle))
	mux.RegisterStreaming("flow", jsonrpc.HandlerFunc(w.handle))
	return mux
}

func (w *world) handle(ctx context.Context, req *jsonrpc.Request) (any, error) {
	text, err := io.ReadAll(req.ParamsReader())
	if err != nil {
		return nil, err
	}
	var o order
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, err
	}
	w.ran(o.Key)
	if o.Pad != padding(o.Key, len(o.Pad)) {
		w.t.Errorf("call %s came with %.100q", o.Key, o.Pad)
	}
	if o.Takes > 0 {
		select {
		case <-time.After(o.Takes):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if o.Deep > 0 {
		next := order{Key: fmt.Sprintf("%s.%d", o.Key, o.Deep), Deep: o.Deep - 1, Size: o.Size}
		var got order
		if err := w.called(ctx, &next, req.Conn().Call(ctx, "do", &next, &got)); err != nil {
			return nil, err
		}
		if !next.right(got) {
			w.t.Errorf("call %s got %.100v", next.Key, got)
		}
	}
	if !o.Flow {
		return o.result(), nil
	}
	answer, err := json.Marshal(o.result())
	return slowReader(answer), err
}

// slowReader gives text in pieces.
func slowReader(text []byte) io.Reader {
	return &pieces{Reader: bytes.NewReader(text)}
}

type pieces struct{ *bytes.Reader }

func (p *pieces) Read(b []byte) (int, error) {
	runtime.Gosched()
	return p.Reader.Read(b[:min(len(b), 10_000)])
}

// step is one thing that a worker does.
func (w *world) step(c *jsonrpc.Conn, rng *rand.Rand) {
	limit, end := context.WithTimeout(context.Background(), worldLimit)
	defer end()
	ctx, cancel := context.WithCancel(limit)
	defer cancel()
	defer func() {
		if limit.Err() != nil {
			w.t.Error("a call hangs")
		}
	}()
	if !w.config.calm && rng.IntN(5) == 0 {
		after := time.Duration(rng.IntN(pick(rng, 1, 300, 20_000))) * time.Microsecond
		if rng.IntN(2) == 0 {
			ctx, cancel = context.WithTimeout(ctx, after)
			defer cancel()
		} else {
			defer time.AfterFunc(after, cancel).Stop()
		}
	}
	switch o := w.order(rng); rng.IntN(10) {
	case 0, 1, 2:
		w.call(ctx, c, "do", o, rng)
	case 3, 4:
		o.Takes, o.Deep = o.Takes/10, 0
		w.call(ctx, c, "quick", o, rng)
	case 5, 6:
		w.call(ctx, c, "flow", o, rng)
	case 7:
		w.notify(ctx, c, o, rng)
	case 8:
		w.batch(ctx, c, rng)
	case 9:
		if w.config.calm {
			return
		}
		w.broken(ctx, c, o, rng)
	}
}

func (w *world) order(rng *rand.Rand) *order {
	o := &order{Key: fmt.Sprint(w.keys.Add(1)), Size: w.size(rng), Flow: rng.IntN(4) == 0}
	o.Pad = padding(o.Key, w.size(rng))
	switch rng.IntN(8) {
	case 0, 1:
		o.Takes = time.Duration(rng.IntN(pick(rng, 100, 5000))) * time.Microsecond
	case 2:
		if !w.config.lone {
			o.Deep = 1 + rng.IntN(3)
		}
	}
	return o
}

// size is one of a message, or of a part of it, about the limits and the buffers.
func (w *world) size(rng *rand.Rand) int {
	const about = 150 // bytes of what is around the padding
	n := pick(rng, 0, 0, 0, 0, 0, 0, 0, 1000, 1000, 4<<10, 32<<10, 64<<10, 128<<10, 256<<10)
	if rng.IntN(30) == 0 {
		n = maxMessage
		if w.config.calm {
			n -= 2 * about
		}
	}
	return max(n-about+rng.IntN(about+3), 0)
}

// call makes a call in one of the ways that there are.
func (w *world) call(ctx context.Context, c *jsonrpc.Conn, method string, o *order, rng *rand.Rand) {
	text, err := json.Marshal(o)
	if err != nil {
		w.t.Error(err)
		return
	}
	var params any = o
	switch rng.IntN(3) {
	case 0:
		params = json.RawMessage(text)
	case 1:
		params = slowReader(text)
	}
	var got order
	switch rng.IntN(4) {
	case 0:
		err = w.called(ctx, o, c.Call(ctx, method, params, &got))
	case 1:
		var raw json.RawMessage
		if err = w.called(ctx, o, c.Call(ctx, method, params, &raw)); err == nil {
			err = json.Unmarshal(raw, &got)
		}
	case 2:
		var buf bytes.Buffer
		if err = w.called(ctx, o, c.Call(ctx, method, params, &buf)); err == nil {
			err = json.Unmarshal(buf.Bytes(), &got)
		}
	case 3:
		_ = w.called(ctx, o, c.Call(ctx, method, params, nil))
		return
	}
	if err == nil && !o.right(got) {
		w.t.Errorf("call %s got the answer of %.100v", o.Key, got)
	}
	if _, ok := errors.AsType[*jsonrpc.CallError](err); err != nil && !ok {
		w.t.Errorf("call %s: %v", o.Key, err)
	}
}

func (w *world) notify(ctx context.Context, c *jsonrpc.Conn, o *order, rng *rand.Rand) {
	o.Flow, o.Deep = false, 0
	method := pick(rng, "do", "quick", "flow")
	err := w.called(ctx, o, c.Notify(ctx, method, o))
	if err == nil {
		w.mu.Lock()
		w.notified[o.Key] = true
		w.mu.Unlock()
	}
}

func (w *world) batch(ctx context.Context, c *jsonrpc.Conn, rng *rand.Rand) {
	var b jsonrpc.Batch
	orders := make([]*order, 1+rng.IntN(5))
	calls := make([]*jsonrpc.BatchCall, len(orders))
	got := make([]order, len(orders))
	for i := range orders {
		o := w.order(rng)
		if w.config.calm { // together they are below the limit
			o.Size, o.Pad = min(o.Size, 150_000), o.Pad[:min(len(o.Pad), 150_000)]
		}
		orders[i] = o
		method := pick(rng, "do", "quick", "flow")
		if method == "quick" {
			o.Deep, o.Takes = 0, 0
		}
		if rng.IntN(4) == 0 {
			o.Deep = 0
			calls[i] = b.Notify(method, o)
			got[i] = o.result()
			continue
		}
		calls[i] = b.Call(method, o, &got[i])
	}
	err := c.Batch(ctx, &b)
	for i, o := range orders {
		entry := w.called(ctx, o, calls[i].Err())
		if entry == nil && err == nil && !o.right(got[i]) {
			w.t.Errorf("call %s of a batch got the answer of %.100v", o.Key, got[i])
		}
		if err != nil && entry == nil {
			w.t.Errorf("call %s of a batch that failed with %v has no error", o.Key, err)
		}
	}
}

var errReader = errors.New("the reader of the params fails")

// broken makes a call whose params end in an error.
func (w *world) broken(ctx context.Context, c *jsonrpc.Conn, o *order, rng *rand.Rand) {
	text, err := json.Marshal(o)
	if err != nil {
		w.t.Error(err)
		return
	}
	cut := rng.IntN(len(text))
	params := io.MultiReader(slowReader(text[:cut]), failing{})
	if err = c.Call(ctx, pick(rng, "do", "quick", "flow"), params, nil); err == nil {
		w.t.Errorf("call %s succeeded without its params", o.Key)
	}
	if !errors.Is(err, errReader) {
		_ = w.called(ctx, o, err)
	}
	w.mu.Lock()
	w.unsent = append(w.unsent, o.Key)
	w.mu.Unlock()
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errReader }

// called checks how a call ended, and returns its error.
func (w *world) called(ctx context.Context, o *order, err error) error {
	if err == nil {
		return nil
	}
	call, ok := errors.AsType[*jsonrpc.CallError](err)
	if !ok {
		w.t.Errorf("call %s: %v is no CallError", o.Key, err)
		return err
	}
	if w.config.calm {
		w.t.Errorf("call %s: %v", o.Key, err)
		return err
	}
	none := !call.Sent
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		switch e.Code {
		case jsonrpc.CodeServerBusy, jsonrpc.CodeClosing, jsonrpc.CodeParseError:
			none = true
		case jsonrpc.CodeInvalidRequest: // longer than it may be
			none = true
		case jsonrpc.CodeCancelled, jsonrpc.CodeTimeout, jsonrpc.CodeInternalError:
		default:
			w.t.Errorf("call %s: %v", o.Key, err)
		}
	} else {
		w.known(ctx, o, err)
	}
	if none {
		w.mu.Lock()
		w.unsent = append(w.unsent, o.Key)
		w.mu.Unlock()
	}
	return err
}

// known says that an error which is not the peer's is one that the world explains.
func (w *world) known(ctx context.Context, o *order, err error) {
	switch {
	case errors.Is(err, jsonrpc.ErrClosed) && w.ending.Load():
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, jsonrpc.ErrTimeout)):
	case errors.Is(err, jsonrpc.ErrExhausted):
	default:
		w.t.Errorf("call %s: %v", o.Key, err)
	}
}

// TestHeldAnswers: answers of the goroutine that reads wait for the end of a streamed
// message. More of them than the write buffer has room for do not keep that end from
// coming.
func TestHeldAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		more := make(chan struct{})
		mux := new(jsonrpc.Mux)
		mux.Register("flow", jsonrpc.HandlerFunc(func(context.Context, *jsonrpc.Request) (any, error) {
			text := `"` + strings.Repeat("x", 100_000) + `"`
			return io.MultiReader(strings.NewReader(text[:50_000]), waiting(more), strings.NewReader(text[50_000:])), nil
		}))
		mux.RegisterInline("quick", jsonrpc.HandlerFunc(func(context.Context, *jsonrpc.Request) (any, error) {
			return strings.Repeat("y", 1000), nil
		}))
		server, client := jsonrpc.Pair(jsonrpc.Config{Handler: mux}, jsonrpc.Config{})
		var calling sync.WaitGroup
		call := func(method string) {
			calling.Go(func() {
				if err := client.Call(t.Context(), method, nil, nil); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		call("flow")
		for range 200 { // more than the 128 KiB of Config.WriteBuffer
			call("quick")
		}
		close(more)
		calling.Wait()
		client.Close()
		server.Close()
	})
}

// waiting is a reader that ends when the channel is closed.
type waiting <-chan struct{}

func (w waiting) Read([]byte) (int, error) {
	<-w
	return 0, io.EOF
}
