package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
	"github.com/parley-project/parley/internal/workflow"
)

// maxDocument bounds a document that is read, in bytes: the most that the setting
// limits.workflow_source takes. Who gets the document says its own limit.
const maxDocument = 16 << 20

func newWorkflowCommand(a *app) *cobra.Command {
	cmd := newGroup("workflow", "Check, deploy and list workflows", `
  parley workflow validate hello.yaml
  parley workflow apply hello.yaml
  parley workflow list`)
	cmd.AddCommand(
		newWorkflowApply(a), newWorkflowValidate(a), newWorkflowList(a),
		newWorkflowShow(a), newWorkflowVersions(a), newWorkflowGraph(a), newWorkflowDelete(a), newWorkflowRun(a),
		newWorkflowConvert(a), newWorkflowDiff(a), newWorkflowAlias(a), newWorkflowDeprecate(a),
	)
	return cmd
}

// readDocument reads a document; "-" is standard input.
func (a *app) readDocument(file string) (name string, source []byte, err error) {
	if file == "-" {
		name = "stdin"
		source, err = readAll(a.stdin, name, maxDocument)
	} else {
		name = file
		source, err = readFile(a.path(file), maxDocument)
	}
	if err != nil {
		return name, nil, usagef("%v", err)
	}
	return name, source, nil
}

func checkFiles(files []string) error {
	if i := slices.Index(files, "-"); i >= 0 && slices.Contains(files[i+1:], "-") {
		return usagef("- stands for standard input and can be given once")
	}
	return nil
}

func newWorkflowValidate(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check workflow documents, without a server",
		Long: `Check workflow documents, YAML or JSON, and print every finding as
file:line:col: code: text. No server is needed, so agents are not looked up.
The exit code is 2 if one of the findings is an error.`,
		Example: `  parley workflow validate hello.yaml
  parley workflow validate workflows/*.yaml -o json
  cat hello.yaml | parley workflow validate -`,
		Args: need("FILE..."),
		RunE: func(_ *cobra.Command, args []string) error { return a.workflowValidate(args) },
	}
}

// checked is what validating one document came to.
type checked struct {
	File     string          `json:"file"`
	Valid    bool            `json:"valid"`
	Problems parley.Problems `json:"problems"`
}

func (a *app) workflowValidate(files []string) error {
	if err := checkFiles(files); err != nil {
		return err
	}
	results := make([]checked, 0, len(files))
	invalid := 0
	for _, file := range files {
		r := a.checkDocument(file)
		if !r.Valid {
			invalid++
		}
		results = append(results, r)
	}
	switch {
	case a.human():
		for _, r := range results {
			a.drawChecked(r)
		}
	case a.flags.output == "jsonl":
		for _, r := range results {
			if err := a.data(r); err != nil {
				return err
			}
		}
	default:
		if err := a.data(results); err != nil {
			return err
		}
	}
	if invalid > 0 {
		return invalidf("%d of %s cannot be deployed", invalid, plural(len(files), "document"))
	}
	a.next("parley workflow apply %s", shellWords(files))
	return nil
}

// checkDocument validates one document. That it cannot be read is a finding like others:
// it does not keep the next from being checked.
func (a *app) checkDocument(file string) checked {
	name, source, err := a.readDocument(file)
	if err != nil {
		f := classify(err)
		return checked{File: name, Problems: parley.Problems{{File: name, Severity: parley.SeverityError, Code: string(f.code), Text: f.text}}}
	}
	_, problems := workflow.Parse(workflow.ParseOptions{File: name}, source)
	if problems == nil {
		problems = parley.Problems{}
	}
	return checked{File: name, Valid: errorCount(problems) == 0, Problems: problems}
}

func errorCount(ps parley.Problems) int {
	n := 0
	for _, p := range ps {
		if p.Severity == parley.SeverityError {
			n++
		}
	}
	return n
}

func (a *app) drawChecked(r checked) {
	s := a.newSheet()
	for _, p := range r.Problems {
		s.line(problemLine(p))
	}
	if r.Valid {
		a.note("%s: valid, %s", r.File, plural(len(r.Problems), "warning"))
	}
}

// problemLine is "file:line:col: code: text"; what is no error says so behind
// that.
func problemLine(p parley.Problem) string {
	text := clean(withMember(p).String())
	if p.Severity == parley.SeverityWarning {
		text += " [warning]"
	}
	return text
}

// withMember is a finding whose text says which member it is about. Those of agents files
// say what the member must be, and leave its name to the path.
func withMember(p parley.Problem) parley.Problem {
	if strings.HasPrefix(p.Path, "agents[") {
		p.Text = p.Path + ": " + p.Text
	}
	return p
}

// byPlace gives the findings of one file in the order of their places.
func byPlace(problems parley.Problems) parley.Problems {
	return slices.SortedStableFunc(slices.Values(problems), func(a, b parley.Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
}

func newWorkflowApply(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "apply FILE...",
		Short: "Deploy workflow documents",
		Long: `Deploy workflow documents, YAML or JSON. A document that was deployed before,
unchanged, stays the version that it is. Documents are deployed one by one: one
that is refused does not keep the next from being tried.`,
		Example: `  parley workflow apply hello.yaml
  parley workflow apply workflows/*.yaml
  cat hello.yaml | parley workflow apply -`,
		Args: need("FILE..."),
		RunE: func(cmd *cobra.Command, args []string) error { return a.workflowApply(cmd.Context(), args) },
	}
}

func (a *app) workflowApply(ctx context.Context, files []string) error {
	if err := checkFiles(files); err != nil {
		return err
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	done := []client.Applied{}
	var first parley.ApplyRequest
	var errs []error
	for i, file := range files {
		v, req, err := a.applyOne(ctx, c, file)
		if i == 0 {
			first = req
		}
		if err != nil {
			a.report(err)
			errs = append(errs, err)
			continue
		}
		for _, p := range v.Warnings {
			fmt.Fprintln(a.stderr, problemLine(p))
		}
		done = append(done, v)
	}
	if len(done) > 0 {
		if err := showList(a, listing[client.Applied]{whole: oneOrAll(done), items: done, columns: a.appliedColumns()}); err != nil {
			return err
		}
	}
	if len(errs) == 0 {
		a.nextStart(done[0].Workflow, first.File, first.Source)
	}
	return a.all(errs)
}

// oneOrAll gives the object itself for a list of one, as the API does.
func oneOrAll[T any](list []T) any {
	if len(list) == 1 {
		return list[0]
	}
	return list
}

func (a *app) applyOne(ctx context.Context, c *client.Client, file string) (v client.Applied, req parley.ApplyRequest, err error) {
	name, source, err := a.readDocument(file)
	if err != nil {
		return v, req, err
	}
	req = parley.ApplyRequest{File: filepath.ToSlash(name), Source: source}
	v, err = c.ApplyWorkflow(ctx, req)
	return v, req, err
}

func (a *app) appliedColumns() []column[client.Applied] {
	return []column[client.Applied]{
		{head: "WORKFLOW", cell: plain(func(v client.Applied) string { return v.Workflow })},
		{head: "VERSION", fixed: true, cell: plain(func(v client.Applied) string { return v.Version })},
		{head: "RESULT", fixed: true, cell: func(v client.Applied) cell {
			if v.Created {
				return cell{"created", styleGood}
			}
			return cell{"unchanged", styleDim}
		}},
		{head: "ID", fixed: true, cell: plain(func(v client.Applied) string { return v.ID })},
		{head: "NAME", wide: true, cell: plain(func(v client.Applied) string { return v.Name })},
	}
}

func newWorkflowList(a *app) *cobra.Command {
	var q client.WorkflowQuery
	var status string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List workflows, each as its newest version",
		Example: `  parley workflow list
  parley workflow list --status all -o wide`,
		Args: need(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if q.Status, err = recordStatus(status); err != nil {
				return err
			}
			if err := checkPage(q.Page); err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			page, err := c.Workflows(cmd.Context(), q)
			if err != nil {
				return err
			}
			return a.showWorkflows(page, "no workflows; deploy one: parley workflow apply FILE")
		},
	}
	statusFlag(cmd, &status)
	pageFlags(cmd.Flags(), &q.Page)
	return cmd
}

// showWorkflows lists versions.
func (a *app) showWorkflows(page client.Page[parley.WorkflowVersion], none string) error {
	if err := showList(a, listing[parley.WorkflowVersion]{
		whole: page, items: page.Items, columns: a.workflowColumns(), none: none,
	}); err != nil {
		return err
	}
	a.pageNote(pageInfo{page.Number, page.TotalPages, page.Total, "workflow"})
	if len(page.Items) > 0 {
		// Which input a start needs is in the document, and whether there is one at all.
		a.next("parley workflow show %s@%s", page.Items[0].Workflow, page.Items[0].Version)
	}
	return nil
}

func (a *app) workflowColumns() []column[parley.WorkflowVersion] {
	return []column[parley.WorkflowVersion]{
		{head: "WORKFLOW", cell: plain(func(v parley.WorkflowVersion) string { return v.Workflow })},
		{head: "VERSION", fixed: true, cell: plain(func(v parley.WorkflowVersion) string { return v.Version })},
		{head: "STATUS", fixed: true, cell: standing},
		{head: "NAME", cell: plain(func(v parley.WorkflowVersion) string { return v.Name })},
		{head: "STEPS", fixed: true, cell: plain(func(v parley.WorkflowVersion) string { return fmt.Sprint(len(v.Steps)) })},
		{head: "CREATED", fixed: true, cell: plain(func(v parley.WorkflowVersion) string { return a.when(&v.CreatedAt) })},
		{head: "ALIASES", cell: plain(func(v parley.WorkflowVersion) string { return strings.Join(v.Aliases, " ") })},
		{head: "ID", wide: true, cell: plain(func(v parley.WorkflowVersion) string { return v.ID })},
		{head: "DESCRIPTION", wide: true, cell: plain(func(v parley.WorkflowVersion) string { return v.Description })},
	}
}

// recordStatus reads --status of lists of records.
func recordStatus(text string) (parley.AgentStatus, error) {
	if text == "all" {
		return "", nil
	}
	if !slices.Contains(recordStatuses(), text) {
		return "", usagef("--status %s: the statuses are %s", text, strings.Join(recordStatuses(), ", ")).
			withHint("%s", didYouMean(text, recordStatuses()))
	}
	return parley.AgentStatus(text), nil
}

func recordStatuses() []string {
	return []string{string(parley.AgentActive), string(parley.AgentInactive), string(parley.AgentDeleted), "all"}
}

func statusFlag(cmd *cobra.Command, status *string) {
	cmd.Flags().StringVar(status, "status", string(parley.AgentActive), "active, inactive, deleted or all")
	complete(cmd, "status", recordStatuses()...)
}
