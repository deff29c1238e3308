package jsonrpcbench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Options say what is run.
type Options struct {
	// Quick means three short rounds in place of five long ones: under a
	// minute for everything.
	Quick bool
	// Cases are the names of the cases to run, separated by commas; all if it
	// is empty.
	Cases string
	// CPUProfile and MemProfile name files for profiles of Parley's passes, to
	// which the name of the case is added; with either of them nobody else
	// runs. MemProfile is for one case.
	CPUProfile, MemProfile string
	// Progress is told which case is running.
	Progress io.Writer
}

func (o Options) rounds() int {
	if o.Quick {
		return 3
	}
	return 5
}

func (o Options) duration() time.Duration {
	if o.Quick {
		return 50 * time.Millisecond
	}
	return 200 * time.Millisecond
}

func (o Options) wants(name string) bool {
	return o.Cases == "" || slices.Contains(strings.Split(o.Cases, ","), name)
}

// Names are the names of all cases.
func Names() []string {
	var names []string
	for _, c := range cases() {
		names = append(names, c.name)
	}
	return append(names, parseCase, scalingCase)
}

// Run measures the cases. The result of a profiled run is empty.
func Run(ctx context.Context, o Options) (*Report, error) {
	for name := range strings.SplitSeq(o.Cases, ",") {
		if name != "" && !slices.Contains(Names(), name) {
			return nil, fmt.Errorf("no case %q; there are: %s", name, strings.Join(Names(), ", "))
		}
	}
	if o.MemProfile != "" && (o.Cases == "" || strings.Contains(o.Cases, ",")) {
		return nil, errors.New("a profile of allocations is of one case: name it")
	}
	r := new(Report)
	for _, c := range cases() {
		if !o.wants(c.name) {
			continue
		}
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		fmt.Fprintf(o.Progress, "%s …\n", c.title)
		if o.CPUProfile != "" || o.MemProfile != "" {
			if err := o.profile(ctx, c); err != nil {
				return nil, err
			}
			continue
		}
		m, err := o.match(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		r.add(m)
	}
	if o.CPUProfile != "" || o.MemProfile != "" {
		return r, nil
	}
	return r, o.special(ctx, r)
}

// special runs the cases that are not matches of entrants.
func (o Options) special(ctx context.Context, r *Report) error {
	if o.wants(scalingCase) {
		fmt.Fprintln(o.Progress, "scaling …")
		if err := o.scaling(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", scalingCase, err)
		}
	}
	if o.wants(parseCase) {
		fmt.Fprintln(o.Progress, "parse …")
		if err := o.parse(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", parseCase, err)
		}
	}
	return nil
}

// result is what one entrant did in all rounds.
type result struct {
	entrant
	passes []pass
}

// result of the entrants of one case.
type matchResult struct {
	match
	results []*result
}

// match runs the rounds of one case, everyone in turn in each of them.
func (o Options) match(ctx context.Context, c match) (m *matchResult, err error) {
	m = &matchResult{match: c}
	var runners []*runner
	defer func() {
		for i, u := range runners {
			if e := u.remote.close(); e != nil {
				err = errors.Join(err, fmt.Errorf("%s: close: %w", m.results[i].name, e))
			}
		}
	}()
	for _, e := range c.entrants {
		if o.Quick && e.slow && !c.main || e.single && c.load.workers > 1 && !c.main {
			continue
		}
		u, err := open(ctx, e, c.load)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
		if u == nil {
			continue
		}
		runners, m.results = append(runners, u), append(m.results, &result{entrant: e})
	}
	for round := range o.rounds() {
		for i := range runners {
			i = (i + round) % len(runners) // nobody always follows the same one
			p, err := runners[i].measure(o.duration(), c.timed())
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.results[i].name, err)
			}
			m.results[i].passes = append(m.results[i].passes, p)
		}
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// open connects an entrant; it returns nil if the load is none of its trades.
func open(ctx context.Context, e entrant, l load) (*runner, error) {
	r, err := e.open(ctx, l)
	if err != nil {
		return nil, err
	}
	if !l.can(r) {
		return nil, r.close()
	}
	u, err := newRunner(ctx, l, r)
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	return u, nil
}

// timed says whether latencies make sense: a notification has none.
func (c match) timed() bool { return c.load.kind != notify }
