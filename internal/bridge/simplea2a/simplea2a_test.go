package simplea2a_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/simplea2a"
)

const taskID = "run-1.ask.1"

// TestAD2_Request: two members in this order, the input byte for byte.
func TestAD2_Request(t *testing.T) {
	for _, input := range []string{`{"b": [1.50,  2],"a":"\u00e9\ud800"}`, `null`, `"x"`, ` [1] `, `1e400`} {
		got, err := simplea2a.Request(parley.Task{ID: "a\"b", Input: json.RawMessage(input)})
		if want := `{"task_id":"a\"b","input":` + input + `}`; err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
	for _, bad := range []string{"", "{", "1 2", "\"\xff\""} {
		if got, err := simplea2a.Request(parley.Task{ID: "x", Input: json.RawMessage(bad)}); err == nil {
			t.Errorf("%q: %s, want an error", bad, got)
		}
	}
}

// TestAD2_Output: an output of any type passes byte for byte, and is a copy.
func TestAD2_Output(t *testing.T) {
	for _, output := range []string{`{ "z":1.10,"a":1e400,"z":2 }`, `[1, 2]`, `"\ud800"`, `null`, `false`, `123456789012345678901234567890`} {
		body := []byte(`{"output":` + output + `, "status":"success","task_id":"` + taskID + `"}`)
		res, warnings, err := simplea2a.Response(body, taskID)
		if err != nil || len(warnings) > 0 {
			t.Fatal(err, warnings)
		}
		clear(body)
		if diff := cmp.Diff(output, string(res.Output)); diff != "" {
			t.Error(diff)
		}
	}
}

// TestAD2_Warnings: what is odd and used all the same.
func TestAD2_Warnings(t *testing.T) {
	cases := []struct{ body, kind, text string }{
		{`{"task_id":"other","status":"success"}`, "wrong_task_id", "Response task_id mismatch: expected run-1.ask.1, got other"},
		{`{"task_id":null,"status":"success"}`, "wrong_task_id", "got null"},
		{`{"status":"success"}`, "missing_task_id", "expected run-1.ask.1"},
		{`{"task_id":"` + taskID + `","status":"success","error":"hm"}`, "error_with_success", "hm"},
		{`{"task_id":"` + strings.Repeat("x", 1000) + `","status":"success"}`, "wrong_task_id", "…"},
	}
	for _, c := range cases {
		res, warnings, err := simplea2a.Response([]byte(c.body), taskID)
		if err != nil || len(warnings) != 1 || warnings[0].Kind != c.kind || !strings.Contains(warnings[0].Text, c.text) {
			t.Errorf("%s: %v, %v", c.body, warnings, err)
		}
		if res.TaskID != taskID {
			t.Errorf("%s: the task id was not corrected: %q", c.body, res.TaskID)
		}
	}
}

// TestAD2_Config: the protocol has no settings.
func TestAD2_Config(t *testing.T) {
	a := &simplea2a.Adapter{}
	for config, n := range map[string]int{"": 0, "null": 0, "{}": 0, `{"method":"x","y":1}`: 2, "[]": 1, "{": 1} {
		if faults := a.CheckConfig(json.RawMessage(config)); len(faults) != n {
			t.Errorf("%s: %v", config, faults)
		}
	}
}

// FuzzSimpleResponse: no answer breaks the reader, and what it makes of one holds
// what BR-3 promises.
func FuzzSimpleResponse(f *testing.F) {
	for _, s := range []string{
		`{"task_id":"run-1.ask.1","status":"success","output":{"a":[1,2]},"error":null}`, `{"status":"error","error":{"a":1},"output":[]}`,
		`{"status":"success"}`, `{"status":1}`, `[]`, "\xef\xbb\xbf {}", `{"status":"success","\u0073tatus":"error"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		before := bytes.Clone(body)
		res, _, err := simplea2a.Response(body, taskID)
		if !bytes.Equal(body, before) {
			t.Fatal("the body was changed")
		}
		if err != nil {
			if _, ok := errors.AsType[*bridge.DefectError](err); !ok {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		ok := res.Outcome == parley.OutcomeOK && json.Valid(res.Output) && res.Err == nil
		failed := res.Outcome == parley.OutcomeError && res.Output == nil && res.Err != nil
		if res.TaskID != taskID || ok == failed {
			t.Fatalf("%+v", res)
		}
		if _, err := json.Marshal(res.Err); err != nil {
			t.Fatalf("the error cannot be encoded: %v", err)
		}
	})
}

func BenchmarkResponse(b *testing.B) {
	body := []byte(`{"task_id":"` + taskID + `","status":"success","output":{"text":"` + strings.Repeat("Hello there. ", 70) + `"},"error":null}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := simplea2a.Response(body, taskID); err != nil {
			b.Fatal(err)
		}
	}
}
