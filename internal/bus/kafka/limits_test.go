package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	parley "github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
)

// TestGroupRefused: limits of the brokers that keep a process out of its group are in the
// log at once with what to change, a few lines of it, and the process joins when it may.
func TestGroupRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		refusal *kerr.Error
		says    string
	}{
		{kerr.GroupMaxSizeReached, "raise group.max.size"},
		{kerr.InvalidSessionTimeout, "set group.min.session.timeout.ms of the brokers to 10000 or less"},
	} {
		t.Run(test.refusal.Message, func(t *testing.T) {
			t.Parallel()
			broker, cfg := oneTopic(t)
			var refuses atomic.Bool
			refuses.Store(true)
			broker.ControlKey(int16(kmsg.JoinGroup), func(req kmsg.Request) (kmsg.Response, error, bool) {
				broker.KeepControl()
				resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
				resp.ErrorCode = test.refusal.Code
				return resp, nil, refuses.Load()
			})
			var log loggedLines
			cfg.Logger = log.logger()
			b := open(t, cfg)
			heard := make(chan struct{}, 1)
			stop, err := b.Subscribe(t.Context(), bus.SubjectRuns, "g", func(context.Context, bus.Message) error {
				heard <- struct{}{}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			if err := b.Publish(t.Context(), bus.Message{Subject: bus.SubjectRuns, Key: "k"}); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the log says "+test.says, func() bool { return strings.Contains(log.String(), test.says) })
			if err := b.Health(t.Context()); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("health: %v", err)
			}
			time.Sleep(5 * time.Second) // of trying again
			if n := strings.Count(log.String(), "\n"); n > 4 {
				t.Errorf("%d lines:\n%s", n, log.String())
			}
			refuses.Store(false)
			<-heard
			eventually(t, "all is well", func() bool { return b.Health(t.Context()) == nil })
		})
	}
}

// TestRecordRefused: what a topic does not take at all is refused with what to look at.
func TestRecordRefused(t *testing.T) {
	for _, test := range []struct {
		refusal *kerr.Error
		says    string
	}{
		{kerr.InvalidTimestamp, "compare the clock of this machine with the brokers'"},
		{kerr.InvalidRecord, "cleanup.policy"},
		{kerr.TopicAuthorizationFailed, "WRITE on the topic runs"},
	} {
		broker, cfg := oneTopic(t)
		broker.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
			return produced(req.(*kmsg.ProduceRequest), test.refusal.Code), nil, true
		})
		b := open(t, cfg)
		publish := func() error { return b.Publish(t.Context(), bus.Message{Subject: bus.SubjectRuns, Key: "k"}) }
		if err := publish(); parley.CodeOf(err) == "" || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", test.refusal.Message, err, test.says)
		}
		if err := b.Health(t.Context()); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: health: %v", test.refusal.Message, err)
		}
		if err := publish(); err != nil {
			t.Errorf("after %s: %v", test.refusal.Message, err)
		}
	}
}

// TestGoneUnread: a group goes on where a topic starts now, and says once what it has missed.
func TestGoneUnread(t *testing.T) {
	_, cfg := oneTopic(t)
	admin := administer(t, cfg.Brokers)
	var log loggedLines
	cfg.Logger, cfg.CommitInterval = log.logger(), 10*time.Millisecond
	var got tally
	spot := spotOf(t, bus.SubjectRuns)
	round := func(from, to int) {
		t.Helper()
		b := open(t, cfg)
		defer func() { _ = b.Close() }()
		stop := subscribe(t, b, spot, got.handle)
		defer stop()
		publishMany(t, b, bus.SubjectRuns, from, to)
		eventually(t, "they are handled", func() bool { return got.has(from, to) })
	}
	round(0, 5)
	publishMany(t, open(t, cfg), bus.SubjectRuns, 5, 9)
	if log.String() != "" {
		t.Errorf("nothing is wrong:\n%s", log.String())
	}
	ends, err := admin.ListEndOffsets(t.Context(), "runs")
	if err != nil {
		t.Fatal(err)
	}
	if gone, err := admin.DeleteRecords(t.Context(), ends.Offsets()); err != nil || gone.Error() != nil {
		t.Fatal(err, gone.Error())
	}
	round(9, 12)
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "deleted before they were read") || !strings.Contains(text, "from=5 next=9") {
		t.Errorf("the log:\n%s", text)
	}
}

// TestForbiddenBehindUnanswered: that a record is refused for a missing right says that it is
// not in the log, but not if a try before that was never answered.
func TestForbiddenBehindUnanswered(t *testing.T) {
	broker, cfg := oneTopic(t)
	var tries atomic.Int32
	broker.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		if tries.Add(1) == 1 {
			return nil, errors.New("the connection breaks"), true
		}
		return produced(req.(*kmsg.ProduceRequest), kerr.TopicAuthorizationFailed.Code), nil, true
	})
	b := open(t, cfg)
	for i, want := range []parley.Code{parley.CodeUnavailable, parley.CodeUnauthorized} {
		err := b.Publish(t.Context(), bus.Message{Subject: bus.SubjectRuns, Key: "k"})
		if parley.CodeOf(err) != want || !strings.Contains(err.Error(), "WRITE on the topic runs") {
			t.Errorf("publication %d: %v, want %s", i, err, want)
		}
	}
}

// produced answers for each partition of a request with a code.
func produced(req *kmsg.ProduceRequest, code int16) *kmsg.ProduceResponse {
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	for _, topic := range req.Topics {
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic, rt.TopicID = topic.Topic, topic.TopicID
		for _, p := range topic.Partitions {
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, code
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// TestQuota: a process that a quota holds back goes on, is ready, and has a line in its log
// now and then; what is not confirmed because of it says so.
func TestQuota(t *testing.T) {
	t.Parallel()
	broker, cfg := oneTopic(t)
	var stuck atomic.Bool
	broker.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		if stuck.Load() {
			broker.SleepControl(func() { <-t.Context().Done() })
			return nil, nil, false
		}
		resp := produced(req.(*kmsg.ProduceRequest), 0)
		resp.ThrottleMillis = 1000
		return resp, nil, true
	})
	var log loggedLines
	cfg.Logger, cfg.PublishTimeout = log.logger(), 15*time.Second
	b := open(t, cfg)
	publish := func(ctx context.Context) error {
		return b.Publish(ctx, bus.Message{Subject: bus.SubjectRuns, Key: "k"})
	}
	for range 3 {
		if err := publish(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "producer_byte_rate") || !strings.Contains(text, "client_id=parley") {
		t.Errorf("the log:\n%s", text)
	}
	if err := b.Health(t.Context()); err != nil {
		t.Error(err)
	}
	stuck.Store(true)
	if err := publish(t.Context()); err == nil || !strings.Contains(err.Error(), "a quota of the brokers holds this process back") {
		t.Errorf("not confirmed in time: %v", err)
	}
}

// TestCommitOnItsWayAtEnd: a bus that ends does not wait for two commits one after the
// other, each to its limit, if brokers say nothing; and for none, if that is known.
func TestCommitOnItsWayAtEnd(t *testing.T) {
	t.Parallel()
	for commits, most := range map[int]time.Duration{1: 9 * time.Second, 2: 4 * time.Second} {
		t.Run(fmt.Sprint("in commit ", commits), func(t *testing.T) {
			t.Parallel()
			broker, cfg := oneTopic(t)
			b := open(t, cfg)
			var got tally
			subscribe(t, b, spot{bus.SubjectRuns, "g"}, got.handle)
			asked, silent := make(chan struct{}, 10), make(chan struct{})
			broker.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
				broker.KeepControl()
				asked <- struct{}{}
				broker.SleepControl(func() { <-silent })
				return nil, nil, false
			})
			defer close(silent)
			publishMany(t, b, bus.SubjectRuns, 0, 1)
			for range commits {
				<-asked
			}
			took := pulse(t)
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if took := took(); took > most {
				t.Errorf("it took %s", took)
			}
		})
	}
}
