package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// Audits is the record of who changed what: what was taken over from the existing
// platform, and what was done to versions of workflows, schedules and keys here.
type Audits interface {
	// Audits gives one page, newest first, and how many entries q selects.
	Audits(ctx context.Context, q store.AuditQuery) ([]store.Audit, int, error)
}

// auditBody is one entry of the audit record.
type auditBody struct {
	ID         string          `json:"id"`
	EntityType string          `json:"entity_type" doc:"agent, workflow, run, schedule or key."`
	EntityID   string          `json:"entity_id"`
	Action     string          `json:"action" doc:"create, update, delete, execute, retry or cancel; alias, unalias, deprecate or undeprecate; pause, resume or backfill; revoke."`
	UserID     *string         `json:"user_id"`
	Changes    json.RawMessage `json:"changes" doc:"What was changed; credentials are replaced."`
	CreatedAt  time.Time       `json:"created_at"`
}

func auditRoute(s *server) route {
	return route{
		method: http.MethodGet, path: "/api/v1/audit", id: "list-audit", tag: "system",
		summary: "List the audit record, newest first: what was imported from the existing platform, what was done to versions of workflows here, and to keys, which a viewer is not told",
		params: append(pageParams(), queryParam("entity_type", huma.TypeString, "agent, workflow, run, schedule or key."),
			queryParam("entity_id", huma.TypeString, "What an entry is about."), queryParam("action", huma.TypeString, "What was done.")),
		answers: ok(pageOf[auditBody]{}), errors: []int{422}, handle: s.listAudit,
	}
}

func (s *server) listAudit(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	page := q.page()
	req := store.AuditQuery{EntityType: q.get("entity_type"), EntityID: q.get("entity_id"), Action: q.get("action"), Page: page.page()}
	if err := q.done(); err != nil {
		return err
	}
	if infoOf(r).role == parley.KeyViewer {
		req.Without = "key" // a viewer looks at everything but keys
	}
	var items []store.Audit
	var total int
	if s.cfg.Audits != nil {
		var err error
		if items, total, err = s.cfg.Audits.Audits(r.Context(), req); err != nil {
			return err
		}
	}
	s.reply(w, r, http.StatusOK, makePage(mapped(items, makeAudit), total, page))
	return nil
}

func makeAudit(a store.Audit) auditBody {
	return auditBody{
		ID: a.ID, EntityType: a.EntityType, EntityID: a.EntityID, Action: a.Action,
		UserID: orNil(a.By), Changes: a.Changes, CreatedAt: a.At.UTC(),
	}
}
