package rpchttp

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/jsonrpc"
)

// A transport answers requests without a network.
type transport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f transport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := f(r)
	if err != nil {
		return nil, err
	}
	res.Request, res.ContentLength = r, -1
	if res.Body == nil {
		res.Body = http.NoBody
	}
	return res, nil
}

// respond makes an answer of a status, a content type and a body.
func respond(status int, kind, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(body))}
}

// open returns an answer whose body goes on until the request is cut short.
func open(r *http.Request, kind, body string) *http.Response {
	read, write := io.Pipe()
	go func() {
		_, _ = io.WriteString(write, body)
		<-r.Context().Done()
		write.CloseWithError(r.Context().Err())
	}()
	res := respond(http.StatusOK, kind, "")
	res.Body = read
	return res
}

// A counted body knows how many are not closed.
type counted struct {
	io.ReadCloser
	open *atomic.Int64
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.ReadCloser.Close()
}

// streamOver returns a Stream whose requests f answers. It has closed the bodies of
// all answers when the test ends: else net/http would keep their connections.
func streamOver(t *testing.T, cfg ClientConfig, f transport) *Stream {
	t.Helper()
	open := new(atomic.Int64)
	cfg.Client = &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
		res, err := f(r)
		if err == nil && res.Body != nil {
			open.Add(1)
			res.Body = &counted{ReadCloser: res.Body, open: open}
		}
		return res, err
	})}
	s, err := NewStream("http://ada:S3cret@host/rpc", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		if n := open.Load(); n != 0 {
			t.Errorf("%d bodies are open", n)
		}
	})
	return s
}

func say(t *testing.T, s *Stream, messages ...string) {
	t.Helper()
	for _, msg := range messages {
		if _, err := io.WriteString(s, msg+"\n"); err != nil {
			t.Fatal(err)
		}
	}
}

// lostBy returns why Read says that a message was lost.
func lostBy(t *testing.T, s *Stream) *Error {
	t.Helper()
	part, err := s.Read()
	e, ok := errors.AsType[*Error](err)
	if _, lost := errors.AsType[*jsonrpc.UndeliveredError](err); !lost || !ok {
		t.Fatalf("Read: %s, %v, want an undelivered message", part.Data, err)
	}
	return e
}

// TestFaultWithResult: an error without an id is that of the POST, whatever is in
// its data, and is not mixed up with the next event.
func TestFaultWithResult(t *testing.T) {
	const fault = `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no","data":{"result":1}}}`
	for kind, body := range map[string]string{
		jsonType:  fault,
		eventType: "id: 1\ndata: " + fault + "\n\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			s := streamOver(t, ClientConfig{}, func(*http.Request) (*http.Response, error) {
				return respond(http.StatusOK, kind, body), nil
			})
			say(t, s, aCall)
			for {
				part, err := s.Read()
				if err == nil && string(part.Data) == fault { // the Conn may see it, too
					continue
				}
				if !errors.Is(err, &jsonrpc.Error{Code: -32000}) {
					t.Errorf("%s: %s, %v", kind, part.Data, err)
				}
				return
			}
		})
	}
}

// TestStreamHeldOpen: a stream of events that goes on after its answer does not hold
// the place of the next call, whether there is a timeout or not.
func TestStreamHeldOpen(t *testing.T) {
	for _, timeout := range []time.Duration{-1, time.Hour, 10 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			s := streamOver(t, ClientConfig{MaxInFlight: 1, Timeout: timeout}, func(r *http.Request) (*http.Response, error) {
				return open(r, eventType, `data: {"jsonrpc":"2.0","id":1,"result":1}`+"\n\n"), nil
			})
			begin := time.Now()
			for range 3 {
				say(t, s, aCall)
				if part, err := s.Read(); err != nil || !part.End {
					t.Errorf("timeout %v: %s, %v", timeout, part.Data, err)
				}
			}
			if took, most := time.Since(begin), 2*afterAnswer; took > most {
				t.Errorf("timeout %v: three calls took %v", timeout, took)
			}
			// What is no stream of events has all the time that there is.
			s.Close()
		})
	}
}

// TestCloseBeforeSession: what waits for a session that is not open yet can no more
// be sent when the Stream is closed; Close does not wait for it.
func TestCloseBeforeSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := streamOver(t, ClientConfig{WayBack: WayBackAtOnce}, func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet {
				t.Errorf("%s was sent", r.Method)
			}
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		say(t, s, aNotice, aCall)
		synctest.Wait()
		begin := time.Now()
		s.Close()
		if took := time.Since(begin); took != 0 {
			t.Errorf("Close took %v", took)
		}
	})
}
