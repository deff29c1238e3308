package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
)

// modern is the version of the Model Context Protocol that has no sessions and
// no requests of the server's; the ones before have both.
const modern = "2026-07-28"

const legacy = "2025-11-25"

// An mcpServer is a small MCP server with the practice tools, made of a Mux and
// typed handlers. It speaks both kinds of the protocol.
type mcpServer struct {
	counts
	legacyOnly bool
}

func (m *mcpServer) mux() *jsonrpc.Mux {
	mux := new(jsonrpc.Mux)
	mux.Register("initialize", jsonrpc.Typed(m.initialize))
	mux.Register("ping", jsonrpc.Typed(func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil }))
	mux.Register("notifications/initialized", jsonrpc.Typed(func(context.Context, struct{}) (any, error) { return nil, nil }))
	mux.Register("tools/list", jsonrpc.Typed(m.list))
	mux.Register("tools/call", jsonrpc.HandlerFunc(m.call))
	if !m.legacyOnly {
		mux.Register("server/discover", jsonrpc.Typed(m.discover))
	}
	return mux
}

type (
	info struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	mcpMeta struct {
		Version       string          `json:"io.modelcontextprotocol/protocolVersion,omitempty"`
		Client        *info           `json:"io.modelcontextprotocol/clientInfo,omitempty"`
		Server        *info           `json:"io.modelcontextprotocol/serverInfo,omitempty"`
		Capabilities  any             `json:"io.modelcontextprotocol/clientCapabilities,omitempty"`
		ProgressToken json.RawMessage `json:"progressToken,omitempty"`
	}
	initialize struct {
		ProtocolVersion string         `json:"protocolVersion"`
		Capabilities    map[string]any `json:"capabilities"`
		ClientInfo      *info          `json:"clientInfo,omitempty"`
		ServerInfo      *info          `json:"serverInfo,omitempty"`
	}
	discovered struct {
		ResultType        string         `json:"resultType,omitempty"`
		SupportedVersions []string       `json:"supportedVersions"`
		Capabilities      map[string]any `json:"capabilities"`
		TTL               int            `json:"ttlMs"`
		CacheScope        string         `json:"cacheScope,omitempty"`
		Meta              mcpMeta        `json:"_meta"`
	}
	mcpParams struct {
		Meta mcpMeta `json:"_meta"`
	}
	toolInfo struct {
		Name        string         `json:"name"`
		InputSchema map[string]any `json:"inputSchema"`
	}
	toolList struct {
		ResultType string     `json:"resultType,omitempty"`
		Tools      []toolInfo `json:"tools"`
		TTL        *int       `json:"ttlMs,omitempty"`
		CacheScope string     `json:"cacheScope,omitempty"`
	}
	toolCall struct {
		Name           string              `json:"name"`
		Arguments      any                 `json:"arguments,omitempty"`
		InputResponses map[string]elicited `json:"inputResponses,omitempty"`
		Meta           mcpMeta             `json:"_meta,omitzero"`
	}
	content struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	toolResult struct {
		ResultType    string                  `json:"resultType,omitempty"`
		Content       []content               `json:"content"`
		Structured    json.RawMessage         `json:"structuredContent,omitempty"`
		IsError       bool                    `json:"isError,omitempty"`
		InputRequests map[string]inputRequest `json:"inputRequests,omitempty"`
	}
	inputRequest struct {
		Method string `json:"method"`
		Params elicit `json:"params"`
	}
	elicit struct {
		Mode            string         `json:"mode,omitempty"`
		Message         string         `json:"message"`
		RequestedSchema map[string]any `json:"requestedSchema"`
	}
	elicited struct {
		Action  string         `json:"action"`
		Content map[string]any `json:"content,omitempty"`
	}
	progress struct {
		ProgressToken json.RawMessage `json:"progressToken"`
		Progress      float64         `json:"progress"`
	}
)

var ourTools = []string{"add", "ask", "count", "echo", "refuse", "wait", "waits"}

func (m *mcpServer) initialize(_ context.Context, p initialize) (initialize, error) {
	version := p.ProtocolVersion
	if version < "2024-11-05" || version > legacy {
		version = legacy
	}
	return initialize{
		ProtocolVersion: version, Capabilities: map[string]any{"tools": map[string]any{}},
		ServerInfo: &info{"parley", "1"},
	}, nil
}

func (m *mcpServer) discover(context.Context, mcpParams) (discovered, error) {
	return discovered{
		ResultType: "complete", SupportedVersions: []string{modern, legacy}, CacheScope: "private",
		Capabilities: map[string]any{"tools": map[string]any{}}, Meta: mcpMeta{Server: &info{"parley", "1"}},
	}, nil
}

func (m *mcpServer) list(_ context.Context, p mcpParams) (toolList, error) {
	var out toolList
	if p.Meta.Version >= modern {
		out.ResultType, out.CacheScope, out.TTL = "complete", "private", new(int)
	}
	for _, name := range ourTools {
		out.Tools = append(out.Tools, toolInfo{name, map[string]any{"type": "object"}})
	}
	return out, nil
}

func said(format string, args ...any) toolResult {
	return toolResult{Content: []content{{"text", fmt.Sprintf(format, args...)}}}
}

// arguments are those of all tools.
type arguments struct {
	Text     string  `json:"text"`
	Question string  `json:"question"`
	A        float64 `json:"a"`
	B        float64 `json:"b"`
	To       int     `json:"to"`
}

func (m *mcpServer) call(ctx context.Context, req *jsonrpc.Request) (any, error) {
	args := new(arguments)
	p := toolCall{Arguments: args}
	if err := req.Decode(&p); err != nil {
		return nil, err
	}
	result, err := m.run(ctx, req, p, args)
	if err != nil {
		return nil, err
	}
	if result.ResultType == "" && p.Meta.Version >= modern {
		result.ResultType = "complete"
	}
	return result, nil
}

func (m *mcpServer) run(ctx context.Context, req *jsonrpc.Request, p toolCall, args *arguments) (toolResult, error) {
	switch p.Name {
	case "echo":
		return said("%s", args.Text), nil
	case "add":
		out := said("%v", args.A+args.B)
		out.Structured = json.RawMessage(fmt.Sprintf(`{"sum":%v}`, args.A+args.B))
		return out, nil
	case "refuse":
		out := said("refused")
		out.IsError = true
		return out, nil
	case "count":
		return m.count(ctx, req, p.Meta.ProgressToken, args.To)
	case "ask":
		return m.ask(ctx, req, p, args.Question)
	case "wait":
		_, err := m.wait(ctx, struct{}{})
		return toolResult{}, err
	case "waits":
		w, err := m.waits(ctx, struct{}{})
		return said("waiting %d, cancelled %d", w.Waiting, w.Cancelled), err
	}
	return toolResult{}, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "unknown tool %q", p.Name)
}

// client is the connection to whoever sent the request, if there is one.
func client(ctx context.Context, req *jsonrpc.Request) (*jsonrpc.Conn, bool) {
	if s, ok := rpchttp.SessionFrom(ctx); ok {
		return s.Conn(), true
	}
	return req.Conn(), req.Conn() != nil
}

func (m *mcpServer) count(ctx context.Context, req *jsonrpc.Request, token json.RawMessage, to int) (toolResult, error) {
	if c, ok := client(ctx, req); ok && token != nil {
		for i := range to {
			if err := c.Notify(ctx, "notifications/progress", progress{token, float64(i + 1)}); err != nil {
				return toolResult{}, err
			}
		}
	}
	return said("counted to %d", to), nil
}

var errNobody = errors.New("nobody to ask")

func (m *mcpServer) ask(ctx context.Context, req *jsonrpc.Request, p toolCall, question string) (toolResult, error) {
	form := elicit{Mode: "form", Message: question, RequestedSchema: map[string]any{
		"type": "object", "properties": map[string]any{"colour": map[string]any{"type": "string"}},
	}}
	answer, given := p.InputResponses["answer"]
	if !given && p.Meta.Version >= modern {
		return toolResult{ResultType: "input_required", InputRequests: map[string]inputRequest{"answer": {"elicitation/create", form}}}, nil
	}
	if !given {
		c, ok := client(ctx, req)
		if !ok {
			return toolResult{}, errNobody
		}
		var err error
		if answer, err = jsonrpc.Call[elicited](ctx, c, "elicitation/create", form); err != nil {
			return toolResult{}, err
		}
	}
	return said("%s %v", answer.Action, answer.Content["colour"]), nil
}
