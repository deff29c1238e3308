//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package rpcdial

import "context"

// lockFolder does nothing where folders cannot be locked.
func lockFolder(context.Context, string) (unlock func()) { return func() {} }
