package api

import (
	"net/http"
	"testing"
)

// TestAnswerWithNulls: programs that send all members they know, those that were not given
// as null, answer as those do that leave them out.
func TestAnswerWithNulls(t *testing.T) {
	s, w := setup(nil)
	h := s.handler()
	for body, status := range map[string]int{
		`{"step":null,"text":"Paris","data":null,"choice":null,"comment":null,"by":null,"roles":null}`: http.StatusAccepted,
		`{"text":null,"data":{"city":"Paris"},"choice":null}`:                                          http.StatusAccepted,
		`{"text":null,"data":null,"choice":null}`:                                                      http.StatusUnprocessableEntity,
		`{"choice":null}`: http.StatusUnprocessableEntity,
		`{"text":"Paris","comment":"near the river"}`: http.StatusUnprocessableEntity,
	} {
		w.reset()
		call(h, "POST", "/api/v1/workflows", onePlan)
		call(h, "POST", "/api/v1/workflows/a/execute", `{"input_data":{}}`)
		must(t, w.do("begin run-1"))
		must(t, w.do("ask run-1"))
		if rec := call(h, "POST", "/api/v1/runs/run-1/answer", body); rec.Code != status {
			t.Errorf("%s: %d %s", body, rec.Code, rec.Body)
		}
	}
}
