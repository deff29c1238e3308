package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
)

// writers start runs of one step and end them, each until ctx ends, and give the
// runs whose start, and whose end, was acknowledged. They treat an error as
// protocol.md §4.1 says: they read again.
func writers(ctx context.Context, t *testing.T, db *DB, c Claim) (started, ended func() []string, wait func()) {
	t.Helper()
	var mu sync.Mutex
	var starts, ends []string
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprintf("run-%d-%d", w, i)
				mine := c
				mine.Token = id
				a := claimed(attempt(id, "a", 1), mine)
				st := start(id, a)
				st.IdempotencyKey = id
				if !insist(ctx, t, func() error { _, err := db.StartRun(context.Background(), st); return err }) {
					return
				}
				mu.Lock()
				starts = append(starts, id)
				mu.Unlock()
				d := next(st.Run, 2)
				ans := answer(a.ID, `1`)
				d.Answer, d.Close = &ans, []Close{{TaskID: a.ID, Absorb: true}}
				d.Run.Status, d.Run.EndedAt = parley.RunCompleted, epoch
				done := insist(ctx, t, func() error {
					err := db.Decide(context.Background(), d)
					if !errors.Is(err, ErrStale) {
						return err
					}
					// Somebody has written it: this one, without knowing.
					row, err := db.RunRow(context.Background(), id)
					if err == nil && row.Seq != d.Run.Seq {
						t.Errorf("run %s is at %d", id, row.Seq)
					}
					return err
				})
				if !done {
					return
				}
				mu.Lock()
				ends = append(ends, id)
				mu.Unlock()
			}
		})
	}
	count := func(list *[]string) func() []string {
		return func() []string { mu.Lock(); defer mu.Unlock(); return append([]string(nil), *list...) }
	}
	return count(&starts), count(&ends), wg.Wait
}

// insist repeats a call until it succeeds, or until ctx has ended.
func insist(ctx context.Context, t *testing.T, call func() error) bool {
	for {
		err := call()
		if err == nil {
			return true
		}
		if code := parley.CodeOf(err); code != parley.CodeUnavailable {
			t.Errorf("error %v", err)
			return false
		}
		if ctx.Err() != nil {
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// progress waits until some more runs have ended.
func progress(t *testing.T, ended func() []string, more int) {
	t.Helper()
	from := len(ended())
	for deadline := time.Now().Add(2 * time.Minute); len(ended()) < from+more; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d runs have ended in two minutes, not %d", len(ended())-from, more)
		}
	}
}

// checkAcknowledged says that nothing was lost that a caller was told of.
func checkAcknowledged(t *testing.T, db *DB, started, ended []string) {
	t.Helper()
	for _, id := range started {
		must(db.RunRow(t.Context(), id))(t)
	}
	for _, id := range ended {
		h := must(db.History(t.Context(), id))(t)
		if h.Run.Status != parley.RunCompleted || len(h.Events) != 4 || len(h.Attempts) != 0 {
			t.Fatalf("run %s: %s with %d events, %d attempts", id, h.Run.Status, len(h.Events), len(h.Attempts))
		}
	}
	_, total, err := db.Runs(t.Context(), parley.RunQuery{})
	check(t, err)
	if total < len(started) {
		t.Fatalf("%d runs of %d", total, len(started))
	}
}

// A server that is stopped, killed or paused under load loses nothing that was
// acknowledged, and work goes on when it is back.
func TestServerRestarts(t *testing.T) {
	s := pgtest.Start(t, pgtest.Options{})
	db := reopen(t, s.URL("postgres"), Options{})
	c := bridge(t, db, "b1")
	ctx, stop := context.WithCancel(t.Context())
	started, ended, wait := writers(ctx, t, db, c)
	for _, fault := range []func(){s.Stop, s.Kill, s.Kill} {
		progress(t, ended, 20)
		fault()
		s.Restart()
	}
	progress(t, ended, 20)
	s.Pause()
	time.Sleep(100 * time.Millisecond)
	s.Continue()
	progress(t, ended, 20)
	stop()
	wait()
	checkAcknowledged(t, db, started(), ended())
}

// After the death of a primary its synchronous standby has everything that was
// acknowledged, and who knows both goes on with it. Nothing is written to, or
// decided from, a standby.
func TestFailover(t *testing.T) {
	primary := pgtest.Start(t, pgtest.Options{})
	standby := primary.Standby(t)
	u, err := url.Parse(primary.URL("postgres"))
	check(t, err)
	u.Host = standby.Addr() + "," + primary.Addr()
	db := reopen(t, u.String(), Options{})
	_, err = Open(t.Context(), standby.URL("postgres"), Options{})
	wantCode(t, err, parley.CodeUnavailable)
	c := bridge(t, db, "b1")
	ctx, stop := context.WithCancel(t.Context())
	started, ended, wait := writers(ctx, t, db, c)
	progress(t, ended, 50)
	primary.Kill()
	standby.Promote()
	progress(t, ended, 50)
	stop()
	wait()
	checkAcknowledged(t, db, started(), ended())
}

// A commit whose wait for the standby somebody ends, which the server has written then, is
// acknowledged when the standby has it, and in doubt if somebody goes on with that. The
// server says so whatever messages others want of it.
func TestCommitWithoutStandby(t *testing.T) {
	primary := pgtest.Start(t, pgtest.Options{})
	primary.Set("client_min_messages", "error")
	standby := primary.Standby(t)
	db := reopen(t, primary.URL("postgres"), Options{Writers: 1})
	done := make(chan error, 1)
	register := func() { _, err := db.Register(context.Background(), "b1", epoch); done <- err }
	last := ""
	cancel := func() {
		wait := awaitWaiting(t, db, done, last)
		primary.Exec(`SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
		last = wait
	}
	standby.Pause()
	defer standby.Continue()
	go register()
	cancel()
	last = awaitWaiting(t, db, done, last)
	standby.Continue()
	if err := <-done; err != nil {
		t.Errorf("a commit that the standby has ended in %v", err)
	}
	standby.Pause()
	go register()
	for range repeats + 1 {
		cancel()
	}
	if err := <-done; !errors.Is(err, ErrInDoubt) {
		t.Errorf("a commit that somebody has ended again and again ended in %v", err)
	}
}

// A primary that died while a commit waited for the standby shows it when it is back.
// Nobody is told so before the standby has it: else who asked again would have an answer
// that a failover takes back.
func TestShownIsReplicated(t *testing.T) {
	primary := pgtest.Start(t, pgtest.Options{})
	standby := primary.Standby(t)
	standby.Set("wal_retrieve_retry_interval", "100ms")
	u, err := url.Parse(primary.URL("postgres"))
	check(t, err)
	u.RawQuery += "&connect_timeout=1"
	db := reopen(t, u.String(), Options{Writers: 1})
	begin := func() error {
		st := start("run-1")
		st.IdempotencyKey = "key"
		_, err := db.StartRun(context.Background(), st)
		return err
	}
	standby.Pause()
	done := make(chan error, 1)
	go func() { done <- begin() }()
	awaitWaiting(t, db, done, "")
	primary.Kill()
	if err := <-done; !errors.Is(err, ErrInDoubt) {
		t.Errorf("a start that waited for the standby ended in %v", err)
	}
	primary.Restart()
	if err := begin(); err == nil || !strings.Contains(err.Error(), "its standby (synchronous_standby_names) has not confirmed") {
		t.Errorf("a start that the standby does not have was answered with %v", err)
	}
	if row, err := db.RunRow(t.Context(), "run-1"); err == nil {
		t.Errorf("run %s is shown, which the standby does not have", row.ID)
	}
	standby.Continue()
	insist(t.Context(), t, begin)
	must(db.RunRow(t.Context(), "run-1"))(t)
	primary.Kill()
	standby.Promote()
	must(reopen(t, standby.URL("postgres"), Options{}).RunRow(t.Context(), "run-1"))(t)
}

// awaitWaiting waits until a commit waits for the standby that began after another one, and
// gives when. None may be done.
func awaitWaiting(t *testing.T, db *DB, done <-chan error, after string) (began string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		check(t, db.read(t.Context(), `SELECT query_start::text FROM pg_stat_activity WHERE wait_event = 'SyncRep'`,
			func(r *record) error { began = r.str(); return nil }))
		if began > after {
			return began
		}
		if len(done) > 0 || time.Now().After(deadline) {
			t.Fatalf("no commit waits for the standby; %d are done", len(done))
		}
	}
}

// A server that loses what it has committed is named, or refused.
func TestUnsafeServer(t *testing.T) {
	s := pgtest.Start(t, pgtest.Options{Durable: true})
	open := func() error {
		db, err := Open(t.Context(), s.URL("postgres"), Options{RefuseUnsafe: true})
		if err == nil {
			check(t, db.Close())
		}
		return err
	}
	check(t, open())
	s.Standby(t)
	check(t, open())
	s.Set("synchronous_standby_names", "")
	// The setting arrives with a signal.
	for deadline := time.Now().Add(2 * time.Minute); open() == nil && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
	}
	wantCode(t, open(), parley.CodeInvalid)

	s = pgtest.Start(t, pgtest.Options{Settings: map[string]string{"fsync": "off"}})
	wantCode(t, open(), parley.CodeInvalid)
}

// pooler loses the limits of sessions, as one does that is told to ignore them.
type pooler struct{ net.Conn }

func (p pooler) Write(b []byte) (int, error) {
	const limit = "idle_in_transaction_session_timeout\x00"
	if _, err := p.Conn.Write(bytes.ReplaceAll(b, []byte(limit+"10s"), []byte(limit+"30s"))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// A pooler that does not pass on the settings of sessions is told of when a connection is
// made: a COMMIT could be cut off there, and nobody would know why.
func TestPoolerThatIgnoresSettings(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, pgtest.Options{Durable: true})
	o := Options{RefuseUnsafe: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return pooler{c}, err
	}}
	_, err := Open(t.Context(), s.URL("postgres"), o)
	wantCode(t, err, parley.CodeInvalid)
	if err == nil || !strings.Contains(err.Error(), "pooler") {
		t.Errorf("error %v", err)
	}
}
