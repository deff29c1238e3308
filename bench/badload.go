package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
)

const (
	goodAgents  = 10
	goodRate    = 100 // runs/s of well agents
	badRate     = 25  // runs/s of the other one
	badTimeout  = 5 * time.Second
	backlogRuns = 100_000
	starters    = 32
)

// badLoad measures what the runs of well agents suffer from one agent that is
// not, in one process on SQLite: their time from the request to the answer,
// alone and beside it.
func badLoad(ctx context.Context, o options) ([]row, error) {
	shop, err := openWorkshop(ctx)
	if err != nil {
		return nil, err
	}
	defer shop.close()
	b := badBench{shop}
	rounds, settle, measure := 5, 2*time.Second, 5*time.Second
	if o.quick {
		rounds, settle, measure = 3, time.Second, 3*time.Second
	}
	var alone []float64
	beside := map[string][]float64{}
	for range rounds {
		for _, bad := range append([]badAgent{{}}, badAgents()...) {
			p99, err := b.beside(ctx, bad, settle, measure)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", bad.name, err)
			}
			if bad.name == "" {
				alone = append(alone, ms(p99))
			} else {
				beside[bad.name] = append(beside[bad.name], ms(p99))
			}
		}
	}
	var rows []row
	for _, bad := range badAgents() {
		rows = append(rows, bounded(compare(row{
			Case:   fmt.Sprintf("%d runs/s beside %d/s of an agent that is: %s", goodRate, badRate, bad.name),
			Metric: "others' latency p99", Unit: "ms", Bar: "≤ 1.2× alone",
		}, beside[bad.name], alone), 1.2))
	}
	return rows, nil
}

// backlogs measures what they suffer from many tasks that wait for one agent.
func backlogs(ctx context.Context, o options) ([]row, error) {
	shop, err := openWorkshop(ctx)
	if err != nil {
		return nil, err
	}
	defer shop.close()
	b := badBench{shop}
	runs, measure := backlogRuns, 15*time.Second
	if o.quick {
		runs, measure = backlogRuns/10, 3*time.Second
	}
	var rows []row
	for _, l := range []backlog{
		{where: "SQLite", kind: "dead, circuit open"},
		{where: "SQLite", kind: "silent, 10 calls at a time", silent: true},
		{where: "PostgreSQL", kind: "dead, circuit open"},
		{where: "PostgreSQL", kind: "silent, 10 calls at a time", silent: true},
	} {
		l.runs, l.measure = runs, measure
		more, err := b.wait(ctx, l)
		if err != nil {
			return nil, fmt.Errorf("%s, %d tasks of an agent that is %s: %w", l.where, runs, l.kind, err)
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// badBench holds what all rounds share.
type badBench struct{ *workshop }

// serving is one life of the product with a store of its own.
type serving struct {
	child  *child
	client *http.Client
	dir    string
}

// serve starts the product with ten well agents and one that is described by
// the given members of its record, over a database; "" is SQLite.
func (b badBench) serve(ctx context.Context, bad map[string]any, database string) (*serving, error) {
	dir, err := os.MkdirTemp(b.dir, "serve-")
	if err != nil {
		return nil, err
	}
	type object = map[string]any
	agents := []object{bad}
	for i := range goodAgents {
		agents = append(agents, object{"name": "good" + strconv.Itoa(i), "url": fmt.Sprintf("%s/%d/50ms", b.agents.first, i), "protocol": "simple-a2a"})
	}
	text, err := json.Marshal(object{ // which is YAML, too
		"listen": "127.0.0.1:0", "data": filepath.Join(dir, "data"), "agents": agents, "auth": object{"mode": "none"},
		"egress": object{"allow": []string{"127.0.0.0/8"}}, "log": object{"level": "error"}, "database": object{"migrate": "auto", "url": database},
	})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "parley.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, b.binary, "serve", "--config", file)
	log, err := os.Create(filepath.Join(dir, "log")) // a line for each failure of the agent
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the child has its own
	cmd.Stderr = log
	c, err := startReady(ctx, cmd)
	if err != nil {
		return nil, err
	}
	s := &serving{child: c, dir: dir, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000, MaxIdleConns: 1000}}}
	for _, a := range agents {
		name := a["name"].(string)
		flow := fmt.Sprintf("name: %s\nsteps: [{id: a, agent: %s, input: {text: hello}, timeout: 1h}]\n", name, name)
		if err := s.post(ctx, "/api/v1/workflows", "application/yaml", flow, nil); err != nil {
			s.stop()
			return nil, err
		}
	}
	return s, nil
}

func (s *serving) stop() {
	s.client.CloseIdleConnections()
	s.child.stop()
	_ = os.RemoveAll(s.dir)
}

func (s *serving) post(ctx context.Context, path, kind, body string, header http.Header) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.child.first+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", kind)
	for name, v := range header {
		req.Header[name] = v
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s: HTTP %d: %.500s", path, resp.StatusCode, text)
	}
	if header != nil && !bytes.Contains(text, []byte(`"COMPLETED"`)) {
		return fmt.Errorf("%s: the run has not completed: %.500s", path, text)
	}
	return nil
}

const execute = "/api/v1/workflows/%s/execute"

// call runs the workflow of a well agent, and gives how long that took.
func (s *serving) call(ctx context.Context, n int) (time.Duration, error) {
	begin := time.Now()
	err := s.post(ctx, fmt.Sprintf(execute, "good"+strconv.Itoa(n%goodAgents)), "application/json", `{"input_data":{}}`, http.Header{"Prefer": {"wait=30"}})
	return time.Since(begin), err
}

// startBad begins a run for the agent that is not well, and does not wait.
func (s *serving) startBad(ctx context.Context) error {
	return s.post(ctx, fmt.Sprintf(execute, "bad"), "application/json", `{"input_data":{}}`, nil)
}

// pace calls well agents at a steady rate, and gives the p99 of those calls that
// begin after settle. Each n-th tick also begins as many runs of the other one.
func (s *serving) pace(ctx context.Context, bad int, settle, measure time.Duration) (time.Duration, error) {
	var mu sync.Mutex
	var took []time.Duration
	var failed error
	var calls sync.WaitGroup
	begin := time.Now()
	note := func(d time.Duration, counts bool, err error) {
		mu.Lock()
		defer mu.Unlock()
		failed = errors.Join(failed, err)
		if counts {
			took = append(took, d)
		}
	}
	total := int((settle + measure).Seconds() * goodRate)
	for i := range total {
		time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / goodRate)))
		counts := time.Since(begin) >= settle
		calls.Go(func() {
			d, err := s.call(ctx, i)
			note(d, counts, err)
		})
		if bad > 0 && i%(goodRate/bad) == 0 {
			calls.Go(func() { note(0, false, s.startBad(ctx)) })
		}
	}
	calls.Wait()
	if failed != nil {
		return 0, failed
	}
	return percentile(took, 0.99), nil
}

func (b badBench) beside(ctx context.Context, bad badAgent, settle, measure time.Duration) (time.Duration, error) {
	rate := badRate
	if bad.name == "" {
		rate = 0
	}
	agent, err := bad.listen(ctx)
	if err != nil {
		return 0, err
	}
	defer agent.close()
	s, err := b.serve(ctx, map[string]any{
		"name": "bad", "url": agent.url, "protocol": "simple-a2a", "timeout": badTimeout.String(), "breaker": map[string]any{"enabled": true},
	}, "")
	if err != nil {
		return 0, err
	}
	defer s.stop()
	return s.pace(ctx, rate, settle, measure)
}

// backlog is many runs that wait for one agent.
type backlog struct {
	where, kind string
	silent      bool
	runs        int
	measure     time.Duration
}

// wait has them wait, and measures the others beside.
func (b badBench) wait(ctx context.Context, l backlog) (rows []row, err error) {
	bad, record := badAgent{name: l.kind}, map[string]any{"name": "bad", "protocol": "simple-a2a", "timeout": "300s", "breaker": map[string]any{"enabled": true}}
	if l.silent {
		bad.serve = speaks(func(c net.Conn, _ []byte) { _, _ = io.Copy(io.Discard, c) })
		record["limits"] = map[string]any{"concurrency": 10}
	}
	database := ""
	if l.where == "PostgreSQL" {
		url, drop, err := newDatabase(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, drop()) }()
		database = url
	}
	agent, err := bad.listen(ctx)
	if err != nil {
		return nil, err
	}
	defer agent.close()
	record["url"] = agent.url
	s, err := b.serve(ctx, record, database)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	const settle = 3 * time.Second
	alone, err := s.pace(ctx, 0, settle, l.measure)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := s.startMany(ctx, l.runs); err != nil {
		return nil, err
	}
	starts := time.Since(began)
	cpu, err := s.child.cpu()
	if err != nil {
		return nil, err
	}
	began = time.Now()
	p99, err := s.pace(ctx, 0, settle, l.measure)
	if err != nil {
		return nil, err
	}
	after, err := s.child.cpu()
	if err != nil {
		return nil, err
	}
	peak, err := s.child.peak()
	name := fmt.Sprintf("%s, %d tasks wait for an agent that is %s", l.where, l.runs, l.kind)
	return []row{
		bounded(row{Case: name, Metric: "others' latency p99", Unit: "ms", Value: ms(p99), Floor: ms(alone), Ratio: float64(p99) / float64(alone), Bar: "≤ 1.2× alone"}, 1.2),
		{Case: name, Metric: "resident memory at most", Unit: "MiB", Value: peak, Bar: "≤ 450 MiB", Holds: peak <= 450},
		{Case: name, Metric: "cores in use beside them", Unit: "cores", Value: (after - cpu).Seconds() / time.Since(began).Seconds(), Holds: true},
		{Case: name, Metric: "starts", Unit: "runs/s", Value: float64(l.runs) / starts.Seconds(), Holds: true},
	}, err
}

func (s *serving) startMany(ctx context.Context, runs int) error {
	var left atomic.Int64
	left.Store(int64(runs))
	var mu sync.Mutex
	var failed error
	var all sync.WaitGroup
	for range starters {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if err := s.startBad(ctx); err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	all.Wait()
	return failed
}
