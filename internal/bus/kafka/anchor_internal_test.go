package kafka

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// TestPatientlyToTheEnd: where the time ends while a question is open, what the brokers
// have said before is the reason, not that the time has ended.
func TestPatientlyToTheEnd(t *testing.T) {
	for name, c := range map[string]struct{ said, want error }{
		"brokers that are not ready": {kerr.CoordinatorNotAvailable, kerr.CoordinatorNotAvailable},
		"brokers that say nothing":   {nil, context.DeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			said := c.said
			_, err := patiently(ctx, func(ctx context.Context) (int, error) {
				if err := said; err != nil {
					said = nil
					return 0, err
				}
				<-ctx.Done()
				return 0, ctx.Err()
			})
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		})
	}
}

// TestPatiently: what may pass is asked again, with time between, until it has or
// the time is up; everything else is said at once.
func TestPatiently(t *testing.T) {
	dial := &kadm.ShardErrors{Name: "ListOffsets", Errs: []kadm.ShardError{{Err: &net.OpError{Op: "dial", Err: errors.New("connection reset")}}}}
	for name, c := range map[string]struct {
		err         error
		fails       int // that often, then an answer
		asked       int
		least, most time.Duration
	}{
		"a broker that cannot be reached": {dial, 3, 4, 700 * time.Millisecond, 700 * time.Millisecond},
		"one that never can be":           {dial, 1000, 18, 15 * time.Second, 15 * time.Second},
		"a leader that moves":             {kerr.NotLeaderForPartition, 2, 3, 300 * time.Millisecond, 300 * time.Millisecond},
		"a topic that nobody knows":       {kerr.UnknownTopicOrPartition, 1000, 4, 700 * time.Millisecond, 700 * time.Millisecond},
		"a broken connection":             {&net.OpError{Op: "read", Err: errors.New("reset")}, 1000, 1, 0, 0},
		"no right to do so":               {kerr.TopicAuthorizationFailed, 1000, 1, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			began, asked := time.Now(), 0
			_, err := patiently(ctx, func(context.Context) (int, error) {
				if asked++; asked <= c.fails {
					return 0, c.err
				}
				return 1, nil
			})
			took := time.Since(began)
			if asked != c.asked || took < c.least || took > c.most || (err != nil) != (asked <= c.fails) || err != nil && !errors.Is(err, c.err) {
				t.Errorf("%s: asked %d times in %v, want %d times in %v: %v", name, asked, took, c.asked, c.most, err)
			}
		})
	}
}
