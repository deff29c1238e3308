package jsonrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// How Serve goes on after errors of Accept, which are passing ones mostly: the
// process has no descriptor left, a peer gave up before it was accepted.
const (
	maxAcceptErrors  = 20 // in a row, about 15 seconds
	acceptPause      = 5 * time.Millisecond
	maxAcceptPause   = time.Second
	defaultConnLimit = 1024 // connections
	handshakeTimeout = 10 * time.Second
)

// A ServeConfig says how Serve treats connections. The zero value is ready.
type ServeConfig struct {
	// Framing makes a Stream of each connection; nil: NewLineStream.
	Framing Framing
	// MaxConns is how many connections are served at a time, 0: 1024. Beyond
	// it, peers wait to be accepted: for as long as the others stay, which may be
	// silent, or slow, without end.
	MaxConns int
	// Drain leaves the Streams open when ctx ends. Each handle then has to see
	// to the end of its connection, by Conn.Close or Conn.Shutdown, so that what
	// is being handled is answered; Serve returns when all have. A Stream that is
	// closed gives the peer a second to take what was written. Otherwise the
	// Streams are closed with ctx, and those answers are lost.
	Drain bool
}

// Serve accepts connections from ln and calls handle for each, on a goroutine
// of its own, with a Stream that it closes when handle returns. The handshake of
// a connection that has one (*tls.Conn) is done before, within 10 seconds, or
// the connection dropped.
//
// Serve returns when ctx ends or ln is closed (then with nil), or when ln fails
// 20 times in a row; before that it closes ln and all Streams (but see
// ServeConfig.Drain), and waits for every handle. Usually handle makes a Conn and
// waits for its end:
//
//	func(s jsonrpc.Stream) { <-jsonrpc.NewConn(s, config).Done() }
//
// With ServeConfig.Drain it answers what was begun when ctx ends:
//
//	func(s jsonrpc.Stream) {
//		conn := jsonrpc.NewConn(s, config)
//		select {
//		case <-conn.Done():
//		case <-ctx.Done():
//		}
//		conn.Close()
//	}
func Serve(ctx context.Context, ln net.Listener, cfg ServeConfig, handle func(Stream)) error {
	if cfg.Framing == nil {
		cfg.Framing = NewLineStream
	}
	if cfg.MaxConns <= 0 {
		cfg.MaxConns = defaultConnLimit
	}
	open, closeStreams := context.WithCancel(context.WithoutCancel(ctx))
	var handlers sync.WaitGroup
	defer func() {
		if !cfg.Drain || ctx.Err() == nil { // nothing else would tell handle that ln has ended
			closeStreams()
		}
		handlers.Wait()
		closeStreams()
	}()
	stop := context.AfterFunc(ctx, func() {
		_ = ln.Close()
		if !cfg.Drain {
			closeStreams()
		}
	})
	defer stop()
	defer func() { _ = ln.Close() }()

	slots := make(chan struct{}, cfg.MaxConns)
	for failures := 0; ; {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		conn, err := ln.Accept()
		switch {
		case err == nil:
			failures = 0
			handlers.Go(func() {
				defer func() { <-slots }()
				serveConn(ctx, open, conn, cfg, handle)
			})
			continue
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return nil
		}
		<-slots
		if failures++; failures == maxAcceptErrors {
			return fmt.Errorf("jsonrpc: accept on %v: %w", ln.Addr(), err)
		}
		select {
		case <-time.After(min(acceptPause<<failures, maxAcceptPause)):
		case <-ctx.Done():
		}
	}
}

// serveConn calls handle, and closes the Stream when it returns or open ends. ctx
// bounds the handshake.
func serveConn(ctx, open context.Context, conn net.Conn, cfg ServeConfig, handle func(Stream)) {
	rw := conn
	if cfg.Drain {
		rw = gentle(conn)
	}
	s := cfg.Framing(rw)
	stop := context.AfterFunc(open, func() { _ = s.Close() })
	defer stop()
	defer func() { _ = s.Close() }()
	// A *tls.Conn would do it at the first Read or Write, which may be a long
	// time after the client began to wait for it.
	if t, ok := conn.(interface{ HandshakeContext(context.Context) error }); ok {
		limited, cancel := context.WithTimeout(ctx, handshakeTimeout)
		defer cancel()
		if t.HandshakeContext(limited) != nil {
			return
		}
	}
	handle(s)
}

// gentleTime is how long a connection that is closed waits for the peer to take what
// was written, and to close its end.
const gentleTime = time.Second

// gentle returns conn with a Close that is closeGently.
func gentle(conn net.Conn) net.Conn {
	if _, ok := conn.(writeCloser); !ok {
		return conn
	}
	c := gentleConn{conn}
	if try := tryWriterOf(conn); try != nil {
		return struct {
			gentleConn
			tryWriter
		}{c, try}
	}
	return c
}

type gentleConn struct{ net.Conn }

func (c gentleConn) Close() error { return closeGently(c.Conn) }

type writeCloser interface {
	net.Conn
	CloseWrite() error
}

// closeGently closes a connection so that the peer can take what was written: it ends
// this side's direction, and waits for the end of the other one. TCP throws away what
// is under way when a socket is closed to which the peer still sends, as it may until
// it knows.
func closeGently(rw io.ReadWriteCloser) error {
	half, ok := rw.(writeCloser)
	if !ok {
		return rw.Close()
	}
	// No deadline: who reads may set another, and with TLS a Write that goes on holds
	// up CloseWrite.
	timer := time.AfterFunc(gentleTime, func() { _ = rw.Close() })
	defer timer.Stop()
	if half.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, rw) // its error is an end, too
	}
	return rw.Close()
}
