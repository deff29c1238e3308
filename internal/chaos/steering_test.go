package chaos_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// verb is what somebody does to a run after its start.
type verb string

const (
	verbNone      verb = ""
	verbCancel    verb = "cancel"
	verbTerminate verb = "terminate"
	// verbPause is a pause, and a resume after it.
	verbPause verb = "pause"
	// verbHurry leaves the run alone: its steps have less time than the agents
	// need now and then.
	verbHurry verb = "hurry"
)

// steering is what is done to one run, drawn from a seed.
type steering struct {
	verb verb
	// after is how long after the start, lasts how long a pause is.
	after, lasts time.Duration
	// retry: once the run has failed or was cancelled it is retried.
	retry bool
	// family: the run has a run of its own, and waits for an event, which comes after
	// heard.
	family bool
	heard  time.Duration
}

// steered draws what is done to run n: each verb to share runs of a hundred, and so
// many have a run of their own.
func steered(seed uint64, share int) func(n int) steering {
	return func(n int) steering {
		rnd := rand.New(rand.NewPCG(seed, uint64(n)))
		s := steering{after: between(rnd, 0, 1500*time.Millisecond), lasts: between(rnd, 500*time.Millisecond, 6*time.Second), retry: rnd.IntN(2) == 0}
		verbs := []verb{verbCancel, verbTerminate, verbPause, verbHurry}
		if i := rnd.IntN(100) / share; i < len(verbs) {
			s.verb = verbs[i]
		}
		s.retry = s.retry && s.verb != verbPause && s.verb != verbNone || s.verb == verbHurry
		if s.family = s.verb != verbHurry && rnd.IntN(100) < share; s.family {
			// An event that came before the retry is none for it.
			s.heard, s.retry = between(rnd, 0, 4*time.Second), false
		}
		return s
	}
}

// nobody does anything to a run.
func nobody(int) steering { return steering{} }

// deed is what was done to one run, and what was answered.
type deed struct {
	verb verb
	// accepted: somebody was told so. An ask whose answer was lost may have been
	// taken, too.
	accepted, resumed bool
	// from is when the answer to a pause came, to when the resume was asked for.
	from, to time.Time
	// retries are the runs that were answered, for one key.
	retries []string
}

// steerer does to runs what their steering says, and keeps what was done.
type steerer struct {
	c     *cluster
	draw  func(n int) steering
	doing sync.WaitGroup

	mu    sync.Mutex
	deeds map[string]deed
}

func newSteerer(c *cluster, draw func(n int) steering) *steerer {
	return &steerer{c: c, draw: draw, deeds: map[string]deed{}}
}

// drawn is what is done to run n.
func (s *steerer) drawn(n int) steering {
	if s == nil {
		return steering{}
	}
	return s.draw(n)
}

// flow is the workflow of run n.
func (s *steerer) flow(n int) string {
	switch x := s.drawn(n); {
	case x.verb == verbHurry:
		return flowHurry
	case x.family:
		return flowFamily
	}
	return flowChain
}

// began lets what is to be done to run n take its course.
func (s *steerer) began(n int, id string) {
	x := s.drawn(n)
	if x.family {
		s.doing.Go(func() { s.publish(n, x.heard) })
	}
	if x.verb == verbNone {
		return
	}
	s.doing.Go(func() {
		d := deed{verb: x.verb}
		pause(s.c.t, x.after)
		switch x.verb {
		case verbCancel, verbTerminate:
			d.accepted = s.ask(n, id, string(x.verb))
		case verbPause:
			d.accepted = s.ask(n, id, "pause")
			d.from = time.Now()
			pause(s.c.t, x.lasts)
			d.to = time.Now()
			d.resumed = s.ask(n, id, "resume")
		}
		if x.retry && s.failed(n, id) {
			d.retries = s.retry(n, id)
		}
		s.mu.Lock()
		s.deeds[id] = d
		s.mu.Unlock()
	})
}

// publish publishes the event that run n waits for, until an executor has taken it.
func (s *steerer) publish(n int, after time.Duration) {
	pause(s.c.t, after)
	body := fmt.Appendf(nil, `{"event":"told","key":"%d","id":"told-%d"}`, n, n)
	for try := n; s.c.t.Context().Err() == nil; try++ {
		status, text, err := s.c.post(s.c.executors[try%len(s.c.executors)], "/api/v1/events", body)
		if err == nil && status/100 == 2 {
			return
		}
		if err == nil && status/100 == 4 {
			s.c.t.Errorf("the event of run %d is refused: %d %s", n, status, text)
			return
		}
		pause(s.c.t, 50*time.Millisecond)
	}
}

// wait waits until everything was done, and gives how many runs were begun by it.
func (s *steerer) wait() int {
	s.doing.Wait()
	more := 0
	for _, d := range s.deeds {
		more += boolInt(len(d.retries) > 0)
	}
	return more
}

// ask asks the executors in turn until one of them has taken it, or the run has
// ended.
func (s *steerer) ask(n int, id, what string) (accepted bool) {
	for try := n; s.c.t.Context().Err() == nil; try++ {
		p := s.c.executors[try%len(s.c.executors)]
		status, _, err := s.c.post(p, "/api/v1/runs/"+id+"/"+what, []byte(`{"reason":"chaos"}`))
		switch {
		case err == nil && status/100 == 2:
			return true
		case err == nil && (status == http.StatusConflict || status == http.StatusBadRequest):
			if run, err := s.c.run(p, id); err == nil && run.Status.Terminal() {
				return false
			}
		}
		pause(s.c.t, 50*time.Millisecond)
	}
	return false
}

// failed waits for the end of a run, and reports whether it may be retried.
func (s *steerer) failed(n int, id string) bool {
	for try := n; s.c.t.Context().Err() == nil; try++ {
		run, err := s.c.run(s.c.executors[try%len(s.c.executors)], id)
		if err == nil && run.Status.Terminal() {
			return run.Status != parley.RunCompleted
		}
		pause(s.c.t, 200*time.Millisecond)
		if s.c.resting.Load() {
			return false // the judge says that it does not end
		}
	}
	return false
}

// retry retries a run twice under one key, as a caller does that has no answer.
func (s *steerer) retry(n int, id string) (ids []string) {
	body := fmt.Appendf(nil, `{"idempotency_key":"again-%d"}`, n)
	for try := n; len(ids) < 2 && s.c.t.Context().Err() == nil; try++ {
		status, text, err := s.c.post(s.c.executors[try%len(s.c.executors)], "/api/v1/runs/"+id+"/retry", body)
		var run parley.Run
		if err == nil && status/100 == 2 && json.Unmarshal(text, &run) == nil {
			ids = append(ids, run.ID)
			continue
		}
		if err == nil && status/100 == 4 {
			s.c.t.Errorf("the retry of %s is refused: %d %s", id, status, text)
			return ids
		}
		pause(s.c.t, 50*time.Millisecond)
	}
	return ids
}

// post sends a request of the API to one executor.
func (c *cluster) post(p *process, path string, body []byte) (status int, text []byte, err error) {
	return c.do(p, http.MethodPost, path, body)
}

// run reads a run from one executor.
func (c *cluster) run(p *process, id string) (run parley.Run, err error) {
	status, text, err := c.do(p, http.MethodGet, "/api/v1/runs/"+id, nil)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%d: %s", status, text)
	}
	if err == nil {
		err = json.Unmarshal(text, &run)
	}
	return run, err
}

func (c *cluster) do(p *process, method, path string, body []byte) (status int, text []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, p.url()+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+apiKey)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(resp.Body)
	return resp.StatusCode, text, err
}

const (
	// sendWindow is how long after a claim its call may start (protocol.md §4.3).
	sendWindow = 2 * time.Second
	// onTheWay is how long a call may need from there to the agent's log.
	onTheWay = time.Second
)

// delay is a time during which calls may come later than they were sent.
type delay struct{ from, to time.Time }

// excused reports whether what was to come before due may have come at that time.
func (e *evidence) excused(due, at time.Time) bool {
	return slices.ContainsFunc(e.delays, func(d delay) bool {
		return !d.from.After(due) && !at.After(d.to.Add(sendWindow+onTheWay*busyFactor()))
	})
}

// judgeSteered: what was accepted has taken effect, what was not asked for has not.
func judgeSteered(id string, e evidence, report func(string, ...any)) {
	r, d := e.runs[id], e.deeds[id]
	switch {
	case r.parent != "" && r.status == parley.RunCancelled && e.runs[r.parent].status == parley.RunCancelled:
	case r.status == parley.RunCancelled && d.verb != verbCancel && d.verb != verbTerminate:
		report("run %s is CANCELLED, nobody has asked for that", id)
	case d.accepted && (d.verb == verbCancel || d.verb == verbTerminate) && r.status != parley.RunCancelled:
		report("run %s is %s, its %s was accepted", id, r.status, d.verb)
	}
	at := func(t parley.EventType) int {
		return slices.IndexFunc(r.events, func(e parley.Event) bool { return e.Type == t })
	}
	paused, resumed := at(parley.EventRunPaused), at(parley.EventRunResumed)
	if d.verb != verbPause && paused >= 0 {
		report("run %s was paused, nobody has asked for that", id)
	}
	if d.verb == verbPause && (d.accepted && paused < 0 || d.resumed && paused >= 0 && resumed < paused) {
		report("run %s: its pause and resume were accepted (%t, %t), they stand at %d and %d", id, d.accepted, d.resumed, paused, resumed)
	}
}

// judgeRetries: one key makes one run.
func judgeRetries(e evidence, report func(string, ...any)) {
	again := map[string][]string{}
	for id, r := range e.runs {
		if r.retriedFrom != "" {
			again[r.retriedFrom] = append(again[r.retriedFrom], id)
		}
	}
	for from, ids := range again {
		if answered := e.deeds[from].retries; len(ids) != 1 || slices.ContainsFunc(answered, func(id string) bool { return id != ids[0] }) {
			report("run %s was retried by the runs %v, answered were %v", from, ids, answered)
		}
	}
	for id, d := range e.deeds {
		if len(d.retries) > 0 && len(again[id]) == 0 {
			report("the retry of run %s was accepted as %v, which are not there", id, d.retries)
		}
	}
}

// judgeTimes: no call starts after the end of its run (invariant I7), no attempt
// while its run is paused; both but within the send window of an older claim.
func judgeTimes(e evidence, report func(string, ...any)) {
	window := sendWindow + onTheWay*busyFactor()
	for task, times := range e.called {
		run := runOf(task)
		r, d := e.runs[run], e.deeds[run]
		for i, at := range times {
			if due := r.ended.Add(window); !r.ended.IsZero() && at.After(due) && !e.excused(due, at) {
				report("attempt %s: its agent was called %v after the end of the run", task, at.Sub(r.ended))
			}
			due := d.from.Add(window)
			if i == 0 && d.verb == verbPause && d.accepted && at.After(due) && at.Before(d.to) && !e.excused(due, at) {
				report("attempt %s: its agent was called %v after the pause of the run", task, at.Sub(d.from))
			}
		}
	}
}

// TestJudgeSteered plants what must not become of runs that were steered.
func TestJudgeSteered(t *testing.T) {
	t.Parallel()
	event := func(seq int64, t parley.EventType) parley.Event { return parley.Event{Seq: seq, Type: t} }
	now := time.Now()
	run := func(status parley.RunStatus, more ...parley.EventType) runEnd {
		r := runEnd{key: "k1", status: status, replayed: status, ended: now, output: answer, events: []parley.Event{event(1, parley.EventRunStarted)}}
		for _, typ := range append(more, map[parley.RunStatus]parley.EventType{
			parley.RunCompleted: parley.EventRunCompleted, parley.RunCancelled: parley.EventRunCancelled, parley.RunFailed: parley.EventRunFailed,
		}[status]) {
			r.events = append(r.events, event(int64(len(r.events))+1, typ))
		}
		r.seq = int64(len(r.events))
		return r
	}
	completed, cancelled := run(parley.RunCompleted), run(parley.RunCancelled)
	timedOut := run(parley.RunFailed)
	timedOut.code = parley.CodeTimeout
	hurried := timedOut
	hurried.flow = flowHurry
	again, stranger := completed, completed
	again.key, again.retriedFrom, stranger.retriedFrom = "retry:k1", "run-1", "run-1"
	stranger.key = "k9"
	paused := run(parley.RunCompleted, parley.EventRunPaused, parley.EventRunResumed)
	const longWindow = sendWindow + 3*onTheWay
	calls := func(at ...time.Duration) map[string][]time.Time {
		var times []time.Time
		for _, d := range at {
			times = append(times, now.Add(d))
		}
		return map[string][]time.Time{"run-1.a.1": times}
	}
	stopped := []delay{{now, now.Add(20 * time.Second)}}
	pausing := deed{verb: verbPause, accepted: true, resumed: true, from: now.Add(-20 * time.Second), to: now.Add(-10 * time.Second)}
	for _, c := range []struct {
		want   string
		run    runEnd
		deed   deed
		others map[string]runEnd
		called map[string][]time.Time
		delays []delay
	}{
		{run: cancelled, deed: deed{verb: verbCancel, accepted: true}},
		{run: cancelled, deed: deed{verb: verbTerminate}},
		{run: completed, deed: deed{verb: verbTerminate}},
		{run: hurried, deed: deed{verb: verbHurry}},
		{run: cancelled, deed: deed{verb: verbCancel, accepted: true, retries: []string{"run-2", "run-2"}}, others: map[string]runEnd{"run-2": again}},
		{run: paused, deed: pausing, called: calls(-25*time.Second, -12*time.Second)},
		{run: completed, called: calls(time.Second)},
		{run: completed, called: calls(21 * time.Second), delays: stopped},
		{want: "run run-1 is CANCELLED, nobody has asked for that", run: cancelled},
		{want: "run run-1 is COMPLETED, its cancel was accepted", run: completed, deed: deed{verb: verbCancel, accepted: true}},
		{want: "run run-1 is FAILED: timeout", run: timedOut, deed: deed{verb: verbCancel}},
		{want: "run run-1 was paused, nobody has asked for that", run: paused},
		{want: "run run-1: its pause and resume were accepted (true, true), they stand at -1 and -1", run: completed, deed: pausing},
		{
			want: "run run-1 was retried by the runs [run-2], answered were [run-2 run-3]", run: cancelled,
			deed: deed{verb: verbCancel, accepted: true, retries: []string{"run-2", "run-3"}}, others: map[string]runEnd{"run-2": again},
		},
		{
			want: "the retry of run run-1 was accepted as [run-2 run-2], which are not there", run: cancelled,
			deed: deed{verb: verbCancel, accepted: true, retries: []string{"run-2", "run-2"}},
		},
		{want: "attempt run-1.a.1: its agent was called 5s after the end of the run", run: completed, called: calls(longWindow)},
		{want: "attempt run-1.a.1: its agent was called 40s after the end of the run", run: completed, called: calls(40 * time.Second), delays: stopped},
		{want: "attempt run-1.a.1: its agent was called 6s after the pause of the run", run: paused, deed: pausing, called: calls(-14 * time.Second)},
	} {
		e := evidence{
			accepted: map[int][]string{1: {"run-1"}}, runs: map[string]runEnd{"run-1": c.run}, deeds: map[string]deed{"run-1": c.deed},
			called: c.called, delays: c.delays,
		}
		maps.Copy(e.runs, c.others)
		for id, r := range e.runs {
			if r.status == parley.RunFailed {
				e.letters = append(e.letters, letter{kind: parley.DeadLetterTask, run: id})
			}
		}
		wrong := judge(e)
		if c.want == "" && len(wrong) > 0 || c.want != "" && !slices.Contains(wrong, c.want) {
			t.Errorf("%q, want %q", wrong, c.want)
		}
	}
}

// TestSteered: a seed always gives the same, and the daily number has every verb.
func TestSteered(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		draw, again, seen, families := steered(seed, dailyShare), steered(seed, dailyShare), map[verb]int{}, 0
		for n := range dailyRuns {
			if draw(n) != again(n) {
				t.Fatalf("run %d of seed %d: %v and %v", n, seed, draw(n), again(n))
			}
			seen[draw(n).verb]++
			families += boolInt(draw(n).family)
		}
		if len(seen) != 5 || seen[verbNone] < dailyRuns*3/4 || families == 0 {
			t.Errorf("seed %d: %v, %d families", seed, seen, families)
		}
	}
}

// runOf gives the run of a task.
func runOf(task string) string {
	run, _, _ := strings.Cut(task, ".")
	return run
}
