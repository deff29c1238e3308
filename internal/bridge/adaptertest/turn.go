package adaptertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/parley-project/parley/internal/bridge"
)

// Turn is one request of a dialogue and what the agent does about it, without
// the JSON-RPC around it. One of Result, Error, Events and Foreign says what the
// agent does, and Fault what goes wrong with that.
type Turn struct {
	// Method is that of A2A 1.0, Params what goes with it.
	Method string
	Params json.RawMessage
	// Request is the request as it came, over JSON-RPC: head, empty line, body.
	Request string
	// Head is the head of the response: status line and headers; Status its
	// number, 0 if there is no response.
	Head   string
	Status int

	Result json.RawMessage
	Error  *RPCError
	Events []Event
	// Foreign is a body that is nobody's JSON-RPC, and not empty: a page, say.
	Foreign string
	// Fault is one of the constants Fault…, Count what belongs to it.
	Fault string
	Count int
}

// Event is one thing that happens in a stream: a pause, a break (cut, reset,
// hang), a result or an error, or something else that lies in the body of
// server-sent events, which Text holds together with the frame of the others.
type Event struct {
	Pause  time.Duration
	Break  string
	Result json.RawMessage
	Error  *RPCError
	// Lines is over how many lines its data are spread.
	Lines int
	// Text is what is neither: comments, names, ids, ends of events.
	Text string
	// Odd: Text is data that is no JSON, or of an event that does not end.
	Odd bool
}

// RPCError is the error of a JSON-RPC response.
type RPCError struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// UnsayableError is why a dialogue of JSON-RPC has no counterpart in another binding.
type UnsayableError struct {
	// Rule is the same for all dialogues that it keeps out, Detail is about one.
	Rule, Detail string
}

// Error implements error.
func (u *UnsayableError) Error() string {
	if u.Detail == "" {
		return u.Rule
	}
	return u.Rule + ": " + u.Detail
}

// turns joins the requests that an agent got with what the dialogue has it do.
func (d *dialogue) turns(requests []string) ([]Turn, error) {
	all := make([]Turn, 0, len(requests))
	for i, request := range requests {
		t := Turn{Request: request}
		head, body, _ := strings.Cut(request, "\n\n")
		if !strings.Contains(head, "\nA2A-Version: 1.0\n") {
			return nil, &UnsayableError{Rule: Only10}
		}
		var r struct {
			ID     string          `json:"id"`
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		}
		if err := json.Unmarshal([]byte(body), &r); err != nil {
			return nil, &UnsayableError{Rule: "a batch belongs to JSON-RPC"}
		}
		t.Method, t.Params = r.Method, r.Params
		name := numbered("response", i+1)
		fault, count, _ := strings.Cut(strings.TrimSpace(d.section(numbered("fault", i+1))), " ")
		if t.Fault = fault; count != "" {
			t.Count, _ = strconv.Atoi(count) // read before
		}
		if err := t.read(r.ID, d.section(name)); err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// read takes the response to the request of the given id apart.
func (t *Turn) read(id, response string) error {
	if response == "" {
		return nil
	}
	var body string
	t.Head, body, _ = strings.Cut(response, "\n\n")
	t.Head = strings.TrimSuffix(t.Head, "\n")
	fields := strings.Fields(t.Head)
	if len(fields) < 2 {
		return fmt.Errorf("no status line: %q", t.Head)
	}
	t.Status, _ = strconv.Atoi(fields[1])
	switch {
	case t.Fault != "":
		if t.Result, _, _ = unwrap(id, body); t.Result == nil {
			t.Foreign = body
		}
		return nil
	case strings.Contains(t.Head, "text/event-stream"):
		var err error
		t.Events, err = eventsOf(id, body)
		return err
	}
	var err error
	t.Result, t.Error, err = unwrap(id, body)
	if errors.Is(err, errForeign) {
		t.Foreign = body
		return nil
	}
	return err
}

// errForeign says that a body has nothing of JSON-RPC.
var errForeign = errors.New("no JSON-RPC")

// unwrap takes the envelope off a response to the request of the given id.
func unwrap(id, text string) (json.RawMessage, *RPCError, error) {
	body, err := bridge.CheckJSON("Response", []byte(text))
	if err != nil || body[0] != '{' {
		return nil, nil, errForeign
	}
	members := map[string]json.RawMessage{}
	for name, value := range bridge.Members(body) {
		if _, twice := members[string(name)]; twice {
			return nil, nil, &UnsayableError{Rule: "only JSON-RPC has an envelope, and this one is malformed", Detail: string(name) + " twice"}
		}
		members[string(name)] = json.RawMessage(value)
	}
	result, failure := members["result"], members["error"]
	if string(members["jsonrpc"]) != `"2.0"` || string(members["id"]) != strconv.Quote(id) || (result == nil) == (failure == nil) {
		return nil, nil, &UnsayableError{Rule: "only JSON-RPC has an envelope, and this one is malformed", Detail: text}
	}
	if result != nil {
		return result, nil, nil
	}
	e := &RPCError{}
	if err := json.Unmarshal(failure, e); err != nil {
		return nil, nil, &UnsayableError{Rule: "only JSON-RPC has errors of this form", Detail: string(failure)}
	}
	return nil, e, nil
}

// eventsOf takes a streamed body apart. Lines of data that stand together are one
// event.
func eventsOf(id, body string) ([]Event, error) {
	var all []Event
	var data []string
	flush := func(whole bool) error {
		if len(data) == 0 {
			return nil
		}
		e, err := eventOf(id, data, whole)
		data = nil
		all = append(all, e)
		return err
	}
	for text := range strings.Lines(body) {
		if payload, ok := strings.CutPrefix(text, "data:"); ok {
			data = append(data, payload)
			continue
		}
		directive, ok := strings.CutPrefix(text, "~ ")
		if err := flush(!ok); err != nil {
			return nil, err
		}
		if !ok {
			all = append(all, Event{Text: text})
			continue
		}
		word, pause, _ := strings.Cut(strings.TrimSpace(directive), " ")
		e := Event{Break: word}
		if word == "pause" {
			e.Break = ""
			e.Pause, _ = time.ParseDuration(pause) // read before
		}
		all = append(all, e)
	}
	return all, flush(false)
}

// eventOf reads the data of one event.
func eventOf(id string, data []string, whole bool) (Event, error) {
	text := strings.Join(data, "")
	e := Event{Lines: len(data), Odd: !whole}
	var err error
	e.Result, e.Error, err = unwrap(id, text)
	if errors.Is(err, errForeign) {
		return Event{Text: "data:" + strings.Join(data, "data:"), Odd: true}, nil
	}
	return e, err
}
