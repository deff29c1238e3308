package values_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/internal/values"
	"github.com/parley-project/parley/internal/values/files"
	"github.com/parley-project/parley/internal/values/valuestest"
)

func TestPatientContract(t *testing.T) {
	valuestest.Run(t, func(t *testing.T) values.Store {
		return values.Patient(files.Open(filepath.Join(t.TempDir(), "values")), time.Now, time.Minute)
	})
}

// scripted gives the same error for every call, and counts them.
type scripted struct {
	values.Store
	err   error
	calls int
	hang  bool
}

func (s *scripted) Get(ctx context.Context, _ string, _ int64) ([]byte, error) {
	s.calls++
	if s.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, s.err
}

// A store that does not answer is asked ever less often, and at once again when
// it has answered.
func TestPatientPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("away")
		s := &scripted{err: away}
		p := values.Patient(s, time.Now, time.Minute)
		ask := func() error { _, err := p.Get(t.Context(), "", 1); return err }
		for range 1000 {
			if err := ask(); !errors.Is(err, away) {
				t.Fatal(err)
			}
		}
		if s.calls != 3 {
			t.Errorf("asked %d times at once", s.calls)
		}
		began := time.Now()
		for s.calls = 0; time.Since(began) < time.Minute; time.Sleep(10 * time.Millisecond) {
			_ = ask()
		}
		if s.calls < 5 || s.calls > 12 {
			t.Errorf("asked %d times in a minute", s.calls)
		}
		s.err = values.ErrGone // an answer
		time.Sleep(20 * time.Second)
		for s.calls = 0; s.calls < 10; {
			if err := ask(); !errors.Is(err, values.ErrGone) {
				t.Fatal(err)
			}
		}
	})
}

// cut is a store whose connections break all at once, and that is well afterwards.
type cut struct {
	values.Store
	under  int64 // how many calls are under way then
	calls  atomic.Int64
	breaks chan struct{}
}

func (s *cut) Get(context.Context, string, int64) ([]byte, error) {
	if s.calls.Add(1) > s.under {
		return []byte("well"), nil
	}
	<-s.breaks
	return nil, errors.New("cut")
}

// Calls that fail together make nobody wait for longer than three of them do: the store
// is asked again after the first pause.
func TestPatientFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &cut{under: 16, breaks: make(chan struct{})}
		p := values.Patient(s, time.Now, time.Minute)
		var calls sync.WaitGroup
		for range s.under {
			calls.Go(func() {
				if _, err := p.Get(t.Context(), "", 1); err == nil {
					t.Error("a call whose connection broke has a value")
				}
			})
		}
		synctest.Wait()
		close(s.breaks)
		calls.Wait()
		began := time.Now()
		for time.Since(began) < time.Hour {
			if _, err := p.Get(t.Context(), "", 1); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("a store that is well was left alone for %s", took)
		}
	})
}

// hanging is a store that says nothing, and counts who waits for it.
type hanging struct {
	values.Store
	waiting atomic.Int64
}

func (s *hanging) Get(ctx context.Context, _ string, _ int64) ([]byte, error) {
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	<-ctx.Done()
	return nil, ctx.Err()
}

// While one finds out whether a store that says nothing answers again, nobody else
// waits for it; if that one gives up, another does.
func TestPatientTriesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &hanging{}
		p := values.Patient(s, time.Now, time.Minute)
		for range 3 {
			if _, err := p.Get(t.Context(), "", 1); err == nil {
				t.Fatal("a store that says nothing has given a value")
			}
		}
		var calls sync.WaitGroup
		ask := func(within time.Duration) {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				_, _ = p.Get(ctx, "", 1)
			})
		}
		for n := range 60 {
			time.Sleep(time.Second)
			within := time.Hour
			if n == 0 {
				within = 4500 * time.Millisecond
			}
			ask(within)
			synctest.Wait()
			if got := s.waiting.Load(); got != 1 {
				t.Errorf("%d wait for it after %d s", got, n)
			}
		}
		calls.Wait()
	})
}

// A call ends in time, and one that its caller gives up says nothing of the store.
func TestPatientEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{hang: true}
		p := values.Patient(s, time.Now, time.Minute)
		began := time.Now()
		if _, err := p.Get(t.Context(), "", 1); err == nil || time.Since(began) != time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, _ = p.Get(ctx, "", 1)
			cancel()
		}
		if s.calls != 11 {
			t.Errorf("asked %d times", s.calls)
		}
	})
}

// Only names that Name makes are names.
func TestValid(t *testing.T) {
	if name := valuestest.NameOf(nil, "0123456789abcdef"); !values.Valid(name) {
		t.Errorf("%q", name)
	}
	for _, name := range []string{"", "ab/cd", valuestest.NameOf(nil, "../../x"), valuestest.NameOf(nil, "")} {
		if values.Valid(name) {
			t.Errorf("%q", name)
		}
	}
}
