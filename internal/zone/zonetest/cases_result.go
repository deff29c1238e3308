package zonetest

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/parley-project/parley/internal/zone"
)

// give is a task that ends with an output.
func give(output string) string {
	text, err := json.Marshal("give " + output)
	if err != nil {
		panic(err)
	}
	return task(`{"correlation_id":"c-1","text":` + string(text) + `}`)
}

// with is the response to give: members behind the correlation id.
func with(text, members string) string {
	return result(`"`+uuid+`"`, `{"status":"success","response_text":`+text+`,"correlation_id":"c-1"`+members+`}`)
}

// resultCases are outputs of every kind, as results (ZN-5).
func resultCases() []Case {
	say := func(text string) string { return task(`{"correlation_id":"c-1","text":"say ` + text + `"}`) }
	file := func(content string) string {
		return `{"artifactId":"a1","name":"generated_file","parts":[{"kind":"file","contentBase64":"` + content + `","fileName":"a.txt","mimeType":"text/plain"}]}`
	}
	large := base64.StdEncoding.EncodeToString(make([]byte, zone.DefaultMaxFile/20))
	return []Case{
		one("says", say("hello"), said(`"hello"`)),
		one("says-unicode", say("日本 \U0001F600 é\u0301 \u202e"), said("\"日本 \U0001F600 é\u0301 \u202e\"")),
		one("says-escapes", say(`\ud83d\ude00 \u0000 \" \\ \/ <b>&amp;</b>`), said("\"\U0001F600 \\u0000 \\\" \\\\ / <b>&amp;</b>\"")),
		one("says-line-breaks", say(`a\nb\r\nc\u2028d`), said(`"a\nb\r\nc\u2028d"`)),
		one("says-much", say(strings.Repeat("x", 500_000)), said(`"`+strings.Repeat("x", 500_000)+`"`)),

		one("output-empty", give(`""`), said(`""`)),
		one("output-null", give(`null`), said(`""`)),
		one("output-number", give(`9007199254740993`), said(`"9007199254740993"`)),
		one("output-true", give(`true`), said(`"true"`)),
		one("output-array", give(`[1,"a"]`), said(`"[1,\"a\"]"`)),
		one("output-object", give(`{"b":1,"a":[2]}`), said(`"{\"a\":[2],\"b\":1}"`)),
		one("output-response-text", give(`{"response_text":"a","text":"b","response":"c","n":1}`), with(`"a"`, `,"n":1,"response":"c","text":"b"`)),
		one("output-text", give(`{"text":"b","response":"c","sources":[{"url":"https://a.example/?a=1&b=2"}]}`), with(`"b"`, `,"response":"c","sources":[{"url":"https://a.example/?a=1&b=2"}]`)),
		one("output-response", give(`{"response":"c"}`), said(`"c"`)),
		one("output-text-no-string", give(`{"text":5,"response":"c"}`), with(`"c"`, `,"text":5`)),
		one("output-text-null", give(`{"text":null,"response":"c"}`), with(`"c"`, `,"text":null`)),
		one("output-large-number", give(`{"text":"a","n":9007199254740993}`), with(`"a"`, `,"n":9007199254740993`)),
		one("output-token", give(`{"text":"a","bot_token":"`+Token[:8]+`"}`), said(`"a"`)),
		one("output-token-alone", give(`{"a":1,"bot_token":"`+Token[:8]+`"}`), said(`"{\"a\":1}"`)),
		one("output-members-of-ours", give(`{"text":"a","status":"error","task_id":"x","channel":"C9","thread_ts":"1","correlation_id":"y","poll_after_ms":1,"error_code":"z"}`), said(`"a"`)),

		one("file", give(`{"text":"a","file_artifact":`+file("aGVsbG8=")+`}`), with(`"a"`, `,"file_artifact":`+file("aGVsbG8="))),
		one("file-alone", give(`{"file_artifact":`+file("aGVsbG8=")+`}`), with(`""`, `,"file_artifact":`+file("aGVsbG8="))),
		one("file-no-base64", give(`{"text":"a","file_artifact":`+file("*")+`}`), said(`"a"`)),
		one("file-of-two-parts", give(`{"text":"a","file_artifact":{"artifactId":"a1","name":"n","parts":[]}}`), said(`"a"`)),
		one("file-no-object", give(`{"text":"a","file_artifact":"x"}`), said(`"a"`)),
		one("file-null", give(`{"text":"a","file_artifact":null}`), said(`"a"`)),
		one("file-large", give(`{"text":"a","file_artifact":`+file(large)+`}`), with(`"a"`, `,"file_artifact":`+file(large))),

		one("fails", task(`{"correlation_id":"c-1","text":"fail"}`), failed(-32000, "the task failed", "task_failed")),
		one("is-cancelled", task(`{"correlation_id":"c-1","text":"cancel"}`), failed(-32000, "the task was cancelled", "cancelled")),
		one("times-out", task(`{"correlation_id":"c-1","text":"time out"}`), failed(-32001, "the task took longer than it may", "timeout")),
		one("panics", task(`{"correlation_id":"c-1","text":"panic"}`), failed(-32603, "Internal error", "internal")),
		one("panics-late", task(`{"correlation_id":"c-1","text":"panic late"}`), failed(-32603, "Internal error", "internal")),
		one("breaks", task(`{"correlation_id":"c-1","text":"break"}`), failed(-32603, "Internal error", "internal")),
		one("breaks-late", task(`{"correlation_id":"c-1","text":"break late"}`), result(`"`+uuid+`"`, `{"status":"accepted","task_id":"`+uuid+`","poll_after_ms":2000,"correlation_id":"c-1"}`)),
		one("is-refused", task(`{"correlation_id":"c-1","text":"refuse"}`), failed(-32602, "Invalid params", "invalid_params")),
		one("is-stopping", task(`{"correlation_id":"c-1","text":"stop"}`), failed(-32000, "being stopped, try again", "stopping")),
		one("is-overloaded", task(`{"correlation_id":"c-1","text":"overload"}`), fault(`"`+uuid+`"`, -32000, "overloaded, try again later", `"reason":"overloaded","correlation_id":"c-1","retry_after_ms":7000`)),
	}
}
