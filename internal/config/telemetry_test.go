package config_test

import (
	"testing"
	"time"
)

// TestTelemetry: what of the section telemetry comes to the server.
func TestTelemetry(t *testing.T) {
	none := mustLoad(t, "", nil, nil).Telemetry.Traces
	if none.URL != "" || none.Sample != 1 || none.Timeout != 10*time.Second || !none.Header.Value.IsZero() {
		t.Errorf("the defaults are %+v", none)
	}
	got := mustLoad(t, `
telemetry:
  traces:
    url: https://traces.example.com/v1/traces
    sample: 0
    header: {name: X-Team, value: "env:TEAM"}
    timeout: 3s
`, []string{"TEAM=s3cret-team", "PARLEY_TELEMETRY__TRACES__CA=ca.pem"}, nil).Telemetry.Traces
	if got.URL != "https://traces.example.com/v1/traces" || got.Sample != 0 || got.Header.Name != "X-Team" || string(got.Header.Value.Reveal()) != "s3cret-team" ||
		got.Timeout != 3*time.Second || got.CA == "" {
		t.Errorf("got %+v", got)
	}
}
