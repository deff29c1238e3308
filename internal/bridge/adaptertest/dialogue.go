package adaptertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// dialogue is one transcript, read.
type dialogue struct {
	archive   *txtar.Archive
	task      parley.Task
	agent     parley.Agent
	secret    string
	operation string
	at        bridge.AgentTask // what poll, cancel, subscribe and answer are about
	reply     bridge.TaskReply
	scripts   []script
}

func parse(archive *txtar.Archive) (*dialogue, error) {
	d := &dialogue{archive: archive, operation: "call"}
	if err := d.readTask(); err != nil {
		return nil, fmt.Errorf("task.json: %w", err)
	}
	if err := d.readAgent(); err != nil {
		return nil, fmt.Errorf("agent.json: %w", err)
	}
	if op := strings.Fields(d.section("operation")); len(op) > 0 {
		d.operation = op[0]
		if len(op) > 1 {
			d.at.ID = op[1]
		}
	}
	if err := d.readAt(); err != nil {
		return nil, fmt.Errorf("at.json: %w", err)
	}
	if err := d.readReply(); err != nil {
		return nil, fmt.Errorf("reply.json: %w", err)
	}
	for n := 1; ; n++ {
		s, ok, err := d.script(n)
		if err != nil || !ok {
			return d, err
		}
		d.scripts = append(d.scripts, s)
	}
}

// numbered names the n-th section of a kind; the first one has no number.
func numbered(kind string, n int) string {
	if n == 1 {
		return kind
	}
	return kind + "." + strconv.Itoa(n)
}

// script reads the n-th response. The first one may be missing: then no request
// is answered.
func (d *dialogue) script(n int) (script, bool, error) {
	text, fault := d.section(numbered("response", n)), strings.TrimSpace(d.section(numbered("fault", n)))
	if text == "" && fault == "" {
		return script{}, false, nil
	}
	s, err := scriptOf(text, fault)
	return s, err == nil, err
}

// scriptOf makes the script of a response and its fault, as sections have them.
func scriptOf(text, fault string) (script, error) {
	word, count, _ := strings.Cut(fault, " ")
	s := script{fault: word}
	if count != "" {
		var err error
		if s.count, err = strconv.Atoi(count); err != nil {
			return s, fmt.Errorf("fault %q: %w", fault, err)
		}
	}
	head, body, _ := strings.Cut(text, "\n\n")
	if word == "" && strings.Contains(head, "text/event-stream") {
		var err error
		s.response = wire(head+"\nTransfer-Encoding: chunked\n\n", "")
		s.stream, err = streamed(body)
		return s, err
	}
	s.response = wire(text, word)
	return s, nil
}

// streamed reads a streamed body: a line that begins with "~ " says what happens
// there.
func streamed(body string) ([]line, error) {
	all := []line{{}}
	for text := range strings.Lines(body) {
		now := &all[len(all)-1]
		directive, ok := strings.CutPrefix(text, "~ ")
		if !ok {
			now.text += text
			continue
		}
		event, pause, _ := strings.Cut(strings.TrimSpace(directive), " ")
		next := line{event: event}
		if event == "pause" {
			var err error
			if next.pause, err = time.ParseDuration(pause); err != nil {
				return nil, err
			}
		}
		all = append(all, next)
	}
	return all, nil
}

func (d *dialogue) readAt() error {
	a := struct {
		ID        string `json:"id"`
		ContextID string `json:"context_id"`
		Endpoint  string `json:"endpoint"`
		Version   string `json:"version"`
	}{ID: d.at.ID}
	err := strict(d.section("at.json"), &a)
	d.at = bridge.AgentTask{ID: a.ID, ContextID: a.ContextID, Endpoint: a.Endpoint, Version: a.Version}
	return err
}

func (d *dialogue) readReply() error {
	r := struct {
		Number int             `json:"number"`
		Text   string          `json:"text"`
		Data   json.RawMessage `json:"data"`
	}{Number: 1}
	err := strict(d.section("reply.json"), &r)
	d.reply = bridge.TaskReply{At: d.at, Number: r.Number, Reply: parley.Reply{Text: r.Text, Data: r.Data}}
	return err
}

func (d *dialogue) section(name string) string {
	for _, f := range d.archive.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

// replace sets a section, and makes it if it is missing.
func (d *dialogue) replace(name, text string) {
	for i, f := range d.archive.Files {
		if f.Name == name {
			d.archive.Files[i].Data = []byte(text)
			return
		}
	}
	d.archive.Files = append(d.archive.Files, txtar.File{Name: name, Data: []byte(text)})
}

func (d *dialogue) readTask() error {
	t := struct {
		ID            string          `json:"id"`
		Input         json.RawMessage `json:"input"`
		CorrelationID string          `json:"correlation_id"`
		ContextID     string          `json:"context_id"`
		parley.Trace
	}{ID: "run-1.ask.1", CorrelationID: "corr-1", Input: json.RawMessage(`{"text":"Hello"}`)}
	if err := strict(d.section("task.json"), &t); err != nil {
		return err
	}
	d.task = parley.Task{
		ID: t.ID, Run: "run-1", Step: "ask", Attempt: 1, Agent: "scripted",
		Input: t.Input, CorrelationID: t.CorrelationID, ContextID: t.ContextID, Trace: t.Trace,
	}
	return nil
}

// agentURL is where the agent is if the dialogue says nothing else.
const agentURL = "http://agent.test/run"

func (d *dialogue) readAgent() error {
	a := struct {
		URL        string          `json:"url"`
		Timeout    string          `json:"timeout"`
		Auth       parley.AuthType `json:"auth"`
		Header     string          `json:"header"`
		Credential string          `json:"credential"`
		Config     json.RawMessage `json:"config"`
		Detected   json.RawMessage `json:"detected"`
	}{URL: agentURL, Timeout: "10s"}
	if err := strict(d.section("agent.json"), &a); err != nil {
		return err
	}
	timeout, err := time.ParseDuration(a.Timeout)
	if err != nil {
		return err
	}
	d.secret = a.Credential
	d.agent = parley.Agent{
		Name: "scripted", URL: a.URL, Timeout: timeout, ProtocolConfig: a.Config, Detected: a.Detected,
		Auth: parley.Auth{Type: a.Auth, Header: a.Header}, Credential: parley.NewSecret([]byte(a.Credential)),
	}
	return nil
}

func strict(text string, v any) error {
	if text == "" {
		return nil
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

// wire makes the bytes of a response from its section: line ends of the head as
// HTTP has them, the body without its last line end, and its length.
func wire(text, fault string) []byte {
	if text == "" {
		return nil
	}
	head, body, _ := strings.Cut(text, "\n\n")
	head, body = strings.TrimSuffix(head, "\n"), strings.TrimSuffix(body, "\n")
	flood := fault == FaultLarge || fault == FaultEndless
	if !flood && !strings.Contains(head, "Content-Length:") && !strings.Contains(head, "Transfer-Encoding:") &&
		!strings.HasPrefix(head, "HTTP/1.1 1") && !strings.HasPrefix(head, "HTTP/1.1 204") {
		head += "\nContent-Length: " + strconv.Itoa(len(body))
	}
	var b bytes.Buffer
	b.WriteString(strings.ReplaceAll(head, "\n", "\r\n"))
	b.WriteString("\r\n\r\n")
	b.WriteString(body)
	return b.Bytes()
}
