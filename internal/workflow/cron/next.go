package cron

import (
	"math/bits"
	"time"
	_ "time/tzdata" // zones are the same in a binary that stands alone
)

// lookAhead bounds the search for the next firing: the 29th of February that is
// a Sunday comes every 28 years, or after 40 where a century has no leap year.
const lookAhead = 41

// widest is more than any two clocks on earth differ.
const widest = 50 * time.Hour

// Next gives the first firing after an instant; ok is false if there is none for
// decades. A local time that does not exist fires at the first instant after the
// gap, one that exists twice at the first of the two.
func (s *Spec) Next(after time.Time, zone *time.Location) (at time.Time, ok bool) {
	local, ok := s.nextLocal(unseen(after.In(zone)))
	if !ok {
		return time.Time{}, false
	}
	return reached(local, zone, after).UTC(), true
}

// naive is the local time of an instant, written as if it were UTC.
func naive(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// unseen gives the least full minute, in local time, that the clocks of the zone
// have not shown up to and including t. After they were put back that is later
// than what they show.
func unseen(t time.Time) time.Time {
	shown := naive(t)
	least := shown.Truncate(time.Minute).Add(time.Minute)
	for begin, _ := t.ZoneBounds(); !begin.IsZero() && t.Sub(begin) < widest; begin, _ = begin.Add(-1).ZoneBounds() {
		_, before := begin.Add(-1).Zone()
		end := begin.UTC().Add(time.Duration(before) * time.Second)
		if end.After(least) {
			least = end
			if whole := end.Truncate(time.Minute); !whole.Equal(end) {
				least = whole.Add(time.Minute)
			}
		}
	}
	return least
}

// reached gives the first instant after another at which the clocks of the zone
// show a local time or a later one.
func reached(local time.Time, zone *time.Location, after time.Time) time.Time {
	at := after
	if early := local.Add(-widest); early.After(at) {
		at = early
	}
	at = at.In(zone)
	for {
		begin, end := at.ZoneBounds()
		_, offset := at.Zone()
		there := local.Add(-time.Duration(offset) * time.Second)
		if !begin.IsZero() && there.Before(begin) {
			there = begin
		}
		if end.IsZero() || there.Before(end) {
			return there
		}
		at = end
	}
}

// nextLocal gives the first time that fits, from a local time on.
func (s *Spec) nextLocal(from time.Time) (time.Time, bool) {
	year, month, day := from.Date()
	minute := from.Hour()*60 + from.Minute()
	for end := year + lookAhead; year < end; {
		d := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
		if s.onDay(d) {
			if m, ok := s.inDay(minute); ok {
				return d.Add(time.Duration(m) * time.Minute), true
			}
		}
		minute = 0
		if s.month&(1<<d.Month()) == 0 {
			d = time.Date(d.Year(), d.Month()+1, 1, 0, 0, 0, 0, time.UTC)
		} else {
			d = d.AddDate(0, 0, 1)
		}
		year, month, day = d.Date()
	}
	return time.Time{}, false
}

// inDay gives the first minute of a day that fits, from one on.
func (s *Spec) inDay(from int) (int, bool) {
	for hour := from / 60; hour < 24; hour++ {
		if s.hour&(1<<hour) == 0 {
			continue
		}
		least := 0
		if hour == from/60 {
			least = from % 60
		}
		if rest := s.minute >> least << least; rest != 0 {
			return hour*60 + bits.TrailingZeros64(rest), true
		}
	}
	return 0, false
}
