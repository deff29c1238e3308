package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/store"
)

// TestAskedAgainAfterResend: an agent that has lost its task gets it again under
// resend; that it then asks what it asked before is a question all the same, and
// whoever waits for it hears of it.
func TestAskedAgainAfterResend(t *testing.T) {
	inBubble(t, func(r *rig) {
		d := newDesk()
		d.asks, d.works = true, 0
		p := r.staff("b", d, nil)
		id := r.task("long", 1, policy(parley.OutcomeResend))
		r.waiting(id, 1)
		d.mu.Lock()
		delete(d.tasks, id)
		d.mu.Unlock()
		a := r.waiting(id, 2)
		if a.Orphanings != 1 || d.executed(id) != 2 {
			t.Errorf("%d orphanings, %d executions", a.Orphanings, d.executed(id))
		}
		r.ledger.reply(id, parley.Reply{Text: "2026"})
		r.want(id, parley.OutcomeOK, "")
		p.stop()
	})
}

// TestReplyArrivesLate: an agent that still shows the question of an answer in
// doubt may be about to take it. It gets the answer again only if it still asks
// the same a while later, and not at all if it has moved meanwhile.
func TestReplyArrivesLate(t *testing.T) {
	for _, c := range []struct {
		moves  bool
		late   time.Duration
		policy parley.OutcomePolicy
	}{
		{false, 4 * time.Second, parley.OutcomeLookup},
		{false, 4 * time.Second, parley.OutcomeFail},
		{true, 9 * time.Second, parley.OutcomeLookup},
	} {
		t.Run(fmt.Sprintf("moves=%v %s", c.moves, c.policy), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				const id = "run-long-1.a.1"
				d := newDesk()
				d.asks = true
				var sent time.Time
				d.onAnswer = func(bridge.TaskReply) (bridge.Outcome, bool) {
					sent = time.Now()
					return lost(), true
				}
				d.onPoll = func(int) (bridge.Outcome, bool) {
					if sent.IsZero() {
						return bridge.Outcome{}, false
					}
					if time.Since(sent) > c.late {
						d.takeLocked(parley.Task{ID: id}, bridge.TaskReply{})
						return bridge.Outcome{}, false
					}
					out := asks(parley.Task{ID: id}, "which year?")
					if c.moves {
						out.State += ", 2 messages"
					}
					return out, true
				}
				p := r.staff("b", d, nil)
				r.task("long", 1, policy(c.policy))
				r.waiting(id, 1)
				r.wait(time.Second)
				r.ledger.reply(id, parley.Reply{Text: "2026"})
				r.hint(id)
				a := r.want(id, parley.OutcomeOK, "")
				if got := d.numbers(); !slices.Equal(got, []int{1}) || a.Questions != 1 {
					t.Errorf("answers %v to %d questions", got, a.Questions)
				}
				p.stop()
			})
		})
	}
}

// TestTakesNoAnswers: the agent asks, and its protocol has no way to answer. The
// person is asked again and told so, and nothing is sent.
func TestTakesNoAnswers(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.long.call = accepts("working")
		var taken atomic.Bool
		r.long.poll = func(_ context.Context, task parley.Task, _ int) (bridge.Outcome, error) {
			if taken.Load() {
				return answered(task, "1"), nil
			}
			return asks(task, "which year?"), nil
		}
		p := r.start("b", nil)
		id := r.task("long", 1, nil)
		r.wait(20 * time.Second)
		if !r.ledger.reply(id, parley.Reply{Text: "2026"}) {
			t.Fatal("no question stands")
		}
		r.wait(20 * time.Second)
		a := r.ledger.row(id)
		if a.Question == nil || !strings.Contains(a.Question.Note, "take no answers") || a.Questions != 2 || a.Reply != nil {
			t.Errorf("the question is %+v, number %d, answer %+v", a.Question, a.Questions, a.Reply)
		}
		taken.Store(true)
		r.want(id, parley.OutcomeOK, "")
		r.wantCalls(r.long, id, 1)
		p.stop()
	})
}

// TestWaitAcrossRestart: the silence of an agent that waits for a person does not
// count, also for a bridge that takes the wait over and cannot reach the agent
// yet (language rule T2).
func TestWaitAcrossRestart(t *testing.T) {
	inBubble(t, func(r *rig) {
		d := newDesk()
		d.asks = true
		p := r.staff("b", d, nil)
		id := r.task("long", 1, func(a *store.Attempt) { a.Policy.Silence = 5 * time.Minute })
		r.waiting(id, 1)
		p.kill()
		away := true
		d.onPoll = func(int) (bridge.Outcome, bool) { return notSent(), away }
		q := r.staff("b", d, nil)
		r.wait(time.Hour)
		if a := r.ledger.row(id); a.State != store.AttemptFollowing || a.Question == nil {
			t.Errorf("%s after an hour, question %+v, %v", a.State, a.Question, a.Result)
		}
		away = false
		r.ledger.reply(id, parley.Reply{Text: "2026"})
		r.want(id, parley.OutcomeOK, "")
		q.stop()
	})
}

// headless is a desk whose streams send no head until there is something new.
type headless struct{ *desk }

func (h headless) Subscribe(ctx context.Context, _ parley.Task, _ parley.Agent, _ bridge.AgentTask) (bridge.Outcome, error) {
	h.mu.Lock()
	h.streams++
	h.mu.Unlock()
	pause := time.NewTimer(30 * time.Second)
	defer pause.Stop()
	select {
	case <-ctx.Done():
	case <-pause.C:
	}
	return lost(), nil
}

// TestSubscribeSilent: an agent that does not open a stream is asked before
// another one is tried.
func TestSubscribeSilent(t *testing.T) {
	inBubble(t, func(r *rig) {
		d := newDesk()
		p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Adapters = []bridge.Adapter{r.agent, headless{d}} })
		id := r.task("long", 1, nil)
		begun := time.Now()
		r.want(id, parley.OutcomeOK, "")
		if took := time.Since(begun); took > 35*time.Second || d.streams != 1 {
			t.Errorf("it took %v and %d streams", took, d.streams)
		}
		p.stop()
	})
}

// TestProgressLargeChunk: what goes out of a long text fits into an event of the
// run, which is 64 KiB of JSON, whatever it consists of and however it comes.
func TestProgressLargeChunk(t *testing.T) {
	for _, c := range []string{"x", "<", "\n", "\"", "ä"} {
		inBubble(t, func(r *rig) {
			seen := r.progressOf()
			text := strings.Repeat(c, 8<<10)
			r.agent.call = func(_ context.Context, task parley.Task, _ int, p bridge.Progress) (bridge.Outcome, error) {
				for n := range 12 { // the first goes out by itself
					p(bridge.Report{Chunk: &bridge.Chunk{Artifact: "artifact-1", Name: "report", Text: text, Append: n > 0}})
				}
				return answered(task, "1"), nil
			}
			p := r.start("b", nil)
			r.want(r.task("one", 1, nil), parley.OutcomeOK, "")
			synctest.Wait()
			told, dropped := 0, 0
			for _, m := range seen() {
				chunks, _ := json.Marshal(m["chunks"])
				if len(chunks) > 58<<10 {
					t.Errorf("%q: %d bytes of chunks in one record", c, len(chunks))
				}
				for _, k := range m["chunks"].([]any) {
					told += len(k.(map[string]any)["text"].(string))
				}
				if n, ok := m["dropped_bytes"].(float64); ok {
					dropped += int(n) / (len(text) + len("artifact-1") + len("report")) * len(text)
				}
			}
			if told+dropped != 12*len(text) || told < 2*len(text) && c != "<" && c != "\n" {
				t.Errorf("%q: %d bytes told and %d dropped of %d", c, told, dropped, 12*len(text))
			}
			p.stop()
		})
	}
}

// TestProgressOneChunk: a chunk as large as chunks may be is passed on.
func TestProgressOneChunk(t *testing.T) {
	inBubble(t, func(r *rig) {
		seen := r.progressOf()
		text := strings.Repeat("<", 32<<10)
		r.agent.call = func(_ context.Context, task parley.Task, _ int, p bridge.Progress) (bridge.Outcome, error) {
			p(bridge.Report{Chunk: &bridge.Chunk{Artifact: "artifact-1", Name: "report", Text: text}})
			return answered(task, "1"), nil
		}
		p := r.start("b", nil)
		r.want(r.task("one", 1, nil), parley.OutcomeOK, "")
		synctest.Wait()
		if got := seen(); len(got) != 1 || got[0]["chunks"].([]any)[0].(map[string]any)["text"] != text {
			t.Errorf("%d records", len(got))
		}
		p.stop()
	})
}

// pastStream tells first what there is already, in two pieces, then something new, and
// breaks.
type pastStream struct{ tells []bridge.Report }

func (pastStream) Close() {}

func (s pastStream) Listen(ctx context.Context, progress bridge.Progress) bridge.Outcome {
	for _, r := range s.tells {
		progress(r)
	}
	pause := time.NewTimer(time.Second)
	defer pause.Stop()
	select {
	case <-ctx.Done():
	case <-pause.C:
	}
	return lost()
}

// again is a desk each of whose streams begins with what there was before.
type again struct{ *desk }

func (a again) Subscribe(_ context.Context, task parley.Task, _ parley.Agent, _ bridge.AgentTask) (bridge.Outcome, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.streams++
	past := func(artifact, text string, more bool) bridge.Report {
		return bridge.Report{State: "working", Past: true, Chunk: &bridge.Chunk{Artifact: artifact, Text: text, Append: more}}
	}
	out := a.stateLocked(task)
	if out.Disposition != bridge.Accepted {
		return out, nil
	}
	tells := []bridge.Report{past("a", "1", false), past("a", "2", true)}
	if a.streams > 1 {
		tells = append(tells, past("a", "3", true), past("b", "x", false))
	}
	out.Stream = pastStream{append(tells, bridge.Report{State: "working", Chunk: &bridge.Chunk{Artifact: "a", Text: "3", Append: true}})}
	return out, nil
}

// TestProgressPast: what an agent had made before it was listened to is told once, in
// all its pieces, however often its streams begin with it.
func TestProgressPast(t *testing.T) {
	inBubble(t, func(r *rig) {
		seen := r.progressOf()
		d := newDesk()
		p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Adapters = []bridge.Adapter{r.agent, again{d}} })
		r.want(r.task("long", 1, nil), parley.OutcomeOK, "")
		synctest.Wait()
		told := map[string]string{}
		for _, m := range seen() {
			chunks, _ := m["chunks"].([]any)
			for _, k := range chunks {
				k := k.(map[string]any)
				told[k["artifact"].(string)] += k["text"].(string)
			}
		}
		if want := "12" + strings.Repeat("3", d.streams); told["a"] != want || told["b"] != "x" || d.streams < 2 {
			t.Errorf("told %q of %d streams, want a to be %q and b x", told, d.streams, want)
		}
		p.stop()
	})
}
