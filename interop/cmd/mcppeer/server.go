package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// waits counts what the wait tool does.
type waits struct {
	mu                 sync.Mutex
	waiting, cancelled int
}

func (w *waits) wait(ctx context.Context) {
	w.add(1, 0)
	<-ctx.Done()
	w.add(-1, 1)
}

func (w *waits) add(waiting, cancelled int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting += waiting
	w.cancelled += cancelled
}

func (w *waits) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("waiting %d, cancelled %d", w.waiting, w.cancelled)
}

type (
	texts struct {
		Text string `json:"text"`
	}
	question struct {
		Question string `json:"question"`
	}
	terms struct {
		A float64 `json:"a"`
		B float64 `json:"b"`
	}
	sum struct {
		Sum float64 `json:"sum"`
	}
	limit struct {
		To int `json:"to"`
	}
)

func said(format string, args ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

// tool adds a tool whose result is text.
func tool[P any](s *mcp.Server, name string, f func(context.Context, *mcp.CallToolRequest, P) (*mcp.CallToolResult, error)) {
	mcp.AddTool(s, &mcp.Tool{Name: name}, func(ctx context.Context, r *mcp.CallToolRequest, p P) (*mcp.CallToolResult, any, error) {
		result, err := f(ctx, r, p)
		return result, nil, err
	})
}

func newServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "mcppeer", Version: "1"}, nil)
	count := new(waits)
	tool(s, "echo", func(_ context.Context, _ *mcp.CallToolRequest, p texts) (*mcp.CallToolResult, error) {
		return said("%s", p.Text), nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "add"}, func(_ context.Context, _ *mcp.CallToolRequest, p terms) (*mcp.CallToolResult, sum, error) {
		return nil, sum{p.A + p.B}, nil
	})
	tool(s, "refuse", func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, error) {
		return nil, fmt.Errorf("refused")
	})
	tool(s, "count", progress)
	tool(s, "ask", ask)
	tool(s, "wait", func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, error) {
		count.wait(ctx)
		return nil, ctx.Err()
	})
	tool(s, "waits", func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, error) {
		return said("%s", count), nil
	})
	tool(s, "print", func(_ context.Context, _ *mcp.CallToolRequest, p texts) (*mcp.CallToolResult, error) {
		_, err := os.Stdout.WriteString(p.Text)
		return said("printed"), err
	})
	tool(s, "exit", func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, error) {
		os.Exit(3)
		return nil, nil
	})
	return s
}

func progress(ctx context.Context, r *mcp.CallToolRequest, p limit) (*mcp.CallToolResult, error) {
	token := r.Params.GetProgressToken()
	for i := 1; i <= p.To && token != nil; i++ {
		if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(i)}); err != nil {
			return nil, err
		}
	}
	return said("counted to %d", p.To), nil
}

// ask asks the client's user: by a request of its own in the older protocol,
// by a result that wants input in the newer one.
func ask(ctx context.Context, r *mcp.CallToolRequest, p question) (*mcp.CallToolResult, error) {
	elicit := &mcp.ElicitParams{Message: p.Question, RequestedSchema: map[string]any{
		"type": "object", "properties": map[string]any{"colour": map[string]any{"type": "string"}},
	}}
	var answer *mcp.ElicitResult
	switch given, ok := r.Params.InputResponses["answer"].(*mcp.ElicitResult); {
	case ok:
		answer = given
	case r.ProtocolVersion() >= "2026-07-28":
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"answer": elicit}}, nil
	default:
		var err error
		if answer, err = r.Session.Elicit(ctx, elicit); err != nil {
			return nil, err
		}
	}
	return said("%s %v", answer.Action, answer.Content["colour"]), nil
}
