package push_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/push"
)

// hints is a bus that remembers what was published.
type hints struct {
	bus.Bus
	mu   sync.Mutex
	keys []string
	err  error
}

func (h *hints) Publish(_ context.Context, m bus.Message) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.Subject != bus.SubjectHint || len(m.Value) != 0 {
		return errors.New("not a hint")
	}
	if h.err == nil {
		h.keys = append(h.keys, m.Key)
	}
	return h.err
}

func (h *hints) got() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.keys
}

// rig is a receiver with a clock that stands still.
type rig struct {
	*push.Receiver
	bus *hints
	now time.Time
	log *bytes.Buffer
}

func newRig(t *testing.T, base string) *rig {
	t.Helper()
	r := &rig{bus: &hints{}, now: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC), log: &bytes.Buffer{}}
	var err error
	r.Receiver, err = push.New(push.Config{
		URL: base, Key: parley.NewSecret(bytes.Repeat([]byte{7}, 32)), Bus: r.bus,
		Now:    func() time.Time { return r.now },
		Logger: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// post sends one notification as an agent would.
func (r *rig) post(target, body string, header ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodPost, target, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	return w
}

const (
	bare    = `{"kind":"task","id":"t9","contextId":"c4","status":{"state":"completed"}}`
	wrapped = `{"statusUpdate":{"taskId":"t9","contextId":"c4","status":{"state":"TASK_STATE_COMPLETED"}}}`
)

func TestNotification(t *testing.T) {
	const task = "run-1.ask[2]/x y.1"
	r := newRig(t, "https://parley.example/base/")
	target, token, ok := r.Target(task)
	if !ok || !strings.HasPrefix(target, "https://parley.example/base/a2a/push/") {
		t.Fatalf("target %q, %v", target, ok)
	}
	target = strings.Replace(target, "/base", "", 1) // as a proxy in front does it
	_, foreign, _ := r.Target("run-1.ask.2")
	_, sameLength, _ := newRig(t, "https://other.example").Target(task)
	if sameLength != token {
		t.Error("the token depends on the URL of the server")
	}

	for _, tc := range []struct {
		name   string
		body   string
		header []string
		want   int
	}{
		{"PY, JS and Go 0.3", bare, []string{"X-A2A-Notification-Token", token}, 202},
		{"Go 1.0", wrapped, []string{"A2A-Notification-Token", token, "Content-Type", "application/json"}, 202},
		{"JS 1.0 with authentication", wrapped, []string{"Authorization", "Bearer " + token}, 202},
		{"lower-case scheme", wrapped, []string{"Authorization", "bearer  " + token}, 202},
		{"both, one of them something else", wrapped, []string{"Authorization", "Bearer x", "A2A-Notification-Token", token}, 202},
		{"both right", wrapped, []string{"Authorization", "Bearer " + token, "A2A-Notification-Token", token}, 202},
		{"none", bare, nil, 401},
		{"empty", bare, []string{"X-A2A-Notification-Token", ""}, 401},
		{"another task's", bare, []string{"X-A2A-Notification-Token", foreign}, 401},
		{"a part of it", bare, []string{"X-A2A-Notification-Token", token[:42]}, 401},
		{"basic", bare, []string{"Authorization", "Basic " + token}, 401},
		{"a list", "[]", []string{"A2A-Notification-Token", token}, 400},
		{"nothing", "", []string{"A2A-Notification-Token", token}, 400},
		{"half an object", bare[:20], []string{"A2A-Notification-Token", token}, 400},
		{"too large", `{"a":"` + strings.Repeat("x", 1<<20) + `"}`, []string{"A2A-Notification-Token", token}, 413},
		{"too large without a token", `{"a":"` + strings.Repeat("x", 1<<20) + `"}`, nil, 401},
	} {
		r.now = r.now.Add(time.Second)
		before := len(r.bus.got())
		w := r.post(target, tc.body, tc.header...)
		if w.Code != tc.want {
			t.Errorf("%s: status %d, want %d: %s", tc.name, w.Code, tc.want, w.Body)
		}
		if w.Code == 202 && w.Body.Len() > 0 {
			t.Errorf("%s: 202 has a body: %s", tc.name, w.Body)
		}
		if passed := len(r.bus.got()) > before; passed != (tc.want == 202) {
			t.Errorf("%s: passed on: %v", tc.name, passed)
		}
	}
	for _, key := range r.bus.got() {
		if key != task {
			t.Errorf("hint about %q, want %q", key, task)
		}
	}
	if strings.Contains(r.log.String(), token) || strings.Contains(r.log.String(), "c4") {
		t.Errorf("a token or a content is in the log:\n%s", r.log)
	}
}

func TestNotificationContentTypes(t *testing.T) {
	r := newRig(t, "http://127.0.0.1:8420")
	target, token, _ := r.Target("run-1.ask.1")
	for kind, want := range map[string]int{
		"application/json":                  202,
		"application/json; charset=utf-8":   202,
		"application/a2a+json":              202,
		"Application/A2A+JSON":              202,
		"text/plain":                        415,
		"application/x-www-form-urlencoded": 415,
		"":                                  415,
		"json;;":                            415,
	} {
		req := httptest.NewRequest(http.MethodPost, target, strings.NewReader(bare))
		req.Header.Set("Content-Type", kind)
		req.Header.Set("A2A-Notification-Token", token)
		w := httptest.NewRecorder()
		if r.ServeHTTP(w, req); w.Code != want {
			t.Errorf("Content-Type %q: status %d, want %d", kind, w.Code, want)
		}
	}
	req := httptest.NewRequest(http.MethodPost, target, strings.NewReader(bare))
	for name, value := range map[string]string{"Content-Type": "application/json", "Content-Encoding": "gzip", "A2A-Notification-Token": token} {
		req.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	if r.ServeHTTP(w, req); w.Code != 415 {
		t.Errorf("a compressed notification: status %d, want 415", w.Code)
	}
}

// TestNotificationRefusedAlike proves that nobody can find out which tasks
// there are.
func TestNotificationRefusedAlike(t *testing.T) {
	r := newRig(t, "http://127.0.0.1:8420")
	target, _, _ := r.Target("run-1.ask.1")
	want := r.post(target, bare, "A2A-Notification-Token", "wrong")
	if h := want.Header(); h.Get("Connection") != "close" || h.Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", h) // the body may be unread
	}
	for _, path := range []string{
		"/a2a/push/run-9.ask.9", "/a2a/push/", "/a2a/push/a/b", "/a2a/push/%00", "/a2a/push/" + strings.Repeat("x", 2000), "/a2a/push",
	} {
		got := r.post(path, bare, "A2A-Notification-Token", "wrong")
		if got.Code != want.Code || got.Code != 401 {
			t.Errorf("%s: status %d, want 401", path, got.Code)
		}
		if diff := cmp.Diff(want.Result().Header, got.Result().Header) + cmp.Diff(want.Body.String(), got.Body.String()); diff != "" {
			t.Errorf("%s is told apart:\n%s", path, diff)
		}
	}
	req := httptest.NewRequest(http.MethodGet, target, http.NoBody)
	w := httptest.NewRecorder()
	if r.ServeHTTP(w, req); w.Code != 405 || w.Header().Get("Allow") != "POST" {
		t.Errorf("GET: status %d, Allow %q", w.Code, w.Header().Get("Allow"))
	}
}

// TestNotificationRate proves that beyond ten a second notifications are taken
// and dropped, for each task by itself.
func TestNotificationRate(t *testing.T) {
	r := newRig(t, "http://127.0.0.1:8420")
	flood := func(task string, n int) {
		target, token, _ := r.Target(task)
		for range n {
			if w := r.post(target, wrapped, "A2A-Notification-Token", token); w.Code != 202 {
				t.Fatalf("status %d, want 202", w.Code)
			}
		}
	}
	flood("a", 25)
	flood("b", 3)
	r.now = r.now.Add(time.Second)
	flood("a", 1)
	count := map[string]int{}
	for _, key := range r.bus.got() {
		count[key]++
	}
	if diff := cmp.Diff(map[string]int{"a": 11, "b": 3}, count); diff != "" {
		t.Errorf("hints (-want +got):\n%s", diff)
	}
}

// TestNotificationRateBound: of 10,000 tasks the rates are remembered, of more only
// those of this second.
func TestNotificationRateBound(t *testing.T) {
	r := newRig(t, "http://127.0.0.1:8420")
	post := func(task string, n int) {
		target, token, _ := r.Target(task)
		for range n {
			r.post(target, wrapped, "A2A-Notification-Token", token)
		}
	}
	passed := func(task string) (n int) {
		for _, key := range r.bus.got() {
			if key == task {
				n++
			}
		}
		return n
	}
	for i := range 9_999 {
		post(strconv.Itoa(i), 1)
	}
	r.now = r.now.Add(time.Second)
	post("busy", 10)
	post("one more", 1) // the old ones are forgotten
	post("busy", 1)
	if n := passed("busy"); n != 10 {
		t.Errorf("%d of a busy task are passed on, want 10", n)
	}
	for i := range 9_998 {
		post(strconv.Itoa(i), 1)
	}
	post("busy", 1)
	if n := passed("busy"); n != 10 {
		t.Errorf("%d of a busy task among 10,000 are passed on, want 10", n)
	}
	post("too many", 1)
	post("busy", 1)
	if n := passed("busy"); n != 11 {
		t.Errorf("%d of a busy task are passed on, want 11: too many are remembered", n)
	}
}

// TestTaskIDs: a task whose id is too long has no target, and none is taken for it.
func TestTaskIDs(t *testing.T) {
	r := newRig(t, "http://127.0.0.1:8420")
	longest := strings.Repeat("x", 1024)
	target, token, ok := r.Target(longest)
	if w := r.post(target, bare, "A2A-Notification-Token", token); !ok || w.Code != 202 {
		t.Errorf("1024 bytes: %t, status %d", ok, w.Code)
	}
	for _, id := range []string{"", longest + "x"} {
		if _, _, ok := r.Target(id); ok {
			t.Errorf("%d bytes have a target", len(id))
		}
	}
}

func TestNotificationNotPassedOn(t *testing.T) {
	r := newRig(t, "http://127.0.0.1:8420")
	r.bus.err = errors.New("the bus is closed")
	target, token, _ := r.Target("run-1.ask.1")
	if w := r.post(target, bare, "A2A-Notification-Token", token); w.Code != 503 {
		t.Errorf("status %d, want 503", w.Code)
	}
}

// TestNotificationSlowBody proves that a sender that has no token, and one that
// stops within its body, hold nothing up.
func TestNotificationSlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "http://127.0.0.1:8420")
		conn, theirs := net.Pipe()
		l := &onePipe{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
		l.conn <- theirs
		s := &http.Server{Handler: r}
		var serving sync.WaitGroup
		serving.Go(func() { _ = s.Serve(l) })
		begun := time.Now()
		head := "POST /a2a/push/x HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
		serving.Go(func() { _, _ = io.WriteString(conn, head) }) // all of it only if somebody reads the body
		answer, err := io.ReadAll(conn)
		if took := time.Since(begun); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 401 ") || took > time.Second {
			t.Errorf("%q, %v after %v: want 401 at once and the end of the connection", answer, err, took)
		}
		_ = conn.Close()
		_ = s.Close()
		serving.Wait()
	})
}

// onePipe is a listener with one connection in memory.
type onePipe struct {
	conn   chan net.Conn
	closed chan struct{}
}

func (l *onePipe) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *onePipe) Close() error {
	close(l.closed)
	return nil
}

func (l *onePipe) Addr() net.Addr { return &net.TCPAddr{} }

func TestConfig(t *testing.T) {
	key := parley.NewSecret(make([]byte, 32))
	for _, bad := range []push.Config{
		{URL: "", Key: key},
		{URL: "parley.example", Key: key},
		{URL: "ftp://parley.example", Key: key},
		{URL: "https://", Key: key},
		{URL: "https://ann:secret@parley.example", Key: key},
		{URL: "https://parley.example?x=1", Key: key},
		{URL: "https://parley.example", Key: parley.NewSecret(make([]byte, 31))},
	} {
		if _, err := push.New(bad); parley.CodeOf(err) != parley.CodeInvalid || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want the code invalid", bad.URL, err)
		}
	}
	r := newRig(t, "http://127.0.0.1:8420")
	for _, task := range []string{"", strings.Repeat("x", 2000)} {
		if _, _, ok := r.Target(task); ok {
			t.Errorf("a task id of %d bytes has a target", len(task))
		}
	}
}

func TestLoadKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "push.key")
	first, err := push.LoadKey(file)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v, want 0600", info.Mode(), err)
	}
	again, err := push.LoadKey(file)
	if err != nil || !bytes.Equal(first.Reveal(), again.Reveal()) || len(first.Reveal()) != 32 {
		t.Errorf("the second time the key is another one, %v", err)
	}
	other, err := push.LoadKey(filepath.Join(t.TempDir(), "push.key"))
	if err != nil || bytes.Equal(first.Reveal(), other.Reveal()) {
		t.Errorf("another server has the same key, %v", err)
	}
	if err := os.WriteFile(file, []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := push.LoadKey(file); parley.CodeOf(err) != parley.CodeInvalid {
		t.Errorf("a damaged file: %v, want the code invalid", err)
	}
	if _, err := push.LoadKey(t.TempDir()); err == nil {
		t.Error("a folder is read as a key")
	}
}

// Processes that start together on one folder have one key: tokens that one of them
// gives out are checked by all.
func TestLoadKeyTogether(t *testing.T) {
	for range 20 {
		file := filepath.Join(t.TempDir(), "push.key")
		keys := make([]string, 8)
		begin := make(chan struct{})
		var loads sync.WaitGroup
		for i := range keys {
			loads.Go(func() {
				<-begin
				key, err := push.LoadKey(file)
				if err != nil {
					t.Error(err)
				}
				keys[i] = string(key.Reveal())
			})
		}
		close(begin)
		loads.Wait()
		if one := slices.Compact(slices.Clone(keys)); len(one) != 1 {
			t.Fatalf("%d processes have different keys", len(keys))
		}
	}
}
