package agentcard

import (
	"maps"
	"slices"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// Scheme is a security scheme of a card, of either form.
type Scheme struct {
	// Type is apiKey, http, oauth2, openIdConnect or mutualTLS, or what the card
	// says.
	Type string
	// In and Name say what carries an API key.
	In, Name string
	// HTTP is the scheme of type http, in lower case.
	HTTP string
	// TokenURL and Scopes are those of the flow for client credentials; TokenURL
	// is "" if the card offers only flows that need a person.
	TokenURL string
	Scopes   []string
	// DiscoveryURL is that of openIdConnect, or of the metadata of oauth2.
	DiscoveryURL string
}

// Requirement is what one way to authenticate takes: scopes by the name of a
// scheme. An empty one is no authentication.
type Requirement map[string][]string

// security reads the schemes and what is asked for, of both forms.
func security(m members) (map[string]Scheme, []Requirement) {
	schemes := map[string]Scheme{}
	for name, value := range bridge.Members(m["securitySchemes"]) {
		n := word(string(name))
		if _, twice := schemes[n]; n != "" && !twice && len(schemes) < maxSchemes {
			schemes[n] = scheme(value)
		}
	}
	var all []Requirement
	for entry := range bridge.Elements(m["securityRequirements"]) {
		r := Requirement{}
		for name, value := range bridge.Members(membersOf(entry)["schemes"]) {
			list := value
			if len(value) > 0 && value[0] == '{' {
				list = membersOf(value)["list"]
			}
			r.need(string(name), list)
		}
		all = append(all, r)
	}
	if all == nil {
		for entry := range bridge.Elements(m["security"]) {
			r := Requirement{}
			for name, value := range bridge.Members(entry) {
				r.need(string(name), value)
			}
			all = append(all, r)
		}
	}
	return schemes, all[:min(len(all), maxNeeds)]
}

func (r Requirement) need(name string, scopes []byte) {
	if n := word(name); n != "" && len(r) < maxNeeds {
		r[n] = words(scopes, maxScopes)
	}
}

// scheme reads one scheme: {type, …} of 0.3, or {<one key>: {…}} of 1.0.
func scheme(value []byte) Scheme {
	m := membersOf(value)
	s := Scheme{Type: m.text("type")}
	for key, kind := range map[string]string{
		"apiKeySecurityScheme": "apiKey", "httpAuthSecurityScheme": "http", "oauth2SecurityScheme": "oauth2",
		"openIdConnectSecurityScheme": "openIdConnect", "mtlsSecurityScheme": "mutualTLS",
	} {
		if inner := m[key]; len(inner) > 0 && inner[0] == '{' {
			s.Type, m = kind, membersOf(inner)
			break
		}
	}
	s.Type = word(s.Type)
	switch s.Type {
	case "apiKey":
		s.In, s.Name = word(m.text("in")), word(m.text("name"))
		if s.In == "" {
			s.In = word(m.text("location"))
		}
		s.In = strings.ToLower(s.In)
	case "http":
		s.HTTP = strings.ToLower(word(m.text("scheme")))
	case "oauth2":
		flow := membersOf(membersOf(m["flows"])["clientCredentials"])
		s.TokenURL = link(flow.text("tokenUrl"))
		for name := range bridge.Members(flow["scopes"]) {
			if len(s.Scopes) < maxScopes {
				s.Scopes = append(s.Scopes, word(string(name)))
			}
		}
		s.DiscoveryURL = link(m.text("oauth2MetadataUrl"))
	case "openIdConnect":
		s.DiscoveryURL = link(m.text("openIdConnectUrl"))
	}
	return s
}

// link gives a URL that can be shown and copied whole, else "".
func link(s string) string {
	if len(s) > maxURL || !printable(s) {
		return ""
	}
	return s
}

// Needs gives what the card asks for in the terms of agent records, nil if it
// asks for nothing.
func (c *Card) Needs() [][]parley.SecurityNeed {
	var all [][]parley.SecurityNeed
	for _, r := range c.Security {
		one := []parley.SecurityNeed{}
		for _, name := range slices.Sorted(maps.Keys(r)) {
			s, known := c.Schemes[name]
			one = append(one, need(name, s, known, r[name]))
		}
		all = append(all, one)
	}
	return all
}

// need names the kind of authentication for s, and the flags that give it.
func need(name string, s Scheme, known bool, scopes []string) parley.SecurityNeed {
	n := parley.SecurityNeed{Scheme: name}
	if !known {
		n.Note = "the card does not describe it; ask the agent's operator"
		return n
	}
	const secret = " --auth-secret env:NAME"
	switch {
	case s.Type == "apiKey":
		n.Type, n.Name, n.In = parley.AuthAPIKey, s.Name, parley.AuthPlace(s.In)
		switch n.In {
		case parley.InQuery, parley.InCookie, parley.InHeader:
		default:
			n.In = parley.InHeader
		}
		n.Flags = "--auth apikey --auth-in " + string(n.In) + " --auth-name " + shell(n.Name) + secret
	case s.Type == "http" && s.HTTP == "bearer":
		n.Type, n.Flags = parley.AuthBearer, "--auth bearer"+secret
	case s.Type == "http" && s.HTTP == "basic":
		n.Type, n.Flags = parley.AuthBasic, "--auth basic --auth-user USER"+secret
	case s.Type == "http":
		n.Type, n.Name = parley.AuthHeader, "Authorization"
		n.Flags = "--auth header --auth-name Authorization" + secret
		n.Note = "the secret is the header's whole value, with the scheme " + s.HTTP
	case s.Type == "oauth2" && s.TokenURL != "":
		n.Type, n.TokenURL, n.Scopes = parley.AuthOAuth2, s.TokenURL, scopes
		n.Flags = "--auth oauth2 --auth-token-url " + shell(s.TokenURL) + " --auth-client-id ID" + secret
		for _, scope := range scopes {
			n.Flags += " --auth-scope " + shell(scope)
		}
	case s.Type == "oauth2", s.Type == "openIdConnect":
		n.Type, n.Scopes = parley.AuthOAuth2, scopes
		n.Flags = "--auth oauth2 --auth-token-url URL --auth-client-id ID" + secret
		n.Note = "the card names no token endpoint for client credentials"
		if s.DiscoveryURL != "" {
			n.Note += "; its provider is described at " + s.DiscoveryURL
		}
	case s.Type == "mutualTLS":
		n.Type, n.Flags = parley.AuthMTLS, "--auth mtls --tls-cert file:CERT --tls-key file:KEY"
	default:
		n.Note = "the kind " + s.Type + " is not known here; headers of any kind: --auth header --auth-name HEADER" + secret
	}
	return n
}

// shell quotes a word for a command line that people copy, if it needs that.
func shell(s string) string {
	special := func(r rune) bool {
		letter := 'a' <= r|0x20 && r|0x20 <= 'z'
		return !letter && (r < '0' || r > '9') && !strings.ContainsRune("-_./:@%+,", r)
	}
	if s != "" && !strings.ContainsFunc(s, special) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// needsText names what is asked for on one line.
func needsText(needs []parley.SecurityNeed) string {
	if len(needs) == 0 {
		return "no authentication"
	}
	var parts []string
	for _, n := range needs {
		text := n.Scheme
		if n.Type != "" {
			text += " (" + string(n.Type) + ")"
		}
		if n.Flags != "" {
			text += ": " + n.Flags
		}
		if n.Note != "" {
			text += " (" + n.Note + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", and ")
}
