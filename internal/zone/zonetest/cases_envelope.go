package zonetest

import (
	"strings"

	"github.com/parley-project/parley/internal/zone"
)

// good is a request that is one.
const good = `{"jsonrpc":"2.0","method":"execute_task","params":{"text":"say x","correlation_id":"c-1"},"id":"` + uuid + `"}`

// envelopeCases are requests that are none (ZN-3, ZN-4), among them every edge of
// the original Execution Zone (zones.md §4.1), done right.
func envelopeCases() []Case {
	deep := func(n int) string {
		return `{"jsonrpc":"2.0","method":"execute_task","params":{"text":"say x","more":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `},"id":"` + uuid + `"}`
	}
	tooDeep := invalid("it is nested more than 64 levels deep")
	method := func(text string) string {
		return `{"jsonrpc":"2.0","method":` + text + `,"params":{"text":"x"},"id":"` + uuid + `"}`
	}
	cases := []Case{
		one("null", "null", invalid("a request is an object")),
		one("null-behind-spaces", strings.Repeat(" ", 100)+"null", invalid("a request is an object")),
		one("batch-behind-spaces", strings.Repeat(" ", 100)+"[]", invalid("this route takes no batch: send one request")),
		one("string", `"execute_task"`, invalid("a request is an object")),
		one("number", "5", invalid("a request is an object")),
		one("batch", "["+good+"]", invalid("this route takes no batch: send one request")),
		one("empty-batch", "[]", invalid("this route takes no batch: send one request")),
		one("empty-object", "{}", invalid("id is missing: this route takes no notifications")),
		one("notification", strings.Replace(good, `,"id":"`+uuid+`"`, "", 1), invalid("id is missing: this route takes no notifications")),

		one("no-version", strings.Replace(good, `"jsonrpc":"2.0",`, "", 1), invalid(`jsonrpc must be "2.0"`)),
		one("version-1", strings.Replace(good, `"2.0"`, `"1.0"`, 1), invalid(`jsonrpc must be "2.0"`)),
		one("version-number", strings.Replace(good, `"2.0"`, `2.0`, 1), invalid(`jsonrpc must be "2.0"`)),
		one("version-null", strings.Replace(good, `"2.0"`, `null`, 1), invalid(`jsonrpc must be "2.0"`)),
		one("case-of-a-member", strings.Replace(good, `"method"`, `"Method"`, 1), invalid("Method must be spelled method")),
		one("member-twice", strings.Replace(good, `"jsonrpc"`, `"method":"execute_task","jsonrpc"`, 1), invalid("method must be there only once")),
		one("param-twice", strings.Replace(good, `"text"`, `"text":"say y","text"`, 1), invalid("params.text must be there only once")),
		one("unknown-member-twice", strings.Replace(good, `"text"`, `"x":{"y":1,"y":1},"text"`, 1), invalid("params.x.y must be there only once")),
		one("unknown-member", strings.Replace(good, `"jsonrpc"`, `"extra":[1,{}],"jsonrpc"`, 1), said(`"x"`)),
		one("escaped-member", strings.Replace(good, `"method"`, `"m\u0065thod"`, 1), said(`"x"`)),
		one("spaces-around", " \r\n"+strings.ReplaceAll(good, `":`, "\" :\r\n\t")+" \n", said(`"x"`)),

		one("no-method", strings.Replace(good, `"method":"execute_task",`, "", 1), invalid("method must be a string")),
		one("method-number", method("5"), invalid("method must be a string")),
		one("method-null", method("null"), invalid("method must be a string")),
		one("method-object", method("{}"), invalid("method must be a string")),

		one("deep", deep(62), result(`"`+uuid+`"`, `{"status":"success","response_text":"x","correlation_id":"$any"}`)),
		one("too-deep", deep(63), tooDeep),
		one("brackets-in-a-string", strings.Replace(good, "say x", `say \"`+strings.Repeat("[", 100)+`\\`, 1), said(`"\"`+strings.Repeat("[", 100)+`\\"`)),
		one("very-deep", deep(100_000), tooDeep),
		one("brackets-alone", strings.Repeat("[", 100_000), tooDeep),

		one("too-large", task(`{"text":"`+strings.Repeat("x", 1<<20)+`"}`), fault("null", -32600, "Invalid Request: it is larger than 1048576 bytes", `"reason":"too_large","correlation_id":"$any"`)),
	}
	for name, text := range map[string]string{
		"unknown": `"execute_tasks"`, "empty": `""`, "reserved": `"rpc.discover"`, "case": `"Execute_Task"`, "space": `"execute_task "`, "of-a2a": `"tasks/get"`,
	} {
		cases = append(cases, one("method-"+name, method(text), fault(`"`+uuid+`"`, -32601,
			"unknown method; this route has execute_task, get_async_task_result and get_agent_card", `"reason":"method_not_found","correlation_id":"$any"`)))
	}
	return cases
}

// grammarCases are bodies that are no JSON in UTF-8 (ZN-4).
func grammarCases() []Case {
	return []Case{
		one("no-bytes", "", parseError()),
		one("spaces", " \r\n\t ", parseError()),
		one("no-json", "hello", parseError()),
		one("cut", good[:len(good)-1], parseError()),
		one("two-values", good+good, parseError()),
		one("text-behind", good+"x", parseError()),
		one("trailing-comma", `{"jsonrpc":"2.0",}`, parseError()),
		one("not-a-number", `{"jsonrpc":"2.0","method":"execute_task","params":{"text":NaN},"id":1}`, parseError()),
		one("single-quotes", `{'jsonrpc':'2.0'}`, parseError()),
		one("byte-order-mark", "\xef\xbb\xbf"+good, parseError()),
		one("utf-16", "{\x00}\x00", parseError()),
		one("invalid-utf-8", strings.Replace(good, "say x", "say \xff", 1), parseError()),
		one("overlong-utf-8", strings.Replace(good, "say x", "say \xc0\xaf", 1), parseError()),
		one("surrogates-in-utf-8", strings.Replace(good, "say x", "say \xed\xa0\xbd", 1), parseError()),
		one("lone-surrogate", strings.Replace(good, "say x", `say \ud83d`, 1), parseError()),
		one("control-character", strings.Replace(good, "say x", "say \x01", 1), parseError()),
		one("html", "<html><body>502 Bad Gateway</body></html>", parseError()),
	}
}

// idCases are ids of every kind: they come back as they were, to the byte (ZN-3).
func idCases() []Case {
	var cases []Case
	for name, id := range map[string]string{
		"uuid": `"` + uuid + `"`, "upper-case-uuid": `"` + strings.ToUpper(uuid) + `"`, "string": `"a"`, "empty": `""`, "unicode": `"日本"`,
		"escapes": `"\u0061\/\n\ud83d\ude00"`, "zero": `0`, "one": `1`, "negative": `-1`, "large": `9007199254740993`, "huge": `123456789012345678901234567890`,
		"null": `null`, "digits": `"1"`, "nul": `"\u0000"`, "long": `"` + strings.Repeat("x", 10_000) + `"`,
	} {
		cases = append(cases,
			one("id-"+name, call(zone.MethodExecuteTask, id, `{"text":"say x","correlation_id":"c-1"}`), result(id, `{"status":"success","response_text":"x","correlation_id":"c-1"}`)),
			one("id-"+name+"-of-a-failure", call(zone.MethodExecuteTask, id, `{"correlation_id":"c-1"}`), fault(id, -32602, "missing params: text", `"reason":"invalid_params","correlation_id":"c-1","missing":["text"]`)))
	}
	for name, id := range map[string]string{
		"fraction": `1.5`, "integer-as-fraction": `1.0`, "exponent": `1e3`, "true": `true`, "false": `false`, "object": `{"a":1}`, "array": `[1]`,
	} {
		cases = append(cases, one("id-"+name, call(zone.MethodExecuteTask, id, `{"text":"say x"}`), invalid("id must be a string, an integer or null")))
	}
	return cases
}
