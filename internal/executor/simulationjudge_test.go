package executor_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// story is everything that is known of one simulation.
type story struct {
	observed
	apart bool
	// started are the runs that were asked for, each by a key of its own.
	started   int
	changes   []change
	histories map[string]store.History
	tasks     map[string]*simTask
	// kids are the runs that are still asked for in the end, turns those that are
	// counted, in lanes.
	kids, turns, lanes int
}

func readRow(text string) (*row, error) {
	if text == "" {
		return nil, nil
	}
	var r row
	err := json.Unmarshal([]byte(text), &r)
	return &r, err
}

func (r *row) held() bool {
	return r.State == store.AttemptClaimed || r.State == store.AttemptFollowing
}

// answered: it is known how the attempt went.
func (r *row) answered() bool {
	return r.Outcome == parley.OutcomeOK || r.Outcome == parley.OutcomeError
}

// tell is the story in lines, for whoever looks for a mistake.
func (s *story) tell() (lines []string) {
	for _, c := range s.changes {
		lines = append(lines, fmt.Sprintf("%d %s %s %+v -> %+v", c.n, c.what, c.id, c.was, c.now))
	}
	return lines
}

// judgment is the walk through a journal.
type judgment struct {
	*story
	wrong   []string
	workers map[string]row
	// replaced are the first changes of bridges in the last transactions that had any.
	replaced map[string]*change
	runs     map[string]row
	rows     map[string]row
	tokens   map[string]string
	// stored are the attempts that had their answers when they were closed.
	stored map[string]bool
}

func (j *judgment) report(format string, args ...any) {
	j.wrong = append(j.wrong, fmt.Sprintf(format, args...))
}

// judge holds the story to protocol.md §5.
func (s *story) judge() []string {
	j := &judgment{
		story: s, wrong: slices.Clone(s.wrong), workers: map[string]row{}, replaced: map[string]*change{}, runs: map[string]row{}, rows: map[string]row{}, tokens: map[string]string{},
		stored: map[string]bool{},
	}
	for i := range s.changes {
		c := &s.changes[i]
		switch c.what {
		case "worker":
			j.worker(c)
		case "run":
			j.run(c)
		case "attempt":
			j.attempt(c)
		}
	}
	for _, run := range slices.Sorted(maps.Keys(s.histories)) {
		j.history(run)
	}
	j.keys()
	j.family()
	j.heard()
	j.inTurn()
	j.starts()
	for _, task := range slices.Sorted(maps.Keys(s.tasks)) {
		j.calls(task)
		j.given(task)
	}
	for _, task := range slices.Sorted(maps.Keys(j.rows)) {
		if r := j.rows[task]; r.State != store.AttemptClosed {
			j.report("L1: %s is left %s", task, r.State)
		}
	}
	return j.wrong
}

// worker notes what a bridge is, and what it was before the transaction.
func (j *judgment) worker(c *change) {
	j.workers[c.id] = c.now
	if last := j.replaced[c.id]; c.was != nil && (last == nil || last.tx != c.tx) {
		j.replaced[c.id] = c
	}
}

// lived reports whether whoever gets a claim lived when it got it. The journal of a
// transaction tells of bridges first: one that is replaced or declared dead in it may
// have had the claim before.
func (j *judgment) lived(c *change) bool {
	lives := func(w row) bool { return w.Inc == c.now.Inc && w.Dead == 0 }
	last := j.replaced[c.now.Owner]
	return lives(j.workers[c.now.Owner]) || last != nil && c.tx != "" && last.tx == c.tx && lives(*last.was)
}

func (j *judgment) run(c *change) {
	if c.was != nil && (c.was.Ended == 1 || c.now.Seq < c.was.Seq) {
		j.report("I4: entry %d: run %s goes from %+v to %+v", c.n, c.id, *c.was, c.now)
	}
	j.runs[c.id] = c.now
}

// keys: by one key there is one run, however often it was asked for.
func (j *judgment) keys() {
	runs := 0
	for _, h := range j.histories {
		if h.Run.Workflow == "simulated" {
			runs++
		}
	}
	if runs != j.started {
		j.report("idempotency: there are %d runs, %d were started", runs, j.started)
	}
}

// runOf gives the run of a task id.
func runOf(task string) string {
	run, _, _ := strings.Cut(task, ".")
	return run
}

// attempt judges one transition (protocol.md §2 and §3).
func (j *judgment) attempt(c *change) {
	if c.was == nil {
		c.was = &row{State: "none"}
	}
	was, now := c.was, &c.now
	bad := func(rule, text string) {
		j.report("%s: entry %d: %s %s: %+v -> %+v", rule, c.n, c.id, text, *was, *now)
	}
	if was.State == store.AttemptClosed {
		bad("I3", "has ended, and changes")
	}
	if was.State == store.AttemptSettled {
		j.settledBefore(was, now, bad)
	}
	if !allowed(was, now) {
		bad("§2", "makes a step that there is not")
	}
	if now.held() && now.Token != was.Token {
		j.claimed(c, bad)
	}
	if now.State == store.AttemptSettled || now.State == store.AttemptClosed {
		j.ended(c, bad)
	}
	j.fenced(c, bad)
	j.rows[c.id] = *now
}

// settledBefore: nothing displaces a stored answer (I8), which ends the run's wait
// once.
func (j *judgment) settledBefore(was, now *row, bad func(rule, text string)) {
	if was.answered() && (now.Outcome != was.Outcome || now.Output != was.Output) {
		bad("I8", "loses its answer")
	}
	if now.State != store.AttemptClosed && (now.State != store.AttemptSettled || was.Outcome != parley.OutcomeUnknown) {
		bad("I2", "has its outcome, and goes on")
	}
}

// allowed are the arrows of protocol.md §2, by what they start from.
func allowed(was, now *row) bool {
	to := map[store.AttemptState][]store.AttemptState{
		"none":                 {store.AttemptOpen, store.AttemptClaimed},
		store.AttemptOpen:      {store.AttemptOpen, store.AttemptClaimed, store.AttemptSettled, store.AttemptClosed},
		store.AttemptClaimed:   {store.AttemptOpen, store.AttemptClaimed, store.AttemptFollowing, store.AttemptSettled, store.AttemptClosed},
		store.AttemptFollowing: {store.AttemptClaimed, store.AttemptFollowing, store.AttemptSettled, store.AttemptClosed},
		store.AttemptSettled:   {store.AttemptSettled, store.AttemptClosed},
	}[was.State]
	return slices.Contains(to, now.State)
}

// claimed: whoever gets a claim lives, and the attempt is not over, nor its run
// (I5); the former owner is gone, unless it sends again itself.
func (j *judgment) claimed(c *change, bad func(rule, text string)) {
	was, now := c.was, &c.now
	if j.runs[runOf(c.id)].Ended == 1 {
		bad("I5", "is claimed, its run has ended")
	}
	// A claim in doubt that comes late is under its own token once more.
	if old, used := j.tokens[now.Token]; used && old != c.id {
		bad("§1", "is claimed by a token of "+old)
	}
	j.tokens[now.Token] = c.id
	if was.Held == 1 && was.State == store.AttemptOpen {
		bad("P4", "is claimed, and held")
	}
	if j.moved(c, store.MoveAgain) { // P8 asks for no lease
		if now.Orphanings != was.Orphanings+1 {
			bad("P8", "is sent again, and not counted")
		}
		return
	}
	if !j.lived(c) {
		bad("I5", fmt.Sprintf("is claimed by one that is %+v", j.workers[now.Owner]))
	}
	if was.held() {
		if gone := j.workers[was.Owner]; was.Inc >= gone.Inc+int64(gone.Dead) {
			bad("P9", "is taken from one that lives")
		}
		if was.State == store.AttemptClaimed && now.Orphanings != was.Orphanings+1 {
			bad("P9", "is taken over, and not counted")
		}
	}
}

// fenced: what an owner does to a row it does to its own (I6).
func (j *judgment) fenced(c *change, bad func(rule, text string)) {
	was, now := c.was, &c.now
	if !was.held() {
		return
	}
	asked := func(kinds ...store.MoveKind) bool { return j.moved(c, kinds...) }
	switch {
	case now.State == store.AttemptOpen && (!asked(store.MoveRelease) || was.Orphanings > 0):
		bad("I6", "is released, not by its owner")
	case was.State == store.AttemptClaimed && now.State == store.AttemptFollowing && !asked(store.MoveFollow):
		bad("I6", "is followed, not by its owner")
	case now.held() && now.Token != was.Token && !asked(store.MoveAgain, store.MoveTakeover):
		bad("I6", "has another claim, not from its owner")
	case now.State == store.AttemptSettled && !j.answeredAs(c) && !asked(store.MoveFail, store.MoveUnknown, store.MoveCancelled, store.MoveAgain, store.MoveTakeover):
		lost := was.State == store.AttemptClaimed && was.Policy == parley.OutcomeFail && now.Outcome == parley.OutcomeUnknown
		if gone := j.workers[was.Owner]; !lost || was.Inc >= gone.Inc+int64(gone.Dead) {
			bad("I6", "is settled, not by its owner")
		}
	}
}

// moved: the owner of the row as it was has asked for a move that does that.
func (j *judgment) moved(c *change, kinds ...store.MoveKind) bool {
	from := store.Claim{Worker: c.was.Owner, Inc: c.was.Inc, Token: c.was.Token}
	return slices.ContainsFunc(j.moves[c.id], func(m store.Move) bool {
		return slices.Contains(kinds, m.Kind) && m.From == from && (m.To.Token == "" || m.To.Token == c.now.Token || !c.now.held())
	})
}

// answeredAs: somebody had that answer.
func (j *judgment) answeredAs(c *change) bool {
	return slices.ContainsFunc(j.answers[c.id], func(r parley.Result) bool {
		return r.Outcome == c.now.Outcome && string(r.Output) == c.now.Output
	})
}

// ended: an outcome is one that somebody had, or none.
func (j *judgment) ended(c *change, bad func(rule, text string)) {
	if c.now.Outcome == parley.OutcomeOK && !j.answeredAs(c) {
		bad("I2", "has an answer that nobody gave")
	}
	// An error that is no answer may be a time limit, which the bridge watches.
	answer := c.was.Outcome == parley.OutcomeOK || c.was.Outcome == parley.OutcomeError &&
		!slices.ContainsFunc(j.moves[c.id], func(m store.Move) bool { return m.Kind == store.MoveFail })
	if c.now.State == store.AttemptClosed && c.was.State == store.AttemptSettled && answer {
		j.stored[c.id] = true
	}
}

// history: one terminal event, the last (I4); each attempt is absorbed once (I3),
// and one that had its answer is not said to have ended otherwise (I8).
func (j *judgment) history(run string) {
	h := j.histories[run]
	terminal, forced := 0, false
	ends, hedged := map[string][]parley.Event{}, map[string]int{}
	for i, e := range h.Events {
		switch e.Type {
		case parley.EventRunCompleted, parley.EventRunFailed, parley.EventRunCancelled:
			if terminal++; i != len(h.Events)-1 {
				j.report("I4: run %s: %s is event %d of %d", run, e.Type, e.Seq, len(h.Events))
			}
			forced = strings.Contains(string(e.Data), `"terminated":true`)
		case parley.EventStepCompleted, parley.EventStepFailed, parley.EventStepCancelled, parley.EventStepRetrying:
			key := fmt.Sprintf("%s.%s.%d", run, e.Step, e.Attempt)
			if len(ends[key]) == 0 || !givenUp(e) || ends[key][0].Type != parley.EventStepRetrying {
				ends[key] = append(ends[key], e) // else the step has ended before its next attempt
			}
		case parley.EventStepAttemptFailed:
			if hedged[e.Step+"."+fmt.Sprint(e.Attempt)]++; hedged[e.Step+"."+fmt.Sprint(e.Attempt)] > 1 {
				j.report("I3: run %s: attempt %d of %s has failed twice", run, e.Attempt, e.Step)
			}
		default:
		}
		if e.Seq != int64(i)+1 {
			j.report("I3: run %s: event %d stands at place %d", run, e.Seq, i+1)
		}
	}
	if terminal != 1 {
		j.report("I4: run %s has %d terminal events", run, terminal)
	}
	if j.cancels[run] && h.Run.Status != parley.RunCancelled {
		j.report("C3: run %s is %s, somebody was told that it is cancelled", run, h.Run.Status)
	}
	for task, events := range ends {
		if len(events) > 1 {
			j.report("I3: %s has ended %d times", task, len(events))
		}
		r, stood := j.rows[task], j.stored[task]
		e := events[0]
		if stood && givenUp(e) && !forced && hedged[fmt.Sprintf("%s.%d", e.Step, e.Attempt)] == 0 {
			j.report("I8: %s had the answer %s, the history says %s %s", task, r.Outcome, e.Type, e.Data)
		}
		if e.Type == parley.EventStepCompleted && r.State != "" && (r.Outcome != parley.OutcomeOK || !strings.Contains(string(e.Data), r.Output)) {
			j.report("I2: %s is %s %s, the history says %s", task, r.Outcome, r.Output, e.Data)
		}
	}
}

// givenUp: a step has ended, whatever its attempt may be doing.
func givenUp(e parley.Event) bool {
	return e.Type == parley.EventStepCancelled || e.Type == parley.EventStepFailed && strings.Contains(string(e.Data), `"code":"timeout"`)
}

// sendWindow is how long after its claim a call may start (protocol.md §4.3).
const sendWindow = 2 * time.Second

// calls: no attempt is carried out more often than its policy allows (I1), none
// after its end or that of its run but under an older claim (I7).
func (j *judgment) calls(task string) {
	t, r := j.tasks[task], j.rows[task]
	limit := 1
	if r.Policy == parley.OutcomeResend {
		limit += r.Orphanings
	}
	if t.executions > limit || len(t.sent) > limit {
		j.report("I1: %s (policy %s, %d orphanings) was sent %d times and carried out %d times", task, r.Policy, r.Orphanings, len(t.sent), t.executions)
	}
	for _, of := range []string{task, runOf(task)} {
		end, ok := j.observed.ended[of]
		for _, at := range t.sent {
			if ok && at.Sub(end) >= sendWindow {
				j.report("I7: %s was called %v after the end of %s", task, at.Sub(end), of)
			}
		}
	}
}

// A process that reaches the database stores an answer that it has promptly, while commits
// fail now and then; one that was cut off tries it less often.
const (
	prompt   = 5 * time.Second
	patience = 20 * time.Second
)

// given: an answer that a process had in hand, and lived on with, is the outcome,
// unless the attempt had ended before (I2, I10).
func (j *judgment) given(task string) {
	t, r := j.tasks[task], j.rows[task]
	end := j.observed.ended[task]
	for _, g := range t.given {
		within := prompt
		if g.p.cut.Load() != 0 {
			within = g.p.reaches(g.at, patience).Sub(g.at)
		}
		left := g.p.died.Load()
		died := left != nil && left.Sub(g.at) < within
		over := !end.IsZero() && end.Sub(g.at) < within
		if again := slices.IndexFunc(t.sent, func(at time.Time) bool { return at.Sub(g.at) > within }); again >= 0 && !died {
			j.report("I10: %s was called again, %s had its answer in hand", task, g.p.name)
		}
		if r.Outcome == parley.OutcomeUnknown && !died && !over {
			j.report("I2: %s is unknown, %s had the answer %s in hand", task, g.p.name, g.result.Outcome)
		}
	}
	if r.Outcome == parley.OutcomeOK && len(t.given) == 0 {
		j.report("I2: %s has an answer that no agent gave", task)
	}
}

// TestSimulationJudge_AnAnswerOfWhoIsCutOff: a process need not store an answer as long as it
// does not reach the database, and has to once it does.
func TestSimulationJudge_AnAnswerOfWhoIsCutOff(t *testing.T) {
	begun := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(seconds int) time.Time { return begun.Add(time.Duration(seconds) * time.Second) }
	for name, c := range map[string]struct {
		cuts [][2]int
		died int
		lost bool
	}{
		"it reaches it":            {nil, 7, true},
		"it dies at once":          {nil, 5, false},
		"cut off once, and again":  {[][2]int{{0, 25}, {24, 49}, {48, 70}}, 89, false},
		"cut off for long enough":  {[][2]int{{0, 25}, {24, 49}, {48, 70}}, 91, true},
		"cut off before and after": {[][2]int{{-9, -1}, {60, 85}}, 40, true},
		"cut off for less":         {[][2]int{{0, 25}}, 44, false},
		"it is back":               {[][2]int{{0, 25}}, 46, true},
	} {
		p := &simProc{w: &simWorld{}, name: "whole"}
		for _, cut := range c.cuts {
			p.cuts = append(p.cuts, cutTime{at(cut[0]), at(cut[1])})
			p.cut.Store(at(cut[1]).UnixNano())
		}
		died := at(c.died)
		p.died.Store(&died)
		j := &judgment{
			story: &story{tasks: map[string]*simTask{"run.a.1": {given: []givenAnswer{{at: at(1), p: p}}}}},
			rows:  map[string]row{"run.a.1": {Outcome: parley.OutcomeUnknown}},
		}
		if j.given("run.a.1"); len(j.wrong) > 0 != c.lost {
			t.Errorf("%s: %q, want one: %t", name, j.wrong, c.lost)
		}
	}
}
