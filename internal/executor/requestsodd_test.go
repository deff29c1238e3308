package executor_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
)

// TestRequests_Odd: requests with plans and inputs at the limits of what JSON can say.
// Each begins a run, which ends, or is a dead letter at once, and none holds up what
// comes behind it.
func TestRequests_Odd(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`{"a":[`, n/2) + strings.Repeat(`]}`, n/2) }
	const good = `{"workflow_id":"W","name":"W","version":"1","start_step":"s","steps":{"s":{"id":"s","agent_name":"writer","next_step":null,"input_mapping":{"t":"${workflow.input.t}"}}}}`
	plan := func(old, change string) string { return strings.Replace(good, old, change, 1) }
	type odd struct{ plan, input, more string }
	odds := []odd{
		{good, `{"t":""}`, ""},
		{good, `{"t":null}`, ""},
		{good, `{"T":1}`, ""},
		{good, `{"t":9007199254740993,"u":1e400,"v":-0}`, ""},
		{good, `{"t":"\u0000\ud800","":{}}`, ""},
		{good, `{"t":` + deep(100) + `}`, ""},
		{good, `{"t":` + deep(250) + `}`, ""},
		{good, `{"t":` + deep(300) + `}`, ""},
		{good, `null`, ""},
		{good, `[]`, ""},
		{good, `{"t":1}`, `,"timestamp":null`},
		{good, `{"t":1}`, `,"timestamp":"9999-12-31T23:59:59-14:00"`},
		{good, `{"t":1}`, `,"timestamp":"yesterday"`},
		{good, `{"t":1}`, `,"message_type":"Execution_Request"`},
		{plan(`"W","name"`, `"","name"`), `{}`, ""},
		{plan(`"name":"W"`, `"name":""`), `{}`, ""},
		{plan(`"name":"W"`, `"name":null`), `{}`, ""},
		{plan(`"name":"W"`, `"name":"a\u0000b"`), `{"t":1}`, ""},
		{plan(`"name":"W"`, `"name":"a\ud800b"`), `{"t":1}`, ""},
		{plan(`"W","name"`, `"a\u0000b","name"`), `{"t":1}`, ""},
		{plan(`"version":"1"`, `"version":""`), `{"t":1}`, ""},
		{plan(`"version":"1"`, `"version":9007199254740993`), `{"t":1}`, ""},
		{plan(`"version":"1"`, `"version":"\u0000"`), `{"t":1}`, ""},
		{plan(`"version":"1"`, `"version":"1","description":"\u0000"`), `{"t":1}`, ""},
		{plan(`"version":"1"`, `"version":"1","DESCRIPTION":5,"x":1e999`), `{"t":1}`, ""},
		{plan(`"steps":{`, `"steps":null,"x":{`), `{}`, ""},
		{plan(`"steps":{`, `"Steps":{`), `{}`, ""},
		{plan(`"id":"s"`, `"id":null`), `{"t":1}`, ""},
		{plan(`"writer"`, `"\u0000"`), `{"t":1}`, ""},
		{plan(`"writer"`, `""`), `{"t":1}`, ""},
		{plan(`{"t":"${workflow.input.t}"}`, `null`), `{}`, ""},
		{plan(`{"t":"${workflow.input.t}"}`, `{"t":null,"n":9007199254740993,"":"${","d":`+deep(100)+`}`), `{}`, ""},
		{plan(`{"t":"${workflow.input.t}"}`, `{"t":`+deep(250)+`}`), `{}`, ""},
		{plan(`"${workflow.input.t}"`, `"${`+strings.Repeat("(", 10_000)+`}"`), `{}`, ""},
		{plan(`"next_step":null`, `"next_step":"s"`), `{"t":1}`, ""},
		{plan(`"next_step":null`, `"next_step":""`), `{"t":1}`, ""},
		{`{}`, `{}`, ""},
		{`{"steps":{}}`, `{}`, ""},
	}
	besideOld(t, func(r *oldRig) {
		r.bridge()
		for i, o := range odds {
			value := fmt.Sprintf(`{"run_id":"odd-%d","workflow_plan":%s,"input_data":%s%s}`, i, strings.ReplaceAll(o.plan, "W", fmt.Sprintf("w%d", i)), o.input, o.more)
			r.put(bus.SubjectStartRequests, "one key", []byte(value), nil)
		}
		r.put(bus.SubjectStartRequests, "one key", []byte(`{"run_id":"behind","workflow_plan":`+good+`,"input_data":{"t":1}}`), nil)
		time.Sleep(20 * time.Second)
		r.wantRun("behind", parley.RunCompleted)
		buried := map[string]int{}
		r.mu.Lock()
		for _, d := range r.letters {
			buried[d.Run] = d.Attempts
		}
		r.mu.Unlock()
		for i, o := range odds {
			id := fmt.Sprintf("odd-%d", i)
			v, err := r.x.Get(r.t.Context(), id)
			if ended := err == nil && v.Status.Terminal(); ended == (buried[id] > 0) || buried[id] > 1 {
				t.Errorf("%.300s %.60s%.60s: run %s, %v; a dead letter after %d tries", o.plan, o.input, o.more, v.Status, err, buried[id])
			}
		}
	})
}
