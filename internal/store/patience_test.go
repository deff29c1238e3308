package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
)

// TestOpenWaits: a database that cannot be reached at first is opened when it can
// be, if there is patience; without, and for what will not pass, the error comes at
// once.
func TestOpenWaits(t *testing.T) {
	target := pgtest.Database(t)
	var tries, away atomic.Int64
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if tries.Add(1) <= away.Load() {
			return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	away.Store(5)
	db, err := Open(t.Context(), target, Options{Dial: dial, Patience: time.Minute})
	check(t, err)
	check(t, db.Close())

	tries.Store(0)
	away.Store(1 << 20)
	_, err = Open(t.Context(), target, Options{Dial: dial})
	wantCode(t, err, parley.CodeUnavailable)
	once := tries.Swap(0)
	_, err = Open(t.Context(), target, Options{Dial: dial, Patience: 250 * time.Millisecond})
	wantCode(t, err, parley.CodeUnavailable)
	if n := tries.Load(); n > 2*once {
		t.Errorf("%d tries to connect, at most those of 2 times %d are wanted", n, once)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err = Open(ctx, target, Options{Dial: dial, Patience: time.Hour})
	wantCode(t, err, parley.CodeUnavailable)

	u, err := url.Parse(target)
	check(t, err)
	u.Path = "/nobody_has_made_it"
	_, err = Open(t.Context(), u.String(), Options{Patience: time.Hour})
	wantCode(t, err, parley.CodeUnavailable)
	if !strings.Contains(err.Error(), "create it") || strings.Contains(err.Error(), "lost") {
		t.Errorf("a database that is not there: %v", err)
	}
	u.User = url.UserPassword("nobody_of_this_name", "wrong")
	_, err = Open(t.Context(), u.String(), Options{Patience: time.Hour})
	if err == nil || !strings.Contains(err.Error(), "check database.url") || strings.Contains(err.Error(), "lost") {
		t.Errorf("a user that is not there: %v", err)
	}
}

// TestAbsent tells what may pass from what will not.
func TestAbsent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, true},
		{errors.Join(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, pgconn.ErrStandbyConnection), true},
		{&net.DNSError{Err: "server misbehaving", IsTemporary: true}, true},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, false},
		{io.ErrUnexpectedEOF, true},
		{io.EOF, true},
		{pgconn.ErrStandbyConnection, true},
		{&pgconn.PgError{Code: "57P03"}, true},
		{&pgconn.PgError{Code: "25006"}, true},
		{pgconn.ErrReadOnlyConnection, true},
		{&pgconn.PgError{Code: "53300"}, true},
		{&pgconn.PgError{Code: "28P01"}, false},
		{&pgconn.PgError{Code: "3D000"}, false},
		{errors.New("tls: bad certificate"), false},
		{os.ErrNotExist, false},
	} {
		wrapped := parley.Errorf(parley.CodeUnavailable, "cannot open: %w", fmt.Errorf("connect: %w", c.err))
		if got := absent(wrapped); got != c.want {
			t.Errorf("%v: %t", c.err, got)
		}
	}
}

// TestUnixSocket: a URL whose host is a folder is one of a Unix socket in it.
func TestUnixSocket(t *testing.T) {
	target := pgtest.Database(t)
	u, err := url.Parse(target)
	check(t, err)
	server := u.Host
	query := u.Query()
	query.Set("host", "/run/postgresql")
	query.Set("port", "5433")
	u.Host, u.RawQuery = "", query.Encode()
	asked := make(chan string, 100)
	db, err := Open(t.Context(), u.String(), Options{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		select {
		case asked <- network + " " + address:
		default:
		}
		return new(net.Dialer).DialContext(ctx, "tcp", server)
	}})
	check(t, err)
	check(t, db.Close())
	if got := <-asked; got != "unix /run/postgresql/.s.PGSQL.5433" {
		t.Errorf("dials %s", got)
	}
	if name := postgresName(u.String()); !strings.Contains(name, "/run/postgresql") || strings.Contains(name, "sslmode") {
		t.Errorf("it is called %s", name)
	}
}
