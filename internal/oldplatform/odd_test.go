package oldplatform_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestImportOddRows: rows at the limits of what the columns take are imported, or
// refused with a word; none ends the import, no secret is told, and doing it again
// changes nothing.
func TestImportOddRows(t *testing.T) {
	t.Parallel()
	p, x := emptyPlatform(t), newTarget(t)
	deep := func(n int) string { return strings.Repeat(`{"a":[`, n/2) + strings.Repeat(`]}`, n/2) }
	agent := func(name, columns, values string) {
		p.exec(fmt.Sprintf(`INSERT INTO agents (name, url%s) VALUES ('%s', 'http://h/'%s)`, columns, name, values))
	}
	agent("null auth", ", auth_type, auth_config, retry_config", `, NULL, 'null', 'null'`)
	agent("other case", ", auth_type, auth_config, status", `, 'Bearer', '{"TOKEN":"hush1","Type":"BEARER"}', 'ACTIVE'`)
	agent("a list", ", auth_type, auth_config", `, 'bearer', '["hush2"]'`)
	agent("a number", ", auth_type, auth_config", `, 'bearer', '{"token":5}'`)
	agent("control", ", auth_type, auth_config", `, 'bearer', '{"token":"hush3\nx"}'`)
	agent("header", ", auth_type, auth_config", `, 'apikey', '{"key":"hush4","header_name":"a b"}'`)
	agent("huge retries", ", retry_config", `, '{"max_retries":1e300,"initial_delay_ms":1e300,"backoff_multiplier":1e400}'`)
	agent("no time", ", timeout_ms", `, 0`)
	agent("negative", ", timeout_ms", `, -2147483648`)
	agent("text", ", retry_config", `, '"x"'`)
	agent("", "", "")
	agent(" ", "", "")
	agent("infinite", ", created_at", `, 'infinity'`)
	agent("before", ", created_at", `, '0044-03-15 BC'`)
	agent("state", ", status", `, ''`)
	p.exec(`INSERT INTO agents (name, url) VALUES ('login', 'http://me:hush5@h/'), ('none', ''), ('odd', 'http://[::1'), ('query', 'http://h/?key=hush6')`)
	for i, plan := range []string{`null`, `5`, `""`, `[]`, `{}`, `{"steps":null}`, `{"steps":{"s":null}}`, `{"steps":{"s":5}}`, deep(100), deep(3000), `{"NAME":"x","n":1e400}`} {
		p.exec(fmt.Sprintf(`INSERT INTO workflow_definitions (name, version, workflow_data) VALUES ('w%d', %d, '%s')`, i%3, i-3, plan))
	}
	p.exec(`INSERT INTO workflow_definitions (name, version, workflow_data) VALUES ('', 1, '{}'), ('w0', 2147483647, '{}')`)
	for i, row := range []string{
		`'', 'COMPLETED', NULL, NULL`, `'completed', 'completed', 'null', NULL`, `'deep', 'FAILED', '{"a":` + deep(3000) + `}', ''`,
		`'number', 'COMPLETED', '{"n":1e400,"m":9007199254740993}', NULL`, `'text', 'CANCELLED', '"x"', 'Cancelled: '`,
		`'failed', 'FAILED', '{}', 'Workflow failed at step '''': '`, `'none', '', '[]', NULL`, `'a/b c', 'COMPLETED', '{}', NULL`, `'dots.a.1', 'FAILED', '{}', NULL`,
	} {
		p.exec(fmt.Sprintf(`INSERT INTO workflow_runs (workflow_id, workflow_name, run_id, status, input_data, error_message) VALUES ('w%d', '', %s)`, i, row))
	}
	p.exec(`INSERT INTO step_executions (id, run_id, step_id, step_name, agent_name, status, input_data, output_data, started_at, completed_at) VALUES
 ('', 'number', '', '', '', 'COMPLETED', 'null', 'null', '2026-01-02', '2026-01-01'),
 ('1', 'number', 'a', 'a', 'a', 'completed', '{}', '{}', '2026-01-02', NULL),
 ('2', 'number', 'a', 'a', 'a', 'FAILED', '5', '"x"', '2026-01-02', '2026-01-02'),
 ('3', 'text', 'a/b.c', 'a', 'a', 'RUNNING', '[]', NULL, '2026-01-02', NULL),
 ('4', 'none', 'workflow', 'a', 'a', '', '{}', '{"n":1e400}', '2026-01-02', NULL)`)
	p.exec(`INSERT INTO audit_logs (entity_type, entity_id, action, changes) VALUES ('', gen_random_uuid(), '', 'null'),
 ('agent', gen_random_uuid(), 'update', '{"AUTH_CONFIG":["hush7",{"token":"hush8","type":{"token":"hush9"}}]}')`)
	first := x.take(p)
	var told strings.Builder
	for _, n := range x.notices {
		fmt.Fprintf(&told, "%+v\n", n)
	}
	if strings.Contains(told.String(), "hush") {
		t.Errorf("a secret is told: %s", told.String())
	}
	for _, why := range []string{"one of its times is infinite", "one of its times is outside of the years 1 to 9999"} {
		if strings.Count(told.String(), why) != 1 {
			t.Errorf("%q is not told of one agent: %s", why, told.String())
		}
	}
	for _, c := range first.Tables {
		if c.Read != c.Imported+c.Changed+c.Unchanged+c.Refused+c.Left || c.Read == 0 {
			t.Errorf("counts %+v", c)
		}
	}
	for _, id := range []string{"completed", "deep", "text", "failed", "none", "a/b c", "dots.a.1"} {
		x.view(id)
	}
	for _, c := range x.take(p).Tables {
		if c.Imported+c.Changed > 0 {
			t.Errorf("again: %+v", c)
		}
	}
}
