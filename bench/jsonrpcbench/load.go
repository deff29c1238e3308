package jsonrpcbench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

const (
	method    = "bench_echo"  // go-ethereum finds methods as service_name
	typed     = "bench_typed" // the same, decoded and encoded by the handler
	batchSize = 100
	deadline  = 30 * time.Second
)

// kind is what one operation of a load is.
type kind int

const (
	call   kind = iota
	own         // a call with a deadline of its own
	notify      // one notification
	batch       // a batch of batchSize calls
	struc       // a call whose params and result are structs
)

// load is what the entrants of a case do.
type load struct {
	network string // tcp, unix or pipe; ws and http bring their own
	kind    kind
	params  []byte
	workers int // calls in flight
}

// remote is a connected entrant, seen from its client. What it cannot do is
// nil. Every function may be called from several goroutines at once, unless
// the entrant is single.
type remote struct {
	// call echoes params. *into is the caller's storage of the last answer.
	call func(ctx context.Context, params []byte, into *[]byte) error
	// typed echoes a struct through the library's codec on both sides.
	typed  func(ctx context.Context, in, out *task) error
	notify func(ctx context.Context, params []byte) error
	// batch echoes params len(into) times in one batch.
	batch func(ctx context.Context, params []byte, into [][]byte) error
	// received is how many notifications the server has handled so far.
	received func() int64
	close    func() error
}

// task is the typed payload; smallParams is its text. The members are sorted by
// name, as the libraries write them that hold params as a tree of values.
type task struct {
	Agent    string   `json:"agent"`
	Input    input    `json:"input"`
	Priority int      `json:"priority"`
	Score    float64  `json:"score"`
	Tags     []string `json:"tags"`
	TaskID   string   `json:"task_id"`
	Urgent   bool     `json:"urgent"`
}

type input struct {
	Language string `json:"language"`
	Text     string `json:"text"`
}

// smallParams is the object of 198 B that most cases echo.
func smallParams() []byte {
	return []byte(`{"agent":"summarise","input":{"language":"en","text":"a few words about the quarter"},` +
		`"priority":5,"score":0.75,"tags":["report","q3"],"task_id":"7d1f0c1e-9a52-4c1b-8f3e-2f6b1d0c9a77","urgent":true}`)
}

// tinyParams is an object of 105 B: with it a message is as long as a line of
// the 170 B floor.
func tinyParams() []byte {
	return []byte(`{"agent":"summarise","priority":5,"tags":["report","q"],"task_id":"7d1f0c1e-9a52-4c1b-8f3e-2f6b1d0c9a77"}`)
}

// largeParams is an array of records with exactly 64 KiB: longer results would
// leave the fast path of go.lsp.dev/jsonrpc2.
func largeParams() []byte {
	const size = 64 << 10
	record := smallParams()
	b := append(make([]byte, 0, size), '[')
	for len(b)+len(record)+1 < size-16 {
		b = append(append(b, record...), ',')
	}
	b = append(b, '"')
	b = append(b, bytes.Repeat([]byte{'x'}, size-len(b)-2)...)
	return append(b, '"', ']')
}

func sampleTask() (*task, error) {
	t := new(task)
	return t, json.Unmarshal(smallParams(), t)
}

// op runs one operation; it compares the whole answer if it is asked to, and
// its length always.
type op func(check bool) error

// worker returns the operation of one goroutine, with storage of its own.
func (l load) worker(ctx context.Context, r *remote) (op, error) {
	switch l.kind {
	case call:
		var into []byte
		return func(check bool) error {
			forget(&into, check)
			if err := r.call(ctx, l.params, &into); err != nil {
				return err
			}
			return same(into, l.params, check)
		}, nil
	case own:
		var into []byte
		return func(check bool) error {
			forget(&into, check)
			ctx, cancel := context.WithTimeout(ctx, deadline)
			defer cancel()
			if err := r.call(ctx, l.params, &into); err != nil {
				return err
			}
			return same(into, l.params, check)
		}, nil
	case notify:
		return func(bool) error { return r.notify(ctx, l.params) }, nil
	case batch:
		into := make([][]byte, batchSize)
		return func(check bool) error {
			for i := range into {
				forget(&into[i], check)
			}
			err := r.batch(ctx, l.params, into)
			for i := range into {
				if err == nil {
					err = same(into[i], l.params, check)
				}
			}
			return err
		}, nil
	case struc:
		in, err := sampleTask()
		if err != nil {
			return nil, err
		}
		var out task
		return func(check bool) error {
			if check {
				out = task{}
			}
			if err := r.typed(ctx, in, &out); err != nil || !check {
				return err
			}
			got, err := json.Marshal(out)
			return errors.Join(err, same(got, l.params, true))
		}, nil
	}
	return nil, fmt.Errorf("no load of kind %d", l.kind)
}

// forget makes sure that what an earlier call left cannot pass for an answer.
func forget(into *[]byte, whole bool) {
	if whole {
		clear(*into)
	}
	*into = (*into)[:0]
}

// can says whether a remote offers what the load needs.
func (l load) can(r *remote) bool {
	switch l.kind {
	case notify:
		return r.notify != nil
	case batch:
		return r.batch != nil
	case struc:
		return r.typed != nil
	}
	return r.call != nil
}

func same(got, want []byte, whole bool) error {
	if len(got) != len(want) || whole && !bytes.Equal(got, want) {
		return fmt.Errorf("sent %d bytes, got %d others back: %.80q", len(want), len(got), got)
	}
	return nil
}
