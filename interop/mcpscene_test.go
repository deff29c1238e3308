package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley/jsonrpc"
)

// A scene is what comes of an MCP client's tour of the practice tools, of ours
// as of the peers' (node/mcpscene.mjs and cmd/mcppeer write it as JSON).
type scene struct {
	Version   string    `json:"version"`
	Server    string    `json:"server"`
	Tools     []string  `json:"tools"`
	Echo      string    `json:"echo"`
	Sum       float64   `json:"sum"`
	Refused   string    `json:"refused"`
	Unknown   unknown   `json:"unknown"`
	Many      int       `json:"many"`
	Big       int       `json:"big"`
	Progress  []float64 `json:"progress"`
	Counted   string    `json:"counted"`
	Asked     string    `json:"asked"`
	Ping      bool      `json:"ping"`
	Cancelled bool      `json:"cancelled"`
}

// unknown is what came of a tool that does not exist.
type unknown struct {
	Code int `json:"code"`
}

// echoed goes through the echo tool.
const echoed = "a\"\\/\b\f\n\r\t\u0000\u2028é😀"

// wantScene is what usually comes of it.
func wantScene(server, version string) scene {
	return scene{
		Version: version, Server: server, Tools: ourTools, Echo: echoed, Sum: 42, Refused: "refused", Unknown: unknown{Code: -32602},
		Many: 1000, Big: 900_000, Counted: "counted to 3", Asked: "accept red", Ping: version < modern, Cancelled: true,
	}
}

// check compares, but for the progress, about which see the tests, and the
// tools that only some servers have.
func (s scene) check(t *testing.T, want scene) {
	t.Helper()
	s.Tools = slices.DeleteFunc(s.Tools, func(name string) bool { return name == "exit" || name == "print" })
	s.Progress = nil
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("scene (-want +got):\n%s", diff)
	}
}

// An mcpClient is an MCP client made of our Conn.
type mcpClient struct {
	conn    *jsonrpc.Conn
	version string

	mu       sync.Mutex
	progress []float64
}

// mux answers what servers ask of clients.
func (c *mcpClient) mux() *jsonrpc.Mux {
	mux := new(jsonrpc.Mux)
	mux.Register("ping", jsonrpc.Typed(func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil }))
	mux.Register("elicitation/create", jsonrpc.Typed(func(_ context.Context, p elicit) (elicited, error) {
		if p.Message != "colour" || p.RequestedSchema["type"] != "object" {
			return elicited{Action: "decline"}, nil
		}
		return red(), nil
	}))
	mux.RegisterInline("notifications/progress", jsonrpc.Typed(func(_ context.Context, p progress) (any, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.progress = append(c.progress, p.Progress)
		return nil, nil
	}))
	return mux
}

func red() elicited { return elicited{Action: "accept", Content: map[string]any{"colour": "red"}} }

// meta is what each request of the newer protocol carries.
func (c *mcpClient) meta() mcpMeta {
	if c.version < modern {
		return mcpMeta{}
	}
	return mcpMeta{Version: c.version, Client: &info{"parley", "1"}, Capabilities: map[string]any{"elicitation": map[string]any{"form": map[string]any{}}}}
}

// connect shakes hands, or asks whom it talks to.
func (c *mcpClient) connect(ctx context.Context) (server string, err error) {
	if c.version >= modern {
		got, err := jsonrpc.Call[discovered](ctx, c.conn, "server/discover", mcpParams{c.meta()})
		if err != nil {
			return "", err
		}
		if !slices.Contains(got.SupportedVersions, c.version) || got.Meta.Server == nil {
			return "", errors.New("not " + c.version)
		}
		return got.Meta.Server.Name, nil
	}
	got, err := jsonrpc.Call[initialize](ctx, c.conn, "initialize", initialize{
		ProtocolVersion: c.version, ClientInfo: &info{"parley", "1"},
		Capabilities: map[string]any{"elicitation": map[string]any{}},
	})
	if err != nil {
		return "", err
	}
	if got.ProtocolVersion != c.version {
		return "", errors.New("not " + c.version)
	}
	return got.ServerInfo.Name, c.conn.Notify(ctx, "notifications/initialized", nil)
}

// tool calls a tool, and answers what it asks in the newer protocol.
func (c *mcpClient) tool(ctx context.Context, name string, args map[string]any) (toolResult, string, error) {
	p := toolCall{Name: name, Arguments: args, Meta: c.meta()}
	if name == "count" {
		p.Meta.ProgressToken = json.RawMessage(`"counting"`)
	}
	if args == nil {
		p.Arguments = map[string]any{}
	}
	out, err := jsonrpc.Call[toolResult](ctx, c.conn, "tools/call", p)
	if err == nil && out.ResultType == "input_required" {
		p.InputResponses = make(map[string]elicited)
		for key, r := range out.InputRequests {
			if r.Method == "elicitation/create" && r.Params.Message == "colour" {
				p.InputResponses[key] = red()
			}
		}
		out, err = jsonrpc.Call[toolResult](ctx, c.conn, "tools/call", p)
	}
	var text strings.Builder
	for _, part := range out.Content {
		text.WriteString(part.Text)
	}
	return out, text.String(), err
}

func (c *mcpClient) sum(ctx context.Context, a, b int) (float64, error) {
	out, _, err := c.tool(ctx, "add", map[string]any{"a": a, "b": b})
	if err != nil {
		return 0, err
	}
	var got struct {
		Sum float64 `json:"sum"`
	}
	err = json.Unmarshal(out.Structured, &got)
	return got.Sum, err
}

// play is the tour, with so many calls at once.
func (c *mcpClient) play(t *testing.T, calls int) scene {
	t.Helper()
	ctx := t.Context()
	no := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	var s scene
	var err error
	s.Server, err = c.connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.Version = c.version
	list, err := jsonrpc.Call[toolList](ctx, c.conn, "tools/list", mcpParams{c.meta()})
	no(err)
	for _, tool := range list.Tools {
		s.Tools = append(s.Tools, tool.Name)
	}
	slices.Sort(s.Tools)
	_, s.Echo, err = c.tool(ctx, "echo", map[string]any{"text": echoed})
	no(err)
	s.Sum, err = c.sum(ctx, 2, 40)
	no(err)
	out, text, err := c.tool(ctx, "refuse", nil)
	no(err)
	if out.IsError {
		s.Refused = text
	}
	out, _, err = c.tool(ctx, "no such tool", nil)
	if e, ok := asError(err); ok {
		s.Unknown.Code = int(e.Code)
	} else if out.IsError {
		s.Unknown.Code = -32602 // the older TypeScript SDK says it in a result
	}
	s.Many = c.many(ctx, calls)
	big := strings.Repeat("é", 450_000)
	_, text, err = c.tool(ctx, "echo", map[string]any{"text": big})
	no(err)
	if text == big {
		s.Big = len(text)
	}
	_, s.Counted, err = c.tool(ctx, "count", map[string]any{"to": 3})
	no(err)
	// The server asks back behind the progress that it told, which may come
	// another way than its answers.
	_, s.Asked, err = c.tool(ctx, "ask", map[string]any{"question": "colour"})
	no(err)
	c.mu.Lock()
	s.Progress = slices.Clone(c.progress)
	c.mu.Unlock()
	if c.version < modern {
		s.Ping = c.conn.Call(ctx, "ping", nil, nil) == nil
	}
	return s
}

func (c *mcpClient) many(ctx context.Context, calls int) int {
	right := make([]bool, calls)
	var all sync.WaitGroup
	for i := range right {
		all.Go(func() {
			sum, err := c.sum(ctx, i, 1)
			right[i] = err == nil && sum == float64(i+1)
		})
	}
	all.Wait()
	n := 0
	for _, ok := range right {
		if ok {
			n++
		}
	}
	return n
}

// cancelled gives up a call that the server is known to run, and reports
// whether the server says that it heard of it.
func (c *mcpClient) cancelled(t *testing.T) bool {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	var call sync.WaitGroup
	call.Go(func() {
		_, _, err := c.tool(ctx, "wait", nil)
		ended <- err
	})
	c.seen(t, "waiting 1, cancelled 0")
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
	call.Wait()
	c.seen(t, "waiting 0, cancelled 1")
	return true
}

func (c *mcpClient) seen(t *testing.T, want string) {
	t.Helper()
	eventually(t, func() (bool, string) {
		_, text, err := c.tool(t.Context(), "waits", nil)
		if err != nil {
			return false, err.Error()
		}
		return text == want, text
	})
}

// An mcpTransport makes HTTP what the Model Context Protocol has of it: the
// version in a header of each request, once it is agreed on. In the newer
// protocol the headers repeat what the body says.
type mcpTransport struct {
	next   http.RoundTripper
	agreed func() string
}

func (h *mcpTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	version := h.agreed()
	if version == "" {
		return h.next.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Mcp-Protocol-Version", version)
	if version < modern {
		return h.next.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body.Close()
	var m struct {
		Method string `json:"method"`
		Params struct {
			Name string `json:"name"`
		} `json:"params"`
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.Header.Set("Mcp-Method", m.Method)
	if m.Params.Name != "" {
		r.Header.Set("Mcp-Name", m.Params.Name)
	}
	return h.next.RoundTrip(r)
}
