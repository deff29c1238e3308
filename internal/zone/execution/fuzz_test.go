package execution_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/parley-project/parley/internal/zone/execution"
	"github.com/parley-project/parley/internal/zone/zonetest"
)

// FuzzInvocations sends anything to every route that takes it. Each time one
// response of JSON-RPC comes, with HTTP 200, and nothing leaks.
func FuzzInvocations(f *testing.F) {
	for _, c := range zonetest.Cases() {
		for _, s := range c.Steps {
			if len(s.Send) < 4096 {
				f.Add([]byte(s.Send))
			}
		}
	}
	f.Add([]byte(`{"jsonrpc":"2.0","method":"message/send","params":{"message":{"parts":[{"kind":"data","data":` + body("say x") + `}]}},"id":1}`))
	f.Fuzz(func(t *testing.T, sent []byte) {
		// A task that ends later would be waited for.
		if strings.Contains(string(sent), "later") || strings.Contains(string(sent), `\u`) {
			return
		}
		rig := zonetest.NewRig(func(c *execution.Config) { c.MaxBody = 1 << 16 })
		for _, route := range []struct {
			h    http.Handler
			path string
		}{{rig.Zone.Handler(), "/invocations"}, {rig.Zone.A2AHandler(), "/"}} {
			w := do(route.h, http.MethodPost, route.path, string(sent))
			var response struct {
				JSONRPC string          `json:"jsonrpc"`
				ID      json.RawMessage `json:"id"`
				Result  json.RawMessage `json:"result"`
				Error   *struct {
					Code int
					Data struct {
						Reason        string
						CorrelationID string `json:"correlation_id"`
					}
				} `json:"error"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &response); err != nil || w.Code != http.StatusOK || response.JSONRPC != "2.0" || response.ID == nil || (response.Result == nil) == (response.Error == nil) {
				t.Fatalf("%s: %d %s (%v)", sent, w.Code, w.Body, err)
			}
			if e := response.Error; e != nil && (e.Code == 0 || e.Data.Reason == "" || e.Data.CorrelationID == "") {
				t.Errorf("%s: %s", sent, w.Body)
			}
			if strings.Contains(w.Body.String(), "secret-of-the-inside") && !strings.Contains(string(sent), "secret-of") {
				t.Errorf("the cause is in %s", w.Body)
			}
			if strings.Contains(rig.Log.String(), zonetest.Token) {
				t.Errorf("the token is in the log: %s", rig.Log)
			}
		}
	})
}
