package server_test

import (
	"context"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
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
