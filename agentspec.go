package parley

import (
	"encoding/json"
	"time"
)

// AgentSpec is what a caller says about an agent, both when the agent is added
// and when it is changed. A nil member was not given: adding fills it with its
// default, changing keeps what is stored.
//
// The API checks the shape (lengths, ranges, enumerations that it knows); the
// registry checks what needs knowledge of others: that the name is free, that
// the protocol is registered, and that ProtocolConfig suits the protocol.
type AgentSpec struct {
	// Name is 1 to 255 characters, required when adding. A change never
	// renames: there it is ignored.
	Name *string
	// URL is an http or https URL, required when adding. Its empty path is
	// stored as "/".
	URL         *string
	Description *string
	// Protocol defaults to [ProtocolSimpleA2A]. [ProtocolAuto] finds it out.
	Protocol *string
	// ProtocolConfig is one JSON object; the JSON value null removes what is
	// stored, nil (no bytes) was not given.
	ProtocolConfig json.RawMessage
	// Auth replaces the whole of the agent's authentication.
	Auth *AuthSpec
	// TLS replaces the whole of the agent's TLS settings; the zero value
	// removes them.
	TLS *TLSSpec
	// Timeout is 1 s to 300 s, default 30 s.
	Timeout *time.Duration
	// Retry replaces the whole policy; default [DefaultRetryConfig].
	Retry *RetryConfig
	// OutcomeUnknown is a policy, or "" for the protocol's default.
	OutcomeUnknown *OutcomePolicy
	Idempotent     *bool
	// MaxConcurrent bounds the calls in flight; 0 is the bridge's default.
	MaxConcurrent *int
	// Limits replaces all of them; the zero value is their defaults.
	Limits *AgentLimits
	// Priority is 1 to [MaxPriority], or 0 for [DefaultPriority].
	Priority *int
	// Breaker replaces the whole breaker; the zero value removes it.
	Breaker *Breaker
	// Health replaces the whole of how the agent is looked at; the zero value
	// removes it.
	Health *HealthCheck
	// Status is AgentActive or AgentInactive; deleting is another request.
	Status *AgentStatus
	// By is recorded as the creator or the changer.
	By string
}
