package jsonrpc

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
)

// TestCorrelationIDOfAnswer proves that a call that failed inside of the peer
// tells by which word its logs have it, unless the caller has one of its own
// (RPC-21).
func TestCorrelationIDOfAnswer(t *testing.T) {
	own := Meta{CorrelationID: "own"}
	long := strings.Repeat("x", 1000)
	for name, tt := range map[string]struct {
		meta Meta // of the call
		err  string
		want string
	}{
		"of the peer":       {Meta{}, `{"code":-32603,"message":"no","data":{"a":1,"correlation_id":"EB\"DX"}}`, `EB"DX`},
		"of both":           {own, `{"code":-32603,"message":"no","data":{"correlation_id":"EBDX"}}`, "own"},
		"empty of ours":     {Meta{TraceParent: "x"}, `{"code":-32603,"message":"no","data":{"correlation_id":"EBDX"}}`, "EBDX"},
		"another code":      {Meta{}, `{"code":5,"message":"no","data":{"correlation_id":"EBDX"}}`, ""},
		"no data":           {Meta{}, `{"code":-32603,"message":"no"}`, ""},
		"another kind":      {Meta{}, `{"code":-32603,"message":"no","data":["correlation_id"]}`, ""},
		"no text":           {Meta{}, `{"code":-32603,"message":"no","data":{"correlation_id":7}}`, ""},
		"long as a message": {Meta{}, `{"code":-32603,"message":"no","data":{"correlation_id":"` + long + `"}}`, shorten(long, longestName)},
	} {
		t.Run(name, func(t *testing.T) {
			withPeer(t, Config{}, func(t *testing.T, c *Conn, peer *rawPeer) {
				go func() {
					peer.next()
					peer.send(`{"jsonrpc":"2.0","id":4096,"error":` + tt.err + `}`)
				}()
				e, ok := errors.AsType[*CallError](c.Call(WithMeta(t.Context(), tt.meta), "m", nil, nil))
				if !ok || e.CorrelationID != tt.want {
					t.Errorf("%q, want %q", e.CorrelationID, tt.want)
				}
			})
		})
	}
}

// TestCorrelationIDOfPanic proves the same between two of our own ends: caller and
// hooks have the same word.
func TestCorrelationIDOfPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen notices
		a, b := Pair(Config{}, Config{Hooks: Hooks{Notice: seen.add}, Handler: HandlerFunc(func(context.Context, *Request) (any, error) { panic("x") })})
		defer b.Close()
		defer a.Close()
		e, _ := errors.AsType[*CallError](a.Call(t.Context(), "m", nil, nil))
		p, ok := errors.AsType[*PanicError](seen.list[0].Err)
		if !ok || e.CorrelationID == "" || e.CorrelationID != p.CorrelationID {
			t.Errorf("%v and %v", e, p)
		}
	})
}
