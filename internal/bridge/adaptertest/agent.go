package adaptertest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The faults. N is a number of bytes of the whole response, head included.
const (
	// FaultRefuse: nobody listens.
	FaultRefuse = "refuse"
	// FaultReset N: the connection is reset after N bytes.
	FaultReset = "reset"
	// FaultCut N: the connection is closed after N bytes.
	FaultCut = "cut"
	// FaultHang N: nothing more comes after N bytes.
	FaultHang = "hang"
	// FaultDrip: one byte every 20 ms.
	FaultDrip = "drip"
	// FaultLarge: the head promises 1 GB of body, and it is sent.
	FaultLarge = "large"
	// FaultEndless: a body without a length that never ends.
	FaultEndless = "endless"
	// FaultHeaders: a head that never ends.
	FaultHeaders = "headers"
	// FaultInterim: interim responses (103) without an end.
	FaultInterim = "interim"
)

// script is one response of the agent, and how it goes wrong.
type script struct {
	response []byte // head and body, as they go out
	stream   []line // what follows the head instead, if it is a stream
	fault    string
	count    int
}

// line is a piece of a streamed body, and what happens before it.
type line struct {
	// event is "", pause, cut, reset or hang.
	event string
	pause time.Duration
	text  string
}

// agent answers the n-th request with the n-th script, over connections in
// memory.
type agent struct {
	scripts []script

	mu       sync.Mutex
	requests []string
	conns    []net.Conn
	wg       sync.WaitGroup
}

// Dial connects to the agent, whatever the address.
func (a *agent) Dial(context.Context, string, string) (net.Conn, error) {
	if len(a.scripts) > 0 && a.scripts[0].fault == FaultRefuse {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	ours, theirs := net.Pipe()
	c := &resetConn{Conn: theirs}
	a.mu.Lock()
	a.conns = append(a.conns, ours)
	a.mu.Unlock()
	a.wg.Go(func() {
		defer func() { _ = ours.Close() }()
		a.serve(ours, c)
	})
	return c, nil
}

// resetConn is the caller's end of a connection that the agent may reset.
type resetConn struct {
	net.Conn
	reset atomic.Bool
}

// Read gives the error of a reset connection where the agent has reset it.
func (c *resetConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && c.reset.Load() {
		err = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	}
	return n, err
}

// close ends every connection and waits.
func (a *agent) close() {
	a.mu.Lock()
	for _, c := range a.conns {
		_ = c.Close()
	}
	a.mu.Unlock()
	a.wg.Wait()
}

func (a *agent) got() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.requests
}

func (a *agent) serve(c net.Conn, peer *resetConn) {
	r := bufio.NewReader(c)
	for {
		request, err := readRequest(r)
		if err != nil {
			if request != "" { // no HTTP: TLS, for example
				_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
			}
			return
		}
		a.mu.Lock()
		n := len(a.requests)
		a.requests = append(a.requests, request)
		a.mu.Unlock()
		if n >= len(a.scripts) || !a.scripts[n].answer(c, peer) {
			return
		}
	}
}

// answer writes the response and reports whether the connection goes on.
func (s *script) answer(c net.Conn, peer *resetConn) bool {
	part := s.response[:min(s.count, len(s.response))]
	switch s.fault {
	case FaultReset:
		_, _ = c.Write(part)
		peer.reset.Store(true)
	case FaultCut:
		_, _ = c.Write(part)
	case FaultHang:
		_, _ = c.Write(part)
		_, _ = io.Copy(io.Discard, c)
	case FaultDrip:
		for i := range s.response {
			if _, err := c.Write(s.response[i : i+1]); err != nil {
				return false
			}
			time.Sleep(20 * time.Millisecond)
		}
	case FaultLarge, FaultEndless, FaultHeaders, FaultInterim:
		s.flood(c)
	default:
		if _, err := c.Write(s.response); err != nil {
			return false
		}
		return s.stream == nil || s.streamTo(c, peer)
	}
	return false
}

// streamTo writes the pieces of a streamed body, each as a chunk, and reports
// whether it came to its end.
func (s *script) streamTo(c net.Conn, peer *resetConn) bool {
	for _, l := range s.stream {
		switch l.event {
		case "pause":
			time.Sleep(l.pause)
		case "cut":
			return false
		case "reset":
			peer.reset.Store(true)
			return false
		case "hang":
			_, _ = io.Copy(io.Discard, c)
			return false
		}
		if l.text == "" {
			continue
		}
		if _, err := fmt.Fprintf(c, "%x\r\n%s\r\n", len(l.text), l.text); err != nil {
			return false
		}
	}
	_, err := io.WriteString(c, "0\r\n\r\n")
	return err == nil
}

// flood writes until the other side has enough.
func (s *script) flood(c net.Conn) {
	head, _, _ := bytes.Cut(s.response, []byte("\r\n\r\n"))
	chunk, times := strings.Repeat(" ", 32<<10), 1<<15 // 1 GiB
	begin := string(head) + "\r\n"
	switch s.fault {
	case FaultLarge:
		begin += "Content-Length: 1073741824\r\n\r\n"
	case FaultEndless:
		begin += "Connection: close\r\n\r\n"
	case FaultHeaders:
		chunk = strings.Repeat("X-Bomb: "+strings.Repeat("b", 1000)+"\r\n", 32)
	case FaultInterim:
		begin, chunk = "", strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 100)
	}
	_, err := io.WriteString(c, begin)
	for ; err == nil && times > 0; times-- {
		_, err = io.WriteString(c, chunk)
	}
}

// readRequest gives a request as it came, with plain line ends.
func readRequest(r *bufio.Reader) (string, error) {
	var head strings.Builder
	length := 0
	for {
		line, err := r.ReadString('\n')
		if head.Len() == 0 && !strings.HasSuffix(line, "HTTP/1.1\r\n") {
			return line, fmt.Errorf("no HTTP request: %w", errOr(err))
		}
		if err != nil {
			return head.String(), err
		}
		line = strings.TrimRight(line, "\r\n")
		head.WriteString(line + "\n")
		if line == "" {
			break
		}
		if name, value, _ := strings.Cut(line, ": "); name == "Content-Length" {
			if length, err = strconv.Atoi(value); err != nil {
				return "", err
			}
		}
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(r, body); err != nil {
		return "", err
	}
	if length > 0 {
		body = append(body, '\n')
	}
	return head.String() + string(body), nil
}

func errOr(err error) error {
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}
