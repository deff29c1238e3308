package a2a

import (
	"encoding/json"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// The pure functions of the codec, put together as the adapter does, for tests
// and benchmarks that need no agent.

// Request makes the request that sends task to an agent of the given record.
func Request(task parley.Task, agent parley.Agent) ([]byte, error) {
	a := New(Options{Exchange: bridge.NewExchange(bridge.ExchangeConfig{})})
	return RequestWith(a, task, agent)
}

// RequestWith is Request with an adapter that is made already.
func RequestWith(a *Adapter, task parley.Task, agent parley.Agent) ([]byte, error) {
	e, err := a.meet(nil, task, agent) //nolint:staticcheck // nothing is asked
	if err != nil {
		return nil, err
	}
	ex := a.sending(e, verbSend, letter{id: task.MessageID(), rpcID: task.ID, contextID: task.ContextID})
	if ex.params, err = ex.write(); err != nil {
		return nil, err
	}
	return a.binding(ex.to.Endpoint).encode(ex.operation())
}

// Response reads the answer to a send over JSON-RPC, with a 2xx status.
func Response(v Version, body []byte, taskID string) (bridge.Outcome, []bridge.Warning, error) {
	op := operation{verb: verbSend, to: Endpoint{Binding: BindingJSONRPC, Version: v}, id: taskID}
	result, f, err := rpcForm{}.open(op, body)
	if err != nil {
		return bridge.Outcome{}, nil, err
	}
	if f != nil {
		return failed(taskID, f.asError(op)), nil, nil
	}
	a, err := read(v, result)
	if err != nil {
		return bridge.Outcome{}, nil, err
	}
	return a.outcome(taskID), a.warnings, nil
}

// TextParts makes the parts of an input as the seeds send them.
func TextParts(input json.RawMessage) ([]byte, error) { return Parts(V03, PartsText, input) }
