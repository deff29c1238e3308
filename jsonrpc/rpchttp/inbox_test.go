package rpchttp

import (
	"sync"
	"testing"
)

// TestOfferLimit proves that messages that are POSTed at the same time do not get
// past the limit of a session together.
func TestOfferLimit(t *testing.T) {
	const posts, limit = 16, 100
	msg := make([]byte, 256<<10)
	for range 20 {
		in := newInbox(posts)
		start := make(chan struct{})
		var wg sync.WaitGroup
		for range posts {
			wg.Go(func() {
				<-start
				in.offer(msg, limit)
			})
		}
		close(start)
		wg.Wait()
		if n := len(in.ready); n != 1 || in.bytes.Load() != int64(len(msg)) {
			t.Fatalf("%d messages, %d bytes, where one message is too much already", n, in.bytes.Load())
		}
	}
}
