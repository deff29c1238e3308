// Command jrpc2peer is a server and a client made with
// github.com/creachadair/jrpc2:
//
//	jrpc2peer serve FRAMING NETWORK ADDR
//	jrpc2peer drive FRAMING NETWORK ADDR STEPS REPORT
//	jrpc2peer exchange FRAMING NETWORK ADDR STEPS REPORT
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/creachadair/jrpc2"
	"github.com/creachadair/jrpc2/channel"
	"github.com/creachadair/jrpc2/jhttp"

	"github.com/parley-project/parley/interop/internal/practice"
	"github.com/parley-project/parley/interop/internal/steps"
)

func main() {
	if len(os.Args) < 5 {
		fmt.Fprintln(os.Stderr, "jrpc2peer: serve|drive|exchange FRAMING NETWORK ADDR [STEPS REPORT]")
		os.Exit(2)
	}
	if err := run(os.Args[1], practice.Wire{Framing: os.Args[2], Network: os.Args[3], Addr: os.Args[4]}); err != nil {
		fmt.Fprintln(os.Stderr, "jrpc2peer:", err)
		os.Exit(1)
	}
}

func run(role string, wire practice.Wire) error {
	if role == "serve" {
		return serve(wire)
	}
	all, err := steps.Read(os.Args[5])
	if err != nil {
		return err
	}
	ch, err := dial(wire)
	if err != nil {
		return err
	}
	var out []steps.Outcome
	if role == "exchange" {
		out = exchange(ch, all)
		err = ch.Close()
	} else {
		c := newClient(ch)
		out = steps.Run(context.Background(), c, all)
		err = c.Close()
	}
	return errors.Join(err, steps.Write(os.Args[6], out))
}

func framing(wire practice.Wire) channel.Framing {
	if wire.Framing == "headers" {
		return channel.LSP
	}
	return channel.Line
}

func dial(wire practice.Wire) (channel.Channel, error) {
	if wire.Network == "http" {
		return jhttp.NewChannel(wire.Addr, nil), nil
	}
	c, err := wire.Dial()
	if err != nil {
		return nil, err
	}
	return framing(wire)(c, c), nil
}

// exchange sends texts over the channel alone, so that ids are free to choose.
func exchange(ch channel.Channel, all []steps.Step) []steps.Outcome {
	out := make([]steps.Outcome, len(all))
	for i, s := range all {
		if err := ch.Send([]byte(s.Text)); err != nil {
			out[i].Failure = err.Error()
		}
		for range s.Answers {
			text, err := ch.Recv()
			if err != nil {
				out[i].Failure = err.Error()
				break
			}
			out[i].Texts = append(out[i].Texts, string(text))
		}
	}
	return out
}

// methods assigns every name to the practice server, and leaves it to the
// library to say that a method is unknown.
type methods struct{ *practice.Server }

func (m methods) Assign(_ context.Context, method string) jrpc2.Handler {
	switch method {
	case "$/cancelRequest":
		return cancelRequest
	case "echo", "subtract", "fail", "note", "notes", "back", "wait", "waits", "print", "exit":
		return m.handle
	}
	return nil
}

// cancelRequest is LSP's notification; the library leaves the choice of one to
// its users.
func cancelRequest(ctx context.Context, req *jrpc2.Request) (any, error) {
	var p struct {
		ID json.RawMessage `json:"id"`
	}
	if err := req.UnmarshalParams(&p); err != nil {
		return nil, err
	}
	jrpc2.ServerFromContext(ctx).CancelRequest(string(p.ID))
	return nil, nil
}

func (m methods) handle(ctx context.Context, req *jrpc2.Request) (any, error) {
	server := jrpc2.ServerFromContext(ctx)
	return answer(ctx, m.Server, req, func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *practice.Fault) {
		rsp, err := server.Callback(ctx, method, optional(params))
		out := outcome(rsp, err)
		if out.Failure != "" {
			return nil, &practice.Fault{Code: -32000, Message: out.Failure}
		}
		return out.Result, out.Error
	})
}

func answer(ctx context.Context, s *practice.Server, req *jrpc2.Request, back practice.Back) (any, error) {
	var params json.RawMessage
	if err := req.UnmarshalParams(&params); err != nil {
		return nil, err
	}
	result, fault := s.Answer(ctx, practice.Call{Method: req.Method(), Params: params, Back: back})
	if fault != nil {
		return nil, &jrpc2.Error{Code: jrpc2.Code(fault.Code), Message: fault.Message, Data: fault.Data}
	}
	return result, nil
}

func serve(wire practice.Wire) error {
	m := methods{new(practice.Server)}
	// A wait takes one of the workers, of which there are as many as processors
	// unless told otherwise.
	opts := &jrpc2.ServerOptions{AllowPush: true, Concurrency: 2000}
	if wire.Network == "http" {
		l, err := wire.Listen()
		if err != nil {
			return err
		}
		return http.Serve(l, jhttp.NewBridge(m, &jhttp.BridgeOptions{Server: opts}))
	}
	return wire.Serve(func(c io.ReadWriteCloser) {
		_ = jrpc2.NewServer(m, opts).Start(framing(wire)(c, c)).Wait()
	})
}

type client struct{ *jrpc2.Client }

func newClient(ch channel.Channel) client {
	server := new(practice.Server)
	return client{jrpc2.NewClient(ch, &jrpc2.ClientOptions{
		OnCallback: func(ctx context.Context, req *jrpc2.Request) (any, error) {
			return answer(ctx, server, req, nil)
		},
		OnCancel: func(c *jrpc2.Client, rsp *jrpc2.Response) {
			_ = c.Notify(context.Background(), "$/cancelRequest", map[string]any{"id": json.RawMessage(rsp.ID())})
		},
	})}
}

// optional makes params that are not there an untyped nil, as the library
// wants it.
func optional(params json.RawMessage) any {
	if params == nil {
		return nil
	}
	return params
}

func outcome(rsp *jrpc2.Response, err error) steps.Outcome {
	var e *jrpc2.Error
	switch {
	case errors.As(err, &e):
		return steps.Outcome{Error: &practice.Fault{Code: int(e.Code), Message: e.Message, Data: e.Data}}
	case err != nil:
		return steps.Outcome{Failure: err.Error()}
	}
	return steps.Outcome{Result: json.RawMessage(rsp.ResultString())}
}

func (c client) Call(ctx context.Context, method string, params json.RawMessage) steps.Outcome {
	return outcome(c.Client.Call(ctx, method, optional(params)))
}

func (c client) Notify(ctx context.Context, method string, params json.RawMessage) error {
	return c.Client.Notify(ctx, method, optional(params))
}

func (c client) Batch(ctx context.Context, entries []steps.Step) steps.Outcome {
	specs := make([]jrpc2.Spec, len(entries))
	for i, e := range entries {
		specs[i] = jrpc2.Spec{Method: e.Method, Params: optional(e.Params), Notify: e.Op == "notify"}
	}
	all, err := c.Client.Batch(ctx, specs)
	if err != nil {
		return steps.Outcome{Failure: err.Error()}
	}
	var out steps.Outcome
	for _, rsp := range all {
		if e := rsp.Error(); e != nil {
			out.Entries = append(out.Entries, outcome(nil, e))
		} else {
			out.Entries = append(out.Entries, outcome(rsp, nil))
		}
	}
	return out
}
