package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcdial"
)

// practiceMux serves what package internal/practice describes, with our own
// library: the counterpart of every peer program.
func practiceMux() *jsonrpc.Mux {
	s := new(counts)
	mux := new(jsonrpc.Mux)
	mux.RegisterInline("echo", jsonrpc.HandlerFunc(echo))
	mux.Register("subtract", jsonrpc.HandlerFunc(subtract))
	mux.Register("fail", jsonrpc.HandlerFunc(fail))
	mux.RegisterInline("note", jsonrpc.HandlerFunc(s.note))
	mux.Register("notes", jsonrpc.Typed(s.noted))
	mux.Register("back", jsonrpc.HandlerFunc(back))
	mux.Register("wait", jsonrpc.Typed(s.wait))
	mux.Register("waits", jsonrpc.Typed(s.waits))
	return mux
}

func echo(_ context.Context, req *jsonrpc.Request) (any, error) {
	if req.Params() == nil {
		return nil, nil
	}
	return req.Params(), nil
}

// terms are the params of subtract by name.
type terms struct {
	Minuend    *int64 `json:"minuend"`
	Subtrahend *int64 `json:"subtrahend"`
}

// subtract takes its params by name or by position, which one type cannot.
func subtract(_ context.Context, req *jsonrpc.Request) (any, error) {
	var p terms
	var placed []int64
	if req.Decode(&placed) == nil && len(placed) == 2 {
		return placed[0] - placed[1], nil
	}
	if err := req.Decode(&p); err != nil {
		return nil, err
	}
	if p.Minuend == nil || p.Subtrahend == nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "minuend and subtrahend are needed")
	}
	return *p.Minuend - *p.Subtrahend, nil
}

func fail(_ context.Context, req *jsonrpc.Request) (any, error) {
	var p struct {
		Code    jsonrpc.Code    `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	}
	if err := req.Decode(&p); err != nil {
		return nil, err
	}
	return nil, &jsonrpc.Error{Code: p.Code, Message: p.Message, Data: p.Data}
}

// back calls the caller, and passes its answer on, a result or an error.
func back(ctx context.Context, req *jsonrpc.Request) (any, error) {
	var p struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	if err := req.Decode(&p); err != nil {
		return nil, err
	}
	var result json.RawMessage
	err := req.Conn().Call(ctx, p.Method, p.Params, &result)
	return result, passed(err)
}

// passed is the error of a call to the peer as an answer of ours.
func passed(err error) error {
	if e, ok := asError(err); ok {
		return e
	}
	return err
}

// counts is what the practice server remembers.
type counts struct {
	mu                        sync.Mutex
	notes, waiting, cancelled int
	last                      json.RawMessage
}

func (s *counts) note(_ context.Context, req *jsonrpc.Request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes++
	s.last = append(s.last[:0], req.Params()...)
	return nil, nil
}

type noted struct {
	Count int             `json:"count"`
	Last  json.RawMessage `json:"last"`
}

func (s *counts) noted(context.Context, struct{}) (noted, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return noted{Count: s.notes, Last: append(json.RawMessage(nil), s.last...)}, nil
}

func (s *counts) wait(ctx context.Context, _ struct{}) (any, error) {
	s.add(1, 0)
	<-ctx.Done()
	s.add(-1, 1)
	return nil, ctx.Err()
}

func (s *counts) add(waiting, cancelled int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting += waiting
	s.cancelled += cancelled
}

type waiting struct {
	Waiting   int `json:"waiting"`
	Cancelled int `json:"cancelled"`
}

func (s *counts) waits(context.Context, struct{}) (waiting, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return waiting{s.waiting, s.cancelled}, nil
}

// serveStdio is our own server as a process of its own.
func serveStdio(what string) int {
	cfg := jsonrpc.Config{MaxMessage: 4 << 20}
	switch what {
	case "mcp":
		server := new(mcpServer)
		cfg.Handler, cfg.Cancel = server.mux(), jsonrpc.MCPCancel
	default:
		fmt.Fprintf(os.Stderr, "%s=%s: unknown\n", oursEnv, what)
		return 2
	}
	if err := rpcdial.Serve(context.Background(), "stdio:", rpcdial.Config{}, cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// canonical makes texts that mean the same equal: escapes and white space do
// not count, numbers keep their digits.
func canonical(t *testing.T, text json.RawMessage) string {
	t.Helper()
	var v any
	dec := json.NewDecoder(newReader(text))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Errorf("%.80q is not JSON: %v", text, err)
		return ""
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Error(err)
	}
	return string(out)
}
