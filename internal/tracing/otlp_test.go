package tracing_test

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/tracing"
	"github.com/parley-project/parley/internal/tracing/tracingtest"
)

// deliver sends one span to a receiver.
func deliver(t *testing.T, r tracing.Receiver) error {
	t.Helper()
	exporter, err := tracing.NewExporter(t.Context(), r)
	if err != nil {
		return err
	}
	tracer := tracing.New(tracing.Config{Exporter: exporter, Timeout: time.Minute, Sample: 1, Random: counting()})
	own, _ := tracer.Run("run-1", sampled)
	now := time.Now()
	tracer.Record(tracing.Span{Own: own, Above: sampled, Name: "run a", Kind: tracing.Client, Start: now, End: now.Add(time.Second), Failed: "timeout"})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
	defer cancel()
	return tracer.Close(ctx)
}

// TestOTLP: spans arrive as OTLP has them, with the header that was asked for; a URL
// without a path is that of the receiver's root.
func TestOTLP(t *testing.T) {
	r := tracingtest.New(t)
	for _, path := range []string{"", "/", "/v1/traces"} {
		if err := deliver(t, tracing.Receiver{URL: r.URL + path, Header: "X-Team", Value: parley.NewSecret([]byte("s3cret-team"))}); err != nil {
			t.Fatal(err)
		}
	}
	list := r.Spans()
	if len(list) != 3 {
		t.Fatalf("%d spans", len(list))
	}
	for i, s := range list {
		if s.Trace != sampled.ID() || s.Parent != sampled.SpanID() || s.State != sampled.State || s.Name != "run a" || s.Kind != "client" ||
			s.End.Sub(s.Start) != time.Second || s.Status != "timeout" || !s.Failed || s.Resource["service.name"] != "parley" {
			t.Errorf("got %+v", s)
		}
		if h := r.Headers()[i]; h.Get("X-Team") != "s3cret-team" {
			t.Errorf("headers %v", h)
		}
	}
}

// TestOTLPOverTLS: a receiver is trusted by the certificates that were named.
func TestOTLPOverTLS(t *testing.T) {
	var got atomic.Int32
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { got.Add(1) }))
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pemOf(s), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := deliver(t, tracing.Receiver{URL: s.URL}); err != nil || got.Load() != 0 {
		t.Errorf("without it: %v, %d requests", err, got.Load())
	}
	if err := deliver(t, tracing.Receiver{URL: s.URL, CA: file}); err != nil || got.Load() != 1 {
		t.Errorf("with it: %v, %d requests", err, got.Load())
	}
}

// TestOTLPRedirect: the header of a receiver goes nowhere else.
func TestOTLPRedirect(t *testing.T) {
	var asked atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(other.Close)
	s := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	t.Cleanup(s.Close)
	if err := deliver(t, tracing.Receiver{URL: s.URL, Header: "X-Team", Value: parley.NewSecret([]byte("s3cret-team"))}); err != nil || asked.Load() != 0 {
		t.Errorf("%v, the other one was asked %d times", err, asked.Load())
	}
}

// TestReceiverRefused: what is wrong with a receiver is said at the start, without what
// may be secret.
func TestReceiverRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none.pem")
	if err := os.WriteFile(file, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		r    tracing.Receiver
		want string
	}{
		{tracing.Receiver{URL: "collector:4318"}, "telemetry.traces.url"},
		{tracing.Receiver{URL: "grpc://collector:4317"}, "telemetry.traces.url"},
		{tracing.Receiver{URL: "http://"}, "telemetry.traces.url"},
		{tracing.Receiver{URL: "http://ann:hunter2@collector/v1/traces"}, "telemetry.traces.header"},
		{tracing.Receiver{URL: "http://collector/v1/traces?key=hunter2"}, "telemetry.traces.header"},
		{tracing.Receiver{URL: "http://coll\x7fector/hunter2"}, "telemetry.traces.url"},
		{tracing.Receiver{URL: "https://collector", CA: file + ".missing"}, "telemetry.traces.ca"},
		{tracing.Receiver{URL: "https://collector", CA: file}, "telemetry.traces.ca"},
	} {
		_, err := tracing.NewExporter(t.Context(), tt.r)
		if parley.CodeOf(err) != parley.CodeInvalid || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", tt.r.URL, err)
		}
	}
}

// pemOf gives the certificate of a server.
func pemOf(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// TestCheck: whether a receiver would take spans is found out without any.
func TestCheck(t *testing.T) {
	r := tracingtest.New(t)
	if err := tracing.Check(t.Context(), tracing.Receiver{URL: r.URL, Header: "X-Team", Value: parley.NewSecret([]byte("s3cret-team"))}); err != nil || len(r.Spans()) != 0 {
		t.Errorf("%v, %d spans", err, len(r.Spans()))
	}
	if h := r.Headers(); len(h) != 1 || h[0].Get("X-Team") != "s3cret-team" {
		t.Errorf("asked with %v", h)
	}
	r.Answer(http.StatusUnauthorized)
	if err := tracing.Check(t.Context(), tracing.Receiver{URL: r.URL}); parley.CodeOf(err) != parley.CodeUnavailable || !strings.Contains(err.Error(), "401 Unauthorized") {
		t.Error(err)
	}
	r.Close()
	if err := tracing.Check(t.Context(), tracing.Receiver{URL: r.URL}); parley.CodeOf(err) != parley.CodeUnavailable {
		t.Error(err)
	}
	if err := tracing.Check(t.Context(), tracing.Receiver{URL: "x"}); parley.CodeOf(err) != parley.CodeInvalid {
		t.Error(err)
	}
}
