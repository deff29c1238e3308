package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

// label is the route's name in tables of what the SDKs do.
func (r route) label() string {
	short := map[kind]string{
		go10: "GO10", go03: "GO03", python10: "PY10", python03: "PY03", js10: "JS10", js03: "JS03", java03: "JAVA03",
	}[r.kind]
	switch {
	case r.binding == "HTTP+JSON":
		return short + "/REST"
	case r.binding == "GRPC":
		return short + "/gRPC"
	case r.kind.dual() && r.version == "0.3":
		return short + "/0.3"
	}
	return short
}

// rpcRoutes are the routes over JSON-RPC.
func rpcRoutes() []route {
	return slices.DeleteFunc(routes(), func(r route) bool { return r.binding != "JSONRPC" })
}

// sees asks the agent of every route over JSON-RPC, past Parley, and compares
// what f saw with want; "" is for all that want does not name.
func sees(t *testing.T, want map[string]string, f func(t *testing.T, r route, a *agent) string) {
	t.Helper()
	for _, r := range rpcRoutes() {
		t.Run(r.name(), func(t *testing.T) {
			parallel(t)
			expected, ok := want[r.label()]
			if !ok {
				expected = want[""]
			}
			if got := f(t, r, sharedAgent(t, r.kind)); got != expected {
				t.Errorf("%s: %s, want %s", r.label(), got, expected)
			}
		})
	}
}

// verdict is the code of a refusal, or "taken".
func (r reply) verdict() string {
	if code := r.failure().Code; code != 0 {
		return fmt.Sprint(code)
	}
	return "taken"
}

// mail sends a text to an agent, past Parley, and waits for the answer.
func (r route) mail(t *testing.T, a *agent, text string, more map[string]any) reply {
	t.Helper()
	return r.ask(t, a, ask{method: r.says("send"), params: r.letter(unique("mail"), text, true, more)})
}

// leave sends a text to an agent, past Parley, and does not wait for the end.
func (r route) leave(t *testing.T, a *agent, text string) task {
	t.Helper()
	return r.ask(t, a, ask{method: r.says("send"), params: r.letter(unique("left"), text, false, nil)}).task(t)
}

// TestQuirkEndedTask sends a message to a task that has ended: Java executes it,
// the others refuse it with codes of their own. A run takes no answer when its
// step is over.
func TestQuirkEndedTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sees(t, map[string]string{
		"GO10": "-32602", "GO10/0.3": "-32602", "GO03": "-32602", "PY03": "-32602",
		"PY10": "-32004", "PY10/0.3": "-32004", "JS10": "-32004", "JS10/0.3": "-32004",
		"JS03": "-32600", "JAVA03": "taken",
	}, func(t *testing.T, r route, a *agent) string {
		id := w.start(t, w.register(t, registration{url: r.url(a), config: r.pins(nil)}), "ask who?")
		w.asked(t, id)
		w.answer(t, id, "me")
		run := w.end(t, id)
		done(t, run)
		_, err := w.Answer(t.Context(), parley.AnswerRequest{Run: id, Reply: parley.Reply{Text: "again"}})
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Status != http.StatusConflict {
			t.Errorf("an answer to a run that is over gives %v, want status 409", err)
		}
		if executions, _ := a.entries(t, id); len(executions) != 2 {
			t.Errorf("question and answer were executed %d times", len(executions))
		}
		return r.mail(t, a, "once more", map[string]any{"taskId": run.Steps[0].AgentTaskID}).verdict()
	})
}

// TestQuirkUnknownTask sends a message with a task id of the caller's: only Java
// makes such a task. Parley names a task in answers alone, by the agent's id.
func TestQuirkUnknownTask(t *testing.T) {
	t.Parallel()
	sees(t, map[string]string{"": "-32001", "JAVA03": "taken"}, func(t *testing.T, r route, a *agent) string {
		never(t, r, "a task or context of its own", func(s spoken) bool {
			return s.sends() && !strings.Contains(s.body, ".answer-") &&
				(s.member("message", "taskId") != nil || s.member("message", "contextId") != nil)
		})
		return r.mail(t, a, "echo mine", map[string]any{"taskId": unique("my-own")}).verdict()
	})
}

// TestQuirkRequestID sends requests that JSON-RPC does not answer, or should
// not: most servers execute them. Parley's ids are texts, and never empty.
func TestQuirkRequestID(t *testing.T) {
	t.Parallel()
	sees(t, map[string]string{
		"":     "null taken, none taken, executed 2",
		"PY03": "null -32602, none -32602, executed 0", "PY10/0.3": "null -32600, none -32600, executed 0",
		"JAVA03": "null -32600, none taken, executed 1",
	}, func(t *testing.T, r route, a *agent) string {
		never(t, r, "a request without a good id", func(s spoken) bool {
			id, ok := s.id.(string)
			return s.method != "" && (!ok || id == "")
		})
		run := unique("id")
		params, err := json.Marshal(r.letter(run, "echo id", true, nil))
		if err != nil {
			t.Fatal(err)
		}
		send := func(id string) string {
			return r.ask(t, a, ask{body: `{"jsonrpc":"2.0",` + id + `"method":"` + r.says("send") + `","params":` + string(params) + `}`}).verdict()
		}
		null, none := send(`"id":null,`), send("")
		executions, _ := a.entries(t, run)
		return fmt.Sprintf("null %s, none %s, executed %d", null, none, len(executions))
	})
}

// TestQuirkWaitsByDefault sends without a word on waiting: all servers answer
// when the task has ended. Parley always says what it wants in 0.3; in 1.0 it
// says that it does not want to wait.
func TestQuirkWaitsByDefault(t *testing.T) {
	t.Parallel()
	sees(t, map[string]string{"": "completed"}, func(t *testing.T, r route, a *agent) string {
		said := 0
		for _, s := range heard(t, r) {
			_, asks := s.member("configuration", "blocking").(bool)
			if r.version == "1.0" {
				asks = s.member("configuration", "returnImmediately") == true
			}
			if s.method == r.says("send") && asks {
				said++
			}
		}
		if said == 0 {
			t.Error("Parley never says whether it waits")
		}
		params := r.letter(unique("default"), "slow 200", false, nil)
		delete(params, "configuration")
		return r.ask(t, a, ask{method: r.says("send"), params: params}).task(t).state()
	})
}

// TestQuirkFirstAnswer asks servers not to wait: what they answer first is any
// state of the task, as it happens, or a message. The run ends well with each.
func TestQuirkFirstAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sees(t, map[string]string{"": "a message, else a task"}, func(t *testing.T, r route, a *agent) string {
		name := w.register(t, registration{url: r.url(a), config: r.pins(map[string]any{"send": "nonblocking"})})
		for range 4 {
			if state := r.leave(t, a, "echo one").state(); !slices.Contains([]string{"submitted", "working", "completed"}, state) {
				t.Errorf("the first answer says %q", state)
			}
			if o := done(t, w.call(t, name, "echo one")); o.Text != "one" {
				t.Errorf("output %s", o.raw)
			}
		}
		answer := r.ask(t, a, ask{method: r.says("send"), params: r.letter(unique("m"), "message hi", false, nil)})
		if o := done(t, w.call(t, name, "message hi")); o.Text != "hi" {
			t.Errorf("output %s", o.raw)
		}
		if !strings.Contains(answer.result(), "parts") || strings.Contains(answer.result(), `"status"`) {
			return answer.body
		}
		return "a message, else a task"
	})
}

// TestQuirkClientGone leaves while the server waits for its task: the task goes
// on and completes. TestKilledBeforeAnswer shows what the run sees.
func TestQuirkClientGone(t *testing.T) {
	t.Parallel()
	sees(t, map[string]string{"": "completed"}, func(t *testing.T, r route, a *agent) string {
		run := unique("gone")
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			resp, err := r.post(ctx, a, ask{method: r.says("send"), params: r.letter(run, "hold "+run, true, nil)})
			if err == nil {
				err = resp.Body.Close()
			}
			left <- err
		}()
		var executions []entry
		eventually(t, "the message to arrive", func() bool {
			executions, _ = a.entries(t, run)
			return len(executions) == 1
		})
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("leaving gives %v", err)
		}
		a.release(t, run)
		return r.became(t, a, executions[0].Task, "completed").state()
	})
}

// TestQuirkVersionHeader asks with all sorts of versions. Parley sends exactly
// "1.0" with requests of 1.0, and nothing with those of 0.3.
func TestQuirkVersionHeader(t *testing.T) {
	t.Parallel()
	all := "taken"
	want := map[string]string{
		// Without a version, 1, 1.0.1, 1.1, 9.9, 1.0, and 1.0 in the query alone.
		"":         strings.Repeat(all+" ", 7),
		"PY10":     "-32009 taken taken taken -32009 taken -32009 ",
		"PY10/0.3": "taken -32603 -32603 -32603 -32603 -32603 taken ",
		"JS10":     "-32601 -32009 -32009 -32009 -32009 taken -32601 ",
		"JS10/0.3": "taken -32009 -32009 -32009 -32009 -32601 taken ",
	}
	verdicts := func(t *testing.T, r route, a *agent) string {
		id := r.mail(t, a, "echo one", nil).task(t).ID
		var b strings.Builder
		for _, q := range []ask{
			{header: map[string]string{"A2A-Version": ""}},
			{header: map[string]string{"A2A-Version": "1"}},
			{header: map[string]string{"A2A-Version": "1.0.1"}},
			{header: map[string]string{"A2A-Version": "1.1"}},
			{header: map[string]string{"A2A-Version": "9.9"}},
			{header: map[string]string{"A2A-Version": "1.0"}},
			{header: map[string]string{"A2A-Version": ""}, query: "?A2A-Version=1.0"},
		} {
			q.method, q.params = r.says("get"), map[string]any{"id": id}
			b.WriteString(r.ask(t, a, q).verdict() + " ")
		}
		return b.String()
	}
	sees(t, want, func(t *testing.T, r route, a *agent) string {
		never(t, r, "another version", func(s spoken) bool {
			got := s.header.Values("A2A-Version")
			if r.version == "0.3" || s.verb == http.MethodGet {
				return len(got) > 0 && s.verb != http.MethodGet
			}
			return !slices.Equal(got, []string{"1.0"})
		})
		return verdicts(t, r, a)
	})
	// A server of 1.0 alone says it otherwise.
	for k, want := range map[kind]string{
		python10: want["PY10"], js10: "-32009 -32009 -32009 -32009 -32009 taken -32009 ",
	} {
		t.Run(string(k)+"/alone", func(t *testing.T) {
			parallel(t)
			if got := verdicts(t, k.routes()[0], ownAgent(t, k, setup{})); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// TestQuirkContentType asks with other names for JSON: some servers take
// application/json alone. That is what Parley sends.
func TestQuirkContentType(t *testing.T) {
	t.Parallel()
	sees(t, map[string]string{
		"": "taken 200, taken 200", "JS03": "-32700 200, -32700 200",
		"JS10": "-32005 200, -32005 200", "JS10/0.3": "-32005 200, -32005 200", "JAVA03": "taken 415, taken 415",
	}, func(t *testing.T, r route, a *agent) string {
		never(t, r, "another Content-Type", func(s spoken) bool {
			return s.method != "" && s.header.Get("Content-Type") != "application/json"
		})
		id := r.mail(t, a, "echo one", nil).task(t).ID
		var got []string
		for _, media := range []string{"application/a2a+json", "text/plain"} {
			answer := r.ask(t, a, ask{
				method: r.says("get"), params: map[string]any{"id": id}, header: map[string]string{"Content-Type": media},
			})
			got = append(got, fmt.Sprint(answer.verdict(), " ", answer.status))
			if answer.status == http.StatusUnsupportedMediaType && answer.body != "" {
				t.Errorf("body %q", answer.body)
			}
		}
		return strings.Join(got, ", ")
	})
}

// TestQuirkErrorStatus sends what is no JSON: errors come with status 200, but
// for one. Parley reads an error whatever the status is (TestQuirkCrash has
// errors of all servers); it sends JSON.
func TestQuirkErrorStatus(t *testing.T) {
	t.Parallel()
	sees(t, map[string]string{"": "-32700 200", "JS03": "-32700 400"}, func(t *testing.T, r route, a *agent) string {
		never(t, r, "what is no JSON", func(s spoken) bool { return s.body != "" && !json.Valid([]byte(s.body)) })
		if answer := r.about(t, a, "get", "nobody"); answer.status != http.StatusOK || answer.failure().Code != -32001 {
			t.Errorf("a task that is not there: %d %s", answer.status, answer.body)
		}
		answer := r.ask(t, a, ask{body: "{"})
		return fmt.Sprint(answer.verdict(), " ", answer.status)
	})
}

// TestQuirkMediaType reads how JSON is labelled: Go 0.3 calls it plain text, and
// so does the newer Go for the errors of 0.3. A run reads both.
func TestQuirkMediaType(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sees(t, map[string]string{
		"": "application/json, error application/json", "GO03": "text/plain, error text/plain",
		"GO10/0.3": "application/json, error text/plain",
	}, func(t *testing.T, r route, a *agent) string {
		name := w.register(t, registration{url: r.url(a), config: r.pins(map[string]any{"send": "blocking"})})
		if o := done(t, w.call(t, name, "echo plain")); o.Text != "plain" {
			t.Errorf("output %s", o.raw)
		}
		answer := r.mail(t, a, "echo plain", nil)
		return answer.media() + ", error " + r.about(t, a, "get", "nobody").media()
	})
}

// TestQuirkTimestamps reads the times of states, which servers write in their
// own ways, or not at all: a run has its own.
func TestQuirkTimestamps(t *testing.T) {
	t.Parallel()
	sees(t, map[string]string{
		"GO10": "none, later 9 digits Z", "GO10/0.3": "none, later 9 digits Z", "GO03": "none, later 9 digits Z",
		"PY10": "none, later 6 digits Z", "PY10/0.3": "none, later 6 digits Z", "PY03": "none, later 6 digits +00:00",
		"JS10": "3 digits Z, later 3 digits Z", "JS10/0.3": "3 digits Z, later 3 digits Z", "JS03": "3 digits Z, later 3 digits Z",
		"JAVA03": "9 digits Z, later 9 digits Z",
	}, func(t *testing.T, r route, a *agent) string {
		var first, later []string
		for range 4 { // a fraction may happen to end in zeros, which some leave out
			l := r.listen(t, a, ask{method: r.says("stream"), params: r.letter(unique("time"), "echo one", true, nil)})
			events, err := l.rest(t)
			if err != nil || len(events) == 0 {
				t.Fatal(err, events)
			}
			first = append(first, events[0].task().Status.Timestamp)
			later = append(later, r.mail(t, a, "echo one", nil).task(t).Status.Timestamp)
		}
		return clockOf(first) + ", later " + clockOf(later)
	})
}

// clockOf says how fine the times are, and what their zone is.
func clockOf(stamps []string) string {
	fraction := regexp.MustCompile(`T\d\d:\d\d:\d\d(?:\.(\d+))?(.*)$`)
	digits, zone := 0, ""
	for _, stamp := range stamps {
		m := fraction.FindStringSubmatch(stamp)
		if m == nil {
			return "none"
		}
		digits, zone = max(digits, len(m[1])), m[2]
	}
	return fmt.Sprintf("%d digits %s", (digits+2)/3*3, zone)
}
