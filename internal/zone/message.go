package zone

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/parley-project/parley/jsonrpc"
)

// A Codec reads and writes the messages of the contract. It may be used by any
// number of goroutines; keep one, since types are examined once for each.
type Codec struct {
	profile Profile
	json    jsonrpc.Codec
}

// NewCodec returns the Codec of a profile.
func NewCodec(profile Profile) *Codec {
	return &Codec{profile: profile, json: jsonrpc.StrictCodec()}
}

// A Request is a request of the contract that was read: one of Task and Query is
// set, as the method says, and none for get_agent_card.
type Request struct {
	// ID is the id as it came, a string, an integer or null; the zero ID where the
	// response has the id null since the request was none.
	ID     jsonrpc.ID
	Method string
	Task   *Task
	Query  *Query
}

// requestWire is the envelope of a request. Raw members tell what is absent from
// null.
type requestWire struct {
	JSONRPC json.RawMessage `json:"jsonrpc"`
	Method  json.RawMessage `json:"method"`
	Params  json.RawMessage `json:"params,omitempty"`
	ID      json.RawMessage `json:"id"`
}

// DecodeRequest reads the body of one request (ZN-2…ZN-4). With an error the
// Request still has the ID that the response must have; the error is an *Error
// that is ready to be sent.
func (c *Codec) DecodeRequest(body []byte) (Request, *Error) {
	w, fault := c.decodeEnvelope(body)
	if fault != nil {
		return Request{}, fault
	}
	id, fault := requestID(w.ID)
	if fault != nil {
		return Request{}, fault
	}
	var version, method string
	switch {
	case json.Unmarshal(w.JSONRPC, &version) != nil || version != "2.0":
		return Request{}, invalidRequest(`jsonrpc must be "2.0"`)
	case json.Unmarshal(w.Method, &method) != nil || string(w.Method) == "null":
		return Request{}, invalidRequest("method must be a string")
	case w.Params != nil && w.Params[0] != '{' && w.Params[0] != '[' && string(w.Params) != "null":
		return Request{}, invalidRequest("params must be an object")
	}
	req := Request{ID: id, Method: method}
	return req, c.decodeParamsOf(&req, w.Params)
}

// decodeParamsOf reads the params that the method of a request has.
func (c *Codec) decodeParamsOf(req *Request, params json.RawMessage) *Error {
	switch req.Method {
	case MethodExecuteTask:
		t, fault := c.decodeTask(params)
		req.Task = &t
		return fault
	case MethodGetResult:
		q := Query{}
		fault := c.decodeParams(params, &q)
		if fault == nil && q.TaskID == "" {
			fault = &Error{
				Code: jsonrpc.CodeInvalidParams, Reason: ReasonInvalidParams, CorrelationID: q.CorrelationID, Missing: []string{"task_id"},
				Message: "missing params: task_id",
			}
		}
		req.Query = &q
		return fault
	case MethodGetAgentCard:
		return nil
	}
	return &Error{
		Code: jsonrpc.CodeMethodNotFound, Reason: ReasonUnknownMethod,
		Message: "unknown method; this route has " + MethodExecuteTask + ", " + MethodGetResult + " and " + MethodGetAgentCard,
	}
}

// decodeEnvelope checks the grammar of a message, then its members.
func (c *Codec) decodeEnvelope(body []byte) (requestWire, *Error) {
	if len(body) > MaxPayload {
		return requestWire{}, &Error{Code: jsonrpc.CodeInvalidRequest, Reason: ReasonTooLarge, Message: "the request is larger than 100000000 bytes"}
	}
	_, err := c.json.Append(nil, json.RawMessage(body))
	if _, deep := errors.AsType[*jsonrpc.ResourceError](err); deep || err == nil && tooDeep(body) {
		return requestWire{}, invalidRequest(fmt.Sprintf("it is nested more than %d levels deep", MaxDepth))
	}
	if err != nil {
		return requestWire{}, NewError(ReasonParseError)
	}
	switch bytes.TrimLeft(body, " \t\r\n")[0] {
	case '{':
	case '[':
		return requestWire{}, invalidRequest("this route takes no batch: send one request")
	default:
		return requestWire{}, invalidRequest("a request is an object")
	}
	var w requestWire
	if err := c.json.Decode(body, &w); err != nil {
		return requestWire{}, invalidRequest(decodeText(err))
	}
	return w, nil
}

// tooDeep says whether the values of a JSON text are nested deeper than MaxDepth.
func tooDeep(text []byte) bool { return deeper(text, MaxDepth) }

func deeper(text []byte, most int) bool {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			if depth++; depth > most {
				return true
			}
		case '}', ']':
			depth--
		}
	}
	return false
}

func requestID(raw json.RawMessage) (jsonrpc.ID, *Error) {
	if raw == nil {
		return jsonrpc.ID{}, invalidRequest("id is missing: this route takes no notifications")
	}
	id, err := jsonrpc.ParseID(raw)
	if err != nil || strings.ContainsAny(id.String()[:1], "-0123456789") && strings.ContainsAny(id.String(), ".eE") {
		return jsonrpc.ID{}, invalidRequest("id must be a string, an integer or null")
	}
	return id, nil
}

func invalidRequest(why string) *Error {
	return &Error{Code: jsonrpc.CodeInvalidRequest, Reason: ReasonInvalidRequest, Message: "Invalid Request: " + why}
}

// decodeParams reads params into v. Absent params leave it as it is.
func (c *Codec) decodeParams(params json.RawMessage, v any) *Error {
	if params == nil || string(params) == "null" {
		return nil
	}
	fault := &Error{Code: jsonrpc.CodeInvalidParams, Reason: ReasonInvalidParams}
	if params[0] != '{' {
		fault.Message = "params must be an object"
		return fault
	}
	if err := c.json.Decode(params, v); err != nil {
		var d *jsonrpc.DecodeError
		if errors.As(err, &d) && len(d.Member) <= maxName {
			fault.Field = CleanText(d.Member)
		}
		fault.Message = "invalid params: " + decodeText(err)
		return fault
	}
	return nil
}

// maxName is how long the name of a member may be to be told to who sent it.
const maxName = 100

// decodeText says what does not fit. It names members and types, never values.
func decodeText(err error) string {
	var d *jsonrpc.DecodeError
	if errors.As(err, &d) && d.Expected != "" {
		if d.Member == "" || len(d.Member) > maxName {
			return "must be " + d.Expected
		}
		return CleanText(d.Member) + " must be " + d.Expected
	}
	return "members that are known must be there once, in their exact spelling, with a value of their type"
}

// EncodeRequest gives the body of execute_task (ZN-2, ZN-3). id is a UUID that
// this zone has made for the task.
func (c *Codec) EncodeRequest(id string, t Task) ([]byte, error) {
	params, err := t.encode(c.profile)
	if err != nil {
		return nil, err
	}
	return c.encodeCall(id, MethodExecuteTask, params)
}

// EncodeQuery gives the body of get_async_task_result.
func (c *Codec) EncodeQuery(id string, q Query) ([]byte, error) {
	params, err := marshal(q)
	if err != nil {
		return nil, err
	}
	return c.encodeCall(id, MethodGetResult, params)
}

func (c *Codec) encodeCall(id, method string, params json.RawMessage) ([]byte, error) {
	return c.json.Append(nil, struct {
		JSONRPC string          `json:"jsonrpc"`
		Method  string          `json:"method"`
		Params  json.RawMessage `json:"params,omitempty"`
		ID      string          `json:"id"`
	}{"2.0", method, params, id})
}

// responseWire is a response as it is sent.
type responseWire struct {
	JSONRPC string     `json:"jsonrpc"`
	Result  any        `json:"result,omitempty"`
	Error   *errorWire `json:"error,omitempty"`
	ID      jsonrpc.ID `json:"id"`
}

// EncodeResult gives the response with a result, which must not be nil.
func (c *Codec) EncodeResult(id jsonrpc.ID, result any) ([]byte, error) {
	return c.json.Append(nil, responseWire{JSONRPC: "2.0", Result: result, ID: id})
}

// EncodeError gives the response with an error. Parse errors and invalid requests
// have the id null, whatever id is (ZN-4).
func (c *Codec) EncodeError(id jsonrpc.ID, fault *Error) []byte {
	if fault.Code == jsonrpc.CodeParseError || fault.Code == jsonrpc.CodeInvalidRequest {
		id = jsonrpc.NullID()
	}
	w := fault.wire()
	out, err := c.json.Append(nil, responseWire{JSONRPC: "2.0", Error: &w, ID: id})
	if err != nil { // a message that is not UTF-8
		return c.EncodeError(id, &Error{Code: jsonrpc.CodeInternalError, Reason: ReasonInternal, Message: "Internal error", CorrelationID: fault.CorrelationID})
	}
	return out
}
