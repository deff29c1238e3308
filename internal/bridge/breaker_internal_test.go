package bridge

import (
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// TestHealth: what counts for the breaker of an agent, and what says nothing
// about its health.
func TestHealth(t *testing.T) {
	with := func(code parley.Code, retryable bool, d errorDetails) *parley.Error {
		e := parley.Errorf(code, "x").WithDetails(d)
		e.Retryable = retryable
		return e
	}
	status := func(n int) *parley.Error { return with(parley.CodeAgentUnavailable, true, errorDetails{Status: n}) }
	down := with(parley.CodeAgentUnavailable, true, errorDetails{})
	for _, c := range []struct {
		name string
		d    Disposition
		err  *parley.Error
		why  error
		want health
	}{
		{"answer", Answered, nil, nil, healthGood},
		{"task taken", Accepted, nil, nil, healthGood},
		{"answer when cancelled", Answered, nil, errCancelled, healthGood},
		{"no connection", NotSent, down, nil, healthBad},
		{"cut", Lost, down, nil, healthBad},
		{"500", Answered, status(500), nil, healthBad},
		{"501", Answered, status(501), nil, healthBad},
		{"502", Lost, status(502), nil, healthBad},
		{"503", NotSent, status(503), nil, healthBad},
		{"429", NotSent, status(429), nil, healthGood},
		{"404", Answered, with(parley.CodeAgentRejected, false, errorDetails{Status: 404}), nil, healthGood},
		{"its own error", Answered, with(parley.CodeAgentError, true, errorDetails{}), nil, healthGood},
		{"no JSON", Answered, with(parley.CodeAgentError, true, errorDetails{Status: 200}), nil, healthGood},
		{"exchange timeout", Lost, with(parley.CodeTimeout, true, errorDetails{Limit: "exchange"}), nil, healthBad},
		{"attempt_timeout", Lost, with(parley.CodeTimeout, true, errorDetails{Limit: "attempt_timeout"}), limitError{"attempt_timeout", time.Second}, healthBad},
		{"silence", Lost, with(parley.CodeCancelled, false, errorDetails{}), limitError{"silence", time.Second}, healthBad},
		{"the step's timeout", Lost, with(parley.CodeTimeout, false, errorDetails{}), limitError{"timeout", time.Second}, healthUnknown},
		{"cancelled", Lost, with(parley.CodeCancelled, false, errorDetails{}), errCancelled, healthUnknown},
		{"cut by a cancel", Lost, down, errCancelled, healthUnknown},
		{"ended elsewhere", Lost, down, errGone, healthUnknown},
		{"bridge stops", Lost, down, errDrained, healthUnknown},
		{"too large for us", Lost, with(parley.CodeLimit, false, errorDetails{Limit: "max_body"}), nil, healthUnknown},
		{"not allowed by egress", NotSent, with(parley.CodeAgentUnavailable, false, errorDetails{}), nil, healthUnknown},
		{"wants another certificate", NotSent, with(parley.CodeAgentRejected, false, errorDetails{}), nil, healthUnknown},
		{"nothing said", Lost, nil, nil, healthUnknown},
	} {
		out := Outcome{Disposition: c.d, Result: parley.Result{Err: c.err}}
		if got := healthOf(&out, c.why); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
