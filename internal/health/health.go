// Package health looks at agents in the background: whether they live, and
// whether their cards are what they were. All processes of a store share the
// work, one look an interval and agent. What a look shows is stored and, if it
// is a change, told in the agent's log. It never opens or closes a circuit, and
// no task is sent: calls alone say whether an agent does its work.
package health

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/parley-project/parley"
)

// unhealthyAfter is how many looks in a row have to fail before an agent is
// unhealthy: one that is lost on the way says little. One that goes well makes
// it healthy.
const unhealthyAfter = 2

// Next gives the state after a look, and what it tells in the agent's log.
// detected is the hash of the card that the agent is called by, "" if that is
// not known, or not to be compared.
func Next(before parley.HealthState, look parley.AgentHealth, detected string) (parley.HealthState, []parley.AgentEvent) {
	at := look.At.UTC().Truncate(time.Microsecond)
	after := before
	after.Message, after.Took, after.CheckedAt = look.Message, look.ResponseTime, at
	if look.Healthy {
		after.Status, after.Failures = parley.HealthHealthy, 0
	} else if after.Failures++; after.Failures >= unhealthyAfter {
		after.Status = parley.HealthUnhealthy
	}
	var events []parley.AgentEvent
	tell := func(kind parley.AgentEventType, data any) {
		events = append(events, parley.AgentEvent{At: at, Type: kind, Agent: before.Agent, Data: encode(data)})
	}
	if after.Status != before.Status {
		after.ChangedAt = at
		tell(parley.EventHealthChanged, changed{before.Status, after.Status, after.Message, after.Failures})
	}
	if now := look.CardHash; now != "" {
		was := before.CardHash
		if was == "" {
			was = detected
		}
		// What the operator has looked at already is no news.
		if was != "" && now != was && now != detected {
			tell(parley.EventCardChanged, cardChanged{was, now})
		}
		after.CardHash = now
	}
	return after, events
}

// changed is the data of agent.health_changed.
type changed struct {
	From     parley.HealthStatus `json:"from"`
	To       parley.HealthStatus `json:"to"`
	Message  string              `json:"message"`
	Failures int                 `json:"consecutive_failures,omitempty"`
}

// cardChanged is the data of agent.card_changed: SHA-256 of canonical forms.
type cardChanged struct {
	From string `json:"from"`
	To   string `json:"to"`
}

func encode(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // texts and numbers
	return bytes.TrimSpace(b.Bytes())
}
