package api

import (
	"maps"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/parley-project/parley"
)

// maxSecret and maxPEM bound a secret and a PEM text, in characters; maxRef a
// reference to one.
const (
	maxSecret = 16 << 10
	maxPEM    = 64 << 10
	maxRef    = 1024
)

// authConfig is the credential: given as it is (token, key, password,
// client_secret) or by reference (secret), answered as a reference or not at
// all; and what belongs to its type.
type authConfig struct {
	_            struct{}          `additionalProperties:"true"`
	Type         string            `json:"type,omitempty"`
	Token        string            `json:"token,omitempty" writeOnly:"true"`
	Key          string            `json:"key,omitempty" writeOnly:"true"`
	APIKey       string            `json:"api_key,omitempty" writeOnly:"true"`
	Password     string            `json:"password,omitempty" writeOnly:"true"`
	ClientSecret string            `json:"client_secret,omitempty" writeOnly:"true"`
	Secret       string            `json:"secret,omitempty" doc:"Reference to the credential: env:NAME or file:path."`
	HeaderName   string            `json:"header_name,omitempty"`
	Header       string            `json:"header,omitempty"`
	Name         string            `json:"name,omitempty" doc:"Header, query parameter or cookie of an API key."`
	In           string            `json:"in,omitempty" doc:"Where an API key goes: header (default), query or cookie."`
	User         string            `json:"user,omitempty" doc:"For type basic."`
	Headers      map[string]string `json:"headers,omitempty" doc:"For type headers: a credential, or a reference to it, for each."`
	TokenURL     string            `json:"token_url,omitempty" doc:"For type oauth2, as are all that follow."`
	ClientID     string            `json:"client_id,omitempty"`
	Scopes       []string          `json:"scopes,omitempty"`
	Audience     string            `json:"audience,omitempty"`
	AuthStyle    string            `json:"auth_style,omitempty" doc:"How the client shows its secret: header (default) or body."`
}

// tlsSettings are those of connections to an agent: references, or PEM text,
// which is answered as "[redacted]".
type tlsSettings struct {
	Cert string `json:"cert,omitempty" doc:"Client certificate with its chain: env:NAME, file:path or PEM text."`
	Key  string `json:"key,omitempty" doc:"Its key."`
	CA   string `json:"ca,omitempty" doc:"Certificates that sign the agent's, in place of the system's."`
}

// shownAuth is what may be seen of a credential: how it is carried, and the
// reference if it is one. Credentials are "[redacted]" or absent.
type shownAuth struct {
	Token        string            `json:"token,omitempty"`
	Key          string            `json:"key,omitempty"`
	Password     string            `json:"password,omitempty"`
	ClientSecret string            `json:"client_secret,omitempty"`
	Secret       string            `json:"secret,omitempty"`
	HeaderName   string            `json:"header_name,omitempty"`
	Name         string            `json:"name,omitempty"`
	In           string            `json:"in,omitempty"`
	User         string            `json:"user,omitempty"`
	Headers      map[string]string `json:"headers,omitempty"`
	TokenURL     string            `json:"token_url,omitempty"`
	ClientID     string            `json:"client_id,omitempty"`
	Scopes       []string          `json:"scopes,omitempty"`
	Audience     string            `json:"audience,omitempty"`
	AuthStyle    string            `json:"auth_style,omitempty"`
}

// authKinds are the words for the kinds of authentication.
func authKinds() []string {
	kinds := make([]string, 0, len(parley.AuthTypes()))
	for _, t := range parley.AuthTypes() {
		kinds = append(kinds, string(t))
	}
	return kinds
}

// agentAuth reads auth, or auth_type and auth_config. The type decides; without
// one the configuration's own type does, else what it holds, else what is
// stored. A change may leave the credential out: the stored one stays.
func agentAuth(o *object, stored *parley.Auth) *parley.AuthSpec {
	kind := o.word("auth_type", authKinds()...)
	in := o.object("auth_config")
	if whole := o.object("auth"); whole != nil {
		if kind != nil || in != nil {
			o.wrong("auth", "value", "value_error", "says the same as auth_type and auth_config: give one of them")
			return nil
		}
		return wholeAuth(whole, stored)
	}
	if kind == nil && in == nil {
		return nil
	}
	out := &parley.AuthSpec{Type: parley.AuthNone}
	if in == nil {
		out.Type = parley.AuthType(*kind)
		return out
	}
	own := in.word("type", authKinds()...)
	switch {
	case kind != nil:
		out.Type = parley.AuthType(*kind)
	case own != nil:
		out.Type = parley.AuthType(*own)
	case in.has("token"):
		out.Type = parley.AuthBearer
	case in.has("key") || in.has("api_key"):
		out.Type = parley.AuthAPIKey
	case stored != nil && stored.Type != "":
		out.Type = stored.Type
	}
	if out.Type == parley.AuthNone {
		o.wrong("auth_config", "value", "value_error", "must be null when auth_type is 'none'")
		return nil
	}
	authMembers(in, out, stored)
	return out
}

// wholeAuth reads auth, which says its type itself.
func wholeAuth(in *object, stored *parley.Auth) *parley.AuthSpec {
	in.require("type")
	kind := in.word("type", authKinds()...)
	if kind == nil {
		return nil
	}
	out := &parley.AuthSpec{Type: parley.AuthType(*kind)}
	if out.Type != parley.AuthNone {
		authMembers(in, out, stored)
	}
	return out
}

// authMembers reads what belongs to out.Type. Stored is nil when adding: then
// the credential has to be there.
func authMembers(in *object, out *parley.AuthSpec, stored *parley.Auth) {
	if names := credentialNames(out.Type); names != nil {
		if !credential(in, out, names) && stored == nil {
			in.need(names[0])
		}
	}
	if out.Type == parley.AuthAPIKey {
		if v := in.word("in", string(parley.InHeader), string(parley.InQuery), string(parley.InCookie)); v != nil {
			out.In = parley.AuthPlace(*v)
		}
	}
	inHeader := out.In == "" || out.In == parley.InHeader
	names := []string{"header_name", "header"}
	if !inHeader || in.path == "auth" { // in an old auth_config it was dropped
		names = append(names, "name")
	}
	for _, name := range names {
		if v := in.text(name, 1, 128); v != nil && out.Header == "" {
			out.Header = *v
			if inHeader && !headerName(*v) {
				in.wrong(name, "value", "value_error", "must be the name of an HTTP header")
			}
		}
	}
	switch out.Type {
	case parley.AuthHeader:
		if out.Header == "" {
			in.need("header")
		}
	case parley.AuthBasic:
		in.into(&out.User, "user", 255)
	case parley.AuthHeaders:
		out.Headers = headerSecrets(in.object("headers"))
	case parley.AuthOAuth2:
		out.OAuth2 = &parley.OAuth2{}
		in.into(&out.OAuth2.TokenURL, "token_url", 2083)
		in.into(&out.OAuth2.ClientID, "client_id", 1024)
		in.into(&out.OAuth2.Audience, "audience", 2083)
		out.OAuth2.Scopes = in.scopes("scopes")
		if v := in.word("auth_style", parley.OAuth2InHeader, parley.OAuth2InBody); v != nil {
			out.OAuth2.Style = *v
		}
	}
}

// into takes a text if it is there.
func (o *object) into(to *string, name string, maxLen int) {
	if v := o.text(name, 0, maxLen); v != nil {
		*to = *v
	}
}

// scopes takes a list of strings, or one with blanks between them.
func (o *object) scopes(name string) []string {
	v, ok := o.take(name)
	var list []string
	var line string
	switch {
	case !ok:
	case jsonv2.Unmarshal(v, &line) == nil:
		list = strings.Fields(line)
	case jsonv2.Unmarshal(v, &list) != nil:
		o.wrong(name, "type", "list_type", "must be a list of strings")
	}
	return list
}

// headerSecrets reads the credentials of several headers; nil has none.
func headerSecrets(in *object) map[string]parley.SecretSpec {
	if in == nil {
		return nil
	}
	out := make(map[string]parley.SecretSpec, len(in.members))
	for _, name := range sortedKeys(in.members) {
		if v := in.text(name, 1, maxSecret); v != nil {
			var s parley.SecretSpec
			if *v != hidden {
				s.Secret, s.Literal = reference(*v)
			}
			out[name] = s
		}
	}
	return out
}

// agentTLS reads tls. What is "[redacted]" stays as it is stored.
func agentTLS(o *object) *parley.TLSSpec {
	in := o.object("tls")
	if in == nil {
		return nil
	}
	one := func(name string) (s parley.SecretSpec) {
		switch v := in.text(name, 0, maxPEM); {
		case v == nil || *v == "":
		case *v == hidden:
			s.Secret = hidden
		default:
			s.Secret, s.Literal = reference(*v)
		}
		return s
	}
	return &parley.TLSSpec{Cert: one("cert"), Key: one("key"), CA: one("ca")}
}

// credentialNames gives the members that may hold the credential of a type,
// the proper one first; nil for a type that has none.
func credentialNames(t parley.AuthType) []string {
	switch t {
	case parley.AuthBearer:
		return []string{"token"}
	case parley.AuthBasic:
		return []string{"password"}
	case parley.AuthOAuth2:
		return []string{"client_secret"}
	case parley.AuthAPIKey, parley.AuthHeader:
		return []string{"key", "api_key", "value", "token"}
	}
	return nil
}

// credential reads the secret of an authentication, or the reference to it, and
// says whether one was given.
func credential(in *object, out *parley.AuthSpec, names []string) (given bool) {
	for _, n := range names {
		// A member that is there and wrong is reported by text itself.
		had := in.has(n)
		v := in.text(n, 1, maxSecret)
		if v != nil && !given && *v != hidden {
			out.Secret, out.Literal = reference(*v)
		}
		given = given || had
	}
	hadSecret := in.has("secret")
	if v := in.text("secret", 1, maxRef); v != nil && *v != hidden {
		if out.Secret, out.Literal = reference(*v); out.Secret == "" {
			in.wrong("secret", "value", "value_error", "must be a reference, env:NAME or file:path; a credential itself goes into "+names[0])
		}
	}
	return given || hadSecret
}

// reference tells a reference to a credential from the credential itself.
func reference(v string) (ref string, literal parley.Secret) {
	if isReference(v) {
		return v, parley.Secret{}
	}
	return "", parley.NewSecret([]byte(v))
}

func isReference(v string) bool { return strings.HasPrefix(v, "env:") || strings.HasPrefix(v, "file:") }

// headerName reports whether v is a token (RFC 9110, 5.6.2).
func headerName(v string) bool {
	for _, c := range []byte(v) {
		if c <= ' ' || c > '~' || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return v != ""
}

func authType(a parley.Auth) parley.AuthType {
	if a.Type == "" {
		return parley.AuthNone
	}
	return a.Type
}

// showAuth gives what may be seen, nil if there is nothing but the type.
func showAuth(a parley.Auth) *shownAuth {
	out := shownAuth{HeaderName: a.Header, User: a.User, In: string(a.In)}
	if a.In == parley.InQuery || a.In == parley.InCookie {
		out.HeaderName, out.Name = "", a.Header
	}
	if o := a.OAuth2; o != nil {
		out.TokenURL, out.ClientID, out.Scopes = o.TokenURL, o.ClientID, slices.Clone(o.Scopes)
		out.Audience, out.AuthStyle = o.Audience, o.Style
	}
	if len(a.Headers) > 0 {
		out.Headers = maps.Clone(a.Headers)
		for name, ref := range out.Headers {
			out.Headers[name] = shown(ref)
		}
	}
	switch {
	case authType(a) == parley.AuthNone, a.Secret == "" && a.Type != parley.AuthHeaders:
		return nil
	case a.Secret == "":
	case isReference(a.Secret):
		out.Secret = a.Secret
	case a.Type == parley.AuthBearer:
		out.Token = hidden
	case a.Type == parley.AuthBasic:
		out.Password = hidden
	case a.Type == parley.AuthOAuth2:
		out.ClientSecret = hidden
	default:
		out.Key = hidden
	}
	return &out
}

// shown gives a reference as it is and anything else as "[redacted]".
func shown(ref string) string {
	if ref == "" || isReference(ref) {
		return ref
	}
	return hidden
}

func showTLS(t parley.AgentTLS) *tlsSettings {
	if t == (parley.AgentTLS{}) {
		return nil
	}
	return &tlsSettings{Cert: shown(t.Cert), Key: shown(t.Key), CA: shown(t.CA)}
}
