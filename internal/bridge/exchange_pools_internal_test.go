package bridge

import (
	"crypto/tls"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// TestPoolsAreBounded: pools that nobody used for ten minutes go, and the
// oldest one if there are too many.
func TestPoolsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &pools{
			now: time.Now, life: lifetime{time.Hour, func() float64 { return 0 }}, all: map[poolKey]*agedPool{},
			make: func(poolKey, *tls.Config) *http.Transport { return &http.Transport{} },
		}
		key := func(i int) poolKey { return poolKey{host: strconv.Itoa(i)} }
		for i := range maxPools {
			s.of(key(i), nil)
			time.Sleep(time.Millisecond)
		}
		first := s.get(key(0)) // and so the second one is the oldest
		if s.of(key(0), nil) != first {
			t.Error("a pool was made twice")
		}
		time.Sleep(time.Millisecond)
		s.of(key(maxPools), nil)
		if len(s.all) != maxPools || s.get(key(1)) != nil || s.get(key(0)) != first {
			t.Errorf("%d pools", len(s.all))
		}
		time.Sleep(poolIdle + time.Second)
		s.of(key(-1), nil)
		if len(s.all) != 1 {
			t.Errorf("%d pools", len(s.all))
		}
	})
}
