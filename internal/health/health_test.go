package health_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/health"
)

func epoch() time.Time { return time.Date(2026, 11, 22, 10, 4, 5, 0, time.UTC) }

// TestNext: two looks in a row have to fail before an agent is unhealthy, one
// that goes well makes it healthy, and each change is told once.
func TestNext(t *testing.T) {
	state := parley.HealthState{Agent: "a", Status: parley.HealthUnknown}
	var got []string
	for i, well := range []bool{false, true, false, true, false, false, false, true, true} {
		at := epoch().Add(time.Duration(i) * time.Minute)
		var events []parley.AgentEvent
		state, events = health.Next(state, parley.AgentHealth{Healthy: well, Message: fmt.Sprint("look ", i), ResponseTime: time.Second, At: at}, "")
		line := []string{fmt.Sprintf("%s %d", state.Status, state.Failures)}
		for _, e := range events {
			line = append(line, string(e.Type)+string(e.Data))
			if !e.At.Equal(at) || !state.ChangedAt.Equal(at) {
				t.Errorf("told at %v, changed at %v", e.At, state.ChangedAt)
			}
		}
		got = append(got, strings.Join(line, " "))
		if state.Message != fmt.Sprint("look ", i) || state.Took != time.Second || !state.CheckedAt.Equal(at) {
			t.Errorf("%+v", state)
		}
	}
	want := []string{
		`unknown 1`,
		`healthy 0 agent.health_changed{"from":"unknown","to":"healthy","message":"look 1"}`,
		`healthy 1`,
		`healthy 0`,
		`healthy 1`,
		`unhealthy 2 agent.health_changed{"from":"healthy","to":"unhealthy","message":"look 5","consecutive_failures":2}`,
		`unhealthy 3`,
		`healthy 0 agent.health_changed{"from":"unhealthy","to":"healthy","message":"look 7"}`,
		`healthy 0`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestCardChanged: a card that is not the one that was seen before is told once;
// the one that the agent is called by is no news.
func TestCardChanged(t *testing.T) {
	for name, c := range map[string]struct {
		seen, detected string
		looks          []string
		want           string
	}{
		"the first one":           {"", "", []string{"x", "x"}, ""},
		"the detected one":        {"", "x", []string{"x", "x"}, ""},
		"not the detected one":    {"", "x", []string{"y", "y"}, "x→y"},
		"another":                 {"x", "", []string{"y", "", "y", "x"}, "x→y y→x"},
		"the operator has looked": {"x", "y", []string{"y"}, ""},
		"none now":                {"x", "x", []string{"", "x"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			state := parley.HealthState{Agent: "a", Status: parley.HealthHealthy, CardHash: c.seen}
			var told []string
			for _, hash := range c.looks {
				var events []parley.AgentEvent
				state, events = health.Next(state, parley.AgentHealth{Healthy: true, At: epoch(), CardHash: hash}, c.detected)
				for _, e := range events {
					if e.Type != parley.EventCardChanged {
						t.Errorf("%+v", e)
					}
					told = append(told, strings.NewReplacer(`{"from":"`, "", `","to":"`, "→", `"}`, "").Replace(string(e.Data)))
				}
			}
			if got := strings.Join(told, " "); got != c.want {
				t.Errorf("told %q, want %q", got, c.want)
			}
		})
	}
}

// TestNextAlways: whatever the looks, the state is that of the newest ones, and
// the log replays to it.
func TestNextAlways(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		state := parley.HealthState{Agent: "a", Status: parley.HealthUnknown}
		told := parley.HealthUnknown
		looks := rapid.SliceOf(rapid.Bool()).Draw(t, "looks")
		for i, well := range looks {
			before := state.Status
			var events []parley.AgentEvent
			state, events = health.Next(state, parley.AgentHealth{Healthy: well, At: epoch()}, "")
			if len(events) > 0 {
				told = state.Status
			}
			if told != state.Status || (len(events) == 1) != (before != state.Status) {
				t.Fatalf("look %d: %d events, %s after %s", i, len(events), state.Status, before)
			}
			failed := 0
			for j := i; j >= 0 && !looks[j]; j-- {
				failed++
			}
			if failed != state.Failures || well && state.Status != parley.HealthHealthy || failed >= 2 && state.Status != parley.HealthUnhealthy ||
				failed == 1 && state.Status != before {
				t.Fatalf("look %d: %+v after %d failures", i, state, failed)
			}
		}
	})
}
