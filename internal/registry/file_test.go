package registry_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/registry"
)

// The example of seed 001 (AD-12), as it stands there.
const rollout = `# Agent configuration example
agents:
  - name: "LegacyAgent"
    url: "http://legacy:8080"
    protocol: "simple-a2a"

  - name: "ModernAgent"
    url: "http://modern:8001"
    protocol: "jsonrpc-2.0"
    protocol_config:
      method: "message/send"
      version: "2.0"
`

func TestAD12_TheSeedsExample(t *testing.T) {
	specs, problems := registry.LoadFile("agents.yaml", []byte(rollout))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	want := []parley.AgentSpec{
		{Name: new("LegacyAgent"), URL: new("http://legacy:8080"), Protocol: new("simple-a2a"), By: "agents file"},
		{
			Name: new("ModernAgent"), URL: new("http://modern:8001"), Protocol: new("jsonrpc-2.0"), By: "agents file",
			ProtocolConfig: json.RawMessage(`{"method":"message/send","version":"2.0"}`),
		},
	}
	if diff := cmp.Diff(want, specs, secretsEqual); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAD12_EveryMember(t *testing.T) {
	text := []byte(`shared: &retry {max_retries: 0, initial_delay: 100ms, max_delay_ms: 1000, multiplier: 1}
agents:
- name: a
  url: https://a.example/x
  description: on   # a string in YAML 1.2
  protocol: jsonrpc-2.0
  protocol_config: {z: [1, 2.50, -3e2, true, null, "x", 2026-11-21, {}, []], a: {b: yes}, big: 12345678901234567890123}
  auth: {type: header, header: X-K, secret: "env:AGENT_TOKEN"}
  timeout: 1m30s
  retry: *retry
  limits: {concurrency: 4}
  outcome_unknown: fail
  idempotent: true
- name: b
  url: http://b
  auth_type: ApiKey
  auth_config: {api_key: k, header_name: X-K}
  timeout_ms: 1000
  retry_config: {max_retries: 10, backoff_multiplier: 1.5, budget: {percent: 12.5, per_second: 2, off: true}}
  breaker: {enabled: true}
- {name: c, url: http://c, auth: {type: Bearer, token: t}, limits: {}}
- {"name": "d", "url": "http://d", "auth": {"type": "none"}, "priority": 3, "protocol_config": null}
`)
	// Other sections are none of an agents file.
	_, problems := registry.LoadFile("a.yaml", text)
	if len(problems) == 0 || problems[0].Code != "unknown_member" || problems[0].Path != "shared" {
		t.Errorf("LoadFile takes another section: %v", problems)
	}
	specs, problems := registry.LoadSection("a.yaml", text)
	if len(problems) > 0 {
		t.Errorf("problems %v", problems)
	}
	retry := parley.DefaultRetryConfig()
	retry.MaxRetries, retry.Multiplier = 10, 1.5
	retry.Budget = parley.RetryBudget{Percent: 12.5, PerSecond: 2, Off: true}
	want := []parley.AgentSpec{
		{
			Name: new("a"), URL: new("https://a.example/x"), Description: new("on"), Protocol: new("jsonrpc-2.0"),
			ProtocolConfig: json.RawMessage(`{"a":{"b":"yes"},"big":12345678901234567890123,"z":[1,2.50,-3e2,true,null,"x","2026-11-21",{},[]]}`),
			Auth:           &parley.AuthSpec{Type: parley.AuthHeader, Header: "X-K", Secret: "env:AGENT_TOKEN"},
			Timeout:        new(90 * time.Second), MaxConcurrent: new(4), Idempotent: new(true), OutcomeUnknown: new(parley.OutcomeFail), Limits: &parley.AgentLimits{},
			Retry: &parley.RetryConfig{MaxRetries: 0, InitialDelay: 100 * time.Millisecond, MaxDelay: time.Second, Multiplier: 1},
		},
		{
			Name: new("b"), URL: new("http://b"), Timeout: new(time.Second), Retry: &retry, Breaker: new(parley.DefaultBreaker()),
			Auth: &parley.AuthSpec{Type: parley.AuthAPIKey, Header: "X-K", Literal: parley.NewSecret([]byte("k"))},
		},
		{Name: new("c"), Limits: &parley.AgentLimits{}, URL: new("http://c"), Auth: &parley.AuthSpec{Type: parley.AuthBearer, Literal: parley.NewSecret([]byte("t"))}},
		{Name: new("d"), Priority: new(3), URL: new("http://d"), Auth: &parley.AuthSpec{Type: parley.AuthNone}, ProtocolConfig: json.RawMessage("null")},
	}
	for i := range want {
		want[i].By = "agents file"
	}
	if diff := cmp.Diff(want, specs, secretsEqual); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAD12_ProblemsAllAtOnce(t *testing.T) {
	_, problems := registry.LoadFile("a.yaml", []byte(`agents:
- nane: x
  url: ftp://x
  timeout: 30
  retries: 3
- name: b
  url: http://b
  url: http://c
  timeout: 301s
  timeout_ms: 5
  retry: {max_retries: 11, initial_delay: 5s, max_delay: 1s, backof_multiplier: 2}
  limits: {concurrency: many}
  auth: {type: bearer, header: X, secret: "env:A", token: t}
  idempotent: maybe
- name: b
  url: http://b
  auth: {tipe: bearer}
  outcome_unknown: retry
  protocol_config: {a: !!int "1", b: {<<: {x: 1}}, c: .inf}
- just text
- name: 5
  url:
  auth: {type: apikey, header: "a b", key: k}
  auth_type: none
  ünknown: 1
`))
	var got []string
	for _, p := range problems {
		if p.Severity != parley.SeverityError || p.Path == "" {
			t.Errorf("problem %+v has no path or is no error", p)
		}
		got = append(got, p.Path+" "+p.String())
	}
	want := []string{
		"agents[0].nane a.yaml:2:3: unknown_member: unknown member nane (did you mean name?)",
		"agents[0].retries a.yaml:5:3: unknown_member: unknown member retries (did you mean retry?)",
		"agents[0].timeout a.yaml:4:12: type: must be a duration with its unit (write 30ms, or name the member timeout_ms)",
		"agents[0].name a.yaml:2:3: required: must be given",
		"agents[0].url a.yaml:3:8: value: must begin with http:// or https://, or for jsonrpc-2.0 with ws://, wss:// or stdio:",
		"agents[1].url a.yaml:8:3: duplicate_key: url is given twice",
		"agents[1].timeout_ms a.yaml:10:15: duplicate_key: timeout_ms says the same as timeout; give one of them",
		"agents[1].retry.backof_multiplier a.yaml:11:62: unknown_member: unknown member backof_multiplier (did you mean backoff_multiplier?)",
		"agents[1].limits.concurrency a.yaml:12:25: type: must be a whole number",
		"agents[1].idempotent a.yaml:14:15: type: must be true or false",
		"agents[1].auth.secret a.yaml:13:43: value: must be a reference or a credential, not both",
		"agents[1].retry.max_retries a.yaml:11:24: value: must be 0 to 10",
		"agents[1].retry.max_delay a.yaml:11:58: value: must be at least 1000, at least initial_delay_ms and at most 365 days, in whole milliseconds",
		"agents[2].protocol_config.a a.yaml:19:24: type: tags are not allowed",
		"agents[2].auth.tipe a.yaml:17:10: unknown_member: unknown member tipe (did you mean type?)",
		"agents[2].auth.type a.yaml:17:9: required: must be one of none, bearer, apikey, basic, header, headers, oauth2, mtls",
		"agents[2].outcome_unknown a.yaml:18:20: value: must be one of lookup, resend, fail",
		"agents[2].name a.yaml:15:9: duplicate_key: agents[1] has the same name",
		"agents[3] a.yaml:20:3: type: must be a mapping of names to values",
		"agents[4].ünknown a.yaml:25:3: unknown_member: unknown member ünknown",
		"agents[4].name a.yaml:21:9: type: must be a string; put it into quotes",
		"agents[4].url a.yaml:22:7: type: must be a string; put it into quotes",
		"agents[4].auth a.yaml:23:9: duplicate_key: auth says the same as auth_type and auth_config; give one of them",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAD12_WholeFiles(t *testing.T) {
	deep := strings.Repeat("[", 70) + strings.Repeat("]", 70)
	var bomb strings.Builder
	bomb.WriteString("a: &a [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n")
	for i := range 8 {
		fmt.Fprintf(&bomb, "%c: &%c [%s]\n", 'b'+i, 'b'+i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", 'a'+i), 10), ", "))
	}
	bomb.WriteString("agents: [{name: n, url: 'http://h', protocol_config: {x: *i}}]\n")
	for _, tt := range []struct{ name, text, want string }{
		{"empty", "", ""},
		{"comment", "# nothing\n", ""},
		{"no agents", "agents: []", ""},
		{"null", "agents:", ""},
		{"other", "agent: []", "f:1:1: unknown_member: unknown member agent (did you mean agents?)"},
		{"nothing of use", "{}", "f:1:1: required: must be given, a list of agents"},
		{"a list", "- name: x", "f:1:1: required: the agents must stand in a list under the member agents: write agents: [{name: ..., url: ...}]"},
		{"one agent", "name: x\nurl: http://x\ntimeout: 10s", "f:1:1: required: the agents must stand in a list under the member agents: write agents: [{name: ..., url: ...}]"},
		{"beside agents", "agents: []\nname: x", "f:2:1: unknown_member: unknown member name"},
		{"a mapping", "agents: {}", "f:1:9: type: must be a list of agents"},
		{"two documents", "agents: []\n---\nagents: []", "f:2:1: syntax: the file holds more than one document"},
		{"broken", "agents: [\n", "f:1:1: syntax: did not find expected node content"},
		{"tab", "agents:\n\t- x", "f:2:1: syntax: found character that cannot start any token"},
		{"not UTF-8", "agents: [\xff]", "f: syntax: invalid leading UTF-8 octet"},
		{"too large", "#" + strings.Repeat("x", 1<<20), "f: limit: the file is larger than 1048576 bytes"},
		{"deep", "agents: [{name: n, url: 'http://h', protocol_config: {x: " + deep + "}}]", "f:1:121: limit: is nested deeper than 64 levels"},
		{"very deep", "agents: " + strings.Repeat("[", 100_000), "f: syntax: exceeded max depth of 10000"},
		{"bomb", bomb.String(), "limit: the file has more than 100000 values, with its aliases expanded"},
		{"in itself", "agents: [{name: n, url: 'http://h', protocol_config: &a {x: *a}}]", "limit: is nested deeper than 64 levels"},
		{"unknown anchor", "agents: *a", "f: syntax: unknown anchor 'a' referenced"},
		{"name from elsewhere", "agents: [{name: &n x, url: 'http://h', description: *n}]", ""},
		{"merge", "agents: [{<<: {name: x}, url: 'http://h'}]", "unknown member <<"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			load := registry.LoadFile
			if tt.name == "bomb" {
				load = registry.LoadSection
			}
			_, problems := load("f", []byte(tt.text))
			switch {
			case tt.want == "":
				if len(problems) > 0 {
					t.Errorf("problems: %v", problems)
				}
			case len(problems) == 0 || !strings.Contains(problems[0].String(), tt.want):
				t.Errorf("problems: %v\nwant %s", problems, tt.want)
			}
		})
	}
}

// The list of problems ends.
func TestAD12_ProblemsAreCounted(t *testing.T) {
	text := "agents:\n" + strings.Repeat("- {name: n, url: 'http://h', priority: 11, x: 1}\n", 500)
	_, problems := registry.LoadFile("f", []byte(text))
	count := map[parley.Severity]int{}
	for _, p := range problems {
		count[p.Severity]++
	}
	if len(count) != 1 || count[parley.SeverityError] != 101 {
		t.Errorf("%v problems, want 100 and the notice", count)
	}
}

// TestFileFaultsInOneOrder: of two faults on one line the same one always comes first.
func TestFileFaultsInOneOrder(t *testing.T) {
	const file = "agents: [{name: a, url: 'http://a', retry_config: {budget: {percent: x, per_second: x}}}]"
	paths := func() (list []string) {
		_, problems := registry.LoadFile("f", []byte(file))
		for _, p := range problems {
			list = append(list, p.Path)
		}
		return list
	}
	first := paths()
	if len(first) < 2 {
		t.Fatalf("%q", first)
	}
	for range 30 {
		if again := paths(); !slices.Equal(first, again) {
			t.Fatalf("%q, then %q", first, again)
		}
	}
}

func FuzzLoadFile(f *testing.F) {
	f.Add([]byte(rollout))
	f.Add([]byte("agents: [{name: a, url: 'http://a', auth: {type: bearer, token: t}, retry: {max_delay: 1s}}]"))
	f.Add([]byte(`{"agents":[{"name":"a","url":"http://a","auth_type":"apikey","auth_config":{"key":"k"}}]}`))
	f.Add([]byte("a: &a [*a]\nagents: *a"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, load := range []func(string, []byte) ([]parley.AgentSpec, parley.Problems){registry.LoadFile, registry.LoadSection} {
			specs, problems := load("f", data)
			failed := false
			for _, p := range problems {
				failed = failed || p.Severity == parley.SeverityError
				if p.Code == "" || p.Text == "" || p.Line < 0 || p.File != "f" {
					t.Errorf("problem %+v", p)
				}
			}
			if failed {
				continue
			}
			// What has no problem can be declared, but for what others know.
			fix := newFixture(t, func(c *registry.Config) { c.Checkers = map[string]func(json.RawMessage) []error{"simple-a2a": nil} })
			for i := range specs {
				specs[i].Protocol = nil
				if a := specs[i].Auth; a != nil && a.Secret != "" {
					specs[i].Auth = nil
				}
			}
			if _, _, _, err := fix.Declare(t.Context(), specs); err != nil {
				t.Errorf("declare: %v", err)
			}
		}
	})
}
