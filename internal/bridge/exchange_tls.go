package bridge

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/parley-project/parley"
)

const (
	// maxIdentities bounds the connection pools that belong to one TLS
	// identity each; identityIdle is how long an unused one is kept.
	maxIdentities = 1024
	identityIdle  = 10 * time.Minute
)

// identities holds a connection pool for each TLS identity: what an agent's
// certificate opened is never used for another one. It may be used
// concurrently.
type identities struct {
	make func(*tls.Config) *http.Transport
	now  func() time.Time

	mu    sync.Mutex
	pools map[identityKey]*identity // guarded by mu
}

// identityKey is the digest of certificate, key and CA.
type identityKey [sha256.Size]byte

type identity struct {
	pool *http.Transport
	used time.Time
}

// hasTLS reports whether agent has TLS settings of its own.
func hasTLS(agent parley.Agent) bool {
	return agent.TLS != (parley.AgentTLS{}) || agent.Auth.Type == parley.AuthMTLS
}

// TLSConfig gives the TLS settings for connections to agent: those of the
// Exchange, with the agent's client certificate and the CAs that it names in
// place of the system's. It is the caller's to change. Connections that were
// made with it are for this agent only, if it has [parley.AgentTLS].
//
// The error is a [*parley.Error] of code invalid: the certificate, its key or
// the CAs are missing or cannot be used.
func (x *Exchange) TLSConfig(agent parley.Agent) (*tls.Config, error) {
	cfg := x.tls.Clone()
	if cfg == nil {
		cfg = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if !hasTLS(agent) {
		return cfg, nil
	}
	e := errand{agent: agent}
	r := agent.Resolved
	if r == nil {
		r = &parley.ResolvedAuth{}
	}
	certified := agent.TLS.Cert != "" || agent.TLS.Key != "" || agent.Auth.Type == parley.AuthMTLS
	switch {
	case certified && (r.Cert.IsZero() || r.Key.IsZero()):
		return nil, e.errorf(parley.CodeInvalid, "the agent's client certificate or its key is missing: give tls.cert and tls.key")
	case agent.TLS.CA != "" && r.CA.IsZero():
		return nil, e.errorf(parley.CodeInvalid, "the certificates of tls.ca of the agent are missing")
	}
	if certified {
		pair, err := tls.X509KeyPair(r.Cert.Reveal(), r.Key.Reveal())
		if err != nil {
			// The texts of crypto/tls tell what is wrong, not what is in them.
			return nil, e.errorf(parley.CodeInvalid, "the agent's client certificate (tls.cert, tls.key) cannot be used: %w", err)
		}
		// Not Certificates: those are held back from a server that names other
		// CAs, and its refusal would not tell why.
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	if !r.CA.IsZero() {
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(r.CA.Reveal()) {
			return nil, e.errorf(parley.CodeInvalid, "tls.ca of the agent holds no certificate in PEM form")
		}
	}
	return cfg, nil
}

// transportFor gives the connection pool for a URL of agent with that scheme.
func (x *Exchange) transportFor(agent parley.Agent, scheme string) (*http.Transport, error) {
	switch {
	case scheme != "https" && hasTLS(agent):
		return nil, errand{agent: agent}.errorf(parley.CodeInvalid, "the agent has TLS settings, and its URL is not https")
	case scheme != "https":
		return x.plain, nil
	case !hasTLS(agent):
		return x.secure, nil
	}
	key := identityOf(agent.Resolved)
	if pool := x.identities.get(key); pool != nil {
		return pool, nil
	}
	cfg, err := x.TLSConfig(agent)
	if err != nil {
		return nil, err
	}
	return x.identities.add(key, cfg), nil
}

// identityOf digests what makes an identity; nil has nothing in it.
func identityOf(r *parley.ResolvedAuth) identityKey {
	h := sha256.New()
	if r != nil {
		for _, s := range []parley.Secret{r.Cert, r.Key, r.CA} {
			one := sha256.Sum256(s.Reveal())
			h.Write(one[:])
		}
	}
	return identityKey(h.Sum(nil))
}

func (s *identities) get(key identityKey) *http.Transport {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.pools[key]
	if i == nil {
		return nil
	}
	i.used = s.now()
	return i.pool
}

// add makes the pool of key, unless another one was first.
func (s *identities) add(key identityKey, cfg *tls.Config) *http.Transport {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if i := s.pools[key]; i != nil {
		i.used = now
		return i.pool
	}
	s.makeRoomLocked(now)
	i := &identity{pool: s.make(cfg), used: now}
	s.pools[key] = i
	return i.pool
}

// makeRoomLocked drops the pools that nobody used for long, such as those of
// certificates that were replaced, and the oldest one if there are too many.
// Exchanges under way go on.
func (s *identities) makeRoomLocked(now time.Time) {
	var oldest identityKey
	first := now
	for key, i := range s.pools {
		if now.Sub(i.used) > identityIdle {
			i.pool.CloseIdleConnections()
			delete(s.pools, key)
			continue
		}
		if !i.used.After(first) {
			oldest, first = key, i.used
		}
	}
	if len(s.pools) >= maxIdentities {
		s.pools[oldest].pool.CloseIdleConnections()
		delete(s.pools, oldest)
	}
}

func (s *identities) closeIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.pools {
		i.pool.CloseIdleConnections()
	}
}

// certificateRefused reports whether a server ended the connection over the
// client's certificate. With TLS 1.3 it says so only after the request was
// written; it has read nothing of it then (RFC 8446 §4.4.2.4, §6.2).
func certificateRefused(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "remote error" || op.Err == nil {
		return false
	}
	// The type of an alert is not exported; its text is all there is.
	switch strings.TrimPrefix(op.Err.Error(), "tls: ") {
	case "bad certificate", "unsupported certificate", "revoked certificate", "expired certificate", "unknown certificate",
		"unknown certificate authority", "access denied", "certificate required":
		return true
	}
	return false
}

// untrusted reports whether it was the server's certificate.
func untrusted(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok
}
