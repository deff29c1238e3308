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

// row is one figure beside its floor or the peers. Ratio is value ÷ floor, or
// value ÷ best peer where the bar names it; spread is the distance between the
// extreme rounds as a share of the median. A row without a bar is information,
// and holds.
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
	best   string             // name of the best peer, for people
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

// print writes the table of rows, with a column for the peers if there are any.
func (r record) print(w io.Writer) {
	peers := slices.ContainsFunc(r.Rows, func(x row) bool { return x.best != "" })
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprint(t, "CASE\tMETRIC\tPARLEY\tFLOOR\t")
	if peers {
		fmt.Fprint(t, "BEST PEER\t")
	}
	fmt.Fprint(t, "RATIO\tSPREAD\tBAR\tHOLDS\n")
	missed := 0
	for _, x := range r.Rows {
		holds, floor := "yes", "–"
		switch {
		case x.Bar == "":
			x.Bar, holds = "–", "–"
		case !x.Holds:
			holds = "NO"
			missed++
		}
		if x.Floor != 0 {
			floor = fmt.Sprintf("%.4g %s", x.Floor, x.Unit)
		}
		fmt.Fprintf(t, "%s\t%s\t%.4g %s\t%s\t", x.Case, x.Metric, x.Value, x.Unit, floor)
		if peers {
			best := "–"
			if x.best != "" {
				best = fmt.Sprintf("%.4g %s", x.Peers[x.best], x.best)
			}
			fmt.Fprintf(t, "%s\t", best)
		}
		fmt.Fprintf(t, "%.2f\t±%.0f %%\t%s\t%s\n", x.Ratio, x.Spread*50, x.Bar, holds)
	}
	_ = t.Flush()
	fmt.Fprintf(w, "commit %s, %s, %d cores, %d of %d rows miss their bar\n", r.Commit, r.Go, r.Cores, missed, len(r.Rows))
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
