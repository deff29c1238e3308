// Package simplea2a speaks Simple A2A, the platform's older format (AD-2): a
// task is POSTed as
//
//	{"task_id": "…", "input": …}
//
// and the agent answers in the same exchange
//
//	{"task_id": "…", "status": "success" | "error", "output": …, "error": null | "…"}
//
// The writer is strict: these two members in this order, the input byte for
// byte. The reader is tolerant where nothing has to be guessed: a byte order
// mark, space around the value, unknown members, an absent or wrong task_id, an
// absent output (null) and an output of any type are taken. A missing status,
// another status, and one of the four names twice are errors.
//
// [Request] and [Response] are pure. [Adapter] may be used concurrently.
package simplea2a

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// Adapter is the [bridge.Adapter] for Simple A2A. Its agents can be neither
// asked about a task nor told to stop one.
type Adapter struct{ wire *bridge.Wire }

// New makes an Adapter that posts through x; log and obs may be nil.
func New(x *bridge.Exchange, log *slog.Logger, obs bridge.TranslationObserver) *Adapter {
	return &Adapter{wire: bridge.NewWire(x, log, obs)}
}

// Protocol is "simple-a2a".
func (a *Adapter) Protocol() string { return parley.ProtocolSimpleA2A }

// Call implements [bridge.Adapter]. The agent answers at once or not at all, so
// progress is never used.
func (a *Adapter) Call(ctx context.Context, task parley.Task, agent parley.Agent, _ bridge.Progress) (bridge.Outcome, error) {
	return a.wire.Call(ctx, task, agent, bridge.Conversation{
		Protocol: parley.ProtocolSimpleA2A,
		Request:  func() ([]byte, error) { return Request(task) },
		Answer: func(body []byte) (bridge.Outcome, []bridge.Warning, error) {
			res, warnings, err := Response(body, task.ID)
			return bridge.Outcome{Disposition: bridge.Answered, Result: res}, warnings, err
		},
	})
}

// CheckConfig implements [bridge.ConfigChecker]: the protocol has no settings,
// so every member is a fault.
func (a *Adapter) CheckConfig(config json.RawMessage) []error {
	if len(config) == 0 {
		return nil
	}
	raw, err := bridge.CheckJSON("protocol_config", config)
	if err != nil || (raw[0] != '{' && string(raw) != "null") {
		return []error{parley.Errorf(parley.CodeInvalid, "protocol_config must be a JSON object")}
	}
	var faults []error
	for name := range bridge.Members(raw) {
		faults = append(faults, parley.Errorf(parley.CodeInvalid, "protocol_config.%s: %s has no settings", name, parley.ProtocolSimpleA2A))
	}
	return faults
}

// Request makes the body for task. It fails if the input is not one JSON value.
func Request(task parley.Task) ([]byte, error) {
	if _, err := bridge.CheckJSON("input", task.Input); err != nil {
		return nil, bridge.Defectf("bad_input", "the task cannot be sent: %v", err)
	}
	b := make([]byte, 0, len(task.ID)+len(task.Input)+32)
	b = append(b, `{"task_id":`...)
	b, err := jsontext.AppendQuote(b, task.ID)
	if err != nil {
		return nil, bridge.Defectf("bad_id", "the task's id is not UTF-8")
	}
	b = append(b, `,"input":`...)
	b = append(b, task.Input...)
	return append(b, '}'), nil
}

// maxErrorText bounds what an agent's error text contributes to ours, in bytes.
const maxErrorText = 4 << 10

// Response reads an agent's answer to the task taskID. The result always names
// taskID; warnings say where the answer was odd. The error is a
// [*bridge.DefectError]: the answer cannot be used.
func Response(body []byte, taskID string) (parley.Result, []bridge.Warning, error) {
	body, err := bridge.CheckJSON("Response", body)
	if err != nil {
		return parley.Result{}, nil, err
	}
	if body[0] != '{' {
		return parley.Result{}, nil, bridge.Defectf("not_object", "Response is not a JSON object")
	}
	r, err := read(body)
	if err != nil {
		return parley.Result{}, nil, err
	}
	status, isText := bridge.Text(r.status)
	switch {
	case r.status == nil && r.jsonrpc:
		return parley.Result{}, nil, bridge.Defectf("missing_status", "Response missing 'status' field; it has 'jsonrpc': is the agent's protocol %s?", parley.ProtocolJSONRPC)
	case r.status == nil:
		return parley.Result{}, nil, bridge.Defectf("missing_status", "Response missing 'status' field")
	case !isText:
		return parley.Result{}, nil, bridge.Defectf("bad_status", "Response status is %.64s, it must be \"success\" or \"error\"", r.status)
	}
	warnings := checkID(r.taskID, taskID)
	res := parley.Result{TaskID: taskID}
	switch status {
	case "success":
		res.Outcome, res.Output = parley.OutcomeOK, json.RawMessage("null")
		if r.output != nil {
			res.Output = slices.Clone(r.output)
		}
		if text := errorText(r.failure); text != "" {
			warnings = append(warnings, bridge.Warning{Kind: "error_with_success", Text: "status is success, and yet error says: " + text})
		}
	case "error":
		res.Outcome, res.Err = parley.OutcomeError, failure(r)
	default:
		return parley.Result{}, nil, bridge.Defectf("bad_status", "Unsupported response status: %.64s (it must be \"success\" or \"error\")", status)
	}
	return res, warnings, nil
}

// response is an answer taken apart; absent members are nil.
type response struct {
	taskID, status, output, failure []byte
	jsonrpc                         bool
}

func read(body []byte) (response, error) {
	var r response
	for name, value := range bridge.Members(body) {
		var member *[]byte
		switch string(name) {
		case "task_id":
			member = &r.taskID
		case "status":
			member = &r.status
		case "output":
			member = &r.output
		case "error":
			member = &r.failure
		case "jsonrpc":
			r.jsonrpc = true
			continue
		default:
			continue
		}
		if *member != nil {
			return r, bridge.Defectf("duplicate_member", "Response has '%s' more than once; which one counts is not guessed", name)
		}
		*member = value
	}
	return r, nil
}

// checkID warns of a task_id that is not ours; it is corrected (AD-2).
func checkID(raw []byte, want string) []bridge.Warning {
	got, ok := bridge.Text(raw)
	switch {
	case raw == nil:
		return []bridge.Warning{{Kind: "missing_task_id", Text: "Response missing 'task_id' field: expected " + want}}
	case !ok:
		return []bridge.Warning{{Kind: "wrong_task_id", Text: "Response task_id mismatch: expected " + want + ", got " + capped(string(raw), 256)}}
	case got != want:
		return []bridge.Warning{{Kind: "wrong_task_id", Text: "Response task_id mismatch: expected " + want + ", got " + capped(got, 256)}}
	}
	return nil
}

// failure makes the error of an answer with status error.
func failure(r response) *parley.Error {
	text := errorText(r.failure)
	if text == "" {
		text = "Agent execution failed" // what an old executor says (formats.md)
	}
	e := parley.Errorf(parley.CodeAgentError, "%s", text)
	e.Retryable = true
	if n := len(r.output); n > 0 && n <= maxErrorText && string(r.output) != "null" {
		e = e.WithDetails(map[string]json.RawMessage{"output": r.output})
	}
	return e
}

// errorText is the text of an error member: a string as it is, anything else
// but null as JSON.
func errorText(raw []byte) string {
	if raw == nil || string(raw) == "null" {
		return ""
	}
	text, ok := bridge.Text(raw)
	if !ok {
		text = string(raw)
	}
	return capped(text, maxErrorText)
}

func capped(s string, limit int) string {
	if len(s) > limit {
		return strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}
