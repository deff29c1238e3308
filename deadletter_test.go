package parley_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
)

func sealed(change func(*parley.DeadLetter)) parley.DeadLetter {
	l := parley.DeadLetter{
		Kind: parley.DeadLetterRecord, Code: parley.CodeInvalid, Reason: "r", CreatedAt: time.Unix(1_800_000_000, 0), Key: []byte("k"), Value: []byte("v"),
		Source: &parley.DeadLetterSource{Subject: "s", Topic: "t", Partition: 1, Offset: 2},
	}
	change(&l)
	return l.Seal()
}

// TestDeadLetterIdentity: the same record has the same id at whatever time, and
// another record another.
func TestDeadLetterIdentity(t *testing.T) {
	none := func(*parley.DeadLetter) {}
	id := sealed(none).ID
	if len(id) != 19 || !strings.HasPrefix(id, "dl-") || strings.ToLower(id) != id {
		t.Errorf("id %q", id)
	}
	if later := sealed(func(l *parley.DeadLetter) { l.CreatedAt, l.Reason = time.Unix(1, 0), "other" }); later.ID != id {
		t.Error("the same record has two ids")
	}
	if named := sealed(func(l *parley.DeadLetter) { l.Run, l.Task = "run-1", "task-1" }); named.ID != id {
		t.Error("a record has another id when what it names could be read")
	}
	seen := map[string]string{id: "itself"}
	for name, change := range map[string]func(*parley.DeadLetter){
		"kind":      func(l *parley.DeadLetter) { l.Kind, l.Task = parley.DeadLetterTask, "run.a.1" },
		"task":      func(l *parley.DeadLetter) { l.Kind, l.Task = parley.DeadLetterTask, "run.a.2" },
		"topic":     func(l *parley.DeadLetter) { l.Source.Topic = "u" },
		"partition": func(l *parley.DeadLetter) { l.Source.Partition = 2 },
		"offset":    func(l *parley.DeadLetter) { l.Source.Offset = 3 },
		"key":       func(l *parley.DeadLetter) { l.Key = []byte("kv"); l.Value = nil },
		"value":     func(l *parley.DeadLetter) { l.Value = []byte("w") },
		"nowhere":   func(l *parley.DeadLetter) { l.Source.Topic = "" },
		"later":     func(l *parley.DeadLetter) { l.Source.Topic = ""; l.CreatedAt = time.Unix(5, 0) },
	} {
		other := sealed(change).ID
		if before, ok := seen[other]; ok {
			t.Errorf("%s has the id of %s", name, before)
		}
		seen[other] = name
	}
}

// TestDeadLetterLimits: what is too long is cut, and says so; the size and the
// digest are those of the whole.
func TestDeadLetterLimits(t *testing.T) {
	whole := sealed(func(l *parley.DeadLetter) { l.Value = make([]byte, parley.DeadLetterValue) })
	cut := sealed(func(l *parley.DeadLetter) { l.Value = make([]byte, parley.DeadLetterValue+1) })
	if whole.Cut || len(whole.Value) != parley.DeadLetterValue || !cut.Cut || len(cut.Value) != parley.DeadLetterCut || cut.Size != parley.DeadLetterValue+1 {
		t.Errorf("%d %t, %d %t of %d", len(whole.Value), whole.Cut, len(cut.Value), cut.Cut, cut.Size)
	}
	if cut.Digest == whole.Digest || len(cut.Digest) != 64 {
		t.Errorf("digest %s", cut.Digest)
	}
	for size, kept := range map[int]int{parley.DeadLetterValue: parley.DeadLetterValue, parley.DeadLetterValue + 1: parley.DeadLetterCut} {
		if l := sealed(func(l *parley.DeadLetter) { l.Key = make([]byte, size) }); len(l.Key) != kept || l.Cut != (kept < size) {
			t.Errorf("a key of %d bytes is kept by %d, cut: %t", size, len(l.Key), l.Cut)
		}
	}
	many := sealed(func(l *parley.DeadLetter) {
		l.Reason, l.Agent = strings.Repeat("é", 4000)+"\x00", "\x1b[2J"+strings.Repeat("a", 1<<20)
		for range 100 {
			l.Headers = append(l.Headers, parley.DeadLetterHeader{Name: "h", Value: make([]byte, 1<<10)})
		}
	})
	if len(many.Reason) > 4<<10 || !utf8.ValidString(many.Reason) || len(many.Agent) > 16<<10 || strings.Contains(many.Agent, "\x1b") || len(many.Headers) != 31 {
		t.Errorf("reason %d, agent %d, headers %d", len(many.Reason), len(many.Agent), len(many.Headers))
	}
}

// TestDeadLetterSecrets: headers that name credentials are kept without them.
func TestDeadLetterSecrets(t *testing.T) {
	for name, secret := range map[string]bool{
		"Authorization": true, "proxy-authorization": true, "X-API-Key": true, "x_api_key": true, "Cookie": true, "sasl.password": true,
		"X-Amz-Security-Token": true, "client-secret": true, "traceparent": false, "idempotency-key": false, "correlation-id": false, "parley-task": false,
	} {
		l := sealed(func(l *parley.DeadLetter) {
			l.Headers = []parley.DeadLetterHeader{{Name: name, Value: []byte("hunter2")}}
		})
		b, err := json.Marshal(l)
		if err != nil || strings.Contains(string(b), "hunter2") == secret {
			t.Errorf("%s: %s %v", name, b, err)
		}
	}
}

// TestBytes: text is shown as it is, anything else in base64; both read back.
func TestBytes(t *testing.T) {
	for text, want := range map[string]string{"": `""`, "é<": `"é<"`, "\x00": `"\u0000"`, "\xff": `{"base64":"/w=="}`} {
		b, err := parley.Bytes(text).MarshalJSON()
		if err != nil || string(b) != want {
			t.Errorf("%q: %s %v", text, b, err)
		}
		var back parley.Bytes
		if err := json.Unmarshal(b, &back); err != nil || string(back) != text {
			t.Errorf("%s: %q %v", b, back, err)
		}
	}
	var b parley.Bytes
	for _, bad := range []string{`7`, `{"base64": "!"}`, `[]`} {
		if json.Unmarshal([]byte(bad), &b) == nil {
			t.Errorf("%s was read as %q", bad, b)
		}
	}
	l := sealed(func(l *parley.DeadLetter) { l.Value, l.Headers = []byte("\xff\x00"), nil })
	text, err := json.Marshal(l)
	var back parley.DeadLetter
	if err != nil || json.Unmarshal(text, &back) != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(l, back); d != "" {
		t.Error(d)
	}
}
