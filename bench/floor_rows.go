package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"
)

// rowsFloor is the least that a workflow costs whose history can be read and whose
// tasks can be taken over: the calls and the commits of [floor], with a row for the
// run, one for each decision and one for each attempt (protocol.md §2) instead of
// one for each commit. Its tables have no index but their keys, and each kind of
// row is one statement for a whole group.
type rowsFloor struct {
	*floor
	conn   *pgx.Conn
	queue  chan rowsWrite
	writer sync.WaitGroup
}

// rowsWrite is what one decision writes: step ends the attempt of that number and
// begins the next one, so that 0 starts the run, and the last one ends it.
type rowsWrite struct {
	run   string
	step  int32
	last  bool
	value []byte
	done  chan error
}

// rowsSchema has PostgreSQL find rows by their keys from the first one on: nobody
// has told it yet how large the tables will be.
const rowsSchema = `
SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_seqscan = off;
CREATE TABLE run (id TEXT PRIMARY KEY, seq INTEGER NOT NULL, ended BOOLEAN NOT NULL, value BYTEA NOT NULL);
CREATE TABLE event (run TEXT NOT NULL, seq INTEGER NOT NULL, value BYTEA NOT NULL, PRIMARY KEY (run, seq));
CREATE TABLE attempt (id TEXT PRIMARY KEY, run TEXT NOT NULL, ended BOOLEAN NOT NULL, input BYTEA NOT NULL, answer BYTEA);`

func newRowsFloor(ctx context.Context, url string) (*rowsFloor, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, rowsSchema); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	f := &rowsFloor{floor: newFloor(false), conn: conn, queue: make(chan rowsWrite, 1024)}
	f.writer.Go(func() {
		group := make([]rowsWrite, 0, 512)
		for w := range f.queue {
			group = collect(f.queue, group, w)
			err := f.commit(ctx, group)
			for _, w := range group {
				w.done <- err
			}
		}
	})
	return f, nil
}

func (f *rowsFloor) end(ctx context.Context) error {
	close(f.queue)
	f.writer.Wait()
	f.client.CloseIdleConnections()
	return f.conn.Close(ctx)
}

// rowsColumns are the values of one statement, a column each.
type rowsColumns struct {
	ids    []string
	runs   []string
	seqs   []int32
	ends   []bool
	values [][]byte
}

func (c *rowsColumns) add(id string, w *rowsWrite) {
	c.ids, c.runs, c.seqs = append(c.ids, id), append(c.runs, w.run), append(c.seqs, w.step)
	c.ends, c.values = append(c.ends, w.last), append(c.values, w.value)
}

// commit writes a group in one round trip.
func (f *rowsFloor) commit(ctx context.Context, group []rowsWrite) error {
	var started, moved, decided, begun, ended rowsColumns
	for i := range group {
		w := &group[i]
		decided.add("", w)
		if w.step == 0 {
			started.add(w.run, w)
		} else {
			moved.add(w.run, w)
			ended.add(attemptOf(w.run, w.step), w)
		}
		if !w.last {
			begun.add(attemptOf(w.run, w.step+1), w)
		}
	}
	batch := &pgx.Batch{}
	batch.Queue("BEGIN")
	batch.Queue("INSERT INTO run (id, seq, ended, value) SELECT * FROM unnest($1::text[], $2::int[], $3::bool[], $4::bytea[])",
		started.ids, started.seqs, started.ends, started.values)
	batch.Queue("INSERT INTO event (run, seq, value) SELECT * FROM unnest($1::text[], $2::int[], $3::bytea[])",
		decided.runs, decided.seqs, decided.values)
	batch.Queue("UPDATE attempt SET ended = true, answer = w.value FROM unnest($1::text[], $2::bytea[]) AS w (id, value) WHERE attempt.id = w.id",
		ended.ids, ended.values)
	batch.Queue("UPDATE run SET seq = w.seq, ended = w.ended FROM unnest($1::text[], $2::int[], $3::bool[]) AS w (id, seq, ended) WHERE run.id = w.id",
		moved.ids, moved.seqs, moved.ends)
	batch.Queue("INSERT INTO attempt (id, run, ended, input) SELECT a.id, a.run, false, a.input FROM unnest($1::text[], $2::text[], $3::bytea[]) AS a (id, run, input)",
		begun.ids, begun.runs, begun.values)
	batch.Queue("COMMIT")
	return f.conn.SendBatch(ctx, batch).Close()
}

func attemptOf(run string, step int32) string { return run + "." + strconv.Itoa(int(step)) }

// run is one workflow of the given agents, one after another.
func (f *rowsFloor) run(ctx context.Context, id string, urls []string) error {
	w := rowsWrite{run: id, value: []byte(`{"task_id":"` + id + `","input":{"text":"hello"}}`), done: make(chan error, 1)}
	for i := range len(urls) + 1 {
		if i > 0 {
			if err := f.call(ctx, urls[i-1], w.value); err != nil {
				return err
			}
		}
		w.step, w.last = int32(i), i == len(urls)
		f.queue <- w
		if err := <-w.done; err != nil {
			return fmt.Errorf("write %d of run %s: %w", i, id, err)
		}
	}
	return nil
}
