package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/parley-project/parley/internal/values"
)

// Values above a limit are kept apart: as objects of a [values.Store], which are
// written and durable before the transaction that refers to them begins. What
// stands in the database instead of one is an [Apart], in a frame in the columns
// of values, and as a cut in the data of events. Table value_ref has a row for
// each object that a run refers to; an object without one is nobody's (sweep).
//
// An object is never written twice under one name, so that nobody can refer to
// one that is about to be removed: who wants to refer to the same value of the
// same run again refers to the object that the run has a row for.

// Apart is where a value is that is kept apart, and what it is.
type Apart struct {
	Object string `json:"object"`
	Size   int64  `json:"size"`
	Digest string `json:"digest"`
}

// A value in a column that begins with the byte frame is in a frame: the second
// byte says what is in it. Any other value is itself.
const (
	frame = 0
	// framedValue: a value that begins with the byte frame itself.
	framedValue = 'v'
	// framedApart: an Apart as JSON.
	framedApart = 'r'
)

// plainValue gives a value as it stands in a column when it is not kept apart.
func plainValue(v []byte) []byte {
	if len(v) == 0 || v[0] != frame {
		return v
	}
	return append([]byte{frame, framedValue}, v...)
}

// unframe gives what a column holds: a value, or where it is.
func unframe(b []byte) ([]byte, *Apart, error) {
	if len(b) == 0 || b[0] != frame {
		return b, nil, nil
	}
	if len(b) > 1 && b[1] == framedValue {
		return b[2:], nil, nil
	}
	var a Apart
	if len(b) < 2 || b[1] != framedApart || json.Unmarshal(b[2:], &a) != nil || !values.Valid(a.Object) || a.Size < 0 {
		return nil, nil, errors.New("a value of the database cannot be read: it is in a frame that this program does not know")
	}
	return nil, &a, nil
}

// holds reports whether a column has that value, here or apart.
func holds(column, value []byte) (bool, error) {
	v, a, err := unframe(column)
	if err != nil || a == nil {
		return bytes.Equal(v, value), err
	}
	return a.Size == int64(len(value)) && a.Digest == digestOf(value), nil
}

func digestOf(v []byte) string {
	sum := sha256.Sum256(v)
	return hex.EncodeToString(sum[:])
}

// cut is a part of the data of an event that is kept apart: in its place, at At,
// stands one digit, so that what is left is JSON.
type cut struct {
	At int `json:"at"`
	Apart
}

// writtenAtOnce bounds the objects that are written for one transaction at a time.
const writtenAtOnce = 8

// cutter decides which values of one transaction are kept apart, and writes them.
// The zero value keeps none apart.
type cutter struct {
	db  *DB
	ctx context.Context //nolint:containedctx // of the one call that it is made for
	run string
	// again: the run may have objects already.
	again bool
	limit int
	// known has the objects by the digests of their values, fresh those that are
	// to be written.
	known map[string]Apart
	fresh []freshObject
}

type freshObject struct {
	Apart
	value []byte
}

// apart has encode turn values into what is stored, the large ones kept apart. It
// returns when their objects are durable. While the store of values cannot be
// written to, values stay in the database. The references are to be written by
// the transaction.
func (db *DB) apart(ctx context.Context, run string, again bool, encode func(*cutter) error) (references, error) {
	c := &cutter{db: db, ctx: ctx, run: run, again: again, limit: db.options.ApartAbove}
	if c.limit <= 0 || db.options.Values == nil || run == "" || strings.HasPrefix(run, foreignPrefix) {
		return references{}, encode(&cutter{})
	}
	if err := encode(c); err != nil {
		return references{}, err
	}
	if len(c.fresh) == 0 {
		return references{}, nil
	}
	err := c.write()
	if err == nil {
		return references{run: run, list: c.fresh}, db.point("values.put")
	}
	if cause := context.Cause(ctx); cause != nil {
		return references{}, cause
	}
	db.options.Logger.Warn("values cannot be kept apart now, they stay in the database", "run", run, "values", len(c.fresh), "error", err)
	return references{}, encode(&cutter{})
}

// point calls the failpoint of that name.
func (db *DB) point(name string) error {
	if db.options.Failpoint == nil {
		return nil
	}
	return db.options.Failpoint(name)
}

// value gives a value as its column holds it.
func (c *cutter) value(v []byte) ([]byte, error) {
	if c.limit <= 0 || len(v) <= c.limit {
		return plainValue(v), nil
	}
	a, err := c.keep(v)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(a)
	return append([]byte{frame, framedApart}, b...), err
}

// data gives the data of an event without what is kept apart of it: members that
// are too large, or all of it if it is too large all the same.
func (c *cutter) data(v []byte) ([]byte, []cut, error) {
	if c.limit <= 0 || len(v) <= c.limit {
		return v, nil, nil
	}
	parts := largeMembers(v, c.limit)
	left := len(v)
	for _, p := range parts {
		left -= p.to - p.from
	}
	if len(parts) == 0 || left > c.limit {
		parts, left = []span{{0, len(v)}}, 0
	}
	rest, cuts, from := make([]byte, 0, left+len(parts)), make([]cut, len(parts)), 0
	for i, p := range parts {
		a, err := c.keep(v[p.from:p.to])
		if err != nil {
			return nil, nil, err
		}
		rest = append(rest, v[from:p.from]...)
		cuts[i] = cut{At: len(rest), Apart: a}
		rest = append(rest, '0')
		from = p.to
	}
	return append(rest, v[from:]...), cuts, nil
}

// most is how long the data of an event can be that stays.
func (c *cutter) most() int {
	if c.limit <= 0 {
		return math.MaxInt
	}
	return c.limit
}

// appendCuts appends what was taken out of an event's data, as a member beside it.
func appendCuts(b []byte, cuts []cut) []byte {
	for i, c := range cuts {
		if i == 0 {
			b = append(b, `,"cuts":[`...)
		} else {
			b = append(b, ',')
		}
		// Names and digests need no quoting.
		b = fmt.Appendf(b, `{"at":%d,"object":"%s","size":%d,"digest":"%s"}`, c.At, c.Object, c.Size, c.Digest)
	}
	if len(cuts) > 0 {
		b = append(b, ']')
	}
	return b
}

// keep gives the object of a value: one that the run has, or a new one.
func (c *cutter) keep(v []byte) (Apart, error) {
	digest := digestOf(v)
	a, ok := c.known[digest]
	if ok {
		return a, nil
	}
	if c.again {
		err := c.db.read(c.ctx, selectObject, func(r *record) error {
			a, ok = Apart{r.str(), int64(len(v)), digest}, true
			return nil
		}, c.run, digest)
		if err != nil {
			return a, err
		}
	}
	if !ok {
		nonce := make([]byte, 8)
		_, _ = rand.Read(nonce) // it never fails
		a = Apart{values.Name(digest, hex.EncodeToString(nonce)), int64(len(v)), digest}
		c.fresh = append(c.fresh, freshObject{a, v})
	}
	if c.known == nil {
		c.known = make(map[string]Apart)
	}
	c.known[digest] = a
	return a, nil
}

// write writes the new objects.
func (c *cutter) write() error {
	if !c.db.ownsValues.Load() {
		if err := c.db.OwnValues(c.ctx); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(c.ctx)
	g.SetLimit(writtenAtOnce)
	for _, o := range c.fresh {
		g.Go(func() error {
			if err := c.db.options.Values.Put(ctx, o.Object, o.value); err != nil {
				return fmt.Errorf("object %s: %w", o.Object, err)
			}
			return nil
		})
	}
	return g.Wait()
}

const (
	selectObject = `SELECT object FROM value_ref WHERE run = ? AND digest = ? LIMIT 1`
	// An object that was collected meanwhile has a row: then the transaction that
	// would refer to it is refused.
	insertReference = `INSERT INTO value_ref (object, run, digest, size, at) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
)

// references are the rows of new objects.
type references struct {
	run  string
	list []freshObject
}

func (r references) write(s *session, at int64) error {
	for i := range r.list {
		o := &r.list[i]
		s.at(o.Object)
		if err := s.later(1, insertReference, o.Object, r.run, o.Digest, o.Size, at); err != nil {
			return err
		}
	}
	return nil
}

// dropReferences removes what a run refers to, along with the run's rows; the
// objects go with the next sweeps.
func dropReferences(s *session, run string) error {
	s.at(run)
	return s.later(-1, `DELETE FROM value_ref WHERE run = ?`, run)
}

// span is a part of a value.
type span struct{ from, to int }

// largeMembers gives the values above limit of the members of a JSON object, in
// their order, and none for what is no object. v is JSON.
func largeMembers(v []byte, limit int) (found []span) {
	eachMember(v, func(_ []byte, s span) {
		if s.to-s.from > limit {
			found = append(found, s)
		}
	})
	return found
}
