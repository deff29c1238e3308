package main

import (
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/config"
)

// TestDatabasePasswordIsReadAnew: each connection gets the password that the file holds
// then, and logs are told it.
func TestDatabasePasswordIsReadAnew(t *testing.T) {
	t.Parallel()
	held := "first-password"
	l, err := config.Load(config.Sources{
		File: "parley.yaml", Data: []byte("database: {url: 'postgres://ann@db/parley', password: 'file:password'}"),
		ReadFile: func(string) ([]byte, error) { return []byte(held), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	current := databaseCurrent(l.Database, func(s parley.Secret) { seen = append(seen, string(s.Reveal())) })
	held = "second-password"
	const want = "postgres://ann:second-password@db/parley"
	if got, err := current(); got != want || err != nil || !slices.Contains(seen, want) {
		t.Errorf("the URL %q, %v; logs know %q", got, err, seen)
	}
}

// TestKafkaSecretsAreReadAnew: what a file holds when a connection is made is what counts,
// so that a password or a certificate can be replaced under running processes. Logs are
// told each new secret.
func TestKafkaSecretsAreReadAnew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	key, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certificate := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	put("ca.pem", certificate)
	put("own.pem", certificate)
	put("own.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
	put("password", "first-password\n")
	l, err := config.Load(config.Sources{File: "parley.yaml", Data: []byte(`
bus:
  kafka:
    brokers: [kafka.example:9092]
    sasl: {mechanism: scram-sha-512, user: ann, password: "file:password"}
    tls: {ca: ca.pem, cert: own.pem, key: own.key}
`), FileDir: dir, Dir: dir, ReadFile: os.ReadFile})
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	cfg, err := kafkaConfig(l.Bus.Kafka, func(s parley.Secret) { seen = append(seen, string(s.Reveal())) })
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"first-password", "second-password"} {
		put("password", want)
		if got, err := cfg.SASL.Secret(t.Context()); got != want || err != nil || !slices.Contains(seen, want) {
			t.Errorf("the password %q, %v; logs know %q", got, err, seen)
		}
	}
	for name, says := range map[string]string{"ca.pem": "bus.kafka.tls.ca", "own.pem": "bus.kafka.tls.cert", "own.key": "bus.kafka.tls.cert and key"} {
		good, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		put(name, "being written")
		if _, err := cfg.TLS(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s that is no PEM: %v", name, err)
		}
		put(name, string(good))
		if c, err := cfg.TLS(); err != nil || len(c.Certificates) != 1 || c.RootCAs == nil {
			t.Errorf("%s that is as it was: %v", name, err)
		}
	}
}
