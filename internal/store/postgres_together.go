package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// postgresTogether asks questions in one round trip. What travels together is one
// transaction, and those of who reads see one state (see [postgresConnector]). given
// says that rows were given to somebody, so that it cannot be begun again.
func postgresTogether(ctx context.Context, conn *sql.Conn, list []inquiry, s *silence) (given bool, err error) {
	err = conn.Raw(func(raw any) (err error) {
		c, ok := raw.(*stdlib.Conn)
		if !ok {
			return fmt.Errorf("a connection that reads is a %T", raw)
		}
		var batch pgx.Batch
		for _, q := range list {
			batch.Queue(numberParameters(q.text), q.args...)
		}
		answers := c.Conn().SendBatch(ctx, &batch)
		defer func() {
			if closed := answers.Close(); err == nil {
				err = closed
			}
		}()
		for _, q := range list {
			each := func(r *record) error { given = true; return q.each(r) }
			if err := postgresAnswer(answers, each, s); err != nil {
				return err
			}
		}
		return nil
	})
	return given, err
}

// postgresAnswer calls each with every row of the next answer. What that takes is no
// silence.
func postgresAnswer(answers pgx.BatchResults, each func(*record) error, s *silence) error {
	defer s.begin() // the rest may be read
	rows, err := answers.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	var r record
	for ; rows.Next(); s.begin() {
		s.end()
		values, err := rows.Values()
		if err != nil {
			return err
		}
		r = record{values: r.values[:0]}
		for _, v := range values {
			r.values = append(r.values, postgresValue(v))
		}
		if err := each(&r); err != nil {
			return err
		}
		if r.err != nil {
			return r.err
		}
	}
	return rows.Err()
}

// postgresValue gives a value of pgx as a record has it.
func postgresValue(v any) driver.Value {
	switch v := v.(type) {
	case int32:
		return int64(v)
	case string:
		return postgresPlain(v)
	default:
		return v
	}
}
