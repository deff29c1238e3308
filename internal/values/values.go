// Package values is where values of runs are kept that are too large for the
// database: the seam, and what holds for every store behind it. A store keeps
// objects: bytes under a name, written once and never changed. Who refers to
// them, and when they go, is for package store to say.
package values

import (
	"context"
	"errors"
	"time"
)

// ErrGone is in the chain of errors of an object that is not there.
var ErrGone = errors.New("values: there is no such object")

// ErrLonger is in the chain of errors of an object that is longer than asked for.
var ErrLonger = errors.New("values: the object is longer than it should be")

// Store keeps objects. Its methods may be called concurrently. A name has two
// parts, [Name] makes them. An error that is neither ErrGone nor ErrLonger means
// that the store cannot be asked now; it is worth while to try again.
type Store interface {
	// Put writes an object under a name that has none. When it returns without an
	// error the object is as durable as the store makes anything. After an error
	// it may be there or not.
	Put(ctx context.Context, name string, value []byte) error
	// Get gives an object of at most that many bytes.
	Get(ctx context.Context, name string, most int64) ([]byte, error)
	// Delete removes an object; one that is not there is no error.
	Delete(ctx context.Context, name string) error
	// List gives at most limit objects whose names come after a name, in the order
	// of their bytes; none is the end. What is written or removed meanwhile may be
	// among them or not.
	List(ctx context.Context, after string, limit int) ([]Object, error)
	// Mark gives the mark of the store, of at most [MostMark] bytes. A store without one
	// gets this, as durable as an object; of several that bring theirs at a time one is
	// taken, and all get that. It is no object: no list has it, and nothing removes it.
	Mark(ctx context.Context, mark []byte) ([]byte, error)
	// MarkedAt says to people where the mark is.
	MarkedAt() string
}

// Object is one entry of a list.
type Object struct {
	Name string
	Size int64
	// At is when it was written, by the clock of the store.
	At time.Time
}

// Name makes the name of an object from the digest of its value, in hexadecimal
// digits, and a nonce that no other object of that digest has.
func Name(digest, nonce string) string { return digest[:2] + "/" + digest + "-" + nonce }

// Valid reports whether a name is one that [Name] could have made: a store takes
// no other, so that none leads out of it.
func Valid(name string) bool {
	if len(name) < 3+64+2 || len(name) > 160 || name[2] != '/' || name[:2] != name[3:5] || name[3+64] != '-' {
		return false
	}
	for i, c := range []byte(name) {
		hex := c >= '0' && c <= '9' || c >= 'a' && c <= 'f'
		if !hex && i != 2 && i != 3+64 {
			return false
		}
	}
	return true
}
