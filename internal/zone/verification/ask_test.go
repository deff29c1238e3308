package verification_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/verification"
)

// TestZN7_Answer: a question is answered in its thread, once, and the person sees
// that it was taken. Both ends of the exchange are found in the log by its ids.
func TestZN7_Answer(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		m := r.ask(message("what &lt;b&gt; is up?"))
		pass(time.Second)
		r.want(m, "You asked: what &lt;b&gt; is up?")
		if got := r.slack.Reactions("C0CHAN", m.TS); len(got) != 1 || got[0] != "white_check_mark" {
			t.Errorf("reactions %v", got)
		}
		pass(time.Hour)
		r.want(m, "You asked: what &lt;b&gt; is up?")
		asked, fetched := r.exec.counts()
		if asked != 1 || fetched != 0 {
			t.Errorf("asked %d times, fetched %d times", asked, fetched)
		}
		if r.counter("parley_zone_questions_total", "answered") != 1 {
			t.Error("not counted")
		}
		c := r.exec.asked[0]
		if c.Task.Text != "what <b> is up?" || c.Task.Channel != "C0CHAN" || c.Task.ThreadTS != m.TS || c.Task.TeamID != "T0TEAM" ||
			c.Task.UserID != "U0ASKER" || c.Task.CorrelationID == "" || c.Meta.CorrelationID != c.Task.CorrelationID || c.Meta.IdempotencyKey != c.ID {
			t.Errorf("%+v", c)
		}
		lines := 0
		for line := range strings.Lines(r.log.String()) {
			if strings.Contains(line, c.ID) && strings.Contains(line, c.Task.CorrelationID) && strings.Contains(line, "event_id=Ev"+m.TS) {
				lines++
			}
		}
		if lines < 3 {
			t.Errorf("%d lines tell of it:\n%s", lines, r.log.String())
		}
	})
}

func transport(class zone.Class, after time.Duration) error {
	return &zone.TransportError{Class: class, RetryAfter: after, Err: errors.New("https://inside.example/?key=" + botToken)}
}

// TestZN7_Failures: each documented failure gives its safe text: no code, no name
// of a part, no raw text. What the other zone has certainly not begun with is sent
// again first, and nothing else is.
func TestZN7_Failures(t *testing.T) {
	raw := "raw: " + botToken
	for name, c := range map[string]struct {
		err error
		// text is the beginning of the answer; sent is how often it is sent.
		text  string
		sent  int
		fetch error
	}{
		"parse error":      {err: &zone.Error{Code: -32700, Reason: zone.ReasonParseError, Message: raw}, text: "Something went wrong", sent: 1},
		"invalid request":  {err: &zone.Error{Code: -32600, Reason: zone.ReasonInvalidRequest, Message: raw}, text: "Something went wrong", sent: 1},
		"unknown method":   {err: &zone.Error{Code: -32601, Reason: zone.ReasonUnknownMethod, Message: raw}, text: "Something went wrong", sent: 1},
		"invalid params":   {err: &zone.Error{Code: -32602, Reason: zone.ReasonInvalidParams, Message: raw}, text: "I could not work with that question", sent: 1},
		"id reused":        {err: &zone.Error{Code: -32602, Reason: zone.ReasonIDReused, Message: raw}, text: "Something went wrong", sent: 1},
		"internal":         {err: &zone.Error{Code: -32603, Reason: zone.ReasonInternal, Message: raw}, text: "Something went wrong", sent: 1},
		"timeout":          {err: &zone.Error{Code: -32001, Reason: zone.ReasonTimeout, Message: raw}, text: "This took too long", sent: 1},
		"task failed":      {err: &zone.Error{Code: -32000, Reason: zone.ReasonTaskFailed, Message: raw}, text: "I could not finish this", sent: 1},
		"cancelled":        {err: &zone.Error{Code: -32000, Reason: zone.ReasonCancelled, Message: raw}, text: "This was cancelled", sent: 1},
		"too large":        {err: &zone.Error{Code: -32000, Reason: zone.ReasonTooLarge, Message: raw}, text: "That is more than I can work with", sent: 1},
		"unauthorized":     {err: &zone.Error{Code: -32000, Reason: zone.ReasonUnauthorized, Message: raw}, text: "I cannot be reached", sent: 1},
		"foreign reason":   {err: &zone.Error{Code: 7, Reason: "bedrock_access_denied " + botToken, Message: raw}, text: "Something went wrong", sent: 1},
		"overloaded":       {err: &zone.Error{Code: -32000, Reason: zone.ReasonOverloaded, RetryAfterMS: 100}, text: "There is a lot to do", sent: 8},
		"overloaded long":  {err: &zone.Error{Code: -32000, Reason: zone.ReasonOverloaded, RetryAfterMS: 600_000}, text: "There is a lot to do", sent: 1},
		"overloaded model": {err: &zone.Error{Code: -32000, Reason: zone.ReasonOverloaded, Foreign: "bedrock_throttling"}, text: "There is a lot to do", sent: 1},
		"stopping":         {err: &zone.Error{Code: -32000, Reason: zone.ReasonStopping}, text: "I cannot be reached", sent: 8},
		"not sent":         {err: transport(zone.ClassNotSent, 0), text: "I cannot be reached", sent: 8},
		"throttled":        {err: transport(zone.ClassThrottled, 30*time.Second), text: "There is a lot to do", sent: 4},
		"conflict":         {err: transport(zone.ClassConflict, 0), text: "I cannot be reached", sent: 8},
		"unavailable":      {err: transport(zone.ClassUnavailable, 0), text: "I cannot be reached", sent: 8},
		"auth":             {err: transport(zone.ClassAuth, 0), text: "I cannot be reached", sent: 1},
		"too large to go":  {err: transport(zone.ClassTooLarge, 0), text: "That is more than I can work with", sent: 1},
		"unknown, no poll": {err: transport(zone.ClassUnknownOutcome, 0), text: "I lost track", sent: 1, fetch: &zone.Error{Code: -32601, Reason: zone.ReasonUnknownMethod}},
		"unknown, down":    {err: transport(zone.ClassUnknownOutcome, 0), text: "I lost track", sent: 1, fetch: transport(zone.ClassNotSent, 0)},
		"unknown, unknown": {err: transport(zone.ClassUnknownOutcome, 0), text: "I lost track", sent: 8, fetch: &zone.Error{Code: -32000, Reason: zone.ReasonUnknownTask}},
		"bad response":     {err: transport(zone.ClassBadResponse, 0), text: "I lost track", sent: 1, fetch: &zone.Error{Code: -32601, Reason: zone.ReasonUnknownMethod}},
		"unknown, large":   {err: transport(zone.ClassUnknownOutcome, 0), text: "That is more than I can work with", sent: 1, fetch: &zone.Error{Code: -32000, Reason: zone.ReasonTooLarge}},
		"any error":        {err: errors.New(raw), text: "I lost track", sent: 1, fetch: transport(zone.ClassUnknownOutcome, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				r.exec.ask = func(context.Context, int, zone.Call) (zone.Result, zone.Info, error) {
					return zone.Result{}, zone.Info{}, c.err
				}
				r.exec.fetch = func(context.Context, int, zone.Query, zone.Meta) (zone.AsyncResult, zone.Info, error) {
					return zone.AsyncResult{}, zone.Info{}, c.fetch
				}
				m := r.ask(message("why?"))
				pass(3 * time.Minute)
				r.want(m, c.text+"…*")
				got := r.texts(m)[0]
				for _, bad := range []string{"raw", "xox", "-32", "zone", "transport", "http", "error"} {
					if strings.Contains(strings.ToLower(got), bad) {
						t.Errorf("%q has %q", got, bad)
					}
				}
				if !strings.HasSuffix(got, "(reference: "+r.exec.asked[0].Task.CorrelationID[:8]+")") {
					t.Errorf("no reference: %q", got)
				}
				if asked, _ := r.exec.counts(); asked != c.sent {
					t.Errorf("sent %d times, want %d", asked, c.sent)
				}
				for _, call := range r.exec.asked {
					if call.ID != r.exec.asked[0].ID {
						t.Error("sent again under another id")
					}
				}
				if fault, ok := c.err.(*zone.TransportError); ok && !strings.Contains(r.log.String(), "class="+string(fault.Class)+` reason="" error=`) {
					t.Errorf("the log does not say why:\n%s", r.log.String())
				}
				if took := r.exec.times[len(r.exec.times)-1].Sub(r.exec.times[0]); took > 2*time.Minute {
					t.Errorf("it was tried for %v", took)
				}
				if got := r.slack.Reactions("C0CHAN", m.TS); len(got) != 1 || got[0] != "warning" {
					t.Errorf("reactions %v", got)
				}
			})
		})
	}
}

// TestZN7_Poll: what was accepted is asked for at growing distances, by its task
// and at the same place, until it is there; then the place is given up.
func TestZN7_Poll(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.exec.ask = func(context.Context, int, zone.Call) (zone.Result, zone.Info, error) {
			return zone.Result{Status: zone.StatusAccepted, TaskID: "task-9"}, zone.Info{Affinity: "vm-1"}, nil
		}
		r.exec.fetch = func(_ context.Context, n int, q zone.Query, m zone.Meta) (zone.AsyncResult, zone.Info, error) {
			if q.TaskID != "task-9" || m.Affinity != "vm-1" || q.CorrelationID != m.CorrelationID {
				t.Errorf("%+v %+v", q, m)
			}
			switch n {
			case 3:
				return zone.AsyncResult{}, zone.Info{}, transport(zone.ClassUnknownOutcome, 0)
			case 7:
				a := answered("here it is")
				return zone.AsyncResult{Status: zone.StatusCompleted, Result: &a}, zone.Info{}, nil
			}
			return zone.AsyncResult{Status: zone.StatusRunning}, zone.Info{}, nil
		}
		m := r.ask(message("why?"))
		pass(2 * time.Minute)
		r.want(m, "here it is")
		var gaps []time.Duration
		for i := 1; i < len(r.exec.times); i++ {
			gaps = append(gaps, r.exec.times[i].Sub(r.exec.times[i-1]).Round(100*time.Millisecond))
		}
		want := []time.Duration{2000, 3000, 4500, 6800, 10000, 10000, 10000}
		for i := range want {
			if i >= len(gaps) || gaps[i].Round(200*time.Millisecond) != (want[i]*time.Millisecond).Round(200*time.Millisecond) {
				t.Fatalf("gaps %v", gaps)
			}
		}
		if len(r.exec.released) != 1 || r.exec.released[0] != "vm-1" {
			t.Errorf("released %v", r.exec.released)
		}
	})
}

// TestZN7_PollEnds: what an accepted task can come to.
func TestZN7_PollEnds(t *testing.T) {
	status := func(s zone.Status, reason zone.Reason) zone.AsyncResult {
		a := zone.AsyncResult{Status: s}
		if reason != "" {
			a.Error = &zone.Error{Code: -32000, Reason: reason, Message: botToken}
		}
		return a
	}
	for name, c := range map[string]struct {
		result zone.AsyncResult
		err    error
		text   string
		within time.Duration
	}{
		"failed":            {result: status(zone.StatusFailed, zone.ReasonTaskFailed), text: "I could not finish this", within: 5 * time.Second},
		"failed, no reason": {result: status(zone.StatusFailed, ""), text: "I could not finish this", within: 5 * time.Second},
		"timed out":         {result: status(zone.StatusFailed, zone.ReasonTimeout), text: "This took too long", within: 5 * time.Second},
		"expired":           {result: status(zone.StatusExpired, ""), text: "I lost track", within: 5 * time.Second},
		"forgotten":         {err: &zone.Error{Code: -32000, Reason: zone.ReasonUnknownTask}, text: "I lost track", within: 5 * time.Second},
		"no such method":    {err: &zone.Error{Code: -32601, Reason: zone.ReasonUnknownMethod}, text: "Something went wrong", within: 5 * time.Second},
		"no result":         {result: status(zone.StatusCompleted, ""), text: "Something went wrong", within: 5 * time.Second},
		"nonsense":          {result: status("nonsense", ""), text: "Something went wrong", within: 5 * time.Second},
		"for ever":          {result: status(zone.StatusRunning, ""), text: "This took too long", within: 122 * time.Second},
		"unreachable":       {err: transport(zone.ClassNotSent, time.Second), text: "This took too long", within: 122 * time.Second},
		"overloaded":        {err: &zone.Error{Code: -32000, Reason: zone.ReasonOverloaded}, text: "This took too long", within: 122 * time.Second},
		"too large":         {err: &zone.Error{Code: -32000, Reason: zone.ReasonTooLarge}, text: "That is more than I can work with", within: 5 * time.Second},
		"too large to come": {err: transport(zone.ClassTooLarge, 0), text: "That is more than I can work with", within: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				r.exec.ask = func(context.Context, int, zone.Call) (zone.Result, zone.Info, error) {
					return zone.Result{Status: zone.StatusAccepted, TaskID: "task"}, zone.Info{}, nil
				}
				r.exec.fetch = func(context.Context, int, zone.Query, zone.Meta) (zone.AsyncResult, zone.Info, error) {
					return c.result, zone.Info{}, c.err
				}
				m := r.ask(message("why?"))
				pass(c.within)
				r.want(m, c.text+"…*")
				pass(time.Hour)
				r.want(m, c.text+"…*")
			})
		})
	}
}

// TestZN7_SlowZone: a zone that does not answer costs its own question only, and
// its person hears of it in time.
func TestZN7_SlowZone(t *testing.T) {
	bubble(t, func(cfg *verification.Config) { cfg.Limits.Concurrent = 4 }, func(t *testing.T, r *rig) {
		r.exec.ask = func(ctx context.Context, _ int, c zone.Call) (zone.Result, zone.Info, error) {
			if c.Task.Text == "slow" {
				<-ctx.Done()
				return zone.Result{}, zone.Info{}, transport(zone.ClassUnknownOutcome, 0)
			}
			return answered("quick"), zone.Info{}, nil
		}
		r.exec.fetch = func(context.Context, int, zone.Query, zone.Meta) (zone.AsyncResult, zone.Info, error) {
			return zone.AsyncResult{}, zone.Info{}, &zone.Error{Reason: zone.ReasonUnknownMethod}
		}
		slow := r.ask(message("slow"))
		for range 5 {
			m := r.ask(message("fast"))
			pass(2 * time.Second)
			r.want(m, "quick")
		}
		r.want(slow)
		pass(2 * time.Minute)
		r.want(slow, "I lost track…*")
	})
}

// TestZN7_StoppedAtTheDeadline: a look that is cut since this zone is stopped says nothing
// of the task, though it was the last one: the next start looks again.
func TestZN7_StoppedAtTheDeadline(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.exec.ask = func(_ context.Context, _ int, c zone.Call) (zone.Result, zone.Info, error) {
			return zone.Result{Status: zone.StatusAccepted, TaskID: c.ID}, zone.Info{}, nil
		}
		last := time.Now().Add(118 * time.Second) // the look at the deadline is the first one after it
		late := 0
		r.exec.fetch = func(ctx context.Context, _ int, _ zone.Query, _ zone.Meta) (zone.AsyncResult, zone.Info, error) {
			if time.Now().Before(last) {
				return zone.AsyncResult{Status: zone.StatusRunning}, zone.Info{}, nil
			}
			if late++; late == 1 {
				<-ctx.Done()
				return zone.AsyncResult{}, zone.Info{}, &zone.TransportError{Class: zone.ClassUnknownOutcome, Err: ctx.Err()}
			}
			done := answered("the answer")
			return zone.AsyncResult{Status: zone.StatusCompleted, Result: &done}, zone.Info{}, nil
		}
		m := r.ask(message("why?"))
		pass(2*time.Minute + time.Second)
		r.stop()
		if late != 1 {
			t.Fatalf("%d looks at the deadline", late)
		}
		r.want(m)
		r.make()
		r.start()
		pass(3 * time.Second)
		r.want(m, "the answer")
	})
}

// TestZN7_LargeAnswer: a look whose answer is still coming when its time is over is made
// again with more time; one at which nothing comes is not.
func TestZN7_LargeAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		status int // of the response that has begun; 0 when nothing came
		want   string
	}{
		"large":  {200, "here it is"},
		"silent": {0, "I lost track…*"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				r.exec.ask = func(context.Context, int, zone.Call) (zone.Result, zone.Info, error) {
					return zone.Result{}, zone.Info{}, transport(zone.ClassUnknownOutcome, 0)
				}
				var most time.Duration
				r.exec.fetch = func(ctx context.Context, _ int, _ zone.Query, _ zone.Meta) (zone.AsyncResult, zone.Info, error) {
					began := time.Now()
					select {
					case <-time.After(80 * time.Second):
						done := answered("here it is")
						return zone.AsyncResult{Status: zone.StatusCompleted, Result: &done}, zone.Info{Status: 200}, nil
					case <-ctx.Done():
						most = max(most, time.Since(began))
						return zone.AsyncResult{}, zone.Info{}, &zone.TransportError{Class: zone.ClassUnknownOutcome, Info: zone.Info{Status: c.status}, Err: ctx.Err()}
					}
				}
				m := r.ask(message("why?"))
				pass(10 * time.Minute)
				r.want(m, c.want)
				if most != 10*time.Second {
					t.Errorf("a look that was broken off took %v", most)
				}
			})
		})
	}
}

// TestZN7_Concurrent: no more questions are worked on at once than may be, and a
// zone that is stopped lets those go that nobody has begun with.
func TestZN7_Concurrent(t *testing.T) {
	bubble(t, func(cfg *verification.Config) { cfg.Limits.Concurrent, cfg.Limits.PerMinute = 3, 100 }, func(t *testing.T, r *rig) {
		under, most := 0, 0
		r.exec.ask = func(context.Context, int, zone.Call) (zone.Result, zone.Info, error) {
			r.exec.mu.Lock()
			under++
			most = max(most, under)
			r.exec.mu.Unlock()
			time.Sleep(10 * time.Second)
			r.exec.mu.Lock()
			under--
			r.exec.mu.Unlock()
			return answered("done"), zone.Info{}, nil
		}
		for range 12 {
			r.ask(message("why?"))
		}
		pass(5 * time.Second)
		if asked, _ := r.exec.counts(); asked != 3 {
			t.Errorf("%d at once", asked)
		}
		pass(2 * time.Minute)
		if len(r.slack.Posts()) != 12 || most != 3 {
			t.Errorf("%d answers, %d at once", len(r.slack.Posts()), most)
		}
	})
}

// TestZN7_OddResults: what a zone may say instead of an answer.
func TestZN7_OddResults(t *testing.T) {
	for name, c := range map[string]struct {
		result zone.Result
		want   string
	}{
		"empty":         {zone.Result{Status: zone.StatusSuccess, ResponseText: " \n"}, "I have finished, but there is nothing to show"},
		"error status":  {zone.Result{Status: zone.StatusError, ErrorCode: "bedrock_timeout", ErrorMessage: botToken}, "I could not finish this"},
		"other status":  {zone.Result{Status: "maybe"}, "Something went wrong"},
		"empty file":    {zone.Result{Status: zone.StatusSuccess, FileArtifact: &zone.FileArtifact{}}, "I have finished, but there is nothing to show"},
		"large file":    {zone.Result{Status: zone.StatusSuccess, FileRefused: zone.FileTooLarge}, "That is more than I can work with"},
		"larger file":   {zone.Result{Status: zone.StatusSuccess, FileArtifact: artifact("a", strings.Repeat("x", 10_000_001))}, "That is more than I can work with"},
		"no file":       {zone.Result{Status: zone.StatusSuccess, FileRefused: zone.FileMalformed}, "I have finished, but there is nothing to show"},
		"mentions":      {answered("hello <!channel> and <@U1>"), "hello &lt;!channel&gt; and &lt;@U1&gt;"},
		"broken UTF-8":  {answered("a\xffb"), "a\uFFFDb"},
		"null and more": {answered("a\x00b"), "ab"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				r.exec.ask = func(context.Context, int, zone.Call) (zone.Result, zone.Info, error) {
					return c.result, zone.Info{}, nil
				}
				m := r.ask(message("why?"))
				pass(5 * time.Second)
				r.want(m, c.want+"…*")
			})
		})
	}
}
