package push

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/keyfile"
)

// LoadKey reads the key in file, or makes one of 32 random bytes and writes it
// with mode 0600. Of several processes that start at a time one makes it. With
// another key the tokens that agents hold are worth nothing, and their tasks are
// followed by asking alone. The error has code invalid if the file holds something
// else.
func LoadKey(file string) (parley.Secret, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		key := make([]byte, minKey)
		_, _ = rand.Read(key) // never fails
		if err = keyfile.Create(file, []byte(base64.RawURLEncoding.EncodeToString(key)+"\n")); err == nil {
			text, err = os.ReadFile(file) // another process may have been first
		}
	}
	if err != nil {
		return parley.Secret{}, fmt.Errorf("key of push notifications: %w", err)
	}
	key, err := base64.RawURLEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) < minKey {
		return parley.Secret{}, parley.Errorf(parley.CodeInvalid, "the file %s holds no key of push notifications; remove it and start again", file)
	}
	return parley.NewSecret(key), nil
}
