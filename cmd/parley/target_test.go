package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// write makes a file below dir.
func write(t *testing.T, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A key goes to the server that it belongs to and to no other.
func TestTarget(t *testing.T) {
	t.Parallel()
	const here, away = "http://127.0.0.1:8420", "https://parley.example.com"
	for _, tt := range []struct {
		name     string
		endpoint string
		env      []string
		flags    flags
		url, key string
	}{
		{"found", here, nil, flags{}, here, "data"},
		{"found, with the environment's key", here, []string{"PARLEY_KEY=env"}, flags{}, here, "env"},
		{"an address that somebody planted does not get the environment's key", away, []string{"PARLEY_KEY=env"}, flags{}, away, "data"},
		{"but it gets the one that is given with the command", away, []string{"PARLEY_KEY=env"}, flags{key: "flag"}, away, "flag"},
		{"elsewhere without a key", here, nil, flags{url: away}, away, ""},
		{"elsewhere with a key", here, []string{"PARLEY_URL=" + away, "PARLEY_KEY=env"}, flags{}, away, "env"},
		{"the flag before the environment", here, []string{"PARLEY_URL=http://other", "PARLEY_KEY=env"}, flags{url: away, key: "flag"}, away, "flag"},
		{"the same server by its address", here, nil, flags{url: here + "/"}, here + "/", "data"},
		{"every address of this machine", "http://0.0.0.0:8420", []string{"PARLEY_KEY=env"}, flags{}, "http://0.0.0.0:8420", "env"},
		{"a name that only looks like this machine", "http://127.0.0.1.example.com", []string{"PARLEY_KEY=env"}, flags{}, "http://127.0.0.1.example.com", "data"},
		{"a context", here, []string{"PARLEY_KEY=env", "PROD=prod"}, flags{context: "prod"}, away, "prod"},
		{"a context whose key is in a file beside it", here, []string{"PARLEY_KEY=env"}, flags{context: "file"}, away, "beside"},
		{"a context without a key", here, []string{"PARLEY_KEY=env"}, flags{context: "open"}, away, ""},
		{"a context with another key", here, nil, flags{context: "prod", key: "env:OTHER"}, away, "other"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, ".parley/endpoint", tt.endpoint+"\n")
			write(t, dir, ".parley/key", "data\n")
			write(t, dir, "home/parley/contexts.yaml", "prod: {url: \""+away+"\", key: env:PROD}\nfile: {url: \""+away+"\", key: file:k}\nopen: {url: \""+away+"\"}\n")
			write(t, dir, "home/parley/k", "beside\n")
			write(t, dir, "a/b/x", "")
			a := newTestApp(io.Discard, io.Discard)
			a.dir, a.flags = filepath.Join(dir, "a", "b"), tt.flags
			a.env = append(tt.env, "OTHER=other", "XDG_CONFIG_HOME="+filepath.Join(dir, "home"))
			got, err := a.target()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{tt.url, tt.key}, []string{got.url, string(got.key.Reveal())}); diff != "" {
				t.Error(diff)
			}
		})
	}
}
