package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/parley-project/parley"
)

// Agent is the record of an agent as the API shows it. Credentials are never
// part of it, only what is known about them.
type Agent struct {
	ID             string          `json:"id"`
	Name           string          `json:"name"`
	URL            string          `json:"url"`
	Description    string          `json:"description,omitempty"`
	Protocol       string          `json:"protocol"`
	ProtocolConfig json.RawMessage `json:"protocol_config"`
	AuthType       parley.AuthType `json:"auth_type"`
	// AuthConfig tells the header and where the secret comes from.
	AuthConfig json.RawMessage `json:"auth_config"`
	// TimeoutMS bounds one HTTP exchange, in milliseconds.
	TimeoutMS      int64                `json:"timeout_ms"`
	RetryConfig    Retry                `json:"retry_config"`
	OutcomeUnknown parley.OutcomePolicy `json:"outcome_unknown,omitempty"`
	Idempotent     bool                 `json:"idempotent"`
	MaxConcurrent  int                  `json:"max_concurrent"`
	Status         parley.AgentStatus   `json:"status"`
	CreatedAt      time.Time            `json:"created_at"`
	UpdatedAt      time.Time            `json:"updated_at"`
	CreatedBy      string               `json:"created_by,omitempty"`
	UpdatedBy      string               `json:"updated_by,omitempty"`
	// Limits is nil if the record names none; Priority is 0 then, the default.
	Limits   *Limits `json:"limits,omitempty"`
	Priority int     `json:"priority,omitempty"`
	// Breaker is nil if the record names none.
	Breaker *Breaker `json:"breaker,omitempty"`
	// Health says how the agent is looked at; nil is as the server says.
	Health *HealthCheck `json:"health,omitempty"`
	// TLS tells where the TLS settings of connections to the agent come from.
	TLS json.RawMessage `json:"tls,omitempty"`
	// Detected is how the agent is called, as far as ProtocolConfig does not say
	// otherwise; nil if nobody found out.
	Detected *parley.Detection `json:"detected,omitempty"`
	// Unreadable is set in lists where members of the record cannot be read and are left
	// out: the record itself is an internal error then.
	Unreadable bool `json:"unreadable,omitempty"`
}

// Retry is the retry policy of an agent. Delays are in milliseconds.
type Retry struct {
	MaxRetries     int     `json:"max_retries"`
	InitialDelayMS int64   `json:"initial_delay_ms"`
	MaxDelayMS     int64   `json:"max_delay_ms"`
	Multiplier     float64 `json:"backoff_multiplier"`
	// Budget bounds the retries of all calls of the agent; nil is the default.
	Budget *RetryBudget `json:"budget,omitempty"`
}

// RetryBudget is [parley.RetryBudget] on the wire.
type RetryBudget struct {
	Percent   float64 `json:"percent,omitempty"`
	PerSecond float64 `json:"per_second,omitempty"`
	Off       bool    `json:"off,omitempty"`
}

// specBody is parley.AgentSpec on the wire.
type specBody struct {
	Name           *string               `json:"name,omitempty"`
	URL            *string               `json:"url,omitempty"`
	Description    *string               `json:"description,omitempty"`
	Protocol       *string               `json:"protocol,omitempty"`
	ProtocolConfig json.RawMessage       `json:"protocol_config,omitempty"`
	AuthType       *parley.AuthType      `json:"auth_type,omitempty"`
	AuthConfig     *authBody             `json:"auth_config,omitempty"`
	TLS            *tlsBody              `json:"tls,omitempty"`
	TimeoutMS      *int64                `json:"timeout_ms,omitempty"`
	RetryConfig    *Retry                `json:"retry_config,omitempty"`
	OutcomeUnknown *parley.OutcomePolicy `json:"outcome_unknown,omitempty"`
	Idempotent     *bool                 `json:"idempotent,omitempty"`
	MaxConcurrent  *int                  `json:"max_concurrent,omitempty"`
	Limits         json.RawMessage       `json:"limits,omitempty"`
	Priority       *int                  `json:"priority,omitempty"`
	Breaker        json.RawMessage       `json:"breaker,omitempty"`
	Health         *HealthCheck          `json:"health,omitempty"`
	Status         *parley.AgentStatus   `json:"status,omitempty"`
}

func newSpecBody(s parley.AgentSpec) specBody {
	b := specBody{
		Name: s.Name, URL: s.URL, Description: s.Description, Protocol: s.Protocol, ProtocolConfig: s.ProtocolConfig,
		OutcomeUnknown: s.OutcomeUnknown, Idempotent: s.Idempotent, MaxConcurrent: s.MaxConcurrent, Priority: s.Priority, Status: s.Status,
	}
	if s.Timeout != nil {
		b.TimeoutMS = new(s.Timeout.Milliseconds())
	}
	if r := s.Retry; r != nil {
		b.RetryConfig = &Retry{
			MaxRetries: r.MaxRetries, InitialDelayMS: r.InitialDelay.Milliseconds(),
			MaxDelayMS: r.MaxDelay.Milliseconds(), Multiplier: r.Multiplier,
		}
		if r.Budget != (parley.RetryBudget{}) {
			b.RetryConfig.Budget = &RetryBudget{Percent: r.Budget.Percent, PerSecond: r.Budget.PerSecond, Off: r.Budget.Off}
		}
	}
	b.Limits, _ = limitsBody(s.Limits)    // numbers, too
	b.Breaker, _ = breakerBody(s.Breaker) // numbers and a word
	if h := s.Health; h != nil {
		b.Health = &HealthCheck{Enabled: !h.Off, IntervalMS: h.Interval.Milliseconds(), TimeoutMS: h.Timeout.Milliseconds()}
	}
	if a := s.Auth; a != nil {
		b.AuthType, b.AuthConfig = &a.Type, newAuthBody(a)
	}
	if t := s.TLS; t != nil {
		b.TLS = &tlsBody{Cert: oneSecret(t.Cert), Key: oneSecret(t.Key), CA: oneSecret(t.CA)}
	}
	return b
}

// AddAgent registers an agent. A name that is or was taken is refused with
// [parley.CodeConflict], a protocol that the server does not speak with
// [parley.CodeUnsupportedProtocol]. With the protocol [parley.ProtocolAuto] the
// server finds out what the agent speaks, or refuses as [Client.DetectAgent]
// does. By is not sent.
func (c *Client) AddAgent(ctx context.Context, spec parley.AgentSpec) (Agent, error) {
	var a Agent
	err := c.post(ctx, call{path: path("agents")}, newSpecBody(spec), &a)
	return a, err
}

// SetAgent changes the members that spec gives and gives the whole record.
func (c *Client) SetAgent(ctx context.Context, ref string, spec parley.AgentSpec) (Agent, error) {
	var a Agent
	if err := needName("agent", ref); err != nil {
		return a, err
	}
	spec.Name = nil
	err := c.post(ctx, call{method: http.MethodPut, path: path("agents", ref)}, newSpecBody(spec), &a)
	return a, err
}

// Agent gives one agent by its id or name, also a removed one.
func (c *Client) Agent(ctx context.Context, ref string) (Agent, error) {
	var a Agent
	if err := needName("agent", ref); err != nil {
		return a, err
	}
	err := c.get(ctx, path("agents", ref), nil, &a)
	return a, err
}

// AgentQuery selects agents. Zero members don't restrict.
type AgentQuery struct {
	Name     string
	Protocol string
	Status   parley.AgentStatus
	Page     PageQuery
}

// Agents gives one page of the agents, also of removed ones unless the query
// names a status.
func (c *Client) Agents(ctx context.Context, query AgentQuery) (Page[Agent], error) {
	var page Page[Agent]
	err := c.get(ctx, path("agents"), query.values(), &page)
	return page, err
}

// RemoveAgent takes an agent out of use. Its name stays taken for ever. To
// remove it again changes nothing.
func (c *Client) RemoveAgent(ctx context.Context, ref string) error {
	if err := needName("agent", ref); err != nil {
		return err
	}
	_, err := c.do(ctx, call{method: http.MethodDelete, path: path("agents", ref)}, nil)
	return err
}

// CallAgent starts a run of one step that calls the agent r.CallAgent with
// r.Input. The run is hidden from lists; watch it like any other.
func (c *Client) CallAgent(ctx context.Context, r parley.StartRequest) (parley.Run, error) {
	var run parley.Run
	if err := needName("agent", r.CallAgent); err != nil {
		return run, err
	}
	in := struct {
		Input          json.RawMessage   `json:"input,omitempty"`
		IdempotencyKey string            `json:"idempotency_key,omitempty"`
		Labels         map[string]string `json:"labels,omitempty"`
		Priority       *int              `json:"priority,omitempty"`
	}{r.Input, r.IdempotencyKey, r.Labels, r.Priority}
	err := c.post(ctx, call{path: path("agents", r.CallAgent, "call"), trace: r.Trace}, in, &run)
	return run, err
}
