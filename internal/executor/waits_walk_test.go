package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// walker is one task whose agent asks, whose people answer and whose bridges
// come and go, in random order.
type walker struct {
	*rig
	random *rand.Rand
	run    string
	task   string
	claim  store.Claim
	tokens int
	// handed are the answers that a bridge was allowed to send, by the number of
	// their question; given those that somebody was told are durable.
	handed map[int]string
	given  []string
	ended  bool
}

// TestWaits_Walk lets agents, people, bridges and faults of the store meet in
// random order, and holds what is left to what must be true of it: an answer
// that a person was told is durable stands in the history, each goes to its own
// question and to no other, none is handed over that the history does not know,
// and the run takes notice of every question.
func TestWaits_Walk(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			onStore(t, func(r *rig) {
				w := &walker{rig: r, random: rand.New(rand.NewPCG(seed, 5)), handed: map[int]string{}}
				w.run = r.start()
				w.task = w.run + ".a.1"
				w.claim = r.follow(w.task)
				for range 40 {
					if w.ended {
						break
					}
					w.step()
				}
				r.breaks(nil)
				time.Sleep(3 * time.Second) // sweeps
				w.judge()
			})
		})
	}
}

// step is one thing that happens.
func (w *walker) step() {
	t := w.t
	w.breaks(nil)
	if w.random.IntN(4) == 0 {
		w.breakOnce()
	}
	switch w.random.IntN(12) {
	case 0, 1, 2:
		w.question(fmt.Sprintf("question %d?", w.random.IntN(3)))
	case 3:
		w.question("")
	case 4, 5, 6:
		text := fmt.Sprintf("answer %d", w.random.Int())
		_, err := w.x.AnswerStep(t.Context(), parley.AnswerRequest{Run: w.run, Step: "a", Reply: parley.Reply{Text: text}})
		switch {
		case err == nil:
			w.given = append(w.given, text)
		case parley.CodeOf(err) != parley.CodeConflict && !errors.Is(err, errLost):
			t.Fatal(err)
		}
	case 7, 8:
		w.handOver()
	case 9:
		w.takeOver()
	case 10:
		time.Sleep(time.Duration(w.random.IntN(2000)) * time.Millisecond)
	default:
		if w.random.IntN(6) == 0 {
			w.breaks(nil)
			w.settle(w.task)
			w.ended = true
		}
	}
}

var errLost = errors.New("the connection was lost")

// breakOnce lets the next decision fail, before it is written or after it.
func (w *walker) breakOnce() {
	kind := w.random.IntN(3)
	var broken atomic.Bool
	w.breaks(func(d store.Decision) error {
		if broken.Swap(true) {
			return nil
		}
		switch kind {
		case 0:
			return store.ErrStale
		case 1:
			return errLost
		}
		if err := w.db.Decide(context.Background(), d); err != nil {
			return err
		}
		return errLost
	})
}

func (w *walker) row() store.Attempt {
	list, err := w.db.Attempts(w.t.Context(), w.run)
	check(w.t, err)
	return list[0]
}

// question records what the agent asks, as its number or not, perhaps twice.
func (w *walker) question(text string) {
	m := store.Move{Kind: store.MoveQuestion, TaskID: w.task, From: w.claim}
	if text != "" {
		m.Question = &parley.Question{Kind: parley.QuestionInput, Text: text}
		m.Questions = w.row().Questions + 1
	}
	w.move(m)
	if w.random.IntN(3) == 0 {
		w.move(m) // its reply was lost
	}
}

// handOver sends the answer that waits, as a bridge does.
func (w *walker) handOver() {
	list, err := w.db.Owned(w.t.Context(), w.claim.Worker, w.claim.Inc)
	check(w.t, err)
	if len(list) != 1 || list[0].Reply == nil {
		return
	}
	o := list[0]
	w.move(store.Move{Kind: store.MoveReply, TaskID: w.task, From: w.claim, Questions: o.Questions})
	if before, ok := w.handed[o.Questions]; ok {
		w.t.Fatalf("question %d is answered with %q after %q", o.Questions, o.Reply.Text, before)
	}
	w.handed[o.Questions] = o.Reply.Text
}

// takeOver replaces the bridge.
func (w *walker) takeOver() {
	inc, err := w.db.Register(w.t.Context(), w.claim.Worker, time.Now())
	check(w.t, err)
	w.tokens++
	to := store.Claim{Worker: w.claim.Worker, Inc: inc, Token: fmt.Sprint("walk-", w.tokens)}
	w.move(store.Move{Kind: store.MoveTakeover, TaskID: w.task, From: w.claim, To: to, AgentTaskID: "at-1"})
	w.claim = to
}

// judge looks at what is left once nothing happens any more.
func (w *walker) judge() {
	t := w.t
	answers := map[string]bool{}
	waiting := false
	for _, e := range w.events(w.run) {
		switch e.Type {
		case parley.EventStepWaiting:
			waiting = true
		case parley.EventStepAnswered:
			if !waiting {
				t.Errorf("event %d answers nothing: %s", e.Seq, e.Data)
			}
			waiting = false
			var d struct {
				Reply *parley.Reply `json:"reply"`
			}
			check(t, json.Unmarshal(e.Data, &d))
			if d.Reply != nil {
				answers[d.Reply.Text] = true
			}
		case parley.EventStepCompleted:
			waiting = false
		}
	}
	for _, text := range w.given {
		if !answers[text] {
			t.Errorf("%q was accepted and is not in the history", text)
		}
	}
	for n, text := range w.handed {
		if !answers[text] {
			t.Errorf("%q was sent as the answer to question %d and is not in the history", text, n)
		}
	}
	if w.ended {
		return
	}
	a, s := w.row(), w.rig.step(w.run, "a")
	asks := a.Question != nil && a.Reply == nil
	if asks != waiting || asks != (s.Question != nil) || (asks && s.Question.Text != a.Question.Text) {
		t.Errorf("the row asks %v, the history waits %v, the step shows %v", asks, waiting, s.Question)
	}
	if a.News != a.NewsSeen {
		t.Errorf("%d changes, of which the run has seen %d", a.News, a.NewsSeen)
	}
	if a.Reply != nil && (!answers[a.Reply.Text] || strings.Count(a.Reply.Text, "answer") != 1) {
		t.Errorf("the row holds %+v", a.Reply)
	}
}
