package server

import (
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// TestLocalKeyTogether: of processes that start together on one folder one makes the
// key, and none finds half of it.
func TestLocalKeyTogether(t *testing.T) {
	for range 20 {
		file := filepath.Join(t.TempDir(), "key")
		keys := make([]string, 8)
		begin := make(chan struct{})
		var loads sync.WaitGroup
		for i := range keys {
			loads.Go(func() {
				<-begin
				key, err := localKey(file)
				if err != nil {
					t.Error(err)
				}
				keys[i] = string(key.Reveal())
			})
		}
		close(begin)
		loads.Wait()
		if one := slices.Compact(slices.Clone(keys)); len(one) != 1 {
			t.Fatalf("%d processes have different keys", len(keys))
		}
	}
}
