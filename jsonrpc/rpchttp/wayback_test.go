package rpchttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/jsonrpc"
)

// TestPause: pauses grow up to a bound, are never in step, and are as long as the
// server asks, up to the same bound.
func TestPause(t *testing.T) {
	for _, c := range []struct {
		attempt     int
		asked       time.Duration
		least, most time.Duration
	}{
		{0, 0, minBackoff / 2, minBackoff},
		{1, 0, minBackoff / 2, minBackoff},
		{2, 0, minBackoff, 2 * minBackoff},
		{5, 0, 8 * minBackoff, 16 * minBackoff},
		{8, 0, maxBackoff / 2, maxBackoff},
		{1000, 0, maxBackoff / 2, maxBackoff},
		{1, 3 * time.Second, 3 * time.Second, 3 * time.Second},
		{1, time.Hour, maxBackoff, maxBackoff},
	} {
		synctest.Test(t, func(t *testing.T) {
			took := make(map[time.Duration]bool)
			for range 10 {
				begin := time.Now()
				if !pause(t.Context(), c.attempt, c.asked) {
					t.Error("the context ended")
				}
				d := time.Since(begin)
				if took[d] = true; d < c.least || d > c.most {
					t.Errorf("attempt %d, asked for %v: %v", c.attempt, c.asked, d)
				}
			}
			if (len(took) > 1) != (c.asked == 0) {
				t.Errorf("attempt %d, asked for %v: %v", c.attempt, c.asked, took)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			begin := time.Now()
			if pause(ctx, c.attempt, c.asked) || time.Since(begin) != time.Millisecond {
				t.Error("a pause goes on although its context ended")
			}
		})
	}
}

// A backs answers the GETs of a way back one after the other, the last for all that
// come later, and POSTs with a result and a session.
type backs struct {
	answers []func(*http.Request) *http.Response

	mu   sync.Mutex
	at   []time.Duration // when each GET came
	from []string        // its Last-Event-ID
	born time.Time
}

func (b *backs) answer(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		res := respond(http.StatusOK, jsonType, aResult)
		res.Header.Set(DefaultSessionHeader, "1")
		return res, nil
	}
	b.mu.Lock()
	n := len(b.at)
	b.at, b.from = append(b.at, time.Since(b.born)), append(b.from, r.Header.Get("Last-Event-Id"))
	b.mu.Unlock()
	return b.answers[min(n, len(b.answers)-1)](r), nil
}

// seen returns when GETs came, and their Last-Event-IDs.
func (b *backs) seen() (at []time.Duration, from string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.at), strings.Join(b.from, ",")
}

// A status is an answer of its own.
type status int

func (s status) answer(*http.Request) *http.Response {
	return respond(int(s), "text/plain", "told "+fmt.Sprint(int(s)))
}

// A life is a way back that says text, and ends after a while; zero: it says nothing,
// and never ends.
type life struct {
	lasts time.Duration
	text  string
}

func (l life) answer(r *http.Request) *http.Response {
	if l.lasts == 0 {
		return inSession(0, r)
	}
	read, write := io.Pipe()
	go func() {
		_, _ = io.WriteString(write, l.text)
		time.Sleep(l.lasts)
		write.Close()
	}()
	res := respond(http.StatusOK, eventType, "")
	res.Body = read
	res.Header.Set(DefaultSessionHeader, "1")
	return res
}

type answers = []func(*http.Request) *http.Response

// TestWayBackEnds: what becomes of a Stream whose way back is refused.
func TestWayBackEnds(t *testing.T) {
	const opened = 2 * time.Second
	for name, c := range map[string]struct {
		way    WayBack
		first  answers // the last one again and again
		gets   int
		eof    bool // Read returns io.EOF
		advice jsonrpc.Advice
		lasts  bool // Read returns nothing
	}{
		"no way back":                 {WayBackAtOnce, answers{status(405).answer}, 1, false, jsonrpc.AdviceGiveUp, false},
		"busy at first":               {WayBackAtOnce, answers{status(503).answer}, 1, false, jsonrpc.AdviceReconnect, false},
		"another kind":                {WayBackAtOnce, answers{func(*http.Request) *http.Response { return respond(200, jsonType, "{}") }}, 1, false, jsonrpc.AdviceGiveUp, false},
		"another status":              {WayBackAtOnce, answers{func(*http.Request) *http.Response { return respond(201, eventType, "") }}, 1, false, jsonrpc.AdviceGiveUp, false},
		"unknown at first":            {WayBackAtOnce, answers{status(404).answer}, 1, false, jsonrpc.AdviceGiveUp, false},
		"gone at first":               {WayBackAtOnce, answers{status(410).answer}, 1, false, jsonrpc.AdviceGiveUp, false},
		"session ended":               {WayBackAtOnce, answers{life{opened, ""}.answer, status(404).answer}, 2, true, jsonrpc.AdviceNone, false},
		"events gone":                 {WayBackAtOnce, answers{life{opened, ""}.answer, status(410).answer}, 2, false, jsonrpc.AdviceReconnect, false},
		"no more way back":            {WayBackAtOnce, answers{life{opened, ""}.answer, status(405).answer}, 2, false, jsonrpc.AdviceGiveUp, false},
		"busy for ever":               {WayBackAtOnce, answers{life{opened, ""}.answer, status(503).answer}, 4, false, jsonrpc.AdviceReconnect, false},
		"busy for a while":            {WayBackAtOnce, answers{life{opened, ""}.answer, status(503).answer, status(502).answer, life{0, ""}.answer}, 4, false, jsonrpc.AdviceNone, true},
		"session, none":               {WayBackWithSession, answers{status(405).answer}, 1, false, jsonrpc.AdviceNone, true},
		"session, unknown":            {WayBackWithSession, answers{status(404).answer}, 1, false, jsonrpc.AdviceNone, true},
		"session, not implemented":    {WayBackWithSession, answers{status(501).answer}, 1, false, jsonrpc.AdviceNone, true},
		"session, unauthorized":       {WayBackWithSession, answers{status(401).answer}, 1, false, jsonrpc.AdviceGiveUp, false},
		"session, forbidden":          {WayBackWithSession, answers{status(403).answer}, 1, false, jsonrpc.AdviceGiveUp, false},
		"session, slow down":          {WayBackWithSession, answers{status(429).answer, status(408).answer, life{0, ""}.answer}, 3, false, jsonrpc.AdviceNone, true},
		"session, too early for ever": {WayBackWithSession, answers{status(425).answer}, 3, false, jsonrpc.AdviceReconnect, false},
		"session, broken for ever":    {WayBackWithSession, answers{status(500).answer}, 3, false, jsonrpc.AdviceReconnect, false},
		"session, redirected":         {WayBackWithSession, answers{status(302).answer}, 1, false, jsonrpc.AdviceGiveUp, false},
		"session, ended":              {WayBackWithSession, answers{life{opened, ""}.answer, status(404).answer}, 2, true, jsonrpc.AdviceNone, false},
		"session, no more way back":   {WayBackWithSession, answers{life{opened, ""}.answer, status(405).answer}, 2, false, jsonrpc.AdviceGiveUp, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &backs{answers: c.first, born: time.Now()}
			s := streamOver(t, ClientConfig{WayBack: c.way, MaxReconnects: 3}, b.answer)
			if c.way == WayBackWithSession {
				say(t, s, aCall)
			}
			if err := s.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			part, err := s.Read()
			if string(part.Data) == aResult { // unless the Stream ended before
				part, err = s.Read()
			}
			switch e, ok := errors.AsType[*Error](err); {
			case c.lasts:
				if ok || len(part.Data) > 0 || errors.Is(err, io.EOF) {
					t.Errorf("%s: %s, %v", name, part.Data, err)
				}
			case c.eof:
				if !errors.Is(err, io.EOF) {
					t.Errorf("%s: %v", name, err)
				}
			case !ok || jsonrpc.AdviceFor(err) != c.advice || e.Method != http.MethodGet:
				t.Errorf("%s: %v, advice %v", name, err, jsonrpc.AdviceFor(err))
			}
			if at, _ := b.seen(); len(at) != c.gets {
				t.Errorf("%s: %d GETs, want %d", name, len(at), c.gets)
			}
		})
	}
}

// TestWayBackPauses: a way back that ends at once is opened again after longer and
// longer pauses, one that lived for a while after a short one; the server's wish
// counts for both.
func TestWayBackPauses(t *testing.T) {
	for _, c := range []struct {
		lives       time.Duration
		text        string
		least, most time.Duration // between the tenth GET and the eleventh
	}{
		{time.Millisecond, "", maxBackoff / 2, maxBackoff + time.Millisecond},
		{2 * stable, "", 2*stable + minBackoff/2, 2*stable + minBackoff},
		{2 * stable, "retry: 7000\n", 2*stable + 7*time.Second, 2*stable + 7*time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &backs{answers: answers{life{c.lives, c.text}.answer}, born: time.Now()}
			streamOver(t, ClientConfig{WayBack: WayBackAtOnce}, b.answer)
			time.Sleep(3 * time.Minute)
			at, _ := b.seen()
			if len(at) < 11 {
				t.Fatalf("GETs at %v", at)
			}
			if d := at[10] - at[9]; d < c.least || d > c.most {
				t.Errorf("it lives %v and says %q: again after %v", c.lives, c.text, d)
			}
		})
	}
}

// TestWayBackIdle: a way back that is silent is opened anew; comments are no silence.
func TestWayBackIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backs{born: time.Now(), answers: answers{func(r *http.Request) *http.Response {
			read, write := io.Pipe()
			go func() {
				_, _ = io.WriteString(write, "id: 8\n\n")
				for range 5 {
					time.Sleep(50 * time.Second)
					_, _ = io.WriteString(write, keepAlive)
				}
				<-r.Context().Done()
				write.CloseWithError(r.Context().Err())
			}()
			res := respond(http.StatusOK, eventType, "")
			res.Body = read
			return res
		}, life{0, ""}.answer}}
		streamOver(t, ClientConfig{WayBack: WayBackAtOnce, WayBackIdle: time.Minute}, b.answer)
		time.Sleep(250*time.Second + time.Minute - time.Second)
		synctest.Wait()
		if at, _ := b.seen(); len(at) != 1 {
			t.Fatalf("opened again at %v", at)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if at, from := b.seen(); len(at) != 2 || from != ",8" {
			t.Errorf("opened at %v, behind %q", at, from)
		}
	})
	// Without it silence means nothing, whatever the timeout of requests.
	synctest.Test(t, func(t *testing.T) {
		b := &backs{born: time.Now(), answers: answers{life{0, ""}.answer}}
		streamOver(t, ClientConfig{WayBack: WayBackAtOnce, Timeout: time.Second}, b.answer)
		time.Sleep(time.Hour)
		if at, _ := b.seen(); len(at) != 1 {
			t.Errorf("opened at %v", at)
		}
	})
}

// TestWayBackEvents: what the server says comes out of Read, in whatever pieces;
// events of other types do not, nor those that were cut.
func TestWayBackEvents(t *testing.T) {
	large := `"` + strings.Repeat("x", 2<<20) + `"` // more than MaxMessage: that is for the Conn
	synctest.Test(t, func(t *testing.T) {
		b := &backs{born: time.Now(), answers: answers{
			life{time.Second, "id: 1\ndata: [1]\n\nevent: ping\ndata: [9]\n\nid: 2\nevent: message\ndata: [2]\n\nid: 3\ndata: [7"}.answer,
			life{time.Second, "id: 3\ndata: [3]\n\ndata:  \n\ndata: " + large + "\n\nid: 4\ndata: [4]\n\n"}.answer,
			life{0, ""}.answer,
		}}
		s := streamOver(t, ClientConfig{WayBack: WayBackAtOnce}, b.answer)
		for _, want := range []string{"[1]", "[2]", "[3]", large, "[4]"} {
			var got []byte
			for end := false; !end; {
				part, err := s.Read()
				if err != nil {
					t.Fatal(err)
				}
				got, end = append(got, part.Data...), part.End
			}
			if string(got) != want {
				t.Errorf("%.20s, %d bytes, want %.20s", got, len(got), want)
			}
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if _, from := b.seen(); from != ",2,4" {
			t.Errorf("asked for the events behind %s", from)
		}
	})
}

// TestWayBackSecrets: what a server repeats of the credentials is in no error.
func TestWayBackSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := streamOver(t, ClientConfig{WayBack: WayBackAtOnce}, func(r *http.Request) (*http.Response, error) {
			res := respond(http.StatusUnauthorized, "text/plain", "not you, "+r.Header.Get("Authorization"))
			return res, nil
		})
		_, err := s.Read()
		if e, ok := errors.AsType[*Error](err); !ok || e.Snippet != "not you, […]" || e.Status != http.StatusUnauthorized {
			t.Errorf("%v", err)
		}
	})
}

// TestWayBackKind: an answer of another kind is named.
func TestWayBackKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := streamOver(t, ClientConfig{WayBack: WayBackAtOnce}, func(*http.Request) (*http.Response, error) {
			return respond(http.StatusOK, "application/json; charset=utf-8", "{}"), nil
		})
		if _, err := s.Read(); err == nil || !strings.Contains(err.Error(), "not opened: the answer is application/json, not text/event-stream") {
			t.Error(err)
		}
	})
}

// TestGreetingBeforeTheEnd: the answer that brings the session is read, however quickly
// the way back is refused, and then the refusal.
func TestGreetingBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backs{answers: answers{status(401).answer}, born: time.Now()}
		s := streamOver(t, ClientConfig{WayBack: WayBackWithSession}, func(r *http.Request) (*http.Response, error) {
			res, err := b.answer(r)
			if r.Method == http.MethodPost {
				text, write := res.Body, new(io.PipeWriter)
				res.Body, write = io.Pipe()
				go func() {
					time.Sleep(time.Second)
					_, err := io.Copy(write, text)
					write.CloseWithError(err)
				}()
			}
			return res, err
		})
		say(t, s, aCall)
		if part, err := s.Read(); err != nil || string(part.Data) != aResult {
			t.Errorf("%q, %v", part.Data, err)
		}
		if _, err := s.Read(); err == nil || !strings.Contains(err.Error(), "status 401") {
			t.Error(err)
		}
	})
}

// TestHeadersThatMayCome: whether a message that had no header may be sent again is
// what the error of ClientConfig.Headers says.
func TestHeadersThatMayCome(t *testing.T) {
	for _, c := range []struct {
		err  error
		want jsonrpc.Advice
	}{
		{errors.New("no key"), jsonrpc.AdviceGiveUp},
		{fmt.Errorf("token: %w", context.DeadlineExceeded), jsonrpc.AdviceRetry},
		{fmt.Errorf("token: %w", syscall.ECONNREFUSED), jsonrpc.AdviceRetry},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := streamOver(t, ClientConfig{Headers: func(context.Context, http.Header) error { return c.err }}, nil)
			say(t, s, aCall)
			_, err := s.Read()
			if got := jsonrpc.AdviceFor(err); got != c.want || !errors.Is(err, c.err) {
				t.Errorf("%v: %v, want %v", err, got, c.want)
			}
		})
	}
}

// TestWayBackHeaders: what ClientConfig.Headers cannot do for the GET ends the Stream,
// and for the DELETE is nobody's affair.
func TestWayBackHeaders(t *testing.T) {
	locked := errors.New("locked")
	for at, gets := range map[string]int{http.MethodGet: 0, http.MethodDelete: 1} {
		synctest.Test(t, func(t *testing.T) {
			method := http.MethodGet
			b := &backs{answers: answers{life{0, ""}.answer}, born: time.Now()}
			s := streamOver(t, ClientConfig{WayBack: WayBackAtOnce, Headers: func(context.Context, http.Header) error {
				if method == at {
					return locked
				}
				return nil
			}}, b.answer)
			synctest.Wait()
			if err := s.in.failure(); errors.Is(err, locked) != (at == method) {
				t.Errorf("%s: %v", at, err)
			}
			method = http.MethodDelete
			s.Close()
			if seen, _ := b.seen(); len(seen) != gets {
				t.Errorf("%s: %d GETs", at, len(seen))
			}
		})
	}
}

// TestReconnectsUnlimited: a negative MaxReconnects gives up never, neither the way back
// nor the rest of an answer.
func TestReconnectsUnlimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := answers{life{2 * time.Second, ""}.answer}
		for range 30 {
			busy = append(busy, status(503).answer)
		}
		b := &backs{answers: append(busy, life{time.Second, "data: [1]\n\n"}.answer), born: time.Now()}
		s := streamOver(t, ClientConfig{WayBack: WayBackAtOnce, MaxReconnects: -1}, b.answer)
		if part, err := s.Read(); err != nil || string(part.Data) != "[1]" {
			t.Errorf("%s, %v", part.Data, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		n := 0
		s := streamOver(t, ClientConfig{MaxReconnects: -1, Timeout: time.Hour}, func(*http.Request) (*http.Response, error) {
			switch n++; n {
			case 1:
				return cut("id: 1\n\n"), nil
			case 30:
				return respond(http.StatusOK, eventType, resultEvent), nil
			}
			return respond(http.StatusServiceUnavailable, "", ""), nil
		})
		say(t, s, aCall)
		if part, err := s.Read(); err != nil || string(part.Data) != aResult {
			t.Errorf("%s, %v", part.Data, err)
		}
	})
}

// TestWayBackRetryAfter: a server that is busy says when to come again, as far as that is
// no longer than the longest pause.
func TestWayBackRetryAfter(t *testing.T) {
	for asked, want := range map[string]time.Duration{"7": 7 * time.Second, "3600": maxBackoff} {
		synctest.Test(t, func(t *testing.T) {
			const lived = 2 * time.Second
			busy := func(*http.Request) *http.Response {
				res := respond(http.StatusServiceUnavailable, "text/plain", "busy")
				res.Header.Set("Retry-After", asked)
				return res
			}
			b := &backs{answers: answers{life{lived, ""}.answer, busy, life{0, ""}.answer}, born: time.Now()}
			streamOver(t, ClientConfig{WayBack: WayBackAtOnce}, b.answer)
			time.Sleep(time.Minute)
			if at, _ := b.seen(); len(at) != 3 || at[2]-at[1] != want {
				t.Errorf("asked for %s s: GETs at %v", asked, at)
			}
		})
	}
}

// TestAnswerRetryAfter: the same of the rest of an answer that was cut.
func TestAnswerRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var at []time.Time
		s := streamOver(t, ClientConfig{}, func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost {
				return respond(http.StatusOK, eventType, "id: 1\ndata:\n\n"), nil
			}
			mu.Lock()
			defer mu.Unlock()
			if at = append(at, time.Now()); len(at) == 1 {
				res := respond(http.StatusServiceUnavailable, "text/plain", "busy")
				res.Header.Set("Retry-After", "7")
				return res, nil
			}
			return respond(http.StatusOK, eventType, "id: 2\ndata: "+aResult+"\n\n"), nil
		})
		say(t, s, aCall)
		if part, err := s.Read(); err != nil || string(part.Data) != aResult {
			t.Fatalf("%s, %v", part.Data, err)
		}
		if len(at) != 2 || at[1].Sub(at[0]) != 7*time.Second {
			t.Errorf("GETs at %v", at)
		}
	})
}
