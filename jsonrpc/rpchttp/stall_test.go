package rpchttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpchttp"
)

// TestAnswerNotTaken: a client that takes no byte of the answer to its POST for
// Config.StallTimeout loses the connection, and holds neither handler nor answer any
// more; one that is slow gets all of it (RPC-23).
func TestAnswerNotTaken(t *testing.T) {
	const size, stall = 400 << 10, 10 * time.Second
	text := `"` + strings.Repeat("x", size-2) + `"`
	cfg := rpchttp.ServerConfig{Config: jsonrpc.Config{
		StallTimeout: stall,
		Handler: jsonrpc.HandlerFunc(func(_ context.Context, req *jsonrpc.Request) (any, error) {
			switch req.Method() {
			case "short":
				return 1, nil
			case "stream":
				return strings.NewReader(text), nil
			}
			return jsonrpc.Errorf(1, "long").WithData(text), nil
		}),
	}}
	inMemory(t, cfg, func(t *testing.T, m *memory) {
		for _, method := range []string{"short", "long", "stream"} {
			for _, pause := range []time.Duration{stall * 2 / 5, stall + time.Second} {
				conn := postRaw(t, m, method)
				err := readSlowly(conn, pause)
				if patient := pause < stall; patient != (err == nil) {
					t.Errorf("%s, a client that reads every %v: %v", method, pause, err)
				}
				conn.Close()
			}
			conn := postRaw(t, m, method)
			for b := make([]byte, 1); b[0] != '}'; { // a pipe keeps what is not read
				if _, err := conn.Read(b); err != nil {
					t.Fatalf("%s: %v", method, err)
				}
			}
			time.Sleep(stall + time.Second)
			if rest, _ := io.ReadAll(conn); len(rest) > 0 {
				t.Errorf("%s: the end of the answer was kept for a client that does not take it: %q", method, rest)
			}
			conn.Close()
		}
	})
}

// postRaw calls a method on a connection of its own, and reads nothing.
func postRaw(t *testing.T, m *memory, method string) net.Conn {
	t.Helper()
	conn, err := m.dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `"}`
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	return conn
}

// TestSilentResult: a result whose reader has nothing for longer than
// Config.StallTimeout is no client that takes nothing. In HTTP/2 a deadline would end
// it.
func TestSilentResult(t *testing.T) {
	const stall = 10 * time.Second
	first := `"` + strings.Repeat("x", 40<<10)
	cfg := rpchttp.ServerConfig{Config: jsonrpc.Config{
		StallTimeout: stall,
		Handler: jsonrpc.HandlerFunc(func(context.Context, *jsonrpc.Request) (any, error) {
			r, w := io.Pipe()
			go func() {
				_, _ = io.WriteString(w, first)
				time.Sleep(2 * stall)
				_, _ = io.WriteString(w, `"`)
				w.Close()
			}()
			return r, nil
		}),
	}}
	inMemoryHTTP2(t, cfg, func(t *testing.T, m *memory) {
		client := &http.Client{Transport: m.transport}
		res, err := client.Post("http://localhost/", "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"m"}`))
		if err != nil || res.ProtoMajor != 2 {
			t.Fatal(res, err)
		}
		defer res.Body.Close()
		if n, err := io.Copy(io.Discard, res.Body); err != nil || n < int64(len(first)) {
			t.Errorf("%d bytes, %v", n, err)
		}
	})
}

// readSlowly reads an answer with pauses between its pieces, one of them before it.
func readSlowly(conn io.Reader, pause time.Duration) error {
	time.Sleep(pause)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	for {
		switch _, err := io.CopyN(io.Discard, res.Body, 64<<10); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		time.Sleep(pause)
	}
}

// deadlines is a ResponseWriter that counts the ends that were set for it.
type deadlines struct {
	*httptest.ResponseRecorder
	set int
}

func (d *deadlines) SetWriteDeadline(time.Time) error { d.set++; return nil }

// TestWriteTimeoutGoesBefore: whoever limits the whole answer, by the WriteTimeout of
// the http.Server, is not overruled by Config.StallTimeout, which moves with what is
// taken; nor is there an end where StallTimeout is off.
func TestWriteTimeoutGoesBefore(t *testing.T) {
	for name, c := range map[string]struct {
		writeTimeout, stall time.Duration
		ends                bool
	}{
		"the default":    {ends: true},
		"StallTimeout":   {stall: time.Second, ends: true},
		"off":            {stall: -1},
		"a WriteTimeout": {writeTimeout: time.Minute, stall: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			handler := jsonrpc.HandlerFunc(func(context.Context, *jsonrpc.Request) (any, error) { return 1, nil })
			s := rpchttp.Handler(rpchttp.ServerConfig{Config: jsonrpc.Config{StallTimeout: c.stall, Handler: handler}})
			defer s.Close()
			w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"m"}`))
			r.Header.Set("Content-Type", "application/json")
			s.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{WriteTimeout: c.writeTimeout})))
			if got := w.Body.String(); !strings.Contains(got, `"result":1`) {
				t.Errorf("answered %s", got)
			}
			if ends := w.set > 0; ends != c.ends {
				t.Errorf("%d ends of writing were set", w.set)
			}
		})
	}
}

// TestRefusalNotTaken: a client that takes nothing of what its request was refused with, or
// accepted, loses the connection as well; one that comes again later does not.
func TestRefusalNotTaken(t *testing.T) {
	const stall = 10 * time.Second
	const body = `{"jsonrpc":"2.0","method":"m"}`
	post := func(header string) string {
		return fmt.Sprintf("POST / HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n%s", header, len(body), body)
	}
	cfg := rpchttp.ServerConfig{Config: jsonrpc.Config{StallTimeout: stall}, Sessions: &rpchttp.SessionConfig{WriteTimeout: time.Minute}}
	inMemory(t, cfg, func(t *testing.T, m *memory) {
		for want, request := range map[int]string{
			http.StatusAccepted:             post("Content-Type: application/json\r\n"),
			http.StatusUnsupportedMediaType: post(""),
			http.StatusForbidden:            post("Origin: https://foreign.example\r\n"),
			http.StatusNotFound:             post("Content-Type: application/json\r\nRpc-Session-Id: none\r\n"),
			http.StatusMethodNotAllowed:     "PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
			http.StatusNotAcceptable:        "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n",
			http.StatusBadRequest:           "DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n",
		} {
			conn, err := m.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			answers := bufio.NewReader(conn)
			for range 2 {
				_, _ = io.WriteString(conn, request)
				res, err := http.ReadResponse(answers, nil)
				if err != nil || res.StatusCode != want {
					t.Fatalf("want %d: %v, %v", want, res, err)
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				time.Sleep(stall + time.Second)
			}
			_, _ = io.WriteString(conn, request)
			time.Sleep(stall + time.Second)
			if rest, _ := io.ReadAll(answers); len(rest) > 0 {
				t.Errorf("a refusal was kept for a client that does not take it: %q", rest)
			}
			conn.Close()
		}
	})
}
