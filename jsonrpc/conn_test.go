package jsonrpc

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"testing/synctest"
)

// echo answers with the params.
func echo(_ context.Context, req *Request) (any, error) { return req.Params(), nil }

type inlineAll struct{ HandlerFunc }

func (inlineAll) Inline([]byte) bool { return true }

func TestCallEcho(t *testing.T) {
	for name, h := range map[string]Handler{"pool": HandlerFunc(echo), "inline": inlineAll{echo}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := Pair(Config{}, Config{Handler: h})
				var wg sync.WaitGroup
				for range 64 {
					wg.Go(func() {
						var got json.RawMessage
						for range 100 {
							if err := a.Call(t.Context(), "echo", json.RawMessage(`{"a":[1,2]}`), &got); err != nil {
								t.Error(err)
								return
							}
							if string(got) != `{"a":[1,2]}` {
								t.Errorf("got %s", got)
							}
						}
					})
				}
				wg.Wait()
				if err := a.Notify(t.Context(), "n", nil); err != nil {
					t.Error(err)
				}
				var batch Batch
				var r1, r2 []int
				c1, c2 := batch.Call("x", []int{1}, &r1), batch.Call("y", []int{2}, &r2)
				if err := a.Batch(t.Context(), &batch); err != nil || c1.Err() != nil || c2.Err() != nil || r1[0] != 1 || r2[0] != 2 {
					t.Error(err, c1.Err(), c2.Err(), r1, r2)
				}
				if err := a.Close(); err != nil {
					t.Error(err)
				}
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
