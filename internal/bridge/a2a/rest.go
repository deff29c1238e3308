package a2a

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/parley-project/parley/internal/bridge"
)

// restBinding is HTTP+JSON of A2A 1.0 (§11). Bodies are the JSON of the 1.0
// dialect as it stands.
type restBinding struct{ x *bridge.Exchange }

var _ binding = (*restBinding)(nil)

// encode implements [binding]: messages travel in the body, everything else in
// path and query.
func (*restBinding) encode(op operation) ([]byte, error) {
	if op.to.Version != V10 {
		return nil, bridge.Defectf("no_method", "A2A %s is not spoken over HTTP+JSON here; set protocol_config.binding to \"JSONRPC\"", op.to.Version)
	}
	switch {
	case op.verb.sends():
		return op.params, nil
	case op.verb == verbCancel:
		return []byte("{}"), nil
	}
	return nil, nil
}

// carry implements [binding].
func (r *restBinding) carry(ctx context.Context, op operation, body []byte) (bridge.Reply, error) {
	return r.x.Do(ctx, op.task, op.agent, restRequest(op, body, "application/a2a+json, application/json"))
}

// stream implements [binding].
func (r *restBinding) stream(ctx context.Context, op operation, body []byte) (eventSource, bridge.Reply, error) {
	stream, reply, err := r.x.Stream(ctx, op.task, op.agent, restRequest(op, body, acceptStream))
	if stream == nil {
		return nil, reply, err
	}
	return newEvents(stream, r.x.Limits().MaxResponse), reply, nil
}

// restRequest places an operation on the paths of §11.3.
func restRequest(op operation, body []byte, accept string) bridge.Request {
	r := bridge.Request{Method: http.MethodPost, Header: versionHeader(V10, http.Header{"Accept": {accept}}), Body: body}
	id, query := restMembers(op)
	task := "/tasks/" + url.PathEscape(id)
	path := ""
	switch op.verb {
	case verbSend:
		path = "/message:send"
	case verbStream:
		path = "/message:stream"
	case verbGet:
		r.Method, path = http.MethodGet, task
	case verbList:
		r.Method, path = http.MethodGet, "/tasks"
	case verbCancel:
		path = task + ":cancel"
	case verbSubscribe:
		r.Method, path = http.MethodGet, task+":subscribe"
	}
	if op.to.Tenant != "" {
		path = "/" + url.PathEscape(op.to.Tenant) + path
	}
	base, own, _ := strings.Cut(op.to.URL, "?")
	r.URL = strings.TrimRight(base, "/") + path
	if own != "" && query != "" {
		own += "&"
	}
	if own += query; own != "" {
		r.URL += "?" + own
	}
	return r
}

// restMembers gives the id among the params of a request without a body, and
// the others as a query.
func restMembers(op operation) (id, query string) {
	if op.verb.sends() {
		return "", ""
	}
	values := url.Values{}
	for name, value := range bridge.Members(op.params) {
		if string(name) == "id" {
			id, _ = bridge.Text(value)
			continue
		}
		values.Set(string(name), anyText(value))
	}
	return id, values.Encode()
}

// open implements [binding]. An error is a google.rpc.Status in JSON (§11.6), or
// a problem of RFC 9457 as 1.0.0 drafts had it.
func (*restBinding) open(op operation, body []byte) ([]byte, *failure, error) {
	body, err := bridge.CheckJSON("Response", body)
	if err != nil {
		return nil, nil, err
	}
	if body[0] != '{' {
		return nil, nil, bridge.Defectf("not_object", "Response is not a JSON object")
	}
	var status, title, detail, kind, state []byte
	for name, value := range bridge.Members(body) {
		switch string(name) {
		case "error":
			status = value
		case "title":
			title = value
		case "detail":
			detail = value
		case "type":
			kind = value
		case "status":
			state = value
		}
	}
	switch {
	case len(status) > 0 && status[0] == '{':
		return nil, restError(op, status), nil
	case title != nil && kind != nil && (state == nil || state[0] != '{'):
		f := &failure{message: anyText(title), data: body}
		if detail != nil {
			f.message += ": " + anyText(detail)
		}
		n, _ := strconv.Atoi(string(state))
		f.code, f.hasCode = restCode(op.verb, n)
		return nil, f, nil
	}
	return body, nil, nil
}

// restError reads a google.rpc.Status.
func restError(op operation, raw []byte) *failure {
	f := &failure{}
	n := 0
	for name, value := range bridge.Members(raw) {
		switch string(name) {
		case "code":
			n, _ = strconv.Atoi(string(value))
		case "message":
			f.message = anyText(value)
		case "details":
			f.data = value
		}
	}
	f.code, f.hasCode = restCode(op.verb, n)
	if code, ok := codeOfDetails(f.data); ok {
		f.code, f.hasCode, f.named = code, true, true
	}
	return f
}

// codeOfDetails gives the code that a google.rpc.ErrorInfo of A2A names. There
// may be others, of other domains or the agent's own.
func codeOfDetails(details []byte) (int64, bool) {
	for d := range bridge.Elements(details) {
		var reason, domain []byte
		for name, value := range bridge.Members(d) {
			switch string(name) {
			case "reason":
				reason = value
			case "domain":
				domain = value
			}
		}
		text, _ := bridge.Text(reason)
		if code, ok := codeOfReason(text); ok && (domain == nil || string(domain) == `"`+a2aDomain+`"`) {
			return code, true
		}
	}
	return 0, false
}

// restCode gives the code that an HTTP status stands for where nothing says
// it better (A2A 1.0.1 and 1.0.0, §5.4).
func restCode(vb verb, status int) (int64, bool) {
	switch status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return codeInvalidParams, true
	case http.StatusUnauthorized:
		return codeUnauthenticated, true
	case http.StatusForbidden:
		return codeUnauthorized, true
	case http.StatusNotFound:
		if vb.sends() || vb == verbList {
			return codeMethodNotFound, true
		}
		return codeTaskNotFound, true
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return codeUnsupported, true
	case http.StatusConflict:
		if vb == verbCancel {
			return codeNotCancelable, true
		}
	case http.StatusUnsupportedMediaType:
		return codeContentType, true
	case http.StatusInternalServerError:
		return codeInternal, true
	}
	return 0, false
}
