// Command bench measures Parley beside the floor: the least that the same work
// costs without any engine. Both run in one process, interleaved, so that the
// machine's mood meets both alike.
//
//	go run . [-only NAME] [-quick] [-case NAME,…] [-minutes N]
//
// It prints a table and writes results/NAME.json. Medians over the rounds; the
// spread is the distance between the slowest and the fastest round. Without
// -only it runs every benchmark but the soak, whose length is -minutes.
// Profiles are of Parley's rounds only; the record is not written then.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/parley-project/parley/internal/server"
)

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "run one benchmark: "+strings.Join(names(), ", "))
	flag.BoolVar(&o.quick, "quick", false, "fewer rounds and runs: under a minute")
	flag.StringVar(&o.results, "results", "results", "folder of the records")
	flag.StringVar(&o.cases, "case", "", "cases of jsonrpc to run, separated by commas, or the part of isolation: kafka, sqlite, backlog")
	flag.Float64Var(&o.minutes, "minutes", 10, "length of the soak")
	flag.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile of Parley's rounds to this file")
	flag.StringVar(&o.memProfile, "memprofile", "", "write a profile of all allocations of Parley's rounds to this file (jsonrpc)")
	flag.Parse()
	if os.Getenv("GOGC") == "" {
		server.TuneGC() // as the command does
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := runPart(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// runPart is the benchmark itself, or the part of one that the environment
// names, in a process of its own.
func runPart(ctx context.Context, o options) error {
	if order := os.Getenv(memoryChild); order != "" {
		return beMeasured(ctx, order)
	}
	if order := os.Getenv(bridgeChild); order != "" {
		return beBridgeFloor(ctx, order)
	}
	if os.Getenv(agentChild) != "" {
		return serveBenchAgents(ctx)
	}
	return run(ctx, o)
}

// options are the flags.
type options struct {
	only, results, cases, profile, memProfile string
	quick                                     bool
	minutes                                   float64
}

// profiled says that profiles are wanted in place of a record.
func (o options) profiled() bool { return o.profile != "" || o.memProfile != "" }

// benchmark makes the rows of a record.
type benchmark struct {
	name  string
	run   func(context.Context, options) ([]row, error)
	asked bool // runs only if it is named
}

func benchmarks() []benchmark {
	return []benchmark{
		{name: "workflows", run: workflows},
		{name: "workflows-postgres", run: workflowsPostgres},
		{name: "workflows-kafka", run: workflowsKafka},
		{name: "jsonrpc", run: jsonrpc},
		{name: "a2a", run: a2aBench},
		{name: "bridge", run: bridgeBench},
		{name: "isolation", run: isolationBench},
		{name: "zone", run: zoneBench},
		{name: "language", run: languageBench},
		{name: "jsonrpc-soak", run: jsonrpcSoak, asked: true},
	}
}

func names() []string {
	var all []string
	for _, b := range benchmarks() {
		all = append(all, b.name)
	}
	return all
}

func run(ctx context.Context, o options) error {
	if o.only != "" && !slices.Contains(names(), o.only) {
		return fmt.Errorf("no benchmark %q; there are: %s", o.only, strings.Join(names(), ", "))
	}
	for _, b := range benchmarks() {
		if o.only != b.name && (o.only != "" || b.asked) {
			continue
		}
		rows, err := b.run(ctx, o)
		if err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		if o.profiled() {
			continue
		}
		r := newRecord(b.name, rows)
		r.print(os.Stdout)
		if o.cases != "" {
			continue // a part of the cases is no record
		}
		if err := r.write(o.results); err != nil {
			return err
		}
	}
	return nil
}
