package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// readWait is how long a server may leave somebody who reads without a row. It is
// longer than those who write wait, since a search may read much before it finds any.
const readWait = 30 * time.Second

// errSilent ends a question to which nobody has said anything for too long.
var errSilent = fmt.Errorf("%w: it has not answered", errLost)

// silence is how long nothing has been heard of a database. nil is that of one which
// may take as long as it likes.
type silence struct {
	timer *time.Timer
	most  time.Duration
}

// heard runs f, which asks the database. The context of f ends when nothing is heard
// for as long as the dialect says: a connection may be open, and its other end alive,
// without anybody who answers. Waiting for a connection is silence, too.
func (db *DB) heard(ctx context.Context, f func(context.Context, *silence) error) error {
	most := db.dialect.silence
	if most == 0 {
		return f(ctx, nil)
	}
	ctx, give := context.WithCancelCause(ctx)
	defer give(nil)
	s := &silence{timer: time.AfterFunc(most, func() { give(errSilent) }), most: most}
	defer s.end()
	err := f(ctx, s)
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		return fmt.Errorf("%w for %v", errSilent, most)
	}
	return err
}

// end says that something was heard, and begin that the next is waited for.
func (s *silence) end() {
	if s != nil {
		s.timer.Stop()
	}
}

func (s *silence) begin() {
	if s != nil {
		s.timer.Reset(s.most)
	}
}
