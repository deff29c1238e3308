package executor_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/store"
)

// triggerRig is a store with executors that start runs by webhooks, events and
// records.
type triggerRig struct {
	t       *testing.T
	db      *store.DB
	bus     *logBus
	x       *executor.Executor
	catalog *executor.Catalog
	config  executor.Config
	stop    func()

	mu      sync.Mutex // protects what follows
	secrets map[string]string
	letters []bus.DeadLetter
	log     bytes.Buffer
	// fail, if set, is asked at each point of the store's transitions.
	fail func(point string) error
}

// Write takes the log.
func (r *triggerRig) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(b)
}

func (r *triggerRig) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

// failing sets what is asked at each point; nil is nothing.
func (r *triggerRig) failing(f func(point string) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = f
}

// secret sets a secret.
func (r *triggerRig) secret(ref, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secrets[ref] = value
}

func (r *triggerRig) read(ref string) (parley.Secret, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.secrets[ref] == "" {
		return parley.Secret{}, parley.Errorf(parley.CodeUnavailable, "secret %s does not exist", ref)
	}
	return parley.NewSecret([]byte(r.secrets[ref])), nil
}

// triggering plays f with an executor that runs; change, if set, changes what it
// is made of.
func triggering(t *testing.T, change func(*executor.Config), f func(r *triggerRig)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "parley.db")
	synctest.Test(t, func(t *testing.T) {
		r := &triggerRig{t: t, secrets: make(map[string]string), bus: newLogBus(t)}
		db, err := store.Open(t.Context(), file, store.Options{Failpoint: func(point string) error {
			r.mu.Lock()
			fail := r.fail
			r.mu.Unlock()
			if fail == nil {
				return nil
			}
			return fail(point)
		}})
		check(t, err)
		check(t, db.Migrate(t.Context()))
		r.db = db
		var ids atomic.Int64
		r.config = executor.Config{
			Store: db, Signals: db, Triggers: db, Secret: r.read, Take: db.Publish, Bus: r.bus, Now: time.Now, Jitter: func() float64 { return 0.5 },
			NewID: func() string { return fmt.Sprintf("run-%d", ids.Add(1)) }, Logger: slog.New(slog.NewTextHandler(r, nil)),
			DeadLetters: func(_ context.Context, d bus.DeadLetter) error {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.letters = append(r.letters, d)
				return nil
			},
		}
		if change != nil {
			change(&r.config)
		}
		r.run()
		defer func() {
			r.stop()
			check(t, errors.Join(r.bus.Close(), db.Close()))
		}()
		f(r)
	})
}

// run begins with a new executor: what the one before had in memory is gone.
func (r *triggerRig) run() {
	r.x = executor.New(r.config)
	n := 0
	r.catalog = executor.NewCatalog(executor.CatalogConfig{
		DB: r.db, Executor: r.x, Now: time.Now, NewID: func() string { n++; return fmt.Sprintf("definition-%p-%d", r.x, n) },
		KnownAgent: func(context.Context, string) bool { return true },
		CheckSecret: func(ref string) error {
			if strings.HasPrefix(ref, "file:") {
				return parley.Errorf(parley.CodeInvalid, "file: references are off")
			}
			return nil
		},
	})
	ctx, cancel := context.WithCancel(r.t.Context())
	var running sync.WaitGroup
	x := r.x
	running.Go(func() {
		if err := x.Run(ctx); err != nil {
			r.t.Error(err)
		}
	})
	r.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
}

// apply deploys a workflow and gives its warnings.
func (r *triggerRig) apply(source string) (warnings []string) {
	r.t.Helper()
	v, _, err := r.catalog.Apply(r.t.Context(), parley.ApplyRequest{Source: []byte(source)})
	check(r.t, err)
	for _, p := range v.Warnings {
		warnings = append(warnings, p.Text)
	}
	return warnings
}

// runs gives the runs, oldest first, as "workflow trigger status input".
func (r *triggerRig) runs() []string {
	r.t.Helper()
	synctest.Wait()
	rows, _, err := r.db.Runs(r.t.Context(), parley.RunQuery{Ascending: true, Page: parley.Page{Limit: 500}})
	check(r.t, err)
	list := make([]string, 0, len(rows))
	for _, row := range rows {
		v, err := r.x.Get(r.t.Context(), row.ID)
		check(r.t, err)
		list = append(list, fmt.Sprintf("%s %s %s %s", v.Workflow, v.TriggeredBy, v.Status, v.Input))
	}
	return list
}

// publish publishes an event.
func (r *triggerRig) publish(e parley.Signal) {
	r.t.Helper()
	_, err := r.x.Signal(r.t.Context(), parley.SignalRequest{Signal: e})
	check(r.t, err)
}

// signed gives the headers of a delivery that is signed with a secret.
func signed(secret, body string, more ...string) map[string][]string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	header := map[string][]string{"X-Parley-Signature": {"sha256=" + hex.EncodeToString(mac.Sum(nil))}}
	for pair := range slices.Chunk(more, 2) {
		header[pair[0]] = append(header[pair[0]], pair[1])
	}
	return header
}

// deliver delivers to a webhook and gives the answer, or the error's code.
func (r *triggerRig) deliver(workflow string, header map[string][]string, body string) string {
	r.t.Helper()
	got, err := r.x.Hook(r.t.Context(), parley.HookRequest{
		Workflow: workflow, Header: header, Body: func() ([]byte, error) { return []byte(body), nil },
	})
	if err != nil {
		return string(parley.CodeOf(err))
	}
	return strings.TrimSpace(string(got.Status) + " " + got.Run)
}

// signal is an event as people publish it.
func signal(id, name, data string) parley.Signal {
	return parley.Signal{ID: id, Name: name, Data: json.RawMessage(data)}
}
