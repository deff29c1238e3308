package adaptertest

import (
	"encoding/json"
	"strconv"
)

// Status is what HTTP+JSON and gRPC say instead of the code of a JSON-RPC error
// (A2A 1.0.1 §5.4, §10.6, §11.6).
type Status struct {
	// HTTP is the status of the response, Name the one of gRPC.
	HTTP    int
	Name    string
	Message string
	// Details holds objects with @type; that of A2A is the last.
	Details []json.RawMessage
	// Code is the code of JSON-RPC that is to be read out of it: where several
	// have the same status, that of the most general.
	Code int64
}

// Release is one of A2A 1.0, as far as errors go.
type Release string

// The releases that say the same error with different statuses.
const (
	Release100 Release = "1.0.0"
	Release101 Release = "1.0.1"
)

// Status gives what stands for e in a release.
func (e *RPCError) Status(in Release) (Status, error) {
	s, err := e.status()
	if err != nil || in == Release101 {
		return s, err
	}
	switch e.Code {
	case -32002:
		s.HTTP = 409
	case -32003, -32004, -32009:
		s.Name = "UNIMPLEMENTED"
	case -32005:
		s.HTTP = 415
	case -32006:
		s.HTTP = 502
	default:
	}
	return s, nil
}

// status is that of 1.0.1.
func (e *RPCError) status() (Status, error) {
	s := Status{Message: e.Message, Code: e.Code, HTTP: 400, Name: "FAILED_PRECONDITION"}
	reason := ""
	switch e.Code {
	case -32700, -32600, -32602:
		s.Name, s.Code = "INVALID_ARGUMENT", -32602
	case -32601:
		s.HTTP, s.Name = 404, "UNIMPLEMENTED"
	case -32603:
		s.HTTP, s.Name = 500, "INTERNAL"
	case -32001:
		s.HTTP, s.Name, reason = 404, "NOT_FOUND", "TASK_NOT_FOUND"
	case -32002:
		reason = "TASK_NOT_CANCELABLE"
	case -32003:
		reason = "PUSH_NOTIFICATION_NOT_SUPPORTED"
	case -32004:
		reason = "UNSUPPORTED_OPERATION"
	case -32005:
		s.Name, reason = "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED"
	case -32006:
		s.HTTP, s.Name, reason = 500, "INTERNAL", "INVALID_AGENT_RESPONSE"
	case -32007:
		reason = "EXTENDED_AGENT_CARD_NOT_CONFIGURED"
	case -32008:
		reason = "EXTENSION_SUPPORT_REQUIRED"
	case -32009:
		reason = "VERSION_NOT_SUPPORTED"
	case -31401:
		s.HTTP, s.Name = 401, "UNAUTHENTICATED"
	case -31403:
		s.HTTP, s.Name = 403, "PERMISSION_DENIED"
	default:
		return s, &UnsayableError{Rule: "A2A has no status and no ErrorInfo for an agent's own code", Detail: strconv.FormatInt(e.Code, 10)}
	}
	s.Details = e.details()
	if reason != "" {
		s.Details = append(s.Details, json.RawMessage(`{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"`+reason+`","domain":"a2a-protocol.org"}`))
	}
	return s, nil
}

// details gives the data of e as google.rpc.Status has them: objects that say
// their type stay as they are, everything else becomes one google.protobuf.Value.
func (e *RPCError) details() []json.RawMessage {
	var typed []json.RawMessage
	if e.Data == nil {
		return nil
	}
	if err := json.Unmarshal(e.Data, &typed); err == nil {
		for _, d := range typed {
			var t struct {
				Type string `json:"@type"`
			}
			if err := json.Unmarshal(d, &t); err != nil || t.Type == "" {
				typed = nil
				break
			}
		}
	}
	if len(typed) > 0 {
		return typed
	}
	return []json.RawMessage{json.RawMessage(`{"@type":"type.googleapis.com/google.protobuf.Value","value":` + string(e.Data) + `}`)}
}
