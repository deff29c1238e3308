package api

import (
	"context"
	"slices"

	"github.com/parley-project/parley"
)

// fakeDeadLetters is the view of dead letters.
type fakeDeadLetters struct{ w *world }

// bury makes the next dead letter: of a task, of a record, or of one that is no
// text.
func (w *world) bury(kind string) {
	at := w.now()
	l := parley.DeadLetter{
		Kind: parley.DeadLetterTask, Code: parley.CodeAgentError, Reason: "HTTP 500: <no>", Attempts: 4, Agent: "A", Workflow: "wf-a",
		Run: "run-1", Step: "s", Task: "run-1.s.4", HTTPStatus: 500, FirstFailedAt: at.Add(-1e9), CreatedAt: at,
		Key: []byte("run-1"), Value: []byte(`{"run_id": "run-1"}`), Headers: []parley.DeadLetterHeader{{Name: "parley-task", Value: []byte("1")}},
	}
	if kind != "task" {
		l = parley.DeadLetter{
			Kind: parley.DeadLetterRecord, Code: parley.CodeInvalid, Reason: "no JSON", Attempts: 1, CreatedAt: at, Key: []byte("k"), Value: []byte("<x"),
			Source:  &parley.DeadLetterSource{Subject: "parley.tasks", Topic: "orchestrator.tasks.http", Partition: 3, Offset: 42, Group: "g"},
			Headers: []parley.DeadLetterHeader{{Name: "Authorization", Value: []byte("Bearer hunter2")}},
		}
	}
	if kind == "bytes" {
		l.Value, l.Key = []byte("\xff\x00"), []byte("\xfe")
	}
	l = l.Seal()
	w.letters = append(w.letters, &l)
}

func (f fakeDeadLetters) find(id string) (*parley.DeadLetter, error) {
	if f.w.broken != nil {
		return nil, f.w.broken
	}
	for _, l := range f.w.letters {
		if l.ID == id {
			return l, nil
		}
	}
	return nil, parley.Errorf(parley.CodeNotFound, "there is no dead letter %q (any more): list them with parley dlq list", id)
}

func (f fakeDeadLetters) List(_ context.Context, q parley.DeadLetterQuery) (items []parley.DeadLetter, total int, err error) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	for _, l := range slices.Backward(f.w.letters) {
		if q.Filter.State != "" && l.State != q.Filter.State || q.Filter.Agent != "" && l.Agent != q.Filter.Agent {
			continue
		}
		head := *l
		head.Key, head.Value, head.Headers = nil, nil, nil
		items = append(items, head)
	}
	total = len(items)
	from := min(q.Page.Offset, total)
	return items[from:min(from+q.Page.Limit, total)], total, f.w.broken
}

func (f fakeDeadLetters) Get(_ context.Context, id string) (parley.DeadLetter, error) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	l, err := f.find(id)
	if err != nil {
		return parley.DeadLetter{}, err
	}
	return *l, nil
}

func (f fakeDeadLetters) Replay(_ context.Context, req parley.ReplayRequest) (parley.DeadLetter, error) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.w.traces = append(f.w.traces, req.Trace)
	l, err := f.find(req.ID)
	if err != nil {
		return parley.DeadLetter{}, err
	}
	if l.State != parley.DeadLetterWaiting && !req.Force {
		return parley.DeadLetter{}, parley.Errorf(parley.CodeConflict, "dead letter %s is %s already", l.ID, l.State)
	}
	f.resolve(l, parley.DeadLetterReplayed, req.By)
	l.Replays++
	if l.Kind == parley.DeadLetterTask {
		l.ReplayRun = "run-2"
	}
	return *l, nil
}

func (f fakeDeadLetters) resolve(l *parley.DeadLetter, s parley.DeadLetterState, by string) {
	at := f.w.now().UTC()
	l.State, l.ResolvedAt, l.ResolvedBy = s, &at, by
}

func (f fakeDeadLetters) ReplayMany(_ context.Context, b parley.ReplayBatch) (parley.ReplayReport, error) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	r := parley.ReplayReport{DryRun: b.DryRun, First: []string{}, Failures: []parley.ReplayFailure{}, Others: []parley.ReplayFailure{}}
	if b.After == "nonsense" {
		return r, parley.Errorf(parley.CodeInvalid, "after: nonsense is not what an answer gave as next")
	}
	for _, l := range f.w.letters {
		if l.State != parley.DeadLetterWaiting || b.Filter.Kind != "" && l.Kind != b.Filter.Kind {
			continue
		}
		r.Matched++
		r.First = append(r.First, l.ID)
		switch {
		case b.DryRun:
		case b.Limit == r.Replayed:
			r.Next = "n.1." + l.ID
		case l.Kind == parley.DeadLetterRecord:
			r.Failed++
			r.Failures = append(r.Failures, parley.ReplayFailure{ID: l.ID, Code: parley.CodeInvalid, Detail: "it would stop peers"})
		default:
			r.Replayed++
			f.resolve(l, parley.DeadLetterReplayed, b.By)
		}
	}
	return r, f.w.broken
}

func (f fakeDeadLetters) Discard(_ context.Context, req parley.DiscardRequest) (parley.DeadLetter, error) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	l, err := f.find(req.ID)
	if err != nil {
		return parley.DeadLetter{}, err
	}
	if l.State == parley.DeadLetterReplayed {
		return parley.DeadLetter{}, parley.Errorf(parley.CodeConflict, "dead letter %s was replayed already; there is nothing to discard", l.ID)
	}
	f.resolve(l, parley.DeadLetterDiscarded, req.By)
	l.Note = req.Note
	return *l, nil
}

func (f fakeDeadLetters) DiscardMany(_ context.Context, req parley.DiscardRequest) (parley.DiscardReport, error) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	r := parley.DiscardReport{DryRun: req.DryRun, First: []string{}}
	for _, l := range f.w.letters {
		if l.State != parley.DeadLetterWaiting || req.Filter.Agent != "" && l.Agent != req.Filter.Agent {
			continue
		}
		r.Matched++
		r.First = append(r.First, l.ID)
		if !req.DryRun {
			r.Discarded++
			f.resolve(l, parley.DeadLetterDiscarded, req.By)
		}
	}
	return r, f.w.broken
}
