package sample_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/sample"
)

// ask posts JSON to an agent, with headers as NAME, VALUE, ….
func ask(h http.Handler, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func simpleTask(id string) string { return fmt.Sprintf(`{"task_id":%q,"input":{"n":1}}`, id) }

// said writes a message, with more members of its params.
func said(method, id, more string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":"r1","method":%q,"params":{"message":{"messageId":%q,"parts":[{"kind":"text","text":"hi"}]}%s}}`, method, id, more)
}

func aboutTask(method, id string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":{"id":%q}}`, method, id)
}

// TestMockEcho: both protocols, both dialects, the reply, and nothing twice.
func TestMockEcho(t *testing.T) {
	var told []string
	m := sample.NewMock(sample.MockConfig{Told: func(c sample.MockCall) {
		told = append(told, fmt.Sprint(c.Method, " ", c.TaskID, " ", c.Header.Get("X-Correlation-ID"), " ", c.Answer, " ", c.Again))
	}})
	for range 2 {
		if got := ask(m, simpleTask("t1"), "X-Correlation-ID", "c1").Body.String(); got != `{"error":null,"output":{"n":1},"status":"success","task_id":"t1"}`+"\n" {
			t.Error(got)
		}
	}
	first := ask(m, said("message/send", "m1", "")).Body.String()
	for _, want := range []string{`"result":{`, `"kind":"task"`, `"state":"completed"`, `"id":"task-m1"`, `"parts":[{"kind":"text","text":"hi"}]`, `"role":"agent"`} {
		if !strings.Contains(first, want) {
			t.Errorf("%s, want %s", first, want)
		}
	}
	if again := ask(m, said("message/send", "m1", "")).Body.String(); again != first {
		t.Errorf("not the same task: %s", again)
	}
	modern := ask(m, said("SendMessage", "m2", "")).Body.String()
	for _, want := range []string{`"result":{"task":{`, `"state":"TASK_STATE_COMPLETED"`, `"role":"ROLE_AGENT"`} {
		if !strings.Contains(modern, want) || strings.Contains(modern, `"kind":"task"`) {
			t.Errorf("%s, want %s", modern, want)
		}
	}
	want := []string{
		"simple-a2a t1 c1 success false", "simple-a2a t1 c1 success true", "message/send task-m1  completed false",
		"message/send task-m1  completed true", "SendMessage task-m2  completed false",
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Error(diff)
	}
}

// TestMockReply: one value as the parts of both dialects.
func TestMockReply(t *testing.T) {
	for _, c := range []struct{ reply, old, modern string }{
		{`"x"`, `[{"kind":"text","text":"x"}]`, `[{"text":"x"}]`},
		{`{"a":1}`, `[{"data":{"a":1},"kind":"data"}]`, `[{"data":{"a":1}}]`},
		{`[1]`, `[{"kind":"text","text":"[1]"}]`, `[{"data":[1]}]`},
		{`null`, `[{"kind":"text","text":"null"}]`, `[{"data":null}]`},
	} {
		m := sample.NewMock(sample.MockConfig{Reply: json.RawMessage(c.reply)})
		for method, want := range map[string]string{"message/send": c.old, "SendMessage": c.modern} {
			if got := ask(m, said(method, method, "")).Body.String(); !strings.Contains(got, `"parts":`+want) {
				t.Errorf("%s: %s, want %s", c.reply, got, want)
			}
		}
		if got := ask(m, simpleTask("t")).Body.String(); !strings.Contains(got, `"output":`+c.reply) {
			t.Error(got)
		}
	}
}

// TestMockFails: the first ones, by error or by status; what failed is not kept.
func TestMockFails(t *testing.T) {
	for status, want := range map[int]string{0: "-32000", 503: "failed as asked"} {
		m := sample.NewMock(sample.MockConfig{FailFirst: 2, Status: status})
		for n := range 3 {
			w := ask(m, said("message/send", "m1", ""))
			if failed := n < 2; strings.Contains(w.Body.String(), want) != failed || failed && status != 0 && w.Code != status {
				t.Errorf("call %d: %d %s", n+1, w.Code, w.Body)
			}
		}
	}
	m := sample.NewMock(sample.MockConfig{FailFirst: 1})
	if got := ask(m, simpleTask("t1")).Body.String(); !strings.Contains(got, `"status":"error"`) || !strings.Contains(got, `"error":"failed as asked"`) {
		t.Error(got)
	}
	if got := ask(m, simpleTask("t1")).Body.String(); !strings.Contains(got, `"status":"success"`) {
		t.Error(got)
	}
	next := 0
	m = sample.NewMock(sample.MockConfig{FailRate: 0.5, Chance: func() float64 { next++; return []float64{0.4, 0.5}[next-1] }})
	if w := ask(m, simpleTask("t1")); !strings.Contains(w.Body.String(), `"error"`) || strings.Contains(w.Body.String(), "success") {
		t.Error(w.Body)
	}
	for range 2 { // the second one is answered without a throw
		if w := ask(m, simpleTask("t1")); !strings.Contains(w.Body.String(), "success") {
			t.Error(w.Body)
		}
	}
}

// TestMockDelay: waited for, asked for, cancelled, and the same message while the
// first one waits.
func TestMockDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := sample.NewMock(sample.MockConfig{Delay: time.Hour})
		begun := time.Now()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if got := ask(m, said("SendMessage", "m1", "")).Body.String(); !strings.Contains(got, "COMPLETED") {
					t.Error(got)
				}
			})
		}
		wg.Wait()
		if took := time.Since(begun); took != time.Hour {
			t.Errorf("took %v", took)
		}
		steps := []struct{ body, want string }{
			{said("message/send", "m2", `,"configuration":{"blocking":false}`), `"state":"working"`},
			{aboutTask("tasks/get", "task-m2"), `"state":"working"`},
			{aboutTask("GetTask", "task-m2"), `"state":"TASK_STATE_WORKING"`},
			{said("SendMessage", "m3", `,"configuration":{"returnImmediately":true}`), "WORKING"},
			{aboutTask("CancelTask", "task-m3"), "CANCELED"},
			{aboutTask("CancelTask", "task-m3"), "-32002"},
			{aboutTask("tasks/get", "task-none"), "-32001"},
		}
		for i, s := range steps {
			if got := ask(m, s.body).Body.String(); !strings.Contains(got, s.want) {
				t.Errorf("step %d: %s, want %s", i, got, s.want)
			}
		}
		// Who waits is told of the end that a cancel makes.
		wg.Go(func() {
			if got := ask(m, said("message/send", "m4", "")).Body.String(); !strings.Contains(got, `"canceled"`) {
				t.Error(got)
			}
		})
		synctest.Wait()
		begun = time.Now()
		ask(m, aboutTask("tasks/cancel", "task-m4"))
		wg.Wait()
		if took := time.Since(begun); took != 0 {
			t.Errorf("the cancel was seen after %v", took)
		}
		time.Sleep(time.Hour)
		if got := ask(m, aboutTask("tasks/get", "task-m2")).Body.String(); !strings.Contains(got, `"state":"completed"`) || !strings.Contains(got, `"artifacts"`) {
			t.Error(got)
		}
	})
}

// TestMockQuestion: asked, answered once, and never again.
func TestMockQuestion(t *testing.T) {
	m := sample.NewMock(sample.MockConfig{Question: "Where?"})
	asked := ask(m, said("message/send", "m1", "")).Body.String()
	if !strings.Contains(asked, `"state":"input-required"`) || !strings.Contains(asked, `"text":"Where?"`) || strings.Contains(asked, "artifacts") {
		t.Error(asked)
	}
	reply := func(id, task string) string {
		return strings.Replace(said("message/send", id, ""), `"messageId"`, fmt.Sprintf(`"taskId":%q,"messageId"`, task), 1)
	}
	for _, s := range []struct{ body, want string }{
		{reply("m2", "task-none"), "-32001"},
		{reply("m2", "task-m1"), `"completed"`},
		{reply("m2", "task-m1"), `"completed"`},
		{reply("m3", "task-m1"), "-32004"},
		{said("message/send", "m1", ""), `"completed"`},
	} {
		if got := ask(m, s.body).Body.String(); !strings.Contains(got, s.want) {
			t.Errorf("%s: %s, want %s", s.body, got, s.want)
		}
	}
}

// TestMockStream: the task, its artifact, its end; and attaching to one.
func TestMockStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := sample.NewMock(sample.MockConfig{Stream: true, Delay: time.Minute})
		w := ask(m, said("message/stream", "m1", ""))
		events := strings.Split(strings.TrimSpace(strings.ReplaceAll(w.Body.String(), ": still at work\n\n", "")), "\n\n")
		if w.Header().Get("Content-Type") != "text/event-stream" || len(events) != 3 || strings.Count(w.Body.String(), ": still at work") != 3 {
			t.Fatal(w.Body)
		}
		for i, want := range []string{`"state":"working"`, `"kind":"artifact-update"`, `"final":true`} {
			if !strings.HasPrefix(events[i], "data: ") || !strings.Contains(events[i], want) {
				t.Errorf("event %d: %s, want %s", i, events[i], want)
			}
		}
		if got := ask(m, aboutTask("tasks/resubscribe", "task-m1")).Body.String(); !strings.Contains(got, "-32004") {
			t.Error(got)
		}
		ask(m, said("SendMessage", "m2", `,"configuration":{"returnImmediately":true}`))
		if got := ask(m, aboutTask("SubscribeToTask", "task-m2")).Body.String(); !strings.Contains(got, `"statusUpdate":{`) || !strings.Contains(got, `"artifactUpdate":{`) {
			t.Error(got)
		}
	})
	if got := ask(sample.NewMock(sample.MockConfig{}), said("message/stream", "m1", "")).Body.String(); !strings.Contains(got, "-32004") {
		t.Error(got)
	}
}

// TestMockRefuses: what begins nothing, in the words of the protocol.
func TestMockRefuses(t *testing.T) {
	both, simple, rpc := sample.MockConfig{}, sample.MockConfig{Protocol: parley.ProtocolSimpleA2A}, sample.MockConfig{Protocol: parley.ProtocolJSONRPC}
	for i, c := range []struct {
		cfg    sample.MockConfig
		body   string
		status int
		want   string
	}{
		{both, `{`, 200, "-32700"},
		{both, `[]`, 200, "-32600"},
		{both, `{"jsonrpc":"1.0","id":1,"method":"tasks/get"}`, 200, "-32600"},
		{both, `{"jsonrpc":"2.0","method":"tasks/get"}`, 200, "-32600"},
		{both, `{"jsonrpc":"2.0","id":1,"method":"x"}`, 200, "-32601"},
		{both, `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":[]}`, 200, "-32602"},
		{both, `{"jsonrpc":"2.0","id":1,"method":"message/send"}`, 200, "-32602"},
		{both, `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"messageId":"m","parts":[1]}}}`, 200, "-32602"},
		{both, `{"task_id":"t"}`, 400, "input"},
		{both, `{"task_id":"t","input":"` + strings.Repeat("x", 1<<20) + `"}`, 413, "too large"},
		{simple, `{`, 400, "not JSON"},
		{simple, said("message/send", "m", ""), 400, "Simple A2A"},
		{rpc, simpleTask("t"), 200, "-32600"},
	} {
		var told int
		c.cfg.FailFirst = 1 // what is malformed does not count
		c.cfg.Told = func(sample.MockCall) { told++ }
		m := sample.NewMock(c.cfg)
		if w := ask(m, c.body); w.Code != c.status || !strings.Contains(w.Body.String(), c.want) || told != 0 {
			t.Errorf("case %d: %d %s, want %d %s", i, w.Code, w.Body, c.status, c.want)
		}
	}
	if w := ask(sample.NewMock(both), simpleTask("t"), "Content-Type", "text/plain"); w.Code != http.StatusUnsupportedMediaType {
		t.Error(w.Code)
	}
}

// TestMockKey: the token is demanded of everything but the card.
func TestMockKey(t *testing.T) {
	m := sample.NewMock(sample.MockConfig{Key: parley.NewSecret([]byte("sesame")), Name: "shy"})
	for shown, status := range map[string]int{"": 401, "Bearer ": 401, "sesame": 401, "Bearer sesame2": 401, "Bearer sesame": 200} {
		w := ask(m, simpleTask("t"), "Authorization", shown)
		if w.Code != status || (w.Header().Get("WWW-Authenticate") != "") != (status == 401) {
			t.Errorf("%q: %d", shown, w.Code)
		}
	}
	for _, path := range []string{"/.well-known/agent-card.json", "/.well-known/agent.json"} {
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://h:1/a"+path, nil))
		var card struct {
			Name, URL           string
			Security            []map[string]any
			SupportedInterfaces []struct{ URL, ProtocolVersion string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &card); err != nil || card.Name != "shy" || card.URL != "http://h:1/a" || len(card.Security) != 1 || len(card.SupportedInterfaces) != 2 {
			t.Errorf("%+v, %v", card, err)
		}
	}
}

// TestMockLimits: the oldest tasks are forgotten, by number and by bytes, and
// what is too much at once is turned away.
func TestMockLimits(t *testing.T) {
	m := sample.NewMock(sample.MockConfig{MaxTasks: 2})
	for _, id := range []string{"m1", "m2", "m3"} {
		ask(m, said("message/send", id, ""))
	}
	for id, want := range map[string]string{"task-m1": "-32001", "task-m2": "completed", "task-m3": "completed"} {
		if got := ask(m, aboutTask("tasks/get", id)).Body.String(); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
	}
	m = sample.NewMock(sample.MockConfig{MaxBytes: 4000})
	big := strings.Repeat("x", 1000)
	for i := range 4 {
		ask(m, strings.Replace(said("message/send", fmt.Sprintf("b%d", i), ""), "hi", big, 1))
	}
	for id, want := range map[string]string{"task-b0": "-32001", "task-b1": "completed", "task-b3": "completed"} {
		if got := ask(m, aboutTask("tasks/get", id)).Body.String(); !strings.Contains(got, want) {
			t.Errorf("%s: %.100s, want %s", id, got, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		m := sample.NewMock(sample.MockConfig{MaxCalls: 1, Delay: time.Second})
		var wg sync.WaitGroup
		wg.Go(func() { ask(m, simpleTask("t1")) })
		synctest.Wait()
		if w := ask(m, simpleTask("t2")); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Error(w.Code)
		}
		wg.Wait()
	})
}
