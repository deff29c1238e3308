package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ask gives what the brokers know now of themselves and of the given topics.
// Clients keep what they were once told, so this goes past them.
func ask(ctx context.Context, client *kgo.Client, topics ...string) (*kmsg.MetadataResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, name := range topics {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = &name
		req.Topics = append(req.Topics, topic)
	}
	return req.RequestWith(ctx, client)
}

// await asks until good says that it is, no longer than ctx.
func await(ctx context.Context, client *kgo.Client, good func(*kmsg.MetadataResponse) error, topics ...string) error {
	for {
		known, err := ask(ctx, client, topics...)
		if err == nil {
			err = good(known)
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// led is satisfied when every topic has the given number of partitions, all
// with a leader.
func led(partitions int) func(*kmsg.MetadataResponse) error {
	return func(known *kmsg.MetadataResponse) error {
		for _, t := range known.Topics {
			if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
				return err
			}
			n := 0
			for _, p := range t.Partitions {
				if p.ErrorCode == 0 && p.Leader >= 0 {
					n++
				}
			}
			if n < partitions {
				return fmt.Errorf("%d of %d partitions have a leader", n, partitions)
			}
		}
		return nil
	}
}

// present is satisfied when n brokers are known.
func present(n int) func(*kmsg.MetadataResponse) error {
	return func(known *kmsg.MetadataResponse) error {
		if len(known.Brokers) < n {
			return fmt.Errorf("%d of %d brokers are there", len(known.Brokers), n)
		}
		return nil
	}
}
