package a2a

import (
	"context"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// Request gives the JSON-RPC request that sends task to agent, as Call does
// (AD-1): pure, as long as the agent's record says how it is called or nothing
// is to be found out about it. The error says why there is none.
func (a *Adapter) Request(task parley.Task, agent parley.Agent) ([]byte, error) {
	e, err := a.meet(context.Background(), task, agent)
	if err != nil {
		return nil, err
	}
	ex := a.sending(e, verbSend, letter{id: task.MessageID(), rpcID: task.ID, contextID: task.ContextID})
	if ex.params, err = ex.write(); err != nil {
		return nil, err
	}
	return a.binding(ex.to.Endpoint).encode(ex.operation())
}

// Response gives what the JSON-RPC answer body, of a 2xx status, to the send of
// the task taskID means in the dialect v (AD-1). It is pure; the error is a
// [*bridge.DefectError]: the answer cannot be used.
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
