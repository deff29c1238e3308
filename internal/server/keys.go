package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// keySecret is how many random bytes the secret of a key has: too many to be found
// by trying, so that a plain digest of it may be kept.
const keySecret = 32

// keys is the API's view of keys.
type keys struct{ db *store.DB }

// Now is the database's clock: by it a key ends at the same time everywhere, also
// on machines whose clocks are wrong.
func (k keys) Now() time.Time { return k.db.Now() }

// Keys gives all keys by name.
func (k keys) Keys(ctx context.Context) ([]parley.AccessKey, error) { return k.db.AccessKeys(ctx) }

// AddKey makes a key. Its secret is in what is given, and nowhere else.
func (k keys) AddKey(ctx context.Context, req parley.AccessKeyRequest) (made parley.NewAccessKey, err error) {
	if err := parley.CheckKeyName(req.Name); err != nil {
		return made, err
	}
	made.AccessKey = parley.AccessKey{
		Name: req.Name, Role: cmp.Or(req.Role, parley.KeyAdmin), CreatedAt: k.db.Now().UTC().Truncate(time.Microsecond), CreatedBy: req.By,
	}
	if req.ExpiresIn != "" {
		d, err := workflow.ParseDuration(req.ExpiresIn)
		if err != nil || d <= 0 {
			return made, parley.Errorf(parley.CodeInvalid, "expires_in %.64q: it must be a duration such as 12h or 90d, more than 0 and at most 365d", req.ExpiresIn)
		}
		at := made.CreatedAt.Add(d)
		made.ExpiresAt = &at
	}
	secret := make([]byte, keySecret)
	_, _ = rand.Read(secret) // never fails
	made.Key = "parley_" + base64.RawURLEncoding.EncodeToString(secret)
	return made, k.db.AddAccessKey(ctx, store.NewKey{AccessKey: made.AccessKey, Digest: sha256.Sum256([]byte(made.Key)), AuditID: newUUID()})
}

// RevokeKey lets a key be good no more.
func (k keys) RevokeKey(ctx context.Context, name, by string) (parley.AccessKey, error) {
	return k.db.RevokeAccessKey(ctx, store.KeyRevocation{Name: name, By: by, AuditID: newUUID(), At: k.db.Now().UTC().Truncate(time.Microsecond)})
}

// FindKey gives the key whose secret has that digest.
func (k keys) FindKey(ctx context.Context, digest [sha256.Size]byte) (parley.AccessKey, bool, error) {
	return k.db.AccessKey(ctx, digest)
}

// NoteKey notes that a key was used.
func (k keys) NoteKey(ctx context.Context, name string, at time.Time) error {
	return k.db.NoteAccessKey(ctx, name, at)
}
