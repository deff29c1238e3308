package main

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-project/parley"
)

// worldDeadLetters is a world's keeper of dead letters: a task, a record that is
// no text, and one that cannot be replayed.
type worldDeadLetters struct {
	mu      sync.Mutex
	letters []*parley.DeadLetter
}

func newWorldDeadLetters() *worldDeadLetters {
	w := &worldDeadLetters{}
	for i, l := range []parley.DeadLetter{
		{
			Kind: parley.DeadLetterTask, Code: parley.CodeAgentUnavailable, Reason: "HTTP 503: try\nlater", Attempts: 4, Agent: "greeter", Workflow: "hello",
			Run: "run-7", Step: "greet", Task: "run-7.greet.4", HTTPStatus: 503, Key: []byte("run-7"), Value: []byte(`{"run_id": "run-7", "input_data": {}}`),
			Headers: []parley.DeadLetterHeader{{Name: "parley-task", Value: []byte("1")}},
		},
		{
			Kind: parley.DeadLetterRecord, Code: parley.CodeInvalid, Reason: "AgentTask: no JSON", Attempts: 1, Value: []byte("\xff\x00"),
			Source: &parley.DeadLetterSource{Subject: "parley.tasks", Topic: "orchestrator.tasks.http", Partition: 3, Offset: 42, Group: "g"},
		},
		{
			Kind: parley.DeadLetterTask, Code: parley.CodeAgentError, Reason: "no", Attempts: 1, Agent: "polisher", Workflow: "hello",
			Run: "run-8", Step: "polish", Task: "run-8.polish.1",
		},
	} {
		l.CreatedAt = epoch().Add(time.Duration(i) * time.Second)
		l = l.Seal()
		w.letters = append(w.letters, &l)
	}
	return w
}

func (w *worldDeadLetters) find(id string) (*parley.DeadLetter, error) {
	i := slices.IndexFunc(w.letters, func(l *parley.DeadLetter) bool { return l.ID == id })
	if i < 0 {
		return nil, missing("dead letter", id)
	}
	return w.letters[i], nil
}

func selected(l *parley.DeadLetter, f parley.DeadLetterFilter) bool {
	return (f.State == "" || f.State == l.State) && (f.Kind == "" || f.Kind == l.Kind) && (f.Agent == "" || f.Agent == l.Agent) &&
		(f.Code == "" || f.Code == l.Code) && strings.Contains(strings.ToLower(l.Reason), strings.ToLower(f.Reason)) &&
		(f.CreatedAfter.IsZero() || l.CreatedAt.After(f.CreatedAfter)) && (f.CreatedBefore.IsZero() || l.CreatedAt.Before(f.CreatedBefore))
}

func (w *worldDeadLetters) List(_ context.Context, q parley.DeadLetterQuery) (list []parley.DeadLetter, total int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range slices.Backward(w.letters) {
		if selected(l, q.Filter) {
			head := *l
			head.Key, head.Headers, head.Value = nil, nil, nil
			list = append(list, head)
		}
	}
	return window(list, q.Page), len(list), nil
}

func (w *worldDeadLetters) Get(_ context.Context, id string) (parley.DeadLetter, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l, err := w.find(id)
	if err != nil {
		return parley.DeadLetter{}, err
	}
	return *l, nil
}

func (w *worldDeadLetters) resolve(l *parley.DeadLetter, s parley.DeadLetterState, by string) {
	at := epoch().Add(time.Minute)
	l.State, l.ResolvedAt, l.ResolvedBy = s, &at, by
}

func (w *worldDeadLetters) Replay(_ context.Context, req parley.ReplayRequest) (parley.DeadLetter, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l, err := w.find(req.ID)
	if err != nil {
		return parley.DeadLetter{}, err
	}
	if l.State != parley.DeadLetterWaiting && !req.Force {
		return parley.DeadLetter{}, parley.Errorf(parley.CodeConflict, "dead letter %s is %s already", l.ID, l.State)
	}
	w.resolve(l, parley.DeadLetterReplayed, req.By)
	if l.Replays++; l.Run != "" {
		l.ReplayRun = l.Run + "0"
		if id := req.Trace.ID(); id != "" {
			l.ReplayRun += "-of-" + id
		}
	}
	return *l, nil
}

// ReplayMany replays one at a time, so that there are several batches.
func (w *worldDeadLetters) ReplayMany(_ context.Context, b parley.ReplayBatch) (parley.ReplayReport, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := parley.ReplayReport{DryRun: b.DryRun, First: []string{}, Failures: []parley.ReplayFailure{}}
	for _, l := range w.letters {
		if l.State != parley.DeadLetterWaiting || !selected(l, b.Filter) {
			continue
		}
		r.Matched++
		r.First = append(r.First, l.ID)
	}
	after := slices.IndexFunc(w.letters, func(l *parley.DeadLetter) bool { return l.ID == b.After })
	for _, l := range w.letters[after+1:] {
		switch {
		case b.DryRun || l.State != parley.DeadLetterWaiting || !selected(l, b.Filter):
		case r.Replayed+r.Failed > 0:
			r.Next = w.letters[slices.Index(w.letters, l)-1].ID
			return r, nil
		case l.Kind == parley.DeadLetterRecord:
			r.Failed++
			r.Failures = append(r.Failures, parley.ReplayFailure{ID: l.ID, Code: parley.CodeInvalid, Detail: "it would stop peers"})
		default:
			r.Replayed++
			w.resolve(l, parley.DeadLetterReplayed, b.By)
		}
	}
	return r, nil
}

func (w *worldDeadLetters) Discard(_ context.Context, req parley.DiscardRequest) (parley.DeadLetter, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l, err := w.find(req.ID)
	if err != nil {
		return parley.DeadLetter{}, err
	}
	w.resolve(l, parley.DeadLetterDiscarded, req.By)
	l.Note = req.Note
	return *l, nil
}

func (w *worldDeadLetters) DiscardMany(_ context.Context, req parley.DiscardRequest) (parley.DiscardReport, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := parley.DiscardReport{DryRun: req.DryRun, First: []string{}}
	for _, l := range w.letters {
		if l.State != parley.DeadLetterWaiting || !selected(l, req.Filter) {
			continue
		}
		r.Matched++
		r.First = append(r.First, l.ID)
		if !req.DryRun {
			r.Discarded++
			w.resolve(l, parley.DeadLetterDiscarded, req.By)
		}
	}
	return r, nil
}
