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
	u, err := url.Parse(raw)
	switch {
	case len(raw) > maxURL:
		f.add("url", faultLimit, "must have at most %d bytes", maxURL)
	case strings.Contains(raw, "@") && (err != nil || u.User != nil):
		f.add("url", faultValue, "must not hold a user name or password; use auth")
	case err != nil || !utf8.ValidString(raw):
		f.add("url", faultValue, "must be a URL such as https://agent.example/")
	case u.Scheme != "http" && u.Scheme != "https":
		f.add("url", faultValue, "must begin with http:// or https://")
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
}

// checkAuth reports what is wrong with a caller's authentication, without
// looking whether a reference leads anywhere yet. Without secrets only the form
// of a reference is checked.
func checkAuth(auth wantedAuth, secrets *Secrets, f *faults) {
	hasHeader := auth.Type == parley.AuthAPIKey || auth.Type == parley.AuthHeader
	switch auth.Type {
	case parley.AuthNone:
		if auth.Secret != "" || !auth.Literal.IsZero() {
			f.add("auth", faultValue, "must not hold a credential for type none")
		}
	case parley.AuthBearer, parley.AuthAPIKey:
	case parley.AuthHeader:
		if auth.Header == "" {
			f.add("auth.header", faultRequired, "must name the header for type header")
		}
	default:
		f.add("auth.type", faultValue, "must be one of none, bearer, apikey, header")
		return
	}
	switch {
	case auth.Header != "" && !hasHeader:
		f.add("auth.header", faultValue, "is for types apikey and header only")
	case auth.Header != "" && !isHeaderName(auth.Header):
		f.add("auth.header", faultValue, "must be the name of a header that the protocol does not use itself")
	}
	switch {
	case auth.Secret != "" && !auth.Literal.IsZero():
		f.add("auth.secret", faultValue, "must be a reference or a credential, not both")
	case auth.Secret != "":
		if err := secrets.Check(auth.Secret); err != nil {
			f.add("auth.secret", faultReference, "%s", messageOf(err))
		}
	case auth.Type == parley.AuthHeader && auth.Literal.IsZero() && !auth.keep:
		f.add("auth.secret", faultRequired, "must be given for type header")
	case string(auth.Literal.Reveal()) == Sealed:
		f.add("auth.secret", faultValue, "stands for a stored credential, and there is none of this type; give the credential")
	case !auth.Literal.IsZero() && !isCredential(auth.Literal.Reveal()):
		f.add("auth.secret", faultValue, "must be one line of printable ASCII of at most %d bytes", maxCredential)
	}
}

// isHeaderName reports whether name is a header (RFC 9110 token) that does not
// frame or route the request.
func isHeaderName(name string) bool {
	for _, c := range []byte(name) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	taken := []string{
		"host", "content-length", "content-type", "content-encoding", "transfer-encoding", "connection", "upgrade",
		"te", "trailer", "keep-alive", "expect", "accept", "accept-encoding", "x-correlation-id",
	}
	return name != "" && len(name) <= maxHeaderName && !slices.Contains(taken, strings.ToLower(name))
}

// isCredential reports whether value can stand in a header as it is.
func isCredential(value []byte) bool {
	return len(value) > 0 && len(value) <= maxCredential &&
		!bytes.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' })
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
