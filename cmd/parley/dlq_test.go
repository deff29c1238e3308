package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestReplayInterrupted: who interrupts a series of replays, also in its first batch,
// is told how to go on.
func TestReplayInterrupted(t *testing.T) {
	t.Parallel()
	for _, batches := range []int{0, 1} {
		asked := make(chan struct{}, 1)
		left := batches
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if left--; left >= 0 {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"matched": 3, "replayed": 1, "next": "n", "first": [], "failures": []}`))
				return
			}
			_, _ = io.Copy(io.Discard, r.Body) // only then it is seen that the client goes
			asked <- struct{}{}
			<-r.Context().Done()
		}))
		ctx, cancel := context.WithCancel(t.Context())
		a, _, errs := apiApp(t, s.URL, false)
		ended := make(chan int, 1)
		go func() { ended <- a.execute(ctx, []string{"dlq", "replay", "--all"}) }()
		<-asked
		cancel()
		code, said := <-ended, errs.String()
		s.Close()
		if code != exitFailed || !strings.Contains(said, "error: cancelled: interrupted") || strings.Count(said, "what was not replayed still waits") != 1 ||
			strings.Contains(said, "1 of 3 replayed") != (batches == 1) {
			t.Errorf("after %d batches: exit code %d, %s", batches, code, said)
		}
	}
}
