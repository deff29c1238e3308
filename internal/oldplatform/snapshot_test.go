package oldplatform

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/parley-project/parley/internal/pgtest"
)

// TestImportCannotWrite: the snapshot refuses every write.
func TestImportCannotWrite(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	text, err := os.ReadFile(filepath.Join("testdata", "schema.sql"))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.PgConn().Exec(t.Context(), string(text)).ReadAll()
	if err = errors.Join(err, conn.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	d, err := open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	tx, err := d.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = tx.Exec(t.Context(), `DELETE FROM agents`)
	if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "25006" {
		t.Errorf("a write in the snapshot: %v", err)
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
