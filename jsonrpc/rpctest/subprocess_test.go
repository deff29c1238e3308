//go:build unix

package rpctest_test

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
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
	var both sync.WaitGroup
	both.Go(func() {
		io.Copy(conn, stdio)
		conn.(*net.UnixConn).CloseWrite()
	})
	both.Go(func() {
		io.Copy(stdio, conn)
		stdio.Close()
	})
	both.Wait()
	os.Exit(0)
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
		a, err = jsonrpc.Start(t.Context(), cmd, jsonrpc.SubprocessConfig{CloseWait: 50 * time.Millisecond})
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
