package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// postgresFloor writes to a PostgreSQL database: each group in one round trip.
func postgresFloor(ctx context.Context, url string, apart bool) (*floor, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, `CREATE TABLE record (key TEXT PRIMARY KEY, value BYTEA NOT NULL)`); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	f := newFloor(apart)
	f.writer.Go(func() {
		group := make([]floorWrite, 0, 512)
		for w := range f.queue {
			group = collect(f.queue, group, w)
			batch := &pgx.Batch{}
			batch.Queue("BEGIN")
			for _, w := range group {
				batch.Queue("INSERT INTO record (key, value) VALUES ($1, $2)", w.key, w.value)
			}
			batch.Queue("COMMIT")
			err := conn.SendBatch(ctx, batch).Close()
			for _, w := range group {
				w.done <- err
			}
		}
	})
	f.close = func() error { return conn.Close(context.WithoutCancel(ctx)) }
	return f, nil
}
