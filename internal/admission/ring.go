package admission

// Cost of a task, in units of which a task without content has 64: each KiB adds
// one. So a task of 64 KiB counts as two.
func Cost(bytes int64) int { return taskCost + int(min(max(bytes, 0)>>10, 1<<30)) }

const taskCost = 64

// Flow is what takes turns: the tasks that wait for one agent.
type Flow interface {
	comparable
	// Weight is its share among those that wait, at least 1.
	Weight() int
}

// Ring gives turns to flows: deficit round-robin (Shreedhar and Varghese, 1995).
// With each turn a flow may spend the cost of Weight tasks; what a task costs more
// than that is saved up over several turns. So of flows that always have something
// to send each gets its part within one turn and one task, however large their
// tasks are, and nobody waits while something could be sent.
type Ring[F Flow] struct {
	turns []turn[F]
	at    int
	round uint64
}

type turn[F Flow] struct {
	flow F
	// deficit is what it may spend; granted: that of the present turn is in it.
	deficit int
	granted bool
	// held is the newest round in which it could not send.
	held uint64
}

// Len is how many flows there are.
func (r *Ring[F]) Len() int { return len(r.turns) }

// Add lets a flow take part. It must not do so already.
func (r *Ring[F]) Add(f F) { r.turns = append(r.turns, turn[F]{flow: f}) }

// Flows gives each flow, beginning with the one whose turn it is. The ring must
// not change meanwhile.
func (r *Ring[F]) Flows(yield func(F) bool) {
	for i := range r.turns {
		if !yield(r.turns[(r.at+i)%len(r.turns)].flow) {
			return
		}
	}
}

// Remove takes out the flows that gone reports.
func (r *Ring[F]) Remove(gone func(F) bool) {
	at, n := r.at, 0
	for i := range r.turns {
		if gone(r.turns[i].flow) {
			if i < r.at {
				at--
			}
			continue
		}
		r.turns[n] = r.turns[i]
		n++
	}
	clear(r.turns[n:])
	r.turns = r.turns[:n]
	if r.at = at; r.at >= n {
		r.at = 0
	}
}

// Serve sends at most n tasks, and fewer only if nothing more can be sent. next
// gives the cost of a flow's next task, 0 if it may not be sent now, nor later in
// this round; send sends it.
func (r *Ring[F]) Serve(n int, next func(F) (cost int), send func(F)) {
	r.round++
	for idle := 0; n > 0 && idle < len(r.turns); {
		t := &r.turns[r.at]
		cost := 0
		if t.held != r.round {
			cost = next(t.flow)
		}
		if cost <= 0 {
			// Whoever cannot send saves nothing.
			t.held, t.deficit = r.round, 0
			idle++
			r.pass()
			continue
		}
		idle = 0
		if !t.granted {
			t.granted = true
			t.deficit += taskCost * max(t.flow.Weight(), 1)
		}
		if t.deficit < cost {
			r.pass()
			continue
		}
		t.deficit -= cost
		send(t.flow)
		n--
	}
}

// pass ends a turn.
func (r *Ring[F]) pass() {
	r.turns[r.at].granted = false
	r.at = (r.at + 1) % len(r.turns)
}
