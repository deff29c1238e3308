package jsonrpcbench

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// Row is one figure of Parley beside those of the peers. Ratio is Parley's
// figure divided by the best peer's or the floor's, whichever the bar names.
type Row struct {
	Case   string
	Metric string
	Unit   string
	Value  float64
	Floor  float64
	Peers  map[string]float64
	Spread float64 // distance of the extreme rounds as a share of the median
	Bar    string  // empty if nothing was asked for
	Ratio  float64
	Holds  bool
	Best   string // name of the best peer
}

// Report is the outcome of a run.
type Report struct {
	Rows    []Row
	matches []*matchResult
}

func (r *Report) add(m *matchResult) {
	r.matches = append(r.matches, m)
	r.Rows = append(r.Rows, m.rows()...)
}

// rows judges a case: a row for each bar, one for each other metric, and the
// throughput of each variant.
func (m *matchResult) rows() []Row {
	i := slices.IndexFunc(m.results, func(r *result) bool { return r.role == ours })
	if i < 0 {
		return nil
	}
	var rows []Row
	for _, x := range metrics() {
		if x.timed && !m.timed() {
			continue
		}
		if x.unit == "" {
			x.unit = m.unit
		}
		plain := m.row(m.results[i], x)
		barred := false
		for _, b := range m.bars {
			if b.metric == x.name {
				barred = true
				rows = append(rows, m.judge(plain, b, x))
			}
		}
		if !barred {
			rows = append(rows, plain)
		}
	}
	for _, v := range m.results {
		if v.role == variant {
			row := m.row(v, metrics()[0])
			row.Case, row.Unit = m.title+" ("+v.name+")", m.unit
			rows = append(rows, row)
		}
	}
	return rows
}

func (m *matchResult) row(who *result, x metric) Row {
	r := Row{Case: m.title, Metric: x.name, Unit: x.unit, Peers: make(map[string]float64), Holds: true}
	r.Value, r.Spread = who.median(x)
	for _, e := range m.results {
		v, _ := e.median(x)
		switch e.role {
		case peer:
			r.Peers[e.name] = v
		case floor:
			r.Floor = v
		}
	}
	for name, v := range r.Peers {
		best := r.Peers[r.Best]
		if r.Best == "" || x.least && v < best || !x.least && v > best {
			r.Best = name
		}
	}
	if best := r.Peers[r.Best]; best > 0 {
		r.Ratio = r.Value / best
	}
	return r
}

func (m *matchResult) judge(r Row, b bar, x metric) Row {
	r.Bar = b.text
	if b.scale != 0 {
		r.Value, r.Unit, r.Peers, r.Floor, r.Best = r.Value*b.scale, b.unit, nil, 0, ""
	}
	judged := r.Value
	switch b.against {
	case bestPeer:
		judged = r.Ratio
	case theFloor:
		judged = r.Value / r.Floor
		r.Ratio = judged
	case nobody:
		r.Ratio = judged / b.limit
	}
	r.Holds = judged >= b.limit
	if x.least {
		r.Holds = judged <= b.limit
	}
	return r
}

// median of the rounds, and the distance between the extremes as a share of it.
func (r *result) median(x metric) (mid, spread float64) {
	var all []float64
	for _, p := range r.passes {
		all = append(all, x.value(p))
	}
	return median(all)
}

func median(all []float64) (mid, spread float64) {
	s := slices.Sorted(slices.Values(all))
	mid = s[len(s)/2]
	if mid == 0 {
		return 0, 0
	}
	return mid, (s[len(s)-1] - s[0]) / mid
}

// Print writes a table of everyone for each case.
func (r *Report) Print(w io.Writer) {
	for _, m := range r.matches {
		t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
		fmt.Fprintf(t, "%s: %s\t%s\tSPREAD\tCPU ns\tB\tALLOCS", m.name, m.title, m.unit)
		if m.timed() {
			fmt.Fprint(t, "\tP50 µs\tP99 µs")
		}
		fmt.Fprintln(t)
		for _, e := range m.results {
			for i, x := range metrics() {
				v, spread := e.median(x)
				switch {
				case i == 0:
					fmt.Fprintf(t, "  %s%s\t%s\t±%.0f %%", e.role.mark(), e.name, figure(v), spread*50)
				case !x.timed || m.timed():
					fmt.Fprintf(t, "\t%s", figure(v))
				}
			}
			fmt.Fprintln(t)
		}
		_ = t.Flush()
		fmt.Fprintln(w)
	}
}

func (r role) mark() string {
	switch r {
	case ours:
		return "* "
	case variant:
		return "+ "
	case floor:
		return "floor: "
	}
	return "  "
}

// figure writes three digits, or all of those before the point.
func figure(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2fM", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.0fk", v/1e3)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
