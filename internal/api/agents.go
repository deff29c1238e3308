package api

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/parley-project/parley"
)

// maxDescription bounds an agent's description, in characters.
const maxDescription = 16384

// hidden stands in answers where a credential would; sent back to us it
// changes nothing.
const hidden = "[redacted]"

// AgentFields documents what both adding and changing an agent take. It is
// exported for the schema's sake: members of an unexported embedded struct are
// not described. Unknown members are dropped, as on the existing platform.
type AgentFields struct {
	Description    *string        `json:"description,omitempty" maxLength:"16384"`
	Protocol       string         `json:"protocol,omitempty" minLength:"1" maxLength:"64" doc:"simple-a2a (default), jsonrpc-2.0 or another that is registered; auto finds it out."`
	ProtocolConfig map[string]any `json:"protocol_config,omitempty" doc:"Checked by the protocol."`
	AuthType       string         `json:"auth_type,omitempty" minLength:"1" doc:"none (default), bearer, apikey, basic, header, headers, oauth2 or mtls, in any case."`
	AuthConfig     *authConfig    `json:"auth_config,omitempty" doc:"What belongs to auth_type."`
	Auth           *authConfig    `json:"auth,omitempty" doc:"The same as auth_type and auth_config, in one; its type is required."`
	TLS            *tlsSettings   `json:"tls,omitempty" doc:"Client certificate and CAs of connections to the agent; {} removes them."`
	TimeoutMS      int64          `json:"timeout_ms,omitempty" minimum:"1000" maximum:"300000" doc:"Default 30000."`
	RetryConfig    *retryConfig   `json:"retry_config,omitempty"`
	OutcomeUnknown string         `json:"outcome_unknown,omitempty" doc:"lookup, resend or fail; default: the protocol's."`
	Idempotent     bool           `json:"idempotent,omitempty"`
	MaxConcurrent  int            `json:"max_concurrent,omitempty" minimum:"0" maximum:"10000" doc:"0 is the default."`
	Limits         *limitsBody    `json:"limits,omitempty" doc:"Further limits; {} and null are all defaults."`
	Priority       int            `json:"priority,omitempty" minimum:"0" maximum:"10" doc:"Share among the agents that wait for calls; 0 is the default, 5."`
	Breaker        *breakerBody   `json:"breaker,omitempty" doc:"Circuit breaker; {} is all defaults, null removes it."`
	// Health too is removed by null.
	Health *healthCheckBody `json:"health,omitempty" doc:"How the agent is looked at in the background; what is not given is the server's."`
}

type agentCreate struct {
	_    struct{} `additionalProperties:"true"`
	Name string   `json:"name" minLength:"1" maxLength:"255"`
	URL  string   `json:"url" minLength:"1" maxLength:"2083" format:"uri"`
	AgentFields
}

type agentUpdate struct {
	_      struct{} `additionalProperties:"true"`
	URL    string   `json:"url,omitempty" minLength:"1" maxLength:"2083" format:"uri"`
	Status string   `json:"status,omitempty" doc:"active or inactive."`
	AgentFields
}

// retryConfig is formats.md's; delays are milliseconds.
type retryConfig struct {
	MaxRetries        int     `json:"max_retries" required:"false" minimum:"0" maximum:"10" doc:"Default 3."`
	InitialDelayMS    int64   `json:"initial_delay_ms" required:"false" minimum:"100" maximum:"604800000" doc:"Default 1000."`
	MaxDelayMS        int64   `json:"max_delay_ms" required:"false" minimum:"1000" maximum:"604800000" doc:"Default 30000; at least initial_delay_ms."`
	BackoffMultiplier float64 `json:"backoff_multiplier" required:"false" minimum:"1" maximum:"1000" doc:"Default 2."`
	// Budget is left out while it is the default.
	Budget *retryBudget `json:"budget,omitempty"`
}

// retryBudget bounds the retries of all calls of an agent.
type retryBudget struct {
	Percent   float64 `json:"percent,omitempty" required:"false" minimum:"1" maximum:"100" doc:"How many of a hundred recent calls may be retries; default 20."`
	PerSecond float64 `json:"per_second,omitempty" required:"false" minimum:"0.1" maximum:"1000" doc:"How many retries a second there may be in any case; default 5."`
	Off       bool    `json:"off,omitempty" required:"false" doc:"There is no bound."`
}

func showBudget(b parley.RetryBudget) *retryBudget {
	if b == (parley.RetryBudget{}) {
		return nil
	}
	return &retryBudget{Percent: b.Percent, PerSecond: b.PerSecond, Off: b.Off}
}

func (s *server) addAgent(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readObject(w, r, bodyLimit{s.cfg.Limits.Body, "body"}, false)
	if err != nil {
		return err
	}
	spec := parley.AgentSpec{By: callerOf(r)}
	o.require("name")
	spec.Name = o.text("name", 1, maxText)
	o.require("url")
	agentMembers(o, &spec, nil)
	if err := o.done(false); err != nil {
		return err
	}
	agent, err := s.cfg.Agents.Add(r.Context(), spec)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/api/v1/agents/"+url.PathEscape(agent.ID))
	s.reply(w, r, http.StatusCreated, makeAgent(agent))
	return nil
}

func (s *server) changeAgent(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readObject(w, r, bodyLimit{s.cfg.Limits.Body, "body"}, false)
	if err != nil {
		return err
	}
	ref := r.PathValue("ref")
	spec := parley.AgentSpec{By: callerOf(r)}
	var stored parley.Auth
	if o.has("auth_config") && !o.has("auth_type") {
		// The kind of the credential is the stored one, unless it says.
		agent, err := s.cfg.Agents.Get(r.Context(), ref)
		if err != nil {
			return err
		}
		stored = agent.Auth
	}
	if v := o.word("status", "active", "inactive"); v != nil {
		spec.Status = new(parley.AgentStatus(*v))
	}
	agentMembers(o, &spec, &stored)
	if err := o.done(false); err != nil {
		return err
	}
	agent, err := s.cfg.Agents.Update(r.Context(), ref, spec)
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, makeAgent(agent))
	return nil
}

// agentMembers reads what adding and changing have in common. Stored is nil
// when adding.
func agentMembers(o *object, spec *parley.AgentSpec, stored *parley.Auth) {
	if v := o.text("url", 1, 2083); v != nil {
		spec.URL = agentURL(o, *v)
	}
	spec.Description = o.text("description", 0, maxDescription)
	spec.Protocol = o.text("protocol", 1, 64)
	if v, ok := o.members["protocol_config"]; ok {
		o.take("protocol_config")
		spec.ProtocolConfig = json.RawMessage(v)
		if k := v.Kind(); k != '{' && k != 'n' {
			o.wrong("protocol_config", "type", "dict_type", "must be an object")
		}
	}
	spec.Auth, spec.TLS = agentAuth(o, stored), agentTLS(o)
	if v := o.integer("timeout_ms", 1000, 300000); v != nil {
		spec.Timeout = new(time.Duration(*v) * time.Millisecond)
	}
	spec.Retry = agentRetry(o)
	if v := o.word("outcome_unknown", "", "lookup", "resend", "fail"); v != nil {
		spec.OutcomeUnknown = new(parley.OutcomePolicy(*v))
	}
	spec.Idempotent = o.boolean("idempotent")
	if v := o.integer("max_concurrent", 0, 10000); v != nil {
		spec.MaxConcurrent = new(int(*v))
	}
	agentLimits(o, spec)
	spec.Breaker, spec.Health = agentBreaker(o), agentHealthCheck(o)
}

// agentURL checks an address and gives it as it is stored: with a path. What
// names a program is for the registry to judge.
func agentURL(o *object, v string) *string {
	if scheme, _, _ := strings.Cut(v, ":"); strings.EqualFold(scheme, "stdio") {
		return &v
	}
	u, err := url.Parse(v)
	switch {
	case err != nil || u.Hostname() == "" || !slices.Contains([]string{"http", "https", "ws", "wss"}, u.Scheme) || strings.ContainsAny(v, " \t\r\n"):
		o.wrong("url", "value", "url_parsing", "must be an http or https URL, or for jsonrpc-2.0 one of ws, wss or stdio:")
		return nil
	case u.User != nil:
		// It would be shown in every list.
		o.wrong("url", "value", "value_error", "must not hold credentials: use auth_type and auth_config")
		return nil
	}
	u.Host = strings.ToLower(u.Host)
	if u.Path == "" {
		u.Path = "/"
	}
	return new(u.String())
}

func agentRetry(o *object) *parley.RetryConfig {
	in := o.object("retry_config")
	if in == nil {
		return nil
	}
	out := parley.DefaultRetryConfig()
	const week = 7 * 24 * 3600 * 1000
	if v := in.integer("max_retries", 0, 10); v != nil {
		out.MaxRetries = int(*v)
	}
	if v := in.integer("initial_delay_ms", 100, week); v != nil {
		out.InitialDelay = time.Duration(*v) * time.Millisecond
	}
	if v := in.integer("max_delay_ms", 1000, week); v != nil {
		out.MaxDelay = time.Duration(*v) * time.Millisecond
	}
	if v := in.number("backoff_multiplier", 1, 1000); v != nil {
		out.Multiplier = *v
	}
	if b := in.object("budget"); b != nil {
		if v := b.number("percent", 1, 100); v != nil {
			out.Budget.Percent = *v
		}
		if v := b.number("per_second", 0.1, 1000); v != nil {
			out.Budget.PerSecond = *v
		}
		if v := b.boolean("off"); v != nil {
			out.Budget.Off = *v
		}
	}
	if out.MaxDelay < out.InitialDelay {
		in.wrong("max_delay_ms", "value", "value_error", "must be at least initial_delay_ms")
	}
	return &out
}

func (s *server) listAgents(w http.ResponseWriter, r *http.Request) error {
	req, page, err := agentsQuery(r)
	if err != nil {
		return err
	}
	var items []parley.Agent
	var total int
	if knownStatus(req.Status) {
		if items, total, err = s.cfg.Agents.List(r.Context(), req); err != nil {
			return err
		}
	}
	s.reply(w, r, http.StatusOK, makePage(mapped(items, makeAgent), total, page))
	return nil
}

// agentsQuery reads which agents are asked for.
func agentsQuery(r *http.Request) (parley.AgentQuery, pageRequest, error) {
	q := queryOf(r)
	page := q.page()
	return parley.AgentQuery{
		Name: q.get("name"), Protocol: q.get("protocol"),
		Status: parley.AgentStatus(strings.ToLower(q.get("status"))), Page: page.page(),
	}, page, q.done()
}

// knownStatus reports whether a filter can match anything; "" is no filter.
func knownStatus(v parley.AgentStatus) bool {
	switch v {
	case "", parley.AgentActive, parley.AgentInactive, parley.AgentDeleted:
		return true
	}
	return false
}

func (s *server) getAgent(w http.ResponseWriter, r *http.Request) error {
	agent, err := s.cfg.Agents.Get(r.Context(), r.PathValue("ref"))
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, makeAgent(agent))
	return nil
}

func (s *server) removeAgent(w http.ResponseWriter, r *http.Request) error {
	agent, err := s.cfg.Agents.Remove(r.Context(), r.PathValue("ref"), callerOf(r))
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, s.message("Agent '"+agent.Name+"' deleted successfully"))
	return nil
}
