package jsonrpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"syscall"
)

// An Advice says what a caller may do about an error (RPC-22).
type Advice int

// The advice that AdviceFor gives.
const (
	// AdviceNone: this package cannot know; the application must.
	AdviceNone Advice = iota
	// AdviceRetry: the connection is fine, the same call may work later. After
	// a timeout that is only safe for methods that may run twice.
	AdviceRetry
	// AdviceReconnect: the connection is gone, a new one may work. Client makes
	// it by itself; a call that was answered CodeClosing its caller repeats.
	AdviceReconnect
	// AdviceGiveUp: the same will fail again, someone has to change something.
	AdviceGiveUp
)

// String returns "none", "retry", "reconnect" or "give up".
func (a Advice) String() string {
	switch a {
	case AdviceRetry:
		return "retry"
	case AdviceReconnect:
		return "reconnect"
	case AdviceGiveUp:
		return "give up"
	default:
		return "none"
	}
}

// AdviceFor says what to do about an error that this package returned (RPC-22):
//
//	error                                                advice
//	*Error CodeServerBusy                                retry, after a pause
//	*Error CodeTimeout                                   retry, if it may run twice
//	*Error CodeClosing                                   reconnect
//	*Error CodeParseError, CodeInvalidRequest,
//	       CodeMethodNotFound, CodeInvalidParams         give up: the request is wrong
//	*Error CodeInternalError, codes of applications      none: ask the application
//	*Error CodeCancelled, context.Canceled               give up: somebody wanted it
//	*TimeoutError, context.DeadlineExceeded              retry, if it may run twice
//	*ResourceError about calls or buffers                retry, when some calls ended
//	*ResourceError about a message's size or shape       give up: send less, or ask for less
//	*ConnError                                           reconnect if Recoverable, else give up
//	*UndeliveredError                                    retry if its cause may pass, else give up;
//	                                                     reconnect if it says ErrClosed, too
//	*ResultError, *SyntaxError, *DecodeError             give up: one side has to change
//	errors of the transport by themselves                reconnect if the network failed, else give up
//	everything else, nil                                 none
//
// It is about whether the same call may come through, not about whether it has
// been done: that the peer certainly did nothing is what a *CallError says that is
// not Sent, and a peer that answers CodeServerBusy or CodeClosing. Otherwise a call
// that must not be done twice wants a look at the peer first, whatever the advice.
//
// An error of the transport, or what is in it, may say itself whether a new
// attempt may work, by a method Recoverable() bool: *FramingError does, and so
// do the errors of packages rpchttp, rpcws and rpcdial. Of the rest, a peer that
// hung up and a network that fails or is slow may pass; a certificate that does
// not fit, a program that is not there, an address that means nothing and
// missing rights do not.
func AdviceFor(err error) Advice {
	// From the most telling on: an unusable result says more than what it was
	// read from, or why its Writer, which may lead to another connection, took no
	// more; what ended the connection more than the transport's error in it.
	var (
		wire     *Error
		conn     *ConnError
		resource *ResourceError
		result   *ResultError
		syntax   *SyntaxError
		decode   *DecodeError
		lost     *UndeliveredError
	)
	switch {
	case err == nil:
		return AdviceNone
	case errors.As(err, &result):
		return AdviceGiveUp
	case errors.As(err, &conn):
		if conn.Recoverable {
			return AdviceReconnect
		}
		return AdviceGiveUp
	case errors.As(err, &decode), errors.As(err, &syntax):
		return AdviceGiveUp
	case errors.As(err, &resource):
		switch resource.Unit {
		case unitBytes, unitLevels, unitEntries:
			return AdviceGiveUp
		}
		return AdviceRetry
	case errors.As(err, &wire):
		a := adviceForCode(wire.Code)
		if a == AdviceNone && errors.As(err, &lost) && recoverableTransport(lost.Err) {
			return AdviceRetry // what carried the message knows more: a 429, for example
		}
		return a
	case errors.Is(err, context.DeadlineExceeded):
		return AdviceRetry
	case errors.Is(err, context.Canceled):
		return AdviceGiveUp
	case errors.As(err, &lost):
		return adviceForLost(lost)
	case errors.Is(err, ErrClosed):
		return AdviceReconnect
	case isTransport(err):
		if recoverableTransport(err) {
			return AdviceReconnect
		}
		return AdviceGiveUp
	}
	return AdviceNone
}

// Recoverable says whether trying again, on this connection or a new one, may
// help: AdviceFor gives retry or reconnect (RPC-22).
func Recoverable(err error) bool {
	a := AdviceFor(err)
	return a == AdviceRetry || a == AdviceReconnect
}

func adviceForCode(code Code) Advice {
	switch code {
	case CodeServerBusy, CodeTimeout:
		return AdviceRetry
	case CodeClosing:
		return AdviceReconnect
	case CodeParseError, CodeInvalidRequest, CodeMethodNotFound, CodeInvalidParams, CodeCancelled:
		return AdviceGiveUp
	}
	return AdviceNone
}

// adviceForLost is the advice about a message that was not delivered, while its
// connection goes on as a rule.
func adviceForLost(lost *UndeliveredError) Advice {
	switch {
	case !isTransport(lost.Err):
		return AdviceNone
	case !recoverableTransport(lost.Err):
		return AdviceGiveUp
	case errors.Is(lost.Err, ErrClosed):
		return AdviceReconnect
	}
	return AdviceRetry
}

// Units of limits on one message, which do not go away by waiting.
const (
	unitBytes   = "bytes"
	unitLevels  = "levels"
	unitEntries = "entries"
)

// isTransport says whether an error comes from below, by its looks.
func isTransport(err error) bool {
	var (
		number syscall.Errno
		netErr net.Error
		own    recoverer
		path   *fs.PathError
	)
	return isHopeless(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, os.ErrClosed) || errors.Is(err, net.ErrClosed) ||
		errors.As(err, &own) || errors.As(err, &number) || errors.As(err, &netErr) || errors.As(err, &path)
}

// A recoverer is an error of a Stream that knows whether a new connection may
// work: lost framing does not come back, a proxy's 503 does.
type recoverer interface {
	error
	Recoverable() bool
}

// isHopeless says whether err is about something that is as wrong at the next
// attempt: a certificate, a peer that does not speak TLS, a program that is not
// there.
func isHopeless(err error) bool {
	var (
		untrusted *tls.CertificateVerificationError
		unknown   x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
		record    tls.RecordHeaderError
		program   *exec.Error
	)
	return errors.As(err, &untrusted) || errors.As(err, &unknown) || errors.As(err, &name) || errors.As(err, &invalid) ||
		errors.As(err, &record) || errors.As(err, &program) || errors.Is(err, exec.ErrNotFound)
}

// recoverableTransport says whether a new connection may work after err ended
// one, or kept one from beginning (RPC-22), as AdviceFor has it. What is unknown
// is not recoverable: it is better to tell somebody than to try for ever.
func recoverableTransport(err error) bool {
	var (
		own    recoverer
		number syscall.Errno
		dns    *net.DNSError
		netErr net.Error
		op     *net.OpError
	)
	switch {
	case err == nil:
		return false
	case errors.As(err, &own):
		return own.Recoverable()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe),
		errors.Is(err, os.ErrClosed), errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
		return true
	case errors.As(err, &dns):
		return dns.IsTemporary || dns.IsTimeout
	case errors.As(err, &number):
		if number == syscall.ENOENT { // a unix socket whose server is not up yet; but a program does not come
			return errors.As(err, &op)
		}
		return recoverableErrno(number)
	case errors.As(err, &netErr):
		return netErr.Timeout()
	}
	return false
}

func recoverableErrno(number syscall.Errno) bool {
	switch number {
	case syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.ECONNABORTED, syscall.EPIPE, syscall.ETIMEDOUT,
		syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENETDOWN, syscall.ENETRESET, syscall.EAGAIN,
		syscall.EINTR, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM:
		return true
	}
	return false
}
