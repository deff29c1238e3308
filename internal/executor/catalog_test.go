package executor_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/executor"
)

// TestCatalogReplace: a version takes the place of the one that it was made of, and
// leaves the workflow switched off if it is.
func TestCatalogReplace(t *testing.T) {
	onStore(t, func(r *rig) {
		n := 0
		catalog := executor.NewCatalog(executor.CatalogConfig{
			DB: r.db, Executor: r.x, Now: time.Now, NewID: func() string { n++; return fmt.Sprintf("definition-%d", n) },
			KnownAgent: func(context.Context, string) bool { return true },
		})
		apply := func(req parley.ApplyRequest) (parley.WorkflowVersion, error) {
			v, _, err := catalog.Apply(r.t.Context(), req)
			return v, err
		}
		one, err := apply(parley.ApplyRequest{Source: []byte("name: w\nsteps:\n  - {id: a, agent: writer}\n")})
		check(r.t, err)
		_, err = apply(parley.ApplyRequest{Replace: one.ID, Status: parley.AgentInactive})
		check(r.t, err)
		two := parley.ApplyRequest{Source: []byte("name: w\nsteps:\n  - {id: b, agent: writer}\n"), Replace: one.ID, Base: one.Number}
		v, err := apply(two)
		check(r.t, err)
		if v.Status != parley.AgentInactive || v.ID != one.ID {
			r.t.Errorf("it is %+v", v)
		}
		_, err = apply(two)
		wantCode(r.t, err, parley.CodeConflict, "was changed meanwhile: version 2 is its newest now")
	})
}
