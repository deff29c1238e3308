package agentcore

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/smithy-go/logging"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/direct"
)

const testARN = "arn:aws:bedrock-agentcore:us-west-2:123456789012:runtime/x"

// TestZN6_AgentCoreSDKLogsAndRepeatsNothing: any mode of the SDK's log shows
// payloads or signatures, and its own repetitions would run an agent twice.
func TestZN6_AgentCoreSDKLogsAndRepeatsNothing(t *testing.T) {
	t.Setenv("AWS_MAX_ATTEMPTS", "7")
	t.Setenv("AWS_RETRY_MODE", "adaptive")
	tr, err := New(t.Context(), Config{RuntimeARN: testARN, Credentials: credentials.NewStaticCredentialsProvider("a", "b", "")})
	if err != nil {
		t.Fatal(err)
	}
	o := tr.client.Options()
	if o.ClientLogMode != 0 {
		t.Errorf("the log mode is %b", o.ClientLogMode)
	}
	for _, flag := range []aws.ClientLogMode{aws.LogSigning, aws.LogRequest, aws.LogRequestWithBody, aws.LogResponseWithBody} {
		if o.ClientLogMode&flag != 0 {
			t.Errorf("the log mode has %b", flag)
		}
	}
	if _, ok := o.Logger.(logging.Nop); !ok {
		t.Errorf("the SDK logs to %T", o.Logger)
	}
	if o.Retryer.MaxAttempts() != 1 {
		t.Errorf("the SDK sends %d times", o.Retryer.MaxAttempts())
	}
}

func TestZN6_AgentCoreEndpoints(t *testing.T) {
	for region, want := range map[string]string{
		"us-west-2":  "https://bedrock-agentcore.us-west-2.amazonaws.com",
		"cn-north-1": "https://bedrock-agentcore.cn-north-1.amazonaws.com.cn",
	} {
		u, err := endpoint(t.Context(), Config{Region: region})
		if err != nil || u.String() != want {
			t.Errorf("%s: %v, %v", region, u, err)
		}
	}
}

// TestZN6_AgentCoreBothModesAskTheSame: the path, query and headers with a token
// are those that the SDK makes.
func TestZN6_AgentCoreBothModesAskTheSame(t *testing.T) {
	seen := make(map[AuthMode][]string)
	for _, mode := range []AuthMode{SigV4, JWT} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen[mode] = append(seen[mode], r.Method+" "+r.RequestURI, r.Header.Get("Content-Type"), r.Header.Get(sessionHeader), r.Header.Get("Traceparent"), r.Header.Get("Tracestate"), r.Header.Get(CorrelationHeader))
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte("{}"))
		}))
		cfg := Config{RuntimeARN: testARN, Qualifier: "a b", Endpoint: srv.URL, Auth: mode, NewID: func() string { return strings.Repeat("7", 20) }}
		cfg.Credentials, cfg.Authorize = credentials.NewStaticCredentialsProvider("a", "b", ""), direct.Bearer(parley.NewSecret([]byte("t")))
		tr, err := New(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, info, err := tr.Call(ctx, []byte("{}"), zone.Meta{Trace: parley.Trace{Parent: "00-a", State: "a=1"}, CorrelationID: "c"})
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Release(ctx, info.Affinity); err != nil {
			t.Fatal(err)
		}
		cancel()
		srv.Close()
	}
	if a, b := strings.Join(seen[SigV4], "\n"), strings.Join(seen[JWT], "\n"); a != b {
		t.Errorf("the SDK asks\n%s\nwith a token\n%s", a, b)
	}
}
