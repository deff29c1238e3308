package admission

import "time"

const (
	// rampFirst is how many calls an agent that was never called gets at once. That
	// doubles with each rampEvery, so that a burst does not open a thousand
	// connections at a time, and calls that take minutes do not hold it up.
	rampFirst = 64
	rampEvery = 50 * time.Millisecond
	// cutTo is what remains of the limit when the agent has too much.
	cutTo = 0.7
	// wallRounds is how many rounds of good calls it takes to go where the agent last
	// had too much.
	wallRounds = 16
	// unreachedLeast is what part of the limit stays for an agent that does not
	// answer at all: those that wait for it are to learn about it, too, and go to
	// another one.
	unreachedLeast = 1.0 / 16
)

// adaptive is the bound on the calls in flight: additive increase, multiplicative
// decrease under a bound that was set.
type adaptive struct {
	most  int
	fixed bool
	limit float64
	// threshold is where the agent was last seen to have too much. Below it the
	// limit doubles with each round of good calls, else it grows by one.
	threshold float64
	// wall is the limit with which the agent last said that it has too much. The
	// last step up to it takes wallRounds rounds: who takes four calls is not asked
	// for a fifth all the time, since each refusal costs a task one of its attempts.
	wall int
	// since is when the first call began; zero before, and when the ramp is over.
	since   time.Time
	ramping bool
	// newest is when the limit was cut last. What began before that has seen the
	// limit that was cut, and says nothing about the present one.
	newest time.Time
	// pressed is when half of the limit was in flight last.
	pressed time.Time
}

func (a *adaptive) configure(most int, fixed bool) {
	known := a.most > 0
	switch {
	case !known || fixed || a.fixed:
		a.limit, a.threshold, a.ramping = float64(most), float64(most), !known && !fixed
	case a.limit == float64(a.most): // it was not cut
		a.limit, a.threshold = float64(most), float64(most)
	default:
		a.limit, a.threshold = min(a.limit, float64(most)), min(a.threshold, float64(most))
	}
	a.most, a.fixed = most, fixed
}

func (a *adaptive) at(now time.Time) int {
	limit := int(a.limit)
	if !a.ramping {
		return limit
	}
	if a.since.IsZero() {
		return min(limit, rampFirst)
	}
	steps := now.Sub(a.since) / rampEvery
	if steps >= 10 || rampFirst<<max(steps, 0) >= limit {
		return limit
	}
	return min(limit, rampFirst<<max(steps, 0))
}

// next is when the limit grows by itself; zero if it does not.
func (a *adaptive) next(now time.Time) time.Time {
	if !a.ramping || a.since.IsZero() || a.at(now) >= int(a.limit) {
		return time.Time{}
	}
	return a.since.Add((now.Sub(a.since)/rampEvery + 1) * rampEvery)
}

func (a *adaptive) begin(now time.Time) {
	if a.ramping && a.since.IsZero() {
		a.since = now
	}
}

func (a *adaptive) press(now time.Time, inFlight int) {
	if float64(2*inFlight) >= a.limit {
		a.pressed = now
	}
}

func (a *adaptive) raise(c Call) {
	// A limit that is far from being reached says nothing about a higher one.
	if a.fixed || c.Began.Before(a.newest) || a.pressed.Before(c.Began) {
		return
	}
	step := 1 / a.limit
	switch {
	case int(a.limit)+1 == a.wall:
		step /= wallRounds
	case a.limit < a.threshold:
		step = 1
	}
	a.limit = min(a.limit+step, float64(a.most))
}

// cut lowers the limit, at most once for the calls of one round trip, and not
// below that part of what was set.
func (a *adaptive) cut(c Call, least float64) {
	if a.fixed || c.Began.Before(a.newest) {
		return
	}
	floor := 1.0
	if least < 1 {
		floor = max(1, least*float64(a.most))
	}
	from := min(a.limit, float64(a.at(c.Ended)))
	a.ramping, a.newest = false, c.Ended
	a.limit = min(from, max(floor, from*cutTo))
	if least == 1 {
		a.threshold, a.wall = a.limit, int(from)
	}
}
