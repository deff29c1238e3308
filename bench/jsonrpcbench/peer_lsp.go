package jsonrpcbench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	lsp "go.lsp.dev/jsonrpc2"
)

// lspServer serves one connection and counts the notifications.
type lspServer struct {
	conn    lsp.Conn
	handled atomic.Int64
}

// startLSP starts the server end: inline on its read loop, which is its fastest
// way, or each request on a goroutine of its own.
func startLSP(ctx context.Context, s lsp.Stream, async bool) *lspServer {
	v := &lspServer{conn: lsp.NewConn(s)}
	var h lsp.Handler = v.handle
	if async {
		h = lsp.AsyncHandler(h)
	}
	v.conn.Go(ctx, h)
	return v
}

func (v *lspServer) handle(_ context.Context, req *lsp.Request) (any, error) {
	if !req.IsCall() {
		v.handled.Add(1)
		return nil, nil
	}
	if req.Method() == typed {
		t := new(task)
		return t, lsp.DefaultCodec.Unmarshal(req.Params(), t)
	}
	return req.Params(), nil
}

// lspClient is what the three kinds of client have in common.
type lspClient interface {
	Call(ctx context.Context, method string, params, result any) (lsp.ID, error)
	Notify(ctx context.Context, method string, params any) error
	Close() error
}

func (v *lspServer) remote(c lspClient) *remote {
	return &remote{
		call: func(ctx context.Context, params []byte, into *[]byte) error {
			_, err := c.Call(ctx, method, lsp.RawMessage(params), (*lsp.RawMessage)(into))
			return err
		},
		typed: func(ctx context.Context, in, out *task) error {
			_, err := c.Call(ctx, typed, in, out)
			return err
		},
		notify: func(ctx context.Context, params []byte) error {
			return c.Notify(ctx, method, lsp.RawMessage(params))
		},
		received: v.handled.Load,
		close:    func() error { return errors.Join(c.Close(), ignoreClosed(v.conn.Close())) },
	}
}

func lspConn(async bool) func(ctx context.Context, client, server net.Conn) (*remote, error) {
	return func(ctx context.Context, client, server net.Conn) (*remote, error) {
		v := startLSP(ctx, lsp.NewNDJSONStream(server), async)
		c := lsp.NewConn(lsp.NewNDJSONStream(client))
		c.Go(ctx, lsp.MethodNotFoundHandler)
		return v.remote(c), nil
	}
}

// lspChannel is its own transport in memory.
func lspChannel(ctx context.Context, _ load) (*remote, error) {
	client, server := lsp.NewChannelStreamPair(64)
	v := startLSP(ctx, server, false)
	c := lsp.NewConn(client)
	c.Go(ctx, lsp.MethodNotFoundHandler)
	return v.remote(c), nil
}

func lspPipeline(ctx context.Context, client, server net.Conn) (*remote, error) {
	v := startLSP(ctx, lsp.NewNDJSONStream(server), false)
	c := lsp.NewPipelineClient(lsp.NewNDJSONStream(client))
	c.Go(ctx, nil)
	return v.remote(c), nil
}

func lspSingle(ctx context.Context, client, server net.Conn) (*remote, error) {
	v := startLSP(ctx, lsp.NewNDJSONStream(server), false)
	c, err := lsp.NewSingleClient(lsp.NewNDJSONStream(client))
	if err != nil {
		return nil, err
	}
	return v.remote(c), nil
}

// lspBatch is its batch mode: the caller builds the frame and takes the answer
// apart; what finds the elements of the array is ours, since the library has
// nothing for that, and only counts brackets. With views it appends spans and
// scans views, its fastest way; without, it goes through its message values.
type lspBatch struct {
	server *lspServer
	client *lsp.BatchClient
	views  bool
	mu     sync.Mutex // of the fields below, and one batch at a time
	out    []byte
	serial int64
}

func lspBatches(views bool) func(ctx context.Context, client, server net.Conn) (*remote, error) {
	return func(ctx context.Context, client, server net.Conn) (*remote, error) {
		c, err := lsp.NewBatchClient(lsp.NewNDJSONStream(client))
		if err != nil {
			return nil, err
		}
		b := &lspBatch{server: startLSP(ctx, lsp.NewNDJSONStream(server), false), client: c, views: views}
		return &remote{batch: b.call, close: func() error {
			return errors.Join(b.client.Close(), ignoreClosed(b.server.conn.Close()))
		}}, nil
	}
}

func (b *lspBatch) call(ctx context.Context, params []byte, into [][]byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := b.serial
	b.serial += int64(len(into))
	b.out = b.build(params, first, len(into))
	if _, err := b.client.WriteFrame(ctx, b.out); err != nil {
		return err
	}
	frame, _, err := b.client.ReadFrame(ctx)
	if err != nil {
		return err
	}
	for rest := frame[1:]; len(rest) > 1; {
		end := elementEnd(rest)
		id, result, err := b.answer(rest[:end])
		if i := id - first; err == nil && i >= 0 && i < int64(len(into)) {
			into[i] = append(into[i][:0], result...)
		} else {
			return errors.Join(err, fmt.Errorf("unexpected answer %q", rest[:end]))
		}
		rest = rest[end+1:]
	}
	return nil
}

func (b *lspBatch) build(params []byte, first int64, n int) []byte {
	if !b.views {
		messages := make([]lsp.Message, n)
		for i := range messages {
			messages[i] = lsp.NewCall(lsp.NewNumberID(first+int64(i)), method, params)
		}
		return lsp.AppendBatch(b.out[:0], messages)
	}
	out := append(b.out[:0], '[')
	for i := range n {
		if i > 0 {
			out = append(out, ',')
		}
		out = lsp.AppendCall(out, lsp.NewNumberID(first+int64(i)), method, params)
	}
	return append(out, ']')
}

func (b *lspBatch) answer(text []byte) (id int64, result []byte, err error) {
	if b.views {
		m, err := lsp.ScanMessageView(text)
		id, ok := m.ID.Number()
		if err == nil && (!ok || m.Kind != lsp.MessageViewResponseResult) {
			err = errors.New("no result")
		}
		return id, m.Result, err
	}
	m, err := lsp.DecodeMessage(text)
	if err != nil {
		return 0, nil, err
	}
	r, ok := m.(*lsp.Response)
	if !ok || r.Err() != nil {
		return 0, nil, errors.New("no result")
	}
	number := r.ID()
	id, ok = number.Number()
	if !ok {
		return 0, nil, errors.New("no number")
	}
	return id, r.Result(), nil
}

// elementEnd is the length of the first element of a list of JSON objects.
func elementEnd(text []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(text)
}

// ignoreClosed drops the errors of a server whose client has gone before it.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// rawJSON is a parameter that the libraries below know to be JSON already.
func rawJSON(params []byte) json.RawMessage { return json.RawMessage(params) }
