package api

import (
	"context"
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/parley-project/parley"
)

// Keys are the named keys to this interface. What it gives has no State.
type Keys interface {
	// Keys gives all of them by name.
	Keys(ctx context.Context) ([]parley.AccessKey, error)
	AddKey(ctx context.Context, req parley.AccessKeyRequest) (parley.NewAccessKey, error)
	// RevokeKey lets a key be good no more; again changes nothing.
	RevokeKey(ctx context.Context, name, by string) (parley.AccessKey, error)
	// FindKey gives the key whose secret has that digest; found is false if there
	// is none.
	FindKey(ctx context.Context, digest [sha256.Size]byte) (k parley.AccessKey, found bool, err error)
	// NoteKey notes that a key was used.
	NoteKey(ctx context.Context, name string, at time.Time) error
	// Now is the time that keys are made, used and good by, which all processes that
	// share them agree about. It may lack a monotonic part.
	Now() time.Time
}

const (
	// keyFresh is how long a key is taken for what it was when it was looked up:
	// so long after a revocation another process may still let it in.
	keyFresh = 5 * time.Second
	// maxKnownKeys bounds the keys that are remembered.
	maxKnownKeys = 1024
	// noteEvery is how often the use of a key is noted.
	noteEvery = time.Minute
	// noteWithin is how long a request waits for that to be written.
	noteWithin = time.Second
)

// keyring remembers the keys that were used of late, and none that does not exist:
// such a one costs whoever tries it a look-up each time.
type keyring struct {
	keys Keys
	// now measures how long a key was remembered.
	now func() time.Time

	mu    sync.Mutex // protects what follows
	known map[[sha256.Size]byte]knownKey
	// revoked counts the revocations: what was looked up before one is not kept.
	revoked int
}

type knownKey struct {
	key   parley.AccessKey
	until time.Time
}

func newKeyring(keys Keys, now func() time.Time) *keyring {
	return &keyring{keys: keys, now: now, known: map[[sha256.Size]byte]knownKey{}}
}

// find gives the key with that digest and its State, which is "" if there is none,
// and notes that a good one was used.
func (g *keyring) find(ctx context.Context, digest [sha256.Size]byte) (parley.AccessKey, error) {
	now := g.now()
	g.mu.Lock()
	known, ok := g.known[digest]
	revoked := g.revoked
	g.mu.Unlock()
	if !ok || !now.Before(known.until) {
		key, found, err := g.keys.FindKey(ctx, digest)
		if err != nil || !found {
			return parley.AccessKey{}, err
		}
		known = knownKey{key, now.Add(keyFresh)}
		g.put(digest, known, revoked)
	}
	at := keyTime(g.keys)
	known.key.State = known.key.StateAt(at)
	if last := known.key.LastUsedAt; known.key.State == parley.KeyActive && (last == nil || at.Sub(*last) >= noteEvery) {
		known.key.LastUsedAt = &at
		g.put(digest, known, revoked) // first: others come with the same key meanwhile
		noting, cancel := context.WithTimeout(ctx, noteWithin)
		defer cancel()
		_ = g.keys.NoteKey(noting, known.key.Name, at) // that it cannot be written keeps nobody out
	}
	return known.key, nil
}

// keyTime gives the time of keys as answers carry it.
func keyTime(keys Keys) time.Time { return keys.Now().UTC().Truncate(time.Microsecond) }

// put remembers a key, unless one was revoked since.
func (g *keyring) put(digest [sha256.Size]byte, k knownKey, revoked int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.revoked != revoked {
		return
	}
	if len(g.known) >= maxKnownKeys {
		clear(g.known)
	}
	g.known[digest] = k
}

// forget has a key looked up anew.
func (g *keyring) forget(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.revoked++
	for digest, k := range g.known {
		if k.key.Name == name {
			delete(g.known, digest)
		}
	}
}

const keysPath = "/api/v1/keys"

// mayDo refuses what the role of a key does not allow.
func mayDo(k *parley.AccessKey, r *http.Request) error {
	looks := r.Method == http.MethodGet || r.Method == http.MethodHead
	if k.Role == parley.KeyAdmin || k.Role == parley.KeyViewer && looks && !strings.HasPrefix(r.URL.Path, keysPath) {
		return nil
	}
	return refuse(http.StatusForbidden, codeForbidden,
		"the key %q has the role %s, which allows looking at everything but keys, and changing nothing: use a key of the role %s", k.Name, k.Role, parley.KeyAdmin)
}

// keyBody documents what key is asked for; addKey reads it.
type keyBody struct {
	Name      string `json:"name" minLength:"1" maxLength:"64" doc:"Letters, digits and . _ -, a letter or digit first."`
	Role      string `json:"role,omitempty" enum:"admin,viewer" doc:"Default admin; a viewer looks at everything but keys."`
	ExpiresIn string `json:"expires_in,omitempty" minLength:"1" maxLength:"64" doc:"A duration such as 90d, at most 365d; default: never."`
}

func (s *server) keyRoutes() []route {
	const tag = "system"
	name := pathParam("name", "The name of a key.")
	return []route{
		{
			method: http.MethodGet, path: keysPath, id: "list-keys", tag: tag,
			summary: "List the keys to this interface by name, without their secrets", params: pageParams(),
			answers: ok(pageOf[parley.AccessKey]{}), errors: []int{422}, handle: s.listKeys,
		},
		{
			method: http.MethodPost, path: keysPath, id: "add-key", tag: tag,
			summary: "Make a key; its secret, the member key, is told this once", body: keyBody{},
			answers: []answer{{status: http.StatusCreated, body: parley.NewAccessKey{}}}, errors: []int{409, 413, 415, 422}, handle: s.addKey,
		},
		{
			method: http.MethodDelete, path: keysPath + "/{name}", id: "revoke-key", tag: tag,
			summary: "Revoke a key: it is good no more, here at once and in other processes within 5 s; again changes nothing", params: []*huma.Param{name},
			answers: ok(parley.AccessKey{}), errors: []int{404}, handle: s.revokeKey,
		},
	}
}

func (s *server) listKeys(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	page := q.page()
	if err := q.done(); err != nil {
		return err
	}
	all, err := s.cfg.Keys.Keys(r.Context())
	if err != nil {
		return err
	}
	s.reply(w, r, http.StatusOK, cutPage(all, page, s.showKey))
	return nil
}

func (s *server) showKey(k parley.AccessKey) parley.AccessKey {
	k.State = k.StateAt(keyTime(s.cfg.Keys))
	return k
}

func (s *server) addKey(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readObject(w, r, bodyLimit{s.cfg.Limits.Body, "body"}, false)
	if err != nil {
		return err
	}
	req := parley.AccessKeyRequest{By: callerOf(r)}
	o.require("name")
	if v := o.text("name", 1, 64); v != nil {
		req.Name = *v
	}
	if v := o.word("role", string(parley.KeyAdmin), string(parley.KeyViewer)); v != nil {
		req.Role = parley.KeyRole(*v)
	}
	if v := o.text("expires_in", 1, 64); v != nil {
		req.ExpiresIn = *v
	}
	if err := o.done(true); err != nil {
		return err
	}
	k, err := s.cfg.Keys.AddKey(r.Context(), req)
	if err != nil {
		return err
	}
	k.AccessKey = s.showKey(k.AccessKey)
	s.reply(w, r, http.StatusCreated, k)
	return nil
}

func (s *server) revokeKey(w http.ResponseWriter, r *http.Request) error {
	k, err := s.cfg.Keys.RevokeKey(r.Context(), r.PathValue("name"), callerOf(r))
	if err != nil {
		return err
	}
	s.ring.forget(k.Name)
	s.reply(w, r, http.StatusOK, s.showKey(k))
	return nil
}
