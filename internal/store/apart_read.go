package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/values"
)

// readAtOnce bounds the objects that are fetched for one call at a time.
const readAtOnce = 8

// ErrAway is in the chain of errors of a value that is kept apart and cannot be fetched
// now. The error is a [parley.Error] of code unavailable; that is no trouble of the
// database.
var ErrAway = errors.New("store: a value cannot be fetched now")

// awayError is why it cannot.
type awayError struct{ error }

// Is reports whether target is [ErrAway].
func (awayError) Is(target error) bool { return target == ErrAway }

// Unwrap gives what the store of values says.
func (e awayError) Unwrap() error { return e.error }

// fetcher fetches values that are kept apart, each object once.
type fetcher struct {
	db   *DB
	want []wanted
}

// wanted is a value that somebody waits for.
type wanted struct {
	*Apart
	// run and place say whose it is, take gets it.
	run, place string
	take       func([]byte)
}

func (f *fetcher) add(w wanted) {
	if w.Apart != nil {
		f.want = append(f.want, w)
	}
}

// attempt asks for the values of an attempt.
func (f *fetcher) attempt(a *Attempt) {
	f.input(a)
	f.output(a)
}

func (f *fetcher) input(a *Attempt) {
	f.add(wanted{a.InputApart, a.Run, "the input of " + a.ID, func(v []byte) { a.Input, a.InputApart = v, nil }})
}

func (f *fetcher) output(a *Attempt) {
	f.add(wanted{a.OutputApart, a.Run, "the output of " + a.ID, func(v []byte) { a.Result.Output, a.OutputApart = v, nil }})
}

// events asks for what is cut out of events; cuts has those of each.
func (f *fetcher) events(run string, events []parley.Event, cuts [][]cut) {
	for i := range cuts {
		if len(cuts[i]) == 0 {
			continue
		}
		e, parts, missing := &events[i], make([][]byte, len(cuts[i])), len(cuts[i])
		for k := range cuts[i] {
			f.add(wanted{&cuts[i][k].Apart, run, fmt.Sprintf("a value of event %d (%s)", e.Seq, e.Type), func(v []byte) {
				parts[k] = v
				if missing--; missing == 0 {
					e.Data = joined(e.Data, cuts[i], parts)
				}
			}})
		}
	}
}

// joined puts the parts of data back into their places.
func joined(data []byte, cuts []cut, parts [][]byte) json.RawMessage {
	size := len(data)
	for _, p := range parts {
		size += len(p)
	}
	whole, from := make([]byte, 0, size), 0
	for i, c := range cuts {
		whole = append(append(whole, data[from:c.At]...), parts[i]...)
		from = c.At + 1
	}
	return append(whole, data[from:]...)
}

// checkCuts refuses cuts that are not in the data.
func checkCuts(data []byte, cuts []cut) error {
	from := 0
	for _, c := range cuts {
		if c.At < from || c.At >= len(data) || data[c.At] != '0' || !values.Valid(c.Object) || c.Size < 0 {
			return errors.New("what is kept apart of it cannot be told")
		}
		from = c.At + 1
	}
	return nil
}

// fetch gets everything that was asked for, or gives the first error.
func (f *fetcher) fetch(ctx context.Context) error {
	if len(f.want) == 0 {
		return nil
	}
	var objects []wanted
	index := make(map[string]int)
	for _, w := range f.want {
		if _, ok := index[w.Object]; !ok {
			index[w.Object] = len(objects)
			objects = append(objects, w)
		}
	}
	got := make([][]byte, len(objects))
	g, within := errgroup.WithContext(ctx)
	g.SetLimit(readAtOnce)
	for i, w := range objects {
		g.Go(func() (err error) {
			got[i], err = f.db.valueApart(within, w)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return fmt.Errorf("reading values: %w", cause)
		}
		return err
	}
	for _, w := range f.want {
		w.take(got[index[w.Object]])
	}
	f.want = nil
	return nil
}

// valueApart fetches one value: the very one that was written, or an error. That
// has code unavailable if it is worth while to try again.
func (db *DB) valueApart(ctx context.Context, w wanted) ([]byte, error) {
	if db.options.Values == nil {
		return nil, parley.Errorf(parley.CodeInvalid,
			"%s of run %q is kept apart (object %s), and this process has no store of values", w.place, w.run, w.Object)
	}
	v, err := db.options.Values.Get(ctx, w.Object, w.Size)
	switch {
	case errors.Is(err, values.ErrGone):
		return nil, parley.Errorf(parley.CodeInternal, "%s of run %q is gone from the store of values: %w", w.place, w.run, err)
	case errors.Is(err, values.ErrLonger) || err == nil && (int64(len(v)) != w.Size || digestOf(v) != w.Digest):
		return nil, parley.Errorf(parley.CodeInternal,
			"%s of run %q was altered in the store of values: object %s is not what was written", w.place, w.run, w.Object)
	case err != nil:
		return nil, parley.Errorf(parley.CodeUnavailable,
			"%s of run %q cannot be fetched now from the store of values (object %s); that is tried again: %w", w.place, w.run, w.Object, awayError{err})
	}
	return v, nil
}

// wholeAttempts fetches the values of attempts.
func (db *DB) wholeAttempts(ctx context.Context, list []Attempt) error {
	f := fetcher{db: db}
	for i := range list {
		f.attempt(&list[i])
	}
	return f.fetch(ctx)
}

// fetchable gives those attempts whose values could be fetched, so that nobody
// waits for the values of others. Whoever asks finds the rest again later.
func (db *DB) fetchable(ctx context.Context, list []Attempt) []Attempt {
	var g errgroup.Group
	g.SetLimit(readAtOnce)
	left := false
	for i := range list {
		f := fetcher{db: db}
		if f.attempt(&list[i]); len(f.want) == 0 {
			continue
		}
		left = true
		g.Go(func() error {
			if err := f.fetch(ctx); err != nil && ctx.Err() == nil {
				db.options.Logger.Warn("a value cannot be fetched; its task waits", "task_id", list[i].ID, "error", err)
			}
			return nil
		})
	}
	if !left {
		return list
	}
	_ = g.Wait() // each has said what it could not do
	return slices.DeleteFunc(list, func(a Attempt) bool { return a.InputApart != nil || a.OutputApart != nil })
}

// EventMember names a member of the data of an event.
type EventMember struct {
	Run    string
	Seq    int64
	Member string
}

// EventValue is what stands there. Of a value that is kept apart only the size is told,
// it is not fetched; 0 is for others. A nil Value is for an event, or a member, that is
// not there. Err says why the event cannot be read, if it cannot.
type EventValue struct {
	Value json.RawMessage
	Apart int64
	Err   error
}

// EventValues gives members of the data of events, in the order in which they are asked
// for and in one round trip. An event that cannot be read is the Err of its own value.
func (db *DB) EventValues(ctx context.Context, members []EventMember) ([]EventValue, error) {
	found := make([]EventValue, len(members))
	if len(members) == 0 {
		return found, nil
	}
	questions := make([]inquiry, len(members))
	for i, m := range members {
		questions[i] = inquiry{selectEventPage, func(r *record) error {
			found[i] = m.in(r)
			return nil
		}, []any{m.Run, m.Run, m.Seq, int64(1)}}
	}
	if db.dialect.together != nil {
		return found, db.together(ctx, questions...)
	}
	for _, q := range questions { // they are prepared, and there is no way to save
		if err := db.read(ctx, q.text, q.each, q.args...); err != nil {
			return found, err
		}
	}
	return found, nil
}

// in looks the member up in a row of events. One that cannot be read is not to be the
// trouble of those who ask for others.
func (m EventMember) in(r *record) EventValue {
	first, last, data := r.int(), r.int(), r.bytes()
	err := r.err
	r.err = nil
	if err != nil {
		return EventValue{Err: fmt.Errorf("events of run %q: %w", m.Run, err)}
	}
	events, cuts, err := decodeEvents(m.Run, first, last, data)
	if err != nil {
		return EventValue{Err: err}
	}
	i := slices.IndexFunc(events, func(e parley.Event) bool { return e.Seq == m.Seq })
	if i < 0 {
		return EventValue{}
	}
	if cuts != nil {
		for _, c := range cuts[i] {
			if at := memberAt(events[i].Data, m.Member); at == c.At || c.At == 0 {
				return EventValue{Apart: c.Size}
			}
		}
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(events[i].Data, &members); err != nil {
		return EventValue{Err: fmt.Errorf("event %d of run %q: %w", m.Seq, m.Run, err)}
	}
	return EventValue{Value: members[m.Member]}
}
