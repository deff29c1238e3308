package api

import (
	"encoding/json"
	"time"

	"github.com/parley-project/parley"
)

// agentBody is an agent's record (formats.md) with our members behind it.
type agentBody struct {
	ID          string      `json:"id"`
	Name        string      `json:"name"`
	URL         string      `json:"url"`
	Description *string     `json:"description"`
	AuthType    string      `json:"auth_type"`
	AuthConfig  *shownAuth  `json:"auth_config" doc:"Credentials are never given back."`
	TimeoutMS   int64       `json:"timeout_ms"`
	RetryConfig retryConfig `json:"retry_config"`
	Status      string      `json:"status"`
	CreatedAt   time.Time   `json:"created_at"`
	UpdatedAt   time.Time   `json:"updated_at"`
	CreatedBy   *string     `json:"created_by"`
	UpdatedBy   *string     `json:"updated_by"`

	Protocol       string          `json:"protocol"`
	ProtocolConfig json.RawMessage `json:"protocol_config"`
	OutcomeUnknown *string         `json:"outcome_unknown"`
	Idempotent     bool            `json:"idempotent"`
	MaxConcurrent  int             `json:"max_concurrent"`
	// TLS came later than all others: who has none sees none.
	TLS *tlsSettings `json:"tls,omitempty"`
	// Limits, Priority, Breaker, Health and Detected came later too.
	Limits   *limitsBody       `json:"limits,omitempty"`
	Priority int               `json:"priority,omitempty"`
	Breaker  *breakerBody      `json:"breaker,omitempty"`
	Health   *healthCheckBody  `json:"health,omitempty"`
	Detected *parley.Detection `json:"detected,omitempty" doc:"How the agent is called, as far as protocol_config does not say otherwise, and why."`
	// Unreadable is that of lists.
	Unreadable bool `json:"unreadable,omitempty" doc:"In lists: members of the record cannot be read, and are left out."`
}

// healthBody is what one look at an agent showed.
type healthBody struct {
	Status         string          `json:"status" enum:"healthy,unhealthy"`
	Message        string          `json:"message"`
	ResponseTimeMS float64         `json:"response_time_ms"`
	Timestamp      time.Time       `json:"timestamp"`
	AgentCard      json.RawMessage `json:"agent_card"`
}

func makeAgent(a parley.Agent) agentBody {
	return agentBody{
		ID: a.ID, Name: a.Name, URL: a.URL, Description: orNil(a.Description),
		AuthType: string(authType(a.Auth)), AuthConfig: showAuth(a.Auth),
		TimeoutMS: a.Timeout.Milliseconds(),
		RetryConfig: retryConfig{
			MaxRetries: a.Retry.MaxRetries, InitialDelayMS: a.Retry.InitialDelay.Milliseconds(),
			MaxDelayMS: a.Retry.MaxDelay.Milliseconds(), BackoffMultiplier: a.Retry.Multiplier,
			Budget: showBudget(a.Retry.Budget),
		},
		Status: string(a.Status), CreatedAt: a.CreatedAt.UTC(), UpdatedAt: a.UpdatedAt.UTC(),
		CreatedBy: orNil(a.CreatedBy), UpdatedBy: orNil(a.UpdatedBy),
		Protocol: a.Protocol, ProtocolConfig: a.ProtocolConfig,
		OutcomeUnknown: orNil(string(a.OutcomeUnknown)), Idempotent: a.Idempotent, MaxConcurrent: a.MaxConcurrent,
		TLS: showTLS(a.TLS), Limits: showLimits(a.Limits), Priority: a.Priority, Breaker: showBreaker(a.Breaker),
		Health: showHealthCheck(a.Health), Detected: showDetected(a.Detected), Unreadable: a.Unreadable,
	}
}
