package rpchttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
)

// asking is a server whose handler of "ask" asks the client back before it answers.
func asking(t *testing.T) (url string) {
	h := rpchttp.Handler(rpchttp.ServerConfig{
		Sessions: &rpchttp.SessionConfig{},
		Config: jsonrpc.Config{Handler: jsonrpc.HandlerFunc(func(ctx context.Context, req *jsonrpc.Request) (any, error) {
			s, ok := rpchttp.SessionFrom(ctx)
			if !ok {
				return nil, errors.New("no session")
			}
			var name json.RawMessage
			err := s.Conn().Call(ctx, "who", nil, &name)
			return name, err
		})},
	})
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		h.Close()
		srv.Close()
	})
	return srv.URL
}

// An answerer answers "who", inline or not.
type answerer struct{ inline bool }

func (a answerer) Handle(context.Context, *jsonrpc.Request) (any, error) { return "Ada", nil }
func (a answerer) Inline([]byte) bool                                    { return a.inline }

// TestAnswersPassCalls: while more calls wait for their turn than MaxQueue holds, the answers
// that the calls before them wait for go out.
func TestAnswersPassCalls(t *testing.T) {
	t.Parallel()
	for name, inline := range map[string]bool{"of the reader": true, "of other goroutines": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st, err := rpchttp.NewStream(asking(t), rpchttp.ClientConfig{
				MaxInFlight: 2, MaxQueue: 1000, Timeout: -1, WayBack: rpchttp.WayBackAtOnce,
			})
			if err != nil {
				t.Fatal(err)
			}
			conn := jsonrpc.NewConn(st, jsonrpc.Config{Handler: answerer{inline}, Timeout: time.Minute, WriteBuffer: 2000})
			defer conn.Close()
			params := []string{strings.Repeat("x", 400)}
			var calls sync.WaitGroup
			for range 40 {
				calls.Go(func() {
					var name string
					if err := conn.Call(t.Context(), "ask", params, &name); err != nil || name != "Ada" {
						t.Errorf("%q, %v", name, err)
					}
				})
			}
			calls.Wait()
		})
	}
}
