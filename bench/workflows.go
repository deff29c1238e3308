package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/server"
)

const (
	throughputRuns   = 2_000
	throughputAtOnce = 100
	aloneRuns        = 500
	slowRuns         = 1_000
	slowAnswer       = 2 * time.Second
)

// place is where the product keeps its runs, and the least that the same
// writes cost there.
type place struct {
	// floor is made once.
	floor func(ctx context.Context, dir string) (*floor, error)
	// configure says what the product uses there; nil is SQLite. It may start
	// other processes, which end with its stop.
	configure func(ctx context.Context, dir string, cfg *server.Config) (others []*child, err error)
	close     func() error
}

// onSQLite is one machine's place.
func onSQLite() place { return place{floor: sqliteFloor} }

// workflows measures three-step runs: many at once, one alone, and a thousand
// at once with agents that take two seconds.
func workflows(ctx context.Context, o options) ([]row, error) {
	b, err := newWorkflowsBench(ctx, onSQLite())
	if err != nil {
		return nil, err
	}
	defer b.close()
	if o.profile != "" {
		return nil, b.profile(ctx, o.profile)
	}
	rows, err := b.throughput(ctx, rounds(o), 0.6)
	if err != nil {
		return nil, err
	}
	var alone, floorAlone []float64
	for range rounds(o) {
		f, p, err := b.both(ctx, aloneRuns, 1)
		if err != nil {
			return nil, err
		}
		floorAlone, alone = append(floorAlone, ms(percentile(f.took, 0.5))), append(alone, ms(percentile(p.took, 0.5)))
	}
	rows = append(rows, bounded(compare(row{
		Case: "3 steps, alone", Metric: "latency p50", Unit: "ms", Bar: "≤ 1.5× floor",
	}, alone, floorAlone), 1.5))
	slow, err := b.slow(ctx)
	return append(rows, slow...), err
}

func rounds(o options) int {
	if o.quick {
		return 3
	}
	return 5
}

// throughput measures many runs at once; least is the share of the floor that
// the product has to reach.
func (b *workflowsBench) throughput(ctx context.Context, rounds int, least float64) ([]row, error) {
	var rate, cpu, floorRate, floorCPU []float64
	for range rounds {
		f, p, err := b.both(ctx, throughputRuns, throughputAtOnce)
		if err != nil {
			return nil, err
		}
		floorRate, floorCPU = append(floorRate, f.rate()), append(floorCPU, f.cpuEach())
		rate, cpu = append(rate, p.rate()), append(cpu, p.cpuEach())
	}
	const name = "3 steps, 100 at once"
	rows := []row{
		compare(row{Case: name, Metric: "throughput", Unit: "wf/s", Bar: fmt.Sprintf("≥ %.2g× floor", least)}, rate, floorRate),
		bounded(compare(row{Case: name, Metric: "CPU per workflow", Unit: "ms", Bar: "≤ 2.5× floor"}, cpu, floorCPU), 2.5),
	}
	rows[0].Holds = rows[0].Ratio >= least
	return rows, nil
}

func compare(r row, values, floors []float64) row {
	r.Value, r.Spread = median(values)
	r.Floor, _ = median(floors)
	r.Ratio = r.Value / r.Floor
	return r
}

// workflowsBench holds the agents, the floor and the product.
type workflowsBench struct {
	dir    string
	agents *http.Server
	urls   []string
	delay  atomic.Int64
	place  place
	floor  *floor
	server *server.Server
	others []*child
	stop   context.CancelFunc
	ended  chan error
	serial atomic.Int64
}

func newWorkflowsBench(ctx context.Context, at place) (b *workflowsBench, err error) {
	b = &workflowsBench{place: at, ended: make(chan error, 1)}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	// The folder is on a real disk: a sync to memory would cost nothing.
	if b.dir, err = os.MkdirTemp(".", ".bench-"); err != nil {
		return b, err
	}
	if err := b.serveAgents(); err != nil {
		return b, err
	}
	if b.floor, err = at.floor(ctx, b.dir); err != nil {
		return b, err
	}
	if err := b.startProduct(ctx); err != nil {
		return b, err
	}
	// One round of each warms caches, pools and connections up.
	_, _, err = b.both(ctx, throughputRuns/4, throughputAtOnce)
	return b, err
}

// serveAgents starts the agents that both sides call: Simple A2A, answering as
// fast as HTTP allows, or after the set delay.
func (b *workflowsBench) serveAgents() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, max(0, r.ContentLength))
		if _, err := readFull(r, body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if d := time.Duration(b.delay.Load()); d > 0 {
			time.Sleep(d)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(append([]byte(`{"task_id":"`), taskID(body)...), `","status":"success","output":{"text":"done"},"error":null}`...))
	})
	b.agents = &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	for _, name := range []string{"one", "two", "three"} {
		b.urls = append(b.urls, "http://"+l.Addr().String()+"/"+name)
	}
	go func() { _ = b.agents.Serve(l) }()
	return nil
}

const document = `name: bench
steps:
  - {id: one, agent: one, input: {text: "${workflow.input.text}"}}
  - {id: two, agent: two, input: {text: "${one.output.text}"}}
  - {id: three, agent: three, input: {text: "${two.output.text}"}}
output: {text: "${three.output.text}"}
`

func (b *workflowsBench) startProduct(ctx context.Context) error {
	var agents strings.Builder
	agents.WriteString("agents:\n")
	for i, name := range []string{"one", "two", "three"} {
		fmt.Fprintf(&agents, "  - {name: %s, url: %q, protocol: simple-a2a}\n", name, b.urls[i])
	}
	file := filepath.Join(b.dir, "agents.yaml")
	if err := os.WriteFile(file, []byte(agents.String()), 0o600); err != nil {
		return err
	}
	flows := filepath.Join(b.dir, "workflows")
	if err := os.MkdirAll(flows, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(flows, "bench.yaml"), []byte(document), 0o600); err != nil {
		return err
	}
	cfg := server.Config{
		Data: filepath.Join(b.dir, "data"), Listen: "127.0.0.1:0", AgentFiles: []string{file},
		WorkflowDirs: []string{flows}, EgressAllow: []string{"127.0.0.0/8"},
	}
	var err error
	if b.place.configure != nil {
		if b.others, err = b.place.configure(ctx, b.dir, &cfg); err != nil {
			return err
		}
	}
	if b.server, err = server.New(ctx, cfg); err != nil {
		return err
	}
	run, stop := context.WithCancel(ctx)
	b.stop = stop
	go func() { b.ended <- b.server.Run(run) }()
	return nil
}

func (b *workflowsBench) close() {
	if b.stop != nil {
		b.stop()
		if err := <-b.ended; err != nil {
			fmt.Fprintln(os.Stderr, "bench: server:", err)
		}
	}
	for _, c := range b.others {
		c.stop()
	}
	if b.floor != nil {
		_ = b.floor.end()
	}
	if b.place.close != nil {
		if err := b.place.close(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	}
	if b.agents != nil {
		_ = b.agents.Close()
	}
	_ = os.RemoveAll(b.dir)
}

// measured is one round of one side.
type measured struct {
	n    int
	wall time.Duration
	cpu  time.Duration
	took []time.Duration
}

func (m measured) rate() float64    { return float64(m.n) / m.wall.Seconds() }
func (m measured) cpuEach() float64 { return ms(m.cpu) / float64(m.n) }

func (b *workflowsBench) both(ctx context.Context, n, atOnce int) (f, p measured, err error) {
	if f, err = b.measure(n, atOnce, b.floorRun(ctx)); err != nil {
		return f, p, fmt.Errorf("floor: %w", err)
	}
	if p, err = b.measure(n, atOnce, b.productRun(ctx)); err != nil {
		return f, p, fmt.Errorf("parley: %w", err)
	}
	return f, p, nil
}

// profile writes a CPU profile of the product under load.
func (b *workflowsBench) profile(ctx context.Context, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return errors.Join(err, f.Close())
	}
	commits := b.server.SyncedCommits()
	m, err := b.measure(5*throughputRuns, throughputAtOnce, b.productRun(ctx))
	pprof.StopCPUProfile()
	fmt.Printf("%.0f wf/s, %.4f ms CPU each, %.1f writes per commit\n",
		m.rate(), m.cpuEach(), 4*float64(m.n)/float64(b.server.SyncedCommits()-commits))
	return errors.Join(err, f.Close())
}

func (b *workflowsBench) floorRun(ctx context.Context) func() error {
	return func() error { return b.floor.run(ctx, strconv.FormatInt(b.serial.Add(1), 10), b.urls) }
}

func (b *workflowsBench) productRun(ctx context.Context) func() error {
	input := []byte(`{"text":"hello"}`)
	x := b.server.Executor()
	return func() error {
		run, _, err := x.Start(ctx, parley.StartRequest{Workflow: "bench", Input: input})
		if err != nil {
			return err
		}
		status, err := x.Wait(ctx, run.ID)
		if err == nil && status != parley.RunCompleted {
			err = fmt.Errorf("run %s is %s", run.ID, status)
		}
		return err
	}
}

// measure runs one n times, so many at once.
func (b *workflowsBench) measure(n, atOnce int, one func() error) (measured, error) {
	m := measured{n: n, took: make([]time.Duration, n)}
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, atOnce)
	cpu, begin := cpuTime(), time.Now()
	for w := range atOnce {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				at := time.Now()
				if errs[w] = one(); errs[w] != nil {
					return
				}
				m.took[i] = time.Since(at)
			}
		})
	}
	wg.Wait()
	m.wall, m.cpu = time.Since(begin), cpuTime()-cpu
	return m, errors.Join(errs...)
}

// slow measures the tail when a thousand runs wait for slow agents at once.
func (b *workflowsBench) slow(ctx context.Context) ([]row, error) {
	b.delay.Store(int64(slowAnswer))
	defer b.delay.Store(0)
	f, p, err := b.both(ctx, slowRuns, slowRuns)
	if err != nil {
		return nil, err
	}
	r := row{
		Case: "1,000 at once, 2 s agents", Metric: "latency p99", Unit: "s", Bar: "≤ 6.4 s",
		Value: percentile(p.took, 0.99).Seconds(), Floor: percentile(f.took, 0.99).Seconds(),
	}
	r.Ratio, r.Holds = r.Value/r.Floor, r.Value <= 6.4
	return []row{r}, nil
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
