package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// kafkaFloor is the least that a workflow costs whose executor and bridge speak over
// Kafka: the writes and calls of [floor], and between them two records for each step,
// a task and what tells of its end. All of it is one process.
type kafkaFloor struct {
	*floor
	client *kgo.Client // produces
	tasks  string
	ends   string
	stop   context.CancelFunc
	loops  sync.WaitGroup

	mu      sync.Mutex
	waiting map[string]chan error
}

// newKafkaFloor begins to consume on topics of its own.
func newKafkaFloor(ctx context.Context, f *floor, brokers *brokers) (*kafkaFloor, error) {
	k := &kafkaFloor{floor: f, waiting: map[string]chan error{}}
	var err error
	if k.tasks, k.ends, err = brokers.topics(ctx); err != nil {
		return nil, err
	}
	if k.client, err = kgo.NewClient(kgo.SeedBrokers(brokers.seeds...), kgo.ProducerLinger(2*time.Millisecond),
		kgo.ProducerBatchCompression(kgo.NoCompression())); err != nil {
		return nil, err
	}
	within, stop := context.WithCancel(ctx)
	k.stop = stop
	for topic, handle := range map[string]func(context.Context, *kgo.Record){k.tasks: k.work, k.ends: k.ended} {
		client, err := kgo.NewClient(kgo.SeedBrokers(brokers.seeds...), kgo.ConsumeTopics(topic),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(250*time.Millisecond))
		if err != nil {
			k.end()
			return nil, err
		}
		k.loops.Go(func() {
			defer client.Close()
			var hands sync.WaitGroup
			defer hands.Wait()
			for within.Err() == nil {
				client.PollRecords(within, 500).EachRecord(func(r *kgo.Record) {
					hands.Go(func() { handle(within, r) })
				})
			}
		})
	}
	return k, nil
}

func (k *kafkaFloor) end() {
	k.stop()
	k.loops.Wait()
	k.client.Close()
}

// run is one workflow.
func (k *kafkaFloor) run(ctx context.Context, id string, urls []string) error {
	if err := k.save(id+".start", []byte(id)); err != nil {
		return err
	}
	for i, url := range urls {
		key, done := fmt.Sprintf("%s.%d", id, i), make(chan error, 1)
		k.mu.Lock()
		k.waiting[key] = done
		k.mu.Unlock()
		k.client.Produce(ctx, &kgo.Record{Topic: k.tasks, Key: []byte(key), Value: []byte(url)}, nil)
		select {
		case err := <-done:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// work is what a bridge does with a task: claim, call, answer.
func (k *kafkaFloor) work(ctx context.Context, r *kgo.Record) {
	key := string(r.Key)
	body := []byte(`{"task_id":"` + key + `","input":{"text":"hello"}}`)
	err := k.save(key+".claim", body)
	if err == nil {
		err = k.call(ctx, string(r.Value), body)
	}
	if err == nil {
		err = k.save(key+".answer", body)
	}
	said := ""
	if err != nil {
		said = err.Error()
	}
	k.client.Produce(ctx, &kgo.Record{Topic: k.ends, Key: r.Key, Value: []byte(said)}, nil)
}

// ended is what an executor does when it is told: it decides.
func (k *kafkaFloor) ended(_ context.Context, r *kgo.Record) {
	key := string(r.Key)
	err := k.save(key+".decision", r.Key)
	if len(r.Value) > 0 {
		err = errors.New(string(r.Value))
	}
	k.mu.Lock()
	done := k.waiting[key]
	delete(k.waiting, key)
	k.mu.Unlock()
	if done != nil {
		done <- err
	}
}
