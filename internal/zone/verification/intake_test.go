package verification_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/zone/verification"
	"github.com/parley-project/parley/internal/zone/verification/slacktest"
)

// TestZN7_Signature: what Slack has not signed now gets 401, and nothing happens.
func TestZN7_Signature(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		body := message("why?").Body()
		sign := func(at time.Duration) http.Header { return slacktest.Sign(signingSecret, time.Now().Add(at), body) }
		set := func(name string, values ...string) http.Header {
			h := sign(0)
			h[name] = values
			return h
		}
		const stamp, signature = "X-Slack-Request-Timestamp", "X-Slack-Signature"
		good := sign(0).Get(signature)
		now := sign(0).Get(stamp)
		for name, c := range map[string]struct {
			header http.Header
			body   []byte
		}{
			"no headers":          {header: http.Header{}},
			"no stamp":            {header: set(stamp)},
			"empty stamp":         {header: set(stamp, "")},
			"stamp is no number":  {header: set(stamp, "now")},
			"negative stamp":      {header: set(stamp, "-"+now)},
			"signed stamp":        {header: set(stamp, "+"+now)},
			"fraction":            {header: set(stamp, now+".0")},
			"huge stamp":          {header: set(stamp, "99999999999999999999999999")},
			"non-ASCII stamp":     {header: set(stamp, "٩٤٦٦٨٤٨٠٠")},
			"two stamps":          {header: set(stamp, now, now)},
			"too old":             {header: sign(-301 * time.Second)},
			"too new":             {header: sign(301 * time.Second)},
			"no signature":        {header: set(signature)},
			"empty signature":     {header: set(signature, "")},
			"no prefix":           {header: set(signature, strings.TrimPrefix(good, "v0="))},
			"other version":       {header: set(signature, "v1="+strings.TrimPrefix(good, "v0="))},
			"too short":           {header: set(signature, good[:len(good)-2])},
			"too long":            {header: set(signature, good+"00")},
			"odd length":          {header: set(signature, good[:len(good)-1])},
			"no hexadecimal":      {header: set(signature, "v0="+strings.Repeat("z", 64))},
			"non-ASCII signature": {header: set(signature, "v0=\u00e9"+strings.Repeat("0", 62))},
			"two signatures":      {header: set(signature, good, good)},
			"other secret":        {header: slacktest.Sign("other", time.Now(), body)},
			"empty secret":        {header: slacktest.Sign("", time.Now(), body)},
			"other body":          {header: sign(0), body: append(bytes.Clone(body), ' ')},
			"empty body":          {header: sign(0), body: []byte{}},
			"broken UTF-8":        {header: sign(0), body: []byte("\xff\xfe")},
		} {
			b := body
			if c.body != nil {
				b = c.body
			}
			resp := slacktest.Send(t.Context(), r.zone.Handler(), c.header, b)
			if text, _ := io.ReadAll(resp.Body); resp.Code != http.StatusUnauthorized || string(text) != "Unauthorized\n" {
				t.Errorf("%s: status %d, %q", name, resp.Code, text)
			}
		}
		for line, want := range map[string]int{`why=time age=5m1s`: 1, `why=time age=-5m1s`: 1, "why=signature": 7, "why=unsigned": 18} {
			if n := strings.Count(r.log.String(), line); n != want {
				t.Errorf("%d lines have %s, want %d", n, line, want)
			}
		}
		pass(time.Minute)
		if n := must(r.db.ZoneBacklog(t.Context(), 10))(t); n != 0 || len(r.slack.Posts()) != 0 {
			t.Errorf("%d questions", n)
		}
		for _, at := range []time.Duration{-299 * time.Second, 0, 299 * time.Second} {
			m := message("why?").Body()
			resp := slacktest.Send(t.Context(), r.zone.Handler(), slacktest.Sign(signingSecret, time.Now().Add(at), m), m)
			if resp.Code != http.StatusOK {
				t.Errorf("%v: status %d", at, resp.Code)
			}
		}
	})
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return v
	}
}

// TestZN7_URLVerification: the challenge comes back, and is verified as well.
func TestZN7_URLVerification(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		body := []byte(`{"type":"url_verification","challenge":"3eZbrw1a<b>","token":"x"}`)
		resp := r.slack.Deliver(t.Context(), r.zone.Handler(), body, 0)
		text, _ := io.ReadAll(resp.Body)
		if resp.Code != http.StatusOK || string(text) != "3eZbrw1a<b>" || resp.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("status %d, %q", resp.Code, text)
		}
		if resp := slacktest.Send(t.Context(), r.zone.Handler(), http.Header{}, body); resp.Code != http.StatusUnauthorized {
			t.Errorf("not signed: status %d", resp.Code)
		}
	})
}

// TestZN7_BodyLimit: a body of a mebibyte is read, a larger one is not.
func TestZN7_BodyLimit(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		if s := r.send([]byte(`"`+strings.Repeat("x", 1<<20-2)+`"`), 0); s != http.StatusOK {
			t.Errorf("status %d", s)
		}
		if s := r.send([]byte(`"`+strings.Repeat("x", 1<<20-1)+`"`), 0); s != http.StatusRequestEntityTooLarge {
			t.Errorf("status %d", s)
		}
	})
}

// TestZN7_EventsAtOnce: as much is read at a time as memory has room for; Slack is asked
// to come again with more. Who sends little, or nothing, keeps nobody out.
func TestZN7_EventsAtOnce(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		begin := strings.Repeat("x", 1<<20-1)
		send := func(n int, begin string) (end func()) {
			slow, feed := io.Pipe()
			var all sync.WaitGroup
			for range n {
				all.Go(func() {
					req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/slack/events", io.MultiReader(strings.NewReader(begin), slow))
					r.zone.Handler().ServeHTTP(httptest.NewRecorder(), req)
				})
			}
			pass(time.Second)
			return func() {
				check(t, feed.Close())
				all.Wait()
			}
		}
		silent := send(1000, "")
		m := r.ask(message("are you there?"))
		pass(time.Second)
		r.want(m, "You asked: are you there?")
		much := send(64, begin)
		m = message("why?")
		if s := r.send(m.Body(), 0); s != http.StatusServiceUnavailable {
			t.Errorf("status %d", s)
		}
		much()
		silent()
		r.ask(m)
		pass(time.Second)
		r.want(m, "You asked: why?")
	})
}

// TestZN7_StoredAtOnce: no more events are stored at a time than may be.
func TestZN7_StoredAtOnce(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.stop()
		check(t, r.db.Close())
		var storing, most atomic.Int64
		r.db = r.open(store.Options{Failpoint: func(name string) error {
			if name == "zone.add.before" {
				most.Store(max(most.Load(), storing.Add(1)))
				time.Sleep(1500 * time.Millisecond)
				storing.Add(-1)
			}
			return nil
		}})
		r.cfg.DB = r.db
		r.make()
		r.start()
		var all sync.WaitGroup
		var busy atomic.Int64
		for range 200 {
			body := message("why?").Body()
			all.Go(func() {
				if r.send(body, 0) == http.StatusServiceUnavailable {
					busy.Add(1)
				}
			})
		}
		all.Wait()
		if most.Load() > 128 || busy.Load() < 72 {
			t.Errorf("%d at once, %d sent away", most.Load(), busy.Load())
		}
	})
}

// TestZN7_Duplicates: the same event, and the same message under other events, up to
// eleven times, with and without the headers of a retry: one answer (zones.md §6,
// row 1).
func TestZN7_Duplicates(t *testing.T) {
	bubble(t, func(cfg *verification.Config) { cfg.Slack.Messages = true }, func(t *testing.T, r *rig) {
		m := message("why?")
		for i := range 4 {
			if s := r.send(m.Body(), i); s != http.StatusOK {
				t.Errorf("status %d", s)
			}
		}
		for i := range 11 {
			again := m
			again.EventID = fmt.Sprint("EvAgain", i)
			if i%2 == 0 {
				again.Type, again.ChannelType = "message", "channel"
			}
			r.send(again.Body(), 0)
		}
		pass(time.Minute)
		again := m
		again.EventID = "EvLate"
		r.send(again.Body(), 0)
		pass(time.Minute)
		r.want(m, "You asked: why?")
		if asked, _ := r.exec.counts(); asked != 1 {
			t.Errorf("asked %d times", asked)
		}
		if got := r.counter("parley_zone_events_total", "duplicate"); got != 15 {
			t.Errorf("%v duplicates", got)
		}
		if !strings.Contains(r.log.String(), "retry=3 reason=http_timeout") {
			t.Error("retries are not logged")
		}
		// Repetitions cost the user nothing.
		for range 9 {
			other := r.ask(message("and?"))
			pass(2 * time.Second)
			r.want(other, "You asked: and?")
		}
	})
}

// TestZN7_EventKinds: what is a question and what is not. Everything that Slack has
// signed gets 200.
func TestZN7_EventKinds(t *testing.T) {
	type m = slacktest.Message
	for name, c := range map[string]struct {
		m        m
		messages bool
		bots     bool
		want     string
	}{
		"mention":                      {m: m{}, want: "You asked: why?"},
		"mention in a thread":          {m: m{ThreadTS: "1.5"}, want: "You asked: why?"},
		"direct message":               {m: m{Type: "message", ChannelType: "im", Channel: "D1"}, want: "You asked: why?"},
		"direct, no channel type":      {m: m{Type: "message", Channel: "D1"}, want: "You asked: why?"},
		"channel message":              {m: m{Type: "message", ChannelType: "channel"}},
		"channel message, wanted":      {m: m{Type: "message", ChannelType: "channel"}, messages: true, want: "You asked: why?"},
		"group message, wanted":        {m: m{Type: "message", ChannelType: "group"}, messages: true, want: "You asked: why?"},
		"file":                         {m: m{Type: "message", ChannelType: "im", Subtype: "file_share", Files: file("image/png", 5)}, want: "You asked: why?"},
		"broadcast":                    {m: m{Type: "message", ChannelType: "im", Subtype: "thread_broadcast"}, want: "You asked: why?"},
		"changed":                      {m: m{Type: "message", ChannelType: "im", Subtype: "message_changed"}},
		"deleted":                      {m: m{Type: "message", ChannelType: "im", Subtype: "message_deleted"}},
		"joined":                       {m: m{Type: "message", ChannelType: "channel", Subtype: "channel_join"}, messages: true},
		"ours by user":                 {m: m{Type: "message", ChannelType: "im", User: slacktest.BotUser}},
		"ours by bot":                  {m: m{Type: "message", ChannelType: "im", Bot: slacktest.BotID}, bots: true},
		"ours by app":                  {m: m{Type: "message", ChannelType: "im", More: map[string]any{"app_id": slacktest.AppID}}},
		"our mention":                  {m: m{User: slacktest.BotUser}},
		"another bot":                  {m: m{Bot: "B2"}},
		"another bot, wanted":          {m: m{Bot: "B2"}, bots: true, want: "You asked: why?"},
		"bot message":                  {m: m{Type: "message", ChannelType: "im", Subtype: "bot_message", Bot: "B2"}},
		"unknown type":                 {m: m{Type: "something_of_the_future"}},
		"reaction":                     {m: m{Type: "reaction_added"}},
		"text is a number":             {m: m{More: map[string]any{"text": 7}}, want: "I did not see a question. What would you like to know?"},
		"blocks and edits are strange": {m: m{More: map[string]any{"edited": "yes", "blocks": map[string]any{}, "attachments": 3}}, want: "You asked: why?"},
		"no channel":                   {m: m{More: map[string]any{"channel": nil}}},
		"no timestamp":                 {m: m{More: map[string]any{"ts": 7}}},
		"no user":                      {m: m{More: map[string]any{"user": nil}}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(cfg *verification.Config) { cfg.Slack.Messages, cfg.Slack.Bots = c.messages, c.bots }, func(t *testing.T, r *rig) {
				pass(time.Second) // who we are is known
				m := message("why?")
				c.m.TS, c.m.Text = m.TS, m.Text
				if s := r.send(c.m.Body(), 0); s != http.StatusOK {
					t.Errorf("status %d", s)
				}
				pass(time.Minute)
				if c.want == "" {
					if len(r.slack.Posts()) > 0 {
						t.Errorf("posted %v", r.slack.Posts())
					}
					return
				}
				r.want(c.m, c.want)
			})
		})
	}
}

func file(kind string, size int) []map[string]any {
	return []map[string]any{{"id": "F1", "name": "a.bin", "mimetype": kind, "size": size, "url_private": "https://files.slack.com/secret", "odd": []int{}}}
}

// TestZN7_OddBodies: signed bodies of any shape get 200 and do nothing.
func TestZN7_OddBodies(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		for _, body := range []string{
			`{}`, `[]`, `null`, `7`, `{`, ``, "\xff", `{"type":7}`, `{"type":"event_callback"}`, `{"type":"event_callback","event":7}`,
			`{"type":"event_callback","event":[]}`, `{"type":"event_callback","team_id":"T","event":{"type":"app_mention"}}`,
			`{"type":"app_rate_limited","minute_rate_limited":1,"team_id":"T"}`, `{"type":"something_new"}`,
			`{"type":"event_callback","team_id":"T","event":{"type":"tokens_revoked","tokens":{"oauth":["U1"]}}}`,
			`{"type":"event_callback","team_id":"T","event":{"type":"tokens_revoked","tokens":7}}`,
			`{"type":"event_callback","team_id":"T","event":{"type":"app_home_opened","tab":"messages"}}`,
			strings.Repeat("[", 100_000),
		} {
			if s := r.send([]byte(body), 0); s != http.StatusOK {
				t.Errorf("%.40s: status %d", body, s)
			}
		}
		pass(time.Minute)
		if len(r.slack.Posts()) != 0 || r.counter("parley_zone_events_total", "app_rate_limited") != 1 {
			t.Error("something has happened")
		}
	})
}

// TestZN7_Revoked: when the app is removed from a workspace its token is not used any
// more, and the log says so.
func TestZN7_Revoked(t *testing.T) {
	for name, inner := range map[string]map[string]any{
		"uninstalled": {"type": "app_uninstalled"},
		"revoked":     {"type": "tokens_revoked", "tokens": map[string]any{"bot": []string{slacktest.BotUser}}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				r.send(slacktest.EventBody("Ev1", slacktest.Team, inner), 0)
				m := r.ask(message("why?"))
				other := message("why?")
				other.Team = "T2"
				r.ask(other)
				pass(10 * time.Second)
				got := append(r.texts(m), r.texts(other)...)
				if len(got) != 1 || r.counter("parley_zone_questions_total", "token_revoked") != 1 {
					t.Errorf("%q", got)
				}
			})
		})
	}
}

// TestZN7_Refused: who may not ask, and what may not be asked, gets a text that says
// so, and nothing reaches the other zone.
func TestZN7_Refused(t *testing.T) {
	type m = slacktest.Message
	many := append(append(file("text/plain", 1), file("text/plain", 1)...), append(file("text/plain", 1), append(file("text/plain", 1), append(file("text/plain", 1), file("text/plain", 1)...)...)...)...)
	for name, c := range map[string]struct {
		limits verification.Limits
		m      m
		text   string
		want   string
	}{
		"team":               {limits: verification.Limits{Teams: []string{"T2"}}, want: "Sorry, I am not set up to answer here."},
		"team allowed":       {limits: verification.Limits{Teams: []string{"T2", slacktest.Team}}},
		"user":               {limits: verification.Limits{Users: []string{"U2"}}, want: "Sorry, I am not set up"},
		"user allowed":       {limits: verification.Limits{Users: []string{"U0ASKER"}}},
		"channel":            {limits: verification.Limits{Channels: []string{"C2"}}, want: "Sorry, I am not set up"},
		"channel allowed":    {limits: verification.Limits{Channels: []string{"C0CHAN"}}},
		"longest":            {text: strings.Repeat("あ", 4000)},
		"too long":           {text: strings.Repeat("あ", 4001), want: "That question is too long"},
		"short limit":        {limits: verification.Limits{Prompt: 3}, text: "four", want: "That question is too long"},
		"empty":              {text: " ", want: "I did not see a question"},
		"file type":          {m: m{Files: file("application/x-msdownload", 5)}, want: "I cannot read that kind of file"},
		"no file type":       {m: m{Files: file("", 5)}, want: "I cannot read that kind of file"},
		"picture":            {m: m{Files: file("image/png", 10_000_000)}},
		"large picture":      {m: m{Files: file("image/png", 10_000_001)}, want: "That file is too large"},
		"document":           {m: m{Files: file("text/csv; charset=utf-8", 5_000_000)}},
		"large document":     {m: m{Files: file("application/pdf", 5_000_001)}, want: "That file is too large"},
		"six files":          {m: m{Files: many}, want: "Those are too many files"},
		"size is no number":  {m: m{Files: []map[string]any{{"id": "F1", "mimetype": "image/png", "size": "big"}}}},
		"all common types":   {limits: verification.Limits{Types: []string{}}, m: m{Files: file("image/png", 5)}},
		"no files":           {limits: verification.Limits{Files: -1}, m: m{Files: file("text/plain", 1)}, want: "Those are too many files"},
		"no files, and none": {limits: verification.Limits{Files: -1}},
		"file without an id": {m: m{Files: []map[string]any{{"mimetype": "image/png"}}}, want: "I cannot read that kind of file"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(cfg *verification.Config) { cfg.Limits = c.limits }, func(t *testing.T, r *rig) {
				q := message("why?")
				c.m.TS, c.m.Text = q.TS, q.Text
				if c.text != "" {
					c.m.Text = c.text
				}
				r.ask(c.m)
				r.send(c.m.Body(), 1)
				pass(10 * time.Second)
				asked, _ := r.exec.counts()
				if c.want == "" {
					if asked != 1 {
						t.Errorf("asked %d times: %q", asked, r.texts(c.m))
					}
					return
				}
				r.want(c.m, c.want+"…*")
				if asked != 0 || len(r.slack.Reactions("C0CHAN", c.m.TS)) != 0 {
					t.Error("it was asked all the same")
				}
			})
		})
	}
}

// TestZN7_Attachments: files go on by reference, without any URL; a question that is
// nothing but files has a text.
func TestZN7_Attachments(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		m := message("")
		m.Files = file("image/png", 7)
		r.ask(m)
		pass(time.Second)
		c := r.exec.asked[0]
		got := must(json.Marshal(c.Task.Attachments))(t)
		if string(got) != `[{"id":"F1","name":"a.bin","mimetype":"image/png","size":7}]` || c.Task.Text != "Please look at the attached files." {
			t.Errorf("%s %q", got, c.Task.Text)
		}
	})
}

// TestZN7_RateLimit: a user may ask so often in a minute; he is told once a minute,
// and others do not notice.
func TestZN7_RateLimit(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		var list []slacktest.Message
		for range 15 {
			m := message("why?")
			m.Channel = "C" + strconv.Itoa(len(list)) // no waiting for the channel
			list = append(list, r.ask(m))
			pass(time.Second)
		}
		told := 0
		for i, m := range list {
			switch got := r.texts(m); {
			case i < 10:
				r.want(m, "You asked: why?")
			case len(got) == 1 && strings.HasPrefix(got[0], "You are asking faster"):
				told++
			case len(got) != 0:
				t.Errorf("%q", got)
			}
		}
		if told != 1 || r.counter("parley_zone_questions_total", "rate_limited") != 5 {
			t.Errorf("told %d times", told)
		}
		other := message("why?")
		other.User = "U2"
		r.ask(other)
		pass(time.Second)
		r.want(other, "You asked: why?")
		pass(time.Minute)
		m := r.ask(message("why?"))
		pass(time.Second)
		r.want(m, "You asked: why?")
	})
}

// TestZN7_RateLimitOfTwins: two events that tell of one message at the same time are one
// question for the rate, too, whichever of them is stored.
func TestZN7_RateLimitOfTwins(t *testing.T) {
	bubble(t, func(cfg *verification.Config) { cfg.Limits.PerMinute, cfg.Slack.Messages = 1, true }, func(t *testing.T, r *rig) {
		var list []slacktest.Message
		var both sync.WaitGroup
		for i := range 250 {
			m := message("why?")
			m.User, m.Channel = "U"+strconv.Itoa(i), "C"+strconv.Itoa(i)
			twin := m
			twin.Type, twin.ChannelType = "message", "channel"
			for _, m := range []slacktest.Message{m, twin} {
				both.Go(func() {
					if status := r.send(m.Body(), 0); status != http.StatusOK {
						t.Errorf("status %d", status)
					}
				})
			}
			list = append(list, m)
		}
		both.Wait()
		pass(time.Second)
		for _, m := range list {
			r.want(m, "You asked: why?")
		}
		// It is counted once all the same.
		again := message("why?")
		again.User, again.Channel = "U0", "C0"
		r.ask(again)
		pass(10 * time.Second)
		r.want(again, "You are asking faster…*")
	})
}

// TestZN7_RateLimitOfRefusals: who may not ask, or asks what may not be asked, is told
// no more often than others; else one of them could keep everybody's questions out.
func TestZN7_RateLimitOfRefusals(t *testing.T) {
	bubble(t, func(cfg *verification.Config) { cfg.Limits.PerMinute, cfg.Limits.Users = 3, []string{"U2"} }, func(t *testing.T, r *rig) {
		refused, limited := 0, 0
		for i := range 20 {
			m := message("why?")
			m.Channel = "C" + strconv.Itoa(i) // no waiting for the channel
			r.ask(m)
			pass(time.Second)
			for _, text := range r.texts(m) {
				switch {
				case strings.HasPrefix(text, "Sorry, I am not set up"):
					refused++
				case strings.HasPrefix(text, "You are asking faster"):
					limited++
				default:
					t.Errorf("%q", text)
				}
			}
		}
		if refused != 3 || limited != 1 {
			t.Errorf("told %d times that he may not ask, and %d times that he is too fast", refused, limited)
		}
	})
}

// TestZN7_Backlog: above the backlog people hear that there is too much to do, and
// above twice of it Slack is asked to come again, so that nothing is lost.
func TestZN7_Backlog(t *testing.T) {
	bubble(t, func(cfg *verification.Config) { cfg.Limits.Backlog, cfg.Limits.PerMinute = 3, 100 }, func(t *testing.T, r *rig) {
		r.stop() // nobody works
		var list []slacktest.Message
		for i := range 7 {
			m := message("why?")
			m.Channel = fmt.Sprint("C", i)
			list = append(list, m)
			want := http.StatusOK
			if i == 6 {
				want = http.StatusServiceUnavailable
			}
			if s := r.send(m.Body(), 0); s != want {
				t.Errorf("question %d: status %d", i, s)
			}
		}
		r.make()
		r.start()
		pass(time.Second)
		for i, m := range list {
			switch {
			case i < 3:
				r.want(m, "You asked: why?")
			case i < 6:
				r.want(m, "There is a lot to do…*")
			}
		}
		r.send(list[6].Body(), 1)
		pass(time.Second)
		r.want(list[6], "You asked: why?")
	})
}

// TestZN7_AckInTime: Slack has its answer within three seconds, whatever the store
// does; what could not be stored comes again, and is answered once.
func TestZN7_AckInTime(t *testing.T) {
	for name, hang := range map[string]time.Duration{"hangs": 20 * time.Second, "fails": 0} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				r.stop()
				var repaired atomic.Bool
				check(t, r.db.Close())
				r.db = r.open(store.Options{Failpoint: func(name string) error {
					if name == "zone.add.before" && !repaired.Load() {
						time.Sleep(hang)
						return parley.Errorf(parley.CodeUnavailable, "the disk is away")
					}
					return nil
				}})
				r.cfg.DB = r.db
				r.make()
				r.start()
				m := message("why?")
				begin := time.Now()
				if s := r.send(m.Body(), 0); s != http.StatusServiceUnavailable {
					t.Errorf("status %d", s)
				}
				if took := time.Since(begin); took > 2500*time.Millisecond {
					t.Errorf("after %v", took)
				}
				repaired.Store(true)
				pass(time.Minute)
				r.want(m)
				r.send(m.Body(), 1)
				pass(time.Second)
				r.want(m, "You asked: why?")
			})
		})
	}
}

// TestZN7_Config: a zone that could not do its work, or not safely, does not start.
func TestZN7_Config(t *testing.T) {
	r := newRig(t, nil)
	for name, change := range map[string]func(*verification.Config){
		"signing_secret": func(c *verification.Config) { c.Slack.SigningSecret = parley.Secret{} },
		"bot_token":      func(c *verification.Config) { c.Slack.BotToken = parley.Secret{} },
		"app_token": func(c *verification.Config) {
			c.Slack.Mode, c.Slack.AppToken = verification.ModeSocket, parley.Secret{}
		},
		"slack.mode":   func(c *verification.Config) { c.Slack.Mode = "carrier pigeon" },
		"slack.status": func(c *verification.Config) { c.Slack.Status = "flag" },
		"api_url":      func(c *verification.Config) { c.Slack.APIURL = "http://slack.example/api/" },
		"lease":        func(c *verification.Config) { c.Timing.Lease = time.Second },
		"kept":         func(c *verification.Config) { c.Timing.Keep = time.Minute },
		"profile":      func(c *verification.Config) { c.Profile = "loose" },
		"texts":        func(c *verification.Config) { c.Language = "tlh" },
		"no text":      func(c *verification.Config) { c.Texts = map[string]string{"tiemout": "x"} },
		"empty":        func(c *verification.Config) { c.Texts = map[string]string{"timeout": " "} },
		"limits":       func(c *verification.Config) { c.Limits.Prompt = -1 },
		"required":     func(c *verification.Config) { c.Execution = nil },
	} {
		cfg := r.cfg
		cfg.Metrics = nil
		change(&cfg)
		_, err := verification.New(cfg)
		if parley.CodeOf(err) != parley.CodeInvalid || !strings.Contains(err.Error(), name) && name != "no text" {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("%v", err)
		}
	}
	for _, u := range []string{"https://slack-gov.com/api", "http://127.0.0.1:1/api/", "http://localhost/api/", "http://[::1]:1/"} {
		cfg := r.cfg
		cfg.Metrics, cfg.Slack.APIURL = nil, u
		if _, err := verification.New(cfg); err != nil {
			t.Errorf("%s: %v", u, err)
		}
	}
}

// TestZN7_Forget: what was asked and answered is gone when it has ended, and the row
// a day later.
func TestZN7_Forget(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.ask(message("why?"))
		pass(time.Minute)
		id := r.exec.asked[0].ID
		q := must(r.db.ZoneQuestion(context.Background(), id))(t)
		if q.State != store.ZoneDone || q.Text != "" || q.Answer != nil {
			t.Errorf("%+v", q)
		}
		pass(25 * time.Hour)
		if _, err := r.db.ZoneQuestion(context.Background(), id); parley.CodeOf(err) != parley.CodeNotFound {
			t.Errorf("still there: %v", err)
		}
	})
}
