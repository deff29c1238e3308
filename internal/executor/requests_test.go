package executor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/store"
)

// plan is a workflow of one step as the old API sends it.
func plan(name, version string) json.RawMessage {
	return json.RawMessage(`{"workflow_id": "wf-` + name + `", "name": "` + name + `", "version": "` + version + `", "start_step": "step-1", "steps": {"step-1": {"id": "step-1", "type": "agent", "agent_name": "writer", "next_step": null, "input_mapping": {"topic": "${workflow.input.topic}"}}}}`)
}

func (r *oldRig) put(subject, key string, value []byte, err error) {
	r.t.Helper()
	check(r.t, err)
	check(r.t, r.bus.Publish(r.t.Context(), bus.Message{Subject: subject, Key: key, Value: value}))
}

func (r *oldRig) request(run string, plan json.RawMessage, input string) {
	r.t.Helper()
	v, err := records.ExecutionRequest{RunID: run, Plan: plan, Input: json.RawMessage(input), At: time.Now()}.Encode()
	r.put(bus.SubjectStartRequests, run, v, err)
}

func (r *oldRig) requestCancel(run string) {
	r.t.Helper()
	v, err := records.CancellationRequest{RunID: run, CancelledBy: "system", Reason: "too slow", At: time.Now()}.Encode()
	r.put(bus.SubjectCancelRequests, run, v, err)
}

// wantLetters compares the reasons of the dead letters with parts of them, and the
// ids that they have with those of their records.
func (r *oldRig) wantLetters(want ...string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.letters) != len(want) {
		r.t.Fatalf("%d dead letters, want %d: %+v", len(r.letters), len(want), r.letters)
	}
	for i, d := range r.letters {
		if !strings.Contains(d.Code+": "+d.Reason, want[i]) {
			r.t.Errorf("dead letter %d: %s: %s, want %q", i, d.Code, d.Reason, want[i])
		}
		var ids struct {
			Run  string `json:"run_id"`
			Task string `json:"task_id"`
		}
		if json.Unmarshal(d.Message.Value, &ids) == nil && (d.Run != ids.Run || d.Task != ids.Task || d.Foreign) {
			r.t.Errorf("dead letter of %.200s: run %q, task %q", d.Message.Value, d.Run, d.Task)
		}
	}
}

// TestRequests_Start: a record starts the run that it names, once, on the plan
// that it brings; equal plans share a version, which no start by name means.
func TestRequests_Start(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		t := r.t
		r.bridge()
		for range 3 {
			r.request("run-one", plan("Write", "3"), `{"topic": "tea"}`)
		}
		time.Sleep(time.Second)
		v := r.wantRun("run-one", parley.RunCompleted)
		if v.Workflow != "wf-Write" || v.Version != "3" || string(v.Input) != `{"topic": "tea"}` {
			t.Errorf("run %+v", v)
		}
		r.wantTasks("run-one.step-1.1")
		var compact any
		check(t, json.Unmarshal(plan("Write", "3"), &compact))
		equal, err := json.Marshal(compact) // other spelling, other order
		check(t, err)
		r.request("run-two", equal, `{"topic": "tea"}`)
		r.request("run-three", json.RawMessage(strings.Replace(string(plan("Write", "3")), "writer", "editor", 1)), `{"topic": "tea"}`)
		time.Sleep(time.Second)
		if v := r.wantRun("run-two", parley.RunCompleted); v.Version != "3" {
			t.Errorf("an equal plan is version %s", v.Version)
		}
		if v := r.wantRun("run-three", parley.RunCompleted); !strings.HasPrefix(v.Version, "3-") || v.Steps[0].Agent != "editor" {
			t.Errorf("another plan of that version is version %s", v.Version)
		}
		_, _, err = r.x.Start(t.Context(), parley.StartRequest{Workflow: "Write"})
		wantCode(t, err, parley.CodeNotFound, `"Write"`)
		r.wantLetters()
	})
}

// TestRequests_Bad: what cannot be started is a dead letter with its reason,
// and those behind it go on.
func TestRequests_Bad(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		r.bridge()
		r.put(bus.SubjectStartRequests, "k", []byte("{"), nil)
		time.Sleep(10 * time.Millisecond)
		r.put(bus.SubjectStartRequests, "k", nil, nil)
		time.Sleep(10 * time.Millisecond)
		r.put(bus.SubjectStartRequests, "k", []byte(`{"run_id": "run-1", "workflow_plan": [], "input_data": {}}`), nil)
		time.Sleep(10 * time.Millisecond)
		r.request("run.with.dots", plan("Write", "1"), `{}`)
		time.Sleep(10 * time.Millisecond)
		r.request("run-bad", json.RawMessage(`{"workflow_id": "w", "name": "w", "version": "1", "start_step": "nowhere", "steps": {}}`), `{}`)
		time.Sleep(10 * time.Millisecond)
		r.put(bus.SubjectCancelRequests, "k", []byte(`{"run_id": 7}`), nil)
		r.request("run-good", plan("Write", "1"), `{"topic": "tea"}`)
		time.Sleep(time.Second)
		r.wantRun("run-good", parley.RunCompleted)
		r.wantLetters("invalid", "invalid", "workflow_plan", "only printable ASCII", "the workflow plan cannot be run", "run_id")
	})
}

// TestRequests_Cancel: a record cancels the run that it names, also if it comes
// before the run; one of a run that has ended, or is nowhere, changes nothing.
func TestRequests_Cancel(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		r.request("run-one", plan("Write", "1"), `{"topic": "tea"}`)
		time.Sleep(time.Second)
		r.requestCancel("run-one")
		r.requestCancel("run-two")
		r.requestCancel("run-nowhere")
		time.Sleep(2 * time.Second)
		r.request("run-two", plan("Write", "1"), `{"topic": "tea"}`)
		time.Sleep(40 * time.Second)
		for _, run := range []string{"run-one", "run-two"} {
			v := r.wantRun(run, parley.RunCancelled)
			if v.CancelledBy != "system" || v.CancelReason != "too slow" {
				r.t.Errorf("run %+v", v)
			}
		}
		r.requestCancel("run-one")
		time.Sleep(time.Second)
		r.wantLetters()
		// The old API retries a run by a second request with its id.
		r.request("run-one", plan("Write", "1"), `{"topic": "tea"}`)
		time.Sleep(time.Second)
		r.wantRun("run-one", parley.RunCancelled)
		r.wantLetters("conflict: run run-one is CANCELLED")
	})
}

// TestRequests_ManyCancelsOfNoRun: requests to cancel runs that are not here are given
// up together, so that one of a run that is here does not wait for each of them.
func TestRequests_ManyCancelsOfNoRun(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		r.request("run-here", plan("Write", "1"), `{"topic": "tea"}`)
		time.Sleep(time.Second)
		for n := range 400 {
			r.requestCancel(fmt.Sprintf("run-nowhere-%d", n))
		}
		r.requestCancel("run-here")
		time.Sleep(12 * time.Second) // twice the patience
		if v, err := r.x.Get(r.t.Context(), "run-here"); err != nil || v.CancelledBy != "system" {
			r.t.Errorf("the run is %s: %v", v.Status, err)
		}
		r.wantLetters()
	})
}

// TestRequests_CancelLongBefore: requests to start come on a topic of their own,
// which may be far behind. A run is cancelled as soon as it comes, by the first
// record that says so, unless it was asked for after that.
func TestRequests_CancelLongBefore(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		ask := func(run string, at time.Time) {
			v, err := records.ExecutionRequest{RunID: run, Plan: plan("Write", "1"), Input: json.RawMessage(`{"topic": "tea"}`), At: at}.Encode()
			r.put(bus.SubjectStartRequests, run, v, err)
		}
		asked := time.Now()
		r.requestCancel("run-late")
		r.requestCancel("run-again")
		r.put(bus.SubjectCancelRequests, "run-timeless", []byte(`{"run_id": "run-timeless"}`), nil)
		time.Sleep(time.Minute)
		v, err := records.CancellationRequest{RunID: "run-late", CancelledBy: "ann", Reason: "also", At: time.Now()}.Encode()
		r.put(bus.SubjectCancelRequests, "run-late", v, err)
		time.Sleep(time.Minute)
		ask("run-late", asked)
		ask("run-again", time.Now())
		ask("run-timeless", time.Now())
		time.Sleep(40 * time.Second)
		r.wantRun("run-timeless", parley.RunCancelled)
		if v := r.wantRun("run-late", parley.RunCancelled); v.CancelledBy != "system" || v.CancelReason != "too slow" {
			r.t.Errorf("run %+v", v)
		}
		if v, err := r.x.Get(r.t.Context(), "run-again"); err != nil || v.CancelledBy != "" || v.Status == parley.RunCancelled {
			r.t.Errorf("the run that was asked for again: %v %v", v.Status, err)
		}
		r.wantLetters()
	})
}

// TestRequests_CancelBehindTheBody: a request that comes when the body of its run has
// ended is done with: the run ends as it does.
func TestRequests_CancelBehindTheBody(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		r.deploy("name: tidy\nsteps: [{id: a, set: 1}]\nfinally: [{id: w, wait: 2m}]\n")
		run, _, err := r.x.Start(r.t.Context(), parley.StartRequest{Workflow: "tidy"})
		check(r.t, err)
		r.requestCancel(run.ID)
		time.Sleep(time.Minute)
		if v := r.wantRun(run.ID, parley.RunRunning); v.Phase != "finally" {
			r.t.Errorf("the run is in %q", v.Phase)
		}
		time.Sleep(2 * time.Minute)
		r.wantRun(run.ID, parley.RunCompleted)
		r.wantLetters()
	})
}

// TestRequests_StopIntake: an executor that is being stopped starts no runs any
// more, goes on with those that it has, and still cancels them.
func TestRequests_StopIntake(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		r.request("run-one", plan("Write", "1"), `{"topic": "tea"}`)
		time.Sleep(time.Second)
		r.x.StopIntake()
		r.x.StopIntake()
		time.Sleep(time.Second)
		r.request("run-two", plan("Write", "1"), `{"topic": "tea"}`)
		time.Sleep(time.Minute)
		if _, err := r.x.Get(r.t.Context(), "run-two"); parley.CodeOf(err) != parley.CodeNotFound {
			r.t.Errorf("the second run: %v", err)
		}
		r.requestCancel("run-one")
		time.Sleep(40 * time.Second)
		r.wantRun("run-one", parley.RunCancelled)
	})
}

// TestRequests_StoreFails: a request is not lost while the store does not take
// it, and a dead letter that cannot be kept is tried again.
func TestRequests_StoreFails(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		down := func(name string) error {
			if strings.HasSuffix(name, ".before") {
				return errors.New("no disk")
			}
			return nil
		}
		r.bridge()
		r.failpoint.Store(&down)
		r.request("run-one", plan("Write", "1"), `{"topic": "tea"}`)
		time.Sleep(10 * time.Second)
		r.failpoint.Store(nil)
		time.Sleep(10 * time.Second)
		r.wantRun("run-one", parley.RunCompleted)
		r.wantLetters()
	})
}

// TestRequests_WhileRemoved: a request for a run whose former one is being removed
// is neither lost nor a conflict: it begins when nothing is left of that.
func TestRequests_WhileRemoved(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		r.bridge()
		r.request("run-one", plan("Write", "1"), `{"topic": "tea"}`)
		time.Sleep(time.Second)
		r.wantRun("run-one", parley.RunCompleted)
		past := store.Past{Workflow: "wf-Write", Age: time.Second, Now: time.Now().Add(time.Hour)}
		if n, err := r.db.RemoveRuns(r.t.Context(), past, []string{"run-one"}); n != 1 || err != nil {
			r.t.Fatal(n, err)
		}
		r.request("run-one", plan("Write", "1"), `{"topic": "coffee"}`)
		time.Sleep(10 * time.Second)
		_, err := r.x.Get(r.t.Context(), "run-one")
		wantCode(r.t, err, parley.CodeNotFound, "run-one")
		for more := true; more; {
			more, err = r.db.PurgeRemoved(r.t.Context())
			check(r.t, err)
		}
		time.Sleep(time.Minute)
		if v := r.wantRun("run-one", parley.RunCompleted); string(v.Input) != `{"topic": "coffee"}` {
			r.t.Errorf("the run has the input %s", v.Input)
		}
		r.wantLetters()
	})
}

// TestRequests_CancelLongBeforeFails: the store fails between the start of a run and
// its cancellation, which was asked for long before. It is not forgotten for that.
func TestRequests_CancelLongBeforeFails(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		r.requestCancel("run-late")
		time.Sleep(time.Minute)
		var failed atomic.Int32
		down := func(name string) error {
			if strings.HasSuffix(name, ".before") && name != "P1.before" && name != "P4.before" {
				failed.Add(1)
				return errors.New("no disk")
			}
			return nil
		}
		r.failpoint.Store(&down)
		v, err := records.ExecutionRequest{
			RunID: "run-late", Plan: plan("Write", "1"), Input: json.RawMessage(`{"topic": "tea"}`), At: time.Now().Add(-time.Hour),
		}.Encode()
		r.put(bus.SubjectStartRequests, "run-late", v, err)
		time.Sleep(5 * time.Second)
		if failed.Load() == 0 {
			r.t.Error("the cancellation has not failed")
		}
		r.failpoint.Store(nil)
		time.Sleep(40 * time.Second)
		r.wantRun("run-late", parley.RunCancelled)
		r.wantLetters()
	})
}

// TestMonitoring: watchers see each agent step begin and end, and a run that
// fails, in this order; nothing else.
func TestMonitoring(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		t := r.t
		r.bridge()
		run := r.start()
		time.Sleep(time.Second)
		r.old.answers(func(records.AgentTask) says { return failure("HTTP 404: Client error") })
		bad := r.start()
		time.Sleep(time.Second)
		r.wantRun(bad, parley.RunFailed)
		got := make(map[string][]string)
		for _, m := range r.bus.log(bus.SubjectMonitoring) {
			u, err := records.DecodeMonitoring(m.Value)
			check(t, err)
			got[m.Key] = append(got[m.Key], fmt.Sprintf("%s %s %s %s", u.StepID, u.StepName, u.Status, u.Metadata))
		}
		want := map[string][]string{
			run: {
				`a writer RUNNING {"step_execution_id": "` + run + `-a", "task_id": "` + run + `.a.1"}`,
				`a writer COMPLETED {"step_execution_id": "` + run + `-a", "task_id": "` + run + `.a.1"}`,
				`b writer RUNNING {"step_execution_id": "` + run + `-b", "task_id": "` + run + `.b.1"}`,
				`b writer COMPLETED {"step_execution_id": "` + run + `-b", "task_id": "` + run + `.b.1"}`,
			},
			bad: {
				`a writer RUNNING {"step_execution_id": "` + bad + `-a", "task_id": "` + bad + `.a.1"}`,
				`a writer FAILED {"step_execution_id": "` + bad + `-a", "error": "HTTP 404: Client error"}`,
				`workflow talk FAILED {"failed_step": "a", "error": "HTTP 404: Client error"}`,
			},
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got)\n%s", d)
		}
	})
}

// TestMonitoring_NeverBlocks: a bus that hangs costs watchers their records,
// and runs nothing.
func TestMonitoring_NeverBlocks(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		r.bus.breaks(func(m bus.Message) (bool, error) {
			return false, map[bool]error{true: errors.New("no broker")}[m.Subject == bus.SubjectMonitoring]
		})
		r.bridge()
		run := r.start()
		time.Sleep(time.Second)
		r.wantRun(run, parley.RunCompleted)
	})
}
