package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// waitLookups waits until so many wait.
func waitLookups(t *testing.T, db *DB, n int) {
	t.Helper()
	for range 60_000 {
		db.lookups.mu.Lock()
		got := len(db.lookups.waiting)
		db.lookups.mu.Unlock()
		if got == n {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("there were never %d that wait", n)
}

// TestAttemptsTogether: each of those who look at the same time gets the attempt
// that it asked for, or none, or what is wrong with it, whoever asks.
func TestAttemptsTogether(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		const there = 70 // more than one query asks for
		list := make([]Attempt, there)
		for i := range list {
			list[i] = attempt("r1", fmt.Sprintf("s%d", i), 1)
		}
		begin(t, db, "r1", list...)
		check(t, db.submit(t.Context(), synced, func(s *session) error {
			_, err := s.exec(`UPDATE attempt SET question = ? WHERE id = ?`, []byte(`{`), list[1].ID)
			return err
		}))
		db.lookups.turn <- struct{}{} // somebody looks
		var callers sync.WaitGroup
		look := func(id string, judge func(a Attempt, ok bool, err error) bool) {
			callers.Go(func() {
				if a, ok, err := db.Attempt(t.Context(), id); !judge(a, ok, err) {
					t.Errorf("%s: %s of %s, %v, %v", id, a.ID, a.Run, ok, err)
				}
			})
		}
		whole := func(want Attempt) func(Attempt, bool, error) bool {
			return func(a Attempt, ok bool, err error) bool {
				return ok && err == nil && a.ID == want.ID && a.Step == want.Step && a.Input == nil
			}
		}
		for i := range list {
			if i != 1 {
				look(list[i].ID, whole(list[i]))
			}
		}
		look(list[0].ID, whole(list[0])) // a second time
		look("r1.other.1", func(_ Attempt, ok bool, err error) bool { return !ok && err == nil })
		look(list[1].ID, func(_ Attempt, ok bool, err error) bool { return !ok && parley.CodeOf(err) == parley.CodeInternal })
		waitLookups(t, db, there+2)
		<-db.lookups.turn
		callers.Wait()
		if _, ok := db.reads.Load(selectAttempt); ok {
			t.Error("each asked for itself")
		}
	})
}

// TestLookupsLeave: who does not wait any more is not asked for, and nobody waits
// for who began to ask and has left.
func TestLookupsLeave(t *testing.T) {
	db := newDB(t, Options{})
	list := []Attempt{attempt("r1", "a", 1), attempt("r1", "b", 1), attempt("r1", "c", 1)}
	begin(t, db, "r1", list...)
	db.lookups.turn <- struct{}{}
	gone := errors.New("gone")
	ctx, leave := context.WithCancelCause(t.Context())
	left := make(chan error)
	go func() {
		_, _, err := db.Attempt(ctx, list[0].ID)
		left <- err
	}()
	waitLookups(t, db, 1)
	leave(gone)
	if err := <-left; !errors.Is(err, gone) {
		t.Fatal(err)
	}
	waitLookups(t, db, 0)

	mine := &lookup{id: list[0].ID, done: make(chan struct{})}
	db.lookups.add(mine)
	found := make(chan string)
	for _, a := range list[1:] {
		go func() {
			a, _, err := db.Attempt(t.Context(), a.ID)
			if err != nil {
				t.Error(err)
			}
			found <- a.ID
		}()
	}
	waitLookups(t, db, 3)
	db.lookUp(ctx, mine) // its time is over already
	waitLookups(t, db, 2)
	<-db.lookups.turn
	if a, b := <-found, <-found; min(a, b) != list[1].ID || max(a, b) != list[2].ID {
		t.Errorf("found %s and %s", a, b)
	}
}

// TestLookupsBehindMany: who is not among the next ones asks once more.
func TestLookupsBehindMany(t *testing.T) {
	db := newDB(t, Options{})
	begin(t, db, "r1", attempt("r1", "a", 1))
	for i := range 2*lookupSizes[len(lookupSizes)-1] - 1 {
		db.lookups.add(&lookup{id: fmt.Sprint(i), done: make(chan struct{})})
	}
	if a, ok, err := db.Attempt(t.Context(), "r1.a.1"); err != nil || !ok || a.ID != "r1.a.1" {
		t.Errorf("%s, %v, %v", a.ID, ok, err)
	}
}

// TestLookupQuery: few texts, with as many parameters as arguments.
func TestLookupQuery(t *testing.T) {
	texts := map[string]bool{}
	for n := 1; n <= 64; n++ {
		list := make([]*lookup, n)
		for i := range list {
			list[i] = &lookup{id: fmt.Sprint(i)}
		}
		text, args := lookupQuery(list)
		texts[text] = true
		asked := map[any]bool{}
		for _, a := range args {
			asked[a] = true
		}
		if len(asked) != n {
			t.Errorf("%d: asks for %d", n, len(asked))
		}
		if places := strings.Count(text, "?"); places != len(args) {
			t.Errorf("%d: %d parameters for %d arguments", n, places, len(args))
		}
	}
	if len(texts) != len(lookupSizes) {
		t.Errorf("%d texts", len(texts))
	}
}
