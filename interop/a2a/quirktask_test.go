package a2a

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// TestQuirkHistoryLength asks for no history: it means none, all, or nothing,
// and hardly anybody listens to it in a send. Parley leaves it out in 0.3, and
// asks for 0 with GetTask and for what a look-up needs with ListTasks.
func TestQuirkHistoryLength(t *testing.T) {
	t.Parallel()
	sees(t, map[string]string{
		// What a get brings without a word and with 0, and a send with 0.
		"GO10": "get all, get 0 none, send 0 all", "GO10/0.3": "get all, get 0 none, send 0 all", "GO03": "get all, get 0 none, send 0 all",
		"PY10": "get all, get 0 none, send 0 none", "PY10/0.3": "get all, get 0 all, send 0 all", "PY03": "get all, get 0 all, send 0 all",
		"JS10": "get all, get 0 none, send 0 none", "JS10/0.3": "get all, get 0 none, send 0 none", "JS03": "get none, get 0 all, send 0 all",
		"JAVA03": "get all, get 0 all, send 0 all",
	}, func(t *testing.T, r route, a *agent) string {
		never(t, r, "a historyLength of its own", func(s spoken) bool {
			switch length := s.member("historyLength"); s.method {
			case "GetTask":
				return length != 0.0
			case "ListTasks":
				return length != 100.0
			default:
				return strings.Contains(s.body, "historyLength")
			}
		})
		amount := func(k task) string {
			if len(k.History) == 0 {
				return "none"
			}
			return "all"
		}
		id := r.mail(t, a, "echo one", nil).task(t).ID
		params := r.letter(unique("history"), "echo one", true, nil)
		params["configuration"].(map[string]any)["historyLength"] = 0
		none := r.ask(t, a, ask{method: r.says("get"), params: map[string]any{"id": id, "historyLength": 0}})
		return fmt.Sprintf("get %s, get 0 %s, send 0 %s", amount(r.about(t, a, "get", id).task(t)), amount(none.task(t)),
			amount(r.ask(t, a, ask{method: r.says("send"), params: params}).task(t)))
	})
}

// TestQuirkListTasks lists tasks: 0.3 cannot, but Go tries and wants to know
// who asks; the servers of 1.0 find a task by a context of the caller's and
// refuse big pages in two ways; Python fills in what is empty. TestLostAnswer
// shows that a run finds its task with all of them.
func TestQuirkListTasks(t *testing.T) {
	t.Parallel()
	sees(t, map[string]string{
		"": "-32601", "GO03": "-31401",
		"GO10": "1 task, 101 a page -32600, empty not there", "JS10": "1 task, 101 a page -32602, empty []",
		"PY10": "1 task, 101 a page -32602, empty []",
	}, func(t *testing.T, r route, a *agent) string {
		never(t, r, "a page of more than 100", func(s spoken) bool {
			size, asks := s.member("pageSize").(float64)
			return asks && size > 100
		})
		list := func(params map[string]any) reply { return r.ask(t, a, ask{method: r.says("list"), params: params}) }
		if r.version == "0.3" {
			return list(map[string]any{}).verdict()
		}
		own := unique("context")
		r.mail(t, a, "echo one", map[string]any{"contextId": own})
		var page struct {
			Tasks         []task
			NextPageToken *string
			TotalSize     *int
		}
		answer := list(map[string]any{"contextId": own, "pageSize": 2})
		if err := json.Unmarshal([]byte(answer.result()), &page); err != nil || page.NextPageToken == nil || *page.NextPageToken != "" {
			t.Errorf("page %s (%v)", answer.body, err)
		}
		empty := "not there"
		if nobody := list(map[string]any{"contextId": unique("nobody")}).result(); strings.Contains(strings.ReplaceAll(nobody, " ", ""), `"tasks":[]`) {
			empty = "[]"
		}
		return fmt.Sprintf("%d task, 101 a page %s, empty %s", len(page.Tasks), list(map[string]any{"pageSize": 101}).verdict(), empty)
	})
}

// TestQuirkFilledMembers lists a task without artifacts or context: Python
// writes what is empty, the others leave it out. A run reads both.
func TestQuirkFilledMembers(t *testing.T) {
	t.Parallel()
	for k, want := range map[kind]bool{python10: true, js10: false, go10: false} {
		t.Run(string(k), func(t *testing.T) {
			parallel(t)
			r, a := k.routes()[0], sharedAgent(t, k)
			own := unique("context")
			r.mail(t, a, "reject no", map[string]any{"contextId": own})
			answer := r.ask(t, a, ask{method: "ListTasks", params: map[string]any{"contextId": own, "historyLength": 5}})
			filled := regexp.MustCompile(`:(""|\[\])`).MatchString(strings.ReplaceAll(strings.ReplaceAll(answer.result(), " ", ""), `"nextPageToken":""`, ""))
			if filled != want {
				t.Errorf("empty members %v, want %v: %s", filled, want, answer.body)
			}
		})
	}
}

// TestQuirkDataList sends a list as the data of a part, which A2A 0.3 does not
// allow: JavaScript takes it all the same. A run sends it as a member of an
// object there, to all.
func TestQuirkDataList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sees(t, map[string]string{
		"": "taken", "GO03": "-32602", "GO10/0.3": "-32602", "PY03": "-32602", "PY10/0.3": "-32600", "JAVA03": "-32602",
	}, func(t *testing.T, r route, a *agent) string {
		if r.kind == go10 {
			// No list of its tasks over gRPC succeeds any more, see TestUnwritableList.
			a = ownAgent(t, go10, setup{dual: true})
		}
		name := w.register(t, registration{url: r.url(a), config: r.pins(map[string]any{"parts": "parts"})})
		o := done(t, w.call(t, name, `{"parts":[{"text":"data"},{"data":[1,2]}]}`))
		want := "[1,2]"
		if r.version == "0.3" {
			want = `{"value":[1,2]}`
		}
		if got := strings.ReplaceAll(string(o.Data), ".0", ""); got != want {
			t.Errorf("data %s, want %s", got, want)
		}
		data, text := map[string]any{"data": []int{1, 2}}, map[string]any{"text": "data"}
		if r.version == "0.3" {
			data["kind"], text["kind"] = "data", "text"
		}
		return r.mail(t, a, "", map[string]any{"parts": []any{text, data}}).verdict()
	})
}

// TestQuirkCancelAgain cancels tasks that have ended, and some that will not:
// TestCancel and TestCancelRefused show what the run sees.
func TestQuirkCancelAgain(t *testing.T) {
	t.Parallel()
	sees(t, map[string]string{
		"GO10": "completed -32002, canceled taken, refused -32002 completed", "GO10/0.3": "completed -32002, canceled taken, refused -32002 completed",
		"GO03": "completed -32002, canceled taken, refused -32002 completed",
		"PY10": "completed -32002, canceled -32002, refused -32002 failed", "PY10/0.3": "completed -32002, canceled -32002, refused -32002 failed",
		"PY03": "completed -32002, canceled -32002, refused -32002 completed",
		"JS10": "completed -32002, canceled taken, refused -32002 completed", "JS10/0.3": "completed -32002, canceled taken, refused -32002 completed",
		"JS03":   "completed -32002, canceled -32002, refused -32002 completed",
		"JAVA03": "completed -32002, canceled -32002, refused -32002 completed",
	}, func(t *testing.T, r route, a *agent) string {
		ended := r.about(t, a, "cancel", r.mail(t, a, "echo one", nil).task(t).ID)
		never := r.leave(t, a, "hold never").ID
		r.became(t, a, never, "working")
		if k := r.about(t, a, "cancel", never).task(t); k.state() != "canceled" {
			t.Errorf("the cancelled task is %s", k.state())
		}
		again := r.about(t, a, "cancel", never)
		key := unique("refuse")
		refuses := r.leave(t, a, "refuse-cancel "+key).ID
		r.became(t, a, refuses, "working")
		refused := r.about(t, a, "cancel", refuses)
		a.release(t, key)
		var state string
		eventually(t, "the task to end", func() bool {
			state = r.about(t, a, "get", refuses).task(t).state()
			return state != "working"
		})
		return fmt.Sprintf("completed %s, canceled %s, refused %s %s", ended.verdict(), again.verdict(), refused.verdict(), state)
	})
}

// TestQuirkAnswerContext answers a question in another context: most refuse it.
// Without one all take it. Parley's answers name the agent's own.
func TestQuirkAnswerContext(t *testing.T) {
	t.Parallel()
	sees(t, map[string]string{"": "another -32602, none taken", "JS03": "another taken, none taken", "JAVA03": "another taken, none taken"},
		func(t *testing.T, r route, a *agent) string {
			never(t, r, "an answer without its task and context", func(s spoken) bool {
				return strings.Contains(s.body, ".answer-") && (s.member("message", "taskId") == nil || s.member("message", "contextId") == nil)
			})
			asks := func(more map[string]any) string {
				k := r.mail(t, a, "ask who?", nil).task(t)
				more["taskId"] = k.ID
				return r.mail(t, a, "me", more).verdict()
			}
			return fmt.Sprintf("another %s, none %s", asks(map[string]any{"contextId": "another"}), asks(map[string]any{}))
		})
}

// TestQuirkSecondMessageRaw sends a second message to a task at work. A run never
// does (TestQuirkSecondMessage).
func TestQuirkSecondMessageRaw(t *testing.T) {
	t.Parallel()
	sees(t, map[string]string{
		"GO10": "-32603", "GO10/0.3": "-32603", "GO03": "-32603",
		"PY03": "run beside the first", "JS03": "run beside the first", "JS10": "run beside the first", "JS10/0.3": "run beside the first",
		"JAVA03": "run beside the first",
		"PY10":   "held back, then run on the finished task", "PY10/0.3": "held back, then run on the finished task",
	}, func(t *testing.T, r route, a *agent) string {
		// Whether a message that is held back has arrived cannot be seen: one that
		// came too late is refused, and the next gets more time.
		saw := ""
		for pause := 300 * time.Millisecond; pause < 10*time.Second; pause *= 3 {
			if saw = secondMessage(t, r, a, pause); saw != "-32004" {
				break
			}
		}
		return saw
	})
}

// secondMessage sends one to a task at work, which goes on after pause if that
// has no effect.
func secondMessage(t *testing.T, r route, a *agent, pause time.Duration) string {
	t.Helper()
	key, second := unique("first"), unique("second")
	id := r.leave(t, a, "hold "+key).ID
	r.became(t, a, id, "working")
	timer := time.AfterFunc(pause, func() {
		if r.kind == python10 {
			_ = a.open(key)
		}
	})
	defer timer.Stop()
	answer := r.ask(t, a, ask{method: r.says("send"), params: r.letter(second, "again", true, map[string]any{"taskId": id})})
	beside := false
	if r.kind != python10 {
		executions, _ := a.entries(t, second)
		beside = len(executions) == 1
	}
	a.release(t, key)
	switch {
	case beside:
		return "run beside the first"
	case answer.failure().Code != 0:
		return answer.verdict()
	}
	eventually(t, "the second message to be run", func() bool {
		executions, _ := a.entries(t, second)
		return len(executions) == 1
	})
	if !strings.Contains(answer.result(), "held "+key) || strings.Contains(answer.result(), "answer: again") {
		t.Errorf("the second message was answered with %s", answer.body)
	}
	return "held back, then run on the finished task"
}

// TestQuirkExtendedCard asks for a card that there is not: five codes say so.
// Parley asks only agents whose cards announce one, and if they refuse, the
// public card stands.
func TestQuirkExtendedCard(t *testing.T) {
	t.Parallel()
	sees(t, map[string]string{
		"GO10": "-32007", "GO10/0.3": "-32007", "GO03": "-32007", "JAVA03": "-32007", "PY03": "-32603",
		"PY10": "-32004", "PY10/0.3": "-32004", "JS10": "-32004", "JS10/0.3": "-32004", "JS03": "-32004",
	}, func(t *testing.T, r route, a *agent) string {
		never(t, r, "a request for the extended card", func(s spoken) bool { return s.method == r.says("whole card") })
		return r.ask(t, a, ask{method: r.says("whole card"), params: map[string]any{}}).verdict()
	})
}

// TestQuirkExtendedCardAnnounced has cards announce what the servers then refuse
// to give: the agent is found by its public card, and the explanation says why.
func TestQuirkExtendedCardAnnounced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, k := range kinds() {
		t.Run(string(k), func(t *testing.T) {
			parallel(t)
			r, a := k.routes()[0], sharedAgent(t, k)
			rec := newRecorder(t, a)
			rec.announce = true
			d, err := w.DetectAgent(t.Context(), parley.AgentSpec{
				URL: &rec.URL, Auth: &parley.AuthSpec{Type: parley.AuthBearer, Literal: parley.NewSecret([]byte("sesame"))},
			})
			if err != nil {
				t.Fatal(err)
			}
			asked := slices.ContainsFunc(rec.all(), func(s spoken) bool { return s.method == r.says("whole card") })
			if !asked || d.Version != r.version || d.Binding != "JSONRPC" || !strings.Contains(strings.Join(d.Explanation, "\n"), "extended card") {
				t.Errorf("asked for it: %v; found %+v", asked, d)
			}
		})
	}
}

// TestQuirkCardPath looks for the card: only Python 0.3 has it at the old path
// too, and Go and Java do not know HEAD. Parley gets it at the new one.
func TestQuirkCardPath(t *testing.T) {
	t.Parallel()
	sees(t, map[string]string{
		"": "200, old 404, HEAD 200", "PY03": "200, old 200, HEAD 200",
		"GO10": "200, old 404, HEAD 405", "GO10/0.3": "200, old 404, HEAD 405", "GO03": "200, old 404, HEAD 405",
		"JAVA03": "200, old 404, HEAD 405",
	}, func(t *testing.T, r route, a *agent) string {
		never(t, r, "HEAD", func(s spoken) bool { return s.verb == http.MethodHead })
		status := func(method, path string) int {
			req, err := http.NewRequestWithContext(t.Context(), method, a.where["url"]+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := pastParley().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			return readAll(t, resp).status
		}
		const path = "/.well-known/agent-card.json"
		return fmt.Sprintf("%d, old %d, HEAD %d", status(http.MethodGet, path), status(http.MethodGet, "/.well-known/agent.json"), status(http.MethodHead, path))
	})
}

// TestQuirkDual reads cards and tasks of servers that speak both dialects: the
// card is of both forms, if no version is asked for, and a task that was made in
// one can be read in the other. TestDetect shows that 1.0 is chosen.
func TestQuirkDual(t *testing.T) {
	t.Parallel()
	for _, k := range []kind{go10, python10, js10} {
		t.Run(string(k), func(t *testing.T) {
			parallel(t)
			a := sharedAgent(t, k)
			newer, older := k.routes()[0], k.routes()[3]
			resp, err := pastParley().Get(a.where["url"] + "/.well-known/agent-card.json")
			if err != nil {
				t.Fatal(err)
			}
			var card struct {
				URL                 string
				SupportedInterfaces []any
			}
			if answer := readAll(t, resp); json.Unmarshal([]byte(answer.body), &card) != nil || card.URL == "" || len(card.SupportedInterfaces) < 2 {
				t.Errorf("card %s", answer.body)
			}
			made := newer.mail(t, a, "echo one", nil).task(t)
			if k := older.about(t, a, "get", made.ID).task(t); k.Status.State != "completed" || len(k.Artifacts) != 1 {
				t.Errorf("made in 1.0 and read in 0.3: %+v", k)
			}
			made = older.mail(t, a, "echo one", nil).task(t)
			if k := newer.about(t, a, "get", made.ID).task(t); k.Status.State != "TASK_STATE_COMPLETED" || len(k.Artifacts) != 1 {
				t.Errorf("made in 0.3 and read in 1.0: %+v", k)
			}
		})
	}
}
