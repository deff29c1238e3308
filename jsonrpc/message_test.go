package jsonrpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func scanned(text string) *message {
	var m message
	m.scan([]byte(text), 128)
	return &m
}

// TestScan looks at the spans and the kind that scan finds (RPC-1, RPC-2,
// RPC-3).
func TestScan(t *testing.T) {
	type found struct {
		Kind                            kind
		ID, Method, Params, Result, Err string
		Response                        bool
	}
	tests := []struct {
		text string
		want found
	}{
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}`, found{Kind: kindRequest, ID: "1", Method: "m", Params: "[1]"}},
		{` { "params" : { "a" : [ ] } , "method" : "m" , "id" : "x" , "jsonrpc" : "2.0" } `, found{Kind: kindRequest, ID: `"x"`, Method: "m", Params: `{ "a" : [ ] }`}},
		{`{"jsonrpc":"2.0","id":null,"method":"m"}`, found{Kind: kindRequest, ID: "null", Method: "m"}},
		{`{"jsonrpc":"2.0","method":"m","params":null}`, found{Kind: kindNotification, Method: "m"}},
		{`{"jsonrpc":"2.0","id":-1.5e3,"result":null}`, found{Kind: kindResult, ID: "-1.5e3", Result: "null"}},
		{`{"jsonrpc":"2.0","id":1,"result":{"error":1}}`, found{Kind: kindResult, ID: "1", Result: `{"error":1}`}},
		{`{"jsonrpc":"2.0","id":null,"error":{"code":1}}`, found{Kind: kindError, ID: "null", Err: `{"code":1}`}},
		{`{"jsonrpc":"2.0","id":7,"result":1,"error":{}}`, found{Kind: kindInvalid, ID: "7", Result: "1", Err: "{}", Response: true}},
		{`{"jsonrpc":"2.0","id":7,"error":"boom"}`, found{Kind: kindInvalid, ID: "7", Err: `"boom"`, Response: true}},
		{`{"jsonrpc":"2.0","result":1}`, found{Kind: kindInvalid, Result: "1", Response: true}},
		{`{"jsonrpc":"2.0","id":7,"id":8,"result":1}`, found{Kind: kindInvalid, Result: "1", Response: true}},
		{`{"jsonrpc":"2.0","id":7,"method":"m","result":1}`, found{Kind: kindInvalid, ID: "7", Method: "m", Result: "1"}},
		{`[`, found{Kind: kindBatch}},
		{` [1]`, found{Kind: kindBatch}},
		{``, found{}},
		{`{`, found{}},
	}
	for _, tc := range tests {
		m := scanned(tc.text)
		got := found{m.kind, string(m.id), string(m.method), string(m.params), string(m.result), string(m.err), m.response}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (%s):\n%s", tc.text, m.fault, diff)
		}
		if (m.kind <= kindInvalid) != (m.fault != "") {
			t.Errorf("%s: kind %d, fault %q", tc.text, m.kind, m.fault)
		}
		if m.response && m.answerID() != nil {
			t.Errorf("%s: the id of a response would be echoed", tc.text)
		}
	}
}

// TestMethodName undoes the escapes of a method, and only where there are some.
func TestMethodName(t *testing.T) {
	for text, want := range map[string]string{
		`plain`: "plain", `é`: "é", `\ud83d\ude00 \u00e9\u0041`: "😀 éA", `\"\\\/\b\f\n\r\t`: "\"\\/\b\f\n\r\t", `\uDBFF\uDFFF`: "\U0010FFFF",
	} {
		m := scanned(`{"jsonrpc":"2.0","method":"` + text + `"}`)
		if got := string(m.methodName(nil)); got != want || m.methodEscaped != strings.Contains(text, `\`) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestScanFaults reads what people are told: the fault of malformed and
// invalid messages (RPC-4, RPC-5).
func TestScanFaults(t *testing.T) {
	tests := []struct{ text, want string }{
		{`{"a":1,}`, "parse error: a member name must come, in double quotes, at byte 7"},
		{`{"a":"\x41"}`, "parse error: unknown escape at byte 7"},
		{"{\"a\":\"\xff\"}", "parse error: invalid UTF-8 at byte 6"},
		{`["\ud83d"`, "parse error: half of a surrogate pair at byte 8"},
		{`{"a":1`, "parse error: unexpected end at byte 6"},
		{``, "parse error: unexpected end at byte 0"},
		{`{"a":01}`, "parse error: a number must not begin with a zero and more digits, at byte 6"},
		{`{"a":tru}`, "parse error: a value must be written true, false or null; something else came at byte 8"},
		{`{} {}`, "parse error: only one value may come, but more text follows at byte 3"},
		{`1`, "invalid request: a message is an object, or an array of objects"},
		{`{}`, `invalid request: the member "jsonrpc" must be "2.0"`},
		{`{"jsonrpc":"2.0"}`, "invalid request: the method is missing"},
		{`{"jsonrpc":"2.0","method":1,"id":{}}`, `invalid request: the member "id" must be a string, a number or null`},
		{`{"jsonrpc":"2.0","method":1}`, `invalid request: the member "method" must be a string`},
		{`{"jsonrpc":"2.0","method":"m","params":1}`, `invalid request: the member "params" must be an object or an array`},
		{`{"jsonrpc":"2.0","id":1,"error":1}`, `invalid request: the member "error" must be an object`},
		{`{"jsonrpc":"2.0","id":1}`, "invalid request: the method is missing"},
		{`{"jsonrpc":"2.0","result":1}`, "invalid request: a response has an id"},
		{`{"jsonrpc":"2.0","id":1,"result":1,"error":{}}`, "invalid request: a response has a result or an error, not both"},
		{`{"jsonrpc":"2.0","method":"m","error":{}}`, "invalid request: a message with a method has neither result nor error"},
		{`{"jsonrpc":"2.0","jsonrpc":"2.0","method":"m"}`, `invalid request: the member "jsonrpc" is there twice`},
		{`{"jsonrpc":"2.0","id":1,"id":1,"method":"m"}`, `invalid request: the member "id" is there twice`},
		{`{"jsonrpc":"2.0","method":"m","method":"m"}`, `invalid request: the member "method" is there twice`},
		{`{"jsonrpc":"2.0","method":"m","params":[],"params":[]}`, `invalid request: the member "params" is there twice`},
		{`{"jsonrpc":"2.0","id":1,"result":1,"result":1}`, `invalid request: the member "result" is there twice`},
		{`{"jsonrpc":"2.0","id":1,"error":{},"error":{}}`, `invalid request: the member "error" is there twice`},
		{`{"jsonrpc":"2.0","method":"m","params":` + strings.Repeat("[", 128) + strings.Repeat("]", 128) + `}`, "invalid request: the message is nested too deeply"},
	}
	for _, tc := range tests {
		m := scanned(tc.text)
		if m.kind == kindBatch {
			m.scanBatch(nil, []byte(tc.text), 128, 10)
		}
		if got := m.fail().Message; got != tc.want {
			t.Errorf("%.60s\n got %s\nwant %s", tc.text, got, tc.want)
		}
	}
}

// TestScanBatch finds the entries and counts them (JSON-RPC 2.0 section 6).
func TestScanBatch(t *testing.T) {
	const r = `{"jsonrpc":"2.0","id":1,"method":"m"}`
	tests := []struct {
		text  string
		limit int
		kind  kind
		want  []kind
	}{
		{`[` + r + `]`, 3, kindBatch, []kind{kindRequest}},
		{" [ " + r + " , 1 , [] ] ", 3, kindBatch, []kind{kindRequest, kindInvalid, kindInvalid}},
		{`[` + r + `,` + r + `,` + r + `,` + r + `]`, 3, kindInvalid, nil},
		{`[1]`, 0, kindInvalid, nil},
		{`[]`, 3, kindInvalid, nil},
		{`[ ]`, 3, kindInvalid, nil},
		{`[`, 3, kindMalformed, nil},
		{`[` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `]`, 3, kindBatch, []kind{kindInvalid}},
		{`[` + strings.Repeat("[", 200) + strings.Repeat("]", 199) + `]`, 3, kindMalformed, nil},
		{`[1`, 3, kindMalformed, nil},
		{`[1,`, 3, kindMalformed, nil},
		{`[1,]`, 3, kindMalformed, nil},
		{`[,]`, 3, kindMalformed, nil},
		{`[1}`, 3, kindMalformed, nil},
		{`[1] 2`, 3, kindMalformed, nil},
		{`[1,2,3,4,"\x"]`, 3, kindMalformed, nil},
		{`[` + r + `,{"a":}]`, 3, kindMalformed, nil},
	}
	for _, tc := range tests {
		var m message
		kept := []message{{fault: "kept"}}
		entries := m.scanBatch(kept, []byte(tc.text), 128, tc.limit)
		var got []kind
		for _, e := range entries[1:] {
			got = append(got, e.kind)
		}
		if m.kind != tc.kind || !cmp.Equal(got, tc.want) || entries[0].fault != "kept" {
			t.Errorf("%s: kind %d (%s), entries %v, want %d, %v", tc.text, m.kind, m.fault, got, tc.kind, tc.want)
		}
	}
	// What is beyond the limit takes no memory.
	text := []byte("[1" + strings.Repeat(",1", 1000) + "]")
	entries := make([]message, 0, 3)
	if n := testing.AllocsPerRun(10, func() { new(message).scanBatch(entries, text, 128, 3) }); n != 0 {
		t.Errorf("%v allocations for entries beyond the limit", n)
	}
}

// FuzzScan compares scan with a reading by encoding/json, and scanBatch with
// scan of the single entries.
func FuzzScan(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}`))
	f.Add([]byte(`{"jsonrpc":"2.0","\u0069d":1,"result":null,"x":{}}`))
	f.Add([]byte(`[{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}},1,[]]`))
	f.Add(benchText("290"))
	f.Fuzz(func(t *testing.T, text []byte) {
		const depth = 20
		var m message
		m.scan(text, depth)
		if valid := checkValue(text, maxRecursion) == nil; m.kind != kindBatch && valid != (m.kind != kindMalformed) {
			t.Fatalf("kind %d (%s), valid %v", m.kind, m.fault, valid)
		}
		switch m.kind {
		case kindBatch:
			fuzzBatch(t, text, depth)
		case kindRequest, kindNotification, kindResult, kindError:
			fuzzValid(t, &m, text)
		}
	})
}

func fuzzValid(t *testing.T, m *message, text []byte) {
	var want map[string]json.RawMessage
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string][]byte{"id": m.id, "params": m.params, "result": m.result, "error": m.err} {
		if w := want[name]; !bytes.Equal(got, w) && string(w) != "null" {
			t.Errorf("%s: %q, want %q", name, got, w)
		}
	}
	var method, version string
	json.Unmarshal(want["method"], &method)
	json.Unmarshal(want["jsonrpc"], &version)
	if got := string(m.methodName(nil)); got != method || version != "2.0" {
		t.Errorf("method %q of version %q, want %q", got, version, method)
	}
	if m.kind == kindError {
		decodeError(m.err)
	}
	m.metadata()
}

func fuzzBatch(t *testing.T, text []byte, depth int) {
	var m message
	entries := m.scanBatch(nil, text, depth, 1000)
	var raw []json.RawMessage
	valid := checkValue(text, maxRecursion) == nil
	if valid != (m.kind != kindMalformed) {
		t.Fatalf("kind %d (%s), valid %v", m.kind, m.fault, valid)
	}
	if m.kind != kindBatch {
		return
	}
	if err := json.Unmarshal(text, &raw); err != nil || len(raw) != len(entries) {
		t.Fatalf("%d entries, want %d (%v)", len(entries), len(raw), err)
	}
	for i, r := range raw {
		var one message
		one.scan(r, depth)
		if one.kind == kindBatch {
			one = message{kind: kindInvalid, fault: entries[i].fault}
		}
		if one.kind == kindInvalid && one.seen == 0 && entries[i].kind == kindInvalid {
			continue // a scalar, which is told in other words
		}
		if a, b := fmt.Sprintf("%+v", entries[i]), fmt.Sprintf("%+v", one); a != b {
			t.Errorf("entry %d: %s, by itself %s", i, a, b)
		}
	}
}

// TestRoundTrip proves that what is written is read back byte for byte,
// whatever the ids, methods, params and errors.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := []byte(rapid.OneOf(
			rapid.Map(rapid.Int64(), func(n int64) string { return IntegerID(n).String() }),
			rapid.Map(rapid.String(), func(s string) string { return StringID(s).String() }),
			rapid.Just("null"), rapid.Just("1.50e+3"),
		).Draw(t, "id"))
		method := strings.ToValidUTF8(rapid.String().Draw(t, "method"), "?")
		value := []byte(jsonText(3).Draw(t, "value"))
		params := append(append([]byte{'['}, value...), ']')
		meta := Meta{rapid.String().Draw(t, "correlation"), rapid.String().Draw(t, "parent"), ""}

		m := rescan(t, appendRequest(nil, &outgoing{id: id, method: method, params: params, meta: &meta}))
		if m.kind != kindRequest || !bytes.Equal(m.id, id) || string(m.methodName(nil)) != method || !bytes.Equal(m.params, params) || m.metadata() != meta {
			t.Errorf("request: %+v", m)
		}
		m = rescan(t, appendRequest(nil, &outgoing{method: method}))
		if m.kind != kindNotification || m.params != nil || m.hasMeta() {
			t.Errorf("notification: %+v", m)
		}
		m = rescan(t, appendResult(nil, id, value))
		if m.kind != kindResult || !bytes.Equal(m.id, id) || !bytes.Equal(m.result, value) {
			t.Errorf("result: %+v", m)
		}
		sent := &Error{Code: Code(rapid.Int64().Draw(t, "code")), Message: "m" + rapid.String().Draw(t, "message"), Data: value}
		m = rescan(t, appendErrorResponse(nil, id, sent))
		if m.kind != kindError || !bytes.Equal(m.id, id) {
			t.Errorf("error: %+v", m)
		}
		if diff := cmp.Diff(sent, decodeError(m.err)); diff != "" {
			t.Errorf("error:\n%s", diff)
		}
	})
}

func rescan(t *rapid.T, text []byte) *message {
	if bytes.ContainsAny(text, "\r\n") {
		t.Errorf("a line break in %q", text)
	}
	var m message
	m.scan(text, 128)
	return &m
}

// jsonText draws compact JSON texts.
func jsonText(depth int) *rapid.Generator[string] {
	scalars := rapid.OneOf(
		rapid.SampledFrom([]string{"null", "true", "false", "0", "-1.5e-7", "123456789012345678901234567890", `"\ud83d\ude00\n"`, `"é"`, "[]", "{}"}),
		rapid.Map(rapid.String(), func(s string) string { return string(appendString(nil, s)) }),
	)
	if depth == 0 {
		return scalars
	}
	inner := jsonText(depth - 1)
	return rapid.OneOf(scalars,
		rapid.Map(rapid.SliceOfN(inner, 1, 3), func(v []string) string { return "[" + strings.Join(v, ",") + "]" }),
		rapid.Map(rapid.SliceOfN(inner, 1, 3), func(v []string) string {
			for i := range v {
				v[i] = fmt.Sprintf(`"k%d":%s`, i, v[i])
			}
			return "{" + strings.Join(v, ",") + "}"
		}))
}

// TestDecodeError reads errors as peers write them, good and bad (RPC-20).
func TestDecodeError(t *testing.T) {
	tests := []struct {
		raw  string
		want Error
	}{
		{`{"code":-32601,"message":"no"}`, Error{Code: -32601, Message: "no"}},
		{` { "data" : [1, 2] , "message" : "a\u0062\n" , "code" : 5 } `, Error{Code: 5, Message: "ab\n", Data: json.RawMessage("[1, 2]")}},
		{`{"code":1,"message":"x","data":null}`, Error{Code: 1, Message: "x", Data: json.RawMessage("null")}},
		{`{"c\u006fde":1,"message":"x","Code":2,"more":{"code":3}}`, Error{Code: 1, Message: "x"}},
		{`{"code":-32602}`, Error{Code: CodeInvalidParams, Message: "invalid params"}},
		{`{"code":7}`, Error{Code: 7, Message: "error 7"}},
		{`{"code":7,"message":5}`, Error{Code: 7, Message: "error 7"}},
		{`{}`, Error{Code: CodeInternalError, Message: "the peer's error has no usable code"}},
		{`{"code":"7","message":"x"}`, Error{Code: CodeInternalError, Message: "the peer's error has no usable code: x"}},
		{`{"code":1.5,"message":"x"}`, Error{Code: CodeInternalError, Message: "the peer's error has no usable code: x"}},
		{`{"code":99999999999999999999,"message":"x"}`, Error{Code: CodeInternalError, Message: "the peer's error has no usable code: x"}},
	}
	for _, tc := range tests {
		if diff := cmp.Diff(&tc.want, decodeError([]byte(tc.raw))); diff != "" {
			t.Errorf("%s:\n%s", tc.raw, diff)
		}
	}
}

// FuzzDecodeError makes sure that every valid object can be shown.
func FuzzDecodeError(f *testing.F) {
	f.Add([]byte(`{"code":1,"message":"x","data":{}}`))
	f.Add([]byte(`{"\u0063ode":1e3,"message":null,"\\":[{}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		raw = bytes.TrimSpace(raw)
		if len(raw) == 0 || raw[0] != '{' || checkValue(raw, 100) != nil {
			return
		}
		e := decodeError(raw)
		var m message
		m.scan(appendErrorResponse(nil, []byte("1"), e), maxRecursion)
		if again := decodeError(m.err); m.kind != kindError || again.Code != e.Code || again.Message != e.Message {
			t.Errorf("%q became %v and then %v", raw, e, again)
		}
	})
}

// TestEncode looks at the texts themselves: the order of members and what is
// left out, as encode.go promises.
func TestEncode(t *testing.T) {
	meta := &Meta{CorrelationID: "c\n1", TraceParent: "00-ab-cd-01"}
	tests := []struct {
		got  []byte
		want string
	}{
		{appendRequest(nil, &outgoing{id: []byte("1"), method: "sum", params: []byte("[1,2]")}), `{"jsonrpc":"2.0","id":1,"method":"sum","params":[1,2]}`},
		{appendRequest(nil, &outgoing{id: []byte("1"), method: `a"<b>`, meta: meta}), `{"jsonrpc":"2.0","id":1,"method":"a\"<b>","correlation_id":"c\n1","traceparent":"00-ab-cd-01"}`},
		{appendRequest(nil, &outgoing{method: "m"}), `{"jsonrpc":"2.0","method":"m"}`},
		{appendResult(nil, []byte(`"x"`), nil), `{"jsonrpc":"2.0","id":"x","result":null}`},
		{appendErrorResponse(nil, nil, nil), `{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"internal error"}}`},
		{appendErrorResponse(nil, nil, &Error{Code: 1, Message: "x", Data: json.RawMessage("[1,\n2]")}), `{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x","data":[1, 2]}}`},
		{appendErrorResponse(nil, nil, &Error{Code: 1, Message: "x\xff", Data: json.RawMessage("{oops")}), `{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x` + "\uFFFD" + `"}}`},
		{appendString(nil, "a\x00\x1f\t\"\\é\xc3/\u2028"), `"a\u0000\u001f\t\"\\é` + "\uFFFD/\u2028" + `"`},
	}
	for _, tc := range tests {
		if string(tc.got) != tc.want {
			t.Errorf("\n got %s\nwant %s", tc.got, tc.want)
		}
	}
	for raw, want := range map[string]bool{``: true, ` `: true, `null`: true, `{}`: false, ` []`: false} {
		if absent, err := checkParams([]byte(raw)); absent != want || err != nil {
			t.Errorf("checkParams(%q): %v, %v", raw, absent, err)
		}
	}
	if _, err := checkParams([]byte(`"x"`)); err == nil {
		t.Error("scalar params passed")
	}
}

// TestMessageAllocs holds reading and writing to no allocation (RPC-18).
func TestMessageAllocs(t *testing.T) {
	text := benchText("290")
	batch := append(append(append([]byte{'['}, text...), ','), append(text, ']')...)
	var m message
	entries, buf := make([]message, 0, 4), make([]byte, 0, 4096)
	mux := &Mux{}
	mux.Register("tasks/send", HandlerFunc(methodNotFound))
	method := []byte("tasks/send")
	for name, f := range map[string]func(){
		"scan":        func() { m.scan(text, 128) },
		"scanBatch":   func() { entries = m.scanBatch(entries[:0], batch, 128, 10) },
		"appendValue": func() { buf, _ = appendValue(buf[:0], text, 128) },
		"request":     func() { buf = appendRequest(buf[:0], &outgoing{id: text[:1], method: "m", params: text}) },
		"result":      func() { buf = appendResult(buf[:0], text[:1], text) },
		"inline":      func() { mux.Inline(method) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
