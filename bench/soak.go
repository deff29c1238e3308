package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/parley-project/parley/bench/jsonrpcsoak"
)

// jsonrpcSoak runs the JSON-RPC library for minutes under everything at once
// and judges whether anything grew.
func jsonrpcSoak(ctx context.Context, o options) ([]row, error) {
	d := time.Duration(o.minutes * float64(time.Minute))
	if o.quick {
		d = 30 * time.Second
	}
	report, err := jsonrpcsoak.Run(ctx, d, os.Stderr)
	if err != nil {
		return nil, err
	}
	for text, n := range report.Unexpected {
		fmt.Fprintf(os.Stderr, "  %d × %s\n", n, text)
	}
	if report.Left > 0 {
		fmt.Fprintln(os.Stderr, report.Stacks)
	}
	name := fmt.Sprintf("soak of %v, mixed load and faults", d)
	unexpected := int64(0)
	for _, n := range report.Unexpected {
		unexpected += n
	}
	const mib = 1 << 20
	rows := []row{
		grown(report, row{Metric: "live heap", Unit: "MiB"}, 1, func(s jsonrpcsoak.Sample) float64 { return float64(s.Heap) / mib }),
		grown(report, row{Metric: "goroutines", Unit: "goroutines"}, 10, func(s jsonrpcsoak.Sample) float64 { return float64(s.Goroutines) }),
		grown(report, row{Metric: "descriptors", Unit: "files"}, 10, func(s jsonrpcsoak.Sample) float64 { return float64(s.Descriptors) }),
		grown(report, row{Metric: "resident memory", Unit: "MiB"}, 16, func(s jsonrpcsoak.Sample) float64 { return float64(s.RSS) / mib }),
		counted("operations done", report.Calls, "", true),
		counted("operations failed by injected faults", report.Failed, "", true),
		counted("wrong answers", report.Wrong, "0", report.Wrong == 0),
		counted("unexpected errors", unexpected, "0", unexpected == 0),
		counted("goroutines left at the end", int64(report.Left), "0", report.Left == 0),
	}
	for i := range rows {
		rows[i].Case = name
	}
	if i := slices.IndexFunc(rows, func(r row) bool { return !r.Holds }); i >= 0 {
		fmt.Printf("verdict: NOT flat: %s\n", rows[i].Metric)
	} else {
		fmt.Println("verdict: flat")
	}
	return rows, nil
}

// grown completes the row x: it compares the last fifth of a soak with the second one, the floor.
// Flat is at most a tenth more, or slack where a tenth is less than the noise.
func grown(r *jsonrpcsoak.Report, x row, slack float64, figure func(jsonrpcsoak.Sample) float64) row {
	from, to := r.Growth(figure)
	x.Value, x.Floor = to, from
	x.Bar, x.Holds = fmt.Sprintf("≤ 1.1× early value, or + %g", slack), to <= max(from*1.1, from+slack)
	if from > 0 {
		x.Ratio = to / from
	}
	return x
}

func counted(metric string, n int64, bar string, holds bool) row {
	return row{Metric: metric, Value: float64(n), Bar: bar, Holds: holds}
}
