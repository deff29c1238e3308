package server_test

import (
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
	"github.com/parley-project/parley/internal/server"
)

// TestSchemaOfANewDatabase: a process that may not change a schema makes that of a
// new file of its own, and leaves alone a new database that others share.
func TestSchemaOfANewDatabase(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		url  parley.Secret
		code parley.Code
	}{
		"a file":   {},
		"a shared": {parley.NewSecret([]byte(pgtest.Database(t))), parley.CodeConflict},
	} {
		s, err := server.New(t.Context(), server.Config{Data: t.TempDir(), Listen: "127.0.0.1:0", DatabaseURL: c.url, SchemaAsIs: true})
		if parley.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			err = s.Close()
		}
		if c.code == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
