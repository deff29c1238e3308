package verification

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/zone"
)

const (
	// fetchTimeout bounds one look at a task, answerTimeout one whose answer was on its
	// way then: a file of 10 MiB takes so long at 1 Mbit/s.
	fetchTimeout  = 10 * time.Second
	answerTimeout = 2 * time.Minute
	// lookFirst is how long after an unknown outcome the other zone is asked.
	lookFirst = 2 * time.Second
	// pollFirst is the time to the first look at a task, which then grows by half up
	// to pollMost.
	pollFirst = 2 * time.Second
	pollMost  = 10 * time.Second
	// askMost bounds the wait for a zone that cannot take a question.
	askMost = 15 * time.Second
)

func (v *visit) meta() zone.Meta {
	return zone.Meta{CorrelationID: v.q.CorrelationID, IdempotencyKey: v.q.ID, Affinity: v.q.Affinity, Trace: v.q.Trace}
}

func (v *visit) task() zone.Task {
	t := zone.Task{
		Channel: v.q.Channel, Text: v.q.Text, CorrelationID: v.q.CorrelationID, ThreadTS: v.q.ThreadTS, TeamID: v.q.Team, UserID: v.q.User,
	}
	if json.Unmarshal(v.q.Attachments, &t.Attachments) != nil {
		t.Attachments = nil
	}
	if v.zone.cfg.Profile == zone.ProfileStrict {
		t.BotToken = v.zone.cfg.Slack.BotToken
	}
	return t
}

// ask sends a question to the other zone. That it is sent is stored before.
func (v *visit) ask(ctx context.Context) error {
	z, now := v.zone, v.zone.now()
	if !now.Before(v.q.ExpiresAt) {
		return v.fail(ctx, string(zone.ReasonTimeout))
	}
	if v.q.Attempts >= z.cfg.Limits.Attempts {
		return v.fail(ctx, textUnknown)
	}
	first := v.q.Attempts == 0
	v.q.State, v.q.Attempts, v.q.SentAt = store.ZoneSent, v.q.Attempts+1, now
	if err := v.save(ctx, false); err != nil {
		return err
	}
	if first {
		v.shown = z.showWorking(ctx, &v.q)
	}
	v.log.InfoContext(ctx, "execute_task", "event", "zone_request", "attempt", v.q.Attempts)
	asking, cancel := context.WithTimeout(ctx, v.q.ExpiresAt.Sub(now))
	defer cancel()
	result, info, err := z.cfg.Execution.Ask(asking, zone.Call{ID: v.q.ID, Task: v.task(), Meta: v.meta()})
	v.told(info, err)
	v.logOutcome(ctx, "execute_task", string(result.Status), info, err)
	if err != nil {
		return v.notAnswered(ctx, err)
	}
	switch result.Status {
	case zone.StatusSuccess, zone.StatusCompleted:
		return v.answered(ctx, &result)
	case zone.StatusAccepted:
		v.q.State, v.q.TaskID, v.q.Polls = store.ZoneAccepted, result.TaskID, 0
		return v.park(ctx, pollAfter(result.PollAfterMS, 0))
	case zone.StatusError, zone.StatusFailed:
		return v.fail(ctx, string(zone.ReasonTaskFailed))
	}
	return v.fail(ctx, transportText+string(zone.ClassBadResponse))
}

// told keeps the place where the other zone has the task.
func (v *visit) told(info zone.Info, err error) {
	if e, ok := errors.AsType[*zone.TransportError](err); ok && info.Affinity == "" {
		info = e.Info
	}
	if info.Affinity != "" {
		v.q.Affinity = info.Affinity
	}
}

// logOutcome writes the line by which a response is found. The text of an error of
// the other zone is not in it, since it may hold anything; that of a
// [zone.TransportError] is ours, and all by which operators know what to mend.
func (v *visit) logOutcome(ctx context.Context, method, status string, info zone.Info, err error) {
	args := []any{"event", "zone_response", "method", method, "attempts", info.Attempts, "http_status", info.Status}
	if info.ProviderRequestID != "" {
		args = append(args, "provider_request_id", clean(info.ProviderRequestID))
	}
	if err == nil {
		v.log.InfoContext(ctx, "answer of the other zone", append(args, "status", status)...)
		return
	}
	if e, ok := errors.AsType[*zone.TransportError](err); ok {
		args = append(args, "class", string(e.Class), "reason", "", "error", zone.CleanText(e.Err.Error()))
	} else if e, ok := errors.AsType[*zone.Error](err); ok {
		args = append(args, "class", "", "reason", clean(string(e.Reason)), "code", int64(e.Code))
	}
	v.log.WarnContext(ctx, "no answer of the other zone", args...)
}

// notAnswered decides what follows a request that came to an error.
func (v *visit) notAnswered(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*zone.Error](err); ok {
		// A foreign failure is the end of work that was begun: what was too busy is
		// something behind that zone.
		if e.Foreign == "" && (e.Reason == zone.ReasonOverloaded || e.Reason == zone.ReasonStopping) {
			return v.again(ctx, string(e.Reason), time.Duration(e.RetryAfterMS)*time.Millisecond)
		}
		return v.fail(ctx, string(e.Reason))
	}
	e, ok := errors.AsType[*zone.TransportError](err)
	switch {
	case ok && e.Class.Safe():
		return v.again(ctx, transportText+string(e.Class), e.RetryAfter)
	case ok && (e.Class == zone.ClassAuth || e.Class == zone.ClassTooLarge):
		return v.fail(ctx, transportText+string(e.Class))
	}
	// It may have arrived: the state says so, and the next look asks.
	v.q.Polls = 0
	return v.park(ctx, lookFirst)
}

// again has the question sent once more, since the other zone has not begun, or
// fails with a text if there is no time left.
func (v *visit) again(ctx context.Context, text string, after time.Duration) error {
	wait := max(v.zone.backoff(v.q.Attempts, askMost), after)
	if v.q.Attempts >= v.zone.cfg.Limits.Attempts || !v.zone.now().Add(wait).Before(v.q.ExpiresAt) {
		return v.fail(ctx, text)
	}
	v.q.State = store.ZoneReceived
	return v.park(ctx, wait)
}

// pollAfter is the time to the next look at a task after n looks: as the other
// zone wants it, but not longer than that is sensible.
func pollAfter(ms int64, n int) time.Duration {
	if ms > 0 {
		return min(max(time.Duration(ms)*time.Millisecond, 100*time.Millisecond), pollMost)
	}
	d := pollFirst
	for ; n > 0 && d < pollMost; n-- {
		d += d / 2
	}
	return min(d, pollMost)
}

// fetch asks what became of a task: one that was accepted, or one of which is not
// known whether it arrived. Who comes after the deadline looks once.
func (v *visit) fetch(ctx context.Context) error {
	query := zone.Query{TaskID: v.q.TaskID, CorrelationID: v.q.CorrelationID}
	if v.q.State == store.ZoneSent {
		query.TaskID = v.q.ID
	}
	result, err := v.look(ctx, query, fetchTimeout)
	if errors.Is(err, errLarge) {
		result, err = v.look(ctx, query, answerTimeout)
	}
	if err != nil && ctx.Err() != nil {
		return v.park(ctx, 0) // we are being stopped, which says nothing of the task
	}
	late := !v.zone.now().Before(v.q.ExpiresAt)
	v.q.Polls++
	if err != nil {
		return v.notFetched(ctx, err, late)
	}
	switch result.Status {
	case zone.StatusCompleted, zone.StatusSuccess:
		if result.Result == nil {
			return v.fail(ctx, transportText+string(zone.ClassBadResponse))
		}
		return v.answered(ctx, result.Result)
	case zone.StatusFailed, zone.StatusExpired, zone.StatusError:
		reason := zone.ReasonTaskFailed
		if result.Error != nil && result.Error.Reason != "" {
			reason = result.Error.Reason
		} else if result.Status == zone.StatusExpired {
			reason = zone.ReasonUnknownTask
		}
		return v.fail(ctx, string(reason))
	case zone.StatusRunning, zone.StatusAccepted:
		if late {
			return v.fail(ctx, string(zone.ReasonTimeout))
		}
		v.q.State, v.q.TaskID = store.ZoneAccepted, query.TaskID
		return v.parkUntil(ctx, pollAfter(result.PollAfterMS, v.q.Polls))
	}
	return v.fail(ctx, transportText+string(zone.ClassBadResponse))
}

// errLarge says that a look ended while its answer was coming.
var errLarge = errors.New("verification: there was not enough time for the answer")

// look is one look at a task.
func (v *visit) look(ctx context.Context, query zone.Query, within time.Duration) (zone.AsyncResult, error) {
	asking, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	result, info, err := v.zone.cfg.Execution.Fetch(asking, query, v.meta())
	v.told(info, err)
	v.logOutcome(ctx, "get_async_task_result", string(result.Status), info, err)
	e, ok := errors.AsType[*zone.TransportError](err)
	if ok && e.Class == zone.ClassUnknownOutcome && e.Info.Status == http.StatusOK && errors.Is(asking.Err(), context.DeadlineExceeded) {
		err = errors.Join(errLarge, err)
	}
	return result, err
}

// notFetched decides what follows a look that came to an error.
func (v *visit) notFetched(ctx context.Context, err error, late bool) error {
	lost := textUnknown
	if v.q.State == store.ZoneAccepted {
		lost = string(zone.ReasonTimeout)
	}
	if e, ok := errors.AsType[*zone.Error](err); ok {
		switch {
		case e.Reason == zone.ReasonUnknownTask && v.q.State == store.ZoneSent && !late:
			// It never arrived. A zone that knows this answer knows ids, too: should it
			// arrive late, it is the same task.
			v.q.State, v.q.Polls = store.ZoneReceived, 0
			return v.park(ctx, 0)
		case e.Reason == zone.ReasonUnknownTask:
			return v.fail(ctx, string(e.Reason))
		case e.Reason == zone.ReasonTooLarge: // the answer is there, and cannot come
			return v.fail(ctx, string(e.Reason))
		case e.Reason != zone.ReasonOverloaded && e.Reason != zone.ReasonStopping && e.Reason != zone.ReasonInternal && e.Reason != zone.ReasonTimeout:
			if v.q.State == store.ZoneSent {
				return v.fail(ctx, textUnknown) // it cannot be asked
			}
			return v.fail(ctx, string(e.Reason))
		}
	}
	fault, ok := errors.AsType[*zone.TransportError](err)
	switch {
	case ok && fault.Class == zone.ClassTooLarge: // however often it is asked for
		return v.fail(ctx, transportText+string(fault.Class))
	case late:
		return v.fail(ctx, lost)
	}
	wait := pollAfter(0, v.q.Polls)
	if ok {
		wait = max(wait, fault.RetryAfter)
	}
	return v.parkUntil(ctx, wait)
}

// parkUntil is park, but not beyond the deadline.
func (v *visit) parkUntil(ctx context.Context, wait time.Duration) error {
	return v.park(ctx, min(wait, v.q.ExpiresAt.Sub(v.zone.now())))
}

// answered stores the answer, before anything of it is posted.
func (v *visit) answered(ctx context.Context, r *zone.Result) error {
	v.zone.redact(r)
	a, dropped := answerFrom(r, v.zone.texts.Get(textInFile))
	if dropped != "" {
		v.log.WarnContext(ctx, "a part of an answer is not posted", "event", "zone_answer", "why", dropped)
	}
	switch {
	case a.len() == 0 && dropped == fileTooLarge:
		return v.fail(ctx, string(zone.ReasonTooLarge))
	case a.len() == 0:
		return v.fail(ctx, textNoAnswer)
	}
	return v.settle(ctx, a, "answered")
}

// redact takes the bot token out of a result: with zone.ProfileStrict the other zone
// has it, and its model may say it.
func (z *Zone) redact(r *zone.Result) {
	token, instead := z.cfg.Slack.BotToken.Reveal(), []byte("[redacted]")
	without := func(s string) string { return strings.ReplaceAll(s, string(token), string(instead)) }
	r.ResponseText = without(r.ResponseText)
	if r.FileArtifact == nil {
		return
	}
	r.FileArtifact.Name = without(r.FileArtifact.Name)
	for i := range r.FileArtifact.Parts {
		part := &r.FileArtifact.Parts[i]
		part.FileName = without(part.FileName)
		part.ContentBase64 = bytes.ReplaceAll(part.ContentBase64, token, instead)
	}
}

// fail stores a text of ours as the answer.
func (v *visit) fail(ctx context.Context, text string) error {
	if !v.zone.texts.has(text) { // the other zone may say anything
		text = string(zone.ReasonInternal)
	}
	return v.settle(ctx, answerOf(v.zone.texts.Failure(text, v.q.CorrelationID)), text)
}

func (v *visit) settle(ctx context.Context, a answer, outcome string) error {
	v.q.State, v.q.Outcome, v.q.Answer, v.q.Posted, v.q.Tries = store.ZoneAnswered, outcome, a.encode(), 0, 0
	v.q.AnsweredAt = v.zone.now()
	if err := v.save(ctx, true); err != nil {
		return err
	}
	v.zone.release(ctx, v.q.Affinity)
	return nil
}
