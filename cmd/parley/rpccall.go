package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
)

// maxShownData bounds an error's data in the terminal, in bytes.
const maxShownData = 4096

// maxStop bounds each of the two waits for the end of a process that was called.
const maxStop = 5 * time.Second

// rpcCallFlags are those of rpc call.
type rpcCallFlags struct {
	dial       dialFlags
	notify     bool
	timeout    time.Duration
	ids, batch string
	meta       []string
}

func newRPCCall(a *app) *cobra.Command {
	f := rpcCallFlags{dial: dialFlags{maxMessage: 1 << 20}}
	cmd := &cobra.Command{
		Use:   "call URL [METHOD] [PARAMS]",
		Short: "Call a method of a JSON-RPC 2.0 peer and print its result",
		Long: `Call a method of a JSON-RPC 2.0 peer and print its result as JSON. PARAMS is an
array or an object, as JSON, @FILE, or - for standard input; without it the
request has no params.

--batch sends the entries of a file (an array as JSON-RPC 2.0 has it, or one
object per line) as one batch; an entry without "id" is a notification. Ids are
replaced on the way. One line per call is printed, in the order of the file, but
for calls that were not answered.

Over HTTP and WebSocket --key is sent as a bearer token, --header anything else.

The exit code is 3 if the peer has no such method, 2 if it refuses the params,
1 for every other error that it answers, 7 if no answer came in time, 8 if the
peer cannot be reached or hangs up, 9 if it wants credentials.

` + rpcURLHelp,
		Example: `  parley rpc call tcp://127.0.0.1:7000 subtract '[42, 23]'
  parley rpc call 'stdio:./server --verbose' initialize @params.json
  parley rpc call https://example.com/rpc status --header 'Authorization=Bearer env:TOKEN'
  parley rpc call unix:/run/app.sock reload --notify
  parley rpc call ws://127.0.0.1:7000 --batch calls.json`,
		Args: need("URL", "[METHOD]", "[PARAMS]"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.rpcCall(cmd.Context(), args, f) },
	}
	fl := cmd.Flags()
	f.dial.register(cmd)
	fl.BoolVar(&f.notify, "notify", false, "send a notification: nothing is answered")
	fl.DurationVar(&f.timeout, "timeout", 30*time.Second, "how long to wait, connecting included; a process that is started gets up to half of that, at most 10s, to end afterwards")
	fl.StringVar(&f.ids, "id", "int", "form of the request's id: int or uuid")
	fl.StringVar(&f.batch, "batch", "", "file of calls to send as one batch, or - for standard input")
	fl.StringArrayVar(&f.meta, "meta", nil, "member to send beside the params: correlation_id=V, traceparent=V or tracestate=V; may be repeated")
	complete(cmd, "id", "int", "uuid")
	return cmd
}

func (a *app) rpcCall(ctx context.Context, args []string, f rpcCallFlags) error {
	to, err := rpcURL(args[0])
	if err == nil {
		err = f.dial.check()
	}
	if err != nil {
		return err
	}
	if to.own() {
		return usagef("stdio: needs a command to start here: 'stdio:COMMAND ARGS'")
	}
	cfg := jsonrpc.Config{Name: "rpc-call", Timeout: -1, MaxMessage: int(f.dial.maxMessage)}
	switch f.ids {
	case "int":
	case "uuid":
		cfg.IDs = jsonrpc.UUIDs
	default:
		return usagef("--id %s: the forms are int and uuid", f.ids)
	}
	if f.timeout <= 0 {
		return usagef("--timeout must be more than 0")
	}
	// The call ends before its POST does.
	f.dial.post, f.dial.stop = f.timeout+time.Second, min(f.timeout/4, maxStop)
	ctx, err = rpcMeta(ctx, f.meta)
	if err != nil {
		return err
	}
	cfg.SendMeta = len(f.meta) > 0
	do, silent, err := a.rpcAction(args[1:], f)
	if err != nil {
		return err
	}
	var lost error // written by the goroutine that Close waits for
	if silent {    // nobody waits for an answer, which would tell
		f.dial.deliver = f.timeout
		cfg.Hooks.Notice = func(n jsonrpc.Notice) {
			if n.Kind == jsonrpc.NoticeUndelivered && lost == nil {
				lost = n.Err
			}
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, errTimedOut)
	defer cancel()
	a.shareStderr() // with the process that may be started
	s, err := a.dial(ctx, to, f.dial)
	if err != nil {
		return a.rpcFailure(ctx, err, f.timeout)
	}
	conn := jsonrpc.NewConn(s, cfg)
	err = do(ctx, conn)
	closed := conn.Close()
	if err == nil {
		err = closed
	}
	if err == nil && silent {
		err = lost
	}
	if err == nil && silent && (to.scheme == "http://" || to.scheme == "https://") {
		err = s.Close() // once more, since it says what did not arrive
	}
	return a.rpcFailure(ctx, err, f.timeout)
}

// rpcAction reads what is to be sent before anything is connected; silent says that
// nothing of it is answered.
func (a *app) rpcAction(args []string, f rpcCallFlags) (do func(context.Context, *jsonrpc.Conn) error, silent bool, err error) {
	if f.batch != "" {
		if len(args) > 0 || f.notify {
			return nil, false, usagef("--batch takes methods and params from its file: leave METHOD, PARAMS and --notify out")
		}
		calls, err := a.readBatch(f.batch)
		if err != nil {
			return nil, false, err
		}
		silent := !slices.ContainsFunc(calls, func(e batchEntry) bool { return e.ID != nil })
		return func(ctx context.Context, c *jsonrpc.Conn) error { return a.sendBatch(ctx, c, calls) }, silent, nil
	}
	if len(args) == 0 {
		return nil, false, usagef("METHOD is missing").withHint("parley rpc call URL METHOD [PARAMS]")
	}
	method := args[0]
	var params any
	if len(args) > 1 {
		raw, err := a.readJSON("PARAMS", args[1])
		if err != nil {
			return nil, false, err
		}
		if raw[0] != '[' && raw[0] != '{' {
			return nil, false, invalidf("PARAMS is %s: JSON-RPC 2.0 allows an array (params by position) or an object (by name)", clip(string(raw), nameColumn)).
				withHint("write a single param as [%s]", clip(string(raw), nameColumn))
		}
		params = raw
	}
	if f.notify {
		return func(ctx context.Context, c *jsonrpc.Conn) error { return c.Notify(ctx, method, params) }, true, nil
	}
	return func(ctx context.Context, c *jsonrpc.Conn) error {
		var result json.RawMessage
		if err := c.Call(ctx, method, params, &result); err != nil {
			return err
		}
		return a.showResult(result)
	}, false, nil
}

// rpcMeta puts the K=V of --meta into the context.
func rpcMeta(ctx context.Context, list []string) (context.Context, error) {
	var m jsonrpc.Meta
	for _, text := range list {
		name, value, _ := strings.Cut(text, "=")
		switch {
		case value == "":
			return ctx, usagef("--meta %s: write it as NAME=VALUE", text)
		case name == "correlation_id":
			m.CorrelationID = value
		case name == "traceparent":
			m.TraceParent = value
		case name == "tracestate":
			m.TraceState = value
		default:
			names := []string{"correlation_id", "traceparent", "tracestate"}
			return ctx, usagef("--meta %s: the names are %s", name, strings.Join(names, ", ")).withHint("%s", didYouMean(name, names))
		}
	}
	return jsonrpc.WithMeta(ctx, m), nil
}

// showResult prints a result: spread over lines on a terminal, on one line
// elsewhere.
func (a *app) showResult(result json.RawMessage) error {
	if !a.human() {
		return a.data(result)
	}
	b, err := toJSON(result)
	if err != nil {
		return err
	}
	text := string(b)
	if _, tty := a.terminal(a.stdout); tty {
		text = cleanLines(string(indent(b)))
	}
	_, err = fmt.Fprintln(a.stdout, text)
	return err
}

// rpcFailure says how a call that failed ends the program, and what to do.
func (a *app) rpcFailure(ctx context.Context, err error, timeout time.Duration) error {
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return wireFailure(e)
	}
	const again = "what was asked for may have been done: look before you repeat it"
	switch status := httpStatus(err); {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		f := &failure{exit: exitNotAllowed, code: parley.CodeUnauthorized, text: plainText(err)}
		return f.withHint("give the credential with --header 'Authorization=Bearer env:NAME'")
	case errors.Is(context.Cause(ctx), errTimedOut), errors.Is(err, jsonrpc.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		f := &failure{exit: exitTimedOut, code: parley.CodeTimeout, text: fmt.Sprintf("no answer within %s", timeout)}
		if late, ok := errors.AsType[*jsonrpc.TimeoutError](err); ok && late.Peer != nil {
			said := wireFailure(late.Peer)
			f.text += "; meanwhile the peer sent an error without an id: " + said.text
			return f.withHint("if that was about this call, %s", said.hint)
		}
		return f.withHint("%s; wait longer with --timeout", again)
	case errors.Is(err, context.Canceled):
		return context.Canceled
	}
	if f := unsentFailure(err); f != nil {
		return f
	}
	if httpStatus(err) >= http.StatusBadGateway {
		f := &failure{exit: exitUnreachable, code: "unreachable", text: plainText(err)}
		return f.withHint("%s: try again later; %s", notNow, again)
	}
	if f := lostFailure(err); f != nil {
		return f.withHint("%s", again)
	}
	f := &failure{exit: exitFailed, code: "rpc", text: plainText(err)}
	if e, ok := errors.AsType[*jsonrpc.ResourceError](err); ok && e.Unit == "bytes" {
		return f.withHint("take larger ones with --max-message; %s", again)
	}
	return f
}

// notNow is what a status from 502 on means.
const notNow = "the server cannot answer now, or something before it cannot reach it"

// unsentFailure is an error because of which nothing reached the peer; nil when err
// is none.
func unsentFailure(err error) *failure {
	if e, ok := errors.AsType[*jsonrpc.CallError](err); ok && !e.Sent {
		_, syntax := errors.AsType[*jsonrpc.SyntaxError](err)
		_, limit := errors.AsType[*jsonrpc.ResourceError](err)
		if syntax || limit {
			return invalidf("the params cannot be sent: %s", plainText(err))
		}
	}
	_, notThere := errors.AsType[*dialError](err)
	if e, ok := errors.AsType[*rpchttp.Error](err); ok && e.Status == 0 && e.NotSent {
		notThere = true
	}
	if !notThere {
		return nil
	}
	f := &failure{exit: exitUnreachable, code: "unreachable", text: plainText(err)}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case untrusted:
		return f.withHint("is it the server that you mean? SSL_CERT_FILE names a file of certificates to trust")
	case httpStatus(err) >= http.StatusBadGateway:
		return f.withHint("%s: try again later", notNow)
	case jsonrpc.Recoverable(err): // else something has to be changed, and the text says what
		return f.withHint("is a server there? Start one for practice with: parley rpc serve URL")
	}
	return f
}

// lostFailure is the end of a connection, or of an HTTP exchange, before the answer
// was there; nil when err is none.
func lostFailure(err error) *failure {
	_, called := errors.AsType[*jsonrpc.CallError](err)
	_, posted := errors.AsType[*rpchttp.Error](err)
	switch {
	case posted && (httpStatus(err) == 0 || errors.Is(err, io.ErrUnexpectedEOF)):
	case called && errors.Is(err, jsonrpc.ErrClosed):
	default:
		return nil
	}
	return &failure{exit: exitUnreachable, code: "unreachable", text: "the peer ended the connection before it answered: " + plainText(err)}
}

// plainText says what happened without what the command line says already:
// method, connection and id of the one call.
func plainText(err error) string {
	if e, ok := errors.AsType[*rpchttp.Error](err); ok {
		text := e.Method + " " + e.URL + ": "
		if e.Status != 0 {
			text += fmt.Sprintf("status %d: ", e.Status)
		}
		text += e.Problem
		if e.Err != nil {
			text += ": " + e.Err.Error()
		}
		if e.Snippet != "" {
			text += fmt.Sprintf(" (the answer begins %q)", e.Snippet)
		}
		return text
	}
	if e, ok := errors.AsType[*jsonrpc.CallError](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*jsonrpc.ConnError](err); ok {
		err = e.Err
	}
	// A process that ended is an EOF that says more.
	if errors.Is(err, io.EOF) && err.Error() == "EOF" {
		return "it hung up"
	}
	text := strings.TrimPrefix(err.Error(), "jsonrpc: ")
	return strings.TrimPrefix(text, "rpcdial: ")
}

// wireFailure is an error that the peer answered.
func wireFailure(e *jsonrpc.Error) *failure {
	f := &failure{exit: exitFailed, code: "rpc_error", text: fmt.Sprintf("%d: %s", int64(e.Code), e.Message)}
	if len(e.Data) > 0 {
		data := string(e.Data)
		if len(data) > maxShownData {
			data = strings.ToValidUTF8(data[:maxShownData], "") + "…"
		}
		f.text += "\n  data: " + clean(data)
	}
	switch e.Code {
	case jsonrpc.CodeParseError:
		f.hint = "the peer could not read the request: does it take this framing? Try --framing header"
	case jsonrpc.CodeInvalidRequest:
		f.hint = "the peer does not take this for a request; a limit on its size is possible: the message says more"
	case jsonrpc.CodeMethodNotFound:
		f.exit, f.hint = exitNotFound, "the peer has no such method: names are exact, upper and lower case count"
	case jsonrpc.CodeInvalidParams:
		f.exit, f.hint = exitUsage, "look at PARAMS: an array gives params by position, an object by name"
	case jsonrpc.CodeInternalError:
		f.hint = "the peer failed: its own log says why"
	case jsonrpc.CodeServerBusy:
		f.hint = "the peer is busy: try again in a moment"
	case jsonrpc.CodeTimeout:
		f.hint = "the peer ran out of time: look whether the work was done before you repeat it"
	case jsonrpc.CodeClosing:
		f.hint = "the peer is closing: connect anew and try again"
	case jsonrpc.CodeCancelled:
		f.hint = "somebody cancelled the call: repeat it if it is still wanted"
	default:
		f.hint = "the code is the peer's own: its documentation says what it means"
	}
	return f
}
