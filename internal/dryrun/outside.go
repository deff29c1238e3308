package dryrun

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow"
)

// signalKept is how long an event may be taken, and its id counts as used (rule
// C8).
const signalKept = 24 * time.Hour

// signal is an event that comes from outside.
type signal struct {
	at     time.Duration
	signal parley.Signal
}

// vote is what somebody answers to an approval.
type vote struct {
	after time.Duration
	workflow.Vote
	// refused: the answer is not to be taken.
	refused bool
}

// anybody is who answers if nobody says who.
const anybody = "somebody"

// announce sets the events of the script going.
func (w *world) announce() {
	for _, s := range w.cfg.Test.signals {
		w.in(s.at, func() workflow.Fact {
			e := s.signal
			e.Time = w.now
			w.keep(e)
			return nil
		})
	}
}

// keep takes an event, unless its id was there before, and lets the run hear it.
func (w *world) keep(e parley.Signal) {
	w.kept = slices.DeleteFunc(w.kept, func(k parley.Signal) bool { return w.now.Sub(k.Time) >= signalKept })
	if slices.ContainsFunc(w.kept, func(k parley.Signal) bool { return k.ID == e.ID }) {
		return
	}
	w.kept = append(w.kept, e)
	w.bytes += int64(len(e.Data))
	w.listen()
}

// listen lets the steps that wait have a look at what there is, soon.
func (w *world) listen() {
	if w.listening || len(w.kept) == 0 {
		return
	}
	w.listening = true
	w.in(0, func() workflow.Fact {
		w.listening = false
		w.hear()
		return nil
	})
}

// hear offers the run the events that it waits for, the oldest first.
func (w *world) hear() {
	for _, e := range slices.Clone(w.kept) {
		wanted := func(s workflow.Subscription) bool { return s.Name == e.Name && s.Key == e.Key }
		if w.now.Sub(e.Time) < signalKept && !w.state.Took(e) && slices.ContainsFunc(w.state.Awaited(), wanted) {
			w.apply(workflow.Signalled{At: w.now, Signal: e, Jitter: w.jitter()})
		}
	}
}

// asks sets going what is answered to approvals that were opened.
func (w *world) asks(d workflow.Decision) {
	for _, q := range d.Ask {
		opened := func(e parley.Event) bool { return e.Type == parley.EventStepScheduled && e.Step == q.Step }
		if !slices.ContainsFunc(d.Events, opened) {
			continue // somebody has answered, or more people may
		}
		w.asked[q.Step]++
		round := w.asked[q.Step]
		for _, v := range w.votes(q.Step) {
			w.in(v.after, func() workflow.Fact {
				if w.asked[q.Step] != round {
					return nil
				}
				return w.vote(q.Step, v)
			})
		}
	}
}

// votes gives the answers to an approval: those of its path, or of its step
// wherever it runs.
func (w *world) votes(path string) []vote {
	if list, ok := w.cfg.Test.votes[path]; ok {
		return list
	}
	best := ""
	for name := range w.cfg.Test.votes {
		if len(name) > len(best) && leadsTo(path, name) {
			best = name
		}
	}
	return w.cfg.Test.votes[best]
}

// leadsTo reports whether a path is that of an execution of a step.
func leadsTo(path, id string) bool {
	if n := strings.LastIndexAny(path, "#/"); n > 0 && path[n] == '#' {
		path = path[:n]
	}
	return path == id || strings.HasSuffix(path, "/"+id)
}

// strangers refuses answers to approvals that the workflow does not have.
func strangers(def *workflow.Definition, t Test) error {
	var approvals []string
	for id, s := range def.Steps {
		if s.Kind == workflow.KindApproval {
			approvals = append(approvals, id)
		}
	}
	slices.Sort(approvals)
	for _, path := range slices.Sorted(maps.Keys(t.votes)) {
		if slices.ContainsFunc(approvals, func(id string) bool { return leadsTo(path, id) }) {
			continue
		}
		if len(approvals) == 0 {
			return parley.Errorf(parley.CodeInvalid, "The script: the workflow has no approval %q, and no other", path)
		}
		return parley.Errorf(parley.CodeInvalid, "The script: the workflow has no approval %q; it has %s", path, strings.Join(approvals[:min(len(approvals), 20)], ", "))
	}
	return nil
}

// vote answers an approval that is still open.
func (w *world) vote(path string, v vote) workflow.Fact {
	open := w.state.Asked()
	i := slices.IndexFunc(open, func(q workflow.Asking) bool { return q.Step == path })
	if i < 0 {
		return nil
	}
	v.Step = path
	if v.By == "" {
		if v.By = anybody; v.Roles == nil {
			v.Roles = open[i].Asked.To
		}
	}
	switch refused := w.state.MayVote(v.Vote); {
	case refused != nil && !v.refused:
		w.broken = parley.Errorf(parley.CodeInvalid, "The script: the answer of %q to approval %s is refused: %s", v.By, path, refused.Message)
		return nil
	case refused != nil:
		return nil
	case v.refused:
		w.broken = parley.Errorf(parley.CodeInvalid, "The script: the answer of %q to approval %s is not refused", v.By, path)
		return nil
	}
	return workflow.Voted{At: w.now, Vote: v.Vote, Jitter: w.jitter()}
}
