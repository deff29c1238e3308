package agentcard

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// The bounds of a card. What is beyond is left out, but a body that is too
// large is refused.
const (
	// MaxBody is the largest card, in bytes.
	MaxBody = 1 << 20
	// maxInterfaces, maxSkills, maxSchemes, maxNeeds, maxModes and
	// maxSignatures count entries.
	maxInterfaces = 64
	maxSkills     = 64
	maxSchemes    = 32
	maxNeeds      = 16
	maxModes      = 32
	maxSignatures = 16
	maxScopes     = 32
	// maxText and maxWord bound texts and names, in characters.
	maxText = 4096
	maxWord = 256
	maxURL  = 2083 // bytes
)

// Interface is one way of calling an agent, as its card has it.
type Interface struct {
	// URL is the card's, which may be relative; "" stands for the agent's own.
	URL string
	// Binding is "JSONRPC", "HTTP+JSON", "GRPC" or something else.
	Binding string
	// Version is the protocol version that the card gives, "" if none.
	Version string
	Tenant  string
}

// Card is an agent card of A2A 0.2, 0.3 or 1.0. All texts are the agent's own
// words, cut and made printable.
type Card struct {
	Name        string
	Description string
	// Version is the agent's, not the protocol's.
	Version string
	// Interfaces are in the card's order, at most 64.
	Interfaces []Interface
	// Streaming, Push and Extended are the card's capabilities; Extended is that
	// there is another card for those who authenticate.
	Streaming, Push, Extended bool
	// InputModes and OutputModes are the defaults for all skills.
	InputModes, OutputModes []string
	// Skills are ids.
	Skills []string
	// Schemes are the security schemes by their names; Security is what is asked
	// for: one entry has to be met, with every scheme in it.
	Schemes  map[string]parley.SecurityScheme
	Security []Requirement
	// Signatures counts the signatures that the card bears.
	Signatures int
	// Modern says that the card has the form of 1.0.
	Modern bool
}

// Parse reads a card, which may be a union of the forms of 0.3 and 1.0. It takes
// what it understands and leaves the rest. The error is a [*bridge.DefectError]:
// body is no JSON object, or an object that is no card.
func Parse(body []byte) (Card, error) {
	if len(body) > MaxBody {
		return Card{}, bridge.Defectf("too_large", "the card is larger than %d bytes", MaxBody)
	}
	raw, err := bridge.CheckJSON("the card", body)
	if err != nil {
		return Card{}, err
	}
	if raw[0] != '{' {
		return Card{}, bridge.Defectf("wrong_type", "the card is no JSON object")
	}
	m := membersOf(raw)
	if !m.isCard() {
		return Card{}, bridge.Defectf("no_card", "the JSON object is no agent card: it names no way to call an agent")
	}
	c := Card{
		Name: word(m.text("name")), Description: clean(m.text("description"), maxText), Version: word(m.text("version")),
		InputModes: words(m["defaultInputModes"], maxModes), OutputModes: words(m["defaultOutputModes"], maxModes),
	}
	capabilities := membersOf(m["capabilities"])
	c.Streaming, c.Push = capabilities.flag("streaming"), capabilities.flag("pushNotifications")
	c.Extended = capabilities.flag("extendedAgentCard") || m.flag("supportsAuthenticatedExtendedCard")
	c.Interfaces, c.Modern = interfaces(m)
	for skill := range bridge.Elements(m["skills"]) {
		s := membersOf(skill)
		if id := word(s.text("id")); id != "" && len(c.Skills) < maxSkills {
			c.Skills = append(c.Skills, id)
		}
	}
	c.Schemes, c.Security = security(m)
	for range bridge.Elements(m["signatures"]) {
		c.Signatures++
	}
	return c, nil
}

// members are those of a JSON object. Of a name that repeats the first counts,
// as the first is what a signature would have to be about too: canonical JSON
// has no such names.
type members map[string][]byte

func membersOf(object []byte) members {
	m := members{}
	for name, value := range bridge.Members(object) {
		if _, twice := m[string(name)]; !twice && len(m) < 256 {
			m[string(name)] = value
		}
	}
	return m
}

func (m members) text(name string) string {
	s, _ := bridge.Text(m[name])
	return s
}

func (m members) flag(name string) bool { return string(m[name]) == "true" }

// isCard tells a card from any other object with a name.
func (m members) isCard() bool {
	if m.text("name") == "" {
		return false
	}
	for _, name := range []string{"url", "supportedInterfaces", "protocolVersion", "capabilities", "skills", "additionalInterfaces"} {
		if v := m[name]; v != nil && string(v) != "null" {
			return true
		}
	}
	return false
}

// interfaces gives the interfaces of a card, and whether they are in the form of
// 1.0.
func interfaces(m members) ([]Interface, bool) {
	var list []Interface
	for entry := range bridge.Elements(m["supportedInterfaces"]) {
		e := membersOf(entry)
		list = add(list, Interface{
			URL: e.text("url"), Binding: binding(e.text("protocolBinding"), e.text("transport")),
			Version: word(e.text("protocolVersion")), Tenant: e.text("tenant"),
		})
	}
	if len(list) > 0 {
		return list, true
	}
	version := word(m.text("protocolVersion"))
	list = add(list, Interface{URL: m.text("url"), Binding: binding(m.text("preferredTransport"), ""), Version: version})
	for entry := range bridge.Elements(m["additionalInterfaces"]) {
		e := membersOf(entry)
		own := word(e.text("protocolVersion"))
		if own == "" {
			own = version
		}
		i := Interface{URL: e.text("url"), Binding: binding(e.text("transport"), e.text("protocolBinding")), Version: own}
		// The preferred interface is often listed a second time.
		if len(list) == 0 || i != list[0] {
			list = add(list, i)
		}
	}
	return list, false
}

func add(list []Interface, i Interface) []Interface {
	if len(list) >= maxInterfaces || len(i.URL) > maxURL || !printable(i.URL) || len(i.Tenant) > maxWord || !printable(i.Tenant) {
		return list
	}
	return append(list, i)
}

// binding gives the name of a transport as cards of 1.0 spell it. A card that
// names none means JSON-RPC (A2A specification 0.3 §5.5.5).
func binding(name, other string) string {
	if name == "" {
		name = other
	}
	switch up := strings.ToUpper(strings.TrimSpace(name)); up {
	case "", "JSONRPC", "JSON-RPC":
		return JSONRPC
	case "HTTP+JSON", "REST", "HTTP_JSON":
		return REST
	case "GRPC":
		return GRPC
	}
	return word(name)
}

// word and clean cut what an agent wrote and make it fit for one line.
func word(s string) string { return clean(s, maxWord) }

func clean(s string, limit int) string {
	if utf8.RuneCountInString(s) > limit {
		s = string([]rune(s)[:limit-1]) + "…"
	}
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return -1
		}
		return r
	}, s)
	return strings.TrimSpace(s)
}

// printable says whether s can stand in a request and in a text as it is.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || !unicode.IsPrint(r) && r != ' ' })
}

// words gives the strings of a list.
func words(list []byte, limit int) []string {
	var out []string
	for v := range bridge.Elements(list) {
		if s, ok := bridge.Text(v); ok && word(s) != "" && len(out) < limit {
			out = append(out, word(s))
		}
	}
	return out
}
