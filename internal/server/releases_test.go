package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/parley-project/parley"
)

// TestC10_ReleasesOverREST goes with a workflow from its first version to its
// deletion: what starts get, what is refused, and what the audit record says.
func TestC10_ReleasesOverREST(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	deploy := func(version, want int) {
		t.Helper()
		doc := fmt.Sprintf(`{"name":"order","workflow_id":"order","version":"%d","steps":[{"id":"a","set":%d}]}`, version, version)
		if code, body := w.call("POST", "/api/v1/workflows", doc); code != want {
			t.Fatalf("deploy %d: %d %s", version, code, body)
		}
	}
	deploy(1, 201)
	deploy(2, 201)
	deploy(2, 200) // the same content: nothing happens
	if code, body := w.call("POST", "/api/v1/workflows", `{"name":"order","workflow_id":"order","version":"2","steps":[{"id":"a","set":0}]}`); code != 409 {
		t.Errorf("other content of a version that is deployed: %d %s", code, body)
	}
	// starts gives the version that a start runs on, or the status of its refusal.
	starts := func(ref, version string) string {
		t.Helper()
		body := `{"input_data":{}}`
		if version != "" {
			body = `{"input_data":{},"version":"` + version + `"}`
		}
		code, answer := w.call("POST", "/api/v1/workflows/"+ref+"/execute", body)
		var run struct {
			Version string `json:"version"`
			Detail  string `json:"detail"`
		}
		if err := json.Unmarshal(answer, &run); err != nil {
			t.Fatal(err)
		}
		if code != 202 {
			return fmt.Sprint(code)
		}
		return run.Version
	}
	step := func(method, path, body string, want int) []byte {
		t.Helper()
		code, answer := w.call(method, "/api/v1/workflows/"+path, body)
		if code != want {
			t.Errorf("%s %s %s: %d %s, want %d", method, path, body, code, answer, want)
		}
		return answer
	}
	check := func(ref, version, want string) {
		t.Helper()
		if got := starts(ref, version); got != want {
			t.Errorf("%s %s starts %s, want %s", ref, version, got, want)
		}
	}
	check("order", "", "2")
	step("PUT", "order/aliases/stable", `{"version":"1"}`, 201)
	check("order", "", "1")
	check("order@stable", "", "1")
	check("order", "stable", "1")
	check("order", "2", "2")
	step("POST", "order@1/deprecate", `{}`, 409)
	step("DELETE", "order@1", "", 409)
	step("PUT", "order/aliases/stable", `{"version":"2"}`, 200)
	check("order", "", "2")
	step("POST", "order@1/deprecate", `{"reason":"wrong tax"}`, 200)
	check("order", "1", "409")
	step("PUT", "order/aliases/old", `{"version":"1"}`, 409)
	step("POST", "order@1/undeprecate", "", 200)
	check("order", "1", "1")
	if answer := step("GET", "order/versions", "", 200); !strings.Contains(string(answer), `"aliases":["stable"]`) {
		t.Errorf("versions %s", answer)
	}
	step("DELETE", "order", "", 200)
	step("DELETE", "order", "", 200)
	check("order", "", "404")
	deploy(2, 200)
	check("order", "", "2")
	if answer := step("GET", "order/aliases", "", 200); !strings.Contains(string(answer), `"items":[]`) {
		t.Errorf("aliases %s", answer)
	}

	code, answer := w.call("GET", "/api/v1/audit?entity_type=workflow&entity_id=order", "")
	var record struct {
		Items []struct {
			Action  string          `json:"action"`
			UserID  string          `json:"user_id"`
			Changes json.RawMessage `json:"changes"`
		} `json:"items"`
	}
	if err := json.Unmarshal(answer, &record); err != nil || code != 200 {
		t.Fatal(code, err)
	}
	var actions []string
	for _, e := range record.Items {
		actions = append(actions, e.Action)
		if e.UserID == "" {
			t.Errorf("nobody has done %s", e.Action)
		}
	}
	if got, want := strings.Join(actions, " "), "unalias undeprecate deprecate alias alias"; got != want {
		t.Errorf("the record says %s, want %s\n%s", got, want, answer)
	}
}

// TestC10_RunsStayOnTheirVersion: what is under way when its version is deprecated
// goes on to its end.
func TestC10_RunsStayOnTheirVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, "name: slow\nsteps: [{id: w, wait: 300ms}, {id: a, set: done}]\n")
	run := w.start("slow", `{}`)
	if code, body := w.call("POST", "/api/v1/workflows/slow@1/deprecate", ""); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	if got := w.end(run.ID); got.Status != parley.RunCompleted || string(got.Output) != `"done"` {
		t.Errorf("the run is %s with %s", got.Status, got.Output)
	}
}
