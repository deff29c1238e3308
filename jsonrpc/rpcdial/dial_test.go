package rpcdial_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcdial"
	"github.com/parley-project/parley/jsonrpc/rpcpractice"
	"github.com/parley-project/parley/jsonrpc/rpctest"
)

// TestChild is the child of stdio:PROGRAM; by itself it does nothing.
func TestChild(t *testing.T) {
	url := os.Getenv("RPCDIAL_TEST_URL")
	if url == "" {
		return
	}
	if err := rpcdial.Serve(context.Background(), url, rpcdial.Config{}, jsonrpc.Config{Handler: rpcpractice.NewMux()}); err != nil {
		os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
	os.Exit(0)
}

// asChild makes a command of this test binary the child that serves url.
func asChild(url string) func(cmd *exec.Cmd) {
	return func(cmd *exec.Cmd) {
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "RPCDIAL_TEST_URL="+url)
	}
}

// certificate returns the configuration of a server for 127.0.0.1 and of a
// client that trusts it.
func certificate(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, &tls.Config{RootCAs: roots}
}

// serve serves the practice methods at url until the end of the test, and
// returns the URL to dial.
func serve(t *testing.T, url string, cfg rpcdial.Config) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	at, served := make(chan string, 1), make(chan error, 1)
	cfg.Listening = func(url string) { at <- url }
	go func() { served <- rpcdial.Serve(ctx, url, cfg, jsonrpc.Config{Handler: rpcpractice.NewMux()}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	select {
	case url := <-at:
		return url
	case err := <-served:
		served <- nil
		t.Fatalf("Serve: %v", err)
		return ""
	}
}

// RPC-15: the same call over each transport, chosen by nothing but the URL.
func TestDialServe(t *testing.T) {
	secure, trusting := certificate(t)
	socket := filepath.Join(t.TempDir(), "s")
	urls := []string{
		"tcp://127.0.0.1:0", "tcp+lsp://127.0.0.1:0", "TCP://127.0.0.1:0", "tls://127.0.0.1:0", "tls+lsp://127.0.0.1:0",
		"unix:" + socket, "unix+lsp:" + socket + "2", "unix://" + socket + "3",
		"http://127.0.0.1:0/rpc", "http://127.0.0.1:0", "https://127.0.0.1:0/rpc", "ws://127.0.0.1:0/rpc", "wss://127.0.0.1:0/rpc",
		"stdio:", "stdio+lsp:",
	}
	before := runtime.NumGoroutine()
	for _, url := range urls {
		t.Run(url, func(t *testing.T) {
			cfg := rpcdial.Config{TLS: trusting}
			var at string
			if scheme, _, _ := strings.Cut(url, ":"); strings.HasPrefix(scheme, "stdio") {
				at = scheme + `:"` + os.Args[0] + `" '-test.run=^TestChild$'`
				cfg.Command = asChild(url)
			} else {
				at = serve(t, url, rpcdial.Config{TLS: secure})
			}
			s, err := rpcdial.Dial(t.Context(), at, cfg)
			if err != nil {
				t.Fatal(err)
			}
			conn := jsonrpc.NewConn(s, jsonrpc.Config{})
			got, err := jsonrpc.Call[int](t.Context(), conn, "subtract", []int{42, 23})
			if err != nil || got != 19 {
				t.Errorf("subtract: %d, %v", got, err)
			}
			if err := conn.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	for deadline := time.Now().Add(2 * time.Minute); runtime.NumGoroutine() > before; {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(time.Millisecond)
	}
}

// TLS keeps the contract too; the other transports have tests of their own.
func TestStreams(t *testing.T) {
	t.Parallel()
	secure, trusting := certificate(t)
	for _, url := range []string{"tls://127.0.0.1:0", "tls+lsp://127.0.0.1:0"} {
		t.Run(url, func(t *testing.T) {
			t.Parallel()
			rpctest.TestStream(t, func(t *testing.T) (a, b jsonrpc.Stream) {
				ctx, cancel := context.WithCancel(context.Background())
				at, accepted, listened := make(chan string, 1), make(chan jsonrpc.Stream), make(chan error, 1)
				cfg := rpcdial.Config{TLS: secure, Listening: func(url string) { at <- url }}
				go func() {
					listened <- rpcdial.Listen(ctx, url, cfg, func(s jsonrpc.Stream) {
						select {
						case accepted <- s:
							<-ctx.Done()
						case <-ctx.Done():
						}
					})
				}()
				t.Cleanup(func() {
					cancel()
					if err := <-listened; err != nil {
						t.Errorf("Listen: %v", err)
					}
				})
				a, err := rpcdial.Dial(t.Context(), <-at, rpcdial.Config{TLS: trusting, Timeout: 2 * time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				return a, <-accepted
			})
		})
	}
}

// Header and Bearer reach the servers that have use for them.
func TestCredentials(t *testing.T) {
	seen := make(chan http.Header, 1)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header
		w.WriteHeader(http.StatusTeapot)
	})}
	go server.Serve(ln)
	defer server.Close()
	cfg := rpcdial.Config{
		Header: http.Header{"X-Tenant": {"blue"}},
		Bearer: func(context.Context) (string, error) { return "opensesame", nil },
	}
	for _, scheme := range []string{"ws", "http"} {
		s, err := rpcdial.Dial(t.Context(), scheme+"://"+ln.Addr().String()+"/x", cfg)
		if scheme == "http" {
			if err != nil {
				t.Fatal(err)
			}
			s.Write([]byte(`{"jsonrpc":"2.0","id":1,"method":"m"}` + "\n"))
			_, err = s.Read()
			s.Close()
		}
		if err == nil || strings.Contains(err.Error(), "opensesame") {
			t.Errorf("%s: error %v, which should be there and keep the token to itself", scheme, err)
		}
		if h := <-seen; h.Get("X-Tenant") != "blue" || h.Get("Authorization") != "Bearer opensesame" {
			t.Errorf("%s: header %v", scheme, h)
		}
	}
}

func TestErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{
		"localhost:4000":           `scheme "localhost" is not known; write stdio:, tcp://, tls://, unix:, http://, https://, ws:// or wss://`,
		"nonsense":                 "has no scheme; write stdio:",
		"secret@localhost:4000":    "has no scheme; write stdio:",
		"127.0.0.1:4000":           "has no scheme; write stdio:",
		"http+lsp://localhost":     "has a framing of its own",
		"http:localhost":           "write http://host:port/path",
		"tcp://localhost":          "a host and a port",
		"tcp://:secret@x:1":        "a host and a port",
		"tcp://localhost:1/path":   "a host and a port",
		"tcp:localhost:1":          "a host and a port",
		"unix:":                    "write the path",
		"unix://host/path":         "after // comes no host",
		"unix:/nonexistent/socket": "no such file",
		`stdio:cmd "open`:          `a " without its partner`,
		"stdio:'' a":               "the command is empty",
		"stdio:/nonexistent/cmd":   "no such file",
	}
	for url, want := range tests {
		_, err := rpcdial.Dial(t.Context(), url, rpcdial.Config{})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "rpcdial: ") || strings.Contains(err.Error(), "secret") {
			t.Errorf("Dial %s: %v, want %q", url, err, want)
		}
	}
	handle := func(jsonrpc.Stream) {}
	for url, want := range map[string]string{
		"http://127.0.0.1:0/": "use Serve",
		"tls://127.0.0.1:0":   "needs a certificate",
		"wss://127.0.0.1:0/":  "needs a certificate",
		"ws://127.0.0.1:0/?x": "a host, a port and a path",
		"unix:" + file:        "in use",
		"smoke:":              "is not known",
	} {
		if err := rpcdial.Listen(t.Context(), url, rpcdial.Config{}, handle); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Listen %s: %v, want %q", url, err, want)
		}
	}
}

func TestTimeout(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // accepts nobody
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for _, scheme := range []string{"tls://", "ws://"} {
		if _, err := rpcdial.Dial(t.Context(), scheme+ln.Addr().String(), rpcdial.Config{Timeout: 20 * time.Millisecond}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Dial %s: %v", scheme, err)
		}
	}
}

// A socket that was left behind is taken over, one that is in use is not.
func TestUnixLeftBehind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := rpcdial.Serve(t.Context(), "unix:"+path, rpcdial.Config{}, jsonrpc.Config{}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("Serve at a socket in use: %v", err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	ln.Close()
	url := serve(t, "unix:"+path, rpcdial.Config{})
	s, err := rpcdial.Dial(t.Context(), url, rpcdial.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// Serve ends with its context although clients stay, and waits for handlers.
func TestServeEnds(t *testing.T) {
	for _, url := range []string{"tcp://127.0.0.1:0", "ws://127.0.0.1:0/", "http://127.0.0.1:0/"} {
		ctx, cancel := context.WithCancel(t.Context())
		at, served := make(chan string, 1), make(chan error, 1)
		begun := make(chan struct{})
		handled := false
		handler := jsonrpc.HandlerFunc(func(ctx context.Context, _ *jsonrpc.Request) (any, error) {
			close(begun)
			<-ctx.Done()
			handled = true
			return json.RawMessage("1"), nil
		})
		go func() {
			served <- rpcdial.Serve(ctx, url, rpcdial.Config{Listening: func(url string) { at <- url }}, jsonrpc.Config{Handler: handler, Grace: 50 * time.Millisecond})
		}()
		s, err := rpcdial.Dial(t.Context(), <-at, rpcdial.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(s, `{"jsonrpc":"2.0","id":1,"method":"m"}`+"\n"); err != nil {
			t.Fatal(err)
		}
		<-begun
		cancel()
		if err := <-served; err != nil {
			t.Errorf("%s: Serve: %v", url, err)
		}
		if !handled {
			t.Errorf("%s: Serve did not wait for the handler", url)
		}
		s.Close()
	}
}
