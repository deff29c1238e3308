package a2a

import (
	"context"
	"net/http"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// Find implements [bridge.Finder] by ListTasks of A2A 1.0, among at most 1,000
// of the agent's newest tasks (those of the conversation, if the task has one):
// the one whose history holds the task's message. A2A 0.3 over JSON-RPC lists no
// tasks: outcome_unknown.
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
	for range maxPages {
		p := &page{size: size}
		out, err := a.run(ctx, a.listing(e, p, token))
		switch {
		case err == nil && tooLarge(out) && size == pageSize:
			size = smallPage
			continue
		case err != nil, out.Disposition == bridge.NotSent, out.Disposition == bridge.Lost:
			return out, err
		case p.found.ID != "":
			out, _, err := a.ask(ctx, e, verbGet, p.found)
			return out, err
		case p.next == "" || p.next == token:
			return e.lost(parley.Errorf(parley.CodeNotFound, "none of the agent's tasks was made of message %s", e.task.MessageID())), nil
		}
		token = p.next
	}
	return e.lost(parley.Errorf(parley.CodeOutcomeUnknown,
		"message %s made none of the agent's %d newest tasks, and it has more", e.task.MessageID(), maxPages*pageSize)), nil
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
	size  int
	found bridge.AgentTask
	next  string
}

// listing makes the exchange that reads one page. Its outcome is Accepted if
// that succeeded.
func (a *Adapter) listing(e *errand, p *page, token string) *exchange {
	ex := a.exchange(e, verbList)
	ex.minor = undecided
	ex.write = func() ([]byte, error) {
		return writeList(e.to.Endpoint, e.task, pageOf{token: token, size: p.size}), nil
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
		if holds(history, messageID) {
			p.found.ID, _ = bridge.Text(id)
			p.found.ContextID, _ = bridge.Text(contextID)
			return nil
		}
	}
	return nil
}

// holds says whether a message of this id is in a history.
func holds(history []byte, messageID string) bool {
	for message := range bridge.Elements(history) {
		for name, value := range bridge.Members(message) {
			if string(name) != "messageId" {
				continue
			}
			if id, _ := bridge.Text(value); id == messageID {
				return true
			}
		}
	}
	return false
}
