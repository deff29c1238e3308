package jsonrpcbench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// socketPair returns the two ends of one new connection.
func socketPair(ctx context.Context, network string) (client, server net.Conn, err error) {
	if network == "pipe" {
		client, server = net.Pipe()
		return client, server, nil
	}
	address := "127.0.0.1:0"
	if network == "unix" {
		dir, err := os.MkdirTemp("", "jsonrpcbench")
		if err != nil {
			return nil, nil, err
		}
		defer os.RemoveAll(dir)
		address = filepath.Join(dir, "s")
	}
	l, err := new(net.ListenConfig).Listen(ctx, network, address)
	if err != nil {
		return nil, nil, fmt.Errorf("network %q: %w", network, err)
	}
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		server = c
		accepted <- err
	}()
	client, err = new(net.Dialer).DialContext(ctx, l.Addr().Network(), l.Addr().String())
	if err != nil {
		return nil, nil, errors.Join(err, l.Close(), <-accepted)
	}
	return client, server, <-accepted
}
