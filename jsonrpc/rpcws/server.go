package rpcws

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/parley-project/parley/jsonrpc"
)

const defaultMaxConns = 1024

// A Server is an http.Handler that makes Streams of the requests that it gets.
// It owns them: an http.Server that is shut down leaves them alone, so
// Shutdown or Close belongs beside its own.
type Server struct {
	cfg   AcceptConfig
	serve func(context.Context, jsonrpc.Stream)

	ctx    context.Context //nolint:containedctx // the life of all connections, ended by Shutdown
	cancel context.CancelFunc

	mu      sync.Mutex
	conns   map[*stream]struct{} // guarded by mu
	count   int                  // of connections and handshakes, guarded by mu
	closing bool                 // guarded by mu
	gone    chan struct{}        // closed when closing and count is 0
}

// Handler returns a Server that calls serve for every connection, on a
// goroutine of its own. The Stream is closed when serve returns. Its context
// has the request's values, and ends when the Server is shut down: then serve
// should end its Conn and return.
func Handler(cfg AcceptConfig, serve func(context.Context, jsonrpc.Stream)) *Server {
	if cfg.MaxConns <= 0 {
		cfg.MaxConns = defaultMaxConns
	}
	s := &Server{cfg: cfg, serve: serve, conns: make(map[*stream]struct{}), gone: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// ServeHTTP implements http.Handler. It returns when the connection has ended.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	boundRefusal(w, r)
	if !s.enter() {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many connections, or the server is going away; try again later", http.StatusServiceUnavailable)
		return
	}
	defer s.leave()
	stream, err := accept(w, r, s.cfg)
	if err != nil {
		return // the answer is written
	}
	defer func() { _ = stream.Close() }()
	if !s.add(stream) {
		return
	}
	defer s.remove(stream)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	s.serve(ctx, stream.withAbilities())
}

// refusalTime is what a client gets to take that its handshake is refused.
const refusalTime = 30 * time.Second

// boundRefusal has a client that takes nothing of the refusal of its handshake lose its
// connection, unless the http.Server sees to that. It ends with the handshake: whoever takes
// over a connection takes it without deadlines.
func boundRefusal(w http.ResponseWriter, r *http.Request) {
	if srv, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok && srv.WriteTimeout > 0 {
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(refusalTime)) // not every ResponseWriter knows deadlines
}

// Shutdown refuses new connections, ends the contexts of all others and waits
// until they are gone: with code 1001, "going away" (RFC 6455 section 7.4.1), and
// every serve has returned. When ctx ends first, the connections are closed, and
// Shutdown returns the context's error without waiting for what serve does then.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	select {
	case <-s.gone:
		return nil
	case <-ctx.Done():
		s.closeAll()
		return ctx.Err()
	}
}

// Close is Shutdown without patience: it closes all connections and waits
// until every serve has returned, however long that takes. It returns nil.
func (s *Server) Close() error {
	s.stop()
	s.closeAll()
	<-s.gone
	return nil
}

// enter takes a place, if there is one.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || s.count >= s.cfg.MaxConns {
		return false
	}
	s.count++
	return true
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count--; s.closing && s.count == 0 {
		close(s.gone)
	}
}

// add takes note of a connection, unless the server stopped meanwhile.
func (s *Server) add(stream *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		stream.leaving.Store(true)
		return false
	}
	s.conns[stream] = struct{}{}
	return true
}

func (s *Server) remove(stream *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, stream)
}

// stop refuses what is new, and tells what there is to end.
func (s *Server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return
	}
	s.closing = true
	for stream := range s.conns {
		stream.leaving.Store(true)
	}
	s.cancel()
	if s.count == 0 {
		close(s.gone)
	}
}

// closeAll closes every connection, all at the same time.
func (s *Server) closeAll() {
	s.mu.Lock()
	streams := slices.Collect(maps.Keys(s.conns))
	s.mu.Unlock()
	var closing sync.WaitGroup
	for _, stream := range streams {
		closing.Go(func() { _ = stream.Close() })
	}
	closing.Wait()
}
