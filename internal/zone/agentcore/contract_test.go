package agentcore_test

import (
	"net/http"
	"testing"

	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/agentcore"
	"github.com/parley-project/parley/internal/zone/zonetest"
)

// TestZN6_AgentCoreContract: the contract through the platform, with signatures and
// with tokens.
func TestZN6_AgentCoreContract(t *testing.T) {
	both(t, func(t *testing.T, mode agentcore.AuthMode) {
		zonetest.Run(t, func(t *testing.T, h http.Handler) zone.Transport { return start(t, mode, h, nil) })
	})
}
