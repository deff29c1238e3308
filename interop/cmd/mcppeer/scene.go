package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A report is what came of the scene.
type report struct {
	Version   string    `json:"version"`
	Server    string    `json:"server"`
	Tools     []string  `json:"tools"`
	Echo      string    `json:"echo"`
	Sum       any       `json:"sum"`
	Refused   string    `json:"refused"`
	Unknown   unknown   `json:"unknown"`
	Many      int       `json:"many"`
	Big       int       `json:"big"`
	Progress  []float64 `json:"progress"`
	Counted   string    `json:"counted"`
	Asked     string    `json:"asked"`
	Ping      bool      `json:"ping,omitempty"`
	Cancelled bool      `json:"cancelled"`
}

type unknown struct {
	Code    int64  `json:"code"`
	Message string `json:"message"`
}

type scene struct {
	session  *mcp.ClientSession
	mu       sync.Mutex
	progress []float64
}

func (s *scene) progressed(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress = append(s.progress, r.Params.Progress)
}

func (s *scene) call(ctx context.Context, name string, args map[string]any) (*mcp.CallToolResult, string, error) {
	params := &mcp.CallToolParams{Name: name, Arguments: args}
	if name == "count" {
		params.SetProgressToken("counting")
	}
	result, err := s.session.CallTool(ctx, params)
	if err != nil {
		return nil, "", err
	}
	var text strings.Builder
	for _, c := range result.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			text.WriteString(t.Text)
		}
	}
	return result, text.String(), nil
}

func (s *scene) sum(ctx context.Context, a, b int) any {
	result, _, err := s.call(ctx, "add", map[string]any{"a": a, "b": b})
	if err != nil {
		return err.Error()
	}
	structured, _ := result.StructuredContent.(map[string]any)
	return structured["sum"]
}

func (s *scene) play(ctx context.Context) (report, error) {
	about := s.session.InitializeResult()
	out := report{Version: about.ProtocolVersion, Server: about.ServerInfo.Name}
	tools, err := s.session.ListTools(ctx, nil)
	if err != nil {
		return out, err
	}
	for _, t := range tools.Tools {
		out.Tools = append(out.Tools, t.Name)
	}
	slices.Sort(out.Tools)
	var failed [6]error
	_, out.Echo, failed[0] = s.call(ctx, "echo", map[string]any{"text": "a\"\\/\b\f\n\r\t\u0000\u2028é😀"})
	out.Sum = s.sum(ctx, 2, 40)
	refused, text, err := s.call(ctx, "refuse", map[string]any{})
	if failed[1] = err; err == nil && refused.IsError {
		out.Refused = text
	}
	var wire *jsonrpc.Error
	if _, _, err := s.call(ctx, "no such tool", map[string]any{}); errors.As(err, &wire) {
		out.Unknown = unknown{Code: wire.Code, Message: wire.Message}
	}
	out.Many = s.many(ctx)
	big := strings.Repeat("é", 450_000)
	if _, text, err := s.call(ctx, "echo", map[string]any{"text": big}); err != nil {
		failed[2] = err
	} else if text == big {
		out.Big = len(text)
	}
	_, out.Counted, failed[3] = s.call(ctx, "count", map[string]any{"to": 3})
	_, out.Asked, failed[4] = s.call(ctx, "ask", map[string]any{"question": "colour"})
	if out.Version < "2026-07-28" { // the newer protocol has no ping
		failed[5] = s.session.Ping(ctx, nil)
		out.Ping = failed[5] == nil
	}
	out.Cancelled = s.cancelled(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	out.Progress = s.progress
	return out, errors.Join(failed[:]...)
}

func (s *scene) many(ctx context.Context) int {
	var all sync.WaitGroup
	calls, _ := strconv.Atoi(os.Getenv("MANY")) // not a number: none
	right := make([]bool, calls)
	for i := range right {
		all.Go(func() { right[i] = s.sum(ctx, i, 1) == float64(i+1) })
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

// cancelled ends a call that the server is known to run, and waits until the
// server says that it heard of it.
func (s *scene) cancelled(ctx context.Context) bool {
	one, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	var call sync.WaitGroup
	defer call.Wait()
	call.Go(func() {
		_, _, err := s.call(one, "wait", map[string]any{})
		ended <- err
	})
	ran := s.seen(ctx, "waiting 1, cancelled 0")
	stop()
	err := <-ended
	return ran && err != nil && s.seen(ctx, "waiting 0, cancelled 1")
}

func (s *scene) seen(ctx context.Context, want string) bool {
	for range 500 {
		_, text, err := s.call(ctx, "waits", map[string]any{})
		if err == nil && text == want {
			return true
		}
		<-time.After(10 * time.Millisecond)
	}
	return false
}
