package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/registry"
)

func TestAD5_DefaultsOfANewAgent(t *testing.T) {
	f := newFixture(t)
	got := f.mustAdd(t, spec("writer"))
	at := f.now()
	want := parley.Agent{
		ID: "00000000-0000-4000-8000-000000000001", Name: "writer", URL: "http://agent.example/",
		Protocol: parley.ProtocolSimpleA2A, Auth: parley.Auth{Type: parley.AuthNone},
		Timeout: 30 * time.Second,
		Retry:   parley.RetryConfig{MaxRetries: 3, InitialDelay: time.Second, MaxDelay: 30 * time.Second, Multiplier: 2},
		Status:  parley.AgentActive, CreatedAt: at, UpdatedAt: at, CreatedBy: "system", UpdatedBy: "system",
	}
	if diff := cmp.Diff(want, got, secretsEqual); diff != "" {
		t.Errorf("added agent (-want +got):\n%s", diff)
	}
	stored, err := f.Get(t.Context(), "writer")
	if diff := cmp.Diff(want, stored, secretsEqual); err != nil || diff != "" {
		t.Errorf("stored agent, %v (-want +got):\n%s", err, diff)
	}
}

var secretsEqual = cmp.Comparer(func(a, b parley.Secret) bool { return string(a.Reveal()) == string(b.Reveal()) })

func TestAD5_EveryMemberIsStoredAndChanged(t *testing.T) {
	f := newFixture(t)
	s := spec("writer")
	s.Description, s.Protocol = new("Writes."), new(parley.ProtocolJSONRPC)
	s.ProtocolConfig = json.RawMessage(`{ "method": "message/send" }`)
	s.Auth = &parley.AuthSpec{Type: "ApiKey", Secret: "env:AGENT_TOKEN"}
	s.Timeout, s.MaxConcurrent, s.Idempotent = new(time.Second), new(7), new(true)
	s.Retry = &parley.RetryConfig{MaxRetries: 0, InitialDelay: 100 * time.Millisecond, MaxDelay: time.Second, Multiplier: 1}
	s.OutcomeUnknown, s.Status, s.By = new(parley.OutcomeFail), new(parley.AgentInactive), "ann"
	first := f.mustAdd(t, s)
	want := first
	want.ProtocolConfig = json.RawMessage(`{"method":"message/send"}`)
	want.Auth = parley.Auth{Type: parley.AuthAPIKey, Header: "X-API-Key", Secret: "env:AGENT_TOKEN"}
	want.Timeout, want.MaxConcurrent, want.Idempotent = time.Second, 7, true
	want.OutcomeUnknown, want.Status, want.CreatedBy = parley.OutcomeFail, parley.AgentInactive, "ann"
	if diff := cmp.Diff(want, first, secretsEqual); diff != "" {
		t.Errorf("added (-want +got):\n%s", diff)
	}

	f.advance(time.Minute)
	second, err := f.Update(t.Context(), first.ID, parley.AgentSpec{
		Name: new("ignored"), URL: new("https://B.example/x"), Description: new(""), Timeout: new(300 * time.Second),
		Status: new(parley.AgentActive), By: "bob",
	})
	if err != nil {
		t.Fatal(err)
	}
	want.URL, want.Description, want.Timeout, want.Status = "https://b.example/x", "", 300*time.Second, parley.AgentActive
	want.UpdatedAt, want.UpdatedBy = f.now(), "bob"
	if diff := cmp.Diff(want, second, secretsEqual); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
}

func TestAD5_NameIsUniqueForEver(t *testing.T) {
	f := newFixture(t)
	f.mustAdd(t, spec("writer"))
	for range 2 { // removing twice is fine
		if err := f.Remove(t.Context(), "writer", "ann"); err != nil {
			t.Fatal(err)
		}
	}
	a, err := f.Get(t.Context(), "writer")
	if err != nil || a.Status != parley.AgentDeleted || a.UpdatedBy != "ann" {
		t.Errorf("deleted agent = %+v, %v; want it found, deleted by ann", a, err)
	}
	_, err = f.Add(t.Context(), spec("writer"))
	if got := err.Error(); got != "conflict: Agent with name 'writer' already exists" {
		t.Errorf("Add of a deleted agent's name: %v", got)
	}
	// The one way back is to say so.
	if a, _ := f.Update(t.Context(), "writer", parley.AgentSpec{Description: new("x")}); a.Status != parley.AgentDeleted {
		t.Errorf("an update without status made the agent %s", a.Status)
	}
	if a, _ := f.Update(t.Context(), "writer", parley.AgentSpec{Status: new(parley.AgentActive)}); a.Status != parley.AgentActive {
		t.Errorf("an update with status active made the agent %s", a.Status)
	}
	for name, err := range map[string]error{
		"Remove": f.Remove(t.Context(), "nobody", ""),
		"Get":    second(f.Get(t.Context(), "nobody")),
		"Update": second(f.Update(t.Context(), "nobody", parley.AgentSpec{})),
		"Health": second(f.Health(t.Context(), "nobody")),
	} {
		if parley.CodeOf(err) != parley.CodeNotFound {
			t.Errorf("%s of an unknown agent: %v, want code not_found", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestAD7_Values(t *testing.T) {
	long := strings.Repeat("ä", 256)
	retry := func(change func(*parley.RetryConfig)) func(*parley.AgentSpec) {
		return func(s *parley.AgentSpec) {
			r := parley.DefaultRetryConfig()
			change(&r)
			s.Retry = &r
		}
	}
	name := func(n string) func(*parley.AgentSpec) { return func(s *parley.AgentSpec) { s.Name = &n } }
	url := func(u string) func(*parley.AgentSpec) { return func(s *parley.AgentSpec) { s.URL = &u } }
	timeout := func(d time.Duration) func(*parley.AgentSpec) { return func(s *parley.AgentSpec) { s.Timeout = &d } }
	auth := func(a parley.AuthSpec) func(*parley.AgentSpec) { return func(s *parley.AgentSpec) { s.Auth = &a } }
	config := func(p, c string) func(*parley.AgentSpec) {
		return func(s *parley.AgentSpec) { s.Protocol, s.ProtocolConfig = &p, json.RawMessage(c) }
	}
	literal := func(s string) parley.Secret { return parley.NewSecret([]byte(s)) }
	tests := []struct {
		what   string
		change func(*parley.AgentSpec)
		path   string // of the one fault; "" is fine
	}{
		{"no name", func(s *parley.AgentSpec) { s.Name = nil }, "name"},
		{"empty name", name(""), "name"},
		{"blank name", name("  "), "name"},
		{"255 characters", name(long[2:]), ""},
		{"256 characters", name(long), "name"},
		{"control character", name("a\nb"), "name"},
		{"not UTF-8", name("a\xff"), "name"},
		{"name like an id", name("00000000-0000-4000-8000-000000000009"), "name"},
		{"name with signs", name("R&D / agent #1"), ""},
		{"the folder itself", name("."), "name"},
		{"the folder above", name(".."), "name"},
		{"three dots", name("..."), ""},

		{"no url", func(s *parley.AgentSpec) { s.URL = nil }, "url"},
		{"empty url", url(""), "url"},
		{"no scheme", url("agent.example"), "url"},
		{"other scheme", url("ftp://agent.example"), "url"},
		{"no host", url("http:///x"), "url"},
		{"port only", url("http://:80/"), "url"},
		{"port 0", url("http://a:0/"), "url"},
		{"port 65536", url("http://a:65536/"), "url"},
		{"port 65535", url("http://a:65535/"), ""},
		{"IPv6", url("http://[::1]:8080"), ""},
		{"no IPv6", url("http://[nonsense:1]/"), "url"},
		{"user", url("http://ann@a/"), "url"},
		{"user and password", url("http://ann:pw@a/"), "url"},
		{"at sign in the path", url("http://a/@ann"), ""},
		{"blank in the host", url("http://a b/"), "url"},
		{"2084 bytes", url("http://a/" + strings.Repeat("x", 2075)), "url"},
		{"2083 bytes", url("http://a/" + strings.Repeat("x", 2074)), ""},

		{"timeout 999 ms", timeout(999 * time.Millisecond), "timeout_ms"},
		{"timeout 1 s", timeout(time.Second), ""},
		{"timeout 300 s", timeout(300 * time.Second), ""},
		{"timeout 300.001 s", timeout(300001 * time.Millisecond), "timeout_ms"},
		{"half a millisecond", timeout(time.Second + time.Microsecond), "timeout_ms"},

		{"no retries", retry(func(r *parley.RetryConfig) { r.MaxRetries = 0 }), ""},
		{"10 retries", retry(func(r *parley.RetryConfig) { r.MaxRetries = 10 }), ""},
		{"11 retries", retry(func(r *parley.RetryConfig) { r.MaxRetries = 11 }), "retry_config.max_retries"},
		{"-1 retries", retry(func(r *parley.RetryConfig) { r.MaxRetries = -1 }), "retry_config.max_retries"},
		{"delay 99 ms", retry(func(r *parley.RetryConfig) { r.InitialDelay = 99 * time.Millisecond }), "retry_config.initial_delay_ms"},
		{"delay 100 ms", retry(func(r *parley.RetryConfig) { r.InitialDelay = 100 * time.Millisecond }), ""},
		{"cap 999 ms", retry(func(r *parley.RetryConfig) {
			r.InitialDelay, r.MaxDelay = 100*time.Millisecond, 999*time.Millisecond
		}), "retry_config.max_delay_ms"},
		{"cap below the delay", retry(func(r *parley.RetryConfig) { r.InitialDelay = 31 * time.Second }), "retry_config.max_delay_ms"},
		{"factor 1", retry(func(r *parley.RetryConfig) { r.Multiplier = 1 }), ""},
		{"factor 0.9", retry(func(r *parley.RetryConfig) { r.Multiplier = .9 }), "retry_config.backoff_multiplier"},
		{"budget 0.5 %", retry(func(r *parley.RetryConfig) { r.Budget.Percent = .5 }), "retry_config.budget.percent"},
		{"budget 101 %", retry(func(r *parley.RetryConfig) { r.Budget.Percent = 101 }), "retry_config.budget.percent"},
		{"budget NaN", retry(func(r *parley.RetryConfig) { r.Budget.Percent = math.NaN() }), "retry_config.budget.percent"},
		{"budget 0.01/s", retry(func(r *parley.RetryConfig) { r.Budget.PerSecond = .01 }), "retry_config.budget.per_second"},
		{"budget 1001/s", retry(func(r *parley.RetryConfig) { r.Budget.PerSecond = 1001 }), "retry_config.budget.per_second"},
		{"factor NaN", retry(func(r *parley.RetryConfig) { r.Multiplier = math.NaN() }), "retry_config.backoff_multiplier"},
		{"factor Inf", retry(func(r *parley.RetryConfig) { r.Multiplier = math.Inf(1) }), "retry_config.backoff_multiplier"},

		{"policy", func(s *parley.AgentSpec) { s.OutcomeUnknown = new(parley.OutcomeResend) }, ""},
		{"a policy that asks", func(s *parley.AgentSpec) { s.OutcomeUnknown = new(parley.OutcomeLookup) }, "outcome_unknown"},
		{"no policy", func(s *parley.AgentSpec) { s.OutcomeUnknown = new(parley.OutcomePolicy("retry")) }, "outcome_unknown"},
		{"calls -1", func(s *parley.AgentSpec) { s.MaxConcurrent = new(-1) }, "limits.concurrency"},
		{"calls 10001", func(s *parley.AgentSpec) { s.MaxConcurrent = new(10001) }, "limits.concurrency"},
		{"deleted", func(s *parley.AgentSpec) { s.Status = new(parley.AgentDeleted) }, "status"},
		{"description", func(s *parley.AgentSpec) { s.Description = new(strings.Repeat("x", 65537)) }, "description"},

		{"no auth with a header", auth(parley.AuthSpec{Type: parley.AuthNone, Header: "X-Key"}), "auth.header"},
		{"no auth with a secret", auth(parley.AuthSpec{Type: parley.AuthNone, Secret: "env:AGENT_TOKEN"}), "auth"},
		{"bearer without", auth(parley.AuthSpec{Type: parley.AuthBearer}), ""},
		{"bearer with a header", auth(parley.AuthSpec{Type: parley.AuthBearer, Header: "X-Key", Secret: "env:AGENT_TOKEN"}), "auth.header"},
		{"header without its name", auth(parley.AuthSpec{Type: parley.AuthHeader, Secret: "env:AGENT_TOKEN"}), "auth.header"},
		{"header without a secret", auth(parley.AuthSpec{Type: parley.AuthHeader, Header: "X-Key"}), "auth.secret"},
		{"header", auth(parley.AuthSpec{Type: parley.AuthHeader, Header: "X-Key", Secret: "env:AGENT_TOKEN"}), ""},
		{"framing header", auth(parley.AuthSpec{Type: parley.AuthHeader, Header: "Content-length", Secret: "env:AGENT_TOKEN"}), "auth.header"},
		{"header with a colon", auth(parley.AuthSpec{Type: parley.AuthAPIKey, Header: "X: y", Secret: "env:AGENT_TOKEN"}), "auth.header"},
		{"other type", auth(parley.AuthSpec{Type: "digest"}), "auth.type"},
		{"both", auth(parley.AuthSpec{Type: parley.AuthBearer, Secret: "env:AGENT_TOKEN", Literal: literal("x")}), "auth.secret"},
		{"other variable", auth(parley.AuthSpec{Type: parley.AuthBearer, Secret: "env:OTHER"}), "auth.secret"},
		{"no reference", auth(parley.AuthSpec{Type: parley.AuthBearer, Secret: "abc"}), "auth.secret"},
		{"sealed from outside", auth(parley.AuthSpec{Type: parley.AuthBearer, Secret: "sealed:YWJj"}), "auth.secret"},
		{"sealed and empty from outside", auth(parley.AuthSpec{Type: parley.AuthBearer, Secret: "sealed:"}), "auth.secret"},
		{"what stands for a credential", auth(parley.AuthSpec{Type: parley.AuthBearer, Secret: registry.Sealed}), "auth.secret"},
		{"the same as a literal", auth(parley.AuthSpec{Type: parley.AuthBearer, Literal: literal(registry.Sealed)}), "auth.secret"},
		{"line break", auth(parley.AuthSpec{Type: parley.AuthBearer, Literal: literal("a\r\nX: y")}), "auth.secret"},
		{"large", auth(parley.AuthSpec{Type: parley.AuthBearer, Literal: literal(strings.Repeat("x", 16<<10+1))}), "auth.secret"},

		{"simple with null", config("simple-a2a", "null"), ""},
		{"simple with {}", config("simple-a2a", "{}"), ""},
		{"simple with a member", config("simple-a2a", `{"method":"x"}`), "protocol_config.method"},
		{"rpc", config("jsonrpc-2.0", `{"method":"x","version":"2.0","custom":[1]}`), ""},
		{"rpc version", config("jsonrpc-2.0", `{"version":2.0}`), "protocol_config.version"},
		{"array", config("jsonrpc-2.0", `[]`), "protocol_config"},
		{"broken", config("jsonrpc-2.0", `{`), "protocol_config"},
		{"64 KiB", config("jsonrpc-2.0", `{"x":"`+strings.Repeat("x", 64<<10)+`"}`), "protocol_config"},
	}
	f := newFixture(t)
	for _, tt := range tests {
		t.Run(tt.what, func(t *testing.T) {
			s := spec("agent " + strings.ReplaceAll(t.Name(), "/", " "))
			tt.change(&s)
			_, err := f.Add(t.Context(), s)
			if tt.path == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if err == nil {
				t.Fatalf("accepted, want a fault at %s", tt.path)
			}
			if parley.CodeOf(err) != parley.CodeInvalid {
				t.Errorf("%v: want code invalid", err)
			}
			if diff := cmp.Diff([]string{tt.path}, pathsOf(t, err)); diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestAD7_AllFaultsAtOnce(t *testing.T) {
	f := newFixture(t)
	s := parley.AgentSpec{
		Name: new(""), URL: new("ftp://x"), Protocol: new("jsonrpc-2.0"),
		ProtocolConfig: json.RawMessage(`{"method":1,"version":"3"}`),
		Auth:           &parley.AuthSpec{Type: "digest"}, Timeout: new(time.Duration(0)),
		Retry: &parley.RetryConfig{MaxRetries: 99}, OutcomeUnknown: new(parley.OutcomePolicy("x")), MaxConcurrent: new(-1),
	}
	_, err := f.Add(t.Context(), s)
	want := []string{
		"name", "url", "timeout_ms", "retry_config.max_retries", "retry_config.initial_delay_ms", "retry_config.max_delay_ms",
		"retry_config.backoff_multiplier", "limits.concurrency", "outcome_unknown",
		"protocol_config.method", "protocol_config.version", "auth.type",
	}
	if diff := cmp.Diff(want, pathsOf(t, err)); diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	// The checker's texts don't say the path again.
	e, _ := errors.AsType[*parley.Error](err)
	if text := `{"path":"protocol_config.version","code":"protocol_config","detail":"can only be \"2.0\""}`; !strings.Contains(string(e.Details), text) {
		t.Errorf("details %s\nwant among them %s", e.Details, text)
	}
	if !strings.HasSuffix(e.Message, ": must be at least 100 and at most 365 days, in whole milliseconds (and 7 more)") {
		t.Errorf("the text: %s", e.Message)
	}
	if len(f.store.byID) != 0 {
		t.Error("an agent that is not valid was stored")
	}
}

func TestAD4_UnsupportedProtocol(t *testing.T) {
	f := newFixture(t)
	s := spec("x")
	s.Protocol = new("soap")
	_, err := f.Add(t.Context(), s)
	e, _ := errors.AsType[*parley.Error](err)
	const text = "Unsupported protocol: soap. Supported protocols: jsonrpc-2.0, simple-a2a"
	want := `[{"path":"protocol","code":"unsupported_protocol","detail":"` + text + `"}]`
	if e == nil || string(e.Details) != want || !strings.Contains(e.Message, text) {
		t.Errorf("error %v with details %s\nwant %s", err, e.Details, want)
	}
}

func TestAD4_RegisteredProtocol(t *testing.T) {
	f := newFixture(t, func(c *registry.Config) { c.Protocols = append(c.Protocols, "graphql") })
	if diff := cmp.Diff([]string{"graphql", "jsonrpc-2.0", "simple-a2a"}, f.Protocols()); diff != "" {
		t.Error(diff)
	}
	s := spec("x")
	s.Protocol, s.ProtocolConfig = new("graphql"), json.RawMessage(`{"query":"{a}"}`)
	if a := f.mustAdd(t, s); string(a.ProtocolConfig) != `{"query":"{a}"}` {
		t.Errorf("config %s", a.ProtocolConfig)
	}
}

func TestAD7_ConfigBelongsToItsProtocol(t *testing.T) {
	f := newFixture(t)
	s := spec("x")
	s.Protocol, s.ProtocolConfig = new(parley.ProtocolJSONRPC), json.RawMessage(`{"method":"m"}`)
	f.mustAdd(t, s)
	update := func(protocol, config string) string {
		var s parley.AgentSpec
		if protocol != "" {
			s.Protocol = &protocol
		}
		if config != "" {
			s.ProtocolConfig = json.RawMessage(config)
		}
		a, err := f.Update(t.Context(), "x", s)
		if err != nil {
			return err.Error()
		}
		return a.Protocol + " " + string(a.ProtocolConfig)
	}
	for _, tt := range []struct{ protocol, config, want string }{
		{"", "", `jsonrpc-2.0 {"method":"m"}`},
		{"jsonrpc-2.0", "", `jsonrpc-2.0 {"method":"m"}`},
		{"", `{"method":"n"}`, `jsonrpc-2.0 {"method":"n"}`},
		{"", `null`, `jsonrpc-2.0 `},
		{"", `{"method":"n"}`, `jsonrpc-2.0 {"method":"n"}`},
		{"simple-a2a", "", `simple-a2a `},
		{"", `{"method":"n"}`, `invalid: agent is not valid: protocol_config.method: is unknown; this protocol has no configuration`},
	} {
		if got := update(tt.protocol, tt.config); got != tt.want {
			t.Errorf("update to %q %q gave %q, want %q", tt.protocol, tt.config, got, tt.want)
		}
	}
}

func TestAD5_ListPages(t *testing.T) {
	f := newFixture(t)
	for _, n := range []string{"a", "b", "c"} {
		f.mustAdd(t, spec(n))
	}
	if err := f.Remove(t.Context(), "b", ""); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		q     parley.AgentQuery
		names string
		total int
	}{
		{parley.AgentQuery{}, "abc", 3},
		{parley.AgentQuery{Status: parley.AgentActive}, "ac", 2},
		{parley.AgentQuery{Name: "b"}, "b", 1},
		{parley.AgentQuery{Page: parley.Page{Offset: 1, Limit: 1}}, "b", 3},
		{parley.AgentQuery{Page: parley.Page{Offset: -5, Limit: 1 << 40}}, "abc", 3},
		{parley.AgentQuery{Page: parley.Page{Offset: 99}}, "", 3},
	} {
		agents, total, err := f.List(t.Context(), tt.q)
		var names strings.Builder
		for _, a := range agents {
			names.WriteString(a.Name)
		}
		if names.String() != tt.names || total != tt.total || err != nil {
			t.Errorf("List(%+v) = %q, %d, %v; want %q, %d", tt.q, names.String(), total, err, tt.names, tt.total)
		}
	}
}

func TestHealth(t *testing.T) {
	f := newFixture(t)
	s := spec("x")
	s.Auth = &parley.AuthSpec{Type: parley.AuthBearer, Secret: "env:AGENT_TOKEN"}
	f.mustAdd(t, s)
	f.probe = func(ctx context.Context, a parley.Agent) (parley.AgentHealth, error) {
		if got := string(a.Credential.Reveal()); got != "from-the-env" {
			t.Errorf("credential %q", got)
		}
		if end, ok := ctx.Deadline(); !ok || time.Until(end) > 10*time.Second {
			t.Errorf("deadline %v, %v; want one within 10 s", end, ok)
		}
		f.advance(25 * time.Millisecond)
		return parley.AgentHealth{Healthy: true, Message: "fine"}, nil
	}
	at := f.now()
	got, err := f.Health(t.Context(), "x")
	want := parley.AgentHealth{Healthy: true, Message: "fine", ResponseTime: 25 * time.Millisecond, At: at}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}

	f.probe = func(context.Context, parley.Agent) (parley.AgentHealth, error) {
		return parley.AgentHealth{}, errors.New("the wire is cut")
	}
	unhealthy := func(want string) {
		t.Helper()
		if got, err := f.Health(t.Context(), "x"); err != nil || got.Healthy || !strings.Contains(got.Message, want) || got.At.IsZero() {
			t.Errorf("health %+v, %v; want unhealthy because %q", got, err, want)
		}
	}
	unhealthy("the wire is cut")
	f.probe = nil // it is not asked any more
	delete(f.env, "AGENT_TOKEN")
	unhealthy("secret env:AGENT_TOKEN does not exist")
	if err := f.Remove(t.Context(), "x", ""); err != nil {
		t.Fatal(err)
	}
	unhealthy("deleted")
}

// TestR1_LookUpNeedsAnAgentThatCanBeAsked: nobody can set a policy that the protocol
// does not have, in whatever way; a record that has it goes on, and can be changed.
func TestR1_LookUpNeedsAnAgentThatCanBeAsked(t *testing.T) {
	f := newFixture(t)
	refused := func(what string, err error) {
		t.Helper()
		e, ok := errors.AsType[*parley.Error](err)
		if !ok || e.Code != parley.CodeInvalid || !strings.Contains(string(e.Details), "use fail, or resend") {
			t.Errorf("%s: %v", what, err)
		}
	}
	lookUp := parley.AgentSpec{OutcomeUnknown: new(parley.OutcomeLookup)}
	spec := parley.AgentSpec{Name: new("a"), URL: new("http://a"), OutcomeUnknown: new(parley.OutcomeLookup)}
	_, err := f.Add(t.Context(), spec)
	refused("a new agent", err)
	_, err = f.declare(t, "agents: [{name: a, url: 'http://a', outcome_unknown: lookup}]")
	refused("a file", err)
	spec.Protocol = new("jsonrpc-2.0")
	if _, err = f.Add(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	_, err = f.Update(t.Context(), "a", parley.AgentSpec{Protocol: new(parley.ProtocolSimpleA2A)})
	refused("another protocol", err)
	_, err = f.Update(t.Context(), "a", parley.AgentSpec{Protocol: new(parley.ProtocolSimpleA2A), OutcomeUnknown: new(parley.OutcomeFail)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Update(t.Context(), "a", lookUp)
	refused("another policy", err)

	// A record of before.
	agent, err := f.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	read := agent.UpdatedAt
	agent.OutcomeUnknown, agent.UpdatedAt = parley.OutcomeLookup, read.Add(time.Second)
	if err := f.store.UpdateAgent(t.Context(), agent, read); err != nil {
		t.Fatal(err)
	}
	lookUp.Description = new("changed")
	if agent, err = f.Update(t.Context(), "a", lookUp); err != nil || agent.OutcomeUnknown != parley.OutcomeLookup {
		t.Errorf("changed: %+v, %v", agent.OutcomeUnknown, err)
	}
	if _, err := f.declare(t, "agents: [{name: a, url: 'http://a', outcome_unknown: lookup}]"); err != nil {
		t.Errorf("declared again: %v", err)
	}
	_, err = f.declare(t, "agents: [{name: a, url: 'http://a', outcome_unknown: lookup}, {name: b, url: 'http://b', outcome_unknown: lookup}]")
	refused("another agent of the file", err)
}
