package interop

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
)

// An mcpCase is an SDK's server for our client.
type mcpCase struct {
	program, name string
	transport     string // "stdio", or how the server answers POSTs over HTTP
	version       string
	quiet         bool // no progress is reported
	change        func(*scene)
}

func mcpCases() []mcpCase {
	return []mcpCase{
		{program: "mcppeer", name: "mcppeer", transport: "stdio", version: legacy},
		{program: "mcppeer", name: "mcppeer", transport: "stdio", version: modern},
		{program: "mcppeer", name: "mcppeer", transport: "sse", version: legacy},
		{program: "mcppeer", name: "mcppeer", transport: "json", version: legacy},
		{program: "mcppeer", name: "mcppeer", transport: "stateless", version: modern},
		{program: "mcp1.mjs", name: "mcp1", transport: "stdio", version: legacy},
		{program: "mcp1.mjs", name: "mcp1", transport: "sse", version: legacy},
		{program: "mcp1.mjs", name: "mcp1", transport: "json", version: legacy, quiet: true},
		{program: "mcp2.mjs", name: "mcp2", transport: "stdio", version: legacy},
		{program: "mcp2.mjs", name: "mcp2", transport: "stdio", version: modern},
		{program: "mcp2.mjs", name: "mcp2", transport: "auto", version: legacy, change: func(s *scene) {
			// It keeps no sessions, and so neither knows what a client can do
			// nor which request of an earlier POST one gives up.
			s.Asked, s.Cancelled = "Client does not support form elicitation.", false
		}},
		{program: "mcp2.mjs", name: "mcp2", transport: "sse", version: modern},
		{program: "mcp2.mjs", name: "mcp2", transport: "json", version: modern, quiet: true},
	}
}

// TestMCPClient is our client on the servers of the official SDKs of the Model
// Context Protocol.
func TestMCPClient(t *testing.T) {
	t.Parallel()
	for _, c := range mcpCases() {
		t.Run(c.name+"/"+c.transport+"/"+c.version, func(t *testing.T) {
			parallel(t)
			client, process := c.open(t)
			want := wantScene(c.name, c.version)
			want.Many = callsOver(c.transport)
			if c.change != nil {
				c.change(&want)
			}
			s := client.play(t, want.Many)
			if want.Cancelled {
				s.Cancelled = client.cancelled(t)
			}
			s.check(t, want)
			counts := []float64{1, 2, 3}
			if c.quiet {
				counts = nil
			}
			if diff := cmp.Diff(counts, s.Progress); diff != "" {
				t.Errorf("progress (-want +got):\n%s", diff)
			}
			if err := client.conn.Close(); err != nil {
				t.Error(err)
			}
			if process != nil {
				if code := process.code(t); code != 0 {
					t.Errorf("exit code %d", code)
				}
			}
		})
	}
}

// open starts the server and connects to it.
func (c mcpCase) open(t *testing.T) (*mcpClient, *process) {
	t.Helper()
	client := &mcpClient{version: c.version}
	cfg := jsonrpc.Config{Name: c.name, Handler: client.mux(), Cancel: jsonrpc.MCPCancel}
	if c.transport == "stdio" {
		// A result of these SDKs holds its text twice at times.
		cfg.MaxMessage = 4 << 20
		p := peer{program: c.program}.start(t, wire{"lines", "stdio"}, cfg, "server", "stdio")
		client.conn = p.conn
		return client, p
	}
	addr := listening(t, command(t, c.program, "server", "http", c.transport, "127.0.0.1:0"))
	client.conn = owned(t, jsonrpc.NewConn(mcpStream(t, client, "http://"+addr+"/mcp"), cfg))
	return client, nil
}

// mcpStream is HTTP as MCP has it.
func mcpStream(t *testing.T, client *mcpClient, url string) jsonrpc.Stream {
	t.Helper()
	var s *rpchttp.Stream
	agreed := func() string {
		if client.version >= modern || s.SessionID() != "" {
			return client.version
		}
		return "" // the handshake says it in its body
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	s, err := rpchttp.NewStream(url, rpchttp.ClientConfig{
		Client:        &http.Client{Transport: &mcpTransport{next: transport, agreed: agreed}},
		SessionHeader: "Mcp-Session-Id",
		WayBack:       rpchttp.WayBackWithSession,
		MaxMessage:    4 << 20,
		Cancel:        jsonrpc.MCPCancel,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestMCPServer is the clients of the official SDKs on our server.
func TestMCPServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, program, version string
		args                   []string
	}{
		{name: "go", program: "mcppeer", version: legacy, args: []string{"client", legacy}},
		{name: "go", program: "mcppeer", version: modern, args: []string{"client", modern}},
		{name: "ts1", program: "mcp1.mjs", version: legacy, args: []string{"client"}},
		{name: "ts2", program: "mcp2.mjs", version: legacy, args: []string{"client", "legacy"}},
		{name: "ts2", program: "mcp2.mjs", version: modern, args: []string{"client", "modern"}},
	} {
		want := wantScene("parley", c.version)
		t.Run(c.name+"/stdio/"+c.version, func(t *testing.T) {
			parallel(t)
			s := visitMCP(t, c.program, []string{oursEnv + "=mcp"}, append(c.args, "stdio"), os.Args[0])
			if c.name == "ts1" {
				s.Version = c.version // its client does not tell
			}
			s.check(t, want)
			counted(t, s.Progress)
		})
		t.Run(c.name+"/http/"+c.version, func(t *testing.T) {
			parallel(t)
			s := visitMCP(t, c.program, nil, append(c.args, "http"), serveMCP(t, new(mcpServer)))
			want := want
			want.Many = callsOver("http")
			s.check(t, want)
			counted(t, s.Progress)
		})
	}
	t.Run("go/http/falls back", func(t *testing.T) {
		// Our answer that server/discover is unknown is what tells a client of
		// both kinds of the protocol which one we speak.
		parallel(t)
		old := &mcpServer{legacyOnly: true}
		want := wantScene("parley", legacy)
		want.Many = callsOver("http")
		visitMCP(t, "mcppeer", nil, []string{"client", modern, "http"}, serveMCP(t, old)).check(t, want)
	})
}

// callsOver is how many calls a scene makes at once: over HTTP each is a
// request, and to some of the servers a new instance of themselves.
func callsOver(transport string) int {
	if transport == "stdio" {
		return 1000
	}
	return 200
}

// counted checks progress: it may come too late to be reported, since these
// clients handle notifications beside answers, but not out of thin air.
func counted(t *testing.T, progress []float64) {
	t.Helper()
	if !slices.IsSorted(progress) || len(progress) > 3 {
		t.Errorf("progress %v", progress)
	}
}

// visitMCP runs an SDK's client, and returns what it reports.
func visitMCP(t *testing.T, program string, env, args []string, server string) scene {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report")
	cmd := command(t, program, append(slices.Clip(args), report, server)...)
	cmd.Env = append(os.Environ(), append(env, fmt.Sprintf("MANY=%d", callsOver(args[len(args)-1])))...)
	recorded(t, cmd)
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var s scene
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// serveMCP serves MCP over HTTP until the test ends.
func serveMCP(t *testing.T, m *mcpServer) string {
	t.Helper()
	h := rpchttp.Handler(rpchttp.ServerConfig{
		Config: jsonrpc.Config{Handler: m.mux(), MaxMessage: 4 << 20, Grace: time.Second, Cancel: jsonrpc.MCPCancel},
		Sessions: &rpchttp.SessionConfig{
			Header: "Mcp-Session-Id",
			OpenOn: []string{"initialize"},
		},
	})
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return s.URL
}
