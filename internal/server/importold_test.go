package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/oldplatform"
	"github.com/parley-project/parley/internal/pgtest"
	"github.com/parley-project/parley/internal/server"
	"github.com/parley-project/parley/internal/store"
)

// oldDatabase makes a database of the existing platform.
func oldDatabase(t *testing.T) (string, *pgx.Conn) {
	t.Helper()
	url := pgtest.Database(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	for _, file := range []string{"schema.sql", "rows.sql"} {
		text, err := os.ReadFile(filepath.Join("..", "oldplatform", "testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.PgConn().Exec(t.Context(), string(text)).ReadAll(); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	return url, conn
}

func importOld(t *testing.T, cfg server.Config, o oldplatform.Options) *oldplatform.Report {
	t.Helper()
	report, err := server.ImportOld(t.Context(), cfg, server.OldImport{Options: o, Tell: func(oldplatform.Notice) {}})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// TestImportOld: what was imported is served under the names of the existing
// platform's API, and a run that had not ended is retried here with what it had
// done already.
func TestImportOld(t *testing.T) {
	t.Parallel()
	url, conn := oldDatabase(t)
	var mu sync.Mutex // protects calls
	var calls []string
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var task struct {
			ID    string          `json:"task_id"`
			Input json.RawMessage `json:"input"`
		}
		_ = json.NewDecoder(r.Body).Decode(&task)
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, r.Header.Get("Authorization")+" "+string(task.Input))
		_ = json.NewEncoder(w).Encode(map[string]any{"task_id": task.ID, "status": "success", "output": "written"})
	}))
	defer agent.Close()
	if _, err := conn.Exec(t.Context(), `UPDATE agents SET url = $1`, agent.URL); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, cfg: server.Config{Data: filepath.Join(t.TempDir(), "data"), Listen: "127.0.0.1:0", EgressAllow: []string{"127.0.0.0/8"}}}
	report := importOld(t, w.cfg, oldplatform.Options{Address: url, Protocol: parley.ProtocolSimpleA2A})
	if report.Refused() != 0 || report.Stuck != 2 {
		t.Fatalf("%d refused, %d stuck", report.Refused(), report.Stuck)
	}
	w.server = startServer(t, w.cfg)

	const definition = "d0000000-0000-4000-8000-000000000002"
	const run = "run-00000000-0000-4000-8000-00000000000"
	get := func(path string) (v any) {
		t.Helper()
		status, body := w.call("GET", "/api/v1"+path, "")
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, status, body)
		}
		if err := json.Unmarshal(body, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	pick := func(v any, names ...string) []any {
		var out []any
		for _, name := range names {
			out = append(out, v.(map[string]any)[name])
		}
		return out
	}
	diff := func(got, want any) {
		t.Helper()
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got)\n%s", d)
		}
	}
	diff(pick(get("/runs/"+run+"2"), "id", "run_id", "workflow_id", "workflow_name", "workflow_definition_id", "status", "input_data", "triggered_by",
		"created_at", "updated_at", "completed_at", "cancelled_at", "cancelled_by", "error_message"), []any{
		run + "2", run + "2", definition, "Research and write", definition, "FAILED",
		map[string]any{"topic": "coffee"},
		"system",
		"2026-06-02T10:00:00Z", "2026-06-02T10:05:00Z", "2026-06-02T10:05:00Z", nil, nil,
		"Workflow failed at step 'write': Timeout waiting for agent result (correlation_id: corr-1)",
	})
	diff(pick(get("/runs/"+run+"3"), "status", "completed_at", "cancelled_at", "cancelled_by", "error_message"), []any{
		"CANCELLED", nil, "2026-06-03T10:01:00Z", "system", "Cancelled: no longer needed",
	})
	diff(pick(get("/runs/run-by-hand.1"), "workflow_id", "workflow_definition_id", "input_data", "triggered_by"), []any{"wf-by-hand", nil, nil, nil})
	steps := get("/runs/" + run + "1/steps").([]any)
	diff(len(steps), 2)
	diff(pick(steps[1], "run_id", "step_id", "step_name", "agent_name", "status", "input_data", "output_data", "started_at", "completed_at", "error_message"), []any{
		run + "1", "write", "WriterAgent", "WriterAgent", "COMPLETED",
		map[string]any{"data": []any{"leaf", 1.5}},
		map[string]any{"text": "All about tea"},
		"2026-06-01T10:00:04Z", "2026-06-01T10:00:09Z", nil,
	})
	diff(pick(get("/runs?page_size=3"), "total", "page", "total_pages"), []any{8.0, 1.0, 3.0})
	diff(pick(get("/runs?workflow_definition_id="+definition), "total"), []any{5.0})
	diff(pick(get("/runs?status=COMPLETED"), "total"), []any{2.0})
	diff(pick(get("/agents"), "total"), []any{6.0})
	diff(pick(get("/agents/a0000000-0000-4000-8000-000000000004"), "name", "status", "auth_type"), []any{"OldTranslator", "deleted", "apikey"})
	diff(pick(get("/workflows/"+definition), "id", "name", "version", "status"), []any{definition, "Research and write", 3.0, "active"})
	audit := get("/audit?entity_type=agent").(map[string]any)
	diff(pick(audit, "total"), []any{1.0})
	diff(pick(audit["items"].([]any)[0], "entity_id", "action", "user_id", "created_at"), []any{
		"a0000000-0000-4000-8000-000000000002", "create", "system", "2026-03-01T08:01:00Z",
	})
	diff(pick(get("/audit?page_size=1"), "total", "total_pages"), []any{3.0, 3.0})
	// A plan that this version cannot run can be read.
	if got := get("/workflows/d0000000-0000-4000-8000-000000000004").(map[string]any); len(got["warnings"].([]any)) == 0 || got["workflow_data"] == nil {
		t.Errorf("a plan that cannot be run: %v", got)
	}
	status, body := w.call("POST", "/api/v1/workflows/d0000000-0000-4000-8000-000000000004/execute", `{"input_data":{}}`)
	if status != http.StatusUnprocessableEntity || !strings.Contains(string(body), "a fork_join needs at least two branches") {
		t.Errorf("starting it: %d %s", status, body)
	}

	status, body = w.call("POST", "/api/v1/runs/"+run+"4/retry", "")
	var retried struct {
		ID   string `json:"id"`
		From string `json:"retried_from"`
	}
	if err := json.Unmarshal(body, &retried); err != nil || status != http.StatusAccepted || retried.From != run+"4" {
		t.Fatalf("retry: %d %s", status, body)
	}
	if ended := w.end(retried.ID); ended.Status != parley.RunCompleted || len(ended.Steps) != 2 || string(ended.Steps[0].Output) != `{"findings":"wet"}` {
		t.Errorf("the retry ends %s: %v %v", ended.Status, ended.Error, ended.Steps)
	}
	mu.Lock()
	diff(calls, []string{`Bearer tok-writer-s3cr3t {"data":"wet"}`})
	mu.Unlock()
	status, body = w.call("POST", "/api/v1/runs/"+run+"3/retry", "")
	if status != http.StatusAccepted {
		t.Errorf("retry of a cancelled run: %d %s", status, body)
	}
	if err := json.Unmarshal(body, &retried); err != nil {
		t.Fatal(err)
	}
	w.end(retried.ID)
	status, body = w.call("POST", "/api/v1/runs/run-by-hand.1/retry", "")
	if status != http.StatusBadRequest {
		t.Errorf("retry of a completed run: %d %s", status, body)
	}

	// No import beside a running server.
	if _, err := server.ImportOld(t.Context(), w.cfg, server.OldImport{
		Options: oldplatform.Options{Address: url, Protocol: parley.ProtocolSimpleA2A}, Tell: func(oldplatform.Notice) {},
	}); parley.CodeOf(err) != parley.CodeConflict {
		t.Errorf("imported beside a running server: %v", err)
	}
}

// TestImportOldDry: a dry run leaves nothing behind, where there is a store and
// where there is none.
func TestImportOldDry(t *testing.T) {
	t.Parallel()
	url, _ := oldDatabase(t)
	data := filepath.Join(t.TempDir(), "data")
	o := oldplatform.Options{Address: url, Protocol: parley.ProtocolJSONRPC, DryRun: true}
	r := importOld(t, server.Config{Data: data}, o)
	if r.Writes() != 33 || r.Refused() != 1 {
		t.Errorf("%d would be written, %d refused", r.Writes(), r.Refused())
	}
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("the data folder is there: %v", err)
	}
	o.DryRun = false
	importOld(t, server.Config{Data: data}, o)
	key, err := os.ReadFile(filepath.Join(data, "agents.key"))
	if err != nil {
		t.Fatal(err)
	}
	o.DryRun = true
	if r := importOld(t, server.Config{Data: data}, o); r.Writes() != 0 {
		t.Errorf("%d would be written again", r.Writes())
	}
	if again, err := os.ReadFile(filepath.Join(data, "agents.key")); err != nil || string(again) != string(key) {
		t.Errorf("the key has changed: %v", err)
	}
}

// TestImportOldIntoPostgreSQL: the store may be a PostgreSQL database, which
// others may work on; a dry run does not make its schema.
func TestImportOldIntoPostgreSQL(t *testing.T) {
	t.Parallel()
	url, _ := oldDatabase(t)
	cfg := server.Config{Data: filepath.Join(t.TempDir(), "data")}
	o := server.OldImport{
		Options: oldplatform.Options{Address: url, Protocol: parley.ProtocolJSONRPC, DryRun: true},
		Store:   parley.NewSecret([]byte(pgtest.Database(t))), Tell: func(oldplatform.Notice) {},
	}
	if _, err := server.ImportOld(t.Context(), cfg, o); parley.CodeOf(err) != parley.CodeConflict || !strings.Contains(err.Error(), "migrate up") {
		t.Errorf("a dry run into an empty database: %v", err)
	}
	for _, want := range []struct {
		dry           bool
		writes, stuck int
	}{{false, 33, 2}, {true, 0, 2}, {false, 0, 2}} {
		o.DryRun = want.dry
		r, err := server.ImportOld(t.Context(), cfg, o)
		if err != nil {
			t.Fatal(err)
		}
		if r.Writes() != want.writes || r.Stuck != want.stuck || r.Refused() != 1 {
			t.Errorf("dry %v: %d written, %d stuck, %d refused", want.dry, r.Writes(), r.Stuck, r.Refused())
		}
	}
	db, err := store.Open(t.Context(), string(o.Store.Reveal()), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	h, err := db.History(t.Context(), "run-00000000-0000-4000-8000-000000000002")
	if err != nil || len(h.Events) != 10 || h.Run.Status != parley.RunFailed {
		t.Errorf("%d events of a run that is %s: %v", len(h.Events), h.Run.Status, err)
	}
}
