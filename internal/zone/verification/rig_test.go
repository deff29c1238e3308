package verification_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/verification"
	"github.com/parley-project/parley/internal/zone/verification/slacktest"
)

// The secrets of the tests, which no log, row or text may have.
const (
	botToken      = "xoxb-canary-bot-token-1234567890"
	appToken      = "xapp-canary-app-token-1234567890"
	signingSecret = "canary-signing-secret-1234567890"
)

// execution is another zone that does as a test says. It has every id at most once
// in work, as the contract wants it.
type execution struct {
	mu sync.Mutex // protects what follows
	// ask and fetch, if set, answer; else every question is answered at once.
	ask   func(ctx context.Context, n int, c zone.Call) (zone.Result, zone.Info, error)
	fetch func(ctx context.Context, n int, q zone.Query, m zone.Meta) (zone.AsyncResult, zone.Info, error)

	asked    []zone.Call
	fetched  []zone.Query
	metas    []zone.Meta
	released []string
	times    []time.Time
}

func (e *execution) Ask(ctx context.Context, c zone.Call) (zone.Result, zone.Info, error) {
	e.mu.Lock()
	e.asked = append(e.asked, c)
	e.times = append(e.times, time.Now())
	n, f := len(e.asked), e.ask
	e.mu.Unlock()
	if f == nil {
		return answered("You asked: " + c.Task.Text), zone.Info{Attempts: 1}, nil
	}
	return f(ctx, n, c)
}

func (e *execution) Fetch(ctx context.Context, q zone.Query, m zone.Meta) (zone.AsyncResult, zone.Info, error) {
	e.mu.Lock()
	e.fetched = append(e.fetched, q)
	e.metas = append(e.metas, m)
	e.times = append(e.times, time.Now())
	n, f := len(e.fetched), e.fetch
	e.mu.Unlock()
	if f == nil {
		return zone.AsyncResult{}, zone.Info{}, &zone.Error{Code: zone.CodeServer, Reason: zone.ReasonUnknownTask, Message: "unknown task"}
	}
	return f(ctx, n, q, m)
}

func (e *execution) Release(_ context.Context, affinity string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.released = append(e.released, affinity)
	return nil
}

func (e *execution) counts() (asked, fetched int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.asked), len(e.fetched)
}

func answered(text string) zone.Result {
	return zone.Result{Status: zone.StatusSuccess, ResponseText: text}
}

// rig is a Verification Zone with its Slack, its store and the other zone.
type rig struct {
	t     *testing.T
	slack *slacktest.Server
	exec  *execution
	db    *store.DB
	path  string
	cfg   verification.Config
	zone  *verification.Zone
	reg   *prometheus.Registry
	log   *logs
	stop  func()
	ids   int
}

// logs is everything that is logged, down to debug.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func secret(s string) parley.Secret { return parley.NewSecret([]byte(s)) }

// newRig makes a rig; change adjusts its zone. It is not running.
func newRig(t *testing.T, change func(*verification.Config)) *rig {
	t.Helper()
	return newRigAt(t, filepath.Join(t.TempDir(), "zone.db"), store.Options{}, change)
}

func newRigAt(t *testing.T, target string, o store.Options, change func(*verification.Config)) *rig {
	t.Helper()
	r := &rig{t: t, exec: &execution{}, path: target, log: &logs{}, stop: func() {}}
	r.slack = slacktest.New(slacktest.Config{
		Token: botToken, AppToken: appToken, SigningSecret: signingSecret, Now: time.Now,
		Scopes: "chat:write,channels:history,im:history,files:write,reactions:write",
	})
	if !strings.Contains(target, "://") {
		check(t, os.WriteFile(target, template(t), 0o600))
	}
	r.db = r.open(o)
	if strings.Contains(target, "://") {
		check(t, r.db.Migrate(context.Background()))
	}
	r.cfg = verification.Config{
		DB: r.db, Execution: r.exec,
		Slack: verification.Slack{
			SigningSecret: secret(signingSecret), BotToken: secret(botToken), AppToken: secret(appToken), Transport: r.slack.Transport(),
		},
		// One process knows what it has to do, and virtual hours pass quickly.
		Timing: verification.Timing{Poll: 30 * time.Second},
		Now:    time.Now, Random: func() float64 { return 0.5 }, NewID: r.newID,
		Logger: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&r.cfg)
	}
	r.make()
	return r
}

// empty is a database with the newest schema, made once: that takes longer than
// most tests.
var empty []byte

func template(t *testing.T) []byte {
	t.Helper()
	if empty == nil {
		path := filepath.Join(t.TempDir(), "template.db")
		db, err := store.Open(context.Background(), path, store.Options{})
		check(t, err)
		check(t, db.Migrate(context.Background()))
		check(t, db.Close())
		empty = []byte(readFile(t, path))
	}
	return empty
}

var idMu sync.Mutex

func (r *rig) newID() string {
	idMu.Lock()
	defer idMu.Unlock()
	r.ids++
	return fmt.Sprintf("%08d-0000-4000-8000-000000000000", r.ids)
}

func (r *rig) open(o store.Options) *store.DB {
	r.t.Helper()
	db, err := store.Open(context.Background(), r.path, o)
	check(r.t, err)
	r.t.Cleanup(func() { _ = db.Close() })
	return db
}

// make makes the zone anew, as a start of the process does.
func (r *rig) make() {
	r.t.Helper()
	r.reg = prometheus.NewRegistry()
	r.cfg.Metrics = r.reg
	z, err := verification.New(r.cfg)
	check(r.t, err)
	r.zone = z
}

// start runs the zone until the test ends or stop is called.
func (r *rig) start() {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	z := r.zone
	go func() { ended <- z.Run(ctx) }()
	once := sync.Once{}
	r.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				r.t.Error(err)
			}
		})
	}
	r.t.Cleanup(r.stop)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bubble runs f with a running zone in virtual time.
func bubble(t *testing.T, change func(*verification.Config), f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, change)
		r.start()
		f(t, r)
		r.stop()
		r.checkLeaks()
		check(t, r.db.Close())
	})
}

var tsMu struct {
	sync.Mutex
	n int
}

// message gives a question with a timestamp of its own.
func message(text string) slacktest.Message {
	tsMu.Lock()
	defer tsMu.Unlock()
	tsMu.n++
	return slacktest.Message{Text: "<@" + slacktest.BotUser + "> " + text, TS: fmt.Sprintf("%d.%06d", 946684000, tsMu.n)}
}

// send delivers an event and gives the status.
func (r *rig) send(body []byte, retry int) int {
	r.t.Helper()
	resp := r.slack.Deliver(context.Background(), r.zone.Handler(), body, retry)
	return resp.Code
}

// ask delivers a question, which has to be taken.
func (r *rig) ask(m slacktest.Message) slacktest.Message {
	r.t.Helper()
	if status := r.send(m.Body(), 0); status != http.StatusOK {
		r.t.Fatalf("status %d", status)
	}
	return m
}

// texts gives what a person sees in the thread of a question.
func (r *rig) texts(m slacktest.Message) []string {
	thread, channel := m.TS, m.Channel
	if m.ThreadTS != "" {
		thread = m.ThreadTS
	}
	if channel == "" {
		channel = "C0CHAN"
	}
	var list []string
	for _, p := range r.slack.Thread(channel, thread) {
		text := p.Text
		if p.File != nil {
			text = "file " + p.File.Name + ": " + string(p.File.Content)
		}
		list = append(list, text)
	}
	return list
}

// want checks what stands in a thread.
func (r *rig) want(m slacktest.Message, texts ...string) {
	r.t.Helper()
	got := r.texts(m)
	if len(got) != len(texts) {
		r.t.Fatalf("%d messages, want %d:\n%s", len(got), len(texts), strings.Join(got, "\n---\n"))
	}
	for i := range texts {
		begin, open := strings.CutSuffix(texts[i], "…*")
		if got[i] != texts[i] && (!open || !strings.HasPrefix(got[i], begin)) {
			r.t.Errorf("message %d is %q, want %q", i, got[i], texts[i])
		}
	}
}

// pass lets time go by and everything happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// checkLeaks looks for the secrets in the log, the metrics, the files of the
// database and what was posted.
func (r *rig) checkLeaks() {
	r.t.Helper()
	families, err := r.reg.Gather()
	check(r.t, err)
	places := map[string]string{"the log": r.log.String(), "the metrics": fmt.Sprint(families), "the threads": fmt.Sprintf("%+v", r.slack.Posts())}
	if !strings.Contains(r.path, "://") {
		places["the database"], places["its log"] = readFile(r.t, r.path), readFile(r.t, r.path+"-wal")
	}
	for place, text := range places {
		for _, s := range []string{botToken, appToken, signingSecret, slacktest.Ticket()} {
			if strings.Contains(text, s) {
				r.t.Errorf("a secret is in %s", place)
			}
		}
	}
}

// counter gives the sum of a metric with a label value.
func (r *rig) counter(name, label string) float64 {
	r.t.Helper()
	families, err := r.reg.Gather()
	check(r.t, err)
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == label {
					sum += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(b)
}
