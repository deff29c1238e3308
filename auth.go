package parley

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"slices"
	"sync"
)

// AuthType is how an agent is authenticated against.
type AuthType string

// The kinds of authentication (formats.md has the first three).
const (
	AuthNone   AuthType = "none"
	AuthBearer AuthType = "bearer"
	AuthAPIKey AuthType = "apikey"
	// AuthHeader sends the credential as the value of one header.
	AuthHeader AuthType = "header"
	// AuthHeaders sends several headers, each with a credential of its own.
	AuthHeaders AuthType = "headers"
	// AuthBasic sends a user name and a password (RFC 7617).
	AuthBasic AuthType = "basic"
	// AuthOAuth2 gets access tokens with client credentials (RFC 6749 §4.4) and
	// sends them as bearer tokens.
	AuthOAuth2 AuthType = "oauth2"
	// AuthMTLS sends nothing: the client certificate of [AgentTLS] is all.
	AuthMTLS AuthType = "mtls"
)

// AuthTypes gives all kinds of authentication, in the order in which texts name
// them.
func AuthTypes() []AuthType {
	return []AuthType{AuthNone, AuthBearer, AuthAPIKey, AuthBasic, AuthHeader, AuthHeaders, AuthOAuth2, AuthMTLS}
}

// AuthPlace is where a request carries the key of [AuthAPIKey].
type AuthPlace string

// The places of a key, as A2A security schemes name them.
const (
	InHeader AuthPlace = "header"
	InQuery  AuthPlace = "query"
	InCookie AuthPlace = "cookie"
)

// Auth names the credentials that are sent to an agent, never the credentials
// themselves. What names one is a reference: "env:NAME", "file:path", or
// "sealed:…", a literal that the registry has encrypted.
type Auth struct {
	Type AuthType
	// Header names what carries the credential of AuthAPIKey (default
	// X-API-Key) and AuthHeader. With In it may be a query parameter or a
	// cookie.
	Header string
	// Secret refers to the token, the key, the password of AuthBasic or the
	// client secret of AuthOAuth2.
	Secret string
	// In is where AuthAPIKey sends the key; "" is InHeader.
	In AuthPlace
	// User is the user name of AuthBasic.
	User string
	// Headers are those of AuthHeaders: references by the names of headers.
	Headers map[string]string
	// OAuth2 belongs to AuthOAuth2, else it is nil.
	OAuth2 *OAuth2
}

// OAuth2 says where and how access tokens are had by client credentials
// (RFC 6749 §4.4).
type OAuth2 struct {
	// TokenURL is the token endpoint.
	TokenURL string `json:"token_url"`
	ClientID string `json:"client_id"`
	// Scopes and Audience are asked for if they are given. Audience is no part
	// of the RFC, but several servers want it.
	Scopes   []string `json:"scopes,omitempty"`
	Audience string   `json:"audience,omitempty"`
	// Style is how the client shows its secret: OAuth2InHeader, which "" is
	// too, or OAuth2InBody (RFC 6749 §2.3.1).
	Style string `json:"auth_style,omitempty"`
}

// The styles of [OAuth2].
const (
	OAuth2InHeader = "header"
	OAuth2InBody   = "body"
)

// AgentTLS names what TLS connections to an agent use; each member is a
// reference to PEM text, or "".
type AgentTLS struct {
	// Cert and Key are the client certificate, with its chain, and its key:
	// both or neither.
	Cert, Key string
	// CA holds the certificates that the agent's has to be signed by, in place
	// of those of the system.
	CA string
}

// ResolvedAuth holds the resolved secrets of one agent besides
// [Agent.Credential]. It is not changed after it was made, but for Later.
type ResolvedAuth struct {
	// Headers are the values of Auth.Headers by their names.
	Headers map[string]Secret
	// Cert, Key and CA are those of AgentTLS, as PEM text.
	Cert, Key, CA Secret
	// Later remembers secrets that came up while the agent was called, such as
	// access tokens, so that they are kept out of what it says.
	Later SecretSet
}

// Digest tells what an agent is called with from what it was called with before, when a
// secret has changed behind its reference: a SHA-256 over the headers, the certificate, the
// key and the CA, and nothing of Later. That of nil is zero.
func (r *ResolvedAuth) Digest() (digest [sha256.Size]byte) {
	if r == nil {
		return digest
	}
	h := sha256.New()
	part := func(b []byte) {
		one := sha256.Sum256(b)
		h.Write(one[:])
	}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		part([]byte(name))
		part(r.Headers[name].Reveal())
	}
	for _, s := range []Secret{r.Cert, r.Key, r.CA} {
		part(s.Reveal())
	}
	h.Sum(digest[:0])
	return digest
}

// maxSecretSet bounds a [SecretSet]: the newest are the ones in use.
const maxSecretSet = 8

// SecretSet remembers the newest 8 secrets. Its methods may be called
// concurrently; the zero value is empty.
type SecretSet struct {
	mu   sync.Mutex
	kept []Secret // guarded by mu
}

// Add remembers secret, once; an empty one is none.
func (s *SecretSet) Add(secret Secret) {
	if secret.IsZero() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.kept, func(k Secret) bool { return bytes.Equal(k.Reveal(), secret.Reveal()) }) {
		return
	}
	if len(s.kept) == maxSecretSet {
		s.kept = slices.Delete(s.kept, 0, 1)
	}
	s.kept = append(s.kept, secret)
}

// All gives what is remembered.
func (s *SecretSet) All() []Secret {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.kept)
}
