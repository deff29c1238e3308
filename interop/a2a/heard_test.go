package a2a

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/parley-project/parley"
)

// spoken is one request that Parley made to an agent.
type spoken struct {
	verb, path, query, body string
	header                  http.Header
	// method and params are those of JSON-RPC.
	method string
	params map[string]any
	id     any
}

// sends says whether it carries a message.
func (s spoken) sends() bool { return strings.Contains(s.body, `"messageId"`) }

// member is one of the params, by its path, or nil.
func (s spoken) member(path ...string) any {
	var value any = s.params
	for _, name := range path {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	return value
}

// recorder stands between Parley and an agent over HTTP and remembers what
// Parley says. The agent's card names the recorder's address through it.
type recorder struct {
	*httptest.Server
	own string

	mu    sync.Mutex
	heard []spoken
	// lose is a text: the answer to the first request with it is lost.
	lose string
	// announce makes cards say that there is an extended one. It is set before
	// the first request.
	announce bool
}

// newRecorder makes a recorder in front of a.
func newRecorder(t *testing.T, a *agent) *recorder {
	t.Helper()
	target, err := url.Parse(a.where["url"])
	if err != nil {
		t.Fatal(err)
	}
	rec := &recorder{own: a.where["url"]}
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = target.Host
			r.Out.Header.Del("Accept-Encoding")
		},
		ModifyResponse: rec.readdress,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	rec.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if !rec.record(r, body) {
			proxy.ServeHTTP(w, r)
			return
		}
		proxy.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(func() {
		rec.CloseClientConnections()
		rec.Close()
	})
	return rec
}

// record takes a request; lost says that its answer is to be lost.
func (rec *recorder) record(r *http.Request, body []byte) (lost bool) {
	s := spoken{verb: r.Method, path: r.URL.Path, query: r.URL.RawQuery, header: r.Header.Clone(), body: string(body)}
	var request struct {
		ID     any
		Method string
		Params map[string]any
	}
	_ = json.Unmarshal(body, &request)
	s.id, s.method, s.params = request.ID, request.Method, request.Params
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.heard = append(rec.heard, s)
	if lost = rec.lose != "" && strings.Contains(s.body, rec.lose); lost {
		rec.lose = ""
	}
	return lost
}

// readdress puts our address into a card.
func (rec *recorder) readdress(resp *http.Response) error {
	if !strings.Contains(resp.Request.URL.Path, "/.well-known/") {
		return nil
	}
	card, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	card = bytes.ReplaceAll(card, []byte(rec.own), []byte(rec.URL))
	if rec.announce {
		card, err = announced(card)
		if err != nil {
			return err
		}
	}
	resp.Body = io.NopCloser(bytes.NewReader(card))
	resp.ContentLength = int64(len(card))
	resp.Header.Del("Content-Length")
	return nil
}

// announced is a card that says, in both dialects, that there is an extended one
// for those who authenticate.
func announced(raw []byte) ([]byte, error) {
	var card map[string]any
	if err := json.Unmarshal(raw, &card); err != nil {
		return nil, err
	}
	if capabilities, ok := card["capabilities"].(map[string]any); ok {
		capabilities["extendedAgentCard"] = true
	}
	card["supportsAuthenticatedExtendedCard"] = true
	return json.Marshal(card)
}

// all gives the requests so far.
func (rec *recorder) all() []spoken {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return slices.Clone(rec.heard)
}

// said waits for a request.
func (rec *recorder) said(t *testing.T, what string, ok func(s spoken) bool) {
	t.Helper()
	eventually(t, what, func() bool { return slices.ContainsFunc(rec.all(), ok) })
}

// conversations has what Parley said on each route, once for all tests.
var conversations struct {
	mu sync.Mutex
	of map[string]*conversation
}

type conversation struct {
	once  sync.Once
	heard []spoken
}

// heard is all that Parley says to an agent over HTTP, on one route: it finds
// out what the agent is, sends a message in all ways, polls, follows a stream,
// answers a question, cancels, and looks up what became of a message.
func heard(t *testing.T, r route) []spoken {
	t.Helper()
	conversations.mu.Lock()
	if conversations.of == nil {
		conversations.of = make(map[string]*conversation)
	}
	c := conversations.of[r.name()]
	if c == nil {
		c = new(conversation)
		conversations.of[r.name()] = c
	}
	conversations.mu.Unlock()
	c.once.Do(func() { c.heard = converse(t, r) })
	if len(c.heard) == 0 {
		t.Fatal("the conversation of Parley and the agent went wrong in another test")
	}
	return c.heard
}

// never wants nothing of what Parley says on a route to be so.
func never(t *testing.T, r route, what string, so func(s spoken) bool) {
	t.Helper()
	for _, s := range heard(t, r) {
		if so(s) {
			t.Errorf("Parley sends %s: %s %s?%s %v %s", what, s.verb, s.path, s.query, s.header, s.body)
		}
	}
}

// converse plays everything that heard tells of.
func converse(t *testing.T, r route) []spoken {
	t.Helper()
	w, _ := newPushWorld(t)
	a := sharedAgent(t, r.kind)
	rec := newRecorder(t, a)
	agent := func(more map[string]any) string {
		return w.register(t, registration{
			url: rec.URL, auto: true, config: r.pins(more), policy: parley.OutcomeLookup,
		})
	}
	polled, followed := agent(map[string]any{"stream": "off"}), agent(nil)
	if _, err := w.CheckAgent(t.Context(), followed); err != nil {
		t.Fatal(err)
	}
	done(t, w.call(t, agent(map[string]any{"send": "blocking"}), "echo one"))
	done(t, w.call(t, agent(map[string]any{"send": "stream"}), "chunks 3"))
	done(t, w.call(t, agent(map[string]any{"parts": "data"}), `{"do":"data","n":1}`))
	for name, what := range map[string]string{polled: "get", followed: "subscribe"} {
		run := w.start(t, name, "hold "+name)
		w.accepted(t, run)
		rec.said(t, "Parley to "+what, func(s spoken) bool {
			if r.binding == "HTTP+JSON" {
				return s.verb == http.MethodGet && strings.HasSuffix(s.path, ":subscribe") == (what == "subscribe")
			}
			return s.method == r.says(what)
		})
		a.release(t, name)
		done(t, w.end(t, run))
	}
	run := w.start(t, followed, "ask who?")
	w.asked(t, run)
	w.answer(t, run, "me")
	done(t, w.end(t, run))
	run = w.start(t, followed, "stuck")
	w.accepted(t, run)
	if _, err := w.Cancel(t.Context(), run, "enough"); err != nil {
		t.Fatal(err)
	}
	w.end(t, run)
	rec.mu.Lock()
	rec.lose = "echo lost"
	rec.mu.Unlock()
	w.call(t, followed, "echo lost")
	return rec.all()
}

// httpRoutes are the routes that a recorder can listen to.
func httpRoutes() []route {
	return slices.DeleteFunc(routes(), func(r route) bool { return r.binding == "GRPC" })
}

// TestHeard wants Parley to say all that it may say to an agent, and no more.
func TestHeard(t *testing.T) {
	t.Parallel()
	for _, r := range httpRoutes() {
		t.Run(r.name(), func(t *testing.T) {
			parallel(t)
			var got []string
			for _, s := range heard(t, r) {
				what := s.method
				if r.binding == "HTTP+JSON" || what == "" {
					what = s.verb + " " + s.path
					if _, rest, ok := strings.Cut(s.path, "/tasks/"); ok {
						_, verb, _ := strings.Cut(rest, ":")
						what = s.verb + " task " + verb
					}
				}
				got = append(got, what)
			}
			slices.Sort(got)
			got = slices.Compact(got)
			want := []string{"GET /.well-known/agent-card.json"} // which says that somebody is there, too
			switch {
			case r.binding == "HTTP+JSON":
				want = append(want, "GET /rest/tasks", "GET task ", "GET task subscribe", "POST /rest/message:send", "POST /rest/message:stream", "POST task cancel")
			case r.version == "1.0":
				want = append(want, "CancelTask", "GetTask", "ListTasks", "SendMessage", "SendStreamingMessage", "SubscribeToTask")
			default:
				want = append(want, "message/send", "message/stream", "tasks/cancel", "tasks/get", "tasks/resubscribe")
			}
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("Parley says %q, want %q", got, want)
			}
		})
	}
}
