package verification_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/verification"
	"github.com/parley-project/parley/internal/zone/verification/slacktest"
)

// say has the other zone answer with a text and a file.
func (r *rig) say(text string, f *zone.FileArtifact) {
	r.exec.ask = func(context.Context, int, zone.Call) (zone.Result, zone.Info, error) {
		return zone.Result{Status: zone.StatusSuccess, ResponseText: text, FileArtifact: f}, zone.Info{}, nil
	}
}

// TestZN7_PostFaults: whatever becomes of a call of Slack, the answer stands in the
// thread once, or the log says why it cannot.
func TestZN7_PostFaults(t *testing.T) {
	type faults = map[string][]slacktest.Fault
	reset, landed := slacktest.Fault{Reset: true}, slacktest.Fault{Landed: true, Reset: true}
	for name, c := range map[string]struct {
		faults faults
		// within is when the answer is there; posts is how often it was posted.
		within time.Duration
		posts  int
		failed string
	}{
		"none":                  {within: time.Second, posts: 1},
		"429":                   {faults: faults{"chat.postMessage": {{Status: 429, RetryAfter: 7}}}, within: 8 * time.Second, posts: 2},
		"429 again and again":   {faults: faults{"chat.postMessage": {{Status: 429, RetryAfter: 7}, {Status: 429, RetryAfter: 7}, {Status: 429, RetryAfter: 7}}}, within: 23 * time.Second, posts: 4},
		"429 without a time":    {faults: faults{"chat.postMessage": {{Status: 429}}}, within: 32 * time.Second, posts: 2},
		"429 until a date":      {faults: faults{"chat.postMessage": {{Status: 429, RetryAt: "Sat, 01 Jan 2000 00:01:00 GMT"}}, "conversations.replies": {{Error: "missing_scope"}}}, within: 62 * time.Second, posts: 2},
		"429 for part seconds":  {faults: faults{"chat.postMessage": {{Status: 429, RetryAt: "1.5"}}, "conversations.replies": {{Error: "missing_scope"}}}, within: 32 * time.Second, posts: 2},
		"429 for too long":      {faults: faults{"chat.postMessage": {{Status: 429, RetryAt: "9300000000", RetryAfter: 900}}}, within: 16 * time.Minute, posts: 2},
		"429 for ever":          {faults: faults{"chat.postMessage": {{Status: 429, RetryAfter: 1 << 30}}}, within: 16 * time.Minute, posts: 2},
		"ratelimited":           {faults: faults{"chat.postMessage": {{Error: "ratelimited"}}}, within: 32 * time.Second, posts: 2},
		"landed, reset":         {faults: faults{"chat.postMessage": {landed}}, within: 10 * time.Second, posts: 1},
		"landed, 500":           {faults: faults{"chat.postMessage": {{Landed: true, Status: 500}}}, within: 10 * time.Second, posts: 1},
		"landed, 502":           {faults: faults{"chat.postMessage": {{Landed: true, Status: 502}}}, within: 10 * time.Second, posts: 1},
		"landed, error":         {faults: faults{"chat.postMessage": {{Landed: true, Error: "internal_error"}}}, within: 10 * time.Second, posts: 1},
		"landed, no error":      {faults: faults{"chat.postMessage": {{Landed: true, Error: " "}}}, within: 10 * time.Second, posts: 1},
		"landed, too slow":      {faults: faults{"chat.postMessage": {{Delay: time.Minute}}}, within: 20 * time.Second, posts: 1},
		"slow":                  {faults: faults{"chat.postMessage": {{Delay: 9 * time.Second}}}, within: 10 * time.Second, posts: 1},
		"lost, reset":           {faults: faults{"chat.postMessage": {reset}}, within: 10 * time.Second, posts: 2},
		"lost, 500":             {faults: faults{"chat.postMessage": {{Status: 500}}}, within: 10 * time.Second, posts: 2},
		"404":                   {faults: faults{"chat.postMessage": {{Status: 404}}}, within: 10 * time.Second, posts: 2},
		"lost, then landed":     {faults: faults{"chat.postMessage": {reset, landed}}, within: 20 * time.Second, posts: 2},
		"landed, look fails":    {faults: faults{"chat.postMessage": {landed}, "conversations.replies": {reset, {Status: 500}, {Status: 429, RetryAfter: 60}, {Error: "internal_error"}}}, within: 2 * time.Minute, posts: 1},
		"lost, look fails":      {faults: faults{"chat.postMessage": {reset}, "conversations.replies": {reset, {Status: 503}}}, within: 30 * time.Second, posts: 2},
		"landed, no look":       {faults: faults{"chat.postMessage": {landed}, "conversations.replies": {{Status: 200}, {Error: " "}, {Status: 404}}}, within: 2 * time.Minute, posts: 1},
		"landed, may not look":  {faults: faults{"chat.postMessage": {landed}, "conversations.replies": {{Error: "missing_scope"}}}, within: 30 * time.Second, posts: 1, failed: "post_unknown.missing_scope"},
		"no status":             {faults: faults{"reactions.add": {reset, {Error: "invalid_thread_ts"}}, "reactions.remove": {{Delay: time.Minute}}}, within: time.Second, posts: 1},
		"channel not found":     {faults: faults{"chat.postMessage": {{Error: "channel_not_found"}}}, within: time.Minute, failed: "channel_not_found", posts: 1},
		"not in channel":        {faults: faults{"chat.postMessage": {{Error: "not_in_channel"}}}, within: time.Minute, failed: "not_in_channel", posts: 1},
		"token revoked":         {faults: faults{"chat.postMessage": {{Error: "token_revoked"}}}, within: time.Minute, failed: "token_revoked", posts: 1},
		"an error with a token": {faults: faults{"chat.postMessage": {{Error: "bad " + botToken}}}, within: time.Minute, failed: "other", posts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				for method, list := range c.faults {
					r.slack.Fail(method, list...)
				}
				m := r.ask(message("why?"))
				pass(c.within)
				check := func() {
					t.Helper()
					if c.failed != "" && c.faults["chat.postMessage"][0].Landed == false {
						r.want(m)
					} else {
						r.want(m, "You asked: why?")
					}
				}
				check()
				pass(5 * time.Minute)
				check()
				calls := r.slack.Calls("chat.postMessage")
				if len(calls) != c.posts {
					t.Errorf("posted %d times, want %d", len(calls), c.posts)
				}
				for i, f := range c.faults["chat.postMessage"] {
					least := min(time.Duration(f.RetryAfter)*time.Second, 15*time.Minute)
					if f.RetryAfter > 0 && calls[i+1].At.Sub(calls[i].At) < least {
						t.Errorf("again after %v, Slack wants %v", calls[i+1].At.Sub(calls[i].At), least)
					}
				}
				if c.failed != "" && (r.counter("parley_zone_questions_total", c.failed) != 1 || !strings.Contains(r.log.String(), "level=ERROR")) {
					t.Errorf("nobody is told:\n%s", r.log.String())
				}
				if c.failed == "" && r.counter("parley_zone_questions_total", "answered") != 1 {
					t.Errorf("the question is not done:\n%s", r.log.String())
				}
				if asked, _ := r.exec.counts(); asked != 1 {
					t.Errorf("asked %d times", asked)
				}
			})
		})
	}
}

// TestZN7_SlackIsDown: an answer waits for Slack for as long as it is told to, and
// then the log says that it was not posted.
func TestZN7_SlackIsDown(t *testing.T) {
	for name, c := range map[string]struct {
		faults int
		posted bool
	}{"half an hour": {25, true}, "for ever": {1000, false}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				for range c.faults {
					r.slack.Fail("chat.postMessage", slacktest.Fault{Status: 500})
					r.slack.Fail("conversations.replies", slacktest.Fault{Status: 503})
				}
				m := r.ask(message("why?"))
				pass(3 * time.Hour)
				if c.posted {
					r.want(m, "You asked: why?")
					return
				}
				r.want(m)
				if r.counter("parley_zone_questions_total", "post_timeout") != 1 {
					t.Error("nobody is told")
				}
			})
		})
	}
}

// TestZN7_LongAnswer: an answer of any length comes as messages that Slack takes, in
// order, a second apart, each once, whatever is lost in between. Other people who
// write in the thread do not matter.
func TestZN7_LongAnswer(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		var text strings.Builder
		for i := range 900 {
			fmt.Fprintf(&text, "Paragraph %03d is about the weather & the sea.\n\n", i)
		}
		r.say(text.String(), nil)
		r.slack.Fail("chat.postMessage", slacktest.Fault{}, slacktest.Fault{Landed: true, Reset: true}, slacktest.Fault{Status: 429, RetryAfter: 5},
			slacktest.Fault{Reset: true})
		m := r.ask(message("why?"))
		for range 30 {
			r.slack.See("C0CHAN", m.TS, "me too")
		}
		pass(2 * time.Minute)
		var got []string
		var last time.Time
		for _, p := range r.slack.Thread("C0CHAN", m.TS) {
			if p.Text == "me too" {
				continue
			}
			if n := len([]rune(p.Text)); n > 4000 {
				t.Errorf("%d characters", n)
			}
			if gap := p.At.Sub(last); gap < time.Second {
				t.Errorf("%v after the one before", gap)
			}
			got, last = append(got, p.Text), p.At
		}
		want := strings.ReplaceAll(strings.TrimSpace(text.String()), "&", "&amp;")
		if joined := strings.Join(got, "\n\n"); joined != want {
			t.Errorf("%d messages, %d characters instead of %d", len(got), len(joined), len(want))
		}
		if len(got) < 11 {
			t.Errorf("%d messages", len(got))
		}
	})
}

// TestZN7_LookAmongOdd: what stands in a message of somebody else keeps nobody from finding
// what was posted, and what was not.
func TestZN7_LookAmongOdd(t *testing.T) {
	odd := []string{
		`{"type":"message","bot_id":"B0ALERT","blocks":[{"type":"actions","elements":[{"type":"hologram_button"}]}]}`,
		`{"type":"message","attachments":[{"id":"1","color":7,"fields":[{"short":"true","value":1}]}]}`,
		`{"type":"message","metadata":{"event_type":7,"event_payload":["question"]},"files":[{"id":7},"F1"],"edited":false}`,
		`{"type":"message","metadata":null,"files":{}}`, `"message"`, `null`, `7`,
	}
	for name, landed := range map[string]bool{"posted": true, "not posted": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				r.slack.Others(odd...)
				r.slack.Fail("chat.postMessage", slacktest.Fault{Landed: landed, Reset: true})
				m := r.ask(message("why?"))
				pass(time.Minute)
				r.want(m, "You asked: why?")
				if n := r.counter("parley_zone_questions_total", "answered"); n != 1 {
					t.Errorf("the question is not done:\n%s", r.log.String())
				}
			})
		})
	}
}

// TestZN7_LookInPieces: an app that may look at one short page a minute gets through
// a long thread all the same, and finds what it has posted.
func TestZN7_LookInPieces(t *testing.T) {
	for name, forgotten := range map[string]bool{"cursors hold": false, "a cursor is forgotten": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				r.slack.Fail("chat.postMessage", slacktest.Fault{Landed: true, Reset: true, Delay: 2 * time.Second})
				for i := range 8 {
					next := slacktest.Fault{}
					if forgotten && i == 3 {
						next.Error = "invalid_cursor"
					}
					r.slack.Fail("conversations.replies", next, slacktest.Fault{Status: 429, RetryAfter: 60})
				}
				m := r.ask(message("why?"))
				for range 65 { // five pages, with what was asked and answered
					r.slack.See("C0CHAN", m.TS, "me too")
				}
				pass(20 * time.Minute)
				answers := 0
				for _, p := range r.slack.Thread("C0CHAN", m.TS) {
					if p.Text != "me too" {
						answers++
					}
				}
				posts, looks := len(r.slack.Calls("chat.postMessage")), len(r.slack.Calls("conversations.replies"))
				if answers != 1 || posts != 1 || looks > 20 {
					t.Errorf("%d answers, posted %d times, looked %d times", answers, posts, looks)
				}
				if r.counter("parley_zone_questions_total", "answered") != 1 {
					t.Errorf("the question is not done:\n%s", r.log.String())
				}
			})
		})
	}
}

// TestZN7_Pace: one channel gets a message a second, others do not wait for it.
func TestZN7_Pace(t *testing.T) {
	bubble(t, func(cfg *verification.Config) { cfg.Limits.PerMinute = 100 }, func(t *testing.T, r *rig) {
		for range 20 {
			r.ask(message("why?"))
		}
		other := message("why?")
		other.Channel = "C9"
		r.ask(other)
		pass(500 * time.Millisecond)
		r.want(other, "You asked: why?")
		if n := len(r.slack.Posts()); n != 2 {
			t.Errorf("%d posts at once", n)
		}
		pass(21 * time.Second)
		if n := len(r.slack.Posts()); n != 21 {
			t.Errorf("%d posts", n)
		}
		last := map[string]time.Time{}
		for _, p := range r.slack.Posts() {
			if gap := p.At.Sub(last[p.Channel]); gap < time.Second {
				t.Errorf("%v apart in %s", gap, p.Channel)
			}
			last[p.Channel] = p.At
		}
	})
}

// TestZN7_PaceAndClock: the distance of two posts is measured by this process's clock. One
// of the rows that is set back keeps no answer.
func TestZN7_PaceAndClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var back atomic.Int64
		clock := store.Options{Now: func() time.Time { return time.Now().Add(-time.Duration(back.Load())) }}
		r := newRigAt(t, filepath.Join(t.TempDir(), "zone.db"), clock, nil)
		r.start()
		m := r.ask(message("before"))
		pass(time.Second)
		r.want(m, "You asked: before")
		back.Store(int64(2 * time.Hour))
		m = r.ask(message("after"))
		pass(5 * time.Second)
		r.want(m, "You asked: after")
		r.stop()
		check(t, r.db.Close())
	})
}

func artifact(name, content string) *zone.FileArtifact {
	return &zone.FileArtifact{ArtifactID: "a", Name: "generated_file", Parts: []zone.FilePart{{Kind: "file", ContentBase64: []byte(content), FileName: name, MIMEType: "text/csv"}}}
}

// TestZN7_Files: the file of an answer is shared in the thread after the text, once,
// whatever is lost; one that is too large is left out, the text is not.
func TestZN7_Files(t *testing.T) {
	reset, landed := slacktest.Fault{Reset: true}, slacktest.Fault{Landed: true, Reset: true}
	for name, c := range map[string]struct {
		method string
		fault  []slacktest.Fault
		file   *zone.FileArtifact
		text   string
		want   []string
	}{
		"plain":               {file: artifact("a.csv", "1;2"), text: "see", want: []string{"see", "file a.csv: 1;2"}},
		"no text":             {file: artifact("a.csv", "1;2"), want: []string{"file a.csv: 1;2"}},
		"odd name":            {file: artifact("../../etc\\pass\nwd", "1"), text: "see", want: []string{"see", "file passwd: 1"}},
		"turned name":         {file: artifact("a\u202efdp\u200b\u2028.exe \u0085", "1"), text: "see", want: []string{"see", "file afdp.exe: 1"}},
		"long name":           {file: artifact("a"+strings.Repeat("語", 100), "1"), text: "see", want: []string{"see", "file a" + strings.Repeat("語", 84) + ": 1"}},
		"blank name":          {file: artifact(" \u200b", "1"), text: "see", want: []string{"see", "file generated_file: 1"}},
		"no name":             {file: artifact("", "1"), text: "see", want: []string{"see", "file generated_file: 1"}},
		"too large":           {file: artifact("a", strings.Repeat("x", 10_000_001)), text: "see", want: []string{"see"}},
		"url lost":            {method: "files.getUploadURLExternal", fault: []slacktest.Fault{reset}, file: artifact("a", "1"), text: "see", want: []string{"see", "file a: 1"}},
		"url limited":         {method: "files.getUploadURLExternal", fault: []slacktest.Fault{{Status: 429, RetryAfter: 9}}, file: artifact("a", "1"), text: "see", want: []string{"see", "file a: 1"}},
		"upload lost":         {method: "upload", fault: []slacktest.Fault{landed, reset, {Status: 500}}, file: artifact("a", "1"), text: "see", want: []string{"see", "file a: 1"}},
		"share landed, reset": {method: "files.completeUploadExternal", fault: []slacktest.Fault{landed}, file: artifact("a", "1"), text: "see", want: []string{"see", "file a: 1"}},
		"share landed, 500":   {method: "files.completeUploadExternal", fault: []slacktest.Fault{{Landed: true, Status: 500}}, file: artifact("a", "1"), text: "see", want: []string{"see", "file a: 1"}},
		"share lost":          {method: "files.completeUploadExternal", fault: []slacktest.Fault{reset, reset}, file: artifact("a", "1"), text: "see", want: []string{"see", "file a: 1"}},
		"share limited":       {method: "files.completeUploadExternal", fault: []slacktest.Fault{{Status: 429, RetryAfter: 3}}, file: artifact("a", "1"), text: "see", want: []string{"see", "file a: 1"}},
		"may not share":       {method: "files.getUploadURLExternal", fault: []slacktest.Fault{{Error: "missing_scope"}}, file: artifact("a", "1"), text: "see", want: []string{"see"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				r.say(c.text, c.file)
				r.slack.Fail(c.method, c.fault...)
				m := r.ask(message("why?"))
				pass(10 * time.Minute)
				r.want(m, c.want...)
			})
		})
	}
}

// TestZN7_SlowUpload: a file is given as long as one of its size may take, and no more.
func TestZN7_SlowUpload(t *testing.T) {
	large := strings.Repeat("x", 1_000_000)
	for name, c := range map[string]struct {
		content string
		takes   time.Duration
		uploads int
	}{
		"large":          {large, 17 * time.Second, 1},
		"large, stalled": {large, time.Hour, 2},
		"small, stalled": {"1", 17 * time.Second, 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				r.say("see", artifact("a", c.content))
				r.slack.Fail("upload", slacktest.Fault{Delay: c.takes})
				m := r.ask(message("why?"))
				pass(10 * time.Minute)
				r.want(m, "see", "file a: "+c.content)
				if n := len(r.slack.Calls("upload")); n != c.uploads {
					t.Errorf("uploaded %d times, want %d", n, c.uploads)
				}
			})
		})
	}
}

// TestZN7_FileRefused: a file that never got as far as here is missed in the log.
func TestZN7_FileRefused(t *testing.T) {
	for _, why := range []string{zone.FileTooLarge, zone.FileMalformed} {
		bubble(t, nil, func(t *testing.T, r *rig) {
			r.exec.ask = func(context.Context, int, zone.Call) (zone.Result, zone.Info, error) {
				return zone.Result{Status: zone.StatusSuccess, ResponseText: "see", FileRefused: why}, zone.Info{}, nil
			}
			m := r.ask(message("why?"))
			pass(time.Minute)
			r.want(m, "see")
			if !strings.Contains(r.log.String(), "a part of an answer is not posted") {
				t.Errorf("%s: no line in the log", why)
			}
		})
	}
}

// TestZN7_VeryLongAnswer: a text that nobody would read as messages becomes a file;
// beside a file, or beyond what may be one, it is cut.
func TestZN7_VeryLongAnswer(t *testing.T) {
	word := "word "
	for name, c := range map[string]struct {
		n     int
		file  *zone.FileArtifact
		first string
		posts int
	}{
		"file":        {n: 60_000, first: "The answer is long, so it is in the file below.", posts: 2},
		"beside file": {n: 60_000, file: artifact("a", "1"), first: word, posts: 52},
		"too long":    {n: 3_000_000, first: word, posts: 51},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				r.say(strings.Repeat(word, c.n), c.file)
				m := r.ask(message("why?"))
				pass(2 * time.Minute)
				got := r.texts(m)
				if len(got) != c.posts || !strings.HasPrefix(got[0], c.first) {
					t.Fatalf("%d messages, %.60q", len(got), got[0])
				}
				if name == "file" && got[1] != "file answer.md: "+strings.TrimSpace(strings.Repeat(word, c.n)) {
					t.Errorf("%.60q", got[1])
				}
			})
		})
	}
}

// TestZN7_UploadHost: the token goes to hosts of Slack only.
func TestZN7_UploadHost(t *testing.T) {
	for host, want := range map[string]bool{
		"https://files.slack.com": true, "https://slack.com.evil.example": false, "https://evil.example": false, "http://files.slack.com": false,
		"https://files.slack.com@evil.example": false, "https://notslack.com": false,
	} {
		bubble(t, nil, func(t *testing.T, r *rig) {
			r.slack.UploadTo(host)
			r.say("see", artifact("a", "1"))
			m := r.ask(message("why?"))
			pass(time.Minute)
			if got := len(r.texts(m)) == 2; got != want || (len(r.slack.Calls("upload")) > 0) != want {
				t.Errorf("%s: %v", host, got)
			}
		})
	}
}

// TestZN7_AssistantStatus: an assistant's thread shows that somebody is at work; that
// it cannot changes nothing.
func TestZN7_AssistantStatus(t *testing.T) {
	bubble(t, func(cfg *verification.Config) { cfg.Slack.Status, cfg.Language = verification.StatusAssistant, "ja" }, func(t *testing.T, r *rig) {
		m := r.ask(message("why?"))
		pass(2 * time.Second)
		r.want(m, "You asked: why?")
		if got := r.slack.Statuses(); len(got) != 1 || got[0] != "考え中です…" {
			t.Errorf("%q", got)
		}
		r.slack.Fail("assistant.threads.setStatus", slacktest.Fault{Error: "invalid_thread_ts"})
		m = r.ask(message("why?"))
		pass(2 * time.Second)
		r.want(m, "You asked: why?")
	})
}

// TestZN7_SlackCertificate: whoever stands in between with a certificate of its own
// gets nothing, and the log says so.
func TestZN7_SlackCertificate(t *testing.T) {
	r := newRig(t, func(cfg *verification.Config) { cfg.Slack.Transport = nil })
	between := httptest.NewUnstartedServer(r.slack)
	between.Config.ErrorLog = log.New(io.Discard, "", 0)
	between.StartTLS()
	t.Cleanup(between.Close)
	r.cfg.Slack.APIURL = between.URL + "/api"
	r.make()
	r.start()
	eventually(t, "a line in the log", func() bool { return strings.Contains(r.log.String(), "event=slack_auth code=certificate") })
	r.stop()
	if n := len(r.slack.Calls("auth.test")); n != 0 {
		t.Errorf("%d calls", n)
	}
}
