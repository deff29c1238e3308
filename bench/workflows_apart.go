package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus/kafka"
	"github.com/parley-project/parley/internal/server"
)

// onPostgres is one process over PostgreSQL.
func onPostgres(ctx context.Context) (place, error) {
	return postgresPlace(ctx, false, func(_ context.Context, _, url string, cfg *server.Config) ([]*child, error) {
		cfg.DatabaseURL = parley.NewSecret([]byte(url))
		return nil, nil
	})
}

// onKafka has the bridge in a process of its own: tasks and wake-ups go over
// Kafka.
func onKafka(ctx context.Context) (place, error) {
	brokers, err := connectBrokers()
	if err != nil {
		return place{}, err
	}
	defer brokers.close()
	return postgresPlace(ctx, true, func(ctx context.Context, dir, url string, cfg *server.Config) ([]*child, error) {
		cfg.DatabaseURL = parley.NewSecret([]byte(url))
		cfg.Roles = []server.Role{server.RoleAPI, server.RoleExecutor}
		cfg.Kafka = &kafka.Config{Brokers: brokers.seeds}
		bridge, err := serveBridge(ctx, dir, url, brokers.seeds)
		if err != nil {
			return nil, err
		}
		return []*child{bridge}, nil
	})
}

// postgresPlace has two databases: the floor's and the product's.
func postgresPlace(ctx context.Context, apart bool, configure func(ctx context.Context, dir, url string, cfg *server.Config) ([]*child, error)) (place, error) {
	floorURL, dropFloor, err := newDatabase(ctx)
	if err != nil {
		return place{}, err
	}
	url, drop, err := newDatabase(ctx)
	if err != nil {
		return place{}, errors.Join(err, dropFloor())
	}
	return place{
		floor: func(ctx context.Context, _ string) (*floor, error) { return postgresFloor(ctx, floorURL, apart) },
		configure: func(ctx context.Context, dir string, cfg *server.Config) ([]*child, error) {
			return configure(ctx, dir, url, cfg)
		},
		close: func() error { return errors.Join(drop(), dropFloor()) },
	}, nil
}

// serveBridge builds the command and starts its bridge role; the schema and the
// topics are made by the command, too.
func serveBridge(ctx context.Context, dir, url string, brokers []string) (*child, error) {
	binary, err := buildParley(ctx, dir)
	if err != nil {
		return nil, err
	}
	type object = map[string]any
	text, err := json.Marshal(object{
		"listen": "127.0.0.1:0", "data": filepath.Join(dir, "bridge"), "roles": []string{"bridge"},
		"database": object{"url": url}, "bus": object{"kind": "kafka", "kafka": object{"brokers": brokers}},
		"egress": object{"allow": []string{"127.0.0.0/8"}}, "log": object{"level": "warn"},
	})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "bridge.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	for _, args := range [][]string{{"migrate", "up"}, {"topics", "create"}} {
		cmd := exec.CommandContext(ctx, binary, append(args, "--config", file)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("parley %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	return startReady(ctx, exec.CommandContext(ctx, binary, "serve", "--config", file))
}

// buildParley builds the command into dir.
func buildParley(ctx context.Context, dir string) (string, error) {
	binary, err := filepath.Abs(filepath.Join(dir, "parley"))
	if err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/parley")
	build.Dir = ".." // the module of the product, not that of the benchmarks
	build.Env, build.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	return binary, build.Run()
}

// workflowsPostgres measures many runs at once in one process over PostgreSQL.
func workflowsPostgres(ctx context.Context, o options) ([]row, error) {
	return measurePlace(ctx, o, onPostgres, 0.6, (*workflowsBench).withRows)
}

// workflowsKafka measures them with executor and bridge apart.
func workflowsKafka(ctx context.Context, o options) ([]row, error) {
	return measurePlace(ctx, o, onKafka, 0.35, (*workflowsBench).overKafka)
}

// overKafka measures the floor when its records go over Kafka as well.
func (b *workflowsBench) overKafka(ctx context.Context, rounds int) ([]row, error) {
	brokers, err := connectBrokers()
	if err != nil {
		return nil, err
	}
	defer brokers.close()
	k, err := newKafkaFloor(ctx, b.floor, brokers)
	if err != nil {
		return nil, err
	}
	defer k.end()
	r, err := b.besideFloor(ctx, rounds, "the floor's records over Kafka", k.run)
	return []row{r}, err
}

// withRows measures the floor when it writes the rows that the protocol needs.
func (b *workflowsBench) withRows(ctx context.Context, rounds int) (rows []row, err error) {
	url, drop, err := newDatabase(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	f, err := newRowsFloor(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.end(ctx)) }()
	r, err := b.besideFloor(ctx, rounds, "the floor with the rows of a run", f.run)
	return []row{r}, err
}

// besideFloor measures another floor beside the first one: what the bar, which is a
// share of that, leaves for everything else.
func (b *workflowsBench) besideFloor(ctx context.Context, rounds int, name string, run func(context.Context, string, []string) error) (row, error) {
	var rate, bare []float64
	for i := range rounds + 1 {
		other, err := b.measure(throughputRuns, throughputAtOnce, func() error {
			return run(ctx, strconv.FormatInt(b.serial.Add(1), 10), b.urls)
		})
		if err != nil {
			return row{}, fmt.Errorf("%s: %w", name, err)
		}
		first, err := b.measure(throughputRuns, throughputAtOnce, b.floorRun(ctx))
		if err != nil {
			return row{}, fmt.Errorf("floor: %w", err)
		}
		if i > 0 { // the first one warms up
			rate, bare = append(rate, other.rate()), append(bare, first.rate())
		}
	}
	return compare(row{Case: "3 steps, 100 at once, " + name, Metric: "throughput", Unit: "wf/s", Holds: true}, rate, bare), nil
}

// measurePlace measures many runs at once; more are further rows.
func measurePlace(
	ctx context.Context, o options, where func(context.Context) (place, error), least float64,
	more func(*workflowsBench, context.Context, int) ([]row, error),
) ([]row, error) {
	at, err := where(ctx)
	if err != nil {
		return nil, err
	}
	b, err := newWorkflowsBench(ctx, at)
	if err != nil {
		return nil, err
	}
	defer b.close()
	if o.profile != "" {
		return nil, b.profile(ctx, o.profile)
	}
	rows, err := b.throughput(ctx, rounds(o), least)
	if err != nil {
		return nil, err
	}
	// What the process of the benchmark uses is more than the product's, and less
	// where there are others: it is shown for each of them below.
	rows = rows[:1]
	further, err := more(b, ctx, rounds(o))
	if err != nil {
		return nil, err
	}
	rows = append(rows, further...)
	each, err := b.processes(ctx)
	return append(rows, each...), err
}

// processes measures what a workflow costs each process. The first holds load
// generator and agents, too.
func (b *workflowsBench) processes(ctx context.Context) ([]row, error) {
	names := []string{"engine, load and agents"}
	read := []func() (time.Duration, error){func() (time.Duration, error) { return cpuTime(), nil }}
	for _, c := range b.others {
		names, read = append(names, "bridge"), append(read, c.cpu)
	}
	for _, comm := range []string{"postgres", "java"} {
		names, read = append(names, comm), append(read, func() (time.Duration, error) { return cpuOf(comm) })
	}
	before := make([]time.Duration, len(read))
	for i := range read {
		var err error
		if before[i], err = read[i](); err != nil {
			return nil, err
		}
	}
	if _, err := b.measure(throughputRuns, throughputAtOnce, b.productRun(ctx)); err != nil {
		return nil, err
	}
	var rows []row
	for i := range read {
		after, err := read[i]()
		if err != nil {
			return nil, err
		}
		rows = append(rows, row{Case: names[i], Metric: "CPU per workflow", Unit: "ms", Value: ms(after-before[i]) / throughputRuns, Holds: true})
	}
	return rows, nil
}

// cpuOf is what all processes of that name have used together.
func cpuOf(comm string) (time.Duration, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	var total time.Duration
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "comm"))
		if err != nil || strings.TrimSpace(string(text)) != comm {
			continue
		}
		if used, err := cpuOfProcess(pid); err == nil {
			total += used
		}
	}
	return total, nil
}
