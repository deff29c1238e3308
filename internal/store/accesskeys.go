package store

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/parley-project/parley"
)

const (
	// maxAccessKeys bounds the keys that are neither revoked nor expired.
	maxAccessKeys = 1000
	// keysKept is how many of the others are kept, the newest: the audit record
	// knows of all.
	keysKept = 1000
)

// Digest is the SHA-256 digest of a key's secret. The secret is random and long,
// so that nobody finds it by trying.
type Digest = [sha256.Size]byte

// NewKey is a key that is to be kept, with the entry of the audit record that says
// so.
type NewKey struct {
	// AccessKey has Name, Role, CreatedAt, CreatedBy and ExpiresAt.
	parley.AccessKey
	Digest Digest
	// AuditID is the id of the entry.
	AuditID string
}

const (
	accessKeyColumns = `name, role, created_at, created_by, expires_at, revoked_at, used_at`
	selectAccessKey  = `SELECT ` + accessKeyColumns + ` FROM access_key WHERE digest = ?`
	countAccessKeys  = `SELECT count(*) FROM access_key WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)`
	// insertAccessKey takes the name of one that is no good any more.
	insertAccessKey = `INSERT INTO access_key (name, role, digest, created_at, created_by, expires_at) VALUES (?, ?, ?, ?, ?, ?)
 ON CONFLICT (name) DO UPDATE SET role = excluded.role, digest = excluded.digest, created_at = excluded.created_at, created_by = excluded.created_by,
 expires_at = excluded.expires_at, revoked_at = NULL, used_at = NULL
 WHERE access_key.revoked_at IS NOT NULL OR access_key.expires_at <= excluded.created_at`
	purgeAccessKeys = `DELETE FROM access_key WHERE (revoked_at IS NOT NULL OR expires_at <= ?) AND name NOT IN
 (SELECT name FROM access_key WHERE revoked_at IS NOT NULL OR expires_at <= ? ORDER BY created_at DESC, name LIMIT ?)`
	revokeAccessKey = `UPDATE access_key SET revoked_at = ? WHERE name = ? AND revoked_at IS NULL`
	noteAccessKey   = `UPDATE access_key SET used_at = ? WHERE name = ? AND (used_at IS NULL OR used_at < ?)`
)

func accessKeyList(list *[]parley.AccessKey) func(*record) error {
	return func(r *record) error {
		*list = append(*list, parley.AccessKey{
			Name: r.str(), Role: parley.KeyRole(r.str()), CreatedAt: r.time(), CreatedBy: r.str(),
			ExpiresAt: timeOrNil(r.time()), RevokedAt: timeOrNil(r.time()), LastUsedAt: timeOrNil(r.time()),
		})
		return r.err
	}
}

// AccessKeys gives all keys by name, without their State.
func (db *DB) AccessKeys(ctx context.Context) ([]parley.AccessKey, error) {
	var list []parley.AccessKey
	err := db.read(ctx, `SELECT `+accessKeyColumns+` FROM access_key ORDER BY name`, accessKeyList(&list))
	return list, err
}

// AccessKey gives the key whose secret has that digest, without its State; found
// is false if there is none.
func (db *DB) AccessKey(ctx context.Context, d Digest) (k parley.AccessKey, found bool, err error) {
	var list []parley.AccessKey
	if err := db.read(ctx, selectAccessKey, accessKeyList(&list), d[:]); err != nil || len(list) == 0 {
		return k, false, err
	}
	return list[0], true, nil
}

// AddAccessKey keeps a key, and of those that are no good any more the newest 1,000.
// The error is conflict if a good one has its name, limit if there are 1,000. Synced.
func (db *DB) AddAccessKey(ctx context.Context, k NewKey) error {
	return db.submit(ctx, synced, func(s *session) error {
		s.at(k.Name)
		good := int64(0)
		if err := s.query(countAccessKeys, func(r *record) error { good = r.int(); return r.err }, unixMicro(k.CreatedAt)); err != nil {
			return err
		}
		if good >= maxAccessKeys {
			return parley.Errorf(parley.CodeLimit, "there are %d keys, the limit is %d: revoke some", good, maxAccessKeys)
		}
		var expires time.Time
		changes := map[string]any{"role": k.Role}
		if k.ExpiresAt != nil {
			expires = *k.ExpiresAt
			changes["expires_at"] = expires
		}
		n, err := s.exec(insertAccessKey, k.Name, string(k.Role), k.Digest[:], unixMicro(k.CreatedAt), k.CreatedBy, micros(expires))
		if err != nil {
			return err
		}
		if n == 0 {
			return parley.Errorf(parley.CodeConflict, "there is a key %q: take another name, or revoke it first", k.Name)
		}
		if _, err := s.exec(purgeAccessKeys, unixMicro(k.CreatedAt), unixMicro(k.CreatedAt), int64(keysKept)); err != nil {
			return err
		}
		return audit(s, &Audit{ID: k.AuditID, At: k.CreatedAt, EntityType: "key", EntityID: k.Name, Action: "create", By: k.CreatedBy}, changes)
	})
}

// KeyRevocation revokes a key, with the entry of the audit record that says so.
type KeyRevocation struct {
	Name, By, AuditID string
	At                time.Time
}

// RevokeAccessKey lets a key be good no more, and gives it without its State; again
// changes nothing. The error is not_found if there is none. Synced.
func (db *DB) RevokeAccessKey(ctx context.Context, v KeyRevocation) (k parley.AccessKey, err error) {
	err = db.submit(ctx, synced, func(s *session) error {
		s.at(v.Name)
		n, err := s.exec(revokeAccessKey, unixMicro(v.At), v.Name)
		if err != nil {
			return err
		}
		var list []parley.AccessKey
		if err := s.query(`SELECT `+accessKeyColumns+` FROM access_key WHERE name = ?`, accessKeyList(&list), v.Name); err != nil {
			return err
		}
		if len(list) == 0 {
			return parley.Errorf(parley.CodeNotFound, "there is no key %q", v.Name)
		}
		if k = list[0]; n == 0 {
			return nil
		}
		return audit(s, &Audit{ID: v.AuditID, At: v.At, EntityType: "key", EntityID: v.Name, Action: "revoke", By: v.By}, map[string]any{"role": k.Role})
	})
	return k, err
}

// NoteAccessKey notes that a key was used. It may be lost in a crash.
func (db *DB) NoteAccessKey(ctx context.Context, name string, at time.Time) error {
	return db.submit(ctx, prompt, func(s *session) error {
		s.at(name)
		_, err := s.exec(noteAccessKey, unixMicro(at), name, unixMicro(at))
		return err
	})
}
