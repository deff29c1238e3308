package executor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"unicode/utf8"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
	"github.com/parley-project/parley/internal/workflow/expr"
)

const (
	maxKey        = 255
	maxLabels     = 32
	maxLabelChars = 256
)

// Start begins a run. It returns once the run is durable. existing is true if
// the idempotency key names a run that was started before with equal input
// (rule C7); with other input the error has code idempotency_conflict. Other
// codes: not_found, conflict (inactive workflow), invalid_input, limit.
func (x *Executor) Start(ctx context.Context, req parley.StartRequest) (run parley.Run, existing bool, err error) {
	v, err := x.wanted(ctx, req)
	if err != nil {
		return run, false, err
	}
	refused := takesRuns(v.row)
	if refused != nil && req.IdempotencyKey == "" && req.Schedule == "" && v.def.IdempotencyKey == nil {
		return run, false, refused
	}
	if err := checkStart(req); err != nil {
		return run, false, err
	}
	input, err := x.input(v.def, req.Input)
	if err != nil {
		return x.startedUnder(ctx, v, req, req.IdempotencyKey, err)
	}
	key, err := startKey(v.def, req, input)
	if err != nil {
		return run, false, err
	}
	trigger := req.TriggeredBy
	if trigger == "" {
		trigger = "api"
	}
	labels := req.Labels
	if req.CallAgent != "" {
		labels = map[string]string{callWorkflow: "true"}
	}
	run, existing, err = x.begin(ctx, v, beginning{
		fact: workflow.Start{Input: input, Labels: merge(v.def.Labels, labels), Trigger: trigger, ScheduledAt: req.ScheduledAt, Priority: req.Priority, Timeout: req.Timeout, Trace: req.Trace},
		key:  key, hidden: req.CallAgent != "", refused: refused,
	})
	if parley.CodeOf(err) == parley.CodeIdempotencyConflict {
		return x.startedUnder(ctx, v, req, key, err)
	}
	return run, existing, err
}

// wanted gives the version that a start names, or that of the call of an agent.
func (x *Executor) wanted(ctx context.Context, req parley.StartRequest) (*compiledVersion, error) {
	ref := req.Workflow
	switch {
	case req.CallAgent != "":
		return x.defs.compile(callDefinition(req.CallAgent))
	case req.Version != "":
		ref += "@" + req.Version
	}
	return x.defs.resolve(ctx, ref)
}

// takesRuns refuses new runs of a version that was switched off, deleted or
// deprecated (rule C10).
func takesRuns(row store.Definition) error {
	switch {
	case row.Status != parley.AgentActive:
		return parley.Errorf(parley.CodeConflict, "Workflow %q is %s and takes no new runs", row.Name, row.Status)
	case row.Deprecated != nil:
		why := ""
		if row.Deprecated.Reason != "" {
			why = " (" + row.Deprecated.Reason + ")"
		}
		return parley.Errorf(parley.CodeConflict, "Version %s of workflow %q is deprecated%s and takes no new runs: start another version, or undo it with parley workflow deprecate %s@%s --undo",
			row.Version, row.Name, why, row.Workflow, row.Version).WithDetails(parley.ConflictDetails{Conflict: parley.ConflictDeprecated})
	}
	return nil
}

// beginning is what a start and a retry have in common.
type beginning struct {
	// id is that of the run; "" takes a new one. named is set by begin: it was not "".
	id     string
	named  bool
	fact   workflow.Start
	key    string
	hidden bool
	// givenKey is the key as the caller has it, if it is kept as another one.
	givenKey string
	// digest tells one start from another under the same key; "" is that of the
	// input.
	digest string
	// replay is set for a retry.
	replay *store.Replay
	// child is set for the run that a step of another one asks for.
	child *store.Child
	// refused is why there is to be no new run; one that was started under the
	// same key is given all the same (rule C7).
	refused error
}

// refuse keeps a new run from being started for a reason, if there is one; the first
// counts.
func (b *beginning) refuse(why error) {
	if b.refused == nil {
		b.refused = why
	}
}

// errBusy says that the same may go well the next time.
var errBusy = errors.New("too much is under way")

// begin is transition P1, with the first claims if slots are free.
func (x *Executor) begin(ctx context.Context, v *compiledVersion, b beginning) (parley.Run, bool, error) {
	if b.named = b.id != ""; !b.named {
		b.id = x.cfg.NewID()
	}
	b.refuse(x.mayHedge(ctx, v.def))
	b.refuse(x.turnOf(v.def, &b))
	var err error
	b.fact.Children, err = x.childVersions(ctx, v.def, b.child == nil && b.replay == nil)
	if b.refuse(err); b.refused != nil && b.key == "" {
		return parley.Run{}, false, b.refused
	}
	l := x.lock(b.id)
	defer x.unlock(b.id, l)
	for range maxStale {
		before := l.refused // then it claims nothing: that may be what was refused
		run, existing, err := x.beginOnce(ctx, l, v, b)
		if again := errors.Is(err, errNotPublished) || l.refused && !before; !again {
			return run, existing, err
		}
	}
	return parley.Run{}, false, parley.Errorf(parley.CodeConflict, "run %s cannot publish its events; try again: %w", b.id, errBusy)
}

// beginOnce is begin for a run that is locked.
func (x *Executor) beginOnce(ctx context.Context, l *liveRun, v *compiledVersion, b beginning) (parley.Run, bool, error) {
	l.state = workflow.NewState(b.id, v.def, x.cfg.Limits)
	for _, f := range l.full {
		l.state.SignalsFull(f.Name, f.Key)
	}
	b.fact.At, b.fact.Jitter = x.now(), x.cfg.Jitter()
	d := l.state.Apply(b.fact)
	rows, slots := x.attempts(l, d, b.fact.At, b.refused == nil && !l.refused)
	row := x.row(l, b.fact.At)
	row.Workflow, row.Name, row.Version, row.DefinitionID = v.row.Workflow, v.row.Name, v.row.Version, v.row.ID
	row.Labels, row.TriggeredBy, row.Hidden, row.RetriedFrom = b.fact.Labels, b.fact.Trigger, b.hidden, b.fact.RetriedFrom
	s := store.Start{
		Run: row, Events: d.Events, Attempts: rows, Named: b.named, IdempotencyKey: b.key, GivenKey: b.givenKey, Replay: b.replay, Refuse: b.refused,
		Signals: x.signals(l.state, d, nil), Children: x.family(l.state, d, extra{}),
	}
	if b.child != nil {
		s.Child, s.Children.Ended = b.child.Task, "" // the start says it itself
		s.Run.ParentRun, s.Run.ParentStep = b.child.Parent, b.child.Step
	}
	waits := x.waiting(v, b, &s)
	if b.key != "" {
		if s.InputDigest = b.digest; s.InputDigest == "" {
			s.InputDigest = digest(b.fact.Input)
		}
	}
	existing, err := x.cfg.Store.StartRun(ctx, s)
	l.refused = errors.Is(err, store.ErrStale) && reserved(slots)
	if err != nil || existing != "" {
		l.state = nil
		release(slots)
		if err != nil {
			x.old.inDoubt(rows, err)
			x.cfg.Metrics.refusedTurn(s.Turn, err)
			return parley.Run{}, false, l.notPublished(err)
		}
		run, err := x.Get(ctx, existing)
		if err == nil {
			err = sameAgent(v, run, b.key)
		}
		if err != nil {
			return parley.Run{}, false, err
		}
		return run, true, nil
	}
	if waits != nil && s.Turn.Waits {
		release(slots)
		l.state, d, row, rows, slots = waits.state, waits.decision, waits.row, nil, nil
	}
	run := x.view(ctx, l.state, row)
	x.follow(l, d, rows, slots)
	if known, err := x.withTurn(ctx, run); err == nil {
		run = known // the run is accepted in any case
	}
	return run, false, nil
}

// sameAgent refuses a key that was used for the call of another agent: all calls are
// runs of one workflow.
func sameAgent(v *compiledVersion, run parley.Run, key string) error {
	if !strings.HasPrefix(v.row.ID, callPrefix) || run.DefinitionID == v.row.ID {
		return nil
	}
	return parley.Errorf(parley.CodeIdempotencyConflict, "the idempotency key %q was used for another agent, in run %q", key, run.ID)
}

// mayHedge refuses a run that would call agents side by side which were not
// declared to bear that (rule R5).
func (x *Executor) mayHedge(ctx context.Context, def *workflow.Definition) error {
	for _, h := range def.Hedged {
		info, ok := x.cfg.Agent(ctx, h.Agent)
		switch {
		case info.Err != nil:
			return info.Err
		case !ok:
			return parley.Errorf(parley.CodeConflict,
				"Step %s of workflow %s hedges agent %q, which is not registered: hedged agents must be declared idempotent", h.Step, def.ID, h.Agent)
		case !info.Idempotent:
			return parley.Errorf(parley.CodeConflict,
				"Step %s of workflow %s hedges agent %q, which is not declared idempotent: parley agent set %s --idempotent, if it recognises a task id",
				h.Step, def.ID, h.Agent, h.Agent)
		}
	}
	return nil
}

func checkStart(req parley.StartRequest) error {
	if err := checkKey(req.IdempotencyKey); err != nil {
		return err
	}
	if p := req.Priority; p != nil && (*p < 0 || *p > parley.MaxRunPriority) {
		return parley.Errorf(parley.CodeInvalid, "priority: %d, must be 0 to %d (default %d)", *p, parley.MaxRunPriority, parley.DefaultRunPriority)
	}
	if n := len(req.Labels); n > maxLabels {
		return parley.Errorf(parley.CodeLimit, "labels: %d, the limit is %d", n, maxLabels)
	}
	for k, v := range req.Labels {
		if utf8.RuneCountInString(k) > maxLabelChars || utf8.RuneCountInString(v) > maxLabelChars {
			return parley.Errorf(parley.CodeLimit, "label %.40q: names and values have at most %d characters", k, maxLabelChars)
		}
	}
	return nil
}

// checkKey bounds an idempotency key, in characters as whoever sends it counts them.
func checkKey(key string) error {
	if n := utf8.RuneCountInString(key); n > maxKey {
		return parley.Errorf(parley.CodeLimit, "idempotency_key: %d characters, the limit is %d", n, maxKey)
	}
	return nil
}

// input fills defaults in and checks the input against the workflow's schema.
func (x *Executor) input(def *workflow.Definition, input json.RawMessage) (json.RawMessage, error) {
	if len(input) == 0 {
		input = json.RawMessage("{}")
	}
	if n := int64(len(input)); n > x.cfg.Limits.Value {
		return nil, parley.Errorf(parley.CodeLimit, "input: %d bytes, the limit is %d (values above it travel by reference, such as a URL)", n, x.cfg.Limits.Value)
	}
	return def.CheckInput(input, x.cfg.Limits.Value)
}

// startKey gives the idempotency key of a start: that of a firing of a schedule, that
// of the caller, or the one that the workflow makes of its input.
func startKey(def *workflow.Definition, req parley.StartRequest, input json.RawMessage) (key string, err error) {
	if req.Schedule != "" {
		return parley.ScheduleKey(req.Schedule, req.ScheduledAt), nil
	}
	key = req.IdempotencyKey
	if key == "" && def.IdempotencyKey != nil {
		if key, err = deriveKey(def, input); err != nil {
			return "", err
		}
	}
	return key, reservedKey(key)
}

func deriveKey(def *workflow.Definition, input json.RawMessage) (string, error) {
	v, err := def.IdempotencyKey.Eval(&expr.Scope{
		Workflow: expr.WorkflowInfo{ID: def.ID, Name: def.Name, Version: def.Version, Input: input},
	})
	if err != nil {
		return "", err
	}
	var key string
	if json.Unmarshal(v, &key) != nil {
		key = string(v)
	}
	return key, checkKey(key)
}

// digest tells equal input from other input: JSON values are compared, with
// numbers by value, not spellings (rule C7).
func digest(input json.RawMessage) string {
	h := sha256.New()
	dec := json.NewDecoder(bytes.NewReader(input))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) == nil {
		h.Write(canonical(nil, v))
	} else {
		h.Write(input)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func merge(a, b map[string]string) map[string]string {
	if len(a) == 0 {
		return b
	}
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}
