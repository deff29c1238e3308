package zonetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/parley-project/parley/internal/zone"
)

// A Case is requests to one Execution Zone, one after another.
type Case struct {
	Name      string
	Profile   zone.Profile // ProfileRelaxed if not set
	SyncLimit time.Duration
	Steps     []Step
}

// A Step is one request and the response that it must have.
type Step struct {
	// Do is done before.
	Do string
	// Send is the body of the request, Want that of the response, in which $any stands
	// for some text; "" is whatever comes.
	Send, Want string
	// Starts is how many tasks were begun until now, if it is not 0.
	Starts int
}

// What a Step may do.
const (
	DoFinish = "finish" // ends the tasks that run
	DoDrain  = "drain"  // the zone is about to stop
)

// Cases returns the table.
func Cases() []Case {
	return slices.Concat(grammarCases(), envelopeCases(), idCases(), paramCases(), resultCases(), taskCases(), endCases())
}

// uuid is the id of most requests, and as such that of a task.
const (
	uuid      = `6f1f9a52-6f0f-4c0e-9b6e-0d1a4f3c2b10`
	otherUUID = `0b6c1c62-2b2f-4d3c-8f68-5d3f2a9f7e11`
)

// one is a case of one request.
func one(name, send, want string) Case {
	return Case{Name: name, Steps: []Step{{Send: send, Want: want}}}
}

// call is a request with the JSON texts of its id and its params.
func call(method, id, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s,"id":%s}`, method, params, id)
}

// task is execute_task with the id uuid.
func task(params string) string { return call(zone.MethodExecuteTask, `"`+uuid+`"`, params) }

// query is get_async_task_result.
func query(taskID string) string {
	return call(zone.MethodGetResult, `"q-1"`, `{"task_id":"`+taskID+`","correlation_id":"c-2"}`)
}

// result is a response with a result.
func result(id, text string) string {
	return `{"jsonrpc":"2.0","result":` + text + `,"id":` + id + `}`
}

// said is the response to task with params of c-1 as the correlation id.
func said(text string) string {
	return result(`"`+uuid+`"`, `{"status":"success","response_text":`+text+`,"correlation_id":"c-1"}`)
}

// fault is a response with an error; more are members of its data.
func fault(id string, code int, message, more string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","error":{"code":%d,"message":%q,"data":{%s}},"id":%s}`, code, message, more, id)
}

// invalid is the response to what is no request.
func invalid(why string) string {
	return fault("null", -32600, "Invalid Request: "+why, `"reason":"invalid_request","correlation_id":"$any"`)
}

// parseError is the response to what is no JSON.
func parseError() string {
	return fault("null", -32700, "Parse error", `"reason":"parse_error","correlation_id":"$any"`)
}

// failed is the response to task when it fails.
func failed(code int, message, reason string) string {
	return fault(`"`+uuid+`"`, code, message, `"reason":"`+reason+`","correlation_id":"c-1"`)
}
