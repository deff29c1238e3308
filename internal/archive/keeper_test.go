package archive

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/values"
	"github.com/parley-project/parley/internal/values/files"
)

// failing is a store of values that gives none.
type failing struct {
	values.Store
	fails bool
}

func (s *failing) Get(ctx context.Context, name string, most int64) ([]byte, error) {
	if s.fails {
		return nil, errors.New("away")
	}
	return s.Store.Get(ctx, name, most)
}

// TestC7_ArchiveBesideValuesThatAreAway: while the values of a run cannot be fetched it is
// not known whether it is here as the archive has it: that is no conflict.
func TestC7_ArchiveBesideValuesThatAreAway(t *testing.T) {
	s := &failing{Store: files.Open(filepath.Join(t.TempDir(), "values"))}
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "parley.db"), store.Options{Values: s, ApartAbove: 1000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	line := Encode(&store.Archived{
		Run: store.Run{ID: "run-1", Workflow: "any", Name: "any", Seq: 1, Status: parley.RunCompleted, CreatedAt: at(0), UpdatedAt: at(1), EndedAt: at(1)},
		Events: []parley.Event{{
			Seq: 1, At: at(1), Type: parley.EventRunCompleted, Run: "run-1", Data: json.RawMessage(`{"output":"` + strings.Repeat("x", 5000) + `"}`),
		}},
	})
	k := Keeper{DB: db, Check: func(context.Context, *store.Archived) error { return nil }, Now: func() time.Time { return at(2) }}
	if res, err := k.Add(t.Context(), line); err != nil || res.Outcome != parley.ArchiveAdded {
		t.Fatalf("%+v, %v", res, err)
	}
	s.fails = true
	if res, err := k.Add(t.Context(), line); parley.CodeOf(err) != parley.CodeUnavailable {
		t.Errorf("while its value is away: %+v, %v", res, err)
	}
	s.fails = false
	if res, err := k.Add(t.Context(), line); err != nil || res.Outcome != parley.ArchiveSame {
		t.Errorf("when it is back: %+v, %v", res, err)
	}
}
