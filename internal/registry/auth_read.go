package registry

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/parley-project/parley"
)

// maxAuthJSON bounds an agent's authentication as JSON, in bytes.
const maxAuthJSON = 16 << 10

// AuthFromOld decodes the members auth_type and auth_config of an old agent
// record (formats.md, agent record). authType decides; if it is empty, member
// type inside config does, as in an old registry's record, and without both
// there is no authentication. Unknown members are dropped, as they always were.
// A credential of the form env:… or file:… is taken as a reference.
//
// The error is a [*parley.Error] of code invalid with every fault; it never
// holds a credential.
func AuthFromOld(authType string, config json.RawMessage) (parley.AuthSpec, error) {
	o := authMembers{at: "auth_config"}
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

// authMembers reads the members of an authentication, of an old auth_config or
// of auth, which has more of them.
type authMembers struct {
	faults
	at      string
	members map[string]json.RawMessage // nil if config is null or absent
	// optional says that members may stand without a credential.
	optional bool
}

func (o *authMembers) decode(config json.RawMessage) {
	if len(config) > maxAuthJSON {
		o.add(o.at, faultLimit, "must be at most %d bytes", maxAuthJSON)
		return
	}
	// The decoder's own texts might quote a credential.
	if len(config) > 0 && json.Unmarshal(config, &o.members) != nil {
		o.members = nil
		o.add(o.at, faultType, "must be an object or null")
	}
}

// credentialNames gives the members that may hold the credential of a kind,
// the proper one first; nil for a kind that has none.
func credentialNames(kind parley.AuthType) []string {
	switch kind {
	case parley.AuthBearer:
		return []string{"token"}
	case parley.AuthAPIKey, parley.AuthHeader:
		return []string{"key", "api_key"}
	case parley.AuthBasic:
		return []string{"password"}
	case parley.AuthOAuth2:
		return []string{"client_secret"}
	}
	return nil
}

// spec reads what belongs to typ, which stands at path.
func (o *authMembers) spec(typ, path string) parley.AuthSpec {
	spec := parley.AuthSpec{Type: parley.AuthType(strings.ToLower(strings.TrimSpace(typ)))}
	if spec.Type == "" {
		spec.Type = parley.AuthNone
	}
	if !slices.Contains(parley.AuthTypes(), spec.Type) {
		o.add(path, faultValue, "must be one of %s", authTypeList())
		return spec
	}
	names := credentialNames(spec.Type)
	if names == nil && o.oneOf("token", "key", "api_key", "password", "client_secret") != "" {
		o.add(o.at, faultValue, "must not hold a credential for type %s", spec.Type)
		return spec
	}
	if names != nil {
		s := secretSpec(o.credential(names...))
		spec.Secret, spec.Literal = s.Secret, s.Literal
	}
	switch spec.Type {
	case parley.AuthAPIKey:
		spec.In = parley.AuthPlace(strings.ToLower(o.text("in")))
		spec.Header = o.name(spec.In)
	case parley.AuthHeader:
		spec.Header = o.name("")
	case parley.AuthBasic:
		spec.User = o.text("user")
	case parley.AuthHeaders:
		spec.Headers = o.headers()
	case parley.AuthOAuth2:
		spec.OAuth2 = &parley.OAuth2{
			TokenURL: o.text("token_url"), ClientID: o.text("client_id"), Scopes: o.list("scopes"),
			Audience: o.text("audience"), Style: strings.ToLower(o.text("auth_style")),
		}
	}
	return spec
}

// secretSpec tells a reference from a literal.
func secretSpec(value string) parley.SecretSpec {
	switch kind, _ := splitRef(value); {
	case value == "":
		return parley.SecretSpec{}
	case kind == refEnv || kind == refFile || value == Sealed:
		return parley.SecretSpec{Secret: value}
	}
	return parley.SecretSpec{Literal: parley.NewSecret([]byte(value))}
}

// credential gives the first of names that is there. An auth_config, where
// there is one, holds the credential.
func (o *authMembers) credential(names ...string) string {
	before := len(o.faults)
	value := o.oneOf(names...)
	if value == "" && o.members != nil && !o.optional && len(o.faults) == before {
		o.add(o.at+"."+names[0], faultRequired, "must be the credential, a string that is not empty")
	}
	return value
}

// oneOf gives the member that is known under several names.
func (o *authMembers) oneOf(names ...string) string {
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

// name gives the name of what carries the credential. In an old auth_config a
// member name was dropped, so it counts only where it is needed.
func (o *authMembers) name(in parley.AuthPlace) string {
	if !o.optional && (in == "" || in == parley.InHeader) {
		return o.oneOf("header_name", "header")
	}
	return o.oneOf("header_name", "header", "name")
}

// text gives a member that is a string; "" if it is absent or null.
func (o *authMembers) text(name string) string {
	var s *string
	if raw, ok := o.members[name]; ok && json.Unmarshal(raw, &s) != nil {
		o.add(o.at+"."+name, faultType, "must be a string")
		return ""
	}
	return value(s)
}

// list gives a member that is a list of strings, or one string with blanks
// between them.
func (o *authMembers) list(name string) []string {
	raw, ok := o.members[name]
	var list []string
	var line string
	switch {
	case !ok:
	case json.Unmarshal(raw, &line) == nil:
		list = strings.Fields(line)
	case json.Unmarshal(raw, &list) != nil:
		o.add(o.at+"."+name, faultType, "must be a list of strings")
	}
	return list
}

// headers gives the credentials of several headers.
func (o *authMembers) headers() map[string]parley.SecretSpec {
	var members map[string]string
	if raw, ok := o.members["headers"]; ok && json.Unmarshal(raw, &members) != nil {
		o.add(o.at+".headers", faultType, "must be an object of names and credentials, each a string")
	}
	out := make(map[string]parley.SecretSpec, len(members))
	for name, v := range members {
		out[name] = secretSpec(v)
	}
	return out
}

// tlsNames are the members of tls.
func tlsNames() []string { return []string{"cert", "key", "ca"} }

// authTypeList names all kinds in a text.
func authTypeList() string {
	names := make([]string, 0, len(parley.AuthTypes()))
	for _, t := range parley.AuthTypes() {
		names = append(names, string(t))
	}
	return strings.Join(names, ", ")
}
