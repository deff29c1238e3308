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
)

// dialogue is one transcript, read.
type dialogue struct {
	archive   *txtar.Archive
	task      parley.Task
	agent     parley.Agent
	secret    string
	operation string
	target    string // the agent's task id, for poll and cancel
	response  []byte
	fault     string
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
			d.target = op[1]
		}
	}
	d.fault = strings.TrimSpace(d.section("fault"))
	d.response = wire(d.section("response"), d.fault)
	return d, nil
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
	}{ID: "run-1.ask.1", CorrelationID: "corr-1", Input: json.RawMessage(`{"text":"Hello"}`)}
	if err := strict(d.section("task.json"), &t); err != nil {
		return err
	}
	d.task = parley.Task{
		ID: t.ID, Run: "run-1", Step: "ask", Attempt: 1, Agent: "scripted",
		Input: t.Input, CorrelationID: t.CorrelationID, ContextID: t.ContextID,
	}
	return nil
}

func (d *dialogue) readAgent() error {
	a := struct {
		URL        string          `json:"url"`
		Timeout    string          `json:"timeout"`
		Auth       parley.AuthType `json:"auth"`
		Header     string          `json:"header"`
		Credential string          `json:"credential"`
		Config     json.RawMessage `json:"config"`
	}{URL: "http://agent.test/run", Timeout: "10s"}
	if err := strict(d.section("agent.json"), &a); err != nil {
		return err
	}
	timeout, err := time.ParseDuration(a.Timeout)
	if err != nil {
		return err
	}
	d.secret = a.Credential
	d.agent = parley.Agent{
		Name: "scripted", URL: a.URL, Timeout: timeout, ProtocolConfig: a.Config,
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
