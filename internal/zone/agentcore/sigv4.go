package agentcore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/bedrockagentcore"
	"github.com/aws/smithy-go/logging"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/direct"
)

func newSigned(ctx context.Context, cfg Config) (*Transport, error) {
	load := []func(*config.LoadOptions) error{config.WithRegion(cfg.Region)}
	if cfg.Credentials != nil {
		load = append(load, config.WithCredentialsProvider(cfg.Credentials))
	}
	sdk, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, fmt.Errorf("zone: the configuration of the AWS SDK: %w", err)
	}
	t := &Transport{cfg: cfg, wire: direct.NewWire(direct.WireConfig{TLS: cfg.TLS, Dial: cfg.Dial, Proxy: cfg.Proxy})}
	t.client = bedrockagentcore.NewFromConfig(sdk, func(o *bedrockagentcore.Options) {
		// Every mode of its log shows a payload, a signature or a token.
		o.ClientLogMode, o.Logger = 0, logging.Nop{}
		// It would repeat what may have run. What is repeated is decided here.
		// AWS_MAX_ATTEMPTS would count for more than the retryer.
		o.Retryer, o.RetryMaxAttempts = aws.NopRetryer{}, 1
		o.HTTPClient = &recorder{wire: t.wire, limit: cfg.MaxResponse}
		if cfg.Endpoint != "" {
			o.BaseEndpoint = aws.String(cfg.Endpoint)
		}
	})
	if base := t.client.Options().BaseEndpoint; base != nil && cfg.Endpoint == "" {
		u, err := direct.CheckURL(*base, cfg.AllowHTTP)
		if err != nil {
			return nil, fmt.Errorf("AWS_ENDPOINT_URL: %w", err)
		}
		cfg.Logger.WarnContext(ctx, "the environment sends requests to AgentCore elsewhere", "host", u.Host)
	}
	return t, nil
}

func (t *Transport) callSigned(ctx context.Context, body []byte, meta zone.Meta) ([]byte, zone.Info, error) {
	if err := direct.CheckCall(ctx, body); err != nil {
		return nil, zone.Info{}, err
	}
	session, err := t.cfg.session(meta)
	if err != nil {
		return nil, zone.Info{}, &zone.TransportError{Class: zone.ClassNotSent, Err: err}
	}
	in := &bedrockagentcore.InvokeAgentRuntimeInput{
		AgentRuntimeArn: &t.cfg.RuntimeARN, Payload: body, RuntimeSessionId: &session,
		ContentType: aws.String("application/json"), Accept: aws.String("application/json"),
	}
	if t.cfg.Qualifier != "" {
		in.Qualifier = &t.cfg.Qualifier
	}
	beside := http.Header{}
	if t := meta.Trace; !t.IsZero() { // the SDK signs both
		in.TraceParent = &t.Parent
		if t.State != "" {
			in.TraceState = &t.State
		}
	}
	direct.SetHeader(beside, CorrelationHeader, meta.CorrelationID)
	options := func(o *bedrockagentcore.Options) {
		if id := beside.Get(CorrelationHeader); id != "" {
			o.APIOptions = append(o.APIOptions, smithyhttp.SetHeaderValue(CorrelationHeader, id))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, t.cfg.Timeout)
	defer cancel()
	return t.cfg.Retry.Do(ctx, func(ctx context.Context) ([]byte, zone.Info, *zone.TransportError) {
		out, info, fault := t.invoke(ctx, in, options)
		info.Affinity = session
		return out, info, fault
	}, againSigned())
}

// againSigned is again, and yes for the first refusal over clocks that differ.
func againSigned() func(*zone.TransportError) bool {
	corrected := false
	return func(f *zone.TransportError) bool {
		if r, ok := errors.AsType[*refusal](f.Err); ok && r.clock && !corrected {
			corrected = true
			return true
		}
		return again(f)
	}
}

// invoke sends one request.
func (t *Transport) invoke(ctx context.Context, in *bedrockagentcore.InvokeAgentRuntimeInput, options func(*bedrockagentcore.Options)) ([]byte, zone.Info, *zone.TransportError) {
	rec := &record{}
	out, err := t.client.InvokeAgentRuntime(context.WithValue(ctx, recordKey{}, rec), in, options)
	if err == nil {
		out.Response.Close()
	}
	return rec.outcome(err, func(a direct.Answer) *zone.TransportError { return judge(a, t.cfg.Retry.Now()) })
}

func (t *Transport) releaseSigned(ctx context.Context, session string) error {
	in := &bedrockagentcore.StopRuntimeSessionInput{
		AgentRuntimeArn: &t.cfg.RuntimeARN, RuntimeSessionId: &session, ClientToken: aws.String(t.clientToken()),
	}
	if t.cfg.Qualifier != "" {
		in.Qualifier = &t.cfg.Qualifier
	}
	_, _, err := t.cfg.Retry.Do(ctx, func(ctx context.Context) ([]byte, zone.Info, *zone.TransportError) {
		rec := &record{}
		_, err := t.client.StopRuntimeSession(context.WithValue(ctx, recordKey{}, rec), in)
		return rec.outcome(err, func(a direct.Answer) *zone.TransportError { return judgeStop(a, t.cfg.Retry.Now()) })
	}, againSigned())
	return err
}

// record is what became of one request of the SDK: at most one of answer and fault
// is set, and neither if it was never sent.
type record struct {
	attempts int
	answer   *direct.Answer
	fault    error
	status   int
}

type recordKey struct{}

// outcome goes by what was recorded, and by the SDK's error only if there is
// nothing: its errors lack the body, and to it half a body is a success.
func (r *record) outcome(err error, judge func(direct.Answer) *zone.TransportError) ([]byte, zone.Info, *zone.TransportError) {
	info := zone.Info{Attempts: r.attempts, Status: r.status}
	switch {
	case r.answer != nil:
		info.ContentType = r.answer.Header.Get("Content-Type")
		info.ProviderRequestID = r.answer.Header.Get(requestIDHeader)
		if fault := judge(*r.answer); fault != nil {
			return nil, info, fault
		}
		return r.answer.Body, info, nil
	case r.fault != nil:
		return nil, info, direct.AsFault(r.fault)
	default:
		return nil, info, &zone.TransportError{Class: zone.ClassNotSent, Err: fmt.Errorf("the request could not be made or signed: %w", err)}
	}
}

// recorder is the HTTP client of the SDK: it reads every answer whole, and keeps
// it.
type recorder struct {
	wire  *direct.Wire
	limit int64
}

// Do sends a request of the SDK.
func (c *recorder) Do(req *http.Request) (*http.Response, error) {
	rec, ok := req.Context().Value(recordKey{}).(*record)
	if !ok {
		rec = &record{}
	}
	rec.attempts++
	resp, err := c.wire.Do(req)
	if err != nil {
		rec.fault = err
		return nil, err
	}
	rec.status = resp.StatusCode
	answer, err := direct.ReadAnswer(resp, c.limit)
	if err != nil {
		rec.fault = err
		return nil, err
	}
	rec.answer = &answer
	resp.Body = io.NopCloser(bytes.NewReader(answer.Body))
	return resp, nil
}

// endpoint gives the URL of the platform in a region.
func endpoint(ctx context.Context, cfg Config) (*url.URL, error) {
	if cfg.Endpoint != "" {
		return direct.CheckURL(cfg.Endpoint, cfg.AllowHTTP)
	}
	e, err := bedrockagentcore.NewDefaultEndpointResolverV2().ResolveEndpoint(ctx, bedrockagentcore.EndpointParameters{
		Region: &cfg.Region, UseFIPS: aws.Bool(false), UseDualStack: aws.Bool(false),
	})
	if err != nil {
		return nil, fmt.Errorf("zone: no endpoint of AgentCore in %s: %w", cfg.Region, err)
	}
	return &e.URI, nil
}
