package oldplatform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/parley-project/parley/internal/pgtest"
)

// snapshot begins to read a database of the existing platform after statements.
func snapshot(t *testing.T, statements string) (*database, pgx.Tx) {
	t.Helper()
	url := pgtest.Database(t)
	text, err := os.ReadFile(filepath.Join("testdata", "schema.sql"))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.PgConn().Exec(t.Context(), string(text)+statements).ReadAll()
	if err = errors.Join(err, conn.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	d, err := open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	tx, err := d.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d, tx
}

// TestImportCannotWrite: the snapshot refuses every write.
func TestImportCannotWrite(t *testing.T) {
	t.Parallel()
	_, tx := snapshot(t, "")
	_, err := tx.Exec(t.Context(), `DELETE FROM agents`)
	if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "25006" {
		t.Errorf("a write in the snapshot: %v", err)
	}
}

// TestLongImportIsNotThrownOut: the limits that its user or its database has over there do
// not end a snapshot, which is read for as long as an import takes.
func TestLongImportIsNotThrownOut(t *testing.T) {
	t.Parallel()
	const set = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET ' || (SELECT name FROM pg_settings WHERE name = 'NAME') || ' = 60000', current_database()); " +
		"EXCEPTION WHEN null_value_not_allowed THEN NULL; END $$;" // not every server knows all of them
	limits := []string{"statement_timeout", "idle_in_transaction_session_timeout", "transaction_timeout"}
	var statements strings.Builder
	for _, name := range limits {
		statements.WriteString(strings.ReplaceAll(set, "NAME", name))
	}
	_, tx := snapshot(t, statements.String())
	for _, name := range limits {
		var limit string
		err := tx.QueryRow(t.Context(), `SELECT coalesce(current_setting($1, true), '0')`, name).Scan(&limit)
		if err != nil || limit != "0" {
			t.Errorf("%s is %q, %v", name, limit, err)
		}
	}
}

// TestPagesAreBounded: no page has more rows or more bytes than it may, unless it
// is one row; every row is read once, in the order of the table.
func TestPagesAreBounded(t *testing.T) {
	t.Parallel()
	const small, large = 1300, 5 // more small ones than sizes are read at a time
	d, tx := snapshot(t, fmt.Sprintf(`INSERT INTO workflow_runs (run_id, workflow_id, workflow_name, status) VALUES ('r', 'w', 'w', 'COMPLETED');
 INSERT INTO step_executions (id, run_id, step_id, step_name, agent_name, status, input_data, output_data, started_at)
 SELECT lpad(n::text, 5, '0'), 'r', 's', 's', 'A', 'COMPLETED', '{}', to_jsonb(repeat('x', CASE
  WHEN n %% 300 = 7 THEN %d WHEN n %% 300 < 20 THEN %d ELSE 10 END)), '2026-01-01' FROM generate_series(1, %d) n`, pageBytes+1000, pageBytes/3, small))
	steps, err := d.steps(t.Context(), tx)
	if err != nil {
		t.Fatal(err)
	}
	read, alone, full := 0, 0, 0
	for {
		row, err := steps.peek(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if row == nil {
			break
		}
		size := 0
		for i := range steps.rows {
			size += len(steps.rows[i].Input) + len(*steps.rows[i].Output)
		}
		switch n := len(steps.rows); {
		case n > pageRows || n > 1 && size > pageBytes:
			t.Fatalf("a page has %d rows of %d bytes", n, size)
		case size > pageBytes:
			alone++
		case n == pageRows:
			full++
		}
		for range len(steps.rows) {
			row, err := steps.next(t.Context())
			if read++; err != nil || row.ID != fmt.Sprintf("%05d", read) {
				t.Fatalf("row %d is %v: %v", read, row, err)
			}
		}
	}
	if read != small || alone != large || full < 10 {
		t.Errorf("%d rows were read, %d alone, %d full pages", read, alone, full)
	}
}

// TestWritingIsBounded: records are written beside each other as long as their
// values are within the bound; a larger one is written alone.
func TestWritingIsBounded(t *testing.T) {
	for _, c := range []struct {
		size   int64
		beside int
	}{{0, writers}, {writingBytes / 4, 4}, {writingBytes/2 + 1, 1}, {3 * writingBytes, 1}} {
		synctest.Test(t, func(t *testing.T) {
			var running atomic.Int32
			proceed := make(chan struct{})
			left := 40
			done := make(chan error, 1)
			go func() {
				done <- new(importer).parallel(t.Context(), func(context.Context) (job, error) {
					if left--; left < 0 {
						return job{}, nil
					}
					return job{c.size, func(context.Context) error {
						running.Add(1)
						<-proceed
						running.Add(-1)
						return nil
					}}, nil
				})
			}()
			for n := range 40 {
				synctest.Wait()
				if got, want := int(running.Load()), min(c.beside, 40-n); got != want {
					t.Errorf("%d records of %d bytes are written at a time, want %d", got, c.size, want)
				}
				proceed <- struct{}{}
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRunBeyondItsLimits: of a run that is too large nothing is kept but how
// large it is.
func TestRunBeyondItsLimits(t *testing.T) {
	t.Parallel()
	many := &oldRun{run: &runRow{}}
	for range maxRunSteps + 5 {
		many.add(&stepRow{Input: "{}"})
	}
	huge := &oldRun{run: &runRow{}}
	for range 5 {
		huge.add(&stepRow{Input: strings.Repeat("x", maxRunBytes/4)})
	}
	// The texts of errors are the agents' own, of any length.
	wordy := &oldRun{run: &runRow{}}
	for range 5 {
		wordy.add(&stepRow{Error: new(strings.Repeat("x", maxRunBytes/4))})
	}
	for o, want := range map[*oldRun]string{
		wordy: "its values and errors have 335544320 bytes, the limit is 268435456",
		many:  "it has 10005 rows of steps, the limit is 10000", huge: "its values and errors have 335544320 bytes, the limit is 268435456",
	} {
		if _, err := o.record(); messageOf(err) != want || len(o.steps) != 0 || o.held() != 0 {
			t.Errorf("%d steps are kept, %d bytes: %v", len(o.steps), o.held(), err)
		}
	}
}

// TestDigestKnowsNoCredential: a digest that is kept must not be of use to find a
// credential out; all else that an agent is made of changes it.
func TestDigestKnowsNoCredential(t *testing.T) {
	t.Parallel()
	row := func(token, header string) *agentRow {
		return &agentRow{ID: "a", Name: "n", AuthConfig: new(`{"token": "` + token + `", "header": "` + header + `"}`)}
	}
	if digestAgent(row("one", "H")) != digestAgent(row("another", "H")) {
		t.Error("the digest depends on the credential")
	}
	if digestAgent(row("one", "H")) == digestAgent(row("one", "I")) {
		t.Error("the digest does not depend on the header")
	}
}
