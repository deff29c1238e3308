package parley

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"
)

// AgentStatus says whether an agent may be used by new workflows and runs.
type AgentStatus string

// The states of an agent record (formats.md, agent record).
const (
	AgentActive   AgentStatus = "active"
	AgentInactive AgentStatus = "inactive"
	AgentDeleted  AgentStatus = "deleted"
)

// Agent is the record of an agent that somebody else operates (AD-5).
type Agent struct {
	// ID is a UUID; Name is 1 to 255 characters and unique for ever.
	ID, Name    string
	URL         string
	Description string
	// Protocol is a registered protocol's name, never empty in a stored record.
	Protocol string
	// ProtocolConfig is a JSON object that the protocol's adapter checks, or nil.
	ProtocolConfig json.RawMessage
	// Detected is the [Detection] that the agent is called by, as JSON, or nil.
	// What ProtocolConfig says goes before it.
	Detected json.RawMessage
	Auth     Auth
	// TLS is what connections to the agent show and trust, besides Auth.
	TLS AgentTLS
	// Timeout bounds one HTTP exchange: 1 s to 300 s, default 30 s.
	Timeout time.Duration
	Retry   RetryConfig
	// OutcomeUnknown is the policy of language rule R1; "" is the protocol's
	// default.
	OutcomeUnknown OutcomePolicy
	// Idempotent declares that the agent deduplicates by task id.
	Idempotent bool
	Status     AgentStatus
	// MaxConcurrent bounds the calls in flight; 0 is the bridge's default.
	MaxConcurrent int
	// Limits are the others of what each bridge lets through to the agent.
	Limits AgentLimits
	// Priority is the agent's share among those that wait for slots of a bridge, 1
	// to [MaxPriority]; 0 is [DefaultPriority].
	Priority int
	// Breaker is nil if the record names none: then it is the bridge's default.
	Breaker *Breaker
	// Health is nil if the record does not say how the agent is looked at.
	Health *HealthCheck

	CreatedAt, UpdatedAt time.Time
	CreatedBy, UpdatedBy string

	// Unreadable is set in lists where members of the record cannot be read: they are as
	// if they were not there. The record itself is an internal error then, and the
	// server's log says why.
	Unreadable bool

	// Credential is the resolved secret of Auth.Secret, and Resolved holds the
	// others, nil if there are none. They are set only on the copy that a bridge
	// gets for a call, and they redact themselves everywhere.
	Credential Secret
	Resolved   *ResolvedAuth
	// CallSecret is one of this call alone, such as what the agent shows when it reports on
	// the task. It is kept out of all that is said of the call, and set as those are.
	CallSecret Secret
}

// RetryConfig is the retry policy of an agent record (formats.md). An agent
// step without any retry policy uses it: attempts = 1 + MaxRetries (rule R4).
type RetryConfig struct {
	MaxRetries   int
	InitialDelay time.Duration
	MaxDelay     time.Duration
	Multiplier   float64
	// Budget bounds the retries of all steps that call the agent.
	Budget RetryBudget
}

// RetryBudget says how many of an agent's calls may be retries; what is beyond
// is put off. The zero value is the default.
type RetryBudget struct {
	// Percent of the recent calls, 1 to 100; 0 is 20.
	Percent float64
	// PerSecond is how many may be in any case, 0.1 to 1000; 0 is 5.
	PerSecond float64
	// Off: there is no bound.
	Off bool
}

// The defaults of a [RetryBudget].
const (
	defaultBudgetPercent   = 20
	defaultBudgetPerSecond = 5
)

// Share is the part of the calls that may be retries, from 0 to 1.
func (b RetryBudget) Share() float64 {
	if b.Percent == 0 {
		return defaultBudgetPercent / 100.0
	}
	return b.Percent / 100
}

// Rate is how many retries a second there may be in any case.
func (b RetryBudget) Rate() float64 {
	if b.PerSecond == 0 {
		return defaultBudgetPerSecond
	}
	return b.PerSecond
}

// DefaultRetryConfig is what formats.md gives an agent that names none.
func DefaultRetryConfig() RetryConfig {
	return RetryConfig{MaxRetries: 3, InitialDelay: time.Second, MaxDelay: 30 * time.Second, Multiplier: 2}
}

// OutcomePolicy says what happens to an attempt whose outcome is unknown
// (language rule R1, protocol.md §4.5).
type OutcomePolicy string

// The policies of an agent for attempts whose outcome is unknown.
const (
	// OutcomeLookup asks the agent what became of the task.
	OutcomeLookup OutcomePolicy = "lookup"
	// OutcomeResend sends the same attempt again under the same ids.
	OutcomeResend OutcomePolicy = "resend"
	// OutcomeFail never sends again: the step fails with outcome_unknown.
	OutcomeFail OutcomePolicy = "fail"
)

const redacted = "[redacted]"

// Secret is a value that must not be seen. Every way to print or encode it
// gives "[redacted]", also inside structs, slices and maps; only Reveal gives
// the bytes. The value sits behind a function because package fmt prints
// unexported fields of a struct without asking their methods.
type Secret struct{ reveal func() []byte }

// NewSecret wraps value. The caller must not keep it.
func NewSecret(value []byte) Secret { return Secret{reveal: func() []byte { return value }} }

// Reveal gives the secret for use in a request and nothing else. The caller
// must not change or keep it.
func (s Secret) Reveal() []byte {
	if s.reveal == nil {
		return nil
	}
	return s.reveal()
}

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return len(s.Reveal()) == 0 }

// String gives "[redacted]".
func (s Secret) String() string { return redacted }

// Format writes "[redacted]" whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue gives "[redacted]".
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalJSON gives "[redacted]".
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalText gives "[redacted]".
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
