package a2a

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-project/parley/internal/bridge"
)

// rpcForm is how JSON-RPC 2.0 wraps operations and answers, whatever carries
// them.
type rpcForm struct{}

// encode makes the request. The members stand in the order of BR-1.
func (rpcForm) encode(op operation) ([]byte, error) {
	method := op.to.Version.method(op.verb)
	if op.method != "" {
		method = op.method
	}
	if method == "" {
		return nil, bridge.Defectf("no_method", "A2A %s has no method to %s over JSON-RPC", op.to.Version, op.verb)
	}
	b := make([]byte, 0, len(op.id)+len(method)+len(op.params)+64)
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = quote(b, op.id)
	b = append(b, `,"method":`...)
	b = quote(b, method)
	b = append(b, `,"params":`...)
	b = append(b, op.params...)
	return append(b, '}'), nil
}

// open checks a response (BR-2.1 to BR-2.3), in the order in which its defects
// are the more telling.
func (rpcForm) open(op operation, body []byte) ([]byte, *failure, error) {
	body, err := bridge.CheckJSON("Response", body)
	if err != nil {
		return nil, nil, err
	}
	if body[0] != '{' {
		return nil, nil, bridge.Defectf("not_object", "Response is not a JSON object")
	}
	var version, id, result, failure []byte
	for name, value := range bridge.Members(body) {
		var member *[]byte
		switch string(name) {
		case "jsonrpc":
			member = &version
		case "id":
			member = &id
		case "result":
			member = &result
		case "error":
			member = &failure
		default:
			continue
		}
		if *member != nil {
			return nil, nil, twice("Response", name)
		}
		*member = value
	}
	if err := checkVersion(version); err != nil {
		return nil, nil, err
	}
	hasResult, hasError := result != nil, present(failure)
	if hasError && !present(result) {
		hasResult = false
	}
	if err := checkID(id, op.id, hasError && !hasResult); err != nil {
		return nil, nil, err
	}
	switch {
	case hasResult && hasError:
		return nil, nil, bridge.Defectf("both_result_and_error", "Response has both 'result' and 'error'")
	case hasError:
		return nil, readError(failure), nil
	case hasResult:
		return result, nil, nil
	}
	return nil, nil, bridge.Defectf("neither_result_nor_error", "Response missing both 'result' and 'error'")
}

// present says whether a member is there and not null.
func present(raw []byte) bool { return raw != nil && string(raw) != "null" }

func twice(what string, name []byte) error {
	return bridge.Defectf("duplicate_member", "%s has '%s' more than once; which one counts is not guessed", what, name)
}

func checkVersion(raw []byte) error {
	version, isText := bridge.Text(raw)
	switch {
	case raw == nil:
		return bridge.Defectf("missing_jsonrpc", "Response missing 'jsonrpc' field")
	case !isText:
		return bridge.Defectf("wrong_version", "Unsupported JSON-RPC version: %.64s (it must be the string \"2.0\")", raw)
	case version != "2.0":
		return bridge.Defectf("wrong_version", "Unsupported JSON-RPC version: %.64s", version)
	}
	return nil
}

// checkID compares the id with the request's. An error may carry null.
func checkID(raw []byte, want string, isError bool) error {
	got, isText := bridge.Text(raw)
	switch {
	case raw == nil:
		return bridge.Defectf("missing_id", "Response missing 'id' field")
	case isText && got == want, isError && string(raw) == "null":
		return nil
	case isText:
		return bridge.Defectf("wrong_id", "Response id mismatch: expected %q, got %q", want, limited(got))
	}
	return bridge.Defectf("wrong_id", "Response id mismatch: expected %q, got %s", want, limited(string(raw)))
}

// readError reads a JSON-RPC error, also one of an odd form.
func readError(raw []byte) *failure {
	f := &failure{}
	if raw[0] != '{' {
		f.message = anyText(raw)
		return f
	}
	for name, value := range bridge.Members(raw) {
		switch string(name) {
		case "code":
			n, err := strconv.ParseInt(string(value), 10, 64)
			if f.code, f.hasCode = n, err == nil; err != nil {
				f.odd = value
			}
		case "message":
			f.message = anyText(value)
		case "data":
			f.data = value
		}
	}
	return f
}

// anyText is a string as it is and any other value as JSON.
func anyText(raw []byte) string {
	if s, ok := bridge.Text(raw); ok {
		return s
	}
	return string(raw)
}

// limited bounds what an agent wrote where a word is expected.
func limited(s string) string { return cut(s, 256) }

// cut gives the first limit bytes of s, and says if there was more.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

// quote appends s as a JSON string; bytes that are not UTF-8 become U+FFFD.
func quote[T string | []byte](b []byte, s T) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}

// rpcHTTP is JSON-RPC over HTTP POST (A2A 1.0 §9, 0.3 §3.2.1), with streams as
// server-sent events.
type rpcHTTP struct {
	rpcForm
	x *bridge.Exchange
}

// carry implements [binding].
func (r *rpcHTTP) carry(ctx context.Context, op operation, body []byte) (bridge.Reply, error) {
	return r.x.Do(ctx, op.task, op.agent, bridge.Request{URL: op.to.URL, Header: versionHeader(op.to.Version, nil), Body: body})
}

// stream implements [binding].
func (r *rpcHTTP) stream(ctx context.Context, op operation, body []byte) (eventSource, bridge.Reply, error) {
	header := versionHeader(op.to.Version, http.Header{"Accept": {acceptStream}})
	stream, reply, err := r.x.Stream(ctx, op.task, op.agent, bridge.Request{URL: op.to.URL, Header: header, Body: body})
	if stream == nil {
		return nil, reply, err
	}
	return newEvents(stream, r.x.Limits().MaxResponse), reply, nil
}

// acceptStream names both forms that a stream request is answered in.
const acceptStream = "text/event-stream, application/json"

// versionHeader adds the header that every 1.0 request has and no 0.3 request
// may have (A2A 1.0 §3.6.1).
func versionHeader(v Version, h http.Header) http.Header {
	if v != V10 {
		return h
	}
	if h == nil {
		h = make(http.Header, 1)
	}
	h["A2A-Version"] = []string{string(V10)}
	return h
}
