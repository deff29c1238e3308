package dryrun

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow/expr"
)

type (
	rawCase struct {
		When    json.RawMessage `json:"when"`
		Times   int             `json:"times"`
		After   string          `json:"after"`
		Talks   bool            `json:"talks"`
		Ask     json.RawMessage `json:"ask"`
		Output  json.RawMessage `json:"output"`
		Error   json.RawMessage `json:"error"`
		Silence bool            `json:"silence"`
	}
	rawAsk struct {
		Text, Reply json.RawMessage
		Kind, Work  string
	}
	rawReply struct {
		Text  string          `json:"text"`
		Data  json.RawMessage `json:"data"`
		By    string          `json:"by"`
		After string          `json:"after"`
	}
	rawError struct {
		Code       parley.Code     `json:"code"`
		Message    string          `json:"message"`
		Details    json.RawMessage `json:"details"`
		RetryAfter string          `json:"retry_after"`
	}
)

// any reports whether the case says anything.
func (c *rawCase) any() bool {
	return c.When != nil || c.Times != 0 || c.After != "" || c.Talks || c.Ask != nil || c.Output != nil || c.Error != nil || c.Silence
}

func (r *reader) cases(at string, raw []rawCase) []*answer {
	out := make([]*answer, len(raw))
	for i := range raw {
		out[i] = r.answer(at+"/"+strconv.Itoa(i), raw[i])
	}
	return out
}

func (r *reader) answer(at string, raw rawCase) *answer {
	a := &answer{times: raw.Times, talks: raw.Talks}
	if raw.After != "" {
		a.after = r.duration(at+"/after", raw.After)
	}
	if raw.When != nil {
		r.when(at+"/when", raw.When, a)
	}
	if raw.Ask != nil {
		a.ask = r.ask(at+"/ask", raw.Ask)
	}
	if raw.Output != nil {
		a.output = r.template(at+"/output", raw.Output)
	}
	if raw.Error != nil {
		a.fault = r.fault(at+"/error", raw.Error)
	}
	ends := 0
	for _, has := range []bool{raw.Output != nil, raw.Error != nil, raw.Silence} {
		if has {
			ends++
		}
	}
	switch unanswered := a.ask != nil && a.ask.reply == nil; {
	case unanswered && ends > 0:
		r.report(at, parley.Problem{Code: problemValue, Text: "the agent goes on once its question is answered", Suggestion: "give ask a reply"})
	case !unanswered && ends != 1:
		r.report(at, parley.Problem{Code: problemRequired, Text: "a case has exactly one of output, error and silence"})
	}
	return a
}

func (r *reader) when(at string, text json.RawMessage, a *answer) {
	if text[0] == '{' {
		a.members = text
		return
	}
	src := string(text)
	if text[0] == '"' {
		r.decode(at, text, &src)
	}
	x, findings := r.compiler.Condition(src, expr.At{})
	r.findings(at, findings)
	a.when = x
}

func (r *reader) template(at string, text json.RawMessage) *expr.Template {
	t, findings := r.compiler.Template(text, expr.At{})
	r.findings(at, findings)
	return t
}

// findings reports faults of expressions where they stand.
func (r *reader) findings(at string, found []expr.Finding) {
	for _, f := range found {
		if !f.Warning {
			r.problems = append(r.problems, r.doc.Problem(at+f.Pointer, f.Offset, parley.Problem{Code: f.Code, Text: f.Text, Suggestion: f.Suggestion}))
		}
	}
}

func (r *reader) ask(at string, text json.RawMessage) *question {
	var raw rawAsk
	place := at + "/text"
	if text[0] == '"' {
		raw.Text, place = text, at
	} else {
		r.decode(at, text, &raw)
	}
	q := &question{kind: parley.QuestionInput, text: r.template(place, raw.Text)}
	if raw.Kind != "" {
		q.kind = parley.QuestionKind(raw.Kind)
	}
	if raw.Work != "" {
		q.work = r.duration(at+"/work", raw.Work)
	}
	if raw.Reply == nil {
		return q
	}
	var reply rawReply
	if raw.Reply[0] == '"' {
		r.decode(at+"/reply", raw.Reply, &reply.Text)
	} else {
		r.decode(at+"/reply", raw.Reply, &reply)
	}
	if reply.After != "" {
		q.after = r.duration(at+"/reply/after", reply.After)
	}
	if reply.Text == "" && reply.Data == nil {
		r.report(at+"/reply", parley.Problem{Code: problemRequired, Text: "a reply has a text or data"})
	}
	q.reply = &parley.Reply{Text: reply.Text, Data: reply.Data, By: reply.By}
	return q
}

// codes are those that a call may fail with.
func codes() []parley.Code {
	return []parley.Code{
		parley.CodeAgentUnavailable, parley.CodeAgentError, parley.CodeAgentRejected, parley.CodeTimeout, parley.CodeStalled,
		parley.CodeInvalidOutput, parley.CodeInvalidInput, parley.CodeLimit, parley.CodeUnknownAgent,
		parley.CodeOutcomeUnknown, parley.CodeCancelled,
	}
}

func (r *reader) fault(at string, text json.RawMessage) *fault {
	if r.ofRuns {
		return r.outcome(at, text)
	}
	var raw rawError
	if text[0] == '"' {
		r.decode(at, text, &raw.Code)
		if !slices.Contains(codes(), raw.Code) {
			r.report(at, parley.Problem{Code: problemValue, Text: "a call fails with one of agent_unavailable, agent_error, agent_rejected, timeout, " +
				"stalled, invalid_output, invalid_input, limit, unknown_agent, outcome_unknown, cancelled"})
		}
	} else {
		r.decode(at, text, &raw)
	}
	f := &fault{outcome: parley.OutcomeError, err: parley.Error{Code: raw.Code, Message: raw.Message, Details: raw.Details}}
	switch raw.Code {
	case parley.CodeOutcomeUnknown:
		f.outcome = parley.OutcomeUnknown
	case parley.CodeCancelled:
		f.outcome = parley.OutcomeCancelled
	case parley.CodeTimeout:
		if raw.Details == nil {
			f.err.Details = json.RawMessage(`{"limit":"exchange"}`) // what an agent's own timeout is
		}
		f.err.Retryable = true
	case parley.CodeAgentUnavailable, parley.CodeAgentError, parley.CodeStalled:
		f.err.Retryable = true
	}
	if raw.Message == "" {
		f.err.Message = "The script answers with " + string(raw.Code)
	}
	if raw.RetryAfter != "" {
		f.retryAfter = r.duration(at+"/retry_after", raw.RetryAfter)
	}
	return f
}

type (
	rawExpect struct {
		Status parley.RunStatus           `json:"status"`
		Output json.RawMessage            `json:"output"`
		Error  json.RawMessage            `json:"error"`
		Calls  []json.RawMessage          `json:"calls"`
		Runs   []json.RawMessage          `json:"runs"`
		Emits  []json.RawMessage          `json:"emits"`
		Steps  map[string]json.RawMessage `json:"steps"`
		Took   string                     `json:"took"`
		Within string                     `json:"within"`

		Refused json.RawMessage `json:"refused"`
	}
	rawCall struct {
		Agent string          `json:"agent"`
		Step  string          `json:"step"`
		Input json.RawMessage `json:"input"`
		At    string          `json:"at"`
	}
	rawStep struct {
		Status   parley.StepStatus `json:"status"`
		Output   json.RawMessage   `json:"output"`
		Error    string            `json:"error"`
		Attempts *int              `json:"attempts"`
		Handled  *bool             `json:"handled"`
	}
)

func (r *reader) expect(at string, text json.RawMessage) *Expect {
	var raw rawExpect
	r.decode(at, text, &raw)
	e := &Expect{Status: raw.Status, Output: raw.Output, Took: r.optional(at+"/took", raw.Took), Within: r.optional(at+"/within", raw.Within)}
	if raw.Refused != nil {
		r.refused(at, &raw, e)
	}
	if raw.Error != nil {
		e.Error = &ExpectedError{}
		if raw.Error[0] == '"' {
			r.decode(at+"/error", raw.Error, &e.Error.Code)
		} else {
			r.decode(at+"/error", raw.Error, e.Error)
		}
	}
	if e.Status == "" {
		if e.Status = parley.RunCompleted; e.Error != nil {
			e.Status = parley.RunFailed
		}
	}
	if raw.Calls != nil {
		e.Calls = make([]ExpectedCall, len(raw.Calls))
	}
	for i, text := range raw.Calls {
		place := at + "/calls/" + strconv.Itoa(i)
		var c rawCall
		if text[0] == '"' {
			r.decode(place, text, &c.Agent)
		} else {
			r.decode(place, text, &c)
		}
		e.Calls[i] = ExpectedCall{Agent: c.Agent, Step: c.Step, Input: c.Input, At: r.optional(place+"/at", c.At)}
	}
	e.Runs = r.runs(at+"/runs", raw.Runs)
	e.Emits = r.emits(at+"/emits", raw.Emits)
	if raw.Steps != nil {
		e.Steps = make(map[string]ExpectedStep, len(raw.Steps))
	}
	for path, text := range raw.Steps {
		place := at + "/steps/" + escape(path)
		var s rawStep
		if text[0] == '"' {
			r.decode(place, text, &s.Status)
			if !slices.Contains(statuses(), s.Status) {
				r.report(place, parley.Problem{Code: problemValue, Text: "a step is PENDING, RUNNING, COMPLETED, FAILED, CANCELLED or SKIPPED"})
			}
		} else {
			r.decode(place, text, &s)
		}
		e.Steps[path] = ExpectedStep(s)
	}
	return e
}

// refused reads that the start itself is to be refused: then there is no run of
// which anything else could be expected.
func (r *reader) refused(at string, raw *rawExpect, e *Expect) {
	if raw.Refused[0] == '"' {
		e.Refused = true
		r.decode(at+"/refused", raw.Refused, &e.Why)
	} else {
		r.decode(at+"/refused", raw.Refused, &e.Refused)
	}
	alone := raw.Status == "" && raw.Output == nil && raw.Error == nil && raw.Calls == nil && raw.Runs == nil && raw.Emits == nil && raw.Steps == nil && raw.Took == "" && raw.Within == ""
	if e.Refused && !alone {
		r.report(at+"/refused", parley.Problem{Code: problemValue, Text: "a start that is refused makes no run: nothing else can be expected of it"})
	}
}

func statuses() []parley.StepStatus {
	return []parley.StepStatus{
		parley.StepPending, parley.StepRunning, parley.StepCompleted, parley.StepFailed, parley.StepCancelled, parley.StepSkipped,
	}
}

func (r *reader) optional(at, text string) *time.Duration {
	if text == "" {
		return nil
	}
	d := r.duration(at, text)
	return &d
}
