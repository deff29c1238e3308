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

// writers bounds the records that are written at a time: those that wait for the
// same sync share it.
const writers = 16

// parallel has the functions that next gives carried out by several goroutines,
// in any order, until next gives nil or one of them fails. It waits for all. next
// is called by one goroutine.
func (im *importer) parallel(ctx context.Context, next func(context.Context) (func(context.Context) error, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var working sync.WaitGroup
	work := make(chan func(context.Context) error)
	var once sync.Once
	var failure error
	fail := func(err error) {
		once.Do(func() { failure = err })
		cancel(err)
	}
	for range writers {
		working.Go(func() {
			for do := range work {
				if err := do(ctx); err != nil {
					fail(err)
				}
			}
		})
	}
	for ctx.Err() == nil {
		do, err := next(ctx)
		if err != nil {
			fail(err)
			break
		}
		if do == nil {
			break
		}
		select {
		case work <- do:
		case <-ctx.Done():
		}
	}
	close(work)
	working.Wait()
	if failure == nil && ctx.Err() != nil {
		failure = context.Cause(ctx)
	}
	return failure
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
	err = im.parallel(ctx, func(ctx context.Context) (func(context.Context) error, error) {
		old, err := nextRun(ctx, runs, steps)
		if old == nil || err != nil {
			return nil, err
		}
		old.now = now
		if w, ok := im.workflows[textOf(old.run.DefinitionID)]; ok {
			old.workflow, old.loops = w.workflow, w.loops
		}
		return func(ctx context.Context) error { return im.run(ctx, old, ofRuns, ofSteps) }, nil
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
	old := &oldRun{run: run}
	for {
		step, err := steps.peek(ctx)
		if err != nil {
			return nil, err
		}
		if step == nil || step.RunID != run.ID {
			return old, nil
		}
		old.steps = append(old.steps, *step)
		if _, err := steps.next(ctx); err != nil {
			return nil, err
		}
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
	ofSteps.count(state, refusal, len(old.steps))
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
