package workflow

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWorkflowsPage compiles every workflow that the pages for authors show.
func TestWorkflowsPage(t *testing.T) {
	for page, least := range map[string]int{"workflows.md": 3, "events-and-approvals.md": 0, "triggers.md": 1} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for i, block := range strings.Split(string(text), "```yaml\n")[1:] {
			block, _, _ = strings.Cut(block, "```")
			if !strings.HasPrefix(block, "name:") {
				continue
			}
			found++
			if def, problems := Parse(ParseOptions{}, []byte(block)); def == nil || len(problems) > 0 {
				t.Errorf("%s, block %d: %v", page, i+1, problems)
			}
		}
		if found < least {
			t.Errorf("%s shows %d workflows", page, found)
		}
	}
}
