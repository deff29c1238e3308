package server_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/server"
)

const pairDoc = `{"name":"pair","version":"3","input":{"type":"object"},"steps":[{"id":"a","agent":"one","input":{"n":"${workflow.input.n}"}},{"id":"b","agent":"two"}]}`

// export gives all lines of a server's archive.
func (w *world) export() string {
	w.t.Helper()
	code, body := w.call("GET", "/api/v1/archive/runs?hidden=true&limit=500", "")
	if code != http.StatusOK {
		w.t.Fatalf("export: %d %s", code, body)
	}
	return string(body)
}

func (w *world) bringIn(lines string) (r parley.ArchiveReport) {
	w.t.Helper()
	code, body := w.call("POST", "/api/v1/archive/runs", lines)
	if code != http.StatusOK {
		w.t.Fatalf("import: %d %s", code, body)
	}
	if err := json.Unmarshal(body, &r); err != nil {
		w.t.Fatal(err)
	}
	return r
}

// TestC7_ArchiveRoundTrip: what goes from one server into an empty one and is taken out
// there is equal, byte for byte; runs that came so are shown, explained and run again
// as those of their own.
func TestC7_ArchiveRoundTrip(t *testing.T) {
	t.Parallel()
	from, to := newCallLog(), newCallLog()
	broken := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadRequest) })
	w := newWorld(t, map[string]http.Handler{"one simple-a2a": from.simpleAgent("one", 0), "two simple-a2a": from.simpleAgent("two", 0), "bad simple-a2a": broken},
		pairDoc, `{"name":"fails","steps":[{"id":"a","agent":"bad"}]}`)
	good, bad := w.run("pair", `{"n": 1.50}`), w.run("fails", `{}`)
	if code, body := w.call("POST", "/api/v1/agents/one/call", `{"input":{"text":"hi"}}`); code >= 300 {
		t.Fatalf("call: %d %s", code, body)
	}
	lines := w.export()
	for strings.Count(lines, "\n") < 3 { // the call is under way
		time.Sleep(time.Millisecond)
		lines = w.export()
	}

	other := newWorld(t, map[string]http.Handler{"one simple-a2a": to.simpleAgent("one", 0), "two simple-a2a": to.simpleAgent("two", 0)})
	if r := other.bringIn(lines); r.Added != 3 || len(r.Refused) != 0 {
		t.Fatalf("%+v", r)
	}
	if got := other.export(); got != lines {
		t.Errorf("what came out is another:\n%s\n%s", got, lines)
	}
	if r := other.bringIn(lines); r.Same != 3 || len(r.Refused) != 0 {
		t.Errorf("again: %+v", r)
	}
	for _, run := range []parley.Run{good, bad} {
		for _, path := range []string{"", "/steps", "/events", "/attempts", "/explain"} {
			code, mine := w.call("GET", "/api/v1/runs/"+run.ID+path, "")
			theirCode, theirs := other.call("GET", "/api/v1/runs/"+run.ID+path, "")
			// Which protocol an agent speaks is what is known here; "bad" is not.
			if code != http.StatusOK || theirCode != code || run.ID == good.ID && path != "/explain" && string(mine) != string(theirs) {
				t.Errorf("%s%s: %d\n%s\n%d\n%s", run.Workflow, path, code, mine, theirCode, theirs)
			}
		}
	}
	again := other.post("/api/v1/runs/"+good.ID+"/rerun", `{"from":"b"}`, http.StatusAccepted)
	if got := other.end(again.ID); got.Status != parley.RunCompleted || got.RetriedFrom != good.ID || got.Version != "3" {
		t.Errorf("%+v", got)
	}
	if n := to.counts(); len(n) != 1 {
		t.Errorf("run again from b, these were called: %v", n)
	}
	if code, body := other.call("POST", "/api/v1/workflows/pair/execute", `{"input_data":{}}`); code != http.StatusNotFound {
		t.Errorf("a version of an archive was started: %d %s", code, body)
	}
	if code, body := other.call("POST", "/api/v1/workflows", pairDoc+"\n"); code != http.StatusOK && code != http.StatusCreated {
		t.Errorf("deployed: %d %s", code, body)
	}
	if got := other.run("pair", `{"n":2}`); got.Status != parley.RunCompleted || got.Version != "3" {
		t.Errorf("%+v", got)
	}
}

// TestC7_ArchiveIsChecked: a history that does not lead to the end that it claims, or
// that is not one, is refused and named; the lines beside it are taken.
func TestC7_ArchiveIsChecked(t *testing.T) {
	t.Parallel()
	log := newCallLog()
	w := newWorld(t, map[string]http.Handler{"one simple-a2a": log.simpleAgent("one", 0), "two simple-a2a": log.simpleAgent("two", 0)}, pairDoc)
	w.run("pair", `{"n":1}`)
	line := w.export()
	other := newWorld(t, nil)
	for _, c := range []struct{ old, with, say string }{
		{`"status":"COMPLETED"`, `"status":"FAILED"`, "its events lead to COMPLETED"},
		{`"type":"run.completed"`, `"type":"run.failed"`, "lead to FAILED"},
		{`"type":"step.completed","step":"a"`, `"type":"step.completed","step":"zz"`, "do not follow"},
		{`"source":"{`, `"source":"`, "definition cannot be read"},
		{`"definition":{`, `"definition":{"x":1,`, "/definition/x"},
	} {
		changed := strings.Replace(line, c.old, c.with, 1)
		if changed == line {
			t.Fatalf("%s is not in %s", c.old, line)
		}
		r := other.bringIn(changed)
		if r.Invalid != 1 || len(r.Refused) != 1 || !strings.Contains(r.Refused[0].Detail, c.say) {
			t.Errorf("%s: %+v, want %s", c.with, r, c.say)
		}
	}
	if got := other.export(); got != "" {
		t.Errorf("this was taken: %s", got)
	}
	if r := other.bringIn("{}\n" + line + strings.Replace(line, `"hidden":true`, ``, 1)); r.Invalid != 1 || r.Added != 1 || r.Same != 1 {
		t.Errorf("%+v", r)
	}
	if r := other.bringIn(strings.Replace(line, `"triggered_by":"`, `"triggered_by":"x`, 1)); r.Conflict != 1 && strings.Contains(line, "triggered_by") {
		t.Errorf("other content: %+v", r)
	}
	if r := other.bringIn(strings.Replace(line, `"name":"pair"`, `"name":"other"`, 1)); r.Conflict != 1 {
		t.Errorf("other content: %+v", r)
	}
}

// bringBack imports what an archive holds, and counts the runs that came. A run that is
// gone leaves rows behind for a moment, and is refused until they are gone too: then it
// is imported again, as the answer says.
func (w *world) bringBack(dir string) (added int) {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.ndjson")) // two, around midnight
	if err != nil || len(files) == 0 {
		w.t.Fatal(files, err)
	}
	var lines []byte
	for _, f := range files {
		l, err := os.ReadFile(f)
		if err != nil {
			w.t.Fatal(err)
		}
		lines = append(lines, l...)
	}
	for {
		r := w.bringIn(string(lines))
		added += r.Added
		if r.Conflict == 0 {
			return added
		}
		for _, c := range r.Refused {
			if !strings.Contains(c.Detail, "is being removed here: import it again") {
				w.t.Fatalf("%+v", r)
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// TestC7_ServerRemovesRuns: a server with a retention archives and removes runs by
// itself, and takes them back from that archive.
func TestC7_ServerRemovesRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	cfg := w.cfg
	dir := filepath.Join(t.TempDir(), "archive")
	cfg.Data = filepath.Join(t.TempDir(), "data")
	cfg.Retention = server.Retention{Every: 5 * time.Millisecond, Archive: dir, Workflows: map[string]server.RetentionRule{"tick": {Runs: 1}}}
	w.server = startServer(t, cfg)
	for _, name := range []string{"tick", "kept"} {
		if code, body := w.call("POST", "/api/v1/workflows", `{"name":"`+name+`","steps":[{"id":"a","set":1}]}`); code != http.StatusCreated {
			t.Fatalf("%d %s", code, body)
		}
	}
	kept := []string{w.run("kept", `{}`).ID, w.run("kept", `{}`).ID}
	gone := []string{w.run("tick", `{}`).ID, w.run("tick", `{}`).ID}
	kept = append(kept, w.run("tick", `{}`).ID)
	status := func(id string) int {
		code, _ := w.call("GET", "/api/v1/runs/"+id, "")
		return code
	}
	for status(gone[0]) == http.StatusOK || status(gone[1]) == http.StatusOK {
		time.Sleep(time.Millisecond)
	}
	for _, id := range kept {
		if code := status(id); code != http.StatusOK {
			t.Errorf("run %s: %d", id, code)
		}
	}
	if added := w.bringBack(dir); added != 2 {
		t.Errorf("%d runs were brought back, want 2", added)
	}
	for _, id := range append(kept, gone...) {
		if !strings.Contains(w.export(), id) || status(id) != http.StatusOK {
			t.Errorf("run %s is not there", id)
		}
	}
}
