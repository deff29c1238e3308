package testcache_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/parley-project/parley/internal/testcache"
)

func TestFolder(t *testing.T) {
	t.Setenv(testcache.Env, "here")
	t.Chdir(t.TempDir())
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if dir, err := testcache.Folder(); err != nil || dir != filepath.Join(wd, "here") {
		t.Errorf("the folder is %q, %v", dir, err)
	}
	t.Setenv(testcache.Env, "")
	t.Setenv("XDG_CACHE_HOME", "/cache")
	t.Setenv("HOME", "/home/x") // macOS
	if dir, err := testcache.Folder(); err != nil || filepath.Base(dir) != "parley-test" || !filepath.IsAbs(dir) {
		t.Errorf("the folder is %q, %v", dir, err)
	}
}

// TestOnce: however many want it at once, it is made once, and nobody gets it half.
func TestOnce(t *testing.T) {
	t.Setenv(testcache.Env, t.TempDir())
	var made atomic.Int64
	fill := func(fresh string) error {
		made.Add(1)
		return errors.Join(os.WriteFile(filepath.Join(fresh, "a"), []byte("1"), 0o600), os.WriteFile(filepath.Join(fresh, "b"), []byte("2"), 0o600))
	}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			dir, err := testcache.Once("thing-"+testcache.Digest([]byte("v1")), fill)
			if err != nil {
				t.Error(err)
				return
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
				t.Errorf("%d files, %v", len(entries), err)
			}
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
				t.Errorf("%v, %v: the user of the servers may not look into it", info.Mode(), err)
			}
		})
	}
	all.Wait()
	if made.Load() != 1 {
		t.Errorf("made %d times", made.Load())
	}
}

// TestOnceFails: what could not be made leaves nothing behind, and is tried again.
func TestOnceFails(t *testing.T) {
	home := filepath.Join(t.TempDir(), "deep", "cache")
	broken := errors.New("no network")
	_, err := testcache.OnceIn(home, "thing", func(fresh string) error {
		return errors.Join(os.WriteFile(filepath.Join(fresh, "half"), nil, 0o600), broken)
	})
	if !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(home, "*")); len(left) != 1 || filepath.Ext(left[0]) != ".lock" {
		t.Errorf("left behind: %q", left)
	}
	if dir, err := testcache.OnceIn(home, "thing", func(string) error { return nil }); err != nil || dir != filepath.Join(home, "thing") {
		t.Errorf("the second time: %q, %v", dir, err)
	}
}

// TestProgram: however many want a program at once, it is built once, and again when
// its source has changed; what does not build says why.
func TestProgram(t *testing.T) {
	t.Setenv(testcache.Env, t.TempDir())
	module := t.TempDir()
	t.Chdir(module)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(module, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	says := func(word string) {
		write("main.go", "package main\n\nfunc main() { print(\""+word+"\") }\n")
	}
	write("go.mod", "module example.com/greeter\n\ngo 1.26\n")
	says("hello")
	first, err := testcache.Program(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.Open(first) // so that nothing else gets its place on the disk
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	linked, err := kept.Stat()
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			file, err := testcache.Program(t.Context(), ".")
			if err != nil {
				t.Error(err)
				return
			}
			if info, err := os.Stat(file); err != nil || !os.SameFile(info, linked) {
				t.Errorf("linked anew, %v", err)
			}
		})
	}
	all.Wait()
	says("good evening")
	file, err := testcache.Program(t.Context(), "example.com/greeter")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(file).CombinedOutput(); err != nil || string(out) != "good evening" {
		t.Errorf("it says %q, %v", out, err)
	}
	write("main.go", "package main\n\nfunc main() { missing() }\n")
	if _, err := testcache.Program(t.Context(), "."); err == nil || !strings.Contains(err.Error(), "undefined: missing") {
		t.Errorf("a program that does not build: %v", err)
	}
}
