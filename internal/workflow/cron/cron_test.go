package cron_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley/internal/workflow/cron"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	when, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return when
}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := cron.Zone(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// TestCronNext has the firings of a few specifications, written down by hand.
func TestCronNext(t *testing.T) {
	for _, c := range []struct{ spec, zone, after, want string }{
		{"0 2 * * *", "UTC", "2026-01-01T00:00:00Z", "2026-01-01T02:00:00Z 2026-01-02T02:00:00Z"},
		{"0 2 * * *", "UTC", "2026-01-01T02:00:00Z", "2026-01-02T02:00:00Z"},
		{"0 2 * * *", "UTC", "2026-01-01T01:59:59.999Z", "2026-01-01T02:00:00Z"},
		{"*/20 9-10 * * mon-fri", "Europe/Berlin", "2026-01-02T09:20:00Z", "2026-01-02T09:40:00Z 2026-01-05T08:00:00Z 2026-01-05T08:20:00Z"},
		{"0 0 * * 7", "UTC", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z 2026-01-11T00:00:00Z"},
		{"0 0 * * 0", "UTC", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"},
		{"0 0 * * FRI-sun", "UTC", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z 2026-01-03T00:00:00Z 2026-01-04T00:00:00Z 2026-01-09T00:00:00Z"},
		{"5/25 0 1 JAN,mar *", "UTC", "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z 2026-01-01T00:30:00Z 2026-01-01T00:55:00Z 2026-03-01T00:05:00Z"},
		// Either of two days will do, unless one of the fields begins with *.
		{"0 0 13 * fri", "UTC", "2026-03-01T00:00:00Z", "2026-03-06T00:00:00Z 2026-03-13T00:00:00Z 2026-03-20T00:00:00Z 2026-03-27T00:00:00Z 2026-04-03T00:00:00Z 2026-04-10T00:00:00Z 2026-04-13T00:00:00Z"},
		{"0 0 */2 * fri", "UTC", "2026-03-01T00:00:00Z", "2026-03-13T00:00:00Z 2026-03-27T00:00:00Z"},
		{"0 0 31 2 fri", "UTC", "2026-01-31T00:00:00Z", "2026-02-06T00:00:00Z"},
		{"0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"},
		{"0 0 31 * *", "UTC", "2026-01-31T00:00:00Z", "2026-03-31T00:00:00Z 2026-05-31T00:00:00Z"},
	} {
		spec, err := cron.Parse(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		after := at(t, c.after)
		for want := range strings.FieldsSeq(c.want) {
			next, ok := spec.Next(after, zone(t, c.zone))
			if got := next.Format(time.RFC3339); !ok || got != want {
				t.Errorf("%s in %s after %s: %s, want %s", c.spec, c.zone, c.after, got, want)
			}
			after = next
		}
	}
}

// TestScheduleClockChanges holds firings to the rule about local times that do not
// exist and that exist twice.
func TestScheduleClockChanges(t *testing.T) {
	for _, c := range []struct{ spec, zone, after, want string }{
		// 02:00 to 03:00 is missing on 2026-03-29.
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z 2026-03-30T00:30:00Z"},
		{"*/20 * * * *", "Europe/Berlin", "2026-03-29T00:40:00Z", "2026-03-29T01:00:00Z 2026-03-29T01:20:00Z"},
		{"0 3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z 2026-03-30T01:00:00Z"},
		// 02:00 to 03:00 comes twice on 2026-10-25.
		{"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z 2026-10-26T01:30:00Z"},
		{"*/30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z 2026-10-25T02:00:00Z"},
		{"30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", "2026-10-26T01:30:00Z"},
		{"0 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", "2026-11-01T05:00:00Z 2026-11-02T06:00:00Z"},
		// Half an hour, at a full hour and not.
		{"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", "2026-10-03T15:30:00Z"},
		{"45 1 * * *", "Australia/Lord_Howe", "2026-04-03T20:00:00Z", "2026-04-04T14:45:00Z 2026-04-05T15:15:00Z"},
		// Clocks that change at midnight.
		{"0 0 * * *", "America/Santiago", "2026-09-05T12:00:00Z", "2026-09-06T04:00:00Z 2026-09-07T03:00:00Z"},
		{"30 23 * * *", "America/Santiago", "2026-04-04T12:00:00Z", "2026-04-05T02:30:00Z 2026-04-06T03:30:00Z"},
		// A day that was left out.
		{"0 12 * * *", "Pacific/Apia", "2011-12-29T23:00:00Z", "2011-12-30T10:00:00Z 2011-12-30T22:00:00Z"},
		{"0 12 30 12 *", "Pacific/Apia", "2011-12-29T00:00:00Z", "2011-12-30T10:00:00Z 2012-12-29T22:00:00Z"},
	} {
		spec, err := cron.Parse(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		after := at(t, c.after)
		for want := range strings.FieldsSeq(c.want) {
			next, ok := spec.Next(after, zone(t, c.zone))
			if got := next.Format(time.RFC3339); !ok || got != want {
				t.Errorf("%s in %s after %s: %s, want %s", c.spec, c.zone, after.Format(time.RFC3339), got, want)
			}
			after = next
		}
	}
}

// walk gives the firings after an instant up to another, minute by minute: each
// local minute that the clocks show for the first time, or jump over, and that
// fits.
func walk(fits func(time.Time) bool, from, to time.Time, zone *time.Location) (all []time.Time) {
	local := func(t time.Time) time.Time {
		_, offset := t.In(zone).Zone()
		return t.UTC().Add(time.Duration(offset) * time.Second)
	}
	begin := from.Add(-4 * 24 * time.Hour)
	shown := local(begin)
	for clock := begin.Add(time.Minute); !clock.After(to); clock = clock.Add(time.Minute) {
		fires := false
		for ; shown.Before(local(clock)); shown = shown.Add(time.Minute) {
			fires = fires || fits(shown.Add(time.Minute))
		}
		if fires && clock.After(from) {
			all = append(all, clock.UTC())
		}
	}
	return all
}

// TestScheduleProperty compares firings with those of a walk through the minutes,
// around every change of the clocks in every zone.
func TestScheduleProperty(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	specs := []struct {
		text string
		fits func(time.Time) bool
	}{
		{"*/7 * * * *", func(t time.Time) bool { return t.Minute()%7 == 0 }},
		{"15,45 0-4,23 * * *", func(t time.Time) bool { return t.Minute()%30 == 15 && (t.Hour() < 5 || t.Hour() == 23) }},
		{"30 2 * * *", func(t time.Time) bool { return t.Hour() == 2 && t.Minute() == 30 }},
		{"0 0 * * *", func(t time.Time) bool { return t.Hour() == 0 && t.Minute() == 0 }},
		{"0 1 */2 * sun", func(t time.Time) bool {
			return t.Hour() == 1 && t.Minute() == 0 && t.Day()%2 == 1 && t.Weekday() == time.Sunday
		}},
		{"1 3 28-31 * 6,7", func(t time.Time) bool {
			return t.Hour() == 3 && t.Minute() == 1 && (t.Day() >= 28 || t.Weekday() == time.Sunday || t.Weekday() == time.Saturday)
		}},
	}
	changes := 0
	for _, name := range zoneNames(t) {
		z := zone(t, name)
		all := transitions(z)
		changes += len(all)
		if len(all) == 0 {
			all = []time.Time{at(t, "2026-03-01T00:00:00Z")}
		}
		for range 3 {
			when := all[random.IntN(len(all))].Truncate(time.Minute)
			from := when.Add(-time.Duration(random.IntN(1500)) * time.Minute)
			to := when.Add(30 * time.Hour)
			s := specs[random.IntN(len(specs))]
			compare(t, s.text, walk(s.fits, from, to, z), [2]time.Time{from, to}, z)
		}
	}
	if changes < 5000 {
		t.Errorf("%d changes of clocks were found", changes)
	}
}

func compare(t *testing.T, text string, want []time.Time, span [2]time.Time, z *time.Location) {
	t.Helper()
	spec, err := cron.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	after := span[0]
	for _, w := range want {
		next, ok := spec.Next(after, z)
		if !ok || !next.Equal(w) {
			t.Errorf("%s in %s after %s: %s, want %s", text, z, after.Format(time.RFC3339), next.Format(time.RFC3339), w.Format(time.RFC3339))
			return
		}
		after = next
	}
	if next, ok := spec.Next(after, z); ok && !next.After(span[1]) {
		t.Errorf("%s in %s after %s: %s, want none up to %s", text, z, after.Format(time.RFC3339), next.Format(time.RFC3339), span[1].Format(time.RFC3339))
	}
}

// transitions are the changes of a zone's clocks from 1980 to 2040.
func transitions(z *time.Location) (all []time.Time) {
	end := time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
	for from := time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC).In(z); ; {
		_, next := from.ZoneBounds()
		if next.IsZero() || next.After(end) {
			return all
		}
		all = append(all, next)
		from = next
	}
}

// TestZone refuses what is none.
func TestZone(t *testing.T) {
	for _, name := range []string{"", "Local", "Mars/Olympus", "../etc/passwd", "/etc/localtime", strings.Repeat("a", 100), "+02:00", "CEST"} {
		if z, err := cron.Zone(name); err == nil {
			t.Errorf("%q is the zone %s", name, z)
		}
	}
}

// FuzzCron reads anything, and what it has read has firings that come one after
// another.
func FuzzCron(f *testing.F) {
	for _, s := range []string{"* * * * *", "*/5 1-2 1,2 jan-dec sun-7", "0 0 29 2 */7", "5/7 ? L # @daily", "0 0 31 2,4 0-7/3"} {
		f.Add(s, int64(1_800_000_000))
	}
	z := zone(f, "America/New_York")
	f.Fuzz(func(t *testing.T, text string, unix int64) {
		spec, err := cron.Parse(text)
		if err != nil {
			return
		}
		after := time.Unix(unix%(1<<33), 0)
		first, ok := spec.Next(after, z)
		if !ok {
			t.Fatalf("%q has no firing after %s", text, after)
		}
		second, ok := spec.Next(first, z)
		if !first.After(after) || !ok || !second.After(first) {
			t.Fatalf("%q after %s: %s, %s", text, after, first, second)
		}
	})
}
