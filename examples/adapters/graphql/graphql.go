// Package graphql shows how to register an adapter of one's own (AD-14): agents
// that serve GraphQL over HTTP and have one mutation for tasks,
//
//	mutation Task($taskId: ID!, $input: JSON) { execute(taskId: $taskId, input: $input) { output } }
//
// whose taskId is an idempotency key: the same id again gives the same output
// and does the work once. Give such an agent outcome_unknown: resend, so that
// Parley sends the same task again when the answer was lost.
//
// An adapter is two translations, which are [Request] and [Response] here, and
// says what answers outside 2xx mean. [bridge.Wire] does the rest: the exchange
// with its limits, the credential, the log lines, the measurements.
package graphql

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"regexp"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// Protocol is the name by which agents choose the adapter.
const Protocol = "graphql"

// Adapter is a [bridge.Adapter] for GraphQL over HTTP. It may be used
// concurrently.
type Adapter struct{ wire *bridge.Wire }

// New makes an Adapter that posts through x; log and obs may be nil.
func New(x *bridge.Exchange, log *slog.Logger, obs bridge.TranslationObserver) bridge.Adapter {
	return &Adapter{wire: bridge.NewWire(x, log, obs)}
}

// Protocol is "graphql".
func (a *Adapter) Protocol() string { return Protocol }

// Call implements [bridge.Adapter]. The agent answers at once or not at all, so
// progress is never used.
func (a *Adapter) Call(ctx context.Context, task parley.Task, agent parley.Agent, _ bridge.Progress) (bridge.Outcome, error) {
	field := mutation(agent.ProtocolConfig)
	return a.wire.Call(ctx, task, agent, bridge.Conversation{
		Protocol: Protocol,
		Request:  func() ([]byte, error) { return Request(task, field) },
		Answer: func(body []byte) (bridge.Outcome, []bridge.Warning, error) {
			result, warnings, err := Response(body, field)
			return bridge.Outcome{Disposition: bridge.Answered, Result: result}, warnings, err
		},
		Refusal: refusal,
	})
}

// CheckConfig implements [bridge.ConfigChecker]: the one setting is the
// mutation's name.
func (a *Adapter) CheckConfig(config json.RawMessage) (faults []error) {
	for name, value := range bridge.Members(config) {
		text, ok := bridge.Text(value)
		switch {
		case string(name) != "mutation":
			faults = append(faults, parley.Errorf(parley.CodeInvalid, "protocol_config.%s: %s has no such setting; it has mutation", name, Protocol))
		case !ok || !isName(text):
			faults = append(faults, parley.Errorf(parley.CodeInvalid, "protocol_config.mutation must be the name of a GraphQL field"))
		}
	}
	return faults
}

// mutation is the field that does a task: protocol_config.mutation, or execute.
func mutation(config json.RawMessage) string {
	var c struct{ Mutation string }
	_ = json.Unmarshal(config, &c) // CheckConfig has seen it, or there is none
	return cmp.Or(c.Mutation, "execute")
}

func isName(s string) bool {
	ok, err := regexp.MatchString(`^[_A-Za-z][_0-9A-Za-z]{0,63}$`, s)
	return ok && err == nil
}

// Request makes the body for task, which is sent to the mutation field. The
// error is a [*bridge.DefectError].
func Request(task parley.Task, field string) ([]byte, error) {
	input, err := bridge.CheckJSON("input", task.Input)
	if err != nil {
		return nil, err
	}
	return json.Marshal(request{
		Query:     "mutation Task($taskId: ID!, $input: JSON) { " + field + "(taskId: $taskId, input: $input) { output } }",
		Variables: variables{TaskID: task.ID, Input: input},
	})
}

type request struct {
	Query     string    `json:"query"`
	Variables variables `json:"variables"`
}

type variables struct {
	TaskID string          `json:"taskId"`
	Input  json.RawMessage `json:"input"` // raw, so that big numbers stay what they are
}

// response is an answer of GraphQL over HTTP.
type response struct {
	Data   map[string]*struct{ Output json.RawMessage }
	Errors []failure
}

type failure struct {
	Message    string
	Extensions struct{ Code string }
}

// Response reads the answer of the mutation field. Data counts, also beside
// errors, which then are a warning; without it the errors make the result. The
// error is a [*bridge.DefectError]: the answer cannot be used.
func Response(body []byte, field string) (result parley.Result, warnings []bridge.Warning, err error) {
	r, err := read(body)
	if err != nil {
		return result, nil, err
	}
	done := r.Data[field]
	switch {
	case done != nil:
		if len(r.Errors) > 0 {
			warnings = []bridge.Warning{{Kind: "error_with_data", Text: "there is data, and yet errors says: " + said(r.Errors)}}
		}
		output := done.Output
		if output == nil {
			output = json.RawMessage("null")
		}
		return parley.Result{Outcome: parley.OutcomeOK, Output: output}, warnings, nil
	case len(r.Errors) > 0:
		return parley.Result{Outcome: parley.OutcomeError, Err: failed(r.Errors)}, nil, nil
	}
	return result, nil, bridge.Defectf("no_data", "Response has neither data.%s nor errors", field)
}

func read(body []byte) (r response, err error) {
	if body, err = bridge.CheckJSON("Response", body); err != nil {
		return r, err
	}
	if json.Unmarshal(body, &r) != nil {
		return r, bridge.Defectf("bad_shape", "Response is no GraphQL response: data or errors have another shape")
	}
	return r, nil
}

// failed makes the errors of an answer ours. That a request is wrong is final;
// whatever else went wrong may go right at the next attempt.
func failed(errs []failure) *parley.Error {
	switch errs[0].Extensions.Code {
	case "BAD_USER_INPUT", "GRAPHQL_PARSE_FAILED", "GRAPHQL_VALIDATION_FAILED", "FORBIDDEN", "UNAUTHENTICATED":
		return parley.Errorf(parley.CodeAgentRejected, "%s", said(errs)).WithDetails(map[string]string{"code": errs[0].Extensions.Code})
	}
	e := parley.Errorf(parley.CodeAgentError, "%s", said(errs))
	e.Retryable = true
	return e
}

// said is what the errors say, for people: at most 4 KiB of an agent's words.
func said(errs []failure) string {
	const limit = 4 << 10
	text := "GraphQL error: " + errs[0].Message
	if code := errs[0].Extensions.Code; code != "" {
		text += " (" + code + ")"
	}
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}

// refusal adds what the agent says to what the status of its answer means.
func refusal(body []byte, e *bridge.ExchangeError) bridge.Outcome {
	out := e.Outcome("")
	if r, err := read(body); err == nil && len(r.Errors) > 0 {
		out.Result.Err.Message += ": " + said(r.Errors)
	}
	return out
}
