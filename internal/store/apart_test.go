package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
	"github.com/parley-project/parley/internal/values"
	"github.com/parley-project/parley/internal/values/files"
)

const apartLimit = 1000

// spy is a store of values that counts, and that can be away.
type spy struct {
	values.Store
	mu        sync.Mutex
	puts      []string
	gets      []string
	down      error
	beforePut func()
}

func (s *spy) Put(ctx context.Context, name string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.beforePut != nil {
		s.beforePut()
	}
	if s.down != nil {
		return s.down
	}
	s.puts = append(s.puts, name)
	return s.Store.Put(ctx, name, value)
}

func (s *spy) Get(ctx context.Context, name string, most int64) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil {
		return nil, s.down
	}
	s.gets = append(s.gets, name)
	return s.Store.Get(ctx, name, most)
}

func (s *spy) Mark(ctx context.Context, mark []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil {
		return nil, s.down
	}
	return s.Store.Mark(ctx, mark)
}

func (s *spy) counts(t *testing.T, puts, gets int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.puts) != puts || len(s.gets) != gets {
		t.Fatalf("%d written, %d fetched; want %d and %d", len(s.puts), len(s.gets), puts, gets)
	}
	s.puts, s.gets = nil, nil
}

func (s *spy) set(down error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// eachApart runs a test on every database, with values apart above apartLimit.
func eachApart(t *testing.T, f func(t *testing.T, db *DB, s *spy)) {
	t.Helper()
	on := func(open func(t *testing.T, o Options) *DB) func(t *testing.T) {
		return func(t *testing.T) {
			s := &spy{Store: files.Open(filepath.Join(t.TempDir(), "values"))}
			f(t, open(t, Options{Writers: 1, Values: s, ApartAbove: apartLimit}), s)
		}
	}
	t.Run("sqlite", on(func(t *testing.T, o Options) *DB { return newDB(t, o) }))
	t.Run("postgres", on(func(t *testing.T, o Options) *DB { return openedAt(t, pgtest.Copy(t, migrated(t)), o) }))
}

// large is JSON of many bytes, other ones for each n.
func large(n int) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"n":%d,"text":"%s"}`, n, strings.Repeat("x", 5000)))
}

func withValue(data string, v json.RawMessage) json.RawMessage {
	return json.RawMessage(strings.Replace(data, "VALUE", string(v), 1))
}

// bigRun starts a run whose input, and the input of whose step, are large(1).
func bigRun(t *testing.T, db *DB, run string) Run {
	t.Helper()
	a := attempt(run, "a", 1)
	a.Input = large(1)
	st := start(run, a)
	st.Events[0].Data = withValue(`{"workflow" : "greet", "input": VALUE ,"labels":{}}`, large(1))
	st.Events[1].Data = withValue(`{"input":VALUE}`, large(1))
	if _, err := db.StartRun(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	return st.Run
}

// answered is the decision that takes the answer large(2) of the step of bigRun.
func answered(run Run) Decision {
	d := next(run, 2)
	d.Events[0].Data = withValue(`{"output":VALUE}`, large(2))
	d.Events[1].Data = withValue(`{"output":VALUE}`, large(2))
	d.Close = []Close{{TaskID: run.ID + ".a.1", Absorb: true}}
	return d
}

// A value is written once for a run, wherever it stands, and comes back byte for
// byte from wherever it is asked for.
func TestApartOncePerRun(t *testing.T) {
	eachApart(t, func(t *testing.T, db *DB, s *spy) {
		c := bridge(t, db, "b1")
		run := bigRun(t, db, "run-1")
		s.counts(t, 1, 0) // in two events and an attempt
		claim(t, db, c, "run-1.a.1", "t1")
		s.counts(t, 0, 1)
		ans := answer("run-1.a.1", string(large(2)))
		for range 2 { // its reply may have been lost
			if !must(db.Answer(t.Context(), ans))(t) {
				t.Fatal("the answer was not taken")
			}
		}
		s.counts(t, 1, 0)
		d := answered(run)
		check(t, db.Decide(t.Context(), d))
		s.counts(t, 0, 0)

		h := must(db.History(t.Context(), "run-1"))(t)
		s.counts(t, 0, 2) // each once
		diff(t, string(h.Events[0].Data), string(withValue(`{"workflow" : "greet", "input": VALUE ,"labels":{}}`, large(1))))
		diff(t, string(h.Events[1].Data), string(withValue(`{"input":VALUE}`, large(1))))
		diff(t, string(h.Events[2].Data), string(d.Events[0].Data))
		diff(t, string(h.Events[3].Data), string(d.Events[1].Data))
		diff(t, must(db.Events(t.Context(), "run-1", 0, 0))(t), h.Events)
		list := must(db.Attempts(t.Context(), "run-1"))(t)
		diff(t, string(list[0].Input), string(large(1)))
		diff(t, string(list[0].Result.Output), string(large(2)))
		a, _, err := db.Attempt(t.Context(), "run-1.a.1")
		check(t, err)
		list[0].Input = nil // who asks how it has ended does not fetch that
		diff(t, a, list[0])

		bigRun(t, db, "run-2") // which has objects of its own
		s.counts(t, 1, 5)
	})
}

// Lists, logs and publications show what values there are without fetching them.
func TestApartNotFetchedForLists(t *testing.T) {
	eachApart(t, func(t *testing.T, db *DB, s *spy) {
		run := bigRun(t, db, "run-1")
		bigRun(t, db, "run-2")
		s.set(errors.New("away"))
		open := must(db.Publish(t.Context(), epoch.Add(time.Second), 10))(t)
		diff(t, len(open), 2)
		if open[0].Input != nil || open[0].InputApart == nil || open[0].InputApart.Size != int64(len(large(1))) {
			t.Errorf("published: %+v", open[0])
		}
		_, total, err := db.Runs(t.Context(), parley.RunQuery{})
		check(t, err)
		diff(t, total, 2)
		log, _, err := db.AttemptLog(t.Context(), parley.AttemptQuery{Run: "run-1"})
		check(t, err)
		diff(t, log[0].RequestBytes, int64(len(large(1))))
		if log[0].Request != nil {
			t.Errorf("the log shows %s", log[0].Request)
		}
		values := must(db.EventValues(t.Context(), []EventMember{{"run-1", 1, "input"}, {"run-1", 1, "workflow"}, {"run-1", 9, "workflow"}, {"run-9", 1, "input"}}))(t)
		diff(t, values, []EventValue{{Apart: int64(len(large(1)))}, {Value: json.RawMessage(`"greet"`)}, {}, {}})
		s.set(nil)
		s.counts(t, 2, 0)
		check(t, db.Decide(t.Context(), next(run, 1)))
	})
}

// A value that cannot be fetched now is an error to be tried again, one that is
// gone or altered another; a wrong value is never given. Tasks that need it wait,
// others go on.
func TestApartNeverAWrongValue(t *testing.T) {
	eachApart(t, func(t *testing.T, db *DB, s *spy) {
		c := bridge(t, db, "b1")
		bigRun(t, db, "run-1")
		begin(t, db, "run-2", attempt("run-2", "a", 1))
		object := s.puts[0]
		reqs := []ClaimRequest{{TaskID: "run-1.a.1", Token: "t1"}, {TaskID: "run-2.a.1", Token: "t2"}}

		s.set(errors.New("away"))
		_, err := db.History(t.Context(), "run-1")
		wantCode(t, err, parley.CodeUnavailable)
		_, err = db.Events(t.Context(), "run-1", 0, 0)
		wantCode(t, err, parley.CodeUnavailable)
		list := must(db.Claim(t.Context(), c, reqs, epoch))(t)
		if len(list) != 1 || list[0].ID != "run-2.a.1" {
			t.Errorf("claimed %v", list)
		}
		diff(t, len(must(db.Owned(t.Context(), c.Worker, c.Inc))(t)), 2) // so its owner gives it back
		s.set(nil)
		diff(t, len(must(db.Claim(t.Context(), c, reqs, epoch))(t)), 2)

		put := func(v []byte) {
			check(t, s.Delete(t.Context(), object))
			check(t, s.Store.Put(t.Context(), object, v))
		}
		wrong := bytes.Replace(large(1), []byte("xx"), []byte("xy"), 1)
		for _, bad := range [][]byte{wrong, large(1)[1:], append(bytes.Clone(large(1)), ' '), {}} {
			put(bad)
			_, err = db.History(t.Context(), "run-1")
			wantCode(t, err, parley.CodeInternal)
		}
		for _, part := range []string{"run-1", "event 1", object, "altered"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q is not in: %v", part, err)
			}
		}
		check(t, s.Delete(t.Context(), object))
		_, err = db.Attempts(t.Context(), "run-1")
		wantCode(t, err, parley.CodeInternal)
		for _, part := range []string{"run-1", "the input of run-1.a.1", object, "gone"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q is not in: %v", part, err)
			}
		}
		put(large(1))
		must(db.History(t.Context(), "run-1"))(t)
	})
}

// While the store of values cannot be written to, values stay in the database.
func TestApartStoreDownKeepsWriting(t *testing.T) {
	eachApart(t, func(t *testing.T, db *DB, s *spy) {
		s.set(errors.New("away"))
		c := bridge(t, db, "b1")
		run := bigRun(t, db, "run-1")
		claim(t, db, c, "run-1.a.1", "t1")
		if !must(db.Answer(t.Context(), answer("run-1.a.1", string(large(2)))))(t) {
			t.Fatal("the answer was not taken")
		}
		s.set(nil)
		check(t, db.Decide(t.Context(), answered(run)))
		if !must(db.Answer(t.Context(), answer("run-1.a.1", string(large(2)))))(t) {
			t.Error("an answer whose reply was lost is late") // its words are apart now
		}
		h := must(db.History(t.Context(), "run-1"))(t)
		diff(t, string(h.Events[1].Data), string(withValue(`{"input":VALUE}`, large(1))))
		diff(t, string(h.Events[2].Data), string(withValue(`{"output":VALUE}`, large(2))))

		ctx, cancel := context.WithCancel(t.Context())
		s.beforePut = cancel
		d := answered(answered(run).Run)
		d.Close = nil
		d.Events[0].Data = large(7)
		if err := db.Decide(ctx, d); !errors.Is(err, context.Canceled) {
			t.Errorf("after the end of its context: %v", err)
		}
	})
}

// Bytes that look like a reference are a value, in every column.
func TestApartOpaqueBytes(t *testing.T) {
	eachApart(t, func(t *testing.T, db *DB, _ *spy) {
		var all [256]byte
		for i := range all {
			all[i] = byte(i)
		}
		some, err := json.Marshal(Apart{values.Name(digestOf(nil), "00"), 0, digestOf(nil)})
		check(t, err)
		list := [][]byte{
			{0},
			{0, 0},
			{0, 'v'},
			{0, 'r'},
			append([]byte{0, 'r'}, some...), append([]byte{0, 'v', 0, 'r'}, some...), all[:],
			bytes.Repeat([]byte{0}, apartLimit+1), bytes.Repeat([]byte{0, 'v'}, apartLimit), bytes.Repeat(all[:], 100), []byte(`{"cuts":[{"at":0}]}`),
		}
		c := bridge(t, db, "b1")
		for i, v := range list {
			run := fmt.Sprintf("run-%d", i)
			a := attempt(run, "a", 1)
			a.Input = v
			begin(t, db, run, a)
			claim(t, db, c, a.ID, "t")
			for range 2 {
				if !must(db.Answer(t.Context(), answer(a.ID, string(v))))(t) {
					t.Errorf("value %d: the answer was not taken", i)
				}
			}
			got := whole(t, db, run, a.ID)
			if !bytes.Equal(got.Input, v) || !bytes.Equal(got.Result.Output, v) {
				t.Errorf("value %d came back as %q and %q", i, got.Input, got.Result.Output)
			}
			log, _, err := db.AttemptLog(t.Context(), parley.AttemptQuery{Run: run})
			check(t, err)
			diff(t, log[0].RequestBytes, int64(len(v)))
			if len(v) <= apartLimit {
				diff(t, []byte(log[0].Response), v)
			}
		}
	})
}

// Data of events comes back byte for byte, whatever its form.
func TestApartEventData(t *testing.T) {
	long := `"` + strings.Repeat(`\u0041\"`, 400) + `"`
	list := []string{
		`null`, `0`, `{}`, long, `[` + long + `]`, `{"a":` + long + `}`, "{ \"a\" :\t" + long + " , \"b\":1,\n\"c\":" + long + "}",
		`{"a":` + long + `,"a":` + long + `}`, `{"\u0061":` + long + `,"b":{"a":` + long + `}}`, `{"a":"` + strings.Repeat("b", 600) + `","b":"` + strings.Repeat("c", 600) + `"}`,
		`{"a":0,"b":` + long + `,"cuts":[0],"data":0}`, strings.Repeat("7", 3000),
	}
	eachApart(t, func(t *testing.T, db *DB, s *spy) {
		run := begin(t, db, "run-1")
		d := next(run, len(list))
		for i, v := range list {
			d.Events[i].Data = json.RawMessage(v)
		}
		check(t, db.Decide(t.Context(), d))
		for limit := range 3 {
			events := must(db.Events(t.Context(), "run-1", 1, limit))(t)
			for i, e := range events {
				if string(e.Data) != list[i] {
					t.Errorf("%s came back as %s", list[i], e.Data)
				}
			}
		}
		last := must(db.Events(t.Context(), "run-1", int64(len(list)), 1))(t)
		diff(t, string(last[0].Data), list[len(list)-1])
	})
}

// With a limit of 0 nothing is kept apart, and what was can be read.
func TestApartOff(t *testing.T) {
	dir, target := t.TempDir(), newTarget(t)
	s := &spy{Store: files.Open(dir)}
	db := reopen(t, target, Options{Values: s, ApartAbove: apartLimit})
	bigRun(t, db, "run-1")
	check(t, db.Close())
	s.counts(t, 1, 0)
	db = reopen(t, target, Options{Values: s})
	bigRun(t, db, "run-2")
	must(db.History(t.Context(), "run-1"))(t)
	s.counts(t, 0, 1)
	check(t, db.Close())
	db = reopen(t, target, Options{})
	_, err := db.History(t.Context(), "run-1")
	wantCode(t, err, parley.CodeInvalid)
	must(db.History(t.Context(), "run-2"))(t)
	diff(t, len(objects(t, s)), 1)
}

// A list of 1,000 runs with large values takes memory for the runs, not for their
// values.
func TestApartListMemory(t *testing.T) {
	const runs, size = 1000, 100_000
	s := &spy{Store: &sink{}}
	db := newDB(t, Options{Values: s, ApartAbove: apartLimit})
	text := strings.Repeat("x", size)
	for i := range runs {
		st := start(fmt.Sprintf("run-%d", i))
		st.Events[0].Data = json.RawMessage(fmt.Sprintf(`{"input":{"n":%d,"text":"%s"}}`, i, text))
		if _, err := db.StartRun(t.Context(), st); err != nil {
			t.Fatal(err)
		}
	}
	s.counts(t, runs, 0)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for offset := 0; offset < runs; offset += 500 {
		page, _, err := db.Runs(t.Context(), parley.RunQuery{Page: parley.Page{Limit: 500, Offset: offset}})
		check(t, err)
		diff(t, len(page), 500)
		for _, r := range page {
			if n := must(db.EventValues(t.Context(), []EventMember{{r.ID, 1, "input"}}))(t)[0].Apart; n < size {
				t.Fatalf("%d bytes", n)
			}
		}
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > runs*size/5 {
		t.Errorf("%d bytes for values of %d", used, runs*size)
	}
}

// sink forgets what it is given.
type sink struct{ values.Store }

func (*sink) Put(context.Context, string, []byte) error { return nil }

func (*sink) Mark(_ context.Context, mark []byte) ([]byte, error) { return mark, nil }
