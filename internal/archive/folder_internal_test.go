package archive

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestC7_AFolderOfTheArchiveIsDurable: the names of a new file and of the folders that lead
// to it are on the disk before a line is: runs are removed for having lines there. What
// failed is done again, and a folder that was there need not be ours.
func TestC7_AFolderOfTheArchiveIsDurable(t *testing.T) {
	root := t.TempDir()
	refused := errors.New("no")
	var synced []string
	var refuse string
	f := Folder{Dir: filepath.Join(root, "a", "b")}
	f.sync = func(dir string) error {
		if data, _ := os.ReadFile(f.File(time.Unix(0, 0))); len(data) > 0 {
			t.Errorf("there are lines before %s is synced", dir)
		}
		if dir == refuse {
			return refused
		}
		synced = append(synced, dir)
		return nil
	}
	add := func() error {
		synced = nil
		return f.Append(time.Unix(0, 0), []byte("{}\n"))
	}
	has := func(dirs ...string) {
		t.Helper()
		for _, dir := range dirs {
			if !slices.Contains(synced, filepath.Join(root, dir)) {
				t.Errorf("%s is not synced: %q", dir, synced)
			}
		}
	}
	refuse = root
	if err := add(); !errors.Is(err, refused) {
		t.Fatalf("the name of a new folder is not kept: %v", err)
	}
	refuse = filepath.Dir(root)
	if err := add(); err != nil {
		t.Fatal(err)
	}
	has("a/b", "a", "")
	if err := add(); err != nil || len(synced) > 0 {
		t.Errorf("lines behind others: %v, %q", err, synced)
	}
	data, err := os.ReadFile(f.File(time.Unix(0, 0)))
	if err != nil || string(data) != "{}\n{}\n" {
		t.Errorf("%q, %v", data, err)
	}
}
