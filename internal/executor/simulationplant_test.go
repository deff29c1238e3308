package executor_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// plain is a story of one run with one attempt, in which nothing is wrong. Its
// agent was called at begun.
func plain(begun time.Time) *story {
	s := &story{
		observed: observed{
			moves:   map[string][]store.Move{},
			answers: map[string][]parley.Result{"r.a.1": {{Outcome: parley.OutcomeOK, Output: []byte("1")}}},
			ended:   map[string]time.Time{"r": begun.Add(time.Second), "r.a.1": begun.Add(time.Second)}, cancels: map[string]bool{}, said: map[string]string{"p1.": "r"},
			published: map[string]bool{},
		},
		histories: map[string]store.History{"r": {Run: store.Run{Status: parley.RunCompleted}, Events: []parley.Event{
			{Seq: 1, Type: parley.EventRunStarted},
			{Seq: 2, Type: parley.EventStepCompleted, Step: "a", Attempt: 1, Data: []byte(`{"output":1}`)},
			{Seq: 3, Type: parley.EventChildStarted, Step: "b", Attempt: 1, Data: []byte(`{"task_id":"r.b.1","run":"kid"}`)},
			{Seq: 4, Type: parley.EventStepAnswered, Step: "c", Data: []byte(`{"by":"p1."}`)},
			{Seq: 5, Type: parley.EventChildEnded, Step: "b", Attempt: 1, Data: []byte(`{"task_id":"r.b.1","run":"kid","status":"FAILED"}`)},
			{Seq: 6, Type: parley.EventRunCompleted},
		}}, "kid": {Run: store.Run{Status: parley.RunFailed}, Events: []parley.Event{{Seq: 1, Type: parley.EventRunFailed}}}},
		tasks: map[string]*simTask{"r.a.1": {sent: []time.Time{begun}, executions: 1, given: []givenAnswer{{at: begun, p: &simProc{name: "b"}}}}},
	}
	open := row{State: store.AttemptOpen, Policy: parley.OutcomeResend}
	claimed := row{State: store.AttemptClaimed, Owner: "b", Inc: 1, Token: "t1", Policy: parley.OutcomeResend}
	settled := claimed
	settled.State, settled.Outcome, settled.Output = store.AttemptSettled, parley.OutcomeOK, "1"
	closed := settled
	closed.State = store.AttemptClosed
	s.changes = []change{
		{what: "worker", id: "b", now: row{Inc: 1}},
		{what: "run", id: "r", now: row{Seq: 1}},
		{what: "attempt", id: "r.a.1", now: open},
		{what: "attempt", id: "r.a.1", was: &open, now: claimed},
		{what: "attempt", id: "r.a.1", was: &claimed, now: settled},
		{what: "run", id: "r", was: &row{Seq: 1}, now: row{Seq: 6, Ended: 1}},
		{what: "attempt", id: "r.a.1", was: &settled, now: closed},
	}
	for i := range s.changes {
		s.changes[i].n = int64(i)
	}
	return s
}

// then adds a change of the attempt at a place of the journal.
func (s *story) then(at int, change func(now *row)) {
	c := s.changes[at-1]
	was := c.now
	now := was
	change(&now)
	c.n, c.was, c.now = int64(100+at), &was, now
	s.changes = slices.Insert(s.changes, at, c)
}

// TestSimulationJudge plants one violation of each invariant and wants it found,
// and nothing where there is none.
func TestSimulationJudge(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	if wrong := plain(begun).judge(); len(wrong) > 0 {
		t.Fatalf("nothing is wrong, but %q", wrong)
	}
	// A claim that stands in front of the registration in one transaction came first.
	same := plain(begun)
	same.changes = slices.Insert(same.changes, 3, change{tx: "1", what: "worker", id: "b", was: &row{Inc: 1}, now: row{Inc: 2}})
	same.changes[4].tx = "1"
	if wrong := same.judge(); len(wrong) > 0 {
		t.Fatalf("it was claimed before, but %q", wrong)
	}
	history := func(change func(h *store.History)) func(*story) {
		return func(s *story) { h := s.histories["r"]; change(&h); s.histories["r"] = h }
	}
	for want, plant := range map[string]func(*story){
		"I1: r.a.1": func(s *story) { s.tasks["r.a.1"].executions = 2 },
		"I2: r.a.1 is ok": history(func(h *store.History) {
			h.Events[1].Data = []byte(`{"output":2}`)
		}),
		"I2: entry 4: r.a.1 has an answer that nobody gave": func(s *story) { s.answers = nil },
		"I2: entry 105: r.a.1 has its outcome, and goes on": func(s *story) { s.then(5, func(r *row) { r.State, r.Token = store.AttemptClaimed, "t2" }) },
		"I2: r.a.1 is unknown": func(s *story) {
			s.changes[6].now.Outcome = parley.OutcomeUnknown
			s.ended["r.a.1"] = begun.Add(time.Hour)
		},
		"I3: entry 107: r.a.1 has ended, and changes": func(s *story) { s.then(7, func(r *row) { r.Orphanings++ }) },
		"I3: r.a.1 has ended 2 times": history(func(h *store.History) {
			h.Events = slices.Insert(h.Events, 2, h.Events[1])
		}),
		"I4: run r has 2 terminal events": history(func(h *store.History) {
			h.Events = append(h.Events, parley.Event{Seq: 7, Type: parley.EventRunFailed})
		}),
		"I4: entry 106: run r goes": func(s *story) { s.then(6, func(r *row) { r.Seq++ }) },
		"I5: entry 3: r.a.1 is claimed by one that is": func(s *story) {
			s.changes[0].now.Dead = 1
		},
		"I5: entry 3: r.a.1 is claimed by one that is {State: Owner: Inc:2": func(s *story) { // replaced before
			s.changes = slices.Insert(s.changes, 1, change{tx: "1", what: "worker", id: "b", was: &row{Inc: 1}, now: row{Inc: 2}})
			s.changes[4].tx = "2"
		},
		"I5: entry 3: r.a.1 is claimed, its run has ended": func(s *story) { s.changes[1].now.Ended = 1 },
		"I6: entry 104: r.a.1 is released, not by its owner": func(s *story) {
			s.moves["r.a.1"] = []store.Move{{Kind: store.MoveRelease, From: store.Claim{Worker: "b", Inc: 1, Token: "t0"}}}
			s.then(4, func(r *row) { *r = row{State: store.AttemptOpen} })
		},
		"I6: entry 104: r.a.1 has another claim, not from its owner": func(s *story) { s.then(4, func(r *row) { r.Token = "t2"; r.Orphanings++ }) },
		"I6: entry 104: r.a.1 is followed, not by its owner":         func(s *story) { s.then(4, func(r *row) { r.State = store.AttemptFollowing }) },
		"I6: entry 4: r.a.1 is settled, not by its owner": func(s *story) {
			s.changes[4].now.Outcome = parley.OutcomeUnknown
		},
		"P9: entry 104: r.a.1 is taken from one that lives": func(s *story) {
			s.changes = slices.Insert(s.changes, 1, change{what: "worker", id: "c", now: row{Inc: 1}})
			s.then(5, func(r *row) { r.Owner, r.Token = "c", "t2" })
			s.changes[5].n = 104
		},
		"P4: entry 3: r.a.1 is claimed, and held":           func(s *story) { s.changes[3].was = &row{State: store.AttemptOpen, Held: 1} },
		"I7: r.a.1 was called 3s after the end of r":        func(s *story) { s.tasks["r.a.1"].sent = []time.Time{begun.Add(4 * time.Second)} },
		"I8: entry 6: r.a.1 loses its answer":               func(s *story) { s.changes[6].now.Outcome = parley.OutcomeTimeout },
		"I8: r.a.1 had the answer ok":                       history(func(h *store.History) { h.Events[1].Type = parley.EventStepCancelled }),
		"L1: r.a.1 is left settled":                         func(s *story) { s.changes = s.changes[:6] },
		"C3: run r is COMPLETED, somebody was told":         func(s *story) { s.cancels["r"] = true },
		"§1: entry 3: r.a.1 is claimed by a token of r.a.0": func(s *story) { s.then(3, func(*row) {}); s.changes[2] = otherClaim() },
		"§2: entry 3: r.a.1 makes a step that there is not": func(s *story) {
			s.changes[3].was = &row{State: store.AttemptState("none")}
			s.changes[3].now.State = store.AttemptFollowing
		},
		"S11: run r has begun kid for r.b.2, and before for r.b.1": history(func(h *store.History) {
			again := h.Events[2]
			again.Data = []byte(`{"task_id":"r.b.2","run":"kid"}`)
			h.Events = slices.Insert(h.Events, 3, again)
		}),
		"S11: run r has begun other for r.b.1, and before kid": history(func(h *store.History) {
			again := h.Events[2]
			again.Data = []byte(`{"task_id":"r.b.1","run":"other"}`)
			h.Events = slices.Insert(h.Events, 3, again)
		}),
		"S11: run r says that kid is COMPLETED, it is FAILED": history(func(h *store.History) {
			h.Events[4].Data = []byte(`{"task_id":"r.b.1","run":"kid","status":"COMPLETED"}`)
		}),
		"S11: entry 50: kid begins, and r has ended": func(s *story) { s.changes = append(s.changes, begins("kid")) },
		"S11: entry 50: kid begins beside older": func(s *story) {
			s.changes = slices.Insert(s.changes, 2, begins("older"), begins("kid"))
		},
		"idempotency: there are 0 runs, 1 were started": func(s *story) { s.started = 1 },
		"concurrency: entry 50: 3 runs of kid run": func(s *story) {
			s.changes = append(s.changes, turn("1"), turn("2"), turn("3"))
		},
		"L1: 1 turns are left in 1 lanes":              func(s *story) { s.turns, s.lanes = 1, 1 },
		"C7: p9. was taken, and has started nothing":   func(s *story) { s.published["p9."] = true },
		"C7: run r2 is started by p9., as another one": func(s *story) { s.histories["r1"], s.histories["r2"] = startedBy("p9."), startedBy("p9.") },
		"L1: 1 runs are still asked for":               func(s *story) { s.kids = 1 },
		"C9: run r: what p1. said counts twice": history(func(h *store.History) {
			h.Events = slices.Insert(h.Events, 3, h.Events[3])
		}),
		"C9: run r: what p1. said was taken, and is not there": history(func(h *store.History) {
			h.Events = slices.Delete(h.Events, 3, 4)
		}),
		"I2: r.a.1 has an answer that no agent gave": func(s *story) { s.tasks["r.a.1"].given = nil },
	} {
		s := plain(begun)
		plant(s)
		if wrong := s.judge(); !slices.ContainsFunc(wrong, func(text string) bool { return strings.HasPrefix(text, want) }) {
			t.Errorf("want %q, got %q", want, wrong)
		}
	}
}

// otherClaim is a claim of another attempt by the token of the first.
func otherClaim() change {
	return change{what: "attempt", id: "r.a.0", now: row{State: store.AttemptClaimed, Owner: "b", Inc: 1, Token: "t1"}}
}

// begins is the beginning of a run that step b of run r has asked for.
func begins(run string) change {
	return change{n: 50, what: "run", id: run, now: row{Seq: 1, Parent: "r", Step: "b"}}
}

// turn is the beginning of a run of which two may run at the same time.
func turn(run string) change {
	return change{n: 50, what: "run", id: run, now: row{Seq: 1, Workflow: "kid", Begun: 1}}
}

// startedBy is a run that an event has started.
func startedBy(event string) store.History {
	return store.History{Run: store.Run{Name: "listener", Status: parley.RunCompleted}, Events: []parley.Event{
		{Seq: 1, Type: parley.EventRunStarted, Data: []byte(`{"input":{"id":"` + event + `"}}`)}, {Seq: 2, Type: parley.EventRunCompleted},
	}}
}
