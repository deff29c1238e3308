package a2a

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// Detector finds out how an agent is called, without giving it work. An error
// says why nothing was found out.
type Detector interface {
	Detect(ctx context.Context, agent parley.Agent) (parley.Detection, error)
	// Renegotiate is Detect after the agent has said that it does not speak the
	// dialect tried, "0.3" or "1.0".
	Renegotiate(ctx context.Context, agent parley.Agent, tried string) (parley.Detection, error)
}

// target is an agent as it is called.
type target struct {
	Endpoint
	cfg Config
	// plain: nothing is known about the agent and nothing is said about it, so it
	// gets what the seeds send (BR-1).
	plain bool
	// json: the agent declares to accept data parts.
	json bool
	// others are what else the agent could be called by, the best one first.
	others []Endpoint
}

// resolve says how agent is called: what its record pins, else what was found
// out about it, else A2A 0.3 over JSON-RPC at its URL.
func (a *Adapter) resolve(ctx context.Context, agent parley.Agent) (target, error) {
	if t, ok := a.known.target(agent); ok {
		return t, nil
	}
	cfg, faults := ReadConfig(agent.ProtocolConfig)
	if len(faults) > 0 {
		return target{}, errors.Join(faults...)
	}
	usable := func(d parley.Detection) bool {
		return d.Protocol == parley.ProtocolJSONRPC && belongs(d.URL, agent, cfg)
	}
	d, found := parley.ReadDetection(agent.Detected)
	found = found && usable(d)
	settled := found || !cfg.Auto
	if !settled {
		d, found = a.known.detect(ctx, a.opts.Detector, agent)
		found = found && usable(d)
	}
	t := undetected(agent, cfg)
	if found {
		t = detected(agent, cfg, d)
	}
	return a.known.learn(agent, t, settled), nil
}

// undetected is what a record alone says.
func undetected(agent parley.Agent, cfg Config) target {
	t := target{cfg: cfg, plain: cfg.plain()}
	t.Endpoint = cfg.pin(Endpoint{URL: agent.URL, Binding: BindingJSONRPC, Version: V03})
	if cfg.Version == "" && (t.Binding != BindingJSONRPC || t.Tenant != "") {
		t.Version = V10 // 0.3 has neither
	}
	return t
}

// plain says that the record asks for nothing that the seeds do not have.
func (c *Config) plain() bool {
	return c.Version == "" && c.Send == "" && c.Stream != streamOn && c.Tenant == "" &&
		(c.Binding == "" || c.Binding == BindingJSONRPC)
}

// detected is what was found out, as far as the record does not say otherwise.
// Of several interfaces the first that the record agrees with is taken.
func detected(agent parley.Agent, cfg Config, d parley.Detection) target {
	t := target{cfg: cfg, json: slices.ContainsFunc(d.InputModes, isJSON)}
	all := []Endpoint{{URL: d.URL, Binding: Binding(d.Binding), Version: Version(d.Version), Tenant: d.Tenant}}
	for _, o := range d.Others {
		if belongs(o.URL, agent, cfg) {
			all = append(all, Endpoint{URL: o.URL, Binding: Binding(o.Binding), Version: Version(o.Version), Tenant: o.Tenant})
		}
	}
	best := max(slices.IndexFunc(all, func(e Endpoint) bool {
		return (cfg.Version == "" || e.Version == cfg.Version) && (cfg.Binding == "" || e.Binding == cfg.Binding)
	}), 0)
	for i, e := range all {
		e.Streaming, e.Push = d.Streaming, d.Push
		if e.Binding == "" {
			e.Binding = BindingJSONRPC
		}
		if e = cfg.pin(e); i == best {
			t.Endpoint = e
		} else if cfg.Binding == "" || e.Binding == cfg.Binding {
			t.others = append(t.others, e)
		}
	}
	return t
}

func isJSON(mode string) bool {
	mode, _, _ = strings.Cut(mode, ";")
	mode = strings.ToLower(strings.TrimSpace(mode))
	return mode == "application/json" || mode == "*/*" || mode == "application/*"
}

// pin puts what the operator says in place of what e says.
func (c *Config) pin(e Endpoint) Endpoint {
	if c.Version != "" {
		e.Version = c.Version
	}
	if c.Binding != "" {
		e.Binding = c.Binding
	}
	if c.URL != "" {
		e.URL = c.URL
	}
	if c.Tenant != "" {
		e.Tenant = c.Tenant
	}
	switch c.Stream {
	case streamOn:
		e.Streaming = true
	case streamOff:
		e.Streaming = false
	}
	e.Streaming = e.Streaming || c.Send == SendStream
	if streamless(e.URL) {
		e.Streaming = false // neither stdio nor WebSocket has streams
	}
	if e.Binding == BindingJSONRPC {
		e.Batch = c.Batch
	}
	return e
}

// streamless says whether rawURL is of a transport of JSON-RPC that has no
// streams: a process on stdio, or a WebSocket.
func streamless(rawURL string) bool {
	scheme, _, _ := strings.Cut(rawURL, ":")
	switch strings.ToLower(scheme) {
	case "stdio", "ws", "wss":
		return true
	}
	return false
}

// belongs says whether the agent's credential may go to rawURL, which its card
// or an earlier call named: to its own host, or where the operator says.
func belongs(rawURL string, agent parley.Agent, cfg Config) bool {
	if rawURL == agent.URL || rawURL == cfg.URL {
		return true
	}
	own, err := url.Parse(agent.URL)
	if err != nil {
		return false
	}
	host := hostOf(rawURL)
	secure := own.Scheme == "https" || own.Scheme == "wss"
	scheme, _, _ := strings.Cut(rawURL, ":")
	if secure && (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, schemeWS)) {
		return false
	}
	return host != "" && (strings.EqualFold(host, own.Hostname()) || cfg.URL != "" && strings.EqualFold(host, hostOf(cfg.URL)))
}

// hostOf is the host of a URL, or of gRPC's host:port.
func hostOf(rawURL string) string {
	if !strings.Contains(rawURL, "://") {
		rawURL = "//" + rawURL
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// open says that the dialect may be changed: neither the operator has fixed it,
// nor the lack of any hint.
func (t *target) open() bool { return t.cfg.Version == "" && (!t.plain || t.cfg.Auto) }

// other gives the dialect that is tried once after the agent has said that it
// does not speak that of t: another one from its card, else the other one at
// the same place. The bindings of 1.0 have no other one.
func (t *target) other() (Endpoint, bool) {
	for _, e := range t.others {
		if e.Version != t.Version {
			return e, true
		}
	}
	if t.Binding != BindingJSONRPC {
		return Endpoint{}, false
	}
	e := t.Endpoint
	if e.Version = V03; t.Version == V03 {
		e.Version = V10
	} else {
		e.Tenant = ""
	}
	return e, true
}

// reference is by what the endpoint of an accepted task is found again: its
// binding, its tenant, and its URL where that is not the agent's own.
func (t *target) reference(agent parley.Agent) string {
	v := url.Values{"binding": {string(t.Binding)}}
	if t.Tenant != "" {
		v.Set("tenant", t.Tenant)
	}
	if t.URL != agent.URL && t.URL != t.cfg.URL {
		v.Set("url", t.URL)
	}
	if s := v.Encode(); len(s) <= maxReference {
		return s
	}
	return ""
}

// at is t where the task at was accepted. What the record pins by now wins, and
// a place that the agent's credential may not go to is not gone to.
func (t *target) at(agent parley.Agent, at bridge.AgentTask) target {
	moved := *t
	if v := Version(at.Version); v == V03 || v == V10 {
		moved.Version = v
		moved.plain = moved.plain && v == V03
	}
	if v, err := url.ParseQuery(at.Endpoint); err == nil && at.Endpoint != "" {
		moved.Binding, moved.Tenant = Binding(v.Get("binding")), v.Get("tenant")
		switch to := v.Get("url"); {
		case to != "" && belongs(to, agent, t.cfg):
			moved.URL = to
		case to == "" && t.cfg.URL == "":
			moved.URL = agent.URL
		}
	}
	moved.Endpoint = t.cfg.pin(moved.Endpoint)
	return moved
}

// maxReference bounds a reference, in bytes (see [bridge.AgentTask]).
const maxReference = 2 << 10

const (
	// maxKnown bounds the agents about which something is remembered.
	maxKnown = 4096
	// detectAgain is how long a failed detection is not repeated, and
	// detectAnew how long a good one is trusted.
	detectAgain = 30 * time.Second
	detectAnew  = 5 * time.Minute
)

// knowledge is what is known about agents by their names: how their records are
// to be read, and what calls have taught.
type knowledge struct {
	now func() time.Time
	mu  sync.Mutex
	of  map[string]*lesson
}

// lesson is what is known about one agent as long as its record stays as it is;
// the owner's mu protects it.
type lesson struct {
	url, config, detected string
	// target is how the record says that the agent is called; nil: it is read
	// for each call.
	target *target

	// looking is closed when the detection under way is over; nil if none is.
	// tried is when the last one was, found whether it gave d.
	looking chan struct{}
	tried   time.Time
	found   bool
	d       parley.Detection

	// endpoint is what it turned out to speak, and noPush that it refuses to push.
	endpoint *Endpoint
	noPush   bool
}

// lessonOf finds what is known about agent; the owner's mu must be held.
func (k *knowledge) lessonOf(agent *parley.Agent) *lesson {
	l := k.of[agent.Name]
	if l != nil && l.url == agent.URL && l.config == string(agent.ProtocolConfig) && l.detected == string(agent.Detected) {
		return l
	}
	if l == nil && len(k.of) >= maxKnown {
		clear(k.of)
	}
	l = &lesson{url: agent.URL, config: string(agent.ProtocolConfig), detected: string(agent.Detected)}
	k.of[agent.Name] = l
	return l
}

// target gives what is known already.
func (k *knowledge) target(agent parley.Agent) (target, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.lessonOf(&agent)
	if l.target == nil {
		return target{}, false
	}
	return l.corrected(*l.target), true
}

// learn notes t, if it is settled, and gives it with what calls have taught.
func (k *knowledge) learn(agent parley.Agent, t target, settled bool) target {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.lessonOf(&agent)
	if settled {
		l.target = &t
	}
	return l.corrected(t)
}

// corrected puts what calls have taught in place of what t says.
func (l *lesson) corrected(t target) target {
	if l.endpoint != nil {
		t.others = append(slices.Clip(t.others), t.Endpoint)
		t.Endpoint, t.plain = *l.endpoint, false
	}
	t.Push = t.Push && !l.noPush
	return t
}

// fresh says whether the last detection is still to be trusted.
func (l *lesson) fresh(now time.Time) bool {
	patience := detectAgain
	if l.found {
		patience = detectAnew
	}
	return !l.tried.IsZero() && now.Sub(l.tried) < patience
}

// detect finds out about agent, once for all that want to know.
func (k *knowledge) detect(ctx context.Context, by Detector, agent parley.Agent) (parley.Detection, bool) {
	if by == nil {
		return parley.Detection{}, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.lessonOf(&agent)
	for l.looking != nil && ctx.Err() == nil {
		over := l.looking
		k.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
		}
		k.mu.Lock()
	}
	if ctx.Err() != nil || l.fresh(k.now()) {
		return l.d, l.found
	}
	l.looking = make(chan struct{})
	defer func() { // also if it panics: then the others look themselves
		close(l.looking)
		l.looking = nil
	}()
	d, err := k.unlocked(func() (parley.Detection, error) { return by.Detect(ctx, agent) })
	if ctx.Err() == nil || err == nil {
		l.tried, l.d, l.found = k.now(), d, err == nil
	}
	return l.d, l.found
}

// unlocked does work without mu, which is held again afterwards, whatever happens.
func (k *knowledge) unlocked(work func() (parley.Detection, error)) (parley.Detection, error) {
	k.mu.Unlock()
	defer k.mu.Lock()
	return work()
}

// speaks notes what agent turned out to speak.
func (k *knowledge) speaks(agent parley.Agent, e Endpoint) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lessonOf(&agent).endpoint = &e
}

// pushesNot notes that agent refuses to push.
func (k *knowledge) pushesNot(agent parley.Agent) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lessonOf(&agent).noPush = true
}
