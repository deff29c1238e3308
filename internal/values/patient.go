package values

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// tripAfter is how many calls in a row have to fail before others are spared.
	tripAfter = 3
	// The store is tried again after pauseFirst, then after twice that time, at most
	// pauseLast.
	pauseFirst, pauseLast = 250 * time.Millisecond, 15 * time.Second
)

// Patient gives a store that is asked less often while it does not answer: after
// three failures in a row calls fail at once until it is time to try again, so
// that nobody waits for a store that is away but the one who tries. Each call
// takes at most that long.
func Patient(s Store, now func() time.Time, each time.Duration) Store {
	return &patient{store: s, now: now, each: each}
}

type patient struct {
	store Store
	now   func() time.Time
	each  time.Duration

	mu       sync.Mutex // protects what follows
	failures int
	pause    time.Duration
	until    time.Time
	trying   bool // somebody finds out whether it answers again
	last     error
}

// do asks the store, unless it is to be left alone.
func (p *patient) do(ctx context.Context, ask func(context.Context) error) error {
	tries, err := p.admit()
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, p.each)
	defer cancel()
	err = ask(within)
	p.note(err, tries, ctx.Err() != nil)
	return err
}

// admit refuses a call while the store is left alone. Who comes first when that
// is over tries, and the others go on waiting.
func (p *patient) admit() (tries bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failures < tripAfter {
		return false, nil
	}
	now := p.now()
	if p.trying {
		return false, fmt.Errorf("the store of values did not answer a moment ago, it is being asked again: %w", p.last)
	}
	if now.Before(p.until) {
		return false, fmt.Errorf("the store of values did not answer a moment ago, it is asked again in %s: %w", p.until.Sub(now).Round(time.Millisecond), p.last)
	}
	p.until, p.trying = now.Add(p.pause), true
	return true, nil
}

// note notes what a call came to. tries says that it was to find out whether the store
// answers again: the others that fail after the third were under way already, and say
// nothing new. One that its caller has given up says nothing at all.
func (p *patient) note(err error, tries, givenUp bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if tries {
		p.trying = false
	}
	if givenUp {
		return
	}
	if err == nil || errors.Is(err, ErrGone) || errors.Is(err, ErrLonger) {
		p.failures, p.pause, p.last = 0, 0, nil
		return
	}
	p.failures++
	p.last = err
	if p.failures == tripAfter || tries && p.failures > tripAfter {
		p.pause = min(max(2*p.pause, pauseFirst), pauseLast)
		p.until = p.now().Add(p.pause)
	}
}

// Put is that of the store.
func (p *patient) Put(ctx context.Context, name string, value []byte) error {
	return p.do(ctx, func(ctx context.Context) error { return p.store.Put(ctx, name, value) })
}

// Get is that of the store.
func (p *patient) Get(ctx context.Context, name string, most int64) (value []byte, err error) {
	err = p.do(ctx, func(ctx context.Context) (err error) { value, err = p.store.Get(ctx, name, most); return err })
	return value, err
}

// Delete is that of the store.
func (p *patient) Delete(ctx context.Context, name string) error {
	return p.do(ctx, func(ctx context.Context) error { return p.store.Delete(ctx, name) })
}

// Mark is that of the store.
func (p *patient) Mark(ctx context.Context, mark []byte) (held []byte, err error) {
	err = p.do(ctx, func(ctx context.Context) (err error) { held, err = p.store.Mark(ctx, mark); return err })
	return held, err
}

// MarkedAt is that of the store.
func (p *patient) MarkedAt() string { return p.store.MarkedAt() }

// List is that of the store.
func (p *patient) List(ctx context.Context, after string, limit int) (list []Object, err error) {
	err = p.do(ctx, func(ctx context.Context) (err error) { list, err = p.store.List(ctx, after, limit); return err })
	return list, err
}
