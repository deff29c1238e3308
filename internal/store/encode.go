package store

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/parley-project/parley"
)

// encodeEvents puts the events of one decision into one JSON array. Their
// numbers and their run are those of the row. Data is taken over byte for
// byte, so that it has to be JSON; c takes out of it what is kept apart.
func encodeEvents(c *cutter, run string, first int64, events []parley.Event) ([]byte, error) {
	size := 2
	for i := range events {
		size += min(len(events[i].Data), c.most()) + 96
	}
	b := make([]byte, 0, size)
	for i := range events {
		e := &events[i]
		if e.Seq != first+int64(i) || (e.Run != run && e.Run != "") {
			return nil, parley.Errorf(parley.CodeInvalid,
				"event %d of run %q where event %d of run %q belongs", e.Seq, e.Run, first+int64(i), run)
		}
		if e.Data != nil && !json.Valid(e.Data) {
			return nil, parley.Errorf(parley.CodeInvalid, "the data of event %d of run %q is no JSON", e.Seq, run)
		}
		if i == 0 {
			b = append(b, '[')
		} else {
			b = append(b, ',')
		}
		b = append(b, `{"at":`...)
		b = strconv.AppendInt(b, unixMicro(e.At), 10)
		b = append(b, `,"type":`...)
		b = appendString(b, string(e.Type))
		if e.Step != "" {
			b = append(b, `,"step":`...)
			b = appendString(b, e.Step)
		}
		if e.Attempt != 0 {
			b = append(b, `,"attempt":`...)
			b = strconv.AppendInt(b, int64(e.Attempt), 10)
		}
		if e.Data != nil {
			data, cuts, err := c.data(e.Data)
			if err != nil {
				return nil, err
			}
			b = append(b, `,"data":`...)
			b = append(b, data...)
			b = appendCuts(b, cuts)
		}
		b = append(b, '}')
	}
	return append(b, ']'), nil
}

// decodeEvents is the reverse of encodeEvents for one row. cuts has what is kept
// apart of the data of each event, or is nil.
func decodeEvents(run string, first, last int64, data []byte) (events []parley.Event, cuts [][]cut, err error) {
	var rows []struct {
		At      int64            `json:"at"`
		Type    parley.EventType `json:"type"`
		Step    string           `json:"step"`
		Attempt int              `json:"attempt"`
		Data    json.RawMessage  `json:"data"`
		Cuts    []cut            `json:"cuts"`
	}
	if err := json.Unmarshal(data, &rows); err != nil {
		return nil, nil, fmt.Errorf("events %d to %d of run %q: %w", first, last, run, err)
	}
	if int64(len(rows)) != last-first+1 {
		return nil, nil, fmt.Errorf("events %d to %d of run %q: there are %d", first, last, run, len(rows))
	}
	events = make([]parley.Event, len(rows))
	for i, r := range rows {
		events[i] = parley.Event{
			Seq: first + int64(i), At: fromMicro(r.At), Type: r.Type, Run: run,
			Step: r.Step, Attempt: r.Attempt, Data: r.Data,
		}
		if len(r.Cuts) == 0 {
			continue
		}
		if err := checkCuts(r.Data, r.Cuts); err != nil {
			return nil, nil, fmt.Errorf("event %d of run %q: %w", events[i].Seq, run, err)
		}
		if cuts == nil {
			cuts = make([][]cut, len(rows))
		}
		cuts[i] = r.Cuts
	}
	return events, cuts, nil
}

// appendString appends s as a JSON string.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			// A string always has a JSON form.
			quoted, _ := json.Marshal(s)
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

func unixMicro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicro(v int64) time.Time {
	if v == 0 {
		return time.Time{}
	}
	return time.UnixMicro(v).UTC()
}

// resultMeta is what a result holds besides its outcome and its output.
type resultMeta struct {
	Err         *parley.Error `json:"err,omitempty"`
	RetryAfter  int64         `json:"retry_after_us,omitempty"`
	AgentTaskID string        `json:"agent_task_id,omitempty"`
	ContextID   string        `json:"context_id,omitempty"`
	Status      int           `json:"status,omitempty"`
}

// encodeMeta gives nil if there is nothing to keep.
func encodeMeta(r *parley.Result) ([]byte, error) {
	m := resultMeta{r.Err, r.RetryAfter.Microseconds(), r.AgentTaskID, r.ContextID, r.Status}
	if m == (resultMeta{}) {
		return nil, nil
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, parley.Errorf(parley.CodeInvalid, "the result of %q cannot be stored: %w", r.TaskID, err)
	}
	return b, nil
}

// decodeResult puts a result together again. One that the store itself wrote
// without a text gets one, so that Err is set whenever it has to be.
func decodeResult(task string, outcome parley.Outcome, output, meta []byte) (*parley.Result, error) {
	r := parley.Result{TaskID: task, Outcome: outcome, Output: output}
	if meta != nil {
		var m resultMeta
		if err := json.Unmarshal(meta, &m); err != nil {
			return nil, fmt.Errorf("result of %q: %w", task, err)
		}
		r.Err, r.AgentTaskID, r.ContextID, r.Status = m.Err, m.AgentTaskID, m.ContextID, m.Status
		r.RetryAfter = time.Duration(m.RetryAfter) * time.Microsecond
	}
	if r.Err == nil {
		switch outcome {
		case parley.OutcomeOK:
		case parley.OutcomeCancelled:
			r.Err = parley.Errorf(parley.CodeCancelled, "cancelled before an answer")
		case parley.OutcomeTimeout:
			r.Err = parley.Errorf(parley.CodeTimeout, "the time was up before an answer")
		case parley.OutcomeUnknown:
			r.Err = errUnknown("")
		default:
			r.Err = parley.Errorf(parley.CodeAgentError, "failed without a text")
		}
	}
	return &r, nil
}

// errUnknown is the error of an attempt that nobody will hear of any more.
func errUnknown(agent string) *parley.Error {
	who := "the agent"
	if agent != "" {
		who = fmt.Sprintf("agent %q", agent)
	}
	e := parley.Errorf(parley.CodeOutcomeUnknown,
		"the bridge that was calling %s has died; whether the task was executed is not known, so it is not sent again", who)
	e.Agent = agent
	return e
}

func encodeLabels(labels map[string]string) (any, error) {
	if len(labels) == 0 {
		return nil, nil
	}
	b, err := json.Marshal(labels)
	if err != nil {
		return nil, parley.Errorf(parley.CodeInvalid, "labels: %w", err)
	}
	return string(b), nil
}

func decodeLabels(s string) (map[string]string, error) {
	if s == "" {
		return nil, nil
	}
	var labels map[string]string
	if err := json.Unmarshal([]byte(s), &labels); err != nil {
		return nil, fmt.Errorf("labels: %w", err)
	}
	return labels, nil
}
