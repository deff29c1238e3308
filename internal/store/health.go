package store

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/parley-project/parley"
)

const (
	healthColumns = `agent, status, message, took, checked_at, changed_at, failures, card_hash`
	selectHealth  = `SELECT ` + healthColumns + ` FROM agent_health WHERE agent = ?`

	// Programs on stdio are known by their calls alone.
	healthDue = `SELECT a.name FROM agents a LEFT JOIN agent_health h ON h.agent = a.name
 WHERE a.status = 'active' AND a.url NOT LIKE 'stdio:%' AND coalesce(h.next_at, 0) <= ? ORDER BY coalesce(h.next_at, 0), a.name LIMIT ?`

	claimHealth = `INSERT INTO agent_health (agent, status, took, failures, next_at, token) VALUES (?, 'unknown', 0, 0, ?, ?)
 ON CONFLICT (agent) DO UPDATE SET next_at = excluded.next_at, token = excluded.token WHERE agent_health.next_at <= ?`
	saveHealth = `UPDATE agent_health SET status = ?, message = ?, took = ?, checked_at = ?, changed_at = ?, failures = ?, card_hash = ?
 WHERE agent = ? AND token = ?`

	// The text of the condition is that of index attempt_called.
	// The part of each agent is read from the index alone.
	oneOfCalls = `SELECT * FROM (SELECT agent, outcome, settled_at - claimed_at, settled_at FROM attempt
 WHERE agent = ? AND settled_at > ? AND settled_at IS NOT NULL AND claimed_at IS NOT NULL ORDER BY settled_at DESC LIMIT ?) AS c`
	countInFlight = `SELECT agent, count(*) FROM attempt WHERE state IN ('claimed', 'following') GROUP BY agent`
)

// atOnce is how many agents one statement is about. It is always the same number, so
// that there is one statement to prepare.
const atOnce = 16

var (
	selectHealths = `SELECT ` + healthColumns + ` FROM agent_health WHERE agent IN (?` + strings.Repeat(", ?", atOnce-1) + `)`
	selectCalls   = oneOfCalls + strings.Repeat(" UNION ALL "+oneOfCalls, atOnce-1)
)

// HealthDue gives the names of at most limit active agents that nobody has
// looked at since their time came, those that have waited longest first. The
// programs of this machine (stdio) are not among them.
func (db *DB) HealthDue(ctx context.Context, now time.Time, limit int) ([]string, error) {
	var names []string
	err := db.read(ctx, healthDue, func(r *record) error {
		names = append(names, r.str())
		return r.err
	}, unixMicro(now), int64(limit))
	return names, err
}

// HealthClaim is the wish to look at an agent, and nobody else to do so before
// Next.
type HealthClaim struct {
	Agent string
	Next  time.Time
}

// ClaimHealth gives those of the agents that the caller is to look at: whose
// time has come at now. For all others somebody else was faster. A caller who
// dies has them looked at later, at their Next. token is new for each call.
func (db *DB) ClaimHealth(ctx context.Context, claims []HealthClaim, token string, now time.Time) ([]string, error) {
	claims = slices.Clone(claims)
	slices.SortFunc(claims, func(a, b HealthClaim) int {
		if a.Agent < b.Agent {
			return -1
		}
		return 1
	})
	var won []string
	// Nothing depends on it but who looks, so it waits for company.
	err := db.submit(ctx, lazy, func(s *session) error {
		won = nil
		for _, c := range claims {
			s.at(c.Agent)
			n, err := s.exec(claimHealth, c.Agent, unixMicro(c.Next), token, unixMicro(now))
			if err != nil {
				return err
			}
			if n > 0 {
				won = append(won, c.Agent)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return won, nil
}

// SaveHealth stores what a look has come to, and adds entries to the agent's
// log. It is false, and nothing was written, if somebody has claimed the agent
// after the one with that token.
func (db *DB) SaveHealth(ctx context.Context, h parley.HealthState, token string, events []parley.AgentEvent) (bool, error) {
	for _, e := range events {
		if !json.Valid(e.Data) {
			return false, parley.Errorf(parley.CodeInvalid, "the data of an event of agent %q is no JSON", h.Agent)
		}
	}
	d := lazy
	if len(events) > 0 {
		d = synced
	}
	err := db.submit(ctx, d, func(s *session) error {
		s.at(h.Agent)
		n, err := s.exec(saveHealth, string(h.Status), text(h.Message), h.Took.Microseconds(), micros(h.CheckedAt), micros(h.ChangedAt),
			int64(h.Failures), text(h.CardHash), h.Agent, token)
		if err == nil && n == 0 {
			err = ErrStale
		}
		for i := range events {
			if err == nil {
				err = addAgentEvent(s, h.Agent, &events[i])
			}
		}
		return err
	})
	if errors.Is(err, ErrStale) {
		return false, nil
	}
	return err == nil, err
}

// Health gives what the looks at the agent of that name have come to; one that
// nobody has looked at is unknown.
func (db *DB) Health(ctx context.Context, agent string) (parley.HealthState, error) {
	h := parley.HealthState{Agent: agent, Status: parley.HealthUnknown}
	err := db.read(ctx, selectHealth, func(r *record) error {
		h = readHealth(r)
		return r.err
	}, agent)
	return h, err
}

func readHealth(r *record) parley.HealthState {
	return parley.HealthState{
		Agent: r.str(), Status: parley.HealthStatus(r.str()), Message: r.str(), Took: time.Duration(r.int()) * time.Microsecond,
		CheckedAt: r.time(), ChangedAt: r.time(), Failures: int(r.int()), CardHash: r.str(),
	}
}

// AgentUp is what a look at an active agent has come to.
type AgentUp struct {
	Agent  string
	Status parley.HealthStatus
}

// AgentsUp gives the active agents that were looked at, at most limit of them by
// name.
func (db *DB) AgentsUp(ctx context.Context, limit int) ([]AgentUp, error) {
	var list []AgentUp
	err := db.read(ctx, `SELECT h.agent, h.status FROM agents a JOIN agent_health h ON h.agent = a.name
 WHERE a.status = 'active' AND h.status <> 'unknown' ORDER BY h.agent LIMIT ?`, func(r *record) error {
		list = append(list, AgentUp{r.str(), parley.HealthStatus(r.str())})
		return r.err
	}, int64(limit))
	return list, err
}

// Healths gives what the looks at the agents of those names have come to, by name;
// those that nobody has looked at are not in it. It costs a statement for each
// atOnce of them.
func (db *DB) Healths(ctx context.Context, agents []string) (map[string]parley.HealthState, error) {
	all := make(map[string]parley.HealthState, len(agents))
	for chunk := range slices.Chunk(agents, atOnce) {
		args := make([]any, atOnce)
		for i := range args {
			args[i] = nameAt(chunk, i)
		}
		if err := db.read(ctx, selectHealths, func(r *record) error {
			h := readHealth(r)
			all[h.Agent] = h
			return r.err
		}, args...); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// nameAt is the i-th name, or one that no agent has.
func nameAt(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return ""
}

// Calls gives the newest calls of each of the agents of those names that have ended
// after since, at most limit of them, by name. It costs no more than that, however
// many there were, and a statement for each atOnce agents. now is what the window
// ends with.
func (db *DB) Calls(ctx context.Context, agents []string, since, now time.Time, limit int) (map[string]parley.CallStats, error) {
	all := make(map[string]parley.CallStats, len(agents))
	for chunk := range slices.Chunk(agents, atOnce) {
		sums := make(map[string]*callSum, len(chunk))
		var args []any
		for i := range atOnce {
			args = append(args, nameAt(chunk, i), unixMicro(since), int64(limit))
		}
		for _, name := range chunk {
			sums[name] = &callSum{oldest: since}
		}
		if err := db.read(ctx, selectCalls, func(r *record) error {
			if sum := sums[r.str()]; sum != nil {
				return sum.add(r, limit)
			}
			return r.err
		}, args...); err != nil {
			return nil, err
		}
		for name, sum := range sums {
			all[name] = sum.stats(now)
		}
	}
	return all, nil
}

// callSum adds up calls, the newest first.
type callSum struct {
	rows, errors int
	took         []time.Duration
	oldest       time.Time
}

// add reads outcome, time and end of a call.
func (s *callSum) add(r *record, limit int) error {
	outcome, d, at := parley.Outcome(r.str()), r.int(), r.time()
	if s.rows++; s.rows == limit {
		s.oldest = at
	}
	switch outcome {
	case parley.OutcomeCancelled:
		return r.err
	case parley.OutcomeOK:
	default:
		s.errors++
	}
	s.took = append(s.took, max(time.Duration(d)*time.Microsecond, 0))
	return r.err
}

func (s *callSum) stats(now time.Time) parley.CallStats {
	slices.Sort(s.took)
	return parley.CallStats{
		Count: len(s.took), Errors: s.errors, Window: max(now.Sub(s.oldest), 0),
		P50: percentile(s.took, 50), P95: percentile(s.took, 95), P99: percentile(s.took, 99),
	}
}

// percentile is the smallest of the sorted values that at least p of a hundred
// are not greater than.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*p+99)/100-1]
}

// InFlight counts the calls that are under way, by the names of their agents,
// in all bridges. It costs as much as there are.
func (db *DB) InFlight(ctx context.Context) (map[string]int, error) {
	n := map[string]int{}
	err := db.read(ctx, countInFlight, func(r *record) error {
		agent, count := r.str(), r.int()
		n[agent] = int(count)
		return r.err
	})
	return n, err
}

// healthCheck is how an agent is looked at, as it is stored.
type healthCheck struct {
	Off        bool  `json:"off,omitempty"`
	IntervalMS int64 `json:"interval_ms,omitempty"`
	TimeoutMS  int64 `json:"timeout_ms,omitempty"`
}

// writeHealthCheck gives it as it is stored; nil for none.
func writeHealthCheck(h *parley.HealthCheck) ([]byte, error) {
	if h == nil {
		return nil, nil
	}
	return json.Marshal(healthCheck{h.Off, h.Interval.Milliseconds(), h.Timeout.Milliseconds()})
}

func readHealthCheck(data []byte) (*parley.HealthCheck, error) {
	if data == nil {
		return nil, nil //nolint:nilnil // nil is that the record says nothing
	}
	var c healthCheck
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, err
	}
	return &parley.HealthCheck{
		Off: c.Off, Interval: time.Duration(c.IntervalMS) * time.Millisecond, Timeout: time.Duration(c.TimeoutMS) * time.Millisecond,
	}, nil
}
