package config_test

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/config"
)

// load reads a file, variables and flags in the folder /run, the file in /etc.
func load(file string, env []string, flags map[string]string) (*config.Loaded, error) {
	return config.Load(config.Sources{
		File: "parley.yaml", Data: []byte(file), Env: env, Flags: flags, Dir: "/run", FileDir: "/etc/parley",
		ReadFile: func(path string) ([]byte, error) {
			if path == "/etc/parley/secrets/pg" {
				return []byte("s3cr3t\n"), nil
			}
			return nil, fs.ErrNotExist
		},
		Suggest: func(name string, known []string) string {
			for _, k := range known {
				if len(k) == len(name) && differences(k, name) == 1 {
					return "did you mean " + k + "?"
				}
			}
			return ""
		},
	})
}

func differences(a, b string) (n int) {
	for i := range len(a) {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

func mustLoad(t *testing.T, file string, env []string, flags map[string]string) *config.Loaded {
	t.Helper()
	l, err := load(file, env, flags)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestDefaults: without a source everything has the value that its setting says.
func TestDefaults(t *testing.T) {
	l := mustLoad(t, "", nil, nil)
	if l.Listen != "127.0.0.1:8420" || l.Data != "/run/.parley" || l.Bus.Kind != "memory" || !slices.Equal(l.Roles, []string{"api", "executor", "bridge"}) {
		t.Errorf("%+v", l.Config)
	}
	if l.Limits.CancelGrace != 30*time.Second || l.Limits.Value != 8<<20 || l.Bus.Kafka.Topics.Tasks != "orchestrator.tasks.http" {
		t.Errorf("%+v", l.Limits)
	}
	if l.Origin("listen") != "default" {
		t.Errorf("origin %q", l.Origin("listen"))
	}
}

// TestAgentsSection: the registry reads the agents of the file, whatever is wrong with
// them, and nobody else.
func TestAgentsSection(t *testing.T) {
	if l := mustLoad(t, "agents: [{nmae: a}, 7]\nlisten: h:1\n", nil, nil); l.Listen != "h:1" {
		t.Errorf("listen %s", l.Listen)
	}
}

// TestStructure: each leaf of the structure is a setting and each setting that
// is no secret a leaf, so that none is read and then lost.
func TestStructure(t *testing.T) {
	leaves := map[string]bool{}
	var walk func(reflect.Type, string)
	walk = func(typ reflect.Type, prefix string) {
		for f := range typ.Fields() {
			tag := f.Tag.Get("koanf")
			switch {
			case tag == "-":
			case tag == "":
				t.Errorf("%s%s has no name", prefix, f.Name)
			case f.Type.Kind() == reflect.Struct:
				walk(f.Type, prefix+tag+".")
			default:
				leaves[prefix+tag] = true
			}
		}
	}
	walk(reflect.TypeFor[config.Config](), "")
	for _, s := range config.Settings() {
		if secret := s.Kind == config.KindSecret || s.Kind == config.KindURL; secret == leaves[s.Path] {
			t.Errorf("%s: is a secret: %v, stands in the structure: %v", s.Path, secret, leaves[s.Path])
		}
		if s.Help == "" || s.Default == nil {
			t.Errorf("%s has no help or no default", s.Path)
		}
		delete(leaves, s.Path)
	}
	if len(leaves) > 0 {
		t.Errorf("no settings: %v", leaves)
	}
}

// TestOrder: flag over variable over file over a name of the existing platform
// over default; the origin says which it was.
func TestOrder(t *testing.T) {
	file := "listen: 127.0.0.1:1\nbus:\n  kafka:\n    topics: {tasks: file.tasks}\n"
	old := []string{"TASKS_TOPIC=old.tasks", "RESULTS_TOPIC=old.results", "CONSUMER_GROUP_ID=g", "KAFKA_BROKERS=a:1,b:2", "HTTP_TIMEOUT_SECONDS=45", "LOG_LEVEL=INFO", "CIRCUIT_BREAKER_ENABLED=True", "CIRCUIT_BREAKER_FAILURE_RATE_THRESHOLD=0.7", "CIRCUIT_BREAKER_WINDOW_SIZE_SECONDS=60"}
	env := append(slices.Clone(old), "PARLEY_LISTEN=127.0.0.1:2", "PARLEY_BUS__KAFKA__TOPICS__RUNS=env.runs")
	l := mustLoad(t, file, env, map[string]string{"listen": "127.0.0.1:3", "roles": "bridge,api"})
	got := map[string]string{
		"listen": l.Listen, "tasks": l.Bus.Kafka.Topics.Tasks, "results": l.Bus.Kafka.Topics.Results, "runs": l.Bus.Kafka.Topics.Runs,
		"group": l.Bus.Kafka.Groups.Bridges, "kind": l.Bus.Kind, "brokers": strings.Join(l.Bus.Kafka.Brokers, "+"),
		"timeout": l.Limits.AgentTimeout.String(), "roles": strings.Join(l.Roles, "+"), "breaker": fmt.Sprint(l.Bridge.Breaker),
	}
	want := map[string]string{
		"listen": "127.0.0.1:3", "tasks": "file.tasks", "results": "old.results", "runs": "env.runs",
		"group": "g", "kind": "kafka", "brokers": "a:1+b:2", "timeout": "45s", "roles": "bridge+api", "breaker": "{true 5 0.7 1m0s 3 1m0s }",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	origins := map[string]string{}
	for _, path := range []string{"listen", "bus.kafka.topics.tasks", "bus.kafka.topics.results", "bus.kafka.topics.runs", "log.format"} {
		origins[path] = l.Origin(path)
	}
	want = map[string]string{
		"listen": "--listen", "bus.kafka.topics.tasks": "parley.yaml:4", "bus.kafka.topics.results": "RESULTS_TOPIC",
		"bus.kafka.topics.runs": "PARLEY_BUS__KAFKA__TOPICS__RUNS", "log.format": "default",
	}
	if d := cmp.Diff(want, origins); d != "" {
		t.Error(d)
	}
	notes := strings.Join(l.Notes, "\n")
	for _, part := range []string{
		"RESULTS_TOPIC, a name of the existing platform, was read as bus.kafka.topics.results",
		"TASKS_TOPIC, a name of the existing platform, was not read: bus.kafka.topics.tasks is set by parley.yaml:4",
	} {
		if !strings.Contains(notes, part) {
			t.Errorf("no note %q in\n%s", part, notes)
		}
	}
}

// TestProblems: what is wrong is named with its place, its path, what was
// expected, and what may have been meant; all at once.
func TestProblems(t *testing.T) {
	for _, c := range []struct {
		name, file string
		env        []string
		flags      map[string]string
		want       string
	}{
		{name: "unknown section", file: "listen: a:1\ndatabese: {url: x}\n", want: "parley.yaml:2:1: unknown: databese: there is no such setting (did you mean database?)"},
		{name: "unknown member", file: "log:\n  lewel: debug\n", want: "parley.yaml:2:3: unknown: log.lewel: there is no such setting (did you mean level?)"},
		{name: "choice", file: "bus:\n  kind: rabbit\n", want: `parley.yaml:2:9: value: bus.kind: must be memory or kafka, not "rabbit"`},
		{name: "type", file: "limits: {calls: many}\n", want: "parley.yaml:1:17: type: limits.calls: must be a whole number"},
		{name: "range", file: "limits: {calls: 0}\n", want: "parley.yaml:1:17: value: limits.calls: must be from 1 to 1048576"},
		{name: "unit", file: "limits: {cancel_grace: 30}\n", want: "parley.yaml:1:24: type: limits.cancel_grace: must be a duration such as 500ms, 30s or 1m30s, with its unit"},
		{name: "size", file: "bus: {kafka: {max_record: 1MB}}\n", want: "parley.yaml:1:27: value: bus.kafka.max_record: must be a size such as 512KiB or 1MiB"},
		{name: "size range", file: "bus: {kafka: {max_record: 1GiB}}\n", want: "parley.yaml:1:27: value: bus.kafka.max_record: must be from 1KiB to 64MiB"},
		{
			name: "size that is no KiB", file: "zone: {execution: {max_request: 1GiB}}\n",
			want: "parley.yaml:1:33: value: zone.execution.max_request: must be from 1KiB to 100000000B",
		},
		{name: "quotes", file: "listen: 8420\n", want: "parley.yaml:1:9: type: listen: must be a text; write it in quotes"},
		{name: "section", file: "bus: kafka\n", want: "parley.yaml:1:6: type: bus: must be a section with members such as kafka, kind"},
		{name: "list", file: "roles: {api: true}\n", want: "parley.yaml:1:8: type: roles: must be a list of api, executor, bridge"},
		{name: "item", file: "roles: [api, worker]\n", want: `parley.yaml:1:8: value: roles: holds "worker": the values are api, executor, bridge`},
		{name: "twice", file: "listen: a:1\nlisten: a:2\n", want: "parley.yaml:2:1: duplicate: listen: is given twice"},
		{name: "part", file: "telemetry: {traces: {sample: 1.1}}\n", want: "parley.yaml:1:30: value: telemetry.traces.sample: must be a number from 0 to 1, such as 0.1"},
		{name: "part below", env: []string{"PARLEY_TELEMETRY__TRACES__SAMPLE=-0.1"}, want: "PARLEY_TELEMETRY__TRACES__SAMPLE: value: telemetry.traces.sample: must be a number from 0 to 1, such as 0.1"},
		{name: "literal header", file: "telemetry: {traces: {header: {value: hunter2}}}\n", want: "parley.yaml:1:38: value: telemetry.traces.header.value: must be a reference, env:NAME or file:PATH; the value has neither form"},
		{name: "literal secret", file: "auth: {key: hunter2}\n", want: "parley.yaml:1:13: value: auth.key: must be a reference, env:NAME or file:PATH; the value has neither form"},
		{name: "no folder", file: "listen: 127.0.0.1:0\ndata: ''\n", want: "parley.yaml:2:7: value: data: must name a folder: the keys are kept there"},
		{name: "absent variable", file: "auth: {key: env:NONE}\n", want: "parley.yaml:1:13: secret: auth.key: unavailable: the variable NONE is not set"},
		{name: "absent file", file: "auth: {key: file:none}\n", want: "parley.yaml:1:13: secret: auth.key: unavailable: cannot be read: file does not exist"},
		{name: "url", file: "database: {url: mysql://u:hunter2@h/d}\n", want: "parley.yaml:1:17: value: database.url: must be a URL such as postgres://user@host:5432/parley, or postgres://user@/parley?host=/run/postgresql for a Unix socket, or empty for SQLite in the data folder"},
		{name: "syntax", file: "a: [\n", want: "parley.yaml:1:1: syntax: did not find expected node content"},
		{name: "alias", file: "log: {level: &x debug, format: *x}\n", want: "parley.yaml:1:32: type: log.format: must be written out, without alias and tag"},
		{name: "two documents", file: "{}\n---\n{}\n", want: "parley.yaml:2:1: syntax: the file holds more than one document"},
		{name: "variable", env: []string{"PARLEY_BUS__KIND=rabbit"}, want: `PARLEY_BUS__KIND: value: bus.kind: must be memory or kafka, not "rabbit"`},
		{name: "unknown variable", env: []string{"PARLEY_BUS__KINT=memory"}, want: "PARLEY_BUS__KINT: unknown: there is no such setting (did you mean PARLEY_BUS__KIND?)"},
		{name: "one underscore", env: []string{"PARLEY_DATABASE_URL=x"}, want: "PARLEY_DATABASE_URL: unknown: there is no such setting (did you mean PARLEY_DATABASE__URL?)"},
		{name: "old share", env: []string{"CIRCUIT_BREAKER_FAILURE_RATE_THRESHOLD=0"}, want: "CIRCUIT_BREAKER_FAILURE_RATE_THRESHOLD: value: bridge.breaker.failure_rate_threshold: must be a number of more than 0 and at most 1, such as 0.5"},
		{name: "old variable", env: []string{"HTTP_TIMEOUT_SECONDS=many"}, want: "HTTP_TIMEOUT_SECONDS: value: limits.agent_timeout: must be a duration such as 500ms, 30s or 1m30s"},
		{name: "flag", flags: map[string]string{"limits.calls": "x"}, want: "--limits.calls: value: limits.calls: must be a whole number"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := load(c.file, c.env, c.flags)
			problems, ok := errors.AsType[parley.Problems](err)
			if !ok || len(problems) == 0 {
				t.Fatalf("error %v", err)
			}
			if got := problems[0].String(); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if strings.Contains(fmt.Sprint(err), "hunter2") {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
	_, err := load("listen: 1\nfoo: 2\nlog: {level: loud}\n", []string{"PARLEY_DATA__X=1"}, map[string]string{"nope": "1"})
	if problems, _ := errors.AsType[parley.Problems](err); len(problems) != 5 {
		t.Errorf("not all problems at once: %v", err)
	}
}

// TestForeignVariables: names with our prefix that others put into the
// environment do no harm, nor do those of the command line.
func TestForeignVariables(t *testing.T) {
	l := mustLoad(t, "", []string{
		"PARLEY_ADMIN=k", "PARLEY_AUTH__KEY=env:PARLEY_ADMIN", "PARLEY_URL=http://x", "PARLEY_SECRET_A__B=x", "PARLEY_PORT_8420_TCP=tcp://10.0.0.1:8420", "PARLEY_LISTEN=",
	}, nil)
	if len(l.Notes) != 1 || l.Notes[0] != "PARLEY_PORT_8420_TCP names no setting and was not read" {
		t.Errorf("%q", l.Notes)
	}
	if string(l.Auth.Key.Reveal()) != "k" || l.Listen != "127.0.0.1:8420" {
		t.Errorf("%+v", l.Config)
	}
}

// TestVariablesOfReferences: a variable that a setting refers to may have any name, be it
// nearly that of the setting's own variable. One that nobody refers to is a mistake.
func TestVariablesOfReferences(t *testing.T) {
	file := "auth: {key: env:PARLEY_AUTH_KEY}\ndatabase: {url: 'postgres://u@h:1/d', password: env:PARLEY_DATABASE_PASSWORD}"
	env := []string{"PARLEY_AUTH_KEY=k", "PARLEY_DATABASE_PASSWORD=p", "PARLEY_MY__TOKEN=postgres://h/d"}
	l := mustLoad(t, file, env, map[string]string{"database.url": "env:PARLEY_MY__TOKEN"})
	if string(l.Auth.Key.Reveal()) != "k" || string(l.Database.URL.Reveal()) != "postgres://:p@h/d" || len(l.Notes) != 0 {
		t.Errorf("%s %s %q", l.Auth.Key.Reveal(), l.Database.URL.Reveal(), l.Notes)
	}
	if _, err := load(file, env, nil); err == nil || !strings.Contains(err.Error(), "PARLEY_MY__TOKEN: unknown: ") || strings.Contains(err.Error(), "PARLEY_AUTH_KEY") {
		t.Errorf("%v", err)
	}
}

// TestDatabaseURL: the password comes from the URL, from a reference, or the
// whole URL does; the driver of an old URL is dropped.
func TestDatabaseURL(t *testing.T) {
	const want = "postgres://u:s3cr3t@h:1/d?sslmode=disable"
	for _, c := range []struct {
		name, file string
		env        []string
		want       string
	}{
		{"literal", "database: {url: 'postgres://u:s3cr3t@h:1/d?sslmode=disable'}", nil, want},
		{"query", "database: {url: 'postgres://u@h:1/d?password=s3cr3t'}", nil, "postgres://u@h:1/d?password=s3cr3t"},
		{"file", "database: {url: 'postgres://u@h:1/d?sslmode=disable', password: file:secrets/pg}", nil, want},
		{"socket", "database: {url: 'postgres://u:s3cr3t@/d?host=/run/postgresql'}", nil, "postgres://u:s3cr3t@/d?host=/run/postgresql"},
		{"file", "database: {url: 'postgres://u@/d?host=/run/postgresql', password: file:secrets/pg}", nil, "postgres://u:s3cr3t@/d?host=/run/postgresql"},
		{"variable", "database: {url: env:PG}", []string{"PG=" + want}, want},
		{"old", "", []string{"DATABASE_URL=postgresql+asyncpg://u:s3cr3t@h:1/d"}, "postgresql://u:s3cr3t@h:1/d"},
		{"ours", "", []string{"PARLEY_DATABASE__URL=" + want}, want},
	} {
		l := mustLoad(t, c.file, c.env, nil)
		if got := string(l.Database.URL.Reveal()); got != c.want {
			t.Errorf("%s: %s", c.name, got)
		}
		if text := fmt.Sprintf("%+v %v %v", l.Database, l.View(), l.Notes); strings.Contains(text, "s3cr3t") {
			t.Errorf("%s: shows the password: %s", c.name, text)
		}
		for _, v := range l.View() {
			if c.name == "socket" && v.Path == "database.url" && !strings.HasSuffix(fmt.Sprint(v.Value), "@/d?host=/run/postgresql") {
				t.Errorf("%s is shown as %v", v.Path, v.Value)
			}
			if hidden := c.name != "file" && c.name != "variable" && v.Path == "database.url"; v.Masked != hidden {
				t.Errorf("%s: %s is masked: %v", c.name, v.Path, v.Masked)
			}
		}
	}
}

// TestDatabaseURLIsReadAnew: what files hold when it is asked for is what counts, and
// what is wrong with it is said without it.
func TestDatabaseURLIsReadAnew(t *testing.T) {
	const secret = "postgres://u:s3cr3t@h:1/d"
	for _, c := range []struct{ name, file, first, second, want, wrong, says string }{
		{"password", "url: 'postgres://u@h:1/d', password: file:pg", "one\n", "two\n", "postgres://u:two@h:1/d", "", "database.password the file"},
		{"url", "url: file:pg", secret, "postgres://v:two@h:1/d", "postgres://v:two@h:1/d", "s3cr3t", "database.url must be a URL"},
		{"both", "url: file:pg, password: env:PASSWORD", "postgres://u@h:1/d", "postgres://v@h:1/d", "postgres://v:three@h:1/d", "", "database.url the file"},
	} {
		held := c.first
		l, err := config.Load(config.Sources{
			File: "parley.yaml", Data: []byte("database: {" + c.file + "}"), FileDir: "/etc", Dir: "/", Env: []string{"PASSWORD=three"},
			ReadFile: func(string) ([]byte, error) { return []byte(held), nil },
		})
		if err != nil {
			t.Fatal(c.name, err)
		}
		held = c.second
		if got, err := l.Database.Current(); err != nil || string(got.Reveal()) != c.want {
			t.Errorf("%s: %s, %v", c.name, got.Reveal(), err)
		}
		held = c.wrong
		if _, err := l.Database.Current(); err == nil || !strings.HasPrefix(err.Error(), c.says) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if l := mustLoad(t, "database: {url: 'postgres://u@h:1/d', password: env:PG}", []string{"PG=x"}, nil); l.Database.Current != nil {
		t.Error("a variable is read anew")
	}
}

// TestPaths: paths of the file begin at its folder, others at the working one.
func TestPaths(t *testing.T) {
	l := mustLoad(t, "data: d\nworkflows: [w, /abs]\nbus: {kafka: {tls: {ca: ca.pem}}}", []string{"PARLEY_SECRETS__DIR=s"}, nil)
	got := []string{l.Data, l.Workflows[0], l.Workflows[1], l.Bus.Kafka.TLS.CA, l.Secrets.Dir, l.Push.KeyFile}
	if d := cmp.Diff([]string{"/etc/parley/d", "/etc/parley/w", "/abs", "/etc/parley/ca.pem", "/run/s", ""}, got); d != "" {
		t.Error(d)
	}
	if !l.Bus.Kafka.TLS.Enabled {
		t.Error("a certificate does not imply TLS")
	}
}

// TestFoldersWithBlanks: a blank belongs to the name of a folder, wherever that is given.
func TestFoldersWithBlanks(t *testing.T) {
	want := []string{"/run/my flows", "/abs"}
	for name, l := range map[string]*config.Loaded{
		"flag":     mustLoad(t, "", nil, map[string]string{"workflows": "/run/my flows, /abs"}),
		"variable": mustLoad(t, "", []string{"PARLEY_WORKFLOWS=/run/my flows,/abs,"}, nil),
		"text":     mustLoad(t, "workflows: /run/my flows,/abs", nil, nil),
		"list":     mustLoad(t, "workflows: [/run/my flows, /abs]", nil, nil),
	} {
		if d := cmp.Diff(want, l.Workflows); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// TestOldAddress: the old API's two variables are one setting.
func TestOldAddress(t *testing.T) {
	if l := mustLoad(t, "", []string{"API_PORT=8000"}, nil); l.Listen != "127.0.0.1:8000" {
		t.Errorf("listen %s", l.Listen)
	}
	if l := mustLoad(t, "listen: h:1", []string{"API_PORT=8000"}, nil); l.Listen != "h:1" {
		t.Errorf("listen %s", l.Listen)
	}
}

// TestOldSecrets: the variables of the existing platform hold the secrets
// themselves, whether or not the file refers to them.
func TestOldSecrets(t *testing.T) {
	env := []string{"SLACK_BOT_TOKEN=xoxb-1", "OTHER=xoxb-2"}
	for file, want := range map[string]string{
		"": "xoxb-1",
		"zone: {verification: {slack: {bot_token: env:SLACK_BOT_TOKEN}}}": "xoxb-1",
		"zone: {verification: {slack: {bot_token: env:OTHER}}}":           "xoxb-2",
	} {
		l := mustLoad(t, file, env, nil)
		if got := string(l.Zone.Verification.Slack.BotToken.Reveal()); got != want {
			t.Errorf("%q: %s, want %s", file, got, want)
		}
		if notes := strings.Join(l.Notes, "\n"); strings.Contains(notes, "xoxb") || strings.Contains(file, "SLACK_BOT_TOKEN") != (notes == "") {
			t.Errorf("%q: notes %q", file, notes)
		}
	}
}

// TestView: effective values as they are written, secrets as references.
func TestView(t *testing.T) {
	l := mustLoad(t, "limits: {drain_grace: 1m30s, value: 1MiB}\nauth: {key: env:K}\nbus: {kafka: {requests: on}}", []string{"K=v"}, nil)
	got := map[string]any{}
	for _, v := range l.View() {
		got[v.Path] = v.Value
	}
	for path, want := range map[string]any{
		"limits.drain_grace": "1m30s", "limits.value": "1MiB", "auth.key": "env:K", "bus.kafka.requests": true, "limits.calls": int64(8192),
	} {
		if got[path] != want {
			t.Errorf("%s: %v, want %v", path, got[path], want)
		}
	}
	if len(got) != len(config.Settings()) {
		t.Errorf("%d values of %d settings", len(got), len(config.Settings()))
	}
}

// FuzzLoad: no file brings the reader down, and what it accepts has values of
// their kinds.
func FuzzLoad(f *testing.F) {
	f.Add("listen: a:1\nbus: {kafka: {brokers: [a, b]}}\n")
	f.Add("a: &a [*a]\n")
	f.Add("? {a: b}\n: 1\n")
	f.Fuzz(func(t *testing.T, file string) {
		l, err := load(file, nil, nil)
		if err == nil && len(l.View()) == 0 {
			t.Error("nothing to view")
		}
	})
}
