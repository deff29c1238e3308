package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// TestScheduleDecides has a firing every ten seconds, one of which is due at 1m0s, and says
// what becomes of it and of those that wait: o is the schedule's own, b was asked for.
func TestScheduleDecides(t *testing.T) {
	const due, later = "1m0s", "1m10s"
	for name, c := range map[string]struct {
		overlap, next, waiting string
		busy, paused           bool
		want                   string
	}{
		"free":                              {overlap: "skip", next: due, want: "1m0s starting"},
		"free beside what was asked for":    {overlap: "skip", next: due, waiting: "b10s", want: "1m0s starting, 1 waits"},
		"skip":                              {overlap: "skip", next: due, busy: true, want: "1m0s skipped"},
		"queue":                             {overlap: "queue", next: due, busy: true, want: "1m0s waiting, 1 waits"},
		"nobody goes ahead in a queue":      {overlap: "queue", next: due, waiting: "o50s", want: "1m0s waiting, 2 wait"},
		"a full queue":                      {overlap: "queue", next: due, busy: true, waiting: "o50s*100", want: "1m0s skipped, 100 wait"},
		"nearly full":                       {overlap: "queue", next: due, busy: true, waiting: "o50s*99", want: "1m0s waiting, 100 wait"},
		"what was asked for fills no queue": {overlap: "queue", next: due, busy: true, waiting: "b50s*100", want: "1m0s waiting, 101 wait"},
		"cancel":                            {overlap: "cancel_previous", next: due, busy: true, want: "1m0s waiting, 1 waits, cancels"},
		"cancel takes the place":            {overlap: "cancel_previous", next: due, busy: true, waiting: "o50s b10s", want: "50s skipped, 1m0s waiting, 2 wait, cancels"},
		"cancel when it has ended":          {overlap: "cancel_previous", next: due, waiting: "o50s", want: "50s skipped, 1m0s waiting, 1 waits"},
		"allow":                             {overlap: "allow", next: due, busy: true, want: "1m0s starting"},
		"nothing to do":                     {overlap: "queue", next: later, busy: true, want: "nothing"},
		"first of the queue":                {overlap: "queue", next: later, waiting: "b10s o40s", want: "10s starting, 1 waits"},
		"the queue waits":                   {overlap: "queue", next: later, busy: true, waiting: "o40s", want: "nothing, 1 waits"},
		"asked for under skip":              {overlap: "skip", next: later, busy: true, waiting: "b40s", want: "nothing, 1 waits"},
		"asked for under allow":             {overlap: "allow", next: later, busy: true, waiting: "b40s", want: "40s starting"},
		"cancel is asked again":             {overlap: "cancel_previous", next: later, busy: true, waiting: "o50s", want: "nothing, 1 waits, cancels"},
		"what was asked for cancels none":   {overlap: "cancel_previous", next: later, busy: true, waiting: "b40s", want: "nothing, 1 waits"},
		"its own goes first":                {overlap: "cancel_previous", next: later, waiting: "b10s o50s", want: "50s starting, 1 waits"},
		"paused":                            {overlap: "queue", next: due, paused: true, waiting: "o50s", want: "nothing, 1 waits"},
		"paused, asked for":                 {overlap: "cancel_previous", next: due, paused: true, waiting: "o10s b50s", want: "50s starting, 1 waits"},
		"ended":                             {overlap: "queue", waiting: "o50s", want: "50s starting"},
	} {
		t.Run(name, func(t *testing.T) {
			s := situation{
				spec: specOf(t, `{"every": "10s", "overlap": "`+c.overlap+`"}`), now: midnight(t, due), busy: c.busy,
				row: store.Schedule{NextAt: midnight(t, c.next), DueAt: midnight(t, c.next)},
			}
			if c.paused {
				s.row.PausedAt = s.now
			}
			for text := range strings.FieldsSeq(c.waiting) {
				at, times, _ := strings.Cut(text, "*")
				n := 1
				_, _ = fmt.Sscan(times, &n) // one, if it does not say
				for range n {
					s.waiting = append(s.waiting, parley.ScheduleFiring{ScheduledAt: midnight(t, at[1:]), State: parley.FiringWaiting, Backfill: at[0] == 'b'})
				}
			}
			s.row.Waiting = len(s.waiting)
			d := s.decide()
			if got := told(d); got != c.want {
				t.Errorf("it is %s, want %s", got, c.want)
			}
			if d.changed && c.next == due && !c.paused && !d.row.NextAt.Equal(midnight(t, later)) {
				t.Errorf("the next firing is at %s", d.row.NextAt)
			}
		})
	}
}

func specOf(t *testing.T, text string) *workflow.ScheduleSpec {
	t.Helper()
	trigger, problems := workflow.ParseSchedule([]byte(text))
	if trigger == nil {
		t.Fatal(problems)
	}
	return trigger.Schedule
}

// midnight is a time since it; "" is none.
func midnight(t *testing.T, since string) time.Time {
	t.Helper()
	if since == "" {
		return time.Time{}
	}
	d, err := time.ParseDuration(since)
	if err != nil {
		t.Fatal(err)
	}
	return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(d)
}

// told gives a decision in words.
func told(d decision) string {
	var parts []string
	for _, f := range d.firings {
		parts = append(parts, fmt.Sprint(f.ScheduledAt.Sub(f.ScheduledAt.Truncate(24*time.Hour)), " ", f.State))
		if starts := f.State == parley.FiringStarting; starts != f.ScheduledAt.Equal(d.row.StartingAt) {
			parts = append(parts, "but "+d.row.StartingAt.String()+" starts")
		}
	}
	if !d.changed {
		parts = append(parts, "nothing")
	}
	switch n := d.row.Waiting; n {
	case 0:
	case 1:
		parts = append(parts, "1 waits")
	default:
		parts = append(parts, fmt.Sprintf("%d wait", n))
	}
	if d.cancel {
		parts = append(parts, "cancels")
	}
	return strings.Join(parts, ", ")
}
