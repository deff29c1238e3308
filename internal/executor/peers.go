package executor

import (
	"context"
	"slices"
)

// stack holds what has to be stopped, the last first.
type stack []func()

func (s *stack) push(stop func()) { *s = append(*s, stop) }

func (s *stack) stop() {
	for _, stop := range slices.Backward(*s) {
		stop()
	}
}

// joinPeers subscribes to what programs of the existing platform say, where
// there are any. Afterwards, also after an error, the stack is to be stopped.
func (x *Executor) joinPeers(ctx context.Context) (s stack, err error) {
	if x.cfg.Guest {
		return s, nil
	}
	if x.old != nil {
		stop, err := x.old.begin(ctx)
		if err != nil {
			return s, err
		}
		s.push(stop)
	}
	if x.cfg.Requests != nil {
		err = x.takeRequests(ctx, &s)
	}
	return s, err
}
