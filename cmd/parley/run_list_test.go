package main

import (
	"testing"

	"github.com/parley-project/parley"
)

// TestRunListNamesUnreadableRuns: a run of which the server has less than a list shows is
// told from one that was given nothing.
func TestRunListNamesUnreadableRuns(t *testing.T) {
	status := (&app{}).runColumns()[2]
	got := status.cell(parley.Run{Status: parley.RunFailed, Unreadable: true})
	if got.text != "FAILED (cannot be read)" {
		t.Errorf("%q", got.text)
	}
}
