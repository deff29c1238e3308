package zone

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/direct"
	"github.com/parley-project/parley/internal/zone/zoneauth"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // the certificate
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	a.key = newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &a.key.PublicKey, a.key)
	check(t, err)
	a.file = writePEM(t, "CERTIFICATE", der)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	return key
}

func writePEM(t *testing.T, kind string, der []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), strings.ToLower(strings.Fields(kind)[0])+".pem")
	check(t, os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return name
}

// issue gives the files of a certificate for 127.0.0.1 that ends at a time, and of
// its key.
func (a *authority) issue(t *testing.T, end time.Time) (cert, key string) {
	t.Helper()
	k := newKey(t)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "zone"}, NotBefore: end.Add(-2 * time.Hour), NotAfter: end,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.cert, &k.PublicKey, a.key)
	check(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	check(t, err)
	return writePEM(t, "CERTIFICATE", der), writePEM(t, "PRIVATE KEY", raw)
}

func file(name string) zoneauth.PEM {
	if name == "" {
		return nil
	}
	return func() ([]byte, error) { return os.ReadFile(name) }
}

// TestZN6_ForeignClientCertificates (zones.md §0 row 14): an asyncio server tells
// nobody why it hangs up, so that a small request over TLS 1.3, which was sent by
// then, is one of unknown outcome. Everything else is known not to have been sent,
// or to have been refused; nothing of it runs.
func TestZN6_ForeignClientCertificates(t *testing.T) {
	t.Parallel()
	ours, theirs, strangers := newAuthority(t, "ours"), newAuthority(t, "theirs"), newAuthority(t, "strangers")
	soon := time.Now().Add(time.Hour)
	cert, key := theirs.issue(t, soon)
	address := serve(t, runtimePython, setup{args: []string{cert, key, ours.file}})
	ask := func(t *testing.T, c zoneauth.ClientTLS, version uint16, text string) (zone.Result, zone.Info, error) {
		t.Helper()
		cfg, err := c.Config()
		check(t, err)
		cfg.MaxVersion = version
		tr, err := direct.New(direct.Config{
			URL: "https://" + address + "/invocations", TLS: cfg, Retry: direct.Retry{Base: time.Millisecond},
		})
		check(t, err)
		defer tr.Close()
		return newForeign(tr, runtimePython).ask(t, text)
	}
	right := zoneauth.ClientTLS{CA: file(theirs.file)}
	rightCert, rightKey := ours.issue(t, soon)
	right.Cert, right.Key = file(rightCert), file(rightKey)
	wrong := map[string]zoneauth.ClientTLS{"none": {CA: file(theirs.file)}}
	c, k := strangers.issue(t, soon)
	wrong["stranger"] = zoneauth.ClientTLS{CA: file(theirs.file), Cert: file(c), Key: file(k)}
	c, k = ours.issue(t, time.Now().Add(-time.Hour))
	wrong["expired"] = zoneauth.ClientTLS{CA: file(theirs.file), Cert: file(c), Key: file(k)}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, size := range []int{100, 200 << 10, 2 << 20} {
			where := fmt.Sprintf("%s, %d bytes, ", tls.VersionName(version), size)
			text := strings.Repeat("x", size)
			if res, info, err := ask(t, right, version, "say "+text); err != nil || res.ResponseText != "echo: "+text || info.Attempts != 1 {
				t.Errorf("%sright: %.100q, %+v, %v", where, res.ResponseText, info, err)
			}
			for name, c := range wrong {
				_, info, err := ask(t, c, version, "later "+text)
				untold := version == tls.VersionTLS13 && size == 100 && class(err) == zone.ClassUnknownOutcome
				if !untold && class(err) != zone.ClassAuth && class(err) != zone.ClassNotSent {
					t.Errorf("%s%s: %v, %+v", where, name, err, info)
				}
			}
		}
	}
	res, _, err := ask(t, right, tls.VersionTLS13, "later")
	if err != nil || res.TaskID != "task-1" {
		t.Errorf("after those that were refused: %+v, %v", res, err)
	}
	wrongCA := right
	wrongCA.CA = file(strangers.file)
	if _, info, err := ask(t, wrongCA, tls.VersionTLS13, "say x"); class(err) != zone.ClassAuth || info.Attempts != 1 {
		t.Errorf("a server that nobody knows: %v, %+v", err, info)
	}
}
