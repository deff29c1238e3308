package execution

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/zoneauth"
	"github.com/parley-project/parley/jsonrpc"
)

// Handler serves the HTTP contract of AgentCore: POST /invocations, GET /ping, and
// the documents of the contract, GET /openrpc.json and GET /schema/NAME.json.
func (z *Zone) Handler() http.Handler {
	table := map[string]route{
		"/invocations":  {http.MethodPost, z.invoke},
		"/ping":         {http.MethodGet, z.servePing},
		"/openrpc.json": {http.MethodGet, document(zone.OpenRPC(z.cfg.Profile))},
	}
	for name, schema := range zone.Schemas(z.cfg.Profile) {
		table["/schema/"+name+".json"] = route{http.MethodGet, document(schema)}
	}
	return z.routes(table)
}

// A2AHandler serves the A2A contract of AgentCore: POST / takes a request of the
// contract as it is, or inside a message of A2A 0.3 or 1.0, and POST message:send
// one over HTTP+JSON; GET /.well-known/agent-card.json and GET /ping.
func (z *Zone) A2AHandler() http.Handler {
	return z.routes(map[string]route{
		"/":                            {http.MethodPost, z.invokeA2A},
		"/message:send":                {http.MethodPost, z.invokeREST(zone.Version10)},
		"/v1/message:send":             {http.MethodPost, z.invokeREST(zone.Version03)},
		"/ping":                        {http.MethodGet, z.servePing},
		"/.well-known/agent-card.json": {http.MethodGet, document(z.cfg.Card)},
	})
}

type route struct {
	method string
	serve  http.HandlerFunc
}

// routes serves paths, and answers whatever else comes.
func (z *Zone) routes(table map[string]route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to, ok := table[r.URL.Path]
		switch {
		case ok && (r.Method == to.method || r.Method == http.MethodHead && to.method == http.MethodGet):
			to.serve(w, r)
		case ok:
			w.Header().Set("Allow", to.method)
			z.refuse(w, r, http.StatusMethodNotAllowed, to.method+" is the method of this path")
		default:
			z.refuse(w, r, http.StatusNotFound, "no such path")
		}
	})
}

// refuse answers what no route is there for, to a POST as JSON-RPC.
func (z *Zone) refuse(w http.ResponseWriter, r *http.Request, status int, why string) {
	if r.Method != http.MethodPost {
		http.Error(w, why, status)
		return
	}
	c := &call{beside: beside{correlation: z.correlation(r)}, cause: errors.New(why + ": " + zone.CleanText(r.URL.Path))}
	fault := zone.NewError(zone.ReasonInvalidRequest)
	fault.Message = "Invalid Request: " + why
	z.log(r.Context(), c, fault, z.cfg.Now())
	z.write(w, status, z.encode(c, nil, fault))
}

func document(text json.RawMessage) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text) // a caller that has gone away misses nothing
	}
}

// invoke is POST /invocations.
func (z *Zone) invoke(w http.ResponseWriter, r *http.Request) {
	z.receive(w, r, func(ctx context.Context, body []byte, with beside) ([]byte, int) {
		return z.answer(ctx, body, with), http.StatusOK
	})
}

// receive reads the body of a request and has it answered.
func (z *Zone) receive(w http.ResponseWriter, r *http.Request, answer func(context.Context, []byte, beside) ([]byte, int)) {
	with := beside{
		correlation: z.correlation(r),
		trace:       parley.TraceOf(r.Header.Values(parley.HeaderTraceparent), r.Header.Values(parley.HeaderTracestate)),
	}
	began := z.cfg.Now()
	unread := func(status int, fault *zone.Error, cause error) {
		c := &call{beside: with, cause: cause}
		z.log(r.Context(), c, fault, began)
		z.write(w, status, z.encode(c, nil, fault))
	}
	if z.cfg.Authorize == nil && fromPage(r) {
		unread(http.StatusForbidden, zone.NewError(zone.ReasonUnauthorized), errPage)
		return
	}
	if err := z.authorize(r); err != nil {
		status, fault := http.StatusUnauthorized, zone.NewError(zone.ReasonUnauthorized)
		if errors.Is(err, zoneauth.ErrUnavailable) {
			status, fault = http.StatusServiceUnavailable, undecided()
			w.Header().Set("Retry-After", strconv.FormatInt(fault.RetryAfterMS/1000, 10))
		} else {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		unread(status, fault, fmt.Errorf("%s: %w", r.RemoteAddr, err))
		return
	}
	body, fault, err := z.read(w, r)
	if fault != nil {
		unread(http.StatusOK, fault, err)
		return
	}
	response, status := answer(r.Context(), body, with)
	z.write(w, status, response)
}

// undecided is for a caller of whom nobody can say now whether to believe it: it
// should not take that for a refusal.
func undecided() *zone.Error {
	fault := zone.NewError(zone.ReasonOverloaded)
	fault.Message, fault.RetryAfterMS = "nobody can say now who may call, try again later", undecidedFor.Milliseconds()
	return fault
}

// authorize says who may not call. What goes wrong in it lets nobody in.
func (z *Zone) authorize(r *http.Request) (err error) {
	if z.cfg.Authorize == nil {
		return nil
	}
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v, debug.Stack()}
		}
	}()
	return z.cfg.Authorize(r)
}

// read reads a body within the limits of size, of time, and of bodies at a time.
// The error beside a fault is for the log.
func (z *Zone) read(w http.ResponseWriter, r *http.Request) ([]byte, *zone.Error, error) {
	tooLarge := zone.NewError(zone.ReasonTooLarge)
	tooLarge.Code, tooLarge.Message = jsonrpc.CodeInvalidRequest, fmt.Sprintf("Invalid Request: it is larger than %d bytes", z.cfg.MaxBody)
	most := int64(z.cfg.MaxBody)
	if r.ContentLength > 2*most {
		return nil, tooLarge, nil
	}
	select {
	case z.reading <- struct{}{}:
		defer func() { <-z.reading }()
	case <-r.Context().Done(): // nobody reads the answer
		return nil, zone.NewError(zone.ReasonInvalidRequest), r.Context().Err()
	}
	slow := time.AfterFunc(bodyLimit, func() {
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) // without deadlines there is no connection that is slow
	})
	defer slow.Stop()
	src := http.MaxBytesReader(w, r.Body, most)
	var body []byte
	var err error
	if r.ContentLength > 0 && r.ContentLength <= believed {
		body = make([]byte, r.ContentLength)
		_, err = io.ReadFull(src, body)
	} else {
		body, err = io.ReadAll(src)
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		// Who is still writing when the connection is closed may miss the answer.
		_, _ = io.CopyN(io.Discard, r.Body, most)
		return nil, tooLarge, nil
	}
	if err != nil { // cut, or too slow: whoever sent it reads no answer
		return nil, zone.NewError(zone.ReasonParseError), err
	}
	return body, nil, nil
}

// answer gives the response to the body of a request of the contract.
func (z *Zone) answer(ctx context.Context, body []byte, with beside) (response []byte) {
	began := z.cfg.Now()
	c := &call{beside: with}
	var fault *zone.Error
	defer func() {
		if v := recover(); v != nil {
			c.cause = &panicError{v, debug.Stack()}
			fault = zone.NewError(zone.ReasonInternal)
			response = z.encode(c, nil, fault)
		}
		z.log(ctx, c, fault, began)
	}()
	var result any
	c.req, fault = z.codec.DecodeRequest(body)
	switch {
	case c.req.Task != nil && c.req.Task.CorrelationID != "":
		c.correlation = c.req.Task.CorrelationID
	case c.req.Query != nil && c.req.Query.CorrelationID != "":
		c.correlation = c.req.Query.CorrelationID
	}
	if fault == nil {
		result, fault = z.admit(ctx, c)
	}
	response = z.encode(c, result, fault)
	if len(response) > z.cfg.MaxResponse {
		c.cause = fmt.Errorf("the response has %d bytes, the limit is %d", len(response), z.cfg.MaxResponse)
		fault = zone.NewError(zone.ReasonTooLarge)
		response = z.encode(c, nil, fault)
	}
	return response
}

// admit serves a request if there is room for it. Who asks for results is not kept
// out by those who wait for theirs.
func (z *Zone) admit(ctx context.Context, c *call) (any, *zone.Error) {
	slots := z.slots
	if c.req.Method != zone.MethodExecuteTask {
		slots = z.looks
	}
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
		return z.serve(ctx, c)
	default:
		fault := zone.NewError(zone.ReasonOverloaded)
		fault.RetryAfterMS = z.cfg.PollAfter.Milliseconds()
		return nil, fault
	}
}

func (z *Zone) encode(c *call, result any, fault *zone.Error) []byte {
	if fault == nil {
		response, err := z.codec.EncodeResult(c.req.ID, result)
		if err == nil {
			return response
		}
		c.cause, c.outcome = err, ""
		fault = zone.NewError(zone.ReasonInternal)
	}
	if fault.CorrelationID == "" {
		fault.CorrelationID = c.correlation
	}
	return z.codec.EncodeError(c.req.ID, fault)
}

func (z *Zone) write(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a caller that has gone away asks again
}

// A panicError is a panic of the work behind the zone, or of what says who may call.
type panicError struct {
	value any
	stack []byte
}

// Error tells what it said.
func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// log writes the one line of a request. By id, task and correlation id it is found
// beside that of the Verification Zone (ZN-7).
func (z *Zone) log(ctx context.Context, c *call, fault *zone.Error, began time.Time) {
	level, attrs := slog.LevelInfo, []slog.Attr{
		slog.String("method", zone.CleanText(c.req.Method)), slog.String("id", zone.CleanText(c.req.ID.String())), slog.String("correlation_id", zone.CleanText(c.correlation)),
		slog.String("task_id", zone.CleanText(c.task)), slog.Duration("took", z.cfg.Now().Sub(began)),
	}
	if fault == nil {
		attrs = append(attrs, slog.String("outcome", c.outcome))
	} else {
		attrs = append(attrs, slog.String("outcome", "error"), slog.Int64("code", int64(fault.Code)), slog.String("reason", string(fault.Reason)))
		if fault.Reason == zone.ReasonInternal {
			level = slog.LevelError
		}
	}
	if c.cause != nil {
		level = max(level, slog.LevelWarn)
		attrs = append(attrs, slog.String("err", zone.CleanText(c.cause.Error()))) // what agents and callers say is in it
	}
	if p, ok := errors.AsType[*panicError](c.cause); ok {
		attrs = append(attrs, slog.String("stack", string(p.stack)))
	}
	z.cfg.Logger.LogAttrs(ctx, level, "zone request", attrs...)
}

// correlation gives the correlation id of a request whose params have none.
func (z *Zone) correlation(r *http.Request) string {
	for _, name := range []string{"X-Correlation-Id", "X-Amzn-Bedrock-Agentcore-Runtime-Request-Id"} {
		if id := r.Header.Get(name); id != "" && len(id) <= 128 && printable(id) {
			return id
		}
	}
	return z.cfg.NewID()
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
