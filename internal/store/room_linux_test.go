package store

import (
	"os"
	"os/exec"
	ossignal "os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/parley-project/parley"
)

// roomEnv names the database that a process without room opens, which this test starts.
const roomEnv = "PARLEY_TEST_WITHOUT_ROOM"

// A database whose disk is full cannot be opened: that is said, and neither that the disk
// has an error, nor that the database is damaged.
func TestOpenWithoutRoom(t *testing.T) {
	if path := os.Getenv(roomEnv); path != "" {
		openWithoutRoom(t, path)
		return
	}
	db := newDB(t, Options{})
	begin(t, db, "run-1")
	check(t, db.Close())
	without := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOpenWithoutRoom$", "-test.v")
	without.Env = append(os.Environ(), roomEnv+"="+db.path)
	said, err := without.CombinedOutput()
	if err != nil || !strings.Contains(string(said), "--- PASS: TestOpenWithoutRoom") {
		t.Fatalf("%v: %s", err, said)
	}
	db = openedAt(t, db.path, Options{})
	_, err = db.RunRow(t.Context(), "run-1")
	check(t, err)
}

// openWithoutRoom opens a database while no file of this process may grow.
func openWithoutRoom(t *testing.T, path string) {
	ossignal.Ignore(syscall.SIGXFSZ)
	check(t, os.WriteFile(path+"-wal", nil, 0o600)) // as of somebody who has it open
	check(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 4096, Max: 4096}))
	_, err := Open(t.Context(), path, Options{})
	wantCode(t, err, parley.CodeUnavailable)
	look, lookErr := LookAt(t.Context(), path, Options{})
	if look.Damaged {
		t.Error("it counts as damaged")
	}
	for _, err := range []error{err, lookErr} {
		if err == nil || !strings.Contains(err.Error(), "make room on its disk") {
			t.Errorf("error %v", err)
		}
	}
}
