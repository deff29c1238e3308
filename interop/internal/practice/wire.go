package practice

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
)

// A Wire is how a peer program is reached: Framing is "lines" or "headers",
// Network "stdio", "tcp", "unix" or "http", and Addr an address of a network.
type Wire struct {
	Framing, Network, Addr string
}

// Stdio is the process's own standard input and output.
type Stdio struct{}

// Read reads standard input.
func (Stdio) Read(p []byte) (int, error) { return os.Stdin.Read(p) }

// Write writes standard output.
func (Stdio) Write(p []byte) (int, error) { return os.Stdout.Write(p) }

// Close closes both.
func (Stdio) Close() error {
	_ = os.Stdin.Close()
	return os.Stdout.Close()
}

// Dial connects to the other side.
func (w Wire) Dial() (io.ReadWriteCloser, error) {
	if w.Network == "stdio" {
		return Stdio{}, nil
	}
	var d net.Dialer
	return d.DialContext(context.Background(), w.Network, w.Addr)
}

// Serve calls one with each connection that comes, once for stdio, and for
// ever otherwise. It tells the address on standard output as soon as the peer
// listens.
func (w Wire) Serve(one func(io.ReadWriteCloser)) error {
	if w.Network == "stdio" {
		one(Stdio{})
		return nil
	}
	l, err := w.Listen()
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go one(c)
	}
}

// Listen listens, and tells the address on standard output.
func (w Wire) Listen() (net.Listener, error) {
	network := w.Network
	if network == "http" {
		network = "tcp"
	}
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), network, w.Addr)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintln(os.Stdout, l.Addr())
	return l, err
}
