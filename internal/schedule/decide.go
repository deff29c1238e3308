package schedule

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

const (
	// inTime is how late a firing may be and was not missed.
	inTime = 10 * time.Second
	// missedAtOnce bounds the missed firings of one write, missedKept those of them
	// that are recorded: no more are kept.
	missedAtOnce = 10_000
	missedKept   = 100
	// maxWaiting bounds the firings that wait for the end of a run.
	maxWaiting = 100
)

// jitterOf draws the delay of a firing. It is the same whoever draws it, and
// whenever.
func jitterOf(id string, at time.Time, most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d", id, at.UnixMilli()))
	n := binary.BigEndian.Uint64(sum[:8])
	return time.Duration(n%(uint64(most/time.Millisecond)+1)) * time.Millisecond
}

// advance sets the next firing of a row after a time. It is not due before the one
// before it was.
func advance(row *store.Schedule, spec *workflow.ScheduleSpec, after time.Time) {
	at, ok := spec.Next(after)
	if !ok {
		row.NextAt, row.DueAt = time.Time{}, time.Time{}
		return
	}
	due := at.Add(jitterOf(row.ID, at, spec.Jitter))
	if due.Before(row.DueAt) {
		due = row.DueAt
	}
	row.NextAt, row.DueAt = at, due
}

// decision is the next state of a schedule.
type decision struct {
	row     store.Schedule
	firings []parley.ScheduleFiring
	// changed: there is something to write. cancel: the run is to be cancelled.
	changed, cancel bool
}

// situation is what is to be decided about.
type situation struct {
	row  store.Schedule
	spec *workflow.ScheduleSpec
	now  time.Time
	// busy: the run of the last firing has not ended. waiting are the firings that
	// wait, the earliest first: all of the schedule's own, and of those that were
	// asked for the earliest.
	busy    bool
	waiting []parley.ScheduleFiring
}

// decide gives what becomes of the next firing: of one that is due, or else of one
// that waits. It is a function of the situation alone.
func (s situation) decide() decision {
	d := decision{row: s.row}
	d.row.UpdatedAt = s.now
	if s.row.PausedAt.IsZero() && !s.row.DueAt.IsZero() && !s.row.DueAt.After(s.now) {
		if s.late() {
			s.miss(&d)
		} else {
			s.fire(&d)
		}
		return d
	}
	s.resume(&d)
	return d
}

// late says whether the next firing of the row was missed.
func (s situation) late() bool { return s.now.Sub(s.row.DueAt) > max(s.spec.CatchUp, inTime) }

// miss records firings that are too late.
func (s situation) miss(d *decision) {
	d.changed = true
	for n := 0; n < missedAtOnce && !s.row.DueAt.IsZero() && s.late(); n++ {
		d.firings = append(d.firings, s.firing(parley.FiringMissed, fmt.Sprintf(
			"nobody was there to start it until %s later, and catch_up is %s",
			workflow.FormatDuration(s.now.Sub(s.row.DueAt).Truncate(time.Second)), workflow.FormatDuration(s.spec.CatchUp),
		)))
		if len(d.firings) > 2*missedKept {
			d.firings = slices.Clone(d.firings[missedKept:])
		}
		advance(&s.row, s.spec, s.row.NextAt)
	}
	d.firings = d.firings[max(0, len(d.firings)-missedKept):]
	d.row.NextAt, d.row.DueAt = s.row.NextAt, s.row.DueAt
}

func (s situation) firing(state parley.FiringState, reason string) parley.ScheduleFiring {
	return parley.ScheduleFiring{ScheduledAt: s.row.NextAt, DueAt: s.row.DueAt, State: state, Reason: reason, RecordedAt: s.now}
}

// fire decides about the firing that is due, under overlap.
func (s situation) fire(d *decision) {
	d.changed = true
	advance(&d.row, s.spec, s.row.NextAt)
	own := slices.DeleteFunc(slices.Clone(s.waiting), func(f parley.ScheduleFiring) bool { return f.Backfill })
	switch {
	case s.spec.Overlap == workflow.OverlapAllow, !s.busy && len(own) == 0:
		d.start(s.firing(parley.FiringStarting, ""))
	case s.spec.Overlap == workflow.OverlapCancel:
		for _, f := range own {
			f.State, f.Reason, f.RecordedAt = parley.FiringSkipped, "the firing of "+s.row.NextAt.Format(time.RFC3339)+" took its place", s.now
			d.firings = append(d.firings, f)
		}
		d.row.Waiting += 1 - len(own)
		d.firings = append(d.firings, s.firing(parley.FiringWaiting, ""))
		d.cancel = s.busy
	case s.spec.Overlap == workflow.OverlapQueue && len(own) < maxWaiting:
		d.row.Waiting++
		d.firings = append(d.firings, s.firing(parley.FiringWaiting, ""))
	case s.spec.Overlap == workflow.OverlapQueue:
		d.firings = append(d.firings, s.firing(parley.FiringSkipped, fmt.Sprintf("%d firings wait already", maxWaiting)))
	default:
		d.firings = append(d.firings, s.firing(parley.FiringSkipped, "run "+s.row.Run+" had not ended"))
	}
}

// start names a firing as the one whose run is being started.
func (d *decision) start(f parley.ScheduleFiring) {
	d.row.StartingAt = f.ScheduledAt
	d.firings = append(d.firings, f)
}

// resume starts the first of those that wait, if it may. Under cancel_previous the
// schedule's own goes first: while it waits, each run that began before it would be
// cancelled. While the schedule is paused, those go on that somebody has asked for.
func (s situation) resume(d *decision) {
	i := slices.IndexFunc(s.waiting, func(f parley.ScheduleFiring) bool { return f.Backfill || s.row.PausedAt.IsZero() })
	own := slices.IndexFunc(s.waiting, func(f parley.ScheduleFiring) bool { return !f.Backfill && s.row.PausedAt.IsZero() })
	cancels := s.spec.Overlap == workflow.OverlapCancel && own >= 0
	if cancels {
		i = own
	}
	switch {
	case i < 0:
	case s.busy && s.spec.Overlap != workflow.OverlapAllow:
		d.cancel = cancels
	default:
		f := s.waiting[i]
		f.State, f.RecordedAt = parley.FiringStarting, s.now
		d.changed = true
		d.row.Waiting--
		d.start(f)
	}
}
