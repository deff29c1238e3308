package store

import (
	"testing"

	"github.com/parley-project/parley"
)

// recordAt is the record at an offset of the tasks topic.
func recordAt(offset int64) *Source {
	return &Source{DeadLetterSource: parley.DeadLetterSource{
		Subject: "parley.tasks", Topic: "orchestrator.tasks.http", Partition: 3, Offset: offset, Group: `a "group"`,
	}}
}

// TestSource: a claim notes which record it came from, and so does a foreign task
// that is claimed or deferred for the first time.
func TestSource(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		begin(t, db, "run-1", attempt("run-1", "a", 1), attempt("run-1", "b", 1))
		c := bridge(t, db, "b1")
		got := must(db.Claim(ctx, c, []ClaimRequest{
			{TaskID: "run-1.a.1", Token: "t1", Source: recordAt(0)}, {TaskID: "run-1.b.1", Token: "t2"},
		}, epoch))(t)
		diff(t, len(got), 2)
		diff(t, must(db.Source(ctx, "run-1.a.1"))(t), recordAt(0))
		diff(t, must(db.Source(ctx, "run-1.b.1"))(t), (*Source)(nil))
		diff(t, must(db.Source(ctx, "run-1.c.1"))(t), (*Source)(nil))

		with := func(a Attempt, offset int64) Attempt {
			a.Source = recordAt(offset)
			a.Source.Headers = []parley.DeadLetterHeader{{Name: "traceparent", Value: []byte("00-\xff")}, {Name: "x", Value: []byte{}}}
			return a
		}
		c.Token = "t3"
		claimed, deferred := with(foreignClaim("f1", c), 1), with(foreign("f2"), 2)
		must(db.ClaimForeign(ctx, []Attempt{claimed}, epoch))(t)
		check(t, db.DeferForeign(ctx, []Attempt{deferred}, epoch))
		// The row is there: the record that it was made of stays.
		later := with(foreignClaim("f2", c), 7)
		diff(t, len(must(db.ClaimForeign(ctx, []Attempt{later}, epoch))(t)), 1)
		diff(t, must(db.Source(ctx, claimed.ID))(t), claimed.Source)
		diff(t, must(db.Source(ctx, deferred.ID))(t), deferred.Source)
	})
}

// TestDeadLetterOfTaskSaysWhere: the dead letter of a task that a bridge took
// from a record names that record, also if its executor does not know of it.
func TestDeadLetterOfTaskSaysWhere(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		run := begin(t, db, "run-1", attempt("run-1", "a", 1))
		c := bridge(t, db, "b1")
		must(db.Claim(ctx, c, []ClaimRequest{{TaskID: "run-1.a.1", Token: "t1", Source: recordAt(42)}}, epoch))(t)
		l := deadTask("run-1", epoch)
		l.Task = "run-1.a.1"
		l = l.Seal()
		check(t, db.Decide(ctx, giveUp(run, "run-1.a.1", l)))
		l.Source = &recordAt(42).DeadLetterSource
		diff(t, must(db.DeadLetter(ctx, l.ID))(t), l)
	})
}
