package agentcard

import (
	"encoding/json"
	"strings"

	"github.com/parley-project/parley/internal/bridge"
)

// Pins is what an operator has decided in protocol_config. Empty members are
// left to the card.
type Pins struct {
	// URL is where the agent is called, on any host.
	URL string
	// Binding is "JSONRPC", "HTTP+JSON" or "GRPC", Version "0.3" or "1.0".
	Binding, Version string
	// Tenant counts only if HasTenant is set: the empty tenant can be pinned.
	Tenant    string
	HasTenant bool
	// Keys holds the keys that may have signed the card: a JWKS, or a reference
	// to one as a JSON string ("env:NAME", "file:path"), or nil.
	Keys json.RawMessage
}

// ReadPins reads the members of a protocol_config that concern the choice of an
// endpoint. It takes what it understands: the adapter's own reader names faults.
func ReadPins(config json.RawMessage) Pins {
	raw, err := bridge.CheckJSON("protocol_config", config)
	if err != nil {
		return Pins{}
	}
	m := membersOf(raw)
	p := Pins{URL: m.text("url"), Tenant: m.text("tenant"), Keys: m["card_keys"]}
	_, p.HasTenant = bridge.Text(m["tenant"])
	if b := m.text("binding"); b != "" {
		p.Binding = binding(b, "")
	}
	switch v := m.text("a2a"); v {
	case V03, V10:
		p.Version = v
	}
	if string(p.Keys) == "null" {
		p.Keys = nil
	}
	return p
}

// complete says that nothing is left to find out.
func (p Pins) complete() bool { return p.URL != "" && p.Version != "" }

// text names the pins for an explanation, "" without any.
func (p Pins) text() string {
	var parts []string
	for _, x := range []struct{ name, value string }{{"url", p.URL}, {"binding", p.Binding}, {"a2a", p.Version}, {"tenant", p.Tenant}} {
		if x.value != "" {
			parts = append(parts, x.name+" "+x.value)
		}
	}
	return strings.Join(parts, ", ")
}
