// Command go is a small agent that speaks A2A 0.3 and 1.0, made of the standard
// library alone.
//
//	go run ./examples/agents/go --port 9001     over HTTP, at http://127.0.0.1:9001/
//	go run ./examples/agents/go --stdio         over stdin and stdout, one JSON text a line
//
// The first word of a message says what the agent does with it:
//
//	echo TEXT       answers TEXT at once (so does any other text)
//	long SECONDS    works in the background and reports how far it is
//	ask             asks a question; a message to the same task answers it
//	fail            fails
//
// To make an agent of your own, change Agent.begin and Agent.work.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"time"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("agent", flag.ContinueOnError)
	host := flags.String("host", "127.0.0.1", "address to listen on")
	port := flags.Int("port", 9001, "port to listen on; 0 picks a free one")
	url := flags.String("url", "", "where clients reach it, for the card (default http://HOST:PORT/)")
	stdio := flags.Bool("stdio", false, "speak over stdin and stdout instead")
	if err := flags.Parse(args); err != nil {
		return err
	}
	agent := newAgent()
	defer agent.close()
	if *stdio {
		return talk(ctx, agent, in, out)
	}
	return serve(ctx, agent, net.JoinHostPort(*host, strconv.Itoa(*port)), *url, out)
}

// serve answers over HTTP until it is interrupted.
func serve(ctx context.Context, agent *Agent, address, url string, out io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	address = "http://" + l.Addr().String() + "/"
	fmt.Fprintln(out, "listening on", address)
	srv := &http.Server{
		Handler:           handler(agent, cmp.Or(url, address)),
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
		// A task belongs to the agent, not to the connection that brought it.
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	defer context.AfterFunc(ctx, func() { srv.Close() })()
	if err := srv.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}
