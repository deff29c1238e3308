package store

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// zoneQuestion is a new question.
func zoneQuestion(id string) ZoneQuestion {
	return ZoneQuestion{
		ID: id, EventID: "Ev-" + id, Team: "T1", Channel: "C1", TS: "1." + id, ThreadTS: "1." + id, User: "U1", Text: "why\u0000 " + id,
		Attachments: []byte(`[{"id":"F1"}]`), CorrelationID: "corr-" + id, State: ZoneReceived, DueAt: epoch, CreatedAt: epoch,
		ExpiresAt: epoch.Add(2 * time.Minute), Trace: parley.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", State: "a=1"},
	}
}

func addZone(t testing.TB, db *DB, q ZoneQuestion) {
	t.Helper()
	if !must(db.AddZoneQuestion(t.Context(), q))(t) {
		t.Fatalf("question %s was not added", q.ID)
	}
}

func takeZone(t testing.TB, db *DB, owner string, now time.Time, limit int) []ZoneQuestion {
	t.Helper()
	return must(db.ClaimZoneQuestions(t.Context(), owner, now, now.Add(time.Minute), limit))(t)
}

// TestZN7_ZoneQuestionOnce: an event is one question, and so is a message, however
// many events tell of it; events without an id are told apart by their messages.
func TestZN7_ZoneQuestionOnce(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		q := zoneQuestion("a")
		addZone(t, db, q)
		diff(t, must(db.ZoneQuestion(ctx, "a"))(t), q)
		_, err := db.ZoneQuestion(ctx, "b")
		wantCode(t, err, parley.CodeNotFound)
		for name, change := range map[string]func(*ZoneQuestion){
			"event":   func(q *ZoneQuestion) { q.EventID = "Ev-a" },
			"message": func(q *ZoneQuestion) { q.TS = "1.a" },
			"id":      func(q *ZoneQuestion) { q.ID = "a" },
		} {
			again := zoneQuestion("b")
			change(&again)
			if must(db.AddZoneQuestion(ctx, again))(t) {
				t.Errorf("the same %s twice", name)
			}
		}
		for _, id := range []string{"c", "d"} {
			q := zoneQuestion(id)
			q.EventID = ""
			addZone(t, db, q)
		}
		elsewhere := zoneQuestion("e")
		elsewhere.TS, elsewhere.Team = "1.a", "T2"
		addZone(t, db, elsewhere)
		diff(t, must(db.ZoneBacklog(ctx, 10))(t), 4)
		diff(t, must(db.ZoneBacklog(ctx, 3))(t), 3)
	})
}

// TestZN7_ZoneQuestionLease: who has taken a question has it until its lease ends,
// which can be made longer; whoever comes late writes nothing.
func TestZN7_ZoneQuestionLease(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		diff(t, len(takeZone(t, db, "p1", epoch, 10)), 0)
		addZone(t, db, zoneQuestion("a"))
		later := zoneQuestion("b")
		later.DueAt = epoch.Add(time.Second)
		addZone(t, db, later)
		diff(t, must(db.ZoneDue(ctx))(t), epoch)
		list := takeZone(t, db, "p1", epoch, 10)
		want := zoneQuestion("a")
		want.Owner, want.Fence, want.DueAt = "p1", 1, epoch.Add(time.Minute)
		diff(t, list, []ZoneQuestion{want})
		diff(t, must(db.ZoneDue(ctx))(t), later.DueAt)
		check(t, db.BeatZoneQuestions(ctx, list, epoch.Add(2*time.Minute)))
		diff(t, len(takeZone(t, db, "p2", epoch.Add(90*time.Second), 10)), 1) // b
		first := list[0]
		second := takeZone(t, db, "p2", epoch.Add(2*time.Minute), 1)[0]
		diff(t, []any{second.ID, second.Owner, second.Fence}, []any{"a", "p2", int64(2)})

		first.State, first.SentAt = ZoneSent, epoch
		wantStale(t, db.SaveZoneQuestion(ctx, first, false))
		check(t, db.BeatZoneQuestions(ctx, []ZoneQuestion{first}, epoch.Add(time.Hour)))
		diff(t, must(db.ZoneQuestion(ctx, "a"))(t), second)

		second.State, second.Attempts, second.Polls, second.Affinity, second.TaskID = ZoneAccepted, 1, 2, "vm-1", "task"
		second.SentAt, second.Owner, second.DueAt = epoch.Add(time.Second), "", epoch.Add(time.Hour)
		check(t, db.SaveZoneQuestion(ctx, second, false))
		// A beat that comes after the question was left changes nothing.
		check(t, db.BeatZoneQuestions(ctx, []ZoneQuestion{{ID: "a", Owner: "p2", Fence: second.Fence}}, epoch.Add(time.Minute)))
		diff(t, must(db.ZoneQuestion(ctx, "a"))(t), second)
		second.State, second.Answer, second.AnsweredAt, second.Tries = ZonePosting, []byte{0, 1, 2}, epoch, 3
		check(t, db.SaveZoneQuestion(ctx, second, true))
		second.Posted = 1
		check(t, db.SaveZoneQuestion(ctx, second, false))
		diff(t, must(db.ZoneQuestion(ctx, "a"))(t), second)

		ended := second
		ended.State, ended.Outcome, ended.EndedAt = ZoneDone, "answered", epoch.Add(time.Minute)
		check(t, db.SaveZoneQuestion(ctx, ended, true))
		got := must(db.ZoneQuestion(ctx, "a"))(t)
		if got.Text != "" || got.Attachments != nil || got.Answer != nil || got.State != ZoneDone || got.Outcome != "answered" {
			t.Errorf("%+v", got)
		}
		wantStale(t, db.SaveZoneQuestion(ctx, second, false))
		diff(t, len(takeZone(t, db, "p3", epoch.Add(24*time.Hour), 10)), 1) // b
		diff(t, must(db.AddZoneQuestion(ctx, zoneQuestion("a")))(t), false)
		diff(t, must(db.ForgetZoneQuestions(ctx, ended.EndedAt, 10))(t), 0)
		diff(t, must(db.ForgetZoneQuestions(ctx, ended.EndedAt.Add(time.Second), 10))(t), 1)
		addZone(t, db, zoneQuestion("a"))
	})
}

// TestZN7_ZoneQuestionInvalid: what could never be found again is refused.
// TestZN7_ZoneQuestionFreed: who has the database for itself ends the leases of
// those before it, who can store nothing any more; what was being posted waits.
func TestZN7_ZoneQuestionFreed(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		addZone(t, db, zoneQuestion("a"))
		addZone(t, db, zoneQuestion("b"))
		held := takeZone(t, db, "p", epoch, 2)
		posting := held[1]
		posting.State = ZonePosting
		check(t, db.SaveZoneQuestion(ctx, posting, false))
		posted := epoch.Add(5 * time.Second)
		diff(t, must(db.FreeZoneQuestions(ctx, epoch, posted))(t), 2)
		wantStale(t, db.SaveZoneQuestion(ctx, held[0], false))
		got := takeZone(t, db, "q", epoch, 2)
		if len(got) != 1 || got[0].ID != held[0].ID {
			t.Fatalf("%+v", got)
		}
		got = takeZone(t, db, "q", posted, 2)
		if len(got) != 1 || got[0].ID != posting.ID {
			t.Fatalf("%+v", got)
		}
		diff(t, must(db.FreeZoneQuestions(ctx, posted.Add(time.Hour), posted.Add(time.Hour)))(t), 0)
	})
}

func TestZN7_ZoneQuestionInvalid(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		for _, change := range []func(*ZoneQuestion){
			func(q *ZoneQuestion) { q.ID = "" },
			func(q *ZoneQuestion) { q.DueAt = time.Time{} },
			func(q *ZoneQuestion) { q.EndedAt = epoch },
			func(q *ZoneQuestion) { q.State = ZoneDone },
		} {
			q := zoneQuestion("a")
			change(&q)
			_, err := db.AddZoneQuestion(t.Context(), q)
			wantCode(t, err, parley.CodeInvalid)
			wantCode(t, db.SaveZoneQuestion(t.Context(), q, false), parley.CodeInvalid)
		}
	})
}

// TestZN7_ZoneQuestionRace: of several processes that look for work at once, one
// gets each question, and of several that are told of a message, one stores it.
func TestZN7_ZoneQuestionRace(t *testing.T) {
	eachTarget(t, func(t *testing.T, target string) {
		db := reopen(t, target, Options{})
		const questions, takers = 40, 8
		var added, taken atomic.Int64
		var all sync.WaitGroup
		for i := range takers {
			all.Go(func() {
				for n := range questions {
					q := zoneQuestion(fmt.Sprint((n + i) % questions))
					q.ID += fmt.Sprint("-", i)
					ok, err := db.AddZoneQuestion(t.Context(), q)
					if err != nil {
						t.Error(err)
					}
					if ok {
						added.Add(1)
					}
				}
			})
		}
		all.Wait()
		diff(t, added.Load(), int64(questions))
		for i := range takers {
			all.Go(func() {
				for {
					list, err := db.ClaimZoneQuestions(t.Context(), fmt.Sprint(i), epoch, epoch.Add(time.Hour), 3)
					if err != nil {
						t.Error(err)
					}
					taken.Add(int64(len(list)))
					if due, _ := db.ZoneDue(t.Context()); due.After(epoch) || err != nil {
						return
					}
				}
			})
		}
		all.Wait()
		diff(t, taken.Load(), int64(questions))
	})
}

// TestZN7_ZoneQuestionFailpoints: every write can fail before and after its commit,
// and says so by its name.
func TestZN7_ZoneQuestionFailpoints(t *testing.T) {
	fault := errors.New("fault")
	fail := ""
	db := newDB(t, Options{Failpoint: func(name string) error {
		if name == fail {
			return fault
		}
		return nil
	}})
	ctx := t.Context()
	fail = "zone.add.after"
	if added, err := db.AddZoneQuestion(ctx, zoneQuestion("a")); added || !errors.Is(err, fault) {
		t.Errorf("%v, %v", added, err)
	}
	fail = ""
	diff(t, must(db.AddZoneQuestion(ctx, zoneQuestion("a")))(t), false)
	fail = "zone.claim.before"
	if _, err := db.ClaimZoneQuestions(ctx, "p", epoch, epoch.Add(time.Minute), 1); !errors.Is(err, fault) {
		t.Error(err)
	}
	fail = ""
	q := takeZone(t, db, "p", epoch, 1)[0]
	q.State = ZoneSent
	fail = "zone.sent.before"
	if err := db.SaveZoneQuestion(ctx, q, false); !errors.Is(err, fault) {
		t.Error(err)
	}
	diff(t, must(db.ZoneQuestion(ctx, "a"))(t).State, ZoneReceived)
}

// TestZN7_ZoneQuestionBigAnswer: an answer with a file is kept byte for byte.
func TestZN7_ZoneQuestionBigAnswer(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		addZone(t, db, zoneQuestion("a"))
		q := takeZone(t, db, "p", epoch, 1)[0]
		q.State, q.Answer = ZoneAnswered, bytes.Repeat([]byte{0xff, 0, 'a'}, 5<<20)
		check(t, db.SaveZoneQuestion(t.Context(), q, true))
		if got := must(db.ZoneQuestion(t.Context(), "a"))(t); !bytes.Equal(got.Answer, q.Answer) {
			t.Error("another answer")
		}
	})
}
