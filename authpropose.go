package parley

import (
	"fmt"
	"strings"
	"unicode"
)

// SecurityScheme is one way of authenticating that an agent's card names, in
// the words of OpenAPI, which all versions of A2A share (A2A specification 1.0
// §4.5). Its texts are the agent's: untrusted.
type SecurityScheme struct {
	// Name is what the card calls it.
	Name string
	// Type is apiKey, http, oauth2, openIdConnect or mutualTLS.
	Type string
	// Scheme is that of type http, such as Bearer or Basic, in any case.
	Scheme string
	// In and Param say where type apiKey has its key: header, query or cookie,
	// and its name there.
	In, Param string
	// TokenURL is the token endpoint of type oauth2 for client credentials, ""
	// if it does not offer them.
	TokenURL string
	// Scopes are those that the card requires.
	Scopes []string
}

// AuthProposal is how to authenticate against an agent, as its card asks for
// it. It holds no secret and no promise: a person looks at it first, since a
// card may name anybody's token endpoint.
type AuthProposal struct {
	// Type is "" if the card asks for what cannot be done; Note then says what.
	Type AuthType `json:"type,omitempty"`
	// Header and In are those of [Auth], Headers the names of AuthHeaders.
	Header   string    `json:"header,omitempty"`
	In       AuthPlace `json:"in,omitempty"`
	Headers  []string  `json:"headers,omitempty"`
	TokenURL string    `json:"token_url,omitempty"`
	Scopes   []string  `json:"scopes,omitempty"`
	// TLS says that a client certificate is wanted.
	TLS bool `json:"tls,omitempty"`
	// Note is what a person has to know besides, or "".
	Note string `json:"note,omitempty"`
}

// ProposeAuth chooses among the alternatives of a card, each a set of schemes
// that belong together: none where one of them, or there is none, asks for
// nothing; else the first that needs no more than a secret; else the first that
// can be done at all.
func ProposeAuth(alternatives [][]SecurityScheme) AuthProposal {
	if len(alternatives) == 0 {
		return AuthProposal{Type: AuthNone}
	}
	var best AuthProposal
	var notes []string
	for _, set := range alternatives {
		p := proposeSet(set)
		if p.Type == AuthNone {
			return p
		}
		if p.Type == "" {
			notes = append(notes, p.Note)
		} else if best.Type == "" || best.Note != "" && p.Note == "" {
			best = p
		}
	}
	if best.Type == "" {
		best.Note = strings.Join(notes, "; ")
	}
	return best
}

// proposeSet joins what the schemes of one alternative ask for.
func proposeSet(set []SecurityScheme) AuthProposal {
	all := AuthProposal{Type: AuthNone}
	var carried []AuthProposal
	for _, s := range set {
		p := proposeOne(s)
		switch p.Type {
		case "":
			return p
		case AuthMTLS:
			all.TLS = true
		default:
			carried = append(carried, p)
		}
	}
	switch {
	case len(carried) == 1:
		carried[0].TLS = all.TLS
		return carried[0]
	case len(carried) == 0:
		if all.TLS {
			all.Type = AuthMTLS
		}
		return all
	}
	all.Type = AuthHeaders
	for _, p := range carried {
		switch {
		case p.Type == AuthAPIKey && p.In == InHeader:
			all.Headers = append(all.Headers, p.Header)
		case p.Type == AuthBearer:
			all.Headers = append(all.Headers, "Authorization")
			all.Note = "the value of Authorization is the word Bearer, a blank and the token"
		default:
			return AuthProposal{Note: "several credentials at once are possible in headers only"}
		}
	}
	return all
}

// proposeOne knows one scheme.
func proposeOne(s SecurityScheme) AuthProposal {
	impossible := func(format string, args ...any) AuthProposal {
		return AuthProposal{Note: fmt.Sprintf("scheme %q: ", plainText(s.Name)) + fmt.Sprintf(format, args...)}
	}
	switch s.Type {
	case "apiKey":
		switch in := AuthPlace(s.In); in {
		case InHeader, InQuery, InCookie:
			return AuthProposal{Type: AuthAPIKey, Header: plainText(s.Param), In: in}
		}
		return impossible("its key stands neither in a header nor in the query nor in a cookie")
	case "http":
		switch strings.ToLower(s.Scheme) {
		case "bearer":
			return AuthProposal{Type: AuthBearer}
		case "basic":
			return AuthProposal{Type: AuthBasic}
		}
		return impossible("HTTP authentication %q is not spoken", plainText(s.Scheme))
	case "oauth2":
		if s.TokenURL == "" {
			return AuthProposal{Type: AuthBearer, Note: "the card offers OAuth2 without client credentials: somebody has to get a token"}
		}
		scopes := make([]string, len(s.Scopes))
		for i, scope := range s.Scopes {
			scopes[i] = plainText(scope)
		}
		return AuthProposal{Type: AuthOAuth2, TokenURL: plainText(s.TokenURL), Scopes: scopes}
	case "openIdConnect":
		return AuthProposal{Type: AuthBearer, Note: "the card asks for OpenID Connect: get a token from its provider, or give its token endpoint with --auth oauth2"}
	case "mutualTLS":
		return AuthProposal{Type: AuthMTLS}
	}
	return impossible("its type %q is not known", plainText(s.Type))
}

// Flags are the flags of `parley agent add` and `agent set` that say the same,
// with names in capitals where only a person knows the value, ready for a
// shell. It is "" if there is nothing to say.
func (p AuthProposal) Flags() string {
	if p.Type == "" || p.Type == AuthNone && !p.TLS {
		return ""
	}
	const ref = "env:PARLEY_SECRET_NAME"
	args := []string{"--auth", string(p.Type)}
	add := func(flag, value string) { args = append(args, flag, shellWord(value)) }
	switch p.Type {
	case AuthAPIKey:
		add("--auth-name", p.Header)
		if p.In != "" && p.In != InHeader {
			add("--auth-in", string(p.In))
		}
	case AuthBasic:
		add("--auth-user", "USER")
	case AuthHeaders:
		for _, name := range p.Headers {
			add("--auth-header", name+"="+ref)
		}
	case AuthOAuth2:
		add("--auth-token-url", p.TokenURL)
		add("--auth-client-id", "CLIENT_ID")
		for _, scope := range p.Scopes {
			add("--auth-scope", scope)
		}
	}
	if p.Type != AuthHeaders && p.Type != AuthMTLS {
		add("--auth-secret", ref)
	}
	if p.TLS || p.Type == AuthMTLS {
		add("--tls-cert", "file:CERT.pem")
		add("--tls-key", "file:KEY.pem")
	}
	return strings.Join(args, " ")
}

// plainText gives what a stranger wrote without control characters, cut at 256
// characters.
func plainText(s string) string {
	const limit = 256
	out := []rune(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "")))
	return string(out[:min(len(out), limit)])
}

// shellWord quotes what a shell would not take as one plain word.
func shellWord(s string) string {
	plain := s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !letter && !strings.ContainsRune("-_./:=,@%+", r)
	})
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
