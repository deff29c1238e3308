package agents_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// TestAgentsWire holds the three agents to the same transcripts, so that each
// is right by itself and they are the same agent.
func TestAgentsWire(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/wire/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for language, command := range languages(t) {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			url := start(t, command)
			for _, file := range files {
				t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
					t.Parallel()
					d := newDialogue(url)
					for i, x := range transcript(t, file) {
						if err := d.hold(t, x); err != nil {
							t.Fatalf("exchange %d (%.120s): %v", i+1, x.body, err)
						}
					}
				})
			}
			t.Run("once", func(t *testing.T) { t.Parallel(); once(t, url) })
			t.Run("watch", func(t *testing.T) { t.Parallel(); watch(t, url) })
			t.Run("large", func(t *testing.T) { t.Parallel(); large(t, url) })
		})
	}
}

// transcript reads the exchanges of a file. Its sections are called "request",
// with a method and a path or headers behind it, and "response", with the status
// and "stream" or "until".
func transcript(t *testing.T, file string) (all []exchange) {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range archive.Files {
		kind, more, _ := strings.Cut(section.Name, " ")
		switch kind {
		case "request":
			x := exchange{body: strings.TrimSuffix(string(section.Data), "\n"), header: make(http.Header)}
			if name, value, ok := strings.Cut(more, ": "); ok {
				x.header.Set(name, value)
			} else if more != "" {
				x.method, x.path, _ = strings.Cut(more, " ")
			}
			all = append(all, x)
		case "response":
			x := &all[len(all)-1]
			for word := range strings.FieldsSeq(more) {
				switch word {
				case "stream":
					x.stream = true
				case "until":
					x.until = true
				default:
					if x.status, err = strconv.Atoi(word); err != nil {
						t.Fatalf("%s: %s", file, section.Name)
					}
				}
			}
			x.want = string(section.Data)
		default:
			t.Fatalf("%s: section %q", file, section.Name)
		}
	}
	return all
}

// once sends one message many times at once and looks for the one task that it
// may lead to.
func once(t *testing.T, url string) {
	body := `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"role":"user","messageId":"once","parts":[{"kind":"text","text":"long 0.1"}]}}}`
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		seen = make(map[string]bool)
	)
	for range 20 {
		wg.Go(func() {
			d := newDialogue(url)
			err := d.hold(t, exchange{body: body, status: 200, want: `{"jsonrpc":"2.0","id":1,"result":{"id":"task-1","status":{"state":"completed","timestamp":"2026-01-01T00:00:00.000Z"},"…":""}}`})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			seen[d.names["task-1"]] = true
		})
	}
	wg.Wait()
	if len(seen) != 1 {
		t.Errorf("one message made %d tasks", len(seen))
	}
}

// watch attaches to a task at work, which is then cancelled, and to one that
// waits, which is then answered.
func watch(t *testing.T, url string) {
	for _, c := range []struct{ text, subscribe, then, first, last string }{
		{
			"long 60", `{"jsonrpc":"2.0","id":2,"method":"SubscribeToTask","params":{"id":"task-1"}}`,
			`{"jsonrpc":"2.0","id":3,"method":"CancelTask","params":{"id":"task-1"}}`,
			`{"jsonrpc":"2.0","id":2,"result":{"task":{"id":"task-1","contextId":"context-1","status":{"state":"TASK_STATE_WORKING","…":""},"…":""}}}`,
			`{"jsonrpc":"2.0","id":2,"result":{"statusUpdate":{"taskId":"task-1","contextId":"context-1","status":{"state":"TASK_STATE_CANCELED","timestamp":"2026-01-01T00:00:00.000Z"}}}}`,
		},
		{
			"ask", `{"jsonrpc":"2.0","id":2,"method":"tasks/resubscribe","params":{"id":"task-1"}}`,
			`{"jsonrpc":"2.0","id":3,"method":"message/send","params":{"message":{"role":"user","messageId":"watch-red","taskId":"task-1","parts":[{"kind":"text","text":"red"}]}}}`,
			`{"jsonrpc":"2.0","id":2,"result":{"kind":"task","id":"task-1","contextId":"context-1","status":{"state":"input-required","…":""},"…":""}}`,
			`{"jsonrpc":"2.0","id":2,"result":{"kind":"artifact-update","taskId":"task-1","contextId":"context-1","append":false,"lastChunk":true,"artifact":{"artifactId":"result","name":"result","parts":[{"kind":"text","text":"You chose red."}]}}}
			 {"jsonrpc":"2.0","id":2,"result":{"kind":"status-update","taskId":"task-1","contextId":"context-1","final":true,"status":{"state":"completed","timestamp":"2026-01-01T00:00:00.000Z"}}}`,
		},
	} {
		d := newDialogue(url)
		send := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"configuration":{"returnImmediately":true},"message":{"role":"ROLE_USER","messageId":%q,"parts":[{"text":%q}]}}}`, "watch "+c.text, c.text)
		if err := d.hold(t, exchange{body: send, status: 200, want: `{"jsonrpc":"2.0","id":1,"result":{"task":{"id":"task-1","…":""}}}`}); err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(strings.ReplaceAll(c.subscribe, "task-1", d.names["task-1"])))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := visitor().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		stream := bufio.NewReader(resp.Body)
		first, err := stream.ReadBytes('\n')
		if err == nil {
			err = d.compare(c.first, events(first))
		}
		if err == nil {
			err = d.hold(t, exchange{body: c.then, status: 200, want: `{"jsonrpc":"2.0","id":3,"result":{"id":"task-1","…":""}}`})
		}
		if err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(stream)
		if err == nil {
			err = d.compare(c.last, events(rest))
		}
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
		}
	}
}

// large sends bodies around the limit.
func large(t *testing.T, url string) {
	const limit = 1 << 20
	send := func(size int, id string) (int, string) {
		head := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"configuration":{"historyLength":0},"message":{"role":"user","messageId":%q,"parts":[{"kind":"text","text":"`, id)
		tail := `"}]}}}`
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(head+strings.Repeat("x", size-len(head)-len(tail))+tail))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := visitor().Do(req)
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		return resp.StatusCode, string(b)
	}
	if status, body := send(limit, "large-1"); status != 200 || !strings.Contains(body, "completed") {
		t.Errorf("%d bytes: HTTP %d %.200s", limit, status, body)
	}
	for i, size := range []int{limit + 1, 5 * limit} {
		want := `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"the body is larger than 1048576 bytes"}}`
		status, body := send(size, fmt.Sprint("large-", i+2))
		if err := newDialogue(url).compare(want, []byte(body)); status != 413 || err != nil {
			t.Errorf("%d bytes: HTTP %d %v", size, status, err)
		}
	}
}

// TestAgentsFull gives each agent as many tasks as it remembers: the next one is
// refused before anything is done, until one of them has ended, which is then
// forgotten.
func TestAgentsFull(t *testing.T) {
	t.Parallel()
	for language, command := range languages(t) {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			url := start(t, command)
			ask := func(i int) string {
				return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"role":"ROLE_USER","messageId":"full-%d","parts":[{"text":"ask"}]}}}`, i)
			}
			taken := `{"jsonrpc":"2.0","id":1,"result":{"task":{"id":"task-1","…":""}}}`
			first := newDialogue(url)
			if err := first.hold(t, exchange{body: ask(0), status: 200, want: taken}); err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for k := range 8 {
				wg.Go(func() {
					for i := k + 1; i < 1000; i += 8 {
						if err := newDialogue(url).hold(t, exchange{body: ask(i), status: 200, want: taken}); err != nil {
							t.Errorf("task %d: %v", i, err)
							return
						}
					}
				})
			}
			wg.Wait()
			for i, x := range []exchange{
				{body: ask(1000), status: 503, want: `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"too many tasks are under way; try again later"}}`},
				{body: ask(0), status: 200, want: taken}, // the first one again
				{body: `{"jsonrpc":"2.0","id":1,"method":"CancelTask","params":{"id":"task-1"}}`, status: 200, want: `{"jsonrpc":"2.0","id":1,"result":{"id":"task-1","…":""}}`},
				{body: ask(1000), status: 200, want: strings.ReplaceAll(taken, "task-1", "task-2")},
				{body: `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"task-1"}}`, status: 200, want: `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"…":""}}`},
				{body: ask(0), status: 503, want: "…"}, // its message is forgotten, too
			} {
				if err := first.hold(t, x); err != nil {
					t.Errorf("exchange %d: %v", i, err)
				}
			}
		})
	}
}

// TestAgentsStdio talks to the agents line by line.
func TestAgentsStdio(t *testing.T) {
	t.Parallel()
	for language, command := range languages(t) {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			p := startStdio(t, command)
			send := func(id, text string) string {
				return fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"SendMessage","params":{"message":{"messageId":%q,"role":"ROLE_USER","parts":[{"text":%q}]}}}`, id, "m-"+id, text)
			}
			check := func(answer map[string]any, path, want string) {
				t.Helper()
				if got := dig(answer, path); got != want {
					t.Errorf("%s is %q, want %q in %v", path, got, want, answer)
				}
			}
			// What takes long does not hold up what comes behind it.
			io.WriteString(p.in, send("slow", "long 0.5")+"\n\n  \n")
			check(p.call(send("fast", "echo hi"), "fast"), "result.task.artifacts.0.parts.0.text", "hi")
			asked := p.call(send("asks", "ask"), "asks")
			check(asked, "result.task.status.state", "TASK_STATE_INPUT_REQUIRED")
			answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"message/send","params":{"message":{"messageId":"red","role":"user","taskId":%q,"parts":[{"kind":"text","text":"red"}]}}}`, dig(asked, "result.task.id"))
			check(p.call(answer, 7.0), "result.artifacts.0.parts.0.text", "You chose red.")
			check(p.call("nonsense", nil), "error.code", "-32700")
			check(p.call(strings.Repeat("x", 3<<20), nil), "error.message", "the line is larger than 1048576 bytes")
			check(p.call(strings.Replace(send("stream", "echo hi"), "SendMessage", "SendStreamingMessage", 1), "stream"), "error.code", "-32004")
			// A notification is not answered, and begins nothing.
			io.WriteString(p.in, strings.Replace(send("never", "echo never"), `"id":"never",`, "", 1)+"\n")
			listed := p.call(`{"jsonrpc":"2.0","id":"list","method":"ListTasks"}`, "list")
			check(listed, "result.totalSize", "3")
			check(p.call(send("slow", "long 0.5"), "slow"), "result.task.status.state", "TASK_STATE_COMPLETED")
			// The end of stdin is the end of the agent, once it has answered.
			io.WriteString(p.in, send("last", "long 0.2"))
			p.in.Close()
			<-p.ended
			if n := len(p.answers); n != 2 || dig(p.answers[1], "result.task.status.state") != "TASK_STATE_COMPLETED" {
				t.Errorf("%d answers are left: %v", n, p.answers)
			}
		})
	}
}

// dig gives what is at a path of members and indices, as text.
func dig(v any, path string) string {
	for name := range strings.SplitSeq(path, ".") {
		switch owner := v.(type) {
		case map[string]any:
			v = owner[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(owner) {
				return ""
			}
			v = owner[i]
		default:
			return ""
		}
	}
	return fmt.Sprint(v)
}
