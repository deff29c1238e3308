package verification

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slack-go/slack"

	"github.com/parley-project/parley/internal/store"
)

// Zone is a Verification Zone. Its methods may be called concurrently; Run once.
type Zone struct {
	cfg     Config
	web     *http.Client // for what api cannot
	api     *slack.Client
	uploads *slack.Client // for files alone, which take their time
	texts   Texts
	metrics *metrics
	rate    *limiter
	pace    *pacer
	// owner names this process in the leases.
	owner string
	// wake is told when there may be something to do.
	wake chan struct{}
	// slots holds one value for each question that is looked at, hints one for each
	// status that is being shown.
	slots, hints chan struct{}
	// events holds one value for each event that is being stored; unread are the bytes
	// that have come of events.
	events chan struct{}
	unread atomic.Int64
	// storing are the questions that are being stored, which Run waits for.
	storing tasks

	mu      sync.Mutex // protects what follows
	held    map[string]store.ZoneQuestion
	self    identity
	revoked map[string]bool
	// looks are those through threads that are to go on, by question.
	looks map[string]look
}

// identity is who we are in Slack, once that is known.
type identity struct{ user, bot string }

// New makes a Zone. The error is a *parley.Error that says what is missing.
func New(cfg Config) (*Zone, error) {
	cfg.setDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	texts, err := NewTexts(cfg.Language, cfg.Texts)
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, err
	}
	transport := transportTo(&cfg)
	return &Zone{
		cfg: cfg, web: newWeb(transport, slackTimeout), api: newAPI(&cfg, transport, slackTimeout), uploads: newAPI(&cfg, transport, 0), texts: texts, metrics: m, rate: newLimiter(cfg.Limits.PerMinute), pace: newPacer(),
		owner: cfg.NewID(), wake: make(chan struct{}, 1), slots: make(chan struct{}, cfg.Limits.Concurrent),
		hints: make(chan struct{}, cfg.Limits.Concurrent), events: make(chan struct{}, maxEvents), held: map[string]store.ZoneQuestion{}, revoked: map[string]bool{},
		looks: map[string]look{},
	}, nil
}

// Handler serves POST /slack/events, which with ModeSocket is not there.
func (z *Zone) Handler() http.Handler {
	mux := http.NewServeMux()
	if z.cfg.Slack.Mode == ModeHTTP {
		mux.HandleFunc("POST /slack/events", z.serveEvents)
	}
	return mux
}

// now is the time of rows.
func (z *Zone) now() time.Time { return z.cfg.DB.Now() }

// nudge has the rows looked at.
func (z *Zone) nudge() {
	select {
	case z.wake <- struct{}{}:
	default:
	}
}

// known says whether it is known who we are.
func (z *Zone) known() bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.self != identity{}
}

func (z *Zone) revoke(team string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.revoked[team] = true
}

func (z *Zone) isRevoked(team string) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.revoked[team]
}

// Run answers questions until ctx ends, and returns when nothing of it runs any
// more. Those that have no answer then go on when it is started again.
func (z *Zone) Run(ctx context.Context) error {
	if err := z.inherit(ctx); err != nil {
		return err
	}
	rim, endRim := context.WithCancel(context.WithoutCancel(ctx))
	work, endWork := context.WithCancel(context.WithoutCancel(ctx))
	defer endWork()
	var around, visits sync.WaitGroup
	around.Go(func() { z.beat(rim) })
	around.Go(func() { z.forget(ctx) })
	around.Go(func() { z.learn(ctx) })
	if z.cfg.Slack.Mode == ModeSocket {
		around.Go(func() { z.listen(ctx) })
	}
	z.serve(ctx, work, &visits)
	// What is under way gets a little time, then is left for the next start.
	ended := make(chan struct{})
	go func() { visits.Wait(); close(ended) }()
	t := time.NewTimer(z.cfg.Timing.Grace)
	select {
	case <-ended:
	case <-t.C:
	}
	t.Stop()
	endWork()
	<-ended
	endRim()
	around.Wait()
	z.storing.Wait()
	return nil
}

// inherit takes up what an earlier process had at hand.
func (z *Zone) inherit(ctx context.Context) error {
	if !z.cfg.Alone {
		return nil
	}
	n, err := z.cfg.DB.FreeZoneQuestions(ctx, z.now(), z.now().Add(z.cfg.Timing.Settle))
	if err == nil && n > 0 {
		z.cfg.Logger.InfoContext(ctx, "questions are taken up that were left", "event", "zone_inherit", "questions", n)
	}
	return err
}

// serve claims questions until ctx ends; each is visited in a goroutine of visits.
func (z *Zone) serve(ctx, work context.Context, visits *sync.WaitGroup) {
	for ctx.Err() == nil {
		wait := z.cfg.Timing.Poll
		if room := cap(z.slots) - len(z.slots); room > 0 {
			now := z.now()
			list, err := z.cfg.DB.ClaimZoneQuestions(ctx, z.owner, now, now.Add(z.cfg.Timing.Lease), room)
			switch {
			case err == nil:
				for i := range list {
					z.slots <- struct{}{} // there is room: nobody else takes any
					z.hold(&list[i])
					visits.Go(func() { z.visit(work, list[i]) })
				}
				wait = z.untilDue(ctx, len(list) == room)
			case ctx.Err() == nil:
				z.cfg.Logger.ErrorContext(ctx, "questions could not be taken up; it is tried again", "event", "zone_claim", "error", err)
			}
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-z.wake:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// untilDue says how long nothing is to be done. full: the slots are, and whoever
// leaves one says so.
func (z *Zone) untilDue(ctx context.Context, full bool) time.Duration {
	due, err := z.cfg.DB.ZoneDue(ctx)
	if full || err != nil || due.IsZero() {
		return z.cfg.Timing.Poll
	}
	return min(max(due.Sub(z.now()), 10*time.Millisecond), z.cfg.Timing.Poll)
}

func (z *Zone) hold(q *store.ZoneQuestion) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.held[q.ID] = store.ZoneQuestion{ID: q.ID, Owner: z.owner, Fence: q.Fence}
}

func (z *Zone) drop(q *store.ZoneQuestion) {
	z.mu.Lock()
	if z.held[q.ID].Fence == q.Fence { // else it was taken up again since it was left
		delete(z.held, q.ID)
	}
	z.mu.Unlock()
	<-z.slots
	z.nudge()
}

// beat makes the leases of the questions at hand longer until ctx ends.
func (z *Zone) beat(ctx context.Context) {
	z.every(ctx, z.cfg.Timing.Lease/3, func() error {
		z.mu.Lock()
		held := slices.Collect(maps.Values(z.held))
		z.mu.Unlock()
		if len(held) == 0 {
			return nil
		}
		return z.cfg.DB.BeatZoneQuestions(ctx, held, z.now().Add(z.cfg.Timing.Lease))
	})
}

// forgetAtOnce bounds what one sweep removes, forgetEvery says how often.
const (
	forgetAtOnce = 500
	forgetEvery  = time.Minute
)

// forget removes the rows of questions that have ended long ago until ctx ends.
func (z *Zone) forget(ctx context.Context) {
	z.every(ctx, forgetEvery, func() error {
		_, err := z.cfg.DB.ForgetZoneQuestions(ctx, z.now().Add(-z.cfg.Timing.Keep), forgetAtOnce)
		return err
	})
}

func (z *Zone) every(ctx context.Context, d time.Duration, f func() error) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := f(); err != nil && ctx.Err() == nil {
			z.cfg.Logger.WarnContext(ctx, "the store did not answer", "event", "zone_store", "error", err)
		}
	}
}

// learn finds out who we are, and whether we may do all that is needed.
func (z *Zone) learn(ctx context.Context) {
	const least, most = time.Second, time.Minute
	for wait := least; ctx.Err() == nil; wait = min(2*wait, most) {
		r, err := z.api.AuthTestContext(ctx)
		o := z.judged("auth.test", err)
		if o.verdict == callDone {
			z.mu.Lock()
			z.self = identity{user: r.UserID, bot: r.BotID}
			z.mu.Unlock()
			z.checkScopes(ctx, r.Header.Get("X-Oauth-Scopes"))
			return
		}
		if ctx.Err() == nil {
			z.cfg.Logger.ErrorContext(ctx, "Slack does not say who this app is", "event", "slack_auth", "code", o.code)
		}
		t := time.NewTimer(max(wait, o.after))
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// errLeft says that a question is left to whoever looks at it next.
var errLeft = errors.New("verification: left for the next look")

// visit brings a question as far as it goes without waiting.
func (z *Zone) visit(ctx context.Context, q store.ZoneQuestion) {
	defer z.drop(&q)
	v := &visit{zone: z, q: q, log: z.cfg.Logger.With("question", q.ID, "correlation_id", q.CorrelationID, "event_id", q.EventID,
		"team", q.Team, "channel", q.Channel)}
	var err error
	for err == nil && v.q.EndedAt.IsZero() {
		if ctx.Err() != nil {
			err = v.park(ctx, 0)
			break
		}
		err = v.step(ctx)
	}
	switch {
	case err == nil, errors.Is(err, errLeft):
	case errors.Is(err, store.ErrStale):
		v.log.WarnContext(ctx, "somebody else has this question now", "event", "zone_stale")
	default:
		v.log.ErrorContext(ctx, "a question waits for the end of its lease", "event", "zone_visit", "state", string(v.q.State), "error", err)
	}
}

// visit is one look at a question.
type visit struct {
	zone *Zone
	q    store.ZoneQuestion
	log  *slog.Logger
	// shown is closed when it was shown that somebody is at work; nil if nobody
	// shows it now.
	shown <-chan struct{}
}

// step does what the state of a question asks for. An error ends the visit.
func (v *visit) step(ctx context.Context) error {
	switch v.q.State {
	case store.ZoneReceived:
		return v.ask(ctx)
	case store.ZoneSent, store.ZoneAccepted:
		return v.fetch(ctx)
	case store.ZoneAnswered:
		return v.post(ctx)
	case store.ZonePosting:
		return v.find(ctx)
	}
	return v.end(ctx, store.ZoneFailed, "unknown_state")
}

// saveWithin bounds the writing of a row.
const saveWithin = 10 * time.Second

// save stores the row as it is, which keeps the lease.
func (v *visit) save(ctx context.Context, answer bool) error {
	v.q.Owner, v.q.DueAt = v.zone.owner, v.zone.now().Add(v.zone.cfg.Timing.Lease)
	return v.write(ctx, answer)
}

// park stores the row and leaves it until then.
func (v *visit) park(ctx context.Context, wait time.Duration) error {
	v.q.Owner, v.q.DueAt = "", v.zone.now().Add(max(wait, 0))
	if err := v.write(ctx, false); err != nil {
		return err
	}
	return errLeft
}

func (v *visit) write(ctx context.Context, answer bool) error {
	// What has happened is stored also while we are being stopped.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveWithin)
	defer cancel()
	return v.zone.cfg.DB.SaveZoneQuestion(ctx, v.q, answer)
}

// end closes the question.
func (v *visit) end(ctx context.Context, state store.ZoneState, outcome string) error {
	now := v.zone.now()
	v.q.State, v.q.Outcome, v.q.EndedAt, v.q.Owner, v.q.DueAt = state, outcome, now, "", now
	if err := v.write(ctx, false); err != nil {
		return err
	}
	z := v.zone
	z.metrics.questions.WithLabelValues(outcome).Inc()
	level, text := slog.LevelInfo, "a question was answered"
	if state == store.ZoneFailed {
		level, text = slog.LevelError, "the answer to a question could not be posted"
	} else {
		z.metrics.seconds.Observe(now.Sub(v.q.CreatedAt).Seconds())
	}
	v.log.Log(ctx, level, text, "event", "zone_question", "outcome", outcome, "took", now.Sub(v.q.CreatedAt), "posts", v.q.Posted)
	return nil
}

// backoff is how long to wait after the n-th failure in a row, n from 1.
func (z *Zone) backoff(n int, most time.Duration) time.Duration {
	d := min(time.Second<<min(n-1, 10), most)
	return d - d/10 + time.Duration(z.cfg.Random()*float64(d/5))
}

// tasks are goroutines that somebody waits for. Unlike those of a
// [sync.WaitGroup] they may begin while somebody waits.
type tasks struct {
	mu    sync.Mutex // protects what follows
	n     int
	ended chan struct{}
}

// Go runs f in a goroutine.
func (t *tasks) Go(f func()) {
	t.mu.Lock()
	if t.n == 0 {
		t.ended = make(chan struct{})
	}
	t.n++
	t.mu.Unlock()
	go func() {
		defer func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.n--; t.n == 0 {
				close(t.ended)
			}
		}()
		f()
	}()
}

// Wait returns when nothing runs.
func (t *tasks) Wait() {
	t.mu.Lock()
	ended := t.ended
	t.mu.Unlock()
	if ended != nil {
		<-ended
	}
}
