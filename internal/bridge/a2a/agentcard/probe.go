package agentcard

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// probed is what asking an agent for a task that cannot exist gave.
type probed struct {
	// rpc says that it answers in JSON-RPC; version is the dialect then.
	rpc     bool
	version string
	lines   []string
}

func (p *probed) say(format string, args ...any) {
	p.lines = append(p.lines, fmt.Sprintf(format, args...))
}

// answer is what came back to one question.
type answer struct {
	status int
	rpc    bool
	// code is the JSON-RPC error's; hasResult says that there is a result.
	code      int
	hasResult bool
	message   string
	kind      string // of another body: "object", "json", "html", "text", "none"
	simple    bool   // it has the form of Simple A2A
	scheme    string // of WWW-Authenticate
}

// The codes that say whether a method is known (A2A specification 1.0 §5.4).
const (
	codeUnknownMethod = -32601
	codeWrongVersion  = -32009
	firstOfA2A        = -32008
	lastOfA2A         = -32001
)

// knows says that the agent knows the method: it answered about the task.
func (a answer) knows() bool {
	return a.rpc && (a.hasResult || a.code >= firstOfA2A && a.code <= lastOfA2A)
}

// lacks says that the agent does not know the method, or the dialect.
func (a answer) lacks() bool {
	return a.rpc && !a.hasResult && (a.code == codeUnknownMethod || a.code == codeWrongVersion)
}

// probe asks the agent at address what it speaks. The question in 0.3 comes
// first: an agent that knows it is asked no more, since there are some that do
// whatever they are sent under any other method. The error is a [*parley.Error]:
// agent_unavailable without an answer, agent_rejected if nothing at that address
// answers like an agent, or wants other credentials.
func (d *Detector) probe(ctx context.Context, agent parley.Agent, address string) (probed, error) {
	var p probed
	old, err := d.askForTask(ctx, agent, address, V03)
	if err != nil {
		return p, err
	}
	if !old.rpc {
		return p, p.other(agent, old)
	}
	p.rpc, p.version = true, V03
	if old.knows() {
		p.say("%s answers tasks/get in JSON-RPC: A2A 0.3", address)
		if old.hasResult {
			p.say("the answer to a question about a task that does not exist was a result: the agent seems not to look at the method")
		}
		return p, nil
	}
	modern, err := d.askForTask(ctx, agent, address, V10)
	if err != nil {
		return p, err
	}
	switch {
	case modern.knows(), modern.rpc && !modern.lacks() && old.lacks():
		p.version = V10
		p.say("%s answers GetTask in JSON-RPC (%s): A2A 1.0", address, modern.short())
	case old.lacks() && modern.lacks():
		p.say("%s answers in JSON-RPC, and knows neither tasks/get nor GetTask: A2A 0.3 with message/send, as old agents have it", address)
	default:
		p.say("%s answers in JSON-RPC, but does not show its dialect (%s, %s): A2A 0.3 is taken", address, old.short(), modern.short())
	}
	return p, nil
}

func (a answer) short() string {
	switch {
	case a.hasResult:
		return "a result"
	case a.rpc:
		return "error " + strconv.Itoa(a.code)
	}
	return "HTTP " + strconv.Itoa(a.status)
}

// other judges an answer that is not JSON-RPC: Simple A2A refuses a request
// without task_id and input, or answers it in its own form.
func (p *probed) other(agent parley.Agent, a answer) error {
	refuse := func(format string, args ...any) error {
		e := parley.Errorf(parley.CodeAgentRejected, format, args...)
		e.Agent = agent.Name
		return e
	}
	switch {
	case a.status == http.StatusUnauthorized || a.status == http.StatusForbidden:
		return refuse("the agent answered HTTP %d%s: it wants other credentials, and without them nobody can tell what it speaks; give them, or name its protocol",
			a.status, schemeText(a.scheme))
	case a.status == http.StatusTooManyRequests || a.status >= 502 && a.status <= 504:
		e := parley.Errorf(parley.CodeAgentUnavailable, "the agent answered HTTP %d: try again later", a.status)
		e.Agent, e.Retryable = agent.Name, true
		return e
	case a.simple && a.status < 300:
		p.say("the answer to a JSON-RPC request without task_id and input has the form of Simple A2A: the agent seems not to check what it is sent")
	case a.simple, a.status == http.StatusBadRequest, a.status == http.StatusUnprocessableEntity, a.status == http.StatusInternalServerError:
		p.say("a JSON-RPC request was refused (HTTP %d, no JSON-RPC in the answer): Simple A2A", a.status)
	case a.status < 300 && (a.kind == "object" || a.kind == "json"):
		p.say("a JSON-RPC request was answered with JSON that is no JSON-RPC: Simple A2A")
	default:
		return refuse("nothing at this URL answers like an agent: a POST gave HTTP %d with %s; check the URL, or name the protocol", a.status, a.kindText())
	}
	return nil
}

func (a answer) kindText() string {
	switch a.kind {
	case "html":
		return "a web page"
	case "none":
		return "nothing"
	case "object", "json":
		return "JSON"
	}
	return "text"
}

func schemeText(scheme string) string {
	if scheme == "" {
		return ""
	}
	return " (" + scheme + ")"
}

// askForTask sends the question in one dialect.
func (d *Detector) askForTask(ctx context.Context, agent parley.Agent, address, version string) (answer, error) {
	id := "parley-probe-" + d.cfg.NewID()
	method, h := "tasks/get", http.Header{}
	if version == V10 {
		method = "GetTask"
		h["A2A-Version"] = []string{V10}
	}
	body := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%q,"method":%q,"params":{"id":%q}}`, id, method, id)
	reply, err := d.cfg.Exchange.Ask(ctx, agent, bridge.Inquiry{Method: http.MethodPost, URL: address, Header: h, Body: body})
	if err != nil {
		return answer{}, err
	}
	return readProbe(reply), nil
}

// readProbe takes an answer apart. It looks at the body, whatever its label and
// status say.
func readProbe(reply bridge.Reply) answer {
	a := answer{status: reply.Status, kind: "text", scheme: authScheme(reply.Header)}
	raw, err := bridge.CheckJSON("the answer", reply.Body)
	if err != nil {
		switch trimmed := strings.TrimSpace(string(reply.Body)); {
		case trimmed == "":
			a.kind = "none"
		case trimmed[0] == '<':
			a.kind = "html"
		}
		return a
	}
	a.kind = "json"
	if raw[0] != '{' {
		return a
	}
	a.kind = "object"
	m := membersOf(raw)
	version, _ := bridge.Text(m["jsonrpc"])
	failure := m["error"]
	isError := len(failure) > 0 && failure[0] == '{'
	_, hasResult := m["result"]
	if version == "2.0" && (isError || hasResult) {
		a.rpc, a.hasResult = true, !isError
		if isError {
			e := membersOf(failure)
			a.code, _ = strconv.Atoi(string(e["code"]))
			a.message = word(e.text("message"))
		}
		return a
	}
	status := m.text("status")
	a.simple = version == "" && (status == "error" || status == "success")
	return a
}

// authScheme gives the name of the scheme that a 401 asks for.
func authScheme(h http.Header) string {
	name, _, _ := strings.Cut(strings.TrimSpace(h.Get("WWW-Authenticate")), " ")
	return word(strings.TrimSuffix(name, ","))
}
