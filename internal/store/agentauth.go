package store

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/parley-project/parley"
)

// authConfig is what auth_config holds of an agent.
type authConfig struct {
	In      parley.AuthPlace  `json:"in,omitempty"`
	User    string            `json:"user,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	OAuth2  *parley.OAuth2    `json:"oauth2,omitempty"`
	TLS     *tlsConfig        `json:"tls,omitempty"`
}

type tlsConfig struct {
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`
	CA   string `json:"ca,omitempty"`
}

// writeAuth gives auth_config, nil for nothing. It refuses a record that would
// put a secret into the database.
func writeAuth(a *parley.Agent) ([]byte, error) {
	refs := append(slices.Collect(maps.Values(a.Auth.Headers)), a.Auth.Secret, a.TLS.Cert, a.TLS.Key, a.TLS.CA)
	for _, ref := range refs {
		scheme, _, _ := strings.Cut(ref, ":")
		if ref != "" && scheme != "env" && scheme != "file" && scheme != "sealed" {
			return nil, parley.Errorf(parley.CodeInvalid, "a secret of agent %q is neither a reference nor sealed", a.Name)
		}
	}
	c := authConfig{In: a.Auth.In, User: a.Auth.User, Headers: a.Auth.Headers, OAuth2: a.Auth.OAuth2}
	if a.TLS != (parley.AgentTLS{}) {
		c.TLS = &tlsConfig{a.TLS.Cert, a.TLS.Key, a.TLS.CA}
	}
	if reflect.ValueOf(c).IsZero() {
		return nil, nil
	}
	out, err := json.Marshal(c)
	if err != nil {
		return nil, parley.Errorf(parley.CodeInvalid, "the authentication of agent %q: %w", a.Name, err)
	}
	return out, nil
}

// readAuth is the other direction.
func readAuth(data []byte, a *parley.Agent) error {
	if len(data) == 0 {
		return nil
	}
	var c authConfig
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	a.Auth.In, a.Auth.User, a.Auth.Headers, a.Auth.OAuth2 = c.In, c.User, c.Headers, c.OAuth2
	if c.TLS != nil {
		a.TLS = parley.AgentTLS{Cert: c.TLS.Cert, Key: c.TLS.Key, CA: c.TLS.CA}
	}
	return nil
}
