package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/parley-project/parley"
)

// requestCheck answers whether requests can be served.
type requestCheck = func(ctx context.Context) error

// correlationHeader is on every request and response.
const correlationHeader = "X-Correlation-Id"

// tracked remembers whether an answer was begun, so that a late error does not
// write a second one, and waits for no client that does not read it.
type tracked struct {
	http.ResponseWriter
	status int
	// renew gives the client its time anew.
	renew func()
}

// writePart is how many bytes of an answer a client has its time for.
const writePart = 256 << 10

func (t *tracked) WriteHeader(status int) {
	if t.status == 0 && status >= http.StatusOK {
		t.status = status
	}
	t.renew()
	t.ResponseWriter.WriteHeader(status)
}

func (t *tracked) Write(p []byte) (n int, err error) {
	if t.status == 0 {
		t.status = http.StatusOK
	}
	for more := true; more && err == nil; more = n < len(p) {
		t.renew()
		var m int
		m, err = t.ResponseWriter.Write(p[n:min(n+writePart, len(p))])
		n += m
	}
	return n, err
}

// Unwrap lets http.ResponseController reach deadlines and Flush.
func (t *tracked) Unwrap() http.ResponseWriter { return t.ResponseWriter }

type requestKey struct{}

// requestInfo is what is known about a request besides what it holds.
type requestInfo struct {
	// id is the correlation id that it runs under.
	id string
	// caller is the name of its key, which is recorded as the author of changes.
	caller string
	// role is that of its key, "" for the configured one.
	role parley.KeyRole
}

func infoOf(r *http.Request) *requestInfo {
	if info, ok := r.Context().Value(requestKey{}).(*requestInfo); ok {
		return info
	}
	return &requestInfo{caller: configured}
}

// requestID gives the correlation id that the request runs under.
func requestID(r *http.Request) string { return infoOf(r).id }

// callerOf gives who is recorded as the author of what the request changes.
func callerOf(r *http.Request) string { return infoOf(r).caller }

// handler wraps the mux in what every request passes.
func (s *server) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(correlationHeader)
		if !plainID(id) {
			id = s.cfg.NewID()
		}
		r = r.WithContext(context.WithValue(r.Context(), requestKey{}, &requestInfo{id: id, caller: configured}))
		h := w.Header()
		h.Set(correlationHeader, id)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		rc := http.NewResponseController(w)
		t := &tracked{ResponseWriter: w, renew: func() { s.deadline(rc.SetWriteDeadline) }}
		begin := s.cfg.Now()
		defer func() {
			if v := recover(); v != nil {
				s.panicked(t, r, v)
			}
			s.cfg.Logger.Debug("http_request", "method", r.Method, "path", r.URL.Path,
				"status", t.status, "request_id", id, "duration", s.cfg.Now().Sub(begin))
		}()
		if err := s.admit(r); err != nil {
			s.fail(t, r, err, true)
			return
		}
		s.dispatch(t, r)
	})
}

func (s *server) panicked(t *tracked, r *http.Request, v any) {
	//nolint:errorlint // the sentinel is compared as net/http does it.
	if v == http.ErrAbortHandler {
		panic(v)
	}
	s.cfg.Logger.Error("handler panicked", "request_id", requestID(r), "panic", fmt.Sprint(v),
		slog.String("stack", string(debug.Stack())))
	if t.status != 0 {
		// Half an answer must not look like a whole one.
		panic(http.ErrAbortHandler)
	}
	s.fail(t, r, errors.New("the handler panicked"), false)
}

// plainID reports whether a given correlation id may be sent back and logged.
func plainID(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	for _, c := range []byte(id) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}

// admit refuses what must not reach a handler.
func (s *server) admit(r *http.Request) error {
	if !s.hostAllowed(r) {
		return refuse(http.StatusMisdirectedRequest, codeForbidden,
			"the Host header names neither an address of this machine nor a configured host; add it to the setting auth.hosts if it is yours")
	}
	size := 0
	for name, values := range r.Header {
		for _, v := range values {
			size += len(name) + len(v) + 4
		}
	}
	if size > MaxHeaderBytes {
		return refuse(http.StatusRequestHeaderFieldsTooLarge, codeLimit, "the header is larger than the limit of %d KiB", MaxHeaderBytes>>10)
	}
	// A browser page elsewhere can send simple requests to a loopback address
	// without asking; it cannot forge the headers that this looks at.
	if err := s.cross.Check(r); err != nil {
		return refuse(http.StatusForbidden, codeForbidden, "cross-origin requests from a browser are refused")
	}
	// A slash too many leads to the path without it, and is no reason to ask for a key
	// that the path itself does not want.
	if s.cfg.AuthNone || s.public[strings.TrimSuffix(r.URL.Path, "/")] || s.isHook(r) {
		return nil
	}
	return s.authenticate(r)
}

// admitStill refuses to go on with a request whose key has expired or was revoked
// since. While keys cannot be looked up it goes on.
func (s *server) admitStill(r *http.Request) error {
	if s.cfg.AuthNone {
		return nil
	}
	err := s.authenticate(r)
	if e, ok := errors.AsType[*refusal](err); ok && e.code == parley.CodeUnavailable {
		return nil
	}
	return err
}

// keyHint says where a key is in words that tell strangers nothing.
const keyHint = "the key of a local server stands in the file \"key\" of its data folder"

func (s *server) authenticate(r *http.Request) error {
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	what := "a key is needed"
	if strings.EqualFold(scheme, "bearer") {
		// Digests have one length, so that the comparison tells nothing about
		// the key's.
		given, want := sha256.Sum256([]byte(strings.TrimSpace(key))), sha256.Sum256(s.cfg.Key.Reveal())
		if subtle.ConstantTimeCompare(given[:], want[:]) == 1 {
			return nil
		}
		k, err := s.ring.find(r.Context(), given)
		switch {
		case err != nil:
			if r.Context().Err() == nil { // else its client has gone
				s.cfg.Logger.Warn("key not looked up", "request_id", requestID(r), "error", err)
			}
			return refuse(http.StatusServiceUnavailable, parley.CodeUnavailable, "keys cannot be looked up now; try again")
		case k.State == parley.KeyActive:
			info := infoOf(r)
			info.caller, info.role = k.Name, k.Role
			return mayDo(&k, r)
		}
		what = "the key is not valid"
		if k.State != "" {
			what = "the key is " + string(k.State)
		}
	}
	hint := keyHint
	if fromHere(r) {
		hint = s.cfg.KeyHint
	}
	err := refuse(http.StatusUnauthorized, codeUnauthorized, "%s: send the header \"Authorization: Bearer KEY\"; %s", what, hint)
	err.header = http.Header{"Www-Authenticate": {`Bearer realm="parley"`}}
	return err
}

// fromHere reports whether a request comes from this machine for all that can be
// seen: a proxy on it passes on those of others, and says so.
func fromHere(r *http.Request) bool {
	from, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil || !loopback(from) {
		return false
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if len(r.Header[name]) > 0 {
			return false
		}
	}
	return true
}

// dispatch routes the request, and answers for the mux where that would speak
// plain text.
func (s *server) dispatch(w http.ResponseWriter, r *http.Request) {
	if !wholePath(r.URL) {
		s.fail(w, r, refuse(http.StatusNotFound, codeNotFound, "a part of the path is empty, \".\" or \"..\"; is an id or a name missing in it?"), true)
		return
	}
	if _, pattern := s.mux.Handler(r); pattern != "" {
		s.mux.ServeHTTP(w, r)
		return
	}
	if to, ok := s.withoutSlash(r); ok {
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusTemporaryRedirect)
		return
	}
	probe := &scratch{header: http.Header{}}
	s.mux.ServeHTTP(probe, r)
	if probe.status == http.StatusMethodNotAllowed {
		err := refuse(http.StatusMethodNotAllowed, codeMethod, "Method Not Allowed")
		err.header = http.Header{"Allow": probe.header["Allow"]}
		s.fail(w, r, err, true)
		return
	}
	s.fail(w, r, refuse(http.StatusNotFound, codeNotFound, "Not Found"), true)
}

// wholePath reports whether no part of the path is empty or leads elsewhere. The mux
// would redirect to the path without that part, which is one of something else.
func wholePath(u *url.URL) bool {
	p := u.EscapedPath()
	return p == "/" || path.Clean(p) == strings.TrimSuffix(p, "/")
}

// withoutSlash gives the path to redirect to when only a trailing slash keeps
// the request from a route.
func (s *server) withoutSlash(r *http.Request) (string, bool) {
	trimmed := strings.TrimSuffix(r.URL.Path, "/")
	if trimmed == r.URL.Path || trimmed == "" || path.Clean(trimmed) != trimmed {
		return "", false
	}
	for _, method := range []string{r.Method, http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		clone := r.Clone(r.Context())
		clone.Method, clone.URL.Path, clone.URL.RawPath = method, trimmed, strings.TrimSuffix(r.URL.RawPath, "/")
		if _, pattern := s.mux.Handler(clone); pattern != "" {
			to := clone.URL.EscapedPath()
			if r.URL.RawQuery != "" {
				to += "?" + r.URL.RawQuery
			}
			return to, true
		}
	}
	return "", false
}

// scratch takes an answer that nobody is to see.
type scratch struct {
	header http.Header
	status int
}

func (s *scratch) Header() http.Header         { return s.header }
func (s *scratch) Write(p []byte) (int, error) { return len(p), nil }
func (s *scratch) WriteHeader(status int)      { s.status = status }

// deadline bounds the next read or write on the connection, by the clock that
// connections go by whatever Now says; servers without deadlines have none.
func (s *server) deadline(set func(time.Time) error) {
	_ = set(time.Now().Add(s.cfg.Limits.IO))
}
