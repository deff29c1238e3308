package files_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/parley-project/parley/internal/values"
	"github.com/parley-project/parley/internal/values/files"
	"github.com/parley-project/parley/internal/values/valuestest"
)

func TestContract(t *testing.T) {
	valuestest.Run(t, func(t *testing.T) values.Store { return files.Open(filepath.Join(t.TempDir(), "values")) })
}

// A folder that is away is not one whose objects are gone.
func TestFolderAway(t *testing.T) {
	s := files.Open(filepath.Join(t.TempDir(), "values"))
	_, err := s.Get(t.Context(), valuestest.NameOf([]byte("a"), "00"), 1)
	if err == nil || errors.Is(err, values.ErrGone) {
		t.Errorf("a folder that is not mounted: %v", err)
	}
}

// What was begun and never finished is no object; after a day it is removed.
func TestUnfinished(t *testing.T) {
	dir := t.TempDir()
	s := files.Open(dir)
	name := valuestest.NameOf([]byte("a"), "00")
	if err := s.Put(t.Context(), name, []byte("a")); err != nil {
		t.Fatal(err)
	}
	old, young := filepath.Join(dir, name[:2], ".new-1"), filepath.Join(dir, name[:2], ".new-2")
	for _, file := range []string{old, young} {
		if err := os.WriteFile(file, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	yesterday := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(old, yesterday, yesterday); err != nil {
		t.Fatal(err)
	}
	list, err := s.List(t.Context(), "", 10)
	if err != nil || len(list) != 1 || list[0].Name != name {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := os.Stat(old); err == nil {
		t.Error("the old one is still there")
	}
	if _, err := os.Stat(young); err != nil {
		t.Error("somebody may still be writing the young one")
	}
	info, err := os.Stat(filepath.Join(dir, name))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// A folder that was removed while it was empty is made again.
func TestFolderRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "values")
	s := files.Open(dir)
	name := valuestest.NameOf([]byte("a"), "00")
	for range 2 {
		if err := s.Put(t.Context(), name, []byte("a")); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}
