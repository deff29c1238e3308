package executor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// Plans is what an executor asks of the database to keep the plans that come
// with requests. *store.DB implements it; the method is described there.
type Plans interface {
	PutDefinition(ctx context.Context, d store.Definition, mode store.PutMode) (store.Definition, error)
}

// Requests says how runs are started and cancelled by records of the existing
// platform (`bus.kafka.requests: on`). A record's run_id is the id of the run,
// so that the same record twice starts one. The plan in it is kept as a version
// of its workflow that is inactive: no start by name can mean it by mistake,
// and runs of equal plans share it. A plan whose version is taken by another
// document gets a version of its own, "{version}-{12 hex of its digest}".
type Requests struct {
	Plans Plans
	// NewID gives the ids of kept plans, UUIDs.
	NewID func() string
	// Group reads the requests; default that of the existing platform's consumer,
	// so that one that was left running beside this one is noticed.
	Group string
}

// requestGroup is the group of the existing platform's execution consumer.
const requestGroup = "execution-consumer-group"

const (
	requestWorkers = 16
	// cancelPatience is how long a request to cancel waits for the run that it
	// names: requests to start come on another topic.
	cancelPatience = 5 * time.Second
	cancelEvery    = 250 * time.Millisecond
	// maxEarlyCancels is how many of those are remembered after that.
	maxEarlyCancels = 10_000
	maxRunID        = 255
	maxReason       = 500
	maxBy           = 255
	// requestTrigger is what such runs were triggered by.
	requestTrigger = "request"
)

// takeRequests subscribes to both topics.
func (x *Executor) takeRequests(ctx context.Context, s *stack) error {
	r := x.cfg.Requests
	group := r.Group
	if group == "" {
		group = requestGroup
	}
	for subject, handle := range map[string]func(context.Context, bus.Message, time.Time) error{
		bus.SubjectStartRequests: x.takeStart, bus.SubjectCancelRequests: x.takeCancel,
	} {
		stop, err := x.takeIn(ctx, &intake{subject: subject, group: group, workers: requestWorkers, handle: handle})
		if err != nil {
			return err
		}
		stop = sync.OnceFunc(stop)
		s.push(stop) // it waits for the one below
		if subject == bus.SubjectStartRequests {
			context.AfterFunc(x.refusing, stop)
		}
	}
	return nil
}

// StopIntake ends the taking of requests for new runs, for good: those that are
// in hand are ended first, or come to another executor. Requests to cancel are
// still taken, and what is under way goes on, until Run ends. StopIntake does not
// wait, and may be called concurrently and again.
func (x *Executor) StopIntake() { x.refuse() }

// takeStart starts the run that a record asks for.
func (x *Executor) takeStart(ctx context.Context, m bus.Message, _ time.Time) error {
	r, err := records.DecodeExecution(m.Value)
	if err == nil {
		err = checkRunID(r.RunID)
	}
	if err != nil {
		return err
	}
	known, err := x.startedBefore(ctx, r)
	switch {
	case err != nil:
		return err
	case known:
		return x.cancelEarly(ctx, r)
	}
	v, err := x.keepPlan(ctx, r.Plan)
	if err != nil {
		return err
	}
	input, err := x.input(v.def, r.Input)
	if err != nil {
		return err
	}
	_, _, err = x.begin(ctx, v, beginning{
		id: r.RunID, fact: workflow.Start{Input: input, Labels: v.def.Labels, Trigger: requestTrigger, Trace: traceOf(&m)},
	})
	if parley.CodeOf(err) == parley.CodeConflict {
		// Another record of the same run was faster.
		if known, again := x.startedBefore(ctx, r); known || again != nil {
			return again
		}
	}
	if err != nil {
		return err
	}
	x.cfg.Metrics.request(kindStart, fateStarted)
	return x.cancelEarly(ctx, r)
}

// cancelEarly cancels a run that was asked for before the request to cancel that
// is remembered of it. That is forgotten when it is done: after a fault the record
// comes again, and the run is known then.
func (x *Executor) cancelEarly(ctx context.Context, r records.ExecutionRequest) error {
	c, ok := x.early.of(r.RunID)
	if !ok {
		return nil
	}
	if c.At.IsZero() || !c.At.Before(r.At) {
		if err := x.cancelRequested(ctx, c); err != nil {
			return err
		}
	}
	x.early.forget(r.RunID)
	return nil
}

// cancelRequested cancels the run that a record names.
func (x *Executor) cancelRequested(ctx context.Context, r records.CancellationRequest) error {
	_, err := x.Cancel(ctx, parley.CancelRequest{Run: r.RunID, By: clip(r.CancelledBy, maxBy), Reason: clip(r.Reason, maxReason)})
	switch parley.CodeOf(err) {
	case "":
		x.cfg.Metrics.request(kindCancel, fateCancelled)
		return nil
	case parley.CodeConflict:
		return x.ended(ctx, r.RunID, err)
	}
	return err
}

// earlyCancels are the requests to cancel whose run had not come when they were
// given up. Requests to start come on another topic, which may be far behind.
// At most maxEarlyCancels are remembered, the newest.
type earlyCancels struct {
	mu    sync.Mutex
	byRun map[string]records.CancellationRequest // guarded by mu
	order []string                               // guarded by mu; may name runs that are forgotten
}

// keep remembers one; of two of a run the first counts.
func (e *earlyCancels) keep(r records.CancellationRequest) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.byRun == nil {
		e.byRun = make(map[string]records.CancellationRequest)
	}
	if _, ok := e.byRun[r.RunID]; ok {
		return
	}
	for len(e.order) >= maxEarlyCancels {
		delete(e.byRun, e.order[0])
		e.order = e.order[1:]
	}
	e.byRun[r.RunID] = r
	e.order = append(e.order, r.RunID)
}

// of gives the one of a run.
func (e *earlyCancels) of(run string) (records.CancellationRequest, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, ok := e.byRun[run]
	return r, ok
}

func (e *earlyCancels) forget(run string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.byRun, run)
}

// checkRunID refuses ids that task ids could not be made of: those end the run's
// id with a dot.
func checkRunID(id string) error {
	if len(id) > maxRunID {
		return parley.Errorf(parley.CodeLimit, "run_id: %d bytes, the limit is %d", len(id), maxRunID)
	}
	for _, c := range []byte(id) {
		if c <= ' ' || c > '~' || strings.IndexByte(`./\"`, c) >= 0 {
			return parley.Errorf(parley.CodeInvalid, "run_id %q: only printable ASCII without spaces, dots, slashes and quotes can name a run", clip(id, 64))
		}
	}
	return nil
}

// startedBefore reports whether the run of a record is there. The old API asks
// for a retry by a second record with the id of a run that has ended; that is an
// error, since a run ends once.
func (x *Executor) startedBefore(ctx context.Context, r records.ExecutionRequest) (bool, error) {
	row, err := x.cfg.Store.RunRow(ctx, r.RunID)
	switch {
	case parley.CodeOf(err) == parley.CodeNotFound:
		return false, nil
	case err != nil:
		return false, err
	case row.Status.Terminal() && row.Status != parley.RunCompleted && r.At.After(row.EndedAt):
		return true, parley.Errorf(parley.CodeConflict,
			"run %s is %s since %s and cannot be started again under its id: retry it by POST /api/v1/runs/%s/retry, which makes a new run",
			r.RunID, row.Status, row.EndedAt.Format(time.RFC3339), r.RunID)
	}
	x.cfg.Metrics.request(kindStart, fateRepeated)
	return true, nil
}

// keepPlan gives the version that holds the plan, deploying it if it is new.
func (x *Executor) keepPlan(ctx context.Context, plan json.RawMessage) (*compiledVersion, error) {
	def, problems := workflow.Parse(workflow.ParseOptions{File: "workflow_plan", Version: "1", Limits: x.cfg.Documents}, plan)
	if def == nil {
		return nil, parley.Errorf(parley.CodeInvalid, "the workflow plan cannot be run: %w", problems)
	}
	now, sum := x.now(), sha256.Sum256(plan)
	row := store.Definition{
		ID: x.cfg.Requests.NewID(), Workflow: def.ID, Name: def.Name, Version: def.Version, Description: def.Description,
		Format: "json", Source: plan, Digest: hex.EncodeToString(sum[:]), Status: parley.AgentInactive,
		CreatedAt: now, UpdatedAt: now, CreatedBy: requestTrigger, UpdatedBy: requestTrigger,
	}
	there, err := x.cfg.Store.Definition(ctx, def.ID+"@"+def.Version)
	switch {
	case err == nil && (there.Digest == row.Digest || digest(there.Source) == digest(plan)):
		return x.defs.compile(there)
	case err == nil:
		row.Version += "-" + row.Digest[:12]
	case parley.CodeOf(err) != parley.CodeNotFound:
		return nil, err
	}
	kept, err := x.cfg.Requests.Plans.PutDefinition(ctx, row, store.PutVersion)
	if parley.CodeOf(err) == parley.CodeConflict && row.Version == def.Version {
		// Another document was faster under this version.
		row.Version += "-" + row.Digest[:12]
		kept, err = x.cfg.Requests.Plans.PutDefinition(ctx, row, store.PutVersion)
	}
	if err != nil {
		return nil, err
	}
	return x.defs.compile(kept)
}

// takeCancel cancels the run that a record names. One of a run that has ended is
// counted: there is nothing to do. One of a run that is not there is counted, too,
// and remembered, for the case that the run still comes. It is waited for from when the
// record was taken: many of runs that are not there are done with together, and hold up
// those behind them no longer than one.
func (x *Executor) takeCancel(ctx context.Context, m bus.Message, since time.Time) error {
	r, err := records.DecodeCancellation(m.Value)
	if err != nil {
		return err
	}
	for until := since.Add(cancelPatience); ; {
		last := !x.cfg.Now().Before(until)
		if last {
			x.early.keep(r) // before the last look: a start looks for it afterwards
		}
		err := x.cancelRequested(ctx, r)
		if parley.CodeOf(err) != parley.CodeNotFound {
			if last && err == nil {
				x.early.forget(r.RunID)
			}
			return err
		}
		if last {
			x.cfg.Metrics.request(kindCancel, fateNoSuchRun)
			x.cfg.Logger.Info("a request to cancel names a run that is not here; it is cancelled if this process begins it yet", "run", clip(r.RunID, 256))
			return nil
		}
		if !sleep(ctx, cancelEvery) {
			return ctx.Err()
		}
	}
}

// ended is nil if the run has ended, which is what the conflict was about, or if its
// body has, so that it ends without being cancelled.
func (x *Executor) ended(ctx context.Context, run string, conflict error) error {
	if errors.Is(conflict, errPastCancel) {
		x.cfg.Metrics.request(kindCancel, fateEnded)
		return nil
	}
	row, err := x.cfg.Store.RunRow(ctx, run)
	if err != nil {
		return err
	}
	if !row.Status.Terminal() {
		return parley.Errorf(parley.CodeUnavailable, "run %s was not cancelled: %w", run, conflict)
	}
	x.cfg.Metrics.request(kindCancel, fateEnded)
	return nil
}
