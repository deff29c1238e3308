package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// The bars of the language.
const (
	applyBar     = 20.0  // µs for a fact, whatever the length of the history
	applyGrowth  = 1.5   // × from 100 executions to 5,000
	parallelBar  = 2.0   // × the cost of a task of a sequence
	parseBar     = 10.0  // ms for 200 steps
	largeBar     = 64.0  // MiB for 10,000 executions
	replayBar    = 200.0 // ms to load them
	bombTimeBar  = 50.0  // ms
	bombBytesBar = 32.0  // MiB, all that is allocated on the way
)

// languageBench measures the pure core: parsing and checking, deciding, replaying,
// and what bombs cost. The measured code is BenchmarkLanguage of the core's own
// tests, in one process for each round.
func languageBench(ctx context.Context, o options) ([]row, error) {
	dir, err := os.MkdirTemp(".", ".bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary, err := buildCoreTests(ctx, dir)
	if err != nil {
		return nil, err
	}
	rounds, length := 5, "300ms"
	if o.quick {
		rounds, length = 3, "50ms"
	}
	f := languageFigures{}
	for range rounds {
		if err := f.round(ctx, binary, length, o.profile); err != nil {
			return nil, err
		}
	}
	return f.rows()
}

func buildCoreTests(ctx context.Context, dir string) (string, error) {
	binary, err := filepath.Abs(filepath.Join(dir, "workflow.test"))
	if err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, "./internal/workflow")
	build.Dir = ".." // the module of the product, not that of the benchmarks
	build.Env, build.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	return binary, build.Run()
}

// languageFigures holds the values of all rounds by "case unit".
type languageFigures map[string][]float64

// round runs every case once, in a process of its own.
func (f languageFigures) round(ctx context.Context, binary, length, profile string) error {
	args := []string{"-test.run", "^$", "-test.bench", "^BenchmarkLanguage$", "-test.benchtime", length, "-test.timeout", "10m"}
	if profile != "" {
		args = append(args, "-test.cpuprofile", profile)
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env, cmd.Stderr = os.Environ(), os.Stderr
	if os.Getenv("GOGC") == "" {
		cmd.Env = append(cmd.Env, "GOGC=400") // as a server whose memory is not short
	}
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		f.line(lines.Text())
	}
	return nil
}

// line takes one line of results: a name, a count, then values with their units.
func (f languageFigures) line(text string) {
	fields := strings.Fields(text)
	if len(fields) < 4 {
		return
	}
	name, ok := strings.CutPrefix(fields[0], "BenchmarkLanguage/")
	if !ok {
		return
	}
	name = strings.TrimSuffix(name, fmt.Sprintf("-%d", runtime.GOMAXPROCS(0)))
	for i := 2; i+1 < len(fields); i += 2 {
		if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
			key := name + " " + fields[i+1]
			f[key] = append(f[key], v)
		}
	}
}

// values gives those of a case, in a unit of so many of what was measured.
func (f languageFigures) values(key string, unit float64) []float64 {
	scaled := slices.Clone(f[key])
	for i := range scaled {
		scaled[i] /= unit
	}
	return scaled
}

// under is a row that holds if its median is not over the bar.
func (f languageFigures) under(r row, key string, unit, bar float64) row {
	r.Value, r.Spread = median(f.values(key, unit))
	r.Bar, r.Holds = fmt.Sprintf("≤ %g %s", bar, r.Unit), r.Value <= bar
	return r
}

// times is a row that holds if its median is at most so many times that of another.
func (f languageFigures) times(r row, key, base string, bar float64) row {
	r = compare(r, f.values(key, 1e3), f.values(base, 1e3))
	r.Bar, r.Holds = fmt.Sprintf("≤ %g×", bar), r.Ratio <= bar
	return r
}

func (f languageFigures) rows() ([]row, error) {
	var rows []row
	for _, c := range []struct{ name, key string }{
		{"a list of 100 calls", "apply/sequence/100"},
		{"a list of 1,000 calls", "apply/sequence/1000"},
		{"a list of 5,000 calls", "apply/sequence/5000"},
		{"1,000 calls side by side", "apply/parallel/1000"},
	} {
		rows = append(rows, f.under(row{Case: c.name, Metric: "Apply, for each fact", Unit: "µs"}, c.key+" ns/fact", 1e3, applyBar))
	}
	rows = append(rows,
		f.times(row{Case: "5,000 calls beside 100", Metric: "Apply, for each fact", Unit: "µs"},
			"apply/sequence/5000 ns/fact", "apply/sequence/100 ns/fact", applyGrowth),
		f.times(row{Case: "1,000 side by side beside 1,000 in a list", Metric: "Apply, for each task", Unit: "µs"},
			"apply/parallel/1000 ns/task", "apply/sequence/1000 ns/task", parallelBar),
		f.under(row{Case: "a list of 5,000 calls, half way", Metric: "next timer", Unit: "µs"}, "due/sequence/5000 ns/op", 1e3, applyBar),
	)
	for _, form := range []string{"YAML", "JSON"} {
		r := f.under(row{Case: "200 steps in " + form, Metric: "parse and check", Unit: "ms"}, "parse/"+strings.ToLower(form)+" ns/op", 1e6, parseBar)
		r.Floor, _ = median(f.values("parse/floor ns/op", 1e6)) // to read the YAML alone
		r.Ratio = r.Value / r.Floor
		rows = append(rows, r)
	}
	rows = append(rows,
		f.under(row{Case: "a run of 10,000 executions", Metric: "memory", Unit: "MiB"}, "large/memory MiB", 1, largeBar),
		f.under(row{Case: "a run of 10,000 executions", Metric: "load of its history", Unit: "ms"}, "large/replay ns/op", 1e6, replayBar),
	)
	rows = append(rows, f.bombs()...)
	for _, r := range rows {
		if r.Value == 0 {
			return nil, fmt.Errorf("nothing was measured of %q", r.Case)
		}
	}
	return rows, nil
}

// bombs gives two rows for each bomb.
func (f languageFigures) bombs() []row {
	var rows []row
	for _, key := range slices.Sorted(maps.Keys(f)) {
		name, ok := strings.CutSuffix(key, " ns/op")
		if !ok || !strings.HasPrefix(name, "bomb/") {
			continue
		}
		name = strings.TrimPrefix(name, "bomb/")
		said := "bomb: " + strings.ReplaceAll(name, "-", " ")
		rows = append(rows,
			f.under(row{Case: said, Metric: "time to the error", Unit: "ms"}, key, 1e6, bombTimeBar),
			f.under(row{Case: said, Metric: "allocated in all", Unit: "MiB"}, "bomb/"+name+" B/op", 1<<20, bombBytesBar))
	}
	return rows
}
