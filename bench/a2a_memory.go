package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/server"
)

const (
	inFlight = 5_000
	// inFlightAgents share the tasks: one agent never gets all slots.
	inFlightAgents = 20
	inFlightAnswer = time.Second
	inFlightFor    = 10 * time.Second
	// memoryChild is set in the environment of the process that is measured.
	memoryChild = "PARLEY_BENCH_A2A_MEMORY"
)

// a2aMemory measures the memory of a process of its own that has 5,000 tasks in
// flight: engine, store, and what starts and awaits the runs.
func a2aMemory(ctx context.Context, o options) ([]row, error) {
	agents, url, err := serveTaskAgents()
	if err != nil {
		return nil, err
	}
	defer func() { _ = agents.Close() }()
	var rows []row
	for _, c := range []struct{ name, kind string }{
		{"5,000 in flight, 1 s agents, answer awaited", "blocking"},
		{"5,000 in flight, 1 s agents, followed", "long"},
	} {
		m, err := measureMemory(ctx, memoryOrder{URL: url, Kind: c.kind, Quick: o.quick})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		rows = append(rows,
			row{Case: c.name, Metric: "resident memory at most", Unit: "MiB", Value: m.PeakMiB, Bar: "≤ 350 MiB", Holds: m.PeakMiB <= 350},
			row{Case: c.name, Metric: "tasks", Unit: "tasks/s", Value: m.Rate})
	}
	return rows, nil
}

// serveTaskAgents serves agents of both kinds under one address: /blocking/…
// answers after a second, /long/… names its task at once and has ended it a
// second later.
func serveTaskAgents() (*http.Server, string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	var begun sync.Map // task id to time
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			ID     json.RawMessage
			Params struct {
				ID      string
				Message struct{ MessageID string }
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		id, state := req.Params.ID, "completed"
		switch at, known := begun.Load(id); {
		case strings.HasPrefix(r.URL.Path, "/blocking/"):
			id = req.Params.Message.MessageID
			time.Sleep(inFlightAnswer)
		case known && time.Since(at.(time.Time)) < inFlightAnswer:
			state = "working"
		case !known:
			id, state = req.Params.Message.MessageID, "working"
			begun.Store(id, time.Now())
		default:
			begun.Delete(id)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"kind":"task","id":%q,"contextId":"c","status":{"state":%q},"artifacts":[{"artifactId":"a","parts":[{"kind":"text","text":"done"}]}]}}`,
			req.ID, id, state)
	})
	s := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.Serve(l) }()
	return s, "http://" + l.Addr().String(), nil
}

// memoryOrder is what the measured process is told, memoryResult what it says.
type memoryOrder struct {
	URL, Kind string
	Quick     bool
}

type memoryResult struct{ PeakMiB, Rate float64 }

func measureMemory(ctx context.Context, order memoryOrder) (memoryResult, error) {
	var m memoryResult
	text, err := json.Marshal(order)
	if err != nil {
		return m, err
	}
	self, err := os.Executable()
	if err != nil {
		return m, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env, cmd.Stderr = append(os.Environ(), memoryChild+"="+string(text)), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(out, &m)
}

// beMeasured is the measured process.
func beMeasured(ctx context.Context, text string) error {
	var order memoryOrder
	if err := json.Unmarshal([]byte(text), &order); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(".", ".bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := memoryServer(ctx, dir, order)
	if err != nil {
		return err
	}
	run, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(run) }()
	rate, err := keepInFlight(ctx, s, order)
	peak, peakErr := peakMemory("self")
	stop()
	if err := errors.Join(err, peakErr, <-ended); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(memoryResult{PeakMiB: peak, Rate: rate})
}

func memoryServer(ctx context.Context, dir string, order memoryOrder) (*server.Server, error) {
	var agents strings.Builder
	agents.WriteString("agents:\n")
	for i := range inFlightAgents {
		fmt.Fprintf(&agents, "  - {name: a%d, url: %q, protocol: jsonrpc-2.0}\n", i, fmt.Sprintf("%s/%s/%d", order.URL, order.Kind, i))
		flow := fmt.Sprintf("name: f%d\nsteps:\n  - {id: one, agent: a%d, input: {text: \"${workflow.input.text}\"}}\n", i, i)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%d.yaml", i)), []byte(flow), 0o600); err != nil {
			return nil, err
		}
	}
	file := filepath.Join(dir, "agents.list")
	if err := os.WriteFile(file, []byte(agents.String()), 0o600); err != nil {
		return nil, err
	}
	return server.New(ctx, server.Config{
		Data: filepath.Join(dir, "data"), Listen: "127.0.0.1:0", AgentFiles: []string{file},
		WorkflowDirs: []string{dir}, EgressAllow: []string{"127.0.0.0/8"},
	})
}

// keepInFlight keeps 5,000 runs going for a while and gives their rate. A few
// goroutines start them, as the handlers of requests would.
func keepInFlight(ctx context.Context, s *server.Server, order memoryOrder) (rate float64, err error) {
	length := inFlightFor
	if order.Quick {
		length = 4 * time.Second
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	x := s.Executor()
	free := make(chan struct{}, inFlight)
	for range inFlight {
		free <- struct{}{}
	}
	var total atomic.Int64
	await := func(run string) {
		status, err := x.Wait(ctx, run)
		if err == nil && status != parley.RunCompleted {
			err = fmt.Errorf("run %s is %s", run, status)
		}
		if err != nil {
			fail(err)
		}
		total.Add(1)
		free <- struct{}{}
	}
	var starters, waiters sync.WaitGroup
	begin := time.Now()
	for w := range inFlightAgents {
		starters.Go(func() {
			for time.Since(begin) < length && ctx.Err() == nil {
				<-free
				run, _, err := x.Start(ctx, parley.StartRequest{Workflow: fmt.Sprintf("f%d", w), Input: []byte(`{"text":"hello"}`)})
				if err != nil {
					fail(err)
					return
				}
				waiters.Go(func() { await(run.ID) })
			}
		})
	}
	starters.Wait()
	waiters.Wait()
	return float64(total.Load()) / time.Since(begin).Seconds(), context.Cause(ctx)
}

// peakMemory is the most memory that a process, named by its id or "self", has
// had resident, in MiB.
func peakMemory(process string) (float64, error) {
	f, err := os.Open("/proc/" + process + "/status")
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			return kib / 1024, err
		}
	}
	return 0, errors.New("the system does not tell the peak of memory")
}
