package workflow

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/parley-project/parley"
)

// telling is what comes for a step that waits, and when.
type telling struct {
	path string
	at   time.Time
	fact Fact
}

// eventsFor are the events of the name that a step waits for, from when it begins to for
// the n-th time: the first may be older than the step, and one of the last two is such
// as any match wants.
func eventsFor(answer func(string, int, string) (time.Duration, parley.Result), path string, attempt int, name string, start, now time.Time) (list []parley.Signal, at []time.Time) {
	for k := 1; k <= 5; k++ {
		took, _ := answer(path, attempt, fmt.Sprint("event ", k))
		now = now.Add(took)
		n := took.Microseconds()
		e := parley.Signal{ID: fmt.Sprint(path, " ", attempt, " ", k), Name: name, Data: fmt.Append(nil, n%5), Time: now}
		switch {
		case k == 1 && n%3 < 2:
			e.Time = start.Add(time.Duration(n%3) * time.Microsecond)
		case k == 4:
			e.Data = json.RawMessage(`9`)
		case k == 5:
			e.Data = json.RawMessage(`{"none":1}`)
		}
		list, at = append(list, e), append(at, now)
	}
	return list, at
}

// votesFor are the answers to an approval that is asked for the n-th time.
func votesFor(answer func(string, int, string) (time.Duration, parley.Result), path string, attempt int, now time.Time) (list []Vote, at []time.Time) {
	for k := range 5 {
		took, _ := answer(path, attempt, fmt.Sprint("vote ", k))
		now = now.Add(2 * took)
		n := took.Microseconds()
		list = append(list, Vote{
			Step: path, By: []string{"ann", "bob", "eve"}[n%3], Choice: []string{"approve", "reject", "none", "approve"}[n/3%4], Data: json.RawMessage(`{"n":1.10}`),
		})
		at = append(at, now)
	}
	return list, at
}

// listens takes notice of who has begun to wait for events and people, and who waits
// no more.
func (p *player) listens(d Decision) {
	p.heard = slices.DeleteFunc(p.heard, func(t telling) bool {
		return slices.Contains(d.Unsubscribe, t.path) || slices.Contains(d.Answered, t.path)
	})
	for _, w := range d.Subscribe {
		events, at := eventsFor(p.answer, w.Step, p.state.execs[w.Step].attempts, w.Name, p.start, p.now)
		for i, e := range events {
			p.heard = append(p.heard, telling{w.Step, at[i], Signalled{At: at[i], Signal: e, Jitter: 0.5}})
		}
	}
	for _, q := range d.Ask {
		attempt := p.state.execs[q.Step].attempts
		if p.asked[q.Step] == attempt {
			continue // more people are asked
		}
		p.asked[q.Step] = attempt
		votes, at := votesFor(p.answer, q.Step, attempt, p.now)
		for i, v := range votes {
			p.heard = append(p.heard, telling{q.Step, at[i], Voted{At: at[i], Vote: v, Jitter: 0.5}})
		}
	}
}

// news tells what comes before anything else does, if that is so; alone is false if
// something else comes at the same time.
func (p *player) news(next time.Time) (told, alone bool) {
	slices.SortStableFunc(p.heard, func(a, b telling) int { return a.at.Compare(b.at) })
	if len(p.heard) == 0 || !next.IsZero() && p.heard[0].at.After(next) {
		return false, true
	}
	first := p.heard[0]
	if first.at.Equal(next) || len(p.heard) > 1 && p.heard[1].at.Equal(first.at) {
		return false, false
	}
	p.now, p.heard = first.at, p.heard[1:]
	p.apply(first.fact)
	return true, true
}

// awaits is a step that waits for an event (rule C8).
func (in *interpreter) awaits(x *lived, m moment) verdict {
	name, err := textOf("event", x.step.Await.Event, in.scope(x.frame, m.now))
	if err != nil {
		return verdict{at: m.now, err: x.because(err)}
	}
	x.attempts++
	events, at := eventsFor(in.answer, x.path, x.attempts, name, in.start, m.now)
	for i, e := range events {
		if x.step.Await.Fresh && !e.Time.After(x.start) {
			continue
		}
		value := written(map[string]any{"id": e.ID, "name": e.Name, "key": "", "data": e.Data, "time": e.Time.Format(time.RFC3339Nano)})
		if x.step.Await.Match != nil {
			scope := in.scope(x.frame, at[i])
			scope.Event = value
			if holds, err := x.step.Await.Match.Eval(scope); err != nil || !holds {
				continue
			}
		}
		return verdict{at: at[i], output: value}
	}
	panic("nothing was to the liking of " + x.path)
}

// asks is an approval (rule C9).
func (in *interpreter) asks(x *lived, m moment) verdict {
	spec := x.step.Approval
	to, err := approversOf(spec.To, in.scope(x.frame, m.now))
	if err != nil {
		return verdict{at: m.now, err: x.because(err)}
	}
	x.attempts++
	decided := func(choice, by string, at time.Time, data json.RawMessage) verdict {
		if choice == choiceReject {
			return verdict{at: at, err: x.because(parley.Errorf(parley.CodeApprovalRejected, "no"))}
		}
		return verdict{at: at, output: written(map[string]any{"decision": choice, "by": by, "at": at.Format(time.RFC3339Nano), "comment": "", "data": orNull(data)})}
	}
	deadline := x.start.Add(x.step.Timeout)
	votes, at := votesFor(in.answer, x.path, x.attempts, m.now)
	said := map[string]string{}
	for i, v := range votes {
		if at[i].After(deadline) {
			break
		}
		who := slices.Clone(to)
		for _, e := range spec.Escalate {
			if more, err := approversOf(e.To, in.scope(x.frame, m.now)); err == nil && !at[i].Before(m.now.Add(e.After)) {
				who = append(who, more...)
			}
		}
		if len(to) > 0 && !slices.Contains(who, v.By) || !slices.Contains(spec.Choices, v.Choice) {
			continue
		}
		said[v.By] = v.Choice
		same := 0
		for _, choice := range said {
			if choice == v.Choice {
				same++
			}
		}
		if v.Choice == choiceReject || same >= spec.Min {
			return decided(v.Choice, v.By, at[i], v.Data)
		}
	}
	if spec.OnTimeout != "" {
		return decided(spec.OnTimeout, timeoutVoter, deadline, nil)
	}
	return verdict{at: deadline.Add(time.Nanosecond)}
}

// emits publishes an event, once for each execution.
func (in *interpreter) emits(x *lived, m moment) verdict {
	v, err := x.step.Emit.Data.Eval(in.scope(x.frame, m.now))
	if err != nil {
		return verdict{at: m.now, err: x.because(err)}
	}
	id := x.path
	if len(id) > 128 {
		sum := sha256.Sum256([]byte(id))
		id = hex.EncodeToString(sum[:])
	}
	id = "run-1." + id
	x.emits = append(x.emits, emitted(id, "ping", v))
	return verdict{at: m.now, output: written(map[string]any{"event_id": id})}
}

// emitted spells out an event, for comparison.
func emitted(id, name string, data json.RawMessage) string {
	return fmt.Sprintf("event %s %s: %s", id, name, text(data))
}
