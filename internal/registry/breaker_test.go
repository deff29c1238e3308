package registry_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/registry"
)

// TestBreakerFile: every member of a breaker, under its name and its old one.
func TestBreakerFile(t *testing.T) {
	specs, problems := registry.LoadFile("a.yaml", []byte(`agents:
- {name: a, url: http://a, breaker: {}}
- {name: b, url: http://b, breaker: {enabled: false}}
- {name: c, url: http://c, breaker: {failure_threshold: 3, failure_rate_threshold: 0.7, minimum_calls: 20, timeout: 1m30s, half_open_max_calls: 1, window: 10s, on_open: fail}}
- {name: d, url: http://d, breaker: {timeout_seconds: 2.5, window_size_seconds: 60}}
`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	def := parley.DefaultBreaker()
	off, d := def, def
	off.Enabled = false
	d.OpenFor, d.Window = 2500*time.Millisecond, time.Minute
	want := []*parley.Breaker{&def, &off, {
		Enabled: true, FailureThreshold: 3, FailureRate: 0.7, MinimumCalls: 20, OpenFor: 90 * time.Second, HalfOpenCalls: 1,
		Window: 10 * time.Second, OnOpen: parley.OnOpenFail,
	}, &d}
	for i, w := range want {
		if diff := cmp.Diff(w, specs[i].Breaker); diff != "" {
			t.Errorf("%s (-want +got):\n%s", *specs[i].Name, diff)
		}
	}
}

// TestBreakerFaults: every fault, where it stands.
func TestBreakerFaults(t *testing.T) {
	_, problems := registry.LoadFile("a.yaml", []byte(`agents:
- name: a
  url: http://a
  breaker:
    failure_threshold: 0
    failure_rate_threshold: 1.5
    minimum_calls: -1
    timeout: 500ms
    half_open_max_calls: 101
    window_size_seconds: 4000
    on_open: maybe
    rate: 1
- {name: b, url: http://b, breaker: {timeout: 1s, timeout_seconds: 1, enabled: yes please}}
- {name: c, url: http://c, breaker: on}
`))
	var got []string
	for _, p := range problems {
		got = append(got, p.Path+" "+p.String())
	}
	want := []string{
		"agents[0].breaker.failure_threshold a.yaml:5:24: value: must be 1 to 1000 calls",
		"agents[0].breaker.failure_rate_threshold a.yaml:6:29: value: must be more than 0 and at most 1",
		"agents[0].breaker.minimum_calls a.yaml:7:20: value: must be 0 (failure_threshold) to 100000 calls",
		"agents[0].breaker.timeout a.yaml:8:14: value: must be 1 s to 1 h, in whole milliseconds",
		"agents[0].breaker.half_open_max_calls a.yaml:9:26: value: must be 1 to 100 calls",
		"agents[0].breaker.window_size_seconds a.yaml:10:26: value: must be 1 s to 1 h, in whole milliseconds",
		"agents[0].breaker.on_open a.yaml:11:14: value: must be one of wait, fail",
		"agents[0].breaker.rate a.yaml:12:5: unknown_member:",
		"agents[1].breaker.timeout_seconds a.yaml:13:68: duplicate_key: timeout_seconds says the same as timeout; give one of them",
		"agents[1].breaker.enabled a.yaml:13:80: type:",
		"agents[2].breaker a.yaml:14:37: type:",
	}
	for _, w := range want {
		found := false
		for _, g := range got {
			found = found || strings.HasPrefix(g, w)
		}
		if !found {
			t.Errorf("not found: %s", w)
		}
	}
	if len(got) != len(want) || t.Failed() {
		t.Errorf("%d problems:\n%s", len(got), strings.Join(got, "\n"))
	}
	faulty := parley.DefaultBreaker()
	faulty.HalfOpenCalls = 0
	if err := registry.CheckBreaker(faulty); parley.CodeOf(err) != parley.CodeInvalid {
		t.Errorf("%v", err)
	}
	if err := registry.CheckBreaker(parley.DefaultBreaker()); err != nil {
		t.Error(err)
	}
}

// TestBreakerRecord: adding stores a breaker, a change without one keeps it, the
// zero value removes it.
func TestBreakerRecord(t *testing.T) {
	f := newFixture(t)
	s := spec("writer")
	s.Breaker = new(parley.DefaultBreaker())
	if a := f.mustAdd(t, s); a.Breaker == nil || *a.Breaker != parley.DefaultBreaker() {
		t.Errorf("%+v", a.Breaker)
	}
	for _, step := range []struct {
		change *parley.Breaker
		want   *parley.Breaker
		code   parley.Code
	}{
		{nil, new(parley.DefaultBreaker()), ""},
		{&parley.Breaker{Enabled: true}, nil, parley.CodeInvalid},
		{&parley.Breaker{}, nil, ""},
	} {
		a, err := f.Update(t.Context(), "writer", parley.AgentSpec{Breaker: step.change})
		if code := parley.CodeOf(err); code != step.code {
			t.Errorf("%+v: %v", step.change, err)
		}
		if diff := cmp.Diff(step.want, a.Breaker); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", step.change, diff)
		}
	}
}
