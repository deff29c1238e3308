package registry_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/registry"
)

// TestLimitsFile: every member of limits, in each form.
func TestLimitsFile(t *testing.T) {
	specs, problems := registry.LoadFile("a.yaml", []byte(`agents:
- {name: a, url: http://a, priority: 7, limits: {concurrency: 32, adaptive: false, rate: 10/s, burst: 20, queue: 1000, queue_bytes: 16MiB}}
- {name: b, url: http://b, limits: {rate: 2.5, queue_bytes: 65536}}
- {name: c, url: http://c, limits: {concurrency: 4, adaptive: true, rate: 90/m}}
- {name: d, url: http://d}
`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	type limits struct {
		Concurrency, Priority *int
		Limits                *parley.AgentLimits
	}
	for i, want := range []limits{
		{new(32), new(7), &parley.AgentLimits{Fixed: true, Rate: 10, Burst: 20, Queue: 1000, QueueBytes: 16 << 20}},
		{nil, nil, &parley.AgentLimits{Rate: 2.5, QueueBytes: 1 << 16}},
		{new(4), nil, &parley.AgentLimits{Rate: 1.5}},
		{},
	} {
		s := specs[i]
		if diff := cmp.Diff(want, limits{s.MaxConcurrent, s.Priority, s.Limits}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", *s.Name, diff)
		}
	}
}

// TestLimitsFaults: every fault, where it stands, with the limit that it passes.
func TestLimitsFaults(t *testing.T) {
	_, problems := registry.LoadFile("a.yaml", []byte(`agents:
- name: a
  url: http://a
  priority: 11
  limits:
    concurrency: -1
    rate: 20000
    burst: 100001
    queue: 70000
    queue_bytes: 1KiB
    rat: 1
- {name: b, url: http://b, limits: {rate: fast, burst: many, queue_bytes: 1.5MiB, adaptive: 1}}
- {name: c, url: http://c, limits: {burst: 5}}
- {name: d, url: http://d, limits: {rate: 1/d}}
- {name: e, url: http://e, limits: {rate: -1}, priority: high}
`))
	var got []string
	for _, p := range problems {
		got = append(got, p.Path+" "+p.String())
	}
	want := []string{
		"agents[0].priority a.yaml:4:13: value: must be 1 to 10, or 0 for the default, 5",
		"agents[0].limits.concurrency a.yaml:6:18: value: must be 0 (the server's default) to 10000",
		"agents[0].limits.rate a.yaml:7:11: value: must be 0 (no bound), or 1/h to 10000/s",
		"agents[0].limits.burst a.yaml:8:12: value: must be 0 (a tenth of a second's worth of rate) to 100000 calls",
		"agents[0].limits.queue a.yaml:9:12: value: must be 0 (what the agent does in 2 s) to 65536 tasks",
		"agents[0].limits.queue_bytes a.yaml:10:18: value: must be 0 (16 MiB), or 64KiB to 1GiB",
		"agents[0].limits.rat a.yaml:11:5: unknown_member:",
		"agents[1].limits.rate a.yaml:12:43: type: must be a rate such as 10/s, 90/m or 1000/h, or a number of calls per second",
		"agents[1].limits.burst a.yaml:12:56: type:",
		"agents[1].limits.queue_bytes a.yaml:12:75: type: must be a size such as 512KiB or 16MiB",
		"agents[1].limits.adaptive a.yaml:12:93: type:",
		"agents[2].limits.burst a.yaml:13:44: value: goes with limits.rate: give that, too, or leave burst out",
		"agents[3].limits.rate a.yaml:14:43: type:",
		"agents[4].limits.rate a.yaml:15:43: value:",
		"agents[4].priority a.yaml:15:58: type:",
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
}

// TestLimitsRecord: adding stores limits, a change without them keeps them, the
// zero value sets their defaults.
func TestLimitsRecord(t *testing.T) {
	f := newFixture(t)
	s := spec("writer")
	first := parley.AgentLimits{Rate: 3, Queue: 10}
	s.Limits, s.Priority = &first, new(8)
	if a := f.mustAdd(t, s); a.Limits != first || a.Priority != 8 {
		t.Errorf("%+v, priority %d", a.Limits, a.Priority)
	}
	for _, step := range []struct {
		change *parley.AgentLimits
		want   parley.AgentLimits
		code   parley.Code
	}{
		{nil, first, ""},
		{&parley.AgentLimits{Burst: -1}, parley.AgentLimits{}, parley.CodeInvalid},
		{&parley.AgentLimits{Fixed: true}, parley.AgentLimits{Fixed: true}, ""},
		{&parley.AgentLimits{}, parley.AgentLimits{}, ""},
	} {
		a, err := f.Update(t.Context(), "writer", parley.AgentSpec{Limits: step.change})
		if code := parley.CodeOf(err); code != step.code || a.Limits != step.want {
			t.Errorf("%+v: %+v, %v", step.change, a.Limits, err)
		}
	}
}
