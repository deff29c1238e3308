package rpchttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
)

// TestClientTranscripts plays the server of testdata/client, byte for byte, to
// a client Stream, and compares what it sends and what comes out of Read
// (RPC-15, RPC-22…RPC-25). Lines of the comment that begin with "set" configure
// the Stream; "set network memory" is for what is about time, which then passes only
// when nobody can go on. Sections:
//
//	write              messages for Stream.Write
//	request METHOD     the next request that the server gets with this method
//	response METHOD    bytes that it answers; then the connection is closed
//	open METHOD        the same, and the connection stays open
//	more METHOD        further bytes of the latter
//	hang-up METHOD     close it
//	read               what Stream.Read returns
//	close              Stream.Close, beside what follows
func TestClientTranscripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/client/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			onNetwork(t, string(ar.Comment), func(t *testing.T, m *memory) {
				p := newClientPlay(t, string(ar.Comment), m)
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

// A clientPlay is a Stream and the server that a transcript plays to it.
type clientPlay struct {
	st       *rpchttp.Stream
	addr     string
	other    string // address of a server that nobody may reach
	requests map[string]chan *exchanged
	current  map[string]*exchanged
}

type exchanged struct {
	text string
	conn net.Conn
}

// newClientPlay plays in a network in memory, if there is one.
func newClientPlay(t *testing.T, comment string, m *memory) *clientPlay {
	p := &clientPlay{requests: make(map[string]chan *exchanged), current: make(map[string]*exchanged)}
	for _, m := range []string{"POST", "GET", "DELETE"} {
		p.requests[m] = make(chan *exchanged, 16)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(p.take))
	other := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s reached a foreign server", r.Method, r.URL)
	}))
	cfg := rpchttp.ClientConfig{CloseTimeout: 200 * time.Millisecond}
	if m != nil {
		srv.Listener.Close()
		other.Listener.Close()
		srv.Listener, other.Listener = m, newMemory()
		cfg.Client = &http.Client{Transport: &http.Transport{DialContext: m.dial, DisableCompression: true}}
	}
	srv.Start()
	other.Start()
	p.addr, p.other = srv.Listener.Addr().String(), other.Listener.Addr().String()
	url := srv.URL + "/rpc"
	for line := range strings.Lines(comment) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "set" {
			continue
		}
		words = append(words, "")
		var err error
		switch words[1] {
		case "url":
			url = strings.ReplaceAll(words[2], "ADDR", p.addr)
		case "key":
			cfg.Headers = func(_ context.Context, h http.Header) error {
				h.Set("Authorization", "Bearer "+words[2])
				return nil
			}
		case "way-back":
			cfg.WayBack = map[string]rpchttp.WayBack{"at-once": rpchttp.WayBackAtOnce, "with-session": rpchttp.WayBackWithSession}[words[2]]
		case "session-header":
			cfg.SessionHeader = words[2]
		case "max-message":
			cfg.MaxMessage, err = strconv.Atoi(words[2])
		case "max-reconnects":
			cfg.MaxReconnects, err = strconv.Atoi(words[2])
		case "network": // see onNetwork
		case "timeout":
			cfg.Timeout, err = time.ParseDuration(words[2])
		default:
			t.Fatalf("unknown setting %s", words[1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	st, err := rpchttp.NewStream(url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.st = st
	t.Cleanup(func() {
		for _, e := range p.current {
			e.conn.Close()
		}
		st.Close()
		srv.CloseClientConnections()
		srv.Close()
		other.Close()
	})
	return p
}

// take keeps a request, and its connection, for the transcript.
func (p *clientPlay) take(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h := r.Header.Clone()
	for _, name := range []string{"User-Agent", "Content-Length", "Accept-Encoding"} {
		h.Del(name)
	}
	text := head(fmt.Sprintf("%s %s %s", r.Method, r.RequestURI, r.Proto), h) + "\n" + section(body)
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	p.requests[r.Method] <- &exchanged{strings.ReplaceAll(text, p.addr, "ADDR"), conn}
}

// step plays one section, and returns it as it turned out.
func (p *clientPlay) step(t *testing.T, name, data string) string {
	name, method, _ := strings.Cut(name, " ")
	switch name {
	case "write":
		if _, err := io.WriteString(p.st, data); err != nil {
			t.Fatalf("Write: %v", err)
		}
		return data
	case "request":
		select {
		case e := <-p.requests[method]:
			p.current[method] = e
			return e.text
		case <-time.After(2 * time.Minute):
			t.Fatalf("no %s request", method)
		}
	case "response", "open":
		e := p.current[method]
		if _, err := io.WriteString(e.conn, p.wireBytes(data, name == "response")); err != nil {
			t.Fatal(err)
		}
		if name == "response" {
			e.conn.Close()
		}
		return data
	case "more":
		io.WriteString(p.current[method].conn, data)
		return data
	case "hang-up":
		p.current[method].conn.Close()
		return data
	case "read":
		return p.read(t)
	case "close":
		go p.st.Close() // the end of the session waits for its answer
		return data
	}
	t.Fatalf("unknown section %s", name)
	return ""
}

var repeated = regexp.MustCompile(`\{x\*(\d+)\}`)

// wireBytes makes of a section what the server sends: {x*9} are nine of them.
// A response without a length ends with the connection.
func (p *clientPlay) wireBytes(data string, whole bool) string {
	data = strings.ReplaceAll(strings.ReplaceAll(data, "ADDR", p.addr), "OTHER", p.other)
	data = repeated.ReplaceAllStringFunc(data, func(s string) string {
		n, _ := strconv.Atoi(repeated.FindStringSubmatch(s)[1])
		return strings.Repeat("x", n)
	})
	data = hexByte.ReplaceAllStringFunc(data, func(s string) string {
		n, _ := strconv.ParseUint(s[2:], 16, 8)
		return string([]byte{byte(n)})
	})
	head, body, _ := strings.Cut(data, "\n\n")
	if whole {
		head += "\nConnection: close"
	}
	return strings.ReplaceAll(head, "\n", "\r\n") + "\r\n\r\n" + body
}

// read shows what Read returns: messages, undelivered ones with the error, and
// the end.
func (p *clientPlay) read(t *testing.T) string {
	p.st.SetReadDeadline(time.Now().Add(2 * time.Minute))
	text, err := readAll(p.st)
	hide := func(s string) string {
		s = strings.ReplaceAll(strings.ReplaceAll(s, p.addr, "ADDR"), p.other, "OTHER")
		return ports.ReplaceAllString(s, "127.0.0.1:PORT->")
	}
	lost, ok := errors.AsType[*jsonrpc.UndeliveredError](err)
	switch {
	case ok:
		return fmt.Sprintf("undelivered %s\n%s\nadvice: %v\n", lost.Message, hide(lost.Err.Error()), jsonrpc.AdviceFor(lost))
	case err != nil:
		return fmt.Sprintf("%s\nend: %s\n", text, hide(err.Error()))
	}
	return "message " + section([]byte(text))
}

var ports = regexp.MustCompile(`127\.0\.0\.1:\d+->`)

// readAll reads one message.
func readAll(s jsonrpc.Stream) (string, error) {
	var b strings.Builder
	for {
		part, err := s.Read()
		if err != nil {
			return b.String(), err
		}
		b.Write(part.Data)
		if part.End {
			return b.String(), nil
		}
	}
}
