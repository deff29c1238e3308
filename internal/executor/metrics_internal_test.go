package executor

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestRunMetricsAreBounded: beyond so many workflows the others share their series.
func TestRunMetricsAreBounded(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	for i := range maxSeries {
		if got, want := m.workflow(fmt.Sprint(i)), fmt.Sprint(i); got != want {
			t.Fatalf("workflow %s is counted as %s", want, got)
		}
	}
	if got := m.workflow("one more"); got != otherWorkflows {
		t.Errorf("one more is counted as %s", got)
	}
	if got := m.workflow("7"); got != "7" {
		t.Errorf("a known one is counted as %s then", got)
	}
}
