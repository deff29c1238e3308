// Package pgtest gives tests a real PostgreSQL 17: fresh databases on a server
// that the test process shares, and servers of their own to stop, kill, pause
// and replicate. It is for tests only.
//
// The server comes as a Maven artifact, is unpacked once into the folder that
// PARLEY_TEST_CACHE names (else parley-test in the user's cache folder), and
// listens on a random port of the loopback interface. It ends with the test
// process, however that ends. PARLEY_TEST_POSTGRES, the URL of a server whose
// user may make databases, has [Database] use that one instead.
package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// process is what the tests of one process share: one server is much less work
// than one for each test. It is the only state of the package.
var process struct {
	once   sync.Once
	server string
	// cluster is kept: a server whose cluster is collected as garbage loses the
	// pipe that it lives by, and ends.
	cluster *cluster
	err     error
	names   atomic.Int64
}

// Database gives the URL of a new, empty database, which is dropped when the
// test ends. It fails the test if there can be no server.
func Database(tb testing.TB) string {
	tb.Helper()
	return newDatabase(tb, "template0")
}

// Copy gives the URL of a new database like the one at a URL that [Database] has
// given, to which nobody may be connected. It is dropped when the test ends.
func Copy(tb testing.TB, database string) string {
	tb.Helper()
	u, err := url.Parse(database)
	if err != nil {
		tb.Fatal(err)
	}
	return newDatabase(tb, pgx.Identifier{strings.TrimPrefix(u.Path, "/")}.Sanitize())
}

func newDatabase(tb testing.TB, template string) string {
	tb.Helper()
	process.once.Do(func() { process.server, process.cluster, process.err = sharedServer() })
	if process.err != nil {
		tb.Fatalf("PostgreSQL for tests: %v", process.err)
	}
	name := fmt.Sprintf("parley_%d_%d_%x", os.Getpid(), process.names.Add(1), time.Now().UnixNano()&0xffffff)
	if err := execute(process.server, "CREATE DATABASE "+name+" TEMPLATE "+template+" STRATEGY FILE_COPY"); err != nil {
		tb.Fatalf("making a database: %v", err)
	}
	tb.Cleanup(func() {
		if err := execute(process.server, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			tb.Errorf("dropping a database: %v", err)
		}
	})
	u, err := url.Parse(process.server)
	if err != nil {
		tb.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

// sharedServer gives the URL of a database of the server for [Database], and
// what the server lives by, if it is ours.
func sharedServer() (string, *cluster, error) {
	if u := os.Getenv("PARLEY_TEST_POSTGRES"); u != "" {
		return u, nil, execute(u, "SELECT 1")
	}
	// It ends with the process: see cluster.start.
	c, err := newCluster(context.Background(), Options{})
	if err != nil {
		return "", nil, err
	}
	return c.url("postgres"), c, nil
}

// execute runs one statement on a connection of its own.
func execute(server, statement string) error {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement)
	return err
}
