package kafka_test

import (
	"context"
	"net"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/kafka"
)

// TestSilentBroker: of several brokers that are named the first is on a machine that is
// down, and answers nothing, not even that it is not there. The others are enough to begin.
func TestSilentBroker(t *testing.T) {
	t.Parallel()
	const dead = "down.example:9092"
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "runs"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	begun := make(chan struct{})
	b := open(t, kafka.Config{
		Brokers: append([]string{dead}, cluster.ListenAddrs()...), Topics: map[string]string{bus.SubjectRuns: "runs"},
		Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
			if address != dead {
				return new(net.Dialer).DialContext(ctx, network, address)
			}
			select { // afterwards it is quick, for the sake of the test
			case <-begun:
			case <-ctx.Done():
			}
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		},
	})
	close(begun)
	roundTrip(t, b, bus.SubjectRuns, "g")
}
