package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
)

// schemaRig is a database whose schema is watched, and another program that has it
// open and changes it.
type schemaRig struct {
	*DB
	other *DB
	log   *lineCounter
	// healed counts how often the schema was said to be whole again.
	healed atomic.Int64
	// unwell is what is said then, once, if it is not nil.
	unwell atomic.Pointer[error]
}

// lineCounter is a log that keeps messages.
type lineCounter struct {
	mu    sync.Mutex
	lines []string
}

func (l *lineCounter) Enabled(context.Context, slog.Level) bool { return true }
func (l *lineCounter) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lineCounter) WithGroup(string) slog.Handler            { return l }
func (l *lineCounter) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool { line += fmt.Sprintf(" %s=%v", a.Key, a.Value); return true })
	l.lines = append(l.lines, line)
	return nil
}

// above gives the lines of a level and above, but those about the tests' servers and about
// how fast the machine is.
func (l *lineCounter) above(level slog.Level) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		var at slog.Level
		name, _, _ := strings.Cut(line, " ")
		ofThePlace := strings.Contains(line, "fsync is off") || strings.Contains(line, "a commit was slow")
		if at.UnmarshalText([]byte(name)) == nil && at >= level && !ofThePlace {
			lines = append(lines, line)
		}
	}
	return lines
}

func eachSchemaRig(t *testing.T, f func(t *testing.T, r *schemaRig)) {
	t.Helper()
	begin := func(t *testing.T, target string) {
		r := &schemaRig{log: &lineCounter{}}
		r.other = reopen(t, target, Options{})
		r.DB = openedAt(t, target, Options{Logger: slog.New(r.log)})
		ctx, stop := context.WithCancel(context.Background())
		var ended sync.WaitGroup
		ended.Go(func() {
			_ = r.WatchSchema(ctx, func(context.Context) error {
				r.healed.Add(1)
				if err := r.unwell.Swap(nil); err != nil {
					return *err
				}
				return nil
			})
		})
		t.Cleanup(func() { stop(); ended.Wait() })
		waitUntil(t, "watched", r.schema.watched.Load)
		f(t, r)
	}
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); begin(t, newTarget(t)) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); begin(t, pgtest.Copy(t, migrated(t))) })
}

// schemaWithin is how long the tests wait for a process to notice. The process itself may
// be stopped for a while.
const schemaWithin = time.Minute

func waitUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(schemaWithin); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not %s within %v", what, schemaWithin)
		}
	}
}

// refuses holds every call to the promise that it says the same, and gives it.
func (r *schemaRig) refuses(t *testing.T) string {
	t.Helper()
	ctx := t.Context()
	_, _, read := r.Agents(ctx, parley.AgentQuery{})
	_, _, varied := r.Runs(ctx, parley.RunQuery{Workflow: "w", Text: "x"})
	write := r.CreateAgent(ctx, newAgent("refused"))
	_, register := r.Register(ctx, "b", epoch)
	for i, err := range []error{read, varied, write, register} {
		if !errors.Is(err, ErrSchema) || parley.CodeOf(err) != parley.CodeUnavailable {
			t.Errorf("call %d: %v", i, err)
		}
	}
	said, ok := errors.AsType[*parley.Error](r.SchemaReady())
	if !ok {
		t.Fatalf("the schema is %v", r.SchemaReady())
	}
	return said.Message
}

func (r *schemaRig) wantLines(t *testing.T, want int) {
	t.Helper()
	lines := func() []string { return r.log.above(slog.LevelInfo) }
	waitUntil(t, "logged", func() bool { return len(lines()) >= want }) // what is noted is refused before it is logged
	if got := lines(); len(got) != want {
		t.Errorf("%d lines instead of %d:\n%s", len(got), want, strings.Join(got, "\n"))
	}
}

// Steps that are undone beside a process, and those of a newer program, are noticed
// by it within a second: it refuses with words, has one line, and goes on by itself
// when the schema is its own again.
func TestSchemaIsChangedBeside(t *testing.T) {
	t.Parallel()
	eachSchemaRig(t, func(t *testing.T, r *schemaRig) {
		ctx := t.Context()
		check(t, r.CreateAgent(ctx, newAgent("before")))
		newest := must(r.newest())(t)

		check(t, r.other.MigrateDown(ctx, newest-1))
		waitUntil(t, "noticed", func() bool { return r.SchemaReady() != nil })
		if said := r.refuses(t); !strings.Contains(said, "parley migrate up") || !strings.Contains(said, fmt.Sprint("version ", newest-1)) {
			t.Errorf("it says %q", said)
		}
		r.wantLines(t, 1)
		check(t, r.Ping(ctx)) // the database itself is well
		time.Sleep(2 * schemaEvery)
		r.wantLines(t, 1)

		check(t, r.other.Migrate(ctx))
		waitUntil(t, "whole", func() bool { return r.SchemaReady() == nil })
		r.wantLines(t, 2)
		must(r.Agent(ctx, "before"))(t)
		check(t, r.CreateAgent(ctx, newAgent("after")))
		diff(t, r.healed.Load(), int64(1))

		r.setVersion(t, newest+1)
		waitUntil(t, "noticed", func() bool { return r.SchemaReady() != nil })
		if said := r.refuses(t); !strings.Contains(said, "newer program") {
			t.Errorf("it says %q", said)
		}
		r.wantLines(t, 3)
		r.setVersion(t, 0)
		waitUntil(t, "whole", func() bool { return r.SchemaReady() == nil })
		r.wantLines(t, 4)
		diff(t, r.healed.Load(), int64(1)) // nothing was lost
	})
}

// setVersion has the schema look like that of a newer program; 0 undoes it.
func (r *schemaRig) setVersion(t *testing.T, version int64) {
	t.Helper()
	check(t, r.other.submit(t.Context(), synced, func(s *session) error {
		if version == 0 {
			_, err := s.exec(`DELETE FROM goose_db_version WHERE version_id > ?`, must(r.newest())(t))
			return err
		}
		applied := map[bool]string{true: "true", false: "1"}[r.dialect.guesses]
		_, err := s.exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (?, `+applied+`)`, version)
		return err
	}))
}

// The first statement that meets a changed schema says so, also before the next look.
func TestStatementFindsTheSchemaChanged(t *testing.T) {
	t.Parallel()
	eachSchemaRig(t, func(t *testing.T, r *schemaRig) {
		ctx := t.Context()
		must(r.Register(ctx, "b", epoch))(t)
		check(t, r.other.MigrateDown(ctx, 0))
		r.refuses(t)
		// A look while steps were being undone may have been the last one.
		waitUntil(t, "empty", func() bool { return strings.Contains(fmt.Sprint(r.SchemaReady()), "no schema") })
		if said := r.refuses(t); !strings.Contains(said, "no schema") || !strings.Contains(said, "parley migrate up") {
			t.Errorf("it says %q", said)
		}
		if got := r.log.above(slog.LevelWarn); len(got) != 1 { // steps in between are told below that
			t.Errorf("lines:\n%s", strings.Join(got, "\n"))
		}
		failed := parley.Errorf(parley.CodeUnavailable, "not yet")
		unwell := error(failed)
		r.unwell.Store(&unwell)
		check(t, r.other.Migrate(ctx))
		waitUntil(t, "whole", func() bool { return r.SchemaReady() == nil })
		if n := r.healed.Load(); n != 2 {
			t.Errorf("what is declared was declared %d times: once in vain, once well", n)
		}
		diff(t, must(r.Register(ctx, "b", epoch))(t), int64(1))
	})
}

// A fault of a statement alone is none of the schema.
func TestFaultOfAStatementIsNoneOfTheSchema(t *testing.T) {
	t.Parallel()
	eachSchemaRig(t, func(t *testing.T, r *schemaRig) {
		err := r.read(t.Context(), `SELECT nothing FROM attempt`, func(*record) error { return nil })
		wantCode(t, err, parley.CodeInternal)
		err = r.submit(t.Context(), synced, func(s *session) error { _, err := s.exec(`UPDATE nowhere SET a = 1`); return err })
		wantCode(t, err, parley.CodeInternal)
		check(t, r.SchemaReady())
	})
}

// In a newer schema calls that are under way still end, and none begins.
func TestCallsEndInANewerSchema(t *testing.T) {
	t.Parallel()
	eachSchemaRig(t, func(t *testing.T, r *schemaRig) {
		ctx := t.Context()
		b := bridge(t, r.DB, "b")
		begin(t, r.DB, "run-1", attempt("run-1", "a", 1), attempt("run-1", "b", 1), attempt("run-1", "c", 1))
		first, second, third := claim(t, r.DB, b, "run-1.a.1", "t1"), claim(t, r.DB, b, "run-1.b.1", "t2"), claim(t, r.DB, b, "run-1.c.1", "t3")

		r.setVersion(t, must(r.newest())(t)+1)
		waitUntil(t, "noticed", func() bool { return r.SchemaReady() != nil })
		check(t, r.Beat(ctx, first.Worker, first.Inc))
		diff(t, len(must(r.Owned(ctx, first.Worker, first.Inc))(t)), 3)
		answer := Answer{Result: parley.Result{TaskID: "run-1.a.1", Outcome: parley.OutcomeOK, Output: []byte(`1`)}, At: epoch}
		diff(t, must(r.Answer(ctx, answer))(t), true)
		follow := Move{Kind: MoveFollow, TaskID: "run-1.b.1", From: second, AgentTaskID: "at-agent", At: epoch}
		diff(t, must(r.Move(ctx, follow))(t), true)
		fresh := third
		fresh.Token = "t4"
		_, err := r.Move(ctx, Move{Kind: MoveAgain, TaskID: "run-1.c.1", From: third, To: fresh, At: epoch})
		if !errors.Is(err, ErrSchema) {
			t.Errorf("a call was begun anew: %v", err)
		}
		r.refuses(t)
		r.wantLines(t, 1)
	})
}
