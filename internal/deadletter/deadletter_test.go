package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/deadletter"
	"github.com/parley-project/parley/internal/store"
)

// rig is a keeper over a real store in virtual time; the bus and the executor are
// the test's.
type rig struct {
	t       *testing.T
	db      *store.DB
	keeper  *deadletter.Keeper
	metrics *prometheus.Registry

	mu        sync.Mutex // protects what follows
	published []bus.Message
	retried   []string
	// refuse, if set, is asked about each message, retry about each run.
	refuse func(bus.Message) error
	retry  func(run string) error
}

func (r *rig) Publish(_ context.Context, m bus.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse != nil {
		if err := r.refuse(m); err != nil {
			return err
		}
	}
	r.published = append(r.published, m)
	return nil
}

func (r *rig) Subscribe(context.Context, string, string, bus.Handler) (func(), error) {
	return func() {}, nil
}

// retryRun stands for the executor: the start of the new run resolves the letter.
func (r *rig) retryRun(ctx context.Context, run string, req parley.ReplayRequest) (parley.Run, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.retry != nil {
		if err := r.retry(run); err != nil {
			return parley.Run{}, err
		}
	}
	next := run + "-again"
	now := time.Now().UTC()
	_, err := r.db.StartRun(ctx, store.Start{
		Run: store.Run{
			ID: next, Workflow: "w", Version: "1", Seq: 1, Status: parley.RunRunning, RetriedFrom: run, CreatedAt: now, UpdatedAt: now,
		},
		Events: []parley.Event{{Seq: 1, At: now, Type: parley.EventRunStarted, Run: next, Data: []byte("{}")}},
		Replay: &store.Replay{ID: req.ID, Force: req.Force, By: req.By},
	})
	r.retried = append(r.retried, run)
	return parley.Run{ID: next}, err
}

func onKeeper(t *testing.T, limits deadletter.Limits, f func(r *rig)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "parley.db")
	synctest.Test(t, func(t *testing.T) {
		db, err := store.Open(t.Context(), file, store.Options{})
		check(t, err)
		check(t, db.Migrate(t.Context()))
		r := &rig{t: t, db: db, metrics: prometheus.NewRegistry()}
		metrics, err := deadletter.NewMetrics(r.metrics)
		check(t, err)
		r.keeper = deadletter.New(deadletter.Config{DB: db, Bus: r, Retry: r.retryRun, Copies: true, Limits: limits, Metrics: metrics})
		f(r)
		check(t, db.Close())
	})
}

// running runs the keeper during f.
func (r *rig) running(f func()) {
	ctx, stop := context.WithCancel(r.t.Context())
	ended := make(chan error)
	go func() { ended <- r.keeper.Run(ctx) }()
	f()
	stop()
	check(r.t, <-ended)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, code parley.Code, words string) {
	t.Helper()
	if parley.CodeOf(err) != code || !strings.Contains(err.Error(), words) {
		t.Fatalf("error %v, want %s with %q", err, code, words)
	}
}

func record(offset int64) bus.DeadLetter {
	return bus.DeadLetter{
		Message: bus.Message{
			Subject: bus.SubjectTasks, Key: "run-1", Value: []byte("{\"n\": 1} "),
			Header: map[string]string{"traceparent": "00-1", "authorization": "Bearer hunter2"},
			At:     bus.Position{Topic: "orchestrator.tasks.http", Partition: 3, Offset: offset},
		},
		Code: "invalid", Reason: "no task_id", Attempts: 1, Group: "g", Agent: "writer",
	}
}

// keep keeps a record and gives its dead letter.
func (r *rig) keep(d bus.DeadLetter) parley.DeadLetter {
	r.t.Helper()
	before := r.ids(parley.DeadLetterFilter{})
	check(r.t, r.keeper.Keep(r.t.Context(), d))
	for _, id := range r.ids(parley.DeadLetterFilter{}) {
		if !strings.Contains(strings.Join(before, " "), id) {
			l, err := r.keeper.Get(r.t.Context(), id)
			check(r.t, err)
			return l
		}
	}
	r.t.Fatal("nothing was kept")
	return parley.DeadLetter{}
}

// giveUp stores the dead letter of a run's task, as the executor does.
func (r *rig) giveUp(run string) parley.DeadLetter {
	r.t.Helper()
	l := parley.DeadLetter{
		Kind: parley.DeadLetterTask, Code: parley.CodeAgentError, Reason: "no", Attempts: 2, Agent: "writer", Run: run, Task: run + ".a.2",
		HTTPStatus: 500, CreatedAt: time.Now(), FirstFailedAt: time.Now().Add(-time.Minute), Key: []byte(run), Value: []byte("{}"),
	}.Seal()
	_, err := r.db.KeepDeadLetter(r.t.Context(), l)
	check(r.t, err)
	return l
}

func (r *rig) ids(f parley.DeadLetterFilter) (ids []string) {
	r.t.Helper()
	list, _, err := r.keeper.List(r.t.Context(), parley.DeadLetterQuery{Filter: f, Ascending: true, Page: parley.Page{Limit: 500}})
	check(r.t, err)
	for i := range list {
		ids = append(ids, list[i].ID)
	}
	return ids
}

// messages gives what was published since the last call.
func (r *rig) messages() []bus.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.published
	r.published = nil
	return list
}

func (r *rig) refuses(f func(bus.Message) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = f
}

func (r *rig) wantMetric(name string, want float64) {
	r.t.Helper()
	families, err := r.metrics.Gather()
	check(r.t, err)
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			if got := m.GetCounter().GetValue() + m.GetGauge().GetValue(); got != want {
				r.t.Errorf("%s is %v, want %v", name, got, want)
			}
			return
		}
	}
	r.t.Errorf("there is no %s", name)
}

// TestKeep: a record is kept once, whole, without the secrets of its headers.
func TestKeep(t *testing.T) {
	onKeeper(t, deadletter.Limits{}, func(r *rig) {
		t := r.t
		l := r.keep(record(7))
		check(t, r.keeper.Keep(t.Context(), record(7)))
		want := parley.DeadLetter{
			Kind: parley.DeadLetterRecord, Code: parley.CodeInvalid, Reason: "no task_id", Attempts: 1, Agent: "writer", CreatedAt: l.CreatedAt,
			Source: &parley.DeadLetterSource{Subject: bus.SubjectTasks, Topic: "orchestrator.tasks.http", Partition: 3, Offset: 7, Group: "g"},
			Key:    []byte("run-1"), Value: []byte("{\"n\": 1} "),
			Headers: []parley.DeadLetterHeader{{Name: "authorization", Value: []byte("[redacted]")}, {Name: "traceparent", Value: []byte("00-1")}},
		}.Seal()
		if d := cmp.Diff(want, l); d != "" {
			t.Error(d)
		}
		if n := len(r.ids(parley.DeadLetterFilter{})); n != 1 {
			t.Errorf("%d dead letters", n)
		}
		r.wantMetric("parley_dead_letter_records_total", 1)
	})
}

// TestCopies: a copy of each dead letter goes out once it is stored, with the
// original bytes and Kafka's names for what is known of the failure; a bus that
// is gone delays it and nothing else.
func TestCopies(t *testing.T) {
	onKeeper(t, deadletter.Limits{}, func(r *rig) {
		t := r.t
		l, task := r.keep(record(7)), r.giveUp("run-2")
		r.refuses(func(bus.Message) error { return parley.Errorf(parley.CodeUnavailable, "no broker") })
		r.running(func() {
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if list := r.messages(); len(list) > 0 {
				t.Errorf("published: %v", list)
			}
			r.refuses(nil)
			time.Sleep(2 * time.Minute)
		})
		got := r.messages()
		want := []bus.Message{
			{Subject: bus.SubjectDeadLetters, Key: "run-1", Value: []byte("{\"n\": 1} "), Header: map[string]string{
				"traceparent": "00-1", "authorization": "[redacted]",
				"__dlq.errors.topic": "orchestrator.tasks.http", "__dlq.errors.partition": "3", "__dlq.errors.offset": "7",
				"__dlq.errors.group": "g", "__dlq.errors.delivery.count": "1", "__dlq.errors.message": "no task_id",
				"dlq.id": l.ID, "dlq.agent": "writer", "dlq.attempts": "1", "dlq.error.class": "invalid",
				"dlq.first.failed.at": l.FirstFailedAt.Format(time.RFC3339Nano),
			}},
			{Subject: bus.SubjectDeadLetters, Key: "run-2", Value: []byte("{}"), Header: map[string]string{
				"__dlq.errors.delivery.count": "2", "__dlq.errors.message": "no",
				"dlq.id": task.ID, "dlq.agent": "writer", "dlq.attempts": "2", "dlq.http.status": "500", "dlq.error.class": "agent_error",
				"dlq.first.failed.at": task.FirstFailedAt.Format(time.RFC3339Nano),
			}},
		}
		if len(got) == 2 && got[0].Key == "run-2" {
			got[0], got[1] = got[1], got[0]
		}
		if d := cmp.Diff(want, got, cmpopts.IgnoreFields(bus.Message{}, "Headers")); d != "" {
			t.Error(d)
		}
	})
}

// TestCopyOfTooMuch: what the bus does not take goes out by its beginning, and
// says so.
func TestCopyOfTooMuch(t *testing.T) {
	onKeeper(t, deadletter.Limits{}, func(r *rig) {
		t := r.t
		r.refuses(func(m bus.Message) error {
			if len(m.Value) > 900<<10 {
				return parley.Errorf(parley.CodeLimit, "too large")
			}
			return nil
		})
		d := record(1)
		d.Message.Value = make([]byte, 1<<20)
		d.Message.Header = map[string]string{}
		for i := range 64 {
			d.Message.Header[fmt.Sprint("h", i)] = strings.Repeat("x", 400)
		}
		l := r.keep(d)
		tombstone := record(2)
		tombstone.Message.Value = nil
		r.keep(tombstone)
		r.running(func() { time.Sleep(5 * time.Second) })
		list := r.messages()
		if len(list) != 2 {
			t.Fatalf("%d copies", len(list))
		}
		if list[0].Value == nil {
			list[0], list[1] = list[1], list[0]
		}
		m := list[0]
		if l.Cut || len(m.Value) != 64<<10 || m.Header["dlq.value.size"] != "1048576" || m.Header["dlq.value.sha256"] != l.Digest || len(m.Header) > 64 {
			t.Errorf("%d bytes, %d headers: %v", len(m.Value), len(m.Header), m.Header)
		}
		if list[1].Value != nil {
			t.Errorf("a tombstone became %q", list[1].Value)
		}
	})
}

// TestCopyOnSmallBus: a bus that takes little gets little, and a copy that it does
// not take at all keeps no other from going out.
func TestCopyOnSmallBus(t *testing.T) {
	for _, limit := range []int{32 << 10, 1 << 10} {
		onKeeper(t, deadletter.Limits{}, func(r *rig) {
			t := r.t
			r.refuses(func(m bus.Message) error {
				size := len(m.Key) + len(m.Value)
				for name, value := range m.Header {
					size += len(name) + len(value)
				}
				if size > limit || strings.HasPrefix(m.Key, "never") {
					return parley.Errorf(parley.CodeLimit, "too large")
				}
				return nil
			})
			never, large := record(1), record(2)
			never.Message.Key = "never"
			large.Message.Key, large.Message.Value = strings.Repeat("k", 64<<10), make([]byte, 2<<20)
			large.Reason = strings.Repeat("r", 4<<10)
			r.keep(never)
			l := r.keep(large)
			r.keep(record(3))
			r.running(func() { time.Sleep(5 * time.Second) })
			list := r.messages()
			if len(list) != 2 {
				t.Fatalf("%d copies with %d bytes", len(list), limit)
			}
			if list[0].Header["dlq.id"] != l.ID {
				list[0], list[1] = list[1], list[0]
			}
			if m := list[0]; m.Header["dlq.value.size"] != "2097152" || m.Header["dlq.value.sha256"] != l.Digest ||
				m.Header["__dlq.errors.offset"] != "2" || m.Key == "" || len(m.Value) == 0 {
				t.Errorf("%d bytes of key, %d of value: %v", len(m.Key), len(m.Value), m.Header)
			}
		})
	}
}

// TestForward: without a store the copy is all there is.
func TestForward(t *testing.T) {
	r := &rig{t: t}
	keep := deadletter.Forward(r, time.Now)
	check(t, keep(t.Context(), record(7)))
	if list := r.messages(); len(list) != 1 || list[0].Subject != bus.SubjectDeadLetters || list[0].Header["__dlq.errors.offset"] != "7" {
		t.Errorf("%+v", list)
	}
	r.refuses(func(bus.Message) error { return errors.New("no broker") })
	if keep(t.Context(), record(8)) == nil {
		t.Error("a record that was not published counts as safe")
	}
}

// TestReplayRecord: the original bytes go where they came from, once; by force
// again. What was not published still waits.
func TestReplayRecord(t *testing.T) {
	onKeeper(t, deadletter.Limits{}, func(r *rig) {
		t := r.t
		l := r.keep(record(7))
		req := parley.ReplayRequest{ID: l.ID, By: "ann"}
		r.refuses(func(bus.Message) error { return parley.Errorf(parley.CodeUnavailable, "no broker") })
		_, err := r.keeper.Replay(t.Context(), req)
		wantCode(t, err, parley.CodeUnavailable, "no broker")
		r.refuses(func(bus.Message) error { return parley.Errorf(parley.CodeInvalid, "it would stop peers") })
		_, err = r.keeper.Replay(t.Context(), req)
		wantCode(t, err, parley.CodeInvalid, "discard this one")
		r.refuses(nil)
		got, err := r.keeper.Replay(t.Context(), req)
		check(t, err)
		if got.State != parley.DeadLetterReplayed || got.ResolvedBy != "ann" || got.Replays != 1 {
			t.Errorf("%+v", got)
		}
		want := []bus.Message{{
			Subject: bus.SubjectTasks, Key: "run-1", Value: []byte("{\"n\": 1} "),
			Header: map[string]string{"traceparent": "00-1", "redriven-from": "orchestrator.tasks.http/3/7", "parley-replay": l.ID + ".1"},
		}}
		if d := cmp.Diff(want, r.messages(), cmpopts.IgnoreFields(bus.Message{}, "Headers")); d != "" {
			t.Error(d)
		}
		_, err = r.keeper.Replay(t.Context(), req)
		wantCode(t, err, parley.CodeConflict, "--force")
		req.Force = true
		_, err = r.keeper.Replay(t.Context(), req)
		check(t, err)
		if n := len(r.messages()); n != 1 {
			t.Errorf("%d messages by force", n)
		}
		_, err = r.keeper.Replay(t.Context(), parley.ReplayRequest{ID: "dl-none"})
		wantCode(t, err, parley.CodeNotFound, "dl-none")
	})
}

// TestReplayCut: a record of which only the beginning is there is not published
// as if it was whole.
func TestReplayCut(t *testing.T) {
	onKeeper(t, deadletter.Limits{}, func(r *rig) {
		t := r.t
		d := record(1)
		d.Message.Value = make([]byte, 5<<20)
		l := r.keep(d)
		_, err := r.keeper.Replay(t.Context(), parley.ReplayRequest{ID: l.ID, Force: true})
		wantCode(t, err, parley.CodeInvalid, "5242880 bytes")
		d = record(2)
		d.Message.Value = nil
		l = r.keep(d)
		_, err = r.keeper.Replay(t.Context(), parley.ReplayRequest{ID: l.ID})
		check(t, err)
		if m := r.messages(); len(m) != 1 || m[0].Value != nil {
			t.Errorf("a tombstone became %+v", m)
		}
	})
}

// TestReplayKey: a record comes again with its whole key, however long that is, since
// another one is another record to whoever orders or compacts by it; if the key was not
// kept whole, the record does not come again.
func TestReplayKey(t *testing.T) {
	onKeeper(t, deadletter.Limits{}, func(r *rig) {
		t := r.t
		d := record(1)
		d.Message.Key = strings.Repeat("k", 64<<10) + "the end"
		_, err := r.keeper.Replay(t.Context(), parley.ReplayRequest{ID: r.keep(d).ID})
		check(t, err)
		if m := r.messages(); len(m) != 1 || m[0].Key != d.Message.Key {
			t.Errorf("%d records, not one with the whole key", len(m))
		}
		d = record(2)
		d.Message.Key = strings.Repeat("k", 1<<20+1)
		_, err = r.keeper.Replay(t.Context(), parley.ReplayRequest{ID: r.keep(d).ID, Force: true})
		wantCode(t, err, parley.CodeInvalid, "the beginning of its key was kept")
	})
}

// TestReplayTask: the run goes on in another, which the dead letter names.
func TestReplayTask(t *testing.T) {
	onKeeper(t, deadletter.Limits{}, func(r *rig) {
		t := r.t
		l := r.giveUp("run-1")
		got, err := r.keeper.Replay(t.Context(), parley.ReplayRequest{ID: l.ID, By: "ann"})
		check(t, err)
		if got.ReplayRun != "run-1-again" || got.State != parley.DeadLetterReplayed {
			t.Errorf("%+v", got)
		}
		if len(r.messages()) > 0 {
			t.Error("a task was published")
		}
	})
}

// many gives up so many tasks, a second apart.
func (r *rig) many(n int) (ids []string) {
	for i := range n {
		ids = append(ids, r.giveUp(fmt.Sprintf("run-%02d", i)).ID)
		time.Sleep(time.Second)
	}
	return ids
}

// TestReplayMany: the oldest first, at the rate that was asked for; batches go
// on where the one before ended, and what comes in meanwhile is not of them.
func TestReplayMany(t *testing.T) {
	onKeeper(t, deadletter.Limits{}, func(r *rig) {
		t := r.t
		ids := r.many(30)
		r.retry = func(run string) error {
			r.giveUp(run + "-failed-again")
			if run == "run-03" {
				return parley.Errorf(parley.CodeNotFound, "there is no run run-03")
			}
			return nil
		}
		b := parley.ReplayBatch{Rate: 2, Limit: 12, By: "ann"}
		dry := b
		dry.DryRun = true
		report, err := r.keeper.ReplayMany(t.Context(), dry)
		check(t, err)
		want := parley.ReplayReport{DryRun: true, Matched: 30, First: ids[:12], Failures: []parley.ReplayFailure{}, Others: []parley.ReplayFailure{}}
		if d := cmp.Diff(want, report); d != "" || len(r.retried) > 0 {
			t.Errorf("dry run: %s, retried %v", d, r.retried)
		}
		begin := time.Now()
		var replayed, failed []int
		for {
			if report, err = r.keeper.ReplayMany(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			replayed, failed = append(replayed, report.Replayed), append(failed, report.Failed)
			if b.After = report.Next; b.After == "" {
				break
			}
		}
		if d := cmp.Diff([][]int{{11, 12, 6}, {1, 0, 0}}, [][]int{replayed, failed}); d != "" {
			t.Error(d)
		}
		// The first of a batch waits for nothing.
		if took := time.Since(begin); took < 13*time.Second || took > 15*time.Second {
			t.Errorf("30 at 2 a second took %v", took)
		}
		if len(r.retried) != 29 {
			t.Errorf("retried %v", r.retried)
		}
		waiting := r.ids(parley.DeadLetterFilter{State: parley.DeadLetterWaiting})
		if len(waiting) != 31 || waiting[0] != ids[3] {
			t.Errorf("%d wait: %v", len(waiting), waiting)
		}
	})
}

// TestReplayManyEnds: a batch ends with its time, with its caller, and with the
// store or the bus; the report says where the next one begins.
func TestReplayManyEnds(t *testing.T) {
	onKeeper(t, deadletter.Limits{Batch: 5 * time.Second}, func(r *rig) {
		t := r.t
		r.many(20)
		report, err := r.keeper.ReplayMany(t.Context(), parley.ReplayBatch{Rate: 1})
		check(t, err)
		if report.Replayed < 4 || report.Replayed > 6 || report.Next == "" {
			t.Errorf("time: %+v", report)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		report, err = r.keeper.ReplayMany(ctx, parley.ReplayBatch{Rate: 1})
		if err != nil || report.Replayed != 3 || report.Next == "" {
			t.Errorf("caller: %+v %v", report, err)
		}
		n := 0
		r.retry = func(string) error {
			if n++; n > 2 {
				return parley.Errorf(parley.CodeUnavailable, "the database cannot write now")
			}
			return nil
		}
		report, err = r.keeper.ReplayMany(t.Context(), parley.ReplayBatch{Rate: 1000})
		if err != nil || report.Replayed != 2 || report.Failed != 0 || report.Next == "" {
			t.Errorf("store: %+v %v", report, err)
		}
		_, err = r.keeper.ReplayMany(t.Context(), parley.ReplayBatch{Rate: 1000, After: report.Next})
		wantCode(t, err, parley.CodeUnavailable, "cannot write")
	})
}

// TestReplayManyElsewhere: what somebody else has replayed or discarded since a batch
// has selected it, or is replaying, is told apart and no failure; another conflict is.
func TestReplayManyElsewhere(t *testing.T) {
	onKeeper(t, deadletter.Limits{}, func(r *rig) {
		t := r.t
		ids := r.many(4)
		held := r.keep(record(7))
		time.Sleep(time.Second) // a batch takes what is older
		r.retry = func(run string) error {
			switch run {
			case "run-00": // the batch has selected all of them by now
				check(t, r.db.DiscardDeadLetter(t.Context(), parley.DiscardRequest{ID: ids[1], By: "ann"}, time.Now()))
				_, err := r.db.StartRun(t.Context(), store.Start{
					Run: store.Run{
						ID: "run-of-bob", Workflow: "w", Version: "1", Seq: 1, Status: parley.RunRunning, RetriedFrom: "run-02", CreatedAt: time.Now(), UpdatedAt: time.Now(),
					},
					Events: []parley.Event{{Seq: 1, At: time.Now(), Type: parley.EventRunStarted, Run: "run-of-bob", Data: []byte("{}")}},
					Replay: &store.Replay{ID: ids[2], By: "bob"},
				})
				check(t, err)
				_, err = r.db.HoldDeadLetter(t.Context(), store.Replay{ID: held.ID, By: "bob"}, time.Now())
				check(t, err)
			case "run-03":
				return parley.Errorf(parley.CodeConflict, "its version takes no new runs")
			}
			return nil
		}
		report, err := r.keeper.ReplayMany(t.Context(), parley.ReplayBatch{Rate: 1000})
		check(t, err)
		want := parley.ReplayReport{
			Matched: 5, First: append(slices.Clone(ids), held.ID), Replayed: 1, Failed: 1, Elsewhere: 3,
			Failures: []parley.ReplayFailure{{ID: ids[3], Code: parley.CodeConflict, Detail: "its version takes no new runs"}},
			Others: []parley.ReplayFailure{
				{ID: ids[1], Code: parley.CodeConflict, Detail: "it was discarded by ann meanwhile"},
				{ID: ids[2], Code: parley.CodeConflict, Detail: "it was replayed by bob meanwhile"},
				{ID: held.ID, Code: parley.CodeConflict, Detail: "it is being replayed by somebody else just now; should that fail, it still waits"},
			},
		}
		if d := cmp.Diff(want, report); d != "" {
			t.Error(d)
		}
		if got := r.messages(); len(got) != 0 {
			t.Errorf("published %+v", got)
		}
	})
}

// TestReplayManySideBySide: of two batches with the same filter at once each dead
// letter is replayed by one, and neither tells of a failure.
func TestReplayManySideBySide(t *testing.T) {
	onKeeper(t, deadletter.Limits{}, func(r *rig) {
		t := r.t
		r.many(10)
		for i := range 10 {
			r.keep(record(int64(i)))
		}
		time.Sleep(time.Second) // a batch takes what is older
		var reports [2]parley.ReplayReport
		var both sync.WaitGroup
		for i := range reports {
			both.Go(func() {
				var err error
				reports[i], err = r.keeper.ReplayMany(t.Context(), parley.ReplayBatch{Rate: 2})
				if err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		a, b := &reports[0], &reports[1]
		if a.Replayed+b.Replayed != 20 || a.Failed+b.Failed != 0 || a.Elsewhere+b.Elsewhere != a.Matched+b.Matched-20 {
			t.Errorf("%+v and %+v", *a, *b)
		}
	})
}

// TestReplayManyBesideABrokenRun: a run that cannot be read, since a value of it is
// gone, or cannot be fetched just now, keeps its own dead letter waiting and nobody
// else's, and what is wrong with it is for the log.
func TestReplayManyBesideABrokenRun(t *testing.T) {
	for _, broken := range []*parley.Error{
		parley.Errorf(parley.CodeInternal, "the output is gone from /canary"),
		parley.Errorf(parley.CodeUnavailable, "the output cannot be fetched now from /canary: %w", store.ErrAway),
	} {
		onKeeper(t, deadletter.Limits{}, func(r *rig) {
			t := r.t
			ids := r.many(3)
			r.retry = func(run string) error {
				if run == "run-00" {
					return broken
				}
				return nil
			}
			report, err := r.keeper.ReplayMany(t.Context(), parley.ReplayBatch{Rate: 1000})
			check(t, err)
			if report.Replayed != 2 || report.Failed != 1 || report.Next != "" {
				t.Errorf("%+v", report)
			}
			if f := report.Failures; len(f) != 1 || f[0].ID != ids[0] || f[0].Code != broken.Code || strings.Contains(f[0].Detail, "canary") {
				t.Errorf("failures %+v", f)
			}
			if waiting := r.ids(parley.DeadLetterFilter{State: parley.DeadLetterWaiting}); !slices.Equal(waiting, ids[:1]) {
				t.Errorf("%v wait, want %v", waiting, ids[:1])
			}
		})
	}
}

// TestBatchesAreChecked: what cannot be a batch is refused with what can.
func TestBatchesAreChecked(t *testing.T) {
	onKeeper(t, deadletter.Limits{}, func(r *rig) {
		t := r.t
		for words, b := range map[string]parley.ReplayBatch{
			"with force":  {Filter: parley.DeadLetterFilter{State: parley.DeadLetterReplayed}},
			"1 to 1000":   {Rate: 1001},
			"rate":        {Rate: -1},
			"limit":       {Limit: 1001},
			"as next":     {After: "x"},
			"not what an": {After: "1.2.3"},
		} {
			_, err := r.keeper.ReplayMany(t.Context(), b)
			wantCode(t, err, parley.CodeInvalid, words)
		}
		_, err := r.keeper.DiscardMany(t.Context(), parley.DiscardRequest{Filter: parley.DeadLetterFilter{State: parley.DeadLetterReplayed}})
		wantCode(t, err, parley.CodeInvalid, "replayed")
		_, err = r.keeper.Discard(t.Context(), parley.DiscardRequest{Note: strings.Repeat("é", 501)})
		wantCode(t, err, parley.CodeLimit, "500")
	})
}

// TestDiscard: single and by filter, with a dry run.
func TestDiscard(t *testing.T) {
	onKeeper(t, deadletter.Limits{}, func(r *rig) {
		t := r.t
		ids := r.many(3)
		l, err := r.keeper.Discard(t.Context(), parley.DiscardRequest{ID: ids[0], Note: "no use", By: "ann"})
		check(t, err)
		if l.State != parley.DeadLetterDiscarded || l.Note != "no use" || l.ResolvedBy != "ann" {
			t.Errorf("%+v", l)
		}
		req := parley.DiscardRequest{Filter: parley.DeadLetterFilter{Agent: "writer"}, DryRun: true}
		report, err := r.keeper.DiscardMany(t.Context(), req)
		check(t, err)
		if d := cmp.Diff(parley.DiscardReport{DryRun: true, Matched: 2, First: ids[1:]}, report); d != "" {
			t.Error(d)
		}
		req.DryRun = false
		report, err = r.keeper.DiscardMany(t.Context(), req)
		check(t, err)
		if report.Discarded != 2 || len(r.ids(parley.DeadLetterFilter{State: parley.DeadLetterWaiting})) > 0 {
			t.Errorf("%+v", report)
		}
	})
}

// TestLimits: too many, and too old ones, go, the oldest first, and are counted;
// a flood of records is noticed before the minute is over.
func TestLimits(t *testing.T) {
	onKeeper(t, deadletter.Limits{Rows: 5, Age: time.Hour}, func(r *rig) {
		t := r.t
		ids := r.many(8)
		r.running(func() { synctest.Wait() })
		if d := cmp.Diff(ids[3:], r.ids(parley.DeadLetterFilter{})); d != "" {
			t.Error(d)
		}
		r.running(func() {
			for i := range 1100 {
				check(t, r.keeper.Keep(t.Context(), record(int64(i))))
			}
			synctest.Wait()
			time.Sleep(time.Second)
			synctest.Wait()
			if n := len(r.ids(parley.DeadLetterFilter{})); n > 200 {
				t.Errorf("%d are kept", n)
			}
		})
		time.Sleep(2 * time.Hour)
		r.running(func() { synctest.Wait() })
		if n := len(r.ids(parley.DeadLetterFilter{})); n != 0 {
			t.Errorf("%d old ones are kept", n)
		}
		r.wantMetric("parley_dead_letters_removed_total", 1108)
		r.wantMetric("parley_dead_letters_waiting", 0)
	})
}

// TestRecordOfRun: a record whose run could be read is found by it, and stays a record.
func TestRecordOfRun(t *testing.T) {
	onKeeper(t, deadletter.Limits{}, func(r *rig) {
		d := record(7)
		d.Run, d.Task = "run-1", "run-1.a.1"
		l := r.keep(d)
		if l.Kind != parley.DeadLetterRecord || l.Run != "run-1" || l.Task != "run-1.a.1" || l.HTTPStatus != 0 {
			r.t.Errorf("%+v", l)
		}
		if got := r.ids(parley.DeadLetterFilter{Run: "run-1"}); len(got) != 1 || got[0] != l.ID {
			r.t.Errorf("of the run: %v", got)
		}
	})
}

// TestForeignTask: a task of the existing platform's executor is kept once,
// however its record is told; its replay publishes the record, and by a filter
// only if that names its kind.
func TestForeignTask(t *testing.T) {
	onKeeper(t, deadletter.Limits{}, func(r *rig) {
		t := r.t
		d := record(7)
		d.Run, d.Task, d.Agent, d.HTTPStatus, d.Attempts, d.Foreign = "run-1", "task-a-1", "writer", 503, 3, true
		l := r.keep(d)
		if l.Kind != parley.DeadLetterForeign || l.Run != "run-1" || l.Task != "task-a-1" || l.HTTPStatus != 503 || l.Attempts != 3 || l.Source.Offset != 7 {
			t.Errorf("%+v", l)
		}
		again := d
		again.Message.Value = []byte(`{"n": 2}`)
		check(t, r.keeper.Keep(t.Context(), again))
		elsewhere := d
		elsewhere.Message.At.Offset = 8
		r.keep(elsewhere)
		time.Sleep(time.Second) // a batch takes what was there before it
		_, n, err := r.keeper.List(t.Context(), parley.DeadLetterQuery{})
		check(t, err)
		if n != 2 {
			t.Errorf("%d dead letters, want 2", n)
		}
		report, err := r.keeper.ReplayMany(t.Context(), parley.ReplayBatch{By: "ann"})
		check(t, err)
		if report.Matched != 2 || report.Failed != 2 || !strings.Contains(report.Failures[0].Detail, "by its kind (foreign_task)") || len(r.messages()) != 0 {
			t.Errorf("%+v", report)
		}
		report, err = r.keeper.ReplayMany(t.Context(), parley.ReplayBatch{By: "ann", Filter: parley.DeadLetterFilter{Kind: parley.DeadLetterForeign}})
		check(t, err)
		list := r.messages()
		if report.Replayed != 2 || len(list) != 2 || list[0].Header[bus.HeaderReplay] == list[1].Header[bus.HeaderReplay] {
			t.Errorf("%+v, %+v", report, list)
		}
	})
}
