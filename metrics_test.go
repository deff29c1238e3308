package parley_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	// metricName finds what a collector is called, and where the beginning of its
	// name is shared by several, prefix finds that and inner the rest.
	metricName = regexp.MustCompile(`(?:Name: |NewDesc\(|counter\(|count\()"((?:parley|agent|protocol)_[a-z_]+[a-z])",(?: Help|\s+"| ")`)
	prefix     = regexp.MustCompile(`Name: "(parley_[a-z]+_)" \+ name`)
	inner      = regexp.MustCompile(`counter\("([a-z_]+)"`)
)

// TestMetricsAreDocumented: each metric stands in the pages for operators, and none
// stands there that is not measured.
func TestMetricsAreDocumented(t *testing.T) {
	measured := map[string]bool{}
	goFiles(t, func(file string, src []byte) {
		if strings.HasSuffix(file, "_test.go") || !strings.HasPrefix(file, "internal/") {
			return
		}
		for _, m := range metricName.FindAllSubmatch(src, -1) {
			measured[string(m[1])] = true
		}
		if p := prefix.FindSubmatch(src); p != nil {
			for _, m := range inner.FindAllSubmatch(src, -1) {
				measured[string(p[1])+string(m[1])] = true
			}
		}
	})
	if len(measured) < 40 {
		t.Errorf("only %d metrics are found", len(measured))
	}
	var pages strings.Builder
	for _, page := range []string{"docs/operations.md", "docs/zones.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		pages.Write(text)
	}
	told := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?:parley|agent|protocol)_[a-z_]+(?:_total|_seconds|_bytes|_lag|_open|_up|_waiting|_in_flight|_limit|_circuit)\b`).FindAllString(pages.String(), -1) {
		told[m] = true
	}
	for name := range measured {
		if !told[name] {
			t.Errorf("no page tells of %s", name)
		}
	}
	for name := range told {
		if !measured[name] {
			t.Errorf("the pages tell of %s, which nobody measures", name)
		}
	}
}
