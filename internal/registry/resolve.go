package registry

import (
	"context"

	"github.com/parley-project/parley"
)

// resolve gives agent with the secrets that calls of it carry, for as far as
// its record names any.
func (r *Registry) resolve(agent parley.Agent) (parley.Agent, error) {
	agent.Credential, agent.Resolved = parley.Secret{}, nil
	if agent.Auth.Type == parley.AuthNone && agent.TLS == (parley.AgentTLS{}) {
		return agent, nil
	}
	s := &parley.ResolvedAuth{}
	one := func(to *parley.Secret, ref, path string, as carrier) (err error) {
		if ref == "" {
			return nil
		}
		if *to, err = r.cfg.Secrets.Resolve(ref); err != nil {
			return err
		}
		if !as.fits(to.Reveal()) {
			return parley.Errorf(parley.CodeUnavailable, "the secret that %s names is not %s", path, as.want())
		}
		return nil
	}
	if err := one(&agent.Credential, agent.Auth.Secret, "auth.secret", carrierOf(agent.Auth.Type, agent.Auth.In)); err != nil {
		return agent, err
	}
	for name, ref := range agent.Auth.Headers {
		if s.Headers == nil {
			s.Headers = make(map[string]parley.Secret, len(agent.Auth.Headers))
		}
		var value parley.Secret
		if err := one(&value, ref, "auth.headers."+name, asHeader); err != nil {
			return agent, err
		}
		s.Headers[name] = value
	}
	for _, m := range []struct {
		to        *parley.Secret
		ref, path string
	}{{&s.Cert, agent.TLS.Cert, "tls.cert"}, {&s.Key, agent.TLS.Key, "tls.key"}, {&s.CA, agent.TLS.CA, "tls.ca"}} {
		if err := one(m.to, m.ref, m.path, asPEM); err != nil {
			return agent, err
		}
	}
	agent.Resolved = s
	return agent, nil
}

// Renew resolves the secrets of an agent again, as its record names them, for a
// call that the agent did not accept: a file may hold another one since
// [Registry.Lookup]. What Lookup remembers of the agent is dropped. The error is
// a [*parley.Error] as of [Secrets.Resolve].
func (r *Registry) Renew(_ context.Context, agent parley.Agent) (parley.Agent, error) {
	r.cache.drop(agent.Name)
	return r.resolve(agent)
}
