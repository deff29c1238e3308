package rpchttp

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
)

// TestWriteBesideClose proves that a message that Write queues while Close ends the
// Stream begins no worker that Close does not wait for, and is not sent.
func TestWriteBesideClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := false
		s, err := NewStream("http://127.0.0.1:9/", ClientConfig{Headers: func(context.Context, http.Header) error {
			asked = true
			return context.Canceled
		}})
		if err != nil {
			t.Fatal(err)
		}
		// Write has found room, and Close is quicker from there on.
		j := &job{msg: []byte(`{"jsonrpc":"2.0","method":"m"}`), lane: &s.lanes[notificationLane]}
		if err := s.waitRoom(j.lane, func(bool) {}); err != nil {
			t.Fatal(err)
		}
		s.Close()
		if !j.lane.push(j) {
			s.start(j)
		}
		synctest.Wait()
		if asked || len(s.slots) > 0 {
			t.Error("a worker began after Close")
		}
	})
}
