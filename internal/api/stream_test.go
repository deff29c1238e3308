package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
)

// stream is a client that reads an event stream; its writer can be watched
// while the handler runs.
type stream struct {
	mu     sync.Mutex
	header http.Header
	status int
	body   bytes.Buffer
	// flushed is what a client can have seen.
	flushed string
	cancel  context.CancelFunc
	done    chan struct{}
}

func (s *stream) Header() http.Header { return s.header }

func (s *stream) WriteHeader(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}

func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.body.Write(p)
}

func (s *stream) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushed = s.body.String()
}

func (s *stream) seen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flushed
}

// ids gives the ids of the events that were seen.
func (s *stream) ids() string {
	var ids []string
	for line := range strings.Lines(s.seen()) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "id: "); ok {
			ids = append(ids, id)
		}
	}
	return strings.Join(ids, " ")
}

func openStream(h http.Handler, target string, header ...string) *stream {
	ctx, cancel := context.WithCancel(context.Background())
	r := httptest.NewRequestWithContext(ctx, "GET", target, nil)
	r.Host = "localhost"
	r.Header.Set("Authorization", "Bearer test-key")
	r.Header.Set("Accept", "text/event-stream")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	s := &stream{header: http.Header{}, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		h.ServeHTTP(s, r)
	}()
	return s
}

func begun(t *testing.T) (*server, *world) {
	t.Helper()
	return begunWith(t, 2)
}

func begunWith(t *testing.T, streams int) (*server, *world) {
	t.Helper()
	s, w := setup(func(c *Config) { c.Limits.Streams = streams })
	call(s.handler(), "POST", "/api/v1/workflows", onePlan)
	if rec := call(s.handler(), "POST", "/api/v1/workflows/a/execute", `{"input_data":{}}`); rec.Code != http.StatusAccepted {
		t.Fatal(rec.Code, rec.Body)
	}
	return s, w
}

// TestStreamIsNotSentToHEAD: who asks for the header of a stream has it at once, and
// holds none of the places for streams, though the run goes on.
func TestStreamIsNotSentToHEAD(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := begun(t)
		call(s.handler(), "POST", "/api/v1/agents", `{"name":"A","url":"http://a"}`)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for range 3 { // there are two places
			for _, path := range []string{"/api/v1/runs/run-1/events", "/api/v1/agents/A/events"} {
				r := httptest.NewRequestWithContext(ctx, http.MethodHead, path, nil)
				r.Host = "localhost"
				r.Header.Set("Authorization", "Bearer test-key")
				r.Header.Set("Accept", "text/event-stream")
				rec := httptest.NewRecorder()
				s.handler().ServeHTTP(rec, r)
				if ctx.Err() != nil || rec.Code != http.StatusOK || rec.Header().Get("Content-Type") != "text/event-stream" {
					t.Fatalf("%s: %d %v after the end of %v: %s", path, rec.Code, rec.Header(), ctx.Err(), rec.Body)
				}
			}
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A stream ends soon after its key has: nobody reads on for ever. That keys cannot
// be looked up ends none.
func TestStreamEndsWithItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := begunWith(t, 4)
		h, keys := s.handler(), s.cfg.Keys.(*fakeKeys)
		open := func(name string) *stream {
			call(h, "POST", keysPath, `{"name":"`+name+`","role":"viewer","expires_in":"1h"}`)
			return openStream(h, "/api/v1/runs/run-1/events", bearer(name)...)
		}
		beat := func() {
			synctest.Wait()
			w.clock.step(15 * time.Second)
			time.Sleep(15 * time.Second)
			synctest.Wait()
		}
		revoked, short, good, own := open("revoked"), open("short"), open("good"), openStream(h, "/api/v1/runs/run-1/events")
		beat()
		for _, a := range []*stream{revoked, short, good, own} {
			if n := strings.Count(a.seen(), ": heartbeat\n\n"); n != 1 {
				t.Fatalf("%d heartbeats, want 1: %s", n, a.seen())
			}
		}
		_, err := keys.RevokeKey(t.Context(), "revoked", "") // elsewhere
		must(t, err)
		keys.at("short").ExpiresAt = new(w.clock.Now())
		beat()
		for _, c := range []struct {
			*stream
			says string
		}{{revoked, "the key is revoked"}, {short, "the key is expired"}} {
			select {
			case <-c.done:
			default:
				t.Errorf("a stream goes on, although %s", c.says)
				c.cancel()
			}
			if got := c.seen(); !strings.Contains(got, "event: error\ndata: ") || !strings.Contains(got, c.says) {
				t.Errorf("the stream ends with %q, want that %s", got, c.says)
			}
		}
		keys.mu.Lock()
		keys.broken = errors.New("away")
		keys.mu.Unlock()
		beat()
		for _, a := range []*stream{good, own} {
			if n := strings.Count(a.seen(), ": heartbeat\n\n"); n != 3 {
				t.Errorf("%d heartbeats, want 3: %s", n, a.seen())
			}
			a.cancel()
			<-a.done
		}
	})
}

// A stream gives what is there, then what comes, a heartbeat every 15 s, and
// ends behind the terminal event. A client that was cut off goes on with
// Last-Event-ID and misses and repeats nothing.
func TestStreamResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := begun(t)
		h := s.handler()
		a := openStream(h, "/api/v1/runs/run-1/events")
		synctest.Wait()
		if a.ids() != "1" || a.status != 200 || a.header.Get("X-Accel-Buffering") != "no" ||
			a.header.Get("Content-Type") != "text/event-stream" || a.header.Get("Cache-Control") != "no-store" {
			t.Fatalf("%d %v %q", a.status, a.header, a.seen())
		}
		time.Sleep(14 * time.Second)
		synctest.Wait()
		if strings.Contains(a.seen(), "heartbeat") {
			t.Error("a heartbeat before 15 s")
		}
		time.Sleep(17 * time.Second)
		synctest.Wait()
		if n := strings.Count(a.seen(), ": heartbeat\n\n"); n != 2 {
			t.Errorf("%d heartbeats in 31 s, want 2", n)
		}
		must(t, w.do("begin run-1"))
		synctest.Wait()
		if a.ids() != "1 2" {
			t.Fatalf("saw %s", a.ids())
		}
		a.cancel()
		<-a.done

		must(t, w.do("complete run-1"))
		b := openStream(h, "/api/v1/runs/run-1/events?after=0", "Last-Event-ID", "2")
		<-b.done
		if b.ids() != "3 4" {
			t.Errorf("after resuming: %s", b.ids())
		}
		want := "id: 4\nevent: run.completed\ndata: {\"seq\":4,\"at\":\"2026-11-21T10:04:05.974607Z\",\"type\":\"run.completed\",\"run\":\"run-1\",\"data\":{}}\n\n"
		if !strings.HasSuffix(b.seen(), want) {
			t.Errorf("ends with %q", b.seen())
		}
	})
}

// What a client accepts decides between a page and a stream; a weight of 0 refuses one.
func TestStreamIsAskedFor(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{
		"": false, "*/*": false, "application/json": false, "text/event-stream": true, "Text/Event-Stream;q=0.5, */*;q=0.1": true,
		"application/json, text/event-stream;q=0": false, "text/event-stream; q=0.0": false, "text/event-stream;q=much": true,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept", accept)
		if got := wantsStream(r); got != want {
			t.Errorf("%q: %t, want %t", accept, got, want)
		}
	}
}

// A client that goes away takes its reader with it, and frees its slot.
func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := begun(t)
		h := s.handler()
		a, b := openStream(h, "/api/v1/runs/run-1/events"), openStream(h, "/api/v1/runs/run-1/events")
		synctest.Wait()
		rec := call(h, "GET", "/api/v1/runs/run-1/events", "", "Accept", "text/event-stream")
		if p := failure(t, rec); rec.Code != http.StatusTooManyRequests || p.Code != parley.CodeLimit ||
			!strings.Contains(rec.Body.String(), "limit streams of 2") || rec.Header().Get("Retry-After") == "" {
			t.Errorf("%d %s", rec.Code, rec.Body)
		}
		checkDocumented(t, schemas(t, s), "GET /api/v1/runs/{id}/events", rec)
		// A start that cannot wait is answered at once.
		begin := time.Now()
		rec = call(h, "POST", "/api/v1/workflows/a/execute", `{"input_data":{}}`, "Prefer", "wait=30")
		if rec.Code != http.StatusAccepted || time.Since(begin) != 0 || rec.Header().Get("Preference-Applied") != "" {
			t.Errorf("%d after %v", rec.Code, time.Since(begin))
		}
		a.cancel()
		<-a.done
		c := openStream(h, "/api/v1/runs/run-1/events")
		synctest.Wait()
		if c.ids() != "1" {
			t.Errorf("saw %q in the freed slot", c.seen())
		}
		b.cancel()
		c.cancel()
		<-b.done
		<-c.done
		if len(s.slots) != 0 {
			t.Errorf("%d slots are still taken", len(s.slots))
		}
	})
}

// When the history cannot be read any more the stream says so and ends.
func TestStreamTellsItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := begun(t)
		a := openStream(s.handler(), "/api/v1/runs/run-1/events")
		synctest.Wait()
		w.mu.Lock()
		w.broken = fmt.Errorf("canary: connection to 10.0.0.1 lost")
		close(w.changed["run-1"])
		w.changed["run-1"] = make(chan struct{})
		w.mu.Unlock()
		<-a.done
		if !strings.Contains(a.seen(), "event: error\ndata: {") || strings.Contains(a.seen(), "canary") {
			t.Errorf("saw %q", a.seen())
		}
	})
}

func TestPreferWait(t *testing.T) {
	for _, tt := range []struct {
		name, prefer string
		endsAfter    time.Duration
		status       int
		took         time.Duration
		applied      string
	}{
		{"ends in time", "wait=30", 10 * time.Second, 200, 10 * time.Second, "wait=30"},
		{"does not end", "respond-async, wait=30", time.Hour, 202, 30 * time.Second, "wait=30"},
		{"more than the limit", "wait=86400", time.Hour, 202, 5 * time.Minute, "wait=300"},
		{"spelled otherwise", `Wait = "5" ; x=y`, time.Second, 200, time.Second, "wait=5"},
		{"cannot be read", "wait=soon", time.Second, 202, 0, ""},
		{"negative", "wait=-1", time.Second, 202, 0, ""},
		{"absent", "", time.Second, 202, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, w := begun(t)
				var end sync.WaitGroup
				end.Go(func() {
					time.Sleep(tt.endsAfter / 2)
					must(t, w.do("begin run-2"))
					time.Sleep(tt.endsAfter - tt.endsAfter/2)
					must(t, w.do("complete run-2"))
				})
				begin := time.Now()
				rec := call(s.handler(), "POST", "/api/v1/workflows/a/execute", `{"input_data":{}}`, "Prefer", tt.prefer)
				if rec.Code != tt.status || time.Since(begin) != tt.took || rec.Header().Get("Preference-Applied") != tt.applied {
					t.Errorf("%d after %v, applied %q", rec.Code, time.Since(begin), rec.Header().Get("Preference-Applied"))
				}
				if ended := strings.Contains(rec.Body.String(), `"status":"COMPLETED","input"`); ended != (tt.status == 200) {
					t.Errorf("%d with %s", rec.Code, rec.Body)
				}
				end.Wait()
			})
		})
	}
}

// A run that has begun is answered as such, also if it cannot be waited for: whoever is
// told to try again begins a second one.
func TestWaitFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := begun(t)
		var breaks sync.WaitGroup
		breaks.Go(func() {
			time.Sleep(time.Second)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.broken = parley.Errorf(parley.CodeUnavailable, "the database is away")
			close(w.changed["run-2"])
			w.changed["run-2"] = make(chan struct{})
		})
		rec := call(s.handler(), "POST", "/api/v1/workflows/a/execute", `{"input_data":{}}`, "Prefer", "wait=30")
		if rec.Code != http.StatusAccepted || !strings.Contains(rec.Body.String(), `"id":"run-2"`) {
			t.Errorf("%d %s, want the run", rec.Code, rec.Body)
		}
		breaks.Wait()
	})
}

// Who waits when the server is stopped is told of the run that was begun: without an
// answer he would begin another one.
func TestWaitEndsWithTheServer(t *testing.T) {
	for path, body := range map[string]string{"workflows/a/execute": `{"input_data":{}}`, "agents/A/call": `{"input":"hi","wait":30}`} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stopping := make(chan struct{})
				s, _ := setup(func(c *Config) { c.Stopping = stopping })
				call(s.handler(), "POST", "/api/v1/workflows", onePlan)
				call(s.handler(), "POST", "/api/v1/agents", `{"name":"A","url":"http://a.example"}`)
				var stop sync.WaitGroup
				stop.Go(func() {
					time.Sleep(10 * time.Second)
					close(stopping)
				})
				begin := time.Now()
				rec := call(s.handler(), "POST", "/api/v1/"+path, body, "Prefer", "wait=30")
				if rec.Code != http.StatusAccepted || time.Since(begin) != 10*time.Second || !strings.Contains(rec.Body.String(), `"id":"run-1"`) {
					t.Errorf("%d after %v: %s", rec.Code, time.Since(begin), rec.Body)
				}
				stop.Wait()
			})
		})
	}
}

// The member wait of an agent call is the same as Prefer.
func TestCallWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := begun(t)
		call(s.handler(), "POST", "/api/v1/agents", `{"name":"A","url":"http://a.example"}`)
		var end sync.WaitGroup
		end.Go(func() {
			time.Sleep(time.Second)
			must(t, w.do("begin run-2"))
			must(t, w.do("complete run-2"))
		})
		rec := call(s.handler(), "POST", "/api/v1/agents/A/call", `{"input":"hi","wait":2.5}`)
		if rec.Code != http.StatusOK {
			t.Errorf("%d %s", rec.Code, rec.Body)
		}
		end.Wait()
		if got := w.starts[1]; got.CallAgent != "A" || string(got.Input) != `"hi"` || got.Workflow != "" {
			t.Errorf("asked for %+v", got)
		}
	})
}

// Over a real connection: deadlines and flushing reach it through the
// handler's own writer, and events arrive before the stream ends.
func TestStreamOverConnection(t *testing.T) {
	s, w := setup(func(c *Config) { c.Now = time.Now; c.Limits.IO = 5 * time.Second })
	srv := httptest.NewServer(s.handler())
	defer srv.Close()
	do := func(method, path, body string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, strings.NewReader(body))
		must(t, err)
		r.Header.Set("Authorization", "Bearer test-key")
		if method == "POST" {
			r.Header.Set("Content-Type", "application/json")
		} else {
			r.Header.Set("Accept", "text/event-stream")
		}
		res, err := srv.Client().Do(r)
		must(t, err)
		return res
	}
	_ = do("POST", "/api/v1/workflows", onePlan).Body.Close()
	_ = do("POST", "/api/v1/workflows/a/execute", `{"input_data":{}}`).Body.Close()
	res := do("GET", "/api/v1/runs/run-1/events", "")
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	next := map[string]string{"id: 1": "begin run-1", "id: 2": "complete run-1"}
	var got strings.Builder
	for lines.Scan() {
		if action := next[lines.Text()]; action != "" {
			must(t, w.do(action))
		}
		if strings.HasPrefix(lines.Text(), "id: ") {
			got.WriteString(lines.Text()[4:])
		}
	}
	if got.String() != "1234" {
		t.Errorf("saw %q", got.String())
	}
}
