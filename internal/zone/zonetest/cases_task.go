package zonetest

import (
	"strings"
	"time"

	"github.com/parley-project/parley/internal/zone"
)

// taskCases are tasks over more than one request: repeated ones, and those that are
// accepted and asked for (ZN-5).
func taskCases() []Case {
	const soon = 20 * time.Millisecond
	params := `{"correlation_id":"c-1","channel":"C1","thread_ts":"17.5","text":"later hello"}`
	accepted := func(id, task string) string {
		return result(id, `{"status":"accepted","task_id":"`+task+`","poll_after_ms":2000,"channel":"C1","thread_ts":"17.5","correlation_id":"c-1"}`)
	}
	later := func(id string) string { return call(zone.MethodExecuteTask, id, params) }
	became := func(text string) string { return result(`"q-1"`, text) }
	const running = `{"status":"running","poll_after_ms":2000}`
	const hello = `{"status":"success","response_text":"hello","channel":"C1","thread_ts":"17.5","correlation_id":"c-1"}`
	own := `"` + uuid + `"`
	unknown := fault(`"q-1"`, -32000, "no such task, or it was long ago", `"reason":"unknown_task","correlation_id":"c-2"`)
	return []Case{
		{Name: "repeat", Steps: []Step{
			{Send: task(`{"correlation_id":"c-1","text":"say x"}`), Want: said(`"x"`), Starts: 1},
			{Send: task(`{"correlation_id":"c-1","text":"say x"}`), Want: said(`"x"`), Starts: 1},
			{Send: call(zone.MethodExecuteTask, `"`+strings.ToUpper(uuid)+`"`, `{"text":"say x","correlation_id":"c-1"}`), Want: result(`"`+strings.ToUpper(uuid)+`"`, `{"status":"success","response_text":"x","correlation_id":"c-1"}`), Starts: 1},
			{Send: query(uuid), Want: became(`{"status":"completed","result":{"status":"success","response_text":"x","correlation_id":"c-1"}}`), Starts: 1},
		}},
		{Name: "repeat-with-new-links", Steps: []Step{
			{Send: task(`{"correlation_id":"c-1","text":"say x","attachments":[{"id":"F1","presigned_url":"https://files.example/1"}]}`), Want: said(`"x"`), Starts: 1},
			{Send: task(`{"correlation_id":"c-9","text":"say x","attachments":[{"id":"F1","presigned_url":"https://files.example/2"}]}`), Want: strings.Replace(said(`"x"`), "c-1", "c-9", 1), Starts: 1},
		}},
		{Name: "id-of-another-task", Steps: []Step{
			{Send: task(`{"correlation_id":"c-1","text":"say x"}`), Want: said(`"x"`), Starts: 1},
			{Send: task(`{"correlation_id":"c-1","text":"say y"}`), Want: failed(-32602, "the id of the request belongs to another task", "id_reused"), Starts: 1},
			{Send: task(`{"correlation_id":"c-1","text":"say x","channel":"C1"}`), Want: failed(-32602, "the id of the request belongs to another task", "id_reused"), Starts: 1},
		}},
		{Name: "numbers-are-no-task-ids", SyncLimit: soon, Steps: []Step{
			{Send: later("1"), Want: accepted("1", "$any"), Starts: 1},
			{Send: later("1"), Want: accepted("1", "$any"), Starts: 2},
			{Send: later("null"), Want: accepted("null", "$any"), Starts: 3},
			{Send: later(`"question-1"`), Want: accepted(`"question-1"`, "$any"), Starts: 4},
			{Send: later(`"question-1"`), Want: accepted(`"question-1"`, "$any"), Starts: 5},
			{Send: later(`"` + strings.Replace(uuid, "-", "x", 1) + `"`), Want: accepted(`"`+strings.Replace(uuid, "-", "x", 1)+`"`, "$any"), Starts: 6},
			{Send: later(`"` + strings.Replace(uuid, "6", "g", 1) + `"`), Want: accepted(`"`+strings.Replace(uuid, "6", "g", 1)+`"`, "$any"), Starts: 7},
			{Send: query("1"), Want: unknown},
			{Send: query("question-1"), Want: unknown},
		}},
		{Name: "accepted", SyncLimit: soon, Steps: []Step{
			{Send: later(own), Want: accepted(own, uuid), Starts: 1},
			{Send: query(uuid), Want: became(running)},
			{Send: later(own), Want: accepted(own, uuid), Starts: 1},
			{Send: query(strings.ToUpper(uuid)), Want: became(running)},
			{Do: DoFinish, Send: query(uuid), Want: became(`{"status":"completed","result":` + hello + `}`)},
			{Send: query(uuid), Want: became(`{"status":"completed","result":` + hello + `}`)},
			{Send: later(own), Want: result(own, hello), Starts: 1},
		}},
		{Name: "drained", Steps: []Step{
			{Do: DoDrain, Send: later(own), Want: fault(own, -32000, "being stopped, try again", `"reason":"stopping","correlation_id":"c-1"`)},
			{Send: query(uuid), Want: unknown},
		}},
		{Name: "unknown-task", Steps: []Step{
			{Send: query(otherUUID), Want: unknown},
			{Send: query("x' OR 1=1"), Want: unknown},
			{Send: call(zone.MethodGetResult, `"q-1"`, `{}`), Want: fault(`"q-1"`, -32602, "missing params: task_id", `"reason":"invalid_params","correlation_id":"$any","missing":["task_id"]`)},
			{Send: call(zone.MethodGetResult, `"q-1"`, `{"task_id":5}`), Want: fault(`"q-1"`, -32602, "invalid params: task_id must be a string", `"reason":"invalid_params","correlation_id":"$any","field":"task_id"`)},
		}},
	}
}

// endCases are tasks that have ended without an answer and are asked for, and the
// agent card.
func endCases() []Case {
	became := func(text string) string { return result(`"q-1"`, text) }
	ended := func(text, status, code string) []Step {
		return []Step{
			{Send: task(`{"correlation_id":"c-1","text":"` + text + `"}`)},
			{Send: query(uuid), Want: became(`{"status":"` + status + `","error":` + code + `}`)},
		}
	}
	return []Case{
		{Name: "failed-task", Steps: ended("fail", "failed", `{"code":-32000,"message":"the task failed","data":{"reason":"task_failed","correlation_id":"c-2"}}`)},
		{Name: "cancelled-task", Steps: ended("cancel", "failed", `{"code":-32000,"message":"the task was cancelled","data":{"reason":"cancelled","correlation_id":"c-2"}}`)},
		{Name: "timed-out-task", Steps: ended("time out", "failed", `{"code":-32001,"message":"the task took longer than it may","data":{"reason":"timeout","correlation_id":"c-2"}}`)},
		{Name: "expired-task", Steps: ended("expire", "expired", `{"code":-32000,"message":"no such task, or it was long ago","data":{"reason":"unknown_task","correlation_id":"c-2"}}`)},
		one("card", `{"jsonrpc":"2.0","method":"get_agent_card","id":"k"}`, result(`"k"`, Card)),
		one("card-with-params", call(zone.MethodGetAgentCard, `"k"`, `{"a":1}`), result(`"k"`, Card)),
	}
}
