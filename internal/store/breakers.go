package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/parley-project/parley"
)

const (
	breakerColumns = `agent, state, manual, since, until, reason, changed_by, holder, openings, version`
	selectBreakers = `SELECT ` + breakerColumns + ` FROM agent_breaker WHERE state IN ('half_open', 'open') ORDER BY agent`
	selectBreaker  = `SELECT ` + breakerColumns + ` FROM agent_breaker WHERE agent = ?`
	insertBreaker  = `INSERT INTO agent_breaker (` + breakerColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	updateBreaker  = `UPDATE agent_breaker SET state = ?, manual = ?, since = ?, until = ?, reason = ?, changed_by = ?, holder = ?,
 openings = ?, version = ? WHERE agent = ? AND version = ?`

	insertAgentEvent = `INSERT INTO agent_event (agent, seq, at, type, data)
 VALUES (?, (SELECT coalesce(max(seq), 0) + 1 FROM agent_event WHERE agent = ?), ?, ?, ?)`
	purgeAgentEvents = `DELETE FROM agent_event WHERE agent = ? AND seq <= (SELECT max(seq) FROM agent_event WHERE agent = ?) - ?`
	selectAgentLog   = `SELECT seq, at, type, agent, data FROM agent_event WHERE agent = ? AND seq > ? ORDER BY seq LIMIT ?`
)

// agentEventsKept is how many entries the log of an agent has: the newest.
const agentEventsKept = 1000

func readBreaker(r *record) parley.BreakerState {
	return parley.BreakerState{
		Agent: r.str(), Circuit: parley.Circuit(r.str()), Manual: r.flag(), Since: r.time(), Until: r.time(),
		Reason: r.str(), By: r.str(), Holder: r.str(), Openings: r.int(), Version: r.int(),
	}
}

// Breakers gives the states of all circuits that are not closed, by agent.
func (db *DB) Breakers(ctx context.Context) ([]parley.BreakerState, error) {
	var list []parley.BreakerState
	err := db.read(ctx, selectBreakers, func(r *record) error {
		list = append(list, readBreaker(r))
		return r.err
	})
	return list, err
}

// Breaker gives the state of the circuit of the agent of that name; one that
// was never open is closed, in version 0.
func (db *DB) Breaker(ctx context.Context, agent string) (parley.BreakerState, error) {
	s := parley.BreakerState{Agent: agent, Circuit: parley.CircuitClosed}
	err := db.read(ctx, selectBreaker, func(r *record) error {
		s = readBreaker(r)
		return r.err
	}, agent)
	return s, err
}

// ChangeBreaker replaces the state of a circuit by its next one, and adds an
// entry, if any, to the log of the agent. It is false, and nothing was written,
// unless the present version is the one before. Synced.
func (db *DB) ChangeBreaker(ctx context.Context, to parley.BreakerState, e *parley.AgentEvent) (ok bool, err error) {
	switch to.Circuit {
	case parley.CircuitClosed, parley.CircuitOpen, parley.CircuitHalfOpen:
	default:
		return false, parley.Errorf(parley.CodeInvalid, "there is no state %q of a circuit", to.Circuit)
	}
	if to.Agent == "" || to.Version < 1 {
		return false, parley.Errorf(parley.CodeInvalid, "the state of a circuit needs an agent and a version")
	}
	if e != nil && !json.Valid(e.Data) {
		return false, parley.Errorf(parley.CodeInvalid, "the data of an event of agent %q is no JSON", to.Agent)
	}
	err = db.transition(ctx, synced, point("breaker"), func(s *session) error { return changeBreaker(s, &to, e) })
	if errors.Is(err, ErrStale) {
		return false, nil
	}
	return err == nil, err
}

func changeBreaker(s *session, to *parley.BreakerState, e *parley.AgentEvent) error {
	s.at(to.Agent)
	values := []any{
		string(to.Circuit), flag(to.Manual), unixMicro(to.Since), micros(to.Until), text(to.Reason), text(to.By), text(to.Holder),
		to.Openings, to.Version,
	}
	n, err := s.exec(updateBreaker, append(values, to.Agent, to.Version-1)...)
	if err == nil && n == 0 && to.Version == 1 {
		n, err = s.exec(insertBreaker, append([]any{to.Agent}, values...)...)
	}
	if err == nil && n == 0 {
		err = ErrStale
	}
	if err != nil || e == nil {
		return err
	}
	return addAgentEvent(s, to.Agent, e)
}

// addAgentEvent writes the next entry of an agent's log, and removes what is too
// old.
func addAgentEvent(s *session, agent string, e *parley.AgentEvent) error {
	if _, err := s.exec(insertAgentEvent, agent, agent, unixMicro(e.At), string(e.Type), []byte(e.Data)); err != nil {
		return err
	}
	_, err := s.exec(purgeAgentEvents, agent, agent, int64(agentEventsKept))
	return err
}

// AgentEvents gives at most limit entries of the log of the agent of that name
// with a greater seq, oldest first. The log has the newest 1,000.
func (db *DB) AgentEvents(ctx context.Context, agent string, after int64, limit int) ([]parley.AgentEvent, error) {
	var list []parley.AgentEvent
	err := db.read(ctx, selectAgentLog, func(r *record) error {
		list = append(list, parley.AgentEvent{
			Seq: r.int(), At: r.time(), Type: parley.AgentEventType(r.str()), Agent: r.str(), Data: r.bytes(),
		})
		return r.err
	}, agent, after, int64(limit))
	return list, err
}

// breakerConfig is a breaker as it is stored (formats.md, circuit_breaker_config).
type breakerConfig struct {
	Enabled          bool    `json:"enabled"`
	FailureThreshold int     `json:"failure_threshold"`
	FailureRate      float64 `json:"failure_rate_threshold"`
	MinimumCalls     int     `json:"minimum_calls,omitempty"`
	OpenMS           int64   `json:"timeout_ms"`
	HalfOpenCalls    int     `json:"half_open_max_calls"`
	WindowMS         int64   `json:"window_size_ms"`
	OnOpen           string  `json:"on_open,omitempty"`
}

// writeBreaker gives a breaker as it is stored; nil for none.
func writeBreaker(b *parley.Breaker) ([]byte, error) {
	if b == nil {
		return nil, nil
	}
	return json.Marshal(breakerConfig{
		b.Enabled, b.FailureThreshold, b.FailureRate, b.MinimumCalls, b.OpenFor.Milliseconds(), b.HalfOpenCalls, b.Window.Milliseconds(), string(b.OnOpen),
	})
}

func readBreakerConfig(data []byte) (*parley.Breaker, error) {
	if data == nil {
		return nil, nil //nolint:nilnil // nil is no breaker
	}
	var c breakerConfig
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, err
	}
	return &parley.Breaker{
		Enabled: c.Enabled, FailureThreshold: c.FailureThreshold, FailureRate: c.FailureRate, MinimumCalls: c.MinimumCalls,
		OpenFor: time.Duration(c.OpenMS) * time.Millisecond, HalfOpenCalls: c.HalfOpenCalls,
		Window: time.Duration(c.WindowMS) * time.Millisecond, OnOpen: parley.OnOpen(c.OnOpen),
	}, nil
}
