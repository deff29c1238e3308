package verification_test

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/zone/verification"
	"github.com/parley-project/parley/internal/zone/verification/slacktest"
)

// newSocketRig makes a rig in Socket Mode, over real sockets.
func newSocketRig(t *testing.T, o store.Options, change func(*verification.Config)) *rig {
	t.Helper()
	r := newRigAt(t, t.TempDir()+"/zone.db", o, func(cfg *verification.Config) {
		cfg.Slack.Mode, cfg.Slack.SigningSecret, cfg.Slack.Transport = verification.ModeSocket, parley.Secret{}, nil
		cfg.Slack.APIURL = "http://127.0.0.1:1/api" // not yet known
		if change != nil {
			change(cfg)
		}
	})
	server := httptest.NewServer(r.slack)
	t.Cleanup(server.Close)
	r.slack.Listen(server.URL)
	r.cfg.Slack.APIURL = server.URL + "/api"
	r.make()
	return r
}

// eventually waits for something to become true.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// inChannel gives a question in a channel of its own, so that none waits.
func inChannel(text string) slacktest.Message {
	m := message(text)
	m.Channel = "C" + m.TS
	return m
}

// TestZN7_SocketMode: questions come by Socket Mode and are answered once, across
// disconnects of every kind; types that the library does not know are acknowledged.
func TestZN7_SocketMode(t *testing.T) {
	r := newSocketRig(t, store.Options{}, nil)
	r.start()
	ask := func() slacktest.Message {
		t.Helper()
		m := inChannel("why?")
		id := r.slack.Push("events_api", m.Body())
		eventually(t, "an acknowledgement", func() bool { return r.slack.Acks(id) > 0 })
		eventually(t, "an answer", func() bool { return len(r.texts(m)) > 0 })
		return m
	}
	list := []slacktest.Message{ask()}
	for n, how := range []string{"warning", "", "refresh_requested", "", "link_disabled"} {
		r.slack.Disconnect(how)
		eventually(t, "another connection", func() bool { return r.slack.Connections() == n+2 })
		list = append(list, ask())
	}
	odd := []string{
		r.slack.Push("something_of_the_future", []byte(`{"a":1}`)),
		r.slack.Push("slash_commands", []byte(`{"command":"/x"}`)),
		r.slack.Push("interactive", []byte(`{"type":"block_actions"}`)),
		r.slack.Push("interactive", []byte(`7`)),
		r.slack.Push("events_api", slacktest.EventBody("EvX", slacktest.Team, map[string]any{"type": "something_new"})),
		r.slack.Push("events_api", []byte(`{"type":"event_callback","event":{"type":"message","blocks":7,"ts":[]}}`)),
	}
	strange := inChannel("a member of the wrong type?")
	strange.More = map[string]any{"edited": "yes", "attachments": map[string]any{}}
	odd = append(odd, r.slack.Push("events_api", strange.Body()))
	for _, id := range odd {
		eventually(t, "an acknowledgement of "+id, func() bool { return r.slack.Acks(id) > 0 })
	}
	eventually(t, "an answer", func() bool { return len(r.texts(strange)) > 0 })
	again := list[0]
	id := r.slack.Push("events_api", again.Body())
	eventually(t, "an acknowledgement of a repetition", func() bool { return r.slack.Acks(id) > 0 })
	time.Sleep(100 * time.Millisecond)
	r.stop()
	for _, m := range list {
		r.want(m, "You asked: why?")
	}
	r.want(strange, "You asked: a member of the wrong type?")
	for _, id := range odd {
		if n := r.slack.Sends(id); n != 1 {
			t.Errorf("%s was sent %d times", id, n)
		}
	}
	r.checkLeaks()
}

// TestZN7_SocketCut: connections that break at any moment lose no question and answer
// none twice.
func TestZN7_SocketCut(t *testing.T) {
	r := newSocketRig(t, store.Options{}, func(cfg *verification.Config) { cfg.Limits.PerMinute = 1000 })
	r.start()
	eventually(t, "a connection", func() bool { return r.slack.Connections() > 0 })
	var list []slacktest.Message
	var ids []string
	for n := range 60 {
		m := inChannel(fmt.Sprint("question ", n))
		list, ids = append(list, m), append(ids, r.slack.Push("events_api", m.Body()))
		if n%7 == 3 {
			r.slack.Disconnect([]string{"", "warning"}[n%2])
		}
		time.Sleep(time.Duration(n%5) * time.Millisecond)
	}
	for _, id := range ids {
		eventually(t, "an acknowledgement of "+id, func() bool { return r.slack.Acks(id) > 0 })
	}
	for _, m := range list {
		eventually(t, "an answer", func() bool { return len(r.texts(m)) > 0 })
	}
	time.Sleep(100 * time.Millisecond)
	r.stop()
	for n, m := range list {
		r.want(m, fmt.Sprint("You asked: question ", n))
	}
	r.checkLeaks()
}

// TestZN7_SocketNotStored: what could not be stored is not acknowledged, and comes
// again on the next connection.
func TestZN7_SocketNotStored(t *testing.T) {
	broken := make(chan struct{})
	r := newSocketRig(t, store.Options{Failpoint: func(name string) error {
		select {
		case <-broken:
			return nil
		default:
		}
		if name == "zone.add.before" {
			return parley.Errorf(parley.CodeUnavailable, "the disk is away")
		}
		return nil
	}}, nil)
	r.start()
	m := inChannel("why?")
	id := r.slack.Push("events_api", m.Body())
	eventually(t, "a failure", func() bool { return strings.Contains(r.log.String(), "could not be stored") })
	if r.slack.Acks(id) != 0 {
		t.Error("acknowledged, and lost")
	}
	close(broken)
	r.slack.Disconnect("")
	eventually(t, "an acknowledgement", func() bool { return r.slack.Acks(id) > 0 })
	eventually(t, "an answer", func() bool { return len(r.texts(m)) > 0 })
	r.stop()
	r.want(m, "You asked: why?")
}

// TestZN7_SocketToken: a token that is refused is tried again, and no log line has it.
func TestZN7_SocketToken(t *testing.T) {
	r := newSocketRig(t, store.Options{}, func(cfg *verification.Config) { cfg.Slack.AppToken = secret("xapp-wrong-canary") })
	r.start()
	eventually(t, "a line in the log", func() bool { return strings.Contains(r.log.String(), "code=invalid_auth") })
	r.stop()
	if strings.Contains(r.log.String(), "xapp-wrong") {
		t.Error(r.log.String())
	}
	r.checkLeaks()
}

// TestZN7_SocketAwayForLong: however long Slack was away, it is called again soon
// after it is back.
func TestZN7_SocketAwayForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(cfg *verification.Config) { cfg.Slack.Mode = verification.ModeSocket })
		const method = "apps.connections.open"
		r.slack.Fail(method, slices.Repeat([]slacktest.Fault{{Reset: true}}, 10_000)...)
		last, longest := time.Now(), time.Duration(0)
		r.start()
		pass(3 * time.Hour)
		calls := r.slack.Calls(method)
		for _, c := range calls {
			longest, last = max(longest, c.At.Sub(last)), c.At
		}
		if longest > 2*time.Minute || len(calls) > 1000 {
			t.Errorf("called %d times in three hours, once not for %v", len(calls), longest)
		}
		r.stop()
		check(t, r.db.Close())
	})
}
