package store

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
)

// listening starts a listener, waits until it hears, and gives what it hears.
func listening(t *testing.T, db *DB) <-chan string {
	t.Helper()
	heard := make(chan string, 1000)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := db.Listen(ctx, func(p string) { heard <- p }); !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	})
	t.Cleanup(func() { stop(); wg.Wait() })
	rouse(t, db, heard)
	return heard
}

// rouse sends wake-ups until one is heard, and lets the channel run empty.
func rouse(t *testing.T, db *DB, heard <-chan string) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for ok := false; !ok; {
		err := db.Notify(t.Context(), "rouse") // the server may be away
		if time.Now().After(deadline) {
			t.Fatalf("nothing is heard: %v", err)
		}
		select {
		case <-heard:
			ok = true
		case <-time.After(20 * time.Millisecond):
		}
	}
	check(t, db.Notify(t.Context(), "end"))
	for p := range heard {
		if p == "end" {
			return
		}
	}
}

// Wake-ups get from one process to others, and to a listener whose server was
// restarted.
func TestNotify(t *testing.T) {
	s := pgtest.Start(t, pgtest.Options{})
	a := reopen(t, s.URL("postgres"), Options{})
	b := reopen(t, s.URL("postgres"), Options{})
	ears := []<-chan string{listening(t, a), listening(t, b), listening(t, b)}
	check(t, a.Notify(t.Context(), "all"))
	for _, heard := range ears {
		for <-heard != "all" { // those before are of the others' beginnings
		}
	}
	for _, payload := range []string{"one", "", strings.Repeat("x", maxPayload), `{"a":"☃"}`} {
		check(t, a.Notify(t.Context(), payload))
		for _, heard := range ears {
			diff(t, <-heard, payload)
		}
	}
	wantCode(t, a.Notify(t.Context(), strings.Repeat("x", maxPayload+1)), parley.CodeLimit)
	wantCode(t, a.Notify(t.Context(), "a\x00"), parley.CodeInvalid)
	s.Kill()
	wantCode(t, a.Notify(t.Context(), "nobody"), parley.CodeUnavailable)
	s.Restart()
	for _, heard := range ears {
		rouse(t, a, heard)
	}
}

func TestNotifySQLite(t *testing.T) {
	db := newDB(t, Options{})
	check(t, db.Notify(t.Context(), "one"))
	ctx, stop := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	stop(cause)
	if err := db.Listen(ctx, func(string) { t.Error("heard") }); !errors.Is(err, cause) {
		t.Error(err)
	}
}
