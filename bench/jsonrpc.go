package main

import (
	"context"
	"os"

	"github.com/parley-project/parley/bench/jsonrpcbench"
)

// jsonrpc measures the JSON-RPC library beside other libraries and raw floors.
func jsonrpc(ctx context.Context, o options) ([]row, error) {
	report, err := jsonrpcbench.Run(ctx, jsonrpcbench.Options{
		Quick: o.quick, Cases: o.cases, CPUProfile: o.profile, MemProfile: o.memProfile, Progress: os.Stderr,
	})
	if err != nil {
		return nil, err
	}
	report.Print(os.Stdout)
	return rows(report.Rows), nil
}

func rows(measured []jsonrpcbench.Row) []row {
	all := make([]row, 0, len(measured))
	for _, r := range measured {
		all = append(all, row{
			Case: r.Case, Metric: r.Metric, Unit: r.Unit, Value: r.Value, Floor: r.Floor, Peers: r.Peers,
			Spread: r.Spread, Bar: r.Bar, Ratio: r.Ratio, Holds: r.Holds, best: r.Best,
		})
	}
	return all
}
