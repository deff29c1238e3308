package rpcws

import (
	"context"
	"time"
)

// keepalive pings a silent peer every interval, and gives the connection up if
// nothing came within timeout. Whatever arrives is a sign of life, so a busy
// connection carries no pings; and so is that the peer takes a long message, behind
// which a ping would have to wait for as long as that takes.
func (s *stream) keepalive(interval, timeout time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	seen := s.signs()
	for {
		select {
		case <-s.done:
			return
		case <-tick.C:
		}
		now := s.signs()
		alive := now.since(seen)
		if seen = now; alive {
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

// signs of life are how often something came, and how many bytes the peer has taken.
type signs struct{ reads, taken uint64 }

func (s *stream) signs() signs { return signs{s.wire.reads.Load(), s.wire.taken.Load()} }

// since says that there were signs of life after old. What is less than writeBuffer the
// system takes for a peer that is gone.
func (s signs) since(old signs) bool { return s.reads != old.reads || s.taken-old.taken >= writeBuffer }

// alive pings the peer and says whether it may be alive. While nobody reads,
// because the Conn waits for a handler or for room to answer, a pong cannot be
// seen either, and its absence says nothing.
func (s *stream) alive(timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	seen, watched := s.signs(), s.wire.waiting.Load()
	if s.ws.Ping(ctx) == nil {
		return true
	}
	// A read from the socket that was under way all the time brought nothing.
	silent := watched && s.wire.waiting.Load() && !s.signs().since(seen)
	return !silent
}
