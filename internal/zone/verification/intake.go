package verification

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/zone"
)

// insertWithin bounds the storing of a question: Slack waits 3 s for an answer.
const insertWithin = 2 * time.Second

// errBusy is the answer to Slack that it shall come again.
var errBusy = errors.New("verification: too many questions wait")

// delivery tells how an event came.
type delivery struct {
	// retry and reason are what Slack says of a repetition, "" for the first time.
	retry, reason string
}

// take does what an event asks for. When it returns without an error the event
// needs not come again.
func (z *Zone) take(ctx context.Context, e *envelope, d delivery) error {
	line := z.cfg.Logger.With("event", "slack_event", "event_id", e.eventID, "team", e.team, "kind", clean(e.inner.kind))
	if d.retry != "" {
		line = line.With("retry", clean(d.retry), "reason", clean(d.reason))
	}
	switch {
	case e.kind == "app_rate_limited":
		z.metrics.events.WithLabelValues("app_rate_limited").Inc()
		line.WarnContext(ctx, "Slack sends no events for a while: there are too many")
		return nil
	case e.kind != "event_callback":
		z.metrics.events.WithLabelValues("ignored").Inc()
		line.DebugContext(ctx, "not an event", "type", clean(e.kind))
		return nil
	case e.inner.kind == "app_uninstalled", e.inner.kind == "tokens_revoked" && e.tokens:
		z.metrics.events.WithLabelValues("revoked").Inc()
		z.revoke(e.team)
		line.WarnContext(ctx, "the token of a workspace is not used any more")
		return nil
	}
	if why, ok := z.isQuestion(e); !ok {
		z.metrics.events.WithLabelValues("ignored").Inc()
		line.DebugContext(ctx, "ignored", "why", why)
		return nil
	}
	return z.store(ctx, e, line)
}

// clean gives a word of somebody else's as it may stand in a log.
func clean(s string) string {
	if len(s) > 64 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") != "" {
		return "other"
	}
	return s
}

// store keeps a question, once.
func (z *Zone) store(ctx context.Context, e *envelope, line *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, insertWithin)
	defer cancel()
	limit := 2 * z.cfg.Limits.Backlog
	waiting, err := z.cfg.DB.ZoneBacklog(ctx, limit)
	if err == nil && waiting >= limit {
		err = errBusy
	}
	if err != nil {
		return z.notStored(ctx, err, line)
	}
	q, taken := z.newQuestion(e, waiting)
	// A commit that is under way is never given up, but Slack does not wait for it:
	// when the event comes again, the question is there.
	type outcome struct {
		added bool
		err   error
	}
	done := make(chan outcome, 1)
	z.storing.Go(func() {
		added, err := z.cfg.DB.AddZoneQuestion(ctx, q)
		if err != nil || !added {
			z.rate.giveBack(taken)
		}
		done <- outcome{added, err}
	})
	var o outcome
	select {
	case o = <-done:
	case <-ctx.Done():
		o.err = context.Cause(ctx)
	}
	line = line.With("question", q.ID, "correlation_id", q.CorrelationID, "channel", q.Channel)
	switch {
	case o.err != nil:
		return z.notStored(ctx, o.err, line)
	case !o.added:
		z.metrics.events.WithLabelValues("duplicate").Inc()
		line.InfoContext(ctx, "the same question again")
		return nil
	case q.Outcome != "":
		if !q.EndedAt.IsZero() {
			z.metrics.questions.WithLabelValues(q.Outcome).Inc()
		}
		z.metrics.events.WithLabelValues("refused").Inc()
		line.InfoContext(ctx, "a question was refused", "why", q.Outcome)
	default:
		z.metrics.events.WithLabelValues("accepted").Inc()
		line.InfoContext(ctx, "a question was taken", "characters", utf8.RuneCountInString(q.Text), "files", len(e.inner.files))
	}
	z.nudge()
	return nil
}

func (z *Zone) notStored(ctx context.Context, err error, line *slog.Logger) error {
	z.metrics.events.WithLabelValues("failed").Inc()
	line.ErrorContext(ctx, "a question could not be stored; Slack is asked to come again", "error", err)
	return err
}

// newQuestion makes the row of a question, which is answered at once if it is
// refused. taken is what it has taken of the rate of its user.
func (z *Zone) newQuestion(e *envelope, waiting int) (q store.ZoneQuestion, taken grant) {
	now := z.now()
	in := &e.inner
	q = store.ZoneQuestion{
		ID: z.cfg.NewID(), EventID: e.eventID, Team: e.team, Channel: in.channel, TS: in.ts, ThreadTS: in.ts, User: in.user,
		CorrelationID: z.cfg.NewID(), State: store.ZoneReceived, DueAt: now, CreatedAt: now, ExpiresAt: now.Add(z.cfg.Timing.Deadline),
		Trace: e.trace,
	}
	if in.thread != "" {
		q.ThreadTS = in.thread
	}
	taken = z.rate.take(e.team+"#"+in.user, in.channel+"#"+in.ts, z.cfg.Now())
	text := z.prompt(e)
	why := z.refusal(e, text)
	switch {
	case !taken.ok: // before all else: refusals are posted, too
		why = textRateLimited
	case why == "" && waiting >= z.cfg.Limits.Backlog:
		why = textBusy
	}
	if why == "" {
		if text == "" {
			text = z.texts.Get(textFilesOnly)
		}
		q.Text, q.Attachments = text, attachments(in.files)
		return q, taken
	}
	q.Outcome, q.State, q.AnsweredAt = why, store.ZoneAnswered, now
	q.Answer = answerOf(z.texts.Get(why)).encode()
	if why == textRateLimited && !taken.tell {
		q.State, q.EndedAt, q.Answer = store.ZoneDone, now, nil
	}
	return q, taken
}

// refusal says by which text a question is refused, "" if it is not.
func (z *Zone) refusal(e *envelope, text string) string {
	l, in := &z.cfg.Limits, &e.inner
	allowed := func(list []string, id string) bool { return len(list) == 0 || slices.Contains(list, id) }
	switch {
	case !allowed(l.Teams, e.team), !allowed(l.Users, in.user), !allowed(l.Channels, in.channel):
		return textNotAllowed
	case utf8.RuneCountInString(text) > l.Prompt:
		return textTooLong
	case text == "" && len(in.files) == 0:
		return textEmpty
	case len(in.files) > max(l.Files, 0):
		return textFiles
	}
	for _, f := range in.files {
		kind, _, err := mime.ParseMediaType(f.MIMEType)
		if f.ID == "" || err != nil || !slices.ContainsFunc(l.Types, func(t string) bool { return sameType(t, kind) }) {
			return textFileType
		}
		limit := l.DocumentBytes
		if strings.HasPrefix(kind, "image/") {
			limit = l.ImageBytes
		}
		if f.Size > limit {
			return textFileSize
		}
	}
	return ""
}

func sameType(pattern, kind string) bool {
	if family, ok := strings.CutSuffix(pattern, "/*"); ok {
		return strings.HasPrefix(kind, family+"/")
	}
	return strings.EqualFold(pattern, kind)
}

func attachments(files []zone.Attachment) []byte {
	if len(files) == 0 {
		return nil
	}
	b, err := json.Marshal(files)
	if err != nil { // strings and a number
		return nil
	}
	return b
}

const (
	// maxBody bounds an event, in bytes, maxEvents those that are stored at a time.
	maxBody   = 1 << 20
	maxEvents = 128
	// maxUnread bounds what has come, in bytes, of events that nobody has looked at:
	// whoever is no Slack may send what they like, until it was read. Who sends nothing
	// keeps nobody out.
	maxUnread = 64 << 20
	// eventWithin is how long an event waits for its turn.
	eventWithin = 500 * time.Millisecond
)

// turn waits until an event may be stored; it is over with done. It is false for one
// for which there is no room: Slack comes again.
func (z *Zone) turn(ctx context.Context) (done func(), ok bool) {
	ctx, cancel := context.WithTimeout(ctx, eventWithin)
	defer cancel()
	select {
	case z.events <- struct{}{}:
		return func() { <-z.events }, true
	case <-ctx.Done():
		z.crowded(ctx, maxEvents, "events")
		return nil, false
	}
}

func (z *Zone) crowded(ctx context.Context, limit int, unit string) {
	z.metrics.events.WithLabelValues("failed").Inc()
	z.cfg.Logger.WarnContext(ctx, "too many events at once; Slack is asked to come again", "event", "slack_event", "limit", limit, "unit", unit)
}

// readBody reads a request, or gives the status by which it is refused. The room that
// it takes is given back with done.
func (z *Zone) readBody(w http.ResponseWriter, r *http.Request) (body []byte, done func(), status int) {
	src := &counted{Reader: http.MaxBytesReader(w, r.Body, maxBody), all: &z.unread}
	body, err := io.ReadAll(src)
	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case large:
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, errBusy):
		z.crowded(r.Context(), maxUnread, "bytes")
		status = http.StatusServiceUnavailable
	case err != nil:
		status = http.StatusBadRequest
	}
	return body, src.done, status
}

// counted is a reader of which is counted what it has given, together with others.
type counted struct {
	io.Reader
	all *atomic.Int64
	n   int64
}

// Read reads, unless there is too much of all of them.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	if c.all.Add(int64(n)) > maxUnread {
		err = errBusy
	}
	return n, err
}

func (c *counted) done() { c.all.Add(-c.n) }

// verified says whether Slack has sent a body now. Whoever gave this zone a wrong
// secret finds another line than one whose clock is wrong.
func (z *Zone) verified(r *http.Request, body []byte) bool {
	why, age := verify(z.cfg.Slack.SigningSecret, r.Header, body, z.cfg.Now())
	if why == "" {
		return true
	}
	z.metrics.events.WithLabelValues("unverified").Inc()
	text, args := "a request that Slack has not signed", []any{"event", "slack_unverified", "bytes", len(body), "why", why}
	if why == otherTime {
		text, args = "a request that Slack has signed, but not now; is the clock of this machine right?", append(args, "age", age)
	}
	z.cfg.Logger.WarnContext(r.Context(), text, args...)
	return false
}

// serveEvents answers Slack. Nothing happens for a request that is not signed.
func (z *Zone) serveEvents(w http.ResponseWriter, r *http.Request) {
	// A sender who is slow keeps nothing waiting. Not every server can be told so.
	_ = http.NewResponseController(w).SetReadDeadline(z.cfg.Now().Add(insertWithin))
	body, free, status := z.readBody(w, r)
	defer free()
	if status == 0 && !z.verified(r, body) {
		status = http.StatusUnauthorized
	}
	if status == 0 {
		done, ok := z.turn(r.Context())
		if ok {
			defer done()
		} else {
			status = http.StatusServiceUnavailable
		}
	}
	if status != 0 {
		http.Error(w, http.StatusText(status), status)
		return
	}
	e, ok := readEnvelope(body)
	switch {
	case !ok:
		z.metrics.events.WithLabelValues("ignored").Inc()
	case e.kind == "url_verification":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write([]byte(e.challenge))
		return
	default:
		d := delivery{retry: r.Header.Get("X-Slack-Retry-Num"), reason: r.Header.Get("X-Slack-Retry-Reason")}
		// Slack has none; what stands in front of this may have begun one.
		e.trace = parley.TraceOf(r.Header.Values(parley.HeaderTraceparent), r.Header.Values(parley.HeaderTracestate))
		if z.take(context.WithoutCancel(r.Context()), &e, d) != nil {
			http.Error(w, http.StatusText(http.StatusServiceUnavailable), http.StatusServiceUnavailable)
			return
		}
	}
	w.WriteHeader(http.StatusOK)
}
