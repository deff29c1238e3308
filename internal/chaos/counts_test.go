package chaos_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// The counters that are compared with what remains.
const (
	eventsCounter = "parley_run_events_total"
	callsCounter  = "agent_protocol_requests_total"
)

// counts are values of counters by their first label: the type of an event, the
// name of an agent.
type counts map[string]float64

func (c counts) add(more counts) {
	for series, n := range more {
		c[series] += n
	}
}

// scrape reads the counters of a process as they are now.
func (p *process) scrape(ctx context.Context) (counts, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url()+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %w", p.spec.Name, resp.Status, err)
	}
	got := counts{}
	for line := range strings.Lines(string(text)) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, labels, ok := strings.Cut(series, "{")
		if !ok || name != eventsCounter && name != callsCounter {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, err
		}
		_, label, _ := strings.Cut(labels, `="`)
		label, _, _ = strings.Cut(label, `"`)
		got[label] += n
	}
	return got, nil
}

// watchCounts keeps the newest counters of one life of a process, until it is over:
// what is killed cannot be asked any more.
func (p *process) watchCounts(life context.Context) {
	last := counts{}
	for tick := time.NewTicker(time.Second); ; {
		select {
		case <-tick.C:
		case <-life.Done():
			tick.Stop()
			p.mu.Lock()
			p.counted.add(last)
			p.mu.Unlock()
			return
		}
		if now, err := p.scrape(life); err == nil {
			last = now
		}
	}
}

// countersNow are the sums over the processes that run.
func (c *cluster) countersNow() (sum counts, err error) {
	sum = counts{}
	for _, p := range c.processes() {
		one, err := p.scrape(c.t.Context())
		if err != nil {
			return nil, err
		}
		sum.add(one)
	}
	return sum, nil
}

// countsOf are what the counters would be if nobody had been killed, and no answer
// of the database lost.
func countsOf(e evidence) counts {
	want := counts{}
	for _, r := range e.runs {
		for _, event := range r.events {
			want[string(event.Type)]++
		}
	}
	return want
}

// unsynced are the events of progress: nobody waits for their commits, and those
// that were written last before a failover are counted and lost.
func unsynced(typ string) bool {
	switch parley.EventType(typ) {
	case parley.EventStepAccepted, parley.EventStepProgress, parley.EventStepChunk:
		return true
	default:
		return false
	}
}

// judgeCounts: nothing is counted twice, and what was counted last before a
// process died is most of it.
func judgeCounts(e evidence, report func(string, ...any)) {
	if e.counted == nil {
		return
	}
	want := countsOf(e)
	for _, typ := range slices.Sorted(maps.Keys(want)) {
		if got := e.counted[typ]; got > want[typ] && !unsynced(typ) {
			report("%.0f events %s are counted, there are %.0f", got, typ, want[typ])
		}
	}
	ends := string(parley.EventRunCompleted)
	if e.counted[ends] < want[ends]/2 {
		report("of %.0f events %s only %.0f are counted", want[ends], ends, e.counted[ends])
	}
}

// TestJudgeCounts plants what the counters must not say.
func TestJudgeCounts(t *testing.T) {
	t.Parallel()
	for want, counted := range map[string]counts{
		"": {"run.started": 1, "run.completed": 1},
		"2 events run.completed are counted, there are 1": {"run.completed": 2},
		"of 1 events run.completed only 0 are counted":    {"run.started": 1},
	} {
		e := sound()
		e.counted = counted
		var wrong []string
		judgeCounts(e, func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) })
		if got := strings.Join(wrong, "; "); got != want {
			t.Errorf("%v: %q, want %q", counted, got, want)
		}
	}
}
