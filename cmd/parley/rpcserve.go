package main

import (
	"context"
	"errors"
	"io"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcdial"
	"github.com/parley-project/parley/jsonrpc/rpcpractice"
)

// rpcServeFlags are those of rpc serve.
type rpcServeFlags struct {
	listen     listenFlags
	handlers   int
	maxMessage byteSize
}

func newRPCServe(a *app) *cobra.Command {
	f := rpcServeFlags{maxMessage: 1 << 20}
	cmd := &cobra.Command{
		Use:   "serve URL",
		Short: "Serve practice methods over JSON-RPC 2.0",
		Long: `Serve the methods of the examples in the JSON-RPC 2.0 specification, for trying
out clients:

  echo            the params, as they came
  subtract        [minuend, subtrahend], or both by name
  sum             the sum of an array of numbers
  get_data        ["hello", 5]
  notify_hello    null; so do notify_sum and update
  fail_with_code  the error {"code", "message", "data"} that the params describe

Every other method is answered -32601. Port 0 picks a free port; where the
server listens is said on standard error. Ctrl-C stops it: what is being handled
is answered first.

` + rpcURLHelp,
		Example: `  parley rpc serve tcp://127.0.0.1:0
  parley rpc serve http://127.0.0.1:7000/rpc
  parley rpc serve unix:/tmp/practice.sock --framing header
  parley rpc call 'stdio:parley rpc serve stdio:' sum '[1, 2, 4]'`,
		Args: need("URL"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.rpcServe(cmd.Context(), args[0], f) },
	}
	f.listen.register(cmd)
	cmd.Flags().Var(&f.maxMessage, "max-message", "largest message taken; larger ones are answered with an error")
	cmd.Flags().IntVar(&f.handlers, "max-handlers", 1024, "requests handled at once on one connection; others are answered that the server is busy")
	return cmd
}

func (a *app) rpcServe(ctx context.Context, address string, f rpcServeFlags) error {
	at, err := rpcURL(address)
	if err == nil {
		err = f.listen.check()
	}
	if err != nil {
		return err
	}
	if f.handlers < 1 {
		return usagef("--max-handlers must be at least 1")
	}
	if err := at.refuseToListen(); err != nil {
		return err
	}
	a.shareStderr()
	heard := a.notices()
	defer heard.end()
	rpc := jsonrpc.Config{
		Handler: practice(), MaxHandlers: f.handlers, MaxMessage: int(f.maxMessage),
		Hooks: jsonrpc.Hooks{Notice: heard.take},
	}
	if at.own() {
		s, err := a.openStdio(ctx, at, f.listen.dial)
		if err != nil {
			return a.rpcFailure(ctx, err, 0)
		}
		return brokenStream(serveConn(ctx, s, rpc))
	}
	cfg := a.transport(f.listen.dial)
	cfg.MaxConns = f.listen.connections
	cfg.Listening = func(url string) {
		if at.scheme == "stdio:" {
			return
		}
		a.note("listening on %s (Ctrl-C stops)", url)
		a.next("parley rpc call %s subtract '[42, 23]'", url)
	}
	return listenFailure(rpcdial.Serve(ctx, at.text, cfg, rpc))
}

// listenFailure says what to do when listening fails.
func listenFailure(err error) error {
	if err == nil {
		return nil
	}
	f := &failure{exit: exitFailed, code: "listen", text: err.Error()}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return f
	}
	return f.withHint("is something else listening there? Port 0 picks a free one")
}

// practice has the methods of rpcpractice, and takes the notifications of the
// specification's examples. As a request it answers foobar with "method not
// found", so that one is not among them.
func practice() *jsonrpc.Mux {
	m := rpcpractice.NewMux()
	for _, name := range []string{"notify_sum", "update"} {
		m.RegisterInline(name, jsonrpc.HandlerFunc(func(context.Context, *jsonrpc.Request) (any, error) { return nil, nil }))
	}
	return m
}

// serveConn answers the requests on one stream until the peer hangs up or ctx
// ends.
func serveConn(ctx context.Context, s jsonrpc.Stream, cfg jsonrpc.Config) error {
	conn := jsonrpc.NewConn(s, cfg)
	select {
	case <-conn.Done():
	case <-ctx.Done():
	}
	return conn.Close()
}

// brokenStream says what was wrong with what came over a stream, or with the stream.
func brokenStream(err error) error {
	if err == nil {
		return nil
	}
	f := &failure{exit: exitFailed, code: "rpc", text: "what the peer sends cannot be followed any further: " + plainText(err)}
	_, framing := errors.AsType[*jsonrpc.FramingError](err)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		f.text = "the peer hung up within a message"
	case !framing:
		f.text = "the connection broke: " + plainText(err)
		return f
	}
	return f.withHint("is its framing the one of --framing (line without it)?")
}

// shareStderr lets several goroutines write whole lines to standard error.
func (a *app) shareStderr() {
	shared := &sharedWriter{w: a.stderr}
	ask := a.terminal
	a.terminal = func(w io.Writer) (int, bool) {
		if w == shared {
			w = shared.w
		}
		return ask(w)
	}
	a.stderr = shared
}

// sharedWriter makes writes one at a time.
type sharedWriter struct {
	mu sync.Mutex
	w  io.Writer // guarded by mu
}

func (s *sharedWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}
