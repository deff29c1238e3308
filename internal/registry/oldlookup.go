package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/parley-project/parley"
)

const (
	// oldAge is how long a record is used before it is looked up again, as in the
	// existing platform; oldStale how long if nobody answers then.
	oldAge   = 5 * time.Minute
	oldStale = time.Hour
	// oldAbsent is how long a name that nobody knows is not asked for again, and
	// maxAbsent how many such names are remembered.
	oldAbsent = 5 * time.Second
	maxAbsent = 10_000
	// oldWithin bounds one request, oldTries how often it is made, and maxOldBody
	// the answer, in bytes.
	oldWithin  = 5 * time.Second
	oldTries   = 3
	oldPause   = 200 * time.Millisecond
	maxOldBody = 1 << 20
	// oldSilent is how long nobody is asked again after none could be reached in all
	// tries: each of the records that wait would wait through all of them.
	oldSilent = 5 * time.Second
	// oldPageSize is how many agents the API gives at a time, and maxOldPages how
	// often it is asked for others.
	oldPageSize = 100
	maxOldPages = 100
)

// OldLookupConfig says where a bridge without a store finds its agents. Client
// and one of API and Registry are required.
type OldLookupConfig struct {
	// API is the base URL of the existing platform's API, which is asked first;
	// Registry is that of its registry (AGENT_REGISTRY_URL). Either may be "".
	API, Registry string
	// Client makes the requests. Redirects are not followed.
	Client *http.Client
	// Protocol is that of records without one; default jsonrpc-2.0, the only one
	// that the existing platform's bridge speaks.
	Protocol string
	// Secrets resolves references in records; nil: there are none.
	Secrets *Secrets
	// Seen, if set, is told every credential, so that a log can keep it out.
	Seen func(parley.Secret)
	// Now is the clock; default time.Now.
	Now    func() time.Time
	Logger *slog.Logger
}

// OldLookup finds agents as the existing platform's bridge does (formats.md,
// "Lookup by old bridge"): first in its API, then in its registry, and remembers
// them for 5 minutes. Its methods may be called concurrently.
type OldLookup struct {
	cfg           OldLookupConfig
	api, registry string
	cache         *cache

	mu     sync.Mutex
	absent map[string]time.Time // guarded by mu
	// silence is why nobody could be reached, and nobody is asked until then.
	silence      error
	silenceUntil time.Time
}

// NewOldLookup checks cfg. The error is a [*parley.Error] of code invalid.
func NewOldLookup(cfg OldLookupConfig) (*OldLookup, error) {
	if cfg.Client == nil || (cfg.API == "" && cfg.Registry == "") {
		return nil, parley.Errorf(parley.CodeInvalid, "looking agents up needs the URL of the platform's API or of its registry (AGENT_REGISTRY_URL)")
	}
	o := &OldLookup{cfg: cfg, cache: newCache(oldAge, defaultCacheSize), absent: make(map[string]time.Time)}
	for _, base := range []struct {
		to        *string
		raw, what string
	}{{&o.api, cfg.API, "API"}, {&o.registry, cfg.Registry, "registry"}} {
		u, err := url.Parse(base.raw)
		if base.raw != "" && (err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "") {
			return nil, parley.Errorf(parley.CodeInvalid, "the URL of the platform's %s must be like http://host:8000, without a user or a query", base.what)
		}
		*base.to = strings.TrimRight(base.raw, "/")
	}
	client := *cfg.Client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	o.cfg.Client = &client
	if o.cfg.Protocol == "" {
		o.cfg.Protocol = parley.ProtocolJSONRPC
	}
	if o.cfg.Now == nil {
		o.cfg.Now = time.Now
	}
	if o.cfg.Logger == nil {
		o.cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// Lookup gives the agent of that name for a call, with its Credential. It is at
// most 5 minutes old, or an hour if nobody can be asked meanwhile.
//
// The error is a [*parley.Error]: code unknown_agent for a name that neither
// knows, or that is deleted; agent_rejected for an agent that is inactive or
// whose record is of no use; agent_unavailable, which may be tried again, if
// nobody could say: at once in the 5 seconds after they could not be reached.
func (o *OldLookup) Lookup(ctx context.Context, name string) (parley.Agent, error) {
	known := o.cache.get(name)
	if known != nil && o.cfg.Now().Before(known.until) {
		return known.agent, nil
	}
	if o.isAbsent(name) {
		return parley.Agent{}, unknownOld(name)
	}
	agent, err := o.cache.load(ctx, name, o.cfg.Now, o.fetch)
	switch parley.CodeOf(err) {
	case parley.CodeUnknownAgent:
		o.cache.drop(name)
		o.noteAbsent(name)
	case parley.CodeAgentUnavailable:
		if known != nil && o.cfg.Now().Before(known.until.Add(oldStale-oldAge)) {
			o.cfg.Logger.Warn("agent not looked up again; its last record is used", "agent", shown(name), "error", err)
			return known.agent, nil
		}
	}
	return agent, err
}

func unknownOld(name string) error {
	return agentError(parley.CodeUnknownAgent, name, "agent '%s' is known neither to the platform's API nor to its registry, or was deleted", shown(name))
}

func (o *OldLookup) isAbsent(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	until, ok := o.absent[name]
	return ok && o.cfg.Now().Before(until)
}

func (o *OldLookup) noteAbsent(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.absent) >= maxAbsent {
		clear(o.absent)
	}
	o.absent[name] = o.cfg.Now().Add(oldAbsent)
}

// errAbsent says that whoever was asked does not know the name.
var errAbsent = errors.New("not known")

// fetch asks the API, then the registry.
func (o *OldLookup) fetch(ctx context.Context, name string) (parley.Agent, error) {
	if name == "" || name == "." || name == ".." || len(name) > 4*maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return parley.Agent{}, unknownOld(name)
	}
	failed := o.silent()
	if failed != nil {
		return parley.Agent{}, unaskedOld(name, failed)
	}
	reached := false
	for _, place := range []struct {
		base string
		ask  func(context.Context, string) (oldRecord, error)
	}{{o.api, o.askAPI}, {o.registry, o.askRegistry}} {
		if place.base == "" {
			continue
		}
		rec, err := place.ask(ctx, name)
		if err == nil {
			return o.agent(name, rec)
		}
		reached = reached || !errors.Is(err, errUnreached)
		if !errors.Is(err, errAbsent) && failed == nil {
			failed = err
		}
	}
	if failed == nil {
		return parley.Agent{}, unknownOld(name)
	}
	if !reached && ctx.Err() == nil {
		o.noteSilence(failed)
	}
	return parley.Agent{}, unaskedOld(name, failed)
}

func unaskedOld(name string, failed error) error {
	e := agentError(parley.CodeAgentUnavailable, name, "agent '%s' cannot be looked up: %w; check that the platform's API and registry can be reached", shown(name), failed)
	e.Retryable = true
	return e
}

// oldRecord is an agent as the API or the registry gives it.
type oldRecord struct {
	Name           string          `json:"name"`
	URL            string          `json:"url"`
	AuthType       string          `json:"auth_type"`
	AuthConfig     json.RawMessage `json:"auth_config"`
	TimeoutMS      *float64        `json:"timeout_ms"`
	Timeout        *float64        `json:"timeout"` // ms, too
	Status         string          `json:"status"`
	Protocol       string          `json:"protocol"`
	ProtocolConfig json.RawMessage `json:"protocol_config"`
	Retry          *struct {
		MaxRetries   *int     `json:"max_retries"`
		InitialDelay *float64 `json:"initial_delay_ms"`
		MaxDelay     *float64 `json:"max_delay_ms"`
		Multiplier   *float64 `json:"backoff_multiplier"`
	} `json:"retry_config"`
	Breaker *oldBreaker `json:"circuit_breaker_config"`
}

// oldBreaker is what the record of a registry says about a breaker.
type oldBreaker struct {
	Enabled       *bool    `json:"enabled"`
	Threshold     *int     `json:"failure_threshold"`
	Rate          *float64 `json:"failure_rate_threshold"`
	Timeout       *float64 `json:"timeout_seconds"`
	HalfOpenCalls *int     `json:"half_open_max_calls"`
	Window        *float64 `json:"window_size_seconds"`
}

// breaker gives what the record says, if it can be done as it says.
func (o *oldBreaker) breaker() *parley.Breaker {
	if o == nil {
		return nil
	}
	b := parley.DefaultBreaker()
	set(&b.Enabled, o.Enabled)
	set(&b.FailureThreshold, o.Threshold)
	set(&b.FailureRate, o.Rate)
	set(&b.HalfOpenCalls, o.HalfOpenCalls)
	if o.Timeout != nil {
		b.OpenFor = secondsOf(*o.Timeout)
	}
	if o.Window != nil {
		b.Window = secondsOf(*o.Window)
	}
	if CheckBreaker(b) != nil {
		return nil // no reason not to call the agent
	}
	return &b
}

// askAPI reads the agents that the API's filter lets through, page by page: it may
// let through others than the one of that name, and more than a page has. Its
// total is none of all of them: a page that is not full is the last.
func (o *OldLookup) askAPI(ctx context.Context, name string) (oldRecord, error) {
	first := fmt.Sprintf("%s/api/v1/agents?page_size=%d&name=%s", o.api, oldPageSize, url.QueryEscape(name))
	address, head := first, json.RawMessage(nil)
	for n := 1; n <= maxOldPages; n++ {
		if n > 1 {
			address = first + "&page=" + strconv.Itoa(n)
		}
		var page struct {
			Items []json.RawMessage `json:"items"`
		}
		if err := o.get(ctx, address, &page); err != nil {
			return oldRecord{}, err
		}
		rec, err := o.pick(page.Items, name)
		if !errors.Is(err, errAbsent) {
			return rec, err
		}
		if len(page.Items) < oldPageSize || bytes.Equal(page.Items[0], head) { // or it knows no pages
			return oldRecord{}, errAbsent
		}
		head = page.Items[0]
	}
	return oldRecord{}, fmt.Errorf("%s: none of the first %d agents that it finds for the name has that name: its filter cannot be used", o.api, maxOldPages*oldPageSize)
}

// pick finds the agent of that name in a page.
func (o *OldLookup) pick(items []json.RawMessage, name string) (rec oldRecord, err error) {
	for _, item := range items {
		var of struct {
			Name string `json:"name"`
		}
		if json.Unmarshal(item, &of) != nil || of.Name != name {
			continue // whatever the filter lets through
		}
		if json.Unmarshal(item, &rec) != nil {
			return rec, fmt.Errorf("%s: the answer is no agent record", o.api)
		}
		return rec, nil
	}
	return rec, errAbsent
}

func (o *OldLookup) askRegistry(ctx context.Context, name string) (rec oldRecord, err error) {
	if err := o.get(ctx, o.registry+"/agents/"+url.PathEscape(name), &rec); err != nil {
		return rec, err
	}
	if rec.Name != name {
		return rec, errAbsent
	}
	return rec, nil
}

// errUnreached is in the chain of the errors of requests that were not answered, or not
// to the end.
var errUnreached = errors.New("not reached")

// unreached is such an error.
type unreached struct{ error }

// Is reports whether target is errUnreached.
func (unreached) Is(target error) bool { return target == errUnreached }

// Unwrap gives why.
func (e unreached) Unwrap() error { return e.error }

// silent gives why nobody can be reached, if that was found out just now.
func (o *OldLookup) silent() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cfg.Now().Before(o.silenceUntil) {
		return o.silence
	}
	return nil
}

func (o *OldLookup) noteSilence(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.silence, o.silenceUntil = err, o.cfg.Now().Add(oldSilent)
}

// get makes a request until it is answered, and decodes the answer.
func (o *OldLookup) get(ctx context.Context, address string, into any) error {
	pause := oldPause
	for try := 1; ; try++ {
		again, err := o.getOnce(ctx, address, into)
		if err == nil || !again || try == oldTries || ctx.Err() != nil {
			return err
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return err
		case <-t.C:
		}
		pause *= 2
	}
}

// getOnce makes one request; again reports whether another may help. Its errors
// name nothing but the place that was asked.
func (o *OldLookup) getOnce(ctx context.Context, address string, into any) (again bool, err error) {
	ctx, done := context.WithTimeout(ctx, oldWithin)
	defer done()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return false, errAbsent // no such name
	}
	req.Header.Set("Accept", "application/json")
	place := req.URL.Scheme + "://" + req.URL.Host
	resp, err := o.cfg.Client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		return true, unreached{fmt.Errorf("%s: %w", place, err)}
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusSwitchingProtocols { // its body is the connection, which no time limit ends
		return false, fmt.Errorf("%s answered HTTP 101, which nobody asked for", place)
	}
	switch body, err := io.ReadAll(io.LimitReader(resp.Body, maxOldBody+1)); {
	case err != nil:
		return true, unreached{fmt.Errorf("%s: the answer broke off: %w", place, err)}
	case resp.StatusCode == http.StatusNotFound:
		return false, errAbsent
	case resp.StatusCode != http.StatusOK:
		return resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests, fmt.Errorf("%s answered HTTP %d", place, resp.StatusCode)
	case len(body) > maxOldBody:
		return false, fmt.Errorf("%s: the answer is larger than %d bytes", place, maxOldBody)
	case json.Unmarshal(body, into) != nil:
		return false, fmt.Errorf("%s: the answer is no agent record", place) // what it is may be secret
	}
	return false, nil
}

// agent makes an agent of a record, with its credential.
func (o *OldLookup) agent(name string, rec oldRecord) (parley.Agent, error) {
	switch strings.ToLower(rec.Status) {
	case "", string(parley.AgentActive):
	case string(parley.AgentDeleted):
		return parley.Agent{}, unknownOld(name)
	default:
		return parley.Agent{}, agentError(parley.CodeAgentRejected, name, "agent '%s' is inactive; make it active to have it called", shown(name))
	}
	var f faults
	a := parley.Agent{
		Name: name, URL: normalURL(rec.URL, &f), Protocol: rec.Protocol, Timeout: rec.timeout(), Retry: rec.retry(), Status: parley.AgentActive,
		Breaker: rec.Breaker.breaker(),
	}
	if a.Protocol == "" {
		a.Protocol = o.cfg.Protocol
	}
	if len(f) == 0 && !strings.HasPrefix(a.URL, "http") {
		f.add("url", faultValue, "must begin with http:// or https://") // above all no command
	}
	if len(rec.ProtocolConfig) > 0 && string(rec.ProtocolConfig) != "null" {
		a.ProtocolConfig = rec.ProtocolConfig
	}
	checkShape(&parley.AgentSpec{Timeout: &a.Timeout, Retry: &a.Retry}, &f)
	err := f.err("its record")
	if err == nil {
		err = o.authenticate(&a, rec)
	}
	if err != nil {
		return parley.Agent{}, agentError(parley.CodeAgentRejected, name, "agent '%s' cannot be called: %s", shown(name), messageOf(err))
	}
	return a, nil
}

func (r *oldRecord) timeout() time.Duration {
	for _, ms := range []*float64{r.TimeoutMS, r.Timeout} {
		if ms != nil {
			return time.Duration(min(max(*ms, 0), 1e9)) * time.Millisecond
		}
	}
	return defaultTimeout
}

func (r *oldRecord) retry() parley.RetryConfig {
	c := parley.DefaultRetryConfig()
	if r.Retry == nil {
		return c
	}
	set(&c.MaxRetries, r.Retry.MaxRetries)
	set(&c.Multiplier, r.Retry.Multiplier)
	for _, d := range []struct {
		to *time.Duration
		ms *float64
	}{{&c.InitialDelay, r.Retry.InitialDelay}, {&c.MaxDelay, r.Retry.MaxDelay}} {
		if d.ms != nil {
			*d.to = time.Duration(min(max(*d.ms, 0), 1e12)) * time.Millisecond
		}
	}
	return c
}

// authenticate reads the credential of a record: auth_type decides; a registry's
// record has the type within auth_config.
func (o *OldLookup) authenticate(a *parley.Agent, rec oldRecord) error {
	if strings.EqualFold(strings.TrimSpace(rec.AuthType), string(parley.AuthNone)) {
		rec.AuthConfig = nil
	}
	spec, err := AuthFromOld(rec.AuthType, rec.AuthConfig)
	if err != nil {
		return err
	}
	a.Auth = parley.Auth{Type: parley.AuthNone}
	switch {
	case spec.Secret == "" && spec.Literal.IsZero():
		return nil // called without, as ever
	case spec.Type != parley.AuthBearer && spec.Type != parley.AuthAPIKey:
		return parley.Errorf(parley.CodeInvalid, "auth_type must be one of none, bearer, apikey")
	case spec.Secret != "" && o.cfg.Secrets == nil:
		return parley.Errorf(parley.CodeInvalid, "its credential is a reference, and no secrets are configured here")
	case spec.Secret != "":
		if a.Credential, err = o.cfg.Secrets.Resolve(spec.Secret); err != nil {
			return err
		}
	default:
		a.Credential = spec.Literal
	}
	if as := carrierOf(spec.Type, spec.In); !as.fits(a.Credential.Reveal()) {
		return parley.Errorf(parley.CodeInvalid, "its credential is not %s", as.want())
	}
	a.Auth = parley.Auth{Type: spec.Type, Header: spec.Header, In: spec.In}
	if spec.Type == parley.AuthAPIKey && a.Auth.Header == "" {
		a.Auth.Header = defaultKeyHeader
	}
	if a.Auth.Header != "" && a.Auth.In != parley.InQuery && !isHeaderName(a.Auth.Header) {
		return parley.Errorf(parley.CodeInvalid, "its header is no name that a header can have")
	}
	a.Resolved = &parley.ResolvedAuth{}
	if o.cfg.Seen != nil {
		o.cfg.Seen(a.Credential)
	}
	return nil
}
