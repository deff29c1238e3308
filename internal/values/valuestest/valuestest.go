// Package valuestest is the contract of values.Store: every store passes it.
package valuestest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parley-project/parley/internal/values"
)

// NameOf is a name for a value.
func NameOf(value []byte, nonce string) string {
	sum := sha256.Sum256(value)
	return values.Name(hex.EncodeToString(sum[:]), nonce)
}

// Run holds a store, which is empty, to the contract.
func Run(t *testing.T, open func(t *testing.T) values.Store) {
	t.Helper()
	t.Run("bytes", func(t *testing.T) { keepsBytes(t, open(t)) })
	t.Run("gone", func(t *testing.T) { saysWhatIsGone(t, open(t)) })
	t.Run("longer", func(t *testing.T) { readsNoMore(t, open(t)) })
	t.Run("list", func(t *testing.T) { lists(t, open(t)) })
	t.Run("names", func(t *testing.T) { refusesNames(t, open(t)) })
	t.Run("concurrent", func(t *testing.T) { takesMany(t, open(t)) })
	t.Run("mark", func(t *testing.T) { keepsItsMark(t, open(t)) })
	t.Run("marks", func(t *testing.T) {
		for range 20 {
			takesOneMark(t, open(t))
		}
	})
	t.Run("context", func(t *testing.T) { endsWithContext(t, open(t)) })
}

func keepsBytes(t *testing.T, s values.Store) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for i, v := range [][]byte{{}, {0}, all, bytes.Repeat(all, 4<<10), bytes.Repeat([]byte("\r\n\x00\xff"), 2<<20)} {
		name := NameOf(v, "00")
		check(t, s.Put(t.Context(), name, v))
		got, err := s.Get(t.Context(), name, int64(len(v)))
		check(t, err)
		if !bytes.Equal(got, v) {
			t.Errorf("value %d: %d bytes came back as %d others", i, len(v), len(got))
		}
	}
}

func saysWhatIsGone(t *testing.T, s values.Store) {
	name, other := NameOf([]byte("a"), "00"), NameOf([]byte("a"), "01")
	check(t, s.Put(t.Context(), name, []byte("a")))
	if _, err := s.Get(t.Context(), other, 1); !errors.Is(err, values.ErrGone) {
		t.Errorf("what was never there: %v", err)
	}
	check(t, s.Delete(t.Context(), name))
	check(t, s.Delete(t.Context(), name))
	if _, err := s.Get(t.Context(), name, 1); !errors.Is(err, values.ErrGone) {
		t.Errorf("what was removed: %v", err)
	}
}

func readsNoMore(t *testing.T, s values.Store) {
	v := make([]byte, 1<<20)
	name := NameOf(v, "00")
	check(t, s.Put(t.Context(), name, v))
	if _, err := s.Get(t.Context(), name, int64(len(v))-1); !errors.Is(err, values.ErrLonger) {
		t.Errorf("what is longer: %v", err)
	}
}

func lists(t *testing.T, s values.Store) {
	none, err := s.List(t.Context(), "", 10)
	check(t, err)
	if len(none) != 0 {
		t.Fatalf("%d objects in an empty store", len(none))
	}
	before := time.Now().Add(-time.Minute)
	var want []string
	for i := range 57 {
		v := fmt.Appendf(nil, "%d", i)
		name := NameOf(v, "00")
		check(t, s.Put(t.Context(), name, v))
		want = append(want, name)
	}
	slices.Sort(want)
	for _, limit := range []int{1, 10, 57, 1000} {
		var got []string
		for after := ""; ; {
			page, err := s.List(t.Context(), after, limit)
			check(t, err)
			if len(page) == 0 {
				break
			}
			if len(page) > limit {
				t.Fatalf("%d objects, the limit is %d", len(page), limit)
			}
			for _, o := range page {
				if o.Size < 1 || o.Size > 2 || o.At.Before(before) || o.At.After(time.Now().Add(time.Minute)) {
					t.Fatalf("%+v", o)
				}
				got = append(got, o.Name)
			}
			after = got[len(got)-1]
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: %d objects, want %d, in their order", limit, len(got), len(want))
		}
	}
}

func refusesNames(t *testing.T, s values.Store) {
	good := NameOf([]byte("a"), "00")
	for _, name := range []string{"", "a", "../" + good, good + "/x", "00/../" + good, "/etc/passwd", good[:len(good)-2] + "..", good + "\x00"} {
		if err := s.Put(t.Context(), name, []byte("a")); err == nil {
			t.Errorf("%q was written", name)
		}
		if _, err := s.Get(t.Context(), name, 1); !errors.Is(err, values.ErrGone) {
			t.Errorf("%q: %v", name, err)
		}
		check(t, s.Delete(t.Context(), name))
	}
}

func takesMany(t *testing.T, s values.Store) {
	var g errgroup.Group
	for i := range 16 {
		g.Go(func() error {
			v := bytes.Repeat([]byte{byte(i)}, 100_000)
			name := NameOf(v, "00")
			if err := s.Put(t.Context(), name, v); err != nil {
				return err
			}
			got, err := s.Get(t.Context(), name, int64(len(v)))
			if err == nil && !bytes.Equal(got, v) {
				err = fmt.Errorf("value %d is another one", i)
			}
			return err
		})
	}
	check(t, g.Wait())
}

// keepsItsMark: the first mark stays, and is no object.
func keepsItsMark(t *testing.T, s values.Store) {
	for i := range 3 {
		held, err := s.Mark(t.Context(), fmt.Appendf(nil, "mark %d", i))
		check(t, err)
		if string(held) != "mark 0" {
			t.Errorf("the mark is %q", held)
		}
	}
	list, err := s.List(t.Context(), "", 10)
	check(t, err)
	if len(list) != 0 {
		t.Errorf("%d objects beside the mark", len(list))
	}
	check(t, s.Delete(t.Context(), values.MarkName))
	name := NameOf([]byte("a"), "00")
	check(t, s.Put(t.Context(), name, []byte("a")))
	check(t, s.Delete(t.Context(), name))
	held, err := s.Mark(t.Context(), []byte("another"))
	check(t, err)
	if string(held) != "mark 0" || !strings.Contains(s.MarkedAt(), values.MarkName) {
		t.Errorf("the mark at %s is %q", s.MarkedAt(), held)
	}
}

// takesOneMark: of those who come at a time one is taken, and all know which.
func takesOneMark(t *testing.T, s values.Store) {
	held := make([]string, 16)
	begin := make(chan struct{})
	var g errgroup.Group
	for i := range held {
		g.Go(func() error {
			<-begin
			b, err := s.Mark(t.Context(), fmt.Appendf(nil, "mark %d", i))
			held[i] = string(b)
			return err
		})
	}
	close(begin)
	check(t, g.Wait())
	if held = slices.Compact(held); len(held) != 1 || !strings.HasPrefix(held[0], "mark ") {
		t.Errorf("the marks are %q", held)
	}
}

func endsWithContext(t *testing.T, s values.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Put(ctx, NameOf([]byte("a"), "00"), []byte("a")); err == nil {
		t.Error("written after the end")
	}
	if _, err := s.Get(ctx, NameOf([]byte("a"), "00"), 1); err == nil || errors.Is(err, values.ErrGone) {
		t.Errorf("read after the end: %v", err)
	}
	if _, err := s.Mark(ctx, []byte("a")); err == nil {
		t.Error("marked after the end")
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
