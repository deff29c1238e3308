package endtoend

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley/internal/zone/verification/slacktest"
)

const (
	botToken      = "xoxb-2222-3333-TheTokenOfTheBot"
	appToken      = "xapp-1-2222-TheTokenOfTheApp"
	signingSecret = "8f742231b10e8888abcd99yyyzzz85a5"
	zoneToken     = "the-token-between-the-zones"
)

// rig is both zones, Slack in front and an agent behind.
type rig struct {
	t            *testing.T
	dir          string
	slack        *slacktest.Server
	slackURL     string
	agent        *agent
	execution    *process
	verification *process
	// pages are what the zones show to operators, as it was last read.
	pages []string
}

// agent answers what it is asked, and notes it.
type agent struct {
	mu    sync.Mutex
	calls map[string]map[string]int // by question and task
	delay func(question string) time.Duration
	wait  <-chan struct{} // to be closed before it answers, nil for no such thing
	file  []byte          // what it answers with besides a text, nil for nothing
}

func (a *agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var task struct {
		TaskID string `json:"task_id"`
		Input  struct {
			Text string `json:"text"`
		} `json:"input"`
	}
	body, _ := io.ReadAll(r.Body)
	if json.Unmarshal(body, &task) != nil {
		return // a look whether it is well
	}
	a.mu.Lock()
	if a.calls[task.Input.Text] == nil {
		a.calls[task.Input.Text] = map[string]int{}
	}
	a.calls[task.Input.Text][task.TaskID]++
	delay, wait, file := a.delay(task.Input.Text), a.wait, a.file
	a.mu.Unlock()
	pause(delay)
	if wait != nil {
		<-wait
	}
	answer := map[string]any{"task_id": task.TaskID, "status": "success", "output": map[string]any{"text": "answer to " + task.Input.Text}}
	if file != nil {
		part := map[string]any{"kind": "file", "contentBase64": file, "fileName": "a.bin", "mimeType": "application/octet-stream"}
		artifact := map[string]any{"artifactId": "a", "name": "generated_file", "parts": []any{part}}
		answer["output"] = map[string]any{"response_text": "here it is", "file_artifact": artifact}
	}
	if strings.HasPrefix(task.Input.Text, "fail") {
		answer["status"], answer["error"] = "error", "the model at 10.0.0.7 is out of order"
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// options of a rig: members of the two configurations, with their indentation.
// top are whole members of that of the Execution Zone; bare leaves the answer of the
// agent as it is.
type options struct {
	execution, verification, top string
	bare                         bool
}

func newRig(t *testing.T, o options) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), agent: &agent{calls: map[string]map[string]int{}, delay: func(string) time.Duration { return 0 }}}
	r.slack = slacktest.New(slacktest.Config{Token: botToken, AppToken: appToken, SigningSecret: signingSecret, Now: time.Now})
	front := httptest.NewServer(r.slack)
	t.Cleanup(front.Close)
	r.slackURL = front.URL
	behind := httptest.NewServer(r.agent)
	t.Cleanup(behind.Close)
	r.slack.UploadTo(front.URL)
	r.slack.Listen(front.URL)
	env := []string{
		"BOT_TOKEN=" + botToken, "APP_TOKEN=" + appToken, "SIGNING_SECRET=" + signingSecret, "ZONE_TOKEN=" + zoneToken,
	}
	output := `output: "${think.output.text}"`
	if o.bare {
		output = ""
	}
	r.write("flows/answer.yaml", `
name: answer
steps: [{id: think, agent: thinker, input: {text: "${workflow.input.text}"}}]
`+output)
	r.write("execution.yaml", fmt.Sprintf(`
data: ./execution
listen: 127.0.0.1:0
log: {level: debug, format: json}
workflows: [./flows]
egress: {allow: [127.0.0.0/8]}
%s
agents: [{name: thinker, url: %q, protocol: simple-a2a, retry: {max_retries: 0}}]
zone:
  execution:
    workflow: answer
    auth: {bearer: env:ZONE_TOKEN}
%s`, o.top, behind.URL, o.execution))
	r.execution = &process{t: t, kind: "execution", file: filepath.Join(r.dir, "execution.yaml"), env: env, announced: regexp.MustCompile(`execution zone at http://(\S+)`)}
	r.execution.start()
	t.Cleanup(r.execution.kill)
	r.write("verification.yaml", fmt.Sprintf(`
data: ./verification
log: {level: debug, format: json}
zone:
  verification:
    slack: {signing_secret: env:SIGNING_SECRET, bot_token: env:BOT_TOKEN, app_token: env:APP_TOKEN, api_url: "%s/api/"%s}
    direct: {url: "http://%s", auth: {bearer: env:ZONE_TOKEN}}
%s`, r.slackURL, mode(o.verification), r.other(o.verification), o.verification))
	r.verification = &process{t: t, kind: "verification", file: filepath.Join(r.dir, "verification.yaml"), env: env, announced: regexp.MustCompile(`verification zone at http://(\S+)`)}
	r.verification.start()
	t.Cleanup(r.verification.kill)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("execution:\n%.20000s\nverification:\n%.40000s", r.execution.out.since(0), r.verification.out.since(0))
		}
	})
	return r
}

// other is where the Verification Zone finds the other one: its A2A address, the
// second one, where requests go inside of messages.
func (r *rig) other(verification string) string {
	if !strings.Contains(verification, "wrap:") {
		return r.execution.address + "/invocations"
	}
	announced := regexp.MustCompile(`execution zone, A2A, at http://(\S+)`)
	var found []string
	eventually(r.t, "the execution zone does not say where its A2A contract is", func() bool {
		found = announced.FindStringSubmatch(r.execution.out.since(0))
		return found != nil
	})
	if strings.Contains(verification, "HTTP+JSON") {
		return found[1] + "/message:send"
	}
	return found[1] + "/"
}

// mode is that of Slack, where a comment of the options asks for it.
func mode(verification string) string {
	if strings.Contains(verification, "# socket") {
		return ", mode: socket"
	}
	return ""
}

func (r *rig) write(name, text string) {
	r.t.Helper()
	file := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// deliver sends a message as Slack does: signed, and again when the zone does not
// take it. It gives the last status.
func (r *rig) deliver(ctx context.Context, m slacktest.Message, most int) (status int) {
	body := m.Body()
	for try := range most {
		if try > 0 {
			pause(300 * time.Millisecond)
		}
		status = r.post(ctx, slacktest.Sign(signingSecret, time.Now(), body), body)
		if status == http.StatusOK {
			return status
		}
	}
	return status
}

// post sends one request; the status is 0 without an answer.
func (r *rig) post(ctx context.Context, header http.Header, body []byte) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.verification.address+"/slack/events", bytes.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// question is what a person asks, the n-th in its channel.
func question(n int, text string) slacktest.Message {
	return slacktest.Message{Text: "<@" + slacktest.BotUser + "> " + text, TS: fmt.Sprintf("1700000000.%06d", n)}
}

// thread is what a person sees below a question.
func (r *rig) thread(m slacktest.Message) (texts []string) {
	for _, p := range r.slack.Thread("C0CHAN", m.TS) {
		texts = append(texts, p.Text)
	}
	return texts
}

// answered waits until there is something below each question.
func (r *rig) answered(all ...slacktest.Message) {
	r.t.Helper()
	for _, m := range all {
		eventually(r.t, "no answer to "+m.Text, func() bool { return len(r.thread(m)) > 0 })
	}
}

// lines gives what the zones have logged of the question that a text refers to.
func (r *rig) lines(text string) string {
	_, id, _ := strings.Cut(text, "reference: ")
	id, _, found := strings.Cut(id, ")")
	if !found {
		return "no reference"
	}
	var b strings.Builder
	for _, p := range []*process{r.verification, r.execution} {
		for line := range strings.Lines(p.out.since(0)) {
			if strings.Contains(line, id) {
				b.WriteString(p.kind + ": " + line)
			}
		}
	}
	return b.String()
}

// readPages reads what the zones show to operators. They must be running.
func (r *rig) readPages() {
	r.t.Helper()
	serving := regexp.MustCompile(`serving \S+ \S+ \S+ at http://(\S+)`).FindAllStringSubmatch(r.execution.out.since(0), -1)
	if len(serving) == 0 {
		r.t.Fatal("the execution zone does not say where its API is")
	}
	api := &process{address: serving[len(serving)-1][1]}
	r.pages = []string{r.verification.get("/metrics"), api.get("/metrics"), r.execution.get("/openrpc.json"), r.execution.get("/ping")}
	for i, page := range r.pages {
		if page == "" {
			r.t.Errorf("page %d cannot be read", i)
		}
	}
}

// leaks fails if a secret is anywhere where it must not be: in what the zones have
// written to their logs, in their metrics, in any file of theirs.
func (r *rig) leaks() {
	r.t.Helper()
	secrets := []string{botToken, appToken, signingSecret, zoneToken}
	look := func(where, text string) {
		for _, s := range secrets {
			if strings.Contains(text, s) {
				r.t.Errorf("%s holds the secret %.8s…", where, s)
			}
		}
	}
	look("the log of the execution zone", r.execution.out.since(0))
	look("the log of the verification zone", r.verification.out.since(0))
	for _, page := range r.pages {
		look("a page of the zones", page)
	}
	err := filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		look(path, string(text))
		return err
	})
	if err != nil {
		r.t.Error(err)
	}
}
