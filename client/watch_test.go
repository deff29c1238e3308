package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
)

// script is a server whose streams are written down: one handler for each
// connection, the last one for all that follow.
type script struct {
	mu      sync.Mutex
	streams []http.HandlerFunc
	// asked holds the Last-Event-ID of each connection.
	asked []string
	run   string
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/events") {
		_, _ = io.WriteString(w, s.run)
		return
	}
	s.mu.Lock()
	s.asked = append(s.asked, r.Header.Get("Last-Event-ID"))
	h := s.streams[min(len(s.asked), len(s.streams))-1]
	s.mu.Unlock()
	h(w, r)
}

// events writes messages and ends; "!" breaks the connection there.
func events(messages ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		w.WriteHeader(http.StatusOK)
		for _, m := range messages {
			if m == "!" {
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
			_, _ = io.WriteString(w, m)
		}
	}
}

// event is one event as the API sends it.
func event(seq int, kind parley.EventType) string {
	return fmt.Sprintf("id: %d\nevent: %s\ndata: {\"seq\":%d,\"type\":%q,\"run\":\"r\",\"data\":{}}\n\n", seq, kind, seq, kind)
}

const step, last = parley.EventStepCompleted, parley.EventRunCompleted

// watched runs a watch against s and gives what it saw. Waiting takes no time.
func watched(t *testing.T, s *script, o WatchOptions) (seqs []int64, delays []time.Duration, err error) {
	t.Helper()
	server := httptest.NewServer(s)
	defer server.Close()
	c, err := New(Options{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	c.now = func() time.Time { return now }
	c.jitter = func() float64 { return 0 }
	c.sleep = func(ctx context.Context, d time.Duration) error {
		delays = append(delays, d)
		now = now.Add(d)
		return ctx.Err()
	}
	for e, e2 := range c.Watch(t.Context(), "r", o) {
		if e2 != nil {
			err = e2
			continue
		}
		seqs = append(seqs, e.Seq)
	}
	return seqs, delays, err
}

func TestWatchResumesAfterBreaks(t *testing.T) {
	t.Parallel()
	s := &script{streams: []http.HandlerFunc{
		events(event(1, step), event(2, step), "!"),
		// The server repeats one, and the next one is cut in the middle.
		events(event(2, step), event(3, step), "id: 4\ndata: {\"seq\":4,", "!"),
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		events(": heartbeat\n\n", event(4, "step.unheard_of"), event(5, last), event(6, parley.EventStepLate)),
	}}
	seqs, delays, err := watched(t, s, WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{1, 2, 3, 4, 5}, seqs); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"", "2", "3", "3"}, s.asked); diff != "" {
		t.Error("Last-Event-ID", diff)
	}
	if diff := cmp.Diff([]time.Duration{firstBackoff, firstBackoff, 2 * firstBackoff}, delays); diff != "" {
		t.Error("delays", diff)
	}
}

func TestWatchBacksOffAndGivesUp(t *testing.T) {
	t.Parallel()
	s := &script{streams: []http.HandlerFunc{
		events(event(1, step), "!"),
		func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	}}
	told := 0
	seqs, delays, err := watched(t, s, WatchOptions{GiveUpAfter: 20 * time.Second, OnRetry: func(error, time.Duration) { told++ }})
	if !errors.Is(err, ErrUnreachable) || len(seqs) != 1 {
		t.Fatalf("%v, %v", seqs, err)
	}
	want := []time.Duration{}
	for d, sum := firstBackoff, time.Duration(0); sum <= 20*time.Second; d = min(2*d, maxBackoff) {
		want = append(want, d)
		sum += d
	}
	if diff := cmp.Diff(want, delays); diff != "" {
		t.Error(diff)
	}
	// The first one came after a stream that had given something and broke.
	if told != len(delays)-1 {
		t.Errorf("told of %d of %d waits", told, len(delays))
	}
}

func TestWatchObeysTheServersDelay(t *testing.T) {
	t.Parallel()
	s := &script{streams: []http.HandlerFunc{
		events("retry: 2000\n\n", event(1, step), "!"),
		events("retry: 99999999\n\n", event(2, step), "!"),
		events(event(3, last)),
	}}
	_, delays, err := watched(t, s, WatchOptions{})
	if diff := cmp.Diff([]time.Duration{2 * time.Second, time.Minute}, delays); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestWatchErrorsThatEndIt(t *testing.T) {
	t.Parallel()
	refuse := func(status int, code string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"code":%q,"detail":"no"}`, code)
		}
	}
	for _, tt := range []struct {
		name    string
		streams []http.HandlerFunc
		seqs    int
		code    string
	}{
		{"unknown run", []http.HandlerFunc{refuse(404, "not_found")}, 0, "not_found"},
		{"no luck at first", []http.HandlerFunc{refuse(503, "unavailable")}, 0, "unavailable"},
		{"the key was taken away", []http.HandlerFunc{events(event(1, step), "!"), refuse(401, "unauthorized")}, 1, "unauthorized"},
		{"no stream", []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }}, 0, "internal"},
		{"no event", []http.HandlerFunc{events("data: [1\n\n")}, 0, "internal"},
		{"the server says why", []http.HandlerFunc{events(event(1, step), "event: error\ndata: {\"status\":404,\"code\":\"not_found\",\"detail\":\"deleted\"}\n\n")}, 1, "not_found"},
		{"an event is missing for good", []http.HandlerFunc{events(event(1, step), event(3, step))}, 1, "internal"},
		{"an error nobody can read", []http.HandlerFunc{events("event: error\ndata: x\n\n")}, 0, "internal"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			seqs, _, err := watched(t, &script{streams: tt.streams}, WatchOptions{})
			code := string(parley.CodeOf(err))
			if e, ok := errors.AsType[*Error](err); ok {
				code = string(e.Code)
			}
			if len(seqs) != tt.seqs || code != tt.code {
				t.Errorf("%v, %v", seqs, err)
			}
		})
	}
}

func TestWatchEndsWithRunsThatHaveEnded(t *testing.T) {
	t.Parallel()
	// All events are known already: the server has nothing to stream.
	s := &script{streams: []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }}}
	if seqs, _, err := watched(t, s, WatchOptions{After: 5}); err != nil || len(seqs) != 0 || s.asked[0] != "5" {
		t.Errorf("%v, %v, %v", seqs, err, s.asked)
	}
	// A server that closes without a word is asked for the run.
	s = &script{streams: []http.HandlerFunc{events()}, run: `{"id":"r","status":"FAILED","seq":5}`}
	if seqs, _, err := watched(t, s, WatchOptions{After: 5}); err != nil || len(seqs) != 0 {
		t.Errorf("%v, %v", seqs, err)
	}
	// One whose run goes on is asked again.
	s = &script{streams: []http.HandlerFunc{events(), events(), events(event(1, last))}, run: `{"id":"r","status":"RUNNING","seq":0}`}
	if seqs, delays, err := watched(t, s, WatchOptions{}); err != nil || len(seqs) != 1 || len(delays) != 2 {
		t.Errorf("%v, %v, %v", seqs, delays, err)
	}
}

func TestWatchGoesOnAfterALostEvent(t *testing.T) {
	t.Parallel()
	s := &script{streams: []http.HandlerFunc{events(event(1, step), event(3, step)), events(event(2, step), event(3, last))}}
	if seqs, _, err := watched(t, s, WatchOptions{}); err != nil || len(seqs) != 3 {
		t.Errorf("%v, %v", seqs, err)
	}
}

func TestWatchMayBeStopped(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		events(event(1, step))(w, r)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	}))
	defer server.Close()
	c, err := New(Options{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range c.Watch(t.Context(), "r", WatchOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	<-gone
}

func TestWatchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		events(event(1, step))(w, r)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	c, err := New(Options{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	var got []error
	for _, err := range c.Watch(ctx, "r", WatchOptions{}) {
		got = append(got, err)
		cancel()
	}
	if len(got) != 2 || !errors.Is(got[1], context.Canceled) {
		t.Errorf("%v", got)
	}
}

// A server that went away without a word is noticed, and the next one asked.
func TestWatchNoticesSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var servers sync.WaitGroup
		n := 0
		dial := func(context.Context, string, string) (net.Conn, error) {
			n++
			stays := n == 1
			near, far := net.Pipe()
			body := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
			if stays {
				body += event(1, step)
			} else {
				body += event(2, last)
			}
			servers.Go(func() {
				_, _ = far.Read(make([]byte, 4096))
				_, _ = io.WriteString(far, body)
				if !stays {
					far.Close()
				}
				_, _ = io.Copy(io.Discard, far)
			})
			return near, nil
		}
		c, err := New(Options{URL: "http://h", HTTPClient: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		var seqs []int64
		var why []string
		o := WatchOptions{OnRetry: func(err error, _ time.Duration) { why = append(why, err.Error()) }}
		for e, err := range c.Watch(t.Context(), "r", o) {
			if err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, e.Seq)
		}
		if len(why) != 1 || !strings.Contains(why[0], string(errSilent)) {
			t.Errorf("%q", why)
		}
		if took := time.Since(begin); len(seqs) != 2 || took < idleLimit || took > idleLimit+time.Second {
			t.Errorf("%v after %v", seqs, took)
		}
		servers.Wait()
	})
}

// While the caller takes its time over an event, as a pager does, the server is not
// silent: nobody listens.
func TestWatchWaitsForItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var servers sync.WaitGroup
		dial := func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			servers.Go(func() {
				_, _ = far.Read(make([]byte, 4096))
				_, _ = io.WriteString(far, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"+event(1, step))
				_, _ = io.WriteString(far, event(2, last))
				far.Close()
			})
			return near, nil
		}
		c, err := New(Options{URL: "http://h", HTTPClient: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}})
		if err != nil {
			t.Fatal(err)
		}
		var seqs []int64
		o := WatchOptions{OnRetry: func(err error, _ time.Duration) { t.Errorf("tries again: %v", err) }}
		for e, err := range c.Watch(t.Context(), "r", o) {
			if err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, e.Seq)
			time.Sleep(10 * time.Minute)
		}
		if diff := cmp.Diff([]int64{1, 2}, seqs); diff != "" {
			t.Error(diff)
		}
		servers.Wait()
	})
}
