package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley/interop/internal/practice"
	"github.com/parley-project/parley/interop/internal/steps"
	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcdial"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
)

// A visit is a client of a peer's on our server, which does what a file says.
type visit struct {
	peer    peer
	wire    wire
	notices *notices
}

func newVisit(p peer, w wire) visit { return visit{p, w, new(notices)} }

// play runs the peer's client with steps, and returns what came of them.
func (v visit) play(t *testing.T, role string, all []steps.Step) []steps.Outcome {
	t.Helper()
	dir := t.TempDir()
	script, report := filepath.Join(dir, "steps"), filepath.Join(dir, "report")
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(script, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := jsonrpc.Config{Name: v.peer.name, Handler: practiceMux(), Cancel: jsonrpc.LSPCancel, Hooks: jsonrpc.Hooks{Notice: v.notices.take}}
	if v.wire.network == "stdio" {
		p := v.peer.start(t, v.wire, cfg, role, v.wire.framing, "stdio", "-", script, report)
		<-p.conn.Done() // the client ends by closing
		if err := p.conn.Close(); err != nil {
			t.Error(err)
		}
		if code := p.code(t); code != 0 {
			t.Fatalf("%s %s ended with code %d", v.peer.program, role, code)
		}
	} else {
		addr := v.listen(t, cfg)
		cmd := command(t, v.peer.program, role, v.wire.framing, v.wire.network, addr, script, report)
		recorded(t, cmd)
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
	}
	text, err = os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var out []steps.Outcome
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	if len(out) != len(all) {
		t.Fatalf("%d outcomes of %d steps", len(out), len(all))
	}
	return out
}

// listen serves our methods until the test ends, and returns where.
func (v visit) listen(t *testing.T, cfg jsonrpc.Config) string {
	t.Helper()
	if v.wire.network == "http" {
		s := httptest.NewServer(httpHandler(t, cfg))
		t.Cleanup(s.Close)
		return s.URL
	}
	addr := "127.0.0.1:0"
	if v.wire.network == "unix" {
		addr = filepath.Join(t.TempDir(), "s")
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	at := make(chan string, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- rpcdial.Serve(ctx, v.wire.url(addr), rpcdial.Config{Listening: func(url string) { at <- url }}, cfg)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case url := <-at:
		return strings.TrimPrefix(url, v.wire.url(""))
	case err := <-ended:
		t.Fatal(err)
		return ""
	}
}

// TestServer runs the clients of other libraries against our server (RPC-1 to
// RPC-9, RPC-12 to RPC-15, RPC-20, RPC-24).
func TestServer(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p peer, w wire) {
		v := newVisit(p, w)
		var script []steps.Step
		var checks []func(*testing.T, steps.Outcome)
		add := func(s steps.Step, check func(*testing.T, steps.Outcome)) {
			script, checks = append(script, s), append(checks, check)
		}
		for _, e := range exchanges() {
			if e.exact && !p.exact {
				continue
			}
			if p.name == "vscode" && e.params == `[]` {
				e.result = `null` // its client leaves out params that are none
			}
			add(steps.Step{Op: "call", Method: e.method, Params: json.RawMessage(e.params)}, func(t *testing.T, o steps.Outcome) {
				t.Run(e.name, func(t *testing.T) { e.check(t, o.Result, o.Error) })
			})
		}
		v.busy(add)
		if w.twoWay() {
			v.twoWay(add)
		}
		if p.sendsBatches {
			v.batch(add)
		}
		if w.network == "stdio" {
			v.garbage(add)
		}
		for i, o := range v.play(t, "drive", script) {
			if o.Failure != "" && script[i].Op != "cancel" {
				t.Errorf("step %d, %s %s: %s", i, script[i].Op, script[i].Method, o.Failure)
				continue
			}
			checks[i](t, o)
		}
		if w.network == "stdio" {
			if n, m := v.notices.count(jsonrpc.NoticeMalformed), v.notices.count(jsonrpc.NoticeInvalid); n != 2 || m != 2 {
				t.Errorf("%d malformed and %d invalid messages were noticed, want 2 and 2", n, m)
			}
		}
	})
}

type adder = func(steps.Step, func(*testing.T, steps.Outcome))

// busy adds what loads a connection: notifications, many calls, long ones.
func (v visit) busy(add adder) {
	nothing := func(*testing.T, steps.Outcome) {}
	for i := range 100 {
		add(steps.Step{Op: "notify", Method: "note", Params: json.RawMessage(fmt.Sprintf(`{"i":%d}`, i))}, nothing)
	}
	add(steps.Step{Op: "notify", Method: "no/such/note"}, nothing)
	if v.wire.twoWay() { // HTTP requests pass each other
		add(steps.Step{Op: "call", Method: "notes"}, func(t *testing.T, o steps.Outcome) {
			if diff := cmp.Diff(`{"count":100,"last":{"i":99}}`, canonical(t, o.Result)); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
		})
	}
	add(steps.Step{Op: "many", Method: "echo", Params: json.RawMessage(`{"n":"$n"}`), Times: 1000}, numbered)
	big, err := json.Marshal([]string{bigText(), "end"})
	if err != nil {
		panic(err)
	}
	add(steps.Step{Op: "call", Method: "echo", Params: big}, func(t *testing.T, o steps.Outcome) {
		var got []string
		if err := json.Unmarshal(o.Result, &got); err != nil || len(got) != 2 || got[0] != bigText() {
			t.Errorf("900 kB came back changed: %v, %d bytes", err, len(o.Result))
		}
	})
}

// numbered checks that each of many calls got its own answer.
func numbered(t *testing.T, o steps.Outcome) {
	for i, r := range o.Results {
		if want := fmt.Sprintf(`{"n":%d}`, i); canonical(t, r) != want {
			t.Errorf("%s, want %s", r, want)
			return
		}
	}
	if len(o.Results) == 0 {
		t.Error("no results")
	}
}

// twoWay adds what needs both ends to call.
func (v visit) twoWay(add adder) {
	add(steps.Step{Op: "many", Method: "back", Params: json.RawMessage(`{"method":"echo","params":{"n":"$n"}}`), Times: 200}, numbered)
	add(steps.Step{Op: "call", Method: "back", Params: json.RawMessage(`{"method":"fail","params":{"code":77,"message":"theirs","data":{"k":"v"}}}`)},
		func(t *testing.T, o steps.Outcome) {
			if o.Error == nil || o.Error.Code != 77 || o.Error.Message != "theirs" || canonical(t, o.Error.Data) != `{"k":"v"}` {
				t.Errorf("%+v", o)
			}
		})
	add(steps.Step{Op: "call", Method: "back", Params: json.RawMessage(`{"method":"nobody/knows"}`)}, func(t *testing.T, o steps.Outcome) {
		if o.Error == nil || o.Error.Code != practice.MethodNotFound {
			t.Errorf("%+v", o)
		}
	})
	add(steps.Step{Op: "cancel", Method: "wait"}, func(t *testing.T, o steps.Outcome) {
		// The Go clients give up by themselves; vscode-jsonrpc waits for our
		// answer, which LSP wants to be this one.
		switch {
		case v.peer.name == "vscode" && (o.Error == nil || o.Error.Code != practice.Cancelled):
			t.Errorf("%+v", o)
		case strings.Contains(o.Failure, "never ran"), strings.Contains(o.Failure, "not told"):
			t.Error(o.Failure)
		}
	})
}

func (v visit) batch(add adder) {
	entries := []steps.Step{
		{Op: "call", Method: "echo", Params: json.RawMessage(`{"a":1}`)},
		{Op: "notify", Method: "note"},
		{Op: "call", Method: "no/such"},
		{Op: "call", Method: "subtract", Params: json.RawMessage(`[5,3]`)},
	}
	add(steps.Step{Op: "batch", Entries: entries}, func(t *testing.T, o steps.Outcome) {
		if len(o.Entries) != 3 {
			t.Fatalf("%d answers of 3", len(o.Entries))
		}
		if string(o.Entries[0].Result) != `{"a":1}` || string(o.Entries[2].Result) != `2` {
			t.Errorf("%s, %s", o.Entries[0].Result, o.Entries[2].Result)
		}
		if e := o.Entries[1].Error; e == nil || e.Code != practice.MethodNotFound {
			t.Errorf("%+v", o.Entries[1])
		}
	})
}

// garbage adds a client's stray words on the wire: our server answers that it
// could not read them, and goes on.
func (v visit) garbage(add adder) {
	for _, word := range []string{"a word to standard output", `{"half":`, `[]`, `{"jsonrpc":"1.0","method":"m","id":1}`} {
		text := word + "\n"
		if v.wire.framing == "headers" {
			text = fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(word), word)
		}
		add(steps.Step{Op: "print", Text: text}, func(*testing.T, steps.Outcome) {})
		add(steps.Step{Op: "call", Method: "subtract", Params: json.RawMessage(`[3,1]`)}, func(t *testing.T, o steps.Outcome) {
			if string(o.Result) != `2` {
				t.Errorf("after %q: %+v", word, o)
			}
		})
	}
}

// TestServerIDs has ids come back byte for byte, through the message layer of
// the peers: their clients choose small integers only (RPC-2).
func TestServerIDs(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p peer, w wire) {
		ids := []string{`0`, `-7`, `2147483648`, `9007199254740991`, `""`, `"a"`, `"é\"\\"`, `"18f0a3c6-8f0e-4c2b-9a57-0123456789ab"`}
		if p.exact {
			ids = append(ids, `9007199254740993`, `9223372036854775807`, `-9223372036854775808`)
		}
		if p.name == "jrpc2" { // the other one parses ids, this one carries bytes
			ids = append(ids, `18446744073709551616123456789`, `1.5`, `1e3`, `null`)
		}
		script := []steps.Step{
			// Nobody answers these: the first answer is that of the first id.
			{Op: "exchange", Text: `{"jsonrpc":"2.0","method":"note","params":{}}`},
			{Op: "exchange", Text: `{"jsonrpc":"2.0","method":"no/such/note"}`},
		}
		notes := len(script)
		for _, id := range ids {
			script = append(script, steps.Step{Op: "exchange", Text: fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"subtract","params":[3,1]}`, id), Answers: 1})
		}
		v := newVisit(p, w)
		for i, o := range v.play(t, "exchange", script)[notes:] {
			if o.Failure != "" || len(o.Texts) != 1 {
				t.Errorf("id %s: %+v", ids[i], o)
				continue
			}
			var got struct {
				JSONRPC string
				ID      json.RawMessage
				Result  json.RawMessage
			}
			if err := json.Unmarshal([]byte(o.Texts[0]), &got); err != nil {
				t.Errorf("id %s: %v in %s", ids[i], err, o.Texts[0])
				continue
			}
			if string(got.ID) != ids[i] || got.JSONRPC != "2.0" || string(got.Result) != "2" {
				t.Errorf("id %s: answered %s", ids[i], o.Texts[0])
			}
		}
	})
}

// TestServerNotificationStatus: our HTTP server answers notifications with
// status 202 by default, as the Model Context Protocol wants it. jrpc2's client
// knows 204 only, and ends its connection; in the other tests it gets that.
func TestServerNotificationStatus(t *testing.T) {
	parallel(t)
	h := rpchttp.Handler(rpchttp.ServerConfig{Config: jsonrpc.Config{Handler: practiceMux()}})
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	t.Cleanup(func() { h.Close() })
	dir := t.TempDir()
	script := filepath.Join(dir, "steps")
	// It hears of the status whenever it gets to that: some calls may go well before.
	text := `[{"op":"notify","method":"note"}` + strings.Repeat(`,{"op":"call","method":"echo"}`, 100) + `]`
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := command(t, "jrpc2peer", "drive", "lines", "http", s.URL, script, filepath.Join(dir, "report")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "unexpected HTTP status 202") {
		t.Errorf("%v, %q", err, out)
	}
}
