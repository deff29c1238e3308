package executor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/workflow"
)

const onPaid = `
name: ship
triggers:
  - event: {name: paid, if: event.data.amount >= 10, input: {amount: "${event.data.amount}", key: "${event.key}"}}
  - event: {name: refunded}
steps: [{id: a, set: 1}]
`

// TestC8_AnEventStartsOneRunOfEachTrigger: of all workflows whose version of a
// plain start has a trigger of its name that wants it; once for its id.
func TestC8_AnEventStartsOneRunOfEachTrigger(t *testing.T) {
	triggering(t, nil, func(r *triggerRig) {
		t := r.t
		r.apply(onPaid)
		r.apply("name: note\ntriggers: [{event: {name: paid, input: {id: \"${event.id}\"}}}]\nsteps: [{id: a, set: 1}]\n")
		r.apply("name: both\ntriggers: [{event: {name: twice, input: {n: 1}}}, {event: {name: twice, input: {n: 2}}}]\nsteps: [{id: a, set: 1}]\n")
		e := signal("e1", "paid", `{"amount": 12.50}`)
		e.Key = "k"
		r.publish(e)
		r.publish(e)
		r.publish(signal("e2", "paid", `{"amount": 1}`))
		r.publish(signal("e3", "unheard", `null`))
		got := r.runs()
		slices.Sort(got)
		wantEqual(t, got, []string{
			`note event COMPLETED {"id":"e1"}`, `note event COMPLETED {"id":"e2"}`, `ship event COMPLETED {"amount":12.5,"key":"k"}`,
		})
		// Another version has no such trigger; a day later the id is another event's.
		r.apply("name: note\nsteps: [{id: a, set: 1}]\n")
		r.stop()
		time.Sleep(25 * time.Hour)
		r.run()
		r.publish(e)
		got = r.runs()[3:]
		wantEqual(t, got, []string{`ship event COMPLETED {"amount":12.5,"key":"k"}`})
		_, err := r.x.Signal(t.Context(), parley.SignalRequest{Signal: signal("e4", "refunded", `{"n":1.0}`)})
		check(t, err)
		if last := r.runs()[4:5]; len(last) != 1 || !strings.HasPrefix(last[0], `ship event COMPLETED {"id":"e4","name":"refunded","key":"","data":{"n":1.0},"time":"`) {
			t.Errorf("the input is not the event: %q", last)
		}
		r.publish(signal("e5", "twice", `null`))
		got = r.runs()[5:]
		slices.Sort(got)
		wantEqual(t, got, []string{`both event COMPLETED {"n":1}`, `both event COMPLETED {"n":2}`})
	})
}

// TestC8_AnAcceptedEventStartsItsRunsAfterACrash: whatever the process was about to
// do. The run is the same when the event is looked at again.
func TestC8_AnAcceptedEventStartsItsRunsAfterACrash(t *testing.T) {
	points := []string{"take-starts.before", "take-starts.after", "P1.before", "P1.after", "end-start.before", "end-start.after", "nothing"}
	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			triggering(t, nil, func(r *triggerRig) {
				t := r.t
				r.apply(onPaid)
				var down atomic.Bool
				r.failing(func(at string) error {
					if at == point {
						down.Store(true)
					}
					if down.Load() {
						return errors.New("the process has died")
					}
					return nil
				})
				if point == "nothing" {
					r.stop() // it dies with the answer
					synctest.Wait()
				}
				r.publish(signal("e1", "paid", `{"amount": 10}`))
				synctest.Wait()
				if !down.Load() && point != "nothing" {
					t.Fatal("the point was not passed")
				}
				r.stop()
				r.failing(nil)
				r.run()
				time.Sleep(12 * time.Second)
				wantEqual(t, r.runs(), []string{`ship event COMPLETED {"amount":10,"key":""}`})
				list, err := r.db.TakeEventStarts(t.Context(), time.Now().Add(time.Hour), 10)
				check(t, err)
				wantEqual(t, len(list), 0)
			})
		})
	}
}

// TestC8_AnEventWaitsForAStoreThatRefuses: it is tried again until its run is there.
func TestC8_AnEventWaitsForAStoreThatRefuses(t *testing.T) {
	triggering(t, nil, func(r *triggerRig) {
		t := r.t
		r.apply(onPaid)
		r.failing(func(at string) error {
			if at == "P1.before" {
				return errors.New("the disk is full")
			}
			return nil
		})
		r.publish(signal("e1", "paid", `{"amount": 10}`))
		time.Sleep(time.Minute)
		wantEqual(t, len(r.runs()), 0)
		r.failing(nil)
		time.Sleep(11 * time.Second)
		wantEqual(t, r.runs(), []string{`ship event COMPLETED {"amount":10,"key":""}`})
	})
}

// TestC8_EventsOfRunsStartRuns: what an emit step publishes, and what waits for the
// same event gets it, too.
func TestC8_EventsOfRunsStartRuns(t *testing.T) {
	triggering(t, nil, func(r *triggerRig) {
		t := r.t
		r.apply(onPaid)
		r.apply(`
name: pay
steps:
  - {id: wait, needs: [], event: paid, timeout: 1m}
  - {id: say, needs: [], emit: {event: paid, data: {amount: 11}}}
`)
		run, _, err := r.x.Start(t.Context(), parley.StartRequest{Workflow: "pay"})
		check(t, err)
		synctest.Wait()
		wantEqual(t, r.runs(), []string{`pay api COMPLETED {}`, `ship event COMPLETED {"amount":11,"key":""}`})
		_, err = r.x.Signal(t.Context(), parley.SignalRequest{Run: run.ID, Signal: parley.Signal{Name: "paid"}})
		wantCode(t, err, parley.CodeConflict, "COMPLETED")
		other, _, err := r.x.Start(t.Context(), parley.StartRequest{Workflow: "pay"})
		check(t, err)
		_, err = r.x.Signal(t.Context(), parley.SignalRequest{Run: other.ID, Signal: parley.Signal{Name: "paid", Data: []byte(`{"amount":99}`)}})
		if parley.CodeOf(err) != parley.CodeConflict {
			check(t, err)
		}
		for _, run := range r.runs() {
			if strings.Contains(run, "99") {
				t.Errorf("an event for one run started %s", run)
			}
		}
	})
}

// TestLimit_EventChain: a workflow that publishes the event that starts it ends.
func TestLimit_EventChain(t *testing.T) {
	triggering(t, func(c *executor.Config) { c.EventChain = 4 }, func(r *triggerRig) {
		t := r.t
		r.apply(`
name: echo
triggers: [{event: {name: echo, input: {n: "${event.data.n}"}}}]
steps: [{id: say, emit: {event: echo, data: {n: "${workflow.input.n + 1}"}}}]
`)
		r.publish(signal("", "echo", `{"n": 0}`))
		time.Sleep(time.Minute)
		var want []string
		for n := range 4 {
			want = append(want, fmt.Sprintf(`echo event COMPLETED {"n":%d}`, n))
		}
		wantEqual(t, r.runs(), want)
		if log := r.logged(); !strings.Contains(log, "event=event_chain") || !strings.Contains(log, "limit=4") {
			t.Errorf("nothing is said:\n%s", log)
		}
		// A rerun goes on with the chain.
		rows, _, err := r.db.Runs(t.Context(), parley.RunQuery{Page: parley.Page{Limit: 1}})
		check(t, err)
		_, err = r.x.Rerun(t.Context(), parley.RerunRequest{Run: rows[0].ID})
		check(t, err)
		time.Sleep(time.Minute)
		wantEqual(t, len(r.runs()), 5)
	})
}

// TestTrigger_AnEventThatCannotStart: is said, and keeps no other from starting;
// many that nobody waits for are no limit.
func TestTrigger_AnEventThatCannotStart(t *testing.T) {
	triggering(t, func(c *executor.Config) { c.Limits = workflow.DefaultRunLimits(); c.Limits.WaitingEvents = 3 }, func(r *triggerRig) {
		t := r.t
		r.apply(strings.Replace(onPaid, "name: ship", "name: bad\ninput: {type: object, required: [x]}", 1))
		r.apply(onPaid)
		for n := range 10 {
			r.publish(signal("", "paid", fmt.Sprintf(`{"amount": %d}`, 3*n)))
			synctest.Wait()
		}
		r.publish(signal("odd", "paid", `"text"`))
		time.Sleep(time.Minute)
		wantEqual(t, len(r.runs()), 6)
		if log := r.logged(); strings.Count(log, "trigger_failed") != 8 || !strings.Contains(log, "workflow=bad") || !strings.Contains(log, "id=odd") {
			t.Errorf("%d times:\n%s", strings.Count(log, "trigger_failed"), log)
		}
	})
}

const onOrders = `
name: order
input: {type: object}
triggers: [{kafka: {topic: orders, if: event.data != "no", input: {at: "${event.id}", key: "${event.key}", data: "${event.data}"}}}]
steps: [{id: a, set: 1}]
`

func withTopics(c *executor.Config) {
	c.KafkaTopic = func(topic string) error {
		if topic == "ours" {
			return parley.Errorf(parley.CodeInvalid, "the topic ours is one that Parley itself uses")
		}
		return nil
	}
}

// TestTrigger_ARecordStartsOneRun: of each trigger of its topic, once, whatever it
// holds; what cannot start is a dead letter and blocks nothing.
func TestTrigger_ARecordStartsOneRun(t *testing.T) {
	triggering(t, withTopics, func(r *triggerRig) {
		t := r.t
		put := func(key, value string, header map[string]string) {
			m := bus.Message{Subject: bus.TopicSubject("orders"), Key: key, Value: []byte(value), Header: header}
			if value == "" {
				m.Value = nil
			}
			check(t, r.bus.Publish(t.Context(), m))
		}
		wantEqual(t, len(r.apply(onOrders)), 0)
		r.apply("name: strict\ninput: {type: object, required: [n]}\ntriggers: [{kafka: {topic: orders, input: \"${event.data}\"}}]\nsteps: [{id: a, set: 1}]\n")
		time.Sleep(3 * time.Second)
		put("k", `{"n": 1.50}`, nil)
		put("", `{"text"`, nil)
		put("", "", nil)
		put("", `"no"`, nil)
		time.Sleep(time.Second)
		got := r.runs()
		slices.Sort(got)
		want := []string{
			`order kafka COMPLETED {"at":"orders/0/0","key":"k","data":{"n": 1.50}}`,
			`order kafka COMPLETED {"at":"orders/0/1","key":"","data":"{\"text\""}`,
			`order kafka COMPLETED {"at":"orders/0/2","key":"","data":null}`,
			`strict kafka COMPLETED {"n": 1.50}`,
		}
		wantEqual(t, got, want)
		r.mu.Lock()
		letters := slices.Clone(r.letters)
		r.mu.Unlock()
		wantEqual(t, len(letters), 3)
		for _, l := range letters {
			if l.Code != string(parley.CodeInvalidInput) || l.Group != "parley-executor-triggers" || l.Message.Header["parley-trigger"] != "strict" {
				t.Errorf("dead letter %+v", l)
			}
		}
		// It is replayed for the workflow that could not start.
		put("", `{"n": 2}`, letters[0].Message.Header)
		time.Sleep(time.Second)
		got = r.runs()
		wantEqual(t, got[len(got)-1], `strict kafka COMPLETED {"n": 2}`)
		wantEqual(t, len(got), 5)

		// All of it is delivered again, and nothing is started again.
		r.stop()
		r.bus.mu.Lock()
		clear(r.bus.groups)
		r.bus.mu.Unlock()
		r.run()
		time.Sleep(10 * time.Second)
		wantEqual(t, len(r.runs()), 5)

		// The topic is made anew: what stands at the same place is another record.
		r.stop()
		r.bus.mu.Lock()
		clear(r.bus.groups)
		clear(r.bus.logs)
		r.bus.mu.Unlock()
		r.run()
		put("k", `{"n": 1.50}`, nil)
		time.Sleep(time.Second)
		wantEqual(t, len(r.runs()), 7)
	})
}

// TestTrigger_ARecordOfManyHeaders: what a dead letter was not started for is known when it
// is replayed, however many headers the record has.
func TestTrigger_ARecordOfManyHeaders(t *testing.T) {
	triggering(t, withTopics, func(r *triggerRig) {
		t := r.t
		r.apply("name: strict\ninput: {type: object, required: [n]}\ntriggers: [{kafka: {topic: orders, input: \"${event.data}\"}}]\nsteps: [{id: a, set: 1}]\n")
		time.Sleep(3 * time.Second)
		m := bus.Message{Subject: bus.TopicSubject("orders"), Value: []byte(`"no"`), Header: map[string]string{}}
		for i := range 64 {
			name := fmt.Sprint("h", i)
			m.Header[name] = "x"
			m.Headers = append(m.Headers, bus.Header{Name: name, Value: []byte("x")})
		}
		check(t, r.bus.Publish(t.Context(), m))
		time.Sleep(time.Second)
		r.mu.Lock()
		letters := slices.Clone(r.letters)
		r.mu.Unlock()
		wantEqual(t, len(letters), 1)
		l := parley.DeadLetter{Kind: parley.DeadLetterRecord}
		for _, h := range letters[0].Message.Headers {
			l.Headers = append(l.Headers, parley.DeadLetterHeader{Name: h.Name, Value: h.Value})
		}
		kept := l.Seal().Headers
		wantEqual(t, []string{kept[0].Name, kept[1].Name, kept[2].Name, string(kept[0].Value)}, []string{"parley-trigger", "parley-record", "h0", "strict"})
	})
}

// TestTrigger_TopicsFollowWhatIsDeployed: without a restart; nothing is
// acknowledged before its run is durable.
func TestTrigger_TopicsFollowWhatIsDeployed(t *testing.T) {
	triggering(t, withTopics, func(r *triggerRig) {
		t := r.t
		done := func() int {
			r.bus.mu.Lock()
			defer r.bus.mu.Unlock()
			if g := r.bus.groups[bus.TopicSubject("orders")+" parley-executor-triggers"]; g != nil {
				return g.done
			}
			return -1
		}
		put := func() {
			check(t, r.bus.Publish(t.Context(), bus.Message{Subject: bus.TopicSubject("orders"), Value: []byte(`1`)}))
			time.Sleep(time.Second)
		}
		put()
		wantEqual(t, done(), -1)
		r.apply(onOrders)
		time.Sleep(time.Second)
		wantEqual(t, []int{done(), len(r.runs())}, []int{1, 1}) // the log of the test begins at its start
		r.failing(func(point string) error {
			if point == "P1.before" {
				return errors.New("the disk is full")
			}
			return nil
		})
		put()
		wantEqual(t, []int{done(), len(r.runs())}, []int{1, 1})
		r.failing(nil)
		time.Sleep(10 * time.Second)
		wantEqual(t, []int{done(), len(r.runs())}, []int{2, 2})
		r.apply("name: order\nsteps: [{id: a, set: 2}]\n")
		time.Sleep(3 * time.Second)
		put()
		wantEqual(t, []int{done(), len(r.runs())}, []int{2, 2})
		_, _, err := r.catalog.SetAlias(t.Context(), parley.AliasRequest{Workflow: "order", Alias: parley.StableAlias, Version: "1"})
		check(t, err)
		time.Sleep(3 * time.Second)
		wantEqual(t, []int{done(), len(r.runs())}, []int{3, 3})
		r.x.StopIntake()
		time.Sleep(time.Second)
		put()
		r.publish(signal("", "paid", `{}`))
		wantEqual(t, []int{done(), len(r.runs())}, []int{3, 3})
	})
}

// TestTrigger_WhatCannotFireIsWarnedOf: when it is deployed.
func TestTrigger_WhatCannotFireIsWarnedOf(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*executor.Config)
		want   []string
	}{
		"without Kafka": {nil, []string{
			"triggers[0].kafka starts nothing here: there is no Kafka", "triggers[1].kafka starts nothing here: there is no Kafka",
			"triggers[2].webhook.secret starts nothing here: file: references are off",
		}},
		"with Kafka": {withTopics, []string{
			"triggers[1].kafka.topic starts nothing: the topic ours is one that Parley itself uses",
			"triggers[2].webhook.secret starts nothing here: file: references are off",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			triggering(t, c.change, func(r *triggerRig) {
				const source = `
name: order
triggers: [{kafka: {topic: orders}}, {kafka: {topic: ours}}, {webhook: {secret: "file:x"}}, {webhook: {secret: "env:X"}}]
steps: [{id: a, set: 1}]
`
				wantEqual(r.t, r.apply(source), c.want)
				var found []string
				for _, p := range r.catalog.Validate(context.Background(), parley.ApplyRequest{Source: []byte(source)}) {
					found = append(found, p.Text)
				}
				wantEqual(r.t, found, c.want)
			})
		})
	}
}

// TestTrigger_AWorkflowThatCannotStartNowHoldsUpNoOther: an event starts the runs of all
// that can be started, and that of the other as soon as that can, once each.
func TestTrigger_AWorkflowThatCannotStartNowHoldsUpNoOther(t *testing.T) {
	var away atomic.Bool
	away.Store(true)
	triggering(t, func(cfg *executor.Config) {
		cfg.Agent = func(_ context.Context, name string) (executor.AgentInfo, bool) {
			if away.Load() {
				return executor.AgentInfo{Err: parley.Errorf(parley.CodeUnavailable, "agent %q cannot be looked up now", name)}, false
			}
			return executor.AgentInfo{Idempotent: true}, true
		}
	}, func(r *triggerRig) {
		t := r.t
		r.apply("name: able\ntriggers: [{event: {name: paid, input: {}}}]\nsteps: [{id: a, agents: [x, y], hedge_after: 1s, if: \"false\"}]\n")
		r.apply("name: ship\ntriggers: [{event: {name: paid, input: {}}}]\nsteps: [{id: a, set: 1}]\n")
		r.publish(signal("e1", "paid", `1`))
		wantEqual(t, r.runs(), []string{`ship event COMPLETED {}`})
		time.Sleep(time.Minute)
		wantEqual(t, r.runs(), []string{`ship event COMPLETED {}`})
		away.Store(false)
		time.Sleep(12 * time.Second)
		wantEqual(t, r.runs(), []string{`ship event COMPLETED {}`, `able event COMPLETED {}`})
	})
}
