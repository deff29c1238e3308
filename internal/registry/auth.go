package registry

import (
	"crypto/subtle"
	"maps"
	"slices"
	"strings"

	"github.com/parley-project/parley"
)

// Sealed is what an API shows, and takes back as "unchanged", where a record
// holds a credential that was sealed.
const Sealed = "[redacted]"

// defaultKeyHeader carries the credential of AuthAPIKey if no header is named.
const defaultKeyHeader = "X-API-Key"

// unreadable reports whether ref holds a secret, not where one is: who reads the record
// is shown [Sealed].
func unreadable(ref string) bool {
	kind, _ := splitRef(ref)
	return ref != "" && kind != refEnv && kind != refFile
}

// wantedSecret is one secret as a caller wants it. If keep is not empty it is
// the stored reference, which stays.
type wantedSecret struct {
	parley.SecretSpec
	keep string
}

// wantedOne reads spec: a secret that is not given, or is what an API shows in
// its place, is the stored one, if there is one.
func wantedOne(spec parley.SecretSpec, stored string) wantedSecret {
	if stored != "" && (spec.IsZero() || isSealed(spec)) {
		return wantedSecret{keep: stored}
	}
	return wantedSecret{SecretSpec: spec}
}

// isSealed reports whether spec stands for the stored secret.
func isSealed(spec parley.SecretSpec) bool {
	return spec.Secret == Sealed || spec.Secret == "" && string(spec.Literal.Reveal()) == Sealed
}

func (w wantedSecret) missing() bool { return w.keep == "" && w.IsZero() }

// wantedAuth is what a caller wants for an agent that has an authentication
// already. Its secrets are in secret and headers.
type wantedAuth struct {
	parley.AuthSpec
	secret  wantedSecret
	headers map[string]wantedSecret
}

// wantedTLS is the same for TLS settings.
type wantedTLS struct{ cert, key, ca wantedSecret }

// movesToken reports whether a client secret that nobody can read would be sent
// to another token endpoint than the one that it was given for. Whoever names
// another one knows the secret, and gives it again.
func movesToken(o *parley.OAuth2, stored parley.Auth) bool {
	return o != nil && stored.OAuth2 != nil && o.TokenURL != stored.OAuth2.TokenURL && unreadable(stored.Secret)
}

// wanted reads spec; stored secrets can stay if they are of the same type.
func wanted(spec parley.AuthSpec, stored parley.Auth) wantedAuth {
	w := wantedAuth{AuthSpec: spec, headers: map[string]wantedSecret{}}
	w.Type = parley.AuthType(strings.ToLower(string(w.Type)))
	if w.Type == "" {
		w.Type = parley.AuthNone
	}
	if w.Type != stored.Type || movesToken(spec.OAuth2, stored) {
		stored = parley.Auth{}
	}
	w.secret = wantedOne(parley.SecretSpec{Secret: spec.Secret, Literal: spec.Literal}, stored.Secret)
	for name, one := range spec.Headers {
		w.headers[name] = wantedOne(one, stored.Headers[name])
	}
	return w
}

// wantTLS reads spec. Other than with [wanted], what is not given is removed:
// each member can be done without.
func wantTLS(spec parley.TLSSpec, stored parley.AgentTLS) wantedTLS {
	one := func(spec parley.SecretSpec, stored string) wantedSecret {
		if spec.IsZero() {
			return wantedSecret{}
		}
		return wantedOne(spec, stored)
	}
	return wantedTLS{one(spec.Cert, stored.Cert), one(spec.Key, stored.Key), one(spec.CA, stored.CA)}
}

// sealed makes the record of what was checked.
func (r *Registry) sealed(w wantedAuth) (parley.Auth, error) {
	auth := parley.Auth{Type: w.Type, Header: w.Header, In: w.In, User: w.User}
	if auth.Type == parley.AuthAPIKey && auth.Header == "" {
		auth.Header = defaultKeyHeader
	}
	if auth.In == parley.InHeader {
		auth.In = ""
	}
	if w.OAuth2 != nil {
		o := *w.OAuth2
		if o.Scopes = slices.Clone(o.Scopes); len(o.Scopes) == 0 {
			o.Scopes = nil
		}
		if o.Style == parley.OAuth2InHeader {
			o.Style = ""
		}
		auth.OAuth2 = &o
	}
	var err error
	if auth.Secret, err = r.seal(w.secret); err != nil {
		return auth, err
	}
	for name, one := range w.headers {
		if auth.Headers == nil {
			auth.Headers = make(map[string]string, len(w.headers))
		}
		if auth.Headers[name], err = r.seal(one); err != nil {
			return auth, err
		}
	}
	return auth, nil
}

// sealedTLS makes the record of what was checked.
func (r *Registry) sealedTLS(w wantedTLS) (t parley.AgentTLS, err error) {
	if t.Cert, err = r.seal(w.cert); err != nil {
		return t, err
	}
	if t.Key, err = r.seal(w.key); err != nil {
		return t, err
	}
	t.CA, err = r.seal(w.ca)
	return t, err
}

// seal gives the reference under which a secret is stored.
func (r *Registry) seal(w wantedSecret) (string, error) {
	switch {
	case w.keep != "":
		return w.keep, nil
	case !w.Literal.IsZero():
		return r.cfg.Secrets.Seal(w.Literal)
	}
	return w.Secret, nil
}

// reuse gives spec with [Sealed] in place of each literal that is what is
// stored, so that it need not be sealed again.
func (r *Registry) reuse(spec parley.AgentSpec, stored parley.Agent) parley.AgentSpec {
	one := func(s parley.SecretSpec, ref string) parley.SecretSpec {
		if r.holds(ref, s) {
			return parley.SecretSpec{Secret: Sealed}
		}
		return s
	}
	if spec.Auth != nil && wanted(*spec.Auth, stored.Auth).Type == stored.Auth.Type && !movesToken(spec.Auth.OAuth2, stored.Auth) {
		auth := *spec.Auth
		s := one(parley.SecretSpec{Secret: auth.Secret, Literal: auth.Literal}, stored.Auth.Secret)
		auth.Secret, auth.Literal = s.Secret, s.Literal
		auth.Headers = maps.Clone(auth.Headers)
		for name, s := range auth.Headers {
			auth.Headers[name] = one(s, stored.Auth.Headers[name])
		}
		spec.Auth = &auth
	}
	if spec.TLS != nil {
		spec.TLS = &parley.TLSSpec{
			Cert: one(spec.TLS.Cert, stored.TLS.Cert), Key: one(spec.TLS.Key, stored.TLS.Key), CA: one(spec.TLS.CA, stored.TLS.CA),
		}
	}
	return spec
}

// holds reports whether the stored reference is the literal of spec, sealed.
func (r *Registry) holds(stored string, spec parley.SecretSpec) bool {
	if kind, _ := splitRef(stored); kind != refSealed || spec.Literal.IsZero() || spec.Secret != "" {
		return false
	}
	secret, err := r.cfg.Secrets.Resolve(stored)
	return err == nil && subtle.ConstantTimeCompare(secret.Reveal(), spec.Literal.Reveal()) == 1
}
