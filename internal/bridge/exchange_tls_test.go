package bridge_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// authority is a certificate authority of a test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
	next int64
}

func newAuthority(t *testing.T, name string) *authority {
	a := &authority{t: t, next: 1}
	a.cert, a.key, a.pem, _ = a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// issue signs a certificate, by itself if there is none yet.
func (a *authority) issue(template *x509.Certificate) (cert *x509.Certificate, key *ecdsa.PrivateKey, certPEM, keyPEM []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check := func(err error) {
		if err != nil {
			a.t.Fatal(err)
		}
	}
	check(err)
	a.next++
	template.SerialNumber = big.NewInt(a.next)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	template.NotBefore = template.NotAfter.Add(-2 * time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	check(err)
	cert, err = x509.ParseCertificate(der)
	check(err)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	check(err)
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

func (a *authority) server() tls.Certificate {
	a.t.Helper()
	_, _, certPEM, keyPEM := a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "agent"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		a.t.Fatal(err)
	}
	return pair
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// client gives an agent whose record has a client certificate of that name.
func (a *authority) client(name string, servers *authority, change ...func(*x509.Certificate)) parley.Agent {
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, c := range change {
		c(template)
	}
	_, _, certPEM, keyPEM := a.issue(template)
	return parley.Agent{
		Name: name, Auth: parley.Auth{Type: parley.AuthMTLS},
		TLS:      parley.AgentTLS{Cert: "file:cert", Key: "file:key", CA: "file:ca"},
		Resolved: &parley.ResolvedAuth{Cert: parley.NewSecret(certPEM), Key: parley.NewSecret(keyPEM), CA: parley.NewSecret(servers.pem)},
	}
}

// tlsAgent answers with the name in the client's certificate and remembers
// which connection came from whom.
func tlsAgent(t *testing.T, servers, clients *authority, h2 bool) (address string, peers func() map[string][]string) {
	t.Helper()
	var mu sync.Mutex
	seen := map[string][]string{}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.TLS.PeerCertificates[0].Subject.CommonName
		mu.Lock()
		defer mu.Unlock()
		if !slices.Contains(seen[r.RemoteAddr], name) {
			seen[r.RemoteAddr] = append(seen[r.RemoteAddr], name)
		}
		_, _ = fmt.Fprintf(w, "%q", name)
	}))
	s.EnableHTTP2 = h2
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients.pool(), Certificates: []tls.Certificate{servers.server()}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL, func() map[string][]string { mu.Lock(); defer mu.Unlock(); return seen }
}

// TestMTLS: each agent shows its own certificate, over connections of its own,
// and an authentication besides.
func TestMTLS(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2=%v", h2), func(t *testing.T) {
			servers, clients := newAuthority(t, "servers"), newAuthority(t, "clients")
			address, peers := tlsAgent(t, servers, clients, h2)
			x := newExchange(t, loopback())
			ann, bob := clients.client("ann", servers), clients.client("bob", servers)
			bob.Auth, bob.Credential = parley.Auth{Type: parley.AuthBearer}, secretOf("tok")
			for range 3 {
				for _, agent := range []parley.Agent{ann, bob} {
					agent.URL = address
					reply, err := x.Post(t.Context(), testTask(), agent, []byte("{}"))
					if err != nil || string(reply.Body) != `"`+agent.Name+`"` {
						t.Fatalf("%s: %s, %v", agent.Name, reply.Body, err)
					}
				}
			}
			seen := peers()
			if len(seen) != 2 {
				t.Errorf("%d connections for two agents: %v", len(seen), seen)
			}
			for from, names := range seen {
				if len(names) != 1 {
					t.Errorf("connection %s was used by %v", from, names)
				}
			}
		})
	}
}

// TestMTLSFails: a connection without the right certificates on both sides
// carries nothing, and the error says whose is wrong.
func TestMTLSFails(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2=%v", h2), func(t *testing.T) { testMTLSFails(t, h2) })
	}
}

func testMTLSFails(t *testing.T, h2 bool) {
	servers, clients, others := newAuthority(t, "servers"), newAuthority(t, "clients"), newAuthority(t, "others")
	address, peers := tlsAgent(t, servers, clients, h2)
	plain := clients.client("ann", servers)
	plain.Resolved = &parley.ResolvedAuth{CA: plain.Resolved.CA}
	plain.Auth, plain.TLS = parley.Auth{}, parley.AgentTLS{CA: "file:ca"}
	for name, tt := range map[string]struct {
		agent parley.Agent
		text  string
	}{
		"no certificate":      {plain, "wants another client certificate"},
		"of another CA":       {others.client("eve", servers), "wants another client certificate"},
		"expired":             {clients.client("old", servers, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), "wants another client certificate"},
		"server's is unknown": {clients.client("ann", others), "tls.ca of the agent's record"},
	} {
		t.Run(name, func(t *testing.T) {
			// The server's socket is closed with the request unread, which may
			// reset the connection before its alert is read.
			x := newExchange(t, bridge.ExchangeConfig{DialContext: dialSlowly})
			tt.agent.URL = address
			_, err := x.Post(t.Context(), testTask(), tt.agent, []byte("{}"))
			e, ok := errors.AsType[*bridge.ExchangeError](err)
			if !ok || e.Disposition != bridge.NotSent || !strings.Contains(e.Err.Message, tt.text) {
				t.Errorf("%+v, want %s", err, tt.text)
			}
		})
	}
	if len(peers()) != 0 {
		t.Errorf("requests came through: %v", peers())
	}
}

// slowConn lets the other side speak before each write after the handshake.
type slowConn struct {
	net.Conn
	writes int
}

// dialSlowly gives connections on which a server's refusal is there before the
// request is written.
func dialSlowly(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	return &slowConn{Conn: c}, err
}

func (c *slowConn) Write(p []byte) (int, error) {
	if c.writes++; c.writes > 2 { // ClientHello, then the end of the handshake
		return len(p), nil // on its way, and never read
	}
	return c.Conn.Write(p)
}

// TestTLSConfig: what is not a usable identity is refused, without a word of it
// in the error.
func TestTLSConfig(t *testing.T) {
	ca := newAuthority(t, "ca")
	good := ca.client("ann", ca)
	x := newExchange(t, bridge.ExchangeConfig{TLS: &tls.Config{ServerName: "own"}})
	cfg, err := x.TLSConfig(good)
	if err != nil || cfg.ServerName != "own" || cfg.GetClientCertificate == nil || cfg.RootCAs == nil {
		t.Fatalf("%+v, %v", cfg, err)
	}
	if plain, err := x.TLSConfig(parley.Agent{}); err != nil || plain.GetClientCertificate != nil || plain.RootCAs != nil || plain.ServerName != "own" {
		t.Errorf("%+v, %v", plain, err)
	}
	for name, change := range map[string]func(*parley.Agent){
		"not resolved": func(a *parley.Agent) { a.Resolved = nil },
		"no key":       func(a *parley.Agent) { a.Resolved = &parley.ResolvedAuth{Cert: a.Resolved.Cert, CA: a.Resolved.CA} },
		"no CA":        func(a *parley.Agent) { a.Resolved = &parley.ResolvedAuth{Cert: a.Resolved.Cert, Key: a.Resolved.Key} },
		"other key": func(a *parley.Agent) {
			a.Resolved = &parley.ResolvedAuth{Cert: a.Resolved.Cert, Key: ca.client("bob", ca).Resolved.Key, CA: a.Resolved.CA}
		},
		"no PEM": func(a *parley.Agent) {
			a.Resolved = &parley.ResolvedAuth{Cert: secretOf("t0p"), Key: secretOf("t0p"), CA: a.Resolved.CA}
		},
		"CA without PEM": func(a *parley.Agent) {
			a.Resolved = &parley.ResolvedAuth{Cert: a.Resolved.Cert, Key: a.Resolved.Key, CA: secretOf("t0p")}
		},
	} {
		bad := good
		change(&bad)
		cfg, err := x.TLSConfig(bad)
		if cfg != nil || parley.CodeOf(err) != parley.CodeInvalid || bytes.Contains([]byte(err.Error()), []byte("t0p")) {
			t.Errorf("%s: %v, %v", name, cfg, err)
		}
	}
}
