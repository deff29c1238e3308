package a2a

import (
	"encoding/json"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// Request makes the request that sends task to an agent of the given record.
func Request(task parley.Task, agent parley.Agent) ([]byte, error) {
	a := New(Options{Exchange: bridge.NewExchange(bridge.ExchangeConfig{})})
	defer a.Close()
	return a.Request(task, agent)
}

// TextParts makes the parts of an input as the seeds send them.
func TextParts(input json.RawMessage) ([]byte, error) { return Parts(V03, PartsText, input) }
