package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

// serve gives a client of a server that answers with h.
func serve(t *testing.T, h http.HandlerFunc) *client.Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := client.New(client.Options{URL: s.URL + "/", Key: parley.NewSecret([]byte("k1")), HTTPClient: s.Client()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// answer gives a handler that always says the same.
func answer(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if contentType != "" {
			w.Header().Set("Content-Type", contentType)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// seen is what a server got.
type seen struct{ Method, Target, Type, Body string }

// record answers with body and keeps what was asked.
func record(status int, body string, got *seen) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		*got = seen{r.Method, r.URL.RequestURI(), r.Header.Get("Content-Type"), string(b)}
		answer(status, "application/json", body)(w, r)
	}
}

func TestNewRefusesBadOptions(t *testing.T) {
	t.Parallel()
	for _, u := range []string{"", "127.0.0.1:80", "ftp://h", "http://", "http://u:secret@h", "http://h?x=1", "http://h#f", "http://[::1", ":"} {
		_, err := client.New(client.Options{URL: u})
		if parley.CodeOf(err) != parley.CodeInvalid {
			t.Errorf("New(%q) = %v, want code invalid", u, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("New(%q) repeats the password: %v", u, err)
		}
	}
	_, err := client.New(client.Options{URL: "http://h", Key: parley.NewSecret([]byte("a\r\nX: y"))})
	if parley.CodeOf(err) != parley.CodeInvalid {
		t.Errorf("a key with a line break: %v", err)
	}
}

// requestCase is a method and what the server is to see of it.
type requestCase struct {
	name   string
	answer string
	call   func(c *client.Client) error
	want   seen
}

func runRequests(ctx context.Context) []requestCase {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.FixedZone("", 3600))
	return []requestCase{
		{"start keeps the input's bytes", `{"id":"r"}`, func(c *client.Client) error {
			_, err := c.StartRun(ctx, parley.StartRequest{
				Workflow: "a b/c?", Version: "2", Input: json.RawMessage(`{"z":1e400,"a":"<&>"}`),
				IdempotencyKey: "k", Labels: map[string]string{"l": "v"},
			})
			return err
		}, seen{"POST", "/api/v1/workflows/a%20b%2Fc%3F/execute", "application/json", `{"input_data":{"z":1e400,"a":"<&>"},"idempotency_key":"k","labels":{"l":"v"},"version":"2"}`}},
		{"start without input", `{"id":"r"}`, func(c *client.Client) error {
			_, err := c.StartRun(ctx, parley.StartRequest{Workflow: "w"})
			return err
		}, seen{"POST", "/api/v1/workflows/w/execute", "application/json", `{"input_data":{}}`}},
		{"agent call", `{"id":"r"}`, func(c *client.Client) error {
			_, err := c.StartRun(ctx, parley.StartRequest{CallAgent: "g", Input: json.RawMessage(`[1]`)})
			return err
		}, seen{"POST", "/api/v1/agents/g/call", "application/json", `{"input":[1]}`}},
		{"runs", `{"items":[]}`, func(c *client.Client) error {
			_, err := c.Runs(ctx, client.RunQuery{
				Status: parley.RunFailed, Workflow: "w", CreatedAfter: at, SortBy: "status", Ascending: true, Hidden: true,
				Page: client.PageQuery{Number: 2, Size: 5},
			})
			return err
		}, seen{"GET", "/api/v1/runs?created_after=2026-11-21T11%3A00%3A00Z&hidden=true&page=2&page_size=5&sort_by=status&sort_order=asc&status=FAILED&workflow_id=w", "", ""}},
		{"events", `{"items":[]}`, func(c *client.Client) error {
			_, err := c.Events(ctx, "r", client.EventQuery{After: 3, Limit: 7})
			return err
		}, seen{"GET", "/api/v1/runs/r/events?after=3&limit=7", "", ""}},
		{
			"cancel", `{}`, func(c *client.Client) error { _, err := c.Cancel(ctx, "r", "why"); return err },
			seen{"POST", "/api/v1/runs/r/cancel", "application/json", `{"reason":"why"}`},
		},
		{"answer", `{}`, func(c *client.Client) error {
			_, err := c.Answer(ctx, parley.AnswerRequest{
				Run: "r", Step: "a/b", Reply: parley.Reply{Text: "<&>", Data: json.RawMessage(`{"n":1e400}`), By: "me"},
			})
			return err
		}, seen{"POST", "/api/v1/runs/r/answer", "application/json", `{"step":"a/b","text":"<&>","data":{"n":1e400},"by":"me"}`}},
		{"approve", `{}`, func(c *client.Client) error {
			_, err := c.Answer(ctx, parley.AnswerRequest{Run: "r", Choice: "approve", Roles: []string{"cfo"}, Reply: parley.Reply{By: "ann"}})
			return err
		}, seen{"POST", "/api/v1/runs/r/answer", "application/json", `{"choice":"approve","by":"ann","roles":["cfo"]}`}},
		{"approvals", `{"items":[]}`, func(c *client.Client) error {
			_, err := c.Approvals(ctx, client.ApprovalQuery{Run: "r", For: []string{"a", "b"}})
			return err
		}, seen{"GET", "/api/v1/approvals?for=a&for=b&run_id=r", "", ""}},
		{"publish", `{}`, func(c *client.Client) error {
			_, err := c.Publish(ctx, parley.Signal{Name: "paid", Key: "7", ID: "e", Data: json.RawMessage(`{"n":1e400}`)})
			return err
		}, seen{"POST", "/api/v1/events", "application/json", `{"event":"paid","key":"7","data":{"n":1e400},"id":"e"}`}},
		{
			"signal", `{}`, func(c *client.Client) error { _, err := c.Signal(ctx, "r", parley.Signal{Name: "go"}); return err },
			seen{"POST", "/api/v1/runs/r/signal", "application/json", `{"event":"go"}`},
		},
		{"retry", `{}`, func(c *client.Client) error { _, err := c.Retry(ctx, "r"); return err }, seen{"POST", "/api/v1/runs/r/retry", "", ""}},
		{"retry with a key", `{}`, func(c *client.Client) error {
			_, err := c.RetryRun(ctx, parley.RetryRequest{Run: "r", IdempotencyKey: "k", By: "me"})
			return err
		}, seen{"POST", "/api/v1/runs/r/retry", "application/json", `{"idempotency_key":"k"}`}},
	}
}

func controlRequests(ctx context.Context) []requestCase {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.FixedZone("", 3600))
	return []requestCase{
		{"terminate", `{}`, func(c *client.Client) error { _, err := c.Terminate(ctx, "r", "why"); return err }, seen{"POST", "/api/v1/runs/r/terminate", "application/json", `{"reason":"why"}`}},
		{"pause", `{}`, func(c *client.Client) error { _, err := c.Pause(ctx, "r", ""); return err }, seen{"POST", "/api/v1/runs/r/pause", "application/json", `{}`}},
		{"resume", `{}`, func(c *client.Client) error { _, err := c.Resume(ctx, "r"); return err }, seen{"POST", "/api/v1/runs/r/resume", "application/json", `{}`}},
		{"rerun", `{}`, func(c *client.Client) error {
			_, err := c.Rerun(ctx, parley.RerunRequest{Run: "r", From: "a/b", Input: json.RawMessage(`1e400`), WorkflowInput: json.RawMessage(`{"a":"<"}`), Version: "3", IdempotencyKey: "k", By: "me"})
			return err
		}, seen{"POST", "/api/v1/runs/r/rerun", "application/json", `{"from":"a/b","input":1e400,"workflow_input":{"a":"<"},"version":"3","idempotency_key":"k"}`}},
		{"search", `{"items":[],"next":"n"}`, func(c *client.Client) error {
			page, err := c.SearchRuns(ctx, client.RunQuery{
				Statuses: []parley.RunStatus{parley.RunFailed, parley.RunCancelled}, Version: "2", Labels: map[string]string{"a": "b=c"}, Text: "x", Paused: true,
				EndedAfter: at, EndedBefore: at, SortBy: "status",
			}, "cur", 7)
			if page.Next != "n" {
				return errors.New("no next page")
			}
			return err
		}, seen{"GET", "/api/v1/runs?cursor=cur&ended_after=2026-11-21T11%3A00%3A00Z&ended_before=2026-11-21T11%3A00%3A00Z&label=a%3Db%3Dc&limit=7&paused=true&status=FAILED&status=CANCELLED&text=x&version=2", "", ""}},
		{"bulk", `{"results":[]}`, func(c *client.Client) error {
			_, err := c.ChangeRuns(ctx, parley.BulkRequest{
				Action: parley.BulkPause, Reason: "why", Limit: 9, DryRun: true, By: "me",
				Filter: parley.RunQuery{Status: []parley.RunStatus{parley.RunRunning}, Workflow: "w", Labels: map[string]string{"a": "b"}, CreatedBefore: at, Hidden: true},
			}, "cur")
			return err
		}, seen{"POST", "/api/v1/runs:pause", "application/json", `{"filter":{"created_before":"2026-11-21T11:00:00Z","hidden":true,"labels":{"a":"b"},"status":["RUNNING"],"workflow":"w"},"reason":"why","limit":9,"after":"cur","dry_run":true}`}},
		{
			"explain", `{"steps":[]}`, func(c *client.Client) error { _, err := c.Explain(ctx, "r"); return err },
			seen{"GET", "/api/v1/runs/r/explain", "", ""},
		},
		{"bulk of all", `{"results":[]}`, func(c *client.Client) error {
			_, err := c.ChangeRuns(ctx, parley.BulkRequest{Action: parley.BulkRetry}, "")
			return err
		}, seen{"POST", "/api/v1/runs:retry", "application/json", `{"filter":{}}`}},
	}
}

func deadLetterRequests(ctx context.Context) []requestCase {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.FixedZone("", 3600))
	filter := parley.DeadLetterFilter{
		State: parley.DeadLetterWaiting, Kind: parley.DeadLetterTask, Code: parley.CodeTimeout, Reason: "a b", Agent: "g", Workflow: "w", Run: "r", Topic: "t",
		CreatedAfter: at, CreatedBefore: at,
	}
	return []requestCase{
		{"list", `{"items":[]}`, func(c *client.Client) error {
			_, err := c.DeadLetters(ctx, client.DeadLetterQuery{Filter: filter, Ascending: true, Page: client.PageQuery{Number: 2}})
			return err
		}, seen{"GET", "/api/v1/dead-letters?agent=g&code=timeout&created_after=2026-11-21T11%3A00%3A00Z&created_before=2026-11-21T11%3A00%3A00Z&kind=task&page=2&reason=a+b&run_id=r&sort_order=asc&state=waiting&topic=t&workflow=w", "", ""}},
		{"get", `{"id":"dl-1","value":{"base64":"/w=="},"key":"k"}`, func(c *client.Client) error {
			l, err := c.DeadLetter(ctx, "dl/1")
			if string(l.Value) != "\xff" || string(l.Key) != "k" {
				return fmt.Errorf("read %+v", l)
			}
			return err
		}, seen{"GET", "/api/v1/dead-letters/dl%2F1", "", ""}},
		{
			"replay", `{}`, func(c *client.Client) error { _, err := c.ReplayDeadLetter(ctx, "d", false); return err },
			seen{"POST", "/api/v1/dead-letters/d/replay", "application/json", `{}`},
		},
		{
			"force", `{}`, func(c *client.Client) error { _, err := c.ReplayDeadLetter(ctx, "d", true); return err },
			seen{"POST", "/api/v1/dead-letters/d/replay", "application/json", `{"force":true}`},
		},
		{
			"discard", `{}`, func(c *client.Client) error { _, err := c.DiscardDeadLetter(ctx, "d", "why"); return err },
			seen{"POST", "/api/v1/dead-letters/d/discard", "application/json", `{"reason":"why"}`},
		},
		{"replay many", `{}`, func(c *client.Client) error {
			_, err := c.ReplayDeadLetters(ctx, parley.ReplayBatch{
				Filter: parley.DeadLetterFilter{Agent: "g", CreatedAfter: at}, Rate: 2, Limit: 3, After: "n", DryRun: true, By: "me",
			})
			return err
		}, seen{"POST", "/api/v1/dead-letters:replay", "application/json", `{"filter":{"agent":"g","created_after":"2026-11-21T12:00:00+01:00"},"rate":2,"limit":3,"after":"n","dry_run":true}`}},
		{"discard many", `{}`, func(c *client.Client) error {
			_, err := c.DiscardDeadLetters(ctx, parley.DiscardRequest{Note: "why", DryRun: true})
			return err
		}, seen{"POST", "/api/v1/dead-letters:discard", "application/json", `{"filter":{},"reason":"why","dry_run":true}`}},
	}
}

func recordRequests(ctx context.Context) []requestCase {
	name, url, token, timeout := "a/b", "http://h/", "tok", 1500*time.Millisecond
	return []requestCase{
		{"apply", `{}`, func(c *client.Client) error {
			_, err := c.ApplyWorkflow(ctx, parley.ApplyRequest{File: "d/a b.yaml", Source: []byte("name: x\n")})
			return err
		}, seen{"POST", "/api/v1/workflows?file=d%2Fa+b.yaml", "application/yaml", "name: x\n"}},
		{"validate", `{}`, func(c *client.Client) error {
			_, err := c.ValidateWorkflow(ctx, parley.ApplyRequest{Source: []byte("{}")})
			return err
		}, seen{"POST", "/api/v1/workflows:validate", "application/yaml", "{}"}},
		{"delete", ``, func(c *client.Client) error { return c.DeleteWorkflow(ctx, "w") }, seen{"DELETE", "/api/v1/workflows/w", "", ""}},
		{"aliases", `{"items":[]}`, func(c *client.Client) error {
			_, err := c.Aliases(ctx, "w", client.PageQuery{Number: 2})
			return err
		}, seen{"GET", "/api/v1/workflows/w/aliases?page=2", "", ""}},
		{"alias", `{"alias":"stable","version":"3"}`, func(c *client.Client) error {
			a, err := c.SetAlias(ctx, parley.AliasRequest{Workflow: "a/b", Alias: "stable", Version: "3", By: "me"})
			if a.Version != "3" || a.Created {
				return fmt.Errorf("read %+v", a)
			}
			return err
		}, seen{"PUT", "/api/v1/workflows/a%2Fb/aliases/stable", "application/json", `{"version":"3"}`}},
		{
			"no alias", `{}`, func(c *client.Client) error {
				return c.RemoveAlias(ctx, parley.AliasRequest{Workflow: "w", Alias: "stable", By: "me"})
			},
			seen{"DELETE", "/api/v1/workflows/w/aliases/stable", "", ""},
		},
		{"deprecate", `{"version":2}`, func(c *client.Client) error {
			v, err := c.Deprecate(ctx, parley.DeprecateRequest{Ref: "w@2", Reason: "old", By: "me"})
			if v.Version != "2" {
				return fmt.Errorf("read %+v", v)
			}
			return err
		}, seen{"POST", "/api/v1/workflows/w@2/deprecate", "application/json", `{"reason":"old"}`}},
		{"undeprecate", `{}`, func(c *client.Client) error {
			_, err := c.Deprecate(ctx, parley.DeprecateRequest{Ref: "w@2", Undo: true})
			return err
		}, seen{"POST", "/api/v1/workflows/w@2/undeprecate", "", ""}},
		{"add agent", `{}`, func(c *client.Client) error {
			_, err := c.AddAgent(ctx, parley.AgentSpec{
				Name: &name, URL: &url, Timeout: &timeout, ProtocolConfig: json.RawMessage(`{"method":"m"}`), By: "me",
				Auth:  &parley.AuthSpec{Type: parley.AuthHeader, Header: "X-K", Secret: "env:K"},
				Retry: &parley.RetryConfig{MaxRetries: 1, InitialDelay: time.Second, MaxDelay: 2 * time.Second, Multiplier: 2, Budget: parley.RetryBudget{PerSecond: 3}},
			})
			return err
		}, seen{"POST", "/api/v1/agents", "application/json", `{"name":"a/b","url":"http://h/","protocol_config":{"method":"m"},"auth_type":"header","auth_config":{"header":"X-K","secret":"env:K"},"timeout_ms":1500,"retry_config":{"max_retries":1,"initial_delay_ms":1000,"max_delay_ms":2000,"backoff_multiplier":2,"budget":{"per_second":3}}}`}},
		{"set agent never renames", `{}`, func(c *client.Client) error {
			_, err := c.SetAgent(ctx, name, parley.AgentSpec{Name: &url, Auth: &parley.AuthSpec{Type: parley.AuthBearer, Literal: parley.NewSecret([]byte(token))}})
			return err
		}, seen{"PUT", "/api/v1/agents/a%2Fb", "application/json", `{"auth_type":"bearer","auth_config":{"token":"tok"}}`}},
		{"auth none", `{}`, func(c *client.Client) error {
			_, err := c.SetAgent(ctx, "g", parley.AgentSpec{Auth: &parley.AuthSpec{Type: parley.AuthNone}})
			return err
		}, seen{"PUT", "/api/v1/agents/g", "application/json", `{"auth_type":"none"}`}},
		{"breaker", `{}`, func(c *client.Client) error {
			_, err := c.SetAgent(ctx, "g", parley.AgentSpec{Breaker: new(parley.DefaultBreaker())})
			return err
		}, seen{"PUT", "/api/v1/agents/g", "application/json", `{"breaker":{"enabled":true,"failure_threshold":5,"failure_rate_threshold":0.5,"timeout_seconds":60,"half_open_max_calls":3,"window_size_seconds":120}}`}},
		{"no breaker", `{}`, func(c *client.Client) error {
			_, err := c.SetAgent(ctx, "g", parley.AgentSpec{Breaker: &parley.Breaker{}})
			return err
		}, seen{"PUT", "/api/v1/agents/g", "application/json", `{"breaker":null}`}},
		{"circuit", `{"state":"open"}`, func(c *client.Client) error {
			s, err := c.Circuit(ctx, name)
			if s.State != parley.CircuitOpen {
				return fmt.Errorf("read %+v", s)
			}
			return err
		}, seen{"GET", "/api/v1/agents/a%2Fb/breaker", "", ""}},
		{"open circuit", `{}`, func(c *client.Client) error {
			_, err := c.SwitchCircuit(ctx, name, parley.BreakerOrder{Open: true, By: "me", Reason: "why"})
			return err
		}, seen{"POST", "/api/v1/agents/a%2Fb/breaker", "application/json", `{"action":"open","reason":"why"}`}},
		{
			"close circuit", `{}`, func(c *client.Client) error { _, err := c.SwitchCircuit(ctx, "g", parley.BreakerOrder{}); return err },
			seen{"POST", "/api/v1/agents/g/breaker", "application/json", `{"action":"close"}`},
		},
		{"agent events", `{"items":[]}`, func(c *client.Client) error {
			_, err := c.AgentEvents(ctx, "g", client.EventQuery{After: 3, Limit: 5})
			return err
		}, seen{"GET", "/api/v1/agents/g/events?after=3&limit=5", "", ""}},
		{"condition", `{}`, func(c *client.Client) error { _, err := c.AgentCondition(ctx, "a/b", true); return err }, seen{"GET", "/api/v1/agents/a%2Fb/health", "", ""}},
		{"stored condition", `{}`, func(c *client.Client) error { _, err := c.AgentCondition(ctx, "g", false); return err }, seen{"GET", "/api/v1/agents/g/health?fresh=false", "", ""}},
		{"conditions", `{}`, func(c *client.Client) error {
			_, err := c.AgentConditions(ctx, client.AgentQuery{Status: parley.AgentActive})
			return err
		}, seen{"GET", "/api/v1/agents:health?status=active", "", ""}},
		{"health", ``, func(c *client.Client) error { return c.Health(ctx) }, seen{"GET", "/readyz", "", ""}},
	}
}

func TestRequests(t *testing.T) {
	t.Parallel()
	for _, tt := range slices.Concat(runRequests(t.Context()), controlRequests(t.Context()), recordRequests(t.Context()), deadLetterRequests(t.Context())) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got seen
			if err := tt.call(serve(t, record(200, tt.answer, &got))); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestTextsThatAreNotUTF8: no other text is sent in their place.
func TestTextsThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	var got seen
	c := serve(t, record(http.StatusAccepted, "{}", &got))
	const latin1 = "M\xfcller"
	for name, send := range map[string]func() error{
		"input": func() error {
			_, err := c.StartRun(t.Context(), parley.StartRequest{Workflow: "w", Input: json.RawMessage(`{"a":"` + latin1 + `"}`)})
			return err
		},
		"label": func() error {
			_, err := c.StartRun(t.Context(), parley.StartRequest{Workflow: "w", Labels: map[string]string{"a": latin1}})
			return err
		},
		"text": func() error {
			_, err := c.Answer(t.Context(), parley.AnswerRequest{Run: "r", Reply: parley.Reply{Text: latin1}})
			return err
		},
		"reason": func() error {
			_, err := c.Cancel(t.Context(), "r", latin1)
			return err
		},
	} {
		if err := send(); parley.CodeOf(err) != parley.CodeInvalid || !strings.Contains(err.Error(), "UTF-8") || got != (seen{}) {
			t.Errorf("%s: %v, sent %+v", name, err, got)
		}
	}
}

func TestKeyIsSent(t *testing.T) {
	t.Parallel()
	var got string
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get("Authorization") })
	if err := c.Health(t.Context()); err != nil || got != "Bearer k1" {
		t.Errorf("Authorization %q, err %v", got, err)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	t.Cleanup(other.Close)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	_, err := c.Run(t.Context(), "r")
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Status != http.StatusTemporaryRedirect {
		t.Errorf("err = %v", err)
	}
}

func TestNamesThatLeadElsewhereAreRefused(t *testing.T) {
	t.Parallel()
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked for %s", r.URL) })
	for _, name := range []string{"", ".", ".."} {
		_, e1 := c.Run(t.Context(), name)
		_, e2 := c.Agent(t.Context(), name)
		_, e3 := c.StartRun(t.Context(), parley.StartRequest{Workflow: name})
		for _, err := range []error{e1, e2, e3, c.DeleteWorkflow(t.Context(), name), c.RemoveAgent(t.Context(), name)} {
			if parley.CodeOf(err) != parley.CodeInvalid {
				t.Errorf("%q: %v", name, err)
			}
		}
		if _, err := c.Agent(t.Context(), name); strings.Contains(err.Error(), "a agent") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestAnswersAreDecoded(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := serve(t, answer(200, "application/json", `{"id":"r1","run_id":"r1","status":"COMPLETED","output":{"n":12345678901234567890,"b":1,"a":2},"steps":[{"id":"s","attempts":2}],"later":true}`))
	run, err := c.Run(ctx, "r1")
	if err != nil || string(run.Output) != `{"n":12345678901234567890,"b":1,"a":2}` || len(run.Steps) != 1 {
		t.Errorf("%+v, %v", run, err)
	}
	c = serve(t, answer(201, "application/json", `{"id":"v","workflow":"w","version":3,"description":null,"warnings":[{"code":"x","text":"t"}]}`))
	applied, err := c.ApplyWorkflow(ctx, parley.ApplyRequest{Source: []byte("x")})
	if err != nil || !applied.Created || applied.Version != "3" || len(applied.Warnings) != 1 {
		t.Errorf("%+v, %v", applied, err)
	}
	c = serve(t, answer(200, "application/json", `{"items":[{"workflow":"w","version":"beta"}],"total":9,"page":1,"page_size":1,"total_pages":9}`))
	page, err := c.WorkflowVersions(ctx, "w", client.PageQuery{})
	if err != nil || page.Total != 9 || page.Items[0].Version != "beta" {
		t.Errorf("%+v, %v", page, err)
	}
	c = serve(t, answer(200, "application/json", `{"openapi":"3.1.0","info":{"version":"1.2.3"}}`))
	if v, err := c.Version(ctx); err != nil || v != "1.2.3" {
		t.Errorf("%q, %v", v, err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name              string
		status            int
		contentType, body string
		want              client.Error
	}{
		{
			"RFC 9457", 422, "application/problem+json",
			`{"title":"T","status":422,"detail":"D","code":"invalid","errors":[{"path":"a.b","code":"type","detail":"must be text","field":"body.a.b","line":3,"col":5,"file":"f.yaml","severity":"error","suggestion":"x"}],"request_id":"q1"}`,
			client.Error{Status: 422, Code: "invalid", Title: "T", Detail: "D", RequestID: "q1", Errors: []client.FieldError{{
				Path: "a.b", Code: "type", Detail: "must be text", File: "f.yaml", Line: 3, Col: 5, Severity: "error", Suggestion: "x",
			}}},
		},
		{"a conflict on an old path", 400, "application/json", `{"detail":"it has ended","code":"conflict"}`, client.Error{Status: 400, Code: "conflict", Detail: "it has ended"}},
		{"old platform", 400, "application/json", `{"detail":"Agent with name 'X' already exists"}`, client.Error{Status: 400, Code: "invalid", Detail: "Agent with name 'X' already exists"}},
		{"old validation", 422, "application/json", `{"error":"E","errors":[{"field":"body.url","message":"M","type":"T"}]}`, client.Error{
			Status: 422, Code: "invalid", Detail: "E", Errors: []client.FieldError{{Path: "body.url", Code: "T", Detail: "M"}},
		}},
		{"detail is an object", 501, "application/json", `{"detail":{"message":"not here","run_id":"r"}}`, client.Error{Status: 501, Code: "internal", Detail: "not here"}},
		{"detail is a number", 500, "application/json", `{"detail":7}`, client.Error{Status: 500, Code: "internal", Detail: "7"}},
		{"plain text", 503, "text/plain; charset=utf-8", "no backend\nmore", client.Error{Status: 503, Code: "unavailable", Detail: "no backend"}},
		{"HTML of a proxy", 502, "text/html", "<html><h1>Bad Gateway</h1>", client.Error{Status: 502, Code: "unavailable"}},
		{"an array", 404, "application/json", `[1]`, client.Error{Status: 404, Code: "not_found"}},
		{"nothing", 401, "", "", client.Error{Status: 401, Code: "unauthorized"}},
		{"forbidden", 403, "", "", client.Error{Status: 403, Code: "unauthorized"}},
		{"conflict", 409, "", "", client.Error{Status: 409, Code: "conflict"}},
		{"too large", 413, "", "", client.Error{Status: 413, Code: "limit"}},
		{"a huge refusal", 400, "application/json", `{"detail":"` + strings.Repeat("x", 2<<20) + `"}`, client.Error{Status: 400, Code: "invalid"}},
		{"errors of another form", 422, "application/json", `{"code":"invalid","errors":"x"}`, client.Error{Status: 422, Code: "invalid"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := serve(t, answer(tt.status, tt.contentType, tt.body)).Run(t.Context(), "r")
			got, ok := errors.AsType[*client.Error](err)
			if !ok {
				t.Fatalf("err = %v", err)
			}
			if diff := cmp.Diff(tt.want, *got); diff != "" {
				t.Error(diff)
			}
			if got.Text() == "" || !strings.HasPrefix(got.Error(), string(got.Code)+": ") {
				t.Errorf("text %q", got.Error())
			}
		})
	}
}

// TestOversizeAnswerIsRefused: an answer is read up to the limit, and not a byte
// further; the error names the request.
func TestOversizeAnswerIsRefused(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	size := most
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"items":[]`+strings.Repeat(" ", size-12)+`}`)
	}))
	t.Cleanup(s.Close)
	c, err := client.New(client.Options{URL: s.URL, MaxBody: most})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Events(t.Context(), "r", client.EventQuery{Limit: 7}); err != nil {
		t.Errorf("with %d bytes: %v", size, err)
	}
	for _, size = range []int{most + 1, 3 * most} {
		_, err := c.Events(t.Context(), "r", client.EventQuery{Limit: 7})
		e, ok := errors.AsType[*client.TooLongError](err)
		if !ok || parley.CodeOf(err) != parley.CodeLimit || e.Limit != most || e.Path != "/api/v1/runs/r/events?limit=7" {
			t.Errorf("with %d bytes: %v", size, err)
		}
		if err := c.DeleteWorkflow(t.Context(), "w"); parley.CodeOf(err) != parley.CodeLimit {
			t.Errorf("with %d bytes that nobody wants: %v", size, err)
		}
	}
}

// TestLargestLimit: who wants no limit gives the largest number.
func TestLargestLimit(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/events") {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "id: 1\nevent: run.completed\ndata: {\"seq\":1,\"type\":\"run.completed\",\"run\":\"r\"}\n\n")
			return
		}
		_, _ = io.WriteString(w, `{"id":"r"}`)
	}))
	t.Cleanup(s.Close)
	c, err := client.New(client.Options{URL: s.URL, MaxBody: math.MaxInt64})
	if err != nil {
		t.Fatal(err)
	}
	if run, err := c.Run(t.Context(), "r"); err != nil || run.ID != "r" {
		t.Errorf("%+v, %v", run, err)
	}
	events := 0
	for e, err := range c.Watch(t.Context(), "r", client.WatchOptions{}) {
		if events++; err != nil || e.Seq != 1 {
			t.Errorf("%+v, %v", e, err)
		}
	}
	if events != 1 {
		t.Errorf("%d events", events)
	}
}

// TestRunOfManyValues: a run with more values than fit into any buffer of reasonable
// size is read, and takes hardly more memory than its values.
func TestRunOfManyValues(t *testing.T) {
	const steps, size = 24, 4 << 20 // 96 MiB
	value := `"` + strings.Repeat("v", size) + `"`
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"id":"r","input":1,"input_data":1,"steps":[`)
		for i := range steps {
			_, _ = fmt.Fprintf(w, `%.*s{"id":"s%d","output":`, min(i, 1), ",", i)
			_, _ = io.WriteString(w, value)
			_, _ = io.WriteString(w, `}`)
		}
		_, _ = io.WriteString(w, `],"status":"COMPLETED"}`)
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run, err := c.Run(t.Context(), "r")
	runtime.ReadMemStats(&after)
	if err != nil || len(run.Steps) != steps || run.Status != parley.RunCompleted || string(run.Steps[steps-1].Output) != value {
		t.Fatalf("%d steps, %v", len(run.Steps), err)
	}
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 2*steps*size>>20 {
		t.Errorf("%d MiB were allocated for %d MiB of values", took, steps*size>>20)
	}
}

func TestAnswerThatIsNoJSON(t *testing.T) {
	t.Parallel()
	_, err := serve(t, answer(200, "text/html", "<html>")).Run(t.Context(), "r")
	if parley.CodeOf(err) != parley.CodeInternal || errors.Is(err, client.ErrUnreachable) || !strings.Contains(err.Error(), `answered 200 with "text/html" in place of JSON`) {
		t.Errorf("err = %v", err)
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + l.Addr().String()
	l.Close()
	c, err := client.New(client.Options{URL: nobody})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Run(t.Context(), "r")
	u, ok := errors.AsType[*client.UnreachableError](err)
	if !ok || !errors.Is(err, client.ErrUnreachable) || u.Sent || u.URL != nobody {
		t.Errorf("refused: %+v", err)
	}

	c = serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	_, err = c.StartRun(t.Context(), parley.StartRequest{Workflow: "w"})
	if u, ok := errors.AsType[*client.UnreachableError](err); !ok || !u.Sent || u.Method != http.MethodPost {
		t.Errorf("broken after sending: %+v", err)
	}

	c = serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, `{"id":`)
	})
	_, err = c.Run(t.Context(), "r")
	if u, ok := errors.AsType[*client.UnreachableError](err); !ok || !u.Sent || u.Method != http.MethodGet {
		t.Errorf("cut body: %+v", err)
	}
}

func TestContextErrorsComeBackAsTheyAre(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	if _, err := c.Run(ctx, "r"); !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrUnreachable) {
		t.Errorf("err = %v", err)
	}
}

// TestReadiness: a server that is not ready is no error, and what is no Parley is.
func TestReadiness(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"status":"ready"}`: "ready",
		`{"status":"not ready","roles":["api"],"checks":{"bus":"does not answer"}}`: "not ready",
		`{"status":"up"}`: "",
		`<html>`:          "",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if want != "ready" {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = io.WriteString(w, body)
		}))
		c, err := client.New(client.Options{URL: s.URL})
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Readiness(t.Context())
		s.Close()
		if r.Status != want || (err == nil) != (want != "") || r.Ready() != (want == "ready") {
			t.Errorf("%s: %+v, %v", body, r, err)
		}
	}
}
