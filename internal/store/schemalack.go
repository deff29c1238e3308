package store

import (
	"context"
	"errors"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/parley-project/parley"
)

// lackError is the error of statements that need a table or a column that is not
// there.
type lackError struct {
	texts []string
	error
}

// Unwrap gives the answer of the database.
func (e *lackError) Unwrap() error { return e.error }

// lacking adds to an error that something of the schema is not there what was asked.
func lacking(classify func(error) errorClass, err error, texts ...string) error {
	if err == nil || classify(err) != classSchema {
		return err
	}
	return &lackError{texts, err}
}

// lackingBatch is lacking for statements that travelled together: one of them it was.
func lackingBatch(err error, batch []*pgCall) error {
	var texts []string
	for _, c := range batch {
		if !slices.Contains(texts, c.text) {
			texts = append(texts, c.text)
		}
	}
	return lacking(postgresClassify, err, texts...)
}

// lack is what a schema of the right version lacks.
type lack struct {
	said   *SchemaError
	tables []string
}

// lacks is the error for callers of a statement that needs a table or a column that
// is not there, though the version of the schema says that it is. Without a table of
// ours that is gone it is a mistake in the statement.
func (db *DB) lacks(err error) error {
	mistake := parley.Errorf(parley.CodeInternal, "database: %w", err)
	missing, ok := errors.AsType[*lackError](err)
	if !ok || !db.schema.watched.Load() {
		return mistake
	}
	named, failed := db.tablesIn(missing.texts)
	if failed != nil {
		return mistake
	}
	if known := db.schema.lack.Load(); known != nil && slices.ContainsFunc(named, func(t string) bool { return slices.Contains(known.tables, t) }) {
		return known.said
	}
	ctx, stop := context.WithTimeout(context.Background(), schemaWait)
	defer stop()
	gone, failed := db.gone(ctx, named)
	needs, unknown := db.newest()
	if failed != nil || unknown != nil || len(gone) == 0 {
		return mistake
	}
	fault := &SchemaError{Has: needs, Needs: needs, said: parley.Errorf(parley.CodeUnavailable,
		"the schema of the database has the right version, but not the table %s: bring that back, such as from a copy of the database; "+
			"what needs it waits and then goes on by itself", strings.Join(gone, ", "))}
	if db.schema.lack.CompareAndSwap(nil, &lack{said: fault, tables: gone}) {
		db.options.Logger.Error("a table of the schema is not there", "event", "schema",
			"database", db.dialect.name(db.path), "advice", fault.said.Message)
	}
	return fault
}

// lookForLack notes whether what was lacking is there again.
func (db *DB) lookForLack(ctx context.Context) {
	lack := db.schema.lack.Load()
	if lack == nil || db.schema.fault.Load() != nil {
		return
	}
	ctx, stop := context.WithTimeout(ctx, schemaWait)
	defer stop()
	gone, err := db.gone(ctx, lack.tables)
	if err == nil && len(gone) == 0 && db.schema.lack.CompareAndSwap(lack, nil) {
		db.options.Logger.Warn("the tables of the schema are there again; the work goes on", "event", "schema", "tables", lack.tables)
	}
}

// gone gives those of the tables that are not there.
func (db *DB) gone(ctx context.Context, tables []string) (gone []string, err error) {
	for _, table := range tables {
		var there bool
		err := db.begun(ctx, func() error {
			return db.readers.QueryRowContext(ctx, db.dialect.rebind(db.dialect.there), table).Scan(&there)
		})
		if err != nil {
			return nil, err
		}
		if !there {
			gone = append(gone, table)
		}
	}
	return gone, nil
}

// creates finds the tables of a step of the schema, word what a statement may call
// one.
const creates, word = `(?i)CREATE TABLE (?:IF NOT EXISTS )?(\w+)`, `\w+`

// tablesIn gives the tables of the schema that statements name.
func (db *DB) tablesIn(texts []string) (tables []string, err error) {
	named := regexp.MustCompile(word).FindAllString(strings.Join(texts, " "), -1)
	files, err := fs.Glob(migrations, db.dialect.migrations+"/*.sql")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := fs.ReadFile(migrations, file)
		if err != nil {
			return nil, err
		}
		for _, match := range regexp.MustCompile(creates).FindAllStringSubmatch(string(text), -1) {
			if table := match[1]; slices.Contains(named, table) && !slices.Contains(tables, table) {
				tables = append(tables, table)
			}
		}
	}
	return tables, nil
}
