package rpchttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/jsonrpc"
)

// cut is an answer in events that ends with an error of the network.
func cut(text string) *http.Response {
	res := respond(http.StatusOK, eventType, "")
	res.Body = io.NopCloser(io.MultiReader(strings.NewReader(text), brokenReader{}))
	return res
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// A part of an answer in events: a status in their place, events, or events that are
// cut off.
type part struct {
	status int
	text   string
	cut    bool
}

func (p part) response() *http.Response {
	switch {
	case p.status != 0:
		return respond(p.status, "text/plain", "")
	case p.cut:
		return cut(p.text)
	}
	return respond(http.StatusOK, eventType, p.text)
}

const resultEvent = "data: " + aResult + "\n\n"

// TestResumedAnswer: an answer in events that was cut is asked for again, behind what
// is there, as often as MaxReconnects allows and with the pauses that the server
// asks for; what cannot be had is an error of the call.
func TestResumedAnswer(t *testing.T) {
	events := func(text string) part { return part{text: text} }
	broken := func(text string) part { return part{text: text, cut: true} }
	fails := func(code int) part { return part{status: code} }
	for name, c := range map[string]struct {
		answers []part        // to the POST and the GETs; the last one for ever
		from    string        // the Last-Event-IDs of the GETs
		read    []string      // messages; without the result there is an error
		least   time.Duration // that it takes
		problem string
	}{
		"whole":                {[]part{events(resultEvent)}, "", []string{aResult}, 0, ""},
		"whole, and cut then":  {[]part{broken("id: 1\n" + resultEvent + "id: 2\n\n")}, "", []string{aResult}, 0, ""},
		"no ids":               {[]part{events("data: [1]\n\n")}, "", []string{"[1]"}, 0, "unexpected EOF"},
		"no ids, cut":          {[]part{broken("data: [1]\n\n")}, "", []string{"[1]"}, 0, "unexpected EOF"},
		"ended early":          {[]part{events("id: 1\ndata: [1]\n\n"), events("id: 2\n" + resultEvent)}, "1", []string{"[1]", aResult}, 0, ""},
		"cut":                  {[]part{broken("id: 1\n\nid: 2\ndata: [1"), events("id: 2\n" + resultEvent)}, "1", []string{aResult}, 0, ""},
		"cut twice":            {[]part{broken("id: 1\n\n"), broken("id: 2\n\n"), events(resultEvent)}, "1,2", []string{aResult}, 0, ""},
		"busy":                 {[]part{broken("id: 1\n\n"), fails(503), fails(429), events(resultEvent)}, "1,1,1", []string{aResult}, 0, ""},
		"busy for ever":        {[]part{broken("id: 1\n\n"), fails(503)}, "1,1,1", nil, 0, "unexpected EOF"},
		"ends for ever":        {[]part{broken("id: 1\n\n"), events("")}, "1,1,1", nil, 0, "unexpected EOF"},
		"gone":                 {[]part{broken("id: 1\n\n"), fails(410)}, "1", nil, 0, "status 410"},
		"the server asks":      {[]part{broken("retry: 4000\nid: 1\n\n"), events(resultEvent)}, "1", []string{aResult}, 4 * time.Second, ""},
		"another type":         {[]part{events("event: ping\ndata: [9\n\nevent: message\n" + resultEvent)}, "", []string{aResult}, 0, ""},
		"too long":             {[]part{events("id: 1\n\ndata: " + strings.Repeat("x", 2000) + "\n\n")}, "", nil, 0, "longer than 1000 bytes"},
		"an error of the POST": {[]part{events("id: 1\ndata: {\"jsonrpc\":\"2.0\",\"error\":{\"code\":-5,\"message\":\"m\"},\"id\":null}\n\n")}, "", nil, 0, "could not read the message"},
		"the id of another":    {[]part{events("data: {\"jsonrpc\":\"2.0\",\"id\":9,\"error\":{\"code\":-5,\"message\":\"m\"}}\n\n")}, "", []string{`{"jsonrpc":"2.0","id":9,"error":{"code":-5,"message":"m"}}`}, 0, "none"},
	} {
		synctest.Test(t, func(t *testing.T) {
			n, from := 0, []string{}
			s := streamOver(t, ClientConfig{MaxReconnects: 3, MaxMessage: 1000}, func(r *http.Request) (*http.Response, error) {
				if n > 0 {
					from = append(from, r.Header.Get("Last-Event-Id"))
				}
				if (r.Method == http.MethodPost) != (n == 0) {
					t.Errorf("%s: request %d is a %s", name, n, r.Method)
				}
				n++
				return c.answers[min(n, len(c.answers))-1].response(), nil
			})
			begin := time.Now()
			say(t, s, aCall)
			for _, want := range c.read {
				if part, err := s.Read(); err != nil || string(part.Data) != want {
					t.Errorf("%s: %s, %v, want %s", name, part.Data, err, want)
				}
			}
			if took := time.Since(begin); took < c.least || took > c.least+10*time.Second {
				t.Errorf("%s: took %v", name, took)
			}
			if c.problem != "" && c.problem != "none" {
				if e := lostBy(t, s); !strings.Contains(e.Error(), c.problem) {
					t.Errorf("%s: %v, want %s", name, e, c.problem)
				}
			}
			time.Sleep(time.Minute) // nothing more is asked for
			s.Close()
			if got := strings.Join(from, ","); got != c.from {
				t.Errorf("%s: asked for the events behind %q, want %q", name, got, c.from)
			}
		})
	}
}

// TestResumeNotSent: a server that could not be asked for the rest of its answer has
// got the message all the same (RPC-22).
func TestResumeNotSent(t *testing.T) {
	locked := errors.New("locked")
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		cfg := ClientConfig{Headers: func(context.Context, http.Header) error {
			if requests > 0 {
				return locked
			}
			return nil
		}}
		s := streamOver(t, cfg, func(*http.Request) (*http.Response, error) {
			requests++
			return cut("id: 1\n\n"), nil
		})
		conn := jsonrpc.NewConn(s, jsonrpc.Config{})
		defer conn.Close()
		err := conn.Call(t.Context(), "m", nil, nil)
		if e, ok := errors.AsType[*jsonrpc.CallError](err); !ok || !e.Sent || !errors.Is(err, locked) {
			t.Errorf("sent: %t, %v", ok && e.Sent, err)
		}
	})
}

// TestResumedForLong: attempts count in a row: a server that always says something may
// cut as often as it likes, until the time is over.
func TestResumedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gets := 0
		s := streamOver(t, ClientConfig{MaxReconnects: 2}, func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet {
				gets++
			}
			if gets == 20 {
				return respond(http.StatusOK, eventType, resultEvent), nil
			}
			return cut(fmt.Sprintf("id: %d\ndata: [%d]\n\n", gets, gets)), nil
		})
		say(t, s, aCall)
		for i := range 21 {
			want := fmt.Sprintf("[%d]", i)
			if i == 20 {
				want = aResult
			}
			if part, err := s.Read(); err != nil || string(part.Data) != want {
				t.Fatalf("%s, %v, want %s", part.Data, err, want)
			}
		}
	})
}

// TestEventsOfBatch: the answers of a batch may be events of their own; the last one
// ends the wait. What has no answer waits for none.
func TestEventsOfBatch(t *testing.T) {
	for _, c := range []struct {
		message string
		events  []string
		took    time.Duration // until the place is free
	}{
		{"[" + aCall + "," + aNotice + `,{"jsonrpc":"2.0","id":2,"method":"m"}]`, []string{`{"jsonrpc":"2.0","id":2,"result":1}`, aResult}, afterAnswer},
		{"[" + aCall + `,{"jsonrpc":"2.0","id":2,"method":"m"}]`, []string{`[{"jsonrpc":"2.0","id":2,"result":1},` + aResult + "]"}, afterAnswer},
		{aCall, []string{aNotice, aResult, aNotice}, afterAnswer},
		{aCall, []string{aNotice, `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}`}, afterAnswer},
		{"[" + aNotice + "]", []string{aNotice}, afterAnswer},
	} {
		synctest.Test(t, func(t *testing.T) {
			var ended time.Time
			s := streamOver(t, ClientConfig{MaxInFlight: 1}, func(r *http.Request) (*http.Response, error) {
				return open(r, eventType, "data: "+strings.Join(c.events, "\n\ndata: ")+"\n\n"), nil
			})
			begin := time.Now()
			say(t, s, c.message, aCall)
			for _, want := range append(c.events, c.events[0]) {
				if part, err := s.Read(); err != nil || string(part.Data) != want {
					t.Errorf("%s: %s, %v, want %s", c.message, part.Data, err, want)
				}
				ended = time.Now()
			}
			if took := ended.Sub(begin); took != c.took {
				t.Errorf("%s: the next call had its turn after %v", c.message, took)
			}
		})
	}
}

// TestEventsTimeout: events give the server more time, comments do not.
func TestEventsTimeout(t *testing.T) {
	for beat, want := range map[string]time.Duration{"data: [1]\n\n": time.Hour, keepAlive: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s := streamOver(t, ClientConfig{Timeout: time.Minute}, func(r *http.Request) (*http.Response, error) {
				read, write := io.Pipe()
				go func() {
					for range 120 {
						select {
						case <-time.After(30 * time.Second):
						case <-r.Context().Done():
							write.CloseWithError(r.Context().Err())
							return
						}
						_, _ = io.WriteString(write, beat)
					}
					_, _ = io.WriteString(write, resultEvent)
					write.Close()
				}()
				res := respond(http.StatusOK, eventType, "")
				res.Body = read
				return res, nil
			})
			begin := time.Now()
			say(t, s, aCall)
			for {
				part, err := s.Read()
				if err == nil && string(part.Data) == "[1]" {
					continue
				}
				if took := time.Since(begin); took != want || (err == nil) != (want == time.Hour) {
					t.Errorf("%q: %s, %v after %v", beat, part.Data, err, took)
				}
				if err != nil && (!errors.Is(err, ErrTimeout) || jsonrpc.AdviceFor(err) != jsonrpc.AdviceRetry) {
					t.Errorf("%v, advice %v", err, jsonrpc.AdviceFor(err))
				}
				return
			}
		})
	}
}

// A slowly reader gives text in two halves, the second one after a while.
type slowly struct {
	text string
	half int
	wait time.Duration
}

func (s *slowly) Read(p []byte) (int, error) {
	if s.text == "" {
		return 0, io.EOF
	}
	end := len(s.text)
	if s.half > 0 {
		end = s.half
	} else if s.wait > 0 {
		time.Sleep(s.wait)
		s.wait = 0
	}
	n := copy(p, s.text[:end])
	s.text, s.half = s.text[n:], max(s.half-n, 0)
	return n, nil
}

// TestResumedLongAnswer: of an answer in events that is so long that it is handed over in
// parts, and was cut in one of them, nothing is left when it comes again, however long
// that takes. Nobody is told that it was malformed.
func TestResumedLongAnswer(t *testing.T) {
	long := `"` + strings.Repeat("x", 2*partSize) + `"`
	for _, pause := range []string{"", "retry: 5000\n"} {
		synctest.Test(t, func(t *testing.T) {
			event := ""
			s := streamOver(t, ClientConfig{}, func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPost {
					body, _ := io.ReadAll(r.Body)
					event = `data: {"jsonrpc":"2.0","id":` + string(idOf(body)) + `,"result":` + long + "}\n\n"
					return cut(pause + "id: 1\n\n" + event[:partSize+100]), nil
				}
				res := respond(http.StatusOK, eventType, "")
				res.Body = io.NopCloser(&slowly{event, partSize + 200, 5 * time.Second})
				return res, nil
			})
			var noticed []jsonrpc.Notice
			conn := jsonrpc.NewConn(s, jsonrpc.Config{Hooks: jsonrpc.Hooks{Notice: func(n jsonrpc.Notice) { noticed = append(noticed, n) }}})
			got, err := jsonrpc.Call[json.RawMessage](t.Context(), conn, "m", nil)
			if err != nil || string(got) != long {
				t.Errorf("%q: %v, %d bytes", pause, err, len(got))
			}
			// What has begun to be written to an io.Writer cannot begin anew.
			var into strings.Builder
			err = conn.Call(t.Context(), "m", nil, &into)
			if _, ok := errors.AsType[*jsonrpc.ResultError](err); !ok || into.Len() == 0 || into.Len() > 2*partSize {
				t.Errorf("%q: %v, %d bytes", pause, err, into.Len())
			}
			conn.Close()
			if len(noticed) > 0 {
				t.Errorf("%q: %+v", pause, noticed)
			}
		})
	}
}
