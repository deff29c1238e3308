package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/parley-project/parley"
)

// Applied is what deploying a document came to.
type Applied struct {
	parley.WorkflowVersion
	// Created is false when the document was deployed before, unchanged.
	Created bool `json:"created"`
}

// workflowWire is parley.WorkflowVersion as the API sends it: a version that is
// a whole number comes as one.
type workflowWire struct {
	parley.WorkflowVersion
	Version label `json:"version"`
}

func (w workflowWire) value() parley.WorkflowVersion {
	v := w.WorkflowVersion
	v.Version = string(w.Version)
	return v
}

// label is text that may come as a number.
type label string

// UnmarshalJSON takes a string as it is and a number as it is written.
func (l *label) UnmarshalJSON(b []byte) error {
	var n json.Number
	if err := json.Unmarshal(b, &n); err == nil {
		*l = label(n.String())
		return nil
	}
	var s string
	err := json.Unmarshal(b, &s)
	*l = label(s)
	return err
}

func workflowPage(in Page[workflowWire]) Page[parley.WorkflowVersion] {
	out := Page[parley.WorkflowVersion]{
		Items: make([]parley.WorkflowVersion, 0, len(in.Items)),
		Total: in.Total, Number: in.Number, Size: in.Size, TotalPages: in.TotalPages,
	}
	for _, w := range in.Items {
		out.Items = append(out.Items, w.value())
	}
	return out
}

// document gives the call that carries a workflow document.
func document(p string, r parley.ApplyRequest) call {
	header := http.Header{"Content-Type": {"application/yaml"}}
	q := url.Values{}
	setIf(q, "file", r.File)
	return call{method: http.MethodPost, path: p, query: q, header: header, body: r.Source}
}

// ApplyWorkflow deploys the document in r.Source, YAML or JSON. r.File names
// it in findings. An invalid document is refused; the error's Errors are the
// findings. The version's Warnings are what was found besides.
func (c *Client) ApplyWorkflow(ctx context.Context, r parley.ApplyRequest) (Applied, error) {
	var w workflowWire
	status, err := c.do(ctx, document(path("workflows"), r), &w)
	return Applied{WorkflowVersion: w.value(), Created: status == http.StatusCreated}, err
}

// ValidateWorkflow has the server check the document in r.Source, with what
// only it knows, such as its agents, and gives all findings, also when there
// are errors among them. Nothing is deployed.
func (c *Client) ValidateWorkflow(ctx context.Context, r parley.ApplyRequest) (parley.Problems, error) {
	var out struct {
		Problems parley.Problems `json:"problems"`
	}
	_, err := c.do(ctx, document("/api/v1/workflows:validate", r), &out)
	return out.Problems, err
}

// Workflow gives the newest version of a workflow, or the version that ref
// names. Ref is a workflow_id, a name, either of them with @version, or a
// version's id.
func (c *Client) Workflow(ctx context.Context, ref string) (parley.WorkflowVersion, error) {
	var w workflowWire
	if err := needName("workflow", ref); err != nil {
		return w.value(), err
	}
	err := c.get(ctx, path("workflows", ref), nil, &w)
	return w.value(), err
}

// WorkflowQuery selects workflows. Zero members don't restrict.
type WorkflowQuery struct {
	Name   string
	Status parley.AgentStatus
	// SortBy is created_at (default), updated_at or name; Ascending turns the
	// order, which is newest first.
	SortBy    string
	Ascending bool
	Page      PageQuery
}

// Workflows gives one page of the workflows, each as its newest version.
func (c *Client) Workflows(ctx context.Context, query WorkflowQuery) (Page[parley.WorkflowVersion], error) {
	q := query.Page.values()
	setIf(q, "name", query.Name)
	setIf(q, "status", string(query.Status))
	setIf(q, "sort_by", query.SortBy)
	setAscending(q, query.Ascending)
	var page Page[workflowWire]
	err := c.get(ctx, path("workflows"), q, &page)
	return workflowPage(page), err
}

// WorkflowVersions gives the versions of a workflow, newest first.
func (c *Client) WorkflowVersions(ctx context.Context, ref string, p PageQuery) (Page[parley.WorkflowVersion], error) {
	var page Page[workflowWire]
	if err := needName("workflow", ref); err != nil {
		return workflowPage(page), err
	}
	err := c.get(ctx, path("workflows", ref, "versions"), p.values(), &page)
	return workflowPage(page), err
}

// DeleteWorkflow takes a workflow out of use: it starts no run any more. Runs
// that were started go on. To delete it again changes nothing.
func (c *Client) DeleteWorkflow(ctx context.Context, ref string) error {
	if err := needName("workflow", ref); err != nil {
		return err
	}
	_, err := c.do(ctx, call{method: http.MethodDelete, path: path("workflows", ref)}, nil)
	return err
}
