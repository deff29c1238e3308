package rpctest

import (
	"encoding/json"
	"strings"
	"testing"
)

// wants makes a case that must be answered so.
func wants(answers ...string) Case {
	var c Case
	for _, text := range answers {
		c.Answers = append(c.Answers, json.RawMessage(text))
	}
	return c
}

// TestCheckFinds proves that a case is met by the answers that it wants, in any order
// and any spelling of their values, and by no others: a check that takes a wrong answer
// is worth nothing.
func TestCheckFinds(t *testing.T) {
	const (
		one    = `{"jsonrpc":"2.0","id":1,"result":[1,{"a":2,"b":3}]}`
		two    = `{"jsonrpc":"2.0","id":"2","error":{"code":-32601,"message":"no such method"}}`
		busy   = `{"jsonrpc":"2.0","id":3,"error":{"code":-32050,"message":"busy","data":{"limit":1}}}`
		absent = `{"jsonrpc":"2.0","id":4,"result":null}`
	)
	wantOne, wantTwo := `{"id":1,"result":[1,{"b":3,"a":2}]}`, `{"id":"2","error":{"code":-32601}}`
	wantBusy, wantAbsent := `{"id":3,"error":{"code":-32050,"data":{"limit":1}}}`, `{"id":4,"result":null}`
	for name, tt := range map[string]struct {
		c    Case
		got  string
		want string // a piece of the error; empty: it is met
	}{
		"met":                  {wants(wantOne, wantTwo, wantBusy, wantAbsent), absent + "\n" + two + "\n\n" + one + "\n" + busy, ""},
		"nothing":              {wants(), " \n\n", ""},
		"batch":                {wants("[" + wantOne + "," + wantTwo + "]"), "[" + two + "," + one + "]", ""},
		"blanks":               {wants(wantOne), `{ "jsonrpc" : "2.0" , "id":1, "result":[ 1, {"a":2, "b":3} ] }`, ""},
		"none":                 {wants(wantOne), "", "0 answers, want 1"},
		"one too many":         {wants(wantOne), one + "\n" + two, "2 answers, want 1"},
		"not wanted":           {wants(), one, "1 answers, want 0"},
		"twice the same":       {wants(wantOne, wantTwo), one + "\n" + one, "unexpected answer: "},
		"batch too short":      {wants("[" + wantOne + "," + wantTwo + "]"), "[" + two + "]", "1 answers, want 2"},
		"no batch":             {wants("[" + wantOne + "]"), one, "json"},
		"a batch":              {wants(wantOne), "[" + one + "]", "json"},
		"no JSON":              {wants(wantOne), "{", "JSON"},
		"no version":           {wants(wantOne), strings.Replace(one, `"jsonrpc":"2.0",`, "", 1), `no "jsonrpc":"2.0"`},
		"version 1":            {wants(wantOne), strings.Replace(one, "2.0", "1.0", 1), `no "jsonrpc":"2.0"`},
		"id as a string":       {wants(wantOne), strings.Replace(one, `"id":1`, `"id":"1"`, 1), `id "1", want 1`},
		"id as a number":       {wants(wantTwo), strings.Replace(two, `"2",`, `2,`, 1), `id 2, want "2"`},
		"no id":                {wants(wantOne), strings.Replace(one, `"id":1,`, "", 1), "id , want 1"},
		"other result":         {wants(wantOne), strings.Replace(one, "[1,", "[2,", 1), "result [2,"},
		"result not the same":  {wants(wantOne), strings.Replace(one, "[1,", "[1.0,", 1), "result [1.0,"},
		"null for a result":    {wants(wantOne), `{"jsonrpc":"2.0","id":1,"result":null}`, "result null"},
		"result for null":      {wants(wantAbsent), strings.Replace(absent, "null", "0", 1), "result 0"},
		"error for a result":   {wants(wantOne), strings.Replace(two, `"2"`, `1`, 1), "result "},
		"result for an error":  {wants(wantTwo), `{"jsonrpc":"2.0","id":"2","result":1}`, "JSON"},
		"both":                 {wants(wantOne), strings.Replace(one, `"result"`, `"error":null,"result"`, 1), "4 members"},
		"more members":         {wants(wantTwo), strings.Replace(two, `"id"`, `"x":1,"id"`, 1), "4 members"},
		"other code":           {wants(wantTwo), strings.Replace(two, "-32601", "-32600", 1), "code -32600, want -32601"},
		"code as a string":     {wants(wantTwo), strings.Replace(two, "-32601", `"-32601"`, 1), "code "},
		"no message":           {wants(wantTwo), strings.Replace(two, `,"message":"no such method"`, "", 1), "without a message"},
		"empty message":        {wants(wantTwo), strings.Replace(two, "no such method", "", 1), "without a message"},
		"message no string":    {wants(wantTwo), strings.Replace(two, `"no such method"`, "5", 1), "without a message"},
		"other data":           {wants(wantBusy), strings.Replace(busy, `"limit":1`, `"limit":2`, 1), `data {"limit":2}`},
		"no data":              {wants(wantBusy), strings.Replace(busy, `,"data":{"limit":1}`, "", 1), "data "},
		"data nobody asked of": {wants(wantTwo), strings.Replace(two, `"code"`, `"data":1,"code"`, 1), ""},
		"more in an error":     {wants(wantTwo), strings.Replace(two, `"code"`, `"x":1,"code"`, 1), `a member "x"`},
		"error no object":      {wants(wantTwo), `{"jsonrpc":"2.0","id":"2","error":5}`, "json"},
	} {
		err := tt.c.Check([]byte(tt.got))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// TestConformanceCases proves that the cases are what their file promises: named, each
// once, with answers that Check can tell from others.
func TestConformanceCases(t *testing.T) {
	seen := make(map[string]bool)
	groups := make(map[string]int)
	for _, c := range Conformance() {
		if seen[c.Name] || !strings.HasPrefix(c.Name, c.Group+"/") || c.Group == "" || len(c.Send) == 0 && !c.Lenient {
			t.Errorf("case %q of group %q sends %d bytes", c.Name, c.Group, len(c.Send))
		}
		seen[c.Name] = true
		groups[c.Group]++
		var right strings.Builder
		for _, answer := range c.Answers {
			right.WriteString(answerOf(t, answer) + "\n")
		}
		if err := c.Check([]byte(right.String())); err != nil {
			t.Errorf("%s: its own answers %s: %v", c.Name, right.String(), err)
		}
		if c.Check([]byte(right.String()+`{"jsonrpc":"2.0","id":"other","result":1}`)) == nil {
			t.Errorf("%s: one answer more is taken", c.Name)
		}
	}
	if len(seen) < 300 || len(groups) < 10 {
		t.Errorf("%d cases in %d groups", len(seen), len(groups))
	}
}

// answerOf makes of what must come back what may come back.
func answerOf(t *testing.T, want json.RawMessage) string {
	t.Helper()
	if want[0] != '[' {
		text := strings.Replace(string(want), `{"id":`, `{"jsonrpc":"2.0","id":`, 1)
		return strings.Replace(text, `"error":{`, `"error":{"message":"m",`, 1)
	}
	var entries []json.RawMessage
	if err := json.Unmarshal(want, &entries); err != nil {
		t.Fatal(err)
	}
	texts := make([]string, 0, len(entries))
	for _, entry := range entries {
		texts = append(texts, answerOf(t, entry))
	}
	return "[" + strings.Join(texts, ",") + "]"
}
