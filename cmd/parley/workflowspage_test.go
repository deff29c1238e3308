package main

import (
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPagesWorkflows: each workflow on the pages can be deployed, and nothing is to be
// said about it.
func TestPagesWorkflows(t *testing.T) {
	t.Parallel()
	for page, least := range map[string]int{
		"README.md": 1, "docs/workflows.md": 7, "docs/events-and-approvals.md": 4, "docs/triggers.md": 2, "docs/zones.md": 1,
	} {
		n := 0
		for _, m := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(readPage(t, page), -1) {
			if !regexp.MustCompile(`(?m)^steps:`).MatchString(m[1]) {
				continue
			}
			n++
			dir := t.TempDir()
			write(t, dir, "flow.yaml", m[1])
			a, out, errs := dryApp(dir)
			if code := a.execute(t.Context(), []string{"workflow", "validate", "flow.yaml"}); code != exitDone || !strings.Contains(errs.String(), "valid, 0 warnings") {
				t.Errorf("%s: exit code %d for\n%s\n%s%s", page, code, m[1], out, errs)
			}
		}
		if n < least {
			t.Errorf("%s: only %d workflows", page, n)
		}
	}
}

// The documents that docs/workflows.md shows the findings, the graph, the differences
// and the other form of.
const (
	pageFaulty = `name: story
steps:
  - id: draft
    agent: writer
    input: {text: a}
    dependsOn: [idea]
    timeout: "5 minutes"
  - {id: polish, agent: polisher,
    input: {text: "${drafd.output.text}"}}
`
	pageTrip = `name: trip
input: {type: object, required: [fly], properties: {fly: {type: boolean}}}
steps:
  - {id: hotel, agent: hotels, compensate: {id: undo, agent: hotels}}
  - {id: flight, agent: flights, if: workflow.input.fly}
  - {id: charge, agent: payer, on_error: [{match: [timeout], goto: remind}]}
  - {id: remind, agent: notifier}
finally:
  - {id: log, agent: notifier}
`
	pageBefore = `name: story
timeout: 30m
steps:
  - {id: draft, agent: writer, input: {text: a}}
  - {id: old, agent: x}
`
	pageAfter = `name: story
timeout: 1h
steps:
  - {id: draft, agent: writer, input: {text: b, lang: en}}
  - {id: review, agent: reviewer}
`
	pageNeeds = `name: side by side
steps:
  - {id: a, agent: writer}
  - {id: b, agent: x, needs: []}
`
)

// TestWorkflowsPage types the command lines of docs/workflows.md that have an output, and
// holds the page to it.
func TestWorkflowsPage(t *testing.T) {
	t.Parallel()
	page := readPage(t, "docs/workflows.md")
	for _, c := range []struct {
		line  string
		files []string // names and texts
		code  int
	}{
		{"parley workflow validate story.yaml", []string{"story.yaml", pageFaulty}, exitUsage},
		{"parley workflow graph trip.yaml", []string{"trip.yaml", pageTrip}, exitDone},
		// The version that is deployed is a file here: to find it is another test's affair.
		{"parley workflow diff story@1 story.yaml", []string{"story@1", pageBefore, "story.yaml", pageAfter}, exitFailed},
		{"parley workflow convert needs.yaml", []string{"needs.yaml", pageNeeds}, exitUsage},
	} {
		_, want, found := strings.Cut(page, "```console\n$ "+c.line+"\n")
		if !found {
			t.Errorf("the page does not show %s", c.line)
			continue
		}
		want, _, _ = strings.Cut(want, "```")
		dir := t.TempDir()
		line := strings.ReplaceAll(c.line, "story@1", "before.yaml")
		for i := 0; i < len(c.files); i += 2 {
			write(t, dir, strings.ReplaceAll(c.files[i], "story@1", "before.yaml"), c.files[i+1])
		}
		var out lockedBuffer
		a, _, _ := dryApp(dir)
		a.stdout, a.stderr = &out, &out
		a.terminal, a.env = func(io.Writer) (int, bool) { return 120, true }, []string{"NO_COLOR=1"}
		code := a.execute(t.Context(), words(strings.TrimPrefix(line, "parley ")))
		if diff := cmp.Diff(want, out.String()); diff != "" || code != c.code {
			t.Errorf("%s: exit code %d, want %d (-page +got):\n%s", c.line, code, c.code, diff)
		}
	}
}
