package oldplatform

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-project/parley/internal/store"
)

const (
	// writers bounds the records that are written at a time: those that wait for the
	// same sync share it.
	writers = 16
	// writingBytes bounds the values of those records; one that has more is written
	// alone.
	writingBytes = 16 << 20
)

// job is one record that is to be written.
type job struct {
	// size is that of its values, in bytes.
	size int64
	do   func(context.Context) error
}

// parallel has the jobs that next gives carried out by several goroutines, in any
// order, until next gives none or one of them fails. It waits for all. next is
// called by one goroutine, so that beside what is written there is one record
// more.
func (im *importer) parallel(ctx context.Context, next func(context.Context) (job, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var working sync.WaitGroup
	work := make(chan job)
	var once sync.Once
	var failure error
	fail := func(err error) {
		once.Do(func() { failure = err })
		cancel(err)
	}
	room := &room{limit: writingBytes, eased: make(chan struct{}, 1)}
	for range writers {
		working.Go(func() {
			for j := range work {
				if err := j.do(ctx); err != nil {
					fail(err)
				}
				room.give(j.size)
			}
		})
	}
	for ctx.Err() == nil {
		j, err := next(ctx)
		if err != nil {
			fail(err)
			break
		}
		if j.do == nil {
			break
		}
		if room.take(ctx, j.size) {
			work <- j
		}
	}
	close(work)
	working.Wait()
	if failure == nil && ctx.Err() != nil {
		failure = context.Cause(ctx)
	}
	return failure
}

// room is a number of bytes that several share.
type room struct {
	limit int64
	// eased gets a value when some are given back.
	eased chan struct{}

	mu    sync.Mutex
	taken int64 // guarded by mu
}

// take waits until there is room for n bytes, or all is given back; false says
// that ctx has ended before. It is called by one goroutine.
func (r *room) take(ctx context.Context, n int64) bool {
	for {
		r.mu.Lock()
		fits := r.taken == 0 || r.taken+n <= r.limit
		if fits {
			r.taken += n
		}
		r.mu.Unlock()
		if fits {
			return true
		}
		select {
		case <-r.eased:
		case <-ctx.Done():
			return false
		}
	}
}

func (r *room) give(n int64) {
	r.mu.Lock()
	r.taken -= n
	r.mu.Unlock()
	select {
	case r.eased <- struct{}{}:
	default:
	}
}

func (im *importer) runs(ctx context.Context, d *database, tx pgx.Tx) error {
	runs, err := d.runs(ctx, tx)
	if err != nil {
		return err
	}
	steps, err := d.steps(ctx, tx)
	if err != nil {
		return err
	}
	ofRuns, ofSteps := im.table("workflow_runs"), im.table("step_executions")
	now := im.target.Now().UTC().Truncate(time.Microsecond)
	err = im.parallel(ctx, func(ctx context.Context) (job, error) {
		old, err := nextRun(ctx, runs, steps)
		if old == nil || err != nil {
			return job{}, err
		}
		old.now = now
		if w, ok := im.workflows[textOf(old.run.DefinitionID)]; ok {
			old.workflow, old.loops = w.workflow, w.loops
		}
		return job{old.held(), func(ctx context.Context) error { return im.run(ctx, old, ofRuns, ofSteps) }}, nil
	})
	if err != nil {
		return err
	}
	return im.orphans(ctx, d, tx, ofSteps)
}

// nextRun reads one run with its steps, or gives nil at the end. Both cursors
// have the same order, and every step has a run.
func nextRun(ctx context.Context, runs *cursor[runRow], steps *cursor[stepRow]) (*oldRun, error) {
	run, err := runs.next(ctx)
	if run == nil || err != nil {
		return nil, err
	}
	old := &oldRun{run: run, size: run.size()}
	for {
		step, err := steps.peek(ctx)
		if err != nil {
			return nil, err
		}
		if step == nil || step.RunID != run.ID {
			return old, nil
		}
		if step, err = steps.next(ctx); err != nil {
			return nil, err
		}
		old.add(step)
	}
}

func (im *importer) run(ctx context.Context, old *oldRun, ofRuns, ofSteps *Counts) error {
	in, err := old.record()
	in.Digest = digest(old.run, old.steps, old.workflow)
	of := Notice{Table: "workflow_runs", ID: old.run.ID, Name: old.run.WorkflowName}
	state, ok, err := im.put(ctx, ofRuns, of, in, err)
	if err != nil {
		return err
	}
	var refusal error
	if !ok {
		refusal = errRefused
	}
	im.mu.Lock()
	ofSteps.count(state, refusal, old.rows)
	im.mu.Unlock()
	if ok && old.unfinished() {
		of.Kind, of.Text = NoticeStuck, old.advice()
		im.tell(of)
	}
	return nil
}

var errRefused = errors.New("oldplatform: the run was refused")

// advice says what is known of a run that had not ended, and what to do.
func (o *oldRun) advice() string {
	since := "it never began"
	if n := len(o.steps); n > 0 {
		last := o.steps[n-1]
		since = fmt.Sprintf("its last step %q is %s", last.StepID, last.Status)
	}
	last := o.run.UpdatedAt.Time.UTC().Format(time.RFC3339)
	return fmt.Sprintf("%s since %s, %s; it is FAILED here. If it goes on over there, import again when it has ended; if not, cancel it there and go on with: parley run retry %s",
		o.run.Status, last, since, o.run.ID)
}

// orphans refuses the steps whose run is not there.
func (im *importer) orphans(ctx context.Context, d *database, tx pgx.Tx, c *Counts) error {
	n, err := d.orphans(ctx, tx)
	if n > 0 && err == nil {
		c.count(store.ImportNew, errRefused, n)
		im.tell(Notice{Kind: NoticeRefused, Table: c.Table, Text: fmt.Sprintf("%d rows belong to runs that are not there", n)})
	}
	return err
}
