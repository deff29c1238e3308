//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package rpcdial

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Bounds of waiting for the lock of a folder, which anybody may hold who can read it.
const (
	lockTime  = time.Second
	lockPause = 5 * time.Millisecond
)

// lockFolder keeps those who do the same from the folder of path, until unlock is called.
// A lock that cannot be had is done without.
func lockFolder(ctx context.Context, path string) (unlock func()) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	again := time.NewTicker(lockPause)
	defer again.Stop()
	for syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil && ctx.Err() == nil {
		select {
		case <-again.C:
		case <-ctx.Done():
		}
	}
	return func() { _ = dir.Close() } // with which the lock ends
}
