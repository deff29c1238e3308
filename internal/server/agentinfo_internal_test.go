package server

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/registry"
)

// awayStore gives no agent.
type awayStore struct {
	registry.Store
	err error
}

func (s awayStore) Agent(context.Context, string) (parley.Agent, error) {
	return parley.Agent{}, s.err
}

// TestAgentInfo_WhatPasses: an agent that cannot be looked up now is not one that there
// is not, and a record that nobody can read does not keep runs waiting.
func TestAgentInfo_WhatPasses(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for name, c := range map[string]struct {
		ctx    context.Context //nolint:containedctx // it is that of one call
		err    error
		passes bool
	}{
		"away":       {t.Context(), parley.Errorf(parley.CodeUnavailable, "the database is away"), true},
		"given up":   {ended, context.Canceled, true},
		"not there":  {t.Context(), parley.Errorf(parley.CodeNotFound, "there is no agent"), false},
		"unreadable": {t.Context(), errors.New("its JSON cannot be read"), false},
	} {
		s := &Server{registry: registry.New(registry.Config{Store: awayStore{err: c.err}, Now: time.Now})}
		if info, ok := s.agentInfo(c.ctx, "writer"); ok || (info.Err != nil) != c.passes {
			t.Errorf("%s: %v, %v", name, ok, info.Err)
		}
	}
}
