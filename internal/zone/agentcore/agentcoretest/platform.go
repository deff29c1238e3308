package agentcoretest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"
)

// MaxPayload is the largest request that the platform takes.
const MaxPayload = 100_000_000

// Config is what a Platform is made of. RuntimeARN and one of Container and NewVM
// are required.
type Config struct {
	// Verifier checks the signatures of callers, unless Bearer is there, which then
	// checks their tokens.
	Verifier Verifier
	Bearer   func(token string) error
	// RuntimeARN and Qualifier are the runtime and its endpoint; "" is DEFAULT.
	RuntimeARN, Qualifier string
	// Container answers POST /invocations of every session. NewVM makes a container
	// for each session, which StopRuntimeSession ends.
	Container http.Handler
	NewVM     func(session string) http.Handler
}

// A Call is a request that the platform believed.
type Call struct {
	Session string
	Header  http.Header
	Bytes   int
}

// Platform is an http.Handler for what the data plane of AgentCore has for
// runtimes.
type Platform struct {
	cfg Config

	mu       sync.Mutex // guards the following
	faults   []Fault
	calls    []Call
	stopped  []string
	vms      map[string]http.Handler
	refused  []error
	requests int
}

// New returns a Platform.
func New(cfg Config) *Platform {
	if cfg.Verifier.Now == nil {
		cfg.Verifier.Now = time.Now
	}
	return &Platform{cfg: cfg, vms: make(map[string]http.Handler)}
}

// Fail lets the next invocations fail, one with each of faults.
func (p *Platform) Fail(faults ...Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, faults...)
}

// Calls gives the invocations that were believed, in their order.
func (p *Platform) Calls() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Call(nil), p.calls...)
}

// Stopped gives the sessions that were stopped, and Refused why callers were not
// believed.
func (p *Platform) Stopped() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.stopped...)
}

// Refused tells why callers were not believed.
func (p *Platform) Refused() []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]error(nil), p.refused...)
}

// ServeHTTP answers like the platform.
func (p *Platform) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.requests++
	w.Header().Set("X-Amzn-Requestid", fmt.Sprintf("platform-%d", p.requests))
	p.mu.Unlock()
	body, err := io.ReadAll(io.LimitReader(r.Body, MaxPayload+1))
	if err != nil {
		return // the caller is gone
	}
	if err := p.believe(r, body); err != nil {
		p.mu.Lock()
		p.refused = append(p.refused, err)
		p.mu.Unlock()
		if p.cfg.Bearer != nil {
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="https://example.com/.well-known/oauth-protected-resource"`)
			fail(w, http.StatusUnauthorized, "UnauthorizedException", "no")
			return
		}
		fail(w, http.StatusForbidden, "InvalidSignatureException", err.Error())
		return
	}
	operation, ok := strings.CutPrefix(r.URL.EscapedPath(), "/runtimes/"+url.QueryEscape(p.cfg.RuntimeARN)+"/")
	switch {
	case !ok, p.qualifier() != cmpOr(r.URL.Query().Get("qualifier"), "DEFAULT"):
		fail(w, http.StatusNotFound, "ResourceNotFoundException", "no such runtime or endpoint")
	case len(body) > MaxPayload:
		fail(w, http.StatusRequestEntityTooLarge, "ValidationException", "too large")
	case r.Method == http.MethodPost && operation == "invocations":
		p.invoke(w, r, body)
	case r.Method == http.MethodPost && operation == "stopruntimesession":
		p.stop(w, r)
	default:
		fail(w, http.StatusNotFound, "UnknownOperationException", "no such operation")
	}
}

func (p *Platform) qualifier() string { return cmpOr(p.cfg.Qualifier, "DEFAULT") }

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func (p *Platform) believe(r *http.Request, body []byte) error {
	if p.cfg.Bearer == nil {
		return p.cfg.Verifier.Verify(r, body)
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return fmt.Errorf("no bearer token")
	}
	return p.cfg.Bearer(token)
}

var sessionForm = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_-]{32,99}$`)

func (p *Platform) invoke(w http.ResponseWriter, r *http.Request, body []byte) {
	session := r.Header.Get(sessionHeader)
	switch {
	case !sessionForm.MatchString(session):
		fail(w, http.StatusBadRequest, "ValidationException", "the session id must have 33 to 100 characters")
		return
	case r.Header.Get("Content-Type") != "application/json":
		fail(w, http.StatusUnsupportedMediaType, "ValidationException", "the content type must be application/json")
		return
	}
	fault, vm := p.begin(session, r, len(body))
	if fault != nil && !fault.AfterWork {
		fault.serve(w, r, nil)
		return
	}
	answer := httptest.NewRecorder()
	vm.ServeHTTP(answer, inside(r, body))
	if fault != nil {
		fault.serve(w, r, answer.Body.Bytes())
		return
	}
	w.Header().Set(sessionHeader, session)
	out := answer.Body.Bytes()
	if answer.Code >= 400 && !isResponse(out) {
		fail(w, http.StatusFailedDependency, "RuntimeClientError", fmt.Sprintf("Received error (%d) from runtime", answer.Code))
		return
	}
	w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
	w.WriteHeader(answer.Code)
	_, _ = w.Write(out)
}

// begin notes a call, and says what becomes of it.
func (p *Platform) begin(session string, r *http.Request, n int) (*Fault, http.Handler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, Call{Session: session, Header: r.Header.Clone(), Bytes: n})
	var fault *Fault
	if len(p.faults) > 0 {
		fault = &p.faults[0]
		p.faults = p.faults[1:]
	}
	if p.cfg.NewVM == nil {
		return fault, p.cfg.Container
	}
	vm := p.vms[session]
	if vm == nil {
		vm = p.cfg.NewVM(session)
		p.vms[session] = vm
	}
	return fault, vm
}

// inside is the request as the container gets it (zones.md §2).
func inside(r *http.Request, body []byte) *http.Request {
	in := httptest.NewRequestWithContext(r.Context(), http.MethodPost, "/invocations", bytes.NewReader(body))
	for name, values := range r.Header {
		lower := strings.ToLower(name)
		if lower == "content-type" || lower == "accept" || lower == "traceparent" || lower == "tracestate" || lower == "baggage" ||
			lower == strings.ToLower(sessionHeader) || strings.HasPrefix(lower, "x-amzn-bedrock-agentcore-runtime-custom-") {
			in.Header[name] = values
		}
	}
	return in
}

func (p *Platform) stop(w http.ResponseWriter, r *http.Request) {
	session := r.Header.Get(sessionHeader)
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.vms[session] != nil
	for _, c := range p.calls {
		known = known || c.Session == session
	}
	if !known {
		fail(w, http.StatusNotFound, "ResourceNotFoundException", "no such session")
		return
	}
	maps.DeleteFunc(p.vms, func(s string, _ http.Handler) bool { return s == session })
	p.stopped = append(p.stopped, session)
	w.Header().Set(sessionHeader, session)
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, "{}")
}

func isResponse(body []byte) bool {
	var w struct {
		JSONRPC string `json:"jsonrpc"`
	}
	return json.Unmarshal(body, &w) == nil && w.JSONRPC == "2.0"
}

// fail answers like the platform does for itself.
func fail(w http.ResponseWriter, status int, kind, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Amzn-Errortype", kind+":http://internal.amazon.com/coral/com.amazon.bedrock/")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": message})
}
