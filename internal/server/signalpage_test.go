package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/server"
)

// TestDocs_EventsAndApprovals deploys every workflow of the page and does with
// them what it says.
func TestDocs_EventsAndApprovals(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/events-and-approvals.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for i, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		write(t, filepath.Join(dir, "flows", fmt.Sprintf("%d.yaml", i)), m[1])
	}
	s := startServer(t, server.Config{
		Data: filepath.Join(dir, "data"), Listen: "127.0.0.1:0", WorkflowDirs: []string{filepath.Join(dir, "flows")}, DrainGrace: time.Millisecond,
	})
	x, ctx := s.Executor(), t.Context()
	start := func(workflow, input string) string {
		t.Helper()
		run, _, err := x.Start(ctx, parley.StartRequest{Workflow: workflow, Input: []byte(input)})
		if err != nil {
			t.Fatal(err)
		}
		return run.ID
	}
	order, spend := start("order", ""), start("spend", `{"amount":60}`)
	if payer := finish(t, s, start("payer", "")); string(payer.Output) != `{"event_id":"`+payer.ID+`.tell"}` {
		t.Errorf("payer gives %s", payer.Output)
	}
	if run := finish(t, s, order); string(run.Output) != `{"amount":60}` {
		t.Errorf("order is %s: %s", run.Status, run.Output)
	}
	answer := parley.AnswerRequest{
		Run: spend, Step: "ask", Choice: "approve", Roles: []string{"finance"},
		Reply: parley.Reply{By: "ann", Text: "as agreed", Data: []byte(`{"cost_centre": "12"}`)},
	}
	if _, err := x.AnswerStep(ctx, answer); err != nil {
		t.Fatal(err)
	}
	if run := finish(t, s, spend); string(run.Output) != `{"cost_centre": "12"}` {
		t.Errorf("spend is %s: %s", run.Status, run.Output)
	}
	spelled := start("spend", `{"amount":60}`)
	answer.Run, answer.Choice = spelled, ""
	answer.Reply = parley.Reply{By: "ann", Data: []byte(`{"choice": "approve", "comment": "as agreed", "cost_centre": "12"}`)}
	if _, err := x.AnswerStep(ctx, answer); err != nil {
		t.Fatal(err)
	}
	if run := finish(t, s, spelled); string(run.Output) != `{"cost_centre":"12"}` {
		t.Errorf("spend is %s: %s", run.Status, run.Output)
	}
	if run := finish(t, s, start("check", `{"id":1}`)); run.Error == nil || run.Error.Code != parley.CodeValidationFailed || !strings.Contains(string(run.Error.Details), "/id") {
		t.Errorf("check is %s: %v", run.Status, run.Error)
	}
}
