package a2a

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// Adapter is the [bridge.Adapter] for A2A 0.2, 0.3 and 1.0, the protocol
// "jsonrpc-2.0", over every transport. Whoever makes one closes it.
type Adapter struct {
	opts Options
	wire *bridge.Wire
	// http, rest, grpc and link are the transports.
	http, rest, grpc, link binding
	closers                []func()
	known                  knowledge
	// asked counts the requests that are no sends, for their ids.
	asked atomic.Int64
}

var (
	_ bridge.Adapter       = (*Adapter)(nil)
	_ bridge.Follower      = (*Adapter)(nil)
	_ bridge.Finder        = (*Adapter)(nil)
	_ bridge.Subscriber    = (*Adapter)(nil)
	_ bridge.Answerer      = (*Adapter)(nil)
	_ bridge.Canceler      = (*Adapter)(nil)
	_ bridge.ConfigChecker = (*Adapter)(nil)
)

// Options is what an Adapter is made from. Only Exchange is needed.
type Options struct {
	// Exchange carries everything; it is not closed by the Adapter.
	Exchange *bridge.Exchange
	// Logger and Observer are told about every exchange (AD-10, AD-11).
	Logger   *slog.Logger
	Observer bridge.TranslationObserver
	// Detector is asked about agents of "a2a": "auto" about which nothing is
	// stored. Nil: they are taken for 0.3 until they say otherwise.
	Detector Detector
	// Push gives the URL to which an agent may report changes of a task, and the
	// secret that it shows there; ok is false for none. Nil: agents are not
	// asked to.
	Push func(taskID string) (url, token string, ok bool)
	// Stdio allows to run the programs that agent records name.
	Stdio bool
	// LookupEnv is the environment of which such programs inherit a few
	// variables; nil: none.
	LookupEnv func(name string) (string, bool)
	// Random gives numbers in [0, 1) for the pauses before restarts; nil: no
	// jitter.
	Random func() float64
	// Now reads the clock; nil is time.Now.
	Now func() time.Time
}

// New makes an Adapter.
func New(opts Options) *Adapter {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	a := &Adapter{opts: opts, wire: bridge.NewWire(opts.Exchange, opts.Logger, opts.Observer)}
	a.known = knowledge{now: opts.Now, of: map[string]*lesson{}}
	together := newBatched(&rpcHTTP{x: opts.Exchange}, opts.Now)
	links := newLink(linkOptions{
		Exchange: opts.Exchange, Logger: opts.Logger, Stdio: opts.Stdio, LookupEnv: opts.LookupEnv, Random: opts.Random, Now: opts.Now,
	})
	a.http, a.link = together, links
	over := newGRPC(grpcOptions{Exchange: opts.Exchange, Now: opts.Now})
	a.rest, a.grpc = &restBinding{x: opts.Exchange}, over
	a.closers = append(a.closers, together.close, links.close, over.close)
	return a
}

// Close ends connections and processes that were kept, and waits for them.
// Calls under way fail.
func (a *Adapter) Close() {
	for _, end := range a.closers {
		end()
	}
}

// Protocol is "jsonrpc-2.0".
func (a *Adapter) Protocol() string { return parley.ProtocolJSONRPC }

// binding gives what reaches e.
func (a *Adapter) binding(e Endpoint) binding {
	switch {
	case streamless(e.URL):
		return a.link
	case e.Binding == BindingREST:
		return a.rest
	case e.Binding == BindingGRPC:
		return a.grpc
	}
	return a.http
}

// errand is one operation to be made: about which task, with which agent, how
// it is called.
type errand struct {
	task  parley.Task
	agent parley.Agent
	to    target
	// push is where the agent may report on the task, zero if it is not asked to.
	push pushTarget
	// switched: the dialect was changed, which is done once. moved: it is about a task that
	// the agent has at another place than where it is called now.
	switched, moved bool
	// cancels: the task is being cancelled.
	cancels bool
}

// exchange is one operation of an errand and how what comes of it is judged.
type exchange struct {
	*errand
	verb   verb
	id     string
	params []byte

	// write makes the params. It fails if the task cannot be put into words.
	write func() ([]byte, error)
	// result judges what the agent gave, failure what it refused or failed at.
	result  func(result []byte) (bridge.Outcome, []bridge.Warning, error)
	failure func(f *failure) bridge.Outcome
	// minor says of a failed outcome that it decides nothing about the task.
	minor func(bridge.Outcome) bool

	// refused is the failure that was answered, if one was; judged says that the
	// agent told something about its task.
	refused *failure
	judged  bool
	// message: what the agent told is a message, and nothing about a task.
	message bool
	// events is the open stream behind the first event, if the agent streams.
	events eventSource
}

// exchange begins an exchange of the operation vb. Sends have an id that is the
// caller's, and whatever else is asked one of its own.
func (a *Adapter) exchange(e *errand, vb verb) *exchange {
	ex := &exchange{errand: e, verb: vb}
	if !vb.sends() {
		ex.id = e.task.ID + "#" + strconv.FormatInt(a.asked.Add(1), 10)
	}
	return ex
}

// operation is the exchange as bindings see it.
func (ex *exchange) operation() operation {
	op := operation{verb: ex.verb, to: ex.to.Endpoint, task: ex.task, agent: ex.agent, id: ex.id, params: ex.params}
	if ex.verb == verbSend && ex.to.Version == V03 {
		op.method = ex.to.cfg.Method
	}
	return op
}

// run makes the exchange and says what came of it.
func (a *Adapter) run(ctx context.Context, ex *exchange) (bridge.Outcome, error) {
	b := a.binding(ex.to.Endpoint)
	return a.wire.Call(ctx, ex.task, ex.agent, bridge.Conversation{
		Protocol: parley.ProtocolJSONRPC,
		Request: func() (body []byte, err error) {
			if ex.params, err = ex.write(); err != nil {
				return nil, err
			}
			return b.encode(ex.operation())
		},
		Carry: func(ctx context.Context, body []byte) (bridge.Reply, error) {
			if !ex.verb.streams() {
				return b.carry(ctx, ex.operation(), body)
			}
			return ex.open(ctx, b, body)
		},
		Answer: func(body []byte) (bridge.Outcome, []bridge.Warning, error) {
			if body == nil && ex.events != nil {
				return ex.result(nil)
			}
			result, f, err := b.open(ex.operation(), body)
			switch {
			case err != nil:
				ex.end()
				return bridge.Outcome{}, nil, err
			case f != nil:
				ex.end()
				ex.refused = f
				return ex.failure(f), nil, nil
			}
			return ex.result(result)
		},
		Refusal: func(body []byte, e *bridge.ExchangeError) bridge.Outcome { return ex.refusal(b, body, e) },
		Minor:   ex.minor,
		Usual:   func(bridge.Outcome) bool { return ex.verb == verbSubscribe && ex.refused.tellsNothing() },
	})
}

// open opens a stream and gives its first event as the reply.
func (ex *exchange) open(ctx context.Context, b binding, body []byte) (bridge.Reply, error) {
	events, reply, err := b.stream(ctx, ex.operation(), body)
	if err != nil || events == nil {
		return reply, err
	}
	if ex.verb == verbSubscribe {
		// Some agents say nothing until there is something new.
		ex.events = events
		return bridge.Reply{Status: http.StatusOK}, nil
	}
	within, cancel := context.WithTimeout(ctx, patience(ex.agent))
	defer cancel()
	first, err := events.next(within)
	if err != nil {
		events.close()
		return bridge.Reply{}, ex.unbegun(ctx, within, err)
	}
	ex.events = events
	return bridge.Reply{Status: http.StatusOK, Body: first}, nil
}

// unbegun says why there is no first event.
func (ex *exchange) unbegun(ctx, within context.Context, err error) *bridge.ExchangeError {
	const tail = "what became of the request is not known"
	lost := func(code parley.Code, format string, args ...any) *bridge.ExchangeError {
		e := parley.Errorf(code, format, args...)
		e.Retryable = code != parley.CodeCancelled
		return &bridge.ExchangeError{Disposition: bridge.Lost, Err: e}
	}
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return lost(parley.CodeTimeout, "the time for the attempt was up before the first event of the stream; "+tail)
	case ctx.Err() != nil:
		return lost(parley.CodeCancelled, "the call was given up before the first event of the stream; "+tail)
	case within.Err() != nil:
		return lost(parley.CodeTimeout, "no event of the stream within %v (the agent's timeout); %s", patience(ex.agent), tail)
	case errors.Is(err, io.EOF):
		return lost(parley.CodeAgentUnavailable, "the stream ended before its first event; "+tail)
	}
	return cutError(err)
}

// refusal prefers the agent's own error in a response outside 2xx to its
// status. Only 429 and 503 stay what they are, with its text: nothing was
// executed; and 502 and 504 whose error has no code, since proxies write such.
func (ex *exchange) refusal(b binding, body []byte, e *bridge.ExchangeError) bridge.Outcome {
	_, f, err := b.open(ex.operation(), body)
	if err != nil || f == nil {
		return e.Outcome(ex.task.ID)
	}
	f.status, f.retryAfter = e.Status, e.RetryAfter
	if e.Disposition == bridge.NotSent || e.Disposition == bridge.Lost && !f.hasCode {
		e.Err.Message += ": " + f.text(ex.to.Binding)
		return e.Outcome(ex.task.ID)
	}
	ex.refused = f
	out := ex.failure(f)
	out.Result.RetryAfter = e.RetryAfter
	return out
}

// failed is an answer that ends the task without an output.
func failed(taskID string, e *parley.Error) bridge.Outcome {
	return bridge.Outcome{Disposition: bridge.Answered, Result: parley.Result{TaskID: taskID, Outcome: parley.OutcomeError, Err: e}}
}

// accepted completes an outcome to what an agent's task is found by again.
func (e *errand) accepted(out bridge.Outcome) bridge.Outcome {
	if out.AgentTaskID != "" && out.Disposition != bridge.Answered {
		out.Endpoint, out.Version = e.to.reference(e.agent), string(e.to.Version)
	}
	return out
}
