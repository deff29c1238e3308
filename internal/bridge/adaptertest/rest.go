package adaptertest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/parley-project/parley/internal/bridge"
)

// REST is HTTP+JSON of A2A 1.0 (§11), with the statuses of a release.
func REST(in Release) Binding {
	return Binding{Name: "HTTP+JSON", Label: "HTTP+JSON", Agent: func(turns []Turn) (BindingAgent, error) {
		return restAgent(turns, in)
	}}
}

// restPeer is an agent that is spoken to over HTTP+JSON.
type restPeer struct {
	agent
	want    []string
	said    []Said
	release Release
}

func restAgent(turns []Turn, in Release) (BindingAgent, error) {
	p := &restPeer{release: in}
	for _, t := range turns {
		request, err := t.restRequest()
		if err != nil {
			return nil, err
		}
		p.want = append(p.want, request)
		response, fault, err := p.response(&t)
		if err != nil {
			return nil, err
		}
		s, err := scriptOf(response, fault)
		if err != nil {
			return nil, err
		}
		p.scripts = append(p.scripts, s)
	}
	return p, nil
}

// Want implements [BindingAgent].
func (p *restPeer) Want() []string { return p.want }

// Got implements [BindingAgent].
func (p *restPeer) Got() []string { return p.got() }

// Said implements [BindingAgent].
func (p *restPeer) Said() []Said { return p.said }

// Close implements [BindingAgent].
func (p *restPeer) Close() { p.close() }

// response translates what the agent answers to t.
func (p *restPeer) response(t *Turn) (response, fault string, err error) {
	switch {
	case t.Fault != "":
		response = t.Head + "\n\n" + strings.TrimSuffix(cmp.Or(string(t.Result), t.Foreign), "\n") + "\n"
		count := t.Count
		if head, body, _ := bytes.Cut(wire(response, ""), []byte("\r\n\r\n")); t.Result != nil && count > len(head)+4 {
			count = len(head) + 4 + len(body)/2 // within the body, as it was
		}
		return response, fmt.Sprintf("%s %d", t.Fault, count), nil
	case t.Result != nil:
		if t.Result[0] != '{' {
			return "", "", &UnsayableError{Rule: "a result that is no object is a body that is no object, which has a text of its own", Detail: string(t.Result)}
		}
		return t.Head + "\n\n" + string(t.Result) + "\n", "", nil
	case t.Error != nil:
		body, status, err := p.refusal(t, t.Error)
		if err != nil {
			return "", "", err
		}
		head := t.Head
		if t.Status == http.StatusOK {
			_, headers, _ := strings.Cut(t.Head, "\n")
			head = fmt.Sprintf("HTTP/1.1 %d %s\n%s", status, http.StatusText(status), headers)
		}
		return head + "\n\n" + body + "\n", "", nil
	case t.Events != nil:
		body, err := p.stream(t)
		return t.Head + "\n\n" + body, "", err
	}
	return t.Head + "\n\n" + t.Foreign, "", nil
}

// refusal translates an error, and gives the status that goes with it.
func (p *restPeer) refusal(t *Turn, e *RPCError) (body string, status int, err error) {
	s, err := e.Status(p.release)
	if err != nil {
		return "", 0, err
	}
	status = s.HTTP
	one := strings.HasSuffix(t.Method, "Task")
	switch {
	case t.Status != http.StatusOK && t.Status != status:
		return "", 0, &UnsayableError{Rule: "the status is the code, so that no other one stands beside it", Detail: fmt.Sprintf("%d and %d", t.Status, e.Code)}
	case e.Code == -32601 && one:
		return "", 0, &UnsayableError{Rule: "404 says that there is no such task, and not that there is no such operation", Detail: t.Method}
	}
	body = fmt.Sprintf(`{"error":{"code":%d,"status":%q,"message":%s`, status, s.Name, quoted(s.Message))
	if len(s.Details) > 0 {
		body += `,"details":[` + string(bytes.Join(raw(s.Details), []byte(","))) + `]`
	}
	heard := status
	if t.Events != nil {
		heard = 0
	}
	p.said = append(p.said, Said{From: e, Code: s.Code, Details: s.Details, HTTP: heard})
	return body + "}}", status, nil
}

func raw(all []json.RawMessage) [][]byte {
	out := make([][]byte, len(all))
	for i, one := range all {
		out[i] = one
	}
	return out
}

// quoted is s as JSON.
func quoted(s string) string {
	b, _ := json.Marshal(s) // of a string
	return string(b)
}

// stream translates the body of server-sent events.
func (p *restPeer) stream(t *Turn) (string, error) {
	var b strings.Builder
	for _, e := range t.Events {
		var data string
		switch {
		case e.Break != "":
			b.WriteString("~ " + e.Break + "\n")
			continue
		case e.Pause > 0:
			b.WriteString("~ pause " + e.Pause.String() + "\n")
			continue
		case e.Result != nil:
			data = string(e.Result)
		case e.Error != nil:
			body, _, err := p.refusal(t, e.Error)
			if err != nil {
				return "", err
			}
			data = body
		default:
			b.WriteString(e.Text)
			continue
		}
		// Over as many lines as it was.
		for range e.Lines - 1 {
			first, rest, _ := strings.Cut(data, ",")
			b.WriteString("data: " + first + ",\n")
			data = rest
		}
		b.WriteString("data: " + data + "\n")
	}
	return b.String(), nil
}

// restRequest translates a request, byte for byte (A2A 1.0 §11.3).
func (t *Turn) restRequest() (string, error) {
	var id, tenant string
	var rest []string
	query := url.Values{}
	for name, value := range bridge.Members(t.Params) {
		text, isText := bridge.Text(value)
		if !isText {
			text = string(value)
		}
		switch string(name) {
		case "id":
			id = text
		case "tenant":
			tenant = "/" + url.PathEscape(text)
		default:
			rest = append(rest, strconv.Quote(string(name))+":"+string(value))
			query.Set(string(name), text)
		}
	}
	var path, body string
	method, queried, task := http.MethodGet, query.Encode(), "/tasks/"+url.PathEscape(id)
	switch t.Method {
	case "SendMessage":
		method, path, body = http.MethodPost, "/message:send", "{"+strings.Join(rest, ",")+"}"
	case "SendStreamingMessage":
		method, path, body = http.MethodPost, "/message:stream", "{"+strings.Join(rest, ",")+"}"
	case "GetTask":
		path = task
	case "ListTasks":
		path = "/tasks"
	case "CancelTask":
		method, path, body = http.MethodPost, task+":cancel", "{}"
	case "SubscribeToTask":
		path = task + ":subscribe"
	default:
		return "", fmt.Errorf("no operation of A2A: %q", t.Method)
	}
	if body != "" {
		queried = ""
	}
	head, _, _ := strings.Cut(t.Request, "\n\n")
	var b strings.Builder
	for i, line := range strings.Split(head, "\n") {
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case i == 0:
			base, _, _ := strings.Cut(strings.TrimPrefix(line, "POST "), " ")
			base, own, _ := strings.Cut(base, "?")
			line = method + " " + strings.TrimRight(base, "/") + tenant + path + asQuery(own, queried) + " HTTP/1.1"
		case name == "Accept" && value == "application/json":
			line = "Accept: application/a2a+json, application/json"
		case name == "Content-Length" && body != "":
			line = "Content-Length: " + strconv.Itoa(len(body))
		case name == "Content-Length", name == "Content-Type" && body == "":
			continue
		}
		b.WriteString(line + "\n")
	}
	b.WriteString("\n")
	if body != "" {
		b.WriteString(body + "\n")
	}
	return b.String(), nil
}

// asQuery is the query of the agent's own URL and that of an operation.
func asQuery(own, operation string) string {
	if own != "" && operation != "" {
		own += "&"
	}
	if own += operation; own == "" {
		return ""
	}
	return "?" + own
}
