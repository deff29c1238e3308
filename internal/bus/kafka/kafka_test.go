package kafka_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/bustest"
	"github.com/parley-project/parley/internal/bus/kafka"
	"github.com/parley-project/parley/internal/kafkatest"
)

// fake starts a broker in the process with the topics of the contract.
func fake(t *testing.T) ([]string, map[string]string) {
	t.Helper()
	topics := make(map[string]string)
	for _, s := range bustest.Subjects() {
		topics[s] = s
	}
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, bustest.Subjects()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.ListenAddrs(), topics
}

// genuine makes topics of their own for the contract on a real broker.
func genuine(t *testing.T) ([]string, map[string]string) {
	t.Helper()
	brokers, name := kafkatest.Brokers(t), kafkatest.Topics(t)
	topics := make(map[string]string)
	var all []string
	for _, s := range bustest.Subjects() {
		topics[s] = name(s)
		all = append(all, name(s))
	}
	kafkatest.Create(t, brokers, 3, all...)
	return brokers, topics
}

func open(t *testing.T, c kafka.Config) *kafka.Bus {
	t.Helper()
	b, err := kafka.New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestContractFake(t *testing.T) {
	bustest.Run(t, func(t *testing.T) bus.Bus {
		brokers, topics := fake(t)
		return open(t, kafka.Config{Brokers: brokers, Topics: topics})
	})
}

func TestContract(t *testing.T) {
	bustest.Run(t, func(t *testing.T) bus.Bus {
		brokers, topics := genuine(t)
		return open(t, kafka.Config{Brokers: brokers, Topics: topics, InstanceID: "one"})
	})
}

// place gives each process of a case the same topics.
func place(brokers []string, topics map[string]string) bustest.Place {
	return func(t *testing.T) (bus.Deferred, func()) {
		b := open(t, kafka.Config{Brokers: brokers, Topics: topics, InstanceID: "one"})
		return b, func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestDeferredFake(t *testing.T) {
	bustest.RunDeferred(t, func(t *testing.T) bustest.Place { return place(fake(t)) })
}

func TestDeferred(t *testing.T) {
	bustest.RunDeferred(t, func(t *testing.T) bustest.Place { return place(genuine(t)) })
}
