package a2a_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a"
)

// rpcAgent answers JSON-RPC requests over connections in memory.
type rpcAgent struct {
	// answer gives the result or the error of one request, as members of JSON.
	answer func(method string) string

	mu      sync.Mutex
	methods []string
}

func (g *rpcAgent) asked() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.methods...)
}

func (g *rpcAgent) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer func() { _ = ours.Close() }()
		for r := bufio.NewReader(ours); ; {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			var call struct {
				ID     json.RawMessage `json:"id"`
				Method string          `json:"method"`
			}
			_ = json.NewDecoder(req.Body).Decode(&call)
			_, _ = io.Copy(io.Discard, req.Body)
			g.mu.Lock()
			g.methods = append(g.methods, call.Method)
			g.mu.Unlock()
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, call.ID, g.answer(call.Method))
			if _, err := fmt.Fprintf(ours, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
				return
			}
		}
	}()
	return theirs, nil
}

// adapter makes an Adapter that calls g, for the time of the test.
func (g *rpcAgent) adapter(t *testing.T, opts a2a.Options) *a2a.Adapter {
	t.Helper()
	opts.Exchange = bridge.NewExchange(bridge.ExchangeConfig{DialContext: g.dial})
	t.Cleanup(opts.Exchange.Close)
	a := a2a.New(opts)
	t.Cleanup(a.Close)
	return a
}

// detector is an [a2a.Detector] that counts.
type detector struct {
	found        parley.Detection
	err          error
	asked, anew  atomic.Int64
	renegotiated parley.Detection
}

func (d *detector) Detect(context.Context, parley.Agent) (parley.Detection, error) {
	d.asked.Add(1)
	time.Sleep(time.Second)
	return d.found, d.err
}

func (d *detector) Renegotiate(context.Context, parley.Agent, string) (parley.Detection, error) {
	d.anew.Add(1)
	if d.renegotiated.Protocol == "" {
		return parley.Detection{}, errors.New("no card")
	}
	return d.renegotiated, nil
}

func done(method string) string {
	if method == "SendMessage" {
		return `"result":{"task":{"id":"t","status":{"state":"TASK_STATE_COMPLETED"}}}`
	}
	return `"result":{"kind":"task","id":"t","status":{"state":"completed"}}`
}

func noSuchMethod(unless string) func(string) string {
	return func(method string) string {
		if method == unless {
			return done(method)
		}
		return `"error":{"code":-32601,"message":"Method not found"}`
	}
}

func call(t *testing.T, a *a2a.Adapter, agent parley.Agent) bridge.Outcome {
	t.Helper()
	out, err := a.Call(t.Context(), task(`"x"`), agent, nil)
	if err != nil {
		t.Error(err)
	}
	return out
}

func auto() parley.Agent {
	return parley.Agent{Name: "agent", URL: "http://agent.test/", ProtocolConfig: json.RawMessage(`{"a2a":"auto"}`)}
}

// TestDetect_Once: an agent of which nothing is stored is looked at once, also by
// many calls at a time, and only if its record says "auto".
func TestDetect_Once(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &rpcAgent{answer: noSuchMethod("SendMessage")}
		d := &detector{found: parley.Detection{Protocol: parley.ProtocolJSONRPC, URL: "http://agent.test/", Binding: "JSONRPC", Version: "1.0"}}
		a := g.adapter(t, a2a.Options{Detector: d})
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if out := call(t, a, auto()); out.Result.Outcome != parley.OutcomeOK {
					t.Errorf("%+v", out)
				}
			})
		}
		wg.Wait()
		if n := d.asked.Load(); n != 1 {
			t.Errorf("looked at %d times", n)
		}
		if got := g.asked(); len(got) != 20 {
			t.Errorf("%d requests: %v", len(got), got)
		}
		plain := auto()
		plain.ProtocolConfig = nil
		call(t, a, plain)
		if n := d.asked.Load(); n != 1 {
			t.Error("an agent was looked at without being told to")
		}
	})
}

// TestDetect_Failed: where nothing is found out the agent gets what the seeds
// send, and is looked at again after a while.
func TestDetect_Failed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &rpcAgent{answer: done}
		d := &detector{err: errors.New("no card")}
		a := g.adapter(t, a2a.Options{Detector: d})
		for range 3 {
			call(t, a, auto())
		}
		time.Sleep(30 * time.Second)
		call(t, a, auto())
		if n := d.asked.Load(); n != 2 {
			t.Errorf("looked at %d times in half a minute, want 2", n)
		}
		if diff := cmp.Diff([]string{"message/send", "message/send", "message/send", "message/send"}, g.asked()); diff != "" {
			t.Error(diff)
		}
	})
}

// stumbler is an [a2a.Detector] that stumbles over an agent when it looks first.
type stumbler struct{ detector }

func (d *stumbler) Detect(ctx context.Context, agent parley.Agent) (parley.Detection, error) {
	if found, err := d.detector.Detect(ctx, agent); d.asked.Load() > 1 {
		return found, err
	}
	panic("a card that nobody has thought of")
}

// TestDetect_Panics: an agent over which the look at it stumbles is shielded from like
// every other: the process lives, and the next call looks again, also one that waits.
func TestDetect_Panics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &rpcAgent{answer: noSuchMethod("SendMessage")}
		d := &stumbler{}
		d.found = parley.Detection{Protocol: parley.ProtocolJSONRPC, URL: "http://agent.test/", Binding: "JSONRPC", Version: "1.0"}
		a := g.adapter(t, a2a.Options{Detector: d})
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		var panics, answers atomic.Int64
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				defer func() {
					if recover() != nil {
						panics.Add(1)
					}
				}()
				if out, err := a.Call(ctx, task(`"x"`), auto(), nil); err == nil && out.Result.Outcome == parley.OutcomeOK {
					answers.Add(1)
				}
			})
		}
		wg.Wait()
		if panics.Load() != 1 || answers.Load() != 2 || d.asked.Load() != 2 {
			t.Errorf("%d calls panic and %d are answered after %d looks; want 1, 2 and 2", panics.Load(), answers.Load(), d.asked.Load())
		}
	})
}

// TestRenegotiate_Remembered: what an agent turned out to speak is spoken from
// then on; when it changes again that is found out too.
func TestRenegotiate_Remembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var speaks atomic.Pointer[string]
		now := func(method string) { speaks.Store(&method) }
		g := &rpcAgent{answer: func(method string) string { return noSuchMethod(*speaks.Load())(method) }}
		a := g.adapter(t, a2a.Options{})
		for _, method := range []string{"message/send", "SendMessage", "message/send"} {
			now(method)
			for range 2 {
				if out := call(t, a, auto()); out.Result.Outcome != parley.OutcomeOK {
					t.Errorf("%s: %+v", method, out)
				}
			}
		}
		want := []string{"message/send", "message/send", "message/send", "SendMessage", "SendMessage", "SendMessage", "message/send", "message/send"}
		if diff := cmp.Diff(want, g.asked()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestRenegotiate_Moved: a task that is asked for where the agent had it before the agent
// moved says nothing, by what answers there, about how the agent is called now.
func TestRenegotiate_Moved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &rpcAgent{answer: func(method string) string {
			if method == "GetTask" { // as the old place has it
				return `"error":{"code":-32601,"message":"Method not found"}`
			}
			return done(method)
		}}
		a := g.adapter(t, a2a.Options{})
		agent := parley.Agent{Name: "agent", URL: "http://agent.test/", ProtocolConfig: json.RawMessage(`{"a2a":"auto"}`)}
		var err error
		agent.Detected, err = json.Marshal(parley.Detection{
			Protocol: parley.ProtocolJSONRPC, URL: "http://agent.test/new", Binding: "JSONRPC", Version: "1.0",
			Others: []parley.DetectedInterface{{URL: "http://agent.test/v03", Binding: "JSONRPC", Version: "0.3"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		at := bridge.AgentTask{ID: "t", Endpoint: "binding=JSONRPC&url=" + url.QueryEscape("http://agent.test/old"), Version: "1.0"}
		if out, err := a.Poll(t.Context(), task(`"x"`), agent, at); err != nil || out.Result.Outcome != parley.OutcomeOK {
			t.Errorf("%+v, %v", out, err)
		}
		if out := call(t, a, agent); out.Result.Outcome != parley.OutcomeOK {
			t.Errorf("%+v", out)
		}
		if diff := cmp.Diff([]string{"GetTask", "tasks/get", "SendMessage"}, g.asked()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestRenegotiate_Card: the card is asked first about another dialect.
func TestRenegotiate_Card(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &rpcAgent{answer: noSuchMethod("SendMessage")}
		d := &detector{err: errors.New("no card yet"), renegotiated: parley.Detection{
			Protocol: parley.ProtocolJSONRPC, URL: "http://agent.test/v1", Binding: "JSONRPC", Version: "1.0", Tenant: "acme",
		}}
		a := g.adapter(t, a2a.Options{Detector: d})
		out := call(t, a, auto())
		if out.Result.Outcome != parley.OutcomeOK || d.anew.Load() != 1 {
			t.Errorf("asked anew %d times: %+v", d.anew.Load(), out)
		}
	})
}

// TestRenegotiate_Neither: an agent that speaks neither gets two requests for
// each message and no more.
func TestRenegotiate_Neither(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &rpcAgent{answer: noSuchMethod("none")}
		a := g.adapter(t, a2a.Options{Detector: &detector{err: errors.New("no card")}})
		out := call(t, a, auto())
		if out.Disposition != bridge.Answered || out.Result.Err.Code != parley.CodeAgentRejected || len(g.asked()) != 2 {
			t.Errorf("%v: %+v", g.asked(), out)
		}
	})
}

// TestPush_Remembered: an agent that has refused to push is not asked again.
func TestPush_Remembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pushes := 0
		g := &rpcAgent{answer: func(method string) string {
			if pushes == 1 {
				pushes++
				return `"error":{"code":-32003,"message":"no push"}`
			}
			return done(method)
		}}
		a := g.adapter(t, a2a.Options{Push: func(string) (url, token string, ok bool) { pushes++; return "https://p.test", "secret", true }})
		agent := auto()
		agent.Detected = json.RawMessage(`{"protocol":"jsonrpc-2.0","url":"http://agent.test/","version":"1.0","push":true}`)
		for range 3 {
			if out := call(t, a, agent); out.Result.Outcome != parley.OutcomeOK {
				t.Errorf("%+v", out)
			}
		}
		if pushes != 2 || len(g.asked()) != 4 {
			t.Errorf("push was wished for %d times in %d requests", pushes-1, len(g.asked()))
		}
	})
}

// pipes is a listener in memory: what a server accepts is what dial gives.
type pipes struct {
	conns chan net.Conn
	ended chan struct{}
	once  sync.Once
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.ended:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.ended) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// streamAgent streams events, in memory, until the test or the caller ends it.
func streamAgent(t *testing.T, events ...string) (*a2a.Adapter, parley.Agent, func() int) {
	t.Helper()
	var open atomic.Int64
	lis := &pipes{conns: make(chan net.Conn), ended: make(chan struct{})}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		open.Add(1)
		defer open.Add(-1)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%q,\"result\":%s}\n\n", taskID, e)
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(lis) })
	t.Cleanup(func() {
		_ = s.Close()
		serving.Wait()
	})
	x := bridge.NewExchange(bridge.ExchangeConfig{DialContext: lis.dial})
	t.Cleanup(x.Close)
	a := a2a.New(a2a.Options{Exchange: x})
	t.Cleanup(a.Close)
	agent := parley.Agent{Name: "s", URL: "http://agent.test/", ProtocolConfig: json.RawMessage(`{"a2a":"1.0","send":"stream"}`)}
	return a, agent, func() int { return int(open.Load()) }
}

const working = `{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}`

// TestStream_Outlives: a stream goes on after the call that began it, whose
// context ends then, until its owner ends it in one of three ways.
func TestStream_Outlives(t *testing.T) {
	for _, how := range []string{"close", "close before", "context"} {
		synctest.Test(t, func(t *testing.T) {
			a, agent, open := streamAgent(t, working)
			calling, called := context.WithCancel(t.Context())
			out, err := a.Call(calling, task(`"x"`), agent, nil)
			called()
			if err != nil || out.Disposition != bridge.Accepted || out.Stream == nil {
				t.Fatalf("%+v, %v", out, err)
			}
			listening, stop := context.WithCancel(t.Context())
			defer stop()
			if how == "close before" {
				out.Stream.Close()
			}
			ended := make(chan bridge.Outcome, 1)
			go func() { ended <- out.Stream.Listen(listening, nil) }()
			synctest.Wait()
			if over := len(ended) == 1; over != (how == "close before") {
				t.Fatalf("%s: after the end of the call the stream is over: %v", how, over)
			}
			switch how {
			case "close":
				out.Stream.Close()
			case "context":
				stop()
			}
			got := <-ended
			want := bridge.Lost
			if how == "context" {
				want = bridge.Accepted
			}
			if got.Disposition != want || got.AgentTaskID != "t" || got.ContextID != "c" {
				t.Errorf("%s: %+v", how, got)
			}
			out.Stream.Close()
			synctest.Wait()
			if open() > 0 {
				t.Errorf("%s: the connection is still open", how)
			}
		})
	}
}

// TestStream_CallEnds: the end of a call's context while it waits for the first
// event ends the exchange.
func TestStream_CallEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, agent, open := streamAgent(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		out, err := a.Call(ctx, task(`"x"`), agent, nil)
		if err != nil || out.Disposition != bridge.Lost || out.Result.Err.Code != parley.CodeTimeout || !strings.Contains(out.Result.Err.Message, "attempt") {
			t.Errorf("%+v, %v", out, err)
		}
		synctest.Wait()
		if open() > 0 {
			t.Error("the connection is still open")
		}
	})
}
