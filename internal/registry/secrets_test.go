package registry_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/registry"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSecretsReferences(t *testing.T) {
	f := newFixture(t)
	outside := t.TempDir()
	write(t, outside+"/passwd", "must-not-be-read")
	write(t, f.dir+"/token", "from-a-file\n")
	write(t, f.dir+"/windows", "from-windows\r\n")
	write(t, f.dir+"/marked", "\ufefffrom-windows\r\n")
	write(t, f.dir+"/two", "line\n\n")
	write(t, f.dir+"/sub/deep", "deep")
	write(t, f.dir+"/empty", "\n")
	write(t, f.dir+"/full", strings.Repeat("x", 64<<10)+"\n")
	write(t, f.dir+"/fullmarked", "\ufeff"+strings.Repeat("x", 64<<10)+"\r\n")
	write(t, f.dir+"/overmarked", "\ufeff"+strings.Repeat("x", 70_000)+"\r\n")
	write(t, f.dir+"/over", strings.Repeat("x", 64<<10+1))
	for name, to := range map[string]string{"inner": "token", "out": outside + "/passwd", "up": "../" + filepath.Base(outside) + "/passwd"} {
		if err := os.Symlink(to, filepath.Join(f.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(f.dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	f.env["AGENT_EMPTY"] = ""
	f.env["AGENT_LARGE"] = strings.Repeat("x", 64<<10+1)
	tests := []struct {
		ref, want string
		code      parley.Code // if it fails
		text      string
	}{
		{ref: "env:AGENT_TOKEN", want: "from-the-env"},
		{ref: "env:AGENT_ABSENT", code: parley.CodeUnavailable, text: "secret env:AGENT_ABSENT does not exist; set the variable"},
		{ref: "env:AGENT_EMPTY", code: parley.CodeUnavailable, text: "is empty"},
		{ref: "env:AGENT_LARGE", code: parley.CodeUnavailable, text: "larger than 65536 bytes"},
		{ref: "env:OTHER", code: parley.CodeInvalid, text: "begin with AGENT_ (secrets.env_prefix)"},
		{ref: "env:agent_token", code: parley.CodeInvalid, text: "begin with"},
		{ref: "env:", code: parley.CodeInvalid, text: "name of a variable"},
		{ref: "env:AGENT_A=B", code: parley.CodeInvalid, text: "name of a variable"},
		{ref: "file:token", want: "from-a-file"},
		{ref: "file:" + f.dir + "/token", want: "from-a-file"},
		{ref: "file:windows", want: "from-windows"},
		{ref: "file:marked", want: "from-windows"},
		{ref: "file:two", want: "line\n"},
		{ref: "file:sub/deep", want: "deep"},
		{ref: "file:sub/../token", want: "from-a-file"},
		{ref: "file:inner", want: "from-a-file"},
		{ref: "file:full", want: strings.Repeat("x", 64<<10)},
		{ref: "file:fullmarked", want: strings.Repeat("x", 64<<10)},
		{ref: "file:overmarked", code: parley.CodeUnavailable, text: "larger than 65536 bytes"},
		{ref: "file:over", code: parley.CodeUnavailable, text: "larger than 65536 bytes"},
		{ref: "file:empty", code: parley.CodeUnavailable, text: "is empty; write the secret"},
		{ref: "file:absent", code: parley.CodeUnavailable, text: "does not exist; put the file below secrets.dir"},
		{ref: "file:sub", code: parley.CodeUnavailable, text: "cannot be read"},
		{ref: "file:pipe", code: parley.CodeUnavailable, text: "cannot be read"},
		{ref: "file:out", code: parley.CodeUnavailable, text: "cannot be read"},
		{ref: "file:up", code: parley.CodeUnavailable, text: "cannot be read"},
		{ref: "file:../x", code: parley.CodeInvalid, text: "below secrets.dir"},
		{ref: "file:sub/../../x", code: parley.CodeInvalid, text: "below secrets.dir"},
		{ref: "file:/etc/passwd", code: parley.CodeInvalid, text: "below secrets.dir"},
		{ref: "file:", code: parley.CodeInvalid, text: "below secrets.dir"},
		{ref: "file:.", code: parley.CodeInvalid, text: "below secrets.dir"},
		{ref: "file:a\x00b", code: parley.CodeInvalid, text: "below secrets.dir"},
		{ref: "", code: parley.CodeInvalid, text: "env:NAME or file:PATH"},
		{ref: "vault:x", code: parley.CodeInvalid, text: "env:NAME or file:PATH"},
		{ref: "c4nary-itself", code: parley.CodeInvalid, text: "env:NAME or file:PATH"},
		{ref: "sealed:c4nary!", code: parley.CodeUnavailable, text: "damaged"},
		{ref: "sealed:YWJj", code: parley.CodeUnavailable, text: "key file of sealed secrets is missing; bring it back (what secrets.key_file names, or agents.key in the data folder) or"},
	}
	for _, tt := range tests {
		t.Run(strings.ReplaceAll(tt.ref, "/", "|"), func(t *testing.T) {
			got, err := f.secrets.Resolve(tt.ref)
			if string(got.Reveal()) != tt.want || parley.CodeOf(err) != tt.code {
				t.Fatalf("got %.40q, %v; want %.40q, code %q", got.Reveal(), err, tt.want, tt.code)
			}
			if err != nil && !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%v: want a text with %q", err, tt.text)
			}
			if err != nil && strings.Contains(err.Error(), "c4nary") {
				t.Errorf("%v quotes what may be the secret", err)
			}
			// What is refused as such is refused when it is given, not only when it
			// is used. Nobody gives sealed ones.
			if err := f.secrets.Check(tt.ref); (err != nil) != (tt.code == parley.CodeInvalid || strings.HasPrefix(tt.ref, "sealed:")) {
				t.Errorf("Check: %v", err)
			}
		})
	}
}

func TestSecretsAreOffUntilConfigured(t *testing.T) {
	s := registry.NewSecrets(registry.SecretsConfig{LookupEnv: os.LookupEnv})
	for ref, want := range map[string]string{"env:HOME": "secrets.env_prefix", "file:x": "secrets.dir"} {
		if _, err := s.Resolve(ref); parley.CodeOf(err) != parley.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("Resolve(%s): %v; want invalid, naming %s", ref, err, want)
		}
	}
	if _, err := s.Seal(parley.NewSecret([]byte("x"))); parley.CodeOf(err) != parley.CodeUnavailable || !strings.Contains(err.Error(), "no key file") {
		t.Errorf("Seal without a key file: %v", err)
	}
}

func TestSealAndOpen(t *testing.T) {
	f := newFixture(t)
	sealed, err := f.secrets.Seal(parley.NewSecret([]byte("c4nary")))
	if err != nil {
		t.Fatal(err)
	}
	blob, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sealed, "sealed:"))
	if err != nil || bytes.Contains(blob, []byte("c4nary")) || !bytes.HasPrefix(blob, []byte("age-encryption.org/v1\n")) {
		t.Errorf("%v: not sealed by age: %.60q", err, blob)
	}
	info, err := os.Stat(f.key)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("key file: mode %v, %v; want 0600", info.Mode(), err)
	}
	entries, err := os.ReadDir(filepath.Dir(f.key))
	if err != nil || len(entries) != 1 {
		t.Errorf("beside the key file: %v, %v; want nothing", entries, err)
	}
	if got, err := f.secrets.Resolve(sealed); err != nil || string(got.Reveal()) != "c4nary" {
		t.Errorf("opened: %q, %v", got.Reveal(), err)
	}
	// Another process with the same key file, and sealing again.
	other := registry.NewSecrets(registry.SecretsConfig{KeyFile: f.key})
	if got, err := other.Resolve(sealed); err != nil || string(got.Reveal()) != "c4nary" {
		t.Errorf("opened elsewhere: %q, %v", got.Reveal(), err)
	}
	again, err := other.Seal(parley.NewSecret([]byte("c4nary")))
	if err != nil || again == sealed {
		t.Errorf("the same secret sealed twice looks the same: %v", err)
	}
	if got, err := f.secrets.Resolve(again); err != nil || string(got.Reveal()) != "c4nary" {
		t.Errorf("what the other sealed: %q, %v", got.Reveal(), err)
	}
	for name, secret := range map[string]string{"empty": "", "large": strings.Repeat("x", 64<<10+1)} {
		if _, err := f.secrets.Seal(parley.NewSecret([]byte(secret))); parley.CodeOf(err) != parley.CodeInvalid {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
}

func TestSealedButTheKeyIsWrong(t *testing.T) {
	f := newFixture(t)
	sealed, err := f.secrets.Seal(parley.NewSecret([]byte("c4nary")))
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(f.key)
	if err != nil {
		t.Fatal(err)
	}
	damaged := sealed[:len(sealed)-8] + "AAAAAAA="
	tests := []struct {
		name string
		ref  string
		make func(path string) error
		want string
	}{
		{"missing", sealed, func(string) error { return nil }, "key file of sealed secrets is missing; bring it back (what secrets.key_file names, or agents.key in the data folder) or"},
		{"another", sealed, func(p string) error {
			_, err := registry.NewSecrets(registry.SecretsConfig{KeyFile: p}).Seal(parley.NewSecret([]byte("x")))
			return err
		}, "sealed with another key; bring back its key file (what secrets.key_file names, or agents.key in the data folder) or"},
		{"others may read it", sealed, func(p string) error { return os.WriteFile(p, key, 0o644) }, "chmod 600"},
		{"nonsense", sealed, func(p string) error { return os.WriteFile(p, []byte("AGE-SECRET-KEY-1C4NARY\n"), 0o600) }, "holds no AGE-SECRET-KEY-1"},
		{"empty", sealed, func(p string) error { return os.WriteFile(p, nil, 0o600) }, "holds no AGE-SECRET-KEY-1"},
		{"a folder", sealed, func(p string) error { return os.Mkdir(p, 0o700) }, "cannot be used"},
		{"right, but damaged", damaged, func(p string) error { return os.WriteFile(p, key, 0o600) }, "is damaged"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "key")
			if err := tt.make(path); err != nil {
				t.Fatal(err)
			}
			_, err := registry.NewSecrets(registry.SecretsConfig{KeyFile: path}).Resolve(tt.ref)
			if parley.CodeOf(err) != parley.CodeUnavailable || !strings.Contains(err.Error(), tt.want) || strings.Contains(strings.ToLower(err.Error()), "c4nary") {
				t.Errorf("%v; want unavailable, %q", err, tt.want)
			}
			if tt.name != "missing" {
				return
			}
			// Opening never makes a key: that would hide the loss.
			if _, err := os.Stat(path); !os.IsNotExist(err) {
				t.Errorf("a key file came into being: %v", err)
			}
		})
	}
}

// Two servers that start at once on one folder agree on one key.
func TestKeyFileIsMadeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "key")
	const n = 8
	var all [n]*registry.Secrets
	var sealed [n]string
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			all[i] = registry.NewSecrets(registry.SecretsConfig{KeyFile: path})
			var err error
			if sealed[i], err = all[i].Seal(parley.NewSecret(fmt.Appendf(nil, "secret %d", i))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range n {
		got, err := all[(i+1)%n].Resolve(sealed[i])
		if want := fmt.Sprintf("secret %d", i); err != nil || string(got.Reveal()) != want {
			t.Errorf("%q, %v; want %q", got.Reveal(), err, want)
		}
	}
}

func TestSecretsTellWhatTheySaw(t *testing.T) {
	var seen []string
	s := registry.NewSecrets(registry.SecretsConfig{
		KeyFile: t.TempDir() + "/key", EnvPrefix: "A", LookupEnv: func(string) (string, bool) { return "env value", true },
		Seen: func(s parley.Secret) { seen = append(seen, string(s.Reveal())) },
	})
	sealed, err := s.Seal(parley.NewSecret([]byte("literal")))
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"env:A", sealed} {
		if _, err := s.Resolve(ref); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Join(seen, ","); got != "literal,env value,literal" {
		t.Errorf("seen %s", got)
	}
}

// No way of looking at an agent, its specification or an error about them shows
// a credential.
func TestCanaryOfCredentials(t *testing.T) {
	const canary = "c4nary-credential"
	f := newFixture(t)
	f.env["AGENT_CANARY"] = canary
	var agents []parley.Agent
	for name, auth := range map[string]parley.AuthSpec{
		"literal":   {Type: parley.AuthBearer, Literal: parley.NewSecret([]byte(canary))},
		"reference": {Type: parley.AuthBearer, Secret: "env:AGENT_CANARY"},
	} {
		s := spec(name)
		s.Auth = &auth
		agents = append(agents, f.mustAdd(t, s))
		looked, err := f.Lookup(t.Context(), name)
		if err != nil || string(looked.Credential.Reveal()) != canary {
			t.Fatalf("%s: credential %q, %v", name, looked.Credential.Reveal(), err)
		}
		agents = append(agents, looked)
	}
	bad := func(s parley.AgentSpec) error { _, err := f.Add(t.Context(), s); return err }
	withAuth := func(a parley.AuthSpec) parley.AgentSpec { s := spec("bad"); s.Auth = &a; return s }
	_, oldErr := registry.AuthFromOld("none", json.RawMessage(`{"token":"`+canary+`"}`))
	_, oldErr2 := registry.AuthFromOld("bearer", json.RawMessage(`{"token":["`+canary+`"]}`))
	_, oldErr3 := registry.AuthFromOld("bearer", json.RawMessage(`{"token":`+canary+`}`))
	_, problems := registry.LoadFile("a.yaml", []byte("agents: [{name: a, url: 'http://u:"+canary+"@h', auth: {type: bearer, secret: "+canary+"}}, {name: b, url: 'http://h', auth: {type: none, token: "+canary+"}}]"))
	values := map[string]any{
		"agents": agents,
		"errors": []any{
			bad(withAuth(parley.AuthSpec{Type: parley.AuthBearer, Secret: canary})),
			bad(withAuth(parley.AuthSpec{Type: canary, Literal: parley.NewSecret([]byte(canary))})),
			bad(withAuth(parley.AuthSpec{Type: parley.AuthBearer, Literal: parley.NewSecret([]byte(canary + "\n"))})),
			bad(parley.AgentSpec{Name: new("bad"), URL: new("http://user:" + canary + "@host/")}),
			bad(parley.AgentSpec{Name: new("bad"), URL: new("http://user:" + canary)}),
			bad(parley.AgentSpec{Name: new("bad"), URL: new("http://user:" + canary + "%zz@host/")}),
			oldErr, oldErr2, oldErr3, problems,
		},
		"spec": withAuth(parley.AuthSpec{Literal: parley.NewSecret([]byte(canary))}),
	}
	hidden := func(how, out string) {
		t.Helper()
		low := strings.ToLower(out)
		for _, part := range []string{"c4nary", fmt.Sprintf("%x", "c4nary"), base64.StdEncoding.EncodeToString([]byte(canary))[:8]} {
			if strings.Contains(low, strings.ToLower(part)) {
				t.Errorf("%s shows %q in %.300s", how, part, out)
			}
		}
	}
	for name, v := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%q", "%x", "%s", "%d"} {
			hidden(name+" "+verb, fmt.Sprintf(verb, v))
		}
		b, err := json.Marshal(v)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		hidden(name+" json", string(b))
		var out bytes.Buffer
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", "v", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "v", v)
		hidden(name+" slog", out.String())
	}
	for _, e := range values["errors"].([]any) {
		for err, ok := e.(error); ok && err != nil; {
			hidden("error text", err.Error())
			u, more := err.(interface{ Unwrap() error })
			if !more {
				break
			}
			err = u.Unwrap()
		}
	}
	if entries, err := fs.Glob(os.DirFS(filepath.Dir(f.key)), "*"); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}
