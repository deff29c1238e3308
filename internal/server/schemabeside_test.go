package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/kafkatest"
)

// schemaSoon is how long the tests wait for a process to say that the schema is not its
// own: on a busy machine that takes longer than the second between two looks.
const schemaSoon = time.Minute

// TestSchemaBeside: a schema that is changed beside running processes, each with a role
// of its own. They say so, lose nothing, and go on by themselves.
func TestSchemaBeside(t *testing.T) {
	kafkatest.NeedServer(t)
	t.Parallel()
	binary := buildBinary(t)
	for _, kind := range []string{"postgres", "kafka"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := &besideRig{rolesRig: newRolesRig(t, binary, kind, 300*time.Millisecond)}
			b.newest = b.schemaVersion()
			b.api = b.start("api", "api")
			b.procs = []*roleProcess{b.api, b.start("executor", "executor"), b.start("bridge", "bridge")}
			b.execute(b.api, 0)
			b.downAndUp(t)
			b.newer(t)
			b.empty(t)
			b.stopAll()
			b.log.check(t)
		})
	}
}

type besideRig struct {
	*rolesRig
	api    *roleProcess
	procs  []*roleProcess
	newest int64
}

// downAndUp takes a step back in the middle of runs, and has them all complete after
// it was applied again.
func (b *besideRig) downAndUp(t *testing.T) {
	var ids []string
	var starting sync.WaitGroup
	began := b.loudest()
	starting.Go(func() { ids = b.startsUntilTaken(60, 50*time.Millisecond) })
	wait(t, time.Second)
	b.command("migrate", "down", "--to", fmt.Sprint(b.newest-1), "--yes")
	b.awaitSchema(t, "parley migrate up")
	wait(t, 6*time.Second)
	for i, p := range b.procs {
		if lines := loud(p.output.String()[began[i]:]); len(lines) != 1 {
			t.Errorf("%s has %d lines about it:\n%s", p.name, len(lines), strings.Join(lines, "\n"))
		}
	}
	b.command("migrate", "up")
	b.awaitWhole(t)
	starting.Wait()
	b.complete(t, ids)
}

// newer has the schema look like that of a newer program while agents work: what
// they answer is stored all the same, and goes on afterwards.
func (b *besideRig) newer(t *testing.T) {
	var ids []string
	for n := range 10 {
		ids = append(ids, b.begin(b.api, 1000+n))
	}
	conn := b.connect(t)
	b.exec(t, conn, `INSERT INTO goose_db_version (version_id, is_applied) VALUES ($1, true)`, b.newest+1)
	b.awaitSchema(t, "newer program")
	var open int
	for deadline := time.Now().Add(schemaSoon); ; wait(t, 50*time.Millisecond) {
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM attempt WHERE state IN ('claimed', 'following')`).Scan(&open)
		if err != nil {
			t.Fatal(err)
		}
		if open == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the answers of %d calls are not stored", open)
		}
	}
	b.exec(t, conn, `DELETE FROM goose_db_version WHERE version_id = $1`, b.newest+1)
	b.awaitWhole(t)
	b.complete(t, ids)
}

// empty drops everything, and has new runs in the empty schema without a restart.
func (b *besideRig) empty(t *testing.T) {
	b.command("migrate", "down", "--to", "0", "--yes")
	b.awaitSchema(t, "parley migrate up")
	b.command("migrate", "up")
	b.awaitWhole(t)
	b.execute(b.api, 2000)
}

func (b *besideRig) connect(t *testing.T) *pgx.Conn {
	t.Helper()
	var url string
	for _, v := range b.env {
		if u, ok := strings.CutPrefix(v, "PARLEY_DATABASE__URL="); ok {
			url = u
		}
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (b *besideRig) exec(t *testing.T, conn *pgx.Conn, query string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
}

func (b *besideRig) schemaVersion() (newest int64) {
	b.t.Helper()
	cmd := exec.CommandContext(b.t.Context(), b.binary, "migrate", "status", "-o", "json")
	cmd.Env, cmd.Dir = b.env, b.dir
	out, err := cmd.Output()
	var list struct {
		Items []struct {
			Version int64 `json:"version"`
		} `json:"items"`
	}
	if err == nil {
		err = json.Unmarshal(out, &list)
	}
	if err != nil || len(list.Items) == 0 {
		b.t.Fatalf("migrate status: %v\n%s", err, out)
	}
	return list.Items[len(list.Items)-1].Version
}

// awaitSchema waits until every process says at /readyz that the schema is not its
// own, and the API in its answers, in these words.
func (b *besideRig) awaitSchema(t *testing.T, words string) {
	t.Helper()
	deadline := time.Now().Add(schemaSoon)
	for _, p := range b.procs {
		for ; ; wait(t, 20*time.Millisecond) {
			status, body, err := b.get(p, "/readyz")
			var ready struct {
				Checks map[string]string `json:"checks"`
			}
			if err == nil && status == http.StatusServiceUnavailable && json.Unmarshal([]byte(body), &ready) == nil &&
				strings.Contains(ready.Checks["schema"], words) && ready.Checks["database"] == "ok" {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s answers %d %s %v\n%s", p.name, status, body, err, p.output)
			}
		}
	}
	for _, path := range []string{"/api/v1/runs", "/api/v1/agents", "/api/v1/runs/00000000-0000-0000-0000-000000000000/events"} {
		if status, header, body := b.ask(t, http.MethodGet, path, ""); status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" || !strings.Contains(body, words) {
			t.Errorf("%s: %d %v %s", path, status, header, body)
		}
	}
}

func (b *besideRig) awaitWhole(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(schemaSoon)
	for _, p := range b.procs {
		for ; ; wait(t, 20*time.Millisecond) {
			status, body, err := b.get(p, "/readyz")
			if err == nil && status == http.StatusOK {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s answers %d %s %v\n%s", p.name, status, body, err, p.output)
			}
		}
	}
}

func (b *besideRig) ask(t *testing.T, method, path, body string) (status int, header http.Header, answer string) {
	t.Helper()
	key, err := os.ReadFile(filepath.Join(b.dir, "data", "key"))
	if err != nil {
		t.Error(err)
		return 0, nil, ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, b.api.url+path, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, nil, ""
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(key)))
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0, nil, ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, resp.Header, string(text)
}

// startsUntilTaken starts runs, each until it is accepted: what refuses one has to be a
// 503 that says when to come again.
func (b *besideRig) startsUntilTaken(n int, pace time.Duration) []string {
	return b.startsNamed("u", n, pace)
}

// startsNamed is startsUntilTaken with idempotency keys that begin so.
func (b *besideRig) startsNamed(key string, n int, pace time.Duration) []string {
	ids := make([]string, n)
	var all sync.WaitGroup
	for i := range n {
		wait(b.t, pace)
		all.Go(func() {
			body := fmt.Sprintf(`{"input_data":{"n":"%d"},"idempotency_key":"%s%d"}`, i, key, i)
			for ids[i] == "" && b.t.Context().Err() == nil {
				status, header, answer := b.ask(b.t, http.MethodPost, "/api/v1/workflows/chain/execute", body)
				var run parley.Run
				switch {
				case status/100 == 2 && json.Unmarshal([]byte(answer), &run) == nil:
					ids[i] = run.ID
				case status != http.StatusServiceUnavailable || header.Get("Retry-After") == "":
					b.t.Errorf("a start is answered with %d %v %s", status, header, answer)
					return
				default:
					wait(b.t, 200*time.Millisecond)
				}
			}
		})
	}
	all.Wait()
	return ids
}

func (b *besideRig) complete(t *testing.T, ids []string) {
	t.Helper()
	b.check(b.api, ids)
	for _, id := range ids {
		var run parley.Run
		if err := b.call(b.api, http.MethodGet, "/api/v1/runs/"+id, "", &run); err != nil || run.Status != parley.RunCompleted {
			t.Errorf("run %s is %s: %v %v", id, run.Status, run.Error, err)
		}
	}
}

// loudest gives where the logs are now.
func (b *besideRig) loudest() (at []int) {
	for _, p := range b.procs {
		at = append(at, len(p.output.String()))
	}
	return at
}

// loud gives the warnings and errors of a log.
func loud(log string) (lines []string) {
	for line := range strings.Lines(log) {
		if (strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR")) && !strings.Contains(line, "fsync is off") {
			lines = append(lines, line)
		}
	}
	return lines
}
