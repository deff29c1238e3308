// Package kafkatest gives tests real Apache Kafka brokers: one that the tests
// of a process share, and clusters of their own for tests that stop, kill or
// secure brokers. The brokers are Java programs that this package fetches once,
// starts beside the tests on random loopback ports, and ends with the test
// process, whatever ends that.
package kafkatest

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// AddressEnv names the variable that holds the addresses (host:port, separated
// by commas) of a Kafka to use in place of one that is started here.
const AddressEnv = "PARLEY_TEST_KAFKA"

// shared is the broker of this process. It has to outlive any single test, and
// nothing else does; it ends with the process.
var shared = sync.OnceValues(func() (*Cluster, error) {
	return start(context.Background(), Options{Nodes: 1})
})

// Brokers gives the addresses of a plain Kafka of one node (or of the one that
// [AddressEnv] names) that all tests of this process share. It is started by
// the first call, which takes some seconds, and never inside of a synctest
// bubble. With -short the test is skipped. Topics are not created on use; take their names from [Topics].
func Brokers(tb testing.TB) []string {
	tb.Helper()
	NeedServer(tb)
	if list := os.Getenv(AddressEnv); list != "" {
		return strings.Split(list, ",")
	}
	c, err := shared()
	if err != nil {
		tb.Fatal(err)
	}
	return c.Brokers()
}

// NeedServer leaves out a test that needs a server where only the quick tests
// (-short) are asked for. Where the variable CI is set nothing is left out: such a
// test fails there.
func NeedServer(tb testing.TB) {
	tb.Helper()
	needServer(tb, testing.Short(), os.Getenv("CI"))
}

func needServer(tb testing.TB, short bool, ci string) {
	tb.Helper()
	switch {
	case short && ci != "":
		tb.Fatal("-short where CI is set: this test needs a server, and nothing may be skipped in CI")
	case short:
		tb.Skip("-short: no test that needs a server")
	}
}

// Topics gives a function from a topic's name to one that no other test uses,
// also not another run of this test on the same Kafka.
func Topics(tb testing.TB) func(name string) string {
	tb.Helper()
	own := strings.ToLower(rand.Text()[:10])
	return func(name string) string { return name + "." + own }
}

// Create makes topics with the given number of partitions and the broker's
// default replication, and waits until every broker knows them.
func Create(tb testing.TB, brokers []string, partitions int32, topics ...string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // many tests ask one broker
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		tb.Fatal(err)
	}
	defer client.Close()
	made, err := kadm.NewClient(client).CreateTopics(ctx, partitions, -1, nil, topics...)
	if err = errors.Join(err, made.Error()); err == nil {
		err = await(ctx, client, led(int(partitions)), topics...)
	}
	if err != nil {
		tb.Fatalf("create topics: %v", err)
	}
}
