package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
)

// eachDB runs a part of the contract on every database that the store knows.
// One connection writes, so that a test can say what shares a group.
func eachDB(t *testing.T, f func(t *testing.T, db *DB)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { f(t, newDB(t, Options{Writers: 1})) })
	t.Run("postgres", func(t *testing.T) { f(t, openedAt(t, pgtest.Copy(t, migrated(t)), Options{Writers: 1})) })
}

// template is the PostgreSQL database that has the newest schema and nothing
// else; it lives as long as the tests.
var template struct {
	once sync.Once
	url  string
}

func migrated(t testing.TB) string {
	t.Helper()
	template.once.Do(func() {
		url := pgtest.Database(forEver{t})
		db := must(Open(context.Background(), url, Options{Writers: 1}))(t)
		check(t, db.Migrate(context.Background()))
		check(t, db.Close())
		template.url = url
	})
	if template.url == "" {
		t.Fatal("there is no database to copy")
	}
	return template.url
}

// forEver is a test whose end nobody waits for: the server goes with the process.
type forEver struct{ testing.TB }

func (forEver) Cleanup(func()) {}

// eachTarget gives a new database of every kind, which is empty.
func eachTarget(t *testing.T, f func(t *testing.T, target string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { f(t, newTarget(t)) })
	t.Run("postgres", func(t *testing.T) { f(t, pgtest.Database(t)) })
}

func newTarget(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "parley.db")
}

// newDB opens a new SQLite database with the newest schema, which is copied: to make it
// takes ten times as long.
func newDB(t testing.TB, o Options) *DB {
	t.Helper()
	empty.once.Do(func() {
		path := newTarget(t)
		db := must(Open(context.Background(), path, Options{Writers: 1}))(t)
		check(t, db.Migrate(context.Background()))
		check(t, db.Close())
		empty.file = must(os.ReadFile(path))(t)
	})
	path := newTarget(t)
	check(t, os.WriteFile(path, empty.file, 0o600))
	return openedAt(t, path, o)
}

// empty is the file of a SQLite database that has the newest schema and nothing else.
var empty struct {
	once sync.Once
	file []byte
}

func reopen(t testing.TB, path string, o Options) *DB {
	t.Helper()
	db := openedAt(t, path, o)
	check(t, db.Migrate(context.Background()))
	return db
}

// openedAt opens a database that has the newest schema.
func openedAt(t testing.TB, path string, o Options) *DB {
	t.Helper()
	db, err := Open(context.Background(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// epoch is the time of everything that does not ask for another.
var epoch = time.Date(2026, 11, 21, 10, 4, 5, 974607000, time.UTC)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must gives the value of a call that has to succeed.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func wantCode(t testing.TB, err error, code parley.Code) {
	t.Helper()
	if got := parley.CodeOf(err); got != code {
		t.Fatalf("error %v has code %q, want %q", err, got, code)
	}
}

func wantStale(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, ErrStale) {
		t.Fatalf("error %v, want ErrStale", err)
	}
}

func diff(t testing.TB, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got, cmp.Comparer(sameError), cmp.Comparer(sameSecret)); d != "" {
		t.Fatalf("(-want +got)\n%s", d)
	}
}

// sameError compares what is stored of an error.
func sameError(a, b *parley.Error) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

func sameSecret(a, b parley.Secret) bool { return string(a.Reveal()) == string(b.Reveal()) }

func event(run string, seq int64, typ parley.EventType, step string) parley.Event {
	return parley.Event{Seq: seq, At: epoch, Type: typ, Run: run, Step: step, Data: json.RawMessage(`{"n":1}`)}
}

// attempt is an open attempt of a step.
func attempt(run, step string, n int) Attempt {
	return Attempt{
		Task: parley.Task{
			ID: fmt.Sprintf("%s.%s.%d", run, step, n), Run: run, Step: step, Attempt: n, Agent: "writer",
			Input: json.RawMessage(`{"text":"hello"}`), CorrelationID: "corr-" + run, Deadline: epoch.Add(time.Hour),
		},
		Policy:    Policy{OutcomeUnknown: parley.OutcomeLookup, Silence: 5 * time.Minute, OnOpen: parley.OnOpenFail},
		State:     AttemptOpen,
		VisibleAt: epoch,
	}
}

// claimed is an attempt that is born claimed by c.
func claimed(a Attempt, c Claim) Attempt {
	a.State, a.Claim, a.ClaimedAt = AttemptClaimed, c, epoch
	return a
}

// start gives a start of a run with the attempts of its first steps.
func start(run string, attempts ...Attempt) Start {
	events := []parley.Event{event(run, 1, parley.EventRunStarted, "")}
	for _, a := range attempts {
		events = append(events, event(run, int64(len(events))+1, parley.EventStepScheduled, a.Step))
	}
	return Start{
		Run: Run{
			ID: run, Workflow: "greet", Name: "Greet", Version: "1", DefinitionID: "def-1",
			Seq: int64(len(events)), Status: parley.RunRunning, CreatedAt: epoch, UpdatedAt: epoch, StartedAt: epoch,
			Due: epoch.Add(30 * 24 * time.Hour),
		},
		Events:   events,
		Attempts: attempts,
	}
}

// begin starts a run and gives its row.
func begin(t testing.TB, db *DB, run string, attempts ...Attempt) Run {
	t.Helper()
	st := start(run, attempts...)
	existing, err := db.StartRun(t.Context(), st)
	check(t, err)
	if existing != "" {
		t.Fatalf("run %s is %s already", run, existing)
	}
	return st.Run
}

// next gives a decision with n events about a run as seen.
func next(seen Run, n int) Decision {
	d := Decision{Run: seen, Seen: seen.Seq}
	for range n {
		d.Run.Seq++
		d.Events = append(d.Events, event(seen.ID, d.Run.Seq, parley.EventStepCompleted, "a"))
	}
	d.Run.UpdatedAt = epoch.Add(time.Second)
	return d
}

func okResult(task, output string) parley.Result {
	return parley.Result{TaskID: task, Outcome: parley.OutcomeOK, Output: json.RawMessage(output)}
}

func failed(task string, outcome parley.Outcome, code parley.Code) *parley.Result {
	return &parley.Result{TaskID: task, Outcome: outcome, Err: parley.Errorf(code, "it failed")}
}

func answer(task, output string) Answer {
	return Answer{Result: okResult(task, output), At: epoch.Add(time.Second), From: "b1"}
}

// row gives one attempt of a run.
func row(t testing.TB, db *DB, task string) Attempt {
	t.Helper()
	var list []Attempt
	check(t, db.read(t.Context(), `SELECT `+attemptColumns+` FROM attempt WHERE id = ?`, attemptList(&list), task))
	if len(list) != 1 {
		t.Fatalf("%d attempts %s", len(list), task)
	}
	return list[0]
}

// whole gives one attempt of a run with its values.
func whole(t testing.TB, db *DB, run, task string) Attempt {
	t.Helper()
	for _, a := range must(db.Attempts(t.Context(), run))(t) {
		if a.ID == task {
			return a
		}
	}
	t.Fatalf("there is no attempt %s", task)
	return Attempt{}
}

// bridge registers a bridge and gives its claim without a token.
func bridge(t testing.TB, db *DB, name string) Claim {
	t.Helper()
	return Claim{Worker: name, Inc: must(db.Register(t.Context(), name, epoch))(t)}
}

// claim claims an attempt, which has to succeed.
func claim(t testing.TB, db *DB, c Claim, task, token string) Claim {
	t.Helper()
	list := must(db.Claim(t.Context(), c, []ClaimRequest{{TaskID: task, Token: token}}, epoch))(t)
	if len(list) != 1 || list[0].ID != task {
		t.Fatalf("claimed %v instead of %s", list, task)
	}
	c.Token = token
	return c
}

// dump gives every row of every table as text, to see that nothing was written.
func dump(t testing.TB, db *DB, more ...string) string {
	t.Helper()
	var out strings.Builder
	for _, table := range append([]string{"run", "event", "attempt", "worker", "late", "definition", "agents"}, more...) {
		check(t, db.read(t.Context(), `SELECT * FROM `+table+` ORDER BY 1, 2`, func(r *record) error {
			fmt.Fprintf(&out, "%s %v\n", table, r.values)
			return nil
		}))
	}
	return out.String()
}

// TestLongestPath: a step of which the path is as long as the engine lets it be can be
// called, also if nothing in it repeats: an index of PostgreSQL takes 2,704 bytes.
func TestLongestPath(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		const run = "run-01890a5d-ac96-774b-bcce-b302099a8057"
		var path strings.Builder
		for n := uint32(1); len(run)+path.Len() <= 2_650-3; n++ {
			path.WriteRune(rune(0x4E00 + n*2654435761%0x5000)) // words of no language
		}
		begin(t, db, run, attempt(run, path.String(), 10_000))
	})
}
