package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/parley-project/parley/internal/pgtest"
)

// scriptOldPlatform makes a database of the existing platform and writes its URL
// to url.txt; with "mend" it puts right what cannot be imported of it.
func scriptOldPlatform(ts *testscript.TestScript, _ bool, args []string) {
	file := ts.MkAbs("url.txt")
	if len(args) > 0 {
		b, err := os.ReadFile(file)
		ts.Check(err)
		execSQL(ts, strings.TrimSpace(string(b)), `UPDATE agents SET url = 'http://mended.example/' WHERE name = 'BrokenAgent'`)
		return
	}
	url := pgtest.Database(ts.Value(testKey{}).(testing.TB))
	for _, name := range []string{"schema.sql", "rows.sql"} {
		text, err := os.ReadFile(filepath.Join(ts.Value(sourceKey{}).(string), "..", "..", "internal", "oldplatform", "testdata", name))
		ts.Check(err)
		execSQL(ts, url, string(text))
	}
	ts.Check(os.WriteFile(file, []byte(url+"\n"), 0o600))
}

func scriptPostgres(ts *testscript.TestScript, _ bool, _ []string) {
	url := pgtest.Database(ts.Value(testKey{}).(testing.TB))
	ts.Check(os.WriteFile(ts.MkAbs("url.txt"), []byte(url+"\n"), 0o600))
}

// testKey and sourceKey hold the test of a script, and the folder of the sources.
type (
	testKey   struct{}
	sourceKey struct{}
)

func execSQL(ts *testscript.TestScript, url, text string) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	ts.Check(err)
	defer conn.Close(ctx)
	_, err = conn.PgConn().Exec(ctx, text).ReadAll()
	ts.Check(err)
}
