package jsonrpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// A step is one thing that happens in a random history of a connection.
type step struct {
	Kind string // call, notify, batch, close, shutdown or wait
	End  int    // which end does it
	// Of calls: how long the handler takes, how long the caller waits, and how
	// long the params are.
	Takes, Waits time.Duration
	Size         int
	Panics       bool
}

func genStep(t *rapid.T) step {
	return step{
		Kind: rapid.SampledFrom(append(slices.Repeat([]string{"call"}, 20),
			"notify", "notify", "batch", "batch", "wait", "wait", "close", "shutdown")).Draw(t, "kind"),
		End:    rapid.IntRange(0, 1).Draw(t, "end"),
		Takes:  time.Duration(rapid.SampledFrom([]int{0, 0, 0, 1, 20, 3000}).Draw(t, "takes")) * time.Millisecond,
		Waits:  time.Duration(rapid.SampledFrom([]int{-1, -1, 1, 20, 5000}).Draw(t, "waits")) * time.Millisecond,
		Size:   rapid.SampledFrom([]int{1, 1, 100, 5000, 300_000}).Draw(t, "size"),
		Panics: rapid.SampledFrom([]bool{false, false, false, true}).Draw(t, "panics"),
	}
}

// TestHistories proves for random histories of calls, notifications, batches,
// cancellations and closes on both ends that every call returns exactly once,
// with its own answer or an error of a known type, and that no goroutine is
// left (RPC-7, RPC-8, RPC-14, RPC-19).
func TestHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := history{
			steps:  rapid.SliceOfN(rapid.Custom(genStep), 1, 40).Draw(rt, "steps"),
			inline: rapid.Bool().Draw(rt, "inline"),
			try:    rapid.Bool().Draw(rt, "try"),
			cfg: Config{
				MaxPending:  rapid.SampledFrom([]int{1, 4, 4096}).Draw(rt, "pending"),
				MaxHandlers: rapid.SampledFrom([]int{1, 4, 1024}).Draw(rt, "handlers"),
				WriteBuffer: rapid.SampledFrom([]int{1, 10_000, 128 << 10}).Draw(rt, "buffer"),
				Cancel:      rapid.SampledFrom([]CancelStyle{CancelSilent, LSPCancel}).Draw(rt, "cancel"),
				IDs:         rapid.SampledFrom([]IDFormat{IntegerIDs, UUIDs}).Draw(rt, "ids"),
				Timeout:     10 * time.Second,
				Grace:       time.Second,
			},
		}
		synctest.Test(t, func(*testing.T) { h.run() })
		if h.err != nil {
			rt.Fatal(h.err)
		}
	})
}

type history struct {
	steps       []step
	inline, try bool
	cfg         Config

	mu  sync.Mutex
	err error
}

func (h *history) fail(format string, args ...any) {
	h.mu.Lock()
	h.err = errors.Join(h.err, fmt.Errorf(format, args...))
	h.mu.Unlock()
}

// handle takes as long as params say, and echoes them.
func (h *history) handle(ctx context.Context, req *Request) (any, error) {
	var p struct {
		Takes  time.Duration
		Panics bool
		Pad    string
	}
	if err := req.Decode(&p); err != nil {
		return nil, err
	}
	if p.Panics {
		panic("on purpose")
	}
	select {
	case <-time.After(p.Takes):
		return req.Params(), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (h *history) run() {
	near, far := Pipe()
	if !h.try {
		near, far = noTry{near}, noTry{far}
	}
	h.cfg.Handler = HandlerFunc(h.handle)
	if h.inline {
		h.cfg.Handler = inlineQuick{HandlerFunc(h.handle)}
	}
	ends := [2]*Conn{NewConn(near, h.cfg), NewConn(far, h.cfg)}
	var wg sync.WaitGroup
	var returned atomic.Int64
	calls := int64(0)
	for i, s := range h.steps {
		c := ends[s.End]
		switch s.Kind {
		case "wait":
			time.Sleep(15 * time.Millisecond)
			continue
		case "call", "batch":
			calls++
		}
		wg.Go(func() {
			switch s.Kind {
			case "call":
				h.call(c, i, s)
				returned.Add(1)
			case "batch":
				h.batch(c, i, s)
				returned.Add(1)
			case "notify":
				h.check(c.Notify(context.Background(), "notify", s.params(i)), s)
			case "close":
				c.Close()
			case "shutdown":
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
				defer cancel()
				c.Shutdown(ctx)
			}
		})
	}
	wg.Wait()
	if returned.Load() != calls {
		h.fail("%d of %d calls returned", returned.Load(), calls)
	}
	for _, c := range ends {
		c.Close()
		if s := c.Stats(); s.Pending != 0 || s.Handling != 0 || s.Unknown != 0 || s.Malformed != 0 || s.Invalid != 0 {
			h.fail("%+v", s)
		}
	}
}

// inlineQuick handles those methods inline that do not wait.
type inlineQuick struct{ HandlerFunc }

func (inlineQuick) Inline(method []byte) bool { return bytes.HasPrefix(method, []byte("quick")) }

func (s step) method() string {
	if s.Takes == 0 {
		return "quick"
	}
	return "slow"
}

func (s step) params(i int) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"Takes":%d,"Panics":%v,"Pad":"%d %s"}`, s.Takes, s.Panics, i, strings.Repeat("x", s.Size)))
}

func (h *history) call(c *Conn, i int, s step) {
	ctx := context.Background()
	if s.Waits > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.Waits)
		defer cancel()
	}
	var got json.RawMessage
	params := s.params(i)
	start := time.Now()
	err := c.Call(ctx, s.method(), params, &got)
	if err == nil && !bytes.Equal(got, params) {
		h.fail("call %d got %.100s", i, got)
	}
	limit := h.cfg.Timeout + maxSweep
	if s.Waits > 0 {
		limit = s.Waits
	}
	if took := time.Since(start); took > limit {
		h.fail("call %d took %v", i, took)
	}
	h.check(err, s)
}

func (h *history) batch(c *Conn, i int, s step) {
	var b Batch
	results := make([]json.RawMessage, 3)
	for k := range results {
		b.Call(s.method(), s.params(100*i+k), &results[k])
	}
	b.Notify(s.method(), s.params(i))
	h.check(c.Batch(context.Background(), &b), s)
	for k, result := range results {
		err := b.calls[k].Err()
		if err == nil && !bytes.Equal(result, s.params(100*i+k)) {
			h.fail("entry %d of batch %d got %.100s", k, i, result)
		}
		h.check(err, s)
	}
}

// check checks that an error is of a kind that the history explains.
func (h *history) check(err error, s step) {
	if err == nil {
		return
	}
	if _, ok := errors.AsType[*CallError](err); !ok {
		h.fail("%v is no CallError", err)
	}
	if wire, ok := errors.AsType[*Error](err); ok {
		switch wire.Code {
		case CodeServerBusy, CodeTimeout, CodeClosing, CodeCancelled:
			return
		case CodeInternalError:
			if s.Panics {
				return
			}
		case CodeInvalidRequest: // longer than Config.MaxMessage
			if s.Kind == "batch" && 4*s.Size > 1<<20 {
				return
			}
		}
	}
	if !errors.Is(err, ErrTimeout) && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrExhausted) {
		h.fail("%v", err)
	}
}
