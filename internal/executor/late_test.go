package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/store"
)

// late gives the events of a run's history that tell of late answers.
func (r *rig) late(run string) (list []parley.Event) {
	r.t.Helper()
	for _, e := range r.events(run) {
		if e.Type == parley.EventStepLate {
			list = append(list, e)
		}
	}
	return list
}

// noLateNews: of every late answer its run has taken notice.
func (r *rig) noLateNews() {
	r.t.Helper()
	w, err := r.db.Wakeups(r.t.Context(), time.Now(), 10)
	check(r.t, err)
	if len(w.Late) > 0 {
		r.t.Errorf("late answers are still news for %v", w.Late)
	}
}

const impatient = `name: talk
steps:
  - {id: a, agent: writer, timeout: 2s, retry: {attempts: 1}, on_error: continue}
  - {id: b, agent: writer}
`

// TestT3_LateAnswerInTheHistory: the history of a run that goes on says which answer
// came when its step had timed out, within a second and once, whoever decides about
// the run; the answer stands with its attempt.
func TestT3_LateAnswerInTheHistory(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply(impatient)
		run := r.start()
		r.follow(run + ".a.1")
		time.Sleep(3 * time.Second)
		came := time.Now().UTC().Truncate(time.Microsecond)
		for range 2 { // its reply may be lost
			r.tells(r.x, run+".a.1", `{"n":"late"}`, false)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		list := r.late(run)
		if len(list) != 1 || list[0].Step != "a" || list[0].Attempt != 1 {
			t.Fatalf("late: %+v", list)
		}
		var data struct {
			TaskID  string    `json:"task_id"`
			Outcome string    `json:"outcome"`
			CameAt  time.Time `json:"came_at"`
			Bytes   int64     `json:"bytes"`
		}
		check(t, json.Unmarshal(list[0].Data, &data))
		if data.TaskID != run+".a.1" || data.Outcome != "ok" || !data.CameAt.Equal(came) || data.Bytes != 12 {
			t.Errorf("the event says %+v", data)
		}
		r.noLateNews()
		attempts, _, err := r.db.AttemptLog(t.Context(), parley.AttemptQuery{Run: run, Step: "a"})
		check(t, err)
		if len(attempts) != 1 || len(attempts[0].Late) != 1 || string(attempts[0].Late[0].Response) != `{"n":"late"}` {
			t.Errorf("the attempt: %+v", attempts)
		}
		r.lease()
		r.follow(run + ".b.1")
		r.tells(r.x, run+".b.1", `1`, true)
		synctest.Wait()
		if got := r.get(run); got.Status != parley.RunCompleted {
			t.Errorf("the run is %s", got.Status)
		}
	})
}

// TestT3_LateAnswerAfterTheRun: nothing follows the event that ends a run. The
// answer stands with its attempt, and is news no more.
func TestT3_LateAnswerAfterTheRun(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: talk\nsteps: [{id: a, agent: writer, timeout: 2s}]")
		run := r.start()
		r.follow(run + ".a.1")
		time.Sleep(3 * time.Second)
		r.tells(r.x, run+".a.1", `{"n":"late"}`, false)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		events := r.events(run)
		if last := events[len(events)-1]; last.Type != parley.EventRunFailed {
			t.Errorf("the last event is %s", last.Type)
		}
		r.noLateNews()
	})
}

// TestT3_LateAnswerWhileOthersDecide: a note that is refused, since somebody else
// was faster, is made again by the next sweep, and what holds the run goes on.
func TestT3_LateAnswerWhileOthersDecide(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply(impatient)
		run := r.start()
		r.follow(run + ".a.1")
		time.Sleep(3 * time.Second)
		var refused atomic.Bool
		r.breaks(func(d store.Decision) error {
			if len(d.LateSeen) > 0 && refused.CompareAndSwap(false, true) {
				return store.ErrStale
			}
			return nil
		})
		r.tells(r.x, run+".a.1", `{"n":"late"}`, false)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if n := len(r.late(run)); n != 1 || !refused.Load() {
			t.Errorf("%d events; refused: %t", n, refused.Load())
		}
		r.noLateNews()
	})
}

// brokenLate cannot be asked.
type brokenLate struct{ executor.LateAnswers }

func (brokenLate) LateNews(context.Context, string, int) ([]store.LateNews, error) {
	return nil, errors.New("no")
}

// TestT3_LateAnswerUnread: where late answers cannot be read, runs go on.
func TestT3_LateAnswerUnread(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply(impatient)
		r.config.LateAnswers = brokenLate{}
		x := executor.New(r.config)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		r.stopFirst()
		go func() { done <- x.Run(ctx) }()
		run, _, err := x.Start(t.Context(), parley.StartRequest{Workflow: "talk"})
		check(t, err)
		r.follow(run.ID + ".a.1")
		time.Sleep(3 * time.Second)
		r.tells(x, run.ID+".a.1", `1`, false)
		time.Sleep(2 * time.Second)
		r.lease()
		r.follow(run.ID + ".b.1")
		r.tells(x, run.ID+".b.1", `1`, true)
		synctest.Wait()
		if got, err := x.Get(t.Context(), run.ID); err != nil || got.Status != parley.RunCompleted {
			t.Errorf("the run is %s: %v", got.Status, err)
		}
		cancel()
		check(t, <-done)
	})
}
