package store

import (
	"errors"
	"strings"
	"syscall"
)

// tcpUserTimeout is TCP_USER_TIMEOUT of tcp(7).
const tcpUserTimeout = 18

// endSilence has the system give a connection up on which nobody has received what
// was sent for silenceWait. Without it that takes a quarter of an hour: keep-alives
// are sent as long as nothing else is under way only.
func endSilence(network, _ string, c syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(silenceWait.Milliseconds()))
	})
	return errors.Join(err, failed)
}
