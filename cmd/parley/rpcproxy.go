package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley/internal/logging"
	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcdial"
)

// rpcProxyFlags are those of rpc proxy.
type rpcProxyFlags struct {
	listen              listenFlags
	framingB, traceFile string
	headers             []string
	text                int
}

func newRPCProxy(a *app) *cobra.Command {
	var f rpcProxyFlags
	cmd := &cobra.Command{
		Use:   "proxy A B",
		Short: "Pass JSON-RPC 2.0 messages on between two peers and show them",
		Long: `Listen at A, connect to B for each connection, and pass messages on in both
directions, with one line about each on standard error: time, connection,
direction, kind, size, method, id, time since the request, error code, and the
beginning of the message. With -o jsonl (or json) each line is a JSON object, with
-o wide times are exact.

Messages go on as they came, malformed ones too; only their framing is that of
the side they go to (a line feed within a message becomes a carriage return,
which is the same to JSON). A slow side slows the other; what is not passed on
yet is not kept. What stands under a name like password, token, secret,
authorization or api_key is shown as [redacted].

A may be stdio: (the proxy then stands in for a program that speaks over its
standard input and output) or stdio:COMMAND. Listening over HTTP, a connection
takes one POST at a time, and what B sends of its own accord is dropped.

` + rpcURLHelp,
		Example: `  parley rpc proxy tcp://127.0.0.1:7001 tcp://127.0.0.1:7000
  parley rpc proxy stdio: 'stdio:./server --verbose' --trace trace.txt
  parley rpc proxy stdio: wss://example.com/rpc --header 'Authorization=Bearer env:TOKEN'
  parley rpc proxy --framing header stdio: 'stdio:gopls' -o jsonl --trace lsp.jsonl`,
		Args: need("A", "B"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.rpcProxy(cmd.Context(), args, f) },
	}
	fl := cmd.Flags()
	f.listen.register(cmd)
	fl.StringVar(&f.framingB, "framing-b", "", "framing of side B where it is another than that of --framing")
	fl.StringArrayVar(&f.headers, "header", nil, "HTTP header for B: NAME=VALUE, NAME=env:VARIABLE or NAME=file:PATH; may be repeated")
	fl.StringVar(&f.traceFile, "trace", "", "file to append the trace to instead of standard error")
	fl.IntVar(&f.text, "text", 200, "how much of each message is shown, in bytes; 0 is nothing")
	complete(cmd, "framing-b", framingLine, framingHeader)
	return cmd
}

// proxy is a running rpc proxy.
type proxy struct {
	app    *app
	tracer *tracer
	b      rpcAddress
	dialB  dialFlags
	conns  atomic.Int64
}

func (a *app) rpcProxy(ctx context.Context, args []string, f rpcProxyFlags) (err error) {
	from, err := rpcURL(args[0])
	if err == nil {
		err = f.listen.check()
	}
	if err != nil {
		return err
	}
	to, err := rpcURL(args[1])
	if err != nil {
		return err
	}
	if err := from.refuseToListen(); err != nil {
		return err
	}
	if to.own() {
		return usagef("B is stdio: without a command: only A can be the standard input and output of the proxy")
	}
	if f.text < 0 {
		return usagef("--text must not be negative")
	}
	p := &proxy{app: a, b: to, dialB: f.listen.dial}
	p.dialB.headers, p.dialB.maxMessage, p.dialB.post = f.headers, maxPostAnswer, maxPostTime
	if f.framingB != "" {
		if err := checkFraming("framing-b", f.framingB); err != nil {
			return err
		}
		p.dialB.framing = f.framingB
	}
	if _, err := a.headers(f.headers); err != nil {
		return err
	}
	a.shareStderr()
	out := a.stderr
	if f.traceFile != "" {
		file, err := os.OpenFile(a.path(f.traceFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return usagef("--trace: %v", err)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out = file
	}
	p.tracer = a.newTracer(out, f.text)
	p.tracer.many = from.scheme != "stdio:"
	if err := p.run(ctx, from, f.listen); err != nil {
		return err
	}
	if err := p.tracer.failed(); err != nil {
		return fmt.Errorf("the trace has gaps: %w", err)
	}
	return nil
}

func (a *app) newTracer(w io.Writer, limit int) *tracer {
	t := &tracer{format: a.flags.output, zone: a.zone, now: a.now, limit: limit, w: w, redactor: logging.NewRedactor()}
	t.paint = func(_ ink, s string) string { return s }
	if a.colour(w) {
		t.paint = func(i ink, s string) string { return i.Render(s) }
	}
	return t
}

// run serves side A until ctx ends, or the one connection that A is.
func (p *proxy) run(ctx context.Context, from rpcAddress, f listenFlags) error {
	a := p.app
	if from.scheme == "stdio:" {
		s, err := a.openStdio(ctx, from, f.dial)
		if err != nil {
			return a.rpcFailure(ctx, err, 0)
		}
		err = p.connection(ctx, s)
		if _, ok := errors.AsType[*sideError](err); ok {
			return &failure{exit: exitUnreachable, code: "unreachable", text: err.Error()}
		}
		return a.rpcFailure(ctx, err, 0)
	}
	ready := func(url string) {
		a.note("passing on between A %s and B %s (Ctrl-C stops)", url, p.tracer.redactor.String(p.b.text))
	}
	serve := func(s jsonrpc.Stream) {
		if err := p.connection(ctx, s); err != nil && ctx.Err() == nil {
			a.note("%v", err)
		}
	}
	if from.scheme == "http://" {
		return listenFailure(listenPosts(ctx, from, postConfig{connections: f.connections, bodyTime: postBodyTime, ready: ready, serve: serve}))
	}
	cfg := a.transport(f.dial)
	cfg.MaxConns, cfg.Listening = f.connections, ready
	return listenFailure(rpcdial.Listen(ctx, from.text, cfg, serve))
}

// connection connects to B and carries one connection of A, which it closes.
func (p *proxy) connection(ctx context.Context, s jsonrpc.Stream) error {
	n := int(p.conns.Add(1))
	b, err := p.app.dial(ctx, p.b, p.dialB)
	if err != nil {
		_ = s.Close()
		return fmt.Errorf("connection %d: side B: %w", n, err)
	}
	if err := carry(ctx, p.tracer, n, s, b); err != nil {
		return fmt.Errorf("connection %d: %w", n, err)
	}
	return nil
}
