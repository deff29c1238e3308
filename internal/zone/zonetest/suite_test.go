package zonetest_test

import (
	"net/http"
	"testing"

	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/zonetest"
)

func TestZN6_ContractOverMemory(t *testing.T) {
	zonetest.Run(t, func(_ *testing.T, h http.Handler) zone.Transport { return zonetest.Memory(h) })
}

// TestZN6_ContractOverA2A sends the requests of the contract to the routes of A2A,
// as they are and inside messages of each dialect.
func TestZN6_ContractOverA2A(t *testing.T) {
	t.Run("bare", func(t *testing.T) {
		zonetest.RunA2A(t, func(_ *testing.T, h http.Handler) zone.Transport { return zonetest.MemoryAt(h, "/") })
	})
	for name, c := range map[string]struct {
		path    string
		dialect zone.Dialect
	}{
		"jsonrpc-0.3": {"/", zone.Dialect{Version: zone.Version03, Binding: zone.BindingJSONRPC}},
		"jsonrpc-1.0": {"/", zone.Dialect{Version: zone.Version10, Binding: zone.BindingJSONRPC}},
		"rest-0.3":    {"/v1/message:send", zone.Dialect{Version: zone.Version03, Binding: zone.BindingREST}},
		"rest-1.0":    {"/message:send", zone.Dialect{Version: zone.Version10, Binding: zone.BindingREST}},
	} {
		t.Run(name, func(t *testing.T) {
			zonetest.RunA2A(t, func(_ *testing.T, h http.Handler) zone.Transport {
				return zone.Wrapped(zonetest.MemoryAt(h, c.path), zone.WrapConfig{Dialect: c.dialect, NewID: zonetest.IDs()})
			})
		})
	}
}
