package rpchttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
)

// TestLongResult: a result that comes from an io.Reader is sent while it is read, and
// one that fails half-way ends the connection: nobody takes it for an answer.
func TestLongResult(t *testing.T) {
	rest := make(chan error)
	first := `"` + strings.Repeat("x", 64<<10)
	server := rpchttp.Handler(rpchttp.ServerConfig{Config: jsonrpc.Config{
		Handler: jsonrpc.HandlerFunc(func(context.Context, *jsonrpc.Request) (any, error) {
			r, w := io.Pipe()
			go func() {
				_, _ = io.WriteString(w, first)
				if err := <-rest; err != nil {
					w.CloseWithError(err)
					return
				}
				_, _ = io.WriteString(w, `"`)
				w.Close()
			}()
			return r, nil
		}),
	}})
	web := httptest.NewServer(server)
	defer web.Close()
	defer server.Close()
	for _, fails := range []error{nil, errors.New("no more")} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, web.URL, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"m"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if kind := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || kind != "application/json" {
			t.Fatalf("%s, %s", res.Status, kind)
		}
		head := make([]byte, 40<<10)
		if _, err := io.ReadFull(res.Body, head); err != nil { // the handler's reader has not ended yet
			t.Fatal(err)
		}
		rest <- fails
		tail, err := io.ReadAll(res.Body)
		switch {
		case fails == nil && (err != nil || string(head)+string(tail) != `{"jsonrpc":"2.0","id":1,"result":`+first+`"}`):
			t.Errorf("%v after %d bytes", err, len(head)+len(tail))
		case fails != nil && !errors.Is(err, io.ErrUnexpectedEOF):
			t.Errorf("a broken answer ends with %v", err)
		}
	}
}
