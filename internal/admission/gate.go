// Package admission decides which calls may begin now: how many of one agent
// ([Gate]), and whose turn it is among the agents that wait ([Ring]). It is pure:
// time comes in as data, nothing waits, and no method may be called concurrently
// with another of the same value. What a wait is made of, and where what waits is
// kept, is the caller's affair. docs/decisions/027-limits-and-fairness.md says why
// it is as it is.
package admission

import (
	"math"
	"time"
)

// Settings are the limits of one agent.
type Settings struct {
	// Concurrency bounds the calls in flight, at least 1.
	Concurrency int
	// Fixed: Concurrency alone bounds them, whatever the agent answers.
	Fixed bool
	// Rate bounds the calls that begin, per second; 0 is no bound. Burst is how
	// many of them may begin at once after a pause; 0 is a tenth of a second's
	// worth, at least 1.
	Rate  float64
	Burst int
}

// Outcome is what the end of a call says about how much its agent can take.
type Outcome int

const (
	// Unclear: nothing.
	Unclear Outcome = iota
	// Answered: it could take this one.
	Answered
	// Overloaded: it said that it cannot take so much (429, 503).
	Overloaded
	// Unreached: there was no connection, or no answer in time. Perhaps it has too
	// much to do, perhaps it is not there.
	Unreached
)

// Call is a call that has ended.
type Call struct {
	Outcome Outcome
	// Began is when it was sent, Ended when its end was known.
	Began, Ended time.Time
}

// Gate holds what one agent is called to its limits. The zero value lets nothing
// pass before [Gate.Configure].
type Gate struct {
	limit  adaptive
	bucket bucket
	// held is until when nothing begins.
	held time.Time
}

// Configure sets the limits. What was learned stays, as far as it is within them.
func (g *Gate) Configure(now time.Time, s Settings) {
	g.limit.configure(max(s.Concurrency, 1), s.Fixed)
	g.bucket.configure(now, s.Rate, s.Burst)
	if s.Fixed {
		g.held = time.Time{}
	}
}

// Limit is how many calls may be in flight now.
func (g *Gate) Limit(now time.Time) int { return g.limit.at(now) }

// Room is how many calls may begin now beside those in flight.
func (g *Gate) Room(now time.Time, inFlight int) int {
	if now.Before(g.held) {
		return 0
	}
	return max(0, min(g.limit.at(now)-inFlight, g.bucket.room(now)))
}

// Next is when as many as wanted may begin, or at least some of them, if that
// comes by itself as time passes; zero if nothing comes by itself, or nothing is
// in the way.
func (g *Gate) Next(now time.Time, inFlight, wanted int) time.Time {
	next := g.held
	if at := g.bucket.next(now, wanted); at.After(next) {
		next = at
	}
	if g.limit.at(now) <= inFlight {
		at := g.limit.next(now)
		if at.IsZero() {
			return at // a call has to end first
		}
		if at.After(next) {
			next = at
		}
	}
	if !next.After(now) {
		return time.Time{}
	}
	return next
}

// Spacing is the time from one call to the next that the rate asks for; 0 if
// there is no bound.
func (g *Gate) Spacing() time.Duration { return g.bucket.every }

// Held is until when the agent wants no calls; in the past if it has not said so.
func (g *Gate) Held() time.Time { return g.held }

// Reserve keeps one call of the rate for a call that will be sent. If there is
// none left now, those that come next have to wait the longer, and this one until
// the time that is given. Exactly one of Send and Release follows.
func (g *Gate) Reserve(now time.Time) (due time.Time) {
	g.limit.begin(now)
	g.bucket.reserved++
	return g.bucket.due(g.bucket.reserved)
}

// Due is when a call that was reserved may be sent: who was late may have to wait
// again, since a bucket holds no more than a burst, and so has whom the agent has
// asked to wait meanwhile. It is not after now if it may be sent now.
func (g *Gate) Due(now time.Time) time.Time {
	if now.Before(g.held) {
		return g.held
	}
	if g.bucket.every == 0 || g.bucket.missing(now) < g.bucket.burst {
		return now
	}
	return g.bucket.due(1)
}

// Send says that a call that was reserved is sent now; inFlight counts it.
func (g *Gate) Send(now time.Time, inFlight int) {
	g.limit.press(now, inFlight)
	g.bucket.reserved--
	g.bucket.spend(now)
}

// Release says that a call that was reserved is not sent.
func (g *Gate) Release() { g.bucket.reserved-- }

// Idle reports whether nothing of the rate is used up, and nothing is held: then
// a new Gate in this one's place lets no more pass.
func (g *Gate) Idle(now time.Time) bool {
	return g.bucket.reserved == 0 && (g.bucket.every == 0 || !g.bucket.full.After(now)) && !g.held.After(now)
}

// Note learns from the end of a call.
func (g *Gate) Note(c Call) {
	switch c.Outcome {
	case Answered:
		g.limit.raise(c)
	case Overloaded:
		g.limit.cut(c, 1)
	case Unreached:
		g.limit.cut(c, unreachedLeast)
	}
}

// Hold lets nothing begin before that time: the agent has asked for it. A Gate
// with Fixed limits does not listen.
func (g *Gate) Hold(until time.Time) {
	if !g.limit.fixed && until.After(g.held) {
		g.held = until
	}
}

// bucket is a token bucket in the form that needs no floating point (the generic
// cell rate algorithm): each call that is sent moves the time at which the bucket
// is full again.
type bucket struct {
	// every is the time in which one token comes; 0: there is no bound.
	every time.Duration
	burst int
	full  time.Time
	// reserved tokens belong to calls that are not sent yet.
	reserved int
}

func (b *bucket) configure(now time.Time, rate float64, burst int) {
	if rate <= 0 {
		b.every, b.burst = 0, 0
		return
	}
	every := max(1, time.Duration(math.Ceil(float64(time.Second)/rate)))
	if b.every > 0 && b.every != every {
		b.full = now.Add(time.Duration(b.missing(now)) * every)
	}
	b.every, b.burst = every, burst
	if burst == 0 {
		b.burst = max(1, int(rate/10))
	}
}

// room is how many tokens are there that nobody has reserved.
func (b *bucket) room(now time.Time) int {
	if b.every == 0 {
		return math.MaxInt
	}
	return b.burst - b.missing(now) - b.reserved
}

// missing is how many tokens have to come until the bucket is full.
func (b *bucket) missing(now time.Time) int {
	if d := b.full.Sub(now); d > 0 {
		return int((d + b.every - 1) / b.every)
	}
	return 0
}

// due is when n tokens are there.
func (b *bucket) due(n int) time.Time {
	if b.every == 0 {
		return time.Time{}
	}
	return b.full.Add(time.Duration(n-b.burst) * b.every)
}

// next is when there is room again for some: for a quarter of the burst at most,
// so that a high rate is not one look at a time.
func (b *bucket) next(now time.Time, wanted int) time.Time {
	if b.every == 0 || b.room(now) > 0 {
		return time.Time{}
	}
	return b.due(b.reserved + max(1, min(wanted, b.burst/4)))
}

func (b *bucket) spend(now time.Time) {
	if b.every == 0 {
		return
	}
	if b.full.Before(now) {
		b.full = now
	}
	b.full = b.full.Add(b.every)
}
