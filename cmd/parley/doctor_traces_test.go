package main

import (
	"net/http"
	"testing"

	"github.com/parley-project/parley/internal/tracing/tracingtest"
)

// TestDoctorTraces: whoever is to get spans is asked whether it takes any; runs do not
// depend on it.
func TestDoctorTraces(t *testing.T) {
	t.Parallel()
	r := tracingtest.New(t)
	settings := "listen: 127.0.0.1:0\ntelemetry: {traces: {url: \"" + r.URL + "\"}}\n"
	found, exit, _ := examined(t, settings)
	expect(t, found["traces"], checkOK, r.URL+" takes spans")
	r.Answer(http.StatusForbidden)
	found, exit2, _ := examined(t, settings)
	expect(t, found["traces"], checkWarn, "answers spans with 403 Forbidden → runs are not affected; correct telemetry.traces")
	if exit != 0 || exit2 != 0 {
		t.Errorf("exit %d, %d", exit, exit2)
	}
	found, _, _ = examined(t, "listen: 127.0.0.1:0\ntelemetry: {traces: {url: \"collector:4318\"}}\n")
	expect(t, found["traces"], checkFail, "telemetry.traces.url must be a URL such as http://127.0.0.1:4318/v1/traces → correct telemetry.traces, or leave it out")
	if found, _, _ := examined(t, "listen: 127.0.0.1:0\n"); found["traces"] != (finding{}) {
		t.Errorf("without the setting: %+v", found["traces"])
	}
}
