package jsonrpcbench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
)

// profile runs Parley's passes of a case and nothing else, under the profiles
// that were asked for. The passes are untimed: the clock is not Parley's.
// Allocations are counted since the process began, so that with them the
// variants stay out as well.
func (o Options) profile(ctx context.Context, c match) error {
	if o.MemProfile != "" {
		runtime.MemProfileRate = 1
	}
	for _, e := range c.entrants {
		if e.role != ours && (e.role != variant || o.MemProfile != "") {
			continue
		}
		u, err := open(ctx, e, c.load)
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		if u == nil {
			continue
		}
		suffix := "." + c.name
		if e.role == variant {
			suffix += "." + e.name
		}
		if err := errors.Join(o.profilePasses(u, suffix), u.remote.close()); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return nil
}

// profilePasses writes one profile of all rounds, its file named after the
// case: a process may have one CPU profile at a time.
func (o Options) profilePasses(u *runner, suffix string) (err error) {
	if _, err := u.measure(o.duration(), false); err != nil { // warm up
		return err
	}
	if o.CPUProfile != "" {
		f, err := os.Create(o.CPUProfile + suffix)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	for range o.rounds() {
		p, err := u.measure(o.duration(), false)
		if err != nil {
			return err
		}
		fmt.Fprintf(o.Progress, "  %s: %.0f/s, %.0f ns CPU, %.1f B, %.2f allocs\n",
			suffix[1:], p.rate(), p.each(uint64(p.cpu)), p.each(p.bytes), p.each(p.allocs))
	}
	if o.MemProfile == "" {
		return nil
	}
	f, err := os.Create(o.MemProfile + suffix)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}
