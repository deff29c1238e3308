package records_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/records"
)

var at = time.Date(2026, 11, 21, 10, 4, 5, 974607000, time.UTC)

func task() records.AgentTask {
	return records.AgentTask{
		RunID: "run-1", TaskID: "task-step-1-0a1b2c3d", AgentName: "ResearchAgent",
		Input: json.RawMessage(`{"text":"hi"}`), CorrelationID: "corr-run-1-step-1-0a1b2c3d", At: at,
	}
}

func result(status, output, failure string) records.AgentResult {
	return records.AgentResult{
		RunID: "run-1", TaskID: "task-1", Status: status, Output: json.RawMessage(output),
		CorrelationID: "corr-1", Error: failure, At: at,
	}
}

// TestEncodeGolden holds the records to the very bytes that the programs of the
// existing platform write.
func TestEncodeGolden(t *testing.T) {
	whole := task()
	whole.At = time.Date(2026, 11, 21, 12, 4, 5, 999, time.FixedZone("", 7200))
	tick := task()
	tick.At = time.Date(2026, 11, 21, 10, 4, 5, 1000, time.UTC)
	odd := task()
	odd.AgentName = "Rech\u00e9rche"
	odd.Input = json.RawMessage("{ \"a\x7f\":\"\u00e9\U0001f600\\u0001\\\"\\\\\\/\\b\\f\\n\\r\\t<>&\u2028\" ,\n\"b\":[1,2.50,{\"c\":{ }},[ ],true,null],\"e\":{}}")
	for _, c := range []struct {
		name   string
		record interface{ Encode() ([]byte, error) }
		want   string
	}{
		{"task", task(), `{"run_id": "run-1", "task_id": "task-step-1-0a1b2c3d", "agent_name": "ResearchAgent", "input_data": {"text": "hi"}, "correlation_id": "corr-run-1-step-1-0a1b2c3d", "timestamp": "2026-11-21T10:04:05.974607"}`},
		{"no microseconds, another zone", whole, `{"run_id": "run-1", "task_id": "task-step-1-0a1b2c3d", "agent_name": "ResearchAgent", "input_data": {"text": "hi"}, "correlation_id": "corr-run-1-step-1-0a1b2c3d", "timestamp": "2026-11-21T10:04:05"}`},
		{"one microsecond", tick, `{"run_id": "run-1", "task_id": "task-step-1-0a1b2c3d", "agent_name": "ResearchAgent", "input_data": {"text": "hi"}, "correlation_id": "corr-run-1-step-1-0a1b2c3d", "timestamp": "2026-11-21T10:04:05.000001"}`},
		{"every escape", odd, `{"run_id": "run-1", "task_id": "task-step-1-0a1b2c3d", "agent_name": "Rech\u00e9rche", "input_data": {"a\u007f": "\u00e9\ud83d\ude00\u0001\"\\/\b\f\n\r\t<>&\u2028", "b": [1, 2.50, {"c": {}}, [], true, null], "e": {}}, "correlation_id": "corr-run-1-step-1-0a1b2c3d", "timestamp": "2026-11-21T10:04:05.974607"}`},
		{"success", result("SUCCESS", `{"text":"ok","n":12345678901234567890.10}`, "not written"), `{"run_id": "run-1", "task_id": "task-1", "status": "SUCCESS", "output_data": {"text": "ok", "n": 12345678901234567890.10}, "correlation_id": "corr-1", "error_message": null, "timestamp": "2026-11-21T10:04:05.974607"}`},
		{"failure", result("FAILURE", `{"not":"written"}`, "Task state: failed"), `{"run_id": "run-1", "task_id": "task-1", "status": "FAILURE", "output_data": null, "correlation_id": "corr-1", "error_message": "Task state: failed", "timestamp": "2026-11-21T10:04:05.974607"}`},
		{"failure without a word", result("FAILURE", "", ""), `{"run_id": "run-1", "task_id": "task-1", "status": "FAILURE", "output_data": null, "correlation_id": "corr-1", "error_message": null, "timestamp": "2026-11-21T10:04:05.974607"}`},
		{"array output", result("SUCCESS", ` [1,"a"] `, ""), `{"run_id": "run-1", "task_id": "task-1", "status": "SUCCESS", "output_data": {"result": [1, "a"]}, "correlation_id": "corr-1", "error_message": null, "timestamp": "2026-11-21T10:04:05.974607"}`},
		{"no output", result("SUCCESS", "", ""), `{"run_id": "run-1", "task_id": "task-1", "status": "SUCCESS", "output_data": {"result": null}, "correlation_id": "corr-1", "error_message": null, "timestamp": "2026-11-21T10:04:05.974607"}`},
		{
			"monitoring",
			records.MonitoringUpdate{RunID: "run-1", StepID: "step-1", StepName: "A", Status: "RUNNING", At: at, Metadata: json.RawMessage(`{"task_id":"t"}`)},
			`{"run_id": "run-1", "step_id": "step-1", "step_name": "A", "status": "RUNNING", "timestamp": "2026-11-21T10:04:05.974607", "metadata": {"task_id": "t"}}`,
		},
		{
			"execution",
			records.ExecutionRequest{RunID: "run-1", Plan: json.RawMessage(`{"steps":{}}`), At: at},
			`{"run_id": "run-1", "workflow_plan": {"steps": {}}, "input_data": {}, "timestamp": "2026-11-21T10:04:05.974607", "message_type": "execution_request"}`,
		},
		{
			"cancellation",
			records.CancellationRequest{RunID: "run-1", Reason: "enough", At: at},
			`{"run_id": "run-1", "cancelled_by": null, "reason": "enough", "timestamp": "2026-11-21T10:04:05.974607", "message_type": "cancellation_request"}`,
		},
	} {
		got, err := c.record.Encode()
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if diff := cmp.Diff(c.want, string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// TestEncodeHarmless: what would stop a reader of the existing platform, or its
// database, is not written, and nothing is lost for that.
func TestEncodeHarmless(t *testing.T) {
	long := strings.Repeat("9", 4301)
	for _, c := range []struct{ name, output, want string }{
		{"U+0000", `{"a":"x\u0000y","b\u0000":1}`, `{"a": "x\ufffdy", "b\ufffd": 1}`},
		{"lone surrogates", `{"a":"\ud800","b":"\udc00x","c":"\ud800\u0041"}`, `{"a": "\ufffd", "b": "\ufffdx", "c": "\ufffdA"}`},
		{"pairs", `{"a":"\uD83D\uDE00","b":"\ud800\udc00"}`, `{"a": "\ud83d\ude00", "b": "\ud800\udc00"}`},
		{"not UTF-8", "{\"a\":\"\xff\"}", `{"a": "\ufffd"}`},
		{"floats", `{"a":1e400,"b":-1E+400,"c":1e308,"d":0.0,"e":1e-400}`, `{"a": "1e400", "b": "-1E+400", "c": 1e308, "d": 0.0, "e": 1e-400}`},
		{"integers", `{"a":` + long + `,"b":123456789012345678901234567890}`, `{"a": "` + long + `", "b": 123456789012345678901234567890}`},
		{"long float", `{"a":` + long[:400] + `.5}`, `{"a": "` + long[:400] + `.5"}`},
	} {
		got, err := result("SUCCESS", c.output, "").Encode()
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		want := `"output_data": ` + c.want + `, "correlation_id"`
		if !strings.Contains(string(got), want) {
			t.Errorf("%s: got %.300s, want %.300s in it", c.name, got, want)
		}
	}
	got, err := result("FAILURE", "", "a\x00b\xff").Encode()
	if err != nil || !strings.Contains(string(got), `"error_message": "a\ufffdb\ufffd"`) {
		t.Errorf("error text: %s, %v", got, err)
	}
}

func TestEncodeRefuses(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300)
	change := func(f func(*records.AgentTask)) records.AgentTask {
		r := task()
		f(&r)
		return r
	}
	for _, c := range []struct {
		name   string
		record interface{ Encode() ([]byte, error) }
		code   parley.Code
		in     string
	}{
		{"no run", change(func(r *records.AgentTask) { r.RunID = "" }), parley.CodeInvalid, `AgentTask, member "run_id"`},
		{"U+0000 in an id", change(func(r *records.AgentTask) { r.CorrelationID = "a\x00" }), parley.CodeInvalid, `"correlation_id"`},
		{"not UTF-8 in an id", change(func(r *records.AgentTask) { r.TaskID = "\xff" }), parley.CodeInvalid, `"task_id"`},
		{"a long id", change(func(r *records.AgentTask) { r.TaskID = strings.Repeat("a", 1<<15) }), parley.CodeLimit, "bytes"},
		{"array input", change(func(r *records.AgentTask) { r.Input = json.RawMessage("[]") }), parley.CodeInvalid, `"input_data"`},
		{"NaN", change(func(r *records.AgentTask) { r.Input = json.RawMessage(`{"a":NaN}`) }), parley.CodeInvalid, "NaN"},
		{"garbage", change(func(r *records.AgentTask) { r.Input = json.RawMessage(`{"a":}`) }), parley.CodeInvalid, "value expected at byte 5"},
		{"two values", change(func(r *records.AgentTask) { r.Input = json.RawMessage(`{} {}`) }), parley.CodeInvalid, "the end"},
		{"deep", change(func(r *records.AgentTask) { r.Input = json.RawMessage(deep) }), parley.CodeLimit, "nested"},
		{"no time", change(func(r *records.AgentTask) { r.At = time.Time{} }), parley.CodeInvalid, `"timestamp"`},
		{"not final", result("RUNNING", "", ""), parley.CodeInvalid, `"status"`},
		{"no plan", records.ExecutionRequest{RunID: "r", At: at}, parley.CodeInvalid, `"workflow_plan"`},
		{"no such status", records.MonitoringUpdate{RunID: "r", StepID: "s", Status: "done", At: at}, parley.CodeInvalid, `"status"`},
	} {
		got, err := c.record.Encode()
		if got != nil || parley.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.in) {
			t.Errorf("%s: got %q, %v; want code %s and %q", c.name, got, err, c.code, c.in)
		}
	}
}

// TestDecodeTolerant: what the existing platform's bridge takes is taken.
func TestDecodeTolerant(t *testing.T) {
	want := task()
	for _, c := range []struct{ name, value string }{
		{"compact, any order", `{"timestamp":"2026-11-21T10:04:05.974607","correlation_id":"corr-run-1-step-1-0a1b2c3d","input_data":{"text":"hi"},"agent_name":"ResearchAgent","task_id":"task-step-1-0a1b2c3d","run_id":"run-1"}`},
		{"unknown members, even odd ones", `{"x":[NaN,-Infinity,{"a":1e999}],"run_id":"run-1","task_id":"task-step-1-0a1b2c3d","agent_name":"ResearchAgent","input_data":{"text":"hi"},"correlation_id":"corr-run-1-step-1-0a1b2c3d","timestamp":"2026-11-21T10:04:05.974607Z"} `},
		{"a name with an escape that is no member's", `{"\u0063":5,"run_id":"run-1","task_id":"task-step-1-0a1b2c3d","agent_name":"ResearchAgent","input_data":{"text":"hi"},"correlation_id":"corr-run-1-step-1-0a1b2c3d","timestamp":"2026-11-21T10:04:05.974607"}`},
		{"digits of escapes", `{"run_id":"run-1","task_id":"task-step-1-0a1b2c3d","agent_name":"Rese\u0061rch\u0041gent","x":"\uaAfF\u0a09","input_data":{"text":"hi"},"correlation_id":"corr-run-1-step-1-0a1b2c3d","timestamp":"2026-11-21T10:04:05.974607"}`},
		{"the last one counts", `{"run_id":"run-0","run_\u0069d":"run-1","task_id":"task-step-1-0a1b2c3d","agent_name":"Research\u0041gent","input_data":{"text":"hi"},"correlation_id":"corr-run-1-step-1-0a1b2c3d","timestamp":"2026-11-21T12:04:05.974607+02:00"}`},
	} {
		got, err := records.DecodeTask([]byte(c.value))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", c.name, err, diff)
		}
	}
	got, err := records.DecodeTask([]byte(`{"run_id":"r","task_id":"t","agent_name":"a","correlation_id":"c","timestamp":"yesterday"}`))
	if diff := cmp.Diff(records.AgentTask{RunID: "r", TaskID: "t", AgentName: "a", CorrelationID: "c", Input: json.RawMessage("{}")}, got); diff != "" || err != nil {
		t.Errorf("without input: %v (-want +got):\n%s", err, diff)
	}
}

// TestDecodeFaults: the error names the member, and what can be answered is.
func TestDecodeFaults(t *testing.T) {
	const ids = `"run_id":"r","task_id":"t","correlation_id":"c"`
	deep := strings.Repeat("[", 300)
	for _, c := range []struct {
		name, value, in string
		answerable      bool
	}{
		{"tombstone", "", "tombstone", false},
		{"garbage", "\x00\x01", "an object", false},
		{"array", "[]", "an object expected at byte 0", false},
		{"two", `{} {}`, "the end expected at byte 3", false},
		{"truncated", `{` + ids + `,"agent_name":"a","input_data":{"a":`, `"input_data": the JSON ends at byte`, true},
		{"truncated before", `{"run_id":"r","task_id":"t","agent_name":"a","input_data":{"a":"`, `"input_data": the JSON ends at byte`, false},
		{"not UTF-8", `{` + ids + `,"agent_name":"a","input_data":{"a":"` + "\xff" + `"}}`, "not UTF-8", true},
		{"NaN", `{"agent_name":"a","input_data":{"a":NaN},` + ids + `}`, `"input_data": NaN`, true},
		{"no agent", `{` + ids + `}`, `"agent_name": it is missing`, true},
		{"empty agent", `{` + ids + `,"agent_name":""}`, `"agent_name": it is empty`, true},
		{"number", `{` + ids + `,"agent_name":5}`, `"agent_name": it is a number instead of a string`, true},
		{"array input", `{"input_data":[1],"agent_name":"a",` + ids + `}`, `"input_data": it is an array instead of an object`, true},
		{"timestamp", `{"timestamp":5,"agent_name":"a",` + ids + `}`, `"timestamp": it is a number`, true},
		{"run", `{"agent_name":"a","run_id":null,"task_id":"t","correlation_id":"c"}`, `"run_id": it is null`, false},
		{"U+0000", `{"agent_name":"a","run_id":"\u0000","task_id":"t","correlation_id":"c"}`, `"run_id": U+0000`, false},
		{"no escape", `{` + ids + `,"agent_name":"\x"}`, "an escape expected", true},
		{"no digit", `{` + ids + `,"agent_name":"\u00g0"}`, "an escape expected", true},
		{"few digits", `{` + ids + `,"agent_name":"\u00`, "an escape expected", true},
		{"cut escape", `{` + ids + `,"agent_name":"\`, "the JSON ends at byte", true},
		{"deep", `{` + ids + `,"input_data":{"a":` + deep, `"input_data": it is nested`, true},
		{"deep elsewhere", `{` + ids + `,"b":` + deep, `nested`, true},
		{"huge", `{` + ids + `,"agent_name":"a","b":"` + strings.Repeat("x", records.MaxSize) + `"}`, "the limit is 4194304 bytes", true},
		{"no comma", `{` + ids + `,"agent_name":"a","b":[1 2]}`, "',' or ']' expected", true},
		{"no comma between members", `{"run_id":"r";"task_id":"t"}`, "',' or '}' expected at byte 13", false},
		{"zeros", `{` + ids + `,"b":007}`, "a number expected at byte 53", true},
		{"long", `{` + ids + `,"agent_name":"` + strings.Repeat("x", 2000) + `"}`, `"agent_name": it has 2000 bytes`, true},
	} {
		got, err := records.DecodeTask([]byte(c.value))
		if err == nil || !strings.Contains(err.Error(), c.in) || got.Answerable() != c.answerable {
			t.Errorf("%s: %v, answerable %t; want %q, %t", c.name, err, got.Answerable(), c.in, c.answerable)
		}
		if len(err.Error()) > 300 {
			t.Errorf("%s: the error has %d bytes", c.name, len(err.Error()))
		}
	}
	if r, err := records.DecodeExecution([]byte(`{"run_id":"r","workflow_plan":{}}`)); err != nil || string(r.Input) != "{}" {
		t.Errorf("a request without input: %+v, %v", r, err)
	}
	if _, err := records.DecodeExecution([]byte(`{"run_id":"r","workflow_plan":null}`)); err == nil {
		t.Error("a request without a plan was taken")
	}
	if _, err := records.DecodeExecution([]byte(`{"run_id":"r","workflow_plan":{},"message_type":"cancellation_request"}`)); err == nil {
		t.Error("a request of another type was taken")
	}
	if r, err := records.DecodeResult([]byte(`{"run_id":"r","task_id":"t","correlation_id":"c","status":"SUCCESS","output_data":"x"}`)); err == nil || r.CorrelationID != "c" {
		t.Errorf("a result with a string for output: %+v, %v", r, err)
	}
}

// TestDecodeMissing: a record without a member that it must have names it, and one
// without a member that it may leave out is taken.
func TestDecodeMissing(t *testing.T) {
	for _, c := range []struct {
		record string
		must   []string
		may    []string
		decode func(value []byte) error
	}{
		{
			"task",
			[]string{"run_id", "task_id", "agent_name", "correlation_id"},
			[]string{"input_data", "timestamp"},
			func(v []byte) error { _, err := records.DecodeTask(v); return err },
		},
		{
			"result",
			[]string{"run_id", "task_id", "status", "correlation_id"},
			[]string{"output_data", "error_message", "timestamp"},
			func(v []byte) error { _, err := records.DecodeResult(v); return err },
		},
		{
			"monitoring update",
			[]string{"run_id", "step_id", "step_name", "status"},
			[]string{"timestamp", "metadata"},
			func(v []byte) error { _, err := records.DecodeMonitoring(v); return err },
		},
		{
			"request",
			[]string{"run_id", "workflow_plan"},
			[]string{"input_data", "timestamp"},
			func(v []byte) error { _, err := records.DecodeExecution(v); return err },
		},
		{
			"cancellation",
			[]string{"run_id"},
			[]string{"cancelled_by", "reason", "timestamp"},
			func(v []byte) error { _, err := records.DecodeCancellation(v); return err },
		},
	} {
		full := map[string]any{"timestamp": "2026-11-21T10:04:05.974607", "input_data": struct{}{}, "output_data": struct{}{}, "error_message": nil}
		for _, name := range c.must {
			full[name] = "x"
			if name == "workflow_plan" {
				full[name] = struct{}{}
			}
		}
		for _, name := range append(append([]string{""}, c.must...), c.may...) {
			part := maps.Clone(full)
			delete(part, name)
			value, err := json.Marshal(part)
			if err != nil {
				t.Fatal(err)
			}
			err = c.decode(value)
			if want := `"` + name + `": it is missing`; slices.Contains(c.must, name) != (err != nil && strings.Contains(err.Error(), want)) {
				t.Errorf("a %s without %q: %v", c.record, name, err)
			}
		}
	}
}

// TestDecodeCut: a record that ends too early is an error wherever it was cut.
func TestDecodeCut(t *testing.T) {
	const whole = `{"b":[-1.5e+3,true,null,{"c":"\ud83d\ude00\n"}],"n":12,"run_id":"r","task_id":"t","correlation_id":"c","agent_name":"a"}`
	if _, err := records.DecodeTask([]byte(whole)); err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		// What is behind the end of a record in its batch is not its own.
		if _, err := records.DecodeTask([]byte(whole)[:i:i]); err == nil {
			t.Errorf("%s was taken", whole[:i])
		}
	}
}

// TestManyBesideEachOther: depth is about what is inside of each other.
func TestManyBesideEachOther(t *testing.T) {
	sent := task()
	sent.Input = json.RawMessage(`{"all": [{}` + strings.Repeat(`, {"a": []}`, 2*records.MaxDepth) + `]}`)
	value, err := sent.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := records.DecodeTask(value); err != nil || string(got.Input) != string(sent.Input) {
		t.Errorf("%v, got %.100s", err, got.Input)
	}
}

// TestDecodeLimits: what just fits is taken.
func TestDecodeLimits(t *testing.T) {
	for more, taken := range map[int]bool{0: true, 1: false} {
		nested := strings.Repeat("[", records.MaxDepth-1+more) + strings.Repeat("]", records.MaxDepth-1+more)
		for name, value := range map[string]string{
			"depth": `{"run_id":"r","task_id":"t","correlation_id":"c","agent_name":"a","b":` + nested + `}`,
			"name":  `{"run_id":"r","task_id":"t","correlation_id":"c","agent_name":"` + strings.Repeat("a", records.MaxName+more) + `"}`,
		} {
			if _, err := records.DecodeTask([]byte(value)); (err == nil) != taken {
				t.Errorf("%s, %d more than fits: %v", name, more, err)
			}
		}
	}
}

// TestDecodeSize: the limit on a record is the longest that is taken.
func TestDecodeSize(t *testing.T) {
	const head, tail = `{"run_id":"r","task_id":"t","correlation_id":"c","agent_name":"a","b":"`, `"}`
	for more, taken := range map[int]bool{0: true, 1: false} {
		value := head + strings.Repeat("x", records.MaxSize-len(head)-len(tail)+more) + tail
		if _, err := records.DecodeTask([]byte(value)); (err == nil) != taken {
			t.Errorf("%d bytes: %v", len(value), err)
		}
	}
}

// TestRoundTrip: what is written is read back as it was, for every record.
func TestRoundTrip(t *testing.T) {
	roundTrip(t, task(), records.DecodeTask)
	roundTrip(t, result("SUCCESS", `{"a": [1, {"b": "\u00e9"}]}`, ""), records.DecodeResult)
	failure := result("FAILURE", "", "Agent \u201cX\u201d")
	failure.Output = nil
	roundTrip(t, failure, records.DecodeResult)
	roundTrip(t, records.MonitoringUpdate{RunID: "r", StepID: "s", StepName: "n", Status: "FAILED", At: at, Metadata: json.RawMessage(`{"error": "x"}`)}, records.DecodeMonitoring)
	roundTrip(t, records.ExecutionRequest{RunID: "r", Plan: json.RawMessage(`{"a": 1}`), Input: json.RawMessage(`{}`), At: at}, records.DecodeExecution)
	roundTrip(t, records.CancellationRequest{RunID: "r", CancelledBy: "me", At: at}, records.DecodeCancellation)
}

func roundTrip[R interface{ Encode() ([]byte, error) }](t *testing.T, r R, decode func([]byte) (R, error)) {
	t.Helper()
	value, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := decode(value)
	if err != nil {
		t.Fatal(err)
	}
	// Input and output are written in another form than they were given in.
	squeeze := cmp.Transformer("json", func(raw json.RawMessage) string { return strings.ReplaceAll(string(raw), " ", "") })
	if diff := cmp.Diff(r, got, squeeze); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestReadAgain: of a member that is there twice the last one counts, and one that is
// wrong leaves nothing of the one before.
func TestReadAgain(t *testing.T) {
	const rest = `"run_id": "r", "status": "FAILURE", "correlation_id": "c", "error_message": "old", "output_data": {"n": 1}, `
	for _, record := range []string{
		`{` + rest + `"task_id": "old", "task_id": 1, "error_message": 2, "output_data": []}`,
		`{` + rest + `"task_id": "old", "task_id": "", "error_message": {}, "output_data": "x"}`,
	} {
		r, err := records.DecodeResult([]byte(record))
		if err == nil || r.TaskID != "" || r.Error != "" || r.Output != nil {
			t.Errorf("%s is read as %+v, %v", record, r, err)
		}
	}
	r, err := records.DecodeResult([]byte(`{` + rest + `"task_id": "t", "error_message": null, "output_data": null}`))
	if err != nil || r.Error != "" || r.Output != nil {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestDecodeTaskAllocations: what a task is read into is made once, and nothing else but
// its texts: a bridge reads thousands in a second.
func TestDecodeTaskAllocations(t *testing.T) {
	value := []byte(`{"run_id": "run-1", "task_id": "task-1", "agent_name": "one", "input_data": {"a": [1, {"b": null}]}, ` +
		`"correlation_id": "corr-1", "timestamp": "2026-11-26T12:00:00.123456"}`)
	n := testing.AllocsPerRun(100, func() {
		if _, err := records.DecodeTask(value); err != nil {
			t.Fatal(err)
		}
	})
	if n > 8 {
		t.Errorf("%v allocations", n)
	}
}
