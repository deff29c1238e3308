package server

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

const (
	// bulkAtOnce is how many runs of a batch are changed at a time: those that are
	// share synced writes.
	bulkAtOnce = 8
	// bulkTime ends a batch early: the next one goes on behind it.
	bulkTime = 20 * time.Second
	// bulkFirst is how many runs a dry run names.
	bulkFirst = 10
)

// Bulk changes a batch of the runs that a filter selects. A run that cannot be
// changed any more is reported and harms no other. Every batch leaves a line in
// the log, and who did it, and why, stands in each run's history.
func (r runs) Bulk(ctx context.Context, req parley.BulkRequest) (parley.BulkReport, error) {
	if err := r.admit(); err != nil {
		return parley.BulkReport{}, err
	}
	report := parley.BulkReport{Action: req.Action, DryRun: req.DryRun, Results: []parley.BulkResult{}, Limit: req.Limit}
	if report.Limit == 0 {
		report.Limit = parley.BulkDefaultLimit
	}
	if report.Limit < 0 || report.Limit > parley.BulkMaxLimit {
		return report, parley.Errorf(parley.CodeLimit, "limit: %d runs, the limit of one batch is %d", req.Limit, parley.BulkMaxLimit)
	}
	q, some, err := bulkFilter(req)
	if err != nil || !some {
		return report, err
	}
	if req.DryRun {
		q.After, q.Page = nil, parley.Page{Limit: bulkFirst}
		rows, total, err := r.db.Runs(ctx, q)
		for i := range rows {
			report.First = append(report.First, rows[i].ID)
		}
		report.Selected = total
		return report, err
	}
	rows, next, err := r.db.SearchRuns(ctx, q, report.Limit)
	if err != nil {
		return report, err
	}
	report.NextMark = next
	r.changeAll(ctx, req, rows, &report)
	r.log.Info("runs were changed in bulk", "action", req.Action, "by", req.By, "reason", req.Reason, "done", report.Done, "failed", report.Failed,
		"status", q.Status, "workflow", q.Workflow, "version", q.Version, "labels", q.Labels, "text", q.Text, "created_after", q.CreatedAfter,
		"created_before", q.CreatedBefore, "ended_after", q.EndedAfter, "ended_before", q.EndedBefore)
	return report, ctx.Err()
}

// bulkFilter restricts a filter to the runs that an action is for; some is false
// if none can be.
func bulkFilter(req parley.BulkRequest) (q parley.RunQuery, some bool, err error) {
	q = req.Filter
	q.SortBy, q.Ascending, q.Page = "", false, parley.Page{}
	fit := []parley.RunStatus{parley.RunPending, parley.RunRunning}
	switch req.Action {
	case parley.BulkResume:
		q.Paused = true
	case parley.BulkRetry:
		fit, q.NotRetried = []parley.RunStatus{parley.RunFailed, parley.RunCancelled}, true
	case parley.BulkCancel, parley.BulkTerminate, parley.BulkPause:
	default:
		return q, false, parley.Errorf(parley.CodeInvalid, "there is no action %q", req.Action)
	}
	if len(q.Status) > 0 {
		fit = slices.DeleteFunc(fit, func(s parley.RunStatus) bool { return !slices.Contains(q.Status, s) })
	}
	q.Status = fit
	return q, len(fit) > 0, nil
}

// changeAll changes the runs of a batch until its time is over.
func (r runs) changeAll(ctx context.Context, req parley.BulkRequest, rows []store.Run, report *parley.BulkReport) {
	bounded, cancel := context.WithTimeout(ctx, bulkTime)
	defer cancel()
	results := make([]parley.BulkResult, len(rows))
	var g errgroup.Group
	g.SetLimit(bulkAtOnce)
	n := 0
	for i := range rows {
		if bounded.Err() != nil {
			break
		}
		n++
		g.Go(func() error {
			results[i] = r.changeOne(ctx, req, rows[i].ID)
			return nil
		})
	}
	_ = g.Wait() // what went wrong stands in the results
	for _, res := range results[:n] {
		if res.Code == "" {
			report.Done++
		} else {
			report.Failed++
		}
	}
	if n < len(rows) && n > 0 {
		report.NextMark = &parley.RunMark{ID: rows[n-1].ID, At: rows[n-1].CreatedAt}
	}
	report.Results = results[:n]
}

func (r runs) changeOne(ctx context.Context, req parley.BulkRequest, id string) parley.BulkResult {
	res := parley.BulkResult{Run: id}
	steer := parley.ControlRequest{Run: id, By: req.By, Reason: req.Reason}
	var run parley.Run
	var err error
	switch req.Action {
	case parley.BulkCancel:
		run, err = r.Cancel(ctx, parley.CancelRequest{Run: id, By: req.By, Reason: req.Reason})
	case parley.BulkTerminate:
		run, err = r.Terminate(ctx, steer)
	case parley.BulkPause:
		run, err = r.Pause(ctx, steer)
	case parley.BulkResume:
		run, err = r.Resume(ctx, steer)
	case parley.BulkRetry:
		if run, _, err = r.Retry(ctx, parley.RetryRequest{Run: id, By: req.By}); err == nil {
			res.NewRun = run.ID
		}
	}
	if err != nil {
		res.Code, res.Detail = parley.CodeOf(err), "An unexpected error occurred"
		if e, ok := errors.AsType[*parley.Error](err); ok && res.Code != parley.CodeInternal {
			res.Detail = e.Message
		}
		return res
	}
	res.Status = run.Status
	return res
}
