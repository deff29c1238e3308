package verification

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slack-go/slack"
)

// maxReply bounds what is read of a response of Slack, in bytes.
const maxReply = 16 << 20

// DialFunc makes a network connection.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// transportTo gives what carries the calls of the Web API.
func transportTo(cfg *Config) http.RoundTripper {
	if cfg.Slack.Transport != nil {
		return cfg.Slack.Transport
	}
	return &http.Transport{Proxy: cfg.Slack.Proxy, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: cfg.Limits.Concurrent, IdleConnTimeout: time.Minute}
}

// newAPI gives the client of the Web API. It repeats nothing by itself: it cannot
// know whether a message was posted. It follows no redirects, since the token is
// in the body. within bounds one call; 0: only its context does.
func newAPI(cfg *Config, transport http.RoundTripper, within time.Duration) *slack.Client {
	return slack.New(string(cfg.Slack.BotToken.Reveal()), slack.OptionHTTPClient(newWeb(transport, within)), slack.OptionAPIURL(cfg.Slack.APIURL),
		slack.OptionAppLevelToken(string(cfg.Slack.AppToken.Reveal())), slack.OptionLog(silent{}))
}

// newWeb gives what sends the requests of newAPI.
func newWeb(transport http.RoundTripper, within time.Duration) *http.Client {
	return &http.Client{
		Transport: bounded{transport}, Timeout: within,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// silent is the log of the library: its lines would hold what people write.
type silent struct{}

// Output drops a line.
func (silent) Output(int, string) error { return nil }

// bounded is a RoundTripper whose responses have an end.
type bounded struct{ next http.RoundTripper }

// RoundTrip sends a request.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(r)
	if err == nil {
		plainRetryAfter(resp.Header)
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxReply), resp.Body}
	}
	return resp, err
}

// plainRetryAfter writes the time after which a call may be made again as the library reads it,
// which otherwise takes a refusal for a call of which nobody knows what became: what stands
// between Slack and us may name a date. It is left out where nothing can be made of it.
func plainRetryAfter(h http.Header) {
	text := h.Get("Retry-After")
	if text == "" {
		return
	}
	h.Del("Retry-After")
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		at, none := http.ParseTime(text)
		now, unknown := http.ParseTime(h.Get("Date")) // by the clock that at is from
		if none != nil || unknown != nil {
			return
		}
		seconds = int64(at.Sub(now).Seconds())
	}
	h.Set("Retry-After", strconv.FormatInt(min(max(seconds, 0), int64(maxLater.Seconds())), 10))
}

// verdict says what a call of Slack came to.
type verdict int

const (
	// callDone: it has taken effect.
	callDone verdict = iota
	// callLater: it has not, and may be made again at a time that Slack has named.
	callLater
	// callAgain: it has not, and may be made again.
	callAgain
	// callRefused: it has not, and never will.
	callRefused
	// callUnknown: nobody knows.
	callUnknown
)

// outcome is what a call came to, told without anything that could hold a secret.
type outcome struct {
	verdict verdict
	// code is Slack's word for it, or ours.
	code string
	// after is how long to wait with callLater.
	after time.Duration
}

const (
	// laterDefault is how long to wait when Slack does not say.
	laterDefault = 30 * time.Second
	maxLater     = 15 * time.Minute
)

// judge tells what the error of a call means.
func judge(err error) outcome {
	if err == nil {
		return outcome{verdict: callDone, code: "ok"}
	}
	if limited, ok := errors.AsType[*slack.RateLimitedError](err); ok {
		return outcome{callLater, "ratelimited", min(max(limited.RetryAfter, time.Second), maxLater)}
	}
	if said, ok := errors.AsType[slack.SlackErrorResponse](err); ok {
		switch said.Err {
		case "ratelimited", "rate_limited", "message_limit_exceeded":
			return outcome{callLater, clean(said.Err), laterDefault}
		case "internal_error", "fatal_error", "request_timeout", "service_unavailable":
			// Slack: some of it may have been done before.
			return outcome{verdict: callUnknown, code: clean(said.Err)}
		}
		return outcome{verdict: callRefused, code: clean(said.Err)}
	}
	if status, ok := errors.AsType[slack.StatusCodeError](err); ok {
		switch {
		case status.Code == http.StatusTooManyRequests:
			return outcome{callLater, "ratelimited", laterDefault}
		case status.Code >= 400 && status.Code < 500 && status.Code != http.StatusRequestTimeout:
			return outcome{verdict: callAgain, code: "http_4xx"}
		}
		return outcome{verdict: callUnknown, code: "http_" + http.StatusText(status.Code)}
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return outcome{verdict: callAgain, code: "no_connection"}
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return outcome{verdict: callAgain, code: "no_connection"}
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return outcome{verdict: callAgain, code: "certificate"} // of somebody in between, as a rule
	}
	return outcome{verdict: callUnknown, code: "no_answer"}
}

// judged counts a call and judges it.
func (z *Zone) judged(method string, err error) outcome {
	o := judge(err)
	z.metrics.calls.WithLabelValues(method, [...]string{"ok", "limited", "again", "refused", "unknown"}[o.verdict]).Inc()
	return o
}

// eventType marks our messages, so that they are found again.
const eventType = "parley_answer"

// errNoTimestamp: a response that says neither that a message was posted nor that
// it was not.
var errNoTimestamp = errors.New("verification: Slack has not said where the message is")

// postPart posts one message of an answer.
func (z *Zone) postPart(ctx context.Context, t thread, id string, part int, text string) outcome {
	_, ts, err := z.api.PostMessageContext(ctx, t.channel,
		slack.MsgOptionText(text, false), slack.MsgOptionTS(t.ts), slack.MsgOptionDisableLinkUnfurl(), slack.MsgOptionDisableMediaUnfurl(),
		slack.MsgOptionMetadata(slack.SlackMetadata{EventType: eventType, EventPayload: map[string]any{"question": id, "part": part}}))
	if err == nil && ts == "" {
		err = errNoTimestamp
	}
	return z.judged("chat.postMessage", err)
}

// thread is a place for an answer; asked is the message in it that asked.
type thread struct{ channel, ts, asked string }

const (
	repliesPage  = 200
	repliesPages = 50
)

// look is a look through a thread that Slack has broken off: behind which page it
// goes on.
type look struct {
	part   int
	cursor string
}

// maxLooks bounds the looks that are remembered; without its memory one begins anew.
const maxLooks = 10_000

// posted looks whether a part of an answer stands in its thread: as a message of
// ours, or as a file. Some apps get one short page a minute: after an error the next
// call goes on where this one was. What comes into the thread meanwhile is at its
// end.
func (z *Zone) posted(ctx context.Context, t thread, id string, part int, fileID string) (bool, outcome) {
	from := z.lookedUpTo(id, part)
	for range repliesPages {
		messages, next, err := z.replies(ctx, t, from)
		o := z.judged("conversations.replies", err)
		switch {
		case o.code == "invalid_cursor":
			return false, outcome{verdict: callAgain, code: o.code} // from the beginning
		case o.verdict != callDone:
			if o.verdict != callRefused && from != "" {
				z.lookOn(id, look{part, from})
			}
			return false, o
		}
		if len(messages) == 0 && from == "" {
			// The message that was asked in is always there.
			return false, outcome{verdict: callAgain, code: "no_messages"}
		}
		for _, m := range messages {
			if isPart(object(m), id, part, fileID) {
				return true, o
			}
		}
		if next == "" {
			return false, o
		}
		from = next
	}
	return false, outcome{verdict: callRefused, code: "thread_too_long"}
}

// replies reads the page of a thread that begins at a cursor, and gives the cursor of the next
// one, "" if there is none. The library would refuse all of it for one member of one message
// that it does not know, and others may write what they like.
func (z *Zone) replies(ctx context.Context, t thread, from string) (messages []json.RawMessage, next string, err error) {
	form := url.Values{
		"token": {string(z.cfg.Slack.BotToken.Reveal())}, "channel": {t.channel}, "ts": {t.ts}, "oldest": {t.asked},
		"inclusive": {"1"}, "limit": {strconv.Itoa(repliesPage)}, "include_all_metadata": {"1"},
	}
	if from != "" {
		form.Set("cursor", from)
	}
	answer, err := z.call(ctx, "conversations.replies", form)
	if err != nil || string(answer["has_more"]) != "true" {
		return answer.list("messages"), "", err
	}
	return answer.list("messages"), object(answer["response_metadata"]).str("next_cursor"), nil
}

// call calls a method of the Web API, with the errors that those of the library are.
func (z *Zone) call(ctx context.Context, method string, form url.Values) (members, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, z.cfg.Slack.APIURL+method, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := z.web.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if after, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && resp.StatusCode == http.StatusTooManyRequests {
		return nil, &slack.RateLimitedError{RetryAfter: time.Duration(after) * time.Second}
	}
	if resp.StatusCode != http.StatusOK {
		return nil, slack.StatusCodeError{Code: resp.StatusCode, Status: resp.Status}
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	answer := object(body)
	switch why := strings.TrimSpace(answer.str("error")); {
	case string(answer["ok"]) == "true":
		return answer, nil
	case why == "":
		return nil, errors.New("verification: Slack has not said whether it is so")
	default:
		return nil, slack.SlackErrorResponse{Err: why}
	}
}

// lookedUpTo gives, and forgets, where a look through the thread of a question was
// broken off; "" is its beginning.
func (z *Zone) lookedUpTo(id string, part int) (cursor string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	l := z.looks[id]
	delete(z.looks, id)
	if l.part != part {
		return ""
	}
	return l.cursor
}

// lookOn remembers where a look is to go on.
func (z *Zone) lookOn(id string, l look) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if len(z.looks) >= maxLooks {
		clear(z.looks)
	}
	z.looks[id] = l
}

func isPart(m members, id string, part int, fileID string) bool {
	if fileID != "" {
		return slices.ContainsFunc(m.list("files"), func(f json.RawMessage) bool { return object(f).str("id") == fileID })
	}
	metadata := object(m["metadata"])
	payload := object(metadata["event_payload"])
	if metadata.str("event_type") != eventType || payload.str("question") != id {
		return false
	}
	var n float64
	return json.Unmarshal(payload["part"], &n) == nil && int(n) == part
}

// upload brings a file to Slack, where nobody sees it before it is shared.
func (z *Zone) upload(ctx context.Context, f *file) (id string, o outcome) {
	u, err := z.api.GetUploadURLExternalContext(ctx, slack.GetUploadURLExternalParameters{FileName: f.Name, FileSize: len(f.Content)})
	if o := z.judged("files.getUploadURLExternal", err); o.verdict != callDone {
		return "", o
	}
	if !z.uploadable(u.UploadURL) {
		return "", outcome{verdict: callRefused, code: "upload_host"}
	}
	ctx, cancel := context.WithTimeout(ctx, uploadTimeout(len(f.Content)))
	defer cancel()
	err = z.uploads.UploadToURL(ctx, slack.UploadToURLParameters{UploadURL: u.UploadURL, Content: string(f.Content), Filename: f.Name})
	if o := z.judged("upload", err); o.verdict != callDone {
		return "", o
	}
	return u.FileID, outcome{verdict: callDone}
}

// uploadTimeout bounds the upload of so many bytes: as any call, and as long as they
// take at 1 Mbit/s.
func uploadTimeout(size int) time.Duration {
	const rate = 1e6 / 8 // bytes in a second
	return slackTimeout + time.Duration(size)*time.Second/rate
}

// share posts an uploaded file.
func (z *Zone) share(ctx context.Context, t thread, f *file) outcome {
	_, err := z.api.CompleteUploadExternalContext(ctx, slack.CompleteUploadExternalParameters{
		Files: []slack.FileSummary{{ID: f.ID, Title: f.Name}}, Channel: t.channel, ThreadTimestamp: t.ts,
	})
	return z.judged("files.completeUploadExternal", err)
}
