package a2a

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestQuirkPushConfig looks for a push config that is not there, and takes one
// away: some name it a task, and some send neither a result nor an error. Parley
// sets one with the message that it sends, and never asks for it again.
func TestQuirkPushConfig(t *testing.T) {
	t.Parallel()
	sees(t, map[string]string{
		"GO10": "delete nothing, get -32603", "GO10/0.3": "delete nothing, get -32603", "GO03": "delete nothing, get -32603",
		"PY10": "delete null, get -32001", "PY10/0.3": "delete nothing, get -32001", "PY03": "delete nothing, get -32603",
		"JS10": "delete null, get -32001", "JS10/0.3": "delete null, get -32001", "JS03": "delete null, get -32603",
		"JAVA03": "delete null, get -32603",
	}, func(t *testing.T, r route, a *agent) string {
		never(t, r, "a request about a push config", func(s spoken) bool {
			return strings.Contains(s.method, "ushNotificationConfig")
		})
		sets := slices.ContainsFunc(heard(t, r), func(s spoken) bool {
			return s.sends() && (s.member("configuration", "pushNotificationConfig", "token") != nil ||
				s.member("configuration", "taskPushNotificationConfig", "token") != nil)
		})
		if !sets {
			t.Error("Parley sets no push config")
		}
		id := r.mail(t, a, "ask who?", nil).task(t).ID
		config := map[string]any{"id": "c1", "url": "http://127.0.0.1:1/hook", "token": "t"}
		set, about := map[string]any{"taskId": id, "pushNotificationConfig": config}, map[string]any{"id": id, "pushNotificationConfigId": "c1"}
		if r.version == "1.0" {
			config["taskId"] = id
			set, about = config, map[string]any{"taskId": id, "id": "c1"}
		}
		for _, what := range []string{"set push", "get push"} {
			params := about
			if what == "set push" {
				params = set
			}
			if answer := r.ask(t, a, ask{method: r.says(what), params: params}); !strings.Contains(answer.result(), "/hook") {
				t.Errorf("%s: %s", what, answer.body)
			}
		}
		var members map[string]json.RawMessage
		answer := r.ask(t, a, ask{method: r.says("end push"), params: about})
		if err := json.Unmarshal([]byte(answer.body), &members); err != nil {
			t.Errorf("%s: %v", answer.body, err)
		}
		gone := "nothing"
		if result, ok := members["result"]; ok {
			gone = string(result)
		} else if members["error"] != nil {
			gone = answer.verdict()
		}
		return fmt.Sprintf("delete %s, get %s", gone, r.ask(t, a, ask{method: r.says("get push"), params: about}).verdict())
	})
}

// TestQuirkPushAuthentication has a hook with credentials of its own: not all
// servers send them, or the token beside them. Parley asks for a token alone,
// which all that post send (TestPush).
func TestQuirkPushAuthentication(t *testing.T) {
	t.Parallel()
	for _, k := range []kind{python10, go10, js10, python03, go03, js03} {
		want := map[kind]string{
			python10: "token and Authorization", go10: "token and Authorization", go03: "token and Authorization",
			js10: "Authorization alone", python03: "token alone", js03: "token alone",
		}[k]
		t.Run(string(k), func(t *testing.T) {
			parallel(t)
			r, a := k.routes()[0], sharedAgent(t, k)
			never(t, r, "credentials for the hook", func(s spoken) bool { return strings.Contains(s.body, `"authentication"`) })
			posts := make(chan http.Header, 20)
			hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
				_, _ = io.Copy(io.Discard, q.Body)
				select {
				case posts <- q.Header:
				default:
				}
			}))
			t.Cleanup(hook.Close)
			params := r.letter(unique("push"), "echo one", true, nil)
			configuration := params["configuration"].(map[string]any)
			if r.version == "1.0" {
				configuration["taskPushNotificationConfig"] = map[string]any{
					"url": hook.URL, "token": "tok", "authentication": map[string]any{"scheme": "Bearer", "credentials": "secret"},
				}
			} else {
				configuration["pushNotificationConfig"] = map[string]any{
					"url": hook.URL, "token": "tok", "authentication": map[string]any{"schemes": []string{"Bearer"}, "credentials": "secret"},
				}
			}
			r.ask(t, a, ask{method: r.says("send"), params: params}).task(t)
			var header http.Header
			select {
			case header = <-posts:
			case <-time.After(patience):
				t.Fatal("nothing was posted")
			}
			token := header.Get("X-A2A-Notification-Token") == "tok" || header.Get("A2A-Notification-Token") == "tok"
			authorization := header.Get("Authorization") == "Bearer secret"
			got := map[[2]bool]string{
				{true, true}: "token and Authorization", {true, false}: "token alone", {false, true}: "Authorization alone",
			}[[2]bool{token, authorization}]
			if got != want {
				t.Errorf("%s, want %s: %v", got, want, header)
			}
		})
	}
}

// TestPushOutOfOrder delivers what agents post the wrong way round, each twice,
// as posts that overtake each other come: the run sees the task as it is, since
// a post is only a reason to ask.
func TestPushOutOfOrder(t *testing.T) {
	t.Parallel()
	w, h := newPushWorld(t)
	var mu sync.Mutex
	held := make(map[string][]post)
	h.mu.Lock()
	h.keep = func(p post) bool {
		mu.Lock()
		defer mu.Unlock()
		held[p.path] = append(held[p.path], p)
		return true
	}
	h.mu.Unlock()
	for _, r := range routes() {
		if r.kind == java03 {
			continue // it posts nothing (TestPush)
		}
		t.Run(r.name(), func(t *testing.T) {
			parallel(t)
			a := sharedAgent(t, r.kind)
			name := w.register(t, registration{url: a.where["url"], auto: true, config: r.pins(map[string]any{"stream": "off"})})
			run := w.start(t, name, "hold "+name)
			w.accepted(t, run)
			a.release(t, name)
			var posts []post
			eventually(t, "posts of the task's end", func() bool {
				mu.Lock()
				defer mu.Unlock()
				posts = nil
				for path, all := range held {
					if strings.Contains(path, run) {
						posts = slices.Clone(all)
					}
				}
				return len(posts) >= 3
			})
			slices.Reverse(posts)
			for _, p := range append(posts, posts...) {
				// 404 is that the task is over by now.
				if code := h.deliver(p); code != http.StatusAccepted && code != http.StatusNotFound {
					t.Errorf("refused with %d: %s", code, p.body)
				}
			}
			if o := done(t, w.end(t, run)); o.Text != "held "+name {
				t.Errorf("output %s", o.raw)
			}
			if executions, _ := a.entries(t, run); len(executions) != 1 {
				t.Errorf("executed %d times", len(executions))
			}
		})
	}
}
