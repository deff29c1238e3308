package keyfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// TestCreateTogether: of processes that make a key at the same time one does, none
// finds half of it, and nothing else is left.
func TestCreateTogether(t *testing.T) {
	for range 20 {
		dir := t.TempDir()
		file := filepath.Join(dir, "key")
		found := make([]string, 8)
		begin := make(chan struct{})
		var all sync.WaitGroup
		for i := range found {
			all.Go(func() {
				<-begin
				if err := Create(file, fmt.Appendf(nil, "%d %s", i, strings.Repeat("k", 64<<10))); err != nil {
					t.Error(err)
				}
				text, err := os.ReadFile(file)
				if err != nil {
					t.Error(err)
				}
				found[i] = string(text)
			})
		}
		close(begin)
		all.Wait()
		for _, text := range found {
			if text != found[0] || len(text) != len("0 ")+64<<10 {
				t.Fatalf("one finds %d bytes that begin with %.3q, another %d with %.3q", len(text), text, len(found[0]), found[0])
			}
		}
		left, err := os.ReadDir(dir)
		if err != nil || len(left) != 1 {
			t.Fatalf("left in the folder: %v, %v", left, err)
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Fatalf("mode %v", info.Mode())
		}
	}
}

// TestCreateWithoutLinks: a file system without hard links has keys, too, and none
// is replaced there either.
func TestCreateWithoutLinks(t *testing.T) {
	for _, refusal := range []error{syscall.EPERM, errors.ErrUnsupported} {
		file := filepath.Join(t.TempDir(), "key")
		none := func(from, to string) error { return &os.LinkError{Op: "link", Old: from, New: to, Err: refusal} }
		for _, text := range []string{"first", "second"} {
			if err := create(file, []byte(text), none); err != nil {
				t.Fatal(err)
			}
		}
		if text, err := os.ReadFile(file); err != nil || string(text) != "first" {
			t.Errorf("the file holds %q, %v", text, err)
		}
	}
}

// TestCreateFails: what cannot be written is told, and leaves nothing.
func TestCreateFails(t *testing.T) {
	if err := Create(filepath.Join(t.TempDir(), "none", "key"), []byte("k")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in a folder that is not there: %v", err)
	}
	dir := t.TempDir()
	broken := errors.New("broken")
	if err := create(filepath.Join(dir, "key"), []byte("k"), func(string, string) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("Create: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
}
