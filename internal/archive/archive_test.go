package archive

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

var epoch = time.Date(2026, 11, 21, 10, 4, 5, 974607000, time.UTC)

func at(n int) time.Time { return epoch.Add(time.Duration(n) * time.Second) }

// full is a run with everything that one can have, values that are no JSON among it.
func full() store.Archived {
	const id = "run-1"
	return store.Archived{
		Run: store.Run{
			ID: id, Workflow: "order", Name: "Order \"ü\"\u2028", Version: "7", DefinitionID: "def-7", Seq: 3, Status: parley.RunFailed, Phase: "body", Paused: true,
			Cancelling: true, Hidden: true, Labels: map[string]string{"team": "blue", "a": "\n"}, RetriedFrom: "run-0", ParentRun: "run-p", ParentStep: "work[1]/x", TriggeredBy: "api",
			Error: []byte(`{"code":"timeout","message":"Too late"}`), CancelledBy: "me", CancelReason: "why",
			CreatedAt: at(0), StartedAt: at(0), UpdatedAt: at(2), EndedAt: at(2),
		},
		IdempotencyKey: "key", InputDigest: "digest",
		Definition: &store.Definition{
			ID: "def-7", Workflow: "order", Name: "Order", Version: "7", Number: 7, Description: "d", Format: "yaml", Source: []byte("name: order\n# ü"),
			Digest:    "bf5cb1e9a79a30b7b0f2f9ab5b2d24e44fd9b90b8c1ec0a1d8c7e3b3bd6b3c1f",
			CreatedAt: at(0), UpdatedAt: at(0), CreatedBy: "me", UpdatedBy: "me",
		},
		Events: []parley.Event{
			{Seq: 1, At: at(0), Type: parley.EventRunStarted, Run: id, Data: []byte(`{"input": {"a":1.50,"b":"\u00e9"}}`)},
			{Seq: 2, At: at(0), Type: parley.EventStepScheduled, Run: id, Step: "a", Attempt: 3, Data: []byte("{\n}")},
			{Seq: 3, At: at(2), Type: parley.EventRunFailed, Run: id},
		},
		Attempts: []store.ArchivedAttempt{
			{
				ID: id + ".a.1", Step: "a", Number: 1, Agent: "writer", CorrelationID: "c", ContextID: "x", Input: []byte(`{"a":1,"a":2}`),
				Policy:  store.Policy{OutcomeUnknown: parley.OutcomeLookup, Silence: time.Minute, AttemptTimeout: time.Hour, OnOpen: parley.OnOpenFail},
				Urgency: 1, Orphanings: 2, Questions: 3, CancelRequested: true, ReplySent: true,
				AgentTaskID: "t", AgentContextID: "u", AgentEndpoint: "http://a", AgentVersion: "1.0",
				Outcome: "failed", Output: []byte("\x00\xff"), Meta: []byte(`{"status":503}`), Question: []byte(`{"text":"?"}`), Reply: []byte(`{"text":"!"}`),
				Deadline: at(9), ScheduledAt: at(0), ClaimedAt: at(1), SettledAt: at(2),
				Late: []store.ArchivedAnswer{{At: at(3), From: "b", Outcome: "ok", Output: []byte(`{"a`), Meta: []byte(`null`)}, {At: at(3), From: "b", Outcome: "failed", Output: []byte{}}},
			},
			{ID: id + ".a.2", Step: "a", Number: 2, Agent: "writer", Input: []byte(` {}`), ScheduledAt: at(1)},
		},
	}
}

// TestC7_LineIsReadBackWhole: a line holds everything of a run, byte for byte, and is
// one line; equal runs have equal lines.
func TestC7_LineIsReadBackWhole(t *testing.T) {
	want := full()
	line := Encode(&want)
	if n := bytes.Count(line, []byte("\n")); n != 1 || line[len(line)-1] != '\n' {
		t.Errorf("the line has %d line ends", n)
	}
	got, err := Decode(line)
	if err != nil {
		t.Fatal(err)
	}
	want.Definition.Digest = got.Definition.Digest // follows from the source
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if again := Encode(&got); !bytes.Equal(again, line) {
		t.Errorf("the line is another one:\n%s\n%s", line, again)
	}
	for _, part := range []string{`"data":{"input": {"a":1.50,"b":"\u00e9"}}`, `"data_bytes":"ewp9"`, `"input_bytes":"IHt9"`, `"source":"name: order\n# ü"`, `"labels":{"a":"\n","team":"blue"}`} {
		if !bytes.Contains(line, []byte(part)) {
			t.Errorf("%s is not in %s", part, line)
		}
	}
}

// TestC7_SourceOfAnyBytes: the source of a definition is kept also where it is no text.
func TestC7_SourceOfAnyBytes(t *testing.T) {
	want := full()
	want.Definition.Source = []byte("name: order\xff")
	got, err := Decode(Encode(&want))
	if err != nil || !bytes.Equal(got.Definition.Source, want.Definition.Source) {
		t.Errorf("%v, %+v", err, got.Definition)
	}
}

// TestC7_LinesAreReadStrictly: what is not known, twice or of another form is refused,
// and the value is not repeated.
func TestC7_LinesAreReadStrictly(t *testing.T) {
	a := full()
	line := string(Encode(&a))
	for _, c := range []struct{ old, with, say string }{
		{`"format":"parley-run/1"`, `"format":"parley-run/2"`, "format"},
		{`"id":"run-1"`, `"id":"run-1","secret":1`, "/run/secret"},
		{`"id":"run-1"`, `"id":"run-1","id":"run-1"`, "twice"},
		{`"id":"run-1"`, `"ID":"run-1"`, "/run/ID"},
		{`"hidden":true`, `"hidden":"secret"`, "/run/hidden"},
		{`"created_at":"2026-11-21T10:04:05.974607Z"`, `"created_at":"2026-11-21T10:04:05.9746070Z"`, "/run/created_at"},
		{`"created_at":"2026-11-21T10:04:05.974607Z"`, `"created_at":"2026-11-21T11:04:05.974607+01:00"`, "/run/created_at"},
		{`"created_at":"2026-11-21T10:04:05.974607Z"`, `"created_at":"2026-11-21T9:04:05.974607Z"`, "/run/created_at"},
		{`"number":7`, `"number":7.5`, "/definition/number"},
		{`"data_bytes":"ewp9"`, `"data_bytes":"?"`, "data_bytes"},
		{"}\n", "", "too early"},
		{"}\n", "} {}\n", "not valid JSON"},
		{"{", "\xff{", "not valid JSON"},
		{line, `["secret"]`, "no line of an archive"},
	} {
		i := strings.Index(line, c.old)
		if strings.HasSuffix(c.old, "\n") {
			i = strings.LastIndex(line, c.old)
		}
		_, err := Decode([]byte(line[:i] + c.with + line[i+len(c.old):]))
		if parley.CodeOf(err) != parley.CodeInvalid || !strings.Contains(err.Error(), c.say) || strings.Contains(strings.ReplaceAll(err.Error(), "/secret", ""), "secret") {
			t.Errorf("%s: %v, want %s", c.with, err, c.say)
		}
	}
}

// FuzzC7_Line: whatever is read as a line is written so that it is read as the same.
func FuzzC7_Line(f *testing.F) {
	a := full()
	f.Add(Encode(&a))
	a.Attempts, a.Definition = nil, nil
	f.Add(Encode(&a))
	f.Add([]byte(`{"format":"parley-run/1","run":{"labels":{"":""}},"events":[{"data":null}],"attempts":[{"late":[{}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := Decode(text)
		if err != nil {
			if c := parley.CodeOf(err); c != parley.CodeInvalid && c != parley.CodeLimit {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		line := Encode(&a)
		again, err := Decode(line)
		if err != nil {
			t.Fatalf("%q was written as %q: %v", text, line, err)
		}
		if got := Encode(&again); !bytes.Equal(got, line) {
			t.Fatalf("%q\nbecame %q\nand then %q", text, line, got)
		}
	})
}

// TestC7_FolderKeepsWholeLines: lines are added to the file of their day; what a crash
// has left of one is removed, and nothing else.
func TestC7_FolderKeepsWholeLines(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "archive")
	f := Folder{Dir: dir, Name: "host/../1"}
	file := f.File(epoch)
	if want := filepath.Join(dir, "runs-2026-11-21-host-..-1.ndjson"); file != want {
		t.Errorf("the file is %s, want %s", file, want)
	}
	add := func(lines, want string) {
		t.Helper()
		if err := f.Append(epoch, []byte(lines)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if err != nil || string(got) != want {
			t.Errorf("the file holds %q (%v), want %q", got, err, want)
		}
	}
	add("{1}\n", "{1}\n")
	add("{2}\n{3}\n", "{1}\n{2}\n{3}\n")
	long := strings.Repeat("x", 200<<10)
	for _, torn := range []string{"{4", long} {
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(whole, torn...), 0o600); err != nil {
			t.Fatal(err)
		}
		add("{5}\n", string(whole)+"{5}\n")
	}
	if err := os.WriteFile(file, []byte(long), 0o600); err != nil {
		t.Fatal(err)
	}
	add("{6}\n", "{6}\n")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if err := f.Append(epoch, []byte("half")); err == nil {
		t.Error("half a line was written")
	}
	if err := (Folder{Dir: file}).Append(epoch, []byte("{}\n")); parley.CodeOf(err) != parley.CodeUnavailable {
		t.Errorf("a folder that is a file: %v", err)
	}
}
