package bridge

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/parley-project/parley"
)

// Authorization is what one request carries to prove who sends it: headers, or
// a parameter of the URL. It is for the transport that asked for it and prints
// itself as "[redacted]".
type Authorization struct {
	// name and value are the one header that most kinds have.
	name, value string
	more        []header
	// query is an encoded parameter, or "".
	query string
}

// header is one header with its one value.
type header struct{ name, value string }

// Authorize gives what authenticates one call of agent, whatever the
// transport. For [parley.AuthOAuth2] that may take a request to the token
// endpoint, of at most 10 s; everything else takes no time. agent.TLS is not
// its business: see [Exchange.TLSConfig].
//
// The error is an [*ExchangeError] of disposition NotSent if no access token
// can be had, else a [*parley.Error]: there is no credential, or one that a
// request cannot carry.
func (x *Exchange) Authorize(ctx context.Context, task parley.Task, agent parley.Agent) (Authorization, error) {
	return x.authorize(ctx, &errand{task, agent})
}

// authorize is Authorize for an errand.
func (x *Exchange) authorize(ctx context.Context, e *errand) (Authorization, error) {
	var auth Authorization
	var err error
	if e.agent.Auth.Type == parley.AuthOAuth2 {
		auth, err = x.bearerToken(ctx, e, "")
	} else {
		auth, err = e.authorization()
	}
	if err == nil {
		// The last thing before a request is sent, whatever took its time.
		err = guarded(ctx, e)
	}
	return auth, err
}

// Renew is for an answer 401 to a request that carried refused: the agent has
// executed nothing then. It gives what to send the request once more with, and
// true; or false if there is nothing better, and the answer stands. A second
// 401 is not for it. With OAuth2 the access token is fetched anew, and secrets
// in files are read again; other credentials cannot change by themselves.
//
// The error is an [*ExchangeError] as of [Exchange.Authorize].
func (x *Exchange) Renew(ctx context.Context, task parley.Task, agent parley.Agent, refused Authorization) (Authorization, bool, error) {
	if x.renew != nil && readsFiles(agent) {
		fresh, err := x.renew(ctx, agent)
		if err == nil {
			remember(agent, fresh)
			agent = fresh
		}
	}
	var next Authorization
	var err error
	e := &errand{task, agent}
	if agent.Auth.Type == parley.AuthOAuth2 {
		next, err = x.bearerToken(ctx, e, refused.value)
	} else {
		next, err = e.authorization()
	}
	if err != nil || next.equal(refused) {
		return Authorization{}, false, err
	}
	if err := guarded(ctx, e); err != nil {
		return Authorization{}, false, err
	}
	return next, true, nil
}

// authorized sends by way of send, and once more with a renewed credential if
// the answer is 401.
func (p *post) authorized(send func(*post) (*http.Response, error)) (*http.Response, error) {
	resp, err := send(p)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}
	ctx, cancel := context.WithDeadline(p.inner, p.due)
	defer cancel()
	next, ok, err := p.x.Renew(ctx, p.task, p.agent, p.auth)
	if err == nil && !ok {
		return resp, nil
	}
	// To its end, so that the connection can be used again.
	_, _ = readBody(resp, maxRefusal)
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	p.url, p.header = next.URL(p.target), maps.Clone(p.header)
	next.SetHeader(p.header)
	return send(p)
}

// readsFiles reports whether a credential that requests carry comes from a
// file.
func readsFiles(agent parley.Agent) bool {
	isFile := func(ref string) bool { return strings.HasPrefix(ref, "file:") }
	if isFile(agent.Auth.Secret) {
		return true
	}
	for _, ref := range agent.Auth.Headers {
		if isFile(ref) {
			return true
		}
	}
	return false
}

// remember keeps the secrets of fresh out of what is said about agent.
func remember(agent, fresh parley.Agent) {
	if agent.Resolved == nil {
		return
	}
	agent.Resolved.Later.Add(fresh.Credential)
	if fresh.Resolved == nil || fresh.Resolved == agent.Resolved {
		return
	}
	for _, s := range fresh.Resolved.Headers {
		agent.Resolved.Later.Add(s)
	}
}

func (a Authorization) equal(b Authorization) bool {
	return a.name == b.name && a.value == b.value && a.query == b.query && slices.Equal(a.more, b.more)
}

// SetHeader puts the headers into h, where a cookie is one of them.
func (a Authorization) SetHeader(h http.Header) {
	if a.name != "" {
		h[a.name] = []string{a.value}
	}
	for _, m := range a.more {
		h[m.name] = []string{m.value}
	}
}

// URL gives u with the parameter that authenticates, or u itself if there is
// none. u is not changed. The result is for the request only: it is a secret.
func (a Authorization) URL(u *url.URL) *url.URL {
	if a.query == "" {
		return u
	}
	c := *u
	if c.RawQuery != "" {
		c.RawQuery += "&"
	}
	c.RawQuery += a.query
	return &c
}

// InURL reports whether the credential is a part of the URL, which a transport
// without requests of HTTP cannot carry.
func (a Authorization) InURL() bool { return a.query != "" }

// Format writes "[redacted]" whatever the verb.
func (a Authorization) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redactedMark)) }

// authorization gives what the record and its resolved secrets say.
func (e *errand) authorization() (Authorization, error) {
	auth := &e.agent.Auth
	switch auth.Type {
	case "", parley.AuthNone, parley.AuthMTLS:
		return Authorization{}, nil
	case parley.AuthBearer:
		return e.oneHeader("Authorization", "Bearer ")
	case parley.AuthAPIKey:
		return e.key()
	case parley.AuthHeader:
		return e.oneHeader(auth.Header, "")
	case parley.AuthHeaders:
		return e.headers()
	case parley.AuthBasic:
		return e.basic()
	}
	return Authorization{}, e.errorf(parley.CodeInvalid, "the agent's auth type %q is unknown", auth.Type)
}

// secret gives the credential, which a header can carry.
func (e *errand) secret() (string, error) {
	return e.carried(e.agent.Credential, "credential")
}

// carried gives what is called so of the agent, if a header can carry it.
func (e *errand) carried(s parley.Secret, called string) (string, error) {
	value := string(s.Reveal())
	if value == "" {
		return "", e.errorf(parley.CodeAgentRejected, "the agent wants %s authentication, and its %s is empty", e.agent.Auth.Type, called)
	}
	if !validValue(value) {
		return "", e.errorf(parley.CodeInvalid, "the agent's %s holds characters that a header cannot (a line end?)", called)
	}
	return value, nil
}

func (e *errand) oneHeader(name, prefix string) (Authorization, error) {
	if err := e.mayUse(name); err != nil {
		return Authorization{}, err
	}
	value, err := e.secret()
	if err != nil {
		return Authorization{}, err
	}
	return Authorization{name: name, value: prefix + value}, nil
}

func (e *errand) mayUse(name string) error {
	if !validName(name) || reserved(name) {
		return e.errorf(parley.CodeInvalid, "the agent's auth cannot use the header %q", name)
	}
	return nil
}

// key puts the key where its scheme says.
func (e *errand) key() (Authorization, error) {
	auth := e.agent.Auth
	switch auth.In {
	case "", parley.InHeader:
		if auth.Header == "" {
			auth.Header = "X-API-Key"
		}
		return e.oneHeader(auth.Header, "")
	case parley.InQuery, parley.InCookie:
	default:
		return Authorization{}, e.errorf(parley.CodeInvalid, "the agent's auth sends its key in %q; it must be header, query or cookie", auth.In)
	}
	value, err := e.secret()
	switch {
	case err != nil:
		return Authorization{}, err
	case auth.Header == "":
		return Authorization{}, e.errorf(parley.CodeInvalid, "the agent's auth does not name the %s that carries the key", auth.In)
	case auth.In == parley.InQuery:
		return Authorization{query: url.QueryEscape(auth.Header) + "=" + url.QueryEscape(value)}, nil
	case !validName(auth.Header) || strings.ContainsAny(value, " \t\",;\\"):
		// RFC 6265 §4.1.1.
		return Authorization{}, e.errorf(parley.CodeInvalid, "the agent's key, or its name %q, holds characters that a cookie cannot", auth.Header)
	}
	return Authorization{name: "Cookie", value: auth.Header + "=" + value}, nil
}

func (e *errand) headers() (Authorization, error) {
	var a Authorization
	if len(e.agent.Auth.Headers) == 0 {
		return a, e.errorf(parley.CodeInvalid, "the agent's auth names no headers")
	}
	for _, name := range slices.Sorted(maps.Keys(e.agent.Auth.Headers)) {
		if err := e.mayUse(name); err != nil {
			return a, err
		}
		var secret parley.Secret
		if e.agent.Resolved != nil {
			secret = e.agent.Resolved.Headers[name]
		}
		value, err := e.carried(secret, fmt.Sprintf("header %q", name))
		if err != nil {
			return a, err
		}
		a.more = append(a.more, header{name, value})
	}
	return a, nil
}

func (e *errand) basic() (Authorization, error) {
	if strings.Contains(e.agent.Auth.User, ":") || !validValue(e.agent.Auth.User) {
		return Authorization{}, e.errorf(parley.CodeInvalid, "the agent's auth has a user name that basic authentication cannot carry (a colon?)")
	}
	value, err := e.secret()
	if err != nil {
		return Authorization{}, err
	}
	return Authorization{name: "Authorization", value: "Basic " + basicPair(e.agent.Auth.User, value)}, nil
}

// basicPair is RFC 7617 §2.
func basicPair(user, password string) string {
	return base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
}

// secretsOf gives the secrets of agent that may come back in what it says, in
// the forms in which requests carry them.
func secretsOf(agent parley.Agent) [][]byte {
	var all [][]byte
	if s := agent.Credential.Reveal(); len(s) > 0 {
		all = append(all, s)
		encoded := url.QueryEscape(string(s))
		switch o := agent.Auth.OAuth2; {
		case agent.Auth.Type == parley.AuthBasic:
			all = append(all, []byte(basicPair(agent.Auth.User, string(s))))
		case o != nil:
			all = append(all, []byte(encoded), []byte(basicPair(url.QueryEscape(o.ClientID), encoded)))
		case agent.Auth.In == parley.InQuery:
			all = append(all, []byte(encoded))
		}
	}
	if s := agent.CallSecret.Reveal(); len(s) > 0 {
		all = append(all, s)
	}
	if agent.Resolved == nil {
		return all
	}
	for _, s := range agent.Resolved.Headers {
		all = append(all, s.Reveal())
	}
	for _, s := range agent.Resolved.Later.All() {
		all = append(all, s.Reveal())
	}
	return slices.DeleteFunc(all, func(s []byte) bool { return len(s) == 0 })
}
