package values_test

import (
	"context"
	"errors"
	"path/filepath"
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
