package server_test

import (
	"encoding/json"
	"testing"

	"github.com/parley-project/parley"
)

// TestS11_ChildrenByREST: a run that a step has started is a run like any other,
// says whose it is, and is found by that.
func TestS11_ChildrenByREST(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, "name: part\nsteps: [{id: w, wait: 50ms}, {id: a, set: \"${run.parent}\"}]\n", "name: all\nsteps: [{id: one, workflow: part}]\n")
	run := w.run("all", `{}`)
	if run.Status != parley.RunCompleted || string(run.Output) != `"`+run.ID+`"` || run.Steps[0].Child == nil {
		t.Fatalf("the run is %s with %s, its step %+v", run.Status, run.Output, run.Steps[0])
	}
	code, body := w.call("GET", "/api/v1/runs?parent="+run.ID, "")
	var page struct {
		Items []parley.Run `json:"items"`
	}
	if err := json.Unmarshal(body, &page); err != nil || code != 200 || len(page.Items) != 1 {
		t.Fatalf("%d %s", code, body)
	}
	child := page.Items[0]
	if child.ID != run.Steps[0].Child.Run || child.Parent == nil || *child.Parent != (parley.RunParent{Run: run.ID, Step: "one"}) {
		t.Errorf("the child is %s of %+v", child.ID, child.Parent)
	}
	if code, body := w.call("DELETE", "/api/v1/workflows/part", ""); code >= 300 {
		t.Fatalf("%d %s", code, body)
	}
	if code, body := w.call("POST", "/api/v1/workflows/all/execute", `{"input_data":{}}`); code != 404 {
		t.Errorf("a workflow that runs one that is gone: %d %s", code, body)
	}
}
