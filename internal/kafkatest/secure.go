package kafkatest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// The users of a cluster with [Options.SASL], for PLAIN, SCRAM-SHA-256 and
// SCRAM-SHA-512. AdminUser is a super user where there are access rules, User
// may do nothing there until it is allowed to.
const (
	AdminUser     = "admin"
	AdminPassword = "admin-secret-1"
	User          = "alice"
	UserPassword  = "alice-secret-2"
)

const login = "org.apache.kafka.common.security."

func saslSettings() map[string]string {
	s := map[string]string{
		"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
		"listener.name.secure.plain.sasl.jaas.config": login + `plain.PlainLoginModule required user_` + AdminUser + `="` + AdminPassword +
			`" user_` + User + `="` + UserPassword + `";`,
		"listener.name.secure.oauthbearer.sasl.jaas.config": login + `oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";`,
	}
	for _, m := range []string{"256", "512"} {
		s["listener.name.secure.scram-sha-"+m+".sasl.jaas.config"] = login + "scram.ScramLoginModule required;"
	}
	return s
}

// scramUsers are the arguments of the formatting that add the users.
func scramUsers() []string {
	var args []string
	for _, m := range []string{"256", "512"} {
		for user, password := range map[string]string{AdminUser: AdminPassword, User: UserPassword} {
			args = append(args, "--add-scram", "SCRAM-SHA-"+m+"=[name="+user+",password="+password+"]")
		}
	}
	return args
}

// Token makes an OAUTHBEARER token (RFC 7515, unsigned, as the test broker takes
// it) for a user that ends after the given time.
func Token(user string, life time.Duration) string {
	now := time.Now()
	claims, err := json.Marshal(map[string]any{"sub": user, "iat": now.Unix(), "exp": now.Add(life).Unix()})
	if err != nil {
		return ""
	}
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode(claims) + "."
}

// authority makes the certificates of one cluster.
type authority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
	pem         []byte
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kafkatest"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{key: key, certificate: c, pem: encodePEM("CERTIFICATE", der)}, nil
}

// issue makes a key and a certificate for name on the loopback.
func (a *authority) issue(name string) (key, certificate []byte, err error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &k.PublicKey, a.key)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return nil, nil, err
	}
	return encodePEM("PRIVATE KEY", pkcs8), encodePEM("CERTIFICATE", der), nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// makeCertificates makes the certificates and writes the broker's half into its folder.
func (c *Cluster) makeCertificates() error {
	a, err := newAuthority()
	if err != nil {
		return err
	}
	key, certificate, err := a.issue("broker")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.dir, "server.pem"), bytes.Join([][]byte{key, certificate}, nil), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.dir, "ca.pem"), a.pem, 0o600); err != nil {
		return err
	}
	key, certificate, err = a.issue(User)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.certificate)
	c.tls = &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	return nil
}

func (c *Cluster) tlsSettings() map[string]string {
	const prefix = "listener.name.secure.ssl."
	return map[string]string{
		prefix + "keystore.type":           "PEM",
		prefix + "keystore.location":       filepath.Join(c.dir, "server.pem"),
		prefix + "truststore.type":         "PEM",
		prefix + "truststore.location":     filepath.Join(c.dir, "ca.pem"),
		prefix + "client.auth":             "required",
		prefix + "principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
	}
}
