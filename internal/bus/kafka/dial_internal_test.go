package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestDialSilent: a broker that takes a connection and says nothing more, as one that hangs
// does, is given up after 10 seconds: the library sets no limit to that, and whatever is
// asked of the broker would wait as long as the connection stands.
func TestDialSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		b := &Bus{cfg: Config{
			Now:     time.Now,
			Brokers: []string{"kafka:9092"},
			TLS:     func() (*tls.Config, error) { return &tls.Config{MinVersion: tls.VersionTLS12}, nil },
			Dialer:  func(context.Context, string, string) (net.Conn, error) { return ours, nil },
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		_, err := b.dial(ctx, "tcp", "kafka:9092")
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != 10*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
		if _, err := theirs.Write([]byte("late")); err == nil {
			t.Error("the connection stays open")
		}
	})
}

// TestDialDown: of a broker that is down, and answers nothing, a request waits for the
// connection once for 10 seconds, afterwards for 2, until it answers, or for some minutes: it
// may only be slow.
func TestDialDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var up bool
		b := &Bus{cfg: Config{
			Now:     time.Now,
			Brokers: []string{"down:9092", "up:9092"},
			Dialer: func(ctx context.Context, _, address string) (net.Conn, error) {
				if up || address == "up:9092" {
					return nil, nil
				}
				<-ctx.Done()
				return nil, ctx.Err()
			},
		}}
		dial := func(address string, gone, want time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), gone)
			defer cancel()
			began := time.Now()
			_, _ = b.dial(ctx, "tcp", address)
			if took := time.Since(began); took != want {
				t.Errorf("it took %v, want %v", took, want)
			}
		}
		dial("down:9092", time.Second, time.Second) // given up too soon to know
		for range 2 {
			dial("down:9092", time.Hour, 10*time.Second)
			dial("up:9092", time.Hour, 0)
			for range 3 {
				time.Sleep(time.Minute)
				dial("down:9092", time.Hour, 2*time.Second)
			}
			time.Sleep(2 * time.Minute)
		}
		dial("down:9092", time.Hour, 10*time.Second)
		up = true
		dial("down:9092", time.Hour, 0)
		up = false
		dial("down:9092", time.Hour, 10*time.Second)
	})
}

// TestGivenUpIsNoTrouble: a connection that is given up on this side, since another broker
// has answered first, says nothing of the broker.
func TestGivenUpIsNoTrouble(t *testing.T) {
	s := newState(time.Now, slog.New(slog.DiscardHandler))
	broker := kgo.BrokerMetadata{Host: "kafka", Port: 9092}
	s.OnBrokerConnect(broker, time.Second, nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.Canceled})
	s.OnBrokerConnect(broker, time.Second, nil, &tlsError{"kafka:9092", context.Canceled})
	if told := s.delays(); told != "" {
		t.Errorf("it is told: %s", told)
	}
	s.OnBrokerConnect(broker, time.Second, nil, &tlsError{"kafka:9092", context.DeadlineExceeded})
	s.OnBrokerConnect(broker, time.Second, nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.Canceled})
	if told := s.delays(); told == "" {
		t.Error("a broker that said nothing is not told of")
	}
}
