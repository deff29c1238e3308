package executor_test

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/records"
)

// Traces of tests.
var (
	traceOne = parley.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", State: "congo=t61rcWkgMzE, rojo=1"}
	traceTwo = parley.Trace{Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}
)

// traced holds a run and the attempts that it has made to a trace.
func (r *rig) traced(run string, want parley.Trace, attempts int) {
	r.t.Helper()
	synctest.Wait()
	v := r.get(run)
	wantEqual(r.t, parley.Trace{Parent: v.Traceparent, State: v.Tracestate}, want)
	list, err := r.db.Attempts(r.t.Context(), run)
	check(r.t, err)
	wantEqual(r.t, len(list), attempts)
	for i := range list {
		wantEqual(r.t, list[i].Trace, want)
	}
}

// TestTrace_OfARun: it stands with the run and with each of its attempts, is in the
// headers of their records, and is that of sub-workflows.
func TestTrace_OfARun(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		var mu sync.Mutex
		sent := map[string]map[string]string{}
		_, err := r.bus.Subscribe(t.Context(), bus.SubjectTasks, "test", func(_ context.Context, m bus.Message) error {
			mu.Lock()
			defer mu.Unlock()
			sent[m.Key] = maps.Clone(m.Header)
			return nil
		})
		check(t, err)
		r.apply(onePart)
		r.apply("name: all\nsteps:\n  - {id: one, workflow: part, input: {n: 1}}\n  - {id: b, agent: writer, retry: {attempts: 2, delay: 1s}}\n")
		run := r.begin(parley.StartRequest{Workflow: "all", Trace: traceOne})
		child := r.child(run, "one")
		r.traced(child, traceOne, 1)
		r.settle(child + ".a.1")
		synctest.Wait()
		r.fail(run + ".b.1")
		time.Sleep(2 * time.Second)
		r.traced(run, traceOne, 2)
		none := r.begin(parley.StartRequest{Workflow: "talk"})
		r.traced(none, parley.Trace{}, 1)
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		wantEqual(t, []string{sent[child]["traceparent"], sent[child]["tracestate"]}, []string{traceOne.Parent, traceOne.State})
		if _, has := sent[none]["traceparent"]; has || sent[none] == nil {
			t.Errorf("the record of a run without a trace has %v", sent[none])
		}
	})
}

// TestTrace_OfARepeat: a retry, a replay and a rerun have the trace of their request,
// else that of the run which they repeat; the key of a request does not depend on it.
func TestTrace_OfARepeat(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		failed := func() string {
			run := r.begin(parley.StartRequest{Workflow: "talk", Trace: traceOne})
			r.fail(run + ".a.1")
			synctest.Wait()
			wantEqual(t, r.get(run).Status, parley.RunFailed)
			return run
		}
		run := failed()
		for _, own := range []parley.Trace{{}, traceTwo} {
			retried, _, err := r.x.RetryOnce(t.Context(), parley.RetryRequest{Run: run, Trace: own})
			check(t, err)
			r.traced(retried.ID, own.Or(traceOne), 1)
			again, _, err := r.x.RerunOnce(t.Context(), parley.RerunRequest{Run: run, From: "a", Trace: own})
			check(t, err)
			r.traced(again.ID, own.Or(traceOne), 1)
			other := failed()
			for _, l := range r.letters() {
				if l.Run == other {
					replayed, err := r.x.Replay(t.Context(), other, parley.ReplayRequest{ID: l.ID, Trace: own})
					check(t, err)
					r.traced(replayed.ID, own.Or(traceOne), 1)
				}
			}
		}
		first, _, err := r.x.RetryOnce(t.Context(), parley.RetryRequest{Run: run, IdempotencyKey: "k", Trace: traceTwo})
		check(t, err)
		same, existing, err := r.x.RetryOnce(t.Context(), parley.RetryRequest{Run: run, IdempotencyKey: "k"})
		check(t, err)
		wantEqual(t, []any{same.ID, existing, same.Traceparent}, []any{first.ID, true, traceTwo.Parent})
	})
}

// TestTrace_OfARunThatWaits: one that waits for its turn has it when it begins, also
// in another process.
func TestTrace_OfARunThatWaits(t *testing.T) {
	onStore(t, func(r *rig) {
		r.counted(byCustomer)
		input := json.RawMessage(`{"k":"ann"}`)
		one := r.begin(parley.StartRequest{Workflow: "counted", Input: input})
		two := r.begin(parley.StartRequest{Workflow: "counted", Input: input, Trace: traceOne})
		r.traced(two, traceOne, 0)
		r.ends(one)
		r.traced(two, traceOne, 1)
	})
}

// traces gives those of all runs, oldest first.
func (r *triggerRig) traces() (list []parley.Trace) {
	r.t.Helper()
	synctest.Wait()
	rows, _, err := r.db.Runs(r.t.Context(), parley.RunQuery{Ascending: true, Page: parley.Page{Limit: 500}})
	check(r.t, err)
	for _, row := range rows {
		v, err := r.x.Get(r.t.Context(), row.ID)
		check(r.t, err)
		list = append(list, parley.Trace{Parent: v.Traceparent, State: v.Tracestate})
	}
	return list
}

// TestTrace_OfWhatStartsRuns: events, also those that runs publish, deliveries to
// webhooks and records of topics hand it on; what is not valid is none.
func TestTrace_OfWhatStartsRuns(t *testing.T) {
	triggering(t, withTopics, func(r *triggerRig) {
		t := r.t
		r.secret("env:HOOK", "s3cret")
		r.apply("name: ship\ntriggers: [{event: {name: paid}}, {webhook: {secret: \"env:HOOK\"}}, {kafka: {topic: orders}}]\nsteps: [{id: a, emit: {event: shipped}}]\n")
		r.apply("name: tell\ntriggers: [{event: {name: shipped}}]\nsteps: [{id: a, set: 1}]\n")
		time.Sleep(3 * time.Second)
		put := func(headers ...bus.Header) {
			check(t, r.bus.Publish(t.Context(), bus.Message{Subject: bus.TopicSubject("orders"), Value: []byte("1"), Headers: headers}))
			time.Sleep(time.Second)
		}
		e := signal("e1", "paid", "1")
		e.Trace = traceOne
		r.publish(e)
		time.Sleep(time.Second)
		r.publish(signal("e2", "paid", "1"))
		time.Sleep(time.Second)
		r.deliver("ship", signed("s3cret", "1", "traceparent", traceTwo.Parent), "1")
		time.Sleep(time.Second)
		r.deliver("ship", signed("s3cret", "2", "traceparent", traceTwo.Parent, "traceparent", traceOne.Parent), "2")
		time.Sleep(time.Second)
		put(bus.Header{Name: "traceparent", Value: []byte(traceOne.Parent)}, bus.Header{Name: "tracestate", Value: []byte(traceOne.State)})
		put(bus.Header{Name: "traceparent", Value: []byte(traceOne.Parent + "\x00")})
		var none parley.Trace
		// Each run is followed by the one that its own event starts.
		wantEqual(t, r.traces(), []parley.Trace{traceOne, traceOne, none, none, traceTwo, traceTwo, none, none, traceOne, traceOne, none, none})
	})
}

// TestTrace_OfARequestRecord: a record that asks for a run hands its headers on, and
// the task that an old bridge gets has none.
func TestTrace_OfARequestRecord(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		t := r.t
		v, err := records.ExecutionRequest{RunID: "run-one", Plan: plan("Write", "1"), Input: json.RawMessage(`{"topic":"tea"}`), At: time.Now()}.Encode()
		check(t, err)
		check(t, r.bus.Publish(t.Context(), bus.Message{
			Subject: bus.SubjectStartRequests, Key: "run-one", Value: v, Header: map[string]string{"traceparent": traceOne.Parent, "tracestate": traceOne.State},
		}))
		time.Sleep(time.Second)
		got, err := r.x.Get(t.Context(), "run-one")
		check(t, err)
		wantEqual(t, parley.Trace{Parent: got.Traceparent, State: got.Tracestate}, traceOne)
		tasks := r.bus.log(bus.SubjectTasks)
		if len(tasks) != 1 || len(tasks[0].Header)+len(tasks[0].Headers) != 0 {
			t.Errorf("the old bridge got %+v", tasks)
		}
	})
}
