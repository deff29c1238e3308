package executor

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// maxReply bounds an answer, in bytes of text, data and name.
const maxReply = 1 << 20

// AnswerStep answers the question of an agent that waits for a person: it is
// durable, with the event that says so, when the call returns, and is sent to
// the agent by the bridge that follows the task. With Step empty the one step
// that waits is meant. With a Choice, an approval is answered (rule C9); one that
// is meant without it takes a text that is one of its choices, and data that is
// one or has it as member choice or decision.
//
// The error has code not_found for an unknown run or step, conflict if nothing
// waits (it says what is the case instead) or several steps do (it names them),
// invalid for an answer without text and data or with data that is no JSON,
// and limit for one above 1 MiB.
func (x *Executor) AnswerStep(ctx context.Context, req parley.AnswerRequest) (parley.Run, error) {
	if req.Choice != "" {
		return x.vote(ctx, req)
	}
	if err := checkReply(&req.Reply); err != nil {
		return parley.Run{}, err
	}
	l := x.lock(req.Run)
	defer x.unlock(req.Run, l)
	for range maxStale {
		task, err := x.answerOnce(ctx, l, &req)
		if errors.Is(err, store.ErrStale) {
			continue
		}
		if err != nil {
			return parley.Run{}, err
		}
		if task != "" {
			x.hint(task)
		}
		return x.Get(ctx, req.Run)
	}
	return parley.Run{}, parley.Errorf(parley.CodeConflict, "run %s changes too fast to be answered; try again", req.Run)
}

func checkReply(r *parley.Reply) error {
	switch n := len(r.Text) + len(r.Data) + len(r.By); {
	case r.Text == "" && len(r.Data) == 0:
		return parley.Errorf(parley.CodeInvalid, "An answer needs text or data")
	case n > maxReply:
		return parley.Errorf(parley.CodeLimit, "The answer has %d bytes, the limit is %d: pass larger values by reference, such as a URL", n, maxReply)
	case len(r.Data) > 0 && !json.Valid(r.Data):
		return parley.Errorf(parley.CodeInvalid, "The data of the answer is no JSON")
	}
	return nil
}

// answerOnce brings the run up to date and answers; store.ErrStale says that
// something has changed in between. task is "" if that was an approval.
func (x *Executor) answerOnce(ctx context.Context, l *liveRun, req *parley.AnswerRequest) (task string, err error) {
	h, err := x.load(ctx, req.Run, l)
	if err != nil {
		return "", err
	}
	if err := x.absorb(ctx, l, h); err != nil {
		return "", err
	}
	if q := approvalMeant(l.state, req.Step); q != nil {
		return "", x.castSpelled(ctx, l, q, req)
	}
	task, err = whoWaits(l.state, req.Step)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(h.Attempts, func(a store.Attempt) bool { return a.ID == task })
	d := l.state.Apply(workflow.Replied{At: x.now(), TaskID: task, Reply: req.Reply})
	if i < 0 || len(d.Events) == 0 {
		l.state = nil
		return "", store.ErrStale // it was another attempt that asked
	}
	return task, x.commitWith(ctx, l, d, extra{
		replies: []store.TaskReply{{TaskID: task, Questions: h.Attempts[i].Questions, Reply: req.Reply}},
	})
}

// whoWaits gives the task that an answer to step is for.
func whoWaits(s *workflow.State, step string) (task string, err error) {
	waiting := s.Waiting()
	switch {
	case s.Status().Terminal():
		return "", parley.Errorf(parley.CodeConflict, "Cannot answer run %s: it is %s", s.RunID(), s.Status())
	case s.Cancelling():
		return "", parley.Errorf(parley.CodeConflict, "Cannot answer run %s: it is being cancelled", s.RunID())
	case step != "":
		for _, w := range waiting {
			if w.Step == step {
				return w.TaskID, nil
			}
		}
		state, ok := s.StepState(step)
		if !ok {
			return "", parley.Errorf(parley.CodeNotFound, "run %s has no step %q", s.RunID(), step)
		}
		return "", parley.Errorf(parley.CodeConflict, "Step %s of run %s waits for no answer: it is %s", step, s.RunID(), state)
	case len(waiting) == 0:
		return "", parley.Errorf(parley.CodeConflict, "No step of run %s waits for an answer: it is %s", s.RunID(), s.Status())
	case len(waiting) > 1:
		names := make([]string, len(waiting))
		for i, w := range waiting {
			names[i] = w.Step
		}
		return "", parley.Errorf(parley.CodeConflict, "Several steps of run %s wait for answers: name one of %s", s.RunID(), strings.Join(names, ", "))
	}
	return waiting[0].TaskID, nil
}

// hint tells the bridge that follows a task to look at its row. A lost hint
// costs a second: each bridge reads its rows.
func (x *Executor) hint(task string) {
	x.post(bus.Message{Subject: bus.SubjectHint, Key: task})
}

// hear records what an attempt has asked since the run last looked.
func (x *Executor) hear(ctx context.Context, l *liveRun, a *store.Attempt) error {
	d := l.state.Apply(workflow.Asked{
		At: x.now(), TaskID: a.ID, AgentTaskID: a.AgentTaskID, Question: a.Question, News: a.News,
		Jitter: x.cfg.Jitter(),
	})
	return x.commitWith(ctx, l, d, extra{seen: []store.NewsSeen{{TaskID: a.ID, News: a.News}}})
}

// hasNews reports whether an attempt in flight has asked something, or goes on,
// of which the run has not taken notice.
func hasNews(a *store.Attempt) bool {
	return a.News > a.NewsSeen && (a.State == store.AttemptClaimed || a.State == store.AttemptFollowing)
}
