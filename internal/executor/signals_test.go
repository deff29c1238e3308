package executor_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

const waitsForPay = `
name: talk
input: {type: object, properties: {key: {default: "7"}}}
steps:
  - {id: a, wait: 1m}
  - {id: b, event: paid, key: "${workflow.input.key}", match: event.data.amount >= 10, timeout: 1h}
output: "${b.output.data.amount}"
`

// happens publishes an event, or tells one run of it.
func (r *rig) happens(run, name, key, data string) parley.SignalReceipt {
	r.t.Helper()
	got, err := r.x.Signal(r.t.Context(), parley.SignalRequest{Run: run, Signal: parley.Signal{Name: name, Key: key, Data: json.RawMessage(data)}})
	check(r.t, err)
	return got
}

// taken gives the ids of the events that a run has taken.
func (r *rig) taken(run string) (ids []string) {
	r.t.Helper()
	for _, e := range r.events(run) {
		if e.Type == parley.EventSignalReceived {
			var s parley.Signal
			check(r.t, json.Unmarshal(e.Data, &s))
			ids = append(ids, s.ID)
		}
	}
	return ids
}

func (r *rig) outcome(run string) string {
	r.t.Helper()
	v, err := r.x.Get(r.t.Context(), run)
	check(r.t, err)
	return string(v.Status) + " " + string(v.Output)
}

func wantEqual(t *testing.T, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("(-want +got):\n%s", d)
	}
}

// TestC8_EventsReachTheRunsThatWait: those that came before the step began too,
// oldest first, and each run takes it.
func TestC8_EventsReachTheRunsThatWait(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply(waitsForPay)
		r.happens("", "paid", "7", `{"amount": 1000}`) // before they began
		time.Sleep(1300 * time.Millisecond)
		one, two := r.start(), r.start()
		r.happens("", "paid", "8", `{"amount":11}`)
		r.happens("", "paid", "7", `{"amount":1}`)
		r.happens("", "paid", "7", `{}`)
		first := r.happens("", "paid", "7", `{"amount":12}`)
		time.Sleep(time.Second)
		r.happens("", "paid", "7", `{"amount":13}`)
		time.Sleep(59 * time.Second)
		synctest.Wait() // without a sweep
		for _, run := range []string{one, two} {
			wantEqual(t, r.outcome(run), "COMPLETED 12")
			wantEqual(t, r.taken(run), []string{first.ID})
			if b := r.step(run, "b"); !b.EndedAt.Equal(*b.ScheduledAt) {
				t.Errorf("the event was there and was taken %s later", b.EndedAt.Sub(*b.ScheduledAt))
			}
		}

		late := r.start()
		time.Sleep(61 * time.Second)
		step := r.step(late, "b")
		if step.Phase != parley.PhaseWaiting || step.Event == nil || step.Event.Name != "paid" || step.Event.Key != "7" {
			t.Fatalf("step %+v", step)
		}
		again := r.happens("", "paid", "7", `{"amount":14}`)
		synctest.Wait()
		wantEqual(t, r.outcome(late), "COMPLETED 14")
		repeated, err := r.x.Signal(t.Context(), parley.SignalRequest{Signal: parley.Signal{ID: again.ID, Name: "paid", Key: "7"}})
		check(t, err)
		again.Repeated = true
		wantEqual(t, repeated, again)
	})
}

// TestC8_ASignalIsForOneRun: and for none that has ended.
func TestC8_ASignalIsForOneRun(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply(waitsForPay)
		one, two := r.start(), r.start()
		r.happens(two, "paid", "7", `{"amount":20}`)
		time.Sleep(61 * time.Second)
		wantEqual(t, []string{r.outcome(one), r.outcome(two)}, []string{"RUNNING ", "COMPLETED 20"})
		for run, want := range map[string]parley.Code{two: parley.CodeConflict, "run-9": parley.CodeNotFound} {
			_, err := r.x.Signal(t.Context(), parley.SignalRequest{Run: run, Signal: parley.Signal{Name: "paid"}})
			wantCode(t, err, want, run)
		}
		_, err := r.x.Signal(t.Context(), parley.SignalRequest{Signal: parley.Signal{}})
		wantCode(t, err, parley.CodeInvalid, "name")
		_, err = r.x.Signal(t.Context(), parley.SignalRequest{Signal: parley.Signal{Name: "x", Data: json.RawMessage("{")}})
		wantCode(t, err, parley.CodeInvalid, "JSON")
	})
}

// TestC8_NothingDependsOnHints: an event whose publisher died after it was
// written, before anybody was told, is found by a sweep; so is one that the run was
// told of by one that died.
func TestC8_NothingDependsOnHints(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply(waitsForPay)
		run, other := r.start(), r.start()
		time.Sleep(61 * time.Second)
		put := func(to, id string) {
			e := parley.Signal{ID: id, Name: "paid", Key: "7", Data: json.RawMessage(`{"amount":20}`), Time: time.Now()}
			_, _, err := r.db.PutSignal(t.Context(), to, e, 0)
			check(t, err)
		}
		put(run, "e1")
		time.Sleep(time.Second)
		synctest.Wait()
		wantEqual(t, r.outcome(run), "COMPLETED 20")

		r.stopFirst()
		put(other, "e2")
		_, _, err := r.db.SpreadSignals(t.Context(), 10)
		check(t, err)
		r.another(func(*executor.Config) {}, func(*executor.Executor) {
			time.Sleep(1500 * time.Millisecond)
			synctest.Wait()
			wantEqual(t, r.outcome(other), "COMPLETED 20")
		})
	})
}

// TestC8_EmitReachesWhoWaits: once, though the first decision about it was lost
// and the outcome of the second is not known.
func TestC8_EmitReachesWhoWaits(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: talk\nsteps: [{id: w, event: done}, {id: x, event: done, timeout: 10m, on_error: continue}]\noutput: '${w.output}'")
		waiting := r.start()
		r.apply("name: talk\nsteps: [{id: a, wait: 1m}, {id: e, emit: {event: done, data: {n: 1}}}]")
		run := r.start()
		refused, doubtful := 0, 0
		r.breaks(func(d store.Decision) error {
			if len(d.Signals.Emit) > 0 && refused == 0 {
				refused++
				return store.ErrStale
			}
			return nil
		})
		r.mu.Lock()
		r.doubt = func(d store.Decision) error {
			if len(d.Signals.Emit) > 0 && doubtful == 0 {
				doubtful++
				return parley.Errorf(parley.CodeUnavailable, "who knows")
			}
			return nil
		}
		r.mu.Unlock()
		time.Sleep(62 * time.Second)
		synctest.Wait()
		if refused+doubtful != 2 {
			t.Fatalf("%d refused, %d in doubt", refused, doubtful)
		}
		wantEqual(t, r.outcome(run), `COMPLETED {"event_id":"`+run+`.e"}`)
		wantEqual(t, r.taken(waiting), []string{run + ".e"})
		time.Sleep(11 * time.Minute)
		if v := r.step(waiting, "x"); v.Status != parley.StepFailed || v.Error.Code != parley.CodeTimeout {
			t.Errorf("one event was taken twice: %+v", v)
		}
	})
}

// TestLimits_EmitFailsWhereNoMoreEventsMayWait: also in the first decision of a
// run, and the run goes on.
func TestLimits_EmitFailsWhereNoMoreEventsMayWait(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		for range 1000 {
			r.happens("", "done", "", `1`)
		}
		_, err := r.x.Signal(t.Context(), parley.SignalRequest{Signal: parley.Signal{Name: "done"}})
		wantCode(t, err, parley.CodeLimit, "1000")
		r.apply("name: talk\nsteps: [{id: e, emit: {event: done}, on_error: continue}, {id: a, wait: 1m}, {id: f, emit: {event: done}, on_error: continue}, {id: g, emit: {event: done, key: k}}]")
		run := r.start()
		time.Sleep(61 * time.Second)
		for _, step := range []string{"e", "f"} {
			if v := r.step(run, step); v.Status != parley.StepFailed || v.Error.Code != parley.CodeLimit {
				t.Errorf("step %+v", v)
			}
		}
		wantEqual(t, r.outcome(run), `COMPLETED {"event_id":"`+run+`.g"}`)
	})
}

// TestLimits_EmitFailsForManyKeysAtOnce: however many keys of the events of one decision
// have no room, the run goes on, in its first decision and in a later one.
func TestLimits_EmitFailsForManyKeysAtOnce(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.stopFirst()
		const loop = `{id: e, for_each: "${workflow.input.keys}", item_errors: continue, steps: [{id: it, emit: {event: done, key: "${each.item}"}}]}`
		keys := `"1"`
		for i := 2; i <= 25; i++ {
			r.happens("", "done", fmt.Sprint(i), `1`)
			keys += fmt.Sprintf(`,"%d"`, i)
		}
		fewer := func(c *executor.Config) { c.Limits = workflow.DefaultRunLimits(); c.Limits.WaitingEvents = 1 }
		for _, steps := range []string{loop, "{id: a, wait: 1m}, " + loop} {
			r.apply("name: talk\nsteps: [" + steps + "]\noutput: '${e.output.failed_count}'")
			r.another(fewer, func(x *executor.Executor) {
				run, _, err := x.Start(t.Context(), parley.StartRequest{Workflow: "talk", Input: []byte(`{"keys":[` + keys + `]}`)})
				check(t, err)
				time.Sleep(62 * time.Second)
				wantEqual(t, r.outcome(run.ID), "COMPLETED 24")
			})
			keys = strings.Replace(keys, `"1"`, `"one"`, 1)
		}
	})
}

// TestLimits_EmitHasRoomAgain: an event that had no room is no reason to refuse a later
// one, when the first has been taken meanwhile and the run was held in memory.
func TestLimits_EmitHasRoomAgain(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.stopFirst()
		r.apply("name: taker\nsteps: [{id: a, wait: 10s}, {id: e, event: done, key: k}]")
		emit := "{id: %s, emit: {event: done, key: k}, on_error: continue}"
		r.apply("name: talk\nsteps: [" + fmt.Sprintf(emit, "e") + ", {id: a, agent: writer}, " + fmt.Sprintf(emit, "f") + "]")
		r.another(func(c *executor.Config) {
			c.Limits = workflow.DefaultRunLimits()
			c.Limits.WaitingEvents = 1
		}, func(x *executor.Executor) {
			_, _, err := x.Start(t.Context(), parley.StartRequest{Workflow: "taker"})
			check(t, err)
			time.Sleep(time.Second)
			r.happens("", "done", "k", `1`)
			run, _, err := x.Start(t.Context(), parley.StartRequest{Workflow: "talk"})
			check(t, err)
			r.follow(run.ID + ".a.1")
			time.Sleep(20 * time.Second) // the event is taken
			r.tells(x, run.ID+".a.1", `1`, true)
			synctest.Wait()
			if e, f := r.step(run.ID, "e"), r.step(run.ID, "f"); e.Status != parley.StepFailed || f.Status != parley.StepCompleted {
				t.Errorf("the first is %s, the second %s: %v", e.Status, f.Status, f.Error)
			}
		})
	})
}

// TestC8_SeveralExecutorsTakeAnEventOnce: whoever decides, each run takes each
// event once at most, and none misses one.
func TestC8_SeveralExecutorsTakeAnEventOnce(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: talk\nsteps: [{id: w, event: paid, key: k}, {id: x, event: paid, key: k}, {id: y, event: paid, key: k}]")
		var ids atomic.Int64
		r.config.NewID = func() string { return fmt.Sprintf("run-%d", 100+ids.Add(1)) }
		jitter := func(f float64) func(*executor.Config) {
			return func(c *executor.Config) { c.Jitter = func() float64 { return f } }
		}
		r.another(jitter(0.1), func(one *executor.Executor) {
			r.another(jitter(0.9), func(two *executor.Executor) {
				r.another(func(c *executor.Config) { c.Guest = true }, func(guest *executor.Executor) {
					var g sync.WaitGroup
					runs := make([]string, 12)
					begun := time.Now()
					for i := range runs {
						g.Go(func() {
							run, _, err := []*executor.Executor{one, two, guest}[i%3].Start(t.Context(), parley.StartRequest{Workflow: "talk"})
							check(t, err)
							runs[i] = run.ID
						})
					}
					for i := range 3 {
						g.Go(func() {
							time.Sleep(time.Duration(i) * 10 * time.Millisecond)
							_, err := []*executor.Executor{guest, two, one}[i].Signal(t.Context(), parley.SignalRequest{Signal: parley.Signal{ID: fmt.Sprint("e", i), Name: "paid", Key: "k"}})
							check(t, err)
						})
					}
					g.Wait()
					time.Sleep(3 * time.Second)
					synctest.Wait()
					want := []string{"e0", "e1", "e2"}
					for _, run := range runs {
						v, err := one.Get(t.Context(), run)
						check(t, err)
						got := r.taken(run)
						if v.CreatedAt.After(begun) { // it began after the first event
							want = want[len(want)-len(got):]
						}
						wantEqual(t, got, want)
					}
				})
			})
		})
	})
}

// TestC8_TheOldestGoesFirst: also where one of two steps that wait counts events
// that are too old for the other.
func TestC8_TheOldestGoesFirst(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply(`
name: talk
steps:
  - {id: w, wait: 1m}
  - {id: p, parallel: [{id: z, event: paid}, {id: a, event: paid, fresh: true}], output: "${result.z.id + ' ' + result.a.id}"}
`)
		run := r.start()
		time.Sleep(62 * time.Second)
		r.stopFirst()
		for id, age := range map[string]time.Duration{"e1": 30 * time.Second, "e2": 0} {
			_, _, err := r.db.PutSignal(t.Context(), "", parley.Signal{ID: id, Name: "paid", Time: time.Now().Add(-age)}, 0)
			check(t, err)
		}
		r.another(func(*executor.Config) {}, func(*executor.Executor) {
			time.Sleep(1500 * time.Millisecond)
			synctest.Wait()
			wantEqual(t, r.outcome(run), `COMPLETED "e1 e2"`)
		})
	})
}
