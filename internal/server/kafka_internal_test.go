package server

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley/internal/bus"
)

// TestWritten: a process looks at the start whether it may write what others wait for,
// and at nothing else.
func TestWritten(t *testing.T) {
	for _, test := range []struct {
		cfg  Config
		want []string
	}{
		{Config{Roles: []Role{RoleBridge}, NoLedger: true}, []string{bus.SubjectResults}},
		{Config{Roles: []Role{RoleBridge}}, []string{bus.SubjectProgress, bus.SubjectResults, bus.SubjectRuns}},
		{Config{Roles: []Role{RoleAPI}}, []string{bus.SubjectCancel, bus.SubjectHint, bus.SubjectRuns}},
		{Config{Roles: []Role{RoleExecutor}}, []string{bus.SubjectCancel, bus.SubjectHint, bus.SubjectRuns, bus.SubjectTasks}},
	} {
		if d := cmp.Diff(test.want, test.cfg.Written()); d != "" {
			t.Errorf("%v (-want +got)\n%s", test.cfg.Roles, d)
		}
	}
}
