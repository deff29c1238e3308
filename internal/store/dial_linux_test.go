package store

import (
	"context"
	"net"
	"path/filepath"
	"syscall"
	"testing"
)

// TestSilentConnectionEnds: a question that nobody receives, since the machine of
// the server is gone, does not wait for a quarter of an hour.
func TestSilentConnectionEnds(t *testing.T) {
	o := Options{}.withDefaults()
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "socket")} {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), network, address)
		check(t, err)
		defer l.Close()
		c, err := o.Dial(context.Background(), network, l.Addr().String())
		check(t, err)
		defer c.Close()
		if network == "unix" {
			continue
		}
		raw, err := c.(*net.TCPConn).SyscallConn()
		check(t, err)
		var got int
		var failed error
		check(t, raw.Control(func(fd uintptr) { got, failed = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, 18) }))
		check(t, failed)
		if got != 15_000 {
			t.Errorf("it ends after %d ms, want 15000", got)
		}
	}
}
