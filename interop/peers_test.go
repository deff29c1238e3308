package interop

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcdial"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
)

// A peer is a program made with somebody else's library, and what the library
// can do.
type peer struct {
	name    string
	program string
	wires   []wire
	// exact: numbers keep all their digits. JavaScript has only doubles.
	exact bool
	// batches: it answers batches; sendsBatches: it has a way to send them.
	batches, sendsBatches bool
}

// A wire is a way to reach a peer.
type wire struct{ framing, network string }

func (w wire) String() string { return w.framing + "-" + w.network }

// twoWay says that both ends can call.
func (w wire) twoWay() bool { return w.network != "http" }

func peers() []peer {
	return []peer{
		{
			name: "jrpc2", program: "jrpc2peer", exact: true, batches: true, sendsBatches: true,
			wires: []wire{{"lines", "stdio"}, {"headers", "stdio"}, {"lines", "tcp"}, {"headers", "unix"}, {"lines", "http"}},
		},
		{
			name: "lspdev", program: "lspdevpeer", exact: true, batches: true,
			wires: []wire{{"lines", "stdio"}, {"headers", "stdio"}, {"headers", "tcp"}, {"lines", "unix"}},
		},
		{
			name: "vscode", program: "vscode.mjs",
			wires: []wire{{"headers", "stdio"}, {"headers", "tcp"}, {"headers", "unix"}},
		},
	}
}

// each runs f for every wire of every peer, all at once.
func each(t *testing.T, f func(t *testing.T, p peer, w wire)) {
	t.Helper()
	for _, p := range peers() {
		for _, w := range p.wires {
			t.Run(p.name+"/"+w.String(), func(t *testing.T) {
				parallel(t)
				f(t, p, w)
			})
		}
	}
}

// url makes an address one of package rpcdial.
func (w wire) url(addr string) string {
	scheme := w.network
	if w.framing == "headers" {
		scheme += "+lsp"
	}
	switch w.network {
	case "tcp", "http":
		return scheme + "://" + addr
	default:
		return scheme + ":" + addr
	}
}

// A process is a peer's program at the other end of a Conn of ours.
type process struct {
	conn *jsonrpc.Conn
	// child is the program, where it is ours alone.
	child *jsonrpc.Subprocess
}

// code waits for the end of the program, and returns its exit code.
func (p *process) code(t *testing.T) int {
	t.Helper()
	select {
	case <-p.child.Exited():
	case <-time.After(2 * time.Minute):
		t.Error("the program does not end")
	}
	if exit, ok := errors.AsType[*exec.ExitError](p.child.Err()); ok {
		return exit.ExitCode()
	}
	return 0
}

// serve starts a peer's server and connects to it.
func (p peer) serve(t *testing.T, w wire, cfg jsonrpc.Config) *process {
	t.Helper()
	cfg.Name = p.name + "-" + w.String()
	if w.network == "stdio" {
		return p.start(t, w, cfg, "serve", w.framing, "stdio", "-")
	}
	addr := "127.0.0.1:0"
	if w.network == "unix" {
		addr = filepath.Join(t.TempDir(), "s")
	}
	addr = listening(t, command(t, p.program, "serve", w.framing, w.network, addr))
	return &process{conn: dial(t, w.url(addr), rpcdial.Config{}, cfg)}
}

// start runs a program with a Conn of ours on its standard input and output.
func (p peer) start(t *testing.T, w wire, cfg jsonrpc.Config, args ...string) *process {
	t.Helper()
	cmd := command(t, p.program, args...)
	recorded(t, cmd)
	out := new(process)
	line := "'" + strings.Join(cmd.Args, "' '") + "'"
	stream, err := rpcdial.Dial(t.Context(), w.url(line), rpcdial.Config{Command: func(c *exec.Cmd) { c.Stderr = cmd.Stderr }})
	if err != nil {
		t.Fatal(err)
	}
	out.conn = owned(t, jsonrpc.NewConn(stream, cfg))
	out.child = stream.(*jsonrpc.Subprocess)
	return out
}

// dial connects us to a URL.
func dial(t *testing.T, url string, how rpcdial.Config, cfg jsonrpc.Config) *jsonrpc.Conn {
	t.Helper()
	stream, err := rpcdial.Dial(t.Context(), url, how)
	if err != nil {
		t.Fatal(err)
	}
	return owned(t, jsonrpc.NewConn(stream, cfg))
}

// owned closes a Conn with the test.
func owned(t *testing.T, c *jsonrpc.Conn) *jsonrpc.Conn {
	t.Helper()
	t.Cleanup(func() { c.Close() })
	return c
}

func newReader(text []byte) io.Reader { return bytes.NewReader(text) }

func asError(err error) (*jsonrpc.Error, bool) {
	return errors.AsType[*jsonrpc.Error](err)
}

// notices counts what a Conn noticed.
type notices struct {
	mu   sync.Mutex
	kind map[jsonrpc.NoticeKind]int
}

func (n *notices) take(notice jsonrpc.Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.kind == nil {
		n.kind = make(map[jsonrpc.NoticeKind]int)
	}
	n.kind[notice.Kind]++
}

func (n *notices) count(kind jsonrpc.NoticeKind) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.kind[kind]
}

// listening starts a server that tells its address in its first line, and
// returns that.
func listening(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	recorded(t, cmd)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%s does not listen: %v", filepath.Base(cmd.Path), err)
	}
	return strings.TrimSpace(line)
}

// httpHandler is our HTTP server. It answers notifications with status 204: 202,
// which the Model Context Protocol wants, is to jrpc2's client the end of the
// connection.
func httpHandler(t *testing.T, cfg jsonrpc.Config) http.Handler {
	t.Helper()
	h := rpchttp.Handler(rpchttp.ServerConfig{Config: cfg, NotificationStatus: http.StatusNoContent})
	t.Cleanup(func() { h.Close() })
	return h
}
