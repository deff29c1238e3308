package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcdial"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
	"github.com/parley-project/parley/jsonrpc/rpcws"
)

// maxConnections is how many connections are served at once if nothing else is
// said.
const maxConnections = 64

// dialFlags are those of commands that connect to a peer.
type dialFlags struct {
	framing    string
	headers    []string
	maxMessage byteSize
	// post bounds one HTTP request.
	post time.Duration
	// deliver is what a notification gets to arrive when nothing else is to be done; 0 is
	// the default.
	deliver time.Duration
	// stop is what a process that was started gets to end, once its standard input is
	// closed and once more when it was told to; 0 is the default.
	stop time.Duration
}

// register adds the flags of a client.
func (f *dialFlags) register(cmd *cobra.Command) {
	f.registerFraming(cmd)
	cmd.Flags().StringArrayVar(&f.headers, "header", nil, "HTTP header: NAME=VALUE, NAME=env:VARIABLE or NAME=file:PATH; may be repeated")
	cmd.Flags().Var(&f.maxMessage, "max-message", "largest message taken from the peer")
}

// check refuses values that no stream can be made with.
func (f *dialFlags) check() error { return checkFraming("framing", f.framing) }

func (f *dialFlags) registerFraming(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.framing, "framing", "", "line or header, over stdio, tcp, tls and unix (default: what the URL says)")
	complete(cmd, "framing", framingLine, framingHeader)
}

// listenFlags are those of commands that listen.
type listenFlags struct {
	dial        dialFlags
	connections int
}

func (f *listenFlags) register(cmd *cobra.Command) {
	f.dial.registerFraming(cmd)
	cmd.Flags().IntVar(&f.connections, "max-connections", maxConnections, "connections served at once; others wait or are turned away")
}

func (f *listenFlags) check() error {
	if f.connections < 1 {
		return usagef("--max-connections must be at least 1")
	}
	return f.dial.check()
}

// dialError says that a peer could not be reached.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }

func (e *dialError) Unwrap() error { return e.err }

// dial connects to a peer. A process that it starts writes to our standard
// error.
func (a *app) dial(ctx context.Context, to rpcAddress, f dialFlags) (jsonrpc.Stream, error) {
	h, err := a.headers(f.headers)
	if err != nil {
		return nil, err
	}
	cfg := a.transport(f)
	cfg.Header = h
	s, err := rpcdial.Dial(ctx, to.text, cfg)
	if err != nil {
		return nil, &dialError{err}
	}
	return s, nil
}

// transport is what dialing and listening have in common.
func (a *app) transport(f dialFlags) rpcdial.Config {
	return rpcdial.Config{
		Framing:    framingOf(f.framing),
		Subprocess: jsonrpc.SubprocessConfig{CloseWait: f.stop, TermWait: f.stop},
		HTTP:       rpchttp.ClientConfig{MaxMessage: int(f.maxMessage), Timeout: f.post, CloseTimeout: f.deliver},
		Command: func(cmd *exec.Cmd) {
			cmd.Dir, cmd.Env, cmd.Stderr = a.dir, a.env, a.stderr
		},
	}
}

// framingOf gives nil for the framing that the URL says.
func framingOf(name string) jsonrpc.Framing {
	switch name {
	case framingHeader:
		return jsonrpc.NewHeaderStream
	case framingLine:
		return jsonrpc.NewLineStream
	}
	return nil
}

// openStdio gives the stream of this process's standard input and output, or
// of the command that the address names.
func (a *app) openStdio(ctx context.Context, at rpcAddress, f dialFlags) (jsonrpc.Stream, error) {
	if !at.own() || a.ownsStdio() {
		return a.dial(ctx, at, f)
	}
	framing := framingOf(f.framing)
	if framing == nil {
		framing = jsonrpc.NewLineStream
		if at.headers {
			framing = jsonrpc.NewHeaderStream
		}
	}
	return framing(&givenStdio{in: a.stdin, out: a.stdout}), nil
}

// ownsStdio reports whether standard input and output are those of the process.
func (a *app) ownsStdio() bool {
	out := a.stdout
	if s, ok := out.(*sticky); ok {
		out = s.w
	}
	return a.stdin == io.Reader(os.Stdin) && out == io.Writer(os.Stdout)
}

// givenStdio is a standard input and output that are not those of the process.
type givenStdio struct {
	in  io.Reader
	out io.Writer
}

func (s *givenStdio) Read(p []byte) (int, error)  { return s.in.Read(p) }
func (s *givenStdio) Write(p []byte) (int, error) { return s.out.Write(p) }

// Close ends reading where the input can be closed.
func (s *givenStdio) Close() error {
	if c, ok := s.in.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// httpStatus gives the status that a web server refused with, or 0.
func httpStatus(err error) int {
	if e, ok := errors.AsType[*rpchttp.Error](err); ok {
		return e.Status
	}
	if e, ok := errors.AsType[*rpcws.HandshakeError](err); ok {
		return e.Status
	}
	return 0
}
