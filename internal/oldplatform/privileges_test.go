package oldplatform_test

import (
	"strings"
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/oldplatform"
)

// TestImportNamesWhatToGrant: a user who may not read all tables is told which,
// and the statement that changes it; after that statement it goes on.
func TestImportNamesWhatToGrant(t *testing.T) {
	t.Parallel()
	p, x := newPlatform(t), newTarget(t)
	role := p.user()
	reader := func(o *oldplatform.Options) { o.Address = p.as(role) }
	grant := func(missing string) {
		t.Helper()
		report, err := x.try(p, reader)
		if parley.CodeOf(err) != parley.CodeInvalid || !strings.Contains(err.Error(), missing) || len(report.Tables) > 0 {
			t.Fatalf("error %v", err)
		}
		if again := oldplatform.Check(t.Context(), x.target(nil), oldplatform.Options{Address: p.as(role), Protocol: parley.ProtocolJSONRPC}); again == nil ||
			again.Error() != err.Error() {
			t.Errorf("the check says %v", again)
		}
		_, statement, _ := strings.Cut(err.Error(), "say ")
		p.exec(strings.ReplaceAll(statement, ", and GRANT", "; GRANT"))
	}
	grant("may not read agents, ai_chat_sessions, audit_logs, step_executions, workflow_definitions, workflow_runs, workflow_steps:")
	x.take(p, reader)
	p.exec(`REVOKE SELECT ON step_executions, ai_chat_sessions FROM ` + role)
	grant(`may not read ai_chat_sessions, step_executions: have the owner say GRANT SELECT ON "public"."ai_chat_sessions", "public"."step_executions" TO "` + role + `"`)
	x.take(p, reader)
	p.exec(`REVOKE USAGE ON SCHEMA public FROM PUBLIC; REVOKE SELECT ON agents FROM ` + role)
	grant("may not look into the schema public")
	x.take(p, reader)
}

// TestMigrateNamesWhatToGrant: a user who may not change table agents is told so
// before anything is done.
func TestMigrateNamesWhatToGrant(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	role := p.user()
	p.exec(`GRANT SELECT ON ALL TABLES IN SCHEMA public TO ` + role)
	for _, c := range []struct {
		do   func(oldplatform.MigrateOptions) error
		want string
		then string
	}{
		{func(o oldplatform.MigrateOptions) error { return oldplatform.MigrateUp(t.Context(), o) }, "may not change the table agents, which belongs to parley: give the URL with that user", ""},
		{func(o oldplatform.MigrateOptions) error { return oldplatform.MigrateDown(t.Context(), o) }, "may not change the table agents, which belongs to parley", `ALTER TABLE agents OWNER TO ` + role},
		{func(o oldplatform.MigrateOptions) error { return oldplatform.MigrateUp(t.Context(), o) }, `GRANT CREATE ON SCHEMA "public" TO "` + role + `"`, `GRANT CREATE ON SCHEMA public TO ` + role},
		{func(o oldplatform.MigrateOptions) error { return oldplatform.MigrateUp(t.Context(), o) }, "", `ALTER TABLE agents OWNER TO parley`},
	} {
		err := c.do(oldplatform.MigrateOptions{Address: p.as(role), Tell: func(string) {}})
		if c.want == "" && err != nil || c.want != "" && (parley.CodeOf(err) != parley.CodeInvalid || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("error %v, want %q", err, c.want)
		}
		if c.then != "" {
			p.exec(c.then)
		}
	}
	diff(t, p.text(protocolIndex), "1")
}

// TestAddressOfTheAPI: the DATABASE_URL of the platform's API has the parameters of
// its driver, and means the same here: above all whether there is TLS.
func TestAddressOfTheAPI(t *testing.T) {
	t.Parallel()
	p := emptyPlatform(t)
	plain, _, _ := strings.Cut(p.url, "?")
	for query, want := range map[string]string{
		"?ssl=disable": "",
		"?command_timeout=60&ssl=prefer&prepared_statement_cache_size=0&application_name=x": "",
		"?sslmode=disable&ssl=require": "",
		"?ssl=require":                 "refused TLS",
		"?ssl=perhaps":                 "this is no address of a PostgreSQL database",
		"?sll=disable":                 `unrecognized configuration parameter "sll"`,
	} {
		for _, scheme := range []string{"postgres://", "postgresql+asyncpg://"} {
			address := scheme + strings.TrimPrefix(plain, "postgres://") + query
			err := oldplatform.Check(t.Context(), newTarget(t).target(nil), oldplatform.Options{Address: address, Protocol: parley.ProtocolJSONRPC})
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s…%s: %v", scheme, query, err)
			}
		}
	}
}
