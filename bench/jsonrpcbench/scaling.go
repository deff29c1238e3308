package jsonrpcbench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
)

const scalingCase = "scaling"

// How many calls are in flight on each connection of the scaling case: with few
// the cores wait for each other, since all calls of a connection are at one end
// of it or the other, and not even the floor gains by a second core; many are as
// many as fit Config.WriteBuffer. The bar is for the latter.
const (
	fewInFlight  = 64
	manyInFlight = 384
)

// scaling measures what a second core adds: calls/s over two connections on two
// cores and on one. One core is GOMAXPROCS(1) in the same process, so that the
// rounds can take turns; the kernel's share of the work may still use the other
// core, which helps the single one.
func (o Options) scaling(ctx context.Context, r *Report) error {
	if runtime.NumCPU() < 2 {
		return errors.New("this machine has one core: run it on two")
	}
	for _, workers := range []int{fewInFlight, manyInFlight} {
		if err := o.scale(ctx, r, workers); err != nil {
			return err
		}
	}
	return nil
}

// scale is scaling with that many calls in flight on each connection.
func (o Options) scale(ctx context.Context, r *Report, workers int) error {
	l := load{network: "tcp", kind: call, params: smallParams(), workers: workers}
	title := fmt.Sprintf("two TCP connections, %d in flight each", workers)
	both := &matchResult{match: match{name: scalingCase, title: title + ", 2 cores", unit: "calls/s", load: l}}
	one := &matchResult{match: match{name: scalingCase, title: title + ", 1 core", unit: "calls/s", load: l}}
	var runners []*runner
	defer func() {
		for _, u := range runners {
			_ = u.remote.close()
		}
	}()
	for _, e := range join(parley(), fast(libraries()), coalescedFloor()) {
		if e.single || e.role == variant {
			continue
		}
		u, err := pair(ctx, e, l)
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		runners = append(runners, u)
		both.results = append(both.results, &result{entrant: e})
		one.results = append(one.results, &result{entrant: e})
	}
	for range o.rounds() {
		for i, u := range runners {
			for cores, m := range map[int]*matchResult{1: one, 2: both} {
				p, err := onCores(cores, func() (pass, error) { return u.measure(o.duration(), true) })
				if err != nil {
					return fmt.Errorf("%s: %w", m.results[i].name, err)
				}
				m.results[i].passes = append(m.results[i].passes, p)
			}
		}
	}
	r.matches = append(r.matches, both, one)
	r.Rows = append(r.Rows, scalingRow(title, both, one, workers == manyInFlight)...)
	return nil
}

func onCores(n int, do func() (pass, error)) (pass, error) {
	before := runtime.GOMAXPROCS(n)
	defer runtime.GOMAXPROCS(before)
	return do()
}

// pair connects an entrant twice.
func pair(ctx context.Context, e entrant, l load) (*runner, error) {
	first, err := open(ctx, e, l)
	if err != nil {
		return nil, err
	}
	second, err := open(ctx, e, l)
	if err != nil {
		return nil, errors.Join(err, first.remote.close())
	}
	first.ops = append(first.ops, second.ops...)
	ends := []func() error{first.remote.close, second.remote.close}
	first.remote.close = func() error { return errors.Join(ends[0](), ends[1]()) }
	return first, nil
}

// scalingRow compares the medians of two cores and of one.
func scalingRow(title string, both, one *matchResult, barred bool) []Row {
	const limit = 1.6
	row := Row{Case: title, Metric: "2 cores ÷ 1 core", Unit: "×", Peers: make(map[string]float64), Holds: true}
	if barred {
		row.Bar = "≥ 1.6×"
	}
	found := false
	for i, b := range both.results {
		x := metrics()[0]
		two, spread := b.median(x)
		single, _ := one.results[i].median(x)
		switch b.role {
		case ours:
			found = true
			row.Value, row.Spread = two/single, spread
			if barred {
				row.Ratio, row.Holds = row.Value/limit, row.Value >= limit
			}
		case floor:
			row.Floor = two / single
		default:
			row.Peers[b.name] = two / single
		}
	}
	if !found {
		return nil
	}
	return []Row{row}
}
