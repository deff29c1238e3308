package interop

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley/interop/internal/practice"
)

// An exchange is one call and what has to come of it, whoever calls whom. A
// fault without a message may have any.
type exchange struct {
	name, method string
	params       string
	result       string
	fault        *practice.Fault
	exact        bool // has numbers that a double does not hold
}

// exchanges are the cases that both roles share.
func exchanges() []exchange {
	all := []exchange{
		{name: "no params", method: "echo", result: `null`},
		{name: "empty object", method: "echo", params: `{}`},
		{name: "empty array", method: "echo", params: `[]`},
		{name: "one of each kind", method: "echo", params: `[null,true,false,0,-1.5e-7,"",[],{}]`},
		{name: "nested", method: "echo", params: `{"a":{"b":[{"c":[[[]]]}]},"":{"":[]}}`},
		{name: "deep", method: "echo", params: `{"deep":` + strings.Repeat("[", 90) + strings.Repeat("]", 90) + `}`},
		{name: "every escape", method: "echo", params: `{"s":"\"\\\/\b\f\n\r\t\u0000\u001f\u007f\u0041\u00e9\u2028\u2029\ud83d\ude00\uFFFF"}`},
		{name: "escapes in names", method: "echo", params: `{"\u0061\n\"":1,"é😀":2}`},
		{name: "raw characters", method: "echo", params: `["<script>&amp;'é漢字😀\u2028` + "\u2028\u2029\u007f" + `"]`},
		{name: "integers of a double", method: "echo", params: `[9007199254740991,-9007199254740991,2147483648]`},
		{name: "large integers", method: "echo", params: `[9007199254740993,18446744073709551615,-9223372036854775808,1e400]`, exact: true},
		{name: "white space", method: "echo", params: " {\t\"a\" : [ 1 , 2 ] } "},
		{name: "by name", method: "subtract", params: `{"minuend":42,"subtrahend":23}`, result: `19`},
		{name: "by position", method: "subtract", params: `[23,42]`, result: `-19`},
		{name: "wrong type", method: "subtract", params: `{"minuend":"x","subtrahend":23}`, fault: &practice.Fault{Code: practice.InvalidParams}},
		{name: "missing member", method: "subtract", params: `{"minuend":1}`, fault: &practice.Fault{Code: practice.InvalidParams}},
		{name: "unknown method", method: "no/such", fault: &practice.Fault{Code: practice.MethodNotFound}},
		{name: "strange method", method: "é \"\\/", fault: &practice.Fault{Code: practice.MethodNotFound}},
	}
	for _, f := range []practice.Fault{
		{Code: -32000, Message: "server error"},
		{Code: -32603, Message: "internal"},
		{Code: -32700, Message: "of the handler, not the parser"},
		{Code: 7, Message: "application", Data: json.RawMessage(`{"why":["a",null,1.5]}`)},
		{Code: 2147483647, Message: "é\n\"", Data: json.RawMessage(`"text"`)},
		{Code: -1, Message: "falsy data", Data: json.RawMessage(`0`)},
	} {
		params, err := json.Marshal(f)
		if err != nil {
			panic(err)
		}
		all = append(all, exchange{name: fmt.Sprintf("error %d", f.Code), method: "fail", params: string(params), fault: &f})
	}
	return all
}

// check compares what came with what had to come.
func (e exchange) check(t *testing.T, result json.RawMessage, fault *practice.Fault) {
	t.Helper()
	switch {
	case e.fault == nil && fault != nil:
		t.Errorf("error %+v", fault)
	case e.fault == nil:
		want := e.result
		if want == "" {
			want = e.params
		}
		if diff := cmp.Diff(canonical(t, json.RawMessage(want)), canonical(t, result)); diff != "" {
			t.Errorf("result (-want +got):\n%s", diff)
		}
	case fault == nil:
		t.Errorf("result %.80s, want error %d", result, e.fault.Code)
	default:
		got := *fault
		want := *e.fault
		if want.Message == "" {
			if got.Message == "" {
				t.Error("the error has no message")
			}
			want.Message = got.Message
		}
		if want.Data == nil && want.Code != -1 {
			got.Data = nil // a library may say more than it was asked
		} else if got.Data != nil {
			got.Data = json.RawMessage(canonical(t, got.Data))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("error (-want +got):\n%s", diff)
		}
	}
}

// bigText is a string of about 900 kB on the wire, of characters of one, two,
// three and four bytes, and of some that have to be escaped.
func bigText() string { return strings.Repeat("abcdef é 漢 😀 \n\"", 900_000/23) }
