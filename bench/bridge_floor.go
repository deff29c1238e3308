package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// bridgeFloor is the least that a bridge over Kafka costs: a loop that takes
// records, calls the agent and writes the answers, with one pool of callers and
// without limits for each agent, claims, retries or breakers. It commits a
// watermark, so that nothing is lost.
type bridgeFloor struct {
	client *kgo.Client
	http   *http.Client
	order  bridgeOrder
	work   chan *kgo.Record

	mu   sync.Mutex
	open map[int32]*watermark
}

// watermark knows up to where a partition is done.
type watermark struct {
	next int64
	done map[int64]bool
}

// beBridgeFloor serves in a process of its own until ctx ends. It says when it
// begins.
func beBridgeFloor(ctx context.Context, text string) error {
	var order bridgeOrder
	if err := json.Unmarshal([]byte(text), &order); err != nil {
		return err
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(order.Brokers...), kgo.ConsumerGroup(order.Tasks), kgo.ConsumeTopics(order.Tasks),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.FetchMaxWait(250*time.Millisecond),
		kgo.ProducerLinger(2*time.Millisecond), kgo.ProducerBatchCompression(kgo.NoCompression()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	f := &bridgeFloor{
		client: client, order: order, work: make(chan *kgo.Record), open: map[int32]*watermark{},
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: order.AtOnce, DisableCompression: true}},
	}
	var callers sync.WaitGroup
	for range order.AtOnce {
		callers.Go(func() {
			for r := range f.work {
				f.call(ctx, r)
			}
		})
	}
	callers.Go(func() { f.commit(ctx) })
	fmt.Println("serving")
	for ctx.Err() == nil {
		fetches := client.PollRecords(ctx, 500)
		fetches.EachRecord(func(r *kgo.Record) {
			f.begin(r)
			select {
			case f.work <- r:
			case <-ctx.Done():
			}
		})
	}
	close(f.work)
	callers.Wait()
	return nil
}

func (f *bridgeFloor) begin(r *kgo.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open[r.Partition] == nil {
		f.open[r.Partition] = &watermark{next: r.Offset, done: map[int64]bool{}}
	}
}

func (f *bridgeFloor) end(partition int32, offset int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.open[partition]
	w.done[offset] = true
	for w.done[w.next] {
		delete(w.done, w.next)
		w.next++
	}
}

// commit writes the watermarks twice a second.
func (f *bridgeFloor) commit(ctx context.Context) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		offsets := map[int32]kgo.EpochOffset{}
		f.mu.Lock()
		for p, w := range f.open {
			offsets[p] = kgo.EpochOffset{Epoch: -1, Offset: w.next}
		}
		f.mu.Unlock()
		f.client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{f.order.Tasks: offsets}, nil)
	}
}

// call makes one task: record in, agent, record out.
func (f *bridgeFloor) call(ctx context.Context, r *kgo.Record) {
	var task struct {
		RunID         string          `json:"run_id"`
		TaskID        string          `json:"task_id"`
		AgentName     string          `json:"agent_name"`
		InputData     json.RawMessage `json:"input_data"`
		CorrelationID string          `json:"correlation_id"`
	}
	output, err := json.RawMessage(nil), json.Unmarshal(r.Value, &task)
	if err == nil {
		output, err = f.ask(ctx, f.order.Agents[task.AgentName], task.TaskID, task.InputData)
	}
	result := struct {
		RunID         string          `json:"run_id"`
		TaskID        string          `json:"task_id"`
		Status        string          `json:"status"`
		OutputData    json.RawMessage `json:"output_data"`
		CorrelationID string          `json:"correlation_id"`
		ErrorMessage  *string         `json:"error_message"`
		Timestamp     string          `json:"timestamp"`
	}{
		RunID: task.RunID, TaskID: task.TaskID, Status: "SUCCESS", OutputData: output, CorrelationID: task.CorrelationID,
		Timestamp: time.Now().UTC().Format("2006-01-02T15:04:05.000000"),
	}
	if err != nil {
		text := err.Error()
		result.Status, result.OutputData, result.ErrorMessage = "FAILURE", json.RawMessage("null"), &text
	}
	value, err := json.Marshal(result)
	if err != nil {
		return
	}
	out := &kgo.Record{Topic: f.order.Results, Key: []byte(task.CorrelationID), Value: value}
	f.client.Produce(ctx, out, func(_ *kgo.Record, err error) {
		if err == nil {
			f.end(r.Partition, r.Offset)
		}
	})
}

// ask calls the agent in the Simple A2A format.
func (f *bridgeFloor) ask(ctx context.Context, url, id string, input json.RawMessage) (json.RawMessage, error) {
	body, err := json.Marshal(struct {
		TaskID string          `json:"task_id"`
		Input  json.RawMessage `json:"input"`
	}{id, input})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := f.http.Do(req)
	if err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	var parsed struct {
		Status string
		Output json.RawMessage
	}
	if err := json.Unmarshal(answer, &parsed); err != nil || resp.StatusCode != http.StatusOK || parsed.Status != "success" {
		return nil, fmt.Errorf("agent answered %s, %q", resp.Status, parsed.Status)
	}
	return parsed.Output, nil
}
