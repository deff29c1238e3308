package verification

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/parley-project/parley/internal/store"
)

// postMost bounds the wait between tries to post.
const postMost = time.Minute

func (v *visit) thread() thread {
	return thread{channel: v.q.Channel, ts: v.q.ThreadTS, asked: v.q.TS}
}

// post posts the next part of an answer. That it is under way is stored before, so
// that whoever finds it so looks first.
func (v *visit) post(ctx context.Context) error {
	z := v.zone
	a, err := readAnswer(v.q.Answer)
	switch {
	case err != nil:
		return v.end(ctx, store.ZoneFailed, "unreadable")
	case z.isRevoked(v.q.Team):
		return v.end(ctx, store.ZoneFailed, "token_revoked")
	case v.q.Posted >= a.len():
		return v.finish(ctx)
	case z.now().Sub(v.q.AnsweredAt) > z.cfg.Timing.PostFor:
		return v.end(ctx, store.ZoneFailed, "post_timeout")
	}
	if wait := z.pace.wait(v.q.Team+"#"+v.q.Channel, v.q.ID, z.cfg.Now()); wait > 0 {
		return v.park(ctx, wait)
	}
	part := v.q.Posted
	isFile := part == len(a.Parts)
	if isFile && a.File.ID == "" {
		id, o := z.upload(ctx, a.File)
		if o.verdict == callUnknown {
			o.verdict = callAgain // nobody sees what was uploaded and not shared
		}
		if o.verdict != callDone {
			return v.notPosted(ctx, o)
		}
		a.File.ID, v.q.Answer = id, nil
		v.q.Answer = a.encode()
	}
	v.q.State = store.ZonePosting
	if err := v.save(ctx, isFile); err != nil {
		return err
	}
	if z.now().After(v.q.DueAt.Add(-slackTimeout)) {
		return errLeft // this machine was asleep: by the end of the call somebody else may have the question
	}
	var o outcome
	if isFile {
		o = z.share(ctx, v.thread(), a.File)
	} else {
		o = z.postPart(ctx, v.thread(), v.q.ID, part, a.Parts[part])
	}
	if o.verdict != callDone {
		return v.notPosted(ctx, o)
	}
	return v.partPosted(ctx, a)
}

// partPosted notes that a part stands in the thread.
func (v *visit) partPosted(ctx context.Context, a answer) error {
	v.q.Posted++
	v.q.State, v.q.Tries = store.ZoneAnswered, 0
	if v.q.Posted >= a.len() {
		return v.finish(ctx)
	}
	return v.save(ctx, false)
}

func (v *visit) finish(ctx context.Context) error {
	if err := v.end(ctx, store.ZoneDone, v.q.Outcome); err != nil {
		return err
	}
	v.zone.showDone(ctx, &v.q, v.shown)
	return nil
}

// notPosted decides what follows a post that came to an error.
func (v *visit) notPosted(ctx context.Context, o outcome) error {
	z := v.zone
	v.log.WarnContext(ctx, "a message was not posted", "event", "slack_post", "part", v.q.Posted, "code", o.code, "again_in", o.after)
	v.q.Tries++
	switch o.verdict {
	case callRefused:
		return v.refused(ctx, o)
	case callLater:
		v.q.State = store.ZoneAnswered
		return v.park(ctx, o.after)
	case callUnknown:
		// It stays in this state: it may be there, or come yet.
		return v.park(ctx, max(z.cfg.Timing.Settle, z.backoff(v.q.Tries, postMost)))
	default:
		v.q.State = store.ZoneAnswered
		return v.park(ctx, z.backoff(v.q.Tries, postMost))
	}
}

// refused ends a question whose answer, or the next part of it, Slack does not
// want.
func (v *visit) refused(ctx context.Context, o outcome) error {
	switch o.code {
	case "token_revoked", "account_inactive", "invalid_auth":
		v.zone.cfg.Logger.ErrorContext(ctx, "Slack does not accept the token of this app", "event", "slack_auth", "code", o.code, "team", v.q.Team)
	}
	if err := v.end(ctx, store.ZoneFailed, o.code); err != nil {
		return err
	}
	v.zone.showDone(ctx, &v.q, v.shown)
	return nil
}

// find looks whether the part that was under way stands in the thread.
func (v *visit) find(ctx context.Context) error {
	z := v.zone
	a, err := readAnswer(v.q.Answer)
	if err != nil || v.q.Posted >= a.len() {
		return v.end(ctx, store.ZoneFailed, "unreadable")
	}
	if z.isRevoked(v.q.Team) {
		return v.end(ctx, store.ZoneFailed, "token_revoked")
	}
	fileID := ""
	if v.q.Posted == len(a.Parts) {
		fileID = a.File.ID
	}
	there, o := z.posted(ctx, v.thread(), v.q.ID, v.q.Posted, fileID)
	switch {
	case there:
		v.log.InfoContext(ctx, "a message was posted after all", "event", "slack_post", "part", v.q.Posted)
		return v.partPosted(ctx, a)
	case o.verdict == callDone:
		v.q.State = store.ZoneAnswered
		return v.save(ctx, false)
	case o.verdict == callRefused:
		// Nobody can tell, and two answers are worse than one that is missing here and
		// found in the log.
		return v.end(ctx, store.ZoneFailed, "post_unknown."+o.code)
	case z.now().Sub(v.q.AnsweredAt) > z.cfg.Timing.PostFor:
		return v.end(ctx, store.ZoneFailed, "post_timeout")
	}
	v.q.Tries++
	return v.park(ctx, max(o.after, z.backoff(v.q.Tries, postMost)))
}

// uploadable says whether the token may go to where Slack wants a file: a host of
// Slack, or the one of the Web API.
func (z *Zone) uploadable(target string) bool {
	u, err := url.Parse(target)
	api, _ := url.Parse(z.cfg.Slack.APIURL)
	if err != nil || u.Host == "" || u.User != nil {
		return false
	}
	if u.Host == api.Host && u.Scheme == api.Scheme {
		return true
	}
	host := strings.ToLower(u.Hostname())
	for _, domain := range []string{"slack.com", "slack-gov.com"} {
		if host == domain || strings.HasSuffix(host, "."+domain) {
			return u.Scheme == "https"
		}
	}
	return false
}
