package store

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

func newKey(name string, edit ...func(*NewKey)) NewKey {
	k := NewKey{
		AccessKey: parley.AccessKey{Name: name, Role: parley.KeyAdmin, CreatedAt: epoch, CreatedBy: "ann"},
		Digest:    sha256.Sum256([]byte(name)), AuditID: "audit-" + name,
	}
	for _, e := range edit {
		e(&k)
	}
	return k
}

// TestAccessKeys: a key is made, found by the digest of its secret, used and
// revoked; each change of it is in the audit record.
func TestAccessKeys(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		later := epoch.Add(time.Hour)
		check(t, db.AddAccessKey(ctx, newKey("ci", func(k *NewKey) { k.Role, k.ExpiresAt = parley.KeyViewer, &later })))
		check(t, db.AddAccessKey(ctx, newKey("ann")))
		ci := parley.AccessKey{Name: "ci", Role: parley.KeyViewer, CreatedAt: epoch, CreatedBy: "ann", ExpiresAt: &later}
		ann := parley.AccessKey{Name: "ann", Role: parley.KeyAdmin, CreatedAt: epoch, CreatedBy: "ann"}
		diff(t, must(db.AccessKeys(ctx))(t), []parley.AccessKey{ann, ci})
		got, found, err := db.AccessKey(ctx, sha256.Sum256([]byte("ci")))
		check(t, err)
		diff(t, []any{got, found}, []any{ci, true})
		_, found, err = db.AccessKey(ctx, sha256.Sum256([]byte("CI")))
		check(t, err)
		diff(t, found, false)

		minute := epoch.Add(time.Minute)
		check(t, db.NoteAccessKey(ctx, "ci", minute))
		check(t, db.NoteAccessKey(ctx, "ci", epoch)) // of another process, which was slower
		revoke := KeyRevocation{Name: "ci", By: "bob", AuditID: "audit-r", At: minute}
		ci.LastUsedAt, ci.RevokedAt = &minute, &minute
		diff(t, must(db.RevokeAccessKey(ctx, revoke))(t), ci)
		revoke.At, revoke.AuditID = later, "never"
		diff(t, must(db.RevokeAccessKey(ctx, revoke))(t), ci)
		for _, name := range []string{"dan", "CI", "", "c\x00i", "ci\xff"} {
			_, err = db.RevokeAccessKey(ctx, KeyRevocation{Name: name, At: later})
			wantCode(t, err, parley.CodeNotFound)
		}

		var log []string
		entries, _, err := db.Audits(ctx, AuditQuery{EntityType: "key", Page: parley.Page{Limit: 10}})
		check(t, err)
		for _, e := range entries {
			log = append(log, strings.Join([]string{e.EntityID, e.Action, e.By}, " "))
		}
		diff(t, log[0], "ci revoke bob")
		diff(t, len(log), 3)
	})
}

// TestAccessKeyNames: a name is taken as long as its key is good.
func TestAccessKeyNames(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		soon := epoch.Add(time.Minute)
		check(t, db.AddAccessKey(ctx, newKey("ci", func(k *NewKey) { k.ExpiresAt = &soon })))
		again := newKey("ci", func(k *NewKey) {
			k.Digest, k.AuditID, k.CreatedAt = sha256.Sum256([]byte("2")), "2", epoch.Add(time.Second)
		})
		wantCode(t, db.AddAccessKey(ctx, again), parley.CodeConflict)
		again.CreatedAt = soon
		check(t, db.AddAccessKey(ctx, again))
		check(t, db.NoteAccessKey(ctx, "ci", soon)) // the third one was never used
		must(db.RevokeAccessKey(ctx, KeyRevocation{Name: "ci", At: soon, AuditID: "r"}))(t)
		third := newKey("ci", func(k *NewKey) { k.Digest, k.AuditID, k.CreatedAt = sha256.Sum256([]byte("3")), "3", soon })
		check(t, db.AddAccessKey(ctx, third))
		// The secrets of the former two are good for nothing.
		for _, secret := range []string{"ci", "2"} {
			_, found, err := db.AccessKey(ctx, sha256.Sum256([]byte(secret)))
			check(t, err)
			diff(t, found, false)
		}
		diff(t, must(db.AccessKeys(ctx))(t), []parley.AccessKey{{Name: "ci", Role: parley.KeyAdmin, CreatedAt: soon, CreatedBy: "ann"}})
	})
}

// TestAccessKeysAreForgotten: of those that are revoked or have expired the newest
// 1,000 stay; none that is good goes.
func TestAccessKeysAreForgotten(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		put := func(s *session, name string, at, expires time.Time) error {
			d := sha256.Sum256([]byte(name))
			_, err := s.exec(insertAccessKey, name, "viewer", d[:], unixMicro(at), "ann", micros(expires))
			return err
		}
		check(t, db.submit(ctx, prompt, func(s *session) error {
			for i := range keysKept + 2 {
				if err := put(s, fmt.Sprintf("over%d", i), epoch.Add(time.Duration(i)*time.Second), epoch.Add(time.Hour)); err != nil {
					return err
				}
			}
			return put(s, "good", epoch.Add(-time.Hour), time.Time{})
		}))
		must(db.RevokeAccessKey(ctx, KeyRevocation{Name: "over0", At: epoch.Add(time.Minute), AuditID: "r"}))(t)
		check(t, db.AddAccessKey(ctx, newKey("new", func(k *NewKey) { k.CreatedAt = epoch.Add(time.Hour) })))
		left := map[string]bool{}
		for _, k := range must(db.AccessKeys(ctx))(t) {
			left[k.Name] = true
		}
		diff(t, len(left), keysKept+2)
		diff(t, []bool{left["good"], left["new"], left["over0"], left["over1"], left["over2"]}, []bool{true, true, false, false, true})
	})
}

// TestAccessKeyLimit: those that are good count, the others do not.
func TestAccessKeyLimit(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		soon := epoch.Add(time.Minute)
		check(t, db.submit(ctx, prompt, func(s *session) error {
			for i := range maxAccessKeys {
				name := fmt.Sprintf("k%d", i)
				d := sha256.Sum256([]byte(name))
				var expires time.Time
				if i == 0 {
					expires = soon
				}
				if _, err := s.exec(insertAccessKey, name, "viewer", d[:], unixMicro(epoch), "ann", micros(expires)); err != nil {
					return err
				}
			}
			return nil
		}))
		wantCode(t, db.AddAccessKey(context.WithoutCancel(ctx), newKey("more")), parley.CodeLimit)
		check(t, db.AddAccessKey(ctx, newKey("more", func(k *NewKey) { k.CreatedAt = soon })))
	})
}
