package executor

import (
	"context"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// deployingStore gives version 1 of a workflow once, and deploys version 2 while it
// does.
type deployingStore struct {
	Store
	version string
	deploy  func()
}

func (s *deployingStore) Definition(context.Context, string) (store.Definition, error) {
	row := store.Definition{
		ID: "d" + s.version, Workflow: "w", Name: "w", Version: s.version, Status: parley.AgentActive,
		Source: []byte(`{"name":"w","steps":[{"id":"a","set":1}]}`),
	}
	if s.version == "1" {
		s.version = "2"
		s.deploy()
	}
	return row, nil
}

// TestS11_WhatWasAskedBeforeADeployIsNotKept: who starts a workflow by its name once a
// version is deployed here gets that version, whoever else has asked meanwhile.
func TestS11_WhatWasAskedBeforeADeployIsNotKept(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := &deployingStore{version: "1"}
	d := newDefinitions(s, func() time.Time { return now })
	s.deploy = d.forget
	for _, want := range []string{"1", "2", "2"} {
		v, err := d.resolve(t.Context(), "w")
		if err != nil {
			t.Fatal(err)
		}
		if v.row.Version != want {
			t.Errorf("the name means version %s, want %s", v.row.Version, want)
		}
	}
}
