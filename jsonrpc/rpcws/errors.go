package rpcws

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"unicode"

	"github.com/coder/websocket"
)

// ErrNoPong is what Read returns when the peer sent nothing within PingTimeout
// of a ping: it is gone, or the network between is. Dial again.
var ErrNoPong = errors.New("rpcws: the peer did not answer a ping in time; the connection is lost")

// A CloseError is what Read returns when the peer ended the connection with a
// close frame that says more than "done" (RFC 6455 section 7.4).
type CloseError struct {
	// Code is the status code, 1002 to 1014 or 3000 to 4999.
	Code int
	// Reason is what the peer wrote beside it, at most 123 bytes, with every
	// character that is not printable replaced.
	Reason string
}

// Error names the code, its meaning and the reason.
func (e *CloseError) Error() string {
	text := fmt.Sprintf("rpcws: the peer closed the connection with code %d", e.Code)
	if name := websocket.StatusCode(e.Code).String(); !strings.HasPrefix(name, "StatusCode(") {
		text += " (" + strings.TrimPrefix(name, "Status") + ")"
	}
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}

// Unwrap returns io.ErrUnexpectedEOF: whatever its reason, the peer left
// although something was wrong.
func (e *CloseError) Unwrap() error { return io.ErrUnexpectedEOF }

// Recoverable says whether a new connection may last longer (RPC-22): not when
// the peer does not take the protocol (1002, 1010), what it carries (1003), or who
// speaks (1008, 3000, 3003). Of the codes of applications, 4400 to 4499 are taken
// for the statuses of HTTP, as many servers use them. jsonrpc.AdviceFor asks it.
func (e *CloseError) Recoverable() bool {
	const statuses = 4000
	switch code := websocket.StatusCode(e.Code); code {
	case websocket.StatusProtocolError, websocket.StatusUnsupportedData, websocket.StatusPolicyViolation, websocket.StatusMandatoryExtension,
		unauthorized, forbidden:
		return false
	}
	if e.Code >= statuses+400 && e.Code < statuses+500 {
		return mayPass(e.Code - statuses)
	}
	return true
}

// Close codes that are registered with IANA.
const (
	unauthorized websocket.StatusCode = 3000
	forbidden    websocket.StatusCode = 3003
)

// mayPass says whether what a server refuses with an HTTP status now it may allow
// later, without anybody changing anything.
func mayPass(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// A lasting error is about something that somebody has to change before dialing
// again.
type lasting struct{ error }

// Unwrap returns what the error is about.
func (e lasting) Unwrap() error { return e.error }

// Recoverable returns false.
func (lasting) Recoverable() bool { return false }

// readError makes the library's error that of a Stream: within says that a
// message had begun.
func readError(err error, within bool) error {
	if closed, ok := errors.AsType[websocket.CloseError](err); ok {
		switch closed.Code {
		case websocket.StatusNormalClosure, websocket.StatusGoingAway, websocket.StatusNoStatusRcvd:
			if within {
				return io.ErrUnexpectedEOF
			}
			return io.EOF
		}
		return &CloseError{Code: int(closed.Code), Reason: printable(closed.Reason, maxReason)}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return io.ErrUnexpectedEOF // no close frame: code 1006
	}
	return ioError("read", err)
}

// ioError names the operation. A socket's deadline, which only somebody else
// can have set, must not look like that of a Stream, after which one reads on.
func ioError(op string, err error) error {
	if errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("rpcws: %s: %w", op, net.ErrClosed)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("rpcws: %s: %v", op, err)
	}
	return fmt.Errorf("rpcws: %s: %w", op, err)
}

// maxReason is the room for a reason in a close frame, in bytes.
const maxReason = 123

// printable makes text from a peer fit for an error message.
func printable(text string, limit int) string {
	var b strings.Builder
	for _, r := range strings.TrimSpace(text) {
		switch {
		case unicode.IsSpace(r):
			r = ' '
		case !unicode.IsPrint(r):
			r = unicode.ReplacementChar
		}
		if b.Len()+len(string(r)) > limit {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}
