package client

import "github.com/parley-project/parley"

// authBody is parley.AuthSpec on the wire, but for its type.
type authBody struct {
	Header       string            `json:"header,omitempty"`
	Name         string            `json:"name,omitempty"`
	In           parley.AuthPlace  `json:"in,omitempty"`
	Secret       string            `json:"secret,omitempty"`
	Token        string            `json:"token,omitempty"`
	Key          string            `json:"key,omitempty"`
	Password     string            `json:"password,omitempty"`
	ClientSecret string            `json:"client_secret,omitempty"`
	User         string            `json:"user,omitempty"`
	Headers      map[string]string `json:"headers,omitempty"`
	TokenURL     string            `json:"token_url,omitempty"`
	ClientID     string            `json:"client_id,omitempty"`
	Scopes       []string          `json:"scopes,omitempty"`
	Audience     string            `json:"audience,omitempty"`
	AuthStyle    string            `json:"auth_style,omitempty"`
}

// tlsBody is parley.TLSSpec on the wire.
type tlsBody struct {
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`
	CA   string `json:"ca,omitempty"`
}

// newAuthBody gives what belongs to the type of a, nil for type none.
func newAuthBody(a *parley.AuthSpec) *authBody {
	if a.Type == parley.AuthNone {
		return nil
	}
	b := &authBody{Header: a.Header, In: a.In, Secret: a.Secret, User: a.User}
	if a.In == parley.InQuery || a.In == parley.InCookie {
		b.Header, b.Name = "", a.Header
	}
	for name, s := range a.Headers {
		if b.Headers == nil {
			b.Headers = make(map[string]string, len(a.Headers))
		}
		b.Headers[name] = oneSecret(s)
	}
	if o := a.OAuth2; o != nil {
		b.TokenURL, b.ClientID, b.Scopes, b.Audience, b.AuthStyle = o.TokenURL, o.ClientID, o.Scopes, o.Audience, o.Style
	}
	switch literal := string(a.Literal.Reveal()); a.Type {
	case parley.AuthBearer:
		b.Token = literal
	case parley.AuthBasic:
		b.Password = literal
	case parley.AuthOAuth2:
		b.ClientSecret = literal
	default:
		b.Key = literal
	}
	return b
}

// oneSecret gives a reference, or else the secret itself.
func oneSecret(s parley.SecretSpec) string {
	if s.Secret != "" {
		return s.Secret
	}
	return string(s.Literal.Reveal())
}
