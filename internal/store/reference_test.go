package store

import (
	"database/sql/driver"
	"strings"
	"testing"

	"github.com/parley-project/parley"
)

// TestReferenceWithManySigns: whoever names a workflow chooses how many places there
// are at which a version may begin, and need not have a key for that (webhooks); it
// takes few queries all the same.
func TestReferenceWithManySigns(t *testing.T) {
	f := &faults{}
	db := openFaulty(t, f, func(d *dialect) {
		connector := d.connector
		d.connector = func(path string, o Options, use use) (driver.Connector, error) {
			c, err := connector(path, o, use)
			return faultyConnector{c, f}, err
		}
	})
	before := f.from.Load()
	_, err := db.Definition(t.Context(), strings.Repeat("@", maxRef))
	wantCode(t, err, parley.CodeNotFound)
	if n := before - f.from.Load(); n > 30 {
		t.Errorf("%d queries were made", n)
	}
}

// TestVersionOfAnIDWithManySigns: an id of a plan may hold any number of @.
func TestVersionOfAnIDWithManySigns(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx, workflow := t.Context(), strings.Repeat("@w", 20)
		for _, id := range []string{"id-1", "id-2"} {
			must(db.PutDefinition(ctx, definition(id, workflow, "content of "+id), PutVersion))(t)
		}
		_, _, err := db.SetAlias(ctx, aliasChange(workflow, "beta", "1", "a"))
		check(t, err)
		for ref, want := range map[string]string{workflow + "@1": "id-1", workflow + "@2": "id-2", workflow + "@beta": "id-1", workflow: "id-2"} {
			diff(t, must(db.Definition(ctx, ref))(t).ID, want)
		}
		_, err = db.Definition(ctx, workflow+"@3")
		wantCode(t, err, parley.CodeNotFound)
	})
}
