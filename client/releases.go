package client

import (
	"context"
	"net/http"

	"github.com/parley-project/parley"
)

// AliasSet is what setting an alias came to.
type AliasSet struct {
	parley.WorkflowAlias
	// Created is false when the alias was there before.
	Created bool `json:"created"`
}

// Aliases gives one page of the aliases of a workflow, by name. Ref is a
// workflow_id, a name or the id of a version.
func (c *Client) Aliases(ctx context.Context, ref string, p PageQuery) (Page[parley.WorkflowAlias], error) {
	var page Page[parley.WorkflowAlias]
	if err := needName("workflow", ref); err != nil {
		return page, err
	}
	err := c.get(ctx, path("workflows", ref, "aliases"), p.values(), &page)
	return page, err
}

// SetAlias makes an alias stand for a version, whatever it stood for before. By is
// not sent.
func (c *Client) SetAlias(ctx context.Context, req parley.AliasRequest) (AliasSet, error) {
	var out parley.WorkflowAlias
	p, err := aliasPath(req)
	if err != nil {
		return AliasSet{}, err
	}
	body, err := encode(struct {
		Version string `json:"version"`
	}{req.Version})
	if err != nil {
		return AliasSet{}, err
	}
	status, err := c.do(ctx, call{method: http.MethodPut, path: p, body: body}, &out)
	return AliasSet{out, status == http.StatusCreated}, err
}

// RemoveAlias removes an alias. Version and By are not sent.
func (c *Client) RemoveAlias(ctx context.Context, req parley.AliasRequest) error {
	p, err := aliasPath(req)
	if err != nil {
		return err
	}
	_, err = c.do(ctx, call{method: http.MethodDelete, path: p}, nil)
	return err
}

func aliasPath(req parley.AliasRequest) (string, error) {
	if err := needName("workflow", req.Workflow); err != nil {
		return "", err
	}
	if err := needName("alias", req.Alias); err != nil {
		return "", err
	}
	return path("workflows", req.Workflow, "aliases", req.Alias), nil
}

// Deprecate lets one version of a workflow take no new runs any more, or undoes
// that; again changes nothing. By is not sent.
func (c *Client) Deprecate(ctx context.Context, req parley.DeprecateRequest) (parley.WorkflowVersion, error) {
	var w workflowWire
	if err := needName("workflow", req.Ref); err != nil {
		return w.value(), err
	}
	if req.Undo {
		_, err := c.do(ctx, call{method: http.MethodPost, path: path("workflows", req.Ref, "undeprecate")}, &w)
		return w.value(), err
	}
	err := c.post(ctx, call{path: path("workflows", req.Ref, "deprecate")}, struct {
		Reason string `json:"reason,omitempty"`
	}{req.Reason}, &w)
	return w.value(), err
}
