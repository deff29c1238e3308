package workflow

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/parley-project/parley"
)

// TestGoldenRuns plays the scripts of testdata/runs and compares what the core
// decides with the file beside them. A line of a script is one fact:
//
//	start [JSON]            the first line, with the input
//	ok TASK JSON            the attempt has answered
//	fail TASK CODE [JSON]   it has failed, with details
//	unknown|cancelled TASK  nobody knows how it ended; it was cancelled
//	ask TASK TEXT           its agent waits for a person
//	event ID NAME/KEY AGE JSON  an event has come, which is that old
//	vote STEP CHOICE BY[,ROLE…] [JSON]  somebody answers an approval
//	after DURATION          time passes, timers fire
//	cancel DURATION         the run is cancelled, with that much grace
//	terminate|pause|resume  somebody does that to the run
//	retry                   a new run goes on from this one
//	rerun STEP [JSON]       the same from that step on, with that input
//
// TASK is a step and the number of its attempt: a.2. What is decided stands
// below each line: the events, what is scheduled when for whom, what is closed.
func TestGoldenRuns(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "runs", "*.txtar"))
	if err != nil || len(files) < 2 {
		t.Fatalf("testdata/runs: %d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { goldenRuns(t, file) })
	}
}

func goldenRuns(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var doc string
	for i := range archive.Files {
		f := &archive.Files[i]
		if strings.HasSuffix(f.Name, ".yaml") {
			doc = string(f.Data)
			continue
		}
		got := goldenRun(t, doc, string(f.Data))
		if diff := cmp.Diff(string(f.Data), got); diff != "" && !*update {
			t.Errorf("%s (-want +got):\n%s", f.Name, diff)
		}
		f.Data = []byte(got)
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// goldenRun plays the facts of a script, passing over what is indented: that is
// what was decided when it was written.
func goldenRun(t *testing.T, doc, text string) string {
	t.Helper()
	first, _, _ := strings.Cut(text, "\n")
	input := json.RawMessage(`{"x":1}`)
	if _, given, ok := strings.Cut(first, "start "); ok {
		input = json.RawMessage(given)
	}
	begin := Start{Input: input}
	if first == "queue" {
		begin.Turn = &Turn{Key: "k", Limit: 1, WhenFull: parley.WhenFullQueue, Wait: true}
	}
	s := playWith(t, doc, begin)
	var b strings.Builder
	b.WriteString(first + "\n")
	begun := s.now
	s.tell(&b, begun)
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "start") || line == "queue" || line == "" {
			continue
		}
		b.WriteString(line + "\n")
		s.fact(line)
		s.tell(&b, begun)
	}
	fmt.Fprintf(&b, "    %s", s.state.Status())
	if err := s.state.Err(); err != nil {
		fmt.Fprintf(&b, " %s", goldenError(err))
	}
	return b.String() + "\n"
}

func (s *script) fact(line string) {
	s.t.Helper()
	word, rest, _ := strings.Cut(line, " ")
	task, what, _ := strings.Cut(rest, " ")
	r := parley.Result{TaskID: "run-1." + task}
	switch word {
	case "ok":
		r.Outcome, r.Output = parley.OutcomeOK, json.RawMessage(what)
	case "fail":
		code, details, _ := strings.Cut(what, " ")
		r.Outcome, r.Err = parley.OutcomeError, parley.Errorf(parley.Code(code), "no")
		if details != "" {
			r.Err.Details = json.RawMessage(details)
		}
	case "unknown":
		r.Outcome = parley.OutcomeUnknown
	case "cancelled":
		r.Outcome = parley.OutcomeCancelled
	case "ask":
		s.apply(Asked{At: s.now, TaskID: r.TaskID, News: 1, Question: &parley.Question{Kind: parley.QuestionInput, Text: what}})
		return
	case "retry":
		s.again(Rerun{Copied: s.state.Copies(), Edits: s.state.Edits()}, "")
		return
	case "rerun":
		var input json.RawMessage
		if what != "" {
			input = json.RawMessage(what)
		}
		r, err := s.state.Rerun(s.state.Definition(), task, input)
		if err != nil {
			s.last, s.refused = Decision{}, err
			return
		}
		s.again(r, task)
		return
	case "terminate":
		s.apply(Terminate{At: s.now, By: "me", Reason: "enough"})
		return
	case "admit":
		s.apply(Admit{At: s.now, Jitter: 0.5})
		return
	case "pause":
		s.apply(Pause{At: s.now, By: "me"})
		return
	case "resume":
		s.apply(Resume{At: s.now, By: "me"})
		return
	case "event":
		s.event(rest)
		return
	case "vote":
		s.vote(rest)
		return
	case "after", "cancel":
		d, err := time.ParseDuration(rest)
		if err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
		if word == "after" {
			s.after(d)
		} else {
			s.apply(Cancel{At: s.now, Grace: d})
		}
		return
	default:
		if !s.childFact(word, task, what) {
			s.t.Fatalf("no such fact: %s", line)
		}
		return
	}
	s.apply(Settled{
		At: s.now, TaskID: r.TaskID, Result: r, Jitter: 0.5,
		AgentRetry: AgentRetry(parley.RetryConfig{MaxRetries: 1, InitialDelay: time.Second, MaxDelay: time.Minute, Multiplier: 2}),
	})
}

// again begins a new run that takes over what r says.
func (s *script) again(r Rerun, from string) {
	s.t.Helper()
	s.state = NewState("run-1", s.state.Definition(), DefaultRunLimits())
	s.open, s.history = make(map[string]Schedule), nil
	s.apply(Start{At: s.now, Input: json.RawMessage(`{"x":1}`), RetriedFrom: "run-0", RerunFrom: from, Copied: r.Copied, Edits: r.Edits})
}

func (s *script) event(line string) {
	s.t.Helper()
	w := strings.SplitN(line, " ", 4)
	name, key, _ := strings.Cut(w[1], "/")
	age, err := time.ParseDuration(w[2])
	if err != nil {
		s.t.Fatalf("%s: %v", line, err)
	}
	s.apply(Signalled{At: s.now, Signal: parley.Signal{ID: w[0], Name: name, Key: key, Time: s.now.Add(-age), Data: json.RawMessage(w[3])}})
}

func (s *script) vote(line string) {
	w := strings.SplitN(line, " ", 4)
	names := strings.Split(w[2], ",")
	v := Vote{Step: w[0], Choice: w[1], By: names[0], Roles: names[1:], Comment: "said " + names[0]}
	if len(w) > 3 {
		v.Data = json.RawMessage(w[3])
	}
	s.refusal = s.state.MayVote(v)
	s.apply(Voted{At: s.now, Vote: v})
}

// tellApprovals writes what the last decision says about approvals.
func (s *script) tellApprovals(b *strings.Builder, begun time.Time) {
	if s.refusal != nil {
		fmt.Fprintf(b, "      refused: %s\n", s.refusal)
		s.refusal = nil
	}
	for _, q := range s.last.Ask {
		fmt.Fprintf(b, "      %s asks %v: %s", q.Step, q.Asked.To, q.Asked.Title)
		for _, a := range q.Asked.Answers {
			fmt.Fprintf(b, ", %s by %s", a.Choice, a.By)
		}
		if at := q.Asked.EscalateAt; at != nil {
			fmt.Fprintf(b, ", more at %s", at.Sub(begun))
		}
		b.WriteByte('\n')
	}
	for _, path := range s.last.Answered {
		fmt.Fprintf(b, "      %s asks no more\n", path)
	}
}

// tellSignals writes what the last decision says about events.
func (s *script) tellSignals(b *strings.Builder, begun time.Time) {
	for _, w := range s.last.Subscribe {
		fmt.Fprintf(b, "      %s waits for %s/%s since %s\n", w.Step, w.Name, w.Key, w.Since.Sub(begun))
	}
	for _, path := range s.last.Unsubscribe {
		fmt.Fprintf(b, "      %s waits no more\n", path)
	}
	for _, id := range s.last.Taken {
		fmt.Fprintf(b, "      takes %s\n", id)
	}
	for _, e := range s.last.Emit {
		fmt.Fprintf(b, "      publish %s %s/%s at %s %s\n", e.ID, e.Name, e.Key, e.Time.Sub(begun), e.Data)
	}
}

// tell writes what the last fact has led to, times since the run began.
func (s *script) tell(b *strings.Builder, begun time.Time) {
	if s.refused != nil {
		fmt.Fprintf(b, "    refused: %v\n", s.refused)
		s.refused = nil
	}
	for _, e := range s.last.Events {
		var data struct {
			Copied   string          `json:"copied_from"`
			Agent    string          `json:"agent"`
			Phase    string          `json:"phase"`
			Fallback bool            `json:"fallback"`
			HedgeAt  time.Time       `json:"hedge_at"`
			Error    *parley.Error   `json:"error"`
			Output   json.RawMessage `json:"output"`
			ID       string          `json:"id"`
			Message  string          `json:"message"`
		}
		if err := json.Unmarshal(e.Data, &data); err != nil {
			s.t.Fatal(err)
		}
		fmt.Fprintf(b, "    %s", e.Type)
		if e.Step != "" {
			fmt.Fprintf(b, " %s.%d", e.Step, e.Attempt)
		}
		if data.Agent != "" {
			b.WriteString(" " + data.Agent)
		}
		if data.Phase != "" {
			b.WriteString(" " + data.Phase)
		}
		if data.ID != "" {
			b.WriteString(" " + data.ID)
		}
		if data.Message != "" {
			b.WriteString(" (" + data.Message + ")")
		}
		if data.Fallback {
			b.WriteString(" (fallback)")
		}
		if !data.HedgeAt.IsZero() {
			fmt.Fprintf(b, " next %s", data.HedgeAt.Sub(begun))
		}
		if data.Error != nil {
			b.WriteString(" " + goldenError(data.Error))
		}
		if data.Output != nil {
			fmt.Fprintf(b, " %s", data.Output)
		}
		if data.Copied != "" {
			b.WriteString(" (copied)")
		}
		b.WriteByte('\n')
	}
	for _, c := range s.last.Schedule {
		fmt.Fprintf(b, "      call %s as %s at %s", c.Task.Agent, strings.TrimPrefix(c.Task.ID, "run-1."), c.At.Sub(begun))
		if input := string(c.Task.Input); input != "{}" {
			b.WriteString(" with " + input)
		}
		if c.Held {
			b.WriteString(", held back")
		}
		b.WriteByte('\n')
	}
	if h := s.last.Hold; h != nil {
		b.WriteString(map[bool]string{true: "      hold back what nobody has begun\n", false: "      let go what was held back\n"}[*h])
	}
	for _, c := range s.last.Close {
		if !c.Absorb {
			fmt.Fprintf(b, "      close %s %s\n", strings.TrimPrefix(c.TaskID, "run-1."), c.Outcome)
		}
	}
	if len(s.last.RequestCancel) > 0 {
		fmt.Fprintf(b, "      ask to cancel %s\n", strings.Join(s.last.RequestCancel, " "))
	}
	s.tellSignals(b, begun)
	s.tellApprovals(b, begun)
	s.tellChildren(b, begun)
	s.sameAsReplayed()
}

// sameAsReplayed: whoever takes the run over after a crash sees what is seen here.
func (s *script) sameAsReplayed() {
	s.t.Helper()
	s.history = append(s.history, s.last.Events...)
	again := NewState("run-1", s.state.Definition(), DefaultRunLimits())
	for _, e := range s.history {
		if err := again.Replay(e); err != nil {
			s.t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(s.state, again) {
		s.t.Errorf("replay gives another state:\n%s", cmp.Diff(describe(s.state), describe(again)))
	}
	s.state = again
}

func goldenError(e *parley.Error) string {
	var text strings.Builder
	text.WriteString(string(e.Code))
	if e.Agent != "" {
		text.WriteString(" of " + e.Agent)
	}
	var d struct {
		Agents []parley.Error `json:"agents"`
		Limit  string         `json:"limit"`
	}
	if json.Unmarshal(e.Details, &d) == nil {
		if d.Limit != "" {
			text.WriteString(" limit " + d.Limit)
		}
		for i := range d.Agents {
			fmt.Fprintf(&text, ", before it %s of %s in attempt %d", d.Agents[i].Code, d.Agents[i].Agent, d.Agents[i].Attempt)
		}
	}
	return text.String()
}

// TestR5_ErrorsOfOthersAreBounded: what the error of a step keeps of other
// agents' errors has a size.
func TestR5_ErrorsOfOthersAreBounded(t *testing.T) {
	s := play(t, `{"name":"t","steps":[{"id":"a","agents":["one","other"],"retry":{"attempts":1}}]}`)
	big := parley.Errorf(parley.CodeAgentError, "%s", strings.Repeat("ü", 1<<20)).WithDetails(map[string]string{"body": strings.Repeat("x", 1<<20)})
	s.settle("a", parley.Result{Outcome: parley.OutcomeError, Err: big}, 0).fail("a", parley.CodeAgentError)
	if n := len(s.state.Err().Details); n < maxOtherText || n > 2*maxOtherText {
		t.Errorf("the details have %d bytes", n)
	}
}

// TestR5_LimitOfAttemptsHoldsForAllAgents: hedged or not, a step makes no more
// attempts than its limit, and waits for no agent that it may not call.
func TestR5_LimitOfAttemptsHoldsForAllAgents(t *testing.T) {
	for _, hedge := range []string{"", `,"hedge_after":"1s"`} {
		def, problems := Parse(ParseOptions{}, []byte(`{"name":"t","steps":[{"id":"a","agents":["one","other","third"],"retry":{"attempts":9,"delay":"0s"}`+hedge+`}]}`))
		if def == nil {
			t.Fatal(problems)
		}
		for limit := 1; limit < 8; limit++ {
			limits := DefaultRunLimits()
			limits.Attempts = limit
			s := &script{t: t, state: NewState("run-1", def, limits), open: make(map[string]Schedule), now: time.Unix(0, 0).UTC()}
			s.apply(Start{At: s.now, Input: json.RawMessage(`{}`)})
			for range 20 {
				if s.after(2 * time.Second); len(s.open) > 0 {
					s.fail("a", parley.CodeAgentError)
				}
			}
			if got := s.step("a"); got.Attempts != limit || got.Error == nil || got.Error.Code != parley.CodeLimit {
				t.Errorf("limit %d%s: %d attempts, %v", limit, hedge, got.Attempts, got.Error)
			}
		}
	}
}

// TestR5_SessionIsOfTheAgentThatAnswered: what another agent has called the
// conversation is not told to it.
func TestR5_SessionIsOfTheAgentThatAnswered(t *testing.T) {
	s := play(t, `
name: t
steps:
  - {id: a, agents: [one, other], hedge_after: 0s, session: talk}
  - {id: b, agents: [one, other], hedge_after: 0s, session: talk}
`)
	s.apply(Settled{At: s.now, TaskID: "run-1.a.2", Result: parley.Result{
		TaskID: "run-1.a.2", Outcome: parley.OutcomeOK, Output: json.RawMessage(`1`), ContextID: "ctx-other",
	}})
	if got := s.step("a"); got.Agent != "other" || got.Status != parley.StepCompleted {
		t.Errorf("step a is %s of %s", got.Status, got.Agent)
	}
	var contexts []string
	for _, c := range s.open {
		contexts = append(contexts, c.Task.Agent+"="+c.Task.ContextID)
	}
	slices.Sort(contexts)
	if diff := cmp.Diff([]string{"one=", "other=ctx-other"}, contexts); diff != "" {
		t.Errorf("contexts (-want +got):\n%s", diff)
	}
}
