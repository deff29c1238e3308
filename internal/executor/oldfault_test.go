package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/store"
)

// TestOld_CommitInDoubt: the reply to a decision is lost. What it has handed
// over is published once it is seen to be durable, and once only.
func TestOld_CommitInDoubt(t *testing.T) {
	for _, point := range []string{"P1.after", "P4.after", "P7.after", "P11.after", "P21.after"} {
		t.Run(point, func(t *testing.T) {
			besideOld(t, func(r *oldRig) {
				lost := 0
				f := func(name string) error {
					if name == point && lost < 2 {
						lost++
						return errors.New("the reply is lost")
					}
					return nil
				}
				r.bridge()
				r.failpoint.Store(&f)
				run, _, err := r.x.Start(r.t.Context(), parley.StartRequest{Workflow: "talk", IdempotencyKey: "k"})
				for err != nil {
					time.Sleep(3 * time.Second)
					run, _, err = r.x.Start(r.t.Context(), parley.StartRequest{Workflow: "talk", IdempotencyKey: "k"})
				}
				check(r.t, err)
				time.Sleep(5 * time.Second)
				r.wantRun(run.ID, parley.RunCompleted)
				r.wantTasks(run.ID+".a.1", run.ID+".b.1")
			})
		})
	}
}

// TestOld_DiesBeforePublishing: an executor that dies between the commit and
// the publication leaves a task in doubt. The next one does not publish it; its
// time ends it, or under resend sends it.
func TestOld_DiesBeforePublishing(t *testing.T) {
	for policy, want := range map[parley.OutcomePolicy]parley.RunStatus{
		parley.OutcomeFail: parley.RunFailed, parley.OutcomeResend: parley.RunCompleted,
	} {
		t.Run(string(policy), func(t *testing.T) {
			besideOld(t, func(r *oldRig) {
				r.policy = policy
				died := errors.New("died")
				r.bus.breaks(func(m bus.Message) (bool, error) {
					if m.Subject == bus.SubjectTasks {
						return false, died
					}
					return true, nil
				})
				run := r.start()
				time.Sleep(time.Second)
				r.bus.breaks(nil)
				r.bridge()
				stop := r.execute() // beside the former one, which believes the bus to be down
				defer stop()
				time.Sleep(28 * time.Second)
				r.wantTasks()
				r.wantRun(run, parley.RunRunning)
				time.Sleep(20 * time.Second)
				r.wantRun(run, want)
			})
		})
	}
}

// TestOld_ResendAlone: the one task that there is could not be published. Under resend
// it is published when its time is over and the bus is there again: no other task shows
// that it is.
func TestOld_ResendAlone(t *testing.T) {
	for name, back := range map[string]time.Duration{"back before": time.Second, "back later": 50 * time.Second} {
		t.Run(name, func(t *testing.T) {
			besideOld(t, func(r *oldRig) {
				r.policy = parley.OutcomeResend
				r.bus.breaks(func(m bus.Message) (bool, error) {
					return m.Subject != bus.SubjectTasks, errors.New("no answer from the broker")
				})
				run := r.start()
				time.Sleep(back)
				r.bus.breaks(nil)
				r.bridge()
				time.Sleep(2 * time.Minute)
				r.wantRun(run, parley.RunCompleted)
				r.wantTasks(run+".a.1", run+".b.1")
			})
		})
	}
}

// TestOld_BusDownCostsFew: while the bus refuses what is published, at once, the attempts
// that find out whether it still does become rarer. Each may be a task lost.
func TestOld_BusDownCostsFew(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		r.bus.breaks(func(m bus.Message) (bool, error) {
			return m.Subject != bus.SubjectTasks, errors.New("no answer from the broker")
		})
		r.start()
		synctest.Wait()
		var runs []string
		for range 60 {
			runs = append(runs, r.start())
		}
		time.Sleep(time.Minute)
		// After 1, 3, 7, 15, 30, 45 and 60 s.
		if n := r.counted("parley_executor_hand_offs_total", "doubtful"); n < 6 || n > 9 {
			r.t.Errorf("%v tasks are in doubt", n)
		}
		r.bus.breaks(nil)
		r.bridge()
		time.Sleep(30 * time.Second)
		runs = slices.DeleteFunc(runs, func(run string) bool { return r.get(run).Status == parley.RunCompleted })
		if len(runs) > 8 {
			r.t.Errorf("%d of 60 runs did not go through", len(runs))
		}
	})
}

// TestOld_ManyWaitForTheBus: more overdue tasks than one look gives wait for the bus to
// publish them again. They do not hold up one behind them.
func TestOld_ManyWaitForTheBus(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		r.policy = parley.OutcomeResend
		for range 120 {
			r.start()
		}
		r.policy = parley.OutcomeFail
		time.Sleep(time.Second)
		last := r.start()
		time.Sleep(20 * time.Second)
		r.bus.breaks(func(m bus.Message) (bool, error) {
			return m.Subject != bus.SubjectTasks, errors.New("no answer from the broker")
		})
		for range 3 {
			r.start() // the bus is known to be down
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		wantCode(r.t, r.wantRun(last, parley.RunFailed).Error, parley.CodeOutcomeUnknown, "No result came")
		if n := r.counted("parley_executor_hand_offs_total", "sent again"); n < 1 || n > 6 {
			r.t.Errorf("%v of them were tried while the bus was down", n)
		}
	})
}

// waiting starts a run whose first attempt nobody has handed over: its executor
// does not run.
func (r *oldRig) waiting() string {
	r.t.Helper()
	r.x = executor.New(r.cfg)
	return r.start()
}

// TestOld_HandOverInDoubt: the reply to a hand-over is lost. It is read again,
// and published once.
func TestOld_HandOverInDoubt(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		lost := false
		f := func(name string) error {
			if name == "P21.after" && !lost {
				lost = true
				return errors.New("the reply is lost")
			}
			return nil
		}
		r.bridge()
		r.failpoint.Store(&f)
		run := r.waiting()
		time.Sleep(5 * time.Second)
		r.wantRun(run, parley.RunCompleted)
		r.wantTasks(run+".a.1", run+".b.1")
		if !lost {
			r.t.Error("nothing was handed over later than at birth")
		}
	})
}

// TestOld_AfterBridgesOfOurs: what was published for bridges that claim is not
// published for an old one: it may have been read there.
func TestOld_AfterBridgesOfOurs(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		r.stop()
		run := r.waiting()
		list, err := r.db.Publish(r.t.Context(), time.Now(), 10)
		check(r.t, err)
		if len(list) != 1 {
			r.t.Fatalf("%d attempts published", len(list))
		}
		defer r.execute()()
		time.Sleep(20 * time.Second)
		r.wantTasks()
		r.wantRun(run, parley.RunRunning)
		time.Sleep(20 * time.Second)
		wantCode(r.t, r.wantRun(run, parley.RunFailed).Error, parley.CodeOutcomeUnknown, "No result came")
	})
}

// TestOld_BackToBridgesOfOurs: what an old bridge has left ends after the
// executors have changed back.
func TestOld_BackToBridgesOfOurs(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		run := r.start()
		time.Sleep(time.Second)
		r.stop()
		r.cfg.OldBridge = nil
		defer r.execute()()
		time.Sleep(33 * time.Second)
		wantCode(r.t, r.wantRun(run, parley.RunFailed).Error, parley.CodeOutcomeUnknown, "No result came")
	})
}

// TestRequests_Stop: what an executor has in hand when it stops comes again.
func TestRequests_Stop(t *testing.T) {
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
		time.Sleep(time.Second)
		r.stop()
		r.failpoint.Store(nil)
		defer r.execute()()
		time.Sleep(3 * time.Second)
		r.wantRun("run-one", parley.RunCompleted)
	})
}

// TestOld_Results: what an old bridge says, and what becomes of the step.
func TestOld_Results(t *testing.T) {
	type row struct {
		record, code, text string
	}
	result := func(more string) string {
		return `{"run_id": "RUN", "task_id": "RUN.a.1", "correlation_id": "corr-RUN.a.1", ` + more + `}`
	}
	failed := func(text string) string {
		b, _ := json.Marshal(text)
		return result(`"status": "FAILURE", "output_data": null, "error_message": ` + string(b) + `, "timestamp": "x"`)
	}
	cases := map[string]row{
		"no output":           {record: result(`"status": "SUCCESS", "output_data": null`)},
		"only what it needs":  {record: result(`"status": "SUCCESS"`)},
		"other ids":           {record: `{"run_id": "x", "task_id": "y", "correlation_id": "corr-RUN.a.1", "status": "SUCCESS"}`},
		"unknown members":     {record: result(`"status": "SUCCESS", "more": [1], "timestamp": "2026-11-21T10:04:05Z"`)},
		"wrong status":        {result(`"status": "success", "output_data": {}`), "agent_error", `status "success"`},
		"no status":           {result(`"output_data": {}`), "agent_error", "status"},
		"output a list":       {result(`"status": "SUCCESS", "output_data": []`), "agent_error", "output_data"},
		"rejected":            {failed("HTTP 404: Client error '404 Not Found' for url 'http://h/'"), "agent_rejected", "404 Not Found"},
		"redirected":          {failed("HTTP 302: Redirect response"), "agent_rejected", "302"},
		"busy":                {failed("HTTP 429: Client error"), "agent_unavailable", "429"},
		"broken":              {failed("HTTP 500: Server error"), "agent_unavailable", "500"},
		"a proxy":             {failed("HTTP 504: Server error"), "outcome_unknown", "HTTP 504: Server error (the agent may have done the task"},
		"a timeout":           {failed(""), "outcome_unknown", "Agent execution failed (the bridge tells of a timeout like this"},
		"no text":             {result(`"status": "FAILURE"`), "outcome_unknown", "Agent execution failed"},
		"cut":                 {failed("Server disconnected without sending a response."), "outcome_unknown", "without sending"},
		"not there":           {failed("All connection attempts failed"), "agent_unavailable", "All connection attempts failed"},
		"breaker":             {failed("Circuit breaker is OPEN for agent 'writer'"), "agent_unavailable", "OPEN"},
		"no calls":            {failed("Operation failed after 0 attempts"), "agent_rejected", "after 0"},
		"unknown agent":       {failed("Agent 'writer' not found in API database or registry"), "unknown_agent", "not found"},
		"error of the agent":  {failed("JSON-RPC Error -32000: no paper"), "agent_error", "no paper"},
		"wrong parameters":    {failed("JSON-RPC Error -32602: no"), "agent_rejected", "-32602"},
		"rejected by state":   {failed("Task state: rejected"), "agent_rejected", "rejected"},
		"failed by state":     {failed("Task state: failed"), "agent_error", "failed"},
		"still working":       {failed("Task state: working"), "outcome_unknown", "may go on with this one"},
		"not JSON":            {failed("Expecting value: line 1 column 1 (char 0)"), "agent_error", "Expecting value"},
		"text beyond measure": {failed(strings.Repeat("é", 1<<17)), "agent_error", "éé"},
	}
	besideOld(t, func(r *oldRig) {
		r.deploy("name: talk\nsteps:\n  - {id: a, agent: writer, retry: {attempts: 1}}\n")
		runs := make(map[string]string)
		for name, c := range cases {
			runs[name] = r.start()
			time.Sleep(100 * time.Millisecond)
			r.put(bus.SubjectResults, "any key", []byte(strings.ReplaceAll(c.record, "RUN", runs[name])), nil)
		}
		time.Sleep(time.Second)
		for name, c := range cases {
			v := r.get(runs[name])
			switch {
			case c.code == "" && v.Status == parley.RunCompleted:
			case v.Status != parley.RunFailed || v.Error.Code != parley.Code(c.code) || !strings.Contains(v.Error.Message, c.text):
				t.Errorf("%s: run is %s, %v", name, v.Status, v.Error)
			}
		}
		r.wantLetters()
	})
}

// TestOld_ForeignResults: results of others are skipped, what cannot be read is
// a dead letter, and neither holds anything up.
func TestOld_ForeignResults(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		run := r.start()
		for i, value := range []string{
			`{"run_id": "run-x", "task_id": "task-step-1-0a1b2c3d", "status": "SUCCESS", "output_data": {}, "correlation_id": "corr-run-x-step-1-0a1b2c3d"}`,
			`{"run_id": "run-x", "task_id": "t", "status": "SUCCESS", "correlation_id": "corr-run-9.a.1"}`,
			`["a", "list"]`, `{`, "\xff\xfe", ``,
		} {
			v := []byte(value)
			if i == 5 {
				v = nil
			}
			r.put(bus.SubjectResults, "k", v, nil)
		}
		r.bridge()
		time.Sleep(time.Second)
		r.wantRun(run, parley.RunCompleted)
		r.wantLetters("", "", "", "")
		if n := r.counted("parley_executor_result_records_total", "foreign"); n != 2 {
			r.t.Errorf("%v foreign results were counted, want 2", n)
		}
		if n := r.counted("parley_executor_result_records_total", "taken"); n != 2 {
			r.t.Errorf("%v results were counted as taken, want 2", n)
		}
	})
}

// TestOld_Guest: what a process that only takes requests has scheduled is handed
// over by an executor at once, and by none twice.
func TestOld_Guest(t *testing.T) {
	besideOld(t, func(r *oldRig) {
		r.bridge()
		x := r.x
		r.cfg.Guest = true
		defer r.execute()()
		run := r.start()
		synctest.Wait()
		r.wantTasks(run + ".a.1")
		if a, _, _, err := r.db.ForResult(r.t.Context(), run+".a.1"); err != nil || a.HandOff != store.HandOffBus {
			r.t.Errorf("published without a claim: %+v, %v", a, err)
		}
		r.x = x
		time.Sleep(time.Second)
		r.wantRun(run, parley.RunCompleted)
		r.wantTasks(run+".a.1", run+".b.1")
	})
}

// TestOld_Random: runs beside an old bridge that loses, repeats and fails,
// with executors that lose replies and a bus that is gone for a while. Every run
// ends, no task is published twice unless it is resent, and a result that came in
// time counts.
func TestOld_Random(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			besideOld(t, func(r *oldRig) { randomly(r, rand.New(rand.NewPCG(seed, 6))) })
		})
	}
}

func randomly(r *oldRig, dice *rand.Rand) {
	t := r.t
	if dice.IntN(2) == 0 {
		r.policy = parley.OutcomeResend
	}
	chance := func(n int) bool { r.mu.Lock(); defer r.mu.Unlock(); return dice.IntN(n) == 0 }
	r.old.answers(func(records.AgentTask) says {
		switch {
		case chance(10):
			return says{}
		case chance(8):
			return failure("HTTP 503: busy")
		case chance(10):
			r.old.rewind(3)
		}
		return ok(`{"n": 1}`)
	})
	lossy := func(name string) error {
		if strings.HasPrefix(name, "P") && chance(25) {
			return errors.New("the reply is lost")
		}
		return nil
	}
	r.bus.breaks(func(m bus.Message) (bool, error) {
		if m.Subject != bus.SubjectResults && chance(30) {
			return chance(2), errors.New("no broker")
		}
		return true, nil
	})
	defer r.execute()()
	r.bridge()
	r.failpoint.Store(&lossy)
	var runs []string
	for i := range 12 {
		req := parley.StartRequest{Workflow: "talk", IdempotencyKey: fmt.Sprint(i)}
		for {
			run, _, err := r.x.Start(context.Background(), req)
			if err == nil {
				runs = append(runs, run.ID)
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	time.Sleep(20 * time.Second)
	r.failpoint.Store(nil)
	r.bus.breaks(nil)
	time.Sleep(3 * time.Minute)
	for _, run := range runs {
		v := r.get(run)
		if !v.Status.Terminal() {
			t.Errorf("run %s is %s: %s", run, v.Status, r.history(run))
		}
		ended := 0
		for _, e := range r.history(run) {
			if slices.Contains([]string{"run.completed", "run.failed", "run.cancelled"}, e) {
				ended++
			}
		}
		if ended != 1 {
			t.Errorf("run %s has ended %d times", run, ended)
		}
	}
	times := make(map[string]int)
	for _, task := range r.tasks() {
		times[task]++
	}
	for task, n := range times {
		a, _, _, err := r.db.ForResult(t.Context(), task)
		check(t, err)
		if n > 1+a.Orphanings {
			t.Errorf("%s was published %d times, orphaned %d times under %s", task, n, a.Orphanings, r.policy)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.letters) > 0 {
		t.Errorf("dead letters: %+v", r.letters)
	}
}
