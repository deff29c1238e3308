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
// HTTP calls, and before, between and after them synced writes of one row each.
// Writes that arrive while one is under way share the next transaction.
type floor struct {
	client *http.Client
	// apart writes as often as a system whose executor and bridge are different
	// processes: three times for each step.
	apart  bool
	queue  chan floorWrite
	writer sync.WaitGroup
	close  func() error
}

type floorWrite struct {
	key   string
	value []byte
	done  chan error
}

func newFloor(apart bool) *floor {
	return &floor{
		apart: apart, queue: make(chan floorWrite, 1024),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2048, DisableCompression: true}},
	}
}

// sqliteFloor writes to a database in dir.
func sqliteFloor(ctx context.Context, dir string) (*floor, error) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "floor.db")+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, `CREATE TABLE record (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID`); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	f := newFloor(false)
	f.writer.Go(func() { f.write(ctx, conn) })
	f.close = db.Close
	return f, nil
}

func (f *floor) end() error {
	close(f.queue)
	f.writer.Wait()
	f.client.CloseIdleConnections()
	return f.close()
}

// collect adds whatever waits behind the first write, up to the capacity of
// group.
func collect[W any](queue <-chan W, group []W, first W) []W {
	group = append(group[:0], first)
	for len(group) < cap(group) {
		select {
		case w, ok := <-queue:
			if !ok {
				return group
			}
			group = append(group, w)
		default:
			return group
		}
	}
	return group
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
			group = collect(f.queue, group, w)
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
	written := 0
	write := func(times int) error {
		for range times {
			written++
			if err := f.save(fmt.Sprintf("%s.%d", id, written), body); err != nil {
				return err
			}
		}
		return nil
	}
	if err := write(1); err != nil {
		return err
	}
	for _, url := range urls {
		// Apart, the claim of a call and the decision after it are writes of
		// their own; else they share that of the start, or of the answer.
		if f.apart {
			if err := write(1); err != nil {
				return err
			}
		}
		if err := f.call(ctx, url, body); err != nil {
			return err
		}
		answered := 1
		if f.apart {
			answered = 2
		}
		if err := write(answered); err != nil {
			return err
		}
	}
	return nil
}

// call calls an agent once.
func (f *floor) call(ctx context.Context, url string, body []byte) error {
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
	return nil
}
