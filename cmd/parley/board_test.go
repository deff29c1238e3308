package main

import (
	"encoding/json"
	"testing"

	"github.com/parley-project/parley"
)

// TestErrorMessage checks that what an agent says of its task is told wherever the
// failure of the task is: by the step, and by those that started the run of that step.
func TestErrorMessage(t *testing.T) {
	t.Parallel()
	task := &parley.Error{Message: "Task state: rejected", Details: json.RawMessage(`{"state":"rejected","message":"no\nway"}`)}
	child := &parley.Error{Message: "Run run-2 of workflow book has failed: Task state: rejected", Cause: task}
	for want, e := range map[string]*parley.Error{
		"Task state: rejected (no way)":                                                              task,
		"Run run-2 of workflow book has failed: Task state: rejected (no way)":                       child,
		"Run run-1 has failed: Run run-2 of workflow book has failed: Task state: rejected (no way)": {Message: "Run run-1 has failed: " + child.Message, Cause: child},
		"None of 2 branches has completed":                                                           {Message: "None of 2 branches has completed", Cause: task},
		"It was cancelled":                                                                           {Message: "It was cancelled", Details: json.RawMessage(`{"run":"run-2"}`)},
	} {
		if got := errorMessage(e); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
