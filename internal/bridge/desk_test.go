package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// desk is an agent with long tasks, and the adapter that speaks to it: it works
// for a while, tells how far it is, may ask a question, and can be asked what it
// knows. It keeps the log by which "never twice" is judged.
type desk struct {
	// works is how long a task takes, asks whether it asks a question halfway.
	works time.Duration
	asks  bool
	// loses: the answer to a call gets lost on its way back; hangs: there is none until
	// the call is cut.
	loses, hangs bool
	// forgetful agents have no look-up; mute ones no streams.
	forgetful, mute bool

	mu         sync.Mutex
	executions map[string]int
	tasks      map[string]*deskTask
	replies    []bridge.TaskReply
	polls      map[string][]time.Time
	streams    int
	finds      int
	// onCall, onAnswer, onFind and onPoll replace what the agent does, if set.
	onCall   func(task parley.Task) bridge.Outcome
	onAnswer func(r bridge.TaskReply) (bridge.Outcome, bool)
	onFind   func(n int) (bridge.Outcome, bool)
	onPoll   func(n int) (bridge.Outcome, bool)
}

// deskTask is one task of a desk.
type deskTask struct {
	begun    time.Time
	answered map[int]time.Time
	stopped  bool
}

func newDesk() *desk {
	return &desk{works: 4 * time.Second, executions: map[string]int{}, tasks: map[string]*deskTask{}, polls: map[string][]time.Time{}}
}

func (d *desk) Protocol() string { return parley.ProtocolJSONRPC }

func (d *desk) Call(ctx context.Context, task parley.Task, _ parley.Agent, _ bridge.Progress) (bridge.Outcome, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.executions[task.ID]++
	d.tasks[task.ID] = &deskTask{begun: time.Now(), answered: map[int]time.Time{}}
	if d.hangs {
		d.mu.Unlock()
		<-ctx.Done()
		d.mu.Lock()
	}
	if d.loses {
		return lost(), nil
	}
	if d.onCall != nil {
		return d.onCall(task), nil
	}
	return d.stateLocked(task), nil
}

// stateLocked is what the agent says about a task of its own.
func (d *desk) stateLocked(task parley.Task) bridge.Outcome {
	k := d.tasks[task.ID]
	at := k.begun
	if d.asks {
		first, ok := k.answered[1]
		switch {
		case time.Since(k.begun) < d.works/2:
			return accepted(task, "working")
		case !ok:
			return asks(task, "which year?")
		}
		at = first.Add(-d.works / 2)
	}
	switch {
	case k.stopped:
		return bridge.Outcome{Disposition: bridge.Answered, Result: parley.Result{TaskID: task.ID, Outcome: parley.OutcomeCancelled}}
	case time.Since(at) < d.works:
		return accepted(task, fmt.Sprintf("working %d", time.Since(at)/time.Second))
	}
	return answered(task, `"done"`)
}

func (d *desk) Poll(_ context.Context, task parley.Task, _ parley.Agent, at bridge.AgentTask) (bridge.Outcome, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.polls[task.ID] = append(d.polls[task.ID], time.Now())
	if d.onPoll != nil {
		if out, ok := d.onPoll(len(d.polls[task.ID])); ok {
			return out, nil
		}
	}
	if d.tasks[task.ID] == nil || at.ID != "agent-"+task.ID {
		return failed(bridge.Lost, parley.CodeNotFound, "no such task"), nil
	}
	return d.stateLocked(task), nil
}

func (d *desk) Cancel(_ context.Context, task parley.Task, _ parley.Agent, _ bridge.AgentTask) (bridge.Outcome, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tasks[task.ID] == nil {
		return failed(bridge.NotSent, parley.CodeNotFound, "no such task"), nil
	}
	d.tasks[task.ID].stopped = true
	return bridge.Outcome{Disposition: bridge.Answered, Result: parley.Result{TaskID: task.ID, Outcome: parley.OutcomeCancelled}}, nil
}

func (d *desk) Find(_ context.Context, task parley.Task, _ parley.Agent) (bridge.Outcome, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.finds++
	if d.onFind != nil {
		if out, ok := d.onFind(d.finds); ok {
			return out, nil
		}
	}
	switch {
	case d.forgetful:
		return failed(bridge.NotSent, parley.CodeOutcomeUnknown, "no list of tasks"), nil
	case d.tasks[task.ID] == nil:
		return failed(bridge.NotSent, parley.CodeNotFound, "no such message"), nil
	}
	return d.stateLocked(task), nil
}

func (d *desk) Answer(_ context.Context, task parley.Task, _ parley.Agent, r bridge.TaskReply) (bridge.Outcome, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.replies = append(d.replies, r)
	if d.onAnswer != nil {
		if out, ok := d.onAnswer(r); ok {
			return out, nil
		}
	}
	d.takeLocked(task, r)
	return d.stateLocked(task), nil
}

// takeLocked makes the agent go on with an answer, once.
func (d *desk) takeLocked(task parley.Task, r bridge.TaskReply) {
	if _, ok := d.tasks[task.ID].answered[1]; !ok {
		d.tasks[task.ID].answered[1] = time.Now()
	}
	_ = r
}

func (d *desk) Subscribe(_ context.Context, task parley.Task, _ parley.Agent, _ bridge.AgentTask) (bridge.Outcome, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mute {
		return accepted(task, ""), nil
	}
	d.streams++
	out := d.stateLocked(task)
	if out.Disposition == bridge.Accepted && out.Question == nil {
		out.Stream = &deskStream{d: d, task: task, closed: make(chan struct{})}
	}
	return out, nil
}

// deskStream tells a chunk each half second.
type deskStream struct {
	d      *desk
	task   parley.Task
	once   sync.Once
	closed chan struct{}
}

func (s *deskStream) Close() { s.once.Do(func() { close(s.closed) }) }

func (s *deskStream) Listen(ctx context.Context, progress bridge.Progress) bridge.Outcome {
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return failed(bridge.Lost, parley.CodeCancelled, "given up")
		case <-s.closed:
			return failed(bridge.Lost, parley.CodeCancelled, "closed")
		case <-time.After(500 * time.Millisecond):
		}
		s.d.mu.Lock()
		out := s.d.stateLocked(s.task)
		s.d.mu.Unlock()
		if out.Disposition == bridge.Answered || out.Question != nil {
			return out
		}
		progress(bridge.Report{State: "working", Chunk: &bridge.Chunk{Artifact: "a", Text: fmt.Sprint(n, " "), Append: n > 0}})
	}
}

// executed is how often the agent began with the task.
func (d *desk) executed(task string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.executions[task]
}

// numbers gives the numbers of the answers that the agent got.
func (d *desk) numbers() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	var ns []int
	for _, r := range d.replies {
		ns = append(ns, r.Number)
	}
	return ns
}

func (d *desk) pollsOf(task string) []time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.polls[task])
}

// staff starts a bridge whose long tasks are the desk's.
func (r *rig) staff(name string, d *desk, adjust func(*bridge.Config, *process)) *process {
	return r.start(name, func(cfg *bridge.Config, p *process) {
		cfg.Adapters = []bridge.Adapter{r.agent, d}
		if adjust != nil {
			adjust(cfg, p)
		}
	})
}

// progressOf collects the records of progress of all tasks.
func (r *rig) progressOf() func() []map[string]any {
	var mu sync.Mutex
	var got []map[string]any
	r.subscribe(func(v []byte) {
		var m map[string]any
		if err := json.Unmarshal(v, &m); err != nil {
			r.t.Errorf("progress: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		got = append(got, m)
	})
	return func() []map[string]any {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(got)
	}
}

// streamingDesk is a desk that tells by streams from the first request on, also when
// it begins with a question. It knows which of them are open.
type streamingDesk struct {
	*desk
	opened []*deskStream
}

func (s *streamingDesk) streamed(task parley.Task, out bridge.Outcome) bridge.Outcome {
	one := &deskStream{d: s.desk, task: task, closed: make(chan struct{})}
	s.opened = append(s.opened, one)
	out.Stream = one
	return out
}

func (s *streamingDesk) Call(ctx context.Context, task parley.Task, agent parley.Agent, p bridge.Progress) (bridge.Outcome, error) {
	out, err := s.desk.Call(ctx, task, agent, p)
	return s.streamed(task, out), err
}

func (s *streamingDesk) Answer(ctx context.Context, task parley.Task, agent parley.Agent, r bridge.TaskReply) (bridge.Outcome, error) {
	out, err := s.desk.Answer(ctx, task, agent, r)
	return s.streamed(task, out), err
}

// open is how many streams nobody has closed.
func (s *streamingDesk) open() (n int) {
	for _, one := range s.opened {
		select {
		case <-one.closed:
		default:
			n++
		}
	}
	return n
}
