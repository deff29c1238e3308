package kafka

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/parley-project/parley/internal/bus"
)

// TestForeignTopicDeleted: a topic of somebody else's is deleted while a record of it is in
// hand. That its offset cannot be committed any more keeps the process in service: it is
// told in the log, as that the topic cannot be read.
func TestForeignTopicDeleted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders", "parley.hints"))
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	told := make(chan string, 1024)
	b, err := New(ctx, Config{Brokers: broker.ListenAddrs(), Logger: slog.New(lines(told))})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	taken, release := make(chan struct{}), make(chan struct{})
	orders := bus.TopicSubject("orders")
	if _, err := b.Subscribe(ctx, orders, "g", func(context.Context, bus.Message) error {
		close(taken)
		<-release
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var h heard
	if _, err := b.Subscribe(ctx, bus.SubjectHint, "g", h.handle); err != nil {
		t.Fatal(err)
	}
	send(t, b, orders, 0, 1)
	select {
	case <-taken:
	case <-ctx.Done():
		t.Fatal("the record does not come")
	}
	if _, err := b.admin.DeleteTopics(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	close(release)
	for line := ""; line != "offsets of a topic cannot be committed; that is tried again"; {
		select {
		case line = <-told:
		case <-time.After(time.Second):
		case <-ctx.Done():
			t.Fatal("it is not told that the offset is not committed")
		}
		if err := b.Health(ctx); err != nil {
			t.Fatal(err)
		}
	}
	send(t, b, bus.SubjectHint, 0, 10)
	h.wait(t, 10)
	for behind := true; behind; {
		if behind, err = behindIn(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
}

// behindIn reports whether hints are not committed yet.
func behindIn(ctx context.Context, b *Bus) (bool, error) {
	ends, err := b.EndOffsets(ctx, bus.SubjectHint)
	if err != nil {
		return false, err
	}
	done, err := b.CaughtUp(ctx, bus.SubjectHint, "g", ends)
	return !done, err
}

// lines is a log whose texts go to a channel.
type lines chan<- string

func (lines) Enabled(context.Context, slog.Level) bool { return true }

func (l lines) Handle(_ context.Context, r slog.Record) error {
	select {
	case l <- r.Message:
	default:
	}
	return nil
}
func (l lines) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l lines) WithGroup(string) slog.Handler      { return l }
