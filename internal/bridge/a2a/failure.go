package a2a

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// The codes of JSON-RPC and A2A (A2A 1.0 §5.4).
const (
	codeParse               = -32700
	codeInvalidRequest      = -32600
	codeMethodNotFound      = -32601
	codeInvalidParams       = -32602
	codeInternal            = -32603
	codeTaskNotFound        = -32001
	codeNotCancelable       = -32002
	codePushNotSupported    = -32003
	codeUnsupported         = -32004
	codeContentType         = -32005
	codeInvalidResponse     = -32006
	codeNoExtendedCard      = -32007
	codeExtensionRequired   = -32008
	codeVersionNotSupported = -32009
	// Two codes of the Go SDK, outside the ranges.
	codeUnauthenticated = -31401
	codeUnauthorized    = -31403
)

// meaning is what an agent's error says about the request.
type meaning int

const (
	// meansFailed: the agent tried, and did not succeed. It may be tried again.
	meansFailed meaning = iota + 1
	// meansRefused: nothing was executed, and the same request will not be.
	meansRefused
	// meansOtherDialect: nothing was executed; another dialect may help.
	meansOtherDialect
	// meansNoPush, meansNoStream: nothing was executed; the same request
	// without push, or without a stream, may be.
	meansNoPush
	meansNoStream
	// meansUnclear: whether something was executed has to be found out.
	meansUnclear
	// meansUnknownTask: the agent knows no such task, or says so.
	meansUnknownTask
	// meansNotCancelable: the task has ended, or the agent goes on regardless.
	meansNotCancelable
)

// meaning judges f as the answer to vb.
func (f *failure) meaning(vb verb) meaning {
	switch f.code {
	case codeTaskNotFound:
		return meansUnknownTask
	case codeMethodNotFound:
		if vb == verbStream {
			return meansNoStream
		}
		return meansOtherDialect
	case codeVersionNotSupported:
		return meansOtherDialect
	case codePushNotSupported:
		if vb.sends() {
			return meansNoPush
		}
	case codeUnsupported:
		if vb == verbStream {
			return meansNoStream
		}
	case codeNotCancelable:
		return meansNotCancelable
	case codeInternal:
		// One SDK answers every error of A2A with the code of an internal one.
		if strings.HasPrefix(f.message, "Task not found") {
			return meansUnknownTask
		}
		return meansUnclear
	case codeInvalidResponse:
		return meansUnclear
	case codeParse, codeInvalidRequest, codeInvalidParams, codeContentType, codeNoExtendedCard,
		codeExtensionRequired, codeUnauthenticated, codeUnauthorized:
	default:
		return meansFailed
	}
	return meansRefused
}

// tellsNothing says whether f, which may be nil, as the answer to a subscription, is what agents say of a task
// to which there is nothing to hear any more, or just now: it has ended, or it waits
// (A2A 1.0 §3.1.6, and what the SDKs say in its place).
func (f *failure) tellsNothing() bool {
	return f != nil && (f.code == codeUnsupported || f.code == codeInvalidParams || f.meaning(verbSubscribe) == meansUnknownTask)
}

// text is "JSON-RPC Error {code}: {message}" (BR-4.5), or what the binding has
// instead.
func (f *failure) text(over Binding) string {
	form := "JSON-RPC Error "
	switch over {
	case BindingREST:
		form = "HTTP+JSON Error "
	case BindingGRPC:
		form = "gRPC Error "
	case BindingJSONRPC:
	}
	code, message := "(no code)", f.message
	switch {
	case f.hasCode:
		code = strconv.FormatInt(f.code, 10)
	case f.odd != nil:
		code = limited(anyText(f.odd))
	}
	if message == "" {
		message = "(no message)"
	}
	return form + code + ": " + message
}

// failureDetails is what the details of an agent's error hold.
type failureDetails struct {
	Code    json.RawMessage `json:"code,omitempty"`
	Message string          `json:"message,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
	Status  int             `json:"status,omitempty"`
}

const (
	// maxDetail bounds an agent's value inside the details of an error, in bytes.
	maxDetail = 16 << 10
	// maxWords bounds an agent's message there.
	maxWords = 4 << 10
)

// asError makes f our error, with the agent's code, message and data.
func (f *failure) asError(op operation) *parley.Error {
	out := parley.Errorf(parley.CodeAgentError, "%s", f.text(op.to.Binding))
	out.Retryable = true
	switch f.meaning(op.verb) {
	case meansFailed, meansUnclear, meansUnknownTask, meansNotCancelable:
	case meansRefused, meansOtherDialect, meansNoPush, meansNoStream:
		out.Code, out.Retryable = parley.CodeAgentRejected, false
	}
	if f.status >= 400 && f.status <= 499 && f.status != http.StatusTooManyRequests && !f.named {
		out.Code, out.Retryable = parley.CodeAgentRejected, false
	}
	d := failureDetails{Status: f.status, Message: bridge.Redact(op.agent, []byte(f.message), maxWords)}
	switch {
	case f.hasCode:
		d.Code = strconv.AppendInt(nil, f.code, 10)
	case len(f.odd) <= maxDetail:
		d.Code = f.odd
	}
	if len(f.data) <= maxDetail {
		d.Data = f.data
	}
	return out.WithDetails(d)
}

// codeOfReason gives the code that a google.rpc.ErrorInfo of A2A names (A2A 1.0
// §5.4), or false for a reason that is not A2A's.
func codeOfReason(reason string) (int64, bool) {
	switch reason {
	case "TASK_NOT_FOUND":
		return codeTaskNotFound, true
	case "TASK_NOT_CANCELABLE":
		return codeNotCancelable, true
	case "PUSH_NOTIFICATION_NOT_SUPPORTED":
		return codePushNotSupported, true
	case "UNSUPPORTED_OPERATION":
		return codeUnsupported, true
	case "CONTENT_TYPE_NOT_SUPPORTED":
		return codeContentType, true
	case "INVALID_AGENT_RESPONSE":
		return codeInvalidResponse, true
	case "EXTENDED_AGENT_CARD_NOT_CONFIGURED":
		return codeNoExtendedCard, true
	case "EXTENSION_SUPPORT_REQUIRED":
		return codeExtensionRequired, true
	case "VERSION_NOT_SUPPORTED":
		return codeVersionNotSupported, true
	}
	return 0, false
}
