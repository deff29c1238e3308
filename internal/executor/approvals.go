package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

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
	return x.cast(ctx, l, req)
}

// cast answers an approval of a run that was loaded.
func (x *Executor) cast(ctx context.Context, l *liveRun, req *parley.AnswerRequest) error {
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

// approvalMeant gives the approval that an answer without a choice is for, nil if
// it is for an agent's question.
func approvalMeant(s *workflow.State, step string) *workflow.Asking {
	asked := s.Asked()
	i := slices.IndexFunc(asked, func(q workflow.Asking) bool { return q.Step == step })
	if step == "" && len(s.Waiting()) == 0 && len(asked) > 0 {
		i = 0
	}
	if i < 0 {
		return nil
	}
	return &asked[i]
}

// castSpelled answers an approval whose choice stands in the text or the data of
// the answer, and refuses all else.
func (x *Executor) castSpelled(ctx context.Context, l *liveRun, q *workflow.Asking, req *parley.AnswerRequest) error {
	choices := q.Asked.Choices
	spelled := *req
	if !spell(choices, &spelled) {
		return parley.Errorf(parley.CodeInvalid, "Step %s of run %s waits for an approval: the answer needs a choice, one of %s: "+
			`as choice, as the text alone, or as data, "%[4]s" or {"choice": "%[4]s", "comment": …}`,
			q.Step, l.state.RunID(), strings.Join(choices, ", "), choices[0])
	}
	return x.cast(ctx, l, &spelled)
}

// spell makes the choice of an answer of its text or its data, and reports
// whether one of them, and only one, names a choice. A text does that alone, and
// leaves the data to the form. Data may be the choice, or an object with the
// member choice or decision; then comment is the comment, and what is left is
// for the form.
func spell(choices []string, req *parley.AnswerRequest) bool {
	choice, reply, inData := spelledInData(choices, req.Reply)
	inText := slices.Contains(choices, req.Reply.Text)
	switch {
	case inText && !inData:
		choice, reply = req.Reply.Text, req.Reply
		reply.Text = ""
	case !inData || req.Reply.Text != "":
		return false
	}
	req.Choice, req.Reply = choice, reply
	return true
}

func spelledInData(choices []string, r parley.Reply) (choice string, reply parley.Reply, ok bool) {
	reply = parley.Reply{By: r.By}
	if json.Unmarshal(r.Data, &choice) == nil {
		return choice, reply, slices.Contains(choices, choice)
	}
	d := jsontext.NewDecoder(bytes.NewReader(r.Data))
	if d.PeekKind() != '{' {
		return "", reply, false
	}
	_, _ = d.ReadToken()
	var rest bytes.Buffer
	named := 0
	for d.PeekKind() != '}' {
		// A member that is there twice is an error of the decoder: which one was
		// meant cannot be told.
		name, err := d.ReadToken()
		if err != nil {
			return "", reply, false
		}
		member := name.String()
		value, err := d.ReadValue()
		if err != nil {
			return "", reply, false
		}
		to := &choice
		switch member {
		case "choice", "decision":
			named++
		case "comment":
			to = &reply.Text
		default:
			key, _ := jsontext.AppendQuote(nil, member)
			rest.Write(append(append([]byte{"{,"[min(rest.Len(), 1)]}, key...), ':'))
			rest.Write(value)
			continue
		}
		if json.Unmarshal(value, to) != nil {
			return "", reply, false
		}
	}
	if rest.Len() > 0 {
		reply.Data = append(rest.Bytes(), '}')
	}
	return choice, reply, named == 1 && slices.Contains(choices, choice)
}
