package verification_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/zone/verification"
)

// TestZN7_AloneTakesUpAtOnce: a process that has the database for itself does not
// wait for the lease of the one before it; with others beside it, it does.
func TestZN7_AloneTakesUpAtOnce(t *testing.T) {
	for _, alone := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "zone.db")
			c := &crash{at: 4} // after the claim, before the answer is posted
			if alone {
				c.at += 2 // what was there is taken up before
			}
			r := newRigAt(t, path, store.Options{Failpoint: c.failpoint}, func(cfg *verification.Config) {
				cfg.Slack.Transport = mortal{c, cfg.Slack.Transport}
				cfg.Execution = mortalExec{c, cfg.Execution.(*execution)}
				cfg.Alone = alone
			})
			d := &durable{done: map[string]int{}}
			r.exec.ask, r.exec.fetch = d.ask, d.fetch
			r.start()
			synctest.Wait() // until it has begun
			m := message("why?")
			r.send(m.Body(), 0)
			pass(time.Second)
			r.stop()
			check(t, r.db.Close())
			if !c.dead || len(r.texts(m)) != 0 {
				t.Fatalf("the process did not die in time: %v %q", c.points, r.texts(m))
			}
			r.db = r.open(store.Options{})
			r.cfg.DB, r.cfg.Execution, r.cfg.Slack.Transport = r.db, r.exec, r.slack.Transport()
			r.make()
			r.start()
			pass(8 * time.Second) // more than a post may take to appear, less than a lease
			if got := len(r.texts(m)); (got == 1) != alone {
				t.Errorf("alone %t: %d answers after 8 s (death at %v)", alone, got, c.points)
			}
			pass(time.Minute)
			if got := r.texts(m); len(got) != 1 || got[0] != "the answer" {
				t.Errorf("alone %t: %q", alone, got)
			}
			r.stop()
			check(t, r.db.Close())
		})
	}
}
