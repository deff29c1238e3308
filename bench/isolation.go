package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	isolationRate = 500 // tasks/s
	isolationFast = 50 * time.Millisecond
	isolationSlow = 10 * time.Second
	// isolationShare of the tasks is for the slow agent: one in twenty.
	isolationShare = 20
)

// isolationBench measures what one agent takes from the others: in a bridge
// between two topics of Kafka, and in one process on SQLite, where many tasks
// may wait for it. -case names one of these parts.
func isolationBench(ctx context.Context, o options) ([]row, error) {
	var all []row
	for _, part := range []struct {
		name string
		run  func(context.Context, options) ([]row, error)
	}{{"kafka", isolationKafka}, {"sqlite", badLoad}, {"backlog", backlogs}} {
		if o.cases != "" && o.cases != part.name {
			continue
		}
		rows, err := part.run(ctx, o)
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
	}
	return all, nil
}

// isolationKafka measures what the tasks of other agents suffer from one that
// takes ten seconds: their time from record to record, alone and beside it.
func isolationKafka(ctx context.Context, o options) ([]row, error) {
	b, err := newPipelineBench(ctx)
	if err != nil {
		return nil, err
	}
	defer b.close()
	rounds, settle, measure := 5, 12*time.Second, 8*time.Second
	if o.quick {
		rounds, settle, measure = 3, 3*time.Second, 5*time.Second
	}
	var rows []row
	for _, side := range []string{sideNone, sideClaims} {
		var alone, beside []float64
		for range rounds {
			for _, slow := range []bool{false, true} {
				p99, err := b.pace(ctx, side, pacing{slow: slow, settle: settle, measure: measure})
				if err != nil {
					return nil, fmt.Errorf("%s: %w", side, err)
				}
				if slow {
					beside = append(beside, ms(p99))
				} else {
					alone = append(alone, ms(p99))
				}
			}
		}
		rows = append(rows, bounded(compare(row{
			Case: "500 tasks/s, 5 % on a 10 s agent, " + side, Metric: "others' latency p99", Unit: "ms", Bar: "≤ 1.2× alone",
		}, beside, alone), 1.2))
	}
	return rows, nil
}

// pacing is one round: settle is how long before anything counts.
type pacing struct {
	slow            bool
	settle, measure time.Duration
}

// pace sends tasks at a steady rate and gives the p99 of those for fast agents.
func (b *pipelineBench) pace(ctx context.Context, side string, how pacing) (p99 time.Duration, err error) {
	const agents = isolationShare
	p, err := b.start(ctx, side, load{agents: agents, atOnce: 400 * agents, delay: isolationFast, first: isolationSlow})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	slowAgent, others := p.names[0], p.names[1:]
	p.names = others
	if err := p.pass(ctx, warmTasks/10); err != nil {
		return 0, err
	}
	var mu sync.Mutex
	sent := map[string]time.Time{}
	var took []time.Duration
	p.results.each = func(task string, at time.Time) {
		mu.Lock()
		defer mu.Unlock()
		if began, ok := sent[task]; ok {
			took = append(took, at.Sub(began))
		}
	}
	total := int((how.settle + how.measure).Seconds() * isolationRate)
	begin := time.Now()
	awaited := make(chan error, 1)
	go func() { awaited <- p.results.await(ctx, p.passed+total) }()
	for i := range total {
		due := begin.Add(time.Duration(i) * time.Second / isolationRate)
		time.Sleep(time.Until(due))
		agent, slow := others[i%len(others)], how.slow && i%isolationShare == 0
		if slow {
			agent = slowAgent
		}
		record := taskRecord(p.order.Tasks, agent, p.passed+i)
		if !slow && time.Since(begin) >= how.settle {
			mu.Lock()
			sent["task-"+string(record.Key[len("run-"):])] = time.Now()
			mu.Unlock()
		}
		b.brokers.client.Produce(ctx, record, nil)
	}
	if err := <-awaited; err != nil {
		return 0, err
	}
	mu.Lock()
	defer mu.Unlock()
	if len(took) == 0 {
		return 0, errors.New("nothing was measured")
	}
	return percentile(took, 0.99), nil
}
