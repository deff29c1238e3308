package rpchttp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/internal/blot"
)

// An answer is the answer to a POST, on its way to Read.
type answer struct {
	s     *Stream
	job   *job
	res   *http.Response
	lease *lease
	rcv   receiver

	// in a stream of events
	want      int // responses
	responses int // seen so far
}

// deliver hands over what the answer holds. An error says why the message
// counts as undelivered.
func (a *answer) deliver(ctx context.Context) error {
	res := a.res
	switch status := res.StatusCode; {
	case status == http.StatusAccepted, status == http.StatusNoContent:
		return a.nothing()
	case status >= 300 && status < 400:
		return a.refuse(redirected(res))
	}
	if enc := res.Header.Get("Content-Encoding"); enc != "" && enc != "identity" && !res.Uncompressed {
		return a.refuse("the answer is compressed (" + printable(enc) + "), which the client did not ask for")
	}
	switch kind := mediaType(res.Header.Get("Content-Type")); {
	case isJSON(kind):
		return a.json()
	case kind == eventType && res.StatusCode == http.StatusOK:
		return a.events(ctx)
	case res.StatusCode >= 400:
		return a.refuse(a.failure())
	case res.ContentLength == 0:
		return a.nothing()
	case kind == "":
		return a.refuse("the answer has no content type")
	default:
		return a.refuse("the answer is " + printable(kind) + ", not " + jsonType)
	}
}

// nothing is the answer to notifications and responses. Calls in the message
// may be answered on the way back; without one they would wait in vain.
func (a *answer) nothing() error {
	if a.s.cfg.WayBack == WayBackNone && peek(a.job.msg).calls > 0 {
		return a.refuse("the server took the call but does not answer it here, and there is no way back")
	}
	return nil
}

// json hands over one message.
func (a *answer) json() error {
	res := a.res
	if res.ContentLength > int64(a.s.cfg.MaxMessage) && a.s.cfg.MaxMessage >= 0 {
		return a.explain(tooLarge(a.s.cfg.MaxMessage))
	}
	a.rcv.reserve(int(min(res.ContentLength, partSize)) + 1)
	if err := a.rcv.readFrom(res.Body); err != nil {
		return a.explain(err)
	}
	text, whole := a.rcv.whole()
	var missed []byte
	var why error
	if whole {
		if err := a.check(text); err != nil {
			return err
		}
		if a.s.cfg.WayBack == WayBackNone {
			missed = unanswered(a.job.msg, text)
		}
		if missed != nil {
			why = a.whyMissed(text)
		}
	}
	// The Conn gets it all the same: it knows best which calls it answers.
	if err := a.handOver(); err != nil {
		return err
	}
	if missed != nil {
		a.s.lost(a.job, missed, why)
	}
	return nil
}

// check finds out whether text answers the message. Most texts have a result,
// which is enough to pass them on to the Conn, who reads them thoroughly.
func (a *answer) check(text []byte) error {
	if a.res.StatusCode < 400 && hasResult(text) {
		return nil
	}
	e := peek(text)
	switch {
	case e.fault != nil && e.responses == 1:
		return a.unread(e.fault)
	case e.responses > 0:
		return nil
	case skipSpace(text, 0) == len(text) && a.res.StatusCode < 300:
		return a.nothing()
	case a.res.StatusCode >= 400:
		return a.refused(a.failure(), text)
	default:
		return a.refused("the answer is JSON, but no JSON-RPC response", text)
	}
}

// unread is the error of a server that could not even read the id: here it can
// only mean the message of this POST.
func (a *answer) unread(fault []byte) error {
	err := a.refused("the server could not read the message", nil)
	err.Err = decodeFault(fault, secretsOf(a.res.Request))
	return err
}

// whyMissed is the error of the calls that text, the whole answer, does not answer.
func (a *answer) whyMissed(text []byte) error {
	if e := peek(text); e.fault != nil && e.responses == 1 {
		return a.unread(e.fault)
	}
	return a.refused("the answer has none to this call", text)
}

// handOver ends the message at hand; nobody reading any more is no failure of
// the message.
func (a *answer) handOver() error {
	if err := a.rcv.end(); err != nil && !errors.Is(err, errNoReader) {
		return err
	}
	return nil
}

// explain is the error of an answer that could not be read to its end.
func (a *answer) explain(err error) error {
	if cause := context.Cause(a.res.Request.Context()); cause != nil {
		err = cause
	}
	e := a.refused("the answer could not be read to its end", nil)
	e.Err = err
	e.Advice = "ask the server for the outcome before sending again: it got the message"
	if _, wrong := errors.AsType[*Error](err); !wrong && a.res.StatusCode < 300 {
		e.verdict = later // the network failed; another answer may come whole
	}
	if _, ok := errors.AsType[limitError](err); ok {
		e.verdict = never
		e.Problem = "the answer was not taken"
		e.Advice = "ask for less at once, or raise ClientConfig.MaxMessage"
	} else if errors.Is(err, ErrTimeout) {
		e.Advice = "raise ClientConfig.Timeout if the method takes that long"
	}
	return e
}

// refuse is refused with the beginning of the body as snippet.
func (a *answer) refuse(problem string) error {
	body := make([]byte, snippetSource)
	n, _ := io.ReadFull(a.res.Body, body) // what there is; an error adds nothing
	return a.refused(problem, body[:n])
}

func (a *answer) refused(problem string, body []byte) *Error {
	e := refused(a.res, problem)
	e.Snippet = snippet(body, secretsOf(a.res.Request))
	return e
}

// failure says in words what a status from 400 on means: only some of them are a
// word on what was done with the message.
func (a *answer) failure() string {
	if a.res.StatusCode >= 500 {
		return "the server, or something before it, failed"
	}
	return "the server refused the message"
}

func redirected(res *http.Response) string {
	to, err := url.Parse(res.Header.Get("Location"))
	if err != nil || to.String() == "" {
		return "the server redirects, without a usable address"
	}
	return "the server redirects to " + printable(bareURL(res.Request.URL.ResolveReference(to))) + ", which is not followed"
}

// decodeFault reads the error of a server that has seen the secrets, and may repeat them.
func decodeFault(raw []byte, secrets []string) error {
	var e struct {
		Code    jsonrpc.Code    `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		return errors.New("an error that cannot be read")
	}
	return &jsonrpc.Error{Code: e.Code, Message: blot.Text(e.Message, secrets, false, nil), Data: blotData(e.Data, secrets)}
}

// blotData is blot.Text for JSON; nil when that is none any more. Short secrets stay: a header
// of "1" is in many numbers, of a limit for example.
func blotData(data json.RawMessage, secrets []string) json.RawMessage {
	long := slices.DeleteFunc(slices.Clone(secrets), func(s string) bool { return len(s) < blot.ShortestWord })
	text := json.RawMessage(blot.Text(string(data), long, false, nil))
	if !json.Valid(text) {
		return nil
	}
	return text
}

// mediaType returns the type in a Content-Type header, in lower case and
// without parameters; "" when there is none.
func mediaType(header string) string {
	if header == jsonType { // nearly always
		return header
	}
	kind, _, err := mime.ParseMediaType(header)
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		kind, _, _ = strings.Cut(strings.ToLower(header), ";")
		kind = strings.TrimSpace(kind)
	}
	return kind
}

func isJSON(kind string) bool {
	return kind == jsonType || kind == "application/json-rpc" || kind == "application/jsonrequest"
}

// printable makes a header's value fit for an error.
func printable(s string) string {
	if !utf8.ValidString(s) {
		return "?"
	}
	return snippet([]byte(s), nil)
}
