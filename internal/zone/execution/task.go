package execution

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/jsonrpc"
)

// call is one request that is being answered, and what its line in the log tells.
type call struct {
	beside
	req     zone.Request
	task    string // its id
	outcome string
	cause   error // for the log only
}

// beside is what came with a request, not in it.
type beside struct {
	correlation string
	trace       parley.Trace
}

// serve answers a request that was read. The result is to be sent if there is no
// error.
func (z *Zone) serve(ctx context.Context, c *call) (any, *zone.Error) {
	switch c.req.Method {
	case zone.MethodExecuteTask:
		return z.execute(ctx, c)
	case zone.MethodGetResult:
		return z.look(ctx, c)
	default:
		c.outcome = "ok"
		return z.cfg.Card, nil
	}
}

// execute starts a task and waits for it as long as it may.
func (z *Zone) execute(ctx context.Context, c *call) (any, *zone.Error) {
	if z.draining.Load() {
		return nil, zone.NewError(zone.ReasonStopping)
	}
	c.task = taskID(c.req.ID)
	if c.task == "" {
		c.task = z.cfg.NewID()
	}
	in := inputOf(c.req.Task, c.beside)
	z.serving.Add(1)
	defer z.serving.Add(-1)
	if fault := z.start(ctx, c, in); fault != nil {
		return nil, fault
	}
	out, err := z.await(ctx, c.task)
	if err != nil {
		// It was started, so it goes on and may be asked for.
		c.cause, out = err, Outcome{State: Running}
	}
	out.Input = in
	switch out.State {
	case Running:
		c.outcome = "accepted"
		return zone.Result{
			Status: zone.StatusAccepted, TaskID: c.task, PollAfterMS: z.cfg.PollAfter.Milliseconds(),
			Channel: in.Channel, ThreadTS: in.ThreadTS, CorrelationID: in.CorrelationID,
		}, nil
	case Completed:
		c.outcome = "ok"
		return z.result(out, c), nil
	default:
		return nil, failure(out, c)
	}
}

func (z *Zone) start(ctx context.Context, c *call, in Input) *zone.Error {
	// A caller that goes away must not leave a task of which nobody knows whether it
	// was started.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startLimit)
	defer cancel()
	err := z.cfg.Work.Start(ctx, c.task, in)
	if err == nil {
		return nil
	}
	c.cause = err
	if busy, ok := errors.AsType[*OverloadedError](err); ok {
		fault := zone.NewError(zone.ReasonOverloaded)
		fault.RetryAfterMS = max(busy.RetryAfter, z.cfg.PollAfter).Milliseconds()
		return fault
	}
	switch {
	case errors.Is(err, ErrConflict):
		return zone.NewError(zone.ReasonIDReused)
	case errors.Is(err, ErrStopping):
		return zone.NewError(zone.ReasonStopping)
	case errors.Is(err, ErrInvalid):
		return zone.NewError(zone.ReasonInvalidParams)
	}
	return zone.NewError(zone.ReasonInternal)
}

// await waits for a task until the limit, until the caller goes away, or until the
// zone is about to stop.
func (z *Zone) await(ctx context.Context, task string) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, z.cfg.SyncLimit)
	defer cancel()
	stop := z.onDrain(cancel)
	defer stop()
	out, err := z.cfg.Work.Await(ctx, task)
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return Outcome{State: Running}, nil
	}
	return out, err
}

// look says what became of a task.
func (z *Zone) look(ctx context.Context, c *call) (any, *zone.Error) {
	c.task = c.req.Query.TaskID
	if id := uuid(c.task); id != "" {
		c.task = id
	}
	out, err := z.cfg.Work.Look(ctx, c.task)
	if errors.Is(err, ErrUnknown) {
		return nil, zone.NewError(zone.ReasonUnknownTask)
	}
	if err != nil {
		c.cause = err
		return nil, zone.NewError(zone.ReasonInternal)
	}
	switch out.State {
	case Running:
		c.outcome = "running"
		return zone.AsyncResult{Status: zone.StatusRunning, PollAfterMS: z.cfg.PollAfter.Milliseconds()}, nil
	case Completed:
		c.outcome = "ok"
		res := z.result(out, c)
		return zone.AsyncResult{Status: zone.StatusCompleted, Result: &res}, nil
	}
	res := zone.AsyncResult{Status: zone.StatusFailed, Error: failure(out, c)}
	if out.State == Expired {
		res.Status = zone.StatusExpired
	}
	res.Error.CorrelationID = c.correlation
	c.outcome = string(res.Status)
	return res, nil
}

// failure is what is told of a task that has ended without an answer.
func failure(out Outcome, c *call) *zone.Error {
	if out.Cause != "" {
		c.cause = errors.New(out.Cause)
	}
	switch out.State {
	case Cancelled:
		return zone.NewError(zone.ReasonCancelled)
	case TimedOut:
		return zone.NewError(zone.ReasonTimeout)
	case Expired:
		return zone.NewError(zone.ReasonUnknownTask)
	}
	return zone.NewError(zone.ReasonTaskFailed)
}

// result makes the result of execute_task from an output: a string is the answer;
// an object has it as response_text, text or response, and its other members go
// along; everything else is the answer as JSON.
func (z *Zone) result(out Outcome, c *call) zone.Result {
	res := zone.Result{
		Status: zone.StatusSuccess, Channel: out.Input.Channel, ThreadTS: out.Input.ThreadTS, CorrelationID: out.Input.CorrelationID,
	}
	var text *string
	if json.Unmarshal(out.Output, &text) == nil {
		if text != nil {
			res.ResponseText = *text
		}
		return res
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(out.Output, &members) != nil {
		res.ResponseText = string(out.Output)
		return res
	}
	var refused string
	if res.FileArtifact, refused = zone.ParseFile(members["file_artifact"], z.cfg.MaxFile); refused != "" {
		c.cause = errors.New("the file of the output was left out: " + refused)
	}
	for _, name := range []string{"response_text", "text", "response"} {
		if json.Unmarshal(members[name], &text) == nil && text != nil {
			delete(members, name)
			res.ResponseText, res.More = *text, z.carried(members, c)
			return res
		}
	}
	delete(members, "bot_token")
	if res.FileArtifact != nil {
		res.More = z.carried(members, c)
		return res
	}
	res.ResponseText = string(zone.Document(members))
	return res
}

// carried gives the members of an output that may go along in a result.
func (z *Zone) carried(members map[string]json.RawMessage, c *call) map[string]json.RawMessage {
	for name, value := range members {
		if !z.codec.Carries(name, value) {
			c.cause = errors.New("a member of the output was left out, which no response can carry: " + zone.CleanText(name))
			delete(members, name)
		}
	}
	return members
}

func inputOf(t *zone.Task, with beside) Input {
	return Input{
		Text: t.Text, Channel: t.Channel, ThreadTS: t.ThreadTS, TeamID: t.TeamID, UserID: t.UserID,
		CorrelationID: with.correlation, Attachments: t.Attachments, Trace: with.trace,
	}
}

// taskID gives the id of the task of a request, or "" if the request's id is none
// that only one request has.
func taskID(id jsonrpc.ID) string {
	var s string
	if json.Unmarshal([]byte(id.String()), &s) != nil {
		return ""
	}
	return uuid(s)
}

// uuid gives a UUID in lower case, or "" for what is none.
func uuid(s string) string {
	if len(s) != 36 {
		return ""
	}
	for i := range len(s) {
		switch c := s[i]; {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return ""
			}
		case c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F':
		default:
			return ""
		}
	}
	return strings.ToLower(s)
}
