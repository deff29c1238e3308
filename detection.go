package parley

import (
	"encoding/json"
	"time"
)

// ProtocolAuto, given as the protocol of an agent that is added or changed, asks
// the registry to find out what the agent speaks. No record holds it.
const ProtocolAuto = "auto"

// Detection is what was found out about an agent without giving it work: how to
// call it, and why. What an agent wrote itself (Name, Description, AgentVersion)
// is cut and printable, and never to be trusted.
type Detection struct {
	// Protocol is a registered protocol's name.
	Protocol string `json:"protocol"`
	// URL is where the agent is called.
	URL string `json:"url"`
	// Binding, Version and Tenant are those of the chosen interface: "JSONRPC",
	// "HTTP+JSON" or "GRPC", and "0.3" or "1.0". Simple A2A has none of them.
	Binding string `json:"binding,omitempty"`
	Version string `json:"version,omitempty"`
	Tenant  string `json:"tenant,omitempty"`
	// Streaming and Push are what the card declares.
	Streaming bool `json:"streaming"`
	Push      bool `json:"push"`
	// InputModes and OutputModes are the media types of the card's defaults.
	InputModes  []string `json:"input_modes,omitempty"`
	OutputModes []string `json:"output_modes,omitempty"`

	// Name, Description and AgentVersion are the card's.
	Name         string `json:"name,omitempty"`
	Description  string `json:"description,omitempty"`
	AgentVersion string `json:"agent_version,omitempty"`
	// Skills are the ids of the card's skills, at most 64.
	Skills []string `json:"skills,omitempty"`

	// CardURL is where the card was found, "" if there is none. ETag is its
	// entity tag, and CardHash the SHA-256 of its canonical form, in hex.
	CardURL  string `json:"card_url,omitempty"`
	ETag     string `json:"etag,omitempty"`
	CardHash string `json:"card_hash,omitempty"`
	// Signature is "none", "verified" or "unverified" (nobody knows a key);
	// SignatureKey is the id of the key that verified it.
	Signature    string `json:"signature,omitempty"`
	SignatureKey string `json:"signature_key,omitempty"`
	// Others are the interfaces of the card that could be called too, the best
	// one first.
	Others []DetectedInterface `json:"others,omitempty"`
	// Auth is what the card asks for as authentication, nil for nothing.
	Auth *AuthProposal `json:"auth,omitempty"`

	// Explanation says how it came to this, one decision a line.
	Explanation []string `json:"explanation"`
	// At is when it was found out.
	At time.Time `json:"at"`
}

// DetectedInterface is one way of calling an agent.
type DetectedInterface struct {
	URL     string `json:"url"`
	Binding string `json:"binding"`
	Version string `json:"version"`
	Tenant  string `json:"tenant,omitempty"`
}

// ReadDetection reads the Detected member of an agent record. It gives the zero
// value and false if there is none.
func ReadDetection(stored json.RawMessage) (Detection, bool) {
	var d Detection
	if len(stored) == 0 || json.Unmarshal(stored, &d) != nil || d.Protocol == "" {
		return Detection{}, false
	}
	return d, true
}

// AgentCheck is what a new look at an agent showed beside its record.
type AgentCheck struct {
	Health AgentHealth
	// Found is what was found now; nil if nothing could be found, for the reason
	// in Failure.
	Found   *Detection
	Failure *Error
	// Changes names what is not as the record says, one change a line.
	Changes []string
	// Stored says that the record holds Found now.
	Stored bool
}
