package bridge

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"
	"unicode/utf8"
)

const (
	// maxDirect is the largest request body, in bytes, that is written before
	// anything is read. Every socket takes that much, so that an agent that
	// answers without reading is heard.
	maxDirect = 16 << 10
	// maxKeptBuffer is how large a buffer a kept connection may hold on to.
	maxKeptBuffer = 4 << 10
)

// errHead marks a head that is larger than the limit.
var errHead = errors.New("response headers exceeded the limit")

// direct speaks plain HTTP/1.1 in the goroutine of its caller. The
// transport of net/http gives two goroutines to each connection, and handing
// a short exchange over to them and back costs more than the exchange itself;
// it serves TLS, and requests above maxDirect. Besides, direct knows how many
// bytes of a request have left, which decides whether it may be repeated.
type direct struct {
	pool      *connPool
	life      lifetime
	dial      func(context.Context, string, string) (net.Conn, error)
	maxHead   int
	firstByte time.Duration // 0: until the request is due
}

// directRequest is what is sent.
type directRequest struct {
	method string
	url    *url.URL
	header http.Header
	body   []byte
	due    time.Time
	// errand is whose request it is, for its send guard.
	errand *errand
}

// roundTrip sends the request and reads the head of the response, whose body
// must be closed. Both have to be done when r is due: the error then matches
// os.ErrDeadlineExceeded. sent says whether a byte of the request has left.
// Only a kept connection that turns out to be closed, before anything was
// written on it, is replaced by another one.
func (d *direct) roundTrip(ctx context.Context, r *directRequest) (resp *http.Response, sent bool, err error) {
	for stale := 0; ; stale++ {
		c := d.pool.take(r.url.Host, r.due)
		kept := c != nil
		if !kept {
			if c, err = d.connect(ctx, r.url, r.due); err != nil {
				return nil, false, err
			}
			if err = guarded(ctx, r.errand); err != nil { // that took its time
				return nil, false, errors.Join(err, c.Close())
			}
		}
		resp, written, err := d.exchange(ctx, c, r)
		if err == nil {
			return resp, true, nil
		}
		_ = c.Close()
		if written > 0 || !kept || stale == maxStale || ctx.Err() != nil {
			return nil, written > 0, err
		}
	}
}

// connect dials within the time of the exchange, which is the deadline of the
// connection too.
func (d *direct) connect(ctx context.Context, to *url.URL, deadline time.Time) (*directConn, error) {
	address := to.Host
	if to.Port() == "" {
		address = net.JoinHostPort(to.Hostname(), "80")
	}
	within, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	conn, err := d.dial(within, "tcp", address)
	if err != nil {
		if within.Err() != nil && ctx.Err() == nil {
			return nil, fmt.Errorf("%w: %w", os.ErrDeadlineExceeded, err)
		}
		return nil, err
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	c := newDirectConn(conn, to.Host)
	c.until = d.pool.now().Add(d.life.draw())
	return c, nil
}

// exchange writes the request and reads the head. The end of ctx interrupts
// both, and the reading of the body, by way of the connection's deadline.
func (d *direct) exchange(ctx context.Context, c *directConn, r *directRequest) (*http.Response, int, error) {
	stop := context.AfterFunc(ctx, c.interrupt)
	c.out = appendRequest(c.out[:0], r)
	written, err := c.Write(c.out)
	var resp *http.Response
	if err == nil {
		resp, err = d.head(ctx, c, r.due)
	}
	if err != nil {
		stop()
		return nil, written, err
	}
	keep := !resp.Close && resp.StatusCode != http.StatusSwitchingProtocols
	resp.Body = &directBody{body: resp.Body, conn: c, pool: d.pool, stop: stop, keep: keep}
	return resp, written, nil
}

// head reads the head of the response within its own time.
func (d *direct) head(ctx context.Context, c *directConn, due time.Time) (*http.Response, error) {
	by := time.Now().Add(d.firstByte)
	if d.firstByte == 0 || !by.Before(due) {
		return c.readHead(d.maxHead)
	}
	if err := c.patience(ctx, by); err != nil {
		return nil, err
	}
	resp, err := c.readHead(d.maxHead)
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
		return nil, errFirstByte
	}
	if err != nil {
		return nil, err
	}
	return resp, c.patience(ctx, due)
}

// plainHost says whether a host is dialled and named as it stands. net/http
// rewrites the others: names with letters beyond ASCII, and zones of IPv6
// addresses.
func plainHost(host string) bool {
	for i := range len(host) {
		if c := host[i]; c >= utf8.RuneSelf || c == '%' {
			return false
		}
	}
	return true
}

// appendRequest appends the request as net/http would write it: the headers that
// concern the connection first, the others in the order of their names. Names
// and values were checked before.
func appendRequest(b []byte, r *directRequest) []byte {
	b = append(b, r.method...)
	b = append(b, ' ')
	b = append(b, r.url.RequestURI()...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, r.url.Host...)
	for _, v := range r.header["User-Agent"] {
		b = appendHeader(b, "User-Agent", v)
	}
	if len(r.body) > 0 || r.method == http.MethodPost {
		b = append(b, "\r\nContent-Length: "...)
		b = strconv.AppendInt(b, int64(len(r.body)), 10)
	}
	names := make([]string, 0, 8)
	for name := range r.header {
		if name != "User-Agent" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		for _, v := range r.header[name] {
			b = appendHeader(b, name, v)
		}
	}
	b = append(b, "\r\n\r\n"...)
	return append(b, r.body...)
}

func appendHeader(b []byte, name, value string) []byte {
	b = append(b, "\r\n"...)
	b = append(b, name...)
	b = append(b, ": "...)
	return append(b, value...)
}

// directConn is a connection that carries one exchange at a time.
type directConn struct {
	net.Conn
	host  string
	in    *bufio.Reader
	limit headLimit
	out   []byte
	// idleSince is when it was put into the pool, and until how long it is used.
	idleSince, until time.Time
	// raw is nil where the connection is no socket.
	raw   syscall.RawConn
	peek  func(fd uintptr) bool
	quiet bool
}

func newDirectConn(conn net.Conn, host string) *directConn {
	c := &directConn{Conn: conn, host: host}
	c.in = bufio.NewReader(&c.limit)
	if s, ok := conn.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			c.raw, c.peek = raw, c.look
		}
	}
	return c
}

// interrupt makes the exchange under way fail at once.
func (c *directConn) interrupt() { _ = c.SetDeadline(time.Unix(1, 0)) }

// patience moves the end of reading. The end of ctx, which interrupts, stays
// first.
func (c *directConn) patience(ctx context.Context, until time.Time) error {
	err := c.SetReadDeadline(until)
	if ctx.Err() != nil {
		c.interrupt()
	}
	return err
}

// readHead reads at most limit bytes before the body of the response begins,
// heads of interim responses included.
func (c *directConn) readHead(limit int) (*http.Response, error) {
	c.limit = headLimit{from: c.Conn, left: limit}
	for {
		// ReadResponse reports any end as an unexpected one.
		if _, err := c.in.Peek(1); err != nil {
			return nil, err
		}
		resp, err := http.ReadResponse(c.in, &http.Request{Method: http.MethodPost})
		switch {
		case err != nil && c.limit.err != nil && !errors.Is(c.limit.err, io.EOF):
			// A line that was cut short is reported as a malformed one.
			return nil, c.limit.err
		case err != nil:
			return nil, err
		case resp.StatusCode < 100 || resp.StatusCode > 199 || resp.StatusCode == http.StatusSwitchingProtocols:
			c.limit.lifted = true
			return resp, nil
		}
	}
}

// alive reports whether a kept connection can be used: the agent has neither
// closed it nor said anything that nobody asked for. Where that cannot be
// seen, writing has to tell. It gets the deadline of its next exchange.
func (c *directConn) alive(deadline time.Time) bool {
	if c.SetDeadline(deadline) != nil {
		return false
	}
	if c.raw == nil {
		return true
	}
	c.quiet = false
	return c.raw.Read(c.peek) == nil && c.quiet
}

// headLimit reads at most left bytes, unless it is lifted, and remembers why
// reading ended.
type headLimit struct {
	from   io.Reader
	left   int
	lifted bool
	err    error
}

func (l *headLimit) Read(p []byte) (int, error) {
	if l.lifted {
		return l.from.Read(p)
	}
	if l.left <= 0 {
		l.err = errHead
		return 0, l.err
	}
	var n int
	n, l.err = l.from.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, l.err
}

// directBody gives its connection back to the pool if it was read to its end.
type directBody struct {
	body io.Reader
	conn *directConn
	pool *connPool
	stop func() bool
	keep bool
	read bool
}

func (b *directBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if err != nil {
		b.read = errors.Is(err, io.EOF)
		b.keep = b.keep && b.read
	}
	return n, err
}

// Close is called once. It does not read what is left of the body: that may
// have no end.
func (b *directBody) Close() error {
	undisturbed := b.stop()
	if !undisturbed || !b.keep || !b.read || b.conn.in.Buffered() > 0 {
		return b.conn.Close()
	}
	return b.pool.put(b.conn)
}
