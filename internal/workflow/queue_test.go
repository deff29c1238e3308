package workflow

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/parley-project/parley"
)

// TestConcurrency_KeyOfAStart: the key is evaluated over the input, whatever its
// type, and has at most 255 characters.
func TestConcurrency_KeyOfAStart(t *testing.T) {
	doc := func(key string) *Definition {
		def, problems := Parse(ParseOptions{File: "t.yaml"}, []byte("name: t\nconcurrency: {key: '"+key+"', limit: 2, when_full: reject}\nsteps: [{id: a, agent: x}]\n"))
		if def == nil {
			t.Fatal(problems)
		}
		return def
	}
	long := strings.Repeat("ä", 256)
	for key, c := range map[string]struct{ input, want string }{
		"":                                   {`{}`, ""},
		"all":                                {`{}`, "all"},
		"${workflow.input.c}":                {`{"c":"ann"}`, "ann"},
		"c-${workflow.input.c}-${1+1}":       {`{"c":7}`, "c-7-2"},
		"${workflow.input.c + 0}":            {`{"c":7}`, "7"},
		"${workflow.input}":                  {`{"c": [1]}`, `{"c": [1]}`},
		"${workflow.input.c }":               {`{"c":"` + long[:510] + `"}`, long[:510]},
		"${workflow.input.?c.orValue(\"\")}": {`{}`, ""},
	} {
		turn, err := doc(key).TurnOf(json.RawMessage(c.input))
		if err != nil {
			t.Errorf("%s: %v", key, err)
			continue
		}
		if got, want := *turn, (Turn{Key: c.want, Limit: 2, WhenFull: parley.WhenFullReject}); got != want {
			t.Errorf("%s of %s: %+v, want %+v", key, c.input, got, want)
		}
	}
	if _, err := doc("${workflow.input.c}").TurnOf(json.RawMessage(`{"c":"` + long + `"}`)); parley.CodeOf(err) != parley.CodeLimit {
		t.Errorf("256 characters: %v", err)
	}
	if _, err := doc("${workflow.input.c}").TurnOf(json.RawMessage(`{}`)); parley.CodeOf(err) != parley.CodeExpression {
		t.Errorf("a key that is not there: %v", err)
	}
	if turn, err := play(t, "name: t\nsteps: [{id: a, agent: x}]\n").state.Definition().TurnOf(nil); turn != nil || err != nil {
		t.Errorf("without concurrency: %v, %v", turn, err)
	}
}

// TestConcurrency_QueuedRunHasNotStarted: it was accepted at a time, has no open
// step, no deadline and no start; its input and labels are known.
func TestConcurrency_QueuedRunHasNotStarted(t *testing.T) {
	turn := &Turn{Key: "k", Limit: 1, WhenFull: parley.WhenFullQueue, Wait: true}
	s := playWith(t, "name: t\nsteps: [{id: a, agent: x}]\n", Start{Input: json.RawMessage(`{"x":1}`), Labels: map[string]string{"l": "v"}, Turn: turn})
	v := s.state.View()
	if v.Status != parley.RunPending || v.StartedAt != nil || !v.CreatedAt.Equal(s.now) || v.Phase != "" || string(v.Input) != `{"x":1}` || v.Labels["l"] != "v" {
		t.Errorf("queued: %+v", v)
	}
	if due := s.state.Due(); !due.IsZero() || len(s.state.Open()) > 0 {
		t.Errorf("due %v, open %v", due, s.state.Open())
	}
	accepted := s.now
	s.after(3e9)
	s.apply(Admit{At: s.now})
	v = s.state.View()
	if v.Status != parley.RunRunning || v.StartedAt == nil || !v.StartedAt.Equal(s.now) || !v.CreatedAt.Equal(accepted) || string(v.Input) != `{"x":1}` {
		t.Errorf("admitted: %+v", v)
	}
	if s.state.Queued() || !s.state.Deadline().Equal(s.now.Add(defaultTimeout)) {
		t.Errorf("queued %v, deadline %v", s.state.Queued(), s.state.Deadline())
	}
}
