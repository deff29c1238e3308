// Package slacktest is a small Slack: the methods of the Web API that the
// Verification Zone uses, events that are signed, repeated and delivered, Socket
// Mode, and every fault of zones.md §5 on demand. What a person would see in a
// thread is what [Server.Thread] gives.
//
// Its web side works without sockets, too ([Server.Transport]), so that tests may
// run in virtual time. Everything may be called from any goroutine.
package slacktest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The identity of the app, and of the workspace where it is installed.
const (
	Team    = "T0TEAM"
	BotUser = "U0BOT"
	BotID   = "B0BOT"
	AppID   = "A0APP"
)

// Config of a [Server]. Now and Token are required.
type Config struct {
	// Token, AppToken and SigningSecret are those that Slack knows.
	Token, AppToken, SigningSecret string
	// Scopes are those of Token, as the header of responses has them.
	Scopes string
	// Now is the clock of Slack.
	Now func() time.Time
}

// Server is a Slack. Make it with [New].
type Server struct {
	cfg Config

	mu       sync.Mutex // protects what follows
	posts    []Post
	calls    []Call
	faults   map[string][]Fault
	others   []string // messages as JSON
	files    map[string]*File
	clock    int64
	serial   int
	reacted  map[string]bool
	statuses []string
	socket   socket
	base     string
	upload   string
}

// Post is a message in a thread as people see it.
type Post struct {
	Channel, ThreadTS, TS, Text string
	// Metadata is that of the message, as it was sent.
	Metadata string
	// File is the one that the message shares, nil for none.
	File *File
	// At is when it appeared.
	At time.Time
}

// File is an upload.
type File struct {
	ID, Name string
	Content  []byte
	Shared   bool
}

// Call is one call of the Web API.
type Call struct {
	Method string
	Form   map[string]string
	At     time.Time
}

// Fault is what one call comes to. The zero value is no fault.
type Fault struct {
	// Landed: the call takes effect all the same, and nobody is told.
	Landed bool
	// Reset breaks the connection, after Delay.
	Reset bool
	// Delay is how long the call takes.
	Delay time.Duration
	// Status and RetryAfter, in seconds, are those of the response; Error is what
	// one with status 200 says.
	Status, RetryAfter int
	Error              string
	// RetryAt stands in the header in place of RetryAfter.
	RetryAt string
}

// New makes a Slack.
func New(cfg Config) *Server {
	return &Server{
		cfg: cfg, faults: map[string][]Fault{}, files: map[string]*File{}, reacted: map[string]bool{}, base: "https://slack.com",
		upload: "https://files.slack.com",
		socket: socket{wake: make(chan struct{}), acked: map[string]int{}, sent: map[string]int{}},
	}
}

// Fail has the next calls of a method come to faults, one each.
func (s *Server) Fail(method string, faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[method] = append(s.faults[method], faults...)
}

// Thread gives what stands in a thread besides the question, oldest first.
func (s *Server) Thread(channel, thread string) []Post {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Post
	for _, p := range s.posts {
		if p.Channel == channel && p.ThreadTS == thread {
			list = append(list, p)
		}
	}
	return list
}

// Posts gives everything that was posted, oldest first.
func (s *Server) Posts() []Post {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.posts)
}

// Calls gives the calls of a method so far.
func (s *Server) Calls(method string) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Call
	for _, c := range s.calls {
		if c.Method == method {
			list = append(list, c)
		}
	}
	return list
}

// Reactions gives the reactions to a message, sorted by name.
func (s *Server) Reactions(channel, ts string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for key := range s.reacted {
		if name, ok := strings.CutPrefix(key, channel+" "+ts+" "); ok {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// Statuses gives the statuses that threads have had, "" for one that was cleared.
func (s *Server) Statuses() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.statuses)
}

// Transport carries requests to the server without a socket.
func (s *Server) Transport() http.RoundTripper { return roundTripper{s} }

type roundTripper struct{ s *Server }

// RoundTrip serves a request in the goroutine of its caller.
func (r roundTripper) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	w := httptest.NewRecorder()
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			resp, err = nil, syscall.ECONNRESET
		default:
			panic(p)
		}
	}()
	r.s.ServeHTTP(w, req)
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

// ServeHTTP serves the Web API below /api/, uploads below /upload/ and Socket Mode
// at /socket.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/socket" {
		s.serveSocket(w, r)
		return
	}
	method, ok := strings.CutPrefix(r.URL.Path, "/api/")
	form := map[string]string{}
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	var content []byte
	if id, isUpload := strings.CutPrefix(r.URL.Path, "/upload/"); isUpload {
		method, form["id"], ok = "upload", id, true
		if file, _, err := r.FormFile("file"); err == nil {
			content, _ = io.ReadAll(file)
		}
	} else if err := r.ParseForm(); err == nil {
		for name := range r.PostForm {
			form[name] = r.PostForm.Get(name)
		}
		if form["token"] != "" {
			token = form["token"]
		}
		delete(form, "token")
	}
	fault := s.begin(method, form)
	answer := s.apply(call{method: method, form: form, token: token, content: content, known: ok}, fault)
	if fault.Delay > 0 {
		t := time.NewTimer(fault.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.Context().Done():
			return
		}
	}
	if fault.Reset {
		panic(http.ErrAbortHandler)
	}
	s.reply(w, fault, answer)
}

func (s *Server) begin(method string, form map[string]string) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, Call{Method: method, Form: form, At: s.cfg.Now()})
	list := s.faults[method]
	if len(list) == 0 {
		return Fault{}
	}
	s.faults[method] = list[1:]
	return list[0]
}

func (s *Server) reply(w http.ResponseWriter, fault Fault, answer map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-OAuth-Scopes", s.cfg.Scopes)
	if at := fault.RetryAt; at != "" {
		w.Header().Set("Retry-After", at)
	} else if fault.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(fault.RetryAfter))
	}
	if fault.Status != 0 {
		w.WriteHeader(fault.Status)
		fmt.Fprint(w, "<html>no JSON here</html>")
		return
	}
	if fault.Error != "" {
		answer = failed(fault.Error)
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		panic(err)
	}
}

func failed(code string) map[string]any { return map[string]any{"ok": false, "error": code} }

// call is one call on its way.
type call struct {
	method, token string
	form          map[string]string
	content       []byte
	known         bool
}

// apply carries a call out, unless its fault keeps it from that.
func (s *Server) apply(c call, fault Fault) map[string]any {
	if (fault.Reset || fault.Status != 0 || fault.Error != "") && !fault.Landed {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	want := s.cfg.Token
	if c.method == "apps.connections.open" {
		want = s.cfg.AppToken
	}
	switch {
	case c.token == "":
		return failed("not_authed")
	case c.token != want:
		return failed("invalid_auth")
	}
	switch c.method {
	case "auth.test":
		return map[string]any{"ok": true, "team_id": Team, "user_id": BotUser, "bot_id": BotID}
	case "chat.postMessage":
		return s.post(c.form)
	case "conversations.replies":
		return s.replies(c.form)
	case "reactions.add":
		s.reacted[c.form["channel"]+" "+c.form["timestamp"]+" "+c.form["name"]] = true
		return map[string]any{"ok": true}
	case "reactions.remove":
		delete(s.reacted, c.form["channel"]+" "+c.form["timestamp"]+" "+c.form["name"])
		return map[string]any{"ok": true}
	case "assistant.threads.setStatus":
		s.statuses = append(s.statuses, c.form["status"])
		return map[string]any{"ok": true}
	case "files.getUploadURLExternal", "upload", "files.completeUploadExternal":
		return s.uploads(c)
	case "apps.connections.open":
		return map[string]any{"ok": true, "url": "ws" + strings.TrimPrefix(s.base, "http") + "/socket?ticket=" + socketTicket}
	}
	return failed("unknown_method")
}

// nextTS makes the next timestamp of a message; mu is held.
func (s *Server) nextTS() string {
	s.clock = max(s.clock+1, s.cfg.Now().UnixMicro())
	return fmt.Sprintf("%d.%06d", s.clock/1e6, s.clock%1e6)
}

func (s *Server) post(form map[string]string) map[string]any {
	switch {
	case form["channel"] == "":
		return failed("channel_not_found")
	case strings.TrimSpace(form["text"]) == "" && form["blocks"] == "":
		return failed("no_text")
	case len([]rune(form["text"])) > 40_000:
		return failed("msg_too_long")
	}
	p := Post{
		Channel: form["channel"], ThreadTS: form["thread_ts"], TS: s.nextTS(), Text: form["text"], Metadata: form["metadata"],
		At: s.cfg.Now(),
	}
	s.posts = append(s.posts, p)
	return map[string]any{"ok": true, "channel": p.Channel, "ts": p.TS}
}

// Others has messages, as JSON, stand in every thread.
func (s *Server) Others(messages ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.others = append(s.others, messages...)
}

// pageSize is how many messages a page of replies has.
const pageSize = 15

func (s *Server) replies(form map[string]string) map[string]any {
	messages := []any{map[string]any{"type": "message", "user": "U0PARENT", "ts": form["ts"], "text": "the question"}}
	for _, text := range s.others {
		messages = append(messages, json.RawMessage(text))
	}
	for _, p := range s.posts {
		if p.Channel != form["channel"] || p.ThreadTS != form["ts"] || p.TS < form["oldest"] {
			continue
		}
		m := map[string]any{"type": "message", "user": BotUser, "bot_id": BotID, "ts": p.TS, "thread_ts": p.ThreadTS, "text": p.Text}
		if p.Metadata != "" && form["include_all_metadata"] == "1" {
			m["metadata"] = json.RawMessage(p.Metadata)
		}
		if p.File != nil {
			m["files"] = []map[string]any{{"id": p.File.ID, "name": p.File.Name}}
		}
		messages = append(messages, m)
	}
	from, _ := strconv.Atoi(form["cursor"])
	to := min(from+pageSize, len(messages))
	answer := map[string]any{"ok": true, "messages": messages[from:to], "has_more": to < len(messages)}
	if to < len(messages) {
		answer["response_metadata"] = map[string]any{"next_cursor": strconv.Itoa(to)}
	}
	return answer
}

func (s *Server) uploads(c call) map[string]any {
	switch c.method {
	case "files.getUploadURLExternal":
		s.serial++
		f := &File{ID: fmt.Sprint("F", s.serial), Name: c.form["filename"]}
		s.files[f.ID] = f
		return map[string]any{"ok": true, "upload_url": s.upload + "/upload/" + f.ID, "file_id": f.ID}
	case "upload":
		if f := s.files[c.form["id"]]; f != nil {
			f.Content = c.content
			return map[string]any{"ok": true}
		}
		return failed("file_not_found")
	}
	var list []struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(c.form["files"]), &list); err != nil || len(list) != 1 || s.files[list[0].ID] == nil {
		return failed("file_not_found")
	}
	f := s.files[list[0].ID]
	if f.Content == nil {
		return failed("file_not_found")
	}
	f.Shared = true
	s.posts = append(s.posts, Post{
		Channel: c.form["channel_id"], ThreadTS: c.form["thread_ts"], TS: s.nextTS(), File: f, At: s.cfg.Now(),
	})
	return map[string]any{"ok": true, "files": []map[string]any{{"id": f.ID, "title": f.Name}}}
}

// See adds a message of somebody else to a thread.
func (s *Server) See(channel, thread, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.posts = append(s.posts, Post{Channel: channel, ThreadTS: thread, TS: s.nextTS(), Text: text, At: s.cfg.Now()})
}

// UploadTo has uploads go to another place, such as one that is not Slack's.
func (s *Server) UploadTo(base string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.upload = base
}
