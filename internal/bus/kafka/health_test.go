package kafka_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	parley "github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus/kafka"
)

// TestHealthWithin: a look ends with its context, whatever a connection waits for, and
// says how long it has waited.
func TestHealthWithin(t *testing.T) {
	broker, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	var later atomic.Int64
	var stuck atomic.Bool
	release := make(chan struct{})
	b := open(t, kafka.Config{
		Brokers: broker.ListenAddrs(), Now: func() time.Time { return time.Now().Add(time.Duration(later.Load())) },
		Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
			if stuck.Load() {
				<-release
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	})
	defer close(release)
	stuck.Store(true)
	broker.Close()
	later.Store(int64(10 * time.Second))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := b.Health(ctx); parley.CodeOf(err) != parley.CodeUnavailable || !strings.Contains(err.Error(), "does not answer within ") {
		t.Errorf("with a connection that hangs: %v", err)
	}
}
