package executor

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// vote answers an approval (rule C9): it is durable, with what follows from it,
// when the call returns. The error has code forbidden for somebody who may not
// answer, invalid for a choice that there is not or data that does not fit, and
// else those of AnswerStep.
func (x *Executor) vote(ctx context.Context, req parley.AnswerRequest) (parley.Run, error) {
	r := &req.Reply
	if n := len(r.Text) + len(r.Data) + len(r.By); n > maxReply {
		return parley.Run{}, parley.Errorf(parley.CodeLimit, "The answer has %d bytes, the limit is %d: pass larger values by reference, such as a URL", n, maxReply)
	}
	if len(r.Data) > 0 && !json.Valid(r.Data) {
		return parley.Run{}, parley.Errorf(parley.CodeInvalid, "The data of the answer is no JSON")
	}
	l := x.lock(req.Run)
	defer x.unlock(req.Run, l)
	for range maxStale {
		err := x.voteOnce(ctx, l, &req)
		if errors.Is(err, store.ErrStale) {
			continue
		}
		if err != nil {
			return parley.Run{}, err
		}
		return x.Get(ctx, req.Run)
	}
	return parley.Run{}, parley.Errorf(parley.CodeConflict, "run %s changes too fast to be answered; try again", req.Run)
}

func (x *Executor) voteOnce(ctx context.Context, l *liveRun, req *parley.AnswerRequest) error {
	if _, err := x.load(ctx, req.Run, l); err != nil {
		return err
	}
	step, err := whoAsks(l.state, req.Step)
	if err != nil {
		return err
	}
	v := workflow.Vote{Step: step, Choice: req.Choice, By: req.Reply.By, Roles: req.Roles, Comment: req.Reply.Text, Data: req.Reply.Data}
	if refused := l.state.MayVote(v); refused != nil {
		return refused
	}
	return x.commit(ctx, l, l.state.Apply(workflow.Voted{At: x.now(), Vote: v, Jitter: x.cfg.Jitter()}), nil)
}

// whoAsks gives the step that an answer to an approval is for.
func whoAsks(s *workflow.State, step string) (string, error) {
	asked := s.Asked()
	switch {
	case step != "" || s.Status().Terminal() || s.Cancelling():
		return step, nil // whether it asks is said by MayVote
	case len(asked) == 0:
		return "", parley.Errorf(parley.CodeConflict, "No step of run %s waits for an approval: it is %s", s.RunID(), s.Status())
	case len(asked) > 1:
		names := make([]string, len(asked))
		for i, q := range asked {
			names[i] = q.Step
		}
		return "", parley.Errorf(parley.CodeConflict, "Several steps of run %s wait for approvals: name one of %s", s.RunID(), strings.Join(names, ", "))
	}
	return asked[0].Step, nil
}

// needsChoice refuses an answer without a choice where an approval is meant.
func needsChoice(s *workflow.State, step string) error {
	asked := s.Asked()
	i := slices.IndexFunc(asked, func(q workflow.Asking) bool { return q.Step == step })
	if step == "" && len(s.Waiting()) == 0 && len(asked) > 0 {
		i = 0
	}
	if i < 0 {
		return nil
	}
	return parley.Errorf(parley.CodeInvalid, "Step %s of run %s waits for an approval: the answer needs a choice, one of %s",
		asked[i].Step, s.RunID(), strings.Join(asked[i].Asked.Choices, ", "))
}
