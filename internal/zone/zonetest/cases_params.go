package zonetest

import (
	"strings"

	"github.com/parley-project/parley/internal/zone"
)

// paramCases are params of every kind (ZN-2).
func paramCases() []Case {
	wrong := func(message, more string) string {
		return fault(`"`+uuid+`"`, -32602, message, `"reason":"invalid_params","correlation_id":"$any"`+more)
	}
	missing := func(names ...string) string {
		return wrong("missing params: "+strings.Join(names, ", "), `,"missing":["`+strings.Join(names, `","`)+`"]`)
	}
	kind := func(member, expected string) string {
		return wrong("invalid params: "+member+" must be "+expected, `,"field":"`+member+`"`)
	}
	const all = `"channel":"C1","bot_token":"` + Token + `","correlation_id":"c-1","thread_ts":"17.5","team_id":"T1","user_id":"U1",` +
		`"attachments":[{"id":"F1","name":"a.txt","mimetype":"text/plain","size":5,"presigned_url":"https://files.example/a?sig=1"}]`
	echoed := result(`"`+uuid+`"`, `{"status":"success","response_text":"echo","channel":"C1","thread_ts":"17.5","correlation_id":"c-1",`+
		`"attachments":[{"id":"F1","name":"a.txt","mimetype":"text/plain","size":5,"presigned_url":"https://files.example/a?sig=1"}],"team_id":"T1","user_id":"U1"}`)
	return []Case{
		one("params-absent", `{"jsonrpc":"2.0","method":"execute_task","id":"`+uuid+`"}`, missing("text")),
		one("params-null", task("null"), missing("text")),
		one("params-empty", task("{}"), missing("text")),
		one("params-array", task(`["x"]`), wrong("params must be an object", "")),
		one("params-string", task(`"x"`), invalid("params must be an object")),
		one("params-number", task(`5`), invalid("params must be an object")),
		one("params-true", task(`true`), invalid("params must be an object")),
		one("text-null", task(`{"text":null}`), missing("text")),
		one("text-empty", task(`{"text":""}`), missing("text")),
		one("text-blank", task(`{"text":" \t\n\u3000"}`), missing("text")),
		one("text-number", task(`{"text":5}`), kind("text", "a string")),
		one("text-object", task(`{"text":{}}`), kind("text", "a string")),
		one("text-misspelled", task(`{"Text":"x","text":"x"}`), kind("Text", "spelled text")),
		one("channel-number", task(`{"text":"x","channel":5}`), kind("channel", "a string")),
		one("attachments-object", task(`{"text":"x","attachments":{}}`), kind("attachments", "an array")),
		one("attachment-string", task(`{"text":"x","attachments":["F1"]}`), kind("attachments[0]", "an object")),
		one("attachment-size", task(`{"text":"x","attachments":[{"size":"5"}]}`), kind("attachments[0].size", "an integer of at most 64 bits")),
		one("correlation-id-long", task(`{"text":"x","correlation_id":"`+strings.Repeat("c", 257)+`"}`), kind("correlation_id", "a string of at most 256 bytes")),
		one("token-as-a-name", task(`{"`+Token+`":1,"`+Token+`":2}`), invalid("params.[redacted] must be there only once")),
		one("long-name", task(`{"`+strings.Repeat("n", 5000)+`":1,"`+strings.Repeat("n", 5000)+`":2}`), invalid("must be there only once")),
		one("unknown-params", task(`{"text":"say x","correlation_id":"c-1","prompt":{"a":[1]}}`), said(`"x"`)),

		{Name: "relaxed-drops-the-token", Steps: []Step{{Send: task(`{"text":"echo",` + all + `}`), Want: echoed}}},
		{Name: "strict-drops-the-token", Profile: zone.ProfileStrict, Steps: []Step{{Send: task(`{"text":"echo",` + all + `}`), Want: echoed}}},
		{Name: "strict-misses-all", Profile: zone.ProfileStrict, Steps: []Step{{Send: task(`{}`), Want: missing("text", "channel", "bot_token")}}},
		{Name: "strict-misses-the-token", Profile: zone.ProfileStrict, Steps: []Step{{Send: task(`{"text":"x","channel":"C1"}`), Want: missing("bot_token")}}},
		{Name: "strict-misses-the-channel", Profile: zone.ProfileStrict, Steps: []Step{{Send: task(`{"text":"x","bot_token":"` + Token + `"}`), Want: missing("channel")}}},
		{Name: "strict-wants-a-string", Profile: zone.ProfileStrict, Steps: []Step{{Send: task(`{"text":"x","channel":"C1","bot_token":["` + Token + `"]}`), Want: kind("bot_token", "a string")}}},
		{Name: "token-beside-what-is-wrong", Profile: zone.ProfileStrict, Steps: []Step{{Send: task(`{"text":5,"channel":"C1","bot_token":"` + Token + `"}`), Want: kind("text", "a string")}}},
		{Name: "token-in-no-request", Profile: zone.ProfileStrict, Steps: []Step{
			{Send: `{"jsonrpc":"2.0","method":"` + Token + `","id":"` + Token[:8] + `"}`, Want: fault(`"`+Token[:8]+`"`, -32601,
				"unknown method; this route has execute_task, get_async_task_result and get_agent_card", `"reason":"method_not_found","correlation_id":"$any"`)},
		}},
	}
}
