package server_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
	"github.com/parley-project/parley/internal/server"
)

// TestStartWaitsForTheDatabase: a process that is started while nobody answers at
// the database's address is there once somebody does.
func TestStartWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	var tries atomic.Int64
	startServer(t, server.Config{
		Data: filepath.Join(t.TempDir(), "data"), Listen: "127.0.0.1:0", DatabaseURL: parley.NewSecret([]byte(pgtest.Database(t))),
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if tries.Add(1) <= 4 {
				return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	})
}

// TestStarted: a server says that it has begun when all of it has, and never if a part
// could not, or it was stopped first.
func TestStarted(t *testing.T) {
	t.Parallel()
	refuse := errors.New("no bridge here")
	for name, tt := range map[string]struct {
		failpoint func(string) error
		before    bool // it is stopped before it runs
		want      error
		started   bool
	}{
		"works":   {started: true},
		"stopped": {before: true},
		"bridge fails": {failpoint: func(point string) error {
			if strings.HasPrefix(point, "P16.") {
				return refuse
			}
			return nil
		}, want: refuse},
	} {
		s, err := server.New(t.Context(), server.Config{Data: filepath.Join(t.TempDir(), "data"), Listen: "127.0.0.1:0", Failpoint: tt.failpoint})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		if tt.started {
			go func() { <-s.Started(); stop() }()
		}
		if tt.before {
			stop()
		}
		if err := s.Run(ctx); !errors.Is(err, tt.want) {
			t.Errorf("%s: it ended with %v, want %v", name, err, tt.want)
		}
		select {
		case <-s.Started():
			if !tt.started {
				t.Errorf("%s: it says that it has begun", name)
			}
		default:
		}
		stop()
	}
}

// TestStoppedAtOnce: a process that is stopped before all of it has begun ends
// without an error.
func TestStoppedAtOnce(t *testing.T) {
	t.Parallel()
	for range 20 {
		s, err := server.New(t.Context(), server.Config{
			Data: filepath.Join(t.TempDir(), "data"), Listen: "127.0.0.1:0", DatabaseURL: parley.NewSecret([]byte(pgtest.Database(t))),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(rand.N(30*time.Millisecond), stop)
		if err := s.Run(ctx); err != nil {
			t.Errorf("the server ended with %v", err)
		}
		stop()
	}
}
