package store

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
)

var errLocked = errors.New("somebody else has locked the row")

// lockedLink executes units until one waits in vain for a lock.
type lockedLink struct{ heldLink }

func (lockedLink) run(units []*unit, _ bool) error {
	for _, u := range units {
		if u.err = u.exec(nil); u.err != nil {
			return u.err
		}
	}
	return nil
}

// TestLocksAreNotAwaitedOneByOne: while somebody else keeps rows locked, those who
// want one of them are told so soon, however many they are; one of them alone is no
// reason to refuse those that were in the same group.
func TestLocksAreNotAwaitedOneByOne(t *testing.T) {
	const lockTimeout, all = 10 * time.Second, 100
	for _, locked := range []int{1, all} {
		synctest.Test(t, func(t *testing.T) {
			d := dialect{classify: func(error) errorClass { return classBusy }, full: func(error) bool { return false }}
			db := &DB{options: Options{}.withDefaults(), dialect: d, queue: make(chan *unit, all), committing: newCommits()}
			var callers sync.WaitGroup
			var refused, written atomic.Int64
			for n := range all {
				callers.Go(func() {
					err := db.submit(context.Background(), synced, func(*session) error {
						if n >= locked {
							return nil
						}
						time.Sleep(lockTimeout)
						return errLocked
					})
					switch {
					case err == nil:
						written.Add(1)
					case parley.CodeOf(err) == parley.CodeUnavailable:
						refused.Add(1)
					default:
						t.Error(err)
					}
				})
			}
			synctest.Wait()
			began := time.Now()
			db.links.give(lockedLink{})
			w := &writer{db: db}
			db.writing.Go(w.loop)
			callers.Wait()
			if took := time.Since(began); took > 4*lockTimeout {
				t.Errorf("%d of %d wait for a lock: they were told after %v", locked, all, took)
			}
			if r, w := refused.Load(), written.Load(); r != int64(locked) || w != int64(all-locked) {
				t.Errorf("%d of %d wait for a lock: %d were refused, %d written", locked, all, r, w)
			}
			close(db.queue)
			db.writing.Wait()
		})
	}
}
