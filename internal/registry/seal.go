package registry

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"filippo.io/age"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/keyfile"
)

// maxKeyFile bounds the key file, in bytes.
const maxKeyFile = 4 << 10

// Seal encrypts a literal to "sealed:BASE64", which only this key file opens.
// The key file is on disk before Seal returns. The error is a [*parley.Error]
// of code invalid for a literal that is empty or too large, and of code
// unavailable if there is no usable key file.
func (s *Secrets) Seal(literal parley.Secret) (string, error) {
	value := literal.Reveal()
	if len(value) == 0 || len(value) > maxSecret {
		return "", parley.Errorf(parley.CodeInvalid, "a secret to be stored has 1 to %d bytes", maxSecret)
	}
	key, err := s.identity(true)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	w, err := age.Encrypt(&out, key.Recipient())
	if err == nil {
		_, err = w.Write(value)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return "", parley.Errorf(parley.CodeInternal, "a secret could not be sealed: %w", err)
	}
	if s.cfg.Seen != nil {
		s.cfg.Seen(literal)
	}
	return refSealed + base64.StdEncoding.EncodeToString(out.Bytes()), nil
}

// open decrypts what follows "sealed:".
func (s *Secrets) open(text string) ([]byte, error) {
	sealed, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, parley.Errorf(parley.CodeUnavailable, "a sealed secret is damaged; give the agent's credential again")
	}
	key, err := s.identity(false)
	if err != nil {
		return nil, err
	}
	r, err := age.Decrypt(bytes.NewReader(sealed), key)
	if _, ok := errors.AsType[*age.NoIdentityMatchError](err); ok {
		return nil, parley.Errorf(parley.CodeUnavailable,
			"a sealed secret was sealed with another key; bring back its key file ("+whichKeyFile+") or give the agent's credential again")
	}
	var value []byte
	if err == nil {
		value, err = io.ReadAll(io.LimitReader(r, maxSecret+1))
	}
	if err != nil || len(value) > maxSecret {
		return nil, parley.Errorf(parley.CodeUnavailable, "a sealed secret is damaged; give the agent's credential again")
	}
	return value, nil
}

// whichKeyFile tells operators which file is meant. Its path is not for everybody who
// may look at an agent.
const whichKeyFile = "what secrets.key_file names, or agents.key in the data folder"

// identity gives the key, from memory, from the key file, or new if make says
// so and there is no file.
func (s *Secrets) identity(create bool) (*age.X25519Identity, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.key != nil {
		return s.key, nil
	}
	if s.cfg.KeyFile == "" {
		return nil, parley.Errorf(parley.CodeUnavailable, "credentials cannot be stored here: no key file is configured; use an env: or file: reference")
	}
	key, err := readKey(s.cfg.KeyFile)
	if errors.Is(err, fs.ErrNotExist) && create {
		if err = makeKey(s.cfg.KeyFile); err == nil {
			// Read back: another process may have been first.
			key, err = readKey(s.cfg.KeyFile)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, parley.Errorf(parley.CodeUnavailable, "the key file of sealed secrets is missing; bring it back ("+whichKeyFile+") or give the agents' credentials again")
	case err != nil:
		return nil, parley.Errorf(parley.CodeUnavailable, "the key file of sealed secrets cannot be used: %w", reason(err))
	}
	s.key = key
	return key, nil
}

func readKey(path string) (key *age.X25519Identity, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 && runtime.GOOS != "windows" { // which has no such bits
		return nil, fmt.Errorf("its mode is %#o, others may read it: chmod 600", perm)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if key, err = age.ParseX25519Identity(line); err != nil {
			return nil, errBadKey // age's own text might quote the line
		}
		return key, nil
	}
	return nil, errBadKey
}

var errBadKey = errors.New("it holds no AGE-SECRET-KEY-1 line")

// makeKey makes the key file, unless there is one, and the folder that it is in.
func makeKey(path string) error {
	key, err := age.GenerateX25519Identity()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return keyfile.Create(path, fmt.Appendf(nil, "# Opens the credentials that are sealed in the database. Keep it, and keep it apart.\n# public key: %s\n%s\n", key.Recipient(), key))
}
