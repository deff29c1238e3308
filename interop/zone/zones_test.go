package zone

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/agentcore"
	"github.com/parley-project/parley/internal/zone/agentcore/agentcoretest"
	"github.com/parley-project/parley/internal/zone/direct"
	"github.com/parley-project/parley/internal/zone/zonetest"
)

const (
	arn = "arn:aws:bedrock-agentcore:us-east-1:123456789012:runtime/exec-AbC123"
	// modelSecret is in what the careless agents raise.
	modelSecret = "xoxb-secret-of-the-model"
)

// signer is who the platform believes.
func signer() agentcoretest.Verifier {
	return agentcoretest.Verifier{Region: "us-east-1", AccessKey: "AKIDEXAMPLE", Secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}
}

// platform puts something behind a platform like AgentCore.
func platform(t *testing.T, container http.Handler) (p *agentcoretest.Platform, endpoint string) {
	t.Helper()
	p = agentcoretest.New(agentcoretest.Config{Verifier: signer(), RuntimeARN: arn, Container: container})
	srv := httptest.NewServer(p)
	t.Cleanup(srv.Close)
	return p, srv.URL
}

// foreign is a client of a zone that is not ours.
type foreign struct {
	*zone.Client
	newID func() string
	// rpcFailure: what its agent raises comes as an error of JSON-RPC, else as HTTP
	// 500, of which nobody knows what it means.
	rpcFailure bool
	platform   *agentcoretest.Platform // nil over direct
}

func newForeign(tr zone.Transport, name string) *foreign {
	ids := zonetest.IDs()
	return &foreign{
		Client: zone.NewClient(zone.ClientConfig{Transport: tr, Profile: zone.ProfileStrict, NewID: ids}),
		newID:  ids, rpcFailure: name == library,
	}
}

// overDirect reaches a program past everything.
func overDirect(t *testing.T, name, address string) *foreign {
	t.Helper()
	cfg := direct.Config{URL: "http://" + address + "/invocations"}
	if name == runtimeNode { // takes nothing outside of a session
		cfg.Platform.Header = func(h http.Header, meta zone.Meta) (string, error) {
			h.Set("X-Amzn-Bedrock-AgentCore-Runtime-Session-Id", "session-of-the-verification-zone-1")
			return meta.Affinity, nil
		}
	}
	tr, err := direct.New(cfg)
	check(t, err)
	t.Cleanup(tr.Close)
	return newForeign(tr, name)
}

// overAgentCore reaches a program as the container of a platform.
func overAgentCore(t *testing.T, name, address string) *foreign {
	t.Helper()
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address})
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	p, endpoint := platform(t, proxy)
	tr, err := agentcore.New(t.Context(), agentcore.Config{
		RuntimeARN: arn, Endpoint: endpoint, Credentials: credentials.NewStaticCredentialsProvider(signer().AccessKey, signer().Secret, ""),
	})
	check(t, err)
	t.Cleanup(tr.Close)
	f := newForeign(tr, name)
	f.platform = p
	return f
}

// ask asks, and sees to it that nothing secret comes back in any form.
func (f *foreign) ask(t *testing.T, text string) (zone.Result, zone.Info, error) {
	t.Helper()
	res, info, err := f.Ask(within(t, 2*time.Minute), zone.Call{ID: f.newID(), Task: zone.Task{
		Text: text, Channel: "C1", CorrelationID: "corr-1", BotToken: zonetest.Secret(),
	}})
	noSecret(t, res, info, err)
	return res, info, err
}

func noSecret(t *testing.T, what ...any) {
	t.Helper()
	for _, v := range what {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		text := fmt.Sprintf("%+v %#v %s", v, v, raw)
		if fault, ok := v.(error); ok {
			text += fmt.Sprintf("%#v", errors.Unwrap(fault))
		}
		for _, secret := range []string{modelSecret, zonetest.Token, signer().Secret} {
			if strings.Contains(text, secret) {
				t.Errorf("a secret is in %.1000s", text)
			}
		}
	}
}

// TestZN6_ForeignExecutionZones: our client has the same answers from zones on the
// official SDKs and on a JSON-RPC library, over either transport.
func TestZN6_ForeignExecutionZones(t *testing.T) {
	t.Parallel()
	for _, name := range []string{runtimePython, runtimeNode, library} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := serve(t, name, setup{})
			for transport, f := range map[string]*foreign{"direct": overDirect(t, name, address), "agentcore": overAgentCore(t, name, address)} {
				t.Run(transport, func(t *testing.T) {
					t.Run("success", f.testSuccess)
					t.Run("accepted", f.testAccepted)
					t.Run("failures", f.testFailures)
				})
			}
		})
	}
}

func (f *foreign) testSuccess(t *testing.T) {
	for name, text := range map[string]string{
		"plain": "hello", "unicode": "Zürich 日本 😀 \u2028 <b>&amp;</b> \"q\" \\ \t\n\x00 \u007f e\u0301",
		"large": strings.Repeat("0123456789", 90_000),
	} {
		res, info, err := f.ask(t, "say "+text)
		if err != nil || res.Status != zone.StatusSuccess || res.ResponseText != "echo: "+text || info.Attempts != 1 || info.Status != http.StatusOK {
			t.Errorf("%s: %.200q, %+v, %v", name, res.ResponseText, info, err)
		}
		// The token that they send back is dropped, what nobody knows is kept.
		if len(res.More) != 1 || string(res.More["model"]) != `"m1"` {
			t.Errorf("%s: more %s", name, res.More)
		}
	}
	res, _, err := f.ask(t, "say "+zonetest.Token)
	if err != nil || res.ResponseText != "echo: [redacted]" {
		t.Errorf("%q, %v", res.ResponseText, err)
	}
}

func (f *foreign) testAccepted(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	res, info, err := f.ask(t, "later")
	if err != nil || res.Status != zone.StatusAccepted || res.TaskID == "" || res.PollAfterMS != 200 {
		t.Fatalf("%+v, %v", res, err)
	}
	meta := zone.Meta{Affinity: info.Affinity}
	var seen []zone.Status
	for {
		got, _, err := f.Fetch(ctx, zone.Query{TaskID: res.TaskID, CorrelationID: "corr-1"}, meta)
		check(t, err)
		seen = append(seen, got.Status)
		if got.Status == zone.StatusRunning {
			time.Sleep(time.Duration(res.PollAfterMS) * time.Millisecond)
			continue
		}
		if got.Status != zone.StatusCompleted || got.Result == nil || got.Result.ResponseText != "late" {
			t.Errorf("%+v", got)
		}
		break
	}
	got, _, err := f.Fetch(ctx, zone.Query{TaskID: "task-of-nobody"}, meta)
	if err != nil || got.Status != zone.StatusExpired || got.Error == nil || got.Error.Reason != zone.ReasonUnknownTask {
		t.Errorf("%+v, %v", got, err)
	}
	check(t, f.Release(ctx, info.Affinity))
	if f.platform == nil {
		return
	}
	calls := f.platform.Calls()
	for _, c := range calls[len(calls)-len(seen)-2:] {
		if c.Session != info.Affinity {
			t.Errorf("a call went to the session %s, not to %s", c.Session, info.Affinity)
		}
	}
	if !slices.Equal(f.platform.Stopped(), []string{info.Affinity}) || len(f.platform.Refused()) > 0 {
		t.Errorf("stopped %v, refused %v", f.platform.Stopped(), f.platform.Refused())
	}
}

func (f *foreign) testFailures(t *testing.T) {
	_, info, err := f.ask(t, "error of the model "+modelSecret)
	fault, ok := errors.AsType[*zone.Error](err)
	if !ok || fault.Reason != zone.ReasonTimeout || fault.Foreign != "bedrock_timeout" || info.Attempts != 1 {
		t.Errorf("status error: %#v, %+v", err, info)
	}
	_, info, err = f.ask(t, "raise")
	fault, ok = errors.AsType[*zone.Error](err)
	switch {
	case info.Attempts != 1:
		t.Errorf("what failed was asked %d times", info.Attempts)
	case f.rpcFailure && (!ok || fault.Reason != zone.ReasonInternal):
		t.Errorf("raise: %#v", err)
	case !f.rpcFailure && class(err) != zone.ClassUnknownOutcome:
		t.Errorf("raise: %v, %+v", err, info)
	}
	_, _, err = f.Card(within(t, 2*time.Minute), zone.Meta{}) // a method that none of them has
	if fault, ok = errors.AsType[*zone.Error](err); !ok || fault.Reason != zone.ReasonUnknownMethod {
		t.Errorf("unknown method: %#v", err)
	}
}

// TestZN6_ForeignRefusals: what the SDKs say to requests that they do not take.
func TestZN6_ForeignRefusals(t *testing.T) {
	t.Parallel()
	python, node := serve(t, runtimePython, setup{}), serve(t, runtimeNode, setup{})
	ctx := within(t, 2*time.Minute)
	nosession, err := direct.New(direct.Config{URL: "http://" + node + "/invocations"})
	check(t, err)
	defer nosession.Close()
	_, info, err := newForeign(nosession, runtimeNode).ask(t, "say x")
	if class(err) != zone.ClassBadResponse || info.Status != http.StatusBadRequest {
		t.Errorf("without a session: %v, %+v", err, info)
	}
	_, info, err = overDirect(t, runtimeNode, node).ask(t, "say "+strings.Repeat("x", 1<<20))
	if class(err) != zone.ClassTooLarge {
		t.Errorf("too large: %v, %+v", err, info)
	}
	// The platform says nothing of why the container does not take it.
	_, info, err = overAgentCore(t, runtimeNode, node).ask(t, "say "+strings.Repeat("x", 1<<20))
	if class(err) != zone.ClassUnknownOutcome || info.Attempts != 1 {
		t.Errorf("too large, over the platform: %v, %+v", err, info)
	}
	deep := string(bytes.Repeat([]byte("["), 100_000))
	for body, status := range map[string]int{`{"jsonrpc":`: 400, "": 400, "\"\xff\"": 400, deep: 500} {
		// What raises in it closes a connection that its answer kept open.
		raw, err := direct.New(direct.Config{URL: "http://" + python + "/invocations"})
		check(t, err)
		_, info, err := raw.Call(ctx, []byte(body), zone.Meta{})
		raw.Close()
		want := zone.ClassBadResponse
		if status == http.StatusInternalServerError {
			want = zone.ClassUnknownOutcome
		}
		if class(err) != want || info.Status != status {
			t.Errorf("%.20q: %v, %+v", body, err, info)
		}
	}
}
