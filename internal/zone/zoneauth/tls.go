package zoneauth

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"
)

// PEM gives the text of a certificate or a key, such as the content of a file. It
// is called again now and then, so that what was renewed is used.
type PEM func() ([]byte, error)

// ServerTLS says what an Execution Zone shows and wants to see.
type ServerTLS struct {
	// Cert is the certificate with its chain, Key its key.
	Cert, Key PEM
	// ClientCA are the certificates that those of callers must be signed by; nil
	// takes callers without certificate.
	ClientCA PEM
	// Now is the clock; default time.Now.
	Now func() time.Time
}

// ClientTLS says what a Verification Zone shows and wants to see.
type ClientTLS struct {
	// CA are the certificates that the server's must be signed by; nil is those of
	// the system. It is read once.
	CA PEM
	// Cert and Key are the client's certificate, both or neither.
	Cert, Key PEM
	// ServerName is the name that the server's certificate must have; default is
	// that of the URL.
	ServerName string
	// Now is the clock; default time.Now.
	Now func() time.Time
}

// Config returns the configuration of a server, TLS 1.2 and later. What is
// replaced later and is not in order changes nothing: the old one stays.
func (s ServerTLS) Config() (*tls.Config, error) {
	if s.Cert == nil || s.Key == nil {
		return nil, errors.New("zone: tls needs cert and key")
	}
	p := &pair{cert: s.Cert, key: s.Key, ca: s.ClientCA, now: s.Now}
	if err := p.load(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			cert, pool := p.current()
			cfg := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, Certificates: []tls.Certificate{*cert}}
			if pool != nil {
				cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, pool
			}
			return cfg, nil
		},
	}, nil
}

// Config returns the configuration of a client, TLS 1.2 and later.
func (c ClientTLS) Config() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName}
	if c.CA != nil {
		text, err := c.CA()
		if err != nil {
			return nil, fmt.Errorf("zone: tls ca: %w", err)
		}
		if cfg.RootCAs, err = poolOf(text); err != nil {
			return nil, fmt.Errorf("zone: tls ca: %w", err)
		}
	}
	if (c.Cert == nil) != (c.Key == nil) {
		return nil, errors.New("zone: tls needs cert and key, or neither")
	}
	if c.Cert == nil {
		return cfg, nil
	}
	p := &pair{cert: c.Cert, key: c.Key, now: c.Now}
	if err := p.load(); err != nil {
		return nil, err
	}
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		cert, _ := p.current()
		return cert, nil
	}
	return cfg, nil
}

// reloadAfter is how long what was read is used without looking again.
const reloadAfter = 5 * time.Second

// pair is a certificate with its key, and the authorities of the other side, that
// may be replaced at any time.
type pair struct {
	cert, key, ca PEM // ca may be nil
	now           func() time.Time

	mu     sync.Mutex // guards the following
	looked time.Time
	text   []byte // what the following was made of
	loaded *tls.Certificate
	pool   *x509.CertPool
}

func (p *pair) current() (*tls.Certificate, *x509.CertPool) {
	p.mu.Lock()
	due := p.clock().Sub(p.looked) >= reloadAfter
	p.mu.Unlock()
	if due {
		// What is half written is in order at the next look.
		_ = p.load()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loaded, p.pool
}

func (p *pair) clock() time.Time {
	if p.now == nil {
		return time.Now()
	}
	return p.now()
}

// load reads everything and takes it if it is in order.
func (p *pair) load() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looked = p.clock()
	cert, err := p.cert()
	if err != nil {
		return fmt.Errorf("zone: tls cert: %w", err)
	}
	key, err := p.key()
	if err != nil {
		return fmt.Errorf("zone: tls key: %w", err)
	}
	var ca []byte
	if p.ca != nil {
		if ca, err = p.ca(); err != nil {
			return fmt.Errorf("zone: tls client_ca: %w", err)
		}
	}
	text := bytes.Join([][]byte{cert, key, ca}, []byte{0})
	if p.loaded != nil && bytes.Equal(text, p.text) {
		return nil
	}
	loaded, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("zone: tls cert and key: %w", err)
	}
	var pool *x509.CertPool
	if p.ca != nil {
		if pool, err = poolOf(ca); err != nil {
			return fmt.Errorf("zone: tls client_ca: %w", err)
		}
	}
	p.text, p.loaded, p.pool = text, &loaded, pool
	return nil
}

func poolOf(text []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("no certificate in PEM form")
	}
	return pool, nil
}
