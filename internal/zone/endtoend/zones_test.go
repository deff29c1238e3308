package endtoend

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley/internal/zone/verification/slacktest"
)

var (
	seedFlag = flag.Uint64("seed", 0, "seed of TestZN7_KilledZones; 0 takes a new one")
	asked    = flag.Int("questions", 40, "questions of TestZN7_KilledZones")
)

// TestZN7_QuestionAndAnswer: a person asks, and finds the answer in the thread,
// once, however often Slack tells of the question; no secret stays anywhere.
func TestZN7_QuestionAndAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	m := question(1, "what is up?")
	for retry := range 3 {
		if status := r.deliver(t.Context(), m, 1); status != http.StatusOK {
			t.Fatalf("delivery %d: %d", retry, status)
		}
	}
	again := m
	again.EventID, again.Type, again.ChannelType = "EvOther", "message", "channel"
	r.deliver(t.Context(), again, 1) // the other kind of event that Slack has for the same message
	r.answered(m)
	forged := question(2, "let me in")
	header := slacktest.Sign("another secret", time.Now(), forged.Body())
	if status := r.post(t.Context(), header, forged.Body()); status != http.StatusUnauthorized {
		t.Errorf("a forged signature: %d", status)
	}
	pause(2 * time.Second) // for what must not come
	if got := r.thread(m); !slices.Equal(got, []string{"answer to what is up?"}) {
		t.Errorf("the thread: %q", got)
	}
	if got := r.thread(forged); len(got) != 0 {
		t.Errorf("the thread of the forged question: %q", got)
	}
	for _, log := range []string{r.execution.out.since(0), r.verification.out.since(0)} {
		if !strings.Contains(log, "correlation_id") {
			t.Error("a zone does not log the correlation id")
		}
	}
	r.readPages()
	r.execution.stop()
	r.verification.stop()
	r.leaks()
}

// TestZN7_QuestionWithFile: files of the common types may come with a question unless
// the configuration says something else, and none if it says so.
func TestZN7_QuestionWithFile(t *testing.T) {
	t.Parallel()
	for configuration, want := range map[string]string{
		"":                                   "answer to why?",
		"    attachments: {max: 0}":          "Those are too many files",
		"    attachments: {types: [text/*]}": "I cannot read that kind of file",
	} {
		r := newRig(t, options{verification: configuration})
		m := question(1, "why?")
		m.Files = []map[string]any{{"id": "F1", "name": "a.png", "mimetype": "image/png", "size": 5}}
		r.deliver(t.Context(), m, 3)
		r.answered(m)
		if got := r.thread(m); len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("with %q: %q, want %q", configuration, got, want)
		}
	}
}

// TestZN7_StrictProfile: where the bot token goes along with each question, it goes
// no further than the door of the other zone.
func TestZN7_StrictProfile(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{execution: "    profile: strict\n    sync_limit: 100ms\n", verification: "    profile: strict\n"})
	r.agent.delay = func(string) time.Duration { return 300 * time.Millisecond }
	asked, failing := question(1, "what is up?"), question(2, "fail please")
	for _, m := range []slacktest.Message{asked, failing} {
		if status := r.deliver(t.Context(), m, 1); status != http.StatusOK {
			t.Fatal(status)
		}
	}
	r.answered(asked, failing)
	if got := r.thread(asked); !slices.Equal(got, []string{"answer to what is up?"}) {
		t.Errorf("the thread: %q", got)
	}
	r.readPages()
	r.execution.stop()
	r.verification.stop()
	r.leaks()
}

// TestZN6_WrappedQuestions: with requests inside messages of A2A a person sees the
// same.
func TestZN6_WrappedQuestions(t *testing.T) {
	t.Parallel()
	for _, wrap := range []string{`wrap: "0.3"`, `wrap: "1.0"`, "wrap: \"1.0\"\n    wrap_binding: HTTP+JSON"} {
		r := newRig(t, options{execution: "    a2a_listen: 127.0.0.1:0\n", verification: "    " + wrap + "\n"})
		asked, failing := question(1, "what is up?"), question(2, "fail please")
		for _, m := range []slacktest.Message{asked, failing} {
			if status := r.deliver(t.Context(), m, 1); status != http.StatusOK {
				t.Fatal(status)
			}
		}
		r.answered(asked, failing)
		if got := r.thread(asked); !slices.Equal(got, []string{"answer to what is up?"}) {
			t.Errorf("%s: %q", wrap, got)
		}
		if got := r.thread(failing); len(got) != 1 || strings.Contains(got[0], "answer") {
			t.Errorf("%s: %q", wrap, got)
		}
	}
}

// TestZN5_ResultsAsLargeAsBothTake: a result may be as large as max_result of both zones
// says, also inside of a message; beyond either of them a person is told of it.
func TestZN5_ResultsAsLargeAsBothTake(t *testing.T) {
	t.Parallel()
	const more, tooMuch = "    max_result: 16MiB\n", "That is more than I can work with"
	for name, o := range map[string]options{
		"both":    {execution: more, verification: more},
		"wrapped": {execution: more + "    a2a_listen: 127.0.0.1:0\n", verification: more + "    wrap: \"1.0\"\n"},
		"sent":    {verification: more},
		"read":    {execution: more},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.top, o.bare = "limits: {value: 16MiB}", true
			r := newRig(t, o)
			r.agent.file = bytes.Repeat([]byte{0, 1, 2}, 3<<20) // 9 MiB, 12 MiB in a response
			m := question(1, "the file, please")
			if status := r.deliver(t.Context(), m, 3); status != http.StatusOK {
				t.Fatal(status)
			}
			r.answered(m)
			if name == "both" || name == "wrapped" {
				eventually(t, "the file has not come", func() bool {
					return slices.ContainsFunc(r.slack.Thread("C0CHAN", m.TS), func(p slacktest.Post) bool {
						return p.File != nil && bytes.Equal(p.File.Content, r.agent.file)
					})
				})
				return
			}
			if got := r.thread(m); len(got) != 1 || !strings.HasPrefix(got[0], tooMuch) {
				t.Errorf("the thread: %.300q", got)
			}
		})
	}
}

// TestZN7_SafeTexts: what goes wrong behind ends in a text that says nothing of it.
func TestZN7_SafeTexts(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{
		execution:    "    task_limit: 2s\n    sync_limit: 500ms\n",
		verification: "    prompt_length: 50\n    rate_per_minute: 3\n    deadline: 10s\n",
	})
	r.agent.delay = func(question string) time.Duration {
		if strings.HasPrefix(question, "slow") {
			return 5 * time.Second
		}
		return 0
	}
	failing, slow, long := question(1, "fail please"), question(2, "slow please"), question(3, strings.Repeat("x", 60))
	for i, m := range []*slacktest.Message{&failing, &slow, &long} {
		m.User = "U0ASKER" + strconv.Itoa(i)
		if status := r.deliver(t.Context(), *m, 1); status != http.StatusOK {
			t.Fatal(status)
		}
	}
	r.answered(failing, slow, long)
	seen := map[string]bool{}
	for _, m := range []slacktest.Message{failing, slow, long} {
		got := r.thread(m)
		if len(got) != 1 || seen[got[0]] {
			t.Errorf("%.20s: %q", m.Text, got)
			continue
		}
		seen[got[0]] = true
		for _, raw := range []string{"10.0.0.7", "-32", "task_failed", "execute_task", "JSON", "http://"} {
			if strings.Contains(got[0], raw) {
				t.Errorf("%.20s: the text tells of %s: %s", m.Text, raw, got[0])
			}
		}
	}
	r.execution.kill()
	down := question(10, "is anybody there?")
	r.deliver(t.Context(), down, 1)
	r.answered(down)
	if got := r.thread(down); len(got) != 1 || strings.Contains(got[0], "refused") {
		t.Errorf("with the other zone away: %q", got)
	} else if lines := r.lines(got[0]); !strings.Contains(lines, "connection refused") {
		t.Errorf("the log does not say why:\n%s", lines)
	}
	r.leaks()
}

// TestZN7_SocketMode is the same over a connection that the zone makes, which
// breaks in the middle.
func TestZN7_SocketMode(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{verification: "    # socket\n"})
	eventually(t, "the zone does not connect", func() bool { return r.slack.Connections() > 0 })
	var all []slacktest.Message
	for i := range 6 {
		m := question(i, "question "+strconv.Itoa(i))
		all = append(all, m)
		r.slack.Push("events_api", m.Body())
		switch i {
		case 1:
			r.slack.Push("a_type_of_the_future", []byte(`{"x":1}`))
		case 3:
			r.slack.Disconnect("warning")
		}
	}
	r.answered(all...)
	pause(time.Second)
	for i, m := range all {
		if got := r.thread(m); !slices.Equal(got, []string{"answer to question " + strconv.Itoa(i)}) {
			t.Errorf("%s: %q", m.Text, got)
		}
	}
	r.readPages()
	r.verification.stop()
	r.leaks()
}

// TestZN7_RestartTakesUpAtOnce: a Verification Zone with a database of its own that
// died with a question at hand takes it up when it is started again.
func TestZN7_RestartTakesUpAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	let := make(chan struct{})
	answer := sync.OnceFunc(func() { close(let) })
	t.Cleanup(answer)
	r.agent.wait = let
	m := question(1, "what is up?")
	if status := r.deliver(t.Context(), m, 1); status != http.StatusOK {
		t.Fatal(status)
	}
	eventually(t, "the agent is not called", func() bool {
		r.agent.mu.Lock()
		defer r.agent.mu.Unlock()
		return len(r.agent.calls["what is up?"]) == 1
	})
	r.verification.kill()
	r.verification.start()
	eventually(t, "nothing is taken up", func() bool { return strings.Contains(r.verification.out.since(0), `"zone_inherit"`) })
	answer()
	r.answered(m)
	if got := r.thread(m); !slices.Equal(got, []string{"answer to what is up?"}) {
		t.Errorf("the thread: %q", got)
	}
}

// TestZN7_KilledZones kills either zone at random moments while people ask. Every
// question that Slack got rid of has one answer in the end, or one text that says
// why not, and none has two.
func TestZN7_KilledZones(t *testing.T) {
	t.Parallel()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	r := newRig(t, options{execution: "    sync_limit: 200ms\n", verification: "    rate_per_minute: 1000\n    deadline: 90s\n"})
	r.agent.delay = func(string) time.Duration { return time.Duration(random.IntN(500)) * time.Millisecond } // called under its lock
	var all []slacktest.Message
	var asking sync.WaitGroup
	for i := range *asked {
		m := question(i, "question "+strconv.Itoa(i))
		all = append(all, m)
		asking.Go(func() {
			pause(time.Duration(i) * 150 * time.Millisecond)
			if status := r.deliver(t.Context(), m, 60); status != http.StatusOK {
				t.Errorf("%s was never taken: %d", m.Text, status)
			}
		})
	}
	chaos := rand.New(rand.NewPCG(seed, 1))
	for range *asked / 4 {
		pause(time.Duration(200+chaos.IntN(500)) * time.Millisecond)
		p := []*process{r.execution, r.verification}[chaos.IntN(2)]
		p.kill()
		pause(time.Duration(chaos.IntN(300)) * time.Millisecond)
		p.start()
	}
	asking.Wait()
	r.answered(all...)
	pause(3 * time.Second) // for second answers
	failed := 0
	for i, m := range all {
		got := r.thread(m)
		if len(got) != 1 {
			t.Errorf("%s: %q", m.Text, got)
			continue
		}
		if got[0] != "answer to question "+strconv.Itoa(i) {
			failed++
			t.Logf("%s: %s\n%s", m.Text, got[0], r.lines(got[0]))
		}
	}
	if failed > *asked/4 {
		t.Errorf("%d of %d questions have no answer", failed, *asked)
	}
	r.agent.mu.Lock()
	for asked, tasks := range r.agent.calls {
		if len(tasks) != 1 {
			t.Errorf("%s: %d tasks for the agent", asked, len(tasks))
		}
	}
	r.agent.mu.Unlock()
	r.readPages()
	r.leaks()
}
