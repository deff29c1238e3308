package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const (
	drainTasks  = 60_000
	drainAtOnce = 64
	warmTasks   = 2_000

	crowdTasks  = 20_000
	crowdAtOnce = 5_000
	crowdAgents = 20
)

// bridgeChild is set in the environment of the floor's process.
const bridgeChild = "PARLEY_BENCH_BRIDGE"

// bridgeOrder is what a pipeline is told, the floor's or Parley's.
type bridgeOrder struct {
	Brokers        []string
	Tasks, Results string
	// Agents are URLs by name.
	Agents map[string]string
	AtOnce int
	// Database is the URL of a PostgreSQL database for claims; "" is none.
	Database string `json:",omitempty"`
}

// sides are the pipelines that are measured, in the order of the rounds.
const (
	sideFloor  = "floor"
	sideNone   = "ledger: none"
	sideClaims = "claims"
)

// bridgeBench measures a bridge alone, in a process of its own: tasks from
// Kafka, an agent that answers at once, results to Kafka.
func bridgeBench(ctx context.Context, o options) ([]row, error) {
	b, err := newPipelineBench(ctx)
	if err != nil {
		return nil, err
	}
	defer b.close()
	rounds, tasks, crowd := 5, drainTasks, crowdTasks
	if o.quick {
		rounds, tasks, crowd = 3, drainTasks/6, crowdTasks/2
	}
	cost, rate := map[string][]float64{}, map[string][]float64{}
	for range rounds {
		for _, side := range []string{sideFloor, sideNone, sideClaims} {
			d, err := b.drain(ctx, side, load{tasks: tasks, agents: 1, delay: 0, atOnce: drainAtOnce})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", side, err)
			}
			cost[side] = append(cost[side], float64(d.cpu.Microseconds())/float64(tasks))
			rate[side] = append(rate[side], float64(tasks)/d.took.Seconds())
		}
	}
	drained := fmt.Sprintf("%d tasks, %d in flight, ", tasks, drainAtOnce)
	rows := []row{
		bounded(compare(row{Case: drained + sideNone, Metric: "CPU per task", Unit: "µs", Bar: "≤ 1.3× floor"}, cost[sideNone], cost[sideFloor]), 1.3),
		bounded(compare(row{Case: drained + sideClaims, Metric: "CPU per task", Unit: "µs", Bar: "≤ 2× floor"}, cost[sideClaims], cost[sideFloor]), 2),
		compare(row{Case: drained + sideNone, Metric: "throughput", Unit: "tasks/s"}, rate[sideNone], rate[sideFloor]),
		compare(row{Case: drained + sideClaims, Metric: "throughput", Unit: "tasks/s"}, rate[sideClaims], rate[sideFloor]),
	}
	floor, err := b.drain(ctx, sideFloor, load{tasks: crowd, agents: crowdAgents, delay: time.Second, atOnce: crowdAtOnce})
	if err != nil {
		return nil, fmt.Errorf("floor, 5,000 in flight: %w", err)
	}
	for _, side := range []string{sideNone, sideClaims} {
		d, err := b.drain(ctx, side, load{tasks: crowd, agents: crowdAgents, delay: time.Second, atOnce: crowdAtOnce})
		if err != nil {
			return nil, fmt.Errorf("%s, 5,000 in flight: %w", side, err)
		}
		name := "5,000 in flight, 1 s agents, " + side
		rows = append(rows,
			row{Case: name, Metric: "resident memory at most", Unit: "MiB", Value: d.peak, Floor: floor.peak, Ratio: d.peak / floor.peak, Bar: "≤ 450 MiB", Holds: d.peak <= 450},
			row{Case: name, Metric: "throughput", Unit: "tasks/s", Value: float64(crowd) / d.took.Seconds(), Floor: float64(crowd) / floor.took.Seconds(), Ratio: floor.took.Seconds() / d.took.Seconds(), Holds: true})
	}
	return rows, nil
}

// bounded says whether a row's ratio keeps its bar.
func bounded(r row, most float64) row {
	r.Holds = r.Ratio <= most
	return r
}

// load is what one drain is made of. The agents take delay, the first of them
// takes first if that is set.
type load struct {
	tasks, agents, atOnce int
	delay, first          time.Duration
}

// drained is what one drain has cost the pipeline's process.
type drained struct {
	cpu, took time.Duration
	peak      float64 // MiB
}

// pipelineBench holds what all pipelines share: brokers, agents, the binary.
type pipelineBench struct {
	*workshop
	brokers *brokers
}

func newPipelineBench(ctx context.Context) (*pipelineBench, error) {
	b, err := connectBrokers()
	if err != nil {
		return nil, err
	}
	shop, err := openWorkshop(ctx)
	if err != nil {
		b.close()
		return nil, err
	}
	return &pipelineBench{shop, b}, nil
}

func (b *pipelineBench) close() {
	b.workshop.close()
	b.brokers.close()
}

// drain starts a pipeline, warms it up, gives it tasks and waits for as many
// results.
func (b *pipelineBench) drain(ctx context.Context, side string, l load) (d drained, err error) {
	p, err := b.start(ctx, side, l)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	warm := min(warmTasks, l.tasks/10)
	if err := p.pass(ctx, warm); err != nil {
		return d, err
	}
	before, err := p.child.cpu()
	if err != nil {
		return d, err
	}
	begin := time.Now()
	if err := p.pass(ctx, l.tasks); err != nil {
		return d, err
	}
	d.took = time.Since(begin)
	after, err := p.child.cpu()
	if err != nil {
		return d, err
	}
	d.cpu = after - before
	d.peak, err = p.child.peak()
	return d, err
}

// pipeline is one that runs, with topics of its own.
type pipeline struct {
	bench   *pipelineBench
	order   bridgeOrder
	child   *child
	results *resultReader
	names   []string // of the agents
	passed  int
	drop    func() error
}

func (b *pipelineBench) start(ctx context.Context, side string, l load) (p *pipeline, err error) {
	p = &pipeline{bench: b, drop: func() error { return nil }}
	p.order = bridgeOrder{AtOnce: l.atOnce, Agents: map[string]string{}, Brokers: b.brokers.seeds}
	for i := range l.agents {
		name, delay := fmt.Sprintf("agent%d", i), l.delay
		if i == 0 && l.first > 0 {
			delay = l.first
		}
		p.names = append(p.names, name)
		p.order.Agents[name] = fmt.Sprintf("%s/%d/%s", b.agents.first, i, delay)
	}
	if p.order.Tasks, p.order.Results, err = b.brokers.topics(ctx); err != nil {
		return p, err
	}
	if p.results, err = b.brokers.read(p.order.Results); err != nil {
		return p, err
	}
	defer func() {
		if err != nil {
			p.results.close()
		}
	}()
	if side == sideFloor {
		p.child, err = startSelf(ctx, bridgeChild, p.order)
		return p, err
	}
	if side == sideClaims {
		if p.order.Database, p.drop, err = newDatabase(ctx); err != nil {
			return p, err
		}
	}
	p.child, err = b.startProduct(ctx, p.order)
	return p, err
}

// startProduct starts the bridge role of Parley.
func (b *pipelineBench) startProduct(ctx context.Context, order bridgeOrder) (*child, error) {
	dir, err := os.MkdirTemp(b.dir, "serve-")
	if err != nil {
		return nil, err
	}
	type object = map[string]any
	var agents []object
	for name, url := range order.Agents {
		agents = append(agents, object{
			"name": name, "url": url, "protocol": "simple-a2a", "timeout": "60s",
			"limits": object{"concurrency": order.AtOnce/len(order.Agents) + 1},
		})
	}
	config := object{
		"listen": "127.0.0.1:0", "data": dir, "roles": []string{"bridge"}, "agents": agents,
		"bus": object{"kind": "kafka", "kafka": object{
			"brokers": order.Brokers, "topics": object{"tasks": order.Tasks, "results": order.Results},
		}},
		"bridge": object{"ledger": "none"}, "egress": object{"allow": []string{"127.0.0.0/8"}}, "log": object{"level": "warn"},
	}
	if order.Database != "" {
		config["bridge"] = object{"ledger": "store"}
		config["database"] = object{"url": order.Database, "migrate": "auto"}
	}
	text, err := json.Marshal(config) // which is YAML, too
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "parley.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	create := exec.CommandContext(ctx, b.binary, "topics", "create", "--config", file) // those of wake-ups, too
	if out, err := create.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("parley topics create: %w: %s", err, out)
	}
	cmd := exec.CommandContext(ctx, b.binary, "serve", "--config", file)
	cmd.Dir = dir
	return startReady(ctx, cmd)
}

// pass sends tasks through the pipeline and waits for their results.
func (p *pipeline) pass(ctx context.Context, tasks int) error {
	sent, from := make(chan error, 1), p.passed
	go func() { sent <- p.bench.brokers.produce(ctx, p.order.Tasks, p.names, tasks, from) }()
	p.passed += tasks
	err := p.results.await(ctx, p.passed)
	return errors.Join(err, <-sent)
}

func (p *pipeline) stop() error {
	p.child.stop()
	p.results.close()
	return p.drop()
}
