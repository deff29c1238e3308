package executor

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

const (
	// topicsEvery is how often it is looked for topics that versions deployed
	// elsewhere are started by, topicsAgain how long one waits that could not be
	// subscribed to.
	topicsEvery = 2 * time.Second
	topicsAgain = 10 * time.Second
	// recordWorkers bounds the records of one topic that start runs at a time.
	recordWorkers = 16
)

// serveTriggers starts what starts runs by itself; g owns it.
func (x *Executor) serveTriggers(ctx context.Context, g *errgroup.Group) {
	if x.cfg.Triggers == nil {
		return
	}
	if x.cfg.Signals != nil {
		g.Go(func() error { x.serveEventStarts(ctx); return nil })
	}
	if x.cfg.KafkaTopic != nil && !x.cfg.Guest {
		t := &topics{x: x, taken: make(map[string]func()), failed: make(map[string]failedTopic)}
		g.Go(func() error { t.serve(ctx); return nil })
	}
}

// topics are the subscriptions to the topics whose records start runs. They belong
// to one goroutine.
type topics struct {
	x     *Executor
	taken map[string]func()
	// failed are those that could not be subscribed to.
	failed map[string]failedTopic
}

type failedTopic struct {
	why   string
	again time.Time
}

// serve follows what is deployed until ctx ends, or no more runs are taken.
func (t *topics) serve(ctx context.Context) {
	defer func() {
		for _, stop := range t.taken {
			stop()
		}
	}()
	tick := time.NewTicker(topicsEvery)
	defer tick.Stop()
	for t.x.refusing.Err() == nil {
		if err := t.follow(ctx); err != nil && ctx.Err() == nil {
			t.x.cfg.Logger.Error("the topics of triggers were not looked up; that is tried again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.x.refusing.Done():
			return
		case <-tick.C:
		case <-t.x.deployed:
		}
	}
}

// follow subscribes to the topics that are wanted now, and to no others.
func (t *topics) follow(ctx context.Context) error {
	list, err := t.x.cfg.Triggers.Triggered(ctx, store.Trigger{Kind: store.TriggerKafka})
	if err != nil {
		return err
	}
	wanted := make(map[string]bool, len(list))
	for _, w := range list {
		wanted[w.Name] = true
	}
	for topic, stop := range t.taken {
		if !wanted[topic] {
			stop()
			delete(t.taken, topic)
			t.x.cfg.Logger.Info("the records of a topic start no runs any more", "event", "trigger_topic", "topic", topic)
		}
	}
	maps.DeleteFunc(t.failed, func(topic string, _ failedTopic) bool { return !wanted[topic] })
	for _, topic := range slices.Sorted(maps.Keys(wanted)) {
		if t.taken[topic] == nil {
			t.take(ctx, topic)
		}
	}
	return nil
}

func (t *topics) take(ctx context.Context, topic string) {
	was := t.failed[topic]
	if t.x.cfg.Now().Before(was.again) {
		return
	}
	in := &intake{subject: bus.TopicSubject(topic), group: t.x.cfg.Group + "-triggers", workers: recordWorkers}
	in.handle = func(ctx context.Context, m bus.Message, _ time.Time) error { return t.x.takeRecord(ctx, topic, m) }
	err := t.x.cfg.KafkaTopic(topic)
	var stop func()
	if err == nil {
		stop, err = t.x.takeIn(ctx, in)
	}
	if err == nil {
		t.taken[topic] = stop
		delete(t.failed, topic)
		t.x.cfg.Logger.Info("the records of a topic start runs", "event", "trigger_topic", "topic", topic, "group", in.group)
		return
	}
	if ctx.Err() != nil {
		return
	}
	if why := err.Error(); why != was.why {
		t.x.cfg.Logger.Error("the records of a topic cannot start runs; that is tried again", "event", "trigger_topic", "topic", topic, "error", err)
		was.why = why
	}
	was.again = t.x.cfg.Now().Add(topicsAgain)
	t.failed[topic] = was
}

// deploys says that something was deployed here that may be started by other
// topics.
func (x *Executor) deploys() {
	select {
	case x.deployed <- struct{}{}:
	default:
	}
}

// On a record that is a dead letter since it could not start the runs of some
// workflows: replayed, it starts those and no others, and nothing that it has started
// as the record that it was. The names are escaped and apart by blanks.
const (
	headerTrigger = "parley-trigger"
	headerRecord  = "parley-record"
)

// triggerRecord is a record that starts runs: which one it is, by its place and its
// time, and for which workflows; nil is all.
type triggerRecord struct {
	place string
	at    time.Time
	only  []string
	bus.Message
}

func triggerRecordOf(topic string, m bus.Message) triggerRecord {
	r := triggerRecord{
		place: topic + "/" + strconv.FormatInt(int64(m.At.Partition), 10) + "/" + strconv.FormatInt(m.At.Offset, 10), at: m.At.Time.UTC(), Message: m,
	}
	for name := range strings.FieldsSeq(m.Header[headerTrigger]) {
		if plain, err := url.PathUnescape(name); err == nil {
			name = plain
		}
		r.only = append(r.only, name)
	}
	place, stamp, _ := strings.Cut(m.Header[headerRecord], " ")
	if at, err := time.Parse(time.RFC3339Nano, stamp); err == nil && r.only != nil && strings.HasPrefix(place, topic+"/") {
		r.place, r.at = place, at.UTC()
	}
	return r
}

// stamp tells records of one place apart: a topic that was made anew counts from 0 again.
func (r *triggerRecord) stamp() string { return r.at.Format(time.RFC3339Nano) }

// notStartedError says for which workflows a record has started no run.
type notStartedError struct {
	record    triggerRecord
	workflows []string
	err       error
}

func (e *notStartedError) Error() string { return e.err.Error() }
func (e *notStartedError) Unwrap() error { return e.err }

// mark has a replay of m be for what was not started. The marks stand first: of many
// headers a dead letter keeps the first.
func (e *notStartedError) mark(m *bus.Message) {
	names := make([]string, len(e.workflows))
	for i, name := range e.workflows {
		names[i] = url.PathEscape(name)
	}
	m.Put(headerTrigger, strings.Join(names, " "))
	m.Put(headerRecord, e.record.place+" "+e.record.stamp())
	if n := len(m.Headers) - 2; n > 0 {
		m.Headers = slices.Concat(m.Headers[n:], m.Headers[:n])
	}
}

// takeRecord starts the runs of one record: one for each trigger of its topic that
// wants it. It returns when they are durable. Those that it cannot start are told by
// [notStartedError], and keep nobody else's from being started.
func (x *Executor) takeRecord(ctx context.Context, topic string, m bus.Message) error {
	workflows, err := x.cfg.Triggers.Triggered(ctx, store.Trigger{Kind: store.TriggerKafka, Name: topic})
	if err != nil {
		return err
	}
	failed := notStartedError{record: triggerRecordOf(topic, m)}
	lost := map[string]error{}
	for _, w := range workflows {
		if failed.record.only != nil && !slices.Contains(failed.record.only, w.Workflow) {
			continue
		}
		err := x.fireRecord(ctx, w, &failed.record)
		if err == nil {
			continue
		}
		failed.workflows = append(failed.workflows, w.Workflow)
		if final(err) {
			lost[w.Workflow] = err
			err = parley.Errorf(parley.CodeOf(err), "workflow %s: %w", w.Workflow, err)
		}
		if failed.err == nil || final(failed.err) && !final(err) { // what may pass goes before
			failed.err = err
		}
	}
	if failed.err == nil {
		return nil
	}
	if final(failed.err) { // else all of it is tried again
		for _, workflow := range slices.Sorted(maps.Keys(lost)) {
			x.missed(triggerKafka, workflow, failed.record.place, lost[workflow])
		}
	}
	return &failed
}

// fireRecord starts the runs of one workflow by a record. The first error that is
// final is given when all triggers were tried.
func (x *Executor) fireRecord(ctx context.Context, w store.Triggered, r *triggerRecord) (first error) {
	v, err := x.defs.resolve(ctx, w.Workflow+"@"+w.Version)
	if err != nil {
		return err
	}
	event, err := recordEvent(w.Name, r, x.cfg.Limits.Value)
	if err != nil {
		return err
	}
	for i, t := range v.def.Triggers {
		if t.Kafka == nil || t.Kafka.Topic != w.Name {
			continue
		}
		what := r.stamp()
		f, err := x.launch(ctx, firing{
			v: v, trigger: t, by: triggerKafka, event: event, key: firingKey(triggerKafka, placeOf(i)+r.place+"/"+what), what: what, trace: traceOf(&r.Message),
		})
		switch {
		case err == nil:
			x.noted(triggerKafka, f)
		case !final(err):
			return err
		case first == nil:
			first = err
		}
	}
	return first
}

// recordEvent is what the expressions of a trigger see of a record: what rule C8
// says of an event. A record without a value has null.
func recordEvent(topic string, r *triggerRecord, most int64) ([]byte, error) {
	e := parley.Signal{ID: r.place, Name: topic, Key: strings.ToValidUTF8(r.Key, string(utf8.RuneError)), Time: r.at}
	if e.Data = valueOf(r.Value); r.Value == nil {
		e.Data = []byte("null")
	}
	return (&workflow.Definition{}).CheckInput(workflow.SignalJSON(e), most) // its size and its depth
}
