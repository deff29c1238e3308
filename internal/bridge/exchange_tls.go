package bridge

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/parley-project/parley"
)

// identityKey is the digest of certificate, key and CA; zero is that of agents
// without TLS settings of their own.
type identityKey [sha256.Size]byte

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
	e := &errand{agent: agent}
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

// transportFor gives the connection pool for target, a URL of agent.
func (x *Exchange) transportFor(agent parley.Agent, target *url.URL) (*http.Transport, error) {
	key := poolKey{scheme: target.Scheme, host: target.Host}
	switch {
	case target.Scheme != "https" && hasTLS(agent):
		return nil, (&errand{agent: agent}).errorf(parley.CodeInvalid, "the agent has TLS settings, and its URL is not https")
	case !hasTLS(agent):
		return x.pools.of(key, nil), nil
	}
	key.identity = identityOf(agent.Resolved)
	if pool := x.pools.get(key); pool != nil {
		return pool, nil
	}
	cfg, err := x.TLSConfig(agent)
	if err != nil {
		return nil, err
	}
	return x.pools.of(key, cfg), nil
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
