package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestTrustRaw proves that raw texts are checked unless they are trusted, that
// a trusted one that is wrong spoils its own message and no other, and that no
// line break of theirs gets out (RPC-5, RPC-24).
func TestTrustRaw(t *testing.T) {
	const bad, sent = "[1,\n\"a\r\nb\"", `[1, "a  b"`
	broken := json.RawMessage(bad)
	fine := json.RawMessage("[1,\n2]")
	h := HandlerFunc(func(_ context.Context, req *Request) (any, error) {
		switch req.Method() {
		case "bad":
			return broken, nil
		case "pointer":
			return &broken, nil
		case "nil":
			return (*json.RawMessage)(nil), nil
		case "empty":
			return json.RawMessage{}, nil
		}
		return &fine, nil
	})
	const id2 = `{"jsonrpc":"2.0","id":2,`
	withPeer(t, Config{Handler: h, TrustRaw: true, Timeout: time.Second}, func(t *testing.T, c *Conn, peer *rawPeer) {
		for _, params := range []any{broken, &broken} {
			failed := make(chan error, 1)
			go func() { failed <- c.Call(t.Context(), "m", params, nil) }()
			if got := peer.next(); !strings.HasSuffix(got, `"method":"m","params":`+sent+"}") {
				t.Error(got)
			}
			if err := <-failed; !errors.Is(err, ErrTimeout) {
				t.Error(err)
			}
		}
		if err := c.Call(t.Context(), "m", json.RawMessage(`1`), nil); !errors.Is(err, errScalarParams) {
			t.Error(err)
		}
		for method, want := range map[string]string{"bad": sent, "pointer": sent, "fine": "[1, 2]", "nil": "null"} {
			peer.send(id2 + `"method":"` + method + `"}`)
			peer.want(id2 + `"result":` + want + `}`)
		}
		peer.send(id2 + `"method":"empty"}`)
		if got := peer.next(); !strings.Contains(got, "-32603") {
			t.Error(got)
		}
	})
	withPeer(t, Config{Handler: h}, func(t *testing.T, c *Conn, peer *rawPeer) {
		var syntax *SyntaxError
		for _, params := range []any{broken, &broken} {
			if err := c.Call(t.Context(), "m", params, nil); !errors.As(err, &syntax) {
				t.Error(err)
			}
		}
		for _, method := range []string{"bad", "pointer"} {
			peer.send(id2 + `"method":"` + method + `"}`)
			if got := peer.next(); !strings.Contains(got, "-32603") {
				t.Error(got)
			}
		}
		go c.Notify(t.Context(), "absent", (*json.RawMessage)(nil))
		peer.want(`{"jsonrpc":"2.0","method":"absent"}`)
		go c.Notify(t.Context(), "fine", &fine)
		peer.want(`{"jsonrpc":"2.0","method":"fine","params":[1, 2]}`)
	})
}

// TestBatchMemory proves that a batch that is handled inline costs next to no
// allocation of its own, and that the memory of one that others handle is not
// used again.
func TestBatchMemory(t *testing.T) {
	params := json.RawMessage(`{"a":1}`)
	a, b := Pair(Config{}, Config{Handler: inlineAll{func(context.Context, *Request) (any, error) { return &params, nil }}})
	defer a.Close()
	defer b.Close()
	results := make([]json.RawMessage, 100)
	run := func() {
		var batch Batch
		for i := range results {
			batch.Call("m", &params, &results[i])
		}
		if err := a.Batch(t.Context(), &batch); err != nil {
			t.Fatal(err)
		}
	}
	run()
	if n := testing.AllocsPerRun(100, run); n > 20 {
		t.Errorf("%v allocations for a batch of 100", n)
	}
	results = make([]json.RawMessage, keepEntries+1)
	run()
	b.Close() // which waits for the goroutine that reads
	if cap(b.in.entries) > keepEntries || b.in.spare != nil {
		t.Errorf("the memory of a batch of %d is kept", len(results))
	}
	for i := range results {
		if string(results[i]) != string(params) {
			t.Fatalf("%d: %s", i, results[i])
		}
	}
}

// TestBatchAfterBatch proves that batches of all kinds, one after another and
// overlapping, keep their answers apart.
func TestBatchAfterBatch(t *testing.T) {
	withPeer(t, Config{Handler: quickInline{}}, func(t *testing.T, c *Conn, peer *rawPeer) {
		entry := func(id, method string) string {
			return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":[` + id + `]}`
		}
		peer.send(
			"["+entry("1", "slow")+","+entry("2", "quick")+"]",
			"["+entry("3", "quick")+","+entry("4", "quick")+",{\"jsonrpc\":\"2.0\",\"method\":\"quick\"}]",
			`[{"jsonrpc":"2.0","method":"quick"}]`,
			`[{"jsonrpc":"2.0","id":77,"result":1}]`,
			`[{"jsonrpc":"2.0","method":"quick"},`+entry("5", "quick")+"]",
		)
		result := func(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"result":[` + id + `]}` }
		peer.want("["+result("3")+","+result("4")+"]", "["+result("5")+"]", "["+result("1")+","+result("2")+"]")
	})
}

// quickInline handles "quick" inline, and everything else a second later.
type quickInline struct{}

func (quickInline) Handle(ctx context.Context, req *Request) (any, error) {
	if req.Method() != "quick" {
		time.Sleep(time.Second)
	}
	return echo(ctx, req)
}

func (quickInline) Inline(method []byte) bool { return string(method) == "quick" }

// TestLongString proves that what ends a string, or is wrong with it, is found
// wherever it is, in strings that are skipped in large steps too.
func TestLongString(t *testing.T) {
	for n := range 200 {
		for _, tail := range []string{"", "y", strings.Repeat("z", 40)} {
			for _, tt := range []struct {
				text string
				ok   bool
			}{
				{"", true},
				{`\"`, true},
				{`\n`, true},
				{"é", true},
				{"\u20ac😀", true},
				{`\ud83d\ude00`, true},
				{"\x7f", true},
				{`"`, false},
				{"\n", false},
				{"\x00", false},
				{"\x1f", false},
				{"\xff", false},
				{"\xc3", false},
				{`\x`, false},
				{`\ud83d`, false},
			} {
				text := `["` + strings.Repeat("x", n) + tt.text + tail + `"]`
				if err := checkValue([]byte(text), 1); (err == nil) != tt.ok {
					t.Errorf("%d bytes, then %q, then %d: %v", n, tt.text, len(tail), err)
				}
				if ok := skipWhole([]byte(text), 1) == len(text); ok != tt.ok {
					t.Errorf("%d bytes, then %q, then %d: the fast pass says %t", n, tt.text, len(tail), ok)
				}
			}
		}
	}
}
