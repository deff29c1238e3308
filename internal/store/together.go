package store

import (
	"context"
	"errors"
)

// inquiry is one of several questions that are asked together.
type inquiry struct {
	text string
	// each gets every row, which is valid until it returns.
	each func(*record) error
	args []any
}

// together asks questions, none of which waits for the answer to another, about one
// state of the database.
func (db *DB) together(ctx context.Context, list ...inquiry) error {
	if db.dialect.together == nil {
		return db.snapshot(ctx, func(tx reader) error {
			for _, q := range list {
				if err := db.readOn(ctx, tx, q.text, q.each, q.args...); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := db.schemaAllows(ctx); err != nil {
		return err
	}
	texts := make([]string, len(list))
	for i := range list {
		texts[i], list[i].args = list[i].text, db.textArgs(list[i].args)
	}
	return db.readFailure(ctx, db.heard(ctx, func(ctx context.Context, s *silence) error {
		var broken error // in the middle of an answer
		return db.begun(ctx, func() error {
			if broken != nil {
				return broken
			}
			conn, err := db.readers.Conn(ctx)
			if err != nil {
				return err
			}
			given, err := db.dialect.together(ctx, conn, list, s)
			err = errors.Join(lacking(db.dialect.classify, err, texts...), conn.Close())
			if given {
				broken = err
			}
			return err
		})
	}))
}
