package kafka_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	parley "github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/kafka"
	"github.com/parley-project/parley/internal/kafkatest"
)

// rules changes the access rules of kafkatest.User.
type rules struct {
	t     *testing.T
	admin *kadm.Client
}

func (r rules) of(kind, name string, operation kadm.ACLOperation) *kadm.ACLBuilder {
	b := kadm.NewACLs().Allow("User:" + kafkatest.User).AllowHosts("*").ResourcePatternType(kadm.ACLPatternLiteral).Operations(operation)
	if kind == "group" {
		return b.Groups(name)
	}
	return b.Topics(name)
}

func (r rules) grant(kind, name string, operations ...kadm.ACLOperation) {
	r.t.Helper()
	for _, o := range operations {
		made, err := r.admin.CreateACLs(r.t.Context(), r.of(kind, name, o))
		if err != nil || len(made) != 1 || made[0].Err != nil {
			r.t.Fatalf("allow %v on the %s %s: %v %v", o, kind, name, err, made)
		}
	}
}

func (r rules) take(kind, name string, operation kadm.ACLOperation) {
	r.t.Helper()
	gone, err := r.admin.DeleteACLs(r.t.Context(), r.of(kind, name, operation))
	if err != nil || len(gone) != 1 || len(gone[0].Deleted) != 1 {
		r.t.Fatalf("forbid %v on the %s %s: %v %v", operation, kind, name, err, gone)
	}
}

// TestRights: what a user may not do is named, with the topic or group and what to allow,
// at the start and when it is forbidden to running processes; those go on by themselves
// when it is allowed, and nothing is lost.
func TestRights(t *testing.T) { //nolint:tparallel // its parts follow each other
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{SASL: true, ACL: true})
	kafkatest.Create(t, c.Brokers(), 12, "runs", "tasks")
	r := rules{t, administer(t, c.Brokers())}
	var log loggedLines
	b := open(t, kafka.Config{
		Brokers: c.SecureBrokers(), SASL: &kafka.SASL{Mechanism: kafka.Plain, User: kafkatest.User, Secret: given(kafkatest.UserPassword)},
		Topics: map[string]string{bus.SubjectRuns: "runs", bus.SubjectTasks: "tasks", bus.SubjectHint: "hints"},
		Used:   []string{bus.SubjectRuns, bus.SubjectTasks, bus.SubjectHint}, Written: []string{bus.SubjectRuns}, Logger: log.logger(), CommitInterval: 10 * time.Millisecond,
	})
	t.Run("topics", func(t *testing.T) { rightsOnTopics(t, b, r) })
	t.Run("start", func(t *testing.T) { rightsAtStart(t, b, r) })
	t.Run("running", func(t *testing.T) { rightsTakenAway(t, b, r, &log) })
}

// rightsOnTopics: what may not be looked at is said of each topic, and the others are looked
// at and made all the same.
func rightsOnTopics(t *testing.T, b *kafka.Bus, r rules) {
	check := func(of func(context.Context) (kafka.Report, error), code parley.Code, says ...string) {
		t.Helper()
		eventually(t, "the report is of code "+string(code)+" and says "+strings.Join(says, ", "), func() bool {
			report, err := of(t.Context())
			text := report.String()
			return err == nil && parley.CodeOf(report.Err()) == code &&
				!slices.ContainsFunc(says, func(s string) bool { return !strings.Contains(text, s) })
		})
	}
	check(b.CheckTopics, parley.CodeUnauthorized, "unknown  runs", "DESCRIBE on the topic runs", "DESCRIBE on the topic tasks", "DESCRIBE on the topic hints")
	r.grant("topic", "tasks", kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs)
	r.grant("topic", "runs", kmsg.ACLOperationDescribe)
	check(b.CheckTopics, parley.CodeUnauthorized, "ok       tasks", "unknown  runs", "DESCRIBE_CONFIGS on the topic runs", "DESCRIBE on the topic hints")
	r.grant("topic", "hints", kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs)
	r.grant("topic", "runs", kmsg.ACLOperationDescribeConfigs)
	check(b.CheckTopics, parley.CodeInvalid, "it does not exist; make it with `parley topics create`")
	check(b.CreateTopics, parley.CodeInvalid, "it does not exist, and may not be made", "CREATE on the topic hints")
	r.grant("topic", "hints", kmsg.ACLOperationCreate)
	check(b.CreateTopics, "", "created  hints", "ok       tasks", "warning  runs", "allow the user of bus.kafka.sasl WRITE on the topic runs")
}

// rightsAtStart: each right that is missing is named in turn.
func rightsAtStart(t *testing.T, b *kafka.Bus, r rules) {
	subscribed := func(says string) {
		t.Helper()
		eventually(t, "a subscription fails for "+says, func() bool {
			stop, err := b.Subscribe(t.Context(), bus.SubjectRuns, "g", func(context.Context, bus.Message) error { return nil })
			if err == nil {
				stop()
			}
			return parley.CodeOf(err) == parley.CodeUnauthorized && strings.HasSuffix(err.Error(), "; allow the user of bus.kafka.sasl "+says)
		})
	}
	subscribed("READ on the group g")
	r.grant("group", "g", kmsg.ACLOperationRead)
	subscribed("READ on the topic runs")
	r.grant("topic", "runs", kmsg.ACLOperationRead)
	err := b.Publish(t.Context(), bus.Message{Subject: bus.SubjectRuns, Key: "k"})
	if parley.CodeOf(err) != parley.CodeUnauthorized || !strings.Contains(err.Error(), "WRITE on the topic runs") {
		t.Errorf("publish: %v", err)
	}
	r.grant("topic", "runs", kmsg.ACLOperationWrite)
	eventually(t, "it publishes when it may", func() bool {
		return b.Publish(t.Context(), bus.Message{Subject: bus.SubjectRuns, Key: "k"}) == nil
	})
	eventually(t, "nothing is said of the right to write", func() bool {
		report, err := b.CheckTopics(t.Context())
		return err == nil && strings.Contains(report.String(), "ok       runs")
	})
	if missing, err := b.Missing(t.Context(), bus.SubjectRuns, bus.SubjectTasks); err != nil || len(missing) > 0 {
		t.Errorf("%v are missing, %v", missing, err)
	}
}

// rightsTakenAway: processes that run say what they may not do any more, and go on by
// themselves.
func rightsTakenAway(t *testing.T, b *kafka.Bus, r rules, log *loggedLines) {
	var got sync.Map
	stop, err := b.Subscribe(t.Context(), bus.SubjectRuns, "g", func(_ context.Context, m bus.Message) error {
		got.Store(m.Key, true)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	sent := 0
	send := func() {
		t.Helper()
		sent++
		m := bus.Message{Subject: bus.SubjectRuns, Key: fmt.Sprint(sent)}
		eventually(t, "a record is taken", func() bool { return b.Publish(t.Context(), m) == nil })
	}
	arrived := func() bool {
		for i := 1; i <= sent; i++ {
			if _, ok := got.Load(fmt.Sprint(i)); !ok {
				return false
			}
		}
		return true
	}
	send()
	eventually(t, "the first record arrives", arrived)
	for _, gone := range []struct {
		kind, name string
		operation  kadm.ACLOperation
	}{
		{"topic", "runs", kmsg.ACLOperationRead}, {"topic", "runs", kmsg.ACLOperationWrite}, {"group", "g", kmsg.ACLOperationRead},
	} {
		wants := strings.ToUpper(gone.operation.String()) + " on the " + gone.kind + " " + gone.name
		before := strings.Count(log.String(), "\n")
		r.take(gone.kind, gone.name, gone.operation)
		eventually(t, "health wants "+wants, func() bool {
			if gone.operation != kmsg.ACLOperationWrite {
				send()
			} else {
				_ = b.Publish(t.Context(), bus.Message{Subject: bus.SubjectRuns, Key: "0"})
			}
			err := b.Health(t.Context())
			return err != nil && strings.Contains(err.Error(), wants)
		})
		time.Sleep(5 * time.Second) // of trying again
		if lines := strings.Count(log.String(), "\n") - before; lines > 10 {
			t.Errorf("%d lines of %s:\n%s", lines, wants, log.String())
		}
		r.grant(gone.kind, gone.name, gone.operation)
		send()
		eventually(t, "all records arrive after "+wants, arrived)
		eventually(t, "all is well again", func() bool { return b.Health(t.Context()) == nil })
		if !strings.Contains(log.String(), wants) {
			t.Errorf("the log does not say %s:\n%s", wants, log.String())
		}
	}
}
