package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
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
		{"a key in a file of an editor on Windows", here, nil, flags{key: "file:../../home/parley/windows"}, here, "marked"},
		{"a context with another key", here, nil, flags{context: "prod", key: "env:OTHER"}, away, "other"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, ".parley/endpoint", tt.endpoint+"\n")
			write(t, dir, ".parley/key", "data\n")
			write(t, dir, "home/parley/contexts.yaml", "prod: {url: \""+away+"\", key: env:PROD}\nfile: {url: \""+away+"\", key: file:k}\nopen: {url: \""+away+"\"}\n")
			write(t, dir, "home/parley/k", "beside\n")
			write(t, dir, "home/parley/windows", "\ufeffmarked\r\n")
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

// TestReach: the commands that a server proposes say where it is, unless they
// find it and its key as they stand.
func TestReach(t *testing.T) {
	t.Parallel()
	const here, away = "http://127.0.0.1:8420", "http://127.0.0.1:9"
	for _, tt := range []struct {
		name, data, dir string
		env             []string
		want            string
	}{
		{name: "its folder", data: ".parley"},
		{name: "a folder below", data: ".parley", dir: "a/b"},
		{name: "by another name of the folder", data: "link"},
		{name: "another folder", data: "some where/d", want: " --url " + here + " --key 'file:DIR/some where/d/key'"},
		{name: "a nearer folder", data: ".parley", dir: "near", want: " --url " + here + " --key file:DIR/.parley/key"},
		{name: "a folder that the environment names", data: "d", env: []string{"PARLEY_DATA=d"}},
		{name: "but this one is another", data: ".parley", env: []string{"PARLEY_DATA=d"}, want: " --url " + here + " --key file:DIR/.parley/key"},
		{name: "a server that the environment names", data: ".parley", env: []string{"PARLEY_URL=" + away}, want: " --url " + here + " --key file:DIR/.parley/key"},
		{name: "which is this one", data: ".parley", env: []string{"PARLEY_URL=" + here + "/"}},
		{name: "which is this one, elsewhere", data: "d", env: []string{"PARLEY_URL=" + here}, want: " --url " + here + " --key file:DIR/d/key"},
		{name: "and its key", data: "d", env: []string{"PARLEY_URL=" + here, "PARLEY_KEY=data"}},
		{name: "a key that the environment names", data: ".parley", env: []string{"PARLEY_KEY=other"}, want: " --url " + here + " --key file:DIR/.parley/key"},
		{name: "a key that cannot be read", data: ".parley", env: []string{"PARLEY_KEY=file:nowhere"}, want: " --url " + here + " --key file:DIR/.parley/key"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, data := range []string{".parley", "d", "some where/d", "near/.parley"} {
				write(t, dir, data+"/key", "data\n")
			}
			write(t, dir, "a/b/x", "")
			if err := os.Symlink(".parley", filepath.Join(dir, "link")); err != nil {
				t.Fatal(err)
			}
			a := newTestApp(io.Discard, io.Discard)
			a.dir, a.env = filepath.Join(dir, tt.dir), tt.env
			// Flags of the server's own command are none of those that follow.
			a.flags = flags{url: away, key: "other", context: "prod"}
			got := a.reach(target{url: here, key: parley.NewSecret([]byte("data"))}, filepath.Join(dir, tt.data))
			if want := strings.ReplaceAll(tt.want, "DIR", dir); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}
