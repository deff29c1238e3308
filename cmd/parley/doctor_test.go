package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
	"github.com/parley-project/parley/internal/bus/kafka"
	"github.com/parley-project/parley/internal/pgtest"
	"github.com/parley-project/parley/internal/server"
	"github.com/parley-project/parley/internal/store"
)

// examined runs parley doctor with a file of settings, and gives what it said. A check
// has more time than by itself, since what comes late is no finding here.
func examined(t *testing.T, settings string, args ...string) (found map[string]finding, exit int, said string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "parley.yaml"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, notes bytes.Buffer
	a := &app{
		stdin: strings.NewReader(""), stdout: &out, stderr: &notes, dir: dir, now: time.Now, zone: time.UTC,
		terminal: func(io.Writer) (int, bool) { return 0, false },
	}
	exit = a.execute(t.Context(), append([]string{"doctor", "--config", "parley.yaml", "-o", "json", "--timeout", "2m"}, args...))
	var list []finding
	if err := json.Unmarshal(out.Bytes(), &list); err != nil {
		t.Fatalf("%v: %s%s", err, out.String(), notes.String())
	}
	found = map[string]finding{}
	for _, f := range list {
		found[f.Check] = f
	}
	return found, exit, out.String() + notes.String()
}

// expect fails unless the finding has the status, and text in what was found or is
// to be done.
func expect(t *testing.T, f finding, status, text string) {
	t.Helper()
	if f.Status != status || !strings.Contains(f.Found+" → "+f.Advice, text) {
		t.Errorf("%+v, want %s and %q", f, status, text)
	}
}

// TestDoctorAsksAgentsWithoutWork: agents are found by what they speak, and none is
// given a task or shown anybody.
func TestDoctorAsksAgentsWithoutWork(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var bodies []string
	serve := func(h http.HandlerFunc) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			bodies = append(bodies, string(body))
			mu.Unlock()
			r.Body = io.NopCloser(bytes.NewReader(body))
			h(w, r)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	carded := serve(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/.well-known/") {
			http.NotFound(w, r)
			return
		}
		_, _ = fmt.Fprintf(w, `{"name":"x","protocolVersion":"0.3.0","preferredTransport":"JSONRPC","url":"http://%s/","skills":[]}`, r.Host)
	})
	mute := serve(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			http.Error(w, "task_id is missing", http.StatusBadRequest)
			return
		}
		http.NotFound(w, r)
	})
	ill := serve(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "boom", http.StatusBadGateway) })
	found, exit, said := examined(t, fmt.Sprintf(`
listen: 127.0.0.1:0
egress: {allow: [127.0.0.0/8]}
agents:
  - {name: carded, url: "%s/", protocol: jsonrpc-2.0, auth: {type: bearer, token: canary-literal}}
  - {name: found, url: "%s/", protocol: auto}
  - {name: other, url: "%s/", protocol: simple-a2a}
  - {name: mute, url: "%s/", protocol: simple-a2a}
  - {name: ill, url: "%s/", protocol: simple-a2a}
`, carded, carded, carded, mute, ill))
	expect(t, found["agent carded"], checkOK, "jsonrpc-2.0, A2A 0.3")
	expect(t, found["agent found"], checkOK, "jsonrpc-2.0, A2A 0.3")
	expect(t, found["agent other"], checkWarn, "protocol: simple-a2a → jsonrpc-2.0")
	expect(t, found["agent mute"], checkOK, "simple-a2a")
	expect(t, found["agent ill"], checkFail, "502")
	if exit != exitFailed {
		t.Errorf("exit code %d", exit)
	}
	if strings.Contains(said, "canary") {
		t.Errorf("a credential came out: %s", said)
	}
	mu.Lock()
	defer mu.Unlock()
	asked := false
	for _, b := range bodies {
		asked = asked || b != ""
		if strings.Contains(b, "message/") || strings.Contains(b, "SendMessage") || strings.Contains(b, `"task_id"`) {
			t.Errorf("an agent was given work: %s", b)
		}
	}
	if !asked {
		t.Error("no agent was asked anything, so that nothing was tested")
	}
}

// TestDoctorAtATakenAddress: a Parley is asked how it is, anything else is a
// failure.
func TestDoctorAtATakenAddress(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]finding{
		`{"status":"ready","roles":["api","bridge"],"checks":{"bus":"ok"}}`:              {Status: checkOK, Found: "served by a Parley already: ready, roles api, bridge"},
		`{"status":"ready","roles":["api"],"checks":{"bus":"ok","peers":"elsewhere"}}`:   {Status: checkWarn, Found: "ready, roles api; peers: elsewhere"},
		`{"status":"not ready","roles":["api"],"checks":{"database":"does not answer"}}`: {Status: checkFail, Found: "not ready, roles api; database: does not answer"},
		`{"status":"up"}`: {Status: checkFail, Found: "is taken, and not by a Parley"},
		`hello`:           {Status: checkFail, Found: "is taken, and not by a Parley"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if strings.Contains(answer, "not ready") {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = io.WriteString(w, answer)
		}))
		t.Cleanup(s.Close)
		found, _, _ := examined(t, "listen: "+strings.TrimPrefix(s.URL, "http://"))
		expect(t, found["listen"], want.Status, want.Found)
	}
	found, _, _ := examined(t, "listen: 192.0.2.1:8420")
	expect(t, found["listen"], checkFail, "cannot be listened on")
}

// TestDoctorShowsNoSecret: what others say may hold what the configuration keeps
// secret, and is masked like everything.
func TestDoctorShowsNoSecret(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"status":"ready","roles":["api"],"checks":{"bus":"canary-key at postgres://ann:canary-pass@db/x"}}`)
	}))
	t.Cleanup(s.Close)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte("canary-key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	found, _, said := examined(t, fmt.Sprintf("listen: %s\nauth: {key: 'file:%s/key'}", strings.TrimPrefix(s.URL, "http://"), dir))
	expect(t, found["listen"], checkWarn, "bus: ")
	if strings.Contains(said, "canary") {
		t.Errorf("a secret came out: %s", said)
	}
}

// TestDoctorGivesUp: what does not answer takes the time of one check, and the
// order of the findings is always the same.
func TestDoctorGivesUp(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	silent, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	begun := time.Now()
	found, exit, _ := examined(t, fmt.Sprintf("listen: %s\ndatabase: {url: 'postgres://x@%s/x'}", silent.Addr(), silent.Addr()), "--timeout", "300ms")
	for _, name := range []string{"listen", "database"} {
		expect(t, found[name], checkFail, "(there was no more time than 300ms)")
	}
	if took := time.Since(begun); exit != exitFailed || took > time.Minute { // of the two that examined says
		t.Errorf("exit code %d after %s", exit, took)
	}
	d := &doctor{timeout: time.Second}
	var all []examination
	for i := range 3 * checksAtOnce {
		all = append(all, func(context.Context) []finding {
			time.Sleep(time.Duration(3*checksAtOnce-i) * time.Millisecond / 4)
			return []finding{fine(fmt.Sprint(i), "")}
		})
	}
	for i, f := range d.run(t.Context(), all) {
		if f.Check != fmt.Sprint(i) {
			t.Errorf("at %d: %s", i, f.Check)
		}
	}
}

// TestDoctorOnPostgreSQL: the server is named, its schema and its clock are told,
// and a database without a schema gets none.
func TestDoctorOnPostgreSQL(t *testing.T) {
	t.Parallel()
	settings := fmt.Sprintf("listen: 127.0.0.1:0\ndatabase: {url: '%s'}", pgtest.Database(t))
	for range 2 {
		found, exit, _ := examined(t, settings)
		expect(t, found["database"], found["database"].Status, "PostgreSQL ")
		expect(t, found["schema"], checkFail, "the database is empty → parley migrate up")
		expect(t, found["clock"], found["clock"].Status, "this machine's")
		if found["database"].Status == checkFail || exit != exitFailed {
			t.Errorf("%+v, exit code %d", found, exit)
		}
	}
}

// TestJudgeSchema: what a server would do decides how grave a schema is.
func TestJudgeSchema(t *testing.T) {
	t.Parallel()
	look := func(applied ...bool) (l server.DatabaseLook) {
		for i, a := range applied {
			step := store.Migration{Version: int64(i + 1)}
			if a {
				step.AppliedAt = epoch()
			}
			l.Steps = append(l.Steps, step)
		}
		return l
	}
	for _, c := range []struct {
		look         server.DatabaseLook
		use          schemaUse
		status, text string
	}{
		{look(true, true), schemaUse{}, checkOK, "current: version 2"},
		{look(true, false), schemaUse{own: true}, checkFail, "behind: 1 of 2 steps are missing → parley migrate up"},
		{look(true, false), schemaUse{auto: true}, checkWarn, "the next start applies them"},
		{look(false, false), schemaUse{own: true}, checkWarn, "the first start makes the schema"},
		{look(false, false), schemaUse{}, checkFail, "the database is empty → parley migrate up"},
	} {
		expect(t, judgeSchema(c.look, nil, c.use), c.status, c.text)
	}
}

// TestJudge: how grave what was found is, and what it advises.
func TestJudge(t *testing.T) {
	t.Parallel()
	healthy := parley.AgentHealth{Healthy: true, Message: "it answered"}
	agent := func(look server.AgentLook) finding { return judgeAgent("agent x", look) }
	check := func(c parley.AgentCheck) finding { return agent(server.AgentLook{AgentCheck: c}) }
	for _, c := range []struct {
		got          finding
		status, text string
	}{
		{judgeSpace("d", leastSpace-1), checkFail, "63 MiB free"},
		{judgeSpace("d", leastSpace), checkWarn, "64 MiB free → free some"},
		{judgeSpace("d", scarceSpace), checkOK, "1024 MiB free"},
		{judgeSpace("d", 68<<30), checkOK, "68 GiB free"},
		{judgeFiles(1024, 8192), checkWarn, "ulimit -n 8704"},
		{judgeFiles(8704, 8192), checkOK, "8704"},
		{judgeClock(-20 * time.Millisecond), checkOK, "20ms behind this machine's"},
		{judgeClock(2 * time.Second), checkWarn, "2s ahead of this machine's, and is the one that counts → set both by NTP"},
		{judgeSchema(server.DatabaseLook{}, errors.New("newer"), schemaUse{}), checkFail, "newer"},
		{agent(server.AgentLook{Refused: true}), checkFail, "egress.allow"},
		{check(parley.AgentCheck{}), checkFail, "start the agent"},
		{check(parley.AgentCheck{Health: healthy}), checkOK, "it answered"},
		{check(parley.AgentCheck{Health: healthy, Failure: parley.Errorf(parley.CodeAgentRejected, "401")}), checkWarn, "not found out: 401"},
		{judgeCondition(client.AgentCondition{Status: parley.HealthUnhealthy, Agent: "a", Message: "gone"}), checkFail, "unhealthy: gone → parley agent check a"},
		{judgeCondition(client.AgentCondition{Status: parley.HealthHealthy, Agent: "a", Circuit: parley.CircuitOpen}), checkWarn, "its circuit is open → parley agent breaker a"},
		{judgeCondition(client.AgentCondition{Status: parley.HealthHealthy, Agent: "a"}), checkOK, "healthy"},
		{judgeCondition(client.AgentCondition{Status: "unknown", Agent: "a"}), checkWarn, "unknown"},
	} {
		expect(t, c.got, c.status, c.text)
	}
	for address, want := range map[string]string{"0.0.0.0:1": "127.0.0.1:1", ":1": "127.0.0.1:1", "[::]:1": "[::1]:1", "10.0.0.1:1": "10.0.0.1:1"} {
		if got := reachable(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

// TestJudgeTopics: each finding is a line, the gravest first; none are one line.
func TestJudgeTopics(t *testing.T) {
	t.Parallel()
	topic := func(name string, there bool, found ...kafka.Finding) kafka.TopicReport {
		return kafka.TopicReport{Plan: kafka.TopicPlan{Topic: name}, Exists: there, Findings: found}
	}
	fault, hint := kafka.Finding{Fatal: true, Text: "it does not exist"}, kafka.Finding{Text: "it has 3 partitions"}
	found := judgeTopics(server.TopicsReport{Topics: []kafka.TopicReport{topic("a", true, hint), topic("b", true), topic("c", false, fault)}})
	if len(found) != 2 {
		t.Fatalf("%+v", found)
	}
	expect(t, found[0], checkFail, "c: it does not exist → parley topics create")
	expect(t, found[1], checkWarn, "a: it has 3 partitions → parley topics check")
	found = judgeTopics(server.TopicsReport{Topics: []kafka.TopicReport{topic("a", true), topic("b", true)}})
	if len(found) != 1 {
		t.Fatalf("%+v", found)
	}
	expect(t, found[0], checkOK, "all 2 are as they should be")
}
