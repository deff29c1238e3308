// Command mcppeer is an MCP server and client made with
// github.com/modelcontextprotocol/go-sdk:
//
//	mcppeer server stdio
//	mcppeer server http sse|json|stateless ADDR
//	mcppeer client VERSION stdio REPORT COMMAND ARGS…
//	mcppeer client VERSION http REPORT URL
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/parley-project/parley/interop/internal/practice"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mcppeer:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx := context.Background()
	switch {
	case len(args) == 2 && args[0] == "server":
		return newServer().Run(ctx, &mcp.StdioTransport{})
	case len(args) == 4 && args[0] == "server":
		return serveHTTP(args[2], args[3])
	case len(args) >= 5 && args[0] == "client" && args[2] == "stdio":
		cmd := exec.CommandContext(ctx, args[4], args[5:]...)
		cmd.Stderr = os.Stderr
		return drive(ctx, args[1], args[3], &mcp.CommandTransport{Command: cmd})
	case len(args) == 5 && args[0] == "client":
		return drive(ctx, args[1], args[3], &mcp.StreamableClientTransport{Endpoint: args[4]})
	}
	return errors.New("server stdio, server http MODE ADDR, client VERSION stdio REPORT COMMAND…, client VERSION http REPORT URL")
}

func serveHTTP(mode, addr string) error {
	server := newServer()
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{
		Stateless:    mode == "stateless",
		JSONResponse: mode == "json",
		// Without it a cancelled request of the newer protocol runs on.
		PropagateRequestCancellation: true,
	})
	l, err := practice.Wire{Network: "http", Addr: addr}.Listen()
	if err != nil {
		return err
	}
	return http.Serve(l, handler)
}

// drive plays the scene that node/mcpscene.mjs describes.
func drive(ctx context.Context, version, report string, t mcp.Transport) error {
	s := &scene{progress: []float64{}}
	client := mcp.NewClient(&mcp.Implementation{Name: "mcppeer", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"colour": "red"}}, nil
		},
		ProgressNotificationHandler: s.progressed,
	})
	session, err := client.Connect(ctx, t, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		return err
	}
	s.session = session
	out, err := s.play(ctx)
	if err != nil {
		return err
	}
	text, err := json.Marshal(out)
	if err != nil {
		return err
	}
	return errors.Join(session.Close(), os.WriteFile(report, text, 0o600))
}
