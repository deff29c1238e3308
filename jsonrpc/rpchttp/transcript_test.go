package rpchttp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
)

var update = flag.Bool("update", false, "write what happens into the transcripts")

// TestServerTranscripts sends the requests in testdata/server byte for byte to
// a Server behind a real http.Server, and compares the answers (RPC-1…RPC-6,
// RPC-23…RPC-25). The comment of a transcript says what it shows; lines that
// begin with "set" configure the Server; "set network memory" is for what is about
// time, which then passes only when nobody can go on. Sections:
//
//	request       bytes to send; line ends become CRLF in the head
//	response      the answer; headers sorted, Date left out
//	events        the next events of the answer, which is a stream of events
//	end           the rest of the events, and the proper end of the answer
//	close         close the connection
//
// "@2" behind the name means a second connection, and so on. \xNN in a request
// is a byte. Ids of sessions are numbered: SESSION-1, SESSION-2.
func TestServerTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/server/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			onNetwork(t, string(ar.Comment), func(t *testing.T, m *memory) {
				p := newServerPlay(t, string(ar.Comment), m)
				for i := range ar.Files {
					got := p.step(t, ar.Files[i].Name, string(ar.Files[i].Data))
					if diff := cmp.Diff(string(ar.Files[i].Data), got); diff != "" && !*update {
						t.Fatalf("section %d, %s (-want +got):\n%s", i+1, ar.Files[i].Name, diff)
					}
					ar.Files[i].Data = []byte(got)
				}
			})
			if *update {
				if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// onNetwork calls play with nil, or with the network in memory, in a bubble, that the
// comment of a transcript asks for.
func onNetwork(t *testing.T, comment string, play func(t *testing.T, m *memory)) {
	t.Helper()
	if !strings.Contains(comment, "set network memory\n") {
		play(t, nil)
		return
	}
	synctest.Test(t, func(t *testing.T) { play(t, newMemory()) })
}

// A serverPlay is a Server on which a transcript is played.
type serverPlay struct {
	addr     string
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	conns    map[string]*wire
	sessions []string
}

type wire struct {
	net.Conn
	r    *bufio.Reader
	body io.Reader // of a stream of events
}

func newServerPlay(t *testing.T, comment string, m *memory) *serverPlay {
	cfg := rpchttp.ServerConfig{Config: jsonrpc.Config{Handler: testMethods(), Grace: 100 * time.Millisecond}}
	readTimeout := time.Duration(0)
	sessions := func() *rpchttp.SessionConfig {
		if cfg.Sessions == nil {
			cfg.Sessions = new(rpchttp.SessionConfig)
		}
		return cfg.Sessions
	}
	for line := range strings.Lines(comment) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "set" {
			continue
		}
		words = append(words, "")
		var err error
		switch words[1] {
		case "network": // see onNetwork
		case "max-message":
			cfg.Config.MaxMessage, err = strconv.Atoi(words[2])
		case "max-handlers":
			cfg.Config.MaxHandlers, err = strconv.Atoi(words[2])
		case "read-timeout":
			readTimeout, err = time.ParseDuration(words[2])
		case "origins":
			cfg.AllowedOrigins = words[2 : len(words)-1]
		case "hosts":
			cfg.AllowedHosts = words[2 : len(words)-1]
		case "sessions":
			sessions()
		case "session-header":
			sessions().Header = words[2]
		case "open-on":
			sessions().OpenOn = words[2 : len(words)-1]
		case "max-sessions":
			sessions().Max, err = strconv.Atoi(words[2])
		case "backlog":
			sessions().Backlog, err = strconv.Atoi(words[2])
		case "keep-alive":
			sessions().KeepAlive, err = time.ParseDuration(words[2])
		case "idle":
			sessions().Idle, err = time.ParseDuration(words[2])
		case "accept":
			sessions().Accept = echoStream
		case "owner":
			sessions().Owner = func(r *http.Request) string { return r.Header.Get("Authorization") }
		default:
			t.Fatalf("unknown setting %s", words[1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	h := rpchttp.Handler(cfg)
	srv := rpchttp.NewHTTPServer("", h)
	if readTimeout > 0 {
		srv.ReadTimeout = readTimeout
	}
	p := &serverPlay{conns: make(map[string]*wire)}
	var l net.Listener = m
	if p.dial = m.dial; m == nil {
		var err error
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		p.dial = new(net.Dialer).DialContext
	}
	p.addr = l.Addr().String()
	served := make(chan struct{})
	go func() { srv.Serve(l); close(served) }()
	t.Cleanup(func() {
		for _, c := range p.conns {
			c.Close()
		}
		if err := h.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		srv.Close()
		<-served
	})
	return p
}

// echoStream sends every message back.
func echoStream(s jsonrpc.Stream) {
	defer s.Close()
	for {
		part, err := s.Read()
		if err != nil {
			return
		}
		if _, err := s.Write(append(slices.Clone(part.Data), '\n')); err != nil {
			return
		}
	}
}

func testMethods() jsonrpc.Handler {
	var m jsonrpc.Mux
	m.Register("echo", jsonrpc.HandlerFunc(func(_ context.Context, req *jsonrpc.Request) (any, error) {
		return req.Params(), nil
	}))
	m.Register("meta", jsonrpc.HandlerFunc(func(ctx context.Context, req *jsonrpc.Request) (any, error) {
		meta, _ := jsonrpc.MetaFrom(ctx)
		return meta, nil
	}))
	m.Register("panic", jsonrpc.HandlerFunc(func(context.Context, *jsonrpc.Request) (any, error) {
		panic("the secret is 42")
	}))
	m.Register("note", jsonrpc.HandlerFunc(func(context.Context, *jsonrpc.Request) (any, error) { return nil, nil }))
	m.Register("large", jsonrpc.HandlerFunc(func(context.Context, *jsonrpc.Request) (any, error) {
		return strings.Repeat("x", 3000), nil
	}))
	// ask calls the client back in its session, and returns what it answers.
	m.Register("ask", jsonrpc.HandlerFunc(func(ctx context.Context, req *jsonrpc.Request) (any, error) {
		ses, ok := rpchttp.SessionFrom(ctx)
		if !ok {
			return nil, errors.New("no session")
		}
		return jsonrpc.Call[any](ctx, ses.Conn(), "name", nil)
	}))
	// tell notifies the client as often as params[0] says.
	m.Register("tell", jsonrpc.HandlerFunc(func(ctx context.Context, req *jsonrpc.Request) (any, error) {
		ses, ok := rpchttp.SessionFrom(ctx)
		var n []int
		if err := req.Decode(&n); !ok || err != nil {
			return nil, errors.New("no session or number")
		}
		for i := range n[0] {
			if err := ses.Conn().Notify(ctx, "told", []int{i}); err != nil {
				return nil, err
			}
		}
		return true, nil
	}))
	m.Register("initialize", jsonrpc.HandlerFunc(func(ctx context.Context, _ *jsonrpc.Request) (any, error) {
		_, ok := rpchttp.SessionFrom(ctx)
		return map[string]bool{"session": ok}, nil
	}))
	return &m
}

// step plays one section, and returns it as it turned out.
func (p *serverPlay) step(t *testing.T, name, data string) string {
	name, label, _ := strings.Cut(name, "@")
	if name != "close" && p.conns[label] == nil {
		c, err := p.dial(t.Context(), "tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(2 * time.Minute))
		p.conns[label] = &wire{Conn: c, r: bufio.NewReader(c)}
	}
	c := p.conns[label]
	switch name {
	case "request":
		if _, err := io.WriteString(c, p.wireBytes(data)); err != nil {
			t.Fatal(err)
		}
		return data
	case "response":
		return p.hide(c.response(t))
	case "events":
		return p.hide(c.events(t, strings.Count(data, "\n\n")))
	case "end":
		rest, err := io.ReadAll(c.r)
		if err != nil {
			t.Fatalf("after %q: %v", rest, err)
		}
		return string(rest)
	case "close":
		c.Close()
		delete(p.conns, label)
		return data
	}
	t.Fatalf("unknown section %s", name)
	return ""
}

var hexByte = regexp.MustCompile(`\\x[0-9a-f]{2}`)

// wireBytes makes of a section what goes over the wire: CRLF in the head, the
// body without the newline that ends the section, unless it is chunked, where
// CRLF goes on.
func (p *serverPlay) wireBytes(data string) string {
	data = strings.ReplaceAll(data, "ADDR", p.addr) // first: it may stand in the id of a session
	for i, id := range p.sessions {
		data = strings.ReplaceAll(data, fmt.Sprintf("SESSION-%d", i+1), id)
	}
	data = hexByte.ReplaceAllStringFunc(data, func(s string) string {
		n, _ := strconv.ParseUint(s[2:], 16, 8)
		return string([]byte{byte(n)})
	})
	if strings.Contains(data, "Transfer-Encoding: chunked") {
		return strings.ReplaceAll(data, "\n", "\r\n")
	}
	head, body, _ := strings.Cut(data, "\n\n")
	body = strings.TrimSuffix(body, "\n")
	length := ""
	if body != "" && !strings.Contains(head, "Content-Length:") {
		length = fmt.Sprintf("\r\nContent-Length: %d", len(body))
	}
	return strings.ReplaceAll(head, "\n", "\r\n") + length + "\r\n\r\n" + body
}

var sessionID = regexp.MustCompile(`(?m)^(?:Rpc|Mcp)-Session-Id: ([A-Z2-7]{26})$`)

func (p *serverPlay) hide(text string) string {
	for _, m := range sessionID.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(p.sessions, m[1]) {
			p.sessions = append(p.sessions, m[1])
		}
	}
	for i, id := range p.sessions {
		text = strings.ReplaceAll(text, id, fmt.Sprintf("SESSION-%d", i+1))
	}
	text = randomID.ReplaceAllString(text, `"correlation_id":"RANDOM"`)
	return strings.ReplaceAll(text, p.addr, "ADDR")
}

var randomID = regexp.MustCompile(`"correlation_id":"[A-Z2-7]{26}"`)

func (c *wire) response(t *testing.T) string {
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		t.Fatalf("no response: %v", err)
	}
	res.Header.Del("Date")
	if res.Close {
		res.Header.Set("Connection", "close")
	}
	defer func() {
		if c.body == nil { // else the events are read by and by
			res.Body.Close()
		}
	}()
	text := head(fmt.Sprintf("%s %s", res.Proto, res.Status), res.Header)
	if res.Header.Get("Content-Type") == "text/event-stream" {
		c.body, c.r = res.Body, bufio.NewReader(res.Body)
		return text + "\n"
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("the body of the response: %v", err)
	}
	return text + "\n" + section(body)
}

func (c *wire) events(t *testing.T, n int) string {
	var b strings.Builder
	for range n {
		for {
			line, err := c.r.ReadString('\n')
			if err != nil {
				t.Fatalf("after %q: %v", b.String()+line, err)
			}
			if b.WriteString(line); line == "\n" {
				break
			}
		}
	}
	return b.String()
}

func head(first string, h http.Header) string {
	var b strings.Builder
	b.WriteString(first + "\n")
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, v := range h[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, v)
		}
	}
	return b.String()
}

// section is a body as it stands in a transcript: long ones are shortened.
func section(body []byte) string {
	if len(body) == 0 {
		return ""
	}
	if len(body) > 1000 {
		return fmt.Sprintf("%s… %d bytes\n", bytes.ToValidUTF8(body[:60], []byte("?")), len(body))
	}
	return strings.TrimSuffix(string(body), "\n") + "\n"
}
