package workflow

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/parley-project/parley"
)

// The payloads of events. A payload is all that evolve may read besides the
// state, so replaying the history gives the same state (promise 6).
type (
	runStarted struct {
		Workflow    string            `json:"workflow"`
		Version     string            `json:"version"`
		Input       json.RawMessage   `json:"input,omitempty"`
		Labels      map[string]string `json:"labels,omitempty"`
		Trigger     string            `json:"trigger,omitempty"`
		ScheduledAt *time.Time        `json:"scheduled_at,omitempty"`
		Deadline    time.Time         `json:"deadline,omitzero"`
		Priority    *int              `json:"priority,omitempty"`
		RetriedFrom string            `json:"retried_from,omitempty"`
		RerunFrom   string            `json:"rerun_from,omitempty"`
		Chain       int               `json:"chain,omitempty"`
		Copied      []Copied          `json:"copied,omitempty"`
		Edits       []Edit            `json:"edits,omitempty"`
		Parent      *Parent           `json:"parent,omitempty"`
		Children    []ResolvedChild   `json:"children,omitempty"`
		Concurrency *Turn             `json:"concurrency,omitempty"`
		Traceparent string            `json:"traceparent,omitempty"`
		Tracestate  string            `json:"tracestate,omitempty"`
		// TimeoutMS is the run's, which begins when a run does that waits for its
		// turn; QueuedAt is when such a run was accepted: what else there is to know
		// of it was said then.
		TimeoutMS int64      `json:"timeout_ms,omitempty"`
		QueuedAt  *time.Time `json:"queued_at,omitempty"`
	}
	runCancelling struct {
		By         string    `json:"by,omitempty"`
		Reason     string    `json:"reason,omitempty"`
		GraceUntil time.Time `json:"grace_until"`
	}
	runCompleted struct {
		Output json.RawMessage `json:"output"`
	}
	runEnded struct {
		Error *parley.Error `json:"error,omitempty"`
		// Terminated: nobody waited for anything; By and Reason say who and why.
		Terminated bool   `json:"terminated,omitempty"`
		By         string `json:"by,omitempty"`
		Reason     string `json:"reason,omitempty"`
	}
	stepScheduled struct {
		Kind   Kind            `json:"kind"`
		Agent  string          `json:"agent,omitempty"`
		Input  json.RawMessage `json:"input,omitempty"`
		TaskID string          `json:"task_id,omitempty"`
		Round  int             `json:"round,omitempty"`
		// Case is the one that a conditional or a switch runs, -1 for none.
		Case *int `json:"case,omitempty"`
		// Truncated counts the items that a loop leaves out.
		Truncated int `json:"truncated,omitempty"`
		// Plan is the list of steps that a plan step runs.
		Plan     json.RawMessage `json:"plan,omitempty"`
		Deadline *time.Time      `json:"deadline,omitempty"`
		// HedgeAt is when the next of several hedged agents is called.
		HedgeAt *time.Time `json:"hedge_at,omitempty"`
		// Child is the run that a sub_workflow step asks for.
		Child *childAsked `json:"child,omitempty"`
	}
	timerSet struct {
		Until time.Time `json:"until"`
	}
	// timerFired names the branch of a fork whose time is up, and its error.
	timerFired struct {
		Branch string        `json:"branch,omitempty"`
		Error  *parley.Error `json:"error,omitempty"`
	}
	stepRetrying struct {
		Error   *parley.Error `json:"error"`
		Policy  int           `json:"policy"`
		DelayMS int64         `json:"delay_ms"`
		// PutOffMS is by how much the agent's retry budget has put it off.
		PutOffMS int64     `json:"put_off_ms,omitempty"`
		At       time.Time `json:"at"`
		// TaskID is the next attempt of an agent step.
		TaskID string `json:"task_id,omitempty"`
		// Agent is who is called next where a step has several; Fallback says that
		// it is called for the first time, instead of the one that has failed.
		Agent    string     `json:"agent,omitempty"`
		Fallback bool       `json:"fallback,omitempty"`
		HedgeAt  *time.Time `json:"hedge_at,omitempty"`
	}
	// attemptFailed ends one attempt of hedged agents; the step goes on.
	attemptFailed struct {
		TaskID string        `json:"task_id"`
		Error  *parley.Error `json:"error"`
		// HedgeAt as in stepScheduled.
		HedgeAt *time.Time `json:"hedge_at,omitempty"`
	}
	stepCompleted struct {
		Kind      Kind            `json:"kind"`
		Output    json.RawMessage `json:"output"`
		Started   *time.Time      `json:"started_at,omitempty"`
		Session   string          `json:"session,omitempty"`
		ContextID string          `json:"context_id,omitempty"`
		// AgentTaskID is the agent's own name for the task.
		AgentTaskID string `json:"agent_task_id,omitempty"`
		// Agent is whose answer it is, where a step has several.
		Agent string `json:"agent,omitempty"`
		// CopiedFrom names the run that a retry took the output from.
		CopiedFrom string `json:"copied_from,omitempty"`
	}
	stepFailed struct {
		Kind    Kind          `json:"kind"`
		Error   *parley.Error `json:"error"`
		Handled bool          `json:"handled,omitempty"`
		// Output is what a handler gives instead, Goto the step that it goes to.
		Output  json.RawMessage `json:"output,omitempty"`
		Goto    string          `json:"goto,omitempty"`
		Started *time.Time      `json:"started_at,omitempty"`
		// AgentTaskID is the agent's own name for the task of the last attempt.
		AgentTaskID string `json:"agent_task_id,omitempty"`
		// CopiedFrom as in stepCompleted.
		CopiedFrom string `json:"copied_from,omitempty"`
	}
	stepEnded struct {
		Kind Kind `json:"kind"`
		// Started and AgentTaskID are those of the attempt that was given up, as far as
		// they are known.
		Started     *time.Time `json:"started_at,omitempty"`
		AgentTaskID string     `json:"agent_task_id,omitempty"`
		// CopiedFrom as in stepCompleted.
		CopiedFrom string `json:"copied_from,omitempty"`
	}
)

// encode gives a payload as JSON. The payloads that carry values are written by
// hand: encoding/json would rewrite the values' bytes, and they are
// the ones that every step writes.
func encode(payload any) json.RawMessage {
	switch p := payload.(type) {
	case stepScheduled:
		return p.encode()
	case stepCompleted:
		return p.encode()
	case runCompleted:
		return append(append([]byte(`{"output":`), orNull(p.Output)...), '}')
	case runStarted:
		return p.encode()
	case runQueued:
		return runStarted(p).encode()
	case signalReceived:
		return SignalJSON(p.Signal)
	case runPhase:
		output := p.Output
		p.Output = nil
		return withOutput(p, output)
	case stepFailed:
		output := p.Output
		p.Output = nil
		return withOutput(p, output)
	}
	return marshal(payload)
}

// withOutput encodes a payload and its output, byte for byte, if it has one.
func withOutput(payload any, output json.RawMessage) json.RawMessage {
	b := marshal(payload)
	if output == nil {
		return b
	}
	o := object{buf: b[:len(b)-1]}
	o.raw("output", output)
	return o.end()
}

func marshal(payload any) json.RawMessage {
	b, err := json.Marshal(payload)
	if err != nil {
		// Payloads hold strings, numbers, times and error details that were
		// made by this module; none of them can fail to encode.
		panic(fmt.Sprintf("workflow: encode %T: %v", payload, err))
	}
	return b
}

func (p runStarted) encode() json.RawMessage {
	copied, edits, input := p.Copied, p.Edits, p.Input
	p.Copied, p.Edits, p.Input = nil, nil, nil
	head, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("workflow: encode run.started: %v", err))
	}
	o := object{buf: append(make([]byte, 0, len(head)+len(input)+64), head[:len(head)-1]...)}
	if p.QueuedAt == nil {
		o.raw("input", input)
	}
	list := func(name string, n int, item func(i int, buf []byte) []byte) {
		if n == 0 {
			return
		}
		o.key(name)
		for i := range n {
			o.buf = item(i, append(o.buf, "[,"[min(i, 1)]))
		}
		o.buf = append(o.buf, ']')
	}
	list("copied", len(copied), func(i int, buf []byte) []byte { return copied[i].encode(buf) })
	list("edits", len(edits), func(i int, buf []byte) []byte { return edits[i].encode(buf) })
	return o.end()
}

func (p stepScheduled) encode() json.RawMessage {
	o := object{buf: append(make([]byte, 0, 128+len(p.Input)), '{')}
	o.str("kind", string(p.Kind))
	o.optional("agent", p.Agent)
	if p.Input != nil {
		o.raw("input", p.Input)
	}
	if p.Plan != nil {
		o.raw("plan", p.Plan)
	}
	o.optional("task_id", p.TaskID)
	if p.Round != 0 {
		o.number("round", p.Round)
	}
	if p.Case != nil {
		o.number("case", *p.Case)
	}
	if p.Truncated != 0 {
		o.number("truncated", p.Truncated)
	}
	o.time("deadline", p.Deadline)
	o.time("hedge_at", p.HedgeAt)
	if p.Child != nil {
		o.raw("child", marshal(p.Child))
	}
	return o.end()
}

func (p stepCompleted) encode() json.RawMessage {
	o := object{buf: append(make([]byte, 0, 128+len(p.Output)), '{')}
	o.str("kind", string(p.Kind))
	o.raw("output", p.Output)
	o.time("started_at", p.Started)
	o.optional("session", p.Session)
	o.optional("context_id", p.ContextID)
	o.optional("agent_task_id", p.AgentTaskID)
	o.optional("agent", p.Agent)
	o.optional("copied_from", p.CopiedFrom)
	return o.end()
}

// object appends the members of a JSON object to buf, values byte for byte.
type object struct{ buf []byte }

func (o *object) key(name string) {
	if o.buf[len(o.buf)-1] != '{' {
		o.buf = append(o.buf, ',')
	}
	o.buf = append(append(append(o.buf, '"'), name...), '"', ':')
}

func (o *object) raw(name string, value json.RawMessage) {
	o.key(name)
	o.buf = append(o.buf, orNull(value)...)
}

// value is raw for a name that may hold any character.
func (o *object) value(name string, value json.RawMessage) {
	if o.buf[len(o.buf)-1] != '{' {
		o.buf = append(o.buf, ',')
	}
	o.buf = append(append(appendString(o.buf, name), ':'), orNull(value)...)
}

func (o *object) number(name string, n int) {
	o.key(name)
	o.buf = strconv.AppendInt(o.buf, int64(n), 10)
}

func (o *object) str(name, value string) {
	o.key(name)
	o.buf = appendString(o.buf, value)
}

func (o *object) optional(name, value string) {
	if value != "" {
		o.str(name, value)
	}
}

func (o *object) time(name string, t *time.Time) {
	if t != nil {
		o.key(name)
		o.buf = append(t.AppendFormat(append(o.buf, '"'), time.RFC3339Nano), '"')
	}
}

func (o *object) end() json.RawMessage { return append(o.buf, '}') }

// appendString appends value as a JSON string.
func appendString(b []byte, value string) []byte {
	for i := range len(value) {
		if c := value[i]; c < 0x20 || c == '"' || c == '\\' || c >= 0x7f {
			q, err := json.Marshal(value)
			if err != nil {
				panic(fmt.Sprintf("workflow: encode string: %v", err))
			}
			return append(b, q...)
		}
	}
	return append(append(append(b, '"'), value...), '"')
}

func orNull(value json.RawMessage) json.RawMessage {
	if value == nil {
		return json.RawMessage("null")
	}
	return value
}

// decoders turn the data of a recorded event into its payload.
func decode(t parley.EventType, data json.RawMessage) (any, error) {
	switch t {
	case parley.EventRunStarted:
		return decodeAs[runStarted](data)
	case parley.EventRunQueued:
		return decodeAs[runQueued](data)
	case parley.EventRunCancelling:
		return decodeAs[runCancelling](data)
	case parley.EventRunPaused:
		return decodeAs[runPaused](data)
	case parley.EventRunResumed:
		return decodeAs[runResumed](data)
	case parley.EventRunCompleted:
		return decodeAs[runCompleted](data)
	case parley.EventRunPhase:
		return decodeAs[runPhase](data)
	case parley.EventStepHandling:
		return decodeAs[stepHandling](data)
	case parley.EventStepCompensating:
		return decodeAs[stepCompensating](data)
	case parley.EventStepCompensated:
		return decodeAs[stepCompensated](data)
	case parley.EventRunFailed, parley.EventRunCancelled:
		return decodeAs[runEnded](data)
	case parley.EventStepScheduled:
		return decodeAs[stepScheduled](data)
	case parley.EventTimerSet:
		return decodeAs[timerSet](data)
	case parley.EventTimerFired:
		return decodeAs[timerFired](data)
	case parley.EventStepWaiting:
		return decodeAs[stepWaiting](data)
	case parley.EventSignalReceived:
		return decodeAs[signalReceived](data)
	case parley.EventStepAnswered:
		return decodeAs[stepAnswered](data)
	case parley.EventChildStarted:
		return decodeAs[childStarted](data)
	case parley.EventChildEnded:
		return decodeAs[childEnded](data)
	case parley.EventStepRetrying:
		return decodeAs[stepRetrying](data)
	case parley.EventStepAttemptFailed:
		return decodeAs[attemptFailed](data)
	case parley.EventStepCompleted:
		return decodeAs[stepCompleted](data)
	case parley.EventStepFailed:
		return decodeAs[stepFailed](data)
	case parley.EventStepSkipped, parley.EventStepCancelled:
		return decodeAs[stepEnded](data)
	}
	return nil, nil
}

func decodeAs[T any](data json.RawMessage) (any, error) {
	var p T
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, err
	}
	return p, nil
}

// Replay applies one recorded event. Events of types that do not change a run
// (progress, warnings) only count. The error says which event does not fit;
// the state is of no use then.
func (s *State) Replay(e parley.Event) (err error) {
	defer func() {
		// A history that was damaged, or made by hand, may lead where no run gets.
		if p := recover(); p != nil {
			err = parley.Errorf(parley.CodeInternal, "history of run %s: event %d (%s) does not go with what stands before it: %v", s.run, e.Seq, e.Type, p)
		}
	}()
	if e.Seq != s.seq+1 {
		return parley.Errorf(parley.CodeInternal, "history of run %s: event %d follows event %d", s.run, e.Seq, s.seq)
	}
	payload, err := decode(e.Type, e.Data)
	if err != nil {
		return parley.Errorf(parley.CodeInternal, "history of run %s: event %d (%s): %w", s.run, e.Seq, e.Type, err)
	}
	s.seq = e.Seq
	if payload == nil {
		s.countProgress(e)
		return nil
	}
	if err := s.evolve(e, payload); err != nil {
		return parley.Errorf(parley.CodeInternal, "history of run %s: event %d (%s): %w", s.run, e.Seq, e.Type, err)
	}
	return nil
}
