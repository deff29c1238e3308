package deadletter

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/store"
)

const (
	// reported bounds the ids and the failures of a report.
	reported = 20
	// noteWait bounds the writing of what has happened already.
	noteWait = 10 * time.Second
	maxNote  = 500
)

// errChanged says that somebody else was faster with a dead letter.
var errChanged = errors.New("has changed just now")

// Replay replays one dead letter and gives it as it is then. A task's run is
// retried: a new run goes on from the failed step. A record is published again
// where it came from, with the header "redriven-from" that says where it was, and
// so is the record of a foreign task: its agent is called again, and a second
// result follows, which the executor that waited for the first ignores.
//
// not_found; conflict if it does not wait and Force is not set, or somebody else
// replays it; invalid for a record of which only the beginning was kept, or that
// would stop peers of the existing platform; unavailable while nothing new is begun.
func (k *Keeper) Replay(ctx context.Context, req parley.ReplayRequest) (parley.DeadLetter, error) {
	l, err := k.cfg.DB.DeadLetter(ctx, req.ID)
	if err == nil && k.cfg.Admit != nil {
		err = k.cfg.Admit()
	}
	if err != nil {
		return l, err
	}
	if l.Kind == parley.DeadLetterTask {
		_, err = k.cfg.Retry(ctx, l.Run, req)
	} else {
		err = k.redrive(ctx, &l, req)
	}
	k.cfg.Metrics.replayed(err)
	if err != nil {
		return l, err
	}
	k.cfg.Logger.Info("a dead letter was replayed", "event", "dead_letter_replayed", "id", l.ID, "by", req.By)
	return k.cfg.DB.DeadLetter(ctx, req.ID)
}

// redrive publishes a record again.
func (k *Keeper) redrive(ctx context.Context, l *parley.DeadLetter, req parley.ReplayRequest) error {
	if l.Cut {
		whole := strconv.FormatInt(l.Size, 10) + " bytes"
		if int64(len(l.Value)) == l.Size {
			whole = "key" // with another one it would get into another partition
		}
		return parley.Errorf(parley.CodeInvalid,
			"dead letter %s cannot be replayed: only the beginning of its %s was kept; have its sender send it again, and discard this one", l.ID, whole)
	}
	r := store.Replay{ID: req.ID, Force: req.Force, By: req.By}
	until, err := k.cfg.DB.HoldDeadLetter(ctx, r, k.now())
	if errors.Is(err, store.ErrStale) {
		return parley.Errorf(parley.CodeConflict, "dead letter %s %w: look at it, then replay it if it still waits", l.ID, errChanged)
	}
	if err != nil {
		return err
	}
	m, left := again(l)
	if left > 0 {
		k.cfg.Logger.Warn("a dead letter is replayed without its last headers: there is no room for them beside ours", "event", "dead_letter_headers",
			"id", l.ID, "left_out", left, "limit", againHeaders, "limit_bytes", againHeaderBytes)
	}
	err = k.cfg.Bus.Publish(ctx, m)
	// What has happened is noted even if the caller has gone.
	noting, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteWait)
	defer cancel()
	if err != nil {
		if freed := k.cfg.DB.FreeDeadLetter(noting, l.ID, until); freed != nil {
			k.cfg.Logger.Warn("a dead letter stays taken for 30 s", "event", "dead_letter", "id", l.ID, "error", freed)
		}
		if parley.CodeOf(err) == parley.CodeInvalid {
			return parley.Errorf(parley.CodeInvalid, "dead letter %s cannot be replayed: %s; have its sender send it right, and discard this one", l.ID, messageOf(err))
		}
		return err
	}
	if err := k.cfg.DB.ResolveReplay(noting, r, until, k.now()); err != nil {
		return parley.Errorf(parley.CodeUnavailable, "dead letter %s was published again, but that could not be noted: it still waits; discard it instead of replaying it once more: %w", l.ID, err)
	}
	return nil
}

func messageOf(err error) string {
	if e, ok := errors.AsType[*parley.Error](err); ok {
		return e.Message
	}
	return err.Error()
}

const (
	// againHeaders and againHeaderBytes are what a record may have of headers on a bus,
	// ours among them.
	againHeaders     = 64
	againHeaderBytes = 32 << 10
)

// again is the record of a dead letter as it is published once more. Our headers stand
// first: a reader takes no more than a bus carries, and must not lose them. Headers
// whose values were not kept are left out, and so are the last ones for which there is
// no room beside ours; left is how many.
func again(l *parley.DeadLetter) (m bus.Message, left int) {
	m = bus.Message{Subject: l.Source.Subject, Key: string(l.Key), Value: valueOf(l), Header: make(map[string]string, len(l.Headers)+2)}
	from := l.ID
	if s := l.Source; s.Topic != "" {
		from = s.Topic + "/" + strconv.FormatInt(int64(s.Partition), 10) + "/" + strconv.FormatInt(s.Offset, 10)
	}
	size := 0
	add := func(name string, value []byte) {
		if size += len(name) + len(value); len(m.Headers) == againHeaders || size > againHeaderBytes {
			size, left = againHeaderBytes, left+1 // none comes after one that is left out
			return
		}
		m.Header[name] = string(value)
		m.Headers = append(m.Headers, bus.Header{Name: name, Value: value})
	}
	add(bus.HeaderReplay, []byte(l.ID+"."+strconv.Itoa(l.Replays+1)))
	add(headerRedriven, []byte(from))
	for _, h := range l.Headers {
		if string(h.Value) != parley.Redacted && h.Name != bus.HeaderReplay && h.Name != headerRedriven {
			add(h.Name, h.Value)
		}
	}
	return m, left
}

// position is where a series of batches stands: what came in after it began is
// not of it, so that a replay that fails again is not replayed without end.
type position struct {
	began time.Time
	after store.DeadLetterMark
}

func (p position) String() string {
	return strconv.FormatInt(p.began.UnixMicro(), 36) + "." + strconv.FormatInt(p.after.At.UnixMicro(), 36) + "." + p.after.ID
}

func parsePosition(text string) (p position, ok bool) {
	began, rest, _ := strings.Cut(text, ".")
	at, id, _ := strings.Cut(rest, ".")
	b, err1 := strconv.ParseInt(began, 36, 64)
	a, err2 := strconv.ParseInt(at, 36, 64)
	if err1 != nil || err2 != nil || !strings.HasPrefix(id, "dl-") {
		return p, false
	}
	return position{time.UnixMicro(b).UTC(), store.DeadLetterMark{ID: id, At: time.UnixMicro(a).UTC()}}, true
}

// checkBatch completes a batch, or says what is wrong with it.
func (k *Keeper) checkBatch(b *parley.ReplayBatch) (position, error) {
	p := position{began: k.now()}
	switch {
	case b.Filter.State != "" && b.Filter.State != parley.DeadLetterWaiting:
		return p, parley.Errorf(parley.CodeInvalid, "by filter only waiting dead letters are replayed: replay one that is %s by its id, with force", b.Filter.State)
	case b.Rate < 0 || b.Rate > parley.ReplayMaxRate:
		return p, parley.Errorf(parley.CodeInvalid, "rate: %d a second, it must be 1 to %d", b.Rate, parley.ReplayMaxRate)
	case b.Limit < 0 || b.Limit > parley.ReplayMaxLimit:
		return p, parley.Errorf(parley.CodeInvalid, "limit: %d, it must be 1 to %d", b.Limit, parley.ReplayMaxLimit)
	}
	if b.Rate == 0 {
		b.Rate = parley.ReplayRate
	}
	if b.Limit == 0 {
		b.Limit = parley.ReplayLimit
	}
	if b.After != "" {
		var ok bool
		if p, ok = parsePosition(b.After); !ok {
			return p, parley.Errorf(parley.CodeInvalid, "after: %.100q is not what an answer gave as next", b.After)
		}
	}
	b.Filter.State = parley.DeadLetterWaiting
	if b.Filter.CreatedBefore.IsZero() || b.Filter.CreatedBefore.After(p.began) {
		b.Filter.CreatedBefore = p.began
	}
	return p, nil
}

// ReplayMany replays the waiting dead letters that a filter selects, oldest
// first, so many a second, and says how far it came: up to the limit, the end of
// its time, the end of ctx, or a store or bus that fails. One that cannot be
// replayed is reported and stays waiting; one that is somebody else's by now is
// counted apart. The error is invalid for a batch that
// cannot be, or that of the store or the bus if nothing was replayed.
func (k *Keeper) ReplayMany(ctx context.Context, b parley.ReplayBatch) (parley.ReplayReport, error) {
	report := parley.ReplayReport{DryRun: b.DryRun, First: []string{}, Failures: []parley.ReplayFailure{}, Others: []parley.ReplayFailure{}}
	at, err := k.checkBatch(&b)
	if err != nil {
		return report, err
	}
	ends := k.cfg.Now().Add(k.cfg.Limits.Batch)
	pace := time.NewTicker(time.Second / time.Duration(b.Rate))
	defer pace.Stop()
	for tried, first := 0, true; ; first = false {
		list, behind, err := k.cfg.DB.DeadLettersAfter(ctx, b.Filter, at.after, min(b.Limit-tried, 500))
		if err != nil {
			return report, k.unless(&report, err)
		}
		if first {
			report.Matched = behind
			for i := range list[:min(len(list), reported)] {
				report.First = append(report.First, list[i].ID)
			}
		}
		if b.DryRun || len(list) == 0 {
			return report, nil
		}
		for i := range list {
			if tried > 0 && !k.wait(ctx, pace.C, ends) {
				return report, nil
			}
			if err := k.replayOne(ctx, &report, &list[i], &b); err != nil {
				return report, k.unless(&report, err)
			}
			tried++
			at.after = store.DeadLetterMark{ID: list[i].ID, At: list[i].CreatedAt}
			report.Next = at.String()
		}
		if behind <= len(list) {
			report.Next = ""
			return report, nil
		}
		if tried >= b.Limit {
			return report, nil
		}
	}
}

// wait waits for the next turn; false if there is none in this batch.
func (k *Keeper) wait(ctx context.Context, turn <-chan time.Time, ends time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-turn:
	}
	return k.cfg.Now().Before(ends) && ctx.Err() == nil
}

// unless gives the error only if nothing would be lost by it.
func (k *Keeper) unless(report *parley.ReplayReport, err error) error {
	if report.Replayed+report.Failed+report.Elsewhere > 0 {
		k.cfg.Logger.Warn("a batch of replays ended early", "event", "dead_letters", "replayed", report.Replayed, "error", err)
		return nil
	}
	return err
}

// replayOne adds one replay to the report. An error is that of a store or a bus that
// does not answer: the others would fail, too. That a value cannot be fetched now
// concerns one run alone.
func (k *Keeper) replayOne(ctx context.Context, report *parley.ReplayReport, l *parley.DeadLetter, b *parley.ReplayBatch) error {
	var err error
	if l.Kind == parley.DeadLetterForeign && b.Filter.Kind != l.Kind {
		err = parley.Errorf(parley.CodeInvalid,
			"a task of another platform's executor, which has gone on without it: a replay calls its agent again and helps no run; if that is wanted, select it by its kind (%s)", l.Kind)
	} else {
		_, err = k.Replay(ctx, parley.ReplayRequest{ID: l.ID, By: b.By})
	}
	code := parley.CodeOf(err)
	switch {
	case err == nil:
		report.Replayed++
		return nil
	case ctx.Err() != nil || code == parley.CodeUnavailable && !errors.Is(err, store.ErrAway):
		return err
	}
	if code == parley.CodeConflict {
		if what := k.elsewhere(ctx, l.ID, err); what != "" {
			report.Elsewhere++
			report.Others = noteOne(report.Others, l.ID, code, what)
			return nil
		}
	}
	report.Failed++
	detail := messageOf(err)
	if code == parley.CodeInternal { // such as a value that is gone: it concerns this run alone, and would hold up all behind it
		detail = "An unexpected error occurred; the log says which"
		k.cfg.Logger.Error("a dead letter could not be replayed", "event", "dead_letters", "id", l.ID, "run", l.Run, "error", err)
	}
	if code == parley.CodeUnavailable {
		detail = "A value of its run cannot be fetched just now, the log says which: replay it again later"
		k.cfg.Logger.Warn("a dead letter could not be replayed just now", "event", "dead_letters", "id", l.ID, "run", l.Run, "error", err)
	}
	report.Failures = noteOne(report.Failures, l.ID, code, detail)
	return nil
}

// noteOne adds to the dead letters that a report names, of which there are not too many.
func noteOne(list []parley.ReplayFailure, id string, code parley.Code, detail string) []parley.ReplayFailure {
	if len(list) == reported {
		return list
	}
	return append(list, parley.ReplayFailure{ID: id, Code: code, Detail: detail})
}

// elsewhere says what somebody else has done with a dead letter, or is doing, since a
// batch has selected it; "" if the conflict is another one.
func (k *Keeper) elsewhere(ctx context.Context, id string, conflict error) string {
	now, err := k.cfg.DB.DeadLetter(ctx, id)
	switch {
	case err == nil && now.State != parley.DeadLetterWaiting:
		return "it was " + string(now.State) + " by " + cmp.Or(now.ResolvedBy, "somebody else") + " meanwhile"
	case errors.Is(conflict, store.ErrReplaying), errors.Is(conflict, errChanged):
		return "it " + store.ErrReplaying.Error() + "; should that fail, it still waits"
	}
	return ""
}

// Discard notes that nothing is to be done about a dead letter and gives it as
// it is then; again is no error. not_found, conflict (it was replayed), limit.
func (k *Keeper) Discard(ctx context.Context, req parley.DiscardRequest) (parley.DeadLetter, error) {
	if err := checkNote(req.Note); err != nil {
		return parley.DeadLetter{}, err
	}
	if err := k.cfg.DB.DiscardDeadLetter(ctx, req, k.now()); err != nil {
		return parley.DeadLetter{}, err
	}
	return k.cfg.DB.DeadLetter(ctx, req.ID)
}

// DiscardMany discards all waiting dead letters that a filter selects. invalid,
// limit.
func (k *Keeper) DiscardMany(ctx context.Context, req parley.DiscardRequest) (parley.DiscardReport, error) {
	report := parley.DiscardReport{DryRun: req.DryRun, First: []string{}}
	if err := checkNote(req.Note); err != nil {
		return report, err
	}
	if s := req.Filter.State; s != "" && s != parley.DeadLetterWaiting {
		return report, parley.Errorf(parley.CodeInvalid, "only waiting dead letters are discarded, not those that are %s", s)
	}
	req.Filter.State = parley.DeadLetterWaiting
	now := k.now()
	if end := now.Add(time.Microsecond); req.Filter.CreatedBefore.IsZero() || req.Filter.CreatedBefore.After(end) {
		req.Filter.CreatedBefore = end
	}
	list, total, err := k.cfg.DB.DeadLettersAfter(ctx, req.Filter, store.DeadLetterMark{}, reported)
	if err != nil {
		return report, err
	}
	report.Matched = total
	for i := range list {
		report.First = append(report.First, list[i].ID)
	}
	if req.DryRun || total == 0 {
		return report, nil
	}
	report.Discarded, err = k.cfg.DB.DiscardDeadLetters(ctx, req, now)
	return report, err
}

func checkNote(note string) error {
	if n := len([]rune(note)); n > maxNote {
		return parley.Errorf(parley.CodeLimit, "reason: %d characters, the limit is %d", n, maxNote)
	}
	return nil
}
