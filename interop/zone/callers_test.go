package zone

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/bedrockagentcore"
	"github.com/aws/smithy-go/middleware"

	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/agentcore/agentcoretest"
	"github.com/parley-project/parley/internal/zone/execution"
	"github.com/parley-project/parley/internal/zone/zonetest"
	"github.com/parley-project/parley/interop/internal/tail"
)

// mode is how a caller deals with failures.
type mode string

const (
	once mode = "once"
	// byDefault is what its makers chose.
	byDefault mode = "default"
	// impatient is byDefault, without much time for an answer.
	impatient mode = "impatient"
)

// call is one call of a caller.
type call struct {
	Endpoint string `json:"endpoint"`
	ARN      string `json:"arn"`
	Secret   string `json:"secret"`
	Mode     mode   `json:"mode"`
	Body     []byte `json:"body"`
}

// reply is what a caller has for its user.
type reply struct {
	Status   int    `json:"status"`
	Type     string `json:"type"`
	Body     []byte `json:"body"`
	Attempts int    `json:"attempts"`
	Error    string `json:"error"`
}

// caller makes calls with an SDK.
type caller func(call) (reply, error)

// boto3 starts python/caller.py.
func boto3(t *testing.T) caller {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := program(ctx, t, "caller.py")
	// Nothing that this machine is set up with has a say.
	cmd.Env = slices.DeleteFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, "AWS_") })
	cmd.Env = append(cmd.Env, "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null", "AWS_EC2_METADATA_DISABLED=true")
	complaints := &tail.Writer{}
	cmd.Stderr = complaints
	stdin, err := cmd.StdinPipe()
	check(t, err)
	stdout, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("caller.py wrote:\n%s", complaints)
		}
	})
	answers := bufio.NewReader(stdout)
	var mu sync.Mutex
	return func(c call) (r reply, err error) {
		mu.Lock()
		defer mu.Unlock()
		line, err := json.Marshal(c)
		if err != nil {
			return r, err
		}
		if _, err := stdin.Write(append(line, '\n')); err != nil {
			return r, fmt.Errorf("caller.py: %w", err)
		}
		if line, err = answers.ReadBytes('\n'); err != nil {
			return r, fmt.Errorf("caller.py: %w", err)
		}
		return r, json.Unmarshal(line, &r)
	}
}

// sdkGo calls with the AWS SDK for Go as it comes.
func sdkGo(t *testing.T) caller {
	t.Helper()
	return func(c call) (reply, error) {
		client := bedrockagentcore.New(bedrockagentcore.Options{
			Region: "us-east-1", BaseEndpoint: &c.Endpoint, Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", c.Secret, ""),
			HTTPClient: &http.Client{Transport: http.DefaultTransport, Timeout: map[mode]time.Duration{impatient: time.Second}[c.Mode]},
		}, func(o *bedrockagentcore.Options) {
			if c.Mode == once {
				o.Retryer = aws.NopRetryer{}
			}
		})
		out, err := client.InvokeAgentRuntime(t.Context(), &bedrockagentcore.InvokeAgentRuntimeInput{
			AgentRuntimeArn: &c.ARN, Payload: c.Body, RuntimeSessionId: aws.String("session-of-the-caller-0123456789abcdef"),
			ContentType: aws.String("application/json"), Accept: aws.String("application/json"),
		})
		if err != nil {
			return reply{Error: err.Error()}, nil
		}
		defer out.Response.Close()
		body, err := io.ReadAll(out.Response)
		return reply{
			Status: int(*out.StatusCode), Type: *out.ContentType, Body: body, Attempts: attempts(out.ResultMetadata),
		}, err
	}
}

func attempts(m middleware.Metadata) int {
	results, _ := retry.GetAttemptResults(m)
	return len(results.Results)
}

// callers gives all of them.
func callers(t *testing.T) map[string]caller {
	t.Helper()
	return map[string]caller{"boto3": boto3(t), "aws-sdk-go-v2": sdkGo(t)}
}

// carrier is a Transport on a caller.
type carrier struct {
	do       caller
	endpoint string
}

// Call implements zone.Transport.
func (c carrier) Call(_ context.Context, body []byte, _ zone.Meta) ([]byte, zone.Info, error) {
	r, err := c.do(call{Endpoint: c.endpoint, ARN: arn, Secret: signer().Secret, Mode: byDefault, Body: append([]byte{}, body...)})
	if err == nil && r.Error != "" {
		err = errors.New(r.Error)
	}
	return r.Body, zone.Info{Attempts: r.Attempts, Status: r.Status, ContentType: r.Type}, err
}

// TestZN6_ForeignCallers: the whole contract, exact to the byte, with the SDKs of
// AWS as callers whose signatures the platform checks.
func TestZN6_ForeignCallers(t *testing.T) {
	t.Parallel()
	for name, do := range callers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var container atomic.Pointer[http.Handler]
			p, endpoint := platform(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*container.Load()).ServeHTTP(w, r) }))
			zonetest.Run(t, func(_ *testing.T, h http.Handler) zone.Transport {
				container.Store(&h)
				return carrier{do: do, endpoint: endpoint}
			})
			if len(p.Calls()) == 0 || len(p.Refused()) > 0 {
				t.Errorf("%d calls, refused %v", len(p.Calls()), p.Refused())
			}
		})
	}
}

// asked is a request, answered its response.
const (
	asked    = `{"jsonrpc":"2.0","method":"execute_task","params":{"text":"say Zürich","correlation_id":"c-1"},"id":"6f1f9a52-6f0f-4c0e-9b6e-0d1a4f3c2b11"}`
	answered = `{"jsonrpc":"2.0","result":{"status":"success","response_text":"Zürich","correlation_id":"c-1"},"id":"6f1f9a52-6f0f-4c0e-9b6e-0d1a4f3c2b11"}`
)

// scene is a zone of ours behind a platform.
type scene struct {
	rig      *zonetest.Rig
	platform *agentcoretest.Platform
	endpoint string
}

func newScene(t *testing.T) scene {
	t.Helper()
	s := scene{rig: zonetest.NewRig(nil)}
	s.platform, s.endpoint = platform(t, s.rig.Zone.Handler())
	return s
}

func (s scene) call(t *testing.T, do caller, m mode) reply {
	t.Helper()
	r, err := do(call{Endpoint: s.endpoint, ARN: arn, Secret: signer().Secret, Mode: m, Body: []byte(asked)})
	check(t, err)
	return r
}

// TestZN3_ForeignCallersRepeat (zones.md §0 row 4): what the SDKs send again by
// themselves, after failures that came when the work was done, is done once.
func TestZN3_ForeignCallersRepeat(t *testing.T) {
	t.Parallel()
	worked := func(f agentcoretest.Fault) agentcoretest.Fault { f.AfterWork = true; return f }
	cut := worked(agentcoretest.Fault{How: agentcoretest.HangsUp})
	failed := worked(agentcoretest.Fault{Status: 500, Type: "InternalServerException", Body: `{"message":"no"}`})
	quiet := worked(agentcoretest.Fault{How: agentcoretest.KeepsQuiet})
	for name, do := range callers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for kind, c := range map[string]struct {
				mode   mode
				faults []agentcoretest.Fault
			}{
				"500, then cut": {byDefault, []agentcoretest.Fault{failed, cut}},
				"504":           {byDefault, []agentcoretest.Fault{worked(agentcoretest.Fault{Status: 504})}},
				"no answer":     {impatient, []agentcoretest.Fault{quiet}},
			} {
				t.Run(kind, func(t *testing.T) {
					t.Parallel()
					s := newScene(t)
					s.platform.Fail(c.faults...)
					r := s.call(t, do, c.mode)
					// Who has no patience may have none with the answer that comes, either.
					calls := len(s.platform.Calls())
					if want := len(c.faults) + 1; calls < want || calls > want && c.mode != impatient {
						t.Errorf("%d calls, want %d", calls, want)
					}
					if r.Error != "" || string(r.Body) != answered || r.Attempts != calls || s.rig.Work.Starts() != 1 {
						t.Errorf("%s, %d attempts, %d tasks were begun: %s", r.Body, r.Attempts, s.rig.Work.Starts(), r.Error)
					}
				})
			}
		})
	}
}

// TestZN6_ForeignCallersStrangers: who signs with another key reaches nobody.
func TestZN6_ForeignCallersStrangers(t *testing.T) {
	t.Parallel()
	for name, do := range callers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			r, err := do(call{Endpoint: s.endpoint, ARN: arn, Secret: "another", Mode: byDefault, Body: []byte(asked)})
			check(t, err)
			if !strings.Contains(r.Error, "InvalidSignatureException") || len(s.platform.Refused()) != 1 || s.rig.Work.Starts() != 0 {
				t.Errorf("%+v, refused %v, %d tasks were begun", r, s.platform.Refused(), s.rig.Work.Starts())
			}
		})
	}
}

// TestZN5_ForeignCallersLost: a caller whose answers were all lost gets it by the id
// of its request.
func TestZN5_ForeignCallersLost(t *testing.T) {
	t.Parallel()
	do := sdkGo(t)
	rig := zonetest.NewRig(func(c *execution.Config) { c.SyncLimit = time.Minute })
	p, endpoint := platform(t, rig.Zone.Handler())
	cut := agentcoretest.Fault{How: agentcoretest.HangsUp, AfterWork: true}
	p.Fail(cut, cut, cut)
	send := call{Endpoint: endpoint, ARN: arn, Secret: signer().Secret, Mode: byDefault, Body: []byte(asked)}
	r, err := do(send)
	if err != nil || r.Error == "" || len(p.Calls()) != 3 {
		t.Fatalf("%+v, %v, %d calls", r, err, len(p.Calls()))
	}
	send.Body = []byte(`{"jsonrpc":"2.0","method":"get_async_task_result","params":{"task_id":"6f1f9a52-6f0f-4c0e-9b6e-0d1a4f3c2b11"},"id":1}`)
	r, err = do(send)
	want := `{"jsonrpc":"2.0","result":{"status":"completed","result":{"status":"success","response_text":"Zürich","correlation_id":"c-1"}},"id":1}`
	if err != nil || string(r.Body) != want || rig.Work.Starts() != 1 {
		t.Errorf("%s, %v, %d tasks were begun", r.Body, err, rig.Work.Starts())
	}
}
