package jsonrpc

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// A Mux is a Handler that finds the Handler of each request by its method. The
// zero value is ready to use. Methods may be registered while requests are
// being handled; a table is never changed but replaced, so that looking up
// takes no lock.
type Mux struct {
	mu    sync.Mutex // for registering
	table atomic.Pointer[muxTable]
}

// A muxTable is one state of a Mux; it is not changed after it was stored.
type muxTable struct {
	methods    map[string]*muxEntry
	middleware []Middleware
	missing    Handler // with the middleware around it
}

type muxEntry struct {
	inline  bool
	streams bool
	plain   Handler
	wrapped Handler // plain with the middleware around it
}

// Register makes h the handler of a method. It panics when the method has one
// already, when the name begins with "rpc.", which JSON-RPC 2.0 section 4.1
// reserves, or when h is nil: these are mistakes of the program.
func (m *Mux) Register(method string, h Handler) { m.register(method, h, muxEntry{}) }

// RegisterInline registers as Register does a handler that is quick and calls
// nobody back, so that it may run where the connection is read (see Inliner).
// The middleware has to keep the promise too.
func (m *Mux) RegisterInline(method string, h Handler) {
	m.register(method, h, muxEntry{inline: true})
}

// RegisterStreaming registers as Register does a handler that reads its params
// by Request.ParamsReader only, so that long ones need not be in memory (see
// ParamsStreamer).
func (m *Mux) RegisterStreaming(method string, h Handler) {
	m.register(method, h, muxEntry{streams: true})
}

func (m *Mux) register(method string, h Handler, how muxEntry) {
	switch {
	case h == nil:
		panic("jsonrpc: nil Handler for method " + strconv.Quote(method))
	case strings.HasPrefix(method, "rpc."):
		panic("jsonrpc: method " + strconv.Quote(method) + `: names that begin with "rpc." are reserved`)
	}
	m.change(func(t *muxTable) {
		if t.methods[method] != nil {
			panic("jsonrpc: method " + strconv.Quote(method) + " is registered twice")
		}
		how.plain, how.wrapped = h, t.wrap(h)
		t.methods[method] = &how
	})
}

// Use adds middleware around all handlers, those registered already and those
// to come, and around the answer to unknown methods. The first one added is
// the outermost. Each is called once per method, not once per request, so that it
// may keep something for a method; a later Use calls it again for all of them.
func (m *Mux) Use(middleware ...Middleware) {
	m.change(func(t *muxTable) {
		t.middleware = append(t.middleware, middleware...)
		for name, e := range t.methods {
			changed := *e
			changed.wrapped = t.wrap(e.plain)
			t.methods[name] = &changed
		}
		t.missing = t.wrap(HandlerFunc(methodNotFound))
	})
}

// change replaces the table by a changed copy.
func (m *Mux) change(f func(*muxTable)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := &muxTable{methods: map[string]*muxEntry{}, missing: HandlerFunc(methodNotFound)}
	if old := m.table.Load(); old != nil {
		next.methods = maps.Clone(old.methods)
		next.middleware = slices.Clone(old.middleware)
		next.missing = old.missing
	}
	f(next)
	m.table.Store(next)
}

func (t *muxTable) wrap(h Handler) Handler {
	for _, w := range slices.Backward(t.middleware) {
		h = w(h)
	}
	return h
}

// Methods returns the names of the registered methods, sorted.
func (m *Mux) Methods() []string {
	t := m.table.Load()
	if t == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(t.methods))
}

// Handle gives the request to the handler of its method; an unknown one is
// answered CodeMethodNotFound with a message that names it (RPC-6).
func (m *Mux) Handle(ctx context.Context, req *Request) (any, error) {
	t := m.table.Load()
	if t == nil {
		return methodNotFound(ctx, req)
	}
	if e := t.methods[req.Method()]; e != nil {
		return e.wrapped.Handle(ctx, req)
	}
	return t.missing.Handle(ctx, req)
}

// Inline says whether the method was registered with RegisterInline.
func (m *Mux) Inline(method []byte) bool {
	t := m.table.Load()
	if t == nil {
		return false
	}
	e := t.methods[string(method)]
	return e != nil && e.inline
}

// StreamsParams says whether the method was registered with RegisterStreaming.
func (m *Mux) StreamsParams(method []byte) bool {
	t := m.table.Load()
	if t == nil {
		return false
	}
	e := t.methods[string(method)]
	return e != nil && e.streams
}

// methodNotFound answers a request for an unknown method (JSON-RPC 2.0 section 5.1).
func methodNotFound(_ context.Context, req *Request) (any, error) {
	return nil, methodNotFoundError(req.Method())
}

func methodNotFoundError(method string) *Error {
	return Errorf(CodeMethodNotFound, "method not found: %s", shorten(method, longestName))
}
