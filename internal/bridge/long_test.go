package bridge_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/store"
)

func (r *rig) subscribe(take func(value []byte)) {
	_, err := r.bus.Subscribe(r.t.Context(), bus.SubjectProgress, "", func(_ context.Context, m bus.Message) error {
		take(m.Value)
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) hint(id string) {
	if err := r.bus.Publish(r.t.Context(), bus.Message{Subject: bus.SubjectHint, Key: id}); err != nil {
		r.t.Error(err)
	}
}

// waiting waits until the attempt has its n-th question.
func (r *rig) waiting(id string, n int) store.Attempt {
	r.t.Helper()
	for range 1000 {
		if a := r.ledger.row(id); a.Questions >= n && a.Question != nil {
			return a
		}
		r.wait(100 * time.Millisecond)
	}
	r.t.Fatalf("no question %d: %+v", n, r.ledger.row(id))
	return store.Attempt{}
}

// TestListen: what the agent tells reaches the bus while it works, in pieces
// that fit together, and the answer is that of a get.
func TestListen(t *testing.T) {
	inBubble(t, func(r *rig) {
		d := newDesk()
		seen := r.progressOf()
		p := r.staff("b", d, nil)
		id := r.task("long", 1, nil)
		r.want(id, parley.OutcomeOK, "")
		synctest.Wait()
		var text strings.Builder
		types := map[string]int{}
		for _, m := range seen() {
			types[m["type"].(string)]++
			chunks, _ := m["chunks"].([]any)
			for _, k := range chunks {
				text.WriteString(k.(map[string]any)["text"].(string))
			}
		}
		if text.String() != "0 1 2 3 4 5 6 " || types["accepted"] != 1 {
			t.Errorf("heard %q in %v", text.String(), types)
		}
		if n := len(d.pollsOf(id)); n != 1 {
			t.Errorf("%d polls beside the stream", n)
		}
		if d.streams != 1 || d.executed(id) != 1 {
			t.Errorf("%d streams, %d executions", d.streams, d.executed(id))
		}
		p.stop()
	})
}

// TestListenToldOnly: an agent that does not know its task any more has told its
// end all the same; an answer in hand is not given up.
func TestListenToldOnly(t *testing.T) {
	for name, polled := range map[string]bridge.Outcome{
		"forgotten":       failed(bridge.Lost, parley.CodeNotFound, "gone"),
		"cannot be asked": failed(bridge.Answered, parley.CodeAgentError, "Task state: unknown"),
		"away":            notSent(),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				d := newDesk()
				d.onPoll = func(int) (bridge.Outcome, bool) { return polled, true }
				p := r.staff("b", d, nil)
				id := r.task("long", 1, nil)
				r.want(id, parley.OutcomeOK, "")
				p.stop()
			})
		})
	}
}

// partly is a desk whose streams end at once, with an answer that may be a part.
type partly struct{ *desk }

func (p partly) Subscribe(_ context.Context, task parley.Task, _ parley.Agent, _ bridge.AgentTask) (bridge.Outcome, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.streams++; p.streams > 1 {
		return lost(), nil
	}
	told := answered(task, `"a part"`)
	told.Partial = true
	out := accepted(task, "working")
	out.Stream = toldStream{told}
	return out, nil
}

type toldStream struct{ told bridge.Outcome }

func (toldStream) Close() {}

func (s toldStream) Listen(context.Context, bridge.Progress) bridge.Outcome { return s.told }

// TestListenPartly: what a stream has told of a task that is older than the stream is
// its answer only if the agent has no more to say.
func TestListenPartly(t *testing.T) {
	for name, c := range map[string]struct {
		polled bridge.Outcome
		polls  int // that give it; later ones give the whole
		want   string
	}{
		"away for a while":             {notSent(), 5, `"done"`},
		"behind for a while":           {accepted(parley.Task{ID: "run-long-1.a.1"}, "working"), 5, `"done"`},
		"gone":                         {failed(bridge.Lost, parley.CodeNotFound, "gone"), 1, `"a part"`},
		"gone later":                   {failed(bridge.Lost, parley.CodeNotFound, "gone"), -5, `"a part"`},
		"cannot be asked":              {failed(bridge.Answered, parley.CodeAgentError, "Task state: unknown"), 1, `"a part"`},
		"away for longer than silence": {notSent(), 1000, `"a part"`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				d := newDesk()
				d.works = time.Nanosecond
				d.onPoll = func(n int) (bridge.Outcome, bool) {
					if c.polls < 0 && n < -c.polls {
						return notSent(), true
					}
					return c.polled, c.polls < 0 || n <= c.polls
				}
				d.onCall = func(task parley.Task) bridge.Outcome { return accepted(task, "working") }
				p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Adapters = []bridge.Adapter{r.agent, partly{d}} })
				id := r.task("long", 1, func(a *store.Attempt) { a.Policy.Silence = 5 * time.Minute })
				if a := r.want(id, parley.OutcomeOK, ""); string(a.Result.Output) != c.want {
					t.Errorf("the answer is %s, want %s", a.Result.Output, c.want)
				}
				p.stop()
			})
		})
	}
}

// TestProgressSize: a record of progress carries so much and says what it lacks.
func TestProgressSize(t *testing.T) {
	inBubble(t, func(r *rig) {
		seen := r.progressOf()
		r.agent.call = func(_ context.Context, task parley.Task, _ int, p bridge.Progress) (bridge.Outcome, error) {
			for range 11 { // the first goes out by itself
				p(bridge.Report{Chunk: &bridge.Chunk{Artifact: "a", Text: strings.Repeat("x", 16<<10), Append: true}})
			}
			return answered(task, "1"), nil
		}
		p := r.staff("b", newDesk(), nil)
		r.want(r.task("one", 1, nil), parley.OutcomeOK, "")
		synctest.Wait()
		got := seen()
		if len(got) != 2 || got[1]["dropped_bytes"] != float64(7*(16<<10+1)) {
			t.Errorf("%d records", len(got))
		}
		p.stop()
	})
}

// brief is a desk whose streams break at once.
type brief struct{ *desk }

func (b brief) Subscribe(_ context.Context, task parley.Task, _ parley.Agent, _ bridge.AgentTask) (bridge.Outcome, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.streams++
	out := accepted(task, "working")
	out.Stream = brokenStream{}
	return out, nil
}

type brokenStream struct{}

func (brokenStream) Close() {}

func (brokenStream) Listen(context.Context, bridge.Progress) bridge.Outcome { return lost() }

// TestListenCut: broken streams are opened anew a few times; then the agent is
// only asked, at the usual pace.
func TestListenCut(t *testing.T) {
	inBubble(t, func(r *rig) {
		d := newDesk()
		d.works = time.Minute
		p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Adapters = []bridge.Adapter{r.agent, brief{d}} })
		id := r.task("long", 1, nil)
		r.want(id, parley.OutcomeOK, "")
		if d.streams != 3 {
			t.Errorf("%d streams", d.streams)
		}
		if n := len(d.pollsOf(id)); n < 5 || n > 130 { // its state changes each second
			t.Errorf("%d polls in a minute", n)
		}
		p.stop()
	})
}

// silent is a desk whose streams tell nothing.
type silent struct{ *desk }

func (s silent) Subscribe(_ context.Context, task parley.Task, _ parley.Agent, _ bridge.AgentTask) (bridge.Outcome, error) {
	out := accepted(task, "working")
	out.Stream = &silentStream{closed: make(chan struct{})}
	return out, nil
}

type silentStream struct{ closed chan struct{} }

func (s *silentStream) Close() {
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
}

func (s *silentStream) Listen(ctx context.Context, _ bridge.Progress) bridge.Outcome {
	select {
	case <-ctx.Done():
	case <-s.closed:
	}
	return failed(bridge.Lost, parley.CodeCancelled, "closed")
}

// TestListenQuiet: an agent whose stream is silent is asked beside it, and at
// once when somebody hints that there is news.
func TestListenQuiet(t *testing.T) {
	inBubble(t, func(r *rig) {
		d := newDesk()
		d.works = 70 * time.Second
		p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Adapters = []bridge.Adapter{r.agent, silent{d}} })
		first, second := r.task("long", 1, nil), r.task("long", 2, nil)
		r.wait(71 * time.Second)
		r.hint(second)
		r.wait(time.Second)
		if s := r.ledger.row(second).State; s != store.AttemptSettled {
			t.Errorf("%s a second after a hint", s)
		}
		r.want(first, parley.OutcomeOK, "")
		if n := len(d.pollsOf(first)); n != 3 {
			t.Errorf("%d polls in 90 s of silence", n)
		}
		p.stop()
	})
}

// TestListenTooLarge: while an agent streams, its events may tell the end of a task
// that is too large to be asked for.
func TestListenTooLarge(t *testing.T) {
	inBubble(t, func(r *rig) {
		d := newDesk()
		d.works = 50 * time.Second
		d.onPoll = func(n int) (bridge.Outcome, bool) {
			return failed(bridge.Lost, parley.CodeLimit, "the body of the response is larger than 5 bytes"), n == 1
		}
		p := r.start("b", func(cfg *bridge.Config, _ *process) { cfg.Adapters = []bridge.Adapter{r.agent, silent{d}} })
		r.want(r.task("long", 1, nil), parley.OutcomeOK, "")
		p.stop()
	})
}

// TestHints: a hint is a reason to ask, and a flood of them no more than ten a
// second.
func TestHints(t *testing.T) {
	inBubble(t, func(r *rig) {
		d := newDesk()
		d.mute, d.works = true, time.Hour
		p := r.staff("b", d, nil)
		id := r.task("long", 1, nil)
		r.wait(time.Minute)
		before := len(d.pollsOf(id))
		for range 1000 {
			r.hint(id)
			r.wait(time.Millisecond)
		}
		if n := len(d.pollsOf(id)) - before; n < 5 || n > 11 {
			t.Errorf("%d polls in a second of hints", n)
		}
		if d.streams != 0 {
			t.Errorf("%d streams of an agent that has none", d.streams)
		}
		p.stop()
	})
}

// TestQuestion: what an agent asks is in the row, with the wake-up; the answer
// goes to it once, under its number, after that is durable; then it goes on.
func TestQuestion(t *testing.T) {
	for _, hinted := range []bool{true, false} {
		t.Run(fmt.Sprintf("hint=%v", hinted), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				d := newDesk()
				d.asks = true
				d.onAnswer = func(bridge.TaskReply) (bridge.Outcome, bool) {
					if !r.ledger.row("run-long-1.a.1").ReplySent {
						t.Error("sent before that was durable")
					}
					return bridge.Outcome{}, false
				}
				p := r.staff("b", d, nil)
				id := r.task("long", 1, nil)
				a := r.waiting(id, 1)
				if a.Question.Text != "which year?" || a.News != 1 || r.wakeups(a.Run) == 0 {
					t.Errorf("%+v", a)
				}
				r.wait(time.Hour) // nobody is in a hurry
				if !r.ledger.reply(id, parley.Reply{Text: "2026"}) {
					t.Fatal("the row takes no answer")
				}
				if hinted {
					r.hint(id)
				}
				begun := time.Now()
				r.want(id, parley.OutcomeOK, "")
				if took := time.Since(begun); took > 5*time.Second {
					t.Errorf("it took %v from the answer to the end", took)
				}
				if got := d.numbers(); !slices.Equal(got, []int{1}) || d.replies[0].Reply.Text != "2026" || d.replies[0].At.ID != "agent-"+id {
					t.Errorf("the agent got %+v", d.replies)
				}
				if a := r.ledger.row(id); a.News != 1 {
					t.Errorf("news %d: who has answered knows that the wait is over", a.News)
				}
				p.stop()
			})
		})
	}
}

// TestLargeQuestion: what the ledger would not hold is cut to what it does, and
// the person is asked.
func TestLargeQuestion(t *testing.T) {
	inBubble(t, func(r *rig) {
		d := newDesk()
		d.works, d.mute = time.Hour, true
		d.onPoll = func(int) (bridge.Outcome, bool) {
			out := asks(parley.Task{ID: "run-long-1.a.1"}, strings.Repeat("ä", 64<<10))
			out.Question.Kind, out.Question.Parts = "", []byte(`["`+strings.Repeat("x", 70<<10)+`"]`)
			return out, true
		}
		p := r.staff("b", d, nil)
		q := r.waiting(r.task("long", 1, nil), 1).Question
		if len(q.Text) > 48<<10 || !utf8.ValidString(q.Text) || q.Parts != nil || q.Kind != parley.QuestionInput {
			t.Errorf("%d bytes of text, %d of parts, kind %q", len(q.Text), len(q.Parts), q.Kind)
		}
		r.wait(time.Minute)
		p.stop()
	})
}

// TestStaleQuestion: an agent that still shows the question for a moment after it
// took the answer has not asked again; one that shows it for long has.
func TestStaleQuestion(t *testing.T) {
	for stale, questions := range map[time.Duration]int{3 * time.Second: 1, time.Hour: 2} {
		t.Run(stale.String(), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				d := newDesk()
				d.asks, d.works = true, 2*time.Minute
				var answered time.Time
				d.onAnswer = func(bridge.TaskReply) (bridge.Outcome, bool) {
					answered = time.Now()
					return bridge.Outcome{}, false
				}
				d.onPoll = func(int) (bridge.Outcome, bool) {
					return asks(parley.Task{ID: "run-long-1.a.1"}, "which year?"), !answered.IsZero() && time.Since(answered) < stale
				}
				d.mute = true
				p := r.staff("b", d, nil)
				id := r.task("long", 1, nil)
				r.waiting(id, 1)
				r.ledger.reply(id, parley.Reply{Text: "2026"})
				r.hint(id)
				r.wait(2*time.Minute + 30*time.Second)
				if n := r.ledger.row(id).Questions; n != questions {
					t.Errorf("asked %d times, want %d", n, questions)
				}
				p.stop()
			})
		})
	}
}

// TestStaleQuestionCounted: the answer is one message more in the agent's history, and
// some move their question there with it. That is no new question. Another one is.
func TestStaleQuestionCounted(t *testing.T) {
	for _, c := range []struct {
		text, more string
		questions  int
	}{
		{"which year?", ", 3 messages", 1},
		{"", ", 3 messages", 1},
		{"", "", 1},
		{"which month?", ", 3 messages", 2},
		{"which month?", "", 2},
	} {
		inBubble(t, func(r *rig) {
			d := newDesk()
			d.asks, d.works, d.mute = true, 2*time.Minute, true
			stale := asks(parley.Task{ID: "run-long-1.a.1"}, "which year?")
			stale.State += c.more
			stale.Question.Text = c.text
			var until time.Time
			d.onAnswer = func(bridge.TaskReply) (bridge.Outcome, bool) {
				until = time.Now().Add(3 * time.Second)
				d.takeLocked(parley.Task{ID: "run-long-1.a.1"}, bridge.TaskReply{})
				return stale, true
			}
			d.onPoll = func(int) (bridge.Outcome, bool) { return stale, time.Now().Before(until) }
			p := r.staff("b", d, nil)
			id := r.task("long", 1, nil)
			r.waiting(id, 1)
			r.ledger.reply(id, parley.Reply{Text: "2026"})
			r.hint(id)
			r.want(id, parley.OutcomeOK, "")
			if n := r.ledger.row(id).Questions; n != c.questions {
				t.Errorf("%+v: asked %d times", c, n)
			}
			p.stop()
		})
	}
}

// TestReplyInDoubt: what happens to an answer of which nobody knows whether it
// arrived is the policy's business.
func TestReplyInDoubt(t *testing.T) {
	cases := []struct {
		policy  parley.OutcomePolicy
		arrives bool
		numbers []int
	}{
		{parley.OutcomeLookup, true, []int{1}},
		{parley.OutcomeLookup, false, []int{1, 1}},
		{parley.OutcomeResend, false, []int{1, 1}},
		{parley.OutcomeFail, true, []int{1}},
		{parley.OutcomeFail, false, []int{1, 2}},
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%s arrives=%v", c.policy, c.arrives), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				d := newDesk()
				d.asks = true
				n := 0
				d.onAnswer = func(reply bridge.TaskReply) (bridge.Outcome, bool) {
					if n++; n > 1 {
						return bridge.Outcome{}, false
					}
					if c.arrives {
						d.takeLocked(parley.Task{ID: "run-long-1.a.1"}, reply)
					}
					return lost(), true
				}
				p := r.staff("b", d, nil)
				id := r.task("long", 1, policy(c.policy))
				r.waiting(id, 1)
				r.ledger.reply(id, parley.Reply{Text: "2026"})
				r.hint(id)
				if len(c.numbers) == 2 && c.numbers[1] == 2 {
					a := r.waiting(id, 2)
					if !strings.Contains(a.Question.Note, "not known") {
						t.Errorf("asked again without a word: %+v", a.Question)
					}
					r.ledger.reply(id, parley.Reply{Text: "2027"})
				}
				r.want(id, parley.OutcomeOK, "")
				if got := d.numbers(); !slices.Equal(got, c.numbers) {
					t.Errorf("answers %v, want %v", got, c.numbers)
				}
				p.stop()
			})
		})
	}
}

// TestReplyRefused: an answer that the agent does not take is asked for again;
// one that did not get out is sent again.
func TestReplyRefused(t *testing.T) {
	inBubble(t, func(r *rig) {
		d := newDesk()
		d.asks = true
		n := 0
		d.onAnswer = func(bridge.TaskReply) (bridge.Outcome, bool) {
			switch n++; n {
			case 1:
				return notSent(), true
			case 2:
				out := failed(bridge.NotSent, parley.CodeAgentRejected, "a year has four digits")
				out.Result.Err.Retryable = false
				return out, true
			}
			return bridge.Outcome{}, false
		}
		p := r.staff("b", d, nil)
		id := r.task("long", 1, nil)
		r.waiting(id, 1)
		r.ledger.reply(id, parley.Reply{Text: "26"})
		a := r.waiting(id, 2)
		if !strings.Contains(a.Question.Note, "four digits") || a.Question.Text != "which year?" {
			t.Errorf("%+v", a.Question)
		}
		r.ledger.reply(id, parley.Reply{Text: "2026"})
		r.want(id, parley.OutcomeOK, "")
		if got := d.numbers(); !slices.Equal(got, []int{1, 1, 2}) {
			t.Errorf("answers %v", got)
		}
		p.stop()
	})
}

// TestReplyRetryAfter: an agent that wants an answer later gets it then, and not
// before.
func TestReplyRetryAfter(t *testing.T) {
	inBubble(t, func(r *rig) {
		d := newDesk()
		d.asks = true
		var sent []time.Time
		d.onAnswer = func(bridge.TaskReply) (bridge.Outcome, bool) {
			out := notSent()
			out.Result.RetryAfter = 40 * time.Second
			sent = append(sent, time.Now())
			return out, len(sent) == 1
		}
		p := r.staff("b", d, nil)
		id := r.task("long", 1, nil)
		r.waiting(id, 1)
		r.ledger.reply(id, parley.Reply{Text: "2026"})
		for range 3 { // whoever pokes does not hasten it
			r.hint(id)
			r.wait(5 * time.Second)
		}
		r.want(id, parley.OutcomeOK, "")
		if len(sent) != 2 || sent[1].Sub(sent[0]) < 40*time.Second || sent[1].Sub(sent[0]) > 80*time.Second {
			t.Errorf("sent at %v", sent)
		}
		p.stop()
	})
}

// TestLookUp: a message to which no answer is held is asked about, and never
// sent again (policy lookup).
func TestLookUp(t *testing.T) {
	cases := []struct {
		name    string
		prepare func(d *desk)
		outcome parley.Outcome
		code    parley.Code
		text    string
		finds   int
	}{
		{"at work", func(*desk) {}, parley.OutcomeOK, "", "", 1},
		{"ended", func(d *desk) { d.works = 0 }, parley.OutcomeOK, "", "", 1},
		{
			"denied", func(d *desk) {
				d.onFind = func(int) (bridge.Outcome, bool) { return failed(bridge.NotSent, parley.CodeNotFound, "no"), true }
			}, parley.OutcomeUnknown, parley.CodeOutcomeUnknown, "knows of no such task", 3,
		},
		{"appears", func(d *desk) {
			d.onFind = func(n int) (bridge.Outcome, bool) { return failed(bridge.NotSent, parley.CodeNotFound, "no"), n < 3 }
		}, parley.OutcomeOK, "", "", 3},
		{"cannot be asked", func(d *desk) { d.forgetful = true }, parley.OutcomeUnknown, parley.CodeOutcomeUnknown, "no list of tasks", 1},
		{"away for a while", func(d *desk) {
			d.onFind = func(n int) (bridge.Outcome, bool) { return notSent(), n < 7 }
		}, parley.OutcomeOK, "", "", 7},
		{"away for good", func(d *desk) {
			d.onFind = func(int) (bridge.Outcome, bool) { return notSent(), true }
		}, parley.OutcomeUnknown, parley.CodeOutcomeUnknown, "could not be asked about it: refused", 8},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				d := newDesk()
				d.loses = true
				c.prepare(d)
				p := r.staff("b", d, nil)
				id := r.task("long", 1, policy(parley.OutcomeLookup))
				a := r.want(id, c.outcome, c.code)
				if a.Result.Err != nil && !strings.Contains(a.Result.Err.Message, c.text) {
					t.Errorf("%q says nothing of %q", a.Result.Err.Message, c.text)
				}
				if d.executed(id) != 1 || d.finds != c.finds {
					t.Errorf("%d executions, %d look-ups, want 1 and %d", d.executed(id), d.finds, c.finds)
				}
				p.stop()
			})
		})
	}
}

// TestLookUpCancelled: a cancel while the answer is lost, or awaited, still reaches the
// agent.
func TestLookUpCancelled(t *testing.T) {
	for name, hangs := range map[string]bool{"lost": false, "awaited": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				d := newDesk()
				d.loses, d.hangs, d.works = true, hangs, time.Hour
				d.onFind = func(n int) (bridge.Outcome, bool) { return notSent(), n < 4 }
				p := r.staff("b", d, nil)
				id := r.task("long", 1, policy(parley.OutcomeLookup))
				r.wait(time.Second)
				r.ledger.requestCancel(id)
				a := r.settled(id, time.Minute)
				if a.Result.Outcome != parley.OutcomeCancelled || !d.tasks[id].stopped {
					t.Errorf("%s, the agent was told: %v", a.Result.Outcome, d.tasks[id].stopped)
				}
				p.stop()
			})
		})
	}
}

// TestLongCrashPoints: the bridge dies at every step of a long task with a
// question, and another life goes on. Under lookup and fail the agent sees the
// task once, under resend at most once more (issue: kill the bridge at every
// step).
func TestLongCrashPoints(t *testing.T) {
	points := []string{
		"claim.before-guard", "guard.before-send", "after-send", "follow.before-P6", "follow.after-P6", "poll.before", "subscribe.before",
		"stream.event", "question.before", "reply.before-mark", "reply.before-send", "reply.after-send", "answer.before-P7", "P7.before-wakeup",
	}
	for _, point := range points {
		for _, pol := range []parley.OutcomePolicy{parley.OutcomeFail, parley.OutcomeLookup, parley.OutcomeResend} {
			for _, next := range []string{"b", "other"} {
				t.Run(fmt.Sprintf("%s %s then %s", point, pol, next), func(t *testing.T) {
					inBubble(t, func(r *rig) { r.crashLong(point, pol, next) })
				})
			}
		}
	}
}

// mortal is a desk behind a connection that dies with its process.
type mortal struct {
	*desk
	die func()
}

func (m mortal) Call(ctx context.Context, task parley.Task, agent parley.Agent, p bridge.Progress) (bridge.Outcome, error) {
	out, err := m.desk.Call(ctx, task, agent, p)
	m.die()
	return out, err
}

func (r *rig) crashLong(point string, pol parley.OutcomePolicy, next string) {
	d := newDesk()
	d.asks = true
	died := make(chan struct{})
	p := r.start("b", func(cfg *bridge.Config, p *process) {
		cfg.DrainGrace = time.Millisecond
		fails := func(name string) error {
			if name == point && p.dead.CompareAndSwap(false, true) {
				close(died)
			}
			if p.dead.Load() {
				return errDoubt
			}
			return nil
		}
		cfg.Failpoint = fails
		cfg.Adapters = []bridge.Adapter{r.agent, mortal{d, func() { _ = fails("after-send") }}}
	})
	id := r.task("long", 1, policy(pol))
	person := func() {
		if a := r.ledger.row(id); a.Question != nil && a.Reply == nil {
			r.ledger.reply(id, parley.Reply{Text: "2026"})
		}
		r.wait(100 * time.Millisecond)
	}
	for alive := true; alive; {
		select {
		case <-died:
			alive = false
		default:
			person()
		}
	}
	p.kill()
	if next != "b" {
		r.ledger.declareDead("b")
	}
	q := r.staff(next, d, nil)
	for range 3000 {
		if s := r.ledger.row(id).State; s == store.AttemptSettled {
			break
		}
		person()
	}
	a := r.settled(id, time.Minute)
	sent := d.executed(id)
	limit := 1
	if pol == parley.OutcomeResend {
		limit = 2
	}
	if sent > limit || (sent == 0 && a.Result.Outcome == parley.OutcomeOK) {
		r.t.Errorf("%d executions under %s: %s", sent, pol, a.Result.Outcome)
	}
	if known := a.AgentTaskID != "" || pol != parley.OutcomeFail; known && a.Result.Outcome != parley.OutcomeOK && sent > 0 {
		r.t.Errorf("%s: %v, though the agent could be asked", a.Result.Outcome, a.Result.Err)
	}
	if len(slices.Compact(d.numbers())) > 1 && pol != parley.OutcomeFail {
		r.t.Errorf("answers %v: the person was asked twice", d.numbers())
	}
	q.stop()
}

// TestStreamsOfQuestions: of the streams of a task whose agent asks at once, and streams
// again when it has its answer, none stays open: neither the one before the answer nor,
// if the bridge ends before it is written that the agent goes on, the one after it.
func TestStreamsOfQuestions(t *testing.T) {
	for name, ends := range map[string]bool{"goes on": false, "bridge ends": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				d := &streamingDesk{desk: newDesk()}
				d.asks, d.works = true, time.Nanosecond
				d.onAnswer = func(bridge.TaskReply) (bridge.Outcome, bool) {
					if ends {
						r.ledger.mu.Lock()
						defer r.ledger.mu.Unlock()
						r.ledger.fault = func(op, _ string) fault {
							return map[bool]fault{true: refusedConnection}[op == string(store.MoveQuestion)]
						}
					}
					return bridge.Outcome{}, false
				}
				p := r.start("b", func(cfg *bridge.Config, _ *process) {
					cfg.Adapters, cfg.DrainGrace = []bridge.Adapter{r.agent, d}, time.Second
				})
				id := r.task("long", 1, nil)
				r.waiting(id, 1)
				d.works = time.Minute
				if !r.ledger.reply(id, parley.Reply{Text: "2026"}) {
					t.Fatal("nobody asks")
				}
				r.hint(id)
				r.wait(time.Second)
				if len(d.opened) != 2 {
					t.Fatalf("%d streams", len(d.opened))
				}
				if !ends {
					if n := d.open(); n != 1 {
						t.Errorf("%d streams are open while the agent works", n)
					}
					r.want(id, parley.OutcomeOK, "")
				}
				p.stop()
				if n := d.open(); n != 0 {
					t.Errorf("%d of %d streams are open at the end", n, len(d.opened))
				}
			})
		})
	}
}
