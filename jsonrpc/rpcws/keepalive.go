package rpcws

import (
	"context"
	"time"
)

// keepalive pings a silent peer every interval, and gives the connection up if
// nothing came within timeout. Whatever arrives is a sign of life, so a busy
// connection carries no pings.
func (s *stream) keepalive(interval, timeout time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	seen := s.wire.reads.Load()
	for {
		select {
		case <-s.done:
			return
		case <-tick.C:
		}
		if now := s.wire.reads.Load(); now != seen {
			seen = now
			continue
		}
		if s.alive(timeout) {
			continue
		}
		select {
		case <-s.done: // no answer because we hung up
		default:
			s.giveUp(ErrNoPong)
		}
		return
	}
}

// alive pings the peer and says whether it may be alive. While nobody reads,
// because the Conn waits for a handler or for room to answer, a pong cannot be
// seen either, and its absence says nothing.
func (s *stream) alive(timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	seen, watched := s.wire.reads.Load(), s.wire.waiting.Load()
	if s.ws.Ping(ctx) == nil {
		return true
	}
	// A read from the socket that was under way all the time brought nothing.
	silent := watched && s.wire.waiting.Load() && s.wire.reads.Load() == seen
	return !silent
}
