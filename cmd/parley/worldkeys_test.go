package main

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/parley-project/parley"
)

// worldKeys is a world without keys but its own.
type worldKeys struct{}

func (worldKeys) Keys(context.Context) ([]parley.AccessKey, error) { return nil, nil }

func (worldKeys) AddKey(_ context.Context, req parley.AccessKeyRequest) (parley.NewAccessKey, error) {
	return parley.NewAccessKey{}, parley.Errorf(parley.CodeConflict, "there is a key %q", req.Name)
}

func (worldKeys) RevokeKey(_ context.Context, name, _ string) (parley.AccessKey, error) {
	return parley.AccessKey{}, missing("key", name)
}

func (worldKeys) FindKey(context.Context, [sha256.Size]byte) (parley.AccessKey, bool, error) {
	return parley.AccessKey{}, false, nil
}

func (worldKeys) NoteKey(context.Context, string, time.Time) error { return nil }

func (worldKeys) Now() time.Time { return epoch() }
