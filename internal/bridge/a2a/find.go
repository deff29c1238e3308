package a2a

import (
	"context"
	"net/http"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// Find implements [bridge.Finder] by ListTasks of A2A 1.0, among at most 1,000
// of the agent's newest tasks (those of the conversation, if the task has one):
// the one whose history holds the task's message. Histories are looked through
// up to 10,000 messages; where there may be more, or one cannot be read, it is not
// said that there is no such task. A2A 0.3 over JSON-RPC lists no tasks:
// outcome_unknown.
func (a *Adapter) Find(ctx context.Context, task parley.Task, agent parley.Agent) (bridge.Outcome, error) {
	e, err := a.meet(ctx, task, agent)
	if err != nil {
		return a.untranslatable(ctx, task, agent, err)
	}
	return a.find(ctx, e)
}

// find is Find about the errand e.
func (a *Adapter) find(ctx context.Context, e *errand) (bridge.Outcome, error) {
	if e.to.Version != V10 {
		return e.lost(parley.Errorf(parley.CodeOutcomeUnknown,
			"the agent cannot be asked what became of the message: A2A %s has no list of tasks", e.to.Version)), nil
	}
	token, size := "", pageSize
	var clipped []bridge.AgentTask
	for range maxPages {
		p := &page{size: size, history: pageHistory}
		ex := a.listing(e, p, token)
		out, err := a.run(ctx, ex)
		out = e.unasked(out)
		switch {
		case err == nil && tooLarge(out) && size == pageSize:
			size = smallPage
			continue
		case err == nil && (tooLarge(out) || ex.refused != nil && out.Result.Err.Retryable):
			return a.findEach(ctx, e, out)
		case err != nil, out.Disposition == bridge.NotSent, out.Disposition == bridge.Lost:
			return out, err
		case p.found.ID != "":
			out, _, err := a.ask(ctx, e, verbGet, p.found)
			return out, err
		}
		clipped = append(clipped, p.clipped...)
		if p.next == "" || p.next == token {
			return a.findAmong(ctx, e, clipped, wholeHistory, nil)
		}
		token = p.next
	}
	return e.lost(parley.Errorf(parley.CodeOutcomeUnknown,
		"message %s made none of the agent's %d newest tasks, and it has more", e.task.MessageID(), maxPages*pageSize)), nil
}

// findEach reads the histories of the newest tasks one by one: a list fails
// where one of its tasks is too large, or is one that the agent cannot write
// (a2a-go 2.4.0 has no form for a data part that is no object in gRPC). failed is
// what came of the list.
func (a *Adapter) findEach(ctx context.Context, e *errand, failed bridge.Outcome) (bridge.Outcome, error) {
	p := &page{size: pageSize}
	out, err := a.run(ctx, a.listing(e, p, ""))
	if err != nil || out.Disposition != bridge.Accepted {
		return failed, err
	}
	var unread *bridge.Outcome
	if p.next != "" {
		unread = &failed
	}
	return a.findAmong(ctx, e, p.tasks, pageHistory, unread)
}

// findAmong reads the newest messages of tasks, one task after the other, and all
// messages of those that have more. unread is what came of a task that could not be
// read, nil for none: as long as there is one nothing is known.
func (a *Adapter) findAmong(ctx context.Context, e *errand, tasks []bridge.AgentTask, history int, unread *bridge.Outcome) (bridge.Outcome, error) {
	var clipped []bridge.AgentTask
	for _, task := range tasks[:min(len(tasks), pageSize)] {
		m := memory{most: history}
		ex := a.remembering(e, task, &m)
		out, err := a.run(ctx, ex)
		out = e.unasked(out)
		switch {
		case err != nil:
			return out, err
		case m.held:
			out, _, err := a.ask(ctx, e, verbGet, task)
			return out, err
		case m.clipped:
			clipped = append(clipped, task)
		case out.Disposition == bridge.Accepted:
		case ex.refused == nil && !tooLarge(out): // the agent is away
			return out, nil
		default:
			unread = &out
		}
	}
	switch {
	case len(clipped) > 0 && history < wholeHistory:
		return a.findAmong(ctx, e, clipped, wholeHistory, unread)
	case unread != nil:
		return *unread, nil
	case len(clipped) > 0, len(tasks) > pageSize:
		return e.lost(limitError("history", wholeHistory, "message %s may be in a history that is not looked through: of the agent's tasks with more than %d messages "+
			"the newest %d are, and of each of them %d messages", e.task.MessageID(), pageHistory, pageSize, wholeHistory)), nil
	}
	return e.unmade(), nil
}

// memory is what the history of a task tells.
type memory struct {
	// most is how many messages were asked for.
	most int
	// held: the errand's message is among them; clipped: it is not, and there may be
	// older ones.
	held, clipped bool
}

// read looks through a history.
func (m *memory) read(history []byte, messageID string) {
	n := 0
	for message := range bridge.Elements(history) {
		n++
		if isMessage(message, messageID) {
			m.held = true
			return
		}
	}
	m.clipped = m.most > 0 && n == m.most // more than that: the agent gives all of it
}

// remembering makes the exchange that reads one task with its history into m.
func (a *Adapter) remembering(e *errand, task bridge.AgentTask, m *memory) *exchange {
	ex := a.exchange(e, verbGet)
	ex.minor = undecided
	ex.write = func() ([]byte, error) { return writeTask(verbGet, e.to.Endpoint, task.ID, m.most) }
	ex.result = func(result []byte) (bridge.Outcome, []bridge.Warning, error) {
		for name, value := range bridge.Members(result) {
			if string(name) == "history" {
				m.read(value, e.task.MessageID())
			}
		}
		return bridge.Outcome{Disposition: bridge.Accepted, AgentTaskID: task.ID}, nil, nil
	}
	ex.failure = func(f *failure) bridge.Outcome { return e.lost(f.asError(ex.operation())) }
	return ex
}

// unmade is the outcome that no task was made of the message.
func (e *errand) unmade() bridge.Outcome {
	return e.lost(parley.Errorf(parley.CodeNotFound, "none of the agent's tasks was made of message %s", e.task.MessageID()))
}

// unasked is out where something else than an answer ended the question, such as a
// status of 500 or a text that cannot be read: it says nothing about the task. If the
// same is to be expected each time the agent cannot be asked.
func (e *errand) unasked(out bridge.Outcome) bridge.Outcome {
	if out.Disposition != bridge.Answered {
		return out
	}
	err := *out.Result.Err
	if !err.Retryable {
		err.Code, err.Message = parley.CodeOutcomeUnknown, "the agent cannot be asked what became of the message: "+err.Message
	}
	return e.lost(&err)
}

// tooLarge says that an answer was larger than answers may be.
func tooLarge(out bridge.Outcome) bool {
	return out.Result.Err != nil && out.Result.Err.Code == parley.CodeLimit
}

// lost is an outcome that says nothing about the task.
func (e *errand) lost(err *parley.Error) bridge.Outcome {
	err.Agent, err.Step, err.Attempt = e.agent.Name, e.task.Step, e.task.Attempt
	return bridge.Outcome{Disposition: bridge.Lost, Result: parley.Result{TaskID: e.task.ID, Outcome: parley.OutcomeError, Err: err}}
}

// page is what one page of tasks, at most size of them, tells.
type page struct {
	size int
	// history is how many of its newest messages each task has.
	history int
	// tasks are all that are on it, if they have no histories; clipped those whose
	// histories may be longer.
	tasks, clipped []bridge.AgentTask
	found          bridge.AgentTask
	next           string
}

// listing makes the exchange that reads one page. Its outcome is Accepted if
// that succeeded.
func (a *Adapter) listing(e *errand, p *page, token string) *exchange {
	ex := a.exchange(e, verbList)
	ex.minor = undecided
	ex.write = func() ([]byte, error) {
		return writeList(e.to.Endpoint, e.task, pageOf{token: token, size: p.size, history: p.history}), nil
	}
	ex.result = func(result []byte) (bridge.Outcome, []bridge.Warning, error) {
		err := p.read(result, e.task.MessageID())
		return bridge.Outcome{Disposition: bridge.Accepted, AgentTaskID: p.found.ID}, nil, err
	}
	ex.failure = func(f *failure) bridge.Outcome {
		out := f.asError(ex.operation())
		switch m := f.meaning(verbList); {
		case (m == meansFailed || m == meansUnclear) && !barred(f.status): // the question may be put again
		default:
			out.Code, out.Retryable = parley.CodeOutcomeUnknown, false
			out.Message = "the agent cannot be asked what became of the message: " + f.text(e.to.Binding)
		}
		return e.lost(out)
	}
	return ex
}

// barred says whether a status of HTTP means that the list of tasks is not for
// us, now or later.
func barred(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return true
	}
	return false
}

// read looks for the task that was made of a message.
func (p *page) read(result []byte, messageID string) error {
	if result[0] != '{' {
		return bridge.Defectf("not_object", "ListTasks was not answered with an object")
	}
	var tasks []byte
	for name, value := range bridge.Members(result) {
		switch string(name) {
		case "tasks":
			tasks = value
		case "nextPageToken":
			p.next, _ = bridge.Text(value)
		}
	}
	for raw := range bridge.Elements(tasks) {
		var id, contextID, history []byte
		for name, value := range bridge.Members(raw) {
			switch string(name) {
			case "id":
				id = value
			case "contextId":
				contextID = value
			case "history":
				history = value
			}
		}
		var task bridge.AgentTask
		task.ID, _ = bridge.Text(id)
		task.ContextID, _ = bridge.Text(contextID)
		m := memory{most: p.history}
		m.read(history, messageID)
		switch {
		case p.history == 0 && task.ID != "" && len(p.tasks) < p.size:
			p.tasks = append(p.tasks, task)
		case m.held:
			p.found = task
			return nil
		case m.clipped && task.ID != "":
			p.clipped = append(p.clipped, task)
		}
	}
	return nil
}

// isMessage says whether a message has that id.
func isMessage(message []byte, messageID string) bool {
	for name, value := range bridge.Members(message) {
		if string(name) != "messageId" {
			continue
		}
		if id, _ := bridge.Text(value); id == messageID {
			return true
		}
	}
	return false
}
