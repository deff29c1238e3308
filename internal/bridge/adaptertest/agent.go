package adaptertest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
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

// agent is a server on loopback that answers every request with one response.
type agent struct {
	listener net.Listener
	response []byte // head and body, as they go out
	fault    string
	count    int

	mu       sync.Mutex
	requests []string
	conns    []net.Conn
	wg       sync.WaitGroup
}

// startAgent serves until close.
func startAgent(response []byte, fault string) (*agent, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	a := &agent{listener: l, response: response}
	word, n, _ := strings.Cut(strings.TrimSpace(fault), " ")
	a.fault = word
	if n != "" {
		if a.count, err = strconv.Atoi(n); err != nil {
			_ = l.Close()
			return nil, fmt.Errorf("fault %q: %w", fault, err)
		}
	}
	if a.fault == FaultRefuse {
		return a, l.Close()
	}
	a.wg.Go(a.accept)
	return a, nil
}

// dial connects to the agent, whatever the address.
func (a *agent) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", a.listener.Addr().String())
}

// close ends every connection and waits.
func (a *agent) close() {
	_ = a.listener.Close()
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

func (a *agent) accept() {
	for {
		c, err := a.listener.Accept()
		if err != nil {
			return
		}
		a.mu.Lock()
		a.conns = append(a.conns, c)
		a.mu.Unlock()
		a.wg.Go(func() {
			defer func() { _ = c.Close() }()
			a.serve(c)
		})
	}
}

func (a *agent) serve(c net.Conn) {
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
		a.requests = append(a.requests, request)
		a.mu.Unlock()
		if !a.answer(c) {
			return
		}
	}
}

// answer writes the response and reports whether the connection goes on.
func (a *agent) answer(c net.Conn) bool {
	part := a.response[:min(a.count, len(a.response))]
	switch a.fault {
	case FaultReset:
		_, _ = c.Write(part)
		if t, ok := c.(*net.TCPConn); ok {
			if len(part) > 0 {
				time.Sleep(50 * time.Millisecond) // a reset overtakes what is not read yet
			}
			_ = t.SetLinger(0)
		}
	case FaultCut:
		_, _ = c.Write(part)
	case FaultHang:
		_, _ = c.Write(part)
		_, _ = io.Copy(io.Discard, c)
	case FaultDrip:
		for i := range a.response {
			if _, err := c.Write(a.response[i : i+1]); err != nil {
				return false
			}
			time.Sleep(20 * time.Millisecond)
		}
	case FaultLarge, FaultEndless, FaultHeaders, FaultInterim:
		a.flood(c)
	default:
		_, err := c.Write(a.response)
		return err == nil
	}
	return false
}

// flood writes until the other side has enough.
func (a *agent) flood(c net.Conn) {
	head, _, _ := bytes.Cut(a.response, []byte("\r\n\r\n"))
	chunk, times := strings.Repeat(" ", 32<<10), 1<<15 // 1 GiB
	begin := string(head) + "\r\n"
	switch a.fault {
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
	return head.String() + string(body) + "\n", nil
}

func errOr(err error) error {
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}
