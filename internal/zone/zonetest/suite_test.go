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
