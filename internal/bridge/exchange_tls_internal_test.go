package bridge

import (
	"crypto/tls"
	"encoding/binary"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// TestIdentitiesAreBounded: pools that nobody used for ten minutes go, and the
// oldest one if there are too many.
func TestIdentitiesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &identities{now: time.Now, pools: map[identityKey]*identity{}, make: func(*tls.Config) *http.Transport { return &http.Transport{} }}
		key := func(i int) (k identityKey) { binary.BigEndian.PutUint64(k[:], uint64(i)); return k }
		for i := range maxIdentities {
			s.add(key(i), nil)
			time.Sleep(time.Millisecond)
		}
		first := s.get(key(0)) // and so the second one is the oldest
		if s.add(key(0), nil) != first {
			t.Error("a pool was made twice")
		}
		time.Sleep(time.Millisecond)
		s.add(key(maxIdentities), nil)
		if len(s.pools) != maxIdentities || s.get(key(1)) != nil || s.get(key(0)) != first {
			t.Errorf("%d pools", len(s.pools))
		}
		time.Sleep(identityIdle + time.Second)
		s.add(key(-1), nil)
		if len(s.pools) != 1 {
			t.Errorf("%d pools", len(s.pools))
		}
	})
}
