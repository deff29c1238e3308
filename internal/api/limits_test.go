package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
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

	"github.com/parley-project/parley"
)

// call sends one request with the key and gives the answer.
func call(h http.Handler, method, target, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = "127.0.0.1:8420"
	r.Header.Set("Authorization", "Bearer test-key")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}

// failure decodes an error answer.
func failure(t *testing.T, rec *httptest.ResponseRecorder) problem {
	t.Helper()
	var p problem
	if err := json.Unmarshal(rec.Body.Bytes(), &p); err != nil {
		t.Fatalf("%d with %q: %v", rec.Code, rec.Body, err)
	}
	if p.Status != rec.Code || p.StatusCode != rec.Code {
		t.Errorf("the body says %d and %d, the answer %d", p.Status, p.StatusCode, rec.Code)
	}
	return p
}

const onePlan = `{"name":"a","start_step":"s","steps":{"s":{"id":"s","agent_name":"A","input_mapping":{}}}}`

// Every limit is refused by name and value (language.md §10).
func TestLimits(t *testing.T) {
	s, w := setup(nil)
	h := s.handler()
	call(h, "POST", "/api/v1/workflows", onePlan)
	text := func(n int) string { return strings.Repeat("x", n) }
	for _, tt := range []struct {
		name, target, body string
		header             []string
		status             int
		say                string
	}{
		{"10 MB input", "/api/v1/workflows/a/execute", `{"input_data":{"t":"` + text(10_000_000) + `"}}`, nil, 422, "limit input of 8 MiB"},
		{"largest input", "/api/v1/workflows/a/execute", `{"input_data":{"t":"` + text(8<<20-8) + `"}}`, nil, 202, ""},
		{"one byte more", "/api/v1/workflows/a/execute", `{"input_data":{"t":"` + text(8<<20-7) + `"}}`, nil, 422, "limit input of 8 MiB"},
		{"body of a start", "/api/v1/workflows/a/execute", `{"input_data":{"t":"` + text(16<<20) + `"}}`, nil, 413, "limit execute_body of 16 MiB"},
		{"agent call", "/api/v1/agents/A/call", `{"input":"` + text(8<<20) + `"}`, nil, 422, "limit input of 8 MiB"},
		{"source", "/api/v1/workflows", "name: " + text(1<<20), []string{"Content-Type", "application/yaml"}, 413, "limit source of 1 MiB"},
		{"agent", "/api/v1/agents", `{"name":"` + text(256<<10) + `"}`, nil, 413, "limit body of 256 KiB"},
		{"depth", "/api/v1/workflows/a/execute", `{"input_data":` + strings.Repeat(`{"a":`, 64) + "1" + strings.Repeat("}", 65), nil, 422, "limit of 64 levels"},
		{"deepest", "/api/v1/workflows/a/execute", `{"input_data":` + strings.Repeat(`{"a":`, 63) + "1" + strings.Repeat("}", 64), nil, 202, ""},
		{"header", "/api/v1/workflows/a/execute", `{"input_data":{}}`, []string{"X-Pad", text(64 << 10)}, 431, "limit of 64 KiB"},
		{"key", "/api/v1/workflows/a/execute", `{"input_data":{},"idempotency_key":"` + text(256) + `"}`, nil, 422, "at most 255"},
		{"labels", "/api/v1/workflows/a/execute", `{"input_data":{},"labels":{` + manyLabels(33) + `}}`, nil, 422, "at most 32"},
		{"label", "/api/v1/workflows/a/execute", `{"input_data":{},"labels":{"a":"` + text(257) + `"}}`, nil, 422, "at most 256"},
		{"answer", "/api/v1/runs/run-1/answer", `{"text":"` + text(2<<20) + `"}`, nil, 413, "limit answer of 2 MiB"},
		{"text of an answer", "/api/v1/runs/run-1/answer", `{"text":"` + text(1<<20+1) + `"}`, nil, 422, "at most 1048576"},
		{"data of an answer", "/api/v1/runs/run-1/answer", `{"data":"` + text(1<<20) + `"}`, nil, 422, "limit data of 1 MiB"},
		{"reason", "/api/v1/runs/run-1/cancel", `{"reason":"` + text(501) + `"}`, nil, 422, "at most 500"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := call(h, "POST", tt.target, tt.body, tt.header...)
			if rec.Code != tt.status {
				t.Fatalf("status %d, want %d: %.300s", rec.Code, tt.status, rec.Body)
			}
			if tt.say == "" {
				return
			}
			p := failure(t, rec)
			if p.Code != parley.CodeLimit || !strings.Contains(rec.Body.String(), tt.say) {
				t.Errorf("code %q, want limit and %q in %.600s", p.Code, tt.say, rec.Body)
			}
			if detail, _ := p.Detail.(string); !strings.Contains(detail, tt.say) {
				t.Errorf("the detail %q does not say %q", p.Detail, tt.say)
			}
		})
	}
	if n := len(w.starts); n != 2 {
		t.Errorf("%d starts reached the executor, want the 2 accepted ones", n)
	}
}

// TestC9_RolesAreBoundedInCharacters: as everything else that people write.
func TestC9_RolesAreBoundedInCharacters(t *testing.T) {
	s, w := begun(t)
	for n, want := range map[int]bool{255: true, 256: false} {
		rec := call(s.handler(), "POST", "/api/v1/runs/run-1/answer", `{"choice":"yes","roles":["`+strings.Repeat("ß", n)+`"]}`)
		if taken := rec.Code != http.StatusUnprocessableEntity; taken != want {
			t.Errorf("a role of %d characters: %d %s", n, rec.Code, rec.Body)
		}
	}
	if len(w.runs) == 0 {
		t.Error("there was no run to answer")
	}
}

func manyLabels(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"l` + strings.Repeat("i", i) + `":"v"`)
	}
	return b.String()
}

// A body whose length is declared is refused without being read; one whose
// length is not is read up to the limit and no further.
func TestLargeBodiesAreNotRead(t *testing.T) {
	s, _ := setup(nil)
	h := s.handler()
	for _, declared := range []bool{true, false} {
		body := &countingReader{left: 100 << 20}
		r := httptest.NewRequest(http.MethodPost, "/api/v1/workflows/a/execute", body)
		r.Host, r.ContentLength = "localhost", -1
		if declared {
			r.ContentLength = 100 << 20
		}
		r.Header.Set("Authorization", "Bearer test-key")
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		if rec.Code != http.StatusRequestEntityTooLarge {
			t.Errorf("declared %v: status %d", declared, rec.Code)
		}
		if most := 16<<20 + 4096; body.read > most || declared && body.read > 0 {
			t.Errorf("declared %v: %d bytes were read", declared, body.read)
		}
	}
}

type countingReader struct{ left, read int }

func (c *countingReader) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), c.left)
	copy(p, bytes.Repeat([]byte("x"), n))
	c.left -= n
	c.read += n
	return n, nil
}

// Compressed bodies would pass every limit.
func TestCompressedBodyIsRefused(t *testing.T) {
	s, _ := setup(nil)
	rec := call(s.handler(), "POST", "/api/v1/agents", "{}", "Content-Encoding", "gzip")
	if rec.Code != http.StatusUnsupportedMediaType {
		t.Errorf("status %d", rec.Code)
	}
}

func TestHosts(t *testing.T) {
	s, _ := setup(func(c *Config) { c.Hosts = []string{"parley.example", "10.0.0.5", "[fd00::1]"} })
	h := s.handler()
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:1": 200, "a.localhost": 200, "localhost.": 200, "127.0.0.1:80": 200, "127.8.8.8": 200,
		"[::1]:80": 200, "[::1]": 200, "[::ffff:127.0.0.1]": 200, "Parley.Example:443": 200, "10.0.0.5": 200, "[fd00::1]:9": 200,
		"": 421, "evil.example": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421, "10.0.0.6": 421,
		"parley.example.evil": 421, "notlocalhost": 421, "0.0.0.0": 421, "2130706433": 421, "[::]:80": 421,
	} {
		for _, path := range []string{"/healthz", "/api/v1/runs"} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Host = host
			r.Header.Set("Authorization", "Bearer test-key")
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			if rec.Code != want {
				t.Errorf("%s with Host %q: %d, want %d", path, host, rec.Code, want)
			}
		}
	}
}

// The address that a request has come to is one of this machine: probes and scrapers call
// a process by it. That it is written as a name, or is another address, does not help.
func TestHostIsTheAddressCalled(t *testing.T) {
	s, _ := setup(nil)
	for _, c := range []struct {
		local, host string
		want        int
	}{
		{"10.1.2.3:8420", "10.1.2.3:8420", 200},
		{"10.1.2.3:8420", "10.1.2.3", 200},
		{"10.1.2.3:8420", "[::ffff:10.1.2.3]:8420", 200},
		{"[fd00::7]:8420", "[fd00::7]:8420", 200},
		{"[::ffff:10.1.2.3]:8420", "10.1.2.3:8420", 200},
		{"[fe80::1%eth0]:8420", "[fe80::1]:8420", 200},
		{"10.1.2.3:8420", "10.1.2.4:8420", 421},
		{"10.1.2.3:8420", "10.1.2.3.evil.example", 421},
		{"10.1.2.3:8420", "evil.example:8420", 421},
		{"10.1.2.3:8420", "", 421},
	} {
		at, err := net.ResolveTCPAddr("tcp", c.local)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/healthz", "/metrics", "/api/v1/runs"} {
			r := httptest.NewRequestWithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(at)), http.MethodGet, path, nil)
			r.Host = c.host
			r.Header.Set("Authorization", "Bearer test-key")
			rec := httptest.NewRecorder()
			s.handler().ServeHTTP(rec, r)
			if rec.Code != c.want {
				t.Errorf("%s at %s with Host %q: %d, want %d", path, c.local, c.host, rec.Code, c.want)
			}
			if rec.Code == 421 && !strings.Contains(rec.Body.String(), "auth.hosts") {
				t.Errorf("the 421 does not say what to set: %s", rec.Body)
			}
		}
	}
}

// A path with an empty part is what a script makes of a variable that is not set: it is
// not another path.
func TestPathsWithEmptyParts(t *testing.T) {
	s, _ := setup(nil)
	for _, c := range []struct{ method, path string }{
		{"GET", "/api/v1/runs//x"},
		{"GET", "/api/v1/runs//events"},
		{"POST", "/api/v1/runs//cancel"},
		{"GET", "//healthz"},
		{"GET", "//api/v1/runs"},
		{"GET", "/api/v1/runs/./steps"},
		{"GET", "/api/v1/agents/../runs"},
		{"GET", "/api/v1/agents//"},
		{"DELETE", "/api/v1/agents/.."},
		{"GET", "/nowhere//x"},
	} {
		rec := call(s.handler(), c.method, c.path, "")
		var body problem
		if err := json.Unmarshal(rec.Body.Bytes(), &body); rec.Code != 404 || err != nil || body.Code != codeNotFound || !strings.Contains(fmt.Sprint(body.Detail), "empty") {
			t.Errorf("%s %s: %d %s", c.method, c.path, rec.Code, rec.Body)
		}
	}
	for path, want := range map[string]int{"/": 200, "/healthz/": 307, "/api/v1/runs/": 307, "/api/v1/agents/a%2Fb": 404, "/api/v1/agents/a%2F%2Fb": 404, "/api/v1/agents/...": 404} {
		if rec := call(s.handler(), "GET", path, ""); rec.Code != want || strings.Contains(rec.Body.String(), "is empty") {
			t.Errorf("%s: %d %s, want %d", path, rec.Code, rec.Body, want)
		}
	}
}

// Every route but the public ones needs the key; the table of routes is
// the list that is tried.
func TestEveryRouteNeedsTheKey(t *testing.T) {
	s, _ := setup(nil)
	h := s.handler()
	public := map[string]bool{
		"/hooks/{ref}": true, "/api/v1/hooks/{ref}": true, "/healthz": true, "/readyz": true, "/metrics": true, "/openapi.json": true, "/api/v1/openapi.json": true,
	}
	fill := strings.NewReplacer("{ref}", "a", "{id}", "a")
	for _, rt := range s.routes {
		for _, key := range []string{"", "Bearer ", "Bearer test-ke", "Bearer test-key2", "Basic dGVzdC1rZXk=", "test-key"} {
			rec := call(h, rt.method, fill.Replace(rt.path), "", "Authorization", key)
			if got := rec.Code == http.StatusUnauthorized; got == public[rt.path] {
				t.Errorf("%s %s with %q: %d", rt.method, rt.path, key, rec.Code)
			}
			if rec.Code == http.StatusUnauthorized && !strings.Contains(rec.Body.String(), "Bearer KEY") {
				t.Errorf("the 401 does not say what to send: %s", rec.Body)
			}
		}
		if rec := call(h, rt.method, fill.Replace(rt.path), "", "Authorization", "bearer test-key"); rec.Code == http.StatusUnauthorized {
			t.Errorf("%s %s refuses the key", rt.method, rt.path)
		}
	}
}

// Where the key is on this machine is no affair of others.
func TestKeyHintIsForThisMachine(t *testing.T) {
	s, _ := setup(func(c *Config) { c.KeyHint = "the key is in /home/ann/key" })
	for from, told := range map[string]bool{"127.0.0.1:5000": true, "[::1]:5000": true, "192.0.2.7:5000": false, "@": false} {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/runs", nil)
		r.Host, r.RemoteAddr = "127.0.0.1:8420", from
		rec := httptest.NewRecorder()
		s.handler().ServeHTTP(rec, r)
		if got := strings.Contains(rec.Body.String(), "/home/ann"); rec.Code != http.StatusUnauthorized || got != told {
			t.Errorf("from %s: %d %s", from, rec.Code, rec.Body)
		}
	}
	// A proxy on this machine passes on what comes from others.
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Via"} {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/runs", nil)
		r.Host, r.RemoteAddr = "127.0.0.1:8420", "127.0.0.1:5000"
		r.Header.Set(name, "192.0.2.7")
		rec := httptest.NewRecorder()
		s.handler().ServeHTTP(rec, r)
		if rec.Code != http.StatusUnauthorized || strings.Contains(rec.Body.String(), "/home/ann") {
			t.Errorf("with %s: %d %s", name, rec.Code, rec.Body)
		}
	}
}

func TestAuthNone(t *testing.T) {
	s, _ := setup(func(c *Config) { c.Key, c.AuthNone = parley.Secret{}, true })
	if rec := call(s.handler(), "GET", "/api/v1/runs", "", "Authorization", ""); rec.Code != http.StatusOK {
		t.Errorf("status %d", rec.Code)
	}
	// The guard against foreign pages stays.
	rec := call(s.handler(), "POST", "/api/v1/runs/run-1/cancel", "", "Origin", "https://evil.example")
	if rec.Code != http.StatusForbidden {
		t.Errorf("a foreign origin got %d", rec.Code)
	}
}

func TestNewRefuses(t *testing.T) {
	_, w := setup(nil)
	full := Config{Runs: fakeRuns{w}, Controls: fakeRuns{w}, Workflows: fakeWorkflows{w}, Releases: fakeReleases{w}, Agents: fakeAgents{w}, DeadLetters: fakeDeadLetters{w}, Inbox: fakeInbox{w}, Schedules: &fakeSchedules{world: w}, Breakers: fakeBreakers{w}, Conditions: fakeConditions{w}, Archive: fakeArchive{w}, Keys: newFakeKeys(nil), Key: parley.NewSecret([]byte("k"))}
	if _, err := New(full); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Config){
		"no key":          func(c *Config) { c.Key = parley.Secret{} },
		"no runs":         func(c *Config) { c.Runs = nil },
		"no archive":      func(c *Config) { c.Archive = nil },
		"no keys":         func(c *Config) { c.Keys = nil },
		"no releases":     func(c *Config) { c.Releases = nil },
		"no flows":        func(c *Config) { c.Workflows = nil },
		"no agents":       func(c *Config) { c.Agents = nil },
		"no dead letters": func(c *Config) { c.DeadLetters = nil },
	} {
		cfg := full
		change(&cfg)
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A delivery to a webhook has a body of its own size, and only so many are looked
// at before it is known who sends them.
func TestHooksAreBounded(t *testing.T) {
	s, _ := setup(func(c *Config) { c.Limits.Hook = 100 })
	h := s.handler()
	send := func(n int) int {
		return call(h, http.MethodPost, "/hooks/order", strings.Repeat("x", n), "Authorization", "", "X-Signature", "s").Code
	}
	if got := []int{send(100), send(101)}; got[0] != http.StatusAccepted || got[1] != http.StatusRequestEntityTooLarge {
		t.Errorf("100 and 101 bytes: %v", got)
	}
	for range cap(s.hooks) {
		s.hooks <- struct{}{}
	}
	if got := send(1); got != http.StatusServiceUnavailable {
		t.Errorf("one too many: %d", got)
	}
	<-s.hooks
	if got := send(1); got != http.StatusAccepted || len(s.hooks) != cap(s.hooks)-1 {
		t.Errorf("when there is room: %d, %d of %d are taken", got, len(s.hooks), cap(s.hooks))
	}
}

// pipes are the server's ends of connections.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A client that reads nothing of its answer is not waited for without an end; one that
// reads slowly gets all of it. The clock of records is of no matter to connections.
func TestAnswersThatAreNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := setup(nil)
		began := time.Now()
		document := bytes.Repeat([]byte("x"), 8<<20)
		s.document = func() ([]byte, error) { return document, nil }
		conns := make(pipes)
		srv := &http.Server{Handler: s.handler(), ReadHeaderTimeout: time.Minute}
		var serving sync.WaitGroup
		serving.Go(func() { _ = srv.Serve(conns) })
		ask := func() net.Conn {
			ours, theirs := net.Pipe()
			conns <- theirs
			_, err := io.WriteString(ours, "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
			must(t, err)
			return ours
		}
		deaf, slow := ask(), ask()
		res, err := http.ReadResponse(bufio.NewReader(slow), nil)
		must(t, err)
		defer func() { _ = res.Body.Close() }()
		n := 0
		for buf := make([]byte, 64<<10); n < len(document); time.Sleep(time.Second) {
			m, err := io.ReadFull(res.Body, buf)
			must(t, err)
			n += m
		}
		must(t, slow.Close())
		if _, err := deaf.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("after %v there is still an answer to be read: %v", time.Since(began), err)
		}
		must(t, deaf.Close())
		close(conns)
		must(t, srv.Close())
		serving.Wait()
	})
}

// TestFindingsAreBounded: however many members nobody knows, the answer is a short one.
func TestFindingsAreBounded(t *testing.T) {
	s, _ := setup(nil)
	call(s.handler(), "POST", "/api/v1/workflows", onePlan)
	var body strings.Builder
	body.WriteString(`{"input_data":{}`)
	for i := range 100_000 {
		fmt.Fprintf(&body, `,"m%d":0`, i)
	}
	body.WriteString("}")
	for path, status := range map[string]int{"/api/v1/workflows/a/execute": http.StatusUnprocessableEntity, "/api/v1/runs:cancel": http.StatusRequestEntityTooLarge} {
		rec := call(s.handler(), "POST", path, body.String())
		if rec.Code != status || rec.Body.Len() > 64<<10 {
			t.Errorf("%s: %d, %d bytes", path, rec.Code, rec.Body.Len())
		}
	}
}
