package registry

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/parley-project/parley"
)

// Store keeps agent records. Its methods may be called concurrently; their
// errors are [*parley.Error], of code not_found or conflict where said.
type Store interface {
	// CreateAgent stores a new record. Code conflict: the name, or the id, was
	// ever used, also by an agent that is deleted now.
	CreateAgent(context.Context, parley.Agent) error
	// UpdateAgent replaces the record with the same id that was last changed at
	// read; the new one's UpdatedAt is later. Code not_found; code conflict: it
	// was changed since.
	UpdateAgent(ctx context.Context, a parley.Agent, read time.Time) error
	// Agent gives the record with that id or name, also a deleted one. Code
	// not_found. A record of which some members cannot be read is an error, and is given
	// beside it without those, marked as Unreadable.
	Agent(ctx context.Context, idOrName string) (parley.Agent, error)
	// Agents gives one page, and how many there are on all pages.
	Agents(context.Context, parley.AgentQuery) ([]parley.Agent, int, error)
}

// Prober looks at an agent once.
type Prober interface {
	// Probe makes one GET of the agent's URL, with its Credential, within ctx.
	// An agent that cannot be reached is an unhealthy one, not an error; the
	// message holds no credential. ResponseTime and At may stay zero.
	Probe(context.Context, parley.Agent) (parley.AgentHealth, error)
}

// Config is what a registry works with. Store, Secrets, Now and NewID are
// required.
type Config struct {
	Store Store
	// Prober may be nil: then Health gives an error.
	Prober Prober
	// Detector may be nil: then every agent has to name its protocol.
	Detector Detector
	// Protocols are the names that agents may choose from (AD-4).
	Protocols []string
	// Checkers report every fault of a protocol's configuration, a JSON object,
	// at once; each text names the member (AD-7). A protocol without a checker
	// takes any object, simple-a2a none.
	Checkers map[string]func(config json.RawMessage) []error
	Secrets  *Secrets
	Now      func() time.Time
	// Clock gives the time that records are written in: [store.DB.Now]; default
	// Now.
	Clock func() time.Time
	// NewID gives a new UUID.
	NewID func() string
	// CacheFor bounds how old an agent from Lookup may be: default and at most
	// 5 s. CacheSize bounds how many agents are kept: default 10,000.
	CacheFor  time.Duration
	CacheSize int
}

// systemUser is recorded where nobody says who they are (formats.md).
const systemUser = "system"

const (
	// maxProbe bounds one look at an agent.
	maxProbe = 10 * time.Second
	// maxDetect bounds finding out about one: its card and a few questions.
	maxDetect = 20 * time.Second
)

// Registry is the set of agents. Its methods may be called concurrently.
type Registry struct {
	cfg       Config
	protocols []string // sorted
	checkers  map[string]func(json.RawMessage) []error
	cache     *cache

	// writing makes those of this process who change records wait for each other,
	// who else would do their work again ([Registry.change]).
	writing sync.Mutex
}

// New gives a registry on cfg.
func New(cfg Config) *Registry {
	if cfg.CacheFor <= 0 || cfg.CacheFor > maxAge {
		cfg.CacheFor = maxAge
	}
	if cfg.CacheSize <= 0 {
		cfg.CacheSize = defaultCacheSize
	}
	if cfg.Clock == nil {
		cfg.Clock = cfg.Now
	}
	checkers := map[string]func(json.RawMessage) []error{parley.ProtocolSimpleA2A: checkNoConfig}
	maps.Copy(checkers, cfg.Checkers)
	protocols := slices.Clone(cfg.Protocols)
	slices.Sort(protocols)
	return &Registry{
		cfg:       cfg,
		protocols: slices.Compact(protocols),
		checkers:  checkers,
		cache:     newCache(cfg.CacheFor, cfg.CacheSize),
	}
}

// Protocols lists the names that agents may choose from, sorted (AD-4).
func (r *Registry) Protocols() []string { return slices.Clone(r.protocols) }

// Add checks spec, fills in what it does not say (protocol simple-a2a, timeout
// 30 s, [parley.DefaultRetryConfig], status active) and stores a new agent.
//
// With [parley.ProtocolAuto] the agent is found out about first, and called by
// that; if the URL is that of its card, the agent's own takes its place.
//
// The error is a [*parley.Error]: code invalid with every fault in Details as
// [{path, code, detail}], conflict if the name was ever used, or as of
// [Registry.Detect].
func (r *Registry) Add(ctx context.Context, spec parley.AgentSpec) (parley.Agent, error) {
	spec, detected, err := r.adding(ctx, spec)
	if err != nil {
		return parley.Agent{}, err
	}
	agent, err := r.build(spec)
	if err != nil {
		return parley.Agent{}, err
	}
	agent.Detected = detected
	return r.create(ctx, agent)
}

// build makes a new record of spec.
func (r *Registry) build(spec parley.AgentSpec) (parley.Agent, error) {
	now := r.now()
	agent := parley.Agent{
		ID: r.cfg.NewID(), Name: value(spec.Name), Status: parley.AgentActive,
		CreatedAt: now, CreatedBy: user(spec.By), UpdatedAt: now, UpdatedBy: user(spec.By),
	}
	var f faults
	checkName(agent.Name, &f)
	return r.merge(agent, complete(spec), f)
}

// complete fills in what spec does not say.
func complete(spec parley.AgentSpec) parley.AgentSpec {
	fill(&spec.URL, "")
	fill(&spec.Description, "")
	fill(&spec.Protocol, parley.ProtocolSimpleA2A)
	if spec.ProtocolConfig == nil {
		spec.ProtocolConfig = json.RawMessage("null")
	}
	fill(&spec.Auth, parley.AuthSpec{Type: parley.AuthNone})
	fill(&spec.TLS, parley.TLSSpec{})
	fill(&spec.Timeout, defaultTimeout)
	fill(&spec.Retry, parley.DefaultRetryConfig())
	fill(&spec.OutcomeUnknown, "")
	fill(&spec.Idempotent, false)
	fill(&spec.MaxConcurrent, 0)
	fill(&spec.Limits, parley.AgentLimits{})
	fill(&spec.Priority, 0)
	fill(&spec.Breaker, parley.Breaker{})
	fill(&spec.Health, parley.HealthCheck{})
	return spec
}

func (r *Registry) create(ctx context.Context, agent parley.Agent) (parley.Agent, error) {
	err := r.cfg.Store.CreateAgent(ctx, agent)
	r.cache.drop(agent.Name)
	switch {
	case parley.CodeOf(err) == parley.CodeConflict:
		return parley.Agent{}, parley.Errorf(parley.CodeConflict, "Agent with name '%s' already exists", agent.Name)
	case err != nil:
		return parley.Agent{}, err
	}
	return agent, nil
}

// Update changes what spec says and keeps the rest. Spec.Name is ignored. A
// deleted agent stays deleted unless spec gives it a status.
//
// With [parley.ProtocolAuto] the agent is found out about anew. So is one that
// was found out about before if its URL or ProtocolConfig changes, unless spec
// names a protocol: then it is called by its record alone.
//
// The error is a [*parley.Error]: code invalid as for [Registry.Add], not_found,
// conflict if others keep changing the agent, or as of [Registry.Detect].
func (r *Registry) Update(ctx context.Context, idOrName string, spec parley.AgentSpec) (parley.Agent, error) {
	spec, detected, err := r.changing(ctx, idOrName, spec)
	if err != nil {
		return parley.Agent{}, err
	}
	agent, _, err := r.change(ctx, idOrName, spec.By, false, func(stored parley.Agent) (parley.Agent, bool, error) {
		agent, err := r.merge(stored, spec, nil)
		if detected != nil {
			agent.Detected = detected
		}
		return agent, true, err
	})
	return agent, err
}

// maxChanges bounds how often a change is made anew because somebody else was
// faster.
const maxChanges = 20

// change stores what next makes of an agent's record, if it says that it does
// something. Next is called again, with the newer record, if another process
// changed that meanwhile. The record that is returned is the stored one. One that cannot be
// read is an error, unless next says anew all that may be unreadable.
func (r *Registry) change(ctx context.Context, idOrName, by string, anew bool, next func(parley.Agent) (parley.Agent, bool, error)) (parley.Agent, bool, error) {
	r.writing.Lock()
	defer r.writing.Unlock()
	for range maxChanges {
		read, err := r.cfg.Store.Agent(ctx, idOrName)
		if err != nil && (!anew || !read.Unreadable) {
			return parley.Agent{}, false, err
		}
		agent, does, err := next(read)
		if err != nil {
			return parley.Agent{}, false, err
		}
		if !does {
			return read, false, nil
		}
		agent.UpdatedBy = user(by)
		// Two versions never have the same time: by it they are told apart.
		if agent.UpdatedAt = r.now(); !agent.UpdatedAt.After(read.UpdatedAt) {
			agent.UpdatedAt = read.UpdatedAt.Add(time.Microsecond)
		}
		err = r.cfg.Store.UpdateAgent(ctx, agent, read.UpdatedAt)
		// Also after an error: the write may have happened.
		r.cache.drop(agent.Name)
		if err == nil {
			return agent, true, nil
		}
		if parley.CodeOf(err) != parley.CodeConflict {
			return parley.Agent{}, false, err
		}
	}
	return parley.Agent{}, false, parley.Errorf(parley.CodeConflict,
		"agent '%s' was changed by others each of the %d times that this change was tried; nothing is changed; try again", idOrName, maxChanges)
}

// merge lays spec over agent, checks it, and seals a literal credential. The
// faults that are known already come first.
func (r *Registry) merge(agent parley.Agent, spec parley.AgentSpec, known faults) (parley.Agent, error) {
	agent, auth, tls := r.lay(agent, spec, &known)
	if err := known.err("agent"); err != nil {
		return parley.Agent{}, err
	}
	var err error
	if auth != nil {
		if agent.Auth, err = r.sealed(*auth); err != nil {
			return parley.Agent{}, err
		}
	}
	if tls != nil {
		if agent.TLS, err = r.sealedTLS(*tls); err != nil {
			return parley.Agent{}, err
		}
	}
	agent.Credential, agent.Resolved = parley.Secret{}, nil
	return agent, nil
}

// lay lays spec over agent and reports every fault. The authentication and the
// TLS settings are returned beside it, nil if spec has none: literals are not
// sealed yet.
func (r *Registry) lay(agent parley.Agent, spec parley.AgentSpec, f *faults) (parley.Agent, *wantedAuth, *wantedTLS) {
	checkShape(&spec, f)
	before := agent
	if spec.URL != nil {
		agent.URL = normalURL(*spec.URL, new(faults))
	}
	if spec.Protocol != nil && *spec.Protocol != agent.Protocol {
		// The stored configuration belongs to the protocol before.
		agent.Protocol, agent.ProtocolConfig = *spec.Protocol, nil
	}
	if spec.ProtocolConfig != nil {
		agent.ProtocolConfig = spec.ProtocolConfig
	}
	if spec.Protocol != nil || spec.ProtocolConfig != nil {
		agent.ProtocolConfig = r.checkProtocol(agent.Protocol, agent.ProtocolConfig, f)
	}
	if moved(before, agent) {
		agent.Detected = nil
	}
	set(&agent.Description, spec.Description)
	set(&agent.Timeout, spec.Timeout)
	set(&agent.Retry, spec.Retry)
	set(&agent.OutcomeUnknown, spec.OutcomeUnknown)
	checkPolicy(before, agent, f)
	set(&agent.Idempotent, spec.Idempotent)
	set(&agent.MaxConcurrent, spec.MaxConcurrent)
	set(&agent.Limits, spec.Limits)
	set(&agent.Priority, spec.Priority)
	set(&agent.Status, spec.Status)
	if b := spec.Breaker; b != nil {
		agent.Breaker = nil
		if *b != (parley.Breaker{}) {
			agent.Breaker = new(*b)
		}
	}
	agent.Health = health(agent.Health, spec.Health)
	var auth *wantedAuth
	var tls *wantedTLS
	id := identity{agent.Auth.Type, agent.TLS != (parley.AgentTLS{}), agent.TLS.Cert != ""}
	if spec.Auth != nil {
		auth = new(wanted(*spec.Auth, agent.Auth))
		checkAuth(*auth, r.cfg.Secrets, f)
		id.auth = auth.Type
	}
	if spec.TLS != nil {
		tls = new(wantTLS(*spec.TLS, agent.TLS))
		checkTLS(*tls, r.cfg.Secrets, f)
		id.hasCert = !tls.cert.missing()
		id.hasTLS = id.hasCert || !tls.key.missing() || !tls.ca.missing()
	}
	checkTogether(agent.URL, id, f)
	checkPlace(agent, id.auth, f)
	return agent, auth, tls
}

// Get gives an agent's record by its id or name, also a deleted one. The error
// is a [*parley.Error] of code not_found. Its Auth and TLS may hold sealed
// credentials: whoever shows them says [Sealed] in their place.
func (r *Registry) Get(ctx context.Context, idOrName string) (parley.Agent, error) {
	return r.cfg.Store.Agent(ctx, idOrName)
}

// List gives one page of agents, deleted ones too unless q.Status says
// otherwise, and how many there are on all pages.
func (r *Registry) List(ctx context.Context, q parley.AgentQuery) ([]parley.Agent, int, error) {
	const defaultLimit, maxLimit = 20, 500
	if q.Page.Limit <= 0 {
		q.Page.Limit = defaultLimit
	}
	q.Page.Limit = min(q.Page.Limit, maxLimit)
	q.Page.Offset = max(q.Page.Offset, 0)
	return r.cfg.Store.Agents(ctx, q)
}

// Remove marks an agent as deleted; its name stays taken and its runs keep
// their record. Removing it again changes nothing. The error is a
// [*parley.Error] of code not_found, or as of [Registry.Update] conflict.
func (r *Registry) Remove(ctx context.Context, idOrName, by string) error {
	_, _, err := r.change(ctx, idOrName, by, false, func(agent parley.Agent) (parley.Agent, bool, error) {
		does := agent.Status != parley.AgentDeleted
		agent.Status = parley.AgentDeleted
		return agent, does, nil
	})
	return err
}

// Health looks at an agent once, for at most its timeout and 10 s. An agent
// that is deleted, cannot be reached or has no usable credential is unhealthy,
// and the message says why. The error is a [*parley.Error] of code not_found,
// or unavailable if nothing can be asked here.
func (r *Registry) Health(ctx context.Context, idOrName string) (parley.AgentHealth, error) {
	agent, err := r.cfg.Store.Agent(ctx, idOrName)
	if err != nil {
		return parley.AgentHealth{}, err
	}
	return r.LookAt(ctx, agent, maxProbe)
}

// LookAt is Health for a record that the caller has, and for at most that time.
func (r *Registry) LookAt(ctx context.Context, agent parley.Agent, within time.Duration) (parley.AgentHealth, error) {
	start := r.cfg.Now()
	unhealthy := func(text string) (parley.AgentHealth, error) {
		return parley.AgentHealth{Message: text, ResponseTime: max(r.cfg.Now().Sub(start), 0), At: start.UTC()}, nil
	}
	if agent.Status == parley.AgentDeleted {
		return unhealthy("the agent is deleted")
	}
	if r.cfg.Prober == nil {
		return parley.AgentHealth{}, parley.Errorf(parley.CodeUnavailable, "this server cannot look at agents")
	}
	agent, err := r.resolve(agent)
	if err != nil {
		return unhealthy(messageOf(err))
	}
	agent.Timeout = min(max(agent.Timeout, minTimeout), within)
	ctx, cancel := context.WithTimeout(ctx, agent.Timeout)
	defer cancel()
	health, err := r.cfg.Prober.Probe(ctx, agent)
	if err != nil {
		return unhealthy(messageOf(err))
	}
	if health.At.IsZero() {
		health.At = start.UTC()
	}
	if health.ResponseTime == 0 {
		health.ResponseTime = max(r.cfg.Now().Sub(start), 0)
	}
	return health, nil
}

// now gives the time as precisely as it is stored.
func (r *Registry) now() time.Time { return r.cfg.Clock().UTC().Truncate(time.Microsecond) }

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func fill[T any](to **T, def T) {
	if *to == nil {
		*to = &def
	}
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func user(by string) string {
	if by == "" {
		return systemUser
	}
	return by
}
