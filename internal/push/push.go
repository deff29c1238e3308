// Package push takes the notifications that agents send about their tasks
// (A2A push notifications, AD-14). Each is a hint and nothing more: whoever
// follows the task is woken and asks the agent itself. So a notification that
// is lost, repeated, late or made up costs time at most.
//
// Each task has a URL and a secret of its own. The secret is derived from the
// task's id and the key of this installation, so that nothing about it has to
// be stored, and every process with the key can check it.
package push

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
)

// Path is below which notifications are taken: POST Path + task id.
const Path = "/a2a/push/"

const (
	// minKey is the least length of the key, in bytes.
	minKey = 32
	// maxTaskID bounds the id of a task, in bytes.
	maxTaskID = 1 << 10
	// maxBody bounds one notification, in bytes.
	maxBody = 1 << 20
	// maxRate is how many notifications about one task are passed on in one
	// second; the others are taken and dropped.
	maxRate = 10
	// maxTasks bounds the tasks whose rates are remembered.
	maxTasks = 10_000
	// bodyWithin bounds the reading of one body.
	bodyWithin = 10 * time.Second
	// publishWithin bounds the passing on of one hint.
	publishWithin = 5 * time.Second
)

// Config is what a Receiver is made from.
type Config struct {
	// URL is where agents reach this server: an http or https URL with or
	// without a path, without query.
	URL string
	// Key is the secret that tokens are derived from, at least 32 bytes.
	Key parley.Secret
	// Bus gets a message of [bus.SubjectHint] for each notification.
	Bus bus.Bus
	// Now reads the clock for the rates; nil is time.Now.
	Now func() time.Time
	// Logger may be nil. Tokens and contents never go there.
	Logger *slog.Logger
}

// Receiver is the [http.Handler] of notifications, and gives agents' targets.
// It may be used concurrently and needs no Close.
type Receiver struct {
	cfg  Config
	base string

	mu    sync.Mutex
	rates map[string]rate // guarded by mu
}

// rate counts the notifications about one task within one second.
type rate struct {
	since time.Time
	count int
}

// New makes a Receiver. The error has code invalid.
func New(cfg Config) (*Receiver, error) {
	u, err := url.Parse(cfg.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, parley.Errorf(parley.CodeInvalid,
			"the URL for push notifications must be an http or https URL of this server as agents reach it, such as https://parley.example.com")
	case len(cfg.Key.Reveal()) < minKey:
		return nil, parley.Errorf(parley.CodeInvalid, "the key of push notifications has less than %d bytes", minKey)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Receiver{cfg: cfg, base: strings.TrimRight(u.String(), "/") + Path, rates: map[string]rate{}}, nil
}

// Target gives where an agent sends notifications about the task, and the token
// that it has to send with them; false if there can be none.
func (r *Receiver) Target(taskID string) (target, token string, ok bool) {
	if taskID == "" || len(taskID) > maxTaskID {
		return "", "", false
	}
	return r.base + url.PathEscape(taskID), r.token(taskID), true
}

// token is HMAC-SHA-256 over the id, with a prefix that keeps it apart from
// whatever else the key may be used for.
func (r *Receiver) token(taskID string) string {
	mac := hmac.New(sha256.New, r.cfg.Key.Reveal())
	mac.Write([]byte("parley push v1\x00" + taskID))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// ServeHTTP takes one notification: 202 without a body; 401 for a token that is
// missing or not that of the task, whether there is such a task or not; 405,
// 413, 415, and 400 for what is no JSON object; 503 if it could not be passed
// on. Nothing but the token decides whether it counts: the content is not used.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	// The server's own limits leave the body of whoever got in all the time.
	// A connection that knows no deadlines is in a test.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyWithin))
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed)
		return
	}
	taskID, ok := taskOf(req.URL)
	if !ok || !r.authentic(taskID, req.Header) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		refuse(w, http.StatusUnauthorized)
		return
	}
	if status := check(w, req); status != 0 {
		refuse(w, status)
		return
	}
	if !r.admit(taskID) {
		r.cfg.Logger.DebugContext(req.Context(), "push_dropped", "task_id", taskID)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	ctx, cancel := context.WithTimeout(req.Context(), publishWithin)
	defer cancel()
	if err := r.cfg.Bus.Publish(ctx, bus.Message{Subject: bus.SubjectHint, Key: taskID}); err != nil {
		r.cfg.Logger.WarnContext(req.Context(), "push_not_passed_on", "task_id", taskID, "error", err)
		refuse(w, http.StatusServiceUnavailable)
		return
	}
	r.cfg.Logger.DebugContext(req.Context(), "push_received", "task_id", taskID)
	w.WriteHeader(http.StatusAccepted)
}

// refuse ends a request whose body may be unread: what has not come yet is not
// waited for, and the connection goes, too.
func refuse(w http.ResponseWriter, status int) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now())
	w.Header().Set("Connection", "close")
	http.Error(w, http.StatusText(status), status)
}

// taskOf gives the task that the path names as one segment.
func taskOf(u *url.URL) (string, bool) {
	segment, ok := strings.CutPrefix(u.EscapedPath(), Path)
	if !ok || segment == "" || strings.Contains(segment, "/") {
		return "", false
	}
	id, err := url.PathUnescape(segment)
	return id, err == nil && id != "" && len(id) <= maxTaskID
}

// authentic reports whether one of the headers in which agents send tokens
// holds that of the task. Which of them an agent uses depends on its SDK, and
// some send two.
func (r *Receiver) authentic(taskID string, h http.Header) bool {
	want := []byte(r.token(taskID))
	found := 0
	for _, name := range []string{"X-A2A-Notification-Token", "A2A-Notification-Token"} {
		for _, got := range h.Values(name) {
			found |= subtle.ConstantTimeCompare([]byte(strings.TrimSpace(got)), want)
		}
	}
	for _, got := range h.Values("Authorization") {
		scheme, token, _ := strings.Cut(strings.TrimSpace(got), " ")
		if strings.EqualFold(scheme, "Bearer") {
			found |= subtle.ConstantTimeCompare([]byte(strings.TrimSpace(token)), want)
		}
	}
	return found == 1
}

// check reads the body, a bare object of A2A 0.3 or a wrapped one of 1.0, and
// gives the status to refuse it with, or 0.
func check(w http.ResponseWriter, req *http.Request) (status int) {
	kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" && kind != "application/a2a+json" {
		return http.StatusUnsupportedMediaType
	}
	if enc := req.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return http.StatusUnsupportedMediaType
	}
	if req.ContentLength > maxBody {
		return http.StatusRequestEntityTooLarge
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return http.StatusRequestEntityTooLarge
	}
	if err != nil {
		return http.StatusBadRequest
	}
	if text := strings.TrimLeft(string(body[:min(len(body), 64)]), " \t\r\n"); !strings.HasPrefix(text, "{") || !json.Valid(body) {
		return http.StatusBadRequest
	}
	return 0
}

// admit counts one notification and reports whether it is passed on.
func (r *Receiver) admit(taskID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.cfg.Now()
	t := r.rates[taskID]
	if d := now.Sub(t.since); d < 0 || d >= time.Second {
		t = rate{since: now}
	}
	t.count++
	if _, known := r.rates[taskID]; !known && len(r.rates) >= maxTasks {
		r.forgetLocked(now)
	}
	r.rates[taskID] = t
	return t.count <= maxRate
}

// forgetLocked drops what is older than a second, or, among that many tasks at
// once, everything.
func (r *Receiver) forgetLocked(now time.Time) {
	for id, t := range r.rates {
		if now.Sub(t.since) >= time.Second {
			delete(r.rates, id)
		}
	}
	if len(r.rates) >= maxTasks {
		clear(r.rates)
	}
}
