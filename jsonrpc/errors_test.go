package jsonrpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

// TestErrorChains finds what is inside the errors of calls (RPC-20, RPC-21).
func TestErrorChains(t *testing.T) {
	wire := Errorf(CodeMethodNotFound, "method not found: %s", "x").WithData(map[string]int{"n": 1})
	call := &CallError{Conn: "rpc-7", Method: "x", ID: IntegerID(5), CorrelationID: "c-9", Elapsed: 1500 * time.Microsecond, Err: wire}
	err := fmt.Errorf("doing: %w", call)

	if want := "doing: jsonrpc: x on rpc-7, id 5, correlation id c-9, after 1.5ms: method not found: x (-32601)"; err.Error() != want {
		t.Errorf("\n got %s\nwant %s", err, want)
	}
	var e *Error
	if !errors.As(err, &e) || string(e.Data) != `{"n":1}` || !errors.Is(err, &Error{Code: CodeMethodNotFound}) || errors.Is(err, &Error{Code: 1}) {
		t.Error("the wire error is not found")
	}
	var c *CallError
	if !errors.As(err, &c) || c.ID != IntegerID(5) {
		t.Error("the call is not found")
	}

	conn := &CallError{Conn: "a", Method: "m", Err: &ConnError{Conn: "a", State: StateClosing, Err: io.EOF}}
	if !errors.Is(conn, ErrClosed) || !errors.Is(conn, io.EOF) || errors.Is(conn, ErrTimeout) {
		t.Error(conn)
	}
	late := &CallError{Err: &TimeoutError{After: time.Second}}
	var timeout interface{ Timeout() bool }
	if !errors.Is(late, ErrTimeout) || !errors.Is(late, context.DeadlineExceeded) || !errors.As(late, &timeout) || !timeout.Timeout() {
		t.Error(late)
	}
	full := &CallError{Err: &ResourceError{What: "pending calls", Limit: 5, Unit: "calls"}}
	if !errors.Is(full, ErrExhausted) || !strings.HasSuffix(full.Error(), ": pending calls: more than the limit of 5 calls") {
		t.Error(full)
	}
	result := &CallError{Err: &ResultError{Err: &DecodeError{Member: "a", Expected: "a string", Err: io.EOF}}}
	if !errors.Is(result, io.EOF) || !strings.HasSuffix(result.Error(), ": the peer's result: the member a must be a string") {
		t.Error(result)
	}
	for _, err := range []error{&CallError{}, &ConnError{}, &ResultError{}, &DecodeError{}, &Error{}} {
		if err.Error() == "" {
			t.Errorf("%T without a text", err)
		}
	}
}

// TestErrorsAreOneLine: what a peer writes begins no line of a log and commands no
// terminal. The fields have it as it came.
func TestErrorsAreOneLine(t *testing.T) {
	const evil = "no\r\n2026/01/01 root logged in\x1b[2J\u2028\u202e\x9b end"
	peer := decodeError([]byte(`{"code":7,"message":"no\r\n2026/01/01 root logged in\u001b[2J\u2028\u202e\u009b","data":{"correlation_id":"x\ny"}}`))
	if !strings.Contains(peer.Message, "no\r\n2026") {
		t.Errorf("the message is not as it came: %q", peer.Message)
	}
	if want := `no\r\n2026/01/01 root logged in\x1b[2J\u2028\u202e\u009b (7)`; peer.Error() != want {
		t.Errorf("\n got %q\nwant %q", peer.Error(), want)
	}
	for _, err := range []error{
		peer,
		&CallError{Conn: "c", Method: "m", CorrelationID: "x\ny", Err: peer},
		&CallError{Conn: "c", Method: "m", Err: &UndeliveredError{Err: errors.New(evil)}},
		&CallError{Conn: "c", Method: "m", Err: &TimeoutError{Peer: peer}},
		&TimeoutError{Peer: peer},
		&ConnError{Conn: "c", Err: errors.New(evil)},
		&DecodeError{Member: evil, Expected: "a string"},
		&ResultError{Err: &DecodeError{Member: evil, Expected: "a string"}},
		&HandlerError{Method: evil, Err: io.EOF},
		&PanicError{Method: evil, Value: 1},
		noSuchCall([]byte("\"\u2028\u0085\"")),
	} {
		text := err.Error()
		if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) || !utf8.ValidString(text) {
			t.Errorf("%T: %q", err, text)
		}
	}
	if got := (&Error{Code: 7, Message: "schön, “so” \\n"}).Error(); got != "schön, “so” \\n (7)" {
		t.Errorf("what can be printed is changed: %q", got)
	}
}

// TestErrorMakers makes errors that are safe to send.
func TestErrorMakers(t *testing.T) {
	e := Errorf(7, "with %w", io.EOF)
	if e.Message != "with EOF" || errors.Is(e, io.EOF) {
		t.Error(e)
	}
	with := e.WithData("<x>")
	if e.Data != nil || string(with.Data) != `"<x>"` {
		t.Errorf("%s", with.Data)
	}
	defer func() {
		if recover() == nil {
			t.Error("data that cannot be JSON should panic")
		}
	}()
	e.WithData(func() {})
}

// TestCodes gives every code of this package a name, and none of the numbers
// that others have taken.
func TestCodes(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range []Code{
		CodeParseError, CodeInvalidRequest, CodeMethodNotFound, CodeInvalidParams, CodeInternalError,
		CodeServerBusy, CodeTimeout, CodeClosing, CodeCancelled,
	} {
		if strings.HasPrefix(c.String(), "error ") || seen[c.String()] {
			t.Errorf("%d: %s", c, c)
		}
		seen[c.String()] = true
		if c <= -32000 && c >= -32011 || c <= -32096 && c >= -32099 || c == -32042 {
			t.Errorf("%d is used by others", c)
		}
	}
	if Code(-5).String() != "error -5" {
		t.Error(Code(-5))
	}
}

// TestWireError keeps to itself what is not the peer's business (RPC-21).
func TestWireError(t *testing.T) {
	own := Errorf(5, "mine")
	tests := []struct {
		err    error
		code   Code
		hidden bool
	}{
		{own, 5, false},
		{fmt.Errorf("wrapped: %w", own), 5, false},
		{context.Canceled, CodeCancelled, false},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), CodeTimeout, false},
		{errors.New("password 123"), CodeInternalError, true},
		{&CallError{Err: own}, CodeInternalError, true},
		{&CallError{Err: &TimeoutError{}}, CodeInternalError, true},
		{(*Error)(nil), CodeInternalError, true},
	}
	for _, tc := range tests {
		e, hidden := wireError(tc.err, `c"1`)
		if e.Code != tc.code || hidden != tc.hidden {
			t.Errorf("%v became %v, hidden %v", tc.err, e, hidden)
		}
		if text := string(appendError(nil, e)); strings.Contains(text, "password") || hidden && !strings.Contains(text, `{"correlation_id":"c\"1"}`) {
			t.Error(text)
		}
	}
	if e := internalError(""); e.Data != nil {
		t.Errorf("%s", e.Data)
	}
}

type verdictError bool

func (v verdictError) Error() string     { return "own" }
func (v verdictError) Recoverable() bool { return bool(v) }

// TestAdvice follows the table of AdviceFor (RPC-22).
func TestAdvice(t *testing.T) {
	errno := func(n syscall.Errno) error { return &net.OpError{Op: "read", Err: os.NewSyscallError("read", n)} }
	tests := []struct {
		err  error
		want Advice
	}{
		{nil, AdviceNone},
		{errors.New("something"), AdviceNone},
		{&Error{Code: CodeServerBusy}, AdviceRetry},
		{&Error{Code: CodeTimeout}, AdviceRetry},
		{&Error{Code: CodeClosing}, AdviceReconnect},
		{&Error{Code: CodeParseError}, AdviceGiveUp},
		{&Error{Code: CodeInvalidRequest}, AdviceGiveUp},
		{&Error{Code: CodeMethodNotFound}, AdviceGiveUp},
		{&Error{Code: CodeInvalidParams}, AdviceGiveUp},
		{&Error{Code: CodeInternalError}, AdviceNone},
		{&Error{Code: CodeCancelled}, AdviceGiveUp},
		{&Error{Code: -32001}, AdviceNone},
		{&Error{Code: 5}, AdviceNone},
		{&TimeoutError{}, AdviceRetry},
		{context.DeadlineExceeded, AdviceRetry},
		{context.Canceled, AdviceGiveUp},
		{&ResourceError{Unit: "calls"}, AdviceRetry},
		{&ResourceError{Unit: "bytes"}, AdviceGiveUp},
		{&ResourceError{Unit: "levels"}, AdviceGiveUp},
		{&ResourceError{Unit: "entries"}, AdviceGiveUp},
		{&ConnError{Recoverable: true, Err: io.EOF}, AdviceReconnect},
		{&ConnError{Err: io.EOF}, AdviceGiveUp},
		{ErrClosed, AdviceReconnect},
		{&ResultError{Err: io.EOF}, AdviceGiveUp},
		{&ResultError{Err: &ConnError{Recoverable: true, Err: io.EOF}}, AdviceGiveUp}, // another connection, behind its Writer
		{&DecodeError{}, AdviceGiveUp},
		{&SyntaxError{}, AdviceGiveUp},
		{io.EOF, AdviceReconnect},
		{io.ErrUnexpectedEOF, AdviceReconnect},
		{net.ErrClosed, AdviceReconnect},
		{errno(syscall.ECONNRESET), AdviceReconnect},
		{errno(syscall.ECONNREFUSED), AdviceReconnect},
		{errno(syscall.EPIPE), AdviceReconnect},
		{errno(syscall.EACCES), AdviceGiveUp},
		{&net.DNSError{IsNotFound: true}, AdviceGiveUp},
		{&net.DNSError{IsTemporary: true}, AdviceReconnect},
		{&net.OpError{Err: os.ErrDeadlineExceeded}, AdviceReconnect},
		{&net.AddrError{}, AdviceGiveUp},
		{&net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.ENOENT)}, AdviceReconnect},
		{&os.PathError{Op: "fork/exec", Err: syscall.ENOENT}, AdviceGiveUp},
		{&os.PathError{Op: "fork/exec", Err: syscall.EAGAIN}, AdviceReconnect},
		{&os.PathError{Op: "fork/exec", Err: syscall.EACCES}, AdviceGiveUp},
		{&exec.Error{Name: "p", Err: exec.ErrNotFound}, AdviceGiveUp},
		{&exec.Error{Name: "p", Err: exec.ErrDot}, AdviceGiveUp},
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, AdviceGiveUp},
		{x509.UnknownAuthorityError{}, AdviceGiveUp},
		{x509.HostnameError{Certificate: new(x509.Certificate)}, AdviceGiveUp},
		{x509.CertificateInvalidError{Reason: x509.Expired}, AdviceGiveUp},
		{tls.RecordHeaderError{Msg: "no TLS"}, AdviceGiveUp},
		{&FramingError{Problem: "x"}, AdviceGiveUp},
		{&UndeliveredError{Err: io.EOF}, AdviceRetry},
		{&UndeliveredError{Err: verdictError(true)}, AdviceRetry},
		{&UndeliveredError{Err: verdictError(false)}, AdviceGiveUp},
		{&UndeliveredError{Err: errors.New("something")}, AdviceNone},
		{&UndeliveredError{Err: errors.Join(verdictError(true), ErrClosed)}, AdviceReconnect},
		{&UndeliveredError{Err: errors.Join(verdictError(false), ErrClosed)}, AdviceGiveUp},
		{&UndeliveredError{Err: errors.Join(verdictError(true), &Error{Code: -32005})}, AdviceRetry},
		{&UndeliveredError{Err: errors.Join(verdictError(false), &Error{Code: -32005})}, AdviceNone},
		{&UndeliveredError{Err: errors.Join(verdictError(true), &Error{Code: CodeInvalidRequest})}, AdviceGiveUp},
		{verdictError(true), AdviceReconnect},
		{verdictError(false), AdviceGiveUp},
	}
	for _, tc := range tests {
		var err error
		if tc.err != nil {
			err = fmt.Errorf("wrapped: %w", &CallError{Err: tc.err})
		}
		if got := AdviceFor(err); got != tc.want {
			t.Errorf("%T %v: %v, want %v", tc.err, tc.err, got, tc.want)
		}
		if want := tc.want == AdviceRetry || tc.want == AdviceReconnect; Recoverable(err) != want {
			t.Errorf("%v: Recoverable %v", tc.err, !want)
		}
	}
	for _, fatal := range []error{x509.UnknownAuthorityError{}, exec.ErrNotFound, errors.New("unknown")} {
		if recoverableTransport(fatal) {
			t.Errorf("%v should be fatal", fatal)
		}
	}
	if recoverableTransport(nil) || AdviceGiveUp.String() != "give up" || Advice(9).String() != "none" {
		t.Error("nil or names")
	}
}

// TestID keeps ids byte for byte (RPC-1, RPC-2).
func TestID(t *testing.T) {
	for _, text := range []string{`1`, `-0`, `1.0`, `1e400`, `9007199254740993`, `123456789012345678901234567890`, `"a"`, `"\u0061"`, `""`, `null`} {
		id, err := ParseID([]byte(" " + text + "\n"))
		if err != nil || id.String() != text || id.IsZero() || id.IsNull() != (text == "null") {
			t.Errorf("%s: %v, %v", text, id, err)
		}
		var in struct{ ID, None ID }
		if err := json.Unmarshal([]byte(`{"ID":`+text+`}`), &in); err != nil || in.ID != id || !in.None.IsZero() && text != "null" {
			t.Errorf("%s: %v, %v", text, in, err)
		}
		if out, err := json.Marshal(in); err != nil || string(out) != `{"ID":`+text+`,"None":null}` {
			t.Errorf("%s: %s, %v", text, out, err)
		}
	}
	for _, text := range []string{``, ` `, `true`, `{}`, `[1]`, `01`, `1 2`, `"a`, "\"\xff\"", `"\ud800"`} {
		if id, err := ParseID([]byte(text)); err == nil {
			t.Errorf("%q became %v", text, id)
		}
		id := IntegerID(1)
		if err := id.UnmarshalJSON([]byte(text)); err == nil || id != IntegerID(1) {
			t.Errorf("%q was taken from a text: %v, %v", text, id, err)
		}
	}
	if IntegerID(-5).String() != "-5" || StringID("a\"\xff").String() != "\"a\\\"\uFFFD\"" || NullID().String() != "null" {
		t.Error("constructors")
	}
}

// TestMeta carries the metadata in a context and in messages (RPC-21).
func TestMeta(t *testing.T) {
	if _, ok := MetaFrom(t.Context()); ok {
		t.Error("metadata from nowhere")
	}
	meta := Meta{"c-1", "00-a-b-01", "k=v"}
	if got, ok := MetaFrom(WithMeta(t.Context(), meta)); !ok || got != meta {
		t.Error(got, ok)
	}
	m := scanned(string(appendRequest(nil, &outgoing{method: "m", meta: &meta})))
	if got := m.metadata(); !m.hasMeta() || got != meta {
		t.Errorf("%+v", got)
	}
	m = scanned(`{"jsonrpc":"2.0","method":"m","correlation_id":5,"traceparent":"\u0061"}`)
	if got := m.metadata(); got != (Meta{TraceParent: "a"}) {
		t.Errorf("%+v", got)
	}
}
