package registry

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unicode/utf8"

	"filippo.io/age"

	"github.com/parley-project/parley"
)

// The forms of a reference to a secret.
const (
	refEnv    = "env:"
	refFile   = "file:"
	refSealed = "sealed:"
)

// maxSecret bounds one secret, in bytes; maxRef one reference, in bytes.
const (
	maxSecret = 64 << 10
	maxRef    = 4 << 10
)

// SecretsConfig says where secrets may come from. What is not set is refused.
type SecretsConfig struct {
	// Dir is the folder that "file:" references stay below (secrets.dir).
	Dir string
	// EnvPrefix begins every variable that "env:" references may name
	// (secrets.env_prefix).
	EnvPrefix string
	// LookupEnv reads a variable, as [os.LookupEnv] does.
	LookupEnv func(string) (string, bool)
	// KeyFile holds the key that seals literals. It is made with mode 0600 when
	// the first literal is sealed, stands outside the database, and has to be
	// kept as long as the database.
	KeyFile string
	// Seen, if set, is told every secret that was resolved, so that a log can
	// keep it out. It returns at once and may be called concurrently.
	Seen func(parley.Secret)
}

// Secrets turns references into secrets and seals literals. Its methods may be
// called concurrently; its errors name the kind of the reference and what to
// do, never a value.
type Secrets struct {
	cfg SecretsConfig

	mu  sync.Mutex
	key *age.X25519Identity // nil until the key file was read or made
}

// NewSecrets gives the secrets of cfg. Nothing is read or made before it is
// needed.
func NewSecrets(cfg SecretsConfig) *Secrets { return &Secrets{cfg: cfg} }

// Check reports, without reading anything, whether ref is a reference that the
// configuration allows callers to give: "env:NAME" or "file:path". The error is
// a [*parley.Error] of code invalid. On a nil receiver it checks the form only.
func (s *Secrets) Check(ref string) error {
	switch kind, rest := splitRef(ref); {
	case len(ref) > maxRef:
		return parley.Errorf(parley.CodeInvalid, "a secret reference is longer than %d bytes", maxRef)
	case s == nil && (kind == refEnv || kind == refFile):
		return nil
	case kind == refEnv:
		return s.checkEnv(rest)
	case kind == refFile:
		_, err := s.below(rest)
		return err
	default:
		// Whatever it is, it may be the credential itself.
		return parley.Errorf(parley.CodeInvalid, "a secret is given as env:NAME or file:PATH; this value has neither form")
	}
}

// Resolve gives the secret that ref names: "env:NAME", "file:path" or
// "sealed:…". The error is a [*parley.Error] of code invalid if the reference
// is not allowed, and unavailable if what it names is absent, empty, larger
// than 64 KiB or cannot be read.
func (s *Secrets) Resolve(ref string) (parley.Secret, error) {
	var value []byte
	var err error
	switch kind, rest := splitRef(ref); kind {
	case refEnv:
		value, err = s.env(rest)
	case refFile:
		value, err = s.file(rest)
	case refSealed:
		value, err = s.open(rest)
	default:
		err = s.Check(ref)
	}
	if err != nil {
		return parley.Secret{}, err
	}
	secret := parley.NewSecret(value)
	if s.cfg.Seen != nil {
		s.cfg.Seen(secret)
	}
	return secret, nil
}

func (s *Secrets) checkEnv(name string) error {
	switch {
	case s.cfg.EnvPrefix == "":
		return parley.Errorf(parley.CodeInvalid, "env: references are off; set secrets.env_prefix to the prefix of the variables that may be read")
	case !isEnvName(name):
		return parley.Errorf(parley.CodeInvalid, "env: is followed by the name of a variable: letters, digits and _")
	case !strings.HasPrefix(name, s.cfg.EnvPrefix):
		return parley.Errorf(parley.CodeInvalid, "env: variable names begin with %s (secrets.env_prefix)", s.cfg.EnvPrefix)
	}
	return nil
}

func (s *Secrets) env(name string) ([]byte, error) {
	if err := s.checkEnv(name); err != nil {
		return nil, err
	}
	value, ok := "", false
	if s.cfg.LookupEnv != nil {
		value, ok = s.cfg.LookupEnv(name)
	}
	return usable("env:"+name, "set the variable for the server and start it again", []byte(value), ok)
}

// below gives path relative to the folder of secrets.
func (s *Secrets) below(path string) (string, error) {
	if s.cfg.Dir == "" {
		return "", parley.Errorf(parley.CodeInvalid, "file: references are off; set secrets.dir to the folder of the files that may be read")
	}
	rel := path
	if filepath.IsAbs(path) {
		dir, err := filepath.Abs(s.cfg.Dir)
		if err == nil {
			rel, err = filepath.Rel(dir, path)
		}
		if err != nil {
			rel = ".."
		}
	}
	if !utf8.ValidString(path) || strings.ContainsRune(path, 0) || !filepath.IsLocal(rel) || filepath.Clean(rel) == "." {
		return "", parley.Errorf(parley.CodeInvalid, "file: is followed by the path of a file below secrets.dir")
	}
	return rel, nil
}

func (s *Secrets) file(path string) ([]byte, error) {
	rel, err := s.below(path)
	if err != nil {
		return nil, err
	}
	value, err := readBelow(s.cfg.Dir, rel)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return usable("file:"+path, "put the file below secrets.dir", nil, false)
	case err != nil:
		return nil, parley.Errorf(parley.CodeUnavailable,
			"secret file:%s cannot be read; it is a plain file below secrets.dir that the server may read: %w", path, reason(err))
	}
	return usable("file:"+path, "write the secret into the file", trimmed(value), true)
}

// readBelow reads a regular file without leaving dir, also not by a link.
func readBelow(dir, rel string) (value []byte, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	// Opening a pipe would block, so that is asked first.
	info, err := root.Stat(rel)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	f, err := root.Open(rel)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return io.ReadAll(io.LimitReader(f, maxSecret+int64(len(byteOrderMark))+3)) // + 3: a line end may follow, and one byte shows excess
}

var errNotRegular = errors.New("not a plain file")

// reason strips the path from err: an operator sees it in the reference.
func reason(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// usable refuses what is absent, empty or too large. A secret is never cut.
func usable(ref, remedy string, value []byte, ok bool) ([]byte, error) {
	switch {
	case !ok:
		return nil, parley.Errorf(parley.CodeUnavailable, "secret %s does not exist; %s", ref, remedy)
	case len(value) == 0:
		return nil, parley.Errorf(parley.CodeUnavailable, "secret %s is empty; %s", ref, remedy)
	case len(value) > maxSecret:
		return nil, parley.Errorf(parley.CodeUnavailable, "secret %s is larger than %d bytes", ref, maxSecret)
	}
	return value, nil
}

// trimmed is what a file holds without its line end, and without the byte order mark that
// editors on Windows begin files with.
func trimmed(b []byte) []byte {
	return bytes.TrimPrefix(bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r")), []byte(byteOrderMark))
}

const byteOrderMark = "\ufeff"

// splitRef gives the kind of a reference with its colon, and what follows.
func splitRef(ref string) (kind, rest string) {
	for _, kind := range []string{refEnv, refFile, refSealed} {
		if rest, ok := strings.CutPrefix(ref, kind); ok {
			return kind, rest
		}
	}
	return "", ref
}

func isEnvName(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
