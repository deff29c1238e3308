package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

// maxSmallFile bounds the files of addresses and keys, in bytes.
const maxSmallFile = 1 << 20

// target is the server that a command talks to.
type target struct {
	url string
	// from is where url was found, for people.
	from string
	key  parley.Secret
}

// connect makes the client of the server that the command line, the
// environment or the data folder names.
func (a *app) connect() (*client.Client, error) {
	t, err := a.target()
	if err != nil {
		return nil, err
	}
	// Whoever is told of a wrong URL has to know which of the places it is from.
	if _, err := client.New(client.Options{URL: t.url}); err != nil {
		return nil, invalidf("%s: %s", t.from, classify(err).text)
	}
	return client.New(client.Options{URL: t.url, Key: t.key, UserAgent: "parley-cli/" + buildVersion()})
}

// target finds the server: --context, then --url or PARLEY_URL, then the data
// folder of a local server. A key belongs to the place where the URL was
// found, unless --key or PARLEY_KEY gives one.
func (a *app) target() (target, error) {
	if a.flags.context != "" {
		return a.contextTarget(a.flags.context)
	}
	local, found, err := a.localTarget()
	if err != nil {
		return target{}, err
	}
	return a.targetBeside(local, found)
}

// targetBeside is the server that flags and the environment name, else the local
// one, if one was found.
func (a *app) targetBeside(local target, found bool) (t target, err error) {
	t = target{url: a.flags.url, from: "--url"}
	if t.url == "" {
		t.url, t.from = a.getenv("PARLEY_URL"), "PARLEY_URL"
	}
	key := a.flags.key
	switch {
	case t.url == "" && !found:
		f := &failure{exit: exitUnreachable, code: "unreachable", text: "no server is known: there is no running server's .parley/endpoint here or in a folder above"}
		return t, f.withHint("start one with: parley dev; or name one with --url, --context or PARLEY_URL, " +
			`one that was started with --data DATA with: --url "$(cat DATA/endpoint)" --key file:DATA/key`)
	case t.url == "":
		// Whoever can make a folder above the working directory must not get
		// a key that was meant for another server.
		if key == "" && onThisMachine(local.url) {
			key = a.getenv("PARLEY_KEY")
		}
		t = local
	default:
		if key == "" {
			key = a.getenv("PARLEY_KEY")
		}
		if found && strings.TrimRight(t.url, "/") == strings.TrimRight(local.url, "/") {
			t.key = local.key
		}
	}
	if key != "" {
		if t.key, err = a.secret("the key", key); err != nil {
			return t, err
		}
	}
	return t, nil
}

// secret takes a reference, or the secret itself; what names it for people.
func (a *app) secret(what, text string) (parley.Secret, error) {
	if name, ok := strings.CutPrefix(text, "env:"); ok {
		v := a.getenv(name)
		if v == "" {
			return parley.Secret{}, usagef("%s: the environment variable %s is not set", what, name)
		}
		return parley.NewSecret([]byte(v)), nil
	}
	if name, ok := strings.CutPrefix(text, "file:"); ok {
		b, err := readSmall(a.path(name))
		if err != nil {
			return parley.Secret{}, usagef("%s: %v", what, err)
		}
		if b = bytes.TrimSpace(withoutMark(b)); len(b) == 0 {
			return parley.Secret{}, usagef("%s: the file %s is empty", what, a.path(name))
		}
		return parley.NewSecret(b), nil
	}
	return parley.NewSecret([]byte(text)), nil
}

// reach gives the flags that a command typed here needs to find the server s, whose
// data folder is data; "" if it finds it without. They name the file of the key,
// never the key.
func (a *app) reach(s target, data string) string {
	typed := *a
	typed.flags = flags{}
	local, found, err := s, true, error(nil)
	if !sameFolder(typed.dataFolder(), data) {
		local, found, err = typed.localTarget()
	}
	if err == nil {
		local, err = typed.targetBeside(local, found)
	}
	if err == nil && strings.TrimRight(local.url, "/") == s.url && bytes.Equal(local.key.Reveal(), s.key.Reveal()) {
		return ""
	}
	return " --url " + shellWord(s.url) + " --key " + shellWord("file:"+filepath.Join(data, "key"))
}

// sameFolder reports whether two paths, of which each may be "", name one folder.
func sameFolder(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// dataFolder is the data folder of a local server: PARLEY_DATA, else the nearest
// folder .parley here or above; "" if there is none.
func (a *app) dataFolder() string {
	if data := a.getenv("PARLEY_DATA"); data != "" {
		return a.path(data)
	}
	return nearestData(a.dir)
}

// localTarget reads endpoint and key in the data folder. found is false without
// a running server.
func (a *app) localTarget() (t target, found bool, err error) {
	data := a.dataFolder()
	if data == "" {
		return t, false, nil
	}
	t.from = filepath.Join(data, "endpoint")
	endpoint, err := readSmall(t.from)
	if errors.Is(err, fs.ErrNotExist) {
		return t, false, nil
	}
	if err != nil {
		return t, false, usagef("the local server's address: %v", err)
	}
	t.url = strings.TrimSpace(string(endpoint))
	key, err := readSmall(filepath.Join(data, "key"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return t, false, &failure{exit: exitNotAllowed, code: parley.CodeUnauthorized, text: "the local server's key cannot be read: " + err.Error()}
	}
	t.key = parley.NewSecret(bytes.TrimSpace(key))
	return t, true, nil
}

// nearestData gives the folder .parley of dir or of its nearest ancestor that
// has one.
func nearestData(dir string) string {
	for {
		data := filepath.Join(dir, ".parley")
		if info, err := os.Stat(data); err == nil && info.IsDir() {
			return data
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

// onThisMachine reports whether a URL's host is this machine for sure.
func onThisMachine(text string) bool {
	u, err := url.Parse(text)
	if err != nil {
		return false
	}
	host := u.Hostname()
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return host == "localhost"
	}
	return addr.Unmap().IsLoopback() || addr.IsUnspecified()
}

// contextEntry is one server in the contexts file.
type contextEntry struct {
	URL string `yaml:"url"`
	// Key is a reference: env:NAME or file:PATH, relative to the file.
	Key string `yaml:"key"`
}

// contextTarget reads an entry of the contexts file.
func (a *app) contextTarget(name string) (target, error) {
	file := a.contextsFile()
	b, err := readSmall(file)
	if err != nil {
		return target{}, usagef("--context %s: %v", name, err).withHint("the file holds lines such as: %s: {url: https://parley.example.com, key: env:PARLEY_PROD_KEY}", name)
	}
	var entries map[string]contextEntry
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&entries); err != nil && !errors.Is(err, io.EOF) {
		return target{}, invalidf("%s: every entry is a name with the members url and key: %s", file, yamlText(err))
	}
	e, ok := entries[name]
	if !ok {
		var names []string
		for n := range entries {
			names = append(names, n)
		}
		slices.Sort(names)
		return target{}, usagef("no context %q in %s", name, file).withHint("%s", didYouMean(name, names))
	}
	t := target{url: e.URL, from: fmt.Sprintf("%s: context %q", file, name)}
	ref := a.flags.key
	if ref == "" {
		ref = e.Key
		path, isFile := strings.CutPrefix(ref, "file:")
		switch {
		case isFile && !filepath.IsAbs(path):
			ref = "file:" + filepath.Join(filepath.Dir(file), path)
		case ref != "" && !isFile && !strings.HasPrefix(ref, "env:"):
			return t, invalidf("%s: the key of %q must be a reference, env:NAME or file:PATH", file, name)
		}
	}
	if ref != "" {
		t.key, err = a.secret("the key of "+t.from, ref)
	}
	return t, err
}

func (a *app) contextsFile() string {
	base := a.getenv("XDG_CONFIG_HOME")
	if base == "" {
		base = filepath.Join(a.getenv("HOME"), ".config")
	}
	return filepath.Join(a.path(base), "parley", "contexts.yaml")
}

// yamlText is the decoder's complaint on one line, without values: they may be
// keys that somebody wrote where a reference belongs.
func yamlText(err error) string {
	if e, ok := errors.AsType[*yaml.TypeError](err); ok {
		line, _, _ := strings.Cut(e.Errors[0], ":")
		return line
	}
	return strings.TrimPrefix(err.Error(), "yaml: ")
}

// readSmall reads a file of at most maxSmallFile bytes.
func readSmall(name string) ([]byte, error) { return readFile(name, maxSmallFile) }

func readFile(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, name, limit)
}

func readAll(r io.Reader, name string, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, limit)
	}
	return b, nil
}

// hostOf gives a URL's host without the port.
func hostOf(u *url.URL) string {
	if h, _, err := net.SplitHostPort(u.Host); err == nil {
		return h
	}
	return u.Host
}
