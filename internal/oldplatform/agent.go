package oldplatform

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/registry"
	"github.com/parley-project/parley/internal/store"
)

// draft is the store of a registry that makes records and writes none: the
// record gets the id and the times that it has over there, and is written
// together with the note that it was imported.
type draft struct{ agent parley.Agent }

// CreateAgent keeps the record.
func (d *draft) CreateAgent(_ context.Context, a parley.Agent) error {
	d.agent = a
	return nil
}

// UpdateAgent, Agent and Agents know no agent.
func (d *draft) UpdateAgent(_ context.Context, a parley.Agent, _ time.Time) error {
	return noDraft(a.Name)
}

// Agent is there for the interface.
func (d *draft) Agent(_ context.Context, ref string) (parley.Agent, error) {
	return parley.Agent{}, noDraft(ref)
}

// Agents is there for the interface.
func (d *draft) Agents(context.Context, parley.AgentQuery) ([]parley.Agent, int, error) {
	return nil, 0, nil
}

func noDraft(ref string) error {
	return parley.Errorf(parley.CodeNotFound, "there is no agent %q", ref)
}

// authRow is what auth_config may hold, in the spellings that the API, the
// bridge and the agents file of the existing platform use.
type authRow struct {
	Type       *string `json:"type"`
	Token      *string `json:"token"`
	Key        *string `json:"key"`
	APIKey     *string `json:"api_key"`
	Header     *string `json:"header"`
	HeaderName *string `json:"header_name"`
}

// retryRow is retry_config; what is missing has the default of formats.md.
type retryRow struct {
	MaxRetries *float64 `json:"max_retries"`
	Initial    *float64 `json:"initial_delay_ms"`
	Max        *float64 `json:"max_delay_ms"`
	Multiplier *float64 `json:"backoff_multiplier"`
}

// agent makes the record of an agent: checked as the registry checks every
// record, its literal credential sealed. protocol is for rows that name none.
func (t *Target) agent(ctx context.Context, row *agentRow, protocol string) (store.Import, error) {
	spec, err := agentSpec(row, protocol)
	if err != nil {
		return store.Import{}, err
	}
	var d draft
	if _, err := t.Registry(&d).Add(ctx, spec); err != nil {
		return store.Import{}, err
	}
	a := d.agent
	a.ID, a.CreatedBy, a.UpdatedBy = row.ID, textOf(row.CreatedBy), textOf(row.UpdatedBy)
	if a.CreatedAt, err = timeOf(row.CreatedAt); err != nil {
		return store.Import{}, err
	}
	if a.UpdatedAt, err = timeOf(row.UpdatedAt); err != nil {
		return store.Import{}, err
	}
	switch a.Status = parley.AgentStatus(strings.ToLower(row.Status)); a.Status {
	case parley.AgentActive, parley.AgentInactive, parley.AgentDeleted:
	default:
		return store.Import{}, parley.Errorf(parley.CodeInvalid, "its status %q is none of active, inactive and deleted", row.Status)
	}
	return store.Import{Kind: store.ImportAgent, ID: row.ID, Agent: &a}, nil
}

func agentSpec(row *agentRow, protocol string) (parley.AgentSpec, error) {
	if row.Protocol != nil {
		protocol = *row.Protocol
	}
	if protocol == parley.ProtocolAuto {
		return parley.AgentSpec{}, parley.Errorf(parley.CodeInvalid, "its protocol is %s, which no column of the existing platform means", protocol)
	}
	spec := parley.AgentSpec{
		Name: &row.Name, URL: &row.URL, Description: new(textOf(row.Description)), Protocol: &protocol,
		Timeout: new(time.Duration(row.TimeoutMS) * time.Millisecond),
	}
	if row.ProtocolConfig != nil {
		spec.ProtocolConfig = json.RawMessage(*row.ProtocolConfig)
	}
	var err error
	if spec.Auth, err = agentAuth(row); err != nil {
		return spec, err
	}
	spec.Retry, err = agentRetry(row.RetryConfig)
	return spec, err
}

// agentAuth gives what auth_type decides, or, without it, the type inside
// auth_config, which is the one that the old bridge goes by (formats.md).
func agentAuth(row *agentRow) (*parley.AuthSpec, error) {
	var in authRow
	if c := textOf(row.AuthConfig); c != "" {
		if err := json.Unmarshal([]byte(c), &in); err != nil {
			// The text of the error may quote a credential.
			return nil, parley.Errorf(parley.CodeInvalid, "its auth_config is no object of texts")
		}
	}
	kind := strings.ToLower(textOf(row.AuthType))
	if kind == "" {
		kind = strings.ToLower(textOf(in.Type))
	}
	first := func(values ...*string) string {
		for _, v := range values {
			if textOf(v) != "" {
				return *v
			}
		}
		return ""
	}
	auth := &parley.AuthSpec{Type: parley.AuthType(kind)}
	secret := ""
	switch auth.Type {
	case "", parley.AuthNone:
		auth.Type = parley.AuthNone
	case parley.AuthBearer:
		secret = first(in.Token)
	case parley.AuthAPIKey:
		secret, auth.Header = first(in.Key, in.APIKey), first(in.HeaderName, in.Header)
	default:
		return nil, parley.Errorf(parley.CodeInvalid, "its auth_type %q is none of none, bearer and apikey", kind)
	}
	if secret != "" {
		auth.Literal = parley.NewSecret([]byte(secret))
	}
	return auth, nil
}

func agentRetry(config *string) (*parley.RetryConfig, error) {
	retry := parley.DefaultRetryConfig()
	var in retryRow
	if config != nil {
		if err := json.Unmarshal([]byte(*config), &in); err != nil {
			return nil, parley.Errorf(parley.CodeInvalid, "its retry_config is no object of numbers")
		}
	}
	if in.MaxRetries != nil {
		if retry.MaxRetries = int(*in.MaxRetries); float64(retry.MaxRetries) != *in.MaxRetries {
			return nil, parley.Errorf(parley.CodeInvalid, "its retry_config.max_retries is no whole number")
		}
	}
	if in.Initial != nil {
		retry.InitialDelay = time.Duration(*in.Initial * float64(time.Millisecond))
	}
	if in.Max != nil {
		retry.MaxDelay = time.Duration(*in.Max * float64(time.Millisecond))
	}
	if in.Multiplier != nil {
		retry.Multiplier = *in.Multiplier
	}
	return &retry, nil
}

// withoutCredential reports whether an agent is to show a credential that its
// record does not have.
func withoutCredential(a *parley.Agent) bool {
	return (a.Auth.Type == parley.AuthBearer || a.Auth.Type == parley.AuthAPIKey) && a.Auth.Secret == ""
}

// digestAgent stands for a row without its credential: a digest of that could be
// tried out. Whoever changes it over there changes updated_at.
func digestAgent(row *agentRow) string {
	r := *row
	if auth := textOf(r.AuthConfig); auth != "" {
		r.AuthConfig = new(string(redact([]byte(auth), true)))
	}
	return digest(r)
}

var _ registry.Store = (*draft)(nil)
