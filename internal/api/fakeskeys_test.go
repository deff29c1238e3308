package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"github.com/parley-project/parley"
)

// fakeKeys are keys in memory; the secret of one is its name and the number of its
// making.
type fakeKeys struct {
	now func() time.Time

	mu      sync.Mutex
	list    []parley.AccessKey
	digests map[[sha256.Size]byte]string // names
	looked  int
	noted   []string
	broken  error
	// stuck: nothing can be written.
	stuck bool
	// meanwhile, if set, is called while a key is being looked up.
	meanwhile func()
}

func newFakeKeys(now func() time.Time) *fakeKeys {
	return &fakeKeys{now: now, digests: map[[sha256.Size]byte]string{}}
}

func (f *fakeKeys) Keys(context.Context) ([]parley.AccessKey, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := slices.Clone(f.list)
	slices.SortFunc(list, func(a, b parley.AccessKey) int { return cmp.Compare(a.Name, b.Name) })
	return list, f.broken
}

func (f *fakeKeys) Now() time.Time { return f.now() }

func (f *fakeKeys) at(name string) *parley.AccessKey {
	if i := slices.IndexFunc(f.list, func(k parley.AccessKey) bool { return k.Name == name }); i >= 0 {
		return &f.list[i]
	}
	return nil
}

func (f *fakeKeys) AddKey(_ context.Context, req parley.AccessKeyRequest) (k parley.NewAccessKey, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := parley.CheckKeyName(req.Name); err != nil {
		return k, err
	}
	if f.at(req.Name) != nil {
		return k, parley.Errorf(parley.CodeConflict, "there is a key %q", req.Name)
	}
	k.AccessKey = parley.AccessKey{Name: req.Name, Role: cmp.Or(req.Role, parley.KeyAdmin), CreatedAt: f.now().UTC(), CreatedBy: req.By}
	if req.ExpiresIn != "" {
		d, err := time.ParseDuration(req.ExpiresIn)
		if err != nil {
			return k, parley.Errorf(parley.CodeInvalid, "%w", err)
		}
		at := f.now().UTC().Add(d)
		k.ExpiresAt = &at
	}
	k.Key = "secret-of-" + req.Name
	f.list = append(f.list, k.AccessKey)
	f.digests[sha256.Sum256([]byte(k.Key))] = req.Name
	return k, nil
}

func (f *fakeKeys) RevokeKey(_ context.Context, name, _ string) (parley.AccessKey, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := f.at(name)
	if k == nil {
		return parley.AccessKey{}, parley.Errorf(parley.CodeNotFound, "there is no key %q", name)
	}
	if k.RevokedAt == nil {
		at := f.now().UTC()
		k.RevokedAt = &at
	}
	return *k, nil
}

func (f *fakeKeys) FindKey(_ context.Context, digest [sha256.Size]byte) (parley.AccessKey, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looked++
	if k := f.at(f.digests[digest]); k != nil && f.broken == nil {
		found := *k
		if f.meanwhile != nil {
			f.mu.Unlock()
			f.meanwhile()
			f.mu.Lock()
		}
		return found, true, nil
	}
	return parley.AccessKey{}, false, f.broken
}

func (f *fakeKeys) NoteKey(ctx context.Context, name string, at time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stuck {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	f.noted = append(f.noted, name)
	if k := f.at(name); k != nil {
		k.LastUsedAt = &at
	}
	return f.broken
}
