package bridge_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/records"
)

// TestForeignOddRecords: records with values at the limits, from an agent that gives
// its input back. Each is answered once or is a dead letter, and none holds up what
// comes behind it.
func TestForeignOddRecords(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`{"a":[`, n/2) + strings.Repeat(`]}`, n/2) }
	const (
		answered = "SUCCESS"
		failed   = "FAILURE"
		letter   = ""
	)
	type odd struct{ input, more, want string }
	odds := []odd{
		{input: `{}`, want: answered},
		{input: `null`, want: answered},
		{input: `{"":""}`, want: answered},
		{input: `{"text":null,"query":false}`, want: answered},
		{input: `{"n":9007199254740993,"m":-0,"e":1e400,"i":` + strings.Repeat("9", 5000) + `}`, want: answered},
		{input: `{"a\u0000b":"\u0000","s":"\ud800","t":"\udc00\ud800"}`, want: answered},
		{input: `{"TEXT":"other case","Text":1,"text":"own"}`, want: answered},
		{input: `{"a":1,"a":2}`, want: answered},
		{input: `{"a":` + deep(100) + `}`, want: answered},
		{input: `{"a":` + deep(250) + `}`, want: answered},
		{input: `{"a":` + deep(300) + `}`, want: failed},
		{input: `{"a":` + deep(100_000) + `}`, want: failed},
		{input: `[]`, want: failed},
		{input: `"text"`, want: failed},
		{input: `{"a":NaN}`, want: failed},
		{input: `{}`, more: `,"timestamp":null`, want: answered},
		{input: `{}`, more: `,"timestamp":""`, want: answered},
		{input: `{}`, more: `,"timestamp":"0001-01-01T00:00:00"`, want: answered},
		{input: `{}`, more: `,"timestamp":"9999-12-31T23:59:59.999999-14:00"`, want: answered},
		{input: `{}`, more: `,"timestamp":"2000-01-01T14:00:00+14:00"`, want: answered},
		{input: `{}`, more: `,"timestamp":5`, want: failed},
		{input: `{}`, more: `,"RUN_ID":"other","unknown":[{"x":1e999}]`, want: answered},
		{input: `{}`, more: `,"agent_name":"\u0000"`, want: failed},
		{input: `{}`, more: `,"agent_name":"\ud800"`, want: failed},
		{input: `{}`, more: `,"agent_name":"ONE"`, want: failed},
		{input: `{}`, more: `,"agent_name":""`, want: failed},
		{input: `{}`, more: `,"agent_name":"` + strings.Repeat("é", 600) + `"`, want: failed},
		{input: `{}`, more: `,"run_id":null`, want: letter},
		{input: `{}`, more: `,"correlation_id":"\u0000"`, want: letter},
		{input: `{}`, more: `,"correlation_id":" \n"`, want: failed},
	}
	onLedgers(t, func(r *foreignRig) {
		r.agent.call = func(_ context.Context, task parley.Task, _ int, _ bridge.Progress) (bridge.Outcome, error) {
			return answeredWith(task), nil
		}
		r.begin("b", nil)
		for i, o := range odds {
			r.put("", fmt.Appendf(nil, `{"run_id":"r","task_id":"odd-%d","agent_name":"one","correlation_id":"c%d","input_data":%s%s}`, i, i, o.input, o.more))
		}
		r.send(record("behind", "one"))
		if got := r.result("behind", 10*time.Second); got.Status != records.StatusSuccess {
			r.t.Errorf("what comes behind: %+v", got)
		}
		r.wait(10 * time.Second)
		buried := map[string]bool{}
		for _, d := range r.letters() {
			buried[d.Task] = true
			for i := range odds {
				if strings.Contains(string(d.Message.Value), fmt.Sprintf(`"odd-%d"`, i)) {
					buried[fmt.Sprintf("odd-%d", i)] = true
				}
			}
		}
		for i, o := range odds {
			task := fmt.Sprintf("odd-%d", i)
			got := r.resultsOf(task)
			switch {
			case o.want == letter && (len(got) > 0 || !buried[task]):
				r.t.Errorf("%.60s%.60s: results %+v, a dead letter %t", o.input, o.more, got, buried[task])
			case o.want != letter && (len(got) != 1 || got[0].Status != o.want || buried[task] == (o.want == answered)):
				r.t.Errorf("%.60s%.60s: results %.300v, want one %s; a dead letter %t", o.input, o.more, got, o.want, buried[task])
			}
		}
		r.wantQuiet()
	})
}

// answeredWith is the answer of an agent that gives its input back.
func answeredWith(task parley.Task) bridge.Outcome { return answered(task, string(task.Input)) }
