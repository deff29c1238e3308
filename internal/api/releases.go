package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/parley-project/parley"
)

// Releases says which versions of workflows new runs get.
type Releases interface {
	// Aliases gives those of the workflow that ref belongs to, by name.
	Aliases(ctx context.Context, ref string) ([]parley.WorkflowAlias, error)
	// SetAlias makes an alias, or moves it; created is false if it was there.
	SetAlias(ctx context.Context, req parley.AliasRequest) (a parley.WorkflowAlias, created bool, err error)
	RemoveAlias(ctx context.Context, req parley.AliasRequest) error
	// Deprecate lets a version take no new runs, or undoes that.
	Deprecate(ctx context.Context, req parley.DeprecateRequest) (parley.WorkflowVersion, error)
}

// aliasBody documents what an alias is to stand for; setAlias reads it.
type aliasBody struct {
	Version string `json:"version" minLength:"1" maxLength:"64" doc:"A version, or another alias, whose version it gets."`
}

// deprecateBody documents why a version is deprecated.
type deprecateBody struct {
	Reason string `json:"reason,omitempty" maxLength:"500"`
}

func (s *server) releaseRoutes() []route {
	const tag = "workflows"
	ref := pathParam("ref", "A version's UUID, a workflow_id or a name.")
	exact := pathParam("ref", "One version: workflow@version, or its UUID.")
	alias := pathParam("alias", "1 to 64 characters a-z 0-9 . _ -, a letter first. A start that names no version takes stable, if there is one.")
	return []route{
		{
			method: http.MethodGet, path: "/api/v1/workflows/{ref}/aliases", id: "list-aliases", tag: tag,
			summary: "List the aliases of a workflow by name", params: append(pageParams(), ref),
			answers: ok(pageOf[parley.WorkflowAlias]{}), errors: []int{404, 422}, handle: s.listAliases,
		},
		{
			method: http.MethodPut, path: "/api/v1/workflows/{ref}/aliases/{alias}", id: "set-alias", tag: tag,
			summary: "Make an alias stand for a version; it moves new runs only", params: []*huma.Param{ref, alias}, body: aliasBody{},
			answers: []answer{{status: http.StatusOK, body: parley.WorkflowAlias{}}, {status: http.StatusCreated, body: parley.WorkflowAlias{}}},
			errors:  []int{404, 409, 413, 415, 422}, handle: s.setAlias,
		},
		{
			method: http.MethodDelete, path: "/api/v1/workflows/{ref}/aliases/{alias}", id: "remove-alias", tag: tag,
			summary: "Remove an alias", params: []*huma.Param{ref, alias},
			answers: ok(messageBody{}), errors: []int{404}, handle: s.removeAlias,
		},
		{
			method: http.MethodPost, path: "/api/v1/workflows/{ref}/deprecate", id: "deprecate-version", tag: tag,
			summary: "Let a version take no new runs any more; again changes nothing, and what is under way goes on",
			params:  []*huma.Param{exact}, body: deprecateBody{}, optional: true,
			answers: ok(workflowBody{}), errors: []int{404, 409, 413, 415, 422}, handle: s.deprecate,
		},
		{
			method: http.MethodPost, path: "/api/v1/workflows/{ref}/undeprecate", id: "undeprecate-version", tag: tag,
			summary: "Let a version take new runs again", params: []*huma.Param{exact},
			answers: ok(workflowBody{}), errors: []int{404, 422}, handle: s.undeprecate,
		},
	}
}

func (s *server) listAliases(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	page := q.page()
	if err := q.done(); err != nil {
		return err
	}
	all, err := s.cfg.Releases.Aliases(r.Context(), r.PathValue("ref"))
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, cutPage(all, page, makeAlias))
	return nil
}

func makeAlias(a parley.WorkflowAlias) parley.WorkflowAlias {
	a.CreatedAt, a.UpdatedAt = a.CreatedAt.UTC(), a.UpdatedAt.UTC()
	return a
}

func (s *server) setAlias(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readObject(w, r, bodyLimit{s.cfg.Limits.Body, "body"}, false)
	if err != nil {
		return err
	}
	req := parley.AliasRequest{Workflow: r.PathValue("ref"), Alias: r.PathValue("alias"), By: callerOf(r)}
	o.require("version")
	if v := o.text("version", 1, 64); v != nil {
		req.Version = *v
	}
	if err := o.done(true); err != nil {
		return err
	}
	a, created, err := s.cfg.Releases.SetAlias(r.Context(), req)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	s.reply(w, r, status, makeAlias(a))
	return nil
}

func (s *server) removeAlias(w http.ResponseWriter, r *http.Request) error {
	req := parley.AliasRequest{Workflow: r.PathValue("ref"), Alias: r.PathValue("alias"), By: callerOf(r)}
	if err := s.cfg.Releases.RemoveAlias(r.Context(), req); err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, s.message("Alias '"+req.Alias+"' removed successfully"))
	return nil
}

func (s *server) deprecate(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readObject(w, r, bodyLimit{s.cfg.Limits.Body, "body"}, true)
	if err != nil {
		return err
	}
	req := parley.DeprecateRequest{Ref: r.PathValue("ref"), By: callerOf(r)}
	if v := o.text("reason", 0, 500); v != nil {
		req.Reason = *v
	}
	if err := o.done(true); err != nil {
		return err
	}
	return s.replyDeprecated(w, r, req)
}

func (s *server) undeprecate(w http.ResponseWriter, r *http.Request) error {
	return s.replyDeprecated(w, r, parley.DeprecateRequest{Ref: r.PathValue("ref"), Undo: true, By: callerOf(r)})
}

func (s *server) replyDeprecated(w http.ResponseWriter, r *http.Request, req parley.DeprecateRequest) error {
	v, err := s.cfg.Releases.Deprecate(r.Context(), req)
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, makeWorkflow(v))
	return nil
}
