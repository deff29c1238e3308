package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// record is what a benchmark leaves behind (interface.md, bench records).
type record struct {
	Bench  string `json:"bench"`
	Commit string `json:"commit"`
	Go     string `json:"go"`
	Cores  int    `json:"cores"`
	When   string `json:"when"`
	Rows   []row  `json:"rows"`
}

// row is one figure beside its floor. Ratio is value ÷ floor; spread is the
// distance between the extreme rounds as a share of the median.
type row struct {
	Case   string             `json:"case"`
	Metric string             `json:"metric"`
	Unit   string             `json:"unit"`
	Value  float64            `json:"value"`
	Floor  float64            `json:"floor,omitempty"`
	Peers  map[string]float64 `json:"peers,omitempty"`
	Spread float64            `json:"spread"`
	Bar    string             `json:"bar"`
	Ratio  float64            `json:"ratio,omitempty"`
	Holds  bool               `json:"holds"`
}

func newRecord(name string, rows []row) record {
	commit, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	return record{
		Bench: name, Commit: strings.TrimSpace(string(commit)), Go: runtime.Version(), Cores: runtime.NumCPU(),
		When: time.Now().UTC().Format(time.RFC3339), Rows: rows,
	}
}

func (r record) print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintf(t, "CASE\tMETRIC\tPARLEY\tFLOOR\tRATIO\tSPREAD\tBAR\tHOLDS\n")
	for _, x := range r.Rows {
		holds := "yes"
		if !x.Holds {
			holds = "NO"
		}
		fmt.Fprintf(t, "%s\t%s\t%.4g %s\t%.4g %s\t%.2f\t±%.0f %%\t%s\t%s\n",
			x.Case, x.Metric, x.Value, x.Unit, x.Floor, x.Unit, x.Ratio, x.Spread*50, x.Bar, holds)
	}
	_ = t.Flush()
	fmt.Fprintf(w, "commit %s, %s, %d cores\n", r.Commit, r.Go, r.Cores)
}

func (r record) write(dir string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, r.Bench+".json"), append(b, '\n'), 0o644)
}

// median of xs, and the spread of the extremes around it.
func median(xs []float64) (mid, spread float64) {
	s := slices.Sorted(slices.Values(xs))
	mid = s[len(s)/2]
	if mid == 0 {
		return 0, 0
	}
	return mid, (s[len(s)-1] - s[0]) / mid
}

func percentile(ds []time.Duration, p float64) time.Duration {
	s := slices.Sorted(slices.Values(ds))
	return s[min(len(s)-1, int(float64(len(s))*p))]
}
