package main

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

func newWorkflowShow(a *app) *cobra.Command {
	var source bool
	cmd := &cobra.Command{
		Use:   "show WORKFLOW[@VERSION]",
		Short: "Show a deployed workflow with its steps",
		Example: `  parley workflow show hello
  parley workflow show hello@2 --source > hello.yaml`,
		Args: need("WORKFLOW"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			v, err := c.Workflow(cmd.Context(), args[0])
			if err != nil {
				name, _, _ := strings.Cut(args[0], "@")
				return a.nearMiss(cmd.Context(), c, err, workflowHint(name))
			}
			if source {
				_, err := a.stdout.Write([]byte(strings.TrimRight(v.Source, "\n") + "\n"))
				return err
			}
			if err := a.show(v, func(s *sheet) { a.drawWorkflow(s, v) }); err != nil {
				return err
			}
			if !takesRuns(v) {
				a.next("parley workflow versions %s", v.Workflow)
				return nil
			}
			a.nextStart(v.Workflow+"@"+v.Version, v.Name+"."+v.Format, []byte(v.Source))
			return nil
		},
		ValidArgsFunction: a.completeNames(workflowNames),
	}
	cmd.Flags().BoolVar(&source, "source", false, "the document as it was deployed, and nothing else")
	return cmd
}

func (a *app) drawWorkflow(s *sheet, v parley.WorkflowVersion) {
	s.fields([]field{
		{"Workflow", cell{text: v.Workflow}},
		{"Version", cell{text: v.Version}},
		{"Name", cell{text: v.Name}},
		{"Description", cell{text: v.Description}},
		{"Status", standing(v)},
		{"Deprecated", cell{text: a.deprecated(v.Deprecated)}},
		{"Aliases", cell{text: strings.Join(v.Aliases, " ")}},
		{"Format", cell{text: v.Format}},
		{"Created", cell{text: a.when(&v.CreatedAt)}},
		{"ID", cell{text: v.ID}},
	})
	if len(v.Steps) > 0 {
		s.line("")
		drawTable(s, []column[parley.StepSummary]{
			{head: "STEP", cell: plain(func(x parley.StepSummary) string { return x.ID })},
			{head: "KIND", fixed: true, cell: plain(func(x parley.StepSummary) string { return x.Kind })},
			{head: "AGENT", cell: plain(func(x parley.StepSummary) string { return cmp.Or(x.Agent, strings.Join(x.Agents, ", ")) })},
		}, v.Steps)
	}
	if s.wide && v.Source != "" {
		s.line("")
		s.line(s.ink(styleDim, "Source"))
		s.line(cleanLines(strings.TrimRight(v.Source, "\n")))
	}
}

// deprecated says since when and why a version takes no new runs; "" if it does.
func (a *app) deprecated(d *parley.Deprecation) string {
	if d == nil {
		return ""
	}
	text := a.when(&d.At)
	if d.By != "" {
		text += " by " + d.By
	}
	if d.Reason != "" {
		text += ": " + d.Reason
	}
	return text
}

func newWorkflowVersions(a *app) *cobra.Command {
	var p client.PageQuery
	cmd := &cobra.Command{
		Use:   "versions WORKFLOW",
		Short: "List the versions of a workflow, newest first",
		Example: `  parley workflow versions hello
  parley workflow versions hello -o json`,
		Args: need("WORKFLOW"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkPage(p); err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			page, err := c.WorkflowVersions(cmd.Context(), args[0], p)
			if err != nil {
				return a.nearMiss(cmd.Context(), c, err, workflowHint(args[0]))
			}
			return a.showWorkflows(page, "no versions")
		},
		ValidArgsFunction: a.completeNames(workflowNames),
	}
	pageFlags(cmd.Flags(), &p)
	return cmd
}

// message is what a command that only does something gives to programs.
type message struct {
	Name   string `json:"name"`
	Result string `json:"result"`
}

// said shows the message of a command that has nothing else to show.
func (a *app) said(m message) error {
	return a.show(m, func(s *sheet) { s.line(clean(m.Name) + " " + m.Result) })
}

func newWorkflowDelete(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "delete WORKFLOW[@VERSION]",
		Short: "Take a workflow, or one version of it, out of use",
		Long: `Take a workflow out of use, with its aliases, or one version of it: it starts no
run any more. Runs that were started go on. To delete it again changes nothing,
and to deploy the same document again brings it back. A version that an alias
stands for cannot be deleted alone: move the alias first.`,
		Example: `  parley workflow delete hello
  parley workflow delete hello@2`,
		Args: need("WORKFLOW"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			if err := c.DeleteWorkflow(cmd.Context(), args[0]); err != nil {
				name, _, _ := strings.Cut(args[0], "@")
				return a.nearMiss(cmd.Context(), c, err, workflowHint(name))
			}
			if err := a.said(message{args[0], "deleted"}); err != nil {
				return err
			}
			name, _, _ := strings.Cut(args[0], "@")
			a.next("parley run list --workflow %s", name)
			return nil
		},
		ValidArgsFunction: a.completeNames(workflowNames),
	}
}
