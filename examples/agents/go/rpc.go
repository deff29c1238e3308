package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxBody is the largest request, in bytes.
const maxBody = 1 << 20

// The codes of JSON-RPC and A2A.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeUnknownMethod  = -32601
	codeInvalidParams  = -32602
	codeInternal       = -32603
	codeTaskNotFound   = -32001
	codeNotCancelable  = -32002
	codeNoPush         = -32003
	codeUnsupported    = -32004
	codeContentType    = -32005
	codeNoExtendedCard = -32007
	codeVersion        = -32009
)

// reason names an error of A2A, "" is none of A2A's.
func reason(code int) string {
	switch code {
	case codeTaskNotFound:
		return "TASK_NOT_FOUND"
	case codeNotCancelable:
		return "TASK_NOT_CANCELABLE"
	case codeNoPush:
		return "PUSH_NOTIFICATION_NOT_SUPPORTED"
	case codeUnsupported:
		return "UNSUPPORTED_OPERATION"
	case codeContentType:
		return "CONTENT_TYPE_NOT_SUPPORTED"
	case codeNoExtendedCard:
		return "EXTENDED_AGENT_CARD_NOT_CONFIGURED"
	case codeVersion:
		return "VERSION_NOT_SUPPORTED"
	}
	return ""
}

// fault is an error for the client; status is the HTTP status to send it with.
type fault struct {
	code    int
	message string
	status  int
}

func (f *fault) Error() string { return f.message }

func faultf(code int, format string, args ...any) error {
	return &fault{code, fmt.Sprintf(format, args...), 200}
}

// response is what a request is answered with: a body, or a stream of bodies
// (nil ones in times of silence), or, for a notification, neither.
type response struct {
	status int
	body   []byte
	stream iter.Seq[[]byte]
}

type wireResponse struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *wireError      `json:"error,omitempty"`
}

type wireError struct {
	Code    int      `json:"code"`
	Message string   `json:"message"`
	Data    []object `json:"data,omitempty"`
}

func respond(id json.RawMessage, result any) []byte {
	b, err := json.Marshal(wireResponse{JSONRPC: "2.0", ID: id, Result: result})
	if err != nil { // none of our types can do that
		return refuse(id, err).body
	}
	return b
}

func refuse(id json.RawMessage, err error) response {
	f := &fault{codeInternal, "internal error", 200} // of others the client learns nothing
	errors.As(err, &f)
	out := &wireError{Code: f.code, Message: f.message}
	if r := reason(f.code); r != "" { // A2A 1.0 wants typed objects; 0.3 takes anything
		out.Data = []object{{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": r, "domain": "a2a-protocol.org"}}
	}
	b, _ := json.Marshal(wireResponse{JSONRPC: "2.0", ID: id, Error: out}) // no type that could fail
	return response{status: f.status, body: b}
}

// operation does one thing. It gives a result or, if the second is set, the
// results of a stream.
type operation func(*call) (any, iter.Seq[any], error)

// method finds an operation by the name of its method, which is also what says
// the dialect: so one URL serves both.
func method(name string) (do operation, v1, ok bool) {
	switch name {
	case "message/send", "SendMessage":
		do = (*call).send
	case "message/stream", "SendStreamingMessage":
		do = (*call).stream
	case "tasks/get", "GetTask":
		do = (*call).get
	case "tasks/cancel", "CancelTask":
		do = (*call).cancel
	case "tasks/resubscribe", "SubscribeToTask":
		do = (*call).subscribe
	case "ListTasks":
		do = (*call).list
	case "tasks/pushNotificationConfig/set", "CreateTaskPushNotificationConfig",
		"tasks/pushNotificationConfig/get", "GetTaskPushNotificationConfig",
		"tasks/pushNotificationConfig/list", "ListTaskPushNotificationConfigs",
		"tasks/pushNotificationConfig/delete", "DeleteTaskPushNotificationConfig":
		do = (*call).push
	case "agent/getAuthenticatedExtendedCard", "GetExtendedAgentCard":
		do = (*call).extendedCard
	default:
		return nil, false, false
	}
	return do, !strings.Contains(name, "/"), true
}

// call is one request. streams says whether the transport has them.
type call struct {
	ctx context.Context //nolint:containedctx // a call is one request
	dialect
	agent   *Agent
	params  params
	streams bool
}

// handle answers one request; version is its A2A-Version, if it has one.
func handle(c call, body []byte, version string) response {
	var req struct {
		JSONRPC any
		ID      json.RawMessage
		Method  any
		Params  json.RawMessage
	}
	if !utf8.Valid(body) || !json.Valid(body) {
		return refuse(nil, faultf(codeParse, "the body is not JSON in UTF-8"))
	}
	if err := json.Unmarshal(body, &req); err != nil {
		return refuse(nil, faultf(codeInvalidRequest, "a request must be one object (there are no batches here)"))
	}
	id := req.ID
	if !goodID(id) {
		id = nil
	}
	name, isName := req.Method.(string)
	switch {
	case req.JSONRPC != "2.0" || !isName:
		return refuse(id, faultf(codeInvalidRequest, `a request needs "jsonrpc": "2.0" and a method`))
	case req.ID == nil:
		return response{status: 204} // nobody waits for an answer, so nothing is begun
	case id == nil:
		return refuse(nil, faultf(codeInvalidRequest, "id must be a string or a whole number"))
	case !slices.Contains([]string{"", "0.3", "1.0"}, version):
		return refuse(id, faultf(codeVersion, "this agent speaks A2A 0.3 and 1.0"))
	}
	do, v1, ok := method(name)
	if !ok {
		return refuse(id, faultf(codeUnknownMethod, "there is no such method"))
	}
	if req.Params != nil && json.Unmarshal(req.Params, &c.params) != nil || string(req.Params) == "null" {
		return refuse(id, faultf(codeInvalidParams, "params must be an object with members of the right types"))
	}
	c.v1 = v1
	result, stream, err := do(&c)
	switch {
	case err != nil:
		return refuse(id, err)
	case stream == nil:
		return response{status: 200, body: respond(id, result)}
	}
	return response{status: 200, stream: func(yield func([]byte) bool) {
		for r := range stream {
			if r == nil && !yield(nil) || r != nil && !yield(respond(id, r)) {
				return
			}
		}
	}}
}

// goodID: a string or a whole number, which goes back as it came.
func goodID(id json.RawMessage) bool {
	return len(id) > 0 && (id[0] == '"' || !strings.ContainsAny(string(id), ".eE{[tfn"))
}

// accept takes the message of a send or a stream; mu is held.
func (c *call) accept() (*Task, error) {
	config := c.params.Configuration
	if config.PushNotificationConfig != nil || config.TaskPushNotificationConfig != nil {
		_, _, err := c.push()
		return nil, err
	}
	if config.HistoryLength != nil && *config.HistoryLength < 0 {
		return nil, faultf(codeInvalidParams, "historyLength must not be negative")
	}
	m, err := c.readMessage(c.params.Message)
	if err != nil {
		return nil, err
	}
	return c.agent.send(m)
}

func (c *call) send() (any, iter.Seq[any], error) {
	c.agent.mu.Lock()
	t, err := c.accept()
	c.agent.mu.Unlock()
	if err != nil {
		return nil, nil, err
	}
	if c.params.Configuration.waits(c.dialect) {
		c.agent.wait(c.ctx, t)
	}
	c.agent.mu.Lock()
	defer c.agent.mu.Unlock()
	return c.sent(c.task(t, c.params.Configuration.HistoryLength)), nil, nil
}

func (c *call) stream() (any, iter.Seq[any], error) {
	if !c.streams {
		return nil, nil, faultf(codeUnsupported, "there are no streams over stdio")
	}
	c.agent.mu.Lock()
	defer c.agent.mu.Unlock()
	t, err := c.accept()
	if err != nil {
		return nil, nil, err
	}
	return nil, c.events(t, c.params.Configuration.HistoryLength, resting(t.status.state)), nil
}

func (c *call) subscribe() (any, iter.Seq[any], error) {
	if !c.streams {
		return nil, nil, faultf(codeUnsupported, "there are no streams over stdio")
	}
	c.agent.mu.Lock()
	defer c.agent.mu.Unlock()
	t, err := c.agent.get(c.params.ID)
	if err == nil && ended(t.status.state) {
		err = faultf(codeUnsupported, "the task is %s; get it instead", t.status.state)
	}
	if err != nil {
		return nil, nil, err
	}
	return nil, c.events(t, nil, false), nil
}

// events is a stream: t as it is, then what happens to it. mu is held when it
// is made, so that nothing gets lost in between.
func (c *call) events(t *Task, history *int, over bool) iter.Seq[any] {
	first, seen := c.sent(c.task(t, history)), len(t.events)
	return func(yield func(any) bool) {
		if !yield(first) || over {
			return
		}
		for e := range c.agent.follow(c.ctx, t, seen) {
			var out any
			if e.status != nil || e.parts != nil {
				out = c.event(t, e)
			}
			if !yield(out) {
				return
			}
		}
	}
}

func (c *call) get() (any, iter.Seq[any], error) {
	if c.params.HistoryLength != nil && *c.params.HistoryLength < 0 {
		return nil, nil, faultf(codeInvalidParams, "historyLength must not be negative")
	}
	c.agent.mu.Lock()
	defer c.agent.mu.Unlock()
	t, err := c.agent.get(c.params.ID)
	if err != nil {
		return nil, nil, err
	}
	return c.task(t, c.params.HistoryLength), nil, nil
}

func (c *call) cancel() (any, iter.Seq[any], error) {
	c.agent.mu.Lock()
	defer c.agent.mu.Unlock()
	t, err := c.agent.cancel(c.params.ID)
	if err != nil {
		return nil, nil, err
	}
	return c.task(t, nil), nil, nil
}

func (c *call) list() (any, iter.Seq[any], error) {
	p := c.params
	size, start, err := 50, 0, error(nil)
	if p.PageSize != nil {
		size = *p.PageSize
	}
	if p.PageToken != "" {
		start, err = strconv.Atoi(p.PageToken)
	}
	switch {
	case size < 1 || size > 100:
		return nil, nil, faultf(codeInvalidParams, "pageSize must be from 1 to 100")
	case err != nil || start < 0:
		return nil, nil, faultf(codeInvalidParams, "pageToken is none of ours")
	case p.HistoryLength != nil && *p.HistoryLength < 0:
		return nil, nil, faultf(codeInvalidParams, "historyLength must not be negative")
	}
	state := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(p.Status, "TASK_STATE_")), "_", "-")
	if state == "unspecified" {
		state = ""
	}
	c.agent.mu.Lock()
	defer c.agent.mu.Unlock()
	fit := c.agent.newest(p.ContextID, state, p.StatusTimestampAfter)
	start = min(start, len(fit))
	end, token := min(start+size, len(fit)), ""
	if end < len(fit) {
		token = strconv.Itoa(end)
	}
	page := make([]wireTask, 0, end-start)
	for _, t := range fit[start:end] {
		out := c.task(t, p.HistoryLength)
		if !p.IncludeArtifacts {
			out.Artifacts = nil
		}
		page = append(page, out)
	}
	return object{"tasks": page, "nextPageToken": token, "pageSize": size, "totalSize": len(fit)}, nil, nil
}

func (c *call) push() (any, iter.Seq[any], error) {
	return nil, nil, faultf(codeNoPush, "this agent sends no push notifications")
}

func (c *call) extendedCard() (any, iter.Seq[any], error) {
	if c.v1 {
		return nil, nil, faultf(codeUnsupported, "this agent has no extended card")
	}
	return nil, nil, faultf(codeNoExtendedCard, "this agent has no extended card")
}
