package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/sample"
)

// maxShownID is how much of an id stands in the line of a message, in bytes.
const maxShownID = 200

// mockFlags are those of mock-agent.
type mockFlags struct {
	sample.MockConfig
	listen, reply, require string
	seed                   uint64
}

func newMockAgentCommand(a *app) *cobra.Command {
	var f mockFlags
	cmd := &cobra.Command{
		Use:   "mock-agent",
		Short: "Serve an agent that answers, fails, waits or asks as it is told",
		Long: `Serve an agent for trying workflows, and bad days, without a real one. It speaks
A2A 0.3 and 1.0 over JSON-RPC, and Simple A2A, whichever the request speaks. What
it answers is its input, or --reply.

Its URL is printed when it is ready. Every message is one line on standard error:
the task, the message, what tells the attempt, and what was answered. A message
that comes a second time is answered with the same task and marked "again". A
message that fails (--fail-first, --fail-rate) has no task, so that the same one
is new when it comes again; it fails with --status, or with an error of its protocol.

It remembers the newest 10,000 tasks, or 64 MiB of them, handles 256 calls at once
and takes bodies of up to 1 MiB. Ctrl-C stops it; its tasks are gone then.`,
		Example: `  parley mock-agent
  parley mock-agent --listen 127.0.0.1:9001 --delay 3s
  parley mock-agent --fail-first 2 --status 503
  parley mock-agent --protocol simple-a2a --reply '{"greeting": "Hello"}'
  parley mock-agent --input-required 'Which region?' --require env:MOCK_KEY`,
		Args: need(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("seed") {
				f.seed = rand.Uint64() //nolint:gosec // which calls fail is no secret
			}
			return a.mockAgent(cmd.Context(), f)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.listen, "listen", "127.0.0.1:0", "address to listen on; port 0 picks a free one")
	fl.StringVar(&f.Protocol, "protocol", "", "the only protocol to speak: jsonrpc-2.0 or simple-a2a (default: both)")
	fl.StringVar(&f.Name, "name", "mock-agent", "name on the agent card")
	fl.DurationVar(&f.Delay, "delay", 0, "how long a task takes")
	fl.IntVar(&f.FailFirst, "fail-first", 0, "how many new messages fail, from the first")
	fl.Float64Var(&f.FailRate, "fail-rate", 0, "share of the messages that fail, from 0 to 1")
	fl.Uint64Var(&f.seed, "seed", 0, "makes --fail-rate choose the same messages again (default: another one each time)")
	fl.IntVar(&f.Status, "status", 0, "HTTP status of what fails, 400 to 599 (default: an error of the protocol)")
	fl.StringVar(&f.reply, "reply", "", "output of every task: JSON, @FILE, or - for standard input (default: its input)")
	fl.StringVar(&f.Question, "input-required", "", "text to ask for input with before a task is done; A2A only")
	fl.BoolVar(&f.Stream, "stream", false, "offer streams; A2A only")
	fl.StringVar(&f.require, "require", "", "bearer token to demand: env:NAME, file:PATH or the token itself")
	complete(cmd, "protocol", parley.ProtocolJSONRPC, parley.ProtocolSimpleA2A)
	neverEmpty(cmd, "reply", "require")
	return cmd
}

// check refuses what the agent cannot do.
func (f *mockFlags) check() error {
	protocols := []string{parley.ProtocolJSONRPC, parley.ProtocolSimpleA2A}
	simple := f.Protocol == parley.ProtocolSimpleA2A
	_, _, err := net.SplitHostPort(f.listen)
	switch {
	case err != nil:
		return usagef("--listen %s: %v", f.listen, err).withHint("write host:port, such as 127.0.0.1:9001; port 0 picks a free one")
	case f.Protocol != "" && !slices.Contains(protocols, f.Protocol):
		return usagef("--protocol %s: the protocols are %s", f.Protocol, strings.Join(protocols, " and ")).withHint("%s", didYouMean(f.Protocol, protocols))
	case simple && (f.Question != "" || f.Stream):
		return usagef("--input-required and --stream need A2A: Simple A2A has neither questions nor streams").withHint("leave out --protocol, or say --protocol %s", parley.ProtocolJSONRPC)
	case f.Delay < 0:
		return usagef("--delay %s: it cannot be negative", f.Delay)
	case f.FailFirst < 0:
		return usagef("--fail-first %d: it cannot be negative", f.FailFirst)
	case !(f.FailRate >= 0 && f.FailRate <= 1): // and not NaN
		return usagef("--fail-rate %v: write a number from 0 to 1", f.FailRate)
	case f.Status != 0 && (f.Status < 400 || f.Status > 599):
		return usagef("--status %d: an HTTP status that says a failure is from 400 to 599", f.Status)
	case f.Status != 0 && f.FailFirst == 0 && f.FailRate == 0:
		return usagef("--status goes with --fail-first or --fail-rate: nothing fails without them")
	}
	return nil
}

// mockConfig is the agent that the flags describe.
func (a *app) mockConfig(f mockFlags) (sample.MockConfig, error) {
	cfg := f.MockConfig
	err := f.check()
	if err != nil {
		return cfg, err
	}
	if cfg.Reply, err = a.readValue("--reply", f.reply); err != nil {
		return cfg, err
	}
	if f.require != "" {
		if cfg.Key, err = a.secret("--require", f.require); err != nil {
			return cfg, err
		}
	}
	cfg.Chance = rand.New(rand.NewPCG(f.seed, 0)).Float64 //nolint:gosec // which calls fail is no secret
	cfg.Now, cfg.Told = a.now, a.tellCall
	return cfg, nil
}

func (a *app) mockAgent(ctx context.Context, f mockFlags) error {
	cfg, err := a.mockConfig(f)
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", f.listen)
	if err != nil {
		return listenFailure(err)
	}
	a.shareStderr()
	fmt.Fprintln(a.stdout, "http://"+l.Addr().String())
	if cfg.FailRate > 0 {
		a.note("the same messages fail again with --seed %d", f.seed)
	}
	if addr, ok := l.Addr().(*net.TCPAddr); ok && !addr.IP.IsLoopback() && cfg.Key.IsZero() {
		a.note("other machines may reach this agent; --require demands a token of them")
	}
	if cfg.Protocol == "" {
		a.next("parley agent add http://%s --name %s --protocol %s, or --protocol %s", l.Addr(), shellWord(cfg.Name), parley.ProtocolJSONRPC, parley.ProtocolSimpleA2A)
	} else {
		a.next("parley agent add http://%s --name %s --protocol %s", l.Addr(), shellWord(cfg.Name), cfg.Protocol)
	}
	return serveHandler(ctx, l, sample.NewMock(cfg))
}

// serveHandler serves h until ctx ends, and waits for what it is doing then.
func serveHandler(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		// Who waits for a task when the agent stops does not get it.
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if s.Shutdown(grace) != nil {
			_ = s.Close() // somebody does not read
		}
		err = <-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// tellCall writes the line of one message.
func (a *app) tellCall(c sample.MockCall) {
	line := []string{c.At.In(a.zone).Format("15:04:05.000"), cmp.Or(c.Method, "refused")}
	add := func(name, value string) {
		if value == "" {
			return
		}
		if len(value) > maxShownID {
			value = strings.ToValidUTF8(value[:maxShownID], "") + "…"
		}
		line = append(line, name+"="+clean(value))
	}
	add("task", c.TaskID)
	add("message", c.MessageID)
	add("id", c.RequestID)
	for _, name := range []string{"X-Correlation-ID", "Idempotency-Key", "traceparent", "A2A-Version"} {
		add(name, c.Header.Get(name))
	}
	line = append(line, "->", c.Answer)
	if c.Again {
		line = append(line, "(again)")
	}
	a.note("%s", strings.Join(line, " "))
}
