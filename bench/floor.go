package main

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync"

	_ "modernc.org/sqlite" // the floor writes through the product's driver
)

// floor is the least that a durable three-step workflow costs: three plain
// HTTP calls, and before, between and after them a synced write of one row.
// Writes that arrive while one is under way share the next transaction.
type floor struct {
	client *http.Client
	db     *sql.DB
	queue  chan floorWrite
	writer sync.WaitGroup
}

type floorWrite struct {
	key   string
	value []byte
	done  chan error
}

func newFloor(ctx context.Context, dir string) (*floor, error) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "floor.db")+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, `CREATE TABLE record (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID`); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	f := &floor{
		db: db, queue: make(chan floorWrite, 1024),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2048, DisableCompression: true}},
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	f.writer.Go(func() { f.write(ctx, conn) })
	return f, nil
}

func (f *floor) close() error {
	close(f.queue)
	f.writer.Wait()
	f.client.CloseIdleConnections()
	return f.db.Close()
}

// write commits everything that waits, together. It speaks to the driver
// itself, with prepared statements, as the product does.
func (f *floor) write(ctx context.Context, conn *sql.Conn) {
	defer conn.Close()
	err := conn.Raw(func(raw any) error {
		prepare := func(text string) (driver.StmtExecContext, error) {
			st, err := raw.(driver.ConnPrepareContext).PrepareContext(ctx, text)
			if err != nil {
				return nil, err
			}
			return st.(driver.StmtExecContext), nil
		}
		begin, err := prepare("BEGIN IMMEDIATE")
		if err != nil {
			return err
		}
		commit, err := prepare("COMMIT")
		if err != nil {
			return err
		}
		insert, err := prepare("INSERT INTO record (key, value) VALUES (?, ?)")
		if err != nil {
			return err
		}
		group := make([]floorWrite, 0, 512)
		for w := range f.queue {
			group = append(group[:0], w)
			for more := true; more && len(group) < cap(group); {
				select {
				case w, ok := <-f.queue:
					if more = ok; ok {
						group = append(group, w)
					}
				default:
					more = false
				}
			}
			_, err := begin.ExecContext(ctx, nil)
			for _, w := range group {
				_, e := insert.ExecContext(ctx, []driver.NamedValue{{Ordinal: 1, Value: w.key}, {Ordinal: 2, Value: w.value}})
				err = errors.Join(err, e)
			}
			_, e := commit.ExecContext(ctx, nil)
			err = errors.Join(err, e)
			for _, w := range group {
				w.done <- err
			}
		}
		return nil
	})
	if err != nil {
		for w := range f.queue {
			w.done <- err
		}
	}
}

func (f *floor) save(key string, value []byte) error {
	w := floorWrite{key: key, value: value, done: make(chan error, 1)}
	f.queue <- w
	return <-w.done
}

// run is one workflow of the given agents, one after another.
func (f *floor) run(ctx context.Context, id string, urls []string) error {
	body := []byte(`{"task_id":"` + id + `","input":{"text":"hello"}}`)
	for i, url := range urls {
		if err := f.save(fmt.Sprintf("%s.%d", id, i), body); err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json")
		resp, err := f.client.Do(req)
		if err != nil {
			return err
		}
		answer, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK || len(answer) == 0 {
			return fmt.Errorf("agent answered %s", resp.Status)
		}
	}
	return f.save(fmt.Sprintf("%s.%d", id, len(urls)), body)
}
