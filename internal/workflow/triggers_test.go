package workflow

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley/internal/workflow/schemas"
)

func triggersOf(t *testing.T, source string) []*Trigger {
	t.Helper()
	def, problems := Parse(ParseOptions{}, []byte("name: Some Flow\nversion: '3'\nsteps: [{agent: a}]\ntriggers:\n"+source))
	if def == nil {
		t.Fatal(problems)
	}
	return def.Triggers
}

// TestTriggerDefaults checks what is filled in where nothing is said.
func TestTriggerDefaults(t *testing.T) {
	list := triggersOf(t, `
  - schedule: {cron: "0  2 * * *"}
  - schedule: {every: 90m, overlap: allow, catch_up: 0s, jitter: 1500ms, input: {a: "${event.scheduled_at}"}}
  - webhook: {secret: "env:HOOK"}
  - event: {name: paid}
  - kafka: {topic: orders}`)
	if s := list[0].Schedule; s.Cron != "0 2 * * *" || s.Zone != "UTC" || s.Overlap != OverlapSkip || s.CatchUp != 10*time.Minute || s.Jitter != 0 || s.Input != nil {
		t.Errorf("a plain schedule is %+v", s)
	}
	for i, want := range []string{
		`{"cron":"0 2 * * *","zone":"UTC","overlap":"skip","catch_up":"10m","jitter":"0s"}`,
		`{"every":"1h30m","zone":"UTC","overlap":"allow","catch_up":"0s","jitter":"1s500ms","input":{"a":"${event.scheduled_at}"}}`,
	} {
		if got := string(list[i].Schedule.Text()); got != want {
			t.Errorf("the text of schedule %d is %s, want %s", i, got, want)
		}
		again, problems := ParseSchedule(list[i].Schedule.Text())
		if again == nil || string(again.Schedule.Text()) != want {
			t.Errorf("%s is read as %+v, %s", want, again, problems)
		}
	}
	if w := list[2].Webhook; w.Secret != "env:HOOK" || w.Header != DefaultSignatureHeader {
		t.Errorf("a plain webhook is %+v", w)
	}
	if list[3].Event.Name != "paid" || list[4].Kafka.Topic != "orders" {
		t.Error("the names of an event and a topic are lost")
	}
	event := json.RawMessage(`{"id":"1","data":{"n":2}}`)
	for _, trigger := range list[2:] {
		holds, err := trigger.Holds(WorkflowName{}, event)
		input, err2 := trigger.InputOf(WorkflowName{}, event)
		key, err3 := trigger.KeyOf(WorkflowName{}, event)
		if !holds || string(input) != string(event) || key != "" || err != nil || err2 != nil || err3 != nil {
			t.Errorf("%+v: %v %s %q, %v %v %v", trigger, holds, input, key, err, err2, err3)
		}
	}
}

// TestTriggerEvaluates checks the condition, the input and the key of an event.
func TestTriggerEvaluates(t *testing.T) {
	hook := triggersOf(t, `
  - webhook:
      secret: "env:HOOK"
      if: event.body.total > 10
      input: {order: "${event.body.order}", flow: "${workflow.id}@${workflow.version}"}
      idempotency_key: "${event.headers['x-id']}"`)[0]
	of := WorkflowName{ID: "some-flow", Name: "Some Flow", Version: "3"}
	for _, c := range []struct{ event, holds, input, key string }{
		{`{"id":"1","headers":{"x-id":"k"},"body":{"total":11,"order":7}}`, "true", `{"order":7,"flow":"some-flow@3"}`, "k"},
		{`{"id":"1","headers":{"x-id":5},"body":{"total":10,"order":null}}`, "false", `{"order":null,"flow":"some-flow@3"}`, "5"},
		{`{"id":"1","headers":{},"body":{}}`, "expression", "expression", "expression"},
		{`{"id":"1","headers":{"x-id":"` + strings.Repeat("k", 256) + `"},"body":{"total":11,"order":1}}`, "true", `{"order":1,"flow":"some-flow@3"}`, "limit"},
	} {
		holds, err := hook.Holds(of, []byte(c.event))
		said(t, c.holds, fmt.Sprint(holds), err)
		input, err := hook.InputOf(of, []byte(c.event))
		said(t, c.input, string(input), err)
		key, err := hook.KeyOf(of, []byte(c.event))
		said(t, c.key, key, err)
	}
}

func said(t *testing.T, want, got string, err error) {
	t.Helper()
	if err != nil {
		got = string(asError(err).Code)
	}
	if got != want {
		t.Errorf("%s (%v), want %s", got, err, want)
	}
}

// TestScheduleEvent holds the event of a firing to what it is said to be.
func TestScheduleEvent(t *testing.T) {
	at := time.Date(2026, 3, 29, 1, 0, 0, 0, time.FixedZone("", 3600))
	if got := string(ScheduleEvent(at)); got != `{"scheduled_at":"2026-03-29T00:00:00Z"}` {
		t.Error(got)
	}
}

// TestScheduleNext checks the two kinds of schedules and the end of time.
func TestScheduleNext(t *testing.T) {
	after := time.Date(2026, 3, 28, 23, 30, 0, 0, time.UTC)
	for spec, want := range map[string]string{
		`{"every":"90m"}`: "2026-03-29T00:00:00Z",
		`{"every":"7d"}`:  "2026-04-02T00:00:00Z",
		`{"cron":"30 2 * * *","zone":"Europe/Berlin"}`:    "2026-03-29T01:00:00Z",
		`{"cron":"30 23 28 3 *"}`:                         "2027-03-28T23:30:00Z",
		`{"cron":"0 0 29 2 *","zone":"America/New_York"}`: "2028-02-29T05:00:00Z",
	} {
		s, problems := ParseSchedule([]byte(spec))
		if s == nil {
			t.Fatal(problems)
		}
		at, ok := s.Schedule.Next(after)
		if got := at.Format(time.RFC3339Nano); !ok || got != want {
			t.Errorf("%s: %s, want %s", spec, got, want)
		}
	}
	if _, problems := ParseSchedule([]byte(`[1]`)); len(problems) != 1 {
		t.Error(problems)
	}
	if _, problems := ParseSchedule([]byte(`{"cron":"* * * * *","input":"${now}","zone":"Mars"}`)); len(problems) != 2 {
		t.Error(problems)
	}
	if _, problems := ParseSchedule([]byte(`{`)); len(problems) != 1 {
		t.Error(problems)
	}
}

// TestFormatDuration writes what ParseDuration reads.
func TestFormatDuration(t *testing.T) {
	for _, text := range []string{"0s", "1ms", "1s500ms", "90s", "36h", "365d"} {
		d, err := ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseDuration(FormatDuration(d)); err != nil || again != d {
			t.Errorf("%s is written as %s", text, FormatDuration(d))
		}
	}
}

// TestD2_SchemaHasEveryTrigger holds the schema of files to the members of
// triggers.
func TestD2_SchemaHasEveryTrigger(t *testing.T) {
	raw, _ := schemas.Named("workflow")
	var doc struct {
		Defs struct {
			Trigger struct {
				Properties map[string]published `json:"properties"`
			} `json:"trigger"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	if n := len(doc.Defs.Trigger.Properties); n != len(triggerKinds()) {
		t.Errorf("the schema has %d kinds of triggers", n)
	}
	for _, kind := range triggerKinds() {
		for member := range doc.Defs.Trigger.Properties[kind].Properties {
			_, problems := Parse(ParseOptions{}, fmt.Appendf(nil, "name: x\nsteps: [{agent: a}]\ntriggers: [{%s: {%s: 1}}]", kind, member))
			for _, p := range problems {
				if p.Code == problemUnknown {
					t.Errorf("the schema has %s.%s: %s", kind, member, p)
				}
			}
		}
		_, problems := Parse(ParseOptions{}, fmt.Appendf(nil, "name: x\nsteps: [{agent: a}]\ntriggers: [{%s: {}}]", kind))
		if len(problems) != 1 || problems[0].Code != problemRequired {
			t.Errorf("an empty %s: %s", kind, problems)
		}
	}
}

// TestTriggersHaveALimit counts them.
func TestTriggersHaveALimit(t *testing.T) {
	for n, code := range map[int]string{50: "", 51: problemLimit} {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "  - event: {name: e%d}\n", i)
		}
		_, problems := Parse(ParseOptions{}, []byte("name: x\nsteps: [{agent: a}]\ntriggers:\n"+b.String()))
		if len(problems) > 0 && problems[0].Code != code || len(problems) == 0 && code != "" {
			t.Errorf("%d triggers: %s", n, problems)
		}
	}
}

// TestLimits_NamesInCharacters: a letter that takes two bytes is one character in
// keys of triggers, in who may answer, and in names of branches.
func TestLimits_NamesInCharacters(t *testing.T) {
	letters := func(n int) string { return strings.Repeat("é", n) }
	hook := triggersOf(t, `  - webhook: {secret: "env:HOOK", idempotency_key: "${event.body}"}`)[0]
	for n, fits := range map[int]bool{255: true, 256: false} {
		key, err := hook.KeyOf(WorkflowName{}, []byte(`{"body":"`+letters(n)+`"}`))
		if (err == nil && key == letters(n)) != fits {
			t.Errorf("a key of %d characters: %v", n, err)
		}
		s := play(t, `{"name":"t","steps":[{"id":"a","approval":{"title":"T","to":["`+letters(n)+`"]}}]}`)
		if s.state.Status().Terminal() == fits {
			t.Errorf("an approval for a role of %d characters: the run is %s", n, s.state.Status())
		}
		def, problems := Parse(ParseOptions{}, []byte(`{"name":"t","steps":[{"fork":{"`+letters(n)+`":[{"id":"c","set":1}],"b":[{"set":2}]}}]}`))
		if (def != nil) != fits {
			t.Errorf("a branch with a name of %d characters: %v", n, problems)
		}
	}
}
