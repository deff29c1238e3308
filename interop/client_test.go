package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley/interop/internal/practice"
	"github.com/parley-project/parley/jsonrpc"
)

// A session is our client on the server of a peer.
type session struct {
	*process
	peer    peer
	wire    wire
	notices *notices
}

// openWith connects our client as cfg says.
func openWith(t *testing.T, p peer, w wire, cfg jsonrpc.Config) session {
	t.Helper()
	s := session{peer: p, wire: w, notices: new(notices)}
	cfg.Hooks.Notice = s.notices.take
	if w.framing == "headers" { // string ids on one framing, integers on the other
		cfg.IDs = jsonrpc.UUIDs
	}
	s.process = p.serve(t, w, cfg)
	return s
}

// open connects our client, which serves the practice methods too, so that the
// peer can call back.
func open(t *testing.T, p peer, w wire) session {
	t.Helper()
	return openWith(t, p, w, jsonrpc.Config{Handler: practiceMux(), Cancel: jsonrpc.LSPCancel})
}

// call returns what came of a call; an error that is no answer fails the test.
func (s session) call(t *testing.T, method, params string) (json.RawMessage, *practice.Fault) {
	t.Helper()
	var in any
	if params != "" {
		in = json.RawMessage(params)
	}
	var result json.RawMessage
	err := s.conn.Call(t.Context(), method, in, &result)
	if e, ok := asError(err); ok {
		return nil, &practice.Fault{Code: int(e.Code), Message: e.Message, Data: e.Data}
	}
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	return result, nil
}

// TestClient runs our client against the servers of other libraries
// (RPC-1, RPC-2, RPC-6 to RPC-9, RPC-12 to RPC-15, RPC-20, RPC-24).
func TestClient(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p peer, w wire) {
		s := open(t, p, w)
		for _, e := range exchanges() {
			if e.exact && !p.exact {
				continue
			}
			t.Run(e.name, func(t *testing.T) {
				result, fault := s.call(t, e.method, e.params)
				e.check(t, result, fault)
			})
		}
		t.Run("empty message", s.emptyMessage)
		t.Run("notifications", s.notifications)
		t.Run("a thousand at once", s.many)
		t.Run("900 kB", s.big)
		t.Run("batch", s.batch)
		if w.twoWay() {
			t.Run("both directions", s.bothDirections)
			t.Run("their error comes back", s.errorBack)
			t.Run("cancel", s.cancel)
		}
		if w.network == "stdio" {
			t.Run("garbage", s.garbage)
			t.Run("close", s.close)
		}
	})
}

// TestClientCallerReads runs our client without a reader of its own.
func TestClientCallerReads(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p peer, w wire) {
		s := openWith(t, p, w, jsonrpc.Config{CallerReads: true})
		for _, e := range exchanges() {
			if e.exact && !p.exact {
				continue
			}
			result, fault := s.call(t, e.method, e.params)
			e.check(t, result, fault)
		}
		s.notifications(t)
		s.many(t)
		s.big(t)
	})
}

// TestClientPeerExits ends servers under calls: the calls fail by that and not by
// their timeout, and say why (RPC-14, RPC-22, RPC-26).
func TestClientPeerExits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p peer, w wire) {
		s := open(t, p, w)
		const calls = 50
		errs := make(chan error, calls+1)
		var all sync.WaitGroup
		for range calls {
			all.Go(func() { errs <- s.conn.Call(t.Context(), "wait", nil, nil) })
		}
		s.waitFor(t, func(w waiting) bool { return w.Waiting == calls })
		errs <- s.conn.Call(t.Context(), "exit", nil, nil)
		all.Wait()
		for range calls + 1 {
			s.lost(t, <-errs)
		}
		if !w.twoWay() {
			return // over HTTP the next request may find another server
		}
		<-s.conn.Done()
		if got := s.conn.State(); got != jsonrpc.StateDisconnected {
			t.Errorf("state %v", got)
		}
		if s.child != nil {
			if code := s.code(t); code != 3 {
				t.Errorf("exit code %d", code)
			}
		}
	})
}

// lost checks the error of a call whose peer is gone.
func (s session) lost(t *testing.T, err error) {
	t.Helper()
	call, ok := errors.AsType[*jsonrpc.CallError](err)
	if !ok || call.Conn != s.conn.Name() || call.Method == "" {
		t.Errorf("%v is no CallError with connection and method", err)
	}
	if s.wire.twoWay() {
		if e, ok := errors.AsType[*jsonrpc.ConnError](err); !ok || !e.Recoverable || !errors.Is(err, jsonrpc.ErrClosed) {
			t.Errorf("%v is no recoverable ConnError", err)
		}
	}
	if errors.Is(err, jsonrpc.ErrTimeout) {
		t.Errorf("%v: the call has waited for its timeout", err)
	}
	if _, answered := asError(err); answered {
		t.Errorf("%v is an answer", err)
	}
}

// emptyMessage: an empty message is no message to jrpc2, which leaves out the
// member that the specification wants; the error has to be read all the same.
func (s session) emptyMessage(t *testing.T) {
	_, fault := s.call(t, "fail", `{"code":5,"message":""}`)
	if fault == nil || fault.Code != 5 {
		t.Errorf("%+v", fault)
	}
}

func (s session) notifications(t *testing.T) {
	const n = 100
	for i := range n {
		if err := s.conn.Notify(t.Context(), "note", map[string]int{"i": i}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.conn.Notify(t.Context(), "no/such/note", nil); err != nil {
		t.Error(err) // and nobody says anything about it
	}
	eventually(t, func() (bool, string) {
		text, _ := s.call(t, "notes", "")
		var got noted
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		return got.Count == n, string(text)
	})
}

func (s session) many(t *testing.T) {
	var all sync.WaitGroup
	for i := range 1000 {
		all.Go(func() {
			want := fmt.Sprintf(`{"n":%d}`, i)
			got, err := jsonrpc.Call[json.RawMessage](t.Context(), s.conn, "echo", json.RawMessage(want))
			if err != nil || string(got) != want {
				t.Errorf("%s %v, want %s", got, err, want)
			}
		})
	}
	all.Wait()
}

func (s session) big(t *testing.T) {
	text := bigText()
	got, err := jsonrpc.Call[[]string](t.Context(), s.conn, "echo", []string{text})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0] != text {
		t.Error("the text came back changed")
	}
}

func (s session) batch(t *testing.T) {
	if !s.peer.batches {
		s.noBatch(t)
		return
	}
	var one, two json.RawMessage
	b := new(jsonrpc.Batch)
	first := b.Call("echo", json.RawMessage(`{"a":1}`), &one)
	b.Notify("note", nil)
	missing := b.Call("no/such", nil, nil)
	second := b.Call("subtract", []int{5, 3}, &two)
	failed := b.Call("fail", json.RawMessage(`{"code":9,"message":"nine","data":[9]}`), nil)
	if err := s.conn.Batch(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if first.Err() != nil || second.Err() != nil || string(one) != `{"a":1}` || string(two) != `2` {
		t.Errorf("%s %v, %s %v", one, first.Err(), two, second.Err())
	}
	if e, ok := asError(missing.Err()); !ok || e.Code != jsonrpc.CodeMethodNotFound {
		t.Errorf("unknown method: %v", missing.Err())
	}
	if e, ok := asError(failed.Err()); !ok || e.Code != 9 || e.Message != "nine" || string(e.Data) != `[9]` {
		t.Errorf("fail: %v", failed.Err())
	}
}

// noBatch: vscode-jsonrpc takes an array for a message without a method, and
// says nothing. The call has to end by itself, and the connection goes on.
func (s session) noBatch(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
	defer stop()
	b := new(jsonrpc.Batch)
	call := b.Call("echo", nil, nil)
	err := s.conn.Batch(ctx, b)
	if err == nil {
		err = call.Err()
	}
	if !errors.Is(err, jsonrpc.ErrTimeout) {
		t.Errorf("%v, want a timeout", err)
	}
	s.alive(t)
}

// bothDirections has the server call us back from within its handlers, while
// other calls of ours go on.
func (s session) bothDirections(t *testing.T) {
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			want := fmt.Sprintf(`{"n":%d}`, i)
			params := json.RawMessage(`{"method":"echo","params":` + want + `}`)
			got, err := jsonrpc.Call[json.RawMessage](t.Context(), s.conn, "back", params)
			if err != nil || string(got) != want {
				t.Errorf("back: %s %v, want %s", got, err, want)
			}
		})
		all.Go(func() {
			if got, err := jsonrpc.Call[int](t.Context(), s.conn, "subtract", []int{i, 1}); err != nil || got != i-1 {
				t.Errorf("subtract: %d %v, want %d", got, err, i-1)
			}
		})
	}
	all.Wait()
}

// errorBack: our answers reach the peer's code and come back.
func (s session) errorBack(t *testing.T) {
	_, fault := s.call(t, "back", `{"method":"fail","params":{"code":77,"message":"ours","data":{"k":"v"}}}`)
	if fault == nil || fault.Code != 77 || fault.Message != "ours" || canonical(t, fault.Data) != `{"k":"v"}` {
		t.Errorf("%+v", fault)
	}
	_, fault = s.call(t, "back", `{"method":"nobody/knows"}`)
	if fault == nil || fault.Code != practice.MethodNotFound {
		t.Errorf("%+v", fault)
	}
}

// cancel gives up a call that the server is known to run, and waits for the
// server to say that it heard of it.
func (s session) cancel(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	var call sync.WaitGroup
	call.Go(func() { ended <- s.conn.Call(ctx, "wait", nil, nil) })
	s.waitFor(t, func(w waiting) bool { return w.Waiting == 1 })
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
	call.Wait()
	s.waitFor(t, func(w waiting) bool { return w == waiting{Cancelled: 1} })
	// The answer that comes all the same is nobody's error.
	s.alive(t)
}

func (s session) waitFor(t *testing.T, ok func(waiting) bool) {
	t.Helper()
	eventually(t, func() (bool, string) {
		got, err := jsonrpc.Call[waiting](t.Context(), s.conn, "waits", nil)
		return err == nil && ok(got), fmt.Sprint(got, err)
	})
}

// garbage: programs print. What they print has to fit the framing, or nothing
// tells where the next message begins; but it need not be a message.
func (s session) garbage(t *testing.T) {
	lines := []string{
		"a word to standard output",
		`{"jsonrpc":"2.0","result":1}`,
		`{"half":`,
		`{"jsonrpc":"2.0","id":424242,"result":"nobody asked"}`,
	}
	for _, line := range lines {
		text := line + "\n"
		if s.wire.framing == "headers" {
			text = fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(line), line)
		}
		params, err := json.Marshal(map[string]string{"text": text})
		if err != nil {
			t.Fatal(err)
		}
		s.call(t, "print", string(params))
		s.alive(t)
	}
	if n := s.notices.count(jsonrpc.NoticeMalformed); n != 2 {
		t.Errorf("%d malformed messages were noticed, want 2", n)
	}
	if n := s.notices.count(jsonrpc.NoticeInvalid); n != 1 {
		t.Errorf("%d invalid messages were noticed, want 1", n)
	}
	if n := s.notices.count(jsonrpc.NoticeUnknown); n != 1 {
		t.Errorf("%d unknown answers were noticed, want 1", n)
	}
}

func (s session) alive(t *testing.T) {
	t.Helper()
	if got, err := jsonrpc.Call[int](t.Context(), s.conn, "subtract", []int{3, 1}); err != nil || got != 2 {
		t.Fatalf("3 - 1 = %d, %v", got, err)
	}
}

// close ends the connection, and so the program, which exits of its own
// accord.
func (s session) close(t *testing.T) {
	if err := s.conn.Close(); err != nil {
		t.Error(err)
	}
	if code := s.code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if err := s.conn.Call(t.Context(), "echo", nil, nil); !errors.Is(err, jsonrpc.ErrClosed) {
		t.Errorf("%v, want ErrClosed", err)
	}
	if err := s.conn.Err(); !errors.Is(err, jsonrpc.ErrClosed) || errors.Is(err, io.EOF) {
		t.Errorf("%v, want that we closed it", err)
	}
}

// eventually tries until something holds, for at most two minutes.
func eventually(t *testing.T, f func() (ok bool, state string)) {
	t.Helper()
	end := time.Now().Add(2 * time.Minute)
	for {
		ok, state := f()
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it came to %s", state)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestClientMeta sends correlation id and trace context as members of requests,
// which JSON-RPC 2.0 does not know. jrpc2 refuses them, the others do not mind:
// the reason why Config.SendMeta is off unless it is asked for.
func TestClientMeta(t *testing.T) {
	t.Parallel()
	for _, p := range peers() {
		t.Run(p.name, func(t *testing.T) {
			parallel(t)
			s := openWith(t, p, p.wires[0], jsonrpc.Config{SendMeta: true})
			ctx := jsonrpc.WithMeta(t.Context(), jsonrpc.Meta{
				CorrelationID: "c-1",
				TraceParent:   "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
			})
			got, err := jsonrpc.Call[int](ctx, s.conn, "subtract", []int{3, 1})
			if p.name == "jrpc2" {
				if e, ok := asError(err); !ok || e.Code != jsonrpc.CodeInvalidRequest {
					t.Errorf("%d, %v, want an invalid request", got, err)
				}
			} else if err != nil || got != 2 {
				t.Errorf("%d, %v", got, err)
			}
			if call, ok := errors.AsType[*jsonrpc.CallError](err); ok && call.CorrelationID != "c-1" {
				t.Errorf("correlation id %q", call.CorrelationID)
			}
			s.alive(t) // without them it serves
		})
	}
}
