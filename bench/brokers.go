package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// brokers is the Kafka that all pipelines of a benchmark share, and the
// benchmark's own producer.
type brokers struct {
	seeds  []string
	client *kgo.Client
	serial int
}

// connectBrokers takes the brokers that `make bench` has started.
func connectBrokers() (*brokers, error) {
	list := os.Getenv("PARLEY_TEST_KAFKA")
	if list == "" {
		return nil, errors.New("PARLEY_TEST_KAFKA names no brokers: run it with make bench, which starts some")
	}
	b := &brokers{seeds: strings.Split(list, ",")}
	var err error
	b.client, err = kgo.NewClient(kgo.SeedBrokers(b.seeds...), kgo.ProducerLinger(2*time.Millisecond),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(10_000))
	return b, err
}

func (b *brokers) close() { b.client.Close() }

// topics makes a fresh pair.
func (b *brokers) topics(ctx context.Context) (tasks, results string, err error) {
	b.serial++
	prefix := fmt.Sprintf("bench-%d-%d-", os.Getpid(), b.serial)
	tasks, results = prefix+"tasks", prefix+"results"
	made, err := kadm.NewClient(b.client).CreateTopics(ctx, 12, 1, nil, tasks, results)
	if err != nil {
		return "", "", err
	}
	return tasks, results, made.Error()
}

// produce writes tasks as the existing platform does, in turn for each agent.
func (b *brokers) produce(ctx context.Context, topic string, agents []string, tasks, from int) error {
	var mu sync.Mutex
	var failed error
	for i := range tasks {
		b.client.Produce(ctx, taskRecord(topic, agents[i%len(agents)], from+i), func(_ *kgo.Record, err error) {
			if err != nil {
				mu.Lock()
				failed = err
				mu.Unlock()
			}
		})
	}
	err := b.client.Flush(ctx)
	mu.Lock()
	defer mu.Unlock()
	return errors.Join(failed, err)
}

func taskRecord(topic, agent string, n int) *kgo.Record {
	id := fmt.Sprintf("%08d-5a3c-4d6e-8f70-0123456789ab", n)
	value := fmt.Sprintf(`{"run_id": "run-%s", "task_id": "task-%s", "agent_name": %q, "input_data": {"text": "Summarise the meeting of Tuesday in three sentences, please.", "n": %d}, "correlation_id": "corr-%s", "timestamp": %q}`,
		id, id, agent, n, id, time.Now().UTC().Format("2006-01-02T15:04:05.000000"))
	return &kgo.Record{Topic: topic, Key: []byte("run-" + id), Value: []byte(value)}
}

// resultReader counts the results on a topic.
type resultReader struct {
	client *kgo.Client
	seen   map[string]bool
	twice  int
	// each, if set, is told every result at the time of its arrival.
	each func(correlation string, at time.Time)
}

func (b *brokers) read(topic string) (*resultReader, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.seeds...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(250*time.Millisecond))
	return &resultReader{client: client, seen: map[string]bool{}}, err
}

func (r *resultReader) close() { r.client.Close() }

// await waits until n different tasks were answered, with success, and fails if
// nothing comes for a minute.
func (r *resultReader) await(ctx context.Context, n int) error {
	var failure error
	for len(r.seen) < n && failure == nil {
		poll, cancel := context.WithTimeout(ctx, time.Minute)
		fetches := r.client.PollRecords(poll, 10_000)
		cancel()
		if fetches.Empty() {
			return fmt.Errorf("%d of %d results came, then none for a minute: %w", len(r.seen), n, errors.Join(ctx.Err(), fetches.Err()))
		}
		at := time.Now()
		fetches.EachRecord(func(rec *kgo.Record) {
			var result struct {
				TaskID       string  `json:"task_id"`
				Status       string  `json:"status"`
				ErrorMessage *string `json:"error_message"`
			}
			if err := json.Unmarshal(rec.Value, &result); err != nil || result.Status != "SUCCESS" {
				failure = fmt.Errorf("result %.300s", rec.Value)
			}
			if r.seen[result.TaskID] {
				r.twice++
			}
			r.seen[result.TaskID] = true
			if r.each != nil {
				r.each(result.TaskID, at)
			}
		})
	}
	if failure == nil && r.twice > 0 {
		failure = fmt.Errorf("%d tasks were answered twice", r.twice)
	}
	return failure
}

// newDatabase makes a database on the server that `make bench` has started.
func newDatabase(ctx context.Context) (target string, drop func() error, err error) {
	server := os.Getenv("PARLEY_TEST_POSTGRES")
	if server == "" {
		return "", nil, errors.New("PARLEY_TEST_POSTGRES names no server: run it with make bench, which starts one")
	}
	config, err := pgx.ParseConfig(server)
	if err != nil {
		return "", nil, err
	}
	name := fmt.Sprintf("bench_%d_%d", os.Getpid(), time.Now().UnixNano())
	exec := func(ctx context.Context, text string) error {
		conn, err := pgx.Connect(ctx, server)
		if err != nil {
			return err
		}
		_, err = conn.Exec(ctx, text)
		return errors.Join(err, conn.Close(ctx))
	}
	if err := exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", nil, err
	}
	drop = func() error { return exec(context.WithoutCancel(ctx), "DROP DATABASE "+name+" WITH (FORCE)") }
	at := url.URL{
		Scheme: "postgres", User: url.UserPassword(config.User, config.Password),
		Host: net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))), Path: name, RawQuery: "sslmode=disable",
	}
	return at.String(), drop, nil
}
