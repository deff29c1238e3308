package rpchttp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/parley-project/parley/jsonrpc"
)

// TestPeek: what a message holds, at a glance.
func TestPeek(t *testing.T) {
	const fault = `{"code":1}`
	for text, want := range map[string]string{ // calls, notifications, responses, entries, method, fault
		"": "0 0 0 0", " \r\n\t": "0 0 0 0", "1": "0 0 0 1", `"x"`: "0 0 0 1", "[": "0 0 0 0", "[]": "0 0 0 1", "{": "0 0 0 1", "{}": "0 0 0 1",
		aCall: "1 0 0 1 m", aNotice: "0 1 0 1 m", " \n" + aCall: "1 0 0 1 m",
		"[" + aCall + " , " + aNotice + "]":              "1 1 0 2 m",
		`[1,"]}",[[{}]],{},` + aCall + `]`:               "1 0 0 5 m",
		`[` + aResult + `,` + aResult + `]`:              "0 0 2 2",
		`{"id":1,"result":1}`:                            "0 0 1 1",
		`{"jsonrpc":"2.0","result":1}`:                   "0 0 1 1",
		`{"result":1}`:                                   "0 0 0 1",
		`{"error":{"code":1}}`:                           "0 0 0 1",
		`{"jsonrpc":"2.0"}`:                              "0 0 0 1",
		`{"jsonrpc":"2.0","id":1}`:                       "0 0 0 1",
		`{"jsonrpc":"2.0","id":1,"error":` + fault + `}`: "0 0 1 1",
		`{"jsonrpc":"2.0","error":` + fault + `}`:        "0 0 1 1  " + fault,
		`{"id":null,"error":` + fault + `}`:              "0 0 1 1  " + fault,
		`{"id":null,"result":1}`:                         "0 0 1 1",
		`{"jsonrpc":"2.0","method":"a\"b","id":"\\"}`:    `1 0 0 1 a\"b`,
		`{"method":1,"id":1}`:                            "1 0 0 1",
		`{"method":"","id":1}`:                           "1 0 0 1",
		`{"params":{"method":"x","id":1},"method":"m"}`:  "0 1 0 1 m",
		`[{"method":"a"},{"method":"b"}]`:                "0 2 0 2 a",
		`{"method":"m" "id":1}`:                          "0 1 0 1 m",
		`{"method" "m"}`:                                 "0 0 0 1",
		`{"method":"m","id"`:                             "0 1 0 1 m",
		`{"method":"m",id:1}`:                            "0 1 0 1 m",
		`{"method":"m","id":`:                            "1 0 0 1 m",
		"[" + aNotice + " " + aNotice + "]":              "0 1 0 1 m",
		strings.Repeat("[", 100_000):                     "0 0 0 1",
	} {
		e := peek([]byte(text))
		got := fmt.Sprint(e.calls, e.notifications, e.responses, e.entries)
		if len(e.method)+len(e.fault) > 0 {
			got += " " + string(e.method)
		}
		if len(e.fault) > 0 {
			got += " " + string(e.fault)
		}
		if got != want {
			t.Errorf("%.80s: %s, want %s", text, got, want)
		}
	}
}

// TestKindOf: calls, notifications and answers have lanes of their own; what is none of
// them has that of calls.
func TestKindOf(t *testing.T) {
	for text, want := range map[string]messageKind{
		"": isCall, " ": isCall, "1": isCall, "{": isCall, "{}": isCall, "[": isCall, "[ ": isCall, "[]": isCall, "[1]": isCall,
		aCall: isCall, `{"id":1 , "method" : "m"}`: isCall,
		aNotice: isNotification, ` { "params" : [1,{"id":1}] , "method" : "m" } `: isNotification, `{"method":"m","id":1}`: isNotification,
		aResult: isAnswer, `{"id":1,"error":{}}`: isAnswer, `{"error":{},"id":1}`: isAnswer, `{"result":1}`: isAnswer,
		"[" + aCall + "]": isCall, "[" + aNotice + "]": isCall, "[ " + aResult + "]": isAnswer, "[" + aNotice + "," + aResult + "]": isCall,
		`{"jsonrpc" "2.0","result":1}`: isCall, `{"jsonrpc":"2.0" "result":1}`: isCall, `{jsonrpc:1,"result":1}`: isCall, `{"a\"":1,"result":1}`: isAnswer,
		`{"jsonrpc"`: isCall, `{"jsonrpc":`: isCall,
	} {
		if got := kindOf([]byte(text)); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

// TestUnanswered: the calls of a message that its answer leaves out.
func TestUnanswered(t *testing.T) {
	const two = `{"jsonrpc":"2.0","id":"2","method":"m"}`
	for _, c := range []struct{ message, reply, left string }{
		{aCall, aResult, ""},
		{aCall, `{"jsonrpc":"2.0","error":{},"id":1}`, ""},
		{aCall, "[" + aResult + "]", ""},
		{aCall, `{"jsonrpc":"2.0","id":2,"result":1}`, aCall},
		{aCall, `{"jsonrpc":"2.0","id":null,"error":{}}`, aCall},
		{aCall, `{"id":2,"id":1,"result":1}`, ""},
		{aCall, `{"jsonrpc":"2.0","id":1}`, ""}, // for the Conn to say
		{aCall, `[{"jsonrpc":"2.0","id":1}]`, aCall},
		{" " + aCall, "[]", aCall},
		{aNotice, `{"id":5,"result":1}`, ""},
		{aResult, aResult, ""},
		{"[" + aCall + "," + two + "," + aNotice + "]", "[" + aResult + "]", "[" + two + "]"},
		{"[" + aCall + "," + two + "]", "[]", "[" + aCall + "," + two + "]"},
		{"[" + aCall + "," + two + "]", `[` + aResult + `,{"id":"2","error":{}}]`, ""},
		{"[" + aCall + "," + two + "]", `{"id":2,"result":1}`, "[" + aCall + "," + two + "]"},
		{`[{"id":3,"result":1},` + aCall + "]", "[]", ""}, // an answer to the server comes first: its lane is that of answers
		{"[" + aCall + `,{"id":3,"result":1}]`, "[]", "[" + aCall + "]"},
	} {
		got := unanswered([]byte(c.message), []byte(c.reply))
		if string(got) != c.left || (got == nil) != (c.left == "") {
			t.Errorf("%s of %s: %q, want %s", c.reply, c.message, got, c.left)
		}
	}
	for text, want := range map[string]string{
		aCall: "1", aNotice: "", "": "", " ": "", "[" + aCall + "]": "", ` {"id" : "\"x" }`: `"\"x"`, `{"id":1,"id":2}`: "1", `{"result":{"id":1}}`: "", `"id"`: "",
	} {
		if got := idOf([]byte(text)); string(got) != want {
			t.Errorf("%s: %q, want %s", text, got, want)
		}
	}
}

// TestCancelTarget: a notification names the request that it cancels; what else looks
// like it does not.
func TestCancelTarget(t *testing.T) {
	lsp := cancellingOf(jsonrpc.LSPCancel)
	for text, want := range map[string]string{
		cancels("1"): "1", cancels(`"a"`): `"a"`, " " + cancels("1.0"): "1.0",
		`{"jsonrpc":"2.0","method":"$/cancelRequest","params":[1]}`:             "none",
		`{"jsonrpc":"2.0","method":"$/cancelRequest","params":[{"id":1}]}`:      "none",
		`{"jsonrpc":"2.0","method":"$/cancelRequest"}`:                          "none",
		`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"requestId":1}}`: "none",
		`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1},"id":1}`: "no",
		`{"jsonrpc":"2.0","method":"x","params":{"id":1}}`:                      "no",
		"[" + cancels("1") + "]":                                                "no", "": "no", " ": "no", "1": "no",
	} {
		id, ok := lsp.targetOf([]byte(text))
		got := string(id)
		if !ok {
			got = "no"
		} else if id == nil {
			got = "none"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	off := cancellingOf(jsonrpc.CancelSilent)
	if _, ok := off.targetOf([]byte(`{"jsonrpc":"2.0","method":"","params":{"id":1}}`)); ok || off.on() || off.is("") {
		t.Error("nothing cancels, and something does")
	}
}

func cancels(id string) string {
	return `{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":` + id + `}}`
}
