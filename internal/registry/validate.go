package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/parley-project/parley"
)

// The ranges of an agent record (formats.md, agent record; AD-5, AD-7).
const (
	maxName        = 255       // characters
	maxURL         = 2083      // bytes
	maxDescription = 64 << 10  // characters
	maxConfig      = 64 << 10  // bytes
	maxHeaderName  = 128       // bytes
	maxCalls       = 10_000    // calls in flight
	maxRetries     = 10        // attempts after the first
	maxMultiplier  = 1_000_000 // factor between delays

	minTimeout     = time.Second
	maxTimeout     = 300 * time.Second
	defaultTimeout = 30 * time.Second
	minFirstDelay  = 100 * time.Millisecond
	minMaxDelay    = time.Second
	maxDelay       = 365 * 24 * time.Hour
)

// checkName reports what is wrong with a name. A name in the form of an id
// could stand for another agent.
func checkName(name string, f *faults) {
	switch {
	case name == "":
		f.add("name", faultRequired, "must be given")
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		f.add("name", faultValue, "must be text without control characters")
	case strings.TrimSpace(name) == "":
		f.add("name", faultValue, "must not be blank")
	case utf8.RuneCountInString(name) > maxName:
		f.add("name", faultLimit, "must have 1 to %d characters", maxName)
	case name == "." || name == "..":
		f.add("name", faultValue, "must not be . or .., which no path of the API can name")
	case len(name) == 36 && uuid.Validate(name) == nil:
		f.add("name", faultValue, "must not have the form of an id")
	}
}

// normalURL gives raw as it is stored: with a lower-case scheme and host and at
// least "/" as its path. The faults don't quote raw, which may hold a password.
func normalURL(raw string, f *faults) string {
	if raw == "" {
		f.add("url", faultRequired, "must be given")
		return raw
	}
	if isStdio(raw) {
		return normalStdio(raw, f)
	}
	u, err := url.Parse(raw)
	switch {
	case len(raw) > maxURL:
		f.add("url", faultLimit, "must have at most %d bytes", maxURL)
	case strings.Contains(raw, "@") && (err != nil || u.User != nil):
		f.add("url", faultValue, "must not hold a user name or password; use auth")
	case err != nil || !utf8.ValidString(raw):
		f.add("url", faultValue, "must be a URL such as https://agent.example/")
	case !slices.Contains([]string{"http", "https", "ws", "wss"}, u.Scheme):
		f.add("url", faultValue, "must begin with http:// or https://, or for jsonrpc-2.0 with ws://, wss:// or stdio:")
	case !validHost(u):
		f.add("url", faultValue, "must name a host, and a port from 1 to 65535 if any")
	default:
		u.Host = strings.ToLower(u.Host)
		if u.Path == "" {
			u.Path = "/"
		}
		return u.String()
	}
	return raw
}

func validHost(u *url.URL) bool {
	host := u.Hostname()
	if host == "" || u.Opaque != "" || strings.ContainsFunc(host, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return false
	}
	if strings.Contains(host, ":") { // only an IPv6 address has colons
		if _, err := netip.ParseAddr(host); err != nil {
			return false
		}
	}
	if _, port, ok := strings.Cut(u.Host[strings.LastIndexByte(u.Host, ']')+1:], ":"); ok && port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		return err == nil && n > 0
	}
	return true
}

// checkShape reports what is wrong with the members that spec gives, as far as
// that needs no knowledge of others.
func checkShape(spec *parley.AgentSpec, f *faults) {
	if spec.URL != nil {
		normalURL(*spec.URL, f)
	}
	if d := spec.Description; d != nil && (utf8.RuneCountInString(*d) > maxDescription || !utf8.ValidString(*d)) {
		f.add("description", faultLimit, "must be text of at most %d characters", maxDescription)
	}
	if t := spec.Timeout; t != nil && (*t < minTimeout || *t > maxTimeout || *t%time.Millisecond != 0) {
		f.add("timeout_ms", faultValue, "must be 1000 to 300000 whole milliseconds")
	}
	if spec.Retry != nil {
		checkRetry(*spec.Retry, f)
	}
	if n := spec.MaxConcurrent; n != nil && (*n < 0 || *n > maxCalls) {
		f.add("limits.concurrency", faultValue, "must be 0 (the server's default) to %d", maxCalls)
	}
	if spec.Limits != nil {
		checkLimits(*spec.Limits, f)
	}
	if p := spec.Priority; p != nil && (*p < 0 || *p > parley.MaxPriority) {
		f.add("priority", faultValue, "must be 1 to %d, or 0 for the default, %d", parley.MaxPriority, parley.DefaultPriority)
	}
	if spec.Breaker != nil {
		checkBreaker(*spec.Breaker, f)
	}
	if spec.Health != nil {
		checkHealth(*spec.Health, f)
	}
	if o := spec.OutcomeUnknown; o != nil {
		switch *o {
		case "", parley.OutcomeLookup, parley.OutcomeResend, parley.OutcomeFail:
		default:
			f.add("outcome_unknown", faultValue, "must be one of lookup, resend, fail")
		}
	}
	if st := spec.Status; st != nil && *st != parley.AgentActive && *st != parley.AgentInactive {
		f.add("status", faultValue, "must be one of active, inactive")
	}
}

// checkPolicy refuses to look up what became of a task at agents of a protocol that
// cannot be asked, unless the record did so before: it goes on as it was stored.
func checkPolicy(before, agent parley.Agent, f *faults) {
	asks := func(a parley.Agent) bool {
		return a.Protocol == parley.ProtocolSimpleA2A && a.OutcomeUnknown == parley.OutcomeLookup
	}
	if asks(agent) && !asks(before) {
		f.add("outcome_unknown", faultValue,
			"cannot be lookup with the protocol %s, whose agents cannot be asked what became of a task: use fail, or resend if the agent recognises a task_id that it has seen", agent.Protocol)
	}
}

func checkRetry(r parley.RetryConfig, f *faults) {
	if r.MaxRetries < 0 || r.MaxRetries > maxRetries {
		f.add("retry_config.max_retries", faultValue, "must be 0 to %d", maxRetries)
	}
	if r.InitialDelay < minFirstDelay || r.InitialDelay > maxDelay || r.InitialDelay%time.Millisecond != 0 {
		f.add("retry_config.initial_delay_ms", faultValue, "must be at least 100 and at most 365 days, in whole milliseconds")
	}
	if r.MaxDelay < max(minMaxDelay, r.InitialDelay) || r.MaxDelay > maxDelay || r.MaxDelay%time.Millisecond != 0 {
		f.add("retry_config.max_delay_ms", faultValue, "must be at least 1000, at least initial_delay_ms and at most 365 days, in whole milliseconds")
	}
	if !(r.Multiplier >= 1 && r.Multiplier <= maxMultiplier) || math.IsNaN(r.Multiplier) {
		f.add("retry_config.backoff_multiplier", faultValue, "must be 1 to %d", maxMultiplier)
	}
	if p := r.Budget.Percent; p != 0 && !(p >= 1 && p <= 100) {
		f.add("retry_config.budget.percent", faultValue, "must be 1 to 100; off: true is no bound")
	}
	if n := r.Budget.PerSecond; n != 0 && !(n >= 0.1 && n <= 1000) {
		f.add("retry_config.budget.per_second", faultValue, "must be 0.1 to 1000; off: true is no bound")
	}
}

// checkProtocol reports what is wrong with the protocol and its configuration
// (AD-4, AD-7), and gives the configuration as it is stored.
func (r *Registry) checkProtocol(protocol string, config json.RawMessage, f *faults) json.RawMessage {
	known := slices.Contains(r.protocols, protocol)
	if !known {
		f.add("protocol", faultProtocol, "Unsupported protocol: %s. Supported protocols: %s", shown(protocol), strings.Join(r.protocols, ", "))
	}
	if len(config) == 0 || string(bytes.TrimSpace(config)) == "null" {
		return nil
	}
	var members map[string]json.RawMessage
	switch {
	case len(config) > maxConfig:
		f.add("protocol_config", faultLimit, "must be at most %d bytes", maxConfig)
		return nil
	case json.Unmarshal(config, &members) != nil:
		f.add("protocol_config", faultType, "must be an object or null")
		return nil
	}
	var stored bytes.Buffer
	if err := json.Compact(&stored, config); err != nil {
		f.add("protocol_config", faultSyntax, "must be JSON")
		return nil
	}
	if check := r.checkers[protocol]; known && check != nil {
		for _, err := range check(stored.Bytes()) {
			detail := messageOf(err)
			path := configPath(detail, members)
			// The path says which member it is.
			for _, prefix := range []string{path + ": ", strings.TrimPrefix(path, "protocol_config.") + ": "} {
				detail = strings.TrimPrefix(detail, prefix)
			}
			f.add(path, faultConfig, "%s", detail)
		}
	}
	return stored.Bytes()
}

// checkNoConfig is the checker of simple-a2a: there is nothing to configure.
func checkNoConfig(config json.RawMessage) []error {
	var members map[string]json.RawMessage
	if len(config) > 0 && json.Unmarshal(config, &members) != nil {
		return []error{errors.New("must be an object or null")}
	}
	var errs []error
	for _, name := range sortedKeys(members) {
		errs = append(errs, errors.New(shown(name)+": is unknown; this protocol has no configuration"))
	}
	return errs
}

// configPath finds the member that a checker's text names, by the convention
// that the text begins with it or quotes it.
func configPath(detail string, members map[string]json.RawMessage) string {
	words := strings.FieldsFunc(detail, func(r rune) bool { return strings.ContainsRune(" :,;\"'`()[]", r) })
	for _, word := range words {
		word = strings.TrimPrefix(word, "protocol_config.")
		if _, ok := members[word]; ok {
			return "protocol_config." + word
		}
	}
	return "protocol_config"
}

// shown makes a name that a caller chose fit for a text.
func shown(name string) string {
	if utf8.RuneCountInString(name) > 64 {
		name = string([]rune(name)[:64]) + "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, name)
}

// messageOf gives the text of err for people, without a code before it.
func messageOf(err error) string {
	if e, ok := errors.AsType[*parley.Error](err); ok {
		return e.Message
	}
	return err.Error()
}
