package store

import (
	"encoding/json"

	"github.com/parley-project/parley"
)

// agentLimits are limits as they are stored.
type agentLimits struct {
	Fixed      bool    `json:"fixed,omitempty"`
	Rate       float64 `json:"rate,omitempty"`
	Burst      int     `json:"burst,omitempty"`
	Queue      int     `json:"queue,omitempty"`
	QueueBytes int64   `json:"queue_bytes,omitempty"`
}

// writeLimits gives limits as they are stored; nil if all have their defaults.
func writeLimits(l parley.AgentLimits) ([]byte, error) {
	if l == (parley.AgentLimits{}) {
		return nil, nil
	}
	return json.Marshal(agentLimits(l))
}

func readLimits(data []byte) (parley.AgentLimits, error) {
	var l agentLimits
	if data == nil {
		return parley.AgentLimits{}, nil
	}
	err := json.Unmarshal(data, &l)
	return parley.AgentLimits(l), err
}
