package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestExportBreaksOff: an export that ends before its first page does leaves no
// file, since there is no cursor to go on with.
func TestExportBreaksOff(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wrote := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "{\"run\":{}}\n")
		w.(http.Flusher).Flush()
		close(wrote)
		<-r.Context().Done()
	}))
	defer s.Close()
	dir := t.TempDir()
	a := &app{
		stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard, dir: dir, now: time.Now, zone: time.UTC,
		terminal: func(io.Writer) (int, bool) { return 0, false },
	}
	file := filepath.Join(dir, "runs.ndjson")
	go func() {
		defer cancel()
		<-wrote
		for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); { // until the line is in the file
			if info, err := os.Stat(file); err == nil && info.Size() > 0 {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
		t.Error("the line is never in the file")
	}()
	if exit := a.execute(ctx, []string{"archive", "export", file, "--url", s.URL, "--key", "k"}); exit == exitDone {
		t.Error("exported")
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("a part of a page is left: %v", err)
	}
}

// TestExportToOutputBreaksOff: an export to standard output that ends between its pages
// says where to go on, too.
func TestExportToOutputBreaksOff(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("cursor") != "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Parley-Next-Cursor", "second")
		_, _ = io.WriteString(w, "{\"run\":{}}\n")
	}))
	defer s.Close()
	wrote, said := &strings.Builder{}, &strings.Builder{}
	a := &app{
		stdin: strings.NewReader(""), stdout: wrote, stderr: said, dir: t.TempDir(), now: time.Now, zone: time.UTC,
		terminal: func(io.Writer) (int, bool) { return 0, false },
	}
	if exit := a.execute(t.Context(), []string{"archive", "export", "-", "--url", s.URL, "--key", "k"}); exit == exitDone {
		t.Error("exported")
	}
	if want := "1 run was written; to go on, repeat the command with --cursor second"; wrote.String() != "{\"run\":{}}\n" || !strings.Contains(said.String(), want) {
		t.Errorf("wrote %q, said %s", wrote, said)
	}
}

// TestExportToAFullDisk: a compressed file whose last block is not whole is not gone on
// with, since what comes behind that is lost. One that is not compressed is.
func TestExportToAFullDisk(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is a /dev/full on Linux only")
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "{\"run\":{}}\n")
	}))
	defer s.Close()
	for name, say := range map[string]string{"runs.gz": "export anew", "runs.zst": "export anew", "runs": "--cursor here"} {
		dir, said := t.TempDir(), &strings.Builder{}
		if err := os.Symlink("/dev/full", filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		a := &app{
			stdin: strings.NewReader(""), stdout: io.Discard, stderr: said, dir: dir, now: time.Now, zone: time.UTC,
			terminal: func(io.Writer) (int, bool) { return 0, false },
		}
		if exit := a.execute(t.Context(), []string{"archive", "export", name, "--cursor", "here", "--url", s.URL, "--key", "k"}); exit == exitDone {
			t.Errorf("%s: exported", name)
		}
		if !strings.Contains(said.String(), say) || strings.Contains(said.String(), "--cursor here") != (name == "runs") {
			t.Errorf("%s: %s", name, said)
		}
	}
}
