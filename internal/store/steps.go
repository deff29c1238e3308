package store

import (
	"context"
	"database/sql"
	"embed"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/pressly/goose/v3"

	"github.com/parley-project/parley"
)

//go:embed migrations
var migrations embed.FS

// schemaStep is one step of the schema: a file of migrations, the number that its name
// begins with, and the SQL of both directions.
type schemaStep struct {
	version  int64
	name     string
	up, down string
}

// The lines that begin the two parts of a file of migrations; what is above the first
// one is for its readers.
const (
	stepUp   = "\n-- +goose Up\n"
	stepDown = "\n-- +goose Down\n"
)

// schemaSteps reads the steps in a folder of migrations, in their order. Goose could do
// that, but clears 4 MiB of memory for each file, which most of a test's time went to.
func schemaSteps(folder string) ([]schemaStep, error) {
	entries, err := fs.ReadDir(migrations, folder)
	if err != nil {
		return nil, err
	}
	steps := make([]schemaStep, 0, len(entries))
	for _, e := range entries {
		text, err := fs.ReadFile(migrations, path.Join(folder, e.Name()))
		if err != nil {
			return nil, err
		}
		s, err := parseStep(e.Name(), string(text))
		if err != nil {
			return nil, err
		}
		steps = append(steps, s)
	}
	return steps, nil
}

func parseStep(name, text string) (schemaStep, error) {
	number, _, _ := strings.Cut(name, "_")
	version, err := strconv.ParseInt(number, 10, 64)
	_, both, hasUp := strings.Cut("\n"+text, stepUp)
	up, down, hasDown := strings.Cut(both, stepDown)
	if err != nil || !hasUp || !hasDown {
		return schemaStep{}, parley.Errorf(parley.CodeInternal, "migrations: %s does not begin with a number, or has no parts %q and %q", name, stepUp, stepDown)
	}
	return schemaStep{version: version, name: name, up: up, down: down}, nil
}

// migration is the step as goose goes it. The statements of a part are executed as one
// text, which both databases take where there are no parameters.
func (s schemaStep) migration() *goose.Migration {
	execute := func(text string) *goose.GoFunc {
		return &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, text)
			return err
		}}
	}
	return goose.NewGoMigration(s.version, execute(s.up), execute(s.down))
}
