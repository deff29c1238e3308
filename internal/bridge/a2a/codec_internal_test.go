package a2a

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// TestParts_Limits: a file inside a message has at most 1 MiB, a message at most
// 256 parts; the errors say so.
func TestParts_Limits(t *testing.T) {
	file := func(size int) string {
		return `{"parts":[{"raw":"` + base64.StdEncoding.EncodeToString(make([]byte, size)) + `","filename":"x"}]}`
	}
	many := func(n int) string {
		return `{"parts":[` + strings.TrimSuffix(strings.Repeat(`{"text":"x"},`, n), ",") + `]}`
	}
	for _, ok := range []string{file(maxInline), file(0), many(maxParts)} {
		for _, v := range []Version{V03, V10} {
			if _, err := Parts(v, PartsList, json.RawMessage(ok)); err != nil {
				t.Errorf("%.40s: %v", ok, err)
			}
		}
	}
	for _, bad := range []string{file(maxInline + 1), file(maxInline + 2), many(maxParts + 1)} {
		_, err := Parts(V10, PartsList, json.RawMessage(bad))
		if e, ok := errors.AsType[*parley.Error](err); !ok || e.Code != parley.CodeLimit || !strings.Contains(e.Message, "url") {
			t.Errorf("%.40s: %v", bad, err)
		}
	}
}

// TestParts_Refused: what is wrong with a part is said with its number.
func TestParts_Refused(t *testing.T) {
	cases := []struct{ part, want string }{
		{`1`, "input.parts[1] is not an object"},
		{`{}`, "input.parts[1] must have exactly one"},
		{`{"text":"a","url":"https://x"}`, "input.parts[1] must have exactly one"},
		{`{"text":1}`, "input.parts[1] text must be a string"},
		{`{"text":null}`, "input.parts[1] must have exactly one"},
		{`{"url":"https://x","media_type":7}`, "input.parts[1] media_type must be a string"},
		{`{"url":"https://x","filename":[]}`, "input.parts[1] filename must be a string"},
		{`{"url":"/x"}`, "input.parts[1] url must be a whole URL"},
		{`{"url":"https://x","metadata":"m"}`, "input.parts[1] metadata must be an object"},
		{`{"raw":"A"}`, "input.parts[1] raw is not base64"},
		{`{"mediatype":"x","text":"y"}`, `input.parts[1] has the unknown member "mediatype"`},
	}
	for _, c := range cases {
		_, err := Parts(V10, PartsList, json.RawMessage(`{"parts":[{"text":"x"},`+c.part+`]}`))
		if d, ok := errors.AsType[*bridge.DefectError](err); !ok || !strings.Contains(d.Text, c.want) {
			t.Errorf("%s: %v, want %s", c.part, err, c.want)
		}
	}
}

// FuzzParts: what is written is JSON in the form of the dialect, and what one
// dialect has as parts the other one takes.
func FuzzParts(f *testing.F) {
	for _, s := range []string{`{"parts":[{"text":"a"}]}`, `{"parts":[{"data":{"a":[1e400]}}]}`, `"x"`, `[]`, `{"parts":[{"raw":null}]}`, `{"parts":[{"raw":"AA==","media_type":null}]}`, `{"parts":[{"kind":"file","file":{"uri":"a:b","name":"n"}}]}`} {
		f.Add([]byte(s), uint8(0))
		f.Add([]byte(s), uint8(5))
	}
	f.Fuzz(func(t *testing.T, input []byte, how uint8) {
		v := []Version{V03, V10}[how%2]
		mode := []PartsMode{PartsText, PartsData, PartsList}[how/2%3]
		parts, err := Parts(v, mode, input)
		if err != nil {
			return
		}
		if _, err := bridge.CheckJSON("parts", parts); err != nil {
			t.Fatalf("%q as %s became %q: %v", input, mode, parts, err)
		}
		for _, v := range []Version{V03, V10} {
			again := append(append([]byte(`{"parts":`), parts...), '}')
			if _, err := Parts(v, PartsList, again); err != nil {
				t.Fatalf("%q is not taken by %s: %v", parts, v, err)
			}
		}
	})
}

// TestChunks_Pieces: output is told in pieces of at most 32 KiB that make up the
// whole, in their order.
func TestChunks_Pieces(t *testing.T) {
	text := strings.Repeat("Grüße, ", 40_000)
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	a, err := read(V10, fmt.Appendf(nil, `{"artifactUpdate":{"taskId":"t","lastChunk":true,"artifact":{"artifactId":"a","parts":[{"text":%s},{"data":{"n":1}}]}}}`, quoted))
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	all := a.chunks()
	for i, c := range all {
		got.WriteString(c.Text)
		switch {
		case len(c.Text)+len(c.Data) > maxPiece || !utf8.ValidString(c.Text):
			t.Errorf("piece %d has %d bytes, or half a character", i, len(c.Text)+len(c.Data))
		case c.Append != (i > 0), c.Last != (i == len(all)-1), (c.Data != nil) != (i == 0), c.Artifact != "a":
			t.Errorf("piece %d: append %v, last %v, data %s", i, c.Append, c.Last, c.Data)
		}
	}
	if got.String() != text {
		t.Error("the pieces do not make up the text")
	}
}

// TestAssembly_Limit: what grows beyond the limit is not kept, and then the task
// is not complete.
func TestAssembly_Limit(t *testing.T) {
	event := func(id string) *answer {
		a, err := read(V10, fmt.Appendf(nil, `{"artifactUpdate":{"taskId":"t","append":true,"artifact":{"artifactId":%q,"parts":[{"text":"0123456789"}]}}}`, id))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for name, ids := range map[string]func(i int) string{
		"one artifact": func(int) string { return "a" }, "many": func(i int) string { return fmt.Sprint("a", i) },
	} {
		s := assembly{version: V10, limit: 10_000, whole: true}
		s.begin("t", "")
		s.take(event("a"))
		if !s.complete() {
			t.Errorf("%s: not complete after one event", name)
		}
		for i := range 1000 {
			s.take(event(ids(i)))
		}
		if s.complete() || len(s.artifacts) > 0 {
			t.Errorf("%s: %d artifacts, complete %v", name, len(s.artifacts), s.complete())
		}
	}
}

// TestAssembly_Snapshot: of a snapshot with more artifacts than are kept the others
// are not even compared, which would take minutes for a few megabytes of them.
func TestAssembly_Snapshot(t *testing.T) {
	snapshot := func(artifacts int) *answer {
		b := []byte(`{"id":"t","status":{"state":"TASK_STATE_WORKING"},"artifacts":[`)
		for i := range artifacts {
			b = fmt.Appendf(b, `{"artifactId":"%05d"},`, i)
		}
		a, err := read(V10, append(b[:len(b)-1], "]}"...))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	s := assembly{version: V10, limit: 1 << 20}
	s.reset(snapshot(maxArtifacts + 1000))
	if len(s.artifacts) > maxArtifacts {
		t.Errorf("%d artifacts were put together, at most %d are kept", len(s.artifacts), maxArtifacts)
	}
	for artifacts, complete := range map[int]bool{maxArtifacts: true, maxArtifacts + 1: false} {
		if s.take(snapshot(artifacts)); s.complete() != complete {
			t.Errorf("%d artifacts: complete %v", artifacts, s.complete())
		}
	}
}

// FuzzRead: no result or event breaks the reader, in either dialect; what it
// makes of one holds what outcomes promise, and what is put together from
// events is JSON.
func FuzzRead(f *testing.F) {
	for _, s := range []string{
		`{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"a","parts":[{"text":"x"},{"data":[1]}]}]}}`,
		`{"statusUpdate":{"taskId":"t","status":{"state":"TASK_STATE_INPUT_REQUIRED","message":{"parts":[{"text":"?"},{"url":"u"}]}}}}`,
		`{"kind":"artifact-update","taskId":"t","artifact":{"artifactId":"a","parts":[{"kind":"text","text":"x"}]},"append":true}`,
		`{"message":{"role":"ROLE_AGENT","parts":[{"data":null}]}}`, `{"task":{"task":{}}}`, `{"artifactUpdate":{"taskId":"t","artifact":[]}}`,
		`{"kind":"status-update","status":{}}`, `[]`, `null`, `{"text":1,"parts":[{"text":"y"}],"role":"agent"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		raw, err := bridge.CheckJSON("result", raw)
		if err != nil {
			return
		}
		for _, v := range []Version{V03, V10} {
			a, err := read(v, raw)
			if err != nil {
				if _, ok := errors.AsType[*bridge.DefectError](err); !ok {
					t.Fatalf("%T: %v", err, err)
				}
				continue
			}
			checkAnswer(t, v, a)
		}
	})
}

func checkAnswer(t *testing.T, v Version, a *answer) {
	t.Helper()
	out := a.outcome("attempt")
	switch {
	case out.Disposition == bridge.Accepted:
		if out.AgentTaskID == "" || out.Result.Output != nil || out.Result.Err != nil {
			t.Fatalf("accepted: %+v", out)
		}
		if q := out.Question; q != nil && (len(q.Text) > maxTold+3 || len(q.Parts) > maxTold || q.Parts != nil && !json.Valid(q.Parts)) {
			t.Fatalf("question: %+v", q)
		}
	case out.Result.Outcome == parley.OutcomeOK:
		if _, err := bridge.CheckJSON("output", out.Result.Output); err != nil || out.Result.Err != nil {
			t.Fatalf("output %q: %v", out.Result.Output, err)
		}
	case out.Result.Output != nil || out.Result.Err == nil:
		t.Fatalf("%+v", out)
	}
	for _, c := range a.chunks() {
		if len(c.Text)+len(c.Data) > maxPiece || len(c.Data) > 0 && !json.Valid(c.Data) {
			t.Fatalf("chunk: %+v", c)
		}
	}
	s := assembly{version: v, limit: 1 << 20}
	s.begin("t", "c")
	s.status = []byte(`{"state":"working"}`)
	for range 2 {
		s.take(a)
	}
	if s.status == nil {
		s.status = []byte("null")
	}
	if _, err := bridge.CheckJSON("task", s.task()); err != nil {
		t.Fatalf("%q: %v", s.task(), err)
	}
}

// TestAssembly_Merge: chunks are put together by their artifact; what comes
// without append replaces what was there.
func TestAssembly_Merge(t *testing.T) {
	s := assembly{version: V03, limit: 1 << 20, whole: true}
	s.begin("t", "c")
	for _, event := range []string{
		`{"kind":"status-update","taskId":"t","status":{"state":"working"}}`,
		`{"kind":"artifact-update","taskId":"t","artifact":{"artifactId":"a","name":"A","parts":[]},"append":false}`,
		`{"kind":"artifact-update","taskId":"t","artifact":{"artifactId":"b","parts":[{"kind":"text","text":"1"}]},"append":true}`,
		`{"kind":"artifact-update","taskId":"t","artifact":{"artifactId":"a","parts":[{"kind":"text","text":"x"}]},"append":true}`,
		`{"kind":"artifact-update","taskId":"t","artifact":{"artifactId":"a","parts":[]},"append":true}`,
		`{"kind":"artifact-update","taskId":"t","artifact":{"artifactId":"a","parts":[{"kind":"data","data":{}}]},"append":true}`,
		`{"kind":"artifact-update","taskId":"t","artifact":{"artifactId":"b","parts":[{"kind":"text","text":"2"}]}}`,
		`{"kind":"status-update","taskId":"t","status":{"state":"completed"}}`,
	} {
		a, err := read(V03, []byte(event))
		if err != nil {
			t.Fatal(err)
		}
		s.take(a)
	}
	want := `{"kind":"task","id":"t","contextId":"c","status":{"state":"completed"},"artifacts":[` +
		`{"artifactId":"a","name":"A","parts":[{"kind":"text","text":"x"},{"kind":"data","data":{}}]},` +
		`{"artifactId":"b","parts":[{"kind":"text","text":"2"}]}]}`
	if diff := cmp.Diff(want, string(s.task())); diff != "" || !s.complete() {
		t.Error(diff)
	}
}

// TestAssembly_Nameless: artifacts that an agent gives no id, in its account of the whole
// task, are several all the same: the answer has the output of each.
func TestAssembly_Nameless(t *testing.T) {
	for _, ids := range [][2]string{{"", ""}, {`"artifactId":"",`, `"artifactId":"",`}, {`"artifactId":"a",`, `"artifactId":"a",`}} {
		s := assembly{version: V10, limit: 1 << 20, whole: true}
		for _, event := range []string{
			`{"task":{"id":"t","status":{"state":"TASK_STATE_WORKING"},"artifacts":[{` + ids[0] + `"parts":[{"text":"1"}]},{` + ids[1] + `"parts":[{"text":"2"}]}]}}`,
			`{"statusUpdate":{"taskId":"t","status":{"state":"TASK_STATE_COMPLETED"}}}`,
		} {
			a, err := read(V10, []byte(event))
			if err != nil {
				t.Fatal(err)
			}
			s.take(a)
		}
		whole, err := read(V10, s.task())
		if err != nil {
			t.Fatal(err)
		}
		var out struct{ Text string }
		if err := json.Unmarshal(whole.outcome("attempt").Result.Output, &out); err != nil || out.Text != "1\n2" {
			t.Errorf("ids %q: %q, %v", ids, out.Text, err)
		}
	}
}
