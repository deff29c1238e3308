package client

import (
	"encoding/json"

	"github.com/parley-project/parley"
)

// Limits are [parley.AgentLimits] on the wire.
type Limits struct {
	// Adaptive is nil or true unless the limits are fixed.
	Adaptive *bool `json:"adaptive,omitempty"`
	// Rate is in calls per second.
	Rate       float64 `json:"rate,omitempty"`
	Burst      int     `json:"burst,omitempty"`
	Queue      int     `json:"queue,omitempty"`
	QueueBytes int64   `json:"queue_bytes,omitempty"`
}

// NewLimits is l as records have it.
func NewLimits(l parley.AgentLimits) Limits {
	b := Limits{Rate: l.Rate, Burst: l.Burst, Queue: l.Queue, QueueBytes: l.QueueBytes}
	if l.Fixed {
		b.Adaptive = new(false)
	}
	return b
}

// limitsBody is limits on the wire: nil is not given, null the defaults.
func limitsBody(l *parley.AgentLimits) (json.RawMessage, error) {
	switch {
	case l == nil:
		return nil, nil
	case *l == (parley.AgentLimits{}):
		return json.RawMessage("null"), nil
	}
	return json.Marshal(NewLimits(*l))
}
