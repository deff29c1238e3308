package rpchttp

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/jsonrpc"
)

// TestAnswers: which answers are taken, and what is wrong with the others.
func TestAnswers(t *testing.T) {
	const (
		other = `{"jsonrpc":"2.0","id":2,"result":1}`
		fault = `{"jsonrpc":"2.0","id":null,"error":{"code":-5,"message":"m"}}`
		taken = "" // the body comes out of Read
		both  = "+"
	)
	for name, c := range map[string]struct {
		status int
		kind   string
		body   string
		want   string // taken, both with an error for the call, or what the error says
		header string
	}{
		"JSON":                        {200, "application/json", aResult, taken, ""},
		"JSON, another status":        {201, "application/json", aResult, taken, ""},
		"JSON with a charset":         {200, "Application/JSON; charset=utf-8", aResult, taken, ""},
		"JSON, broken parameters":     {200, "application/json; charset", aResult, taken, ""},
		"JSON, broken type":           {200, "application/json ; =; ;", aResult, taken, ""},
		"JSON-RPC":                    {200, "application/json-rpc", aResult, taken, ""},
		"JSON request":                {200, "application/jsonrequest", aResult, taken, ""},
		"identity":                    {200, "application/json", aResult, taken, "Content-Encoding: identity"},
		"compressed":                  {200, "application/json", aResult, "is compressed (br)", "Content-Encoding: br"},
		"compressed in a strange way": {200, "application/json", aResult, "is compressed (?)", "Content-Encoding: \xff"},
		"an error of the method":      {200, "application/json", `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}`, taken, ""},
		"with an HTTP error":          {500, "application/json", aResult, taken, ""},
		"with a client's error":       {400, "application/json", aResult, taken, ""},
		"of another call":             {200, "application/json", other, both + "has none to this call", ""},
		"of another, HTTP error":      {400, "application/json", other, both + "has none to this call", ""},
		"the server's error":          {200, "application/json", fault, "could not read the message: m", ""},
		"the server's HTTP error":     {400, "application/json", fault, "could not read the message: m", ""},
		"two without an id":           {200, "application/json", "[" + fault + "," + fault + "]", both + "has none to this call", ""},
		"other JSON":                  {200, "application/json", `{"ok":true}`, "is JSON, but no JSON-RPC response", ""},
		"other JSON, HTTP error":      {400, "application/json", `{"result":false}`, "refused the message (the answer begins", ""},
		"other JSON, last status":     {399, "application/json", `{"ok":true}`, "redirects", ""},
		"blank":                       {200, "application/json", " \n", "does not answer it here", ""},
		"blank, HTTP error":           {500, "application/json", " \n", "failed", ""},
		"too long":                    {200, "application/json", strings.Repeat(" ", 1001), "longer than 1000 bytes", ""},
		"accepted":                    {202, "text/plain", "yes", "does not answer it here", ""},
		"no content":                  {204, "application/json", "", "does not answer it here", ""},
		"300":                         {300, "application/json", aResult, "redirects, without a usable address", ""},
		"304":                         {304, "", "", "redirects, without a usable address", ""},
		"relative address":            {302, "", "", "redirects to http://host/other, which", "Location: ../other?key=1"},
		"HTML":                        {200, "text/html; charset=utf-8", "<p>", "the answer is text/html, not", ""},
		"HTML, HTTP error":            {400, "text/html", "<p>no</p>", "refused the message (the answer begins \"<p>no</p>\")", ""},
		"no type":                     {200, "", "x", "has no content type", ""},
		"a strange type":              {200, "a\xff/b", "x", "the answer is a./b, not", ""},
		"events, HTTP error":          {503, "text/event-stream", resultEvent, "failed", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := streamOver(t, ClientConfig{MaxMessage: 1000}, func(*http.Request) (*http.Response, error) {
				res := respond(c.status, c.kind, c.body)
				if k, v, ok := strings.Cut(c.header, ": "); ok {
					res.Header.Set(k, v)
				}
				return res, nil
			})
			say(t, s, aCall)
			problem, withBody := strings.CutPrefix(c.want, both)
			if withBody || c.want == taken {
				if part, err := s.Read(); err != nil || string(part.Data) != c.body || !part.End {
					t.Errorf("%s: %s, %v", name, part.Data, err)
				}
			}
			if c.want == taken {
				synctest.Wait()
				if s.in.faults.Load() != 0 {
					t.Errorf("%s: %v, too", name, lostBy(t, s))
				}
				return
			}
			if e := lostBy(t, s); !strings.Contains(e.Error(), problem) || strings.Contains(e.Error(), "S3cret") || strings.Contains(e.Error(), "key=1") {
				t.Errorf("%s: %v, want %s", name, e, problem)
			}
		})
	}
}

// TestAnswersElsewhere: with a way back a call may be answered there, and nothing is
// wrong with an answer that is not one to it.
func TestAnswersElsewhere(t *testing.T) {
	for _, res := range []func() *http.Response{
		func() *http.Response { return respond(202, "", "") },
		func() *http.Response { return respond(204, "", "") },
		func() *http.Response { return respond(200, jsonType, "") },
		func() *http.Response { return respond(200, jsonType, `{"jsonrpc":"2.0","id":2,"result":1}`) },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := streamOver(t, ClientConfig{WayBack: WayBackWithSession}, func(*http.Request) (*http.Response, error) { return res(), nil })
			say(t, s, aCall)
			synctest.Wait()
			if n := s.in.faults.Load(); n != 0 {
				t.Errorf("%v", lostBy(t, s))
			}
		})
	}
	// A 404 ends a session only when there is one.
	synctest.Test(t, func(t *testing.T) {
		s := streamOver(t, ClientConfig{}, func(r *http.Request) (*http.Response, error) {
			res := respond(404, "", "")
			if n := len(r.Header[DefaultSessionHeader]); n == 0 {
				res.Header.Set(DefaultSessionHeader, "1")
			}
			return res, nil
		})
		say(t, s, aCall)
		if e := lostBy(t, s); errors.Is(e, jsonrpc.ErrClosed) || e.Recoverable() || e.NotSent || s.in.failure() != nil {
			t.Errorf("%v", e)
		}
		say(t, s, aCall)
		e := lostBy(t, s)
		if !errors.Is(e, jsonrpc.ErrClosed) || !e.Recoverable() || !e.NotSent {
			t.Errorf("%v", e)
		}
		_, err := s.Read()
		if ended, ok := errors.AsType[*Error](err); !ok || errors.Is(ended, jsonrpc.ErrClosed) || !ended.Recoverable() {
			t.Errorf("Read: %v", err)
		}
	})
}

// TestGivenUp: a call that is given up is forgotten with its answer, its id can be used
// again, and its place is free; nobody hears of it.
func TestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s := streamOver(t, ClientConfig{MaxInFlight: 1, Cancel: jsonrpc.LSPCancel}, g.answer)
		for range 3 {
			say(t, s, aCall, aCall) // two with the same id: the writer's mistake
			if got := g.seen(); len(got) != 1 || len(s.calls) != 1 {
				t.Errorf("%q on their way, %d noted", got, len(s.calls))
			}
			say(t, s, cancels("1"))
			if got := g.seen(); len(got) != 1 { // the second had nothing to do with it
				t.Errorf("then %q", got)
			}
			say(t, s, `{"jsonrpc":"2.0","id":1,"result":1}`, aNotice, cancels("1"))
			if got := g.seen(); len(got) != 1 || !strings.Contains(got[0], "result") || len(s.calls) != 0 {
				t.Errorf("then %q, %d noted", got, len(s.calls))
			}
			for range 3 {
				g.open <- struct{}{}
				synctest.Wait()
			}
			_ = lostBy(t, s) // the second call was answered 202
			g.seen()
		}
		if n := s.in.faults.Load(); n != 0 {
			t.Errorf("%d messages are said to be lost", n)
		}
	})
}

// TestPartsAndLimits: messages up to the limit are taken, long ones in parts; of what is
// longer nothing counts.
func TestPartsAndLimits(t *testing.T) {
	for _, c := range []struct {
		size, limit int
		parts       int // at least; 0: an error
	}{
		{999, 1000, 1}, {1000, 1000, 1}, {1001, 1000, 0}, {partSize + 1, 0, 2}, {partSize - 1, 0, 1}, {3*partSize + 7, -1, 2}, {1 << 20, 0, 2}, {1<<20 + 1, 0, 0},
	} {
		for _, kind := range []string{jsonType, eventType} {
			synctest.Test(t, func(t *testing.T) {
				msg := strings.Replace(aResult, `1}`, `"`+strings.Repeat("x", c.size-len(aResult)-1)+`"}`, 1)
				body := msg
				if kind == eventType {
					body = "data: " + msg + "\n\n"
				}
				s := streamOver(t, ClientConfig{MaxMessage: c.limit}, func(*http.Request) (*http.Response, error) {
					return respond(200, kind, body), nil
				})
				say(t, s, aCall)
				var got strings.Builder
				parts := 0
				for {
					part, err := s.Read()
					if err != nil {
						limit, ok := errors.AsType[*jsonrpc.ResourceError](err) // as it is by other transports
						if !ok || limit.Unit != "bytes" || c.parts > 0 || errors.Is(err, io.ErrUnexpectedEOF) || jsonrpc.Recoverable(err) {
							t.Errorf("%d bytes of %s, limit %d: %v", c.size, kind, c.limit, err)
						}
						return
					}
					parts++
					got.Write(part.Data)
					if part.End && c.parts > 0 {
						break
					}
				}
				if got.String() != msg || parts < c.parts || c.parts == 1 && parts > 1 {
					t.Errorf("%d bytes of %s, limit %d: %d bytes in %d parts", c.size, kind, c.limit, got.Len(), parts)
				}
			})
		}
	}
}

// TestGivenUpLate: a POST that ends long after its call was given up does not take the
// next call with the same id along, which can be given up, too.
func TestGivenUpLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late, g := make(chan struct{}), newGate()
		n := 0
		s := streamOver(t, ClientConfig{Cancel: jsonrpc.LSPCancel}, func(r *http.Request) (*http.Response, error) {
			if n++; n == 1 {
				<-late // net/http takes its time
				return nil, r.Context().Err()
			}
			return g.answer(r)
		})
		say(t, s, aCall)
		synctest.Wait()
		say(t, s, cancels("1"), aCall)
		if got := g.seen(); len(got) != 1 {
			t.Errorf("%q on their way", got)
		}
		close(late)
		synctest.Wait()
		if len(s.calls) != 1 {
			t.Errorf("%d calls are noted", len(s.calls))
		}
		begin := time.Now()
		say(t, s, cancels("1"))
		synctest.Wait()
		if s.calls["1"] != nil || s.slots[1].job != nil || time.Since(begin) != 0 {
			t.Error("the second call was not given up")
		}
	})
}

// TestTimeoutDefault: a call that nobody answers ends after two minutes, whether one was
// answered before or not.
func TestTimeoutDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, n := newGate(), 0
		s := streamOver(t, ClientConfig{}, func(r *http.Request) (*http.Response, error) {
			if n++; n == 1 {
				return respond(http.StatusOK, jsonType, aResult), nil
			}
			return g.answer(r)
		})
		say(t, s, aCall)
		if _, err := s.Read(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		begin := time.Now()
		say(t, s, aCall)
		if e := lostBy(t, s); !errors.Is(e, ErrTimeout) || time.Since(begin) != 2*time.Minute {
			t.Errorf("%v after %v", e, time.Since(begin))
		}
	})
}
