package store

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
	"github.com/parley-project/parley/internal/values/files"
)

// BenchmarkLargeValues is a run of 50 steps whose outputs are large, each in its
// attempt and in its event, written and then loaded: with the values in the
// database, and apart in files.
func BenchmarkLargeValues(b *testing.B) {
	server := pgtest.Start(b, pgtest.Options{Durable: true})
	for _, size := range []int{16 << 10, 64 << 10, 256 << 10, 1 << 20} {
		for _, apart := range []bool{false, true} {
			o := Options{}
			how := "inline"
			if apart {
				o.Values, o.ApartAbove, how = files.Open(filepath.Join(b.TempDir(), "values")), 1<<10, "apart"
			}
			b.Run(fmt.Sprintf("sqlite/%dKiB/%s", size>>10, how), func(b *testing.B) {
				file := newTarget(b)
				largeValues(b, reopen(b, file, o), size, func() int64 {
					info, err := os.Stat(file)
					check(b, err)
					return info.Size()
				})
			})
			b.Run(fmt.Sprintf("postgres/%dKiB/%s", size>>10, how), func(b *testing.B) {
				server.Exec(`DROP DATABASE IF EXISTS bench`)
				server.Exec(`CREATE DATABASE bench`)
				db := reopen(b, server.URL("bench"), o)
				largeValues(b, db, size, func() (n int64) {
					check(b, db.read(context.Background(), `SELECT pg_database_size(current_database())`, func(r *record) error { n = r.int(); return nil }))
					return n
				})
				check(b, db.Close())
			})
		}
	}
}

const largeSteps = 50

func largeValues(b *testing.B, db *DB, size int, databaseSize func() int64) {
	b.Helper()
	c := bridge(b, db, "b1")
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			largeRun(b, db, c, size)
			n++
		}
		b.ReportMetric(float64(databaseSize())/float64(n)/(1<<20), "database-MiB/run")
		b.ReportMetric(largeSteps*float64(n)/b.Elapsed().Seconds(), "steps/s")
	})
	id := largeRun(b, db, c, size)
	b.Run("load", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			must(db.History(b.Context(), id))(b)
		}
	})
	b.Run("list", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			must(db.EventValues(b.Context(), []EventMember{{id, 2, "output"}}))(b)
		}
	})
}

func largeRun(b *testing.B, db *DB, c Claim, size int) string {
	b.Helper()
	id := fmt.Sprintf("run-%x", rand.Uint64())
	born := func(step int) Attempt {
		c.Token = fmt.Sprintf("%s-%d", id, step)
		return claimed(attempt(id, fmt.Sprintf("step-%d", step), 1), c)
	}
	a := born(1)
	st := start(id, a)
	st.Events, st.Run.Seq = st.Events[:1], 1
	if _, err := db.StartRun(b.Context(), st); err != nil {
		b.Fatal(err)
	}
	run := st.Run
	letters := make([]byte, size)
	for step := 1; step <= largeSteps; step++ {
		for i := 0; i+8 <= size; i += 8 { // words that no database can press together
			x := rand.Uint64()
			for k := range 8 {
				letters[i+k] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-"[x>>(8*k)&63]
			}
		}
		output := fmt.Sprintf(`{"text":"%s"}`, letters)
		d := next(run, 1)
		d.Events[0].Data = withValue(`{"kind":"agent","output":VALUE}`, json.RawMessage(output))
		ans := answer(a.ID, output)
		d.Answer, d.Close = &ans, []Close{{TaskID: a.ID, Absorb: true}}
		if step < largeSteps {
			a = born(step + 1)
			d.Insert = []Attempt{a}
		} else {
			d.Run.Status, d.Run.EndedAt, d.Run.Due = parley.RunCompleted, epoch, epoch
		}
		check(b, db.Decide(b.Context(), d))
		run = d.Run
	}
	return id
}
