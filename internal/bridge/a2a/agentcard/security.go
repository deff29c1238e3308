package agentcard

import (
	"maps"
	"slices"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// Requirement is what one way to authenticate takes: scopes by the name of a
// scheme. An empty one is no authentication.
type Requirement map[string][]string

// security reads the schemes and what is asked for, of both forms.
func security(m members) (map[string]parley.SecurityScheme, []Requirement) {
	schemes := map[string]parley.SecurityScheme{}
	for name, value := range bridge.Members(m["securitySchemes"]) {
		n := word(string(name))
		if _, twice := schemes[n]; n != "" && !twice && len(schemes) < maxSchemes {
			schemes[n] = scheme(n, value)
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
func scheme(name string, value []byte) parley.SecurityScheme {
	m := membersOf(value)
	s := parley.SecurityScheme{Name: name, Type: m.text("type")}
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
		s.In, s.Param = m.text("in"), word(m.text("name"))
		if s.In == "" {
			s.In = m.text("location")
		}
		s.In = strings.ToLower(word(s.In))
	case "http":
		s.Scheme = word(m.text("scheme"))
	case "oauth2":
		s.TokenURL = link(membersOf(membersOf(m["flows"])["clientCredentials"]).text("tokenUrl"))
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

// Alternatives gives what the card asks for: one of the entries has to be met,
// with every scheme in it. An empty entry is a call without authentication.
func (c *Card) Alternatives() [][]parley.SecurityScheme {
	var all [][]parley.SecurityScheme
	for _, r := range c.Security {
		one := []parley.SecurityScheme{}
		for _, name := range slices.Sorted(maps.Keys(r)) {
			s := c.Schemes[name]
			s.Name, s.Scopes = name, r[name]
			one = append(one, s)
		}
		all = append(all, one)
	}
	return all
}
