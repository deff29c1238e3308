package server_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/server"
)

// indiscreetAgent speaks simple-a2a and tells everything that it was called
// with: in its output, or in an error below /fail.
func indiscreetAgent(calls *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			TaskID string `json:"task_id"`
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		calls.Add(1)
		told := []string{r.URL.String()}
		for name, values := range r.Header {
			told = append(told, name+": "+strings.Join(values, ","))
		}
		if user, password, ok := r.BasicAuth(); ok {
			told = append(told, user, password)
		}
		told = append(told, r.URL.Query().Get("key"))
		switch {
		case r.Header.Get("Authorization") == "Bearer t0ken-of-oauth2-1":
			w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprint(w, told)
		case strings.HasPrefix(r.URL.Path, "/fail"):
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = fmt.Fprint(w, told)
		default:
			_ = json.NewEncoder(w).Encode(map[string]any{"task_id": body.TaskID, "status": "success", "output": map[string]any{"told": told}, "error": nil})
		}
	}
}

// selfSigned gives a certificate for 127.0.0.1 and for clients, as PEM text.
func selfSigned(t *testing.T) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// syncBuffer is a buffer for the log of a server.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestSecretsStayInside calls indiscreet agents with every kind of
// authentication, and looks for each secret in all that comes out: the log at
// its most talkative and without a filter of its own, the API, and the files of
// the database.
func TestSecretsStayInside(t *testing.T) {
	t.Parallel()
	var calls, tokens atomic.Int64
	plain := httptest.NewServer(indiscreetAgent(&calls))
	t.Cleanup(plain.Close)
	cert, key := selfSigned(t)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(cert)
	secure := httptest.NewUnstartedServer(indiscreetAgent(&calls))
	secure.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	login := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"access_token":"t0ken-of-oauth2-%d","expires_in":3600}`, tokens.Add(1))
	}))
	t.Cleanup(login.Close)

	dir := t.TempDir()
	write(t, filepath.Join(dir, "secrets", "password"), "p4ssword of Ann\n")
	write(t, filepath.Join(dir, "secrets", "cert.pem"), string(cert))
	var out syncBuffer
	s := startServer(t, server.Config{
		Data: filepath.Join(dir, "data"), Listen: "127.0.0.1:0", EgressAllow: []string{"127.0.0.0/8"}, DrainGrace: 100 * time.Millisecond,
		SecretsDir: filepath.Join(dir, "secrets"), SecretsPrefix: "AGENT_",
		LookupEnv: func(name string) (string, bool) { return "v4lue-of-env", name == "AGENT_ENV" },
		Logger:    slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	w := &world{t: t, server: s}

	kinds := map[string]string{
		"bearer":  `"auth_type":"bearer","auth_config":{"token":"l1teral-token"}`,
		"key":     `"auth":{"type":"apikey","key":"l1teral/key+1"}`,
		"query":   `"auth":{"type":"apikey","in":"query","name":"key","key":"l1teral/query+1"}`,
		"cookie":  `"auth":{"type":"apikey","in":"cookie","name":"sid","key":"l1teral-cookie"}`,
		"basic":   `"auth":{"type":"basic","user":"ann","secret":"file:password"}`,
		"header":  `"auth":{"type":"header","header":"X-Own","secret":"env:AGENT_ENV"}`,
		"headers": `"auth":{"type":"headers","headers":{"X-A":"env:AGENT_ENV","X-B":"l1teral-header"}}`,
		"oauth2":  `"auth":{"type":"oauth2","token_url":"` + login.URL + `","client_id":"me","client_secret":"l1teral-client"}`,
		"mtls":    `"auth":{"type":"mtls"},"tls":{"cert":"file:cert.pem","key":` + jsonOf(t, string(key)) + `,"ca":"file:cert.pem"}`,
	}
	seen := []string{}
	for kind, auth := range kinds {
		base := plain.URL
		if kind == "mtls" {
			base = secure.URL
		}
		for _, way := range []string{"good", "fail"} {
			name := kind + "-" + way
			status, body := w.call("POST", "/api/v1/agents", fmt.Sprintf(`{"name":%q,"url":%q,"protocol":"simple-a2a","retry_config":{"max_retries":0},%s}`, name, base+"/"+way, auth))
			if status != http.StatusCreated {
				t.Fatalf("%s: %d %s", name, status, body)
			}
			seen = append(seen, string(body))
			run, _, err := s.Executor().Start(t.Context(), parley.StartRequest{CallAgent: name, Input: json.RawMessage(`{}`)})
			if err != nil {
				t.Fatal(err)
			}
			run = w.end(run.ID)
			if want := map[string]parley.RunStatus{"good": parley.RunCompleted, "fail": parley.RunFailed}[way]; run.Status != want {
				t.Errorf("%s: %s, %v", name, run.Status, run.Error)
			}
			for _, path := range []string{"/api/v1/runs/" + run.ID, "/api/v1/runs/" + run.ID + "/events", "/api/v1/agents/" + name, "/api/v1/agents/" + name + "/health"} {
				_, body := w.call("GET", path, "", "Accept", "application/json")
				seen = append(seen, string(body))
			}
		}
	}
	_, agents := w.call("GET", "/api/v1/agents?page_size=100", "")
	seen = append(seen, string(agents), out.text())
	if calls.Load() < int64(2*len(kinds)) || tokens.Load() < 2 || !strings.Contains(out.text(), "agent_output") || !strings.Contains(strings.Join(seen, ""), "[redacted]") {
		t.Fatalf("%d calls, %d tokens: nothing was tried", calls.Load(), tokens.Load())
	}
	err = filepath.WalkDir(filepath.Join(dir, "data"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "agents.key" || d.Name() == "key" {
			return err
		}
		b, err := os.ReadFile(path)
		seen = append(seen, string(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	_, keyPart, _ := strings.Cut(string(key), "-----\n")
	secrets := []string{
		"l1teral", "p4ssword", "v4lue-of-env", "t0ken-of-oauth2", keyPart[:40], url.QueryEscape("l1teral/key+1"),
		base64.StdEncoding.EncodeToString([]byte("ann:p4ssword of Ann")),
	}
	for _, secret := range secrets {
		for _, text := range seen {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("%s came out: …%q…", secret, text[max(0, i-200):min(len(text), i+100)])
			}
		}
	}
}

func jsonOf(t *testing.T, s string) string {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
