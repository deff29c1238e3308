package tracing

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/parley-project/parley"
)

// Receiver is where spans are delivered: by OTLP over HTTP, in protobuf.
type Receiver struct {
	// URL is the whole one, such as http://127.0.0.1:4318/v1/traces.
	URL string
	// Header and Value are sent along, such as Authorization; "" is none.
	Header string
	Value  parley.Secret
	// CA is a file of certificates (PEM) that the receiver's is signed by; "" is those
	// of the system.
	CA string
	// Timeout bounds one try; default 10 s.
	Timeout time.Duration
	// Dial opens connections; nil is the system's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// pathTraces is where OTLP is at, if nothing else is said.
const pathTraces = "/v1/traces"

// NewExporter gives the exporter for a receiver. It connects to nobody yet. The error
// has code invalid and names what is wrong with r.
func NewExporter(ctx context.Context, r Receiver) (sdk.SpanExporter, error) {
	u, client, err := r.connect()
	if err != nil {
		return nil, err
	}
	options := []otlptracehttp.Option{
		otlptracehttp.WithEndpointURL(u), otlptracehttp.WithTimeout(client.Timeout), otlptracehttp.WithCompression(otlptracehttp.GzipCompression),
		otlptracehttp.WithHTTPClient(client),
	}
	if r.Header != "" {
		options = append(options, otlptracehttp.WithHeaders(map[string]string{r.Header: string(r.Value.Reveal())}))
	}
	return otlptracehttp.New(ctx, options...)
}

// Check delivers nothing, as an exporter would deliver spans, and says whether that was
// taken. The error has code invalid if something is wrong with r, else unavailable.
func Check(ctx context.Context, r Receiver) error {
	u, client, err := r.connect()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u, http.NoBody) // an empty message has no bytes
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	if r.Header != "" {
		req.Header.Set(r.Header, string(r.Value.Reveal()))
	}
	resp, err := client.Do(req)
	if err != nil {
		return parley.Errorf(parley.CodeUnavailable, "no spans can be delivered: %w", err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return parley.Errorf(parley.CodeUnavailable, "%s answers spans with %s", u, resp.Status)
	}
	return nil
}

// connect checks what r says, and gives the whole URL and who asks there.
func (r Receiver) connect() (string, *http.Client, error) {
	u, err := url.Parse(r.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "", nil, parley.Errorf(parley.CodeInvalid, "telemetry.traces.url must be a URL such as http://127.0.0.1:4318/v1/traces")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", nil, parley.Errorf(parley.CodeInvalid, "telemetry.traces.url: user, password, query and fragment cannot stand in it; a secret goes into telemetry.traces.header")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = pathTraces
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if r.Dial != nil {
		transport.DialContext = r.Dial
	}
	if r.CA != "" {
		if transport.TLSClientConfig, err = trusting(r.CA); err != nil {
			return "", nil, err
		}
	}
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second, CheckRedirect: noRedirect}
	if r.Timeout > 0 {
		client.Timeout = r.Timeout
	}
	return u.String(), client, nil
}

// noRedirect keeps the header of a receiver with that receiver.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func trusting(file string) (*tls.Config, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, parley.Errorf(parley.CodeInvalid, "telemetry.traces.ca cannot be read: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, parley.Errorf(parley.CodeInvalid, "telemetry.traces.ca: %s holds no certificates (PEM)", file)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}
