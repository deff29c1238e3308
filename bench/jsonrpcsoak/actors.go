package jsonrpcsoak

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcws"
)

// actor does one thing again and again.
type actor struct {
	name string
	act  func(context.Context, dice) error
}

func (w *world) actors() []actor {
	all := []actor{
		{"cutter", w.cutter},
		{"hostile peer", w.meetHostile},
		{"overload", w.overload},
	}
	for range 4 {
		all = append(all,
			actor{"caller", func(ctx context.Context, d dice) error { return echo(ctx, w.client, "echo", d.params(300)) }},
			actor{"pooled caller", func(ctx context.Context, d dice) error { return echo(ctx, w.client, "pooled", d.params(4000)) }},
			actor{"HTTP caller", func(ctx context.Context, d dice) error { return echo(ctx, w.posts, "pooled", d.params(300)) }},
		)
	}
	for range 2 {
		all = append(all,
			actor{"large caller", func(ctx context.Context, d dice) error { return echo(ctx, w.client, "pooled", d.params(600_000)) }},
			actor{"notifier", w.notify}, actor{"batcher", w.batch}, actor{"canceller", w.cancel}, actor{"failing", w.fail},
			actor{"garbage", w.garbage}, actor{"newcomer", w.newcomer},
		)
	}
	return all
}

// echo makes a call and compares the answer.
func echo(ctx context.Context, c jsonrpc.Caller, method string, params json.RawMessage) error {
	var answer json.RawMessage
	if err := c.Call(ctx, method, params, &answer, jsonrpc.Idempotent()); err != nil {
		return err
	}
	if !bytes.Equal(answer, params) {
		return fmt.Errorf("%w: sent %.60s, got %.60s", errWrong, params, answer)
	}
	return nil
}

// pause waits for up to d.
func pause(ctx context.Context, r dice, d time.Duration) {
	select {
	case <-time.After(time.Duration(r.Int64N(int64(d)))):
	case <-ctx.Done():
	}
}

func (w *world) cutter(ctx context.Context, d dice) error {
	pause(ctx, d, 400*time.Millisecond)
	w.cut(d)
	return nil
}

func (w *world) notify(ctx context.Context, d dice) error {
	pause(ctx, d, time.Millisecond)
	return w.client.Notify(ctx, []string{"echo", "pooled", "fail", "nobody"}[d.IntN(4)], d.params(500))
}

func (w *world) batch(ctx context.Context, d dice) error {
	var b jsonrpc.Batch
	params := make([]json.RawMessage, 1+d.IntN(40))
	answers := make([]json.RawMessage, len(params))
	calls := make([]*jsonrpc.BatchCall, len(params))
	for i := range params {
		params[i] = d.params(200)
		if d.IntN(5) == 0 {
			b.Notify("pooled", params[i])
			continue
		}
		calls[i] = b.Call([]string{"echo", "pooled"}[d.IntN(2)], params[i], &answers[i])
	}
	if err := w.client.Batch(ctx, &b, jsonrpc.Idempotent()); err != nil {
		return err
	}
	for i, c := range calls {
		switch {
		case c == nil:
		case c.Err() != nil:
			return c.Err()
		case !bytes.Equal(answers[i], params[i]):
			return fmt.Errorf("%w in a batch: sent %.60s, got %.60s", errWrong, params[i], answers[i])
		}
	}
	return nil
}

// cancel gives slow calls up, by the context or by a timeout.
func (w *world) cancel(ctx context.Context, d dice) error {
	after := time.Duration(d.Int64N(int64(30 * time.Millisecond)))
	if d.IntN(2) == 0 {
		return w.client.Call(ctx, "slow", d.params(100), nil, jsonrpc.WithTimeout(after+1))
	}
	ctx, cancel := context.WithTimeout(ctx, after)
	defer cancel()
	return w.client.Call(ctx, "slow", d.params(100), nil)
}

// fail meets errors and panics, which must arrive as what they are.
func (w *world) fail(ctx context.Context, d dice) error {
	pause(ctx, d, 2*time.Millisecond)
	method, want := "fail", jsonrpc.Code(1234)
	switch d.IntN(3) {
	case 0:
		method, want = "panic", jsonrpc.CodeInternalError
	case 1:
		method, want = "nobody", jsonrpc.CodeMethodNotFound
	}
	err := w.client.Call(ctx, method, d.params(100), nil, jsonrpc.Idempotent())
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok && e.Code == want {
		return nil
	}
	if err == nil {
		return fmt.Errorf("%w: %s did not fail", errWrong, method)
	}
	return err
}

// overload makes more slow calls at once than the server has handlers.
func (w *world) overload(ctx context.Context, d dice) error {
	pause(ctx, d, 200*time.Millisecond)
	var wg sync.WaitGroup
	errs := make([]error, 200)
	for i := range errs {
		wg.Go(func() { errs[i] = w.client.Call(ctx, "slow", nil, nil, jsonrpc.Idempotent()) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil && !excused(err) {
			return err
		}
	}
	return nil
}

// newcomer connects in one of the ways, makes some calls, also back from the
// server, and leaves, sometimes without a word.
func (w *world) newcomer(ctx context.Context, d dice) error {
	pause(ctx, d, 5*time.Millisecond)
	cfg := clientConfig()
	var stream jsonrpc.Stream
	var err error
	var raw net.Conn
	switch kind := d.IntN(4); kind {
	case 0:
		stream, err = rpcws.Dial(ctx, "ws"+strings.TrimPrefix(w.web.URL, "http")+"/ws", rpcws.DialConfig{})
	case 1:
		if raw, err = dial(ctx, w.headers); err == nil {
			stream = jsonrpc.NewHeaderStream(raw)
		}
	default:
		if raw, err = dial(ctx, w.lines); err == nil {
			stream = jsonrpc.NewLineStream(raw)
		}
		cfg.CallerReads = kind == 3
	}
	if err != nil {
		return err
	}
	method := "echo"
	if !cfg.CallerReads {
		cfg.Handler = serverConfig().Handler
		method = "back"
	}
	c := jsonrpc.NewConn(stream, cfg)
	defer c.Close()
	for range d.IntN(20) {
		if err := echo(ctx, c, method, d.params(1000)); err != nil {
			return err
		}
	}
	if raw != nil && d.IntN(4) == 0 {
		_ = raw.Close()
	}
	return nil
}

func dial(ctx context.Context, l net.Listener) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
}

// garbage sends what no client should, and reads what comes back.
func (w *world) garbage(ctx context.Context, d dice) error {
	pause(ctx, d, 10*time.Millisecond)
	to := w.lines
	if d.IntN(4) == 0 {
		to = w.headers
	}
	c, err := dial(ctx, to)
	if err != nil {
		return err
	}
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(io.Discard, c) })
	defer reading.Wait()
	defer c.Close()
	for range d.IntN(50) {
		if _, err := io.WriteString(c, rubbish(d)); err != nil {
			return nil // hung up, as it may
		}
	}
	return nil
}

// rubbish is one line that is wrong in some way, or half of one.
func rubbish(d dice) string {
	all := []string{
		"\n", "nonsense\n", "{\n", `{"jsonrpc":"2.0","id":1}` + "\n", "[]\n", "[1,2,3]\n",
		`{"jsonrpc":"1.0","id":1,"method":"echo"}` + "\n",
		`{"jsonrpc":"2.0","id":77,"result":true}` + "\n",
		`{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}` + "\n",
		`{"jsonrpc":"2.0","id":5,"method":"echo","params":{"a":"` + "\xff" + `"}}` + "\n",
		`{"jsonrpc":"2.0","id":5,"method":"pooled","params":["ok"]}` + "\n",
		`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":5}}` + "\n",
		`{"jsonrpc":"2.0","id":6,"method":"echo","params":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + "}\n",
		"Content-Length: 12\r\n\r\n{\"jsonrpc\":}", `{"jsonrpc":"2.0","id":7,"meth`,
	}
	if d.IntN(60) == 0 {
		return `{"jsonrpc":"2.0","id":8,"method":"echo","params":["` + strings.Repeat("x", 1_200_000) + "\"]}\n"
	}
	return all[d.IntN(len(all))]
}

// meetHostile calls a server that answers anything but what was asked.
func (w *world) meetHostile(ctx context.Context, d dice) error {
	pause(ctx, d, 5*time.Millisecond)
	raw, err := dial(ctx, w.hostile)
	if err != nil {
		return err
	}
	c := jsonrpc.NewConn(jsonrpc.NewLineStream(raw), clientConfig())
	defer c.Close()
	for range 5 {
		err := c.Call(ctx, "echo", d.params(100), nil, jsonrpc.WithTimeout(5*time.Millisecond))
		if _, refused := errors.AsType[*jsonrpc.Error](err); err != nil && !refused && !excused(err) {
			return err
		}
	}
	return nil
}

// beHostile is that server. It reads and answers, as long as it likes to.
func (w *world) beHostile() {
	d := newDice(99)
	var each sync.WaitGroup
	defer each.Wait()
	for {
		c, err := w.hostile.Accept()
		if err != nil {
			return
		}
		answers := make([]string, 1+d.IntN(20))
		for i := range answers {
			answers[i] = rubbish(d)
		}
		each.Go(func() {
			defer c.Close()
			in := make([]byte, 4096)
			for _, a := range answers {
				if _, err := c.Read(in); err != nil {
					return
				}
				if _, err := io.WriteString(c, a); err != nil {
					return
				}
			}
		})
	}
}
