//go:build unix

package rpctest_test

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpctest"
)

// TestRelayChild is the child of TestSubprocess: it joins its standard files,
// as Stdio uses them, with a socket. By itself it does nothing.
func TestRelayChild(t *testing.T) {
	path := os.Getenv("RPCTEST_SOCKET")
	if path == "" {
		return
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		os.Exit(1)
	}
	stdio := jsonrpc.StdioConn()
	go func() {
		io.Copy(stdio, conn)
		stdio.Close()
	}()
	io.Copy(conn, stdio)
	os.Exit(0) // nobody reads what the socket still has for a stdin that is closed
}

// TestSubprocess holds Subprocess and Stdio to the contract (RPC-12): one end
// is a child's standard files, the other one a socket that the child relays to.
func TestSubprocess(t *testing.T) {
	t.Parallel()
	rpctest.TestStream(t, func(t *testing.T) (a, b jsonrpc.Stream) {
		path := filepath.Join(t.TempDir(), "s")
		ln, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		cmd := exec.Command(os.Args[0], "-test.run=^TestRelayChild$")
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "RPCTEST_SOCKET="+path)
		// Most checks close ends whose peers no longer read, so that the child cannot
		// end. Where the peer reads, the child has the time to hand everything on.
		cfg := jsonrpc.SubprocessConfig{CloseWait: 50 * time.Millisecond}
		if strings.Contains(t.Name(), "/EOF_") {
			cfg.CloseWait = time.Minute
		}
		a, err = jsonrpc.Start(t.Context(), cmd, cfg)
		if err != nil {
			t.Fatal(err)
		}
		ln.(*net.UnixListener).SetDeadline(time.Now().Add(2 * time.Minute))
		conn, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return a, jsonrpc.NewLineStream(conn)
	})
}
