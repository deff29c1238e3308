package bus

import "context"

// Offsets is what a bus over a log knows of its groups.
type Offsets interface {
	// EndOffsets gives the end of each partition of a subject as it is now: the
	// offset that the next message gets.
	EndOffsets(ctx context.Context, subject string) (map[int32]int64, error)
	// CaughtUp reports whether group has acknowledged every message of subject
	// below ends.
	CaughtUp(ctx context.Context, subject, group string, ends map[int32]int64) (bool, error)
}
