package store

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// openFirst and openMost are the shortest and longest pause between two tries to
// open a database.
const (
	openFirst = 100 * time.Millisecond
	openMost  = time.Second
)

// openPatiently repeats open for as long as the options say, while the database
// cannot be reached: it may be starting, or another server take its place.
func openPatiently(ctx context.Context, o Options, open func() (*DB, error)) (*DB, error) {
	began := o.Now()
	for wait := openFirst; ; wait = min(2*wait, openMost) {
		db, err := open()
		if err == nil || !absent(err) || ctx.Err() != nil || o.Now().Sub(began)+wait > o.Patience {
			return db, err
		}
		if wait == openFirst {
			o.Logger.Warn("the database cannot be reached; it is tried again", "event", "database", "for", o.Patience, "error", err)
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wait):
		}
	}
}

// absent says of an error of opening that it may pass: no server answers, or one
// that is starting, stopping, or a standby. What a server has refused for good, and
// a host that nobody knows, will not change.
func absent(err error) bool {
	if takesNoWrites(err) {
		return true
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return strings.HasPrefix(e.Code, "57P") || e.Code == "53300"
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok && e.IsNotFound {
		return false
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
