package a2a

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/parley-project/parley/internal/server"
)

// parleyEnv makes the test binary a Parley on the data folder that it names, for
// tests that kill it.
const parleyEnv = "PARLEY_INTEROP_DATA"

func TestMain(m *testing.M) {
	if data := os.Getenv(parleyEnv); data != "" {
		os.Exit(serveParley(data))
	}
	flag.Parse()
	code := m.Run()
	shared.close(code != 0)
	os.Exit(code)
}

// parleyConfig is that of a Parley of these tests.
func parleyConfig(data string) server.Config {
	return server.Config{
		Data: data, Listen: "127.0.0.1:0", EgressAllow: []string{"127.0.0.0/8"},
		CancelGrace: 2 * time.Second, DrainGrace: 100 * time.Millisecond,
	}
}

func serveParley(data string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := server.New(ctx, parleyConfig(data))
	if err == nil {
		err = s.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "parley:", err)
		return 1
	}
	return 0
}

// slots bounds the scenarios under way: each has processes of its own to share
// the processors with.
var slots = make(chan struct{}, 8*runtime.GOMAXPROCS(0))

// parallel lets a test run beside a few others.
func parallel(t *testing.T) {
	t.Helper()
	t.Parallel()
	slots <- struct{}{}
	t.Cleanup(func() { <-slots })
}
