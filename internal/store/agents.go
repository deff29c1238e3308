package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/parley-project/parley"
)

// agentColumns are the columns of an agent in the order of readAgent.
const agentColumns = `id, name, url, description, protocol, protocol_config, auth_type, auth_header, auth_secret, timeout_ms,
 retry_config, outcome_unknown, idempotent, max_concurrent, status, created_at, updated_at, created_by, updated_by, detected,
 auth_config, breaker, limits, priority, health`

// retryConfig is the retry policy as it is stored (formats.md, agent record).
type retryConfig struct {
	MaxRetries int     `json:"max_retries"`
	Initial    int64   `json:"initial_delay_ms"`
	Max        int64   `json:"max_delay_ms"`
	Multiplier float64 `json:"backoff_multiplier"`
	// Budget is nil for the default.
	Budget *retryBudget `json:"budget,omitempty"`
}

type retryBudget struct {
	Percent   float64 `json:"percent,omitempty"`
	PerSecond float64 `json:"per_second,omitempty"`
	Off       bool    `json:"off,omitempty"`
}

func writeRetry(r parley.RetryConfig) ([]byte, error) {
	c := retryConfig{
		MaxRetries: r.MaxRetries, Initial: r.InitialDelay.Milliseconds(), Max: r.MaxDelay.Milliseconds(), Multiplier: r.Multiplier,
	}
	if r.Budget != (parley.RetryBudget{}) {
		c.Budget = &retryBudget{r.Budget.Percent, r.Budget.PerSecond, r.Budget.Off}
	}
	return json.Marshal(c)
}

func readRetry(stored string) (parley.RetryConfig, error) {
	r := parley.DefaultRetryConfig()
	c := retryConfig{MaxRetries: r.MaxRetries, Initial: r.InitialDelay.Milliseconds(), Max: r.MaxDelay.Milliseconds(), Multiplier: r.Multiplier}
	if err := json.Unmarshal([]byte(stored), &c); err != nil {
		return r, err
	}
	r = parley.RetryConfig{
		MaxRetries: c.MaxRetries, InitialDelay: time.Duration(c.Initial) * time.Millisecond,
		MaxDelay: time.Duration(c.Max) * time.Millisecond, Multiplier: c.Multiplier,
	}
	if b := c.Budget; b != nil {
		r.Budget = parley.RetryBudget{Percent: b.Percent, PerSecond: b.PerSecond, Off: b.Off}
	}
	return r, nil
}

// readAgent reads a whole record. unread says which members cannot be read; then the
// others are there, for a list, and nobody may call the agent by them.
func readAgent(r *record) (a parley.Agent, unread error) {
	a = parley.Agent{
		ID: r.str(), Name: r.str(), URL: r.str(), Description: r.str(), Protocol: r.str(), ProtocolConfig: r.bytes(),
		Auth:    parley.Auth{Type: parley.AuthType(r.str()), Header: r.str(), Secret: r.str()},
		Timeout: time.Duration(r.int()) * time.Millisecond,
	}
	retry := r.str()
	a.OutcomeUnknown, a.Idempotent, a.MaxConcurrent = parley.OutcomePolicy(r.str()), r.flag(), int(r.int())
	a.Status, a.CreatedAt, a.UpdatedAt = parley.AgentStatus(r.str()), r.time(), r.time()
	a.CreatedBy, a.UpdatedBy, a.Detected = r.str(), r.str(), r.bytes()
	auth, breaker, limits := r.bytes(), r.bytes(), r.bytes()
	a.Priority = int(r.int())
	health := r.bytes()
	if r.err != nil {
		return a, r.err
	}
	var errs [5]error
	errs[0] = readAuth(auth, &a)
	a.Breaker, errs[1] = readBreakerConfig(breaker)
	a.Limits, errs[2] = readLimits(limits)
	a.Health, errs[3] = readHealthCheck(health)
	a.Retry, errs[4] = readRetry(retry)
	for i, of := range []string{"auth_config", "breaker", "limits", "health", "retry_config"} {
		if errs[i] != nil {
			unread = errors.Join(unread, fmt.Errorf("the %s of agent %q cannot be read: %w", of, a.Name, errs[i]))
		}
	}
	return a, unread
}

// listedAgent reads a record for a list: one that cannot be read keeps nobody from the
// others.
func (db *DB) listedAgent(r *record) (parley.Agent, error) {
	a, unread := readAgent(r)
	if r.err != nil {
		return a, r.err
	}
	for _, v := range []*json.RawMessage{&a.ProtocolConfig, &a.Detected} {
		if *v != nil && !json.Valid(*v) {
			*v, unread = nil, errors.Join(unread, fmt.Errorf("what agent %q is called by is no JSON", a.Name))
		}
	}
	if a.Unreadable = unread != nil; unread != nil {
		db.options.Logger.Error("an agent in a list cannot be read", "agent", a.Name, "error", OneLine(unread))
	}
	return a, nil
}

// agentArgs gives the columns that may change, without status and times. It
// refuses a record that would put a secret into the database.
func agentArgs(a *parley.Agent) ([]any, error) {
	if a.ID == "" || a.Name == "" || a.Protocol == "" {
		return nil, parley.Errorf(parley.CodeInvalid, "an agent needs an id, a name and a protocol")
	}
	config, err := writeAuth(a)
	if err != nil {
		return nil, err
	}
	retry, err := writeRetry(a.Retry)
	if err != nil {
		return nil, parley.Errorf(parley.CodeInvalid, "the retry policy of agent %q: %w", a.Name, err)
	}
	breaker, err := writeBreaker(a.Breaker)
	if err != nil {
		return nil, parley.Errorf(parley.CodeInvalid, "the breaker of agent %q: %w", a.Name, err)
	}
	limits, err := writeLimits(a.Limits)
	if err != nil {
		return nil, parley.Errorf(parley.CodeInvalid, "the limits of agent %q: %w", a.Name, err)
	}
	health, err := writeHealthCheck(a.Health)
	if err != nil {
		return nil, parley.Errorf(parley.CodeInvalid, "the looks at agent %q: %w", a.Name, err)
	}
	auth := a.Auth.Type
	if auth == "" {
		auth = parley.AuthNone
	}
	return []any{
		a.URL, a.Description, a.Protocol, blob(a.ProtocolConfig), string(auth), a.Auth.Header, a.Auth.Secret,
		a.Timeout.Milliseconds(), string(retry), string(a.OutcomeUnknown), flag(a.Idempotent), int64(a.MaxConcurrent),
		blob(a.Detected), blob(config), blob(breaker), blob(limits), int64(a.Priority), blob(health),
	}, nil
}

const insertAgent = `INSERT INTO agents (url, description, protocol, protocol_config, auth_type, auth_header, auth_secret,
 timeout_ms, retry_config, outcome_unknown, idempotent, max_concurrent, detected, auth_config, breaker, limits, priority, health, status, created_at, updated_at, created_by, updated_by,
 id, name) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`

// CreateAgent adds an agent. The error is conflict if its id or its name was
// ever used, also by an agent that is deleted. An empty status
// is active. Synced.
func (db *DB) CreateAgent(ctx context.Context, a parley.Agent) error {
	args, err := agentArgs(&a)
	if err != nil {
		return err
	}
	if a.Status == "" {
		a.Status = parley.AgentActive
	}
	args = append(args, string(a.Status), unixMicro(a.CreatedAt), unixMicro(a.UpdatedAt), a.CreatedBy, a.UpdatedBy, a.ID, a.Name)
	return db.submit(ctx, synced, func(s *session) error {
		n, err := s.exec(insertAgent, args...)
		if err == nil && n == 0 {
			return parley.Errorf(parley.CodeConflict, "there is, or was, an agent with the name %q: names are not used again", a.Name)
		}
		return err
	})
}

// UpdateAgent replaces the record with a's ID that was last changed at read, but
// for its name and what was recorded at its creation. The error is not_found, or
// conflict if it was changed since then: the caller reads it and tries again.
// Synced.
func (db *DB) UpdateAgent(ctx context.Context, a parley.Agent, read time.Time) error {
	if !a.UpdatedAt.After(read) {
		return parley.Errorf(parley.CodeInvalid, "a change of agent %q at %v, which is not after the one before, %v", a.Name, a.UpdatedAt, read)
	}
	args, err := agentArgs(&a)
	if err != nil {
		return err
	}
	args = append(args, string(a.Status), unixMicro(a.UpdatedAt), a.UpdatedBy, a.ID, unixMicro(read))
	return db.submit(ctx, synced, func(s *session) error {
		n, err := s.exec(`UPDATE agents SET url = ?, description = ?, protocol = ?, protocol_config = ?, auth_type = ?, auth_header = ?,
 auth_secret = ?, timeout_ms = ?, retry_config = ?, outcome_unknown = ?, idempotent = ?, max_concurrent = ?, detected = ?,
 auth_config = ?, breaker = ?, limits = ?, priority = ?, health = ?, status = ?,
 updated_at = ?, updated_by = ? WHERE id = ? AND updated_at = ?`, args...)
		if err != nil || n > 0 {
			return err
		}
		there, err := s.exists(`SELECT 1 FROM agents WHERE id = ?`, a.ID)
		if err == nil {
			err = noAgent(a.ID)
			if there {
				err = parley.Errorf(parley.CodeConflict, "agent %q was changed meanwhile", a.Name)
			}
		}
		return err
	})
}

func noAgent(ref string) error {
	return parley.Errorf(parley.CodeNotFound, "there is no agent %q", ref)
}

// Agent gives an agent by its id, or else by its name, whatever its status, or
// the error not_found. Of a record that cannot be read as a whole the rest is given beside
// the error, marked as unreadable, and the log says so once.
func (db *DB) Agent(ctx context.Context, idOrName string) (parley.Agent, error) {
	var a parley.Agent
	found := false
	// An id comes first if another agent should have it as its name.
	err := db.read(ctx, `SELECT `+agentColumns+` FROM agents WHERE id = ? OR name = ? ORDER BY CASE WHEN id = ? THEN 0 ELSE 1 END LIMIT 1`,
		func(r *record) (err error) {
			found = true
			a, err = readAgent(r)
			a.Unreadable = err != nil && r.err == nil
			return err
		}, idOrName, idOrName, idOrName)
	if err == nil && !found {
		err = noAgent(idOrName)
	}
	if a.Unreadable && db.damagedRows.first("agent "+a.ID) {
		db.options.Logger.Error("an agent cannot be read, and nobody calls it; a server that declares it stores it anew when it starts",
			"agent", a.Name, "error", OneLine(err))
	}
	return a, err
}

// Agents gives one page of the agents that q selects by name, deleted ones
// too, and the number of all of them.
func (db *DB) Agents(ctx context.Context, q parley.AgentQuery) ([]parley.Agent, int, error) {
	var c condition
	if q.Name != "" {
		c.add(`name = ?`, q.Name)
	}
	if q.Protocol != "" {
		c.add(`protocol = ?`, q.Protocol)
	}
	if q.Status != "" {
		c.add(`status = ?`, string(q.Status))
	}
	var list []parley.Agent
	total, err := db.list(ctx, &listing{agentColumns, `agents`, c, ` ORDER BY name`, q.Page}, func(r *record) error {
		a, err := db.listedAgent(r)
		list = append(list, a)
		return err
	})
	return list, total, err
}
