package zoneauth_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/parley-project/parley/internal/zone/zoneauth"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func (a *authority) issue(t *testing.T, serial int64) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "zone"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"zone.test"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.cert, &k.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

func text(b []byte) zoneauth.PEM { return func() ([]byte, error) { return b, nil } }

func file(name string) zoneauth.PEM { return func() ([]byte, error) { return os.ReadFile(name) } }

func serve(t *testing.T, cfg *tls.Config) string {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.Proto))
	}))
	srv.TLS = cfg
	srv.Config.ErrorLog = nil
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv.URL
}

// get asks, and tells over which protocol and from whom the answer came.
func get(t *testing.T, url string, cfg *tls.Config) (major int, serial int64, err error) {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true, DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: tr, Timeout: 10 * time.Second}).Get(url)
	if err != nil {
		return 0, 0, err
	}
	resp.Body.Close()
	return resp.ProtoMajor, resp.TLS.PeerCertificates[0].SerialNumber.Int64(), nil
}

func TestZN6_MutualTLS(t *testing.T) {
	ca, strangers := newAuthority(t, "ca"), newAuthority(t, "strangers")
	cert, key := ca.issue(t, 10)
	server, err := zoneauth.ServerTLS{Cert: text(cert), Key: text(key), ClientCA: text(ca.pem)}.Config()
	if err != nil {
		t.Fatal(err)
	}
	url := serve(t, server)
	ownCert, ownKey := ca.issue(t, 11)
	strangeCert, strangeKey := strangers.issue(t, 12)
	for name, c := range map[string]struct {
		cfg  zoneauth.ClientTLS
		good bool
	}{
		"right certificate": {zoneauth.ClientTLS{CA: text(ca.pem), Cert: text(ownCert), Key: text(ownKey)}, true},
		"other name":        {zoneauth.ClientTLS{CA: text(ca.pem), Cert: text(ownCert), Key: text(ownKey), ServerName: "zone.test"}, true},
		"wrong name":        {zoneauth.ClientTLS{CA: text(ca.pem), Cert: text(ownCert), Key: text(ownKey), ServerName: "evil.test"}, false},
		"no certificate":    {zoneauth.ClientTLS{CA: text(ca.pem)}, false},
		"strange client":    {zoneauth.ClientTLS{CA: text(ca.pem), Cert: text(strangeCert), Key: text(strangeKey)}, false},
		"strange server":    {zoneauth.ClientTLS{CA: text(strangers.pem), Cert: text(ownCert), Key: text(ownKey)}, false},
	} {
		cfg, err := c.cfg.Config()
		if err != nil {
			t.Fatal(err)
		}
		major, _, err := get(t, url, cfg)
		if (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && major != 2 {
			t.Errorf("%s: HTTP/%d", name, major)
		}
	}
}

func TestZN6_CertificatesAreReadAgain(t *testing.T) {
	ca := newAuthority(t, "ca")
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	put := func(cert, key []byte) {
		t.Helper()
		if os.WriteFile(certFile, cert, 0o600) != nil || os.WriteFile(keyFile, key, 0o600) != nil {
			t.Fatal("cannot write")
		}
	}
	put(ca.issue(t, 21))
	now := time.Now()
	server, err := zoneauth.ServerTLS{Cert: file(certFile), Key: file(keyFile), Now: func() time.Time { return now }}.Config()
	if err != nil {
		t.Fatal(err)
	}
	url := serve(t, server)
	client, err := zoneauth.ClientTLS{CA: text(ca.pem)}.Config()
	if err != nil {
		t.Fatal(err)
	}
	serial := func() int64 {
		t.Helper()
		_, serial, err := get(t, url, client)
		if err != nil {
			t.Fatal(err)
		}
		return serial
	}
	if got := serial(); got != 21 {
		t.Fatalf("serial %d", got)
	}
	put(ca.issue(t, 22))
	now = now.Add(time.Minute)
	if got := serial(); got != 22 {
		t.Errorf("after the replacement: serial %d", got)
	}
	cert, _ := ca.issue(t, 23) // half of a replacement
	_, other := ca.issue(t, 24)
	put(cert, other)
	now = now.Add(time.Minute)
	if got := serial(); got != 22 {
		t.Errorf("while it is being replaced: serial %d", got)
	}
}

func TestZN6_TLSConfigRefused(t *testing.T) {
	ca := newAuthority(t, "ca")
	cert, key := ca.issue(t, 31)
	_, otherKey := ca.issue(t, 32)
	for name, cfg := range map[string]zoneauth.ServerTLS{
		"nothing":      {},
		"no key":       {Cert: text(cert)},
		"other key":    {Cert: text(cert), Key: text(otherKey)},
		"no authority": {Cert: text(cert), Key: text(key), ClientCA: text([]byte("nothing"))},
		"no file":      {Cert: file("/nowhere"), Key: text(key)},
	} {
		if _, err := cfg.Config(); err == nil {
			t.Errorf("server with %s was accepted", name)
		}
	}
	for name, cfg := range map[string]zoneauth.ClientTLS{
		"half a pair": {Cert: text(cert)},
		"no CA":       {CA: text(nil)},
	} {
		if _, err := cfg.Config(); err == nil {
			t.Errorf("client with %s was accepted", name)
		}
	}
}
