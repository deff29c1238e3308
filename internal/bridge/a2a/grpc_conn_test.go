package a2a

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a/a2apb"
)

// h2Frame writes a frame of HTTP/2 (RFC 9113 §4.1).
func h2Frame(w io.Writer, kind, flags byte, stream uint32, payload []byte) {
	head := make([]byte, 9, 9+len(payload))
	head[0], head[1], head[2] = byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload))
	head[3], head[4] = kind, flags
	binary.BigEndian.PutUint32(head[5:], stream)
	_, _ = w.Write(append(head, payload...))
}

// h2Server speaks just enough HTTP/2 to take one request whole, and then does
// what a test wants. It counts the requests.
type h2Server struct {
	requests atomic.Int64
	answer   func(conn net.Conn, stream uint32)
}

const (
	h2Data, h2Reset, h2Settings, h2GoAway = 0, 3, 4, 7
	h2Internal, h2RefusedStream           = 2, 7
)

func (s *h2Server) serve(conn net.Conn) {
	defer conn.Close()
	if _, err := io.CopyN(io.Discard, conn, 24); err != nil { // the preface
		return
	}
	h2Frame(conn, h2Settings, 0, 0, nil)
	for head := make([]byte, 9); ; {
		if _, err := io.ReadFull(conn, head); err != nil {
			return
		}
		length := int64(head[0])<<16 | int64(head[1])<<8 | int64(head[2])
		if _, err := io.CopyN(io.Discard, conn, length); err != nil {
			return
		}
		kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
		switch {
		case kind == h2Settings && flags == 0:
			h2Frame(conn, h2Settings, 1, 0, nil)
		case kind == h2Data && flags&1 != 0:
			s.requests.Add(1)
			s.answer(conn, stream)
		}
	}
}

// TestGRPCNeverTwice: whatever becomes of a request that has left, also one of
// which HTTP/2 says that it was not processed, it is sent once (R1).
func TestGRPCNeverTwice(t *testing.T) {
	reset := func(code uint32) func(net.Conn, uint32) {
		return func(conn net.Conn, stream uint32) {
			h2Frame(conn, h2Reset, 0, stream, binary.BigEndian.AppendUint32(nil, code))
		}
	}
	for _, tt := range []struct {
		name   string
		answer func(net.Conn, uint32)
		d      bridge.Disposition
	}{
		{"refused", reset(h2RefusedStream), bridge.NotSent},
		{"left out by a goaway", func(conn net.Conn, _ uint32) { h2Frame(conn, h2GoAway, 0, 0, make([]byte, 8)) }, bridge.NotSent},
		{"reset", reset(h2Internal), bridge.Lost},
		{"closed", func(conn net.Conn, _ uint32) { _ = conn.Close() }, bridge.Lost},
		{"goaway for all after it, then closed", func(conn net.Conn, stream uint32) {
			h2Frame(conn, h2GoAway, 0, 0, append(binary.BigEndian.AppendUint32(nil, stream), 0, 0, 0, 0))
			_ = conn.Close()
		}, bridge.Lost},
		{"garbage", func(conn net.Conn, _ uint32) {
			_, _ = conn.Write(bytes.Repeat([]byte{0xff}, 64))
			_ = conn.Close()
		}, bridge.Lost},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := &h2Server{answer: tt.answer}
			var serving sync.WaitGroup
			defer serving.Wait()
			rig := dialGRPCRig(t, func(context.Context) (net.Conn, error) {
				here, there := net.Pipe()
				serving.Go(func() { server.serve(there) })
				return here, nil
			}, bridge.ExchangeConfig{})
			defer rig.close()
			for i, vb := range []verb{verbSend, verbStream} {
				_, err := rig.failure(vb)
				left(t, err, tt.d, parley.CodeAgentUnavailable, true)
				if n := server.requests.Load(); n != int64(i+1) {
					t.Errorf("%v: %d requests arrived, want %d", vb, n, i+1)
				}
			}
			rig.idle()
		})
	}
}

// TestGRPCGuarded: what may not be sent any more when the connection is there does not
// reach the agent (protocol.md §4.3).
func TestGRPCGuarded(t *testing.T) {
	for _, vb := range []verb{verbSend, verbStream} {
		server := &h2Server{answer: func(conn net.Conn, _ uint32) { _ = conn.Close() }}
		var serving sync.WaitGroup
		defer serving.Wait()
		var cancelled atomic.Bool
		rig := dialGRPCRig(t, func(context.Context) (net.Conn, error) {
			cancelled.Store(true)
			here, there := net.Pipe()
			serving.Go(func() { server.serve(there) })
			return here, nil
		}, bridge.ExchangeConfig{})
		defer rig.close()
		ctx := bridge.WithSendGuard(t.Context(), func() bool { return !cancelled.Load() })
		var err error
		if vb.streams() {
			_, _, err = rig.begin(ctx, vb, sendParams)
		} else {
			_, _, err = rig.do(ctx, vb, sendParams)
		}
		left(t, err, bridge.NotSent, parley.CodeAgentUnavailable, true)
		rig.idle()
		if n := server.requests.Load(); n != 0 {
			t.Errorf("%d requests arrived", n)
		}
	}
}

// TestGRPCCutStream: a stream that is cut is Lost, whatever came before.
func TestGRPCCutStream(t *testing.T) {
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	a2apb.RegisterA2AServiceServer(server, &grpcAgent{
		subscribe: func(_ *a2apb.SubscribeToTaskRequest, s grpc.ServerStreamingServer[a2apb.StreamResponse]) error {
			err := s.Send(statusEvent(a2apb.TaskState_TASK_STATE_WORKING, "one"))
			<-s.Context().Done()
			return err
		},
	})
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(lis) })
	defer serving.Wait()
	rig := loopbackRig(t, "http://"+lis.Addr().String())
	s, _, err := rig.begin(t.Context(), verbSubscribe, taskParams)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if _, err := s.next(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	_, err = s.next(t.Context())
	left(t, err, bridge.Lost, parley.CodeAgentUnavailable, true)
}

// loopbackRig reaches an agent at url through the network.
func loopbackRig(t *testing.T, url string) *grpcRig {
	t.Helper()
	r := &grpcRig{t: t, agent: parley.Agent{Name: "scout", URL: url}}
	r.use(bridge.NewExchange(bridge.ExchangeConfig{Egress: bridge.Egress{Loopback: true}}))
	return r
}

// TestGRPCForeign: a server that does not speak gRPC is named as what it is,
// under the rules of HTTP.
func TestGRPCForeign(t *testing.T) {
	for _, tt := range []struct {
		status    int
		d         bridge.Disposition
		code      parley.Code
		retryable bool
	}{
		{200, bridge.Answered, parley.CodeAgentError, true},
		{302, bridge.Answered, parley.CodeAgentRejected, false},
		{401, bridge.Answered, parley.CodeAgentRejected, false},
		{403, bridge.Answered, parley.CodeAgentRejected, false},
		{404, bridge.Answered, parley.CodeAgentRejected, false},
		{429, bridge.NotSent, parley.CodeAgentUnavailable, true},
		{500, bridge.Answered, parley.CodeAgentUnavailable, true},
		{502, bridge.Lost, parley.CodeAgentUnavailable, true},
		{503, bridge.NotSent, parley.CodeAgentUnavailable, true},
		{504, bridge.Lost, parley.CodeAgentUnavailable, true},
	} {
		t.Run(http.StatusText(tt.status), func(t *testing.T) {
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "text/html")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, "<html>hello</html>")
			}))
			server.Config.Protocols = new(http.Protocols)
			server.Config.Protocols.SetUnencryptedHTTP2(true)
			server.Start()
			defer server.Close()
			rig := loopbackRig(t, server.URL)
			defer rig.close()
			for _, vb := range []verb{verbSend, verbStream} {
				_, err := rig.failure(vb)
				x := left(t, err, tt.d, tt.code, tt.retryable)
				if want := fmt.Sprintf("does not speak gRPC: unexpected HTTP status code received from server: %d", tt.status); !strings.Contains(x.Err.Message, want) {
					t.Errorf("the error is %q", x.Err.Message)
				}
			}
		})
	}
}

// TestGRPCRenewForeign: a proxy before the agent that answers 401 in the words of HTTP
// has the call made once more with what Renew gives, as an agent's UNAUTHENTICATED has.
func TestGRPCRenewForeign(t *testing.T) {
	got := make(chan string, 3)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("Authorization")
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, "<html>who are you?</html>")
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	rig := loopbackRig(t, server.URL)
	rig.use(bridge.NewExchange(bridge.ExchangeConfig{
		Egress: bridge.Egress{Loopback: true},
		Renew: func(_ context.Context, a parley.Agent) (parley.Agent, error) {
			a.Credential = parley.NewSecret([]byte("new"))
			return a, nil
		},
	}))
	rig.agent.Auth = parley.Auth{Type: parley.AuthBearer, Secret: "file:token"}
	rig.agent.Credential = parley.NewSecret([]byte("old"))
	_, err := rig.failure(verbSend)
	left(t, err, bridge.Answered, parley.CodeAgentRejected, false)
	if n := len(got); n != 2 {
		t.Fatalf("%d calls", n)
	}
	if old, renewed := <-got, <-got; old != "Bearer old" || renewed != "Bearer new" {
		t.Errorf("called with %q, then with %q", old, renewed)
	}
}

// TestGRPCUnreachable: without a connection nothing was sent.
func TestGRPCUnreachable(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		rig := loopbackRig(t, "http://127.0.0.1:1") // the port of a server that was closed may be another's by now
		_, _, err := rig.do(t.Context(), verbSend, sendParams)
		x := left(t, err, bridge.NotSent, parley.CodeAgentUnavailable, true)
		if !strings.Contains(x.Err.Message, "connection refused") || strings.Contains(x.Err.Message, "desc =") {
			t.Errorf("the error is %q", x.Err.Message)
		}
	})
	t.Run("against the egress policy", func(t *testing.T) {
		rig := loopbackRig(t, "http://127.0.0.1:50051")
		rig.use(bridge.NewExchange(bridge.ExchangeConfig{}))
		_, _, err := rig.do(t.Context(), verbSend, sendParams)
		x := left(t, err, bridge.NotSent, parley.CodeAgentUnavailable, false)
		if !strings.Contains(x.Err.Message, "egress") {
			t.Errorf("the error is %q", x.Err.Message)
		}
	})
	t.Run("HTTP/1", func(t *testing.T) {
		server := httptest.NewServer(http.NotFoundHandler())
		defer server.Close()
		rig := loopbackRig(t, server.URL)
		rig.agent.Timeout = grpcPatience
		_, _, err := rig.do(t.Context(), verbSend, sendParams)
		left(t, err, bridge.NotSent, parley.CodeAgentUnavailable, true)
	})
	t.Run("nobody answers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rig := dialGRPCRig(t, func(ctx context.Context) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}, bridge.ExchangeConfig{})
			rig.agent.Timeout = 3 * time.Second
			_, _, err := rig.do(t.Context(), verbSend, sendParams)
			x := left(t, err, bridge.NotSent, parley.CodeAgentUnavailable, true)
			if limitOf(x) != "exchange" {
				t.Errorf("limit %q", limitOf(x))
			}
			rig.close()
		})
	})
}

// TestGRPCRecovers: a connection that could not be had is had again soon after
// the agent is back, without a restart.
func TestGRPCRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent := refusing(status.Error(codes.NotFound, "m"))
		up := newGRPCRig(t, agent)
		var down atomic.Bool
		down.Store(true)
		rig := dialGRPCRig(t, func(ctx context.Context) (net.Conn, error) {
			if down.Load() {
				return nil, errors.New("no route to host")
			}
			return up.exchange.Dial(ctx, "scout.example:50051", false)
		}, bridge.ExchangeConfig{})
		for range 20 {
			_, _, err := rig.do(t.Context(), verbGet, taskParams)
			left(t, err, bridge.NotSent, parley.CodeAgentUnavailable, true)
			time.Sleep(time.Second)
		}
		down.Store(false)
		time.Sleep(3 * time.Second)
		if _, f, err := rig.do(t.Context(), verbGet, taskParams); err != nil || f == nil {
			t.Errorf("failure %v, error %v", f, err)
		}
	})
}

// TestGRPCLimits: sizes in both directions.
func TestGRPCLimits(t *testing.T) {
	big := strings.Repeat("x", 200_000)
	agent := &grpcAgent{
		get: func(context.Context, *a2apb.GetTaskRequest) (*a2apb.Task, error) { return &a2apb.Task{Id: big}, nil },
		send: func(context.Context, *a2apb.SendMessageRequest) (*a2apb.SendMessageResponse, error) {
			return &a2apb.SendMessageResponse{}, nil
		},
		subscribe: func(_ *a2apb.SubscribeToTaskRequest, s grpc.ServerStreamingServer[a2apb.StreamResponse]) error {
			return s.Send(&a2apb.StreamResponse{Payload: &a2apb.StreamResponse_Task{Task: &a2apb.Task{Id: big}}})
		},
		events: func(_ *a2apb.SendMessageRequest, s grpc.ServerStreamingServer[a2apb.StreamResponse]) error {
			for {
				if err := s.Send(&a2apb.StreamResponse{Payload: &a2apb.StreamResponse_Task{Task: &a2apb.Task{Id: big[:50_000]}}}); err != nil {
					return err
				}
			}
		},
	}
	rig := newGRPCRig(t, agent, grpc.MaxRecvMsgSize(50_000))
	inner := rig.exchange
	rig.use(bridge.NewExchange(bridge.ExchangeConfig{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return inner.Dial(ctx, address, false)
		},
		Limits: bridge.ExchangeLimits{MaxRequest: 60_000, MaxResponse: 100_000},
	}))
	long := func(n int) string {
		return `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"` + big[:n] + `"}]}}`
	}

	t.Run("answer", func(t *testing.T) {
		_, _, err := rig.do(t.Context(), verbGet, taskParams)
		if x := left(t, err, bridge.Lost, parley.CodeLimit, false); limitOf(x) != "max_response" {
			t.Errorf("limit %q", limitOf(x))
		}
	})
	t.Run("event", func(t *testing.T) {
		s, _, err := rig.begin(t.Context(), verbSubscribe, taskParams)
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		_, err = s.next(t.Context())
		left(t, err, bridge.Lost, parley.CodeLimit, false)
	})
	t.Run("stream", func(t *testing.T) {
		s, _, err := rig.begin(t.Context(), verbStream, sendParams)
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		all, err := drain(t.Context(), s)
		left(t, err, bridge.Lost, parley.CodeLimit, false)
		if n := len(all); n < 120 || n > 130 {
			t.Errorf("%d events of 50 kB before the end, want 64 times 100 kB", n)
		}
	})
	t.Run("request, ours", func(t *testing.T) {
		_, _, err := rig.do(t.Context(), verbSend, long(70_000))
		if e, ok := errors.AsType[*parley.Error](err); !ok || e.Code != parley.CodeLimit {
			t.Errorf("error %v", err)
		}
	})
	t.Run("request, the agent's", func(t *testing.T) {
		_, _, err := rig.do(t.Context(), verbSend, long(55_000))
		x := left(t, err, bridge.Answered, parley.CodeLimit, false)
		if !strings.Contains(x.Err.Message, "more than the agent takes") {
			t.Errorf("the error is %q", x.Err.Message)
		}
	})
}

// TestGRPCHeadLimit: an agent that does not keep to the limit for heads.
func TestGRPCHeadLimit(t *testing.T) {
	const headers, continuation, endHeaders = 1, 9, 4
	server := &h2Server{answer: func(conn net.Conn, stream uint32) {
		h2Frame(conn, headers, 0, stream, []byte{0x88}) // :status 200
		// Six fields of 10,160 bytes fit into 64 KiB, the last one does not. Each is
		// a literal (RFC 7541 §6.2.2) with a name of 1 byte and a value of 127 + n.
		field := func(n int) []byte {
			head := []byte{0, 1, 'x', 127, byte(n)&127 | 128, byte(n >> 7)}
			return append(head, bytes.Repeat([]byte{'v'}, 127+n)...)
		}
		for range 6 {
			h2Frame(conn, continuation, 0, stream, field(10_000))
		}
		h2Frame(conn, continuation, endHeaders, stream, field(6_000))
	}}
	var serving sync.WaitGroup
	defer serving.Wait()
	rig := dialGRPCRig(t, func(context.Context) (net.Conn, error) {
		here, there := net.Pipe()
		serving.Go(func() { server.serve(there) })
		return here, nil
	}, bridge.ExchangeConfig{})
	defer rig.close()
	_, err := rig.failure(verbSend)
	if x := left(t, err, bridge.Lost, parley.CodeLimit, false); limitOf(x) != "max_header" {
		t.Errorf("limit %q", limitOf(x))
	}
}

// TestGRPCConnections: one connection serves all calls of an agent, and is
// closed when it was idle for long; there are never more than allowed.
func TestGRPCConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		agent := &grpcAgent{get: func(context.Context, *a2apb.GetTaskRequest) (*a2apb.Task, error) {
			<-release
			return workingTask(), nil
		}}
		rig := newGRPCRig(t, agent)
		rig.conns.most = 2
		var calls sync.WaitGroup
		for range 100 {
			calls.Go(func() {
				if result, f, err := rig.do(t.Context(), verbGet, taskParams); result != workingJSON || f != nil || err != nil {
					t.Errorf("%s, failure %v, error %v", result, f, err)
				}
			})
		}
		synctest.Wait()
		if n := rig.dials.Load(); n != 1 || agent.calls.Load() != 100 {
			t.Errorf("%d connections for %d calls under way", n, agent.calls.Load())
		}
		elsewhere := func(host string) error {
			op := rig.op(verbGet, taskParams)
			op.to.URL = "http://" + host
			_, err := rig.carry(t.Context(), op, op.params)
			return err
		}
		calls.Go(func() {
			if err := elsewhere("b.example"); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		left(t, elsewhere("c.example"), bridge.NotSent, parley.CodeAgentUnavailable, true)
		close(release)
		calls.Wait()
		rig.idle()

		if err := elsewhere("c.example"); err != nil { // in place of the one unused for longest
			t.Error(err)
		}
		if n := len(rig.conns.all); n != 2 {
			t.Errorf("%d connections are kept", n)
		}
		if rig.conns.all[grpcTarget{address: "b.example:80"}] == nil {
			t.Error("the connection that was used last was closed")
		}
		time.Sleep(2 * defaultGRPCIdle)
		for target, c := range rig.conns.all {
			if s := c.GetState(); s != connectivity.Idle {
				t.Errorf("the connection to %s is %v after %v", target.address, s, 2*defaultGRPCIdle)
			}
		}
		before := rig.dials.Load()
		if err := elsewhere("c.example"); err != nil {
			t.Error(err)
		}
		if n := rig.dials.Load() - before; n != 1 {
			t.Errorf("%d connections after the idle time", n)
		}
	})
}

// grpcPKI is a CA with a server's and a client's certificate.
type grpcPKI struct {
	ca             *x509.CertPool
	caPEM          []byte
	server, client tls.Certificate
	cert, key      []byte // of the client, PEM
}

func newGRPCPKI(t *testing.T) *grpcPKI {
	t.Helper()
	p := &grpcPKI{ca: x509.NewCertPool()}
	issue := func(name string, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, []byte, []byte) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		cert := &x509.Certificate{
			SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			IsCA: parent == nil, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		}
		if parent == nil {
			parent, signer = cert, key
		}
		der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, signer)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw})
	}
	pair := func(cert, key []byte) tls.Certificate {
		c, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	root, rootKey, caPEM, _ := issue("root", nil, nil)
	p.caPEM = caPEM
	p.ca.AppendCertsFromPEM(caPEM)
	_, _, cert, key := issue("server", root, rootKey)
	p.server = pair(cert, key)
	_, _, p.cert, p.key = issue("client", root, rootKey)
	p.client = pair(p.cert, p.key)
	return p
}

// TestGRPCTLS: https is TLS with the agent's own CA and client certificate, and
// connections are not shared between identities.
func TestGRPCTLS(t *testing.T) {
	pki := newGRPCPKI(t)
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pki.server}, ClientCAs: pki.ca, ClientAuth: tls.RequireAndVerifyClientCert,
	})))
	a2apb.RegisterA2AServiceServer(server, &grpcAgent{get: func(context.Context, *a2apb.GetTaskRequest) (*a2apb.Task, error) { return workingTask(), nil }})
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(lis) })
	defer serving.Wait()
	defer server.Stop()

	rig := loopbackRig(t, "https://"+lis.Addr().String())
	stranger := rig.agent
	rig.agent.TLS = parley.AgentTLS{Cert: "env:CERT", Key: "env:KEY", CA: "env:CA"}
	rig.agent.Resolved = &parley.ResolvedAuth{Cert: parley.NewSecret(pki.cert), Key: parley.NewSecret(pki.key), CA: parley.NewSecret(pki.caPEM)}
	known := rig.agent
	if result, f, err := rig.do(t.Context(), verbGet, taskParams); result != workingJSON || f != nil || err != nil {
		t.Errorf("%s, failure %v, error %v", result, f, err)
	}
	rig.agent = stranger
	_, _, err = rig.do(t.Context(), verbGet, taskParams)
	x := left(t, err, bridge.NotSent, parley.CodeAgentUnavailable, true)
	if !strings.Contains(x.Err.Message, "x509") && !strings.Contains(x.Err.Message, "certificate") {
		t.Errorf("the error is %q", x.Err.Message)
	}
	rig.agent = known
	rig.agent.URL = "http://" + lis.Addr().String()
	_, _, err = rig.do(t.Context(), verbGet, taskParams)
	if e, ok := errors.AsType[*parley.Error](err); !ok || e.Code != parley.CodeInvalid {
		t.Errorf("TLS settings without TLS: %v", err)
	}
}
