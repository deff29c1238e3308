package oldplatform_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/oldplatform"
	"github.com/parley-project/parley/internal/store"
)

func diff(t testing.TB, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return v
	}
}

// ids of testdata/rows.sql.
const (
	agentID      = "a0000000-0000-4000-8000-00000000000"
	definitionID = "d0000000-0000-4000-8000-00000000000"
	runID        = "run-00000000-0000-4000-8000-00000000000"
	auditID      = "e0000000-0000-4000-8000-00000000000"
)

func all() []oldplatform.Counts {
	return []oldplatform.Counts{
		{Table: "agents", Read: 6, Imported: 5, Refused: 1},
		{Table: "workflow_definitions", Read: 4, Imported: 4},
		{Table: "workflow_runs", Read: 8, Imported: 8},
		{Table: "step_executions", Read: 13, Imported: 13},
		{Table: "audit_logs", Read: 3, Imported: 3},
		{Table: "ai_chat_sessions", Read: 1, Left: 1},
	}
}

func tables(r *oldplatform.Report) []oldplatform.Counts {
	var out []oldplatform.Counts
	for _, c := range r.Tables {
		out = append(out, *c)
	}
	return out
}

// TestImportAccountsForEveryRow: each row is imported, or refused by name; what
// is repeated changes nothing and says so.
func TestImportAccountsForEveryRow(t *testing.T) {
	t.Parallel()
	p, x := newPlatform(t), newTarget(t)
	r := x.take(p)
	diff(t, tables(r), all())
	diff(t, []int{r.Refused(), r.Writes(), r.Stuck}, []int{1, 33, 2})
	if !slices.ContainsFunc(x.notices, func(n oldplatform.Notice) bool {
		return strings.HasSuffix(n.Text, `: parley agent set 'NoToken' --auth bearer --auth-secret env:NAME`)
	}) {
		t.Errorf("no command that gives the agent its credential in %v", x.notices)
	}

	commits := x.db.SyncedCommits()
	again := x.take(p)
	for i, c := range all() {
		c.Unchanged, c.Imported = c.Imported, 0
		diff(t, tables(again)[i], c)
	}
	diff(t, []int{again.Refused(), again.Writes(), again.Stuck}, []int{1, 0, 2})
	if n := x.db.SyncedCommits(); n != commits {
		t.Errorf("%d synced writes to say that nothing has changed", n-commits)
	}

	var lines []string
	for _, n := range x.notices {
		lines = append(lines, string(n.Kind)+" "+n.Table+" "+n.ID)
	}
	for _, want := range []string{
		"refused agents " + agentID + "6", "hint workflow_definitions " + definitionID + "4",
		"stuck workflow_runs " + runID + "4", "stuck workflow_runs " + runID + "5",
	} {
		if !strings.Contains(strings.Join(lines, "\n")+"\n", want+"\n") {
			t.Errorf("nobody says %q in %q", want, lines)
		}
	}
}

// TestImportAgents: agents of every kind of authentication, switched off and
// deleted ones too, have what they had; credentials are sealed.
func TestImportAgents(t *testing.T) {
	t.Parallel()
	p, x := newPlatform(t), newTarget(t)
	x.take(p)
	day := func(month, day, hour, minute int) time.Time {
		return time.Date(2026, time.Month(month), day, hour, minute, 0, 0, time.UTC)
	}
	retry := parley.DefaultRetryConfig()
	few := retry
	few.MaxRetries, few.InitialDelay = 0, 250*time.Millisecond
	want := []parley.Agent{
		{
			Name: "NoToken", URL: "http://notoken.example/", Auth: parley.Auth{Type: parley.AuthBearer}, Timeout: 30 * time.Second, Retry: retry,
			Status: parley.AgentActive, CreatedAt: day(3, 4, 8, 0), UpdatedAt: day(3, 4, 8, 0), ID: agentID + "5",
		},
		{
			Name: "OldTranslator", URL: "https://translator.example/", Auth: parley.Auth{Type: parley.AuthAPIKey, Header: "X-Key", Secret: "key-translator-s3cr3t"},
			Timeout: 300 * time.Second, Retry: retry, Status: parley.AgentDeleted, CreatedBy: "system", UpdatedBy: "system",
			CreatedAt: day(3, 3, 8, 0), UpdatedAt: day(5, 3, 8, 0), ID: agentID + "4",
		},
		{
			Name: "Pricing & Tax", URL: "https://pricing.example/rpc", Description: "Ünïcode",
			Auth: parley.Auth{Type: parley.AuthAPIKey, Header: "X-Pricing", Secret: "key-pricing-s3cr3t"}, Timeout: time.Second, Retry: retry,
			Status: parley.AgentInactive, CreatedBy: "system", UpdatedBy: "system", CreatedAt: day(3, 2, 8, 0), UpdatedAt: day(3, 2, 8, 0), ID: agentID + "3",
		},
		{
			Name: "ResearchAgent", URL: "http://research.example:8081/", Description: "Finds things", Auth: parley.Auth{Type: parley.AuthNone},
			Timeout: 30 * time.Second, Retry: retry, Status: parley.AgentActive, CreatedBy: "system", UpdatedBy: "system",
			CreatedAt: day(3, 1, 8, 0), UpdatedAt: day(3, 1, 8, 0).Add(123456 * time.Microsecond), ID: agentID + "1",
		},
		{
			Name: "WriterAgent", URL: "https://writer.example/a2a", Auth: parley.Auth{Type: parley.AuthBearer, Secret: "tok-writer-s3cr3t"},
			Timeout: time.Minute, Retry: few, Status: parley.AgentActive, CreatedBy: "system", UpdatedBy: "ann",
			CreatedAt: day(3, 1, 8, 1), UpdatedAt: day(4, 2, 9, 0), ID: agentID + "2",
		},
	}
	got, total, err := x.db.Agents(t.Context(), parley.AgentQuery{})
	check(t, err)
	diff(t, total, 5)
	for i := range got {
		want[i].Protocol = parley.ProtocolJSONRPC
		if ref := got[i].Auth.Secret; ref != "" {
			if !strings.HasPrefix(ref, "sealed:") {
				t.Errorf("%s: the credential is not sealed", got[i].Name)
			}
			got[i].Auth.Secret = string(must(x.secrets.Resolve(ref))(t).Reveal())
		}
	}
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b parley.Secret) bool { return string(a.Reveal()) == string(b.Reveal()) })); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// TestImportKeepsSecrets: no credential of the existing platform is on the disk
// in clear, in a notice, or in an error; not that of an agent, and not the copies
// of it in the audit entries.
func TestImportKeepsSecrets(t *testing.T) {
	t.Parallel()
	p, x := newPlatform(t), newTarget(t)
	p.exec(`UPDATE agents SET url = 'https://user:pw-s3cr3t@h/' WHERE name = 'NoToken';
 UPDATE agents SET auth_config = '{"token": ["s3cr3t"]}' WHERE name = 'BrokenAgent';
 INSERT INTO audit_logs (entity_type, entity_id, action, changes) VALUES ('agent', gen_random_uuid(), 'update',
  '{"before": [{"\u0061uth_config": {"header_name": "X-Shown", "key": "k-s3cr3t", "deep": {"pin": 5417733, "token": "d-s3cr3t"}}}]}'),
 ('agent', gen_random_uuid(), 'create', '{"name": "NoToken", "url": "https://user:pw-s3cr3t@h/"}')`)
	r := x.take(p)
	diff(t, table(t, r, "agents").Refused, 2)
	check(t, x.db.Close())
	files, err := filepath.Glob(filepath.Join(x.dir, "*"))
	check(t, err)
	for _, file := range files {
		b := must(os.ReadFile(file))(t)
		for _, secret := range []string{"s3cr3t", "5417733"} {
			if bytes.Contains(b, []byte(secret)) {
				t.Errorf("%s holds a credential", filepath.Base(file))
			}
		}
	}
	if text := string(must(json.Marshal(x.notices))(t)); strings.Contains(text, "s3cr3t") {
		t.Errorf("a notice holds a credential: %s", text)
	}
}

// TestImportDefinitions: versions keep their ids, their numbers and their plans
// to the byte; those of one name are one workflow.
func TestImportDefinitions(t *testing.T) {
	t.Parallel()
	p, x := newPlatform(t), newTarget(t)
	x.take(p)
	for _, c := range []struct{ id, ref, workflow, version, status string }{
		{"1", "research-and-write@1", "research-and-write", "1", "inactive"},
		{"2", "Research and write", "research-and-write", "3", "active"},
		{"4", "Each of them", "each-of-them", "1", "active"},
		// Another name with the same workflow_id is another workflow.
		{"3", "research-and-write-73313c16@1", "research-and-write-73313c16", "1", "deleted"},
	} {
		d := must(x.db.Definition(t.Context(), definitionID+c.id))(t)
		diff(t, []string{d.Workflow, d.Version, string(d.Status)}, []string{c.workflow, c.version, c.status})
		diff(t, string(d.Source), p.text(`SELECT workflow_data FROM workflow_definitions WHERE id = '`+d.ID+`'`))
		if named, err := x.db.Definition(t.Context(), c.ref); err != nil || named.ID != d.ID {
			t.Errorf("%s is %q: %v", c.ref, named.ID, err)
		}
	}
	_, versions, err := x.db.Versions(t.Context(), "Research and write", parley.Page{})
	diff(t, versions, 2)
	diff(t, err, nil)

	// A version that is changed in place, as PUT does there, is another one here.
	p.exec(`UPDATE workflow_definitions SET version = 4, workflow_data = jsonb_set(workflow_data, '{version}', '"4"'), updated_at = '2026-08-01'
 WHERE id = '` + definitionID + `2'; UPDATE workflow_definitions SET status = 'deleted', updated_at = '2026-08-01' WHERE id = '` + definitionID + `4'`)
	diff(t, table(t, x.take(p), "workflow_definitions"), oldplatform.Counts{Table: "workflow_definitions", Read: 4, Changed: 2, Unchanged: 2})
	diff(t, must(x.db.Definition(t.Context(), definitionID+"2"))(t).Version, "4")
	diff(t, must(x.db.Definition(t.Context(), "research-and-write@3"))(t).ID, definitionID+"2")
	diff(t, must(x.db.Definition(t.Context(), definitionID+"4"))(t).Status, parley.AgentDeleted)
}

// TestImportAudits: the audit record is kept, without credentials.
func TestImportAudits(t *testing.T) {
	t.Parallel()
	p, x := newPlatform(t), newTarget(t)
	x.take(p)
	got, total, err := x.db.Audits(t.Context(), store.AuditQuery{})
	check(t, err)
	diff(t, total, 3)
	diff(t, got, []store.Audit{
		{
			ID: auditID + "2", At: time.Date(2026, 6, 1, 10, 0, 0, 0, time.UTC), EntityType: "run",
			EntityID: "00000000-0000-4000-8000-000000000001", Action: "execute", By: "system",
			Changes: []byte(`{"input_data": {"topic": "<tea> & é"}, "workflow_id": "d0000000-0000-4000-8000-000000000002"}`),
		},
		{
			ID: auditID + "3", At: time.Date(2026, 3, 13, 8, 0, 0, 0, time.UTC), EntityType: "workflow", EntityID: definitionID + "3", Action: "delete",
		},
		{
			ID: auditID + "1", At: time.Date(2026, 3, 1, 8, 1, 0, 0, time.UTC), EntityType: "agent", EntityID: agentID + "2", Action: "create", By: "system",
			Changes: []byte(`{"auth_config":{"token":"[redacted]","type":"bearer"},"auth_type":"bearer","name":"WriterAgent","url":"https://writer.example/a2a"}`),
		},
	})
}

// TestImportProtocol: the column decides where there is one, else --protocol.
func TestImportProtocol(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	x := newTarget(t)
	x.take(p, func(o *oldplatform.Options) { o.Protocol = parley.ProtocolSimpleA2A })
	diff(t, must(x.db.Agent(t.Context(), "ResearchAgent"))(t).Protocol, parley.ProtocolSimpleA2A)
	// Another --protocol is another record.
	diff(t, table(t, x.take(p), "agents").Changed, 5)
	diff(t, must(x.db.Agent(t.Context(), "ResearchAgent"))(t).Protocol, parley.ProtocolJSONRPC)

	check(t, oldplatform.MigrateUp(t.Context(), oldplatform.MigrateOptions{Address: p.url, Tell: func(string) {}}))
	y := newTarget(t)
	y.take(p)
	diff(t, must(y.db.Agent(t.Context(), "ResearchAgent"))(t).Protocol, parley.ProtocolSimpleA2A)
	if n := y.notices[len(y.notices)-1]; !strings.Contains(string(must(json.Marshal(y.notices))(t)), "the default of the column") {
		t.Errorf("nobody says that all agents have the default: %v", n)
	}
	p.exec(`UPDATE agents SET protocol = 'jsonrpc-2.0', protocol_config = '{"method": "message/send"}' WHERE name = 'ResearchAgent';
 UPDATE agents SET protocol = 'soap' WHERE name = 'NoToken'; UPDATE agents SET protocol = 'auto' WHERE name = 'WriterAgent'`)
	z := newTarget(t)
	diff(t, table(t, z.take(p), "agents").Refused, 3)
	a := must(z.db.Agent(t.Context(), "ResearchAgent"))(t)
	diff(t, []string{a.Protocol, string(a.ProtocolConfig)}, []string{parley.ProtocolJSONRPC, `{"method":"message/send"}`})

	_, err := x.try(p, func(o *oldplatform.Options) { o.Protocol = "soap" })
	if parley.CodeOf(err) != parley.CodeInvalid || !strings.Contains(err.Error(), "jsonrpc-2.0, simple-a2a") {
		t.Errorf("an unknown protocol: %v", err)
	}
}

// TestImportConflicts: what belongs to somebody else, or was changed on both
// sides, is refused by name and stays as it is; everything else is imported.
func TestImportConflicts(t *testing.T) {
	t.Parallel()
	p, x := newPlatform(t), newTarget(t)
	mine := parley.Agent{
		ID: "mine", Name: "ResearchAgent", URL: "http://mine/", Protocol: parley.ProtocolSimpleA2A, Timeout: time.Second,
		Retry: parley.DefaultRetryConfig(), CreatedAt: now(), UpdatedAt: now(),
	}
	check(t, x.db.CreateAgent(t.Context(), mine))
	_, err := x.db.PutDefinition(t.Context(), store.Definition{
		ID: "mine", Workflow: "each-of-them", Name: "Each of them", Version: "1", Format: "json", Source: []byte("{}"), Digest: "x",
	}, store.PutVersion)
	check(t, err)

	for _, f := range []func(*oldplatform.Options){dry, func(*oldplatform.Options) {}} {
		r := x.take(p, f)
		diff(t, []int{table(t, r, "agents").Refused, table(t, r, "agents").Imported}, []int{2, 4})
		diff(t, []int{table(t, r, "workflow_definitions").Refused, table(t, r, "workflow_definitions").Imported}, []int{1, 3})
		diff(t, table(t, r, "workflow_runs").Imported, 8)
	}
	diff(t, must(x.db.Agent(t.Context(), "ResearchAgent"))(t).URL, "http://mine/")

	a := must(x.db.Agent(t.Context(), "WriterAgent"))(t)
	read := a.UpdatedAt
	a.Description, a.UpdatedAt = "changed here", now()
	check(t, x.db.UpdateAgent(t.Context(), a, read))
	diff(t, table(t, x.take(p), "agents").Unchanged, 4)
	p.exec(`UPDATE agents SET url = 'http://moved/', updated_at = '2026-09-01' WHERE name IN ('WriterAgent', 'NoToken')`)
	for _, f := range []func(*oldplatform.Options){dry, func(*oldplatform.Options) {}} {
		r := x.take(p, f)
		diff(t, table(t, r, "agents"), oldplatform.Counts{Table: "agents", Read: 6, Changed: 1, Unchanged: 2, Refused: 3})
	}
	diff(t, must(x.db.Agent(t.Context(), "WriterAgent"))(t).Description, "changed here")
	diff(t, must(x.db.Agent(t.Context(), "NoToken"))(t).URL, "http://moved/")
}

// TestImportDryRun: it counts and names as an import would, and writes nothing.
func TestImportDryRun(t *testing.T) {
	t.Parallel()
	p, x := newPlatform(t), newTarget(t)
	commits := x.db.SyncedCommits()
	r := x.take(p, dry)
	diff(t, tables(r), all())
	diff(t, []int{r.Stuck, len(x.notices)}, []int{2, 5})
	if n := x.db.SyncedCommits(); n != commits {
		t.Errorf("%d synced writes", n-commits)
	}
	_, total, err := x.db.Runs(t.Context(), parley.RunQuery{})
	check(t, err)
	diff(t, total, 0)
}

// TestImportDryRunForeseesEveryRefusal: what a dry run refuses is what the import
// then refuses, in the same words.
func TestImportDryRunForeseesEveryRefusal(t *testing.T) {
	t.Parallel()
	p, x := newPlatform(t), newTarget(t)
	x.take(p)
	// A version is changed in place over there, and its number is taken here.
	_, err := x.db.PutDefinition(t.Context(), store.Definition{
		ID: "mine", Workflow: "research-and-write", Name: "Research and write", Version: "4", Format: "json", Source: []byte("{}"), Digest: "x",
	}, store.PutVersion)
	check(t, err)
	p.exec(`UPDATE workflow_definitions SET version = 4, workflow_data = jsonb_set(workflow_data, '{version}', '"4"'), updated_at = '2026-08-01'
 WHERE id = '` + definitionID + `2'`)
	refused := func() (named []oldplatform.Notice) {
		for _, n := range x.notices {
			if n.Kind == oldplatform.NoticeRefused {
				named = append(named, n)
			}
		}
		return named
	}
	foreseen := tables(x.take(p, dry))
	named := refused()
	met := tables(x.take(p))
	diff(t, foreseen, met)
	diff(t, named, refused())
	diff(t, len(named), 2)
}

// TestImportReadsOneInstant: an import needs no more than to read, and sees what
// was there when it began, whatever is written meanwhile.
func TestImportReadsOneInstant(t *testing.T) {
	t.Parallel()
	p, x := newPlatform(t), newTarget(t)
	role := p.user()
	p.exec(`GRANT SELECT ON ALL TABLES IN SCHEMA public TO ` + role)
	o := oldplatform.Options{Address: p.as(role), Protocol: parley.ProtocolJSONRPC}
	told := 0
	report, err := oldplatform.Import(t.Context(), x.target(func(oldplatform.Notice) {
		// The first notice is about an agent: runs are read later.
		if told++; told == 1 {
			p.exec(`UPDATE workflow_runs SET status = 'COMPLETED', updated_at = now() WHERE status = 'RUNNING';
 INSERT INTO workflow_runs (run_id, workflow_id, workflow_name, status) VALUES ('run-late', 'w', 'w', 'COMPLETED');
 DELETE FROM audit_logs`)
		}
	}), o)
	check(t, err)
	diff(t, tables(report), all())
	diff(t, report.Stuck, 2)
	x.take(p)
	diff(t, must(x.db.RunRow(t.Context(), "run-late"))(t).Status, parley.RunCompleted)
}

// TestImportInterrupted: an import that was stopped half way goes on where it was.
func TestImportInterrupted(t *testing.T) {
	t.Parallel()
	p, x := newPlatform(t), newTarget(t)
	p.exec(`INSERT INTO workflow_runs (run_id, workflow_id, workflow_name, status)
 SELECT 'run-' || lpad(n::text, 5, '0'), 'w', 'w', 'PENDING' FROM generate_series(1, 500) n`)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	stuck := 0
	part, err := oldplatform.Import(ctx, x.target(func(n oldplatform.Notice) {
		if n.Kind == oldplatform.NoticeStuck {
			if stuck++; stuck == 100 {
				stop()
			}
		}
	}), oldplatform.Options{Address: p.url, Protocol: parley.ProtocolJSONRPC})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	done := table(t, part, "workflow_runs").Imported
	if done < 100 || done >= 508 {
		t.Fatalf("%d runs are imported", done)
	}
	c := table(t, x.take(p), "workflow_runs")
	if c.Read != 508 || c.Imported+c.Unchanged != 508 || c.Unchanged < done {
		t.Errorf("%+v after %d", c, done)
	}
	_, total, err := x.db.Runs(t.Context(), parley.RunQuery{})
	check(t, err)
	diff(t, total, 508)
}
