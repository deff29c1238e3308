package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// TestReplayBesideAnother: what another command has replayed meanwhile, or is
// replaying, is told with its reason and does not fail this one.
func TestReplayBesideAnother(t *testing.T) {
	t.Parallel()
	batches := []string{
		`{"matched": 3, "replayed": 1, "elsewhere": 1, "next": "n", "first": [], "failures": [],
			"others": [{"id": "dl-a", "code": "conflict", "detail": "it was replayed by ann meanwhile"}]}`,
		`{"matched": 1, "replayed": 0, "elsewhere": 1, "first": [], "failures": [],
			"others": [{"id": "dl-b", "code": "conflict", "detail": "it is being replayed by somebody else just now"}]}`,
	}
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(batches[min(asked, len(batches)-1)]))
		asked++
	}))
	defer s.Close()
	a, out, errs := apiApp(t, s.URL, false)
	code := a.execute(t.Context(), []string{"dlq", "replay", "--all"})
	if code != 0 || !strings.Contains(errs.String(), "1 of 3 replayed, 0 failed, 1 by others") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	for _, want := range []string{`By others +2\n`, `dl-a +it was replayed by ann meanwhile`, `dl-b +it is being replayed`} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("%s is not in\n%s", want, out)
		}
	}
}

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
