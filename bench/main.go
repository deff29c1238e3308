// Command bench measures Parley beside the floor: the least that the same work
// costs without any engine. Both run in one process, interleaved, so that the
// machine's mood meets both alike.
//
//	go run . [-only NAME] [-quick]
//
// It prints a table and writes results/NAME.json. Medians over the rounds; the
// spread is the distance between the slowest and the fastest round.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
)

func main() {
	only := flag.String("only", "", "run one benchmark: workflows")
	quick := flag.Bool("quick", false, "fewer rounds and runs: under a minute")
	results := flag.String("results", "results", "folder of the records")
	profile := flag.String("cpuprofile", "", "write a CPU profile of Parley's rounds to this file")
	flag.Parse()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // as the command does
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, options{only: *only, quick: *quick, results: *results, profile: *profile}); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	only, results, profile string
	quick                  bool
}

func run(ctx context.Context, o options) error {
	if o.only != "" && o.only != "workflows" {
		return fmt.Errorf("no benchmark %q; there is: workflows", o.only)
	}
	rows, err := workflows(ctx, o)
	if err != nil {
		return err
	}
	r := newRecord("workflows", rows)
	r.print(os.Stdout)
	return r.write(o.results)
}
