package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/parley-project/parley"
)

const (
	// tokenTimeout bounds one request to a token endpoint, maxTokenAnswer its
	// answer in bytes.
	tokenTimeout   = 10 * time.Second
	maxTokenAnswer = 64 << 10
	// maxTokens bounds the access tokens that are kept.
	maxTokens = 10_000
	// maxSkew is how long before its end a token is replaced, at most: a fifth
	// of its life otherwise. defaultLife is the life of one that does not tell
	// its own (RFC 6749 §5.1), maxLife of any.
	maxSkew     = 30 * time.Second
	defaultLife = time.Hour
	maxLife     = 24 * time.Hour
	// tokenPause is how long a token endpoint is left alone after it failed;
	// maxTokenPause bounds what it may wish for.
	tokenPause    = time.Second
	maxTokenPause = time.Minute
)

// tokens keeps the access tokens of all agents, each fetched once for all who
// need it at the same time. It may be used concurrently.
type tokens struct {
	fetch func(context.Context, tokenRequest) (accessToken, *tokenFailure)
	now   func() time.Time

	mu   sync.Mutex
	kept map[tokenKey]*tokenEntry // guarded by mu
}

// tokenKey is the digest of a tokenRequest.
type tokenKey [sha256.Size]byte

// tokenRequest is what a token is asked for with.
type tokenRequest struct {
	agent  string // its id, or else its name
	auth   parley.OAuth2
	secret string
}

func (r tokenRequest) key() tokenKey {
	b, _ := json.Marshal([]any{r.agent, r.auth, r.secret}) // strings always can be
	return sha256.Sum256(b)
}

// accessToken is a token and its times: from stale on it is replaced, from
// ends on it is not used any more.
type accessToken struct {
	value       string
	stale, ends time.Time
}

// tokenFailure says why there is no token, for all who wait for it.
type tokenFailure struct {
	text      string
	status    int
	retryable bool
	wait      time.Duration
}

type tokenEntry struct {
	mu     sync.Mutex
	token  accessToken  // guarded by mu, as all that follows
	flight *tokenFlight // the fetch under way, or nil
	failed *tokenFailure
	again  time.Time // until then failed stands
}

type tokenFlight struct {
	done   chan struct{} // closed when the others are set
	token  accessToken
	failed *tokenFailure
	// cut says that the caller who fetches went away, which concerns nobody
	// else.
	cut bool
}

// get gives a token that is not refused, which may be "". The failure is nil
// if ctx ended first; err is then its cause.
func (t *tokens) get(ctx context.Context, req tokenRequest, refused string) (string, *tokenFailure, error) {
	e := t.entry(req.key())
	for {
		token, failed, flight, lead := e.look(t.now(), refused)
		switch {
		case token != "":
			return token, nil, nil
		case failed != nil:
			return "", failed, nil
		case lead:
			t.lead(ctx, e, flight, req)
		default:
			select {
			case <-flight.done:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return "", nil, context.Cause(ctx)
		}
		if !flight.cut {
			return flight.token.value, flight.failed, nil
		}
	}
}

// look says what the entry has: a token, a failure, or the flight to wait for,
// or to lead.
func (e *tokenEntry) look(now time.Time, refused string) (token string, failed *tokenFailure, flight *tokenFlight, lead bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if refused != "" && e.token.value == refused {
		e.token = accessToken{}
	}
	held := now.Before(e.again)
	if t := e.token; t.value != "" {
		// A token that is about to end serves while the next one is fetched, or
		// cannot be had.
		if now.Before(t.stale) || now.Before(t.ends) && (e.flight != nil || held) {
			return t.value, nil, nil, false
		}
	}
	if held && e.failed != nil {
		return "", e.failed, nil, false
	}
	if e.flight == nil {
		e.flight, lead = &tokenFlight{done: make(chan struct{}), cut: true}, true
	}
	return "", nil, e.flight, lead
}

// lead fetches for all who wait.
func (t *tokens) lead(ctx context.Context, e *tokenEntry, f *tokenFlight, req tokenRequest) {
	defer close(f.done)
	defer func() { // also after a panic, or nobody would ever fetch again
		e.mu.Lock()
		defer e.mu.Unlock()
		e.flight = nil
		switch {
		case f.cut:
		case f.failed == nil:
			e.token, e.failed, e.again = f.token, nil, time.Time{}
		default:
			e.failed, e.again = f.failed, t.now().Add(min(max(f.failed.wait, tokenPause), maxTokenPause))
			if t.now().Before(e.token.ends) {
				f.token, f.failed = e.token, nil // the old one is still good
			}
		}
	}()
	f.token, f.failed = t.fetch(ctx, req)
	f.cut = ctx.Err() != nil && f.failed != nil
}

func (t *tokens) entry(key tokenKey) *tokenEntry {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.kept[key]; ok {
		return e
	}
	if len(t.kept) >= maxTokens {
		t.makeRoomLocked()
	}
	e := &tokenEntry{}
	t.kept[key] = e
	return e
}

// makeRoomLocked drops what has ended, and a tenth of the rest if that is not
// enough. Who holds a dropped entry goes on with it.
func (t *tokens) makeRoomLocked() {
	now := t.now()
	for key, e := range t.kept {
		e.mu.Lock()
		over := e.flight == nil && !now.Before(e.token.ends) && !now.Before(e.again)
		e.mu.Unlock()
		if over {
			delete(t.kept, key)
		}
	}
	for key := range t.kept {
		if len(t.kept) <= maxTokens-maxTokens/10 {
			return
		}
		delete(t.kept, key)
	}
}

// bearerToken gives the access token of an agent with OAuth2, another one than
// the header refused if that is not "".
func (x *Exchange) bearerToken(ctx context.Context, e *errand, refused string) (Authorization, error) {
	const scheme = "Bearer "
	auth := e.agent.Auth.OAuth2
	if auth == nil || auth.TokenURL == "" || auth.ClientID == "" {
		return Authorization{}, e.errorf(parley.CodeInvalid, "the agent's auth names no token endpoint or no client id")
	}
	secret := string(e.agent.Credential.Reveal())
	if secret == "" {
		return Authorization{}, e.errorf(parley.CodeAgentRejected, "the agent wants oauth2 authentication, and its client secret is empty")
	}
	req := tokenRequest{agent: e.agent.ID, auth: *auth, secret: secret}
	if req.agent == "" {
		req.agent = e.agent.Name
	}
	token, failed, err := x.tokens.get(ctx, req, strings.TrimPrefix(refused, scheme))
	if err == nil && failed == nil {
		if e.agent.Resolved != nil {
			e.agent.Resolved.Later.Add(parley.NewSecret([]byte(token)))
		}
		return Authorization{name: "Authorization", value: scheme + token}, nil
	}
	if failed == nil {
		failed = &tokenFailure{text: "the call was given up while a token was fetched", retryable: true}
	}
	code := parley.CodeAgentRejected
	if failed.retryable {
		code = parley.CodeAgentUnavailable
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		code, failed.retryable = parley.CodeCancelled, false
	}
	out := &ExchangeError{Disposition: NotSent, RetryAfter: failed.wait}
	out.Err = e.errorf(code, "%s; nothing was sent to the agent", Redact(e.agent, []byte(failed.text), maxErrorBody))
	out.Err.Retryable = failed.retryable
	return Authorization{}, out.with(errorDetails{TokenStatus: failed.status, RetryAfterMS: failed.wait.Milliseconds()})
}

// fetchToken asks a token endpoint once (RFC 6749 §4.4.2). It is reached as
// agents are: within the egress policy, without redirects. TLS settings of the
// agent are not for it.
func (x *Exchange) fetchToken(ctx context.Context, r tokenRequest) (accessToken, *tokenFailure) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	begun := x.now()
	req, err := x.tokenHTTP(r)
	if err != nil {
		return accessToken{}, &tokenFailure{text: err.Error()}
	}
	where := "POST " + place(req.URL) + " (the token endpoint): "
	pool := x.pools.of(poolKey{scheme: req.URL.Scheme, host: req.URL.Host}, nil)
	resp, err := pool.RoundTrip(req.WithContext(ctx))
	if err != nil {
		text := cause(err)
		if ctx.Err() != nil {
			text = fmt.Sprintf("no answer within %v", tokenTimeout)
		}
		return accessToken{}, &tokenFailure{text: where + text, retryable: !errors.Is(err, errEgress)}
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return accessToken{}, &tokenFailure{text: where + "HTTP 101, which nobody asked for", status: resp.StatusCode}
	}
	body, err := readBody(resp, maxTokenAnswer)
	if err != nil && resp.StatusCode/100 == 2 {
		return accessToken{}, &tokenFailure{text: where + "the answer could not be read: " + cause(err), status: resp.StatusCode, retryable: true}
	}
	token, failed := readToken(resp.StatusCode, body, begun)
	if failed != nil {
		failed.text = where + failed.text
		failed.wait = min(x.retryAfter(resp.Header), maxTokenPause)
		return accessToken{}, failed
	}
	if x.secretSeen != nil {
		x.secretSeen(parley.NewSecret([]byte(token.value)))
	}
	return token, nil
}

// tokenHTTP makes the request of a client-credentials grant.
func (x *Exchange) tokenHTTP(r tokenRequest) (*http.Request, error) {
	u, err := x.parseURL(r.auth.TokenURL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil {
		return nil, parley.Errorf(parley.CodeInvalid, "the token endpoint of the agent's auth is no plain http or https URL")
	}
	form := url.Values{"grant_type": {"client_credentials"}}
	if len(r.auth.Scopes) > 0 {
		form.Set("scope", strings.Join(r.auth.Scopes, " "))
	}
	if r.auth.Audience != "" {
		form.Set("audience", r.auth.Audience)
	}
	h := http.Header{
		"Content-Type": {"application/x-www-form-urlencoded"}, "Accept": x.jsonType, "User-Agent": x.userAgent,
	}
	if r.auth.Style == parley.OAuth2InBody {
		form.Set("client_id", r.auth.ClientID)
		form.Set("client_secret", r.secret)
	} else {
		// RFC 6749 §2.3.1 has both encoded as forms are, before RFC 7617 is.
		h.Set("Authorization", "Basic "+basicPair(url.QueryEscape(r.auth.ClientID), url.QueryEscape(r.secret)))
	}
	body := form.Encode()
	return &http.Request{
		Method: http.MethodPost, URL: u, Host: u.Host, Header: h, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}

// tokenAnswer is what a token endpoint answers (RFC 6749 §5.1, §5.2).
type tokenAnswer struct {
	AccessToken string          `json:"access_token"`
	TokenType   string          `json:"token_type"`
	ExpiresIn   json.RawMessage `json:"expires_in"`
	Error       string          `json:"error"`
	Description string          `json:"error_description"`
}

// readToken judges an answer to a request that began at begun. The texts are
// the server's words as far as they are not a token.
func readToken(status int, body []byte, begun time.Time) (accessToken, *tokenFailure) {
	var a tokenAnswer
	broken := json.Unmarshal(body, &a) != nil
	if status < 200 || status > 299 || a.Error != "" {
		return accessToken{}, a.refusal(status)
	}
	fail := func(text string) (accessToken, *tokenFailure) {
		return accessToken{}, &tokenFailure{text: fmt.Sprintf("HTTP %d, but %s", status, text), status: status}
	}
	switch {
	case broken:
		return fail("the answer is no JSON object of RFC 6749; check auth.token_url")
	case a.AccessToken == "":
		return fail("the answer holds no access_token; check auth.token_url")
	case a.TokenType != "" && !strings.EqualFold(a.TokenType, "bearer"):
		return fail("its tokens are not of type Bearer, and no other can be sent")
	case len(a.AccessToken) > maxTokenAnswer/4 || strings.Contains(a.AccessToken, " ") || !validValue(a.AccessToken):
		return fail("its token does not fit into a header")
	}
	life := a.life()
	skew := min(maxSkew, life/5)
	return accessToken{value: a.AccessToken, stale: begun.Add(life - skew), ends: begun.Add(life)}, nil
}

// life reads expires_in, which some servers write as a string.
func (a *tokenAnswer) life() time.Duration {
	text := strings.Trim(string(a.ExpiresIn), `"`)
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 1) { // nor is NaN
		return defaultLife
	}
	return time.Duration(min(n, maxLife.Seconds()) * float64(time.Second))
}

// refusal words an answer that holds no token.
func (a *tokenAnswer) refusal(status int) *tokenFailure {
	f := &tokenFailure{status: status}
	f.text = "HTTP " + strconv.Itoa(status)
	if name := http.StatusText(status); name != "" {
		f.text += " " + name
	}
	if said := words(a.Error, 64); said != "" {
		f.text += ", " + said
		if more := words(a.Description, 256); more != "" {
			f.text += " (" + more + ")"
		}
	}
	switch {
	case status == http.StatusTooManyRequests, status >= 500 && status <= 599, a.Error == "temporarily_unavailable", a.Error == "server_error":
		f.retryable = true
	case status >= 300 && status <= 399:
		f.text += "; redirects are not followed: give the address itself as auth.token_url"
	default:
		f.text += "; check the agent's auth: token_url, client_id, secret, scopes, audience and auth_style"
	}
	return f
}

// words gives what a stranger wrote as one line of at most limit bytes.
func words(s string, limit int) string {
	s = strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))), " ")
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}
