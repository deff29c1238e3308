package jsonrpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// skimmedIn gives what a skimmer finds in a text that comes in pieces of so many bytes.
func skimmedIn(text string, size int) (id string, response bool) {
	s := newSkimmer(8)
	for ; len(text) > size; text = text[size:] {
		s.take([]byte(text[:size]))
	}
	s.take([]byte(text))
	return string(s.id), s.response
}

// TestSkim: a response that is skipped tells whose it is wherever its id stands, and
// nothing that stands behind a fault is taken for its id (RPC-24).
func TestSkim(t *testing.T) {
	long := strings.Repeat("y", maxSkimmed)
	for _, x := range []struct {
		text, id string
		response bool
	}{
		{`{"jsonrpc":"2.0","result":"x","id":7}`, "7", true},
		{`{"jsonrpc":"2.0","id":7,"result":"x"}`, "7", true},
		{` { "error" : {"code":1,"message":"","data":{"id":1}} , "id" : "a-b" } `, `"a-b"`, true},
		{`{"result":[{"id":1},"\"id\":2,","\\"],"id":3}`, "3", true},
		{`{"result":{"id":1,"result":{"id":2}},"id":3,"id":4}`, "3", true},
		{`{"id":3,"id":4,"result":1}`, "4", true},
		{`{"result":"}{\\\",\"id\":1","id":3}`, "3", true},
		{`{"id":null,"error":1}`, "null", true},
		{`{"result":1,"id":[1]}`, "", true},
		{`{"result":1,"id":{"id":5}}`, "", true},
		{`{"result":1,"id":"` + long + `"}`, `"` + long[1:], true},
		{`{"` + long + `":1,"result":1,"id":6}`, "6", true},
		{`{"method":"m","params":{"result":1},"id":7}`, "7", false},
		{`{"Result":1,"ID":7}`, "", false},
		{`{"result":[[[[[[[1]]]]]]],"id":3}`, "3", true},
		{`{"result":[[[[[[[[1]]]]]]]],"id":3}`, "", true}, // deeper than allowed
		{`{"result":1,"id":1 2}`, "", true},
		{`{"result":{"a":[1,]},"id":3}`, "", true},
		{`{"result":{"a":1}},"id":3}`, "", true},
		{`{"result":1,"id":7`, "", true},
		{`{"result":1}{"id":7}`, "", true},
		{`}{"result":1,"id":7}`, "", false},
		{`[{"result":1,"id":7}]`, "", false},
		{`"id"`, "", false},
		{``, "", false},
	} {
		for _, size := range []int{1, 2, 3, 7, 1000} {
			if id, response := skimmedIn(x.text, size); id != x.id || response != x.response {
				t.Errorf("%s, by %d bytes: %s, %v", x.text, size, id, response)
			}
		}
	}
}

// TestSkimBatch: of a batch that is skipped, the ids of the responses are found.
func TestSkimBatch(t *testing.T) {
	for text, want := range map[string]string{
		`[{"result":1,"id":7},{"id":8,"error":{"id":1}} , {"id":9,"result":[{"id":2,"result":1}],"more":{"id":3}}]`: "7 8 9",
		` [ ]`:                                     "",
		`[1,"{",[{"result":1,"id":2}],[3,4],{}]`:   "",
		`[{"result":1},{"id":3}]`:                  "",
		`[[5,{"id":1}],{"result":"],}","id":"a"}]`: `"a"`,
		`[{"method":"m","id":1},{"result":1,"id":2},{"id":3,"resu`:                          "2",
		`[{"id":1,"result":1,"id":2}]`:                                                      "1",
		`[{"id":1,"result":2},{"id":3,"result":4},{"id":5,"result":6},{"id":7,"result":8}]`: "1 3 5",
		`[{"id":1,"result":2},}{"id":3,"result":4}]`:                                        "1",
		`[{"id":1,"result":2}][{"id":3,"result":4}]`:                                        "1",
	} {
		for _, size := range []int{1, 2, 3, 7, 1000} {
			s := newSkimmer(8)
			s.most = 3
			for rest := text; rest != ""; rest = rest[min(size, len(rest)):] {
				s.take([]byte(rest[:min(size, len(rest))]))
			}
			if got := string(bytes.Join(s.batch, []byte(" "))); got != want {
				t.Errorf("%s, by %d bytes: %s, want %s", text, size, got, want)
			}
		}
	}
}

// TestBatchTooLong: calls whose answers come in an array that is too long end at once, as
// one does whose answer is.
func TestBatchTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := HandlerFunc(func(context.Context, *Request) (any, error) { return strings.Repeat("x", 400_000), nil })
		server, client := Pair(Config{Handler: answer}, Config{})
		began := time.Now()
		var b Batch
		for range 3 {
			b.Call("m", nil, new(string))
		}
		if err := client.Batch(t.Context(), &b); err != nil {
			t.Error(err)
		}
		for _, call := range b.calls {
			if e, ok := errors.AsType[*ResourceError](call.Err()); !ok || e.Limit != 1<<20 || time.Since(began) > 0 {
				t.Errorf("after %v: %v", time.Since(began), call.Err())
			}
		}
		client.Close()
		server.Close()
	})
}

// TestSkimForNobody: a message that is too long is not looked through while no call could
// be answered by it, whether it comes whole or in parts.
func TestSkimForNobody(t *testing.T) {
	const text = `{"jsonrpc":"2.0","result":"12345678901234567890","id":`
	near, far := Pipe()
	defer near.Close()
	defer far.Close()
	c := newConn(near, Config{MaxMessage: 30}.withDefaults())
	in := &c.in
	parts := func(end string) {
		in.part(Part{Data: []byte(text[:20])})
		in.part(Part{Data: []byte(text[20:])})
		if looked := in.assembly.skim.check.off; (looked > 0) != (c.pending.count.Load() > 0) {
			t.Errorf("looked at %d bytes while %d calls wait", looked, c.pending.count.Load())
		}
		in.part(Part{Data: []byte(end), End: true})
	}
	parts("4096}")
	for name, come := range map[string]func(end string){"in parts": parts, "whole": func(end string) { in.whole([]byte(text + end)) }} {
		s, id, err := c.pending.take(awaiting{})
		if err != nil {
			t.Fatal(err)
		}
		come(fmt.Sprintf("%d}", id))
		select {
		case <-s.done:
			c.pending.release(s)
		default:
			t.Fatalf("%s: the call has not ended", name)
		}
	}
}

// FuzzSkim compares with a reading of the whole message.
func FuzzSkim(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","result":["x",{"id":1}],"id":7}`), 3)
	f.Add([]byte("{\"id\":\"a\",\n\"error\":{}}"), 1)
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		id, response := skimmedIn(string(text), max(1, size))
		check := valueChecker{maxDepth: 8}
		var m map[string]json.RawMessage
		if check.Write(text) != nil || check.Close() != nil || json.Unmarshal(text, &m) != nil || m == nil ||
			bytes.ContainsRune(text, '\\') || bytes.Count(text, []byte(`"id"`)) > 1 {
			return // names that are written otherwise, and members that come twice
		}
		_, result := m["result"]
		_, failed := m["error"]
		if response != (result || failed) {
			t.Errorf("response: %v", response)
		}
		want := string(m["id"])
		if want != "" && (want[0] == '{' || want[0] == '[') {
			want = ""
		}
		if want = want[:min(len(want), maxSkimmed)]; id != want {
			t.Errorf("id %s", id)
		}
	})
}
