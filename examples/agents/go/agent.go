package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	maxTasks   = 1000             // tasks that are remembered; the oldest ended one goes first
	maxSeconds = 600.0            // of one long task
	steps      = 4                // of a long task
	ping       = 15 * time.Second // of silence, after which a stream sends a comment
)

// The states of a task, as 0.3 spells them.
const (
	working       = "working"
	inputRequired = "input-required"
	completed     = "completed"
	failed        = "failed"
	canceled      = "canceled"
)

func ended(state string) bool { return state == completed || state == failed || state == canceled }

// resting: nothing happens before a client does something.
func resting(state string) bool { return ended(state) || state == inputRequired }

// part is a text, or, if data is set, a JSON value.
type part struct {
	text string
	data json.RawMessage
}

type message struct {
	id, role          string
	taskID, contextID string
	parts             []part
}

func (m message) text() string {
	var texts []string
	for _, p := range m.parts {
		if p.data == nil {
			texts = append(texts, p.text)
		}
	}
	return strings.Join(texts, "\n")
}

type status struct {
	state   string
	message *message
	at      time.Time
}

// event is a new status, or parts of the result.
type event struct {
	status       *status
	parts        []part
	append, last bool
}

// Task is one task. Everything in it belongs to the agent's mutex; history,
// result and events only grow.
type Task struct {
	id, contextID string
	status        status
	result        []part
	history       []message
	events        []event
	changed       chan struct{} // closed at the next event
	stop          context.CancelFunc
}

// Agent holds all tasks. Its methods want mu to be held, but for those that
// say otherwise.
type Agent struct {
	mu        sync.Mutex
	tasks     []*Task // oldest first
	byID      map[string]*Task
	byMessage map[string]*Task // the task that a messageId led to

	ctx  context.Context //nolint:containedctx // the agent's own life
	end  context.CancelFunc
	work sync.WaitGroup
}

func newAgent() *Agent {
	a := &Agent{byID: make(map[string]*Task), byMessage: make(map[string]*Task)}
	a.ctx, a.end = context.WithCancel(context.Background())
	return a
}

// close stops what is under way and waits for it. It takes mu itself.
func (a *Agent) close() {
	a.end()
	a.work.Wait()
}

// send gives the task that m leads to.
func (a *Agent) send(m message) (*Task, error) {
	// The same messageId again: the client's connection broke before it had our
	// answer, and it cannot know whether the message arrived. It must get the
	// task that the message led to, else the work would be done twice. An agent
	// that survives restarts keeps this index in its database, with the task.
	if t, ok := a.byMessage[m.id]; ok {
		return t, nil
	}
	next := a.begin
	if m.taskID != "" {
		next = a.answer
	}
	t, err := next(m)
	if err == nil {
		a.byMessage[m.id] = t
	}
	return t, err
}

// begin starts a task. This is where an agent of your own decides what to do.
func (a *Agent) begin(m message) (*Task, error) {
	word, rest, _ := strings.Cut(m.text(), " ")
	seconds, err := 0.0, error(nil)
	if word == "long" {
		seconds, err = readSeconds(rest)
	}
	if err = cmp.Or(err, a.makeRoom()); err != nil {
		return nil, err
	}
	t := &Task{id: rand.Text(), contextID: cmp.Or(m.contextID, rand.Text()), changed: make(chan struct{})}
	a.tasks, a.byID[t.id] = append(a.tasks, t), t
	t.remember(m)
	switch word {
	case "long":
		t.update(working, fmt.Sprintf("0 of %d parts are done", steps))
		ctx, stop := context.WithCancel(a.ctx)
		t.stop = stop
		a.work.Go(func() { a.long(ctx, t, time.Duration(seconds*float64(time.Second))) })
	case "ask":
		t.update(inputRequired, "Which colour?")
	case "fail":
		t.update(failed, "You asked me to fail.")
	default:
		said := part{text: m.text()}
		if word == "echo" {
			said.text = rest
		}
		data := slices.DeleteFunc(slices.Clone(m.parts), func(p part) bool { return p.data == nil })
		if m.text() != "" {
			data = slices.Insert(data, 0, said)
		}
		t.add(data, true)
		t.update(completed, "")
	}
	return t, nil
}

// answer goes on with a task that waits for an answer.
func (a *Agent) answer(m message) (*Task, error) {
	t, err := a.get(m.taskID)
	switch {
	case err != nil:
		return nil, err
	case m.contextID != "" && m.contextID != t.contextID:
		return nil, faultf(codeInvalidParams, "the task belongs to another contextId")
	case t.status.state != inputRequired:
		return nil, faultf(codeUnsupported, "the task is %s and takes no message", t.status.state)
	}
	t.history = append(t.history, *t.status.message) // the question
	t.remember(m)
	t.add([]part{{text: "You chose " + m.text() + "."}}, true)
	t.update(completed, "")
	return t, nil
}

// long works on t: a part of the result now and then, until it is done or
// cancelled. It takes mu itself.
func (a *Agent) long(ctx context.Context, t *Task, takes time.Duration) {
	for i := 1; i <= steps; i++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(takes / steps):
		}
		a.mu.Lock()
		if t.status.state == working { // else it was cancelled this moment
			t.add([]part{{text: fmt.Sprintf("part %d", i)}}, i == steps)
			if i < steps {
				t.update(working, fmt.Sprintf("%d of %d parts are done", i, steps))
			} else {
				t.update(completed, "")
			}
		}
		a.mu.Unlock()
	}
}

func (a *Agent) get(id string) (*Task, error) {
	if t, ok := a.byID[id]; ok {
		return t, nil
	}
	return nil, faultf(codeTaskNotFound, "there is no such task")
}

func (a *Agent) cancel(id string) (*Task, error) {
	t, err := a.get(id)
	switch {
	case err != nil:
		return nil, err
	case t.status.state == canceled:
		return t, nil
	case ended(t.status.state):
		return nil, faultf(codeNotCancelable, "the task is %s", t.status.state)
	}
	if t.stop != nil {
		t.stop()
	}
	t.update(canceled, "")
	return t, nil
}

// newest gives the tasks that fit, the one that changed last first.
func (a *Agent) newest(contextID, state string, since time.Time) []*Task {
	var fit []*Task
	for _, t := range a.tasks {
		if (contextID == "" || contextID == t.contextID) && (state == "" || state == t.status.state) && !t.status.at.Before(since) {
			fit = append(fit, t)
		}
	}
	slices.SortStableFunc(fit, func(s, t *Task) int { return t.status.at.Compare(s.status.at) })
	return fit
}

// makeRoom forgets the oldest task that has ended, if there are too many.
func (a *Agent) makeRoom() error {
	if len(a.tasks) < maxTasks {
		return nil
	}
	i := slices.IndexFunc(a.tasks, func(t *Task) bool { return ended(t.status.state) })
	if i < 0 {
		return &fault{codeInternal, "too many tasks are under way; try again later", 503}
	}
	for _, m := range a.tasks[i].history {
		delete(a.byMessage, m.id)
	}
	delete(a.byID, a.tasks[i].id)
	a.tasks = slices.Delete(a.tasks, i, i+1)
	return nil
}

// wait returns when t rests, or ctx has ended. It takes mu itself.
func (a *Agent) wait(ctx context.Context, t *Task) {
	for {
		a.mu.Lock()
		rests, changed := resting(t.status.state), t.changed
		a.mu.Unlock()
		if rests {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// follow gives the events of t after the first seen ones, until t rests or ctx
// ends, and an empty event in times of silence. It takes mu itself.
func (a *Agent) follow(ctx context.Context, t *Task, seen int) iter.Seq[event] {
	return func(yield func(event) bool) {
		for {
			a.mu.Lock()
			news, changed := slices.Clone(t.events[seen:]), t.changed
			a.mu.Unlock()
			seen += len(news)
			for _, e := range news {
				if !yield(e) || e.status != nil && resting(e.status.state) {
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-changed:
			case <-time.After(ping):
				if !yield(event{}) {
					return
				}
			}
		}
	}
}

func (t *Task) remember(m message) {
	m.taskID, m.contextID = t.id, t.contextID
	t.history = append(t.history, m)
}

// update gives t a new status; text is what the agent says about it.
func (t *Task) update(state, text string) {
	t.status = status{state: state, at: time.Now().UTC()}
	if text != "" {
		t.status.message = &message{id: rand.Text(), role: "agent", taskID: t.id, contextID: t.contextID, parts: []part{{text: text}}}
	}
	s := t.status
	t.tell(event{status: &s})
}

// add adds parts to the result.
func (t *Task) add(parts []part, last bool) {
	more := len(t.result) > 0
	t.result = append(t.result, parts...)
	t.tell(event{parts: parts, append: more, last: last})
}

func (t *Task) tell(e event) {
	t.events = append(t.events, e)
	close(t.changed)
	t.changed = make(chan struct{})
}

func readSeconds(text string) (float64, error) {
	seconds, err := strconv.ParseFloat(cmp.Or(text, "3"), 64)
	if err != nil || !(seconds >= 0 && seconds <= maxSeconds) {
		return 0, faultf(codeInvalidParams, "long takes a number of seconds from 0 to %g", maxSeconds)
	}
	return seconds, nil
}
