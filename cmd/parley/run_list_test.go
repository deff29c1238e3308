package main

import (
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
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

// TestListsNameWhatIsUnreadable: so are agents, schedules and approvals; one without
// choices is no reason to fail.
func TestListsNameWhatIsUnreadable(t *testing.T) {
	a := &app{}
	approval := parley.ApprovalItem{Run: "r", Step: "s", Unreadable: true}
	for want, got := range map[string]string{
		"active (cannot be read)":                       agentRecordColumns()[2].cell(client.Agent{Status: parley.AgentActive, Unreadable: true}).text,
		"closed (cannot be read)":                       a.attemptColumns(nil)[3].cell(parley.Attempt{State: "closed", Unreadable: true}).text,
		"(cannot be read)":                              scheduleWhen(parley.Schedule{Unreadable: true}) + a.approvalColumns()[2].cell(approval).text[16:],
		"parley run answer r s --choice CHOICE --as ME": approveCommand("r", "s", &approval.Approval),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
