package bridge

import (
	"time"

	"github.com/parley-project/parley/internal/store"
)

// gather is how long the next group of claims or answers is waited for after one
// of several: as long as many come, few large writes cost a fraction of many
// small ones. Who is alone never waits.
const gather = time.Millisecond

// answerBytes is how large a group may be, about.
const answerBytes = 1 << 20

// answers are the answers of foreign tasks that are to be written. Those that
// come while others are being written are the next group.
type answers struct {
	waiting []*writing
	// busy: somebody writes what waits.
	busy bool
}

// writing is one answer on its way into the ledger.
type writing struct {
	answer   store.Answer
	accepted bool
	err      error
	// again: a group has failed, perhaps because of another one.
	again bool
	done  chan struct{}
}

// record is P7: it writes an answer and reports whether it was taken.
func (c *call) record(a store.Answer) (accepted bool, err error) {
	b := c.b
	if !c.foreign() || b.volatile {
		return b.cfg.Ledger.Answer(b.hard, a)
	}
	w := &writing{answer: a, done: make(chan struct{})}
	b.mu.Lock()
	b.answers.waiting = append(b.answers.waiting, w)
	idle := !b.answers.busy
	b.answers.busy = true
	b.mu.Unlock()
	if idle {
		b.crew.do(b.writeAnswers)
	}
	<-w.done
	if w.again {
		return b.cfg.Ledger.Answer(b.hard, a)
	}
	return w.accepted, w.err
}

// nextAnswers takes the next group.
func (b *Bridge) nextAnswers() []*writing {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := &b.answers
	n, bytes := 0, 0
	for n < min(len(a.waiting), b.cfg.Limits.ClaimBatch) && (n == 0 || bytes < answerBytes) {
		bytes += len(a.waiting[n].answer.Result.Output)
		n++
	}
	group := a.waiting[:n:n]
	a.waiting, a.busy = a.waiting[n:], n > 0
	return group
}

// writeAnswers writes what waits, one group after the other, until nothing does.
func (b *Bridge) writeAnswers() {
	for {
		group := b.nextAnswers()
		if len(group) == 0 {
			return
		}
		list := make([]store.Answer, len(group))
		for i, w := range group {
			list[i] = w.answer
		}
		accepted, err := b.foreign.AnswerForeign(b.hard, list)
		for i, w := range group {
			if w.err, w.again = err, err != nil && len(group) > 1; err == nil {
				w.accepted = accepted[i]
			}
			close(w.done)
		}
		if len(group) > 1 {
			pause(b.hard, gather)
		}
	}
}
