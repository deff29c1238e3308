package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestDialSilent: a broker that takes a connection and says nothing more, as one that hangs
// does, is given up after 10 seconds: the library sets no limit to that, and whatever is
// asked of the broker would wait as long as the connection stands.
func TestDialSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		b := &Bus{cfg: Config{
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
