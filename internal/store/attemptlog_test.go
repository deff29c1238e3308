package store

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// TestAttemptLog: every call of a run is listed with what was sent, what came
// back, with which status and how long it took; large values are left out and
// counted.
func TestAttemptLog(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		me := bridge(t, db, "b1")
		me.Token = "t1"
		big := attempt("run-1", "b", 1)
		big.Input = json.RawMessage(`"` + strings.Repeat("x", 64<<10) + `"`)
		me2 := me
		me2.Token = "t2"
		run := begin(t, db, "run-1", claimed(attempt("run-1", "a", 1), me), claimed(big, me2))
		begin(t, db, "run-10", attempt("run-10", "a", 1))

		refused := parley.Errorf(parley.CodeAgentUnavailable, "HTTP 503").WithDetails(map[string]int{"status": 503})
		d := next(run, 1)
		d.Answer = &Answer{Result: parley.Result{
			TaskID: "run-1.a.1", Outcome: parley.OutcomeError, Err: refused, RetryAfter: 2 * time.Second,
		}, At: epoch.Add(40 * time.Millisecond)}
		d.Close = []Close{{TaskID: "run-1.a.1", Absorb: true}}
		second := attempt("run-1", "a", 2)
		second.VisibleAt = epoch.Add(3 * time.Second)
		d.Insert = []Attempt{second}
		d.Run.UpdatedAt = epoch.Add(time.Second)
		check(t, db.Decide(t.Context(), d))
		ok := must(db.Answer(t.Context(), Answer{Result: parley.Result{
			TaskID: "run-1.b.1", Outcome: parley.OutcomeOK, Output: json.RawMessage(`{"n":1}`), Status: 202, AgentTaskID: "at-1",
		}, At: epoch.Add(time.Minute)}))(t)
		if !ok {
			t.Fatal("the answer was refused")
		}

		at := func(d time.Duration) *time.Time { x := epoch.Add(d); return &x }
		ms := func(n int64) *int64 { return &n }
		input := attempt("run-1", "a", 1).Input
		want := []parley.Attempt{
			{
				TaskID: "run-1.a.1", Step: "a", Number: 1, Agent: "writer", State: "closed", Outcome: parley.OutcomeError, Status: 503,
				Error: refused, Request: input, RequestBytes: int64(len(input)), RetryAfterMS: 2000, Sendings: 1,
				ScheduledAt: epoch, StartedAt: at(0), EndedAt: at(40 * time.Millisecond), TookMS: ms(40),
			},
			{
				TaskID: "run-1.b.1", Step: "b", Number: 1, Agent: "writer", State: "settled", Outcome: parley.OutcomeOK, Status: 202,
				RequestBytes: int64(len(big.Input)), Response: json.RawMessage(`{"n":1}`), ResponseBytes: 7, Sendings: 1, AgentTaskID: "at-1",
				ScheduledAt: epoch, StartedAt: at(0), EndedAt: at(time.Minute), TookMS: ms(60_000),
			},
			{
				TaskID: "run-1.a.2", Step: "a", Number: 2, Agent: "writer", State: "open", Request: input, RequestBytes: int64(len(input)),
				ScheduledAt: epoch.Add(time.Second), NotBefore: at(3 * time.Second),
			},
		}
		items, total, err := db.AttemptLog(t.Context(), parley.AttemptQuery{Run: "run-1"})
		check(t, err)
		diff(t, items, want)
		diff(t, total, 3)
		items, total, err = db.AttemptLog(t.Context(), parley.AttemptQuery{Run: "run-1", Step: "a", Page: parley.Page{Offset: 1, Limit: 1}})
		check(t, err)
		diff(t, items, want[2:])
		diff(t, total, 2)
		items, total, err = db.AttemptLog(t.Context(), parley.AttemptQuery{Run: "run-2"})
		check(t, err)
		diff(t, items, []parley.Attempt{})
		diff(t, total, 0)
	})
}

// TestBegun: of a run's attempts those are told that were claimed, in order, also
// when they have ended, with what the agent calls them.
func TestBegun(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		me := bridge(t, db, "b1")
		me.Token = "t1"
		run := begin(t, db, "run-1", claimed(attempt("run-1", "b", 1), me), attempt("run-1", "c", 1))
		begin(t, db, "run-10", claimed(attempt("run-10", "a", 1), Claim{Worker: me.Worker, Inc: me.Inc, Token: "t2"}))
		ok := must(db.Move(t.Context(), Move{Kind: MoveFollow, TaskID: "run-1.b.1", From: me, AgentTaskID: "at-1", At: epoch.Add(time.Second)}))(t)
		if !ok {
			t.Fatal("the move was refused")
		}
		d := next(run, 1)
		d.Close = []Close{{TaskID: "run-1.b.1", Outcome: parley.OutcomeTimeout}}
		me.Token = "t3"
		d.Insert = []Attempt{claimed(attempt("run-1", "b", 2), me), attempt("run-1", "a", 1)}
		check(t, db.Decide(t.Context(), d))

		type begun struct {
			ID, Run, Step string
			Attempt       int
			At            time.Time
			AgentTask     string
		}
		var got []begun
		for _, a := range must(db.Begun(t.Context(), "run-1"))(t) {
			got = append(got, begun{a.ID, a.Run, a.Step, a.Attempt, a.ClaimedAt, a.AgentTaskID})
		}
		diff(t, got, []begun{{"run-1.b.1", "run-1", "b", 1, epoch, "at-1"}, {"run-1.b.2", "run-1", "b", 2, epoch, ""}})
		if list := must(db.Begun(t.Context(), "run-2"))(t); list != nil {
			t.Errorf("a run that is not there has %v", list)
		}
	})
}

// TestAnswerAlikeWhateverItsStatus: the words of an answer count, not the
// status with which they came to somebody else.
func TestAnswerAlikeWhateverItsStatus(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		begin(t, db, "run-1", attempt("run-1", "a", 1))
		say := func(status int, task string) bool {
			return must(db.Answer(t.Context(), Answer{Result: parley.Result{
				TaskID: "run-1.a.1", Outcome: parley.OutcomeOK, Output: json.RawMessage(`1`), Status: status, AgentTaskID: task,
			}, At: epoch.Add(time.Duration(status) * time.Millisecond)}))(t)
		}
		if !say(200, "at-1") || say(0, "at-1") || say(404, "at-2") {
			t.Error("the first answer stands, and no other")
		}
		late := must(db.Late(t.Context(), "run-1.a.1"))(t)
		if len(late) != 1 || late[0].Result.AgentTaskID != "at-2" {
			t.Errorf("late: %+v", late)
		}
	})
}
