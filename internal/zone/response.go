package zone

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/jsonrpc"
)

// A foreign zone answers what its library makes of it (zones.md §2.1, §4.1, §7):
// nothing here trusts a response. What is no valid one becomes a *TransportError,
// whose text says what is wrong with it and holds nothing of it.

// replyWire is the envelope of a response that was read.
type replyWire struct {
	JSONRPC json.RawMessage `json:"jsonrpc"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
	ID      json.RawMessage `json:"id"`
}

// maxForeignTask bounds the name that another zone gives a task, in bytes: it is stored,
// and sent with every question about the task.
const maxForeignTask = 1024

func badResponse(format string, args ...any) error {
	return &TransportError{Class: ClassBadResponse, Err: fmt.Errorf("bad response: "+format, args...)}
}

// withoutToken removes the token that was sent from a response, wherever a foreign
// zone put it.
func withoutToken(body []byte, token parley.Secret) []byte {
	text, err := json.Marshal(string(token.Reveal()))
	if err != nil || len(text) < minToken+2 || !bytes.Contains(body, text[1:len(text)-1]) {
		return body
	}
	return bytes.ReplaceAll(body, text[1:len(text)-1], []byte("[redacted]"))
}

// minToken is how long a token must be to be looked for in texts: a short one
// might be a word of them.
const minToken = 8

// readResponse takes the result out of the response to the request id. The error
// is an *Error or a *TransportError.
func (c *Codec) readResponse(body []byte, id string) (json.RawMessage, error) {
	w, err := c.readReply(body)
	if err != nil {
		return nil, err
	}
	var version string
	switch {
	case json.Unmarshal(w.JSONRPC, &version) != nil || version != "2.0":
		return nil, badResponse(`it is not marked as JSON-RPC "2.0"`)
	case (w.Result == nil) == (w.Error == nil):
		return nil, badResponse("it must have either a result or an error")
	case w.ID == nil:
		return nil, badResponse("it has no id")
	}
	var own string
	isOwn := json.Unmarshal(w.ID, &own) == nil && own == id && string(w.ID) != "null"
	if w.Error == nil {
		if !isOwn {
			return nil, badResponse("it has the id of another request")
		}
		return w.Result, nil
	}
	fault, err := c.readError(w.Error)
	switch {
	case err != nil:
		return nil, err
	case !isOwn && (string(w.ID) != "null" || !mayLackID(fault)):
		return nil, badResponse("an error with the id of another request")
	}
	return nil, fault
}

// mayLackID says whether an error may come before the id of the request was read.
func mayLackID(fault *Error) bool {
	switch fault.Code {
	case jsonrpc.CodeParseError, jsonrpc.CodeInvalidRequest:
		return true
	}
	return fault.Reason == ReasonUnauthorized || fault.Reason == ReasonOverloaded
}

// readReply checks that a body is one JSON object, and reads its envelope.
func (c *Codec) readReply(body []byte) (replyWire, error) {
	var w replyWire
	trimmed := bytes.TrimLeft(body, " \t\r\n")
	switch {
	case len(trimmed) == 0:
		return w, badResponse("it is empty")
	case trimmed[0] != '{':
		return w, badResponse("it is no JSON object")
	case tooDeep(body):
		return w, badResponse("it is nested more than %d levels deep", MaxDepth)
	}
	if _, err := c.json.Append(nil, json.RawMessage(body)); err != nil {
		var raw json.RawMessage
		if err := json.NewDecoder(bytes.NewReader(body)).Decode(&raw); errors.Is(err, io.ErrUnexpectedEOF) {
			return w, &TransportError{Class: ClassUnknownOutcome, Err: errors.New("bad response: it ends in the middle")}
		}
		return w, badResponse("it is no JSON in UTF-8")
	}
	if err := c.json.Decode(body, &w); err != nil {
		return w, badResponse("%s", decodeText(err))
	}
	return w, nil
}

// readError reads the error of a response.
func (c *Codec) readError(raw json.RawMessage) (*Error, error) {
	var w struct {
		Code    json.RawMessage `json:"code"`
		Message *string         `json:"message"`
		Data    json.RawMessage `json:"data"`
	}
	var code jsonrpc.Code
	switch {
	case raw[0] != '{' || c.json.Decode(raw, &w) != nil:
		return nil, badResponse("its error is no object with code and message")
	case json.Unmarshal(w.Code, &code) != nil || string(w.Code) == "null":
		return nil, badResponse("the code of its error is no integer")
	case w.Message == nil:
		return nil, badResponse("the message of its error is no string")
	}
	return errorFrom(errorWire{Code: code, Message: *w.Message, Data: w.Data}), nil
}

// resultWire is a Result as it is read. Pointers tell what is absent, raw members
// what may be left out when it is malformed.
type resultWire struct {
	Status        *string         `json:"status"`
	ResponseText  *string         `json:"response_text"`
	TaskID        string          `json:"task_id"`
	PollAfterMS   json.RawMessage `json:"poll_after_ms"`
	Channel       string          `json:"channel"`
	ThreadTS      string          `json:"thread_ts"`
	CorrelationID string          `json:"correlation_id"`
	FileArtifact  json.RawMessage `json:"file_artifact"`
	ErrorCode     string          `json:"error_code"`
	ErrorMessage  string          `json:"error_message"`
}

// readResult reads the result of execute_task, of success or accepted. The error
// is an *Error if a foreign zone tells of a failure in a result.
func (c *Codec) readResult(raw json.RawMessage, maxFile int) (Result, error) {
	var w resultWire
	if raw[0] != '{' {
		return Result{}, badResponse("its result is no object")
	}
	if err := c.json.Decode(raw, &w); err != nil {
		return Result{}, badResponse("result: %s", decodeText(err))
	}
	if w.Status == nil {
		return Result{}, badResponse("its result has no status")
	}
	res := Result{
		Status: Status(*w.Status), TaskID: w.TaskID, PollAfterMS: milliseconds(w.PollAfterMS),
		Channel: w.Channel, ThreadTS: w.ThreadTS, CorrelationID: w.CorrelationID, ResponseText: deref(w.ResponseText),
	}
	switch res.Status {
	case StatusError:
		return Result{}, foreignFailure(w.ErrorCode, w.CorrelationID)
	case StatusAccepted:
		if w.TaskID == "" {
			return Result{}, badResponse("it accepts without a task_id")
		}
		if n := len(w.TaskID); n > maxForeignTask {
			return Result{}, badResponse("its task_id has %d bytes, the limit is %d", n, maxForeignTask)
		}
	case StatusSuccess:
		if w.ResponseText == nil && (w.FileArtifact == nil || string(w.FileArtifact) == "null") {
			return Result{}, badResponse("a success without response_text")
		}
	default:
		return Result{}, badResponse("its result has a status that is none of execute_task")
	}
	res.FileArtifact, res.FileRefused = ParseFile(w.FileArtifact, maxFile)
	if err := json.Unmarshal(raw, &res.More); err != nil {
		return Result{}, badResponse("its result is no object")
	}
	for _, name := range resultMembers {
		delete(res.More, name)
	}
	if len(res.More) == 0 {
		res.More = nil
	}
	return res, nil
}

// readAsync reads the result of get_async_task_result.
func (c *Codec) readAsync(raw json.RawMessage, maxFile int) (AsyncResult, error) {
	var w struct {
		Status      string          `json:"status"`
		Result      json.RawMessage `json:"result"`
		Error       json.RawMessage `json:"error"`
		PollAfterMS json.RawMessage `json:"poll_after_ms"`
	}
	if raw[0] != '{' {
		return AsyncResult{}, badResponse("its result is no object")
	}
	if err := c.json.Decode(raw, &w); err != nil {
		return AsyncResult{}, badResponse("result: %s", decodeText(err))
	}
	res := AsyncResult{Status: Status(w.Status), PollAfterMS: milliseconds(w.PollAfterMS)}
	switch res.Status {
	case StatusRunning:
	case StatusCompleted:
		if w.Result == nil {
			return AsyncResult{}, badResponse("a completed task without a result")
		}
		done, err := c.readResult(w.Result, maxFile)
		if fault, ok := errors.AsType[*Error](err); ok {
			return AsyncResult{Status: StatusFailed, Error: fault}, nil
		}
		if err != nil {
			return AsyncResult{}, err
		}
		if done.Status != StatusSuccess {
			return AsyncResult{}, badResponse("a completed task that is not")
		}
		res.Result = &done
	case StatusFailed:
		res.Error = c.readFailure(w.Error, ReasonTaskFailed)
	case StatusExpired:
		res.Error = c.readFailure(w.Error, ReasonUnknownTask)
	default:
		return AsyncResult{}, badResponse("its result has a status that is none of get_async_task_result")
	}
	return res, nil
}

// readFailure reads the error of a task, which a foreign zone may leave out or
// write as it likes.
func (c *Codec) readFailure(raw json.RawMessage, otherwise Reason) *Error {
	if raw != nil {
		if fault, err := c.readError(raw); err == nil {
			return fault
		}
	}
	return NewError(otherwise)
}

// maxPollAfter bounds what another zone may ask for, in milliseconds.
const maxPollAfter = 600_000

func milliseconds(raw json.RawMessage) int64 {
	var n float64
	if json.Unmarshal(raw, &n) != nil {
		return 0
	}
	return int64(min(max(n, 0), maxPollAfter))
}

// foreignFailure is the error for a result that tells of a failure. Its message is
// ours: that of the other zone may hold anything.
func foreignFailure(code, correlation string) *Error {
	reason, ok := foreignReasons[code]
	if !ok {
		reason = ReasonTaskFailed
	}
	e := NewError(reason)
	e.CorrelationID, e.Foreign = CleanText(correlation), plainName(code)
	return e
}

// foreignReasons are the values of error_code in the wild (zones.md §4.1).
var foreignReasons = map[string]Reason{
	"bedrock_timeout":            ReasonTimeout,
	"async_timeout":              ReasonTimeout,
	"bedrock_throttling":         ReasonOverloaded,
	"throttling":                 ReasonOverloaded,
	"access_denied":              ReasonUnauthorized,
	"bedrock_access_denied":      ReasonInternal,
	"invalid_response":           ReasonInternal,
	"internal_error":             ReasonInternal,
	"poll_error":                 ReasonInternal,
	"response_read_error":        ReasonInternal,
	"generic":                    ReasonInternal,
	"tool_failure":               ReasonTaskFailed,
	"async_task_failed":          ReasonTaskFailed,
	"missing_text":               ReasonInvalidParams,
	"file_too_large":             ReasonTooLarge,
	"attachment_download_failed": ReasonAttachment,
	"download_failed":            ReasonAttachment,
	"url_not_available":          ReasonAttachment,
	"unsupported_file_type":      ReasonAttachment,
	"unsupported_image_type":     ReasonAttachment,
	"unsupported_type":           ReasonAttachment,
	"extraction_failed":          ReasonAttachment,
}

// plainName gives a name of another zone if it is one that may be logged, else "".
func plainName(s string) string {
	if len(s) > 64 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") != "" {
		return ""
	}
	return s
}
