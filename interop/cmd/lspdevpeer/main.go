// Command lspdevpeer is a server and a client made with go.lsp.dev/jsonrpc2:
//
//	lspdevpeer serve FRAMING NETWORK ADDR
//	lspdevpeer drive FRAMING NETWORK ADDR STEPS REPORT
//	lspdevpeer exchange FRAMING NETWORK ADDR STEPS REPORT
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"go.lsp.dev/jsonrpc2"

	"github.com/parley-project/parley/interop/internal/practice"
	"github.com/parley-project/parley/interop/internal/steps"
)

func main() {
	if len(os.Args) < 5 {
		fmt.Fprintln(os.Stderr, "lspdevpeer: serve|drive|exchange FRAMING NETWORK ADDR [STEPS REPORT]")
		os.Exit(2)
	}
	if err := run(os.Args[1], practice.Wire{Framing: os.Args[2], Network: os.Args[3], Addr: os.Args[4]}); err != nil {
		fmt.Fprintln(os.Stderr, "lspdevpeer:", err)
		os.Exit(1)
	}
}

func run(role string, wire practice.Wire) error {
	ctx := context.Background()
	if role == "serve" {
		return wire.Serve(func(c io.ReadWriteCloser) { <-start(ctx, framed(wire, c)).Done() })
	}
	all, err := steps.Read(os.Args[5])
	if err != nil {
		return err
	}
	c, err := wire.Dial()
	if err != nil {
		return err
	}
	var out []steps.Outcome
	if role == "exchange" {
		stream := framed(wire, c)
		out = exchange(ctx, stream, all)
		err = stream.Close()
	} else {
		peer := client{start(ctx, framed(wire, c))}
		out = steps.Run(ctx, peer, all)
		err = peer.Close()
	}
	return errors.Join(err, steps.Write(os.Args[6], out))
}

func framed(wire practice.Wire, c io.ReadWriteCloser) jsonrpc2.Stream {
	if wire.Framing == "headers" {
		return jsonrpc2.NewHeaderStream(c)
	}
	return jsonrpc2.NewNDJSONStream(c)
}

// exchange sends and takes messages below the connection, so that ids are free
// to choose.
func exchange(ctx context.Context, s jsonrpc2.Stream, all []steps.Step) []steps.Outcome {
	out := make([]steps.Outcome, len(all))
	for i, step := range all {
		msg, err := jsonrpc2.DecodeMessage([]byte(step.Text))
		if err == nil {
			_, err = s.Write(ctx, msg)
		}
		for n := 0; err == nil && n < step.Answers; n++ {
			var text []byte
			if msg, _, err = s.Read(ctx); err == nil {
				text, err = jsonrpc2.EncodeMessage(msg)
				out[i].Texts = append(out[i].Texts, string(text))
			}
		}
		if err != nil {
			out[i].Failure = err.Error()
		}
	}
	return out
}

// canceller hears of LSP's cancellation before the handlers do.
type canceller func(jsonrpc2.ID)

func (c canceller) Preempt(_ context.Context, req *jsonrpc2.Request) (any, error) {
	if req.Method() != "$/cancelRequest" {
		return nil, jsonrpc2.ErrNotHandled
	}
	var p struct{ ID any }
	if err := json.Unmarshal(req.Params(), &p); err != nil {
		return nil, err
	}
	switch id := p.ID.(type) {
	case float64:
		c(jsonrpc2.NewNumberID(int64(id)))
	case string:
		c(jsonrpc2.NewStringID(id))
	}
	return true, nil
}

// start serves and calls over one connection: the library knows no difference.
func start(ctx context.Context, stream jsonrpc2.Stream) jsonrpc2.Conn {
	server := new(practice.Server)
	var conn jsonrpc2.Conn
	handle, cancel := jsonrpc2.CancelHandler(func(ctx context.Context, req *jsonrpc2.Request) (any, error) {
		result, fault := server.Answer(ctx, practice.Call{
			Method: req.Method(), Params: json.RawMessage(req.Params()),
			Back: func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *practice.Fault) {
				out := client{conn}.Call(ctx, method, params)
				if out.Failure != "" {
					return nil, &practice.Fault{Code: -32000, Message: out.Failure}
				}
				return out.Result, out.Error
			},
		})
		if fault != nil && req.IsCall() { // of a notification it would end the connection
			return nil, &jsonrpc2.Error{Code: jsonrpc2.Code(fault.Code), Message: fault.Message, Data: jsonrpc2.RawMessage(fault.Data)}
		}
		return jsonrpc2.RawMessage(result), nil
	})
	conn = jsonrpc2.NewConn(stream, jsonrpc2.WithPreempter(canceller(cancel)))
	conn.Go(ctx, jsonrpc2.AsyncHandler(handle))
	return conn
}

type client struct{ jsonrpc2.Conn }

// optional makes params that are not there an untyped nil, as the library
// wants it.
func optional(params json.RawMessage) any {
	if params == nil {
		return nil
	}
	return params
}

func (c client) Call(ctx context.Context, method string, params json.RawMessage) steps.Outcome {
	var result jsonrpc2.RawMessage
	id, err := c.Conn.Call(ctx, method, optional(params), &result)
	var e *jsonrpc2.Error
	switch {
	case ctx.Err() != nil:
		// The library tells the server nothing: that is its user's business.
		err = errors.Join(err, c.Conn.Notify(context.WithoutCancel(ctx), "$/cancelRequest", map[string]any{"id": number(id)}))
		return steps.Outcome{Failure: err.Error()}
	case errors.As(err, &e):
		return steps.Outcome{Error: &practice.Fault{Code: int(e.Code), Message: e.Message, Data: json.RawMessage(e.Data)}}
	case err != nil:
		return steps.Outcome{Failure: err.Error()}
	}
	return steps.Outcome{Result: json.RawMessage(result)}
}

func number(id jsonrpc2.ID) int64 {
	n, _ := id.Number()
	return n
}

func (c client) Notify(ctx context.Context, method string, params json.RawMessage) error {
	return c.Conn.Notify(ctx, method, optional(params))
}

func (client) Batch(context.Context, []steps.Step) steps.Outcome {
	return steps.Outcome{Failure: "the connections of this library send no batches"}
}
