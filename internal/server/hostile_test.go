package server_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// TestHostileAgents runs one workflow against each kind of bad agent and a
// healthy one at the same time: every bad answer is a clear error on its step
// (what, where, which limit), in bounded memory and time, and disturbs nothing
// else.
func TestHostileAgents(t *testing.T) {
	// Not beside others: the heap is measured.
	const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	cases := []struct {
		name, protocol string
		answer         func(c net.Conn)
		code           parley.Code
		text           string
	}{
		{"garbage", "simple-a2a", say(head + "Content-Length: 5\r\n\r\n}{][!"), "agent_error", "JSON"},
		{"nothing", "simple-a2a", say(""), "outcome_unknown", "closed"},
		{"empty", "simple-a2a", say(head + "Content-Length: 0\r\n\r\n"), "agent_error", "empty"},
		{"html", "jsonrpc-2.0", say("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<html></html>"), "agent_error", "JSON"},
		{"switching", "simple-a2a", say("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"), "agent_error", "101"},
		{"redirect", "simple-a2a", say("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"), "agent_rejected", "302"},
		// The rest is cut off by a limit on size or on time, whichever is first.
		{"huge", "simple-a2a", flood(head+"Content-Length: 1073741824\r\n\r\n", "x"), "outcome_unknown", "16777216 bytes (max_response)"},
		{"endless", "simple-a2a", flood(head+"Transfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n"), "outcome_unknown", ""},
		{"dripping", "simple-a2a", drip(head + "Content-Length: 100000\r\n\r\n"), "outcome_unknown", "1s"},
		{"headers", "simple-a2a", flood("HTTP/1.1 200 OK\r\n", "X-A: "+strings.Repeat("a", 1000)+"\r\n"), "outcome_unknown", "65536 bytes (max_header)"},
		{"wrongid", "jsonrpc-2.0", say(jsonAnswer(`{"jsonrpc":"2.0","id":"other","result":{"status":{"state":"completed"}}}`)), "agent_error", "other"},
		{"wrongversion", "jsonrpc-2.0", say(jsonAnswer(`{"jsonrpc":"1.0","id":"x","result":{}}`)), "agent_error", "Unsupported JSON-RPC version: 1.0"},
		{"failed", "simple-a2a", say(jsonAnswer(`{"task_id":"x","status":"error","output":null,"error":"no luck"}`)), "agent_error", "no luck"},
	}
	agents := map[string]http.Handler{"healthy simple-a2a": newCallLog().simpleAgent("healthy", 0)}
	docs := []string{`{"name":"healthy","steps":[{"id":"a","agent":"healthy"}]}`, `{"name":"unknown","steps":[{"id":"a","agent":"nobody"}]}`}
	for _, c := range cases {
		timeout := "20s"
		if c.name == "endless" || c.name == "dripping" {
			timeout = "1s"
		}
		agents[c.name+" "+c.protocol+" , outcome_unknown: fail, timeout: "+timeout+", retry: {max_retries: 0}"] = hijack(c.answer)
		docs = append(docs, fmt.Sprintf(`{"name":%q,"steps":[{"id":"a","agent":%q,"input":{"text":"x"}}]}`, c.name, c.name))
	}
	w := newWorld(t, agents, docs...)

	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	ids := make([]string, len(cases))
	for i, c := range cases {
		ids[i] = w.start(c.name, `{}`).ID
	}
	unknown := w.start("unknown", `{}`).ID
	for range 20 {
		if run := w.run("healthy", `{}`); run.Status != parley.RunCompleted {
			t.Errorf("a healthy agent beside the others: %s: %v", run.Status, run.Error)
		}
	}
	for i, c := range cases {
		run := w.end(ids[i])
		e := run.Error
		if run.Status != parley.RunFailed || e == nil || e.Code != c.code || e.Step != "a" || e.Agent != c.name ||
			!strings.Contains(e.Message+string(e.Details), c.text) {
			t.Errorf("%s: %s with %+v; want code %s and %q", c.name, run.Status, e, c.code, c.text)
		}
	}
	if run := w.end(unknown); run.Error == nil || run.Error.Code != parley.CodeUnknownAgent || !strings.Contains(run.Error.Message, "nobody") {
		t.Errorf("unknown agent: %s with %v", run.Status, run.Error)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 64<<20 {
		t.Errorf("the heap has grown by %d MiB", grown>>20)
	}
}

// TestBadStarts: what is wrong with a start is said before anything runs.
func TestBadStarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, `
name: picky
input: {type: object, required: [n], properties: {n: {type: integer}}}
steps: [{id: a, set: "${workflow.input.n}"}]
`, `{"name":"dangling","start_step":"a","steps":{"a":{"id":"a","agent_name":"x","input_mapping":{"v":"${workflow.input.absent}"}}}}`)
	for _, c := range []struct {
		workflow, input string
		status          int
		text            string
	}{
		{"picky", `{"n":"x"}`, 422, "/n"},
		{"picky", `{}`, 422, "n"},
		{"nowhere", `{}`, 404, "nowhere"},
	} {
		status, b := w.call("POST", "/api/v1/workflows/"+c.workflow+"/execute", `{"input_data":`+c.input+`}`)
		if status != c.status || !strings.Contains(string(b), c.text) {
			t.Errorf("%s %s: %d %s", c.workflow, c.input, status, b)
		}
	}
	big := `{"input_data":{"v":"` + strings.Repeat("x", 10<<20) + `"}}`
	if status, b := w.call("POST", "/api/v1/workflows/dangling/execute", big); status/100 != 4 || !strings.Contains(string(b), "limit") {
		t.Errorf("10 MB of input: %d %.300s", status, b)
	}
	run := w.run("dangling", `{}`)
	want := "Cannot resolve '${workflow.input.absent}' in field 'v': Field 'absent' not found"
	if run.Error == nil || run.Error.Code != parley.CodeExpression || !strings.Contains(run.Error.Message, want) {
		t.Errorf("mapping to a missing field: %v", run.Error)
	}
}

func jsonAnswer(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// hijack answers each request below HTTP.
func hijack(answer func(net.Conn)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := bufio.NewReader(r.Body)
		for {
			if _, err := body.ReadByte(); err != nil {
				break
			}
		}
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		answer(c)
	})
}

func say(text string) func(net.Conn) {
	return func(c net.Conn) { _, _ = c.Write([]byte(text)) }
}

// flood says the head and then the same for ever, as fast as it is read.
func flood(head, again string) func(net.Conn) {
	return func(c net.Conn) {
		chunk := []byte(strings.Repeat(again, max(1, 64<<10/len(again))))
		if _, err := c.Write([]byte(head)); err != nil {
			return
		}
		for {
			if _, err := c.Write(chunk); err != nil {
				return
			}
		}
	}
}

// drip says the head and then a byte now and then.
func drip(head string) func(net.Conn) {
	return func(c net.Conn) {
		_, err := c.Write([]byte(head))
		for err == nil {
			_, err = c.Write([]byte(" "))
			<-time.After(50 * time.Millisecond)
		}
	}
}
