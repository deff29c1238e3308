package direct

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/zone"
)

// An Authorizer gives requests what proves who sends them. Any number of
// goroutines may use one.
type Authorizer interface {
	// Authorize adds to the headers of a request. An error that is no
	// *[zone.TransportError] means that the proof could not be had, and that the
	// same may work later.
	Authorize(ctx context.Context, header http.Header) error
	// Refused is told that a request with these headers was not believed (401), and
	// reports whether another Authorize may do better.
	Refused(header http.Header) bool
}

func authorize(ctx context.Context, a Authorizer, h http.Header) *zone.TransportError {
	if a == nil {
		return nil
	}
	if err := a.Authorize(ctx, h); err != nil {
		fault := *AsFault(err) // all who waited for one token have the same, and each has an exchange of its own
		return &fault
	}
	return nil
}

// bearer is a token that never changes.
type bearer struct{ token parley.Secret }

// Bearer sends the same token with every request.
func Bearer(token parley.Secret) Authorizer { return bearer{token} }

func (b bearer) Authorize(_ context.Context, h http.Header) error {
	h.Set("Authorization", "Bearer "+string(b.token.Reveal()))
	return nil
}

func (bearer) Refused(http.Header) bool { return false }

// A Token is an access token or an ID token.
type Token struct {
	Secret parley.Secret
	// Expires is when it stops being valid; the zero time if nobody said.
	Expires time.Time
}

// TokenConfig says where tokens come from and where they go.
type TokenConfig struct {
	// Fetch gets a new token; it is never called twice at the same time. An error
	// that is a *[zone.TransportError] with the class auth says that there will be
	// none.
	Fetch func(ctx context.Context) (Token, error)
	// Header carries the token, after "Bearer "; default Authorization. Cloud Run
	// takes X-Serverless-Authorization, too.
	Header string
	// Now is the clock; default time.Now.
	Now func() time.Time
}

const (
	// renewBefore is how long before its end a token is renewed, or a tenth of its
	// life if that is shorter.
	renewBefore = time.Minute
	// unknownLife is how long a token is used whose end nobody said.
	unknownLife = 5 * time.Minute
	// fetchTimeout bounds the fetching of a token.
	fetchTimeout = 30 * time.Second
)

// Tokens is an Authorizer whose tokens end: it keeps one and renews it before its
// end, and once when it is not believed. While one is being fetched, all who need
// it wait for that one.
type Tokens struct {
	cfg TokenConfig
	// fetching is held by who fetches.
	fetching chan struct{}

	mu     sync.Mutex // guards the following
	token  Token
	renew  time.Time
	tries  int   // fetches that ended
	failed error // of the last one
}

var _ Authorizer = (*Tokens)(nil)

// NewTokens returns Tokens that hold none yet.
func NewTokens(cfg TokenConfig) *Tokens {
	if cfg.Header == "" {
		cfg.Header = "Authorization"
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Tokens{cfg: cfg, fetching: make(chan struct{}, 1)}
}

// Authorize adds the token, which it fetches if there is none.
func (t *Tokens) Authorize(ctx context.Context, h http.Header) error {
	secret, err := t.get(ctx)
	if err != nil {
		return err
	}
	h.Set(t.cfg.Header, "Bearer "+string(secret.Reveal()))
	return nil
}

// Refused forgets the token that was not believed.
func (t *Tokens) Refused(h http.Header) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.Get(t.cfg.Header) == "Bearer "+string(t.token.Secret.Reveal()) {
		t.token = Token{}
	}
	return true
}

func (t *Tokens) get(ctx context.Context) (parley.Secret, error) {
	secret, before, ok := t.current()
	if ok {
		return secret, nil
	}
	select {
	case t.fetching <- struct{}{}:
		defer func() { <-t.fetching }()
	case <-ctx.Done():
		return parley.Secret{}, ctx.Err()
	}
	secret, tries, ok := t.current()
	if ok {
		return secret, nil
	}
	if failed := t.failure(); tries != before && failed != nil {
		return parley.Secret{}, failed // the one that was waited for
	}
	fetching, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	token, err := t.cfg.Fetch(fetching)
	return t.settle(token, err, ctx.Err() != nil)
}

// current gives the token if it is good, and how many fetches there were.
func (t *Tokens) current() (parley.Secret, int, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.token.Secret, t.tries, !t.token.Secret.IsZero() && t.cfg.Now().Before(t.renew)
}

func (t *Tokens) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

// settle keeps what a fetch brought; left says that who fetched has no time any more.
func (t *Tokens) settle(token Token, err error, left bool) (parley.Secret, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil && token.Secret.IsZero() {
		err = errors.New("the token is empty")
	}
	if !left { // one who gave up says nothing about the others
		t.tries++
		t.failed = err
	}
	if err != nil {
		return parley.Secret{}, err
	}
	now := t.cfg.Now()
	t.token, t.renew = token, now.Add(unknownLife)
	if !token.Expires.IsZero() {
		life := token.Expires.Sub(now)
		t.renew = token.Expires.Add(-min(renewBefore, life/10))
	}
	return token.Secret, nil
}
