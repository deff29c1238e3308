package a2a

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley/internal/server"
)

// forward passes a request on to url and its answer back.
func forward(w http.ResponseWriter, r *http.Request, url string) {
	req, err := http.NewRequestWithContext(r.Context(), r.Method, url, r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	req.Header = r.Header.Clone()
	req.ContentLength = r.ContentLength
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}

// hook is where agents post; it passes on to Parley.
type hook struct {
	*httptest.Server
	mu    sync.Mutex
	to    string
	posts []post
	// keep takes posts away, to be delivered later, or not at all.
	keep func(post) bool
}

// post is a notification of an agent.
type post struct {
	path, body string
	header     http.Header
	status     int
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p := post{path: r.URL.Path, body: string(body), header: r.Header.Clone()}
	h.mu.Lock()
	keep := h.keep
	h.mu.Unlock()
	if keep != nil && keep(p) {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	p.status = h.deliver(p)
	h.mu.Lock()
	h.posts = append(h.posts, p)
	h.mu.Unlock()
	w.WriteHeader(p.status)
}

// deliver passes a post on to Parley and gives the status of its answer.
func (h *hook) deliver(p post) int {
	h.mu.Lock()
	to := h.to
	h.mu.Unlock()
	r := httptest.NewRequest(http.MethodPost, p.path, strings.NewReader(p.body))
	r.Header = p.header.Clone()
	answer := httptest.NewRecorder()
	forward(answer, r, to+p.path)
	return answer.Code
}

// about gives the posts about a run.
func (h *hook) about(run string) []post {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []post
	for _, p := range h.posts {
		if strings.Contains(p.path, run) {
			out = append(out, p)
		}
	}
	return out
}

// newPushWorld starts a Parley that agents can post to.
func newPushWorld(t *testing.T) (*world, *hook) {
	t.Helper()
	h := new(hook)
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	cfg := parleyConfig(filepath.Join(t.TempDir(), "data"))
	cfg.PushURL = h.URL
	s, err := server.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	h.to = s.URL()
	h.mu.Unlock()
	w := &world{data: cfg.Data}
	w.connect(t, s.URL(), s.Key())
	w.serve(t, s.Run)
	return w, h
}

// TestPush lets agents say when a task goes on: the run ends long before the
// next time that Parley would have asked.
func TestPush(t *testing.T) {
	t.Parallel()
	w, h := newPushWorld(t)
	for _, r := range routes() {
		t.Run(r.name(), func(t *testing.T) {
			parallel(t)
			a := sharedAgent(t, r.kind)
			config := r.pins(map[string]any{"stream": "off"})
			name := w.register(t, registration{url: a.where["url"], auto: true, config: config})
			var took time.Duration
			for try := range 6 {
				var run string
				run, took = w.held(t, a, name, try)
				posts := h.about(run)
				if r.kind == java03 {
					// In its default wiring it takes hooks and never posts.
					if len(posts) > 0 {
						t.Errorf("java posts: %+v", posts)
					}
					return
				}
				eventually(t, "its posts", func() bool {
					posts = h.about(run)
					return len(posts) >= 2
				})
				checkPosts(t, r, posts)
				if took < 5*time.Second {
					return // else the machine may have been busy
				}
			}
			t.Errorf("the run ended %v after the task: it was not told", took)
		})
	}
}

// held has a task worked on for so long that Parley, which asks after 0.5, 1, 2,
// 4 and 8 s, will not ask soon when it ends. It gives the time from there to the
// end of the run.
func (w *world) held(t *testing.T, a *agent, name string, try int) (run string, took time.Duration) {
	t.Helper()
	key := fmt.Sprint(name, try)
	run = w.start(t, name, "hold "+key)
	w.accepted(t, run)
	time.Sleep(8 * time.Second)
	began := time.Now()
	a.release(t, key)
	if o := done(t, w.end(t, run)); o.Text != "held "+key {
		t.Errorf("output %s", o.raw)
	}
	return run, time.Since(began)
}

// checkPosts holds on to what the SDKs post.
func checkPosts(t *testing.T, r route, posts []post) {
	t.Helper()
	token, media := "X-A2A-Notification-Token", "application/json"
	switch r.kind {
	case go10: // also to hooks of 0.3
		token = "A2A-Notification-Token"
	case js10:
		media = "application/a2a+json"
	}
	for _, p := range posts {
		// 404 is that the run is over by now, since a post before told to ask.
		if p.status != http.StatusAccepted && p.status != http.StatusNotFound {
			t.Errorf("refused with %d: %v %s", p.status, p.header, p.body)
		}
		if p.header.Get(token) == "" || !strings.HasPrefix(p.header.Get("Content-Type"), media) {
			t.Errorf("header %v", p.header)
		}
		var body struct {
			Kind           string          `json:"kind"`
			Task           json.RawMessage `json:"task"`
			StatusUpdate   json.RawMessage `json:"statusUpdate"`
			ArtifactUpdate json.RawMessage `json:"artifactUpdate"`
		}
		if err := json.Unmarshal([]byte(p.body), &body); err != nil {
			t.Errorf("%s: %v", p.body, err)
		}
		// Servers of 1.0 post its wrappers, also to hooks of 0.3; those of 0.3
		// post whole tasks.
		wrapped := body.Task != nil || body.StatusUpdate != nil || body.ArtifactUpdate != nil
		if wrapped != r.kind.dual() || !wrapped && body.Kind != "task" {
			t.Errorf("body %s", p.body)
		}
	}
}
