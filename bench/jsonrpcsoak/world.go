package jsonrpcsoak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
	"github.com/parley-project/parley/jsonrpc/rpcws"
)

// errWrong marks an answer that is not what was sent.
var errWrong = errors.New("wrong answer")

// dice decide what an actor does next; the same seed does the same.
type dice struct{ *rand.Rand }

func newDice(seed uint64) dice { return dice{rand.New(rand.NewPCG(seed, 20_000))} }

// params returns an object with a text of up to about n bytes.
func (d dice) params(n int) json.RawMessage {
	text := strings.Repeat("soak ", 1+d.IntN(max(n/5, 1)))
	return json.RawMessage(fmt.Sprintf(`{"serial":%d,"text":%q}`, d.Int64(), text))
}

// world is the servers that the actors meet, and the clients that live longer
// than one act.
type world struct {
	tally
	gate    sync.RWMutex // acts hold it for reading, samples for writing
	serving sync.WaitGroup
	stop    context.CancelFunc
	lines   net.Listener
	headers net.Listener
	hostile net.Listener
	ws      *rpcws.Server
	http    *rpchttp.Server
	web     *httptest.Server // /ws and /http
	client  *jsonrpc.Client
	posts   *jsonrpc.Conn

	mu2   sync.Mutex
	conns []net.Conn // of the lines server, to be cut
}

const (
	soakTimeout = 2 * time.Second // of calls; nothing takes so long
	maxKept     = 64              // connections that may be cut
)

func newWorld(ctx context.Context) (w *world, err error) {
	w = &world{tally: tally{unexpected: make(map[string]int64)}}
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	for _, l := range []*net.Listener{&w.lines, &w.headers, &w.hostile} {
		if *l, err = new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
			return w, err
		}
	}
	w.serve(ctx, &keeping{Listener: w.lines, w: w}, jsonrpc.NewLineStream)
	w.serve(ctx, w.headers, jsonrpc.NewHeaderStream)
	w.serving.Go(w.beHostile)
	w.ws = rpcws.Handler(rpcws.AcceptConfig{}, serveStream)
	w.http = rpchttp.Handler(rpchttp.ServerConfig{Config: serverConfig()})
	mux := http.NewServeMux()
	mux.Handle("/ws", w.ws)
	mux.Handle("/http", w.http)
	w.web = httptest.NewServer(mux)
	w.client = jsonrpc.NewClient(func(ctx context.Context) (jsonrpc.Stream, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", w.lines.Addr().String())
		if err != nil {
			return nil, err
		}
		return jsonrpc.NewLineStream(c), nil
	}, jsonrpc.ClientConfig{Config: clientConfig(), MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond, MaxDials: -1})
	stream, err := rpchttp.NewStream(w.web.URL+"/http", rpchttp.ClientConfig{})
	if err != nil {
		return w, err
	}
	w.posts = jsonrpc.NewConn(stream, clientConfig())
	return w, nil
}

func clientConfig() jsonrpc.Config {
	return jsonrpc.Config{Timeout: soakTimeout, Grace: 100 * time.Millisecond, Cancel: jsonrpc.LSPCancel}
}

// serverConfig has room for few handlers, so that overload is met.
func serverConfig() jsonrpc.Config {
	m := new(jsonrpc.Mux)
	echo := jsonrpc.HandlerFunc(func(_ context.Context, req *jsonrpc.Request) (any, error) { return req.Params(), nil })
	m.RegisterInline("echo", echo)
	m.Register("pooled", echo)
	m.Register("slow", jsonrpc.HandlerFunc(func(ctx context.Context, req *jsonrpc.Request) (any, error) {
		select {
		case <-time.After(20 * time.Millisecond):
			return req.Params(), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}))
	m.Register("back", jsonrpc.HandlerFunc(func(ctx context.Context, req *jsonrpc.Request) (any, error) {
		if req.Conn() == nil {
			return req.Params(), nil
		}
		var answer json.RawMessage
		err := req.Conn().Call(ctx, "echo", req.Params(), &answer)
		return answer, err
	}))
	m.Register("fail", jsonrpc.HandlerFunc(func(context.Context, *jsonrpc.Request) (any, error) {
		return nil, jsonrpc.Errorf(1234, "as was asked").WithData([]int{1, 2, 3})
	}))
	m.Register("panic", jsonrpc.HandlerFunc(func(context.Context, *jsonrpc.Request) (any, error) { panic("as was asked") }))
	return jsonrpc.Config{
		Handler: m, Timeout: soakTimeout, Grace: 100 * time.Millisecond, MaxHandlers: 64, Cancel: jsonrpc.LSPCancel,
	}
}

func serveStream(ctx context.Context, s jsonrpc.Stream) {
	c := jsonrpc.NewConn(s, serverConfig())
	defer c.Close()
	select {
	case <-c.Done():
	case <-ctx.Done():
	}
}

func (w *world) serve(ctx context.Context, l net.Listener, framing jsonrpc.Framing) {
	w.serving.Go(func() {
		err := jsonrpc.Serve(ctx, l, jsonrpc.ServeConfig{Framing: framing}, func(s jsonrpc.Stream) { serveStream(ctx, s) })
		if err != nil {
			w.note("server", err)
		}
	})
}

// close ends the clients, then the servers.
func (w *world) close() error {
	var errs []error
	if w.client != nil {
		errs = append(errs, w.client.Close())
	}
	if w.posts != nil {
		errs = append(errs, w.posts.Close())
	}
	w.stop()
	for _, l := range []net.Listener{w.lines, w.headers, w.hostile} {
		if l != nil {
			_ = l.Close() // Serve has closed its own
		}
	}
	if w.web != nil {
		errs = append(errs, w.ws.Close(), w.http.Close())
		w.web.Close()
	}
	w.serving.Wait()
	return errors.Join(errs...)
}

// keeping remembers the connections that it accepts, so that they can be cut.
type keeping struct {
	net.Listener
	w *world
}

// Accept is the listener's.
func (k *keeping) Accept() (net.Conn, error) {
	c, err := k.Listener.Accept()
	if err == nil {
		k.w.mu2.Lock()
		if len(k.w.conns) == maxKept {
			k.w.conns = append(k.w.conns[:0], k.w.conns[1:]...)
		}
		k.w.conns = append(k.w.conns, c)
		k.w.mu2.Unlock()
	}
	return c, err
}

// cut ends one of the last connections, whatever it is in the middle of.
func (w *world) cut(d dice) {
	w.mu2.Lock()
	defer w.mu2.Unlock()
	if len(w.conns) == 0 {
		return
	}
	i := d.IntN(len(w.conns))
	_ = w.conns[i].Close()
	w.conns = append(w.conns[:i], w.conns[i+1:]...)
}

// excused says whether an error is what faults like ours lead to.
func excused(err error) bool {
	if errors.Is(err, jsonrpc.ErrClosed) || errors.Is(err, jsonrpc.ErrTimeout) || errors.Is(err, jsonrpc.ErrExhausted) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	e, ok := errors.AsType[*jsonrpc.Error](err)
	return ok && (e.Code == jsonrpc.CodeServerBusy || e.Code == jsonrpc.CodeCancelled || e.Code == jsonrpc.CodeTimeout)
}
