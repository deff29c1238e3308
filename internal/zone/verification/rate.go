package verification

import (
	"slices"
	"sync"
	"time"
)

// maxRated bounds the users that are remembered; beyond it somebody may ask a
// little more often than he should.
const maxRated = 10_000

// limiter counts the questions of each user within the last minute.
type limiter struct {
	perMinute int

	mu    sync.Mutex // protects users
	users map[string]*rated
}

type rated struct {
	asked []asked
	told  time.Time
}

// asked is one question; held counts the events at hand that tell of it.
type asked struct {
	message string
	at      time.Time
	held    int
}

// grant is what a limiter says of one event. tell: the user has not been told
// within the last minute.
type grant struct {
	user, message string
	at            time.Time
	ok, tell      bool
}

func newLimiter(perMinute int) *limiter {
	return &limiter{perMinute: perMinute, users: map[string]*rated{}}
}

// take counts a question. Another event that tells of the same message, perhaps at the
// same time, has the same grant.
func (l *limiter) take(user, message string, now time.Time) grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.users[user]
	if u == nil {
		l.makeRoom(now)
		u = &rated{}
		l.users[user] = u
	}
	for len(u.asked) > 0 && now.Sub(u.asked[0].at) >= time.Minute {
		u.asked = u.asked[1:]
	}
	g := grant{user: user, message: message, at: now, ok: true}
	if i := u.find(message); i >= 0 {
		u.asked[i].held++
		return g
	}
	if g.ok = len(u.asked) < l.perMinute; g.ok {
		u.asked = append(u.asked, asked{message, now, 1})
	} else if u.told.IsZero() || now.Sub(u.told) >= time.Minute {
		u.told, g.tell = now, true
	}
	return g
}

func (u *rated) find(message string) int {
	return slices.IndexFunc(u.asked, func(a asked) bool { return a.message == message })
}

// giveBack undoes a grant: the question was none.
func (l *limiter) giveBack(g grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.users[g.user]
	switch {
	case u == nil:
	case g.tell && u.told.Equal(g.at):
		u.told = time.Time{}
	case g.ok:
		i := u.find(g.message)
		if i < 0 {
			return
		}
		if u.asked[i].held--; u.asked[i].held == 0 {
			u.asked = slices.Delete(u.asked, i, i+1)
		}
	}
}

// makeRoom forgets those who have not asked for a minute, or, if that is nobody,
// anybody; mu is held.
func (l *limiter) makeRoom(now time.Time) {
	if len(l.users) < maxRated {
		return
	}
	for name, u := range l.users {
		if len(u.asked) == 0 || now.Sub(u.asked[len(u.asked)-1].at) >= time.Minute {
			delete(l.users, name)
		}
	}
	for name := range l.users {
		if len(l.users) < maxRated {
			return
		}
		delete(l.users, name)
	}
}

// pacer keeps posts to one channel a second apart, as Slack wants it. It hands out
// times and lets nobody wait: whoever comes back at his time may post.
type pacer struct {
	mu       sync.Mutex // protects what follows
	channels map[string]*lane
}

type lane struct {
	next   time.Time
	booked map[string]time.Time
}

// paceEvery is the distance of two posts to one channel.
const paceEvery = time.Second

func newPacer() *pacer { return &pacer{channels: map[string]*lane{}} }

// wait says how long a question has to wait before its next post, 0 if it may post
// now.
func (p *pacer) wait(channel, question string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.channels) >= maxRated {
		for name, l := range p.channels {
			if now.After(l.next.Add(time.Minute)) {
				delete(p.channels, name)
			}
		}
	}
	l := p.channels[channel]
	if l == nil {
		l = &lane{booked: map[string]time.Time{}}
		p.channels[channel] = l
	}
	at, ok := l.booked[question]
	if !ok {
		at = l.next
		if at.Before(now) {
			at = now
		}
		l.next = at.Add(paceEvery)
	}
	if !at.After(now) {
		delete(l.booked, question)
		return 0
	}
	l.booked[question] = at
	for name, when := range l.booked { // taken by another process meanwhile
		if now.Sub(when) > time.Minute {
			delete(l.booked, name)
		}
	}
	return at.Sub(now)
}
