package dryrun_test

import (
	"strings"
	"testing"

	"github.com/parley-project/parley/internal/dryrun"
)

// TestMembers: the names that would be right at the place of one that is not.
func TestMembers(t *testing.T) {
	const aCase = "after ask error output silence talks times when"
	for path, want := range map[string]string{
		"inptu":                          "agents approvals at cancel events expect input labels seed tests unknown_agents workflows",
		"tests[0].expcet":                "agents approvals at cancel events expect input labels name seed unknown_agents workflows",
		"agents.x[1].wehn":               aCase,
		`agents["a.b \"c\""].cases[0].w`: aCase,
		"agents.x.retry.max":             "initial_delay max_delay max_retries multiplier",
		`tests[12].expect.steps["work[0]/review"].statu`: "attempts error handled output status",
		"approvals.ask[0].role":                          "after by choice comment data refused roles",
		"agents.x.ask.reply.txt":                         "after by data text",
		"input.anything":                                 "",
		"":                                               "",
	} {
		if got := strings.Join(dryrun.Members(path), " "); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
