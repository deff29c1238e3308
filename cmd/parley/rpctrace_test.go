package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley/internal/logging"
)

// TestSketchTellsKinds holds the trace to naming each kind of message, its
// method and id, and what is wrong with it.
func TestSketchTellsKinds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{`{"jsonrpc":"2.0","method":"a","id":1}`, `request a 1 asks=1 answers=0`},
		{`{"jsonrpc":"2.0","method":"a","params":[1],"id":null}`, `request a null asks=1 answers=0`},
		{`{"jsonrpc":"2.0","method":"\u0061b","id":9007199254740993}`, `request ab 9007199254740993 asks=1 answers=0`},
		{`{"jsonrpc":"2.0","method":"a"}`, `notification a  asks=0 answers=0`},
		{`{"jsonrpc":"2.0","result":null,"id":"x"}`, `response  "x" asks=0 answers=1`},
		{`{"jsonrpc":"2.0","error":{"code":-32601,"message":"m"},"id":"x"}`, `error  "x" asks=0 answers=1 code=-32601`},
		{`[{"jsonrpc":"2.0","method":"a","id":1},{"jsonrpc":"2.0","method":"b"},{"jsonrpc":"2.0","result":1,"id":7}]`, `batch   asks=1 answers=1 entries=3`},
		{`[1]`, `batch   asks=1 answers=0 entries=1 fault=entry 1 is no JSON-RPC 2.0 message`},
		{`[]`, `invalid   asks=1 answers=0 fault=an empty batch`},
		{`1`, `invalid   asks=1 answers=0 fault=neither an object nor a batch`},
		{`{}`, `invalid   asks=1 answers=0 fault="jsonrpc" is not "2.0"`},
		{`{"jsonrpc":"2.0"}`, `invalid   asks=1 answers=0 fault=neither method nor result nor error`},
		{`{"jsonrpc":"2.0","result":1,"error":{},"id":1}`, `invalid  1 asks=1 answers=0 fault=both result and error`},
		{`{"jsonrpc":"1.0","method":"a","id":1}`, `invalid a 1 asks=1 answers=0 fault="jsonrpc" is not "2.0"`},
		{`{"JSONRPC":"2.0","METHOD":"a","ID":1}`, `invalid   asks=1 answers=0 fault="jsonrpc" is not "2.0"`},
		{`{"jsonrpc":"2.0","method":1,"id":1}`, `invalid  1 asks=1 answers=0 fault=the method is no string`},
		{`{"jsonrpc":"2.0","method":"a",`, `malformed   asks=1 answers=0 fault=line 1, column 30: unexpected end of JSON input`},
		{`{"a":1}{"b":2}`, `malformed   asks=1 answers=0 fault=line 1, column 8: invalid character '{' after top-level value`},
		{"\"\xff\"", `malformed   asks=1 answers=0 fault=invalid UTF-8`},
		{``, `malformed   asks=1 answers=0 fault=line 1, column 1: unexpected end of JSON input`},
	} {
		if diff := cmp.Diff(c.want, describe(newSketch([]byte(c.text), true))); diff != "" {
			t.Errorf("%s: %s", c.text, diff)
		}
	}
}

// TestSketchOfBeginnings looks at messages of which only the beginning was
// kept.
func TestSketchOfBeginnings(t *testing.T) {
	t.Parallel()
	const fault = " fault=large: not looked at to its end"
	for _, c := range []struct{ text, want string }{
		{`{"jsonrpc":"2.0","id":1,"method":"a","params":["yyyy`, `request a 1 asks=1 answers=0` + fault},
		{`{"jsonrpc":"2.0","id":1,"result":"yyyy`, `response  1 asks=0 answers=1` + fault},
		{`{"jsonrpc":"2.0","method":"a","params":["yyyy`, `large a  asks=0 answers=0` + fault},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"yyy`, `error  1 asks=0 answers=1` + fault},
		{`[{"jsonrpc":"2.0","id":1,"method":"a"},{"js`, `batch   asks=1 answers=0 entries=1` + fault},
		{`[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":2,"method":"b","params":["yyyy`, `batch   asks=2 answers=0 entries=1` + fault},
		{`[{"jsonrpc":"2.0","result":"yyyy`, `batch   asks=0 answers=1` + fault},
		{`[["yyyy`, `batch   asks=0 answers=0` + fault},
		{`   `, `large   asks=0 answers=0`},
	} {
		if diff := cmp.Diff(c.want, describe(newSketch([]byte(c.text), false))); diff != "" {
			t.Errorf("%s: %s", c.text, diff)
		}
	}
}

func describe(s sketch) string {
	out := fmt.Sprintf("%s %s %s asks=%d answers=%d", s.kind, s.method, s.id, len(s.asks), len(s.answers))
	if s.entries > 0 {
		out += fmt.Sprintf(" entries=%d", s.entries)
	}
	if s.code != nil {
		out += " code=" + string(s.code)
	}
	if s.fault != "" {
		out += " fault=" + s.fault
	}
	return out
}

// TestExcerptHidesCredentials holds a trace to showing no credential, in
// messages that are JSON and in those that are not.
func TestExcerptHidesCredentials(t *testing.T) {
	t.Parallel()
	r := logging.NewRedactor()
	for _, c := range []struct{ text, want string }{
		{`{"params": {"user":"ada", "password" : "hunter2"}}`, `{"params":{"user":"ada","password":"[redacted]"}}`},
		{`{"token":12345,"b":1}`, `{"token":"[redacted]","b":1}`},
		{`{"api_key":["hunter2",{"a":"hunter2]"}],"b":[1]}`, `{"api_key":"[redacted]","b":[1]}`},
		{`{"client_secret":{"v":"hunter2"},"x":1}`, `{"client_secret":"[redacted]","x":1}`},
		{`{"pass\u0077ord":"hunter2"}`, `{"pass\u0077ord":"[redacted]"}`},
		{`{"Authorization":"Basic hunter2"}`, `{"Authorization":"[redacted]"}`},
		{`{"note":"password"}`, `{"note":"password"}`},
		{`{"headers":"x: Bearer hunter2hunter2"}`, `{"headers":"x: Bearer [redacted]"}`},
		{`{"inner":"{\"password\":\"hunter2\"}"}`, `{"inner":"{\"password\":\"[redacted]\"}"}`},
		{`{"url":"https://ada:hunter2@example.com/"}`, `{"url":"https://ada:[redacted]@example.com/"}`},
		{"{\n  \"a\" : [ 1,\n 2 ]\n}", `{"a":[1,2]}`},
		{`{"password":"hunter2`, `{"password" "[redacted]"`},
		{`{"password:"hunter2"}`, `{"password:" "[redacted]"`},
		{`{'password': 'hunter2'}`, `{'password "[redacted]"`},
		{`GET / HTTP/1.1 Authorization: Basic hunter2`, `GET / HTTP/1.1 Authorization "[redacted]"`},
		{`password=hunter2`, `password "[redacted]"`},
	} {
		valid := json.Valid([]byte(c.text))
		got, _ := excerpt(r, []byte(c.text), 200, valid)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.text, diff)
		}
	}
	// Wherever the text is cut, no part of a credential is shown.
	text := []byte(`{"a":"` + strings.Repeat("x", 30) + `","password":"hunter2hunter2","h":"Bearer hunter2hunter2"}`)
	for limit := range 120 {
		got, _ := excerpt(r, text, limit, true)
		if len(got) > limit || strings.Contains(got, "hunt") {
			t.Errorf("limit %d: %s", limit, got)
		}
	}
}

func FuzzExcerpt(f *testing.F) {
	f.Add([]byte(`{"password":"hunter2","b":[1,"é"]}`), 20)
	f.Add([]byte("{'token': \"\xff\\"), 9)
	f.Fuzz(func(t *testing.T, text []byte, limit int) {
		limit = min(limit, 1<<16)
		got, _ := excerpt(logging.NewRedactor(), text, limit, json.Valid(text))
		if len(got) > max(0, limit) || utf8.Valid(text) && !utf8.ValidString(got) {
			t.Errorf("%q at %d gives %q", text, limit, got)
		}
		// A name that is not a credential's changes nothing but white space.
		if v, ok := secretMember(text); ok {
			if shown, _ := excerpt(logging.NewRedactor(), text, 1<<20, true); strings.Contains(shown, v) {
				t.Errorf("%q shows %q", text, v)
			}
		}
	})
}

// secretMember gives the value of a member "password" whose text stands nowhere
// else.
func secretMember(text []byte) (string, bool) {
	var m map[string]json.RawMessage
	if json.Unmarshal(text, &m) != nil {
		return "", false
	}
	v := string(m["password"])
	return v, len(v) > 4 && v != hiddenValue && bytes.Count(text, []byte(v)) == 1
}

func TestTraceLines(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 12, 0, 0, 123456789, time.UTC)
	ms := 1.5
	records := []traceRecord{
		{At: at, Conn: 1, From: sideA, To: sideB, Kind: kindRequest, Method: "add\x1b[31m", ID: json.RawMessage(`"a"`), Size: 63, Text: `{"a":1}`, Cut: true},
		{At: at, Conn: 2, From: sideB, To: sideA, Kind: kindError, ID: json.RawMessage(`1`), Code: json.RawMessage(`-32601`), Elapsed: &ms, took: 1500 * time.Microsecond, Size: 1 << 20},
		{At: at, Conn: 2, From: sideB, To: sideA, Kind: kindBatch, Entries: 2, Size: 20 << 20},
	}
	for format, want := range map[string]string{
		"table": `12:00:00.123  #1  A → B  request       63 B     add\x1b[31m  id "a"  {"a":1}…
12:00:00.123  #2  A ← B  error         1024 KiB  id 1  1.5ms  -32601
12:00:00.123  #2  A ← B  batch         20 MiB   2 entries
`,
		"jsonl": `{"at":"2026-11-21T12:00:00.123456789Z","conn":1,"from":"A","to":"B","kind":"request","method":"add\u001b[31m","id":"a","size":63,"text":"{\"a\":1}","cut":true}
{"at":"2026-11-21T12:00:00.123456789Z","conn":2,"from":"B","to":"A","kind":"error","id":1,"code":-32601,"elapsed_ms":1.5,"size":1048576}
{"at":"2026-11-21T12:00:00.123456789Z","conn":2,"from":"B","to":"A","kind":"batch","entries":2,"size":20971520}
`,
	} {
		var b bytes.Buffer
		tr := newTestTracer(&b)
		tr.format, tr.many = format, true
		for _, r := range records {
			tr.write(r)
		}
		if diff := cmp.Diff(want, b.String()); diff != "" {
			t.Errorf("%s: %s", format, diff)
		}
	}
	broken := newTestTracer(failingWriter{})
	broken.write(records[0])
	if broken.failed() == nil {
		t.Error("a trace that cannot be written goes unnoticed")
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestElapsed(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-1: "0µs", 0: "0µs", 120 * time.Microsecond: "120µs", 1500 * time.Microsecond: "1.5ms",
		2 * time.Second: "2.0s", 3 * time.Minute: "3m00s",
	} {
		if got := elapsed(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
}
