package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/parley-project/parley"
)

// declaredBy is recorded as the creator or changer of what a file declares.
const declaredBy = "agents file"

// LoadFile reads an agents file (AD-12): YAML or JSON with one member agents, a
// list of
//
//	name, url, description
//	protocol, protocol_config   defaults: simple-a2a, nothing
//	auth                        {type, secret} and what belongs to the type: header (or name) and
//	                            in, user, headers {name: secret}, token_url, client_id, scopes,
//	                            audience and auth_style; or, as old records have it,
//	                            {type, token | key | api_key, header | header_name}
//	auth_type, auth_config      the same, as an old record has it
//	tls                         {cert, key, ca}
//	timeout or timeout_ms       "30s" or milliseconds
//	retry or retry_config       {max_retries, initial_delay(_ms), max_delay(_ms), backoff_multiplier,
//	                            budget {percent, per_second, off}}
//	limits                      {concurrency, adaptive, rate, burst, queue, queue_bytes}
//	priority                    1 to 10
//	outcome_unknown, idempotent
//	breaker                     {enabled, failure_threshold, failure_rate_threshold, minimum_calls,
//	                            timeout(_seconds), half_open_max_calls, window(_size_seconds), on_open}
//	health                      {enabled, interval(_ms), timeout(_ms)}
//
// It gives what is right and every problem at once, at most 100, with its place;
// file only names the document in them. Whether a protocol exists and likes its
// configuration is not known here: [Registry.Declare] says that. Nothing may be
// declared if one of the problems is of [parley.SeverityError].
func LoadFile(file string, data []byte) ([]parley.AgentSpec, parley.Problems) {
	return readAgents(file, data, []string{"agents"})
}

// LoadSection is [LoadFile] for a file with other sections beside agents, which
// it leaves to others.
func LoadSection(file string, data []byte) ([]parley.AgentSpec, parley.Problems) {
	return readAgents(file, data, nil)
}

func readAgents(file string, data []byte, sections []string) ([]parley.AgentSpec, parley.Problems) {
	r := &reader{file: file}
	doc := r.document(data)
	if doc == nil {
		return nil, r.problems
	}
	if sections != nil && bareAgents(doc) {
		r.problem(doc, "agents", faultRequired, "the agents must stand in a list under the member agents: write agents: [{name: ..., url: ...}]")
		return nil, r.problems
	}
	list, ok := r.members(doc, "", sections)["agents"]
	if !ok {
		if sections != nil && len(r.problems) == 0 {
			r.problem(doc, "agents", faultRequired, "must be given, a list of agents")
		}
		return nil, r.problems
	}
	to, ok := r.plain(list, "agents")
	if !ok || to.Kind == yaml.ScalarNode && to.ShortTag() == "!!null" {
		return nil, r.problems
	}
	if to.Kind != yaml.SequenceNode {
		r.problem(list, "agents", faultType, "must be a list of agents")
		return nil, r.problems
	}
	specs := make([]parley.AgentSpec, 0, len(to.Content))
	names := map[string]int{}
	for i, n := range to.Content {
		a := &entryReader{reader: r, path: fmt.Sprintf("agents[%d]", i), node: n, at: map[string]place{}}
		spec := a.read()
		if name := value(spec.Name); name != "" {
			if first, twice := names[name]; twice {
				r.problem(a.at["name"].node, a.path+".name", faultDuplicate, fmt.Sprintf("agents[%d] has the same name", first))
			} else {
				names[name] = i
			}
		}
		specs = append(specs, spec)
	}
	return specs, r.problems
}

// entryReader reads one entry of the list.
type entryReader struct {
	*reader
	path string
	node *yaml.Node
	// at says where the members of a record stand in this file, by the paths
	// that faults have.
	at map[string]place
}

type place struct {
	node *yaml.Node
	path string
}

func (a *entryReader) read() parley.AgentSpec {
	spec := parley.AgentSpec{By: declaredBy}
	members := a.members(a.node, a.path, []string{
		"name", "url", "description", "protocol", "protocol_config", "auth", "auth_type", "auth_config", "tls",
		"timeout", "timeout_ms", "retry", "retry_config", "limits", "outcome_unknown", "idempotent", "breaker", "health", "priority",
	})
	if members == nil {
		return spec
	}
	at := func(name string) *yaml.Node { return a.member(members, name, name) }
	if n := at("name"); n != nil {
		spec.Name = a.text(n, a.path+".name")
	}
	if n := at("url"); n != nil {
		spec.URL = a.text(n, a.path+".url")
	}
	if n := at("description"); n != nil {
		spec.Description = a.text(n, a.path+".description")
	}
	if n := at("protocol"); n != nil {
		spec.Protocol = a.text(n, a.path+".protocol")
	}
	if n := at("protocol_config"); n != nil {
		var out bytes.Buffer
		if a.toJSON(&out, n, a.path+".protocol_config", 1) {
			spec.ProtocolConfig = out.Bytes()
		}
	}
	spec.Timeout = a.span(members, a.path, "timeout", "timeout_ms")
	if n := a.either(members, "retry", "retry_config"); n != nil {
		spec.Retry = a.retry(n)
	}
	if n := at("limits"); n != nil {
		a.limits(n, &spec)
	}
	if n := at("outcome_unknown"); n != nil {
		if s := a.text(n, a.path+".outcome_unknown"); s != nil {
			o := parley.OutcomePolicy(*s)
			spec.OutcomeUnknown = &o
		}
	}
	if n := at("idempotent"); n != nil {
		spec.Idempotent = a.boolean(n, a.path+".idempotent")
	}
	if n := at("breaker"); n != nil {
		spec.Breaker = a.breaker(n)
	}
	if n := at("health"); n != nil {
		spec.Health = a.health(n)
	}
	if n := at("priority"); n != nil {
		spec.Priority = a.integer(n, a.path+".priority")
	}
	if n := at("tls"); n != nil {
		spec.TLS = a.tls(n)
	}
	before := a.errors
	spec.Auth = a.auth(members)
	a.check(&spec, members, a.errors == before)
	return spec
}

// member gives the member called name and notes where faults of path belong.
func (a *entryReader) member(members map[string]*yaml.Node, name, path string) *yaml.Node {
	n := members[name]
	if n != nil {
		a.at[path] = place{n, a.path + "." + name}
	}
	return n
}

// either gives the member that has an old name besides. Faults know it by its
// old one, as the API does.
func (a *entryReader) either(members map[string]*yaml.Node, name, old string) *yaml.Node {
	n, o := a.member(members, name, old), members[old]
	if n != nil && o != nil {
		a.problem(o, a.path+"."+old, faultDuplicate, old+" says the same as "+name+"; give one of them")
		return n
	}
	if n == nil {
		n = a.member(members, old, old)
	}
	return n
}

// span reads a time that is given as a duration or as milliseconds.
func (a *entryReader) span(members map[string]*yaml.Node, path, name, ms string) *time.Duration {
	n, m := members[name], members[ms]
	key := strings.TrimPrefix(path+"."+ms, a.path+".")
	switch {
	case n != nil && m != nil:
		a.problem(m, path+"."+ms, faultDuplicate, ms+" says the same as "+name+"; give one of them")
		return nil
	case n != nil:
		a.at[key] = place{n, path + "." + name}
		return a.duration(n, path+"."+name)
	case m != nil:
		a.at[key] = place{m, path + "." + ms}
		return a.millis(m, path+"."+ms)
	}
	return nil
}

func (a *entryReader) retry(n *yaml.Node) *parley.RetryConfig {
	path := a.at["retry_config"].path
	members := a.members(n, path, []string{
		"max_retries", "initial_delay", "initial_delay_ms", "max_delay", "max_delay_ms", "backoff_multiplier", "multiplier", "budget",
	})
	retry := parley.DefaultRetryConfig()
	if n := members["max_retries"]; n != nil {
		a.at["retry_config.max_retries"] = place{n, path + ".max_retries"}
		set(&retry.MaxRetries, a.integer(n, path+".max_retries"))
	}
	set(&retry.InitialDelay, a.span(members, path, "initial_delay", "initial_delay_ms"))
	set(&retry.MaxDelay, a.span(members, path, "max_delay", "max_delay_ms"))
	for _, name := range []string{"multiplier", "backoff_multiplier"} {
		if n := members[name]; n != nil {
			a.at["retry_config.backoff_multiplier"] = place{n, path + "." + name}
			set(&retry.Multiplier, a.number(n, path+"."+name))
		}
	}
	if n := members["budget"]; n != nil {
		a.budget(n, path+".budget", &retry.Budget)
	}
	// What checkRetry says about "retry" it says about "retry_config".
	for _, ms := range []string{"initial_delay_ms", "max_delay_ms"} {
		if p, ok := a.at["retry."+ms]; ok {
			a.at["retry_config."+ms] = p
		}
	}
	return &retry
}

func (a *entryReader) budget(n *yaml.Node, path string, b *parley.RetryBudget) {
	members := a.members(n, path, []string{"percent", "per_second", "off"})
	figures := map[string]*float64{"percent": &b.Percent, "per_second": &b.PerSecond}
	for _, name := range slices.Sorted(maps.Keys(figures)) { // faults are always in one order
		n, to := members[name], figures[name]
		if n == nil {
			continue
		}
		a.at["retry_config.budget."+name] = place{n, path + "." + name}
		if v := a.number(n, path+"."+name); v != nil {
			if *to = *v; *v == 0 {
				*to = -1 // the zero value is the default, and none can be asked for
			}
		}
	}
	if n := members["off"]; n != nil {
		set(&b.Off, a.boolean(n, path+".off"))
	}
}

// auth reads auth, or auth_type and auth_config.
func (a *entryReader) auth(members map[string]*yaml.Node) *parley.AuthSpec {
	n, typ, config := members["auth"], members["auth_type"], members["auth_config"]
	switch {
	case n != nil && (typ != nil || config != nil):
		a.problem(n, a.path+".auth", faultDuplicate, "auth says the same as auth_type and auth_config; give one of them")
		return nil
	case n != nil:
		return a.newAuth(n)
	case typ == nil && config == nil:
		return nil
	}
	a.member(members, "auth_type", "auth_type")
	a.member(members, "auth_config", "auth_config")
	authType, raw := "", json.RawMessage(nil)
	if typ != nil {
		s := a.text(typ, a.path+".auth_type")
		if s == nil {
			return nil
		}
		authType = *s
	}
	if config != nil {
		var out bytes.Buffer
		if !a.toJSON(&out, config, a.path+".auth_config", 1) {
			return nil
		}
		raw = out.Bytes()
	}
	spec, err := AuthFromOld(authType, raw)
	a.faults(detailsOf(err))
	return &spec
}

func (a *entryReader) newAuth(n *yaml.Node) *parley.AuthSpec {
	path := a.path + ".auth"
	a.at["auth"] = place{n, path}
	members := a.members(n, path, []string{
		"type", "header", "secret", "token", "key", "api_key", "header_name", "name", "in", "user", "password",
		"client_secret", "headers", "token_url", "client_id", "scopes", "audience", "auth_style",
	})
	if members == nil {
		return nil
	}
	o := authMembers{at: "auth", optional: true, members: map[string]json.RawMessage{}}
	for _, name := range sortedKeys(members) {
		a.at["auth."+name] = place{members[name], path + "." + name}
		if name == "headers" || name == "scopes" {
			var out bytes.Buffer
			if a.toJSON(&out, members[name], path+"."+name, 1) {
				o.members[name] = out.Bytes()
			}
		} else if s := a.text(members[name], path+"."+name); s != nil {
			o.members[name] = quoted(*s)
		}
	}
	ref := o.text("secret")
	typ := o.text("type")
	if ref != "" {
		for _, name := range credentialNames(parley.AuthType(strings.ToLower(typ))) {
			if o.members[name] != nil {
				a.problem(members["secret"], path+".secret", faultValue, "must be a reference or a credential, not both")
				break
			}
		}
	}
	if typ == "" && members["type"] == nil {
		o.add("auth.type", faultRequired, "must be one of %s", authTypeList())
	}
	delete(o.members, "secret")
	delete(o.members, "type")
	spec := o.spec(typ, "auth.type")
	a.faults(o.faults)
	if ref != "" {
		spec.Secret, spec.Literal = ref, parley.Secret{}
	}
	return &spec
}

// tls reads the member tls.
func (a *entryReader) tls(n *yaml.Node) *parley.TLSSpec {
	path := a.path + ".tls"
	a.at["tls"] = place{n, path}
	members := a.members(n, path, tlsNames())
	spec := &parley.TLSSpec{}
	for i, to := range []*parley.SecretSpec{&spec.Cert, &spec.Key, &spec.CA} {
		name := tlsNames()[i]
		if m := members[name]; m != nil {
			a.at["tls."+name] = place{m, path + "." + name}
			if s := a.text(m, path+"."+name); s != nil {
				*to = secretSpec(*s)
			}
		}
	}
	return spec
}

// check adds the faults that the members have as values. Where the
// authentication could not be read they would only repeat that.
func (a *entryReader) check(spec *parley.AgentSpec, members map[string]*yaml.Node, authRead bool) {
	var f faults
	if spec.Name != nil || members["name"] == nil {
		checkName(value(spec.Name), &f)
	}
	if spec.URL == nil && members["url"] == nil {
		f.add("url", faultRequired, "must be given")
	}
	checkShape(spec, &f)
	if spec.Auth != nil && authRead {
		checkAuth(wanted(*spec.Auth, parley.Auth{}), nil, &f)
	}
	if spec.TLS != nil {
		checkTLS(wantTLS(*spec.TLS, parley.AgentTLS{}), nil, &f)
	}
	a.faults(f)
}

// faults notes each fault where the member stands.
func (a *entryReader) faults(f faults) {
	for _, x := range f {
		at := place{a.node, a.path + "." + x.Path}
		for key := x.Path; key != ""; {
			if p, ok := a.at[key]; ok {
				at = place{p.node, p.path + strings.TrimPrefix(x.Path, key)}
				break
			}
			i := strings.LastIndexByte(key, '.')
			key = key[:max(i, 0)]
		}
		a.problem(at.node, at.path, x.Code, x.Detail)
	}
}

// bareAgents reports whether a document is an agent, or a list of some, that the
// member agents was forgotten around: then each of its members would be a problem,
// and none of them the one to repair.
func bareAgents(doc *yaml.Node) bool {
	if doc.Kind == yaml.SequenceNode {
		return true
	}
	bare := false
	for i := 0; doc.Kind == yaml.MappingNode && i+1 < len(doc.Content); i += 2 {
		switch doc.Content[i].Value {
		case "agents":
			return false
		case "name", "url":
			bare = true
		}
	}
	return bare
}
