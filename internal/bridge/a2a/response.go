package a2a

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// envelope is a JSON-RPC response that passed the checks of BR-2: exactly one of
// result and failure is set.
type envelope struct {
	result  []byte
	failure *rpcError
}

// open checks a response to the request id, in the order in which its defects
// are the more telling.
func open(body []byte, id string) (envelope, error) {
	body, err := bridge.CheckJSON("Response", body)
	if err != nil {
		return envelope{}, err
	}
	if body[0] != '{' {
		return envelope{}, bridge.Defectf("not_object", "Response is not a JSON object")
	}
	var version, gotID, result, failure []byte
	for name, value := range bridge.Members(body) {
		var member *[]byte
		switch string(name) {
		case "jsonrpc":
			member = &version
		case "id":
			member = &gotID
		case "result":
			member = &result
		case "error":
			member = &failure
		default:
			continue
		}
		if *member != nil {
			return envelope{}, twice("Response", name)
		}
		*member = value
	}
	if err := checkVersion(version); err != nil {
		return envelope{}, err
	}
	hasResult, hasError := result != nil, present(failure)
	if hasError && !present(result) {
		hasResult = false
	}
	if err := checkID(gotID, id, hasError && !hasResult); err != nil {
		return envelope{}, err
	}
	switch {
	case hasResult && hasError:
		return envelope{}, bridge.Defectf("both_result_and_error", "Response has both 'result' and 'error'")
	case hasError:
		return envelope{failure: readError(failure)}, nil
	case hasResult:
		return envelope{result: result}, nil
	}
	return envelope{}, bridge.Defectf("neither_result_nor_error", "Response missing both 'result' and 'error'")
}

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

// limited bounds what an agent wrote where a word is expected.
func limited(s string) string {
	const limit = 256
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

// rpcError is a JSON-RPC error object.
type rpcError struct {
	code    json.RawMessage // as it stands; nil if absent
	number  int64           // 0 if code is no whole number
	message string
	data    json.RawMessage
}

// The codes that decide something.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
	codeInternal       = -32603
	codeTaskNotFound   = -32001
)

// readError reads an error member, also one of an odd form.
func readError(raw []byte) *rpcError {
	e := &rpcError{}
	if raw[0] != '{' {
		e.message = anyText(raw)
		return e
	}
	for name, value := range bridge.Members(raw) {
		switch string(name) {
		case "code":
			e.code = value
			e.number, _ = strconv.ParseInt(string(value), 10, 64)
		case "message":
			e.message = anyText(value)
		case "data":
			e.data = value
		}
	}
	return e
}

// anyText is a string as it is and any other value as JSON.
func anyText(raw []byte) string {
	if s, ok := bridge.Text(raw); ok {
		return s
	}
	return string(raw)
}

// text is "JSON-RPC Error {code}: {message}" (BR-4.5).
func (e *rpcError) text() string {
	code, message := "(no code)", e.message
	if e.code != nil {
		code = limited(anyText(e.code))
	}
	if message == "" {
		message = "(no message)"
	}
	return "JSON-RPC Error " + code + ": " + message
}

// rejected reports whether the agent refused the request for what it is.
func (e *rpcError) rejected() bool {
	switch e.number {
	case codeParse, codeInvalidRequest, codeMethodNotFound, codeInvalidParams:
		return true
	}
	return false
}

// notFound reports whether the agent says that it knows no such task. One
// server says so with -32603 and a text.
func (e *rpcError) notFound() bool {
	return e.number == codeTaskNotFound || e.number == codeInternal && strings.HasPrefix(e.message, "Task not found")
}

// rpcDetails is what the details of a JSON-RPC error hold.
type rpcDetails struct {
	Code   json.RawMessage `json:"code,omitempty"`
	Data   json.RawMessage `json:"data,omitempty"`
	Status int             `json:"status,omitempty"`
}

// maxDetail bounds an agent's value inside the details of an error, in bytes.
const maxDetail = 16 << 10

// asError makes e our error; status is the HTTP status if it is not 2xx, else 0.
func (e *rpcError) asError(status int) *parley.Error {
	out := parley.Errorf(parley.CodeAgentError, "%s", e.text())
	out.Retryable = true
	if e.rejected() || (status >= 400 && status <= 499) {
		out.Code, out.Retryable = parley.CodeAgentRejected, false
	}
	d := rpcDetails{Status: status}
	if len(e.code) <= maxDetail {
		d.Code = e.code
	}
	if len(e.data) <= maxDetail {
		d.Data = e.data
	}
	return out.WithDetails(d)
}
