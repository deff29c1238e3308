package registry

import (
	"encoding/json"
	"strings"

	"github.com/parley-project/parley"
)

// Sealed is what an API shows, and takes back as "unchanged", where a record
// holds a credential that was sealed.
const Sealed = "[redacted]"

// defaultKeyHeader carries the credential of AuthAPIKey if no header is named.
const defaultKeyHeader = "X-API-Key"

// maxCredential bounds a credential that is sent in a header, and the old form
// of an agent's authentication as JSON, in bytes.
const maxCredential = 16 << 10

// PublicAuth gives the part of a that may be shown: references as they are,
// everything else as [Sealed].
func PublicAuth(a parley.Auth) parley.Auth {
	if kind, _ := splitRef(a.Secret); a.Secret != "" && kind != refEnv && kind != refFile {
		a.Secret = Sealed
	}
	return a
}

// wantedAuth is what a caller wants for an agent that has an authentication
// already. With keep the credential is the stored one.
type wantedAuth struct {
	parley.AuthSpec
	keep bool
}

// wanted reads spec: a credential that is not given, or is what an API shows in
// its place, is the stored one of the same type.
func wanted(spec parley.AuthSpec, stored parley.Auth) wantedAuth {
	w := wantedAuth{AuthSpec: spec}
	w.Type = parley.AuthType(strings.ToLower(string(w.Type)))
	if w.Type == "" {
		w.Type = parley.AuthNone
	}
	given := w.Secret
	if given == "" {
		given = string(w.Literal.Reveal())
	}
	if (given == "" || given == Sealed) && w.Type == stored.Type && stored.Secret != "" {
		w.Secret, w.Literal, w.keep = "", parley.Secret{}, true
	}
	return w
}

// sealed makes the record of what was checked.
func (r *Registry) sealed(w wantedAuth, stored parley.Auth) (parley.Auth, error) {
	auth := parley.Auth{Type: w.Type, Header: w.Header, Secret: w.Secret}
	if auth.Type == parley.AuthAPIKey && auth.Header == "" {
		auth.Header = defaultKeyHeader
	}
	var err error
	switch {
	case w.keep:
		auth.Secret = stored.Secret
	case !w.Literal.IsZero():
		auth.Secret, err = r.cfg.Secrets.Seal(w.Literal)
	}
	return auth, err
}

// AuthFromOld decodes the members auth_type and auth_config of an old agent
// record (formats.md, agent record). authType decides; if it is empty, member
// type inside config does, as in an old registry's record, and without both
// there is no authentication. Unknown members are dropped, as they always were.
// A credential of the form env:… or file:… is taken as a reference.
//
// The error is a [*parley.Error] of code invalid with every fault; it never
// holds a credential.
func AuthFromOld(authType string, config json.RawMessage) (parley.AuthSpec, error) {
	o := oldAuth{at: "auth_config"}
	o.decode(config)
	typ, path := authType, "auth_type"
	if typ == "" && o.members != nil {
		typ, path = o.text("type"), "auth_config.type"
		if typ == "" && len(o.members) > 0 && len(o.faults) == 0 {
			o.add(path, faultRequired, "says how the credential is sent: none, bearer or apikey")
		}
	}
	var spec parley.AuthSpec
	if len(o.faults) == 0 {
		spec = o.spec(typ, path)
		if spec.Type == parley.AuthNone && authType != "" && o.members != nil && len(o.faults) == 0 {
			o.add("auth_config", faultValue, "must be null for auth_type none")
		}
	}
	if err := o.err("agent authentication"); err != nil {
		return parley.AuthSpec{}, err
	}
	return spec, nil
}

// oldAuth reads the members of an old auth_config.
type oldAuth struct {
	faults
	at      string
	members map[string]json.RawMessage // nil if config is null or absent
	// optional says that members may stand without a credential.
	optional bool
}

func (o *oldAuth) decode(config json.RawMessage) {
	if len(config) > maxCredential {
		o.add(o.at, faultLimit, "must be at most %d bytes", maxCredential)
		return
	}
	// The decoder's own texts might quote a credential.
	if len(config) > 0 && json.Unmarshal(config, &o.members) != nil {
		o.members = nil
		o.add(o.at, faultType, "must be an object or null")
	}
}

// spec reads what belongs to typ, which stands at path.
func (o *oldAuth) spec(typ, path string) parley.AuthSpec {
	spec := parley.AuthSpec{Type: parley.AuthType(strings.ToLower(strings.TrimSpace(typ)))}
	value := ""
	switch spec.Type {
	case "", parley.AuthNone:
		spec.Type = parley.AuthNone
		if o.oneOf("token", "key", "api_key") != "" {
			o.add(o.at, faultValue, "must not hold a credential for type none")
		}
		return spec
	case parley.AuthBearer:
		value = o.credential("token")
	case parley.AuthAPIKey, parley.AuthHeader:
		value = o.credential("key", "api_key")
		spec.Header = o.oneOf("header_name", "header")
	default:
		o.add(path, faultValue, "must be one of none, bearer, apikey, header")
	}
	switch kind, _ := splitRef(value); {
	case value == "":
	case kind == refEnv || kind == refFile:
		spec.Secret = value
	default:
		spec.Literal = parley.NewSecret([]byte(value))
	}
	return spec
}

// credential gives the first of names that is there. An auth_config, where
// there is one, holds the credential.
func (o *oldAuth) credential(names ...string) string {
	before := len(o.faults)
	value := o.oneOf(names...)
	if value == "" && o.members != nil && !o.optional && len(o.faults) == before {
		o.add(o.at+"."+names[0], faultRequired, "must be the credential, a string that is not empty")
	}
	return value
}

// oneOf gives the member that is known under several names.
func (o *oldAuth) oneOf(names ...string) string {
	value := ""
	for _, name := range names {
		switch v := o.text(name); {
		case v == "":
		case value != "" && value != v:
			o.add(o.at+"."+name, faultValue, "differs from %s.%s; give one of them", o.at, names[0])
		default:
			value = v
		}
	}
	return value
}

// text gives a member that is a string; "" if it is absent or null.
func (o *oldAuth) text(name string) string {
	raw, ok := o.members[name]
	if !ok {
		return ""
	}
	var s *string
	if json.Unmarshal(raw, &s) != nil {
		o.add(o.at+"."+name, faultType, "must be a string")
		return ""
	}
	if s == nil {
		return ""
	}
	return *s
}
